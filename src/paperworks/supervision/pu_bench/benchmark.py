"""The benchmark: algorithms, regimes, data sets, seeds and hyper-parameter draws, as one tidy table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from .algorithms import ALGORITHMS
from .data import make_pu
from .learner import PULearner, fit_together
from .metrics import proxy_auc

Regime = Literal["two-sample", "one-sample", "one-sample-c"]
REGIMES: tuple[Regime, ...] = ("two-sample", "one-sample", "one-sample-c")


class Task(NamedTuple):
    """A data set with all labels, split into a pool for training and a test set.

    Attributes:
        X: Features of the pool, shape (n, features).
        y: Classes of the pool, shape (n,).
        X_test: Features of the test set, shape (m, features).
        y_test: Classes of the test set, shape (m,).
        positive: The classes that count as positive.
    """

    X: npt.NDArray[Any]
    y: npt.NDArray[Any]
    X_test: npt.NDArray[Any]
    y_test: npt.NDArray[Any]
    positive: Sequence[Any]


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig:
    """What `run_benchmark` runs: every algorithm in every regime on every task with every seed and draw.

    Attributes:
        tasks: Name to `Task`.
        algorithms: Names of algorithms.
        regimes: "two-sample", "one-sample", and "one-sample-c" with calibration.
        seeds: Each draws P and U, initialisation and batches.
        n_total: Labelled and unlabeled rows together.
        share: n_p / n_total.
        prior: Share of positives in the population.
        draws: Hyper-parameter draws; the first is ``learner``'s own setting, the others are random.
        log_rate: Range of the exponent of ten from which a learning rate is drawn.
        log_batch: Range of the exponent of two, its end excluded, from which a batch size is drawn.
        criteria: Criteria that choose among checkpoints and draws.
        learner: Further arguments of `PULearner`, such as ``max_steps``.
        options: Name of an algorithm to further arguments of it.
    """

    tasks: Mapping[str, Task]
    algorithms: Sequence[str] = tuple(ALGORITHMS)
    regimes: Sequence[Regime] = REGIMES
    seeds: Sequence[int] = (0, 1, 2)
    n_total: int = 13_000
    share: float = 0.3
    prior: float = 0.5
    draws: int = 1
    log_rate: tuple[float, float] = (-4.5, -2.5)
    log_batch: tuple[int, int] = (4, 7)
    criteria: Sequence[Literal["pa", "pauc", "oa", "last"]] = ("pa", "pauc", "oa")
    learner: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse names that do not exist."""
        for what, named, known in (
            ("algorithms", self.algorithms, tuple(ALGORITHMS)),
            ("regimes", self.regimes, REGIMES),
            ("criteria", self.criteria, ("pa", "pauc", "oa", "last")),
        ):
            for name in named:
                if name not in known:
                    raise ValueError(f"{what}: {name!r} is not one of {', '.join(known)}")
        for what, number in (("draws", self.draws), ("seeds", len(self.seeds)), ("tasks", len(self.tasks))):
            if number < 1:
                raise ValueError(f"{what}: at least one is needed")


def classification_scores(truth: npt.ArrayLike, score: npt.ArrayLike) -> dict[str, float]:
    """Accuracy, AUC, F1, precision and recall of scores with known classes; a score of 0 or more means positive.

    Args:
        truth: 1 or True for positive, shape (n,).
        score: f, shape (n,). NaN, of a net that blew up, counts as 0: it says nothing about the row.

    Returns:
        Name to number.
    """
    f = np.nan_to_num(np.asarray(score, dtype=float))
    positive, called = np.asarray(truth) == 1, f >= 0
    hits = float((positive & called).sum())
    precision, recall = hits / max(1, called.sum()), hits / max(1, positive.sum())
    return {
        "accuracy": float((positive == called).mean()),
        "auc": proxy_auc(positive.astype(int), f),
        "f1": 2 * hits / max(1, called.sum() + positive.sum()),
        "precision": float(precision),
        "recall": float(recall),
    }


