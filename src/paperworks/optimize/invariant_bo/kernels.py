"""Kernels that are invariant under a group: the average over orbits, the maximum over orbits, and its PSD part."""

from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, PiecewisePolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from .groups import Cyclic, Group, PlanarRotations, Scaling, sqdist

TINY = 1e-30  # added to squared distances: sqrt has no gradient at 0
RAY = 16  # at most so many points of a ray, for an average over multiples

ISOTROPIC = (MaternKernel, PiecewisePolynomialKernel, RBFKernel, RQKernel)


def is_isotropic(kernel: Kernel) -> bool:
    """Whether k(x, x') falls with |x - x'| and depends on it alone: `ISOTROPIC`, one lengthscale, scaled or not."""
    if kernel.active_dims is not None:
        return False
    if isinstance(kernel, ScaleKernel):
        return is_isotropic(kernel.base_kernel)
    return type(kernel) in ISOTROPIC and kernel.ard_num_dims in (None, 1)


def of_distance(kernel: Kernel, squared: Tensor) -> Tensor:
    """k(|x - x'|) for squared distances (..., n, m): any isotropic kernel, read off on a line."""
    distance = (squared + TINY).sqrt()
    shape = distance.shape
    batch = kernel.batch_shape
    flat = distance.reshape(*shape[:-2], -1, 1) if batch else distance.reshape(-1, 1)
    return kernel(torch.zeros_like(flat), flat, diag=True).reshape(torch.broadcast_shapes(shape, (*batch, 1, 1)))


class _OrbitKernel(Kernel):
    """What the kernels of this module share: base kernel, group and checks."""

    def __init__(self, base_kernel: Kernel, group: Group, **kwargs: Any) -> None:
        if not isinstance(base_kernel, Kernel):
            raise TypeError(f"base_kernel = {base_kernel!r}: a gpytorch.kernels.Kernel is needed")
        if not isinstance(group, Group):
            raise TypeError(f"group = {group!r}: a Group is needed, such as SignedPermutations(3)")
        super().__init__(**kwargs)
        self.base_kernel = base_kernel
        self.group = group
        self.isotropic = is_isotropic(base_kernel)
        if not self.isotropic and group.order == float("inf"):
            raise ValueError(
                f"base_kernel is not isotropic: {group} has no closed form for it, only for one lengthscale"
            )

    @property
    def batch_shape(self) -> torch.Size:
        """That of the base kernel."""
        return self.base_kernel.batch_shape

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        self.base_kernel.batch_shape = value

    @property
    def is_stationary(self) -> bool:
        """An orbit is no translation."""
        return False

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The values of the kernel.

        Args:
            x1: Points (..., n, d).
            x2: Points (..., m, d).
            diag: Whether only the values k(x1[i], x2[i]) are wanted.
            **params: Of GPyTorch.

        Returns:
            Values (..., n, m), or (..., n) with `diag`.

        Raises:
            ValueError: When d is not `group.dim`, or coordinates are to be taken one by one.
        """
        if params.get("last_dim_is_batch", False):
            raise ValueError("last_dim_is_batch = True: a group acts on all coordinates together")
        self.group.check(x1, "x1")
        self.group.check(x2, "x2")
        if not diag:
            return self._values(x1, x2)
        if self._batched():
            return self._values(x1, x2).diagonal(dim1=-2, dim2=-1)
        return self._values(x1.unsqueeze(-2), x2.unsqueeze(-2)).squeeze(-1).squeeze(-1)

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The values (..., n, m)."""
        raise NotImplementedError

    def _batched(self) -> bool:
        """Whether points of one batch belong to one kernel, so that pairs cannot become a batch of their own."""
        return bool(self.batch_shape)

    def _base(self, x1: Tensor, x2: Tensor) -> Tensor:
        if self.isotropic:
            return of_distance(self.base_kernel, sqdist(x1, x2))
        return self.base_kernel(x1, x2).to_dense()

    def _over_pairs(self, x1: Tensor, x2: Tensor, combine: Any) -> Tensor:
        """Combine k(g x, g' x') over g and g': |G|^2 terms, for base kernels that the group changes."""
        result: Tensor | None = None
        for image in self.group.images(x1):
            value = self.group.reduce(image, x2, self._base, combine)
            result = value if result is None else combine(result, value)
        assert result is not None
        return result


