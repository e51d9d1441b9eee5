"""The spaces in which embeddings are compared: products of hyperbolic factors, and what they are compared with.

All have one interface, so that a loss, a retriever or a study takes any of them: `lift` brings an encoder's numbers
into the space, `dist` and `similarity` compare all pairs, `entailment` says how far a point lies outside the cone of
an apex. Points have the shape (n, k, d), k factors of d numbers.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .geometry import lorentz
from .pairwise import METRICS, product_dist

Metric = Literal["l1", "l2", "linf"]
Gain = Literal["image", "text"]
CURVATURE = (0.1, 10.0)  # learned curvatures stay within these


def _exact(method: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Without autocast: geometry needs more than 16 bits."""

    @functools.wraps(method)
    def run(self: nn.Module, X: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        with torch.autocast(X.device.type, enabled=False):
            return method(self, X, *args, **kwargs)

    return run


class _Space(nn.Module):
    """What the spaces share: slices, a gain for each modality and factor, checks.

    Args:
        k: Number of factors.
        d: Numbers of a factor.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("lift", "dist", "factor_dist", "similarity", "score", "entailment"):
            if name in vars(cls):
                setattr(cls, name, _exact(vars(cls)[name]))

    def __init__(self, k: int, d: int) -> None:
        for name, value in (("k", k), ("d", d)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} = {value!r}: a whole number of at least 1 is needed")
        super().__init__()
        self.k, self.d = k, d
        start = torch.full((k,), -0.5 * math.log(d))
        self.log_gain_image = nn.Parameter(start.clone())
        self.log_gain_text = nn.Parameter(start.clone())

    @property
    def width(self) -> int:
        """K d, what an encoder must give."""
        return self.k * self.d

    def gain(self, modality: Gain) -> Tensor:
        """exp(a_i) (k,), at most 1: the factors' scales of one modality."""
        if modality not in ("image", "text"):
            raise ValueError(f"gain = {modality!r}: 'image', 'text' or None is needed")
        return getattr(self, f"log_gain_{modality}").clamp(max=0).exp()  # type: ignore[no-any-return]

    def slices(self, v: Tensor, gain: Gain | None = None) -> Tensor:
        """Cut v (..., k d) or (..., k, d) into factors (..., k, d), scaled by the gains of a modality.

        Raises:
            ValueError: For another last axis, or numbers that are not finite: the factor is named.
        """
        if v.dim() and v.shape[-1] == self.width and (v.dim() <= 2 or v.shape[-2:] != (self.k, self.d)):
            v = v.unflatten(-1, (self.k, self.d))
        if v.dim() < 2 or v.shape[-2:] != (self.k, self.d):
            raise ValueError(
                f"v has shape {tuple(v.shape)}: (..., {self.width}) is needed, {self.k} factors of {self.d}"
            )
        if not v.is_floating_point():
            raise ValueError(f"v has dtype {v.dtype}: floating-point numbers are needed")
        v = v if v.dtype == torch.float64 else v.float()
        if not bool(torch.isfinite(v).all()):
            bad = (~torch.isfinite(v)).any(-1).flatten(0, -2).any(0).nonzero()[0].item()
            raise ValueError(f"v has values that are not finite in factor {bad}")
        return v if gain is None else v * self.gain(gain).to(v).unsqueeze(-1)

    def lift(self, v: Tensor, gain: Gain | None = None) -> Tensor:
        """Points (..., k, d) of an encoder's numbers (..., k d).

        Args:
            v: What an encoder gives; a mean of prompts is taken before, not after.
            gain: The modality whose scales are applied; ``None`` for none.
        """
        with torch.autocast(v.device.type, enabled=False):  # geometry needs more than 16 bits
            return self._lift(self.slices(v, gain))

    def _lift(self, v: Tensor) -> Tensor:
        return v

    def _check(self, **points: Tensor) -> None:
        for name, x in points.items():
            if x.dim() != 3 or x.shape[1:] != (self.k, self.d):
                raise ValueError(f"{name} has shape {tuple(x.shape)}: (n, {self.k}, {self.d}) is needed, from lift")

    def factor_dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances in each factor.

        Args:
            X: Points (n, k, d).
            Y: Points (m, k, d).

        Returns:
            Distances (k, n, m).
        """
        raise NotImplementedError

    def norms(self, X: Tensor) -> Tensor:
        """Distances of points (..., k, d) from the origin, factor by factor (..., k)."""
        return torch.linalg.vector_norm(X, dim=-1)

    def dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances of all pairs.

        Args:
            X: Points (n, k, d).
            Y: Points (m, k, d).

        Returns:
            Distances (n, m).
        """
        raise NotImplementedError

    def similarity(self, X: Tensor, Y: Tensor) -> Tensor:
        """What the logits are made of (n, m): minus the distance, averaged over factors."""
        return -self.dist(X, Y)

    def score(self, X: Tensor, Y: Tensor, score: str = "distance") -> Tensor:
        """Scores of all pairs for retrieval (n, m), larger is nearer.

        Args:
            X: Points (n, k, d).
            Y: Points (m, k, d).
            score: "distance": minus the distance. "inner": the sum over factors of the Lorentz inner product, as the
                released evaluation has it; for more than one factor it orders otherwise, since far factors count
                exponentially.
        """
        if score != "distance":
            raise ValueError(f"score = {score!r}: only 'distance' is known to {type(self).__name__}")
        return self.similarity(X, Y)

    def entailment(self, apex: Tensor, point: Tensor, eta: float, radius: float = 0.1) -> Tensor:
        """max(0, angle(apex, point) - eta half_aperture(apex)), mean over factors.

        Args:
            apex: Points (n, k, d), the general one of each pair.
            point: Points (n, k, d).
            eta: Factor on the aperture.
            radius: r of the aperture.

        Returns:
            Violations (n,).
        """
        raise NotImplementedError

    def compose(self, X: Tensor, Y: Tensor, op: Literal["max", "min"] = "max") -> Tensor:
        """Both concepts in one point: per factor that of the two points which is farther from the origin.

        Args:
            X: Points (..., k, d).
            Y: Points (..., k, d).
            op: "max", or "min" for the nearer one.

        Returns:
            Points (..., k, d).
        """
        if op not in ("max", "min"):
            raise ValueError(f"op = {op!r}: 'max' or 'min' is needed")
        farther = self.norms(X) >= self.norms(Y)
        return torch.where((farther if op == "max" else ~farther).unsqueeze(-1), X, Y)


def _reduce(parts: Tensor, metric: Metric) -> Tensor:
    """Distances of a product (n, m) from those of its factors (k, n, m)."""
    if metric == "l1":
        return parts.sum(0)
    if metric == "l2":
        return (parts.square().sum(0) + lorentz.EPS**2).sqrt()
    return parts.amax(0)


class _Product(_Space):
    """A product of factors with a metric over their distances."""

    def __init__(self, k: int, d: int, metric: Metric = "l1") -> None:
        if metric not in METRICS:
            raise ValueError(f"metric = {metric!r}: one of {', '.join(METRICS)} is needed")
        super().__init__(k, d)
        self.metric: Metric = metric

    def dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances of all pairs (n, m): the sum over factors, the root of the sum of squares, or the maximum."""
        return _reduce(self.factor_dist(X, Y), self.metric)

    def similarity(self, X: Tensor, Y: Tensor) -> Tensor:
        """Minus the mean over factors, the root of the mean square, or the maximum."""
        return -self.dist(X, Y) / {"l1": self.k, "l2": math.sqrt(self.k), "linf": 1}[self.metric]

    def extra_repr(self) -> str:
        """For print."""
        return f"k={self.k}, d={self.d}, metric={self.metric!r}"


class ProductHyperbolic(_Product):
    """A product of k hyperbolic spaces of dimension d, with a learnable curvature each.

    Args:
        k: Number of factors; 1 is the space of MERU and HyCoCLIP.
        d: Dimension of a factor.
        curv: Minus the curvature at the start.
        learn: Whether curvatures are learned; they stay within 0.1 and 10.
        metric: "l1": the sum of the factors' distances (the paper's), "l2" or "linf" (its ablations).

    Raises:
        ValueError: For other sizes or metrics, or a curvature outside of 0.1 .. 10.
    """

    def __init__(self, k: int, d: int, curv: float = 1.0, learn: bool = True, metric: Metric = "l1") -> None:
        super().__init__(k, d, metric)
        if not CURVATURE[0] <= curv <= CURVATURE[1]:
            raise ValueError(f"curv = {curv!r}: a number from {CURVATURE[0]} to {CURVATURE[1]} is needed")
        self.log_curv = nn.Parameter(torch.full((k,), math.log(curv)), requires_grad=learn)

    @property
    def curv(self) -> Tensor:
        """c_i (k,), minus the curvatures."""
        return self.log_curv.exp().clamp(*CURVATURE)

    def _lift(self, v: Tensor) -> Tensor:
        return lorentz.exp_map0(v, self.curv.to(v))

    def norms(self, X: Tensor) -> Tensor:
        """Distances of points (..., k, d) from the origin, factor by factor (..., k)."""
        return torch.linalg.vector_norm(lorentz.log_map0(X, self.curv.to(X)), dim=-1)

    def factor_dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances in each factor (k, n, m) of points X (n, k, d) and Y (m, k, d)."""
        self._check(X=X, Y=Y)
        return lorentz.pairwise_dist(X, Y, self.curv.to(X))

    def dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances of all pairs (n, m), in the memory of one factor; gradients of the first order."""
        self._check(X=X, Y=Y)
        return product_dist(X, Y, self.curv.to(X), self.metric)

    def score(self, X: Tensor, Y: Tensor, score: str = "distance") -> Tensor:
        """Scores of all pairs (n, m): see `_Space.score`."""
        if score == "inner":
            self._check(X=X, Y=Y)
            return lorentz.pairwise_inner(X, Y, self.curv.to(X)).sum(0)
        if score != "distance":
            raise ValueError(f"score = {score!r}: 'distance' or 'inner' is needed")
        return self.similarity(X, Y)

    def entailment(self, apex: Tensor, point: Tensor, eta: float, radius: float = 0.1) -> Tensor:
        """Violations of the cones (n,), mean over factors; apex at the origin of a factor: none there."""
        self._check(apex=apex, point=point)
        c = self.curv.to(apex)
        angle = lorentz.oxy_angle(apex, point, c)
        return (angle - eta * lorentz.half_aperture(apex, c, radius)).clamp(min=0).mean(-1)


class ProductEuclidean(_Product):
    """The same product without curvature: an ablation of ours, and the limit of small curvature.

    Args:
        k: Number of factors.
        d: Dimension of a factor.
        metric: As in `ProductHyperbolic`.
    """

    def factor_dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances in each factor (k, n, m) of points X (n, k, d) and Y (m, k, d)."""
        self._check(X=X, Y=Y)
        x, y = X.transpose(0, 1), Y.transpose(0, 1)
        square = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2) - 2 * x @ y.mT
        return square.clamp(min=2 * lorentz.EPS).sqrt()  # the least distance of the hyperbolic factors

    def entailment(self, apex: Tensor, point: Tensor, eta: float, radius: float = 0.1) -> Tensor:
        """Violations of Euclidean cones (n,): the angle at the apex between x and y - x, against asin(2 r / |x|)."""
        self._check(apex=apex, point=point)
        length, way = apex.norm(dim=-1), point - apex
        below = length * way.norm(dim=-1)
        defined = below > lorentz.EPS
        cosine = (apex * way).sum(-1) / torch.where(defined, below, 1.0)
        angle = torch.where(defined, cosine.clamp(-1 + lorentz.EPS, 1 - lorentz.EPS).acos(), 0.0)
        return (angle - eta * lorentz.half_aperture(apex, 1.0, radius)).clamp(min=0).mean(-1)


