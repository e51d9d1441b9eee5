"""The two learning problems: their losses, the law of one gradient, and the moments that the limit is made of.

Notation: v is the hidden unit vector, m = <x, v>, r = |x - m v|, R^2 = m^2 + r^2. One gradient g is described in the
orthonormal basis e0 = v, e1 = (x - m v) / r, e2 = the rest of the momentum's direction, by its three components and the
squared length of what is left, which is independent of them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .algorithms import Algorithm, Array, check_algorithm, eta
from .signs import SignIntegrals
from .simulate import METHODS, Trajectory, run_lanes, run_plain, warn_if_outside

TINY = 1e-300
N_LIMIT = 1e15  # a dimension at which terms of order 1/n are below rounding
CLOSURE_SAMPLES = 2**14
SMALLEST = 4  # dimensions: v, x, p and one more


class Components(NamedTuple):
    """One gradient, in the basis of the module's docstring: amplitude * (g0, g1, g2), amplitude^2 * rest beyond.

    Attributes:
        amplitude: a factor common to all components, or None for 1; kept apart because only its sign survives
            normalisation, while its square may leave the range of numbers.
        g0: component along v.
        g1: component along x - m v.
        g2: component along the rest of the momentum.
        rest: squared length of what is orthogonal to all three.
    """

    amplitude: Array | None
    g0: Array
    g1: Array
    g2: Array
    rest: Array


class Moments(NamedTuple):
    """Moments of one step direction h = eta g as n -> infinity.

    Attributes:
        mean: E<h, v> and E<h, e1>, shape (..., 2).
        square: lim E|h|^2 / n, shape (...).
        covariance: of (<h, v>, <h, e1>), shape (..., 2, 2).
    """

    mean: Array
    square: Array
    covariance: Array


class _Problem:
    """What both problems share: the simulators, and the moments of any algorithm by quasi Monte Carlo."""

    normals: ClassVar[int]

    def components(self, m: Any, r: Any, noise: Sequence[Array]) -> Components:
        raise NotImplementedError

    def family(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def stack(self, problems: Sequence[Any]) -> Any:
        raise NotImplementedError

    def simulate(
        self,
        n: int,
        c: float = 1.0,
        beta: float = 0.0,
        algorithm: Algorithm = "sgd",
        steps: int = 1000,
        seed: int = 0,
        batch: int = 1,
        start: tuple[float, float] | str = (0.3, 1.0),
        points: int = 200,
        method: str = "reduced",
    ) -> Trajectory:
        """Run the algorithm with step delta = c/n and follow (m, r^2).

        Args:
            n: dimension, at least 4.
            c: step size times n.
            beta: momentum in [0, 1); a warning when 1/(1 - beta) is not small beside n, where the limit does not hold.
            algorithm: "sgd", "unit" or a callable eta(s), see `EffectiveDynamics`.
            steps: number of steps, one fresh sample each.
            seed: seed of the random numbers; run i of the batch has a stream of its own, whatever the batch.
            batch: number of independent runs.
            start: (m, r^2) at the start, or "random" for x ~ N(0, I/n).
            points: number of times at which (m, r^2) is kept, at most steps + 1.
            method: "reduced", exact in law and O(1) a step; "vector", O(n) a step; "tensor" (spiked tensor PCA only),
                O(n^k) a step, the algorithm as it is written. The last two are there to check the first.

        Returns:
            The trajectory, m and r2 of shape (points, batch), at times t = step * delta.
        """
        check_run(n, c, beta, steps, batch, points)
        check_algorithm(algorithm)
        if method not in METHODS:
            raise ValueError(f"method={method!r}; allowed are {', '.join(map(repr, METHODS))}")
        warn_if_outside(n, beta)
        if method == "reduced":
            streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(batch)]
            return run_lanes(
                self,
                n,
                delta=np.full(batch, c / n),
                beta=np.full(batch, float(beta)),
                algorithms=[algorithm] * batch,
                streams=streams,
                steps=steps,
                start=start,
                points=points,
            )
        gradient = getattr(self, f"{method}_gradient", None)
        if gradient is None:
            raise ValueError(f"method='tensor' with {type(self).__name__}; allowed are 'reduced' and 'vector'")
        return run_plain(gradient, n, c / n, beta, algorithm, steps, np.random.default_rng(seed), batch, start, points)

    def closure(self, u: Array, algorithm: Algorithm, samples: int = CLOSURE_SAMPLES) -> Moments:
        """Moments by quasi Monte Carlo over the law of the gradient, for any algorithm.

        The sample is fixed, so that the result is a smooth function of u.

        Args:
            u: (m, r^2), shape (..., 2).
            algorithm: as in `EffectiveDynamics`.
            samples: size of the sample, a power of two.
        """
        u = np.asarray(u, dtype=float)
        z = _normal_sample(self.normals, samples)
        noise = (z[0], z[1], z[2], np.full(samples, N_LIMIT), *z[3:])
        flat = u.reshape(-1, 2)
        mean, square, covariance = np.empty((len(flat), 2)), np.empty(len(flat)), np.empty((len(flat), 2, 2))
        for i, (m, r2) in enumerate(flat):
            g = self.components(np.float64(m), np.sqrt(max(r2, 0.0)), noise)
            amplitude = np.ones(samples) if g.amplitude is None else g.amplitude
            size = np.sqrt((g.g0**2 + g.g1**2 + g.g2**2 + g.rest) / N_LIMIT)
            factor = eta(algorithm, np.abs(amplitude) * size)
            h = factor * amplitude * np.stack([g.g0, g.g1])  # (2, samples)
            mean[i] = h.mean(axis=1)
            square[i] = ((factor * amplitude * size) ** 2).mean()
            covariance[i] = np.cov(h, bias=True)
        lead = u.shape[:-1]
        return Moments(mean.reshape(*lead, 2), square.reshape(lead), covariance.reshape(*lead, 2, 2))


@lru_cache(maxsize=4)
def _normal_sample(count: int, samples: int) -> Array:
    """Standard normals, shape (count, samples), from a scrambled Sobol sequence."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    points = qmc.Sobol(count, scramble=True, rng=np.random.default_rng(0)).random(samples)
    return np.ascontiguousarray(ndtri(np.clip(points, 1e-12, 1 - 1e-12)).T)


