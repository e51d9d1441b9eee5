"""Objectives with a known symmetry, as BoTorch test functions; all are to be maximised (appendices of the paper)."""

import math

import numpy as np
import torch
from botorch.test_functions.base import BaseTestProblem
from botorch.test_functions.synthetic import Ackley, Griewank, Rastrigin, SyntheticTestFunction
from torch import Tensor

from .groups import BlockPermutations, Cyclic, Group, PlanarRotations, Scaling, SignedPermutations, SignFlips


class InvariantAckley(Ackley):
    """Minus Ackley's function on [-16, 16]^d; signed permutations.

    Args:
        dim: d.
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    def __init__(self, dim: int = 2, noise_std: float | None = None, dtype: torch.dtype = torch.double) -> None:
        super().__init__(dim=dim, noise_std=noise_std, negate=True, bounds=[(-16.0, 16.0)] * dim, dtype=dtype)
        self.group: Group = SignedPermutations(dim)


class InvariantRastrigin(Rastrigin):
    """Minus Rastrigin's function on [-5.12, 5.12]^d; signed permutations.

    Args:
        dim: d.
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    def __init__(self, dim: int = 5, noise_std: float | None = None, dtype: torch.dtype = torch.double) -> None:
        super().__init__(dim=dim, noise_std=noise_std, negate=True, bounds=[(-5.12, 5.12)] * dim, dtype=dtype)
        self.group: Group = SignedPermutations(dim)


class InvariantGriewank(Griewank):
    """Minus Griewank's function on [-600, 600]^d; sign flips only, since cos(x_i / sqrt(i)) tells coordinates apart.

    Args:
        dim: d.
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    def __init__(self, dim: int = 6, noise_std: float | None = None, dtype: torch.dtype = torch.double) -> None:
        super().__init__(dim=dim, noise_std=noise_std, negate=True, bounds=[(-600.0, 600.0)] * dim, dtype=dtype)
        self.group: Group = SignFlips(dim)


class _Maximised(SyntheticTestFunction):
    """A function that is maximised as it stands."""

    _is_minimization_by_default = False
    _check_grad_at_opt = False

    def __init__(
        self, dim: int, bounds: list[tuple[float, float]], noise_std: float | None, dtype: torch.dtype = torch.double
    ) -> None:
        self.dim = dim
        self.continuous_inds = list(range(dim))
        self._bounds = bounds
        super().__init__(noise_std=noise_std, dtype=dtype)


class Radial(_Maximised):
    """Minus one-dimensional Rastrigin of |x| / a - b on [-10, 10]^2, largest on the circle |x| = a b; rotations.

    a = 10 sqrt(2) and b = 0.8 put the circle, of radius 11.31, into the corners of the square.

    Args:
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    _optimal_value = 0.0
    _optimizers = [(8.0, 8.0)]

    def __init__(self, noise_std: float | None = None, dtype: torch.dtype = torch.double) -> None:
        super().__init__(2, [(-10.0, 10.0)] * 2, noise_std, dtype)
        self.group: Group = PlanarRotations()

    def _evaluate_true(self, X: Tensor) -> Tensor:
        u = X.norm(dim=-1) / (10 * math.sqrt(2)) - 0.8
        return -(10 + u.square() - 10 * torch.cos(2 * math.pi * u))


class RatioScaling(_Maximised):
    """-(x_1 / x_2 - 1)^2 on [0.1, 10]^2; positive multiples.

    Args:
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    _optimal_value = 0.0
    _optimizers = [(1.0, 1.0)]

    def __init__(self, noise_std: float | None = None, dtype: torch.dtype = torch.double) -> None:
        super().__init__(2, [(0.1, 10.0)] * 2, noise_std, dtype)
        self.group: Group = Scaling()

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -(X[..., 0] / X[..., 1] - 1).square()


class CyclicWells(_Maximised):
    """-min over the rotations g of order m of h(x - g c), on [-4, 4]^2; the max kernel may be indefinite (ours).

    c = (2, 1) and h(u) = |u|^2 + ripple sum (1 - cos 2 pi u_i).

    Args:
        order: m, the number of rotations.
        ripple: Height of the ripples. With 5 they are as deep as the wells, and the lengthscale that is fitted becomes
            too short for negative eigenvalues.
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    _optimal_value = 0.0
    _optimizers = [(2.0, 1.0)]

    def __init__(
        self,
        order: int = 3,
        ripple: float = 5.0,
        noise_std: float | None = None,
        dtype: torch.dtype = torch.double,
    ) -> None:
        super().__init__(2, [(-4.0, 4.0)] * 2, noise_std, dtype)
        self.ripple = ripple
        self.group: Group = Cyclic(order)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        # h keeps its shape: it is x that is turned, by all inverse elements.
        images = torch.stack(list(self.group.images(X)), dim=-2)
        u = images - X.new_tensor([2.0, 1.0])
        return -(u.square() + self.ripple * (1 - torch.cos(2 * math.pi * u))).sum(-1).amin(-1)


