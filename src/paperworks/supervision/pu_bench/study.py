"""The experiments: regimes (C1, C4), labelled shares (C2) and selection criteria (C3).

An arm of `regimes` and `shares` is called with arguments of `PULearner` and returns it or any scikit-learn classifier
with `decision_function` and an attribute `setting`, "two-sample" or "one-sample", by which its data are drawn. An arm
of `selection` is called as ``factory(prior=, setting=)`` and returns ``criterion(y_pu, score, y_true)``, a number that
is largest for the checkpoint to be chosen.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from paperworks.claims.study import Cell, ExperimentConfig, Outcome, Trial, experiment
from paperworks.kit.assets import load_letter, load_mnist5k

from .benchmark import classification_scores
from .data import PUData, make_pu
from .learner import PULearner, fit_together
from .metrics import Setting, oracle_accuracy, proxy_accuracy, proxy_auc

PRIOR = 0.5
ONE_SAMPLE: Setting = "one-sample"
POSITIVE: dict[str, list[Any]] = {
    "letter1": list("BVLRIOWSJKCHZ"),
    "letter2": list("DTAYQGBLIWJCZ"),
    "mnist1": [4, 7, 9, 5, 8],
}
# Learning rates of the regimes "os", "osc" and "ts": for each arm the best of 0.003, 0.01, 0.03, 0.1, 0.3 on letter1
# with pilot seeds 110 and 111 (test accuracy of the checkpoint that proxy accuracy chose). Where 0.3 was best 1.0 was
# tried too, and was worse.
RATES = {
    "naive": (0.03, 0.3, 0.1),
    "upu": (0.01, 0.1, 0.03),
    "nnpu": (0.03, 0.03, 0.03),
    "nnpu_ga": (0.01, 0.1, 0.03),
    "pusb": (0.1, 0.03, 0.03),
    "vpu": (0.1, 0.03, 0.03),
    "cvir": (0.3, 0.3, 0.3),
    "dist_pu": (0.003, 0.01, 0.01),
    "count": (0.003, 0.003, 0.003),
    "glws": (0.3, 0.1, 0.1),
}
OPTIONS = {"dist_pu": {"late": False}}
REGIMES: dict[str, dict[str, Any]] = {
    "os": {"setting": "one-sample", "calibrate": False},
    "osc": {"setting": "one-sample", "calibrate": True},
    "ts": {"setting": "two-sample", "calibrate": False},
}


def _arms(*algorithms: str) -> dict[str, partial[PULearner]]:
    return {
        f"{name}_{regime}": partial(
            PULearner, algorithm=name, learning_rate=rate, options=OPTIONS.get(name), **arguments
        )
        for name in algorithms
        for (regime, arguments), rate in zip(REGIMES.items(), RATES[name], strict=True)
    }


class Training(ExperimentConfig):
    """Sizes of a training; the learning rates stand with the arms."""

    steps: int = Field(1000, gt=0, description="optimisation steps")
    batch: int = Field(64, gt=0, description="labelled rows in a batch, and as many unlabeled ones")
    hidden: int = Field(500, gt=0, description="width of the hidden layer")
    every: int = Field(100, gt=0, description="steps between two looks at the held-out rows")
    per_letter: int = Field(500, gt=0, le=734, description="rows of each letter in the pool; the rest are test rows")
    per_digit: int = Field(400, gt=0, lt=500, description="rows of each digit in the pool; the rest are test rows")
    share: float = Field(0.3, gt=0, lt=0.5, description="labelled share of the training rows")
    test: int = Field(7000, gt=0, description="test rows, at most those that are left")
    watch: int = Field(1000, gt=0, description="test rows on which the curve is drawn")


@dataclasses.dataclass(frozen=True)
class _Pool:
    """One split of a data set into rows to draw P and U from, and test rows."""

    x: npt.NDArray[np.float32]
    y: npt.NDArray[Any]
    x_test: npt.NDArray[np.float32]
    truth: npt.NDArray[np.bool_]
    positive: list[Any]


def _pool(name: str, c: Training, rng: np.random.Generator) -> _Pool:
    """Take equally many rows of every class into the pool; features get mean 0 and variance 1 over it."""
    if name.startswith("letter"):
        x, y = load_letter()
        classes: npt.NDArray[Any] = y
        features, per_class = x.astype(np.float32), c.per_letter
    else:
        images, classes = load_mnist5k()
        # Means of 2x2 pixels: 196 features, near the 256 of USPS, whose place these digits take.
        features = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196).astype(np.float32) / 255
        per_class = c.per_digit
    order = rng.permutation(len(classes))
    rank = np.empty(len(classes), dtype=int)
    for label in np.unique(classes):
        own = order[classes[order] == label]
        rank[own] = np.arange(len(own))
    pool, test = order[rank[order] < per_class], order[rank[order] >= per_class][: c.test]
    if name.startswith("letter"):
        features = (features - features[pool].mean(axis=0)) / features[pool].std(axis=0)
    truth = np.isin(classes[test], POSITIVE[name])
    return _Pool(features[pool], classes[pool], features[test], truth, POSITIVE[name])


def _draw(pool: _Pool, setting: Any, share: float, rng: np.random.Generator) -> PUData:
    total = len(pool.y)
    return make_pu(pool.x, pool.y, pool.positive, PRIOR, round(share * total), total, setting, rng)


def _train(
    trial: Trial[Any], learners: Sequence[Any], data: Sequence[PUData], watch: Callable[[int, Any], None] | None = None
) -> None:
    """Fit, side by side where these are ours."""
    if all(isinstance(learner, PULearner) for learner in learners):
        steps = trial.config.steps

        def look(step: int, score: Callable[[Any], npt.NDArray[np.float64]]) -> None:
            trial.progress(step, steps)
            if watch is not None:
                watch(step, score)

        fit_together(learners, [d.x for d in data], [d.y for d in data], [d.hidden for d in data], look)
        return
    for i, (learner, d) in enumerate(zip(learners, data, strict=True)):
        trial.progress(i, len(learners))
        learner.fit(d.x, d.y)


def _chosen(learner: Any, data: PUData) -> dict[str, float]:
    """PA, PAUC and OA of the chosen checkpoint, on the rows held out; on the training rows for another's learner."""
    if isinstance(learner, PULearner):
        at = learner.history_["step"].index(learner.checkpoint_step_)
        return {name: max(0.0, learner.history_[name][at]) for name in ("pa", "pauc", "oa")}  # -inf: the net blew up
    score = learner.decision_function(data.x)
    return {
        "pa": proxy_accuracy(data.y, score, PRIOR, data.setting),
        "pauc": proxy_auc(data.y, score),
        "oa": oracle_accuracy(data.hidden, score, data.y, data.setting),
    }


