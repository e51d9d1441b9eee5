"""Simulators: the reduced one, exact in law at a cost that does not depend on n, and two plain ones to check it.

The reduced simulator. Given (x, p), the law of a gradient depends on directions v, x and p alone; a rotation of the
space around them changes nothing that is observed. So a run is a Markov chain in m = <x, v>, q = <p, v> and the inner
products a = |x'|^2, s = <x', p'>, w = |p'|^2 of the parts x', p' orthogonal to v. One step:

    P = beta p' - delta h',  q <- beta q - delta h0      (h = eta g, in the basis v, x', rest of p', beyond)
    w <- |P|^2,  s' = <x', P>,  m <- m + q,  a <- a + 2 s' + w,  s <- s' + w.

Lanes are independent runs of one loop: arrays over seeds, arms and levels.
"""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .algorithms import Algorithm, Array, eta

METHODS = ("reduced", "vector", "tensor")
DIVERGED = 1e6  # |x| from which a run counts as diverged
CHECK_EVERY = 8
BLOCKS = (32, 64, 128, 256, 512)  # steps whose noise is drawn at once; the last size goes on
INSIDE = 20.0  # n (1 - beta) below which the limit is not to be trusted


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """What runs did.

    Attributes:
        step: the steps at which (m, r^2) was kept, shape (T,).
        t: times step * delta, shape (T,), or (T, lanes) when the step sizes differ.
        m: <x, v>, shape (T, lanes).
        r2: |x - m v|^2, shape (T, lanes).
        diverged: whether |x| passed 1e6 or left the numbers, shape (lanes,). Such a lane stands still from then on, at
            |x| = 1e6 with m = 0.
    """

    step: NDArray[np.int64]
    t: Array
    m: Array
    r2: Array
    diverged: NDArray[np.bool_]

    @property
    def alignment(self) -> Array:
        """|m| / R, shape (T, lanes); 0 where x = 0."""
        size = np.sqrt(self.m**2 + self.r2)
        return np.divide(np.abs(self.m), size, out=np.zeros_like(size), where=size > 0)


def warn_if_outside(n: int, beta: float) -> None:
    """Warn when momentum remembers for a time that is not short beside n steps."""
    if beta > 0 and n * (1 - beta) < INSIDE:
        warnings.warn(
            f"beta={beta} at n={n}: momentum remembers 1/(1 - beta) = {1 / (1 - beta):.3g} steps, which is not small "
            "beside n; the limit does not describe this run",
            stacklevel=3,
        )


