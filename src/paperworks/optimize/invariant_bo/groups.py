"""Groups of isometries: orbits, orbit representatives and the distance between orbits.

A group acts on R^d by orthogonal matrices. All that a max kernel of an isotropic base kernel needs is the distance
between orbits, min_g |x - g x'|; where a closed form exists no orbit is written out.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

CHUNK = 2**22  # numbers of a temporary tensor: 32 MB in float64


def sqdist(x1: Tensor, x2: Tensor) -> Tensor:
    """Squared distances (..., n, m) of the rows of (..., n, d) and (..., m, d), without cancellation."""
    return torch.cdist(x1, x2, compute_mode="donot_use_mm_for_euclid_dist").square()


class Group(ABC):
    """A group of isometries of R^d.

    Attributes:
        dim: d, the number of coordinates it acts on.
        order: Number of elements; `math.inf` for a continuous group.
        isometric: Whether |g x - g x'| = |x - x'|; `Scaling` alone is not.
        exact: Whether |canonicalize(x) - canonicalize(x')| is the distance of the orbits of x and x', for all x, x'.
            Then the max kernel is a base kernel on representatives, hence positive semi-definite (Proposition 1).
    """

    dim: int
    order: float
    isometric: bool = True
    exact: bool = False

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise ValueError unless x has `dim` columns."""
        if x.dim() < 1 or x.shape[-1] != self.dim:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}: {self} acts on {self.dim} coordinates (the last axis)"
            )

    def canonicalize(self, x: Tensor) -> Tensor:
        """A representative (..., k) of the orbit of each row of x (..., d), the same for all of the orbit.

        Raises:
            ValueError: When no representative is known for this group.
        """
        raise ValueError(f"no orbit representative is known for {self}: take kernel 'psd_max' or 'average'")

    @abstractmethod
    def images(self, x: Tensor) -> Iterator[Tensor]:
        """The images g x (..., d), one by one; x itself comes first. Infinite groups raise ValueError."""

    def act(self, x: Tensor) -> Tensor:
        """All images of x (..., n, d), as (..., |G|, n, d)."""
        self.check(x)
        return torch.stack(list(self.images(x)), dim=-3 if x.dim() > 1 else -2)

    def min_sqdist(self, x1: Tensor, x2: Tensor) -> Tensor:
        """min_g |x - g x'|^2 (..., n, m) of the rows x of x1 (..., n, d) and x' of x2 (..., m, d).

        At ties the gradient is one of the subgradients.
        """
        self.check(x1, "x1")
        self.check(x2, "x2")
        if self.exact:
            return sqdist(self.canonicalize(x1), self.canonicalize(x2))
        return self.reduce(x1, x2, sqdist, torch.minimum)

    def reduce(
        self,
        x1: Tensor,
        x2: Tensor,
        function: Callable[[Tensor, Tensor], Tensor],
        combine: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Combine function(x1, g x2) over the elements g, many images at a time and bounded memory."""
        m = x2.shape[-2]
        per_image = max(1, x1.shape[:-1].numel() * m)
        result: Tensor | None = None
        images = self.images(x2)
        while some := list(itertools.islice(images, max(1, CHUNK // per_image))):
            values = function(x1, torch.cat(some, dim=-2)).unflatten(-1, (len(some), m))
            for part in _fold(values, combine):
                result = part if result is None else combine(result, part)
        assert result is not None
        return result

    def sample(self, count: int, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor]:
        """`count` different random elements, the identity first: a function (..., n, d) -> (..., count, n, d)."""
        if count >= self.order:
            return self.act
        chosen = torch.randperm(int(self.order) - 1, generator=generator)[: count - 1] + 1
        keep = {0, *chosen.tolist()}
        return lambda x: torch.stack([y for i, y in enumerate(self.images(x)) if i in keep], dim=-3)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dim})"


def _fold(values: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Iterator[Tensor]:
    """Reduce the last but one axis by whole-tensor operations where torch has one."""
    if combine is torch.minimum:
        yield values.amin(dim=-2)
    elif combine is torch.maximum:
        yield values.amax(dim=-2)
    elif combine is torch.add:
        yield values.sum(dim=-2)
    else:
        yield from values.unbind(dim=-2)


def _dim(name: str, value: int, least: int = 1) -> int:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} = {value!r}: a whole number of at least {least} is needed")
    return value


class SignFlips(Group):
    """x_i -> -x_i for any set of coordinates; order 2^d, representative |x|.

    Args:
        dim: d, the number of coordinates.
    """

    exact = True

    def __init__(self, dim: int) -> None:
        self.dim = _dim("dim", dim)
        self.order = 2**dim

    def canonicalize(self, x: Tensor) -> Tensor:
        """The representative of each orbit."""
        self.check(x)
        return x.abs()

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        for signs in itertools.product((1.0, -1.0), repeat=self.dim):
            yield x * x.new_tensor(signs)


class Permutations(Group):
    """All orders of the coordinates; order d!, representative: sorted coordinates.

    Args:
        dim: d, the number of coordinates.
    """

    exact = True

    def __init__(self, dim: int) -> None:
        self.dim = _dim("dim", dim)
        self.order = math.factorial(dim)

    def canonicalize(self, x: Tensor) -> Tensor:
        """The representative of each orbit."""
        self.check(x)
        return x.sort(dim=-1).values

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        for order in itertools.permutations(range(self.dim)):
            yield x[..., order]


class SignedPermutations(Group):
    """The hyperoctahedral group: orders and signs; order 2^d d!, representative: sorted absolute values.

    Args:
        dim: d, the number of coordinates.
    """

    exact = True

    def __init__(self, dim: int) -> None:
        self.dim = _dim("dim", dim)
        self.order = 2**dim * math.factorial(dim)

    def canonicalize(self, x: Tensor) -> Tensor:
        """The representative of each orbit."""
        self.check(x)
        return x.abs().sort(dim=-1).values

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        for flipped in SignFlips(self.dim).images(x):
            yield from Permutations(self.dim).images(flipped)


class BlockPermutations(Group):
    """Permutations of `blocks` blocks of `size` coordinates each, as when equal things are placed; order blocks!.

    The orbit distance is a linear assignment, O(blocks^3); up to `ENUMERATE` blocks all orders are tried, which is
    faster. The representative (blocks in lexicographic order) is not exact unless size = 1.

    Args:
        blocks: Number of blocks.
        size: Coordinates of a block.
    """

    ENUMERATE = 5

    def __init__(self, blocks: int, size: int) -> None:
        self.blocks, self.size = _dim("blocks", blocks), _dim("size", size)
        self.dim, self.order = blocks * size, math.factorial(blocks)
        self.exact = size == 1

    def __repr__(self) -> str:
        return f"BlockPermutations({self.blocks}, {self.size})"

    def canonicalize(self, x: Tensor) -> Tensor:
        """The representative of each orbit."""
        self.check(x)
        blocks = x.unflatten(-1, (self.blocks, self.size))
        for i in reversed(range(self.size)):  # stable sorts, the last coordinate first
            order = blocks[..., i].sort(dim=-1, stable=True).indices
            blocks = blocks.gather(-2, order.unsqueeze(-1).expand_as(blocks))
        return blocks.flatten(-2)

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        blocks = x.unflatten(-1, (self.blocks, self.size))
        for order in itertools.permutations(range(self.blocks)):
            yield blocks[..., order, :].flatten(-2)

    def min_sqdist(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Squared distances of orbits, by linear assignment."""
        self.check(x1, "x1")
        self.check(x2, "x2")
        if self.exact:
            return super().min_sqdist(x1, x2)
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        n, m, b = x1.shape[-2], x2.shape[-2], self.blocks
        blocks1 = x1.expand(*batch, n, self.dim).reshape(*batch, n * b, self.size)
        blocks2 = x2.expand(*batch, m, self.dim).reshape(*batch, m * b, self.size)
        cost = sqdist(blocks1, blocks2).reshape(*batch, n, b, m, b).transpose(-3, -2)  # (..., n, m, b, b)
        if b <= self.ENUMERATE:
            orders = torch.tensor(list(itertools.permutations(range(b))), device=cost.device)
            chosen = torch.nn.functional.one_hot(orders, b).to(cost).flatten(1)  # (b!, b b)
            return (cost.flatten(-2) @ chosen.mT).amin(dim=-1)
        flat = cost.detach().cpu().numpy().reshape(-1, b, b)
        best = torch.tensor(np.array([linear_sum_assignment(c)[1] for c in flat]), device=cost.device).reshape(
            *batch, n, m, b
        )
        return cost.gather(-1, best.unsqueeze(-1)).sum(dim=(-2, -1))


class Cyclic(Group):
    """Rotations of the plane by multiples of 2 pi / order.

    The max kernel is in general indefinite here: no map to representatives keeps all orbit distances.

    Args:
        order: Number of rotations.
    """

    dim = 2

    def __init__(self, order: int) -> None:
        self.order = _dim("order", order)

    def __repr__(self) -> str:
        return f"Cyclic({self.order})"

    def canonicalize(self, x: Tensor) -> Tensor:
        """The image whose angle lies in [0, 2 pi / order); it jumps at the border."""
        self.check(x)
        sector = 2 * math.pi / self.order
        angle = torch.atan2(x[..., 1], x[..., 0]).remainder(sector)
        return x.norm(dim=-1, keepdim=True) * torch.stack([angle.cos(), angle.sin()], dim=-1)

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        for i in range(int(self.order)):
            yield _rotated(x, 2 * math.pi * i / self.order)


class PlanarRotations(Group):
    """All rotations of the plane about 0; representative |x|, a single number."""

    dim = 2
    order = math.inf
    exact = True

    def __repr__(self) -> str:
        return "PlanarRotations()"

    def canonicalize(self, x: Tensor) -> Tensor:
        """The representative of each orbit."""
        self.check(x)
        return x.norm(dim=-1, keepdim=True)

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        raise ValueError("PlanarRotations() has infinitely many elements: take Cyclic(m) for a finite share of them")

    def sample(self, count: int, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor]:
        """`count` equally spaced rotations, the identity first: (..., n, 2) -> (..., count, n, 2)."""
        return Cyclic(count).act


class Scaling(Group):
    """Positive multiples of points of the positive quadrant, by the slice (log x_1 - log x_2) / sqrt(2).

    It is meant for coordinates of which the largest bound is 1, as `max_kernel_bo` makes them.

    Multiplication is no isometry and brings every orbit to 0, so that a supremum over it says nothing; the distance of
    two orbits is taken along the slice, on which log x moves at right angles to the orbit.
    """

    dim = 2
    order = math.inf
    isometric = False
    exact = True

    def __repr__(self) -> str:
        return "Scaling()"

    def ray(self, x: Tensor, count: int) -> Tensor:
        """`count` points (..., count, n, 2) on the ray of each row of x (..., n, 2), the same for all of the orbit.

        They lie between the border of the unit square and a hundredth of it, equally spaced in the logarithm.
        """
        self.canonicalize(x)  # its checks
        factors = torch.logspace(-2, 0, count, dtype=x.dtype, device=x.device)
        return factors[:, None, None] * (x / x.amax(dim=-1, keepdim=True)).unsqueeze(-3)

    def canonicalize(self, x: Tensor) -> Tensor:
        """The representative of each orbit."""
        self.check(x)
        if not bool((x > 0).all()):
            raise ValueError(f"x has a value of {float(x.min())}: Scaling() acts on positive numbers")
        return (x[..., :1].log() - x[..., 1:].log()) / math.sqrt(2)

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        raise ValueError("Scaling() has infinitely many elements")

    def sample(self, count: int, generator: torch.Generator | None = None) -> Callable[[Tensor], Tensor]:
        """Factors from 1/10 to 10, equally spaced in the logarithm, the identity first."""
        others = torch.linspace(-1, 1, 2 * max(count - 1, 1), dtype=torch.float64)[::2][: count - 1]  # never 0
        return lambda x: torch.stack([x, *(x * 10 ** float(power) for power in others)], dim=-3)


class MatrixGroup(Group):
    """A finite group given by its orthogonal matrices.

    Args:
        matrices: All elements, (|G|, d, d).

    Raises:
        ValueError: Unless the matrices are square, finite, orthogonal, hold the identity and, where |G| is at most
            200, every product, each element once.
    """

    def __init__(self, matrices: Tensor) -> None:
        matrices = torch.as_tensor(matrices, dtype=torch.float64)
        if matrices.dim() != 3 or matrices.shape[1] != matrices.shape[2] or len(matrices) == 0:
            raise ValueError(f"matrices have shape {tuple(matrices.shape)}: (|G|, d, d) is needed")
        eye = torch.eye(matrices.shape[1], dtype=torch.float64)
        off = (matrices.mT @ matrices - eye).abs().amax(dim=(1, 2))
        if not bool((off < 1e-6).all()):
            raise ValueError(
                f"matrices[{int(off.nan_to_num(math.inf).argmax())}] is not orthogonal: g^T g must be the identity"
            )
        first = (matrices - eye).abs().amax(dim=(1, 2))
        if float(first.min()) > 1e-6:
            raise ValueError("matrices lack the identity: a group needs it")
        if len(matrices) <= 200:
            flat = matrices.flatten(1)
            products = (matrices[:, None] @ matrices[None]).flatten(2).flatten(0, 1)
            gap = torch.cdist(products, flat, p=math.inf).amin(dim=1)
            apart = torch.cdist(flat, flat, p=math.inf) + torch.eye(len(flat))
            if float(apart.min()) < 1e-5:
                i, j = divmod(int(apart.argmin()), len(matrices))
                raise ValueError(f"matrices {i} and {j} are the same: each element is to be given once")
            if float(gap.max()) > 1e-5:
                i, j = divmod(int(gap.argmax()), len(matrices))
                raise ValueError(f"matrices are not closed: the product of elements {i} and {j} is none of them")
        identity = int(first.argmin())
        order = [identity, *(i for i in range(len(matrices)) if i != identity)]
        self.matrices = matrices[order]
        self.dim, self.order = matrices.shape[1], len(matrices)

    def __repr__(self) -> str:
        return f"MatrixGroup({int(self.order)} matrices, {self.dim} x {self.dim})"

    def images(self, x: Tensor) -> Iterator[Tensor]:
        """All images, x itself first."""
        for matrix in self.matrices.to(x):
            yield x @ matrix.mT


def _rotated(x: Tensor, angle: float) -> Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return torch.stack([c * x[..., 0] - s * x[..., 1], s * x[..., 0] + c * x[..., 1]], dim=-1)