def _lanes(
    trial: Trial[Any], data_name: str, share: float, repeats: int
) -> tuple[list[tuple[Cell, int]], list[Any], list[PUData], list[_Pool]]:
    """For each cell and repetition its learner and data; streams depend on seed and repetition alone."""
    c = trial.config
    lanes = [(cell, repeat) for cell in trial.cells for repeat in range(repeats)]
    learners, data, pools = [], [], []
    for cell, repeat in lanes:
        pool = _pool(data_name, c, trial.rng(f"pool {repeat}", cell))
        learner = trial.build(
            prior=PRIOR,
            max_steps=c.steps,
            batch_size=c.batch,
            hidden=c.hidden,
            eval_every=c.every,
            random_state=int(trial.rng(f"learner {repeat}", cell).integers(2**31 - 1)),
            cell=cell,
        )
        data.append(_draw(pool, learner.setting, share, trial.rng(f"data {repeat}", cell)))
        learners.append(learner)
        pools.append(pool)
    return lanes, learners, data, pools


class Regimes(Training):
    """Sizes of the regimes experiment; every cell is two repetitions with data, split and start of their own."""


SMALL = {
    "steps": 24,
    "batch": 32,
    "hidden": 32,
    "every": 8,
    "per_letter": 50,
    "per_digit": 40,
    "test": 400,
    "watch": 100,
}


@experiment(
    "regimes",
    config={"smoke": Regimes(**SMALL), "laptop": Regimes()},
    arms=_arms("naive", "upu", "nnpu", "nnpu_ga", "pusb", "vpu", "cvir", "dist_pu", "count", "glws"),
)
def regimes(trial: Trial[Regimes]) -> Iterator[tuple[Cell, Outcome]]:
    """Train each cell twice, independently, and test the checkpoints that proxy accuracy has chosen."""
    c = trial.config
    lanes, learners, data, pools = _lanes(trial, str(trial.level["data"]), c.share, repeats=2)
    watched = np.stack([pool.x_test[: c.watch] for pool in pools])
    truths = np.stack([pool.truth[: c.watch] for pool in pools])

    def watch(step: int, score: Callable[[Any], npt.NDArray[np.float64]]) -> None:
        if step % (2 * c.every) and step != c.steps:
            return
        right = ((score(watched) >= 0) == truths).mean(axis=1)
        for cell in trial.cells:
            own = [r for (of, _), r in zip(lanes, right, strict=True) if of == cell]
            trial.curve("accuracy", step, float(np.mean(own)), cell)

    _train(trial, learners, data, watch)
    results = [
        {**classification_scores(pool.truth, learner.decision_function(pool.x_test)), **_chosen(learner, d)}
        for learner, d, pool in zip(learners, data, pools, strict=True)
    ]
    for cell in trial.cells:
        first, second = (r for (of, _), r in zip(lanes, results, strict=True) if of == cell)
        metrics = {name: (first[name] + second[name]) / 2 for name in ("accuracy", "auc", "f1", "pa", "pauc", "oa")}
        yield cell, _outcome({**metrics, "first": first["accuracy"], "second": second["accuracy"]})


