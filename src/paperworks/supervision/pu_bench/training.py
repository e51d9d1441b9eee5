"""The one training loop: lanes side by side, batches, calibration, and checkpoints chosen on held-out rows."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .algorithms import ALGORITHMS, Algorithm, Batch
from .losses import calibrated
from .metrics import Setting, oracle_accuracy, proxy_accuracy, proxy_auc
from .nets import LaneMLP, LaneModules, LaneSGD

Calibration = Literal["exact", "sampling", "batch_concat"]
CHUNK = 1024  # rows scored at once


@dataclasses.dataclass(frozen=True)
class Plan:
    """How lanes are trained; all lanes of a call share it, but for learning rates and seeds."""

    algorithm: str | Algorithm
    options: Mapping[str, Any]
    prior: float
    setting: Setting
    calibrate: bool
    calibration: Calibration
    module: nn.Module | Callable[[int], nn.Module] | None
    hidden: int
    max_steps: int
    warmup_steps: int
    batch_size: int
    momentum: float
    weight_decay: float
    eval_every: int
    device: str


@dataclasses.dataclass(frozen=True)
class Split:
    """One lane's rows.

    Attributes:
        x_p: Labelled training rows.
        x_u: Unlabeled training rows.
        x_held: Held-out rows, labelled ones first; may be empty.
        y_held: 1 for labelled, 0 for unlabeled.
        truth_held: True classes of the held-out rows, if they are known.
    """

    x_p: npt.NDArray[np.float32]
    x_u: npt.NDArray[np.float32]
    x_held: npt.NDArray[np.float32]
    y_held: npt.NDArray[np.int64]
    truth_held: npt.NDArray[np.int64] | None


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One lane at one step.

    Attributes:
        step: The step.
        value: The criterion's value.
        threshold: Score from which a row is positive.
        module: The net.
    """

    step: int
    value: float
    threshold: float
    module: nn.Module