class ProductMixed(_Product):
    """Hyperbolic, Euclidean and spherical factors side by side, a third each (mixed curvature, an ablation).

    Spherical factors have radius 1 and no cones: they entail nothing.

    Args:
        k: Number of factors, 3 or more.
        d: Dimension of a factor.
        metric: As in `ProductHyperbolic`.
    """

    def __init__(self, k: int, d: int, metric: Metric = "l1") -> None:
        super().__init__(k, d, metric)
        if k < 3:
            raise ValueError(f"k = {k}: a mixed product needs at least 3 factors")
        flat, round_ = k // 3, k // 3
        self.sizes = (k - flat - round_, flat, round_)
        self.hyperbolic = ProductHyperbolic(self.sizes[0], d)
        self.flat = ProductEuclidean(self.sizes[1], d)
        for space in (self.hyperbolic, self.flat):
            del space.log_gain_image, space.log_gain_text  # ours are used; without a gradient they would stop DDP

    def _lift(self, v: Tensor) -> Tensor:
        bent, flat, round_ = v.split(self.sizes, dim=-2)
        return torch.cat([self.hyperbolic._lift(bent), flat, round_], dim=-2)

    def norms(self, X: Tensor) -> Tensor:
        """Distances of points (..., k, d) from the origin (the pole), factor by factor (..., k)."""
        bent, rest = X.split((self.sizes[0], self.k - self.sizes[0]), dim=-2)
        return torch.cat([self.hyperbolic.norms(bent), torch.linalg.vector_norm(rest, dim=-1)], dim=-1)

    def factor_dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """Distances in each factor (k, n, m) of points X (n, k, d) and Y (m, k, d)."""
        self._check(X=X, Y=Y)
        (bx, fx, rx), (by, fy, ry) = (p.split(self.sizes, dim=1) for p in (X, Y))
        on_x, on_y = (_on_sphere(p).transpose(0, 1) for p in (rx, ry))
        cosine = (on_x @ on_y.mT).clamp(-1 + lorentz.EPS, 1 - lorentz.EPS)
        return torch.cat([self.hyperbolic.factor_dist(bx, by), self.flat.factor_dist(fx, fy), cosine.acos()])

    def entailment(self, apex: Tensor, point: Tensor, eta: float, radius: float = 0.1) -> Tensor:
        """Violations of the cones (n,) of hyperbolic and Euclidean factors, mean over all factors."""
        self._check(apex=apex, point=point)
        (bx, fx, _), (by, fy, _) = (p.split(self.sizes, dim=1) for p in (apex, point))
        total = self.sizes[0] * self.hyperbolic.entailment(bx, by, eta, radius)
        return (total + self.sizes[1] * self.flat.entailment(fx, fy, eta, radius)) / self.k