@experiment(
    "shares",
    config={"smoke": Training(**SMALL), "laptop": Training()},
    arms=_arms("upu", "nnpu"),
)
def shares(trial: Trial[Training]) -> Iterator[tuple[Cell, Outcome]]:
    """Train with another labelled share and test the checkpoint that proxy accuracy has chosen."""
    _, learners, data, pools = _lanes(trial, "letter1", float(trial.level["share"]), repeats=1)
    _train(trial, learners, data)
    for cell, learner, pool in zip(trial.cells, learners, pools, strict=True):
        scores = classification_scores(pool.truth, learner.decision_function(pool.x_test))
        yield cell, _outcome({name: scores[name] for name in ("accuracy", "auc")})


Criterion = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], float]


def by_pa(prior: float, setting: Any) -> Criterion:
    """Proxy accuracy."""
    return lambda y_pu, score, y_true: proxy_accuracy(y_pu, score, prior, setting)


def by_pauc(prior: float, setting: Any) -> Criterion:
    """Proxy AUC."""
    return lambda y_pu, score, y_true: proxy_auc(y_pu, score)


def by_oracle(prior: float, setting: Any) -> Criterion:
    """Accuracy with the true labels."""
    return lambda y_pu, score, y_true: oracle_accuracy(y_true, score, y_pu, setting)


def at_random(prior: float, setting: Any) -> Criterion:
    """The same for all, so that the result is the mean over them: the trivial baseline."""
    return lambda y_pu, score, y_true: 0.0


class Selection(Training):
    """Sizes of the selection experiment; the candidates are all checkpoints of all learning rates."""

    rates: tuple[float, ...] = Field(
        (10**-3.5, 10 ** (-17 / 6), 10 ** (-13 / 6), 10**-1.5),
        min_length=2,
        description="learning rates to choose from",
    )
    held_out: float = Field(0.1, gt=0, lt=1, description="share of P and of U on which criteria are computed")
    test: int = Field(2000, gt=0, description="test rows, at most those that are left")


@experiment(
    "selection",
    config={"smoke": Selection(**SMALL), "laptop": Selection()},
    arms={"pa": by_pa, "pauc": by_pauc, "oa": by_oracle, "random": at_random},
)
def selection(trial: Trial[Selection]) -> Iterator[tuple[Cell, Outcome]]:
    """Train all learning rates of all seeds once; each criterion then chooses its checkpoint."""
    c, setting = trial.config, ONE_SAMPLE
    algorithm, name = str(trial.level["algorithm"]), str(trial.level["data"])
    seeds = {cell.seed: cell for cell in trial.cells}
    learners, train, held, pools = [], [], [], []
    for cell in seeds.values():
        pool = _pool(name, c, trial.rng("pool", cell))
        data = _draw(pool, setting, c.share, trial.rng("data", cell))
        n_p, n_u = int(data.y.sum()), int((1 - data.y).sum())  # rows of each part are in random order
        rank = np.concatenate([np.arange(n_p) / n_p, np.arange(n_u) / n_u])
        train.append(rank >= c.held_out)
        held.append(data)
        pools.append(pool)
        state = int(trial.rng("learner", cell).integers(2**31 - 1))
        learners += [
            PULearner(
                algorithm,
                prior=PRIOR,
                setting=setting,
                criterion=None,
                learning_rate=rate,
                max_steps=c.steps,
                batch_size=c.batch,
                hidden=c.hidden,
                eval_every=c.every,
                random_state=state,
            )
            for rate in c.rates
        ]
    draws = len(c.rates)
    x_held = np.stack([d.x[~rows] for d, rows in zip(held, train, strict=True) for _ in range(draws)])
    x_test = np.stack([pool.x_test for pool in pools for _ in range(draws)])
    looks: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []

    def look(step: int, score: Callable[[Any], npt.NDArray[np.float64]]) -> None:
        trial.progress(step, c.steps)
        # A net that blew up says nothing about any row.
        looks.append((np.nan_to_num(score(x_held), nan=0.0), np.nan_to_num(score(x_test), nan=0.0)))

    rows = [(d.x[r], d.y[r]) for d, r in zip(held, train, strict=True) for _ in range(draws)]
    fit_together(learners, [x for x, _ in rows], [y for _, y in rows], callback=look)
    tests: dict[int, list[dict[str, float]]] = {}
    for i, (seed, pool) in enumerate(zip(seeds, pools, strict=True)):
        tests[seed] = [
            classification_scores(pool.truth, on_test[lane])
            for lane in range(i * draws, (i + 1) * draws)
            for _, on_test in looks
        ]
    for cell in trial.cells:
        i = list(seeds).index(cell.seed)
        rule, data, out = trial.build(prior=PRIOR, setting=setting, cell=cell), held[i], ~train[i]
        values = np.array(
            [
                rule(data.y[out], on_held[lane], data.hidden[out])
                for lane in range(i * draws, (i + 1) * draws)
                for on_held, _ in looks
            ]
        )
        ties = [t for t, value in zip(tests[cell.seed], values, strict=True) if value == values.max()]
        yield cell, _outcome({m: float(np.mean([t[m] for t in ties])) for m in ("accuracy", "auc")})


def _outcome(metrics: dict[str, float]) -> Outcome:
    """Four decimals are below the noise, and evidence is shipped."""
    return Outcome({name: round(value, 4) for name, value in metrics.items()})