class _Shuffled:
    """Row numbers in passes: each lane visits all its rows in a random order of its own, then starts anew."""

    def __init__(self, rows: Tensor, batch: int, generators: Sequence[torch.Generator]) -> None:
        self._rows, self._batch, self._generators = rows, min(batch, rows.shape[1]), generators
        self.steps = max(1, rows.shape[1] // self._batch)
        self.start()

    def start(self, rows: Tensor | None = None) -> None:
        self._rows = self._rows if rows is None else rows
        count = self._rows.shape[1]
        order = torch.stack([torch.randperm(count, generator=g) for g in self._generators])
        self._order, self._at = self._rows.gather(1, order.to(self._rows.device)), 0

    @property
    def over(self) -> bool:
        return self._at + self._batch > self._order.shape[1]

    def next(self) -> Tensor:
        if self.over:
            self.start()
        rows = self._order[:, self._at : self._at + self._batch]
        self._at += self._batch
        return rows


class Run:
    """Lanes in training: what an algorithm's hooks may use.

    Attributes:
        prior: pi.
        c: p(labelled | y = +1) of the training rows.
        x_p: Labelled training rows, shape (lanes, n_p, features).
        x_u: What the algorithm takes for unlabeled rows, shape (lanes, n_u, features).
        labelled_share: n_p / (n_p + n_u) in the data.
        puts_back_weights: Whether `risk` weighs labelled rows into the unlabeled mean.
        max_steps: Steps after the warm-up.
        warmup_steps: Steps of a warm-up, for algorithms that have one.
        done: Steps made since.
        epoch_steps: Steps of a pass over the unlabeled rows.
    """

    def __init__(self, plan: Plan, splits: Sequence[Split], rates: Sequence[float], seeds: Sequence[int]) -> None:
        given = plan.algorithm
        # A copy: an algorithm may keep what it learned of one run.
        self.algorithm = ALGORITHMS[given](**plan.options) if isinstance(given, str) else copy.copy(given)
        self.plan, self.prior, self.max_steps, self.warmup_steps = plan, plan.prior, plan.max_steps, plan.warmup_steps
        self.x_p, x_u = (
            torch.as_tensor(np.stack([getattr(s, name) for s in splits])).to(plan.device) for name in ("x_p", "x_u")
        )
        n_p, n_u = self.x_p.shape[1], x_u.shape[1]
        self.labelled_share = n_p / (n_p + n_u)
        self.c = min(1.0, self.labelled_share / plan.prior)  # holding out rounds, where every positive is labelled
        how = "never" if not plan.calibrate else self.algorithm.puts_back
        if how == "weights" and plan.calibration == "sampling":
            how = "rows"
        self.puts_back_weights = how == "weights" or (how == "rows" and plan.calibration == "batch_concat")
        self._how: Literal["weights", "batch_concat"] = (
            "batch_concat" if plan.calibration == "batch_concat" else "weights"
        )
        if self.puts_back_weights and how == "rows":
            raise ValueError(
                f"calibration='batch_concat' needs a loss that averages over unlabeled rows, which {plan.algorithm!r} "
                "does not: take calibration='exact'"
            )
        self.x_u = torch.cat([self.x_p, x_u], dim=1) if how == "rows" else x_u
        self._population_split = plan.setting == "one-sample" and how != "rows"
        # Independent streams: how often one is drawn from must not move another.
        self._seeds = list(seeds)
        self._rates = torch.tensor(rates, dtype=torch.float32, device=plan.device)
        self._numpy = [np.random.default_rng([seed, 3]) for seed in seeds]
        self._nets: dict[str, LaneMLP | LaneModules] = {}
        self._optimizers: dict[str, LaneSGD] = {}
        self.add_net("main")
        lanes = torch.arange(len(splits), device=plan.device)[:, None]
        self._lanes = lanes

        def shuffled(count: int, stream: int) -> _Shuffled:
            rows = torch.arange(count, device=plan.device).expand(len(splits), count)
            return _Shuffled(rows, plan.batch_size, self._generators(stream))

        self._order_p, self._order_u = shuffled(n_p, 1), shuffled(self.x_u.shape[1], 2)
        self._permutations = self._generators(4)
        self.epoch_steps = self._order_u.steps
        self.done = 0

    def _generators(self, stream: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(_mixed(seed, stream)) for seed in self._seeds]

    # --- what algorithms call ---

    def add_net(self, name: str) -> None:
        """A further network of the same kind, with its own start and optimizer."""
        plan, stream = self.plan, 10 + len(self._nets)
        if plan.module is None:
            net: LaneMLP | LaneModules = LaneMLP(self.x_p.shape[2], plan.hidden, self._generators(stream))
        else:
            make = _maker(plan.module, self.x_p.shape[2], first=name == "main")
            net = LaneModules(make, [_mixed(seed, stream) for seed in self._seeds])
        self._nets[name] = net.to(plan.device)
        self._optimizers[name] = LaneSGD(net.rates(self._rates), plan.momentum, plan.weight_decay)

    def net(self, name: str = "main") -> nn.Module:
        """A net itself, with the weights of all lanes."""
        return self._nets[name]

    def draw(self) -> Batch:
        """The next batch."""
        rows_p, rows_u = self._order_p.next(), self._order_u.next()
        return Batch(self.x_p[self._lanes, rows_p], self.x_u[self._lanes, rows_u], rows_p, rows_u)

    def scores(self, *parts: Tensor, net: str = "main") -> tuple[Tensor, ...]:
        """Scores of several batches (lanes, n_i, features), in one pass through the net."""
        return self._nets[net](torch.cat(parts, dim=1)).split([part.shape[1] for part in parts], dim=1)

    @torch.no_grad()
    def score_all(self, x: Tensor, net: str = "main") -> Tensor:
        """Scores of many rows (lanes, n, features), without gradient and in evaluation mode."""
        model = self._nets[net].eval()
        scores = torch.cat([model(part) for part in x.split(CHUNK, dim=1)], dim=1)
        model.train()
        return scores

    def score_population(self, net: str = "main") -> Tensor:
        """Scores of the rows that are a sample of the population: U, and P with it in the one-sample setting."""
        rows = torch.cat([self.x_p, self.x_u], dim=1) if self._population_split else self.x_u
        return self.score_all(rows, net)

    def risk(self, function: Callable[..., Tensor], scores_p: Tensor, scores_u: Tensor, **options: Any) -> Tensor:
        """A loss of both batches; calibrated when the plan says so and the algorithm's U is a weighted mean."""
        if self.puts_back_weights:
            function = calibrated(function, self.c, self._how)
        return function(scores_p, scores_u, self.prior, **options)

    def step(self, loss: Tensor, *nets: str) -> None:
        """Descend on a loss of shape (lanes,), with the nets named or else with those that the algorithm trains."""
        names = nets or self.algorithm.nets
        optimizers = [self._optimizers[name] for name in names]
        # The sum over lanes gives each lane the gradient of its own loss.
        gradients = iter(torch.autograd.grad(loss.sum(), [p for o in optimizers for p in o.parameters]))
        for name, optimizer in zip(names, optimizers, strict=True):
            own = [next(gradients) for _ in optimizer.parameters]
            if self.algorithm.largest_gradient is not None:
                own = self._nets[name].clipped(own, self.algorithm.largest_gradient)
            optimizer.step(own)

    def beta(self, alpha: float) -> Tensor:
        """A draw of Beta(alpha, alpha) for each lane."""
        draws = [rng.beta(alpha, alpha) for rng in self._numpy]
        return torch.tensor(draws, dtype=torch.float32, device=self.plan.device)

    def permutation(self, count: int) -> Tensor:
        """A permutation for each lane, shape (lanes, count)."""
        orders = [torch.randperm(count, generator=g) for g in self._permutations]
        return torch.stack(orders).to(self.plan.device)

    def partners(self, x_p: Tensor, x_u: Tensor) -> Tensor:
        """Unlabeled rows to pair with others; a calibrated share of them comes from P."""
        if not self.puts_back_weights:
            return x_u
        share = self.c * self.prior if self._how == "weights" else 0.5
        n = min(x_p.shape[1], x_u.shape[1])
        chance = torch.tensor(np.stack([rng.random(n) for rng in self._numpy]), device=x_u.device)
        swap = (chance < share)[..., None]
        other = x_p.gather(1, self.permutation(x_p.shape[1])[:, :n, None].expand(-1, -1, x_p.shape[2]))
        return torch.cat([torch.where(swap, other, x_u[:, :n]), x_u[:, n:]], dim=1)

    # --- the loop ---

    def train(
        self,
        splits: Sequence[Split],
        callback: Callable[[int, Callable[[Any], npt.NDArray[np.float64]]], None] | None = None,
    ) -> list[tuple[dict[str, list[float]], dict[str, Checkpoint]]]:
        """Train; return for each lane its history and its best checkpoints by criterion."""
        plan, lanes = self.plan, range(len(splits))
        held = torch.as_tensor(np.stack([s.x_held for s in splits])).to(plan.device)
        history: list[dict[str, list[float]]] = [{"step": [], "loss": []} for _ in lanes]
        best: list[dict[str, Checkpoint]] = [{} for _ in lanes]
        self.algorithm.begin(self)
        total = torch.zeros(len(splits), device=plan.device)
        since = 0
        kept = self.algorithm.epoch(self)
        self._order_u.start(kept)
        for self.done in range(plan.max_steps):
            if self._order_u.over:
                self._order_u.start(self.algorithm.epoch(self))
            loss = self.algorithm.loss(self, self.draw())
            self.step(loss)
            total += loss.detach()
            since += 1
            step = self.done + 1
            if step % plan.eval_every and step != plan.max_steps:
                continue
            threshold = self.algorithm.threshold(self)
            cut = torch.zeros_like(total) if threshold is None else threshold
            scores = (self.score_all(held) - cut[:, None]).double().cpu().numpy() if held.shape[1] else None
            for lane in lanes:
                values = {"last": float(step)}
                if scores is not None:
                    values |= _criteria(plan, splits[lane], scores[lane])
                for name, value in {"step": step, "loss": (total[lane] / since).item(), **values}.items():
                    if name != "last":
                        history[lane].setdefault(name, []).append(float(value))
                for name, value in values.items():
                    if name not in best[lane] or value > best[lane][name].value:
                        module = self._nets["main"].module(lane)
                        best[lane][name] = Checkpoint(step, value, cut[lane].item(), module)
            if callback is not None:
                callback(step, partial(self._score, cut))
            total.zero_()
            since = 0
        return list(zip(history, best, strict=True))

    def _score(self, cut: Tensor, x: Any) -> npt.NDArray[np.float64]:
        rows = torch.as_tensor(x, dtype=torch.float32, device=self.plan.device)
        rows = rows.expand(len(self._seeds), *rows.shape) if rows.ndim == 2 else rows
        return np.asarray((self.score_all(rows) - cut[:, None]).double().cpu().numpy())


def _criteria(plan: Plan, split: Split, scores: npt.NDArray[np.float64]) -> dict[str, float]:
    """PA, PAUC and, where the truth is known, OA of the held-out rows; a net that blew up ranks last."""
    if not np.isfinite(scores).all():
        return {name: -math.inf for name in ("pa", "pauc", *(["oa"] if split.truth_held is not None else []))}
    values = {
        "pa": proxy_accuracy(split.y_held, scores, plan.prior, plan.setting),
        "pauc": proxy_auc(split.y_held, scores),
    }
    if split.truth_held is not None:
        values["oa"] = oracle_accuracy(split.truth_held, scores, split.y_held, plan.setting)
    return values


def _mixed(seed: int, stream: int) -> int:
    return int(np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _maker(module: nn.Module | Callable[[int], nn.Module], features: int, first: bool) -> Callable[[], nn.Module]:
    """A maker of fresh nets; a given module serves as it is first, and as a pattern for a second net."""
    if not isinstance(module, nn.Module):
        return lambda: module(features)

    def make() -> nn.Module:
        net = copy.deepcopy(module)
        if not first:
            for part in net.modules():
                if hasattr(part, "reset_parameters"):
                    part.reset_parameters()
        return net

    return make