def _on_sphere(v: Tensor) -> Tensor:
    """Tangent vectors (..., d) at the pole of the unit sphere to points (..., d + 1)."""
    length = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
    return torch.cat([torch.sinc(length / math.pi) * v, length.cos()], dim=-1)


class Cosine(_Space):
    """CLIP's space: one factor of unit vectors, compared by cosine; it has no cones and no gains.

    Args:
        d: Width.
    """

    def __init__(self, d: int) -> None:
        super().__init__(1, d)
        del self.log_gain_image, self.log_gain_text

    def gain(self, modality: Gain) -> Tensor:
        """1: a scale would be divided out."""
        if modality not in ("image", "text"):
            raise ValueError(f"gain = {modality!r}: 'image', 'text' or None is needed")
        return torch.ones(1)

    def _lift(self, v: Tensor) -> Tensor:
        return nn.functional.normalize(v, dim=-1)

    def factor_dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """1 - cos (1, n, m)."""
        self._check(X=X, Y=Y)
        return (1 - X.flatten(1) @ Y.flatten(1).mT).unsqueeze(0)

    def dist(self, X: Tensor, Y: Tensor) -> Tensor:
        """1 - cos (n, m)."""
        return self.factor_dist(X, Y)[0]

    def similarity(self, X: Tensor, Y: Tensor) -> Tensor:
        """The cosine (n, m)."""
        return 1 - self.dist(X, Y)

    def entailment(self, apex: Tensor, point: Tensor, eta: float, radius: float = 0.1) -> Tensor:
        """0 (n,): directions have no order."""
        self._check(apex=apex, point=point)
        return (apex * 0).sum((-1, -2))

    def compose(self, X: Tensor, Y: Tensor, op: Literal["max", "min"] = "max") -> Tensor:
        """The direction between both, as unit vectors have no norm to choose by."""
        if op not in ("max", "min"):
            raise ValueError(f"op = {op!r}: 'max' or 'min' is needed")
        return nn.functional.normalize(X + Y, dim=-1)