class WLAN(_Maximised):
    """Throughput in Mbit/s of 16 users who join the nearest of 4 access points, placed in [-50, 50]^2 (m).

    Received power 10^(-L/10) min(d^-3, 1) with L = 46.67 dB, noise 10^(-8.5) mW, bandwidth 1 MHz, capacity
    W log2(1 + SINR). The points may be exchanged: permutations of 4 blocks of (x, y). The users' places are not in the
    paper; ours are uniform and fixed by `users`.

    Args:
        users: Seed of the users' places, or the places themselves (16, 2).
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    def __init__(
        self, users: int | Tensor = 0, noise_std: float | None = None, dtype: torch.dtype = torch.double
    ) -> None:
        super().__init__(8, [(-50.0, 50.0)] * 8, noise_std, dtype)
        if isinstance(users, int):
            places = torch.rand(16, 2, generator=torch.Generator().manual_seed(users), dtype=dtype)
            users = 100 * places - 50
        self.register_buffer("users", users)
        self.group: Group = BlockPermutations(4, 2)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        points = X.unflatten(-1, (4, 2))  # (..., 4, 2)
        distance = (points.unsqueeze(-3) - self.users.unsqueeze(-2)).norm(dim=-1)  # (..., users, points)
        power = 10**-4.667 * distance.clamp(min=1.0) ** -3
        signal = power.amax(dim=-1)  # the nearest point is the strongest
        return torch.log2(1 + signal / (10**-8.5 + power.sum(dim=-1) - signal)).sum(dim=-1)


class PartPack(_Maximised):
    """Packed share of a box 12 wide into which 200 discs of 3 kinds are dropped, each rolling to rest (ours, in 2-D).

    Three diameters in [0.35, 0.80] and three shares in [0.1, 1] of the number of discs. Kinds may be exchanged, and
    only the ratios of shares matter; `group` holds the exchanges. The paper settles spheres with LAMMPS; here each disc
    goes to the lowest place, of 64 random columns, where it touches what lies there. The order of discs is drawn anew
    from a seed that depends on the point, so that the value is noisy as a settling is, yet the same each time.

    Args:
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    DISCS, WIDTH = 200, 12.0

    def __init__(self, noise_std: float | None = None, dtype: torch.dtype = torch.double) -> None:
        super().__init__(6, [(0.35, 0.80), (0.1, 1.0)] * 3, noise_std, dtype)
        self.group: Group = BlockPermutations(3, 2)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        flat = X.detach().cpu().double().reshape(-1, 6)
        shares = [self._pack(self._sorted(row)) for row in flat]
        return X.new_tensor(shares).reshape(X.shape[:-1])

    def _sorted(self, row: Tensor) -> np.ndarray:
        return self.group.canonicalize(row).numpy().reshape(3, 2)

    def _pack(self, kinds: np.ndarray) -> float:
        share = kinds[:, 1] / kinds[:, 1].sum()
        rounded = np.round(np.column_stack([kinds[:, 0], share]) * 1e6).astype(np.int64)
        rng = np.random.default_rng(rounded.ravel().tolist())
        radii = kinds[rng.choice(3, size=self.DISCS, p=share), 0] / 2
        x, y, r = (np.empty(self.DISCS) for _ in range(3))
        for i, radius in enumerate(radii):
            columns = rng.uniform(radius, self.WIDTH - radius, size=64)
            reach = r[:i] + radius
            beside = np.abs(columns[:, None] - x[:i])
            top = np.where(beside < reach, y[:i] + np.sqrt(np.clip(reach**2 - beside**2, 0, None)), radius)
            height = top.max(axis=1, initial=radius)
            best = int(height.argmin())
            x[i], y[i], r[i] = columns[best], height[best], radius
        level = np.quantile(y + r, 0.9)  # the ragged top does not count
        inside = y + r <= level
        return float((np.pi * r[inside] ** 2).sum() / (self.WIDTH * level))


class PrototypeSelection(_Maximised):
    """How well a few prototypes stand for given points: log-likelihood of a point, in nats (ours).

    A point is normal about its nearest prototype, with one variance for all at its best value, the mean squared
    distance D over p coordinates by p: the log-likelihood is -p/2 (1 + log(2 pi D / p)).

    Prototypes may be exchanged: permutations of blocks of size p. For real data, such as digits in one or two principal
    components.

    Args:
        points: The data (n, p), scaled to [-1, 1].
        prototypes: Number of prototypes.
        noise_std: Standard deviation of the observation noise.
        dtype: Of the bounds.
    """

    def __init__(
        self, points: Tensor, prototypes: int = 4, noise_std: float | None = None, dtype: torch.dtype = torch.double
    ) -> None:
        if points.dim() != 2 or points.numel() == 0 or float(points.abs().max()) > 1:
            raise ValueError(f"points of shape {tuple(points.shape)}: (n, p) with values in [-1, 1] is needed")
        dim = points.shape[1] * prototypes
        super().__init__(dim, [(-1.0, 1.0)] * dim, noise_std, dtype)
        self.register_buffer("points", points.to(dtype))
        self.prototypes = prototypes
        self.group: Group = BlockPermutations(prototypes, points.shape[1])

    def _evaluate_true(self, X: Tensor) -> Tensor:
        centres = X.unflatten(-1, (self.prototypes, -1))
        variance = torch.cdist(self.points, centres).amin(dim=-1).square().mean(dim=-1) / self.points.shape[1]
        return -0.5 * self.points.shape[1] * (1 + (2 * math.pi * variance).log())


PROBLEMS: dict[str, type[BaseTestProblem]] = {
    "ackley": InvariantAckley,
    "griewank": InvariantGriewank,
    "rastrigin": InvariantRastrigin,
    "radial": Radial,
    "scaling": RatioScaling,
    "wlan": WLAN,
    "partpack": PartPack,
}
