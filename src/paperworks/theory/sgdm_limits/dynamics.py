"""The limit of the algorithms as n -> infinity: an equation for (m, r^2), its fixed points and its thresholds.

Derivation, for statistics u(x) and one step x <- x + p. Momentum with a fixed beta forgets after about 1/(1 - beta)
steps, a time that vanishes in t = step * delta, so that a kick -delta h adds up to -delta h / (1 - beta) before u has
moved. Then

    E[du]  = -<E h, grad u> delta / (1 - beta) + (1/2) <E[h h^T], Hess u> delta^2 / (1 - beta)^2,

because the second term is quadratic in the added-up kicks. It does not vanish: |h|^2 is of order n and delta = c/n.
With u = (m, r^2), whose Hessians are 0 and 2 (I - v v^T), and time t = step * delta,

    dm/dt   = -E<h, v> / (1 - beta)
    dr^2/dt = -2 r E<h, e1> / (1 - beta) + c lim E|h|^2/n / (1 - beta)^2                      (1)

and fluctuations of covariance (c/n) J Cov(h) J^T dt / (1 - beta)^2, J = diag(1, 2r), about it                     (2).
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .algorithms import Algorithm, Array, check_algorithm, eta
from .problems import Moments, SingleIndex, SpikedTensorPCA

SAME = 1e-5  # distance below which two fixed points are one
BLOWN_UP = 1e6  # |x| at which the solution of the equation counts as infinite
STUCK = 1e-10  # step over elapsed time at which it does as well: fast growth reaches infinity in a finite time
SEARCHED = 100.0  # |(m, r^2)| up to which fixed points of single index models are looked for
LARGEST = 1e8  # c beyond which a step counts as unbounded


class FixedPoints(NamedTuple):
    """Points at which the equation stands still.

    Attributes:
        u: (m, r^2), shape (count, 2), m >= 0, the best aligned first.
        stable: whether small deviations die out, shape (count,).
    """

    u: Array
    stable: NDArray[np.bool_]


class EffectiveDynamics:
    """The limiting equation of (m, r^2) = (<x, v>, |x - m v|^2) for SGD, with momentum and adaptive steps.

    Args:
        problem: `SpikedTensorPCA` or `SingleIndex`, with numbers as parameters.
        beta: momentum in [0, 1).
        c: step size times n.
        algorithm: "sgd"; "unit" for gradients of length sqrt(n); or a callable eta(s), an array of factors for an array
            of sizes s = |grad L| / sqrt(n), such as clipping, `lambda s: np.minimum(1.0, tau / s)`.

    Raises:
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        problem: SpikedTensorPCA | SingleIndex,
        beta: float = 0.0,
        c: float = 1.0,
        algorithm: Algorithm = "sgd",
    ) -> None:
        if not isinstance(problem, SpikedTensorPCA | SingleIndex):
            raise ValueError(f"problem={problem!r}; allowed are SpikedTensorPCA and SingleIndex")
        for name in ("lam", "noise"):
            if np.ndim(getattr(problem, name, 0.0)):
                raise ValueError(f"problem has an array {name}; allowed is a number")
        if not 0 <= beta < 1:
            raise ValueError(f"beta={beta}; allowed is 0 <= beta < 1")
        if not (math.isfinite(c) and c > 0):
            raise ValueError(f"c={c}; allowed are finite numbers above 0")
        check_algorithm(algorithm)
        self.problem, self.beta, self.c, self.algorithm = problem, float(beta), float(c), algorithm

    def __repr__(self) -> str:
        return f"EffectiveDynamics({self.problem}, beta={self.beta}, c={self.c}, algorithm={self.algorithm!r})"

    def with_step(self, c: float) -> "EffectiveDynamics":
        """The same with another step size."""
        return EffectiveDynamics(self.problem, self.beta, c, self.algorithm)

    def moments(self, u: Array) -> Moments:
        """Moments of one step direction, see `Moments`; u of shape (..., 2)."""
        return self.problem.moments(_points(u), self.algorithm)

    def drift(self, u: Array) -> Array:
        """The part of (1) that follows the population loss, with its factor 1/(1 - beta).

        Args:
            u: (m, r^2), shape (..., 2).

        Returns:
            Rates of change of m and r^2, shape (..., 2).
        """
        return self._drift(_points(u), self.moments(u))

    def corrector(self, u: Array) -> Array:
        """The part of (1) that comes from the variance of gradients, with its factor 1/(1 - beta)^2.

        Args:
            u: (m, r^2), shape (..., 2).

        Returns:
            Rates of change of m (always 0) and r^2, shape (..., 2).
        """
        return self._corrector(self.moments(u))

    def velocity(self, u: Array) -> Array:
        """The right side of (1): drift and corrector together, shape (..., 2)."""
        moments = self.moments(u)
        return self._drift(_points(u), moments) + self._corrector(moments)

    def diffusion(self, u: Array) -> Array:
        """Covariance (2), times n, of the fluctuations of (m, r^2) in a unit of time.

        Its entry for m is also the variance rate of sqrt(n) m, which is what stays near m = 0.

        Args:
            u: (m, r^2), shape (..., 2).

        Returns:
            Matrices, shape (..., 2, 2).
        """
        jacobian = np.stack([np.ones_like(_points(u)[..., 1]), 2 * _radius(u)], axis=-1)
        scale = self.c / (1 - self.beta) ** 2
        return scale * self.moments(u).covariance * jacobian[..., :, None] * jacobian[..., None, :]

    def _drift(self, u: Array, moments: Moments) -> Array:
        jacobian = np.stack([np.ones_like(u[..., 1]), 2 * _radius(u)], axis=-1)
        return -jacobian * moments.mean / (1 - self.beta)

    def _corrector(self, moments: Moments) -> Array:
        rate = self.c * moments.square / (1 - self.beta) ** 2
        return np.stack([np.zeros_like(rate), rate], axis=-1)

    def solve_ode(self, u0: Array, t: Array) -> Array:
        """Solve (1).

        Args:
            u0: (m, r^2) at t[0], shape (2,).
            t: ascending times, shape (T,).

        Returns:
            (m, r^2) at those times, shape (T, 2); infinite from the time at which |x| passes 1e6 or
            grows so fast that time stands still beside it.
        """
        from scipy.integrate import LSODA

        u0, t = _points(u0), _times(t)
        if u0.shape != (2,):
            raise ValueError(f"u0 has shape {u0.shape}; allowed is (2,)")

        def right_side(_: float, u: Array) -> Array:
            return self.velocity(np.array([u[0], max(u[1], 0.0)]))

        out = np.full((len(t), 2), np.inf)
        out[0] = u0
        done = 1
        with np.errstate(all="ignore"):
            solver = LSODA(right_side, float(t[0]), u0, float(t[-1]), rtol=1e-8, atol=1e-10)
            while solver.status == "running" and done < len(t):
                solver.step()
                size, stuck = solver.y[0] ** 2 + solver.y[1], solver.t - solver.t_old < STUCK * (solver.t - t[0])
                if stuck or not size < BLOWN_UP**2:
                    break
                between = solver.dense_output()
                while done < len(t) and t[done] <= solver.t:
                    out[done] = between(t[done])
                    done += 1
        out[:, 1] = np.maximum(out[:, 1], 0.0)
        return out

    def solve_sde(
        self, u0: Array, t: Array, n_paths: int, seed: int = 0, n: float = math.inf, largest_step: float = 0.01
    ) -> Array:
        """Simulate the equation with its fluctuations by the Euler-Maruyama method.

        For a finite n, the state is (m, r^2), and (2) is added to (1). For n = inf it is the diffusive limit near
        m = 0, where the state is (sqrt(n) m, r^2): the drift of its first entry is linear in it, the noise is that of
        m at m = 0, and r^2 follows (1) without noise.

        Args:
            u0: state at t[0], shape (2,).
            t: ascending times, shape (T,).
            n_paths: number of independent paths.
            seed: seed of the noise.
            n: dimension.
            largest_step: of the method, in units of t.

        Returns:
            States, shape (T, n_paths, 2).
        """
        u0, t = _points(u0), _times(t)
        if u0.shape != (2,):
            raise ValueError(f"u0 has shape {u0.shape}; allowed is (2,)")
        for name, value in (("n_paths", n_paths), ("largest_step", largest_step), ("n", n)):
            if not value > 0:
                raise ValueError(f"{name}={value}; allowed are numbers above 0")
        rng = np.random.default_rng(seed)
        state = np.tile(u0, (n_paths, 1))
        out = [state]
        advance = self._near_zero if math.isinf(n) else self._at_dimension
        for begin, end in itertools.pairwise(t.tolist()):
            count = max(1, math.ceil((end - begin) / largest_step))
            for _ in range(count):
                state = advance(state, (end - begin) / count, rng, n)
                state[:, 1] = np.maximum(state[:, 1], 0.0)
            out.append(state)
        return np.stack(out)

    def _at_dimension(self, state: Array, dt: float, rng: np.random.Generator, n: float) -> Array:
        s = self.diffusion(state) / n
        first = np.sqrt(np.maximum(s[:, 0, 0], 0.0))
        mixed = np.divide(s[:, 0, 1], first, out=np.zeros_like(first), where=first > 0)
        second = np.sqrt(np.maximum(s[:, 1, 1] - mixed**2, 0.0))
        z = math.sqrt(dt) * rng.standard_normal((2, len(state)))
        return state + self.velocity(state) * dt + np.stack([first * z[0], mixed * z[0] + second * z[1]], axis=1)

    def _near_zero(self, state: Array, dt: float, rng: np.random.Generator, n: float) -> Array:
        r2 = state[:1, 1]  # r^2 has no noise: one value for all paths
        slope = self.escape_rate(r2[0])
        at_zero = np.stack([np.zeros_like(r2), r2], axis=1)
        noise = math.sqrt(float(self.diffusion(at_zero)[0, 0, 0]) * dt)
        moved = state[:, 0] * (1 + slope * dt) + noise * rng.standard_normal(len(state))
        return np.stack([moved, np.repeat(r2 + self.velocity(at_zero)[:, 1] * dt, len(state))], axis=1)

    def escape_rate(self, r2: float) -> float:
        """Rate at which a small m grows at given r^2: the derivative of dm/dt at m = 0, positive when m = 0 repels.

        Raises:
            ValueError: when m = 0 is not kept by the equation, as for odd links.
        """
        step = 1e-5 * max(math.sqrt(r2), 1e-3)
        up, at, down = self.velocity(np.array([[step, r2], [0.0, r2], [-step, r2]]))[:, 0]
        if abs(at) > 1e-6 * (1 + abs(up)):
            raise ValueError(f"dm/dt = {at:.3g} at m = 0; the diffusive limit needs a problem that keeps m = 0")
        return float((up - down) / (2 * step))

    def jacobian(self, u: Array) -> Array:
        """Derivative of the right side of (1) by (m, r^2) at one point u, shape (2, 2), by differences."""
        u = _points(u)
        step = 1e-5 * np.array([max(abs(u[0]), 1e-2), max(u[1], 1e-4)])
        columns = []
        for i in range(2):
            high, low = u.copy(), u.copy()
            high[i] += step[i]
            if i == 0 or u[1] > step[1]:
                low[i] -= step[i]
            columns.append((self.velocity(high) - self.velocity(low)) / (high[i] - low[i]))
        return np.stack(columns, axis=1)

    def fixed_points(self) -> FixedPoints:
        """Find where the equation stands still, with m >= 0 (for even problems -m is one as well).

        Spiked tensor PCA: all of them, from an equation for R alone. Single index models: those within |u| < 100 that
        a root search from a grid of starts finds, and (1, 0) when it is one.
        """
        tensor = isinstance(self.problem, SpikedTensorPCA)
        found = self._tensor_points() if tensor else self._searched_points()
        u = np.array(sorted(found, key=lambda p: -p[0] / math.sqrt(p[0] ** 2 + p[1] + 1e-300))).reshape(-1, 2)
        stable = [bool(np.linalg.eigvals(self.jacobian(point)).real.max() < 0) for point in u]
        return FixedPoints(u, np.array(stable, dtype=bool))

    def _residual(self, radius: Any) -> Array:
        """r^2 where dr^2/dt = 0, as a function of R, for tensors: r^2 = c eta(rho) / (1 - beta)."""
        k = self.problem.k  # type: ignore[union-attr]
        return self.c * eta(self.algorithm, 2 * np.sqrt(k) * radius ** (k - 1)) / (1 - self.beta)

    def _signal_needed(self, radius: Any) -> Array:
        """The lambda for which R belongs to a fixed point with m > 0: lambda m^(k-2) = R^(2k-2); infinite for none."""
        k = self.problem.k  # type: ignore[union-attr]
        square = np.asarray(radius) ** 2 - self._residual(radius)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            needed = np.asarray(radius) ** (2 * k - 2) / np.maximum(square, 0.0) ** ((k - 2) / 2)
        return np.where(square > 0, needed, np.inf)

    def _radii(self) -> Array:
        """A grid of R that reaches beyond every fixed point."""
        lam = max(float(self.problem.lam), 1e-6)  # type: ignore[union-attr]
        k = self.problem.k  # type: ignore[union-attr]
        centre = np.log10(max(lam, 1e-6)) / k
        step = 0.5 * np.log10(self.c / (1 - self.beta))
        return np.logspace(min(centre, step, 0) - 4, max(centre, step, 0) + 4, 4001)

    def _tensor_points(self) -> list[tuple[float, float]]:
        from scipy.optimize import brentq

        k, lam = self.problem.k, float(self.problem.lam)  # type: ignore[union-attr]
        radii = self._radii()

        def residual(radius: float) -> float:
            return float(self._residual(np.float64(radius)))

        def balance(radius: float) -> float:  # lambda m^(k-2) - R^(2k-2)
            return lam * max(radius**2 - residual(radius), 0.0) ** ((k - 2) / 2) - radius ** (2 * k - 2)

        found = []
        if k == 2:
            radius = math.sqrt(lam)
            if lam > 0 and radius**2 > residual(radius):
                found.append((math.sqrt(radius**2 - residual(radius)), residual(radius)))
        else:
            closest = self._cheapest(radii)[0]
            grid = np.sort(np.append(radii, closest))
            for low, high in _sign_changes(balance, grid):
                radius = brentq(balance, low, high, xtol=1e-14, rtol=1e-13)
                found.append((math.sqrt(max(radius**2 - residual(radius), 0.0)), residual(radius)))
        for low, high in _sign_changes(lambda radius: radius**2 - residual(radius), radii):  # m = 0
            radius = brentq(lambda x: x**2 - residual(x), low, high, xtol=1e-14, rtol=1e-13)
            found.append((0.0, radius**2))
        return found

    def _cheapest(self, radii: Array) -> tuple[float, float]:
        """The R whose fixed point needs the smallest lambda, and that lambda."""
        from scipy.optimize import brentq, minimize_scalar

        needed = self._signal_needed(radii)
        at = int(np.argmin(needed))
        if self.problem.k == 2:  # type: ignore[union-attr]
            # It grows with R: smallest at the end of the range in which m^2 > 0.
            if at == 0:
                return float(radii[0]), float(needed[0])
            edge = brentq(lambda x: x**2 - float(self._residual(np.float64(x))), radii[at - 1], radii[at], xtol=1e-14)
            return edge, edge**2
        low, high = radii[max(at - 1, 0)], radii[min(at + 1, len(radii) - 1)]
        best = minimize_scalar(
            lambda x: float(self._signal_needed(np.exp(np.float64(x)))),
            bounds=(math.log(low), math.log(high)),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return math.exp(best.x), float(best.fun)

    def _searched_points(self) -> list[tuple[float, float]]:
        from scipy.optimize import root

        found: list[tuple[float, float]] = []
        if np.abs(self.velocity(np.array([1.0, 0.0]))).max() < 1e-12:
            found.append((1.0, 0.0))

        def balance(w: Array) -> Array:
            r2 = math.exp(min(max(w[1], -40.0), 20.0))
            return self.velocity(np.array([w[0], r2])) / np.array([1.0, math.sqrt(r2)])

        with np.errstate(over="ignore", invalid="ignore"):
            for m in (0.0, 0.5, 1.0, 1.3):
                for r2 in (1e-3, 0.05, 0.5, 2.0):
                    solution = root(balance, np.array([m, math.log(r2)]), method="hybr", options={"xtol": 1e-11})
                    point = (float(solution.x[0]), math.exp(min(solution.x[1], 50.0)))
                    size = 1.0 + float(np.abs(self.corrector(np.array(point))).max())
                    new = all(math.dist(point, other) > SAME for other in found)
                    still = bool(np.abs(balance(solution.x)).max() < 1e-7 * size)
                    if still and new and point[0] > -SAME and point[1] > 1e-12 and math.hypot(*point) < SEARCHED:
                        found.append((max(point[0], 0.0), point[1]))
        return found

    def critical_snr(self) -> float:
        """Smallest lambda from which spiked tensor PCA has a fixed point with m > 0, at this c and beta.

        k = 2: c/(1 - beta) for SGD, c^(2/3)/2 for unit gradients without momentum.

        Raises:
            ValueError: for a single index model, which has no lambda.
        """
        if not isinstance(self.problem, SpikedTensorPCA):
            raise ValueError(f"problem={self.problem!r}; critical_snr is allowed for SpikedTensorPCA only")
        return self._cheapest(self._radii())[1]

    def max_step(self) -> float:
        """Largest c at which something is learnt, for this problem, beta and algorithm; `self.c` is not read.

        Spiked tensor PCA: a fixed point with m > 0 exists. k = 2: (1 - beta) lambda for SGD, 2 sqrt(2) lambda^(3/2)
        for unit gradients. Single index: a stable fixed point with m > 0.1 R exists. Found by bisection, to 1e-9 and
        1e-3; inf when no c is too large, 0 when all are.
        """
        tensor = isinstance(self.problem, SpikedTensorPCA)

        def learns(c: float) -> bool:
            there = self.with_step(c)
            if tensor:
                return there.critical_snr() < float(self.problem.lam)  # type: ignore[union-attr]
            u, stable = there.fixed_points()
            return bool(np.any(stable & (np.abs(u[:, 0]) > 0.1 * np.sqrt(u[:, 0] ** 2 + u[:, 1]))))

        low = high = 1.0
        if learns(1.0):
            while learns(high):
                low, high = high, 10 * high
                if high > LARGEST:
                    return math.inf
        else:
            while not learns(low):
                low, high = low / 10, low
                if low < 1 / LARGEST**2:
                    return 0.0
        while high / low > 1 + (1e-9 if tensor else 1e-3):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if learns(middle) else (low, middle)
        return math.sqrt(low * high)


def _sign_changes(function: Any, grid: Array) -> list[tuple[float, float]]:
    values = np.sign([function(float(x)) for x in grid])
    return [(float(grid[i]), float(grid[i + 1])) for i in np.nonzero(values[1:] * values[:-1] < 0)[0]]


def _points(u: Any) -> Array:
    u = np.asarray(u, dtype=float)
    if u.shape[-1:] != (2,):
        raise ValueError(f"u has shape {u.shape}; allowed is (..., 2), the last axis (m, r^2)")
    return u


def _radius(u: Any) -> Array:
    return np.sqrt(np.maximum(_points(u)[..., 1], 0.0))


def _times(t: Any) -> Array:
    t = np.asarray(t, dtype=float)
    if t.ndim != 1 or len(t) < 2 or np.any(np.diff(t) <= 0):
        raise ValueError(f"t has shape {t.shape}; allowed are two or more ascending times")
    return t