class MaxKernel(_OrbitKernel):
    """The best alignment of two orbits, k_max(x, x') = max over g, g' of k(g x, g' x').

    For an isotropic base kernel this is k at the distance of the orbits, in closed form where the group has one. It is
    symmetric and invariant, and positive semi-definite if `group.exact`; in general it is indefinite: `PSDMaxKernel`.

    Args:
        base_kernel: A GPyTorch kernel; with one lengthscale for all coordinates orbits need not be written out.
        group: The group.

    Shape:
        x1 (..., n, d), x2 (..., m, d) to (..., n, m); with ``diag=True`` to (..., n).

    Raises:
        TypeError: When the arguments are of another kind.
        ValueError: When an infinite group meets a base kernel that is not isotropic, or d is not `group.dim`.
    """

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        if self.isotropic:
            # A stationary kernel falls with distance: the maximum of k is k at the minimum.
            return of_distance(self.base_kernel, self.group.min_sqdist(x1, x2))
        return self._over_pairs(x1, x2, torch.maximum)


class CanonicalKernel(_OrbitKernel):
    """The base kernel on orbit representatives, k(phi(x), phi(x')): k_max itself where `group.exact` (Proposition 1).

    Args:
        base_kernel: A GPyTorch kernel.
        group: A group with `canonicalize`.

    Shape:
        x1 (..., n, d), x2 (..., m, d) to (..., n, m); with ``diag=True`` to (..., n).
    """

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.base_kernel(self.group.canonicalize(x1), self.group.canonicalize(x2)).to_dense()