def run_benchmark(config: BenchmarkConfig, progress: Callable[[int, int], None] | None = None) -> pd.DataFrame:
    """Run it; all seeds of a combination are trained side by side.

    Args:
        config: What to run.
        progress: Called with the number of combinations done and in all.

    Returns:
        Columns task, algorithm, regime, seed, criterion, chosen (whether the criterion chose this draw), draw,
        learning_rate, batch_size, step (of the checkpoint that the criterion chose), metric, value. Metrics are
        accuracy, auc, f1, precision and recall on the test set, and the criterion's own value.
    """
    rows: list[dict[str, Any]] = []
    draws = list(_draws(config))
    total = len(config.tasks) * len(config.regimes) * len(config.algorithms) * len(draws)
    done = 0
    for name, task in config.tasks.items():
        truth = np.isin(task.y_test, list(task.positive))
        for regime in config.regimes:
            setting: Any = regime.removesuffix("-c")
            data = [
                make_pu(
                    task.X,
                    task.y,
                    task.positive,
                    config.prior,
                    round(config.share * config.n_total),
                    config.n_total,
                    setting,
                    np.random.default_rng([seed, 0]),
                )
                for seed in config.seeds
            ]
            for algorithm in config.algorithms:
                for draw, knobs in enumerate(draws):
                    learners = [
                        PULearner(
                            algorithm,
                            prior=config.prior,
                            setting=setting,
                            calibrate=regime.endswith("-c"),
                            options=dict(config.options.get(algorithm, {})),
                            random_state=seed,
                            **{**config.learner, **knobs},
                        )
                        for seed in config.seeds
                    ]
                    fit_together(learners, [d.x for d in data], [d.y for d in data], [d.hidden for d in data])
                    for seed, learner in zip(config.seeds, learners, strict=True):
                        for criterion in config.criteria:
                            fixed = {
                                "task": name,
                                "algorithm": algorithm,
                                "regime": regime,
                                "seed": seed,
                                "criterion": criterion,
                                "draw": draw,
                                "learning_rate": learner.learning_rate,
                                "batch_size": learner.batch_size,
                            }
                            rows += _rows(fixed, learner.at(criterion), criterion, task.X_test, truth)
                    done += 1
                    if progress is not None:
                        progress(done, total)
    table = pd.DataFrame(rows)
    keys = ["task", "algorithm", "regime", "seed", "criterion"]
    own = table[table["metric"] == table["criterion"]]
    best = own.loc[own.groupby(keys, sort=False)["value"].idxmax(), [*keys, "draw"]].assign(chosen=True)
    table = table.merge(best, on=[*keys, "draw"], how="left")
    table["chosen"] = table["chosen"].notna()
    return table[[*keys, "chosen", "draw", "learning_rate", "batch_size", "step", "metric", "value"]]


def _draws(config: BenchmarkConfig) -> Sequence[dict[str, Any]]:
    """Hyper-parameters of each draw: the same for all algorithms, as in a fair search."""
    rng = np.random.default_rng(0)
    drawn = [
        {
            "learning_rate": float(10 ** rng.uniform(*config.log_rate)),
            "batch_size": 2 ** int(rng.integers(*config.log_batch)),
        }
        for _ in range(config.draws - 1)
    ]
    return [{}, *drawn]


def _rows(
    fixed: dict[str, Any], learner: PULearner, criterion: str, X: npt.NDArray[Any], truth: npt.NDArray[np.bool_]
) -> list[dict[str, Any]]:
    step = learner.checkpoint_step_
    history = learner.history_
    own = step if criterion == "last" else history[criterion][history["step"].index(step)]
    values = classification_scores(truth, learner.decision_function(X)) | {criterion: float(own)}
    return [{**fixed, "step": step, "metric": metric, "value": value} for metric, value in values.items()]