def run_lanes(
    problem: Any,
    n: int,
    *,
    delta: Array,
    beta: Array,
    algorithms: Sequence[Algorithm],
    streams: Sequence[np.random.Generator],
    steps: int,
    start: Any,
    points: int,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """The reduced simulator, all lanes in one loop.

    A lane's numbers depend on its own stream alone, never on the lanes beside it. Lanes that name the same generator
    object see the same noise.

    Args:
        problem: a problem whose parameters are numbers or arrays over lanes.
        n: dimension.
        delta: step size of each lane, shape (lanes,).
        beta: momentum of each lane, shape (lanes,).
        algorithms: algorithm of each lane.
        streams: generator of each lane.
        steps: number of steps.
        start: (m, r^2), or "random", the same for all lanes.
        points: number of times kept.
        progress: called with (step, steps) now and then.
    """
    lanes = len(delta)
    sources = list({id(g): g for g in streams}.values())
    place = {id(g): i for i, g in enumerate(sources)}
    source = np.array([place[id(g)] for g in streams])
    m, a = _start(start, n, sources, source)
    keep = _kept(steps, points)
    out_m, out_a = np.zeros((len(keep), lanes)), np.full((len(keep), lanes), DIVERGED**2)
    out_m[0], out_a[0] = m, a
    live = _Live(problem, n, np.arange(lanes), m, a, np.asarray(delta, float), np.asarray(beta, float), algorithms)
    kept, step = 1, 0
    with np.errstate(all="ignore"):
        for block in _blocks(sources, problem.normals, n):
            noise = _of_lanes(block, source, live)
            for i in range(len(block)):
                live.advance(noise[i])
                step += 1
                if step % CHECK_EVERY == 0 or step == steps:
                    fine = live.m * live.m + live.a <= DIVERGED**2  # False for what is not a number
                    if not fine.all():
                        live = live.only(fine)
                        noise = _of_lanes(block, source, live)
                if step == keep[kept]:
                    out_m[kept, live.lane], out_a[kept, live.lane] = live.m, live.a
                    kept += 1
                if step == steps or not len(live.lane):
                    break
            if progress is not None:
                progress(step, steps)
            if step == steps or not len(live.lane):
                break
    diverged = np.ones(lanes, dtype=bool)
    diverged[live.lane] = False
    # What was kept between two checks may be no longer a number.
    with np.errstate(all="ignore"):
        gone = ~(out_m**2 + out_a <= DIVERGED**2)
    out_m[gone], out_a[gone] = 0.0, DIVERGED**2
    t = keep * delta[0] if np.all(delta == delta[0]) else np.outer(keep, delta)
    return Trajectory(keep, t, out_m, out_a, diverged)


class _Live:
    """The lanes that have not diverged: their states, and one step of all."""

    def __init__(
        self,
        problem: Any,
        n: int,
        lane: NDArray[np.int64],
        m: Array,
        a: Array,
        delta: Array,
        beta: Array,
        algorithms: Sequence[Algorithm],
        momentum: tuple[Array, Array, Array] | None = None,
    ) -> None:
        self.problem, self.n, self.lane = problem, n, lane
        self.m, self.a, self.delta, self.beta, self.algorithms = m, a, delta, beta, list(algorithms)
        self.q, self.s, self.w = momentum or (np.zeros_like(m), np.zeros_like(m), np.zeros_like(m))
        self.remembers = bool(self.beta.any())
        callables = {id(f): f for f in self.algorithms if callable(f)}.values()
        self.unit = np.array([f == "unit" if isinstance(f, str) else False for f in self.algorithms], dtype=bool)
        self.others = [(f, np.array([g is f for g in self.algorithms], dtype=bool)) for f in callables]

    def only(self, fine: NDArray[np.bool_]) -> "_Live":
        """The same lanes without those that are not fine."""
        fields = {f.name: getattr(self.problem, f.name) for f in dataclasses.fields(self.problem)}
        arrays = {k: v[fine] for k, v in fields.items() if isinstance(v, np.ndarray) and v.ndim}
        return _Live(
            dataclasses.replace(self.problem, **arrays),
            self.n,
            self.lane[fine],
            self.m[fine],
            self.a[fine],
            self.delta[fine],
            self.beta[fine],
            [f for f, ok in zip(self.algorithms, fine, strict=True) if ok],
            (self.q[fine], self.s[fine], self.w[fine]),
        )

    def advance(self, noise: Array) -> None:
        """Take one step with this noise, shape (kinds, lanes)."""
        r = np.sqrt(self.a)
        amplitude, g0, g1, g2, rest = self.problem.components(self.m, r, noise)
        d = self.delta if amplitude is None else self.delta * amplitude
        if self.others or self.unit.any():
            d = self._adapted(d, amplitude, np.sqrt(g0 * g0 + g1 * g1 + g2 * g2 + rest))
        if self.remembers:
            p1 = np.divide(self.s, r, out=np.zeros_like(r), where=r > 0)
            p2 = np.sqrt(np.maximum(self.w - p1 * p1, 0.0))
            self.q = self.beta * self.q - d * g0
            p1 = self.beta * p1 - d * g1
            p2 = self.beta * p2 - d * g2
        else:
            self.q, p1, p2 = -d * g0, -d * g1, -d * g2
        self.w = p1 * p1 + p2 * p2 + d * d * rest
        across = r * p1
        self.m = self.m + self.q
        self.a = np.maximum(self.a + 2.0 * across + self.w, 0.0)  # below 0 by rounding alone
        self.s = across + self.w

    def _adapted(self, d: Array, amplitude: Array | None, length: Array) -> Array:
        """The factor on the components for lanes that normalise: delta eta amplitude."""
        unit = self.delta * np.sqrt(self.n) / np.where(length > 0, length, np.inf)
        if amplitude is not None:
            unit = unit * np.sign(amplitude)  # only the sign is left of it, however large or small it was
        d = np.where(self.unit, unit, d)
        for function, lanes in self.others:
            size = length if amplitude is None else length * np.abs(amplitude)
            d[lanes] = (d * eta(function, size / np.sqrt(self.n)))[lanes]
        return d


def _of_lanes(block: Array, source: NDArray[np.int64], live: _Live) -> Array:
    """The noise of each living lane, shape (steps, kinds, lanes)."""
    return block[..., source[live.lane]]


def _blocks(sources: Sequence[np.random.Generator], normals: int, n: int) -> Iterator[Array]:
    """Noise in blocks of steps: z0, z1, z2, chi^2 with n - 3 degrees of freedom, further normals.

    The sizes of the blocks are always the same, so that a stream gives the same numbers in every run.
    """
    for size in _sizes():
        block = np.empty((size, normals + 1, len(sources)))
        for i, g in enumerate(sources):
            z = g.standard_normal((size, normals))
            block[:, :3, i], block[:, 4:, i] = z[:, :3], z[:, 3:]
            block[:, 3, i] = g.chisquare(n - 3, size)
        yield block


def _sizes() -> Iterator[int]:
    yield from BLOCKS
    while True:
        yield BLOCKS[-1]


def _start(
    start: Any, n: int, sources: Sequence[np.random.Generator], source: NDArray[np.int64]
) -> tuple[Array, Array]:
    if isinstance(start, str):
        if start != "random":
            raise ValueError(f"start={start!r}; allowed are 'random' and a pair (m, r^2)")
        drawn = np.array([(g.standard_normal() / np.sqrt(n), g.chisquare(n - 1) / n) for g in sources])
        return drawn[source, 0], drawn[source, 1]
    m, a = (float(v) for v in start)
    if not (np.isfinite(m) and np.isfinite(a) and a >= 0):
        raise ValueError(f"start={start!r}; allowed are 'random' and a pair (m, r^2) with r^2 >= 0")
    return np.full(len(source), m), np.full(len(source), a)


def _kept(steps: int, points: int) -> NDArray[np.int64]:
    """The steps at which (m, r^2) is kept."""
    return np.unique(np.linspace(0, steps, min(points, steps + 1)).round().astype(np.int64))


def run_plain(
    gradient: Callable[[Array, np.random.Generator], Array],
    n: int,
    delta: float,
    beta: float,
    algorithm: Algorithm,
    steps: int,
    rng: np.random.Generator,
    batch: int,
    start: Any,
    points: int,
) -> Trajectory:
    """The algorithm on vectors of n entries, as it is written.

    Args:
        gradient: draws one gradient for each row of x, shape (batch, n).
        n: dimension.
        delta: step size.
        beta: momentum.
        algorithm: as in `EffectiveDynamics`.
        steps: number of steps.
        rng: source of all noise.
        batch: number of runs.
        start: (m, r^2), or "random".
        points: number of times kept.
    """
    m, a = _start(start, n, [rng] * batch, np.arange(batch))
    x, p = np.zeros((batch, n)), np.zeros((batch, n))
    x[:, 0], x[:, 1] = m, np.sqrt(a)  # the law does not see which direction orthogonal to v it is
    keep = _kept(steps, points)
    out = np.empty((2, len(keep), batch))
    with np.errstate(all="ignore"):
        for step in range(steps + 1):
            if step:
                g = gradient(x, rng)
                size = np.sqrt((g * g).sum(axis=1) / n)
                p = beta * p - delta * eta(algorithm, size)[:, None] * g
                x = x + p
            at = np.searchsorted(keep, step)
            if keep[at] == step:
                out[0, at], out[1, at] = x[:, 0], (x[:, 1:] ** 2).sum(axis=1)
        m, a = out
        gone = np.maximum.accumulate(~(m * m + a <= DIVERGED**2), axis=0)
    m[gone], a[gone] = 0.0, DIVERGED**2
    return Trajectory(keep, keep.astype(float) * delta, m, a, gone[-1])