class OrbitAverageKernel(_OrbitKernel):
    """The usual invariant kernel, k_avg(x, x') = |G|^-2 sum over g, g' of k(g x, g' x').

    For an isotropic base kernel one sum suffices, |G|^-1 sum over g of k(x, g x'). For all rotations of the plane the
    sum is an integral over the angle: trapezoids on `angles` points, exact to rounding for smooth kernels, since
    periodic. `Scaling` is no isometry and has no uniform average: there both points run along their rays in the unit
    square (`Scaling.ray`).

    Args:
        base_kernel: A GPyTorch kernel.
        group: The group.
        angles: Points of the quadrature, for infinite groups.
        unit: Divide by sqrt(k_avg(x, x) k_avg(x', x')). The average is largest, and so is the prior variance, where
            the group leaves points alone; with `unit` it is 1 everywhere (an ablation of ours).

    Shape:
        x1 (..., n, d), x2 (..., m, d) to (..., n, m); with ``diag=True`` to (..., n).
    """

    def __init__(
        self, base_kernel: Kernel, group: Group, angles: int = 128, *, unit: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(base_kernel, group, **kwargs)
        if not isinstance(angles, int) or angles < 1:
            raise ValueError(f"angles = {angles!r}: a whole number of at least 1 is needed")
        self.angles, self.unit = angles, unit

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        value = self._mean(x1, x2)
        return value / (self._own(x1).sqrt() * self._own(x2).sqrt().mT) if self.unit else value

    def _own(self, x: Tensor) -> Tensor:
        """k_avg(x, x) (..., n, 1)."""
        if x.dim() > 2 and not x.requires_grad and not self.batch_shape and torch.equal(x, x[:1].expand_as(x)):
            return self._own(x[0]).expand(*x.shape[:-1], 1)  # a model's own points, beside many candidates
        if self.batch_shape:
            return self._mean(x, x).diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        return self._mean(x.unsqueeze(-2), x.unsqueeze(-2)).squeeze(-1)

    def _mean(self, x1: Tensor, x2: Tensor) -> Tensor:
        if isinstance(self.group, Scaling):
            count = min(self.angles, RAY)
            rays1, rays2 = self.group.ray(x1, count), self.group.ray(x2, count)
            value = self._base(rays1.flatten(-3, -2), rays2.flatten(-3, -2))
            value = value.unflatten(-1, (count, x2.shape[-2])).mean(dim=-2)
            return value.unflatten(-2, (count, x1.shape[-2])).mean(dim=-3)
        group = Cyclic(self.angles) if isinstance(self.group, PlanarRotations) else self.group
        if self.isotropic:
            return group.reduce(x1, x2, self._base, torch.add) / group.order
        return self._over_pairs(x1, x2, torch.add) / self.group.order**2


class PSDMaxKernel(MaxKernel):
    """The max kernel made positive semi-definite: projection on a design, extended by Nystrom's formula.

    With the Gram matrix K = k_max(D, D) = Q L Q^T of the design D and K_+ = Q max(0, L) Q^T,

        k_+(x, x') = k_max(x, D) K_+^dagger k_max(D, x'),

    which is k_max on D where K is positive semi-definite already. The design of a Gaussian process is the set of points
    observed so far. Away from the design k_+(x, x) falls below k_max(x, x): the process believes itself certain there.

    Args:
        base_kernel: A GPyTorch kernel.
        group: The group.
        design: D (n, d) or (..., n, d); may be set later by `set_design`.
        tol: Eigenvalues below tol times the largest are dropped.
        abs_tol: Eigenvalues below this are dropped as well (the authors' code drops those below 1e-4).
        fitc: Add k_max(x, x) - k_+(x, x) on the diagonal, as FITC does, which restores the variance away from D.
        learn: Let gradients of hyper-parameters pass through the projection while the kernel is in training mode, as
            ``fit_gpytorch_mll`` needs. In evaluation mode the projection is kept until hyper-parameters change.
            Gradients with respect to x always pass.

    Shape:
        x1 (..., n, d), x2 (..., m, d) to (..., n, m); with ``diag=True`` to (..., n).

    Raises:
        RuntimeError: When it is evaluated before it has a design.
    """

    def __init__(
        self,
        base_kernel: Kernel,
        group: Group,
        design: Tensor | None = None,
        *,
        tol: float = 1e-8,
        abs_tol: float = 0.0,
        fitc: bool = False,
        learn: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(base_kernel, group, **kwargs)
        for name, value in (("tol", tol), ("abs_tol", abs_tol)):
            if not value >= 0:
                raise ValueError(f"{name} = {value!r}: a number of at least 0 is needed")
        self.tol, self.abs_tol, self.fitc, self.learn = tol, abs_tol, fitc, learn
        self.register_buffer("design", None, persistent=False)  # follows the model to its device
        self._root: Tensor | None = None
        self._made_for: tuple[Tensor, ...] = ()
        if design is not None:
            self.set_design(design)

    def set_design(self, design: Tensor) -> "PSDMaxKernel":
        """Make D (..., n, d) the design; returns self."""
        self.group.check(design, "design")
        if design.shape[-2] == 0 or not bool(torch.isfinite(design).all()):
            raise ValueError(f"design of shape {tuple(design.shape)}: at least one point and finite numbers are needed")
        self.design = design.detach().clone()
        self._root = None
        return self

    def gram(self) -> Tensor:
        """k_max(D, D) (..., n, n), in float64, before the projection."""
        if self.design is None:
            raise RuntimeError("PSDMaxKernel has no design yet: call set_design(X) with the points observed so far")
        design = self.design.double()
        return super()._values(design, design)

    def clipped_mass(self) -> Tensor:
        """Share of the spectrum that the projection cuts off, sum |lambda_-| / sum |lambda| (...)."""
        values = torch.linalg.eigvalsh(self.gram().detach())
        return -values.clamp(max=0).sum(-1) / values.abs().sum(-1)

    def _factor(self) -> Tensor:
        """K_+^(dagger/2) (..., n, n): features are k_max(x, D) times this. Kept until hyper-parameters change."""
        now = tuple(p.detach() for p in self.base_kernel.parameters())
        grad = self._learning() and torch.is_grad_enabled()
        same = len(now) == len(self._made_for) and all(map(torch.equal, now, self._made_for))
        if self._root is not None and same and not grad:
            return self._root
        with torch.set_grad_enabled(grad):
            values, vectors = torch.linalg.eigh(self.gram())
            least = torch.clamp(self.tol * values[..., -1:], min=self.abs_tol)
            keep = values > least
            inverse = torch.where(keep, torch.where(keep, values, 1.0).rsqrt(), 0.0)
            root = vectors * inverse.unsqueeze(-2)
        self._root = None if grad else root
        self._made_for = tuple(p.clone() for p in now)
        return root

    def _learning(self) -> bool:
        return self.learn and self.training

    def features(self, x: Tensor) -> Tensor:
        """phi(x) = K_+^(dagger/2) k_max(D, x), (..., n, |D|): k_+(x, x') = phi(x) . phi(x')."""
        root = self._factor()
        assert self.design is not None
        with torch.set_grad_enabled(torch.is_grad_enabled() and (self._learning() or x.requires_grad)):
            cross = super()._values(x.double(), self.design.double())
        return (cross @ root).to(x.dtype)

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        phi1 = self.features(x1)
        value = phi1 @ (phi1 if same else self.features(x2)).mT
        if same and self.fitc:
            whole = MaxKernel(self.base_kernel, self.group).train(self.training)(x1, x1, diag=True)
            missing = whole - value.diagonal(dim1=-2, dim2=-1)
            value = value + torch.diag_embed(missing.clamp(min=0))
        return value

    def _batched(self) -> bool:
        return super()._batched() or (self.design is not None and self.design.dim() > 2)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_root": None, "_made_for": ()}