@dataclasses.dataclass(frozen=True)
class SpikedTensorPCA(_Problem):
    """Find v from tensors Y = lam v^(x k) + W with iid standard normal entries, by the loss |Y - x^(x k)|^2.

    Averaged over W the loss is R^(2k) - 2 lam m^k + const. A gradient is

        g = -2 k lam m^(k-1) v + 2 k R^(2k-2) x - 2 G,

    where G sums, over the k places left open, the contraction of W with x in all other places. Two different places
    share one Gaussian entry for each pair of coordinates, so Cov G = k R^(2k-2) I + k(k-1) R^(2k-4) x x^T: a vector
    with iid entries of variance k R^(2k-2), stretched by sqrt(k) along x.

    Args:
        k: order of the tensor, at least 2.
        lam: signal-to-noise ratio lambda, at least 0; for lanes of a simulation an array.
    """

    k: int
    lam: Any
    normals: ClassVar[int] = 3

    def __post_init__(self) -> None:
        """Check the arguments."""
        if not isinstance(self.k, int | np.integer) or self.k < 2:
            raise ValueError(f"k={self.k!r}; allowed are 2, 3, ...")
        if not np.all(np.isfinite(self.lam)) or np.any(np.asarray(self.lam) < 0):
            raise ValueError(f"lam={self.lam!r}; allowed are finite numbers of at least 0")

    def family(self) -> tuple[Any, ...]:
        """What lanes of one simulation must share."""
        return (SpikedTensorPCA, int(self.k))

    def stack(self, problems: Sequence["SpikedTensorPCA"]) -> "SpikedTensorPCA":
        """One problem for many lanes."""
        return SpikedTensorPCA(self.k, np.array([p.lam for p in problems], dtype=float))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draw one tensor Y with v = (1, 0, ..., 0).

        Args:
            n: dimension.
            rng: source of the noise.

        Returns:
            Y, shape (n,) * k.
        """
        y = rng.standard_normal((n,) * self.k)
        y[(0,) * self.k] += self.lam
        return y

    def loss(self, x: Any, sample: Any) -> Any:
        """|Y - x^(x k)|^2; made of operators alone, so that autograd differentiates it.

        Args:
            x: array or tensor of shape (n,).
            sample: Y, of the same kind, shape (n,) * k.
        """
        power = x
        for _ in range(self.k - 1):
            power = power[..., None] * x
        if tuple(power.shape) != tuple(sample.shape):
            raise ValueError(f"sample has shape {tuple(sample.shape)}; allowed is {tuple(power.shape)}, as x has it")
        return ((sample - power) ** 2).sum()

    def components(self, m: Any, r: Any, noise: Sequence[Array]) -> Components:
        """One gradient from standard normals z0, z1, z2 and a chi^2 with n - 3 degrees of freedom.

        Args:
            m: <x, v>, broadcast with the noise.
            r: |x - m v|.
            noise: (z0, z1, z2, chi).
        """
        z0, z1, z2, chi = noise
        k = self.k
        r2 = m * m + r * r + TINY  # R^2
        power = r2 if k == 2 else r2 ** (k - 1)  # R^(2k-2)
        spread = np.sqrt(k * power)
        along = (k**0.5 - 1.0) * (m * z0 + r * z1) / r2
        pull = 2.0 * k * power
        signal = 2.0 * k * self.lam * (m if k == 2 else m ** (k - 1))
        twice = 2.0 * spread
        g0 = pull * m - signal - twice * (z0 + along * m)
        g1 = pull * r - twice * (z1 + along * r)
        return Components(None, g0, g1, twice * z2, twice * twice * chi)

    def gradient_noise(self, x: Array, rng: np.random.Generator) -> Array:
        """Draw G for vectors x, shape (batch, n), in O(n) each."""
        z = rng.standard_normal(x.shape)
        r2 = (x * x).sum(axis=1, keepdims=True) + TINY
        return np.sqrt(self.k * r2 ** (self.k - 1)) * (
            z + (self.k**0.5 - 1.0) * x * ((x * z).sum(axis=1, keepdims=True) / r2)
        )

    def vector_gradient(self, x: Array, rng: np.random.Generator) -> Array:
        """Draw one gradient for each row of x, shape (batch, n), with v = (1, 0, ..., 0)."""
        r2 = (x * x).sum(axis=1, keepdims=True)
        g = 2.0 * self.k * r2 ** (self.k - 1) * x - 2.0 * self.gradient_noise(x, rng)
        g[:, 0] -= 2.0 * self.k * self.lam * x[:, 0] ** (self.k - 1)
        return g

    def tensor_gradient(self, x: Array, rng: np.random.Generator) -> Array:
        """Draw a tensor Y for each row of x, shape (batch, n), and differentiate the loss as it is written."""
        k = self.k
        g = 2.0 * k * (x * x).sum(axis=1, keepdims=True) ** (k - 1) * x
        for row, vector in enumerate(x):
            y = self.sample(x.shape[1], rng)
            for place in range(k):  # contract all places but this one
                rest = np.moveaxis(y, place, 0)
                for _ in range(k - 1):
                    rest = rest @ vector
                g[row] -= 2.0 * rest
        return g

    def moments(self, u: Array, algorithm: Algorithm) -> Moments:
        """Moments of one step direction; exact for every algorithm.

        The length of a gradient does not fluctuate in the limit: |g| / sqrt(n) -> rho = 2 sqrt(k) R^(k-1), so that eta
        is the number eta(rho).

        Args:
            u: (m, r^2), shape (..., 2).
            algorithm: as in `EffectiveDynamics`.
        """
        u = np.asarray(u, dtype=float)
        m, a = u[..., 0], np.maximum(u[..., 1], 0.0)
        k, r2 = self.k, m * m + a
        rho = 2.0 * np.sqrt(k) * r2 ** ((k - 1) / 2)
        factor = eta(algorithm, rho)
        pull = 2.0 * k * r2 ** (k - 1)
        mean = np.stack([pull * m - 2.0 * k * self.lam * m ** (k - 1), pull * np.sqrt(a)], axis=-1)
        x = np.stack([m, np.sqrt(a)], axis=-1)
        identity = r2[..., None, None] * np.eye(2)
        inner = 4.0 * k * (identity + (k - 1) * x[..., :, None] * x[..., None, :])
        covariance = inner * (r2 ** (k - 2))[..., None, None]
        return Moments(factor[..., None] * mean, (factor * rho) ** 2, (factor**2)[..., None, None] * covariance)


@dataclasses.dataclass(frozen=True)
class SingleIndex(_Problem):
    """Find v from pairs (a, y), a ~ N(0, I_n), y = f(<a, v>) + noise * N(0, 1), by the loss (f(<a, x>) - y)^2.

    With A = <a, v> and B = <a, e1>, which are independent standard normals, Z = <a, x> = m A + r B and the residual
    res = f(Z) - f(A) - eps, a gradient is g = 2 res f'(Z) a: all its components are those of `a`, times one number.
    Its size is |g| / sqrt(n) -> 2 |res f'(Z)|, which does fluctuate, so that an adaptive step sees only
    sign(res f'(Z)) of it.

    Args:
        f: the link, applied to arrays entry by entry (and to tensors, for `loss`).
        fprime: its derivative.
        noise: standard deviation of eps, at least 0; for lanes of a simulation an array.
    """

    f: Callable[[Any], Any]
    fprime: Callable[[Any], Any]
    noise: Any = 0.0
    normals: ClassVar[int] = 4

    def __post_init__(self) -> None:
        """Check the arguments."""
        for name in ("f", "fprime"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed are functions of an array")
        if not np.all(np.isfinite(self.noise)) or np.any(np.asarray(self.noise) < 0):
            raise ValueError(f"noise={self.noise!r}; allowed are finite numbers of at least 0")

    def family(self) -> tuple[Any, ...]:
        """What lanes of one simulation must share."""
        return (SingleIndex, self.f, self.fprime)

    def stack(self, problems: Sequence["SingleIndex"]) -> "SingleIndex":
        """One problem for many lanes."""
        return SingleIndex(self.f, self.fprime, np.array([p.noise for p in problems], dtype=float))

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw one pair with v = (1, 0, ..., 0).

        Args:
            n: dimension.
            rng: source of a and eps.

        Returns:
            a, shape (n,), and y, shape ().
        """
        a = rng.standard_normal(n)
        return a, np.asarray(self.f(a[0]) + self.noise * rng.standard_normal())

    def loss(self, x: Any, sample: tuple[Any, Any]) -> Any:
        """(f(<a, x>) - y)^2; made of operators alone, so that autograd differentiates it.

        Args:
            x: array or tensor of shape (n,).
            sample: (a, y) of shapes (n,) and (), of the same kind.
        """
        a, y = sample
        if tuple(a.shape) != tuple(x.shape):
            raise ValueError(f"sample has a of shape {tuple(a.shape)}; allowed is that of x, {tuple(x.shape)}")
        return (self.f((a * x).sum()) - y) ** 2

    def components(self, m: Any, r: Any, noise: Sequence[Array]) -> Components:
        """One gradient from standard normals A, B, z2, a chi^2 with n - 3 degrees of freedom and eps / noise.

        Args:
            m: <x, v>, broadcast with the noise.
            r: |x - m v|.
            noise: (A, B, z2, chi, e).
        """
        along_v, along_x, z2, chi, e = noise
        z = m * along_v + r * along_x
        amplitude = 2.0 * (self.f(z) - self.f(along_v) - self.noise * e) * self.fprime(z)
        return Components(amplitude, along_v, along_x, z2, chi)

    def vector_gradient(self, x: Array, rng: np.random.Generator) -> Array:
        """Draw one gradient for each row of x, shape (batch, n), with v = (1, 0, ..., 0)."""
        a = rng.standard_normal(x.shape)
        z = (a * x).sum(axis=1)
        residual = self.f(z) - self.f(a[:, 0]) - self.noise * rng.standard_normal(len(x))
        return (2.0 * residual * self.fprime(z))[:, None] * a

    def moments(self, u: Array, algorithm: Algorithm) -> Moments:
        """Moments of one step direction.

        "sgd": Gauss-Hermite in (A, B), with eps integrated by hand (it enters the mean not at all and the square as
        noise^2 f'(Z)^2); exact for polynomials. "unit": the sign's integral over B in closed form, see `signs`. A
        callable: quasi Monte Carlo.

        Args:
            u: (m, r^2), shape (..., 2).
            algorithm: as in `EffectiveDynamics`.
        """
        if callable(algorithm):
            return self.closure(u, algorithm)
        u = np.asarray(u, dtype=float)
        m, r = u[..., 0], np.sqrt(np.maximum(u[..., 1], 0.0))
        if algorithm == "unit":
            return Moments(*_sign_moments(self, m, r))
        a, b, weight = _hermite_grid()
        z = m[..., None] * a + r[..., None] * b
        slope = self.fprime(z)
        residual = self.f(z) - self.f(a)
        step = 2.0 * weight * residual * slope
        mean = np.stack([(step * a).sum(-1), (step * b).sum(-1)], axis=-1)
        energy = 4.0 * weight * (residual**2 + self.noise**2) * slope**2
        aa, ab, bb = ((energy * product).sum(-1) for product in (a * a, a * b, b * b))
        second = np.stack([np.stack([aa, ab], -1), np.stack([ab, bb], -1)], -2)
        return Moments(mean, energy.sum(-1), second - mean[..., :, None] * mean[..., None, :])


@lru_cache(maxsize=1)
def _hermite_grid(nodes: int = 40) -> tuple[Array, Array, Array]:
    """Points (A, B) and weights of Gauss-Hermite quadrature for two standard normals, each of shape (nodes^2,)."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    a, b = np.meshgrid(x, x, indexing="ij")
    return a.ravel(), b.ravel(), np.outer(w, w).ravel()


def _sign_moments(problem: SingleIndex, m: Array, r: Array) -> tuple[Array, Array, Array]:
    rows = [
        _integrals(problem, _reach(abs(p) + q)).moments(p, q)
        for p, q in zip(np.ravel(m).tolist(), np.ravel(r).tolist(), strict=True)
    ]
    mean, square, second = (np.array(part) for part in zip(*rows, strict=True))
    covariance = second - mean[:, :, None] * mean[:, None, :]
    lead = np.shape(m)
    return mean.reshape(*lead, 2), square.reshape(lead), covariance.reshape(*lead, 2, 2)


def _reach(size: float) -> float:
    """A bound on |Z| that holds for all but a share of 1e-15, rounded up so that few tables are made."""
    return float(2.0 ** np.ceil(np.log2(8.0 * max(size, 0.125))))


@lru_cache(maxsize=64)
def _integrals(problem: SingleIndex, reach: float) -> SignIntegrals:
    return SignIntegrals(problem.f, problem.fprime, float(problem.noise), reach)


def check_run(n: int, c: float, beta: float, steps: int, batch: int, points: int) -> None:
    """Raise ValueError for arguments of a simulation that cannot be."""
    if n < SMALLEST:
        raise ValueError(f"n={n}; allowed are {SMALLEST}, {SMALLEST + 1}, ...")
    if not (np.isfinite(c) and c > 0):
        raise ValueError(f"c={c}; allowed are finite numbers above 0")
    if not 0 <= beta < 1:
        raise ValueError(f"beta={beta}; allowed is 0 <= beta < 1")
    for name, value, least in (("steps", steps, 1), ("batch", batch, 1), ("points", points, 2)):
        if value < least:
            raise ValueError(f"{name}={value}; allowed are {least}, {least + 1}, ...")
