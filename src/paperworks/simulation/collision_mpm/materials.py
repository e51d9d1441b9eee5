"""Constitutive models: elastic stress, plastic return mapping and stored energy.

Every model is a frozen dataclass of plain numbers with the same three methods, written in torch for batches of
particles; the Warp kernels repeat them number by number. ``alpha`` is the one internal variable of a particle: the
hardening variable of `NACC`, the accumulated plastic strain of `VonMises`, unused by the elastic models. The dimension
d (2: plane strain, 3) is that of F.
"""

import dataclasses
import math
from typing import ClassVar

import torch
from torch import Tensor

SMALLEST_STRETCH = 0.05  # singular values of F are clamped here
LARGEST_HARDENING = 0.48  # xi |alpha|: beyond 0.4812 sqrt(1 - 2 p0 / kappa) is not real


def signed_svd(F: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Singular value decomposition with rotations: F = U diag(S) V^T, det U = det V = 1; the last S may be negative.

    Args:
        F: Matrices (n, d, d).

    Returns:
        U (n, d, d), S (n, d) in falling order of size, V (n, d, d).
    """
    U, S, Vh = torch.linalg.svd(F)
    last = torch.ones_like(S)
    last[..., -1] = torch.linalg.det(U).sign()
    U, S = U * last[..., None, :], S * last
    last = torch.ones_like(S)
    last[..., -1] = torch.linalg.det(Vh).sign()
    return U, S * last, (Vh * last[..., :, None]).mT


def _deviator(A: Tensor) -> Tensor:
    d = A.shape[-1]
    return A - A.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] / d * torch.eye(d, dtype=A.dtype, device=A.device)


def _eye_times(value: Tensor, d: int) -> Tensor:
    return value[..., None, None] * torch.eye(d, dtype=value.dtype, device=value.device)


@dataclasses.dataclass(frozen=True)
class Material:
    """What all materials share.

    Args:
        E: Young's modulus > 0, in units of stress.
        nu: Poisson's ratio in (-1, 0.5).
        rho: Density at rest > 0.
    """

    E: float
    nu: float = 0.3
    rho: float = dataclasses.field(default=1.0, kw_only=True)

    kind: ClassVar[int] = -1  # which branch of the kernels
    brittle: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        _positive("E", self.E)
        _positive("rho", self.rho)
        if not -1 < self.nu < 0.5:
            raise ValueError(f"nu must lie in (-1, 0.5), got {self.nu}")

    @property
    def mu(self) -> float:
        """Shear modulus."""
        return self.E / (2 * (1 + self.nu))

    @property
    def lam(self) -> float:
        """Lame's first parameter."""
        return self.E * self.nu / ((1 + self.nu) * (1 - 2 * self.nu))

    @property
    def kappa(self) -> float:
        """Bulk modulus 2 mu / 3 + lambda, in two dimensions too."""
        return 2 * self.mu / 3 + self.lam

    @property
    def sound_speed(self) -> float:
        """Speed of pressure waves, sqrt((lambda + 2 mu) / rho)."""
        return math.sqrt((self.lam + 2 * self.mu) / self.rho)

    @property
    def initial_alpha(self) -> float:
        """The internal variable of a new particle."""
        return 0.0

    def parameters(self) -> tuple[float, ...]:
        """The eight numbers that the kernels read: mu, lambda, kappa, and five of the model's own."""
        return (self.mu, self.lam, self.kappa, *self._own())

    def _own(self) -> tuple[float, float, float, float, float]:
        return (0.0, 0.0, 0.0, 0.0, 0.0)

    def stress(self, F: Tensor, state: Tensor) -> Tensor:
        """Kirchhoff stress tau = J sigma.

        Args:
            F: Elastic deformation gradients (n, d, d).
            state: alpha (n,).

        Returns:
            tau (n, d, d), symmetric.
        """
        raise NotImplementedError

    def energy(self, F: Tensor, state: Tensor) -> Tensor:
        """Stored energy per volume at rest (n,); arguments as in `stress`."""
        raise NotImplementedError

    def return_map(self, F: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Bring a trial deformation back to the yield surface.

        Args:
            F: Trial elastic deformation gradients (n, d, d).
            state: alpha (n,) before the step.

        Returns:
            F (n, d, d) and alpha (n,) after it. Singular values of F below 0.05 are set to 0.05.
        """
        return clamp_stretch(F)[0], state


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number > 0, got {value}")


def crushed(F: Tensor) -> Tensor:
    """Where a singular value of F (n, d, d) may lie below the clamp, by the bound s_min >= J / |F|^(d-1): (n,) bool."""
    d = F.shape[-1]
    return torch.linalg.det(F) < SMALLEST_STRETCH * torch.linalg.matrix_norm(F) ** (d - 1)


def clamp_stretch(F: Tensor) -> tuple[Tensor, Tensor]:
    """Set singular values below 0.05, negative ones too, to 0.05.

    Args:
        F: Deformation gradients (n, d, d).

    Returns:
        F (n, d, d), and which were changed (n,).
    """
    suspect = crushed(F)
    if not bool(suspect.any()):
        return F, suspect
    U, S, V = signed_svd(F[suspect])
    changed = torch.zeros_like(suspect)
    changed[suspect] = (S < SMALLEST_STRETCH).any(-1)
    mended = F.clone()
    mended[suspect] = torch.where(
        changed[suspect][:, None, None], U @ torch.diag_embed(S.clamp(min=SMALLEST_STRETCH)) @ V.mT, F[suspect]
    )
    return mended, changed


@dataclasses.dataclass(frozen=True)
class NeoHookean(Material):
    """Compressible neo-Hookean elasticity: tau = mu (B - I) + lambda ln J I.

    Args:
        E: Young's modulus > 0.
        nu: Poisson's ratio.
        rho: Density.
    """

    kind: ClassVar[int] = 0

    def stress(self, F: Tensor, state: Tensor) -> Tensor:
        """Kirchhoff stress (n, d, d) of F (n, d, d); state alpha (n,) is not read."""
        d = F.shape[-1]
        logJ = torch.linalg.det(F).log()
        return self.mu * (F @ F.mT) + _eye_times(self.lam * logJ - self.mu, d)

    def energy(self, F: Tensor, state: Tensor) -> Tensor:
        """mu/2 (tr B - d) - mu ln J + lambda/2 (ln J)^2, (n,), of F (n, d, d)."""
        d = F.shape[-1]
        logJ = torch.linalg.det(F).log()
        return self.mu / 2 * (F.square().sum((-2, -1)) - d) - self.mu * logJ + self.lam / 2 * logJ.square()


@dataclasses.dataclass(frozen=True)
class FixedCorotated(Material):
    """Fixed corotated elasticity: tau = 2 mu (F - R) F^T + lambda (J - 1) J I, R the rotation in F.

    Args:
        E: Young's modulus > 0.
        nu: Poisson's ratio.
        rho: Density.
    """

    kind: ClassVar[int] = 1

    def stress(self, F: Tensor, state: Tensor) -> Tensor:
        """Kirchhoff stress (n, d, d) of F (n, d, d); state alpha (n,) is not read."""
        U, S, V = signed_svd(F)
        J = S.prod(-1)
        return 2 * self.mu * (F - U @ V.mT) @ F.mT + _eye_times(self.lam * (J - 1) * J, F.shape[-1])

    def energy(self, F: Tensor, state: Tensor) -> Tensor:
        """Mu |F - R|^2 + lambda/2 (J - 1)^2, (n,), of F (n, d, d)."""
        _, S, _ = signed_svd(F)
        return self.mu * (S - 1).square().sum(-1) + self.lam / 2 * (S.prod(-1) - 1).square()


@dataclasses.dataclass(frozen=True)
class VonMises(Material):
    """Ductile metal: Hencky elasticity, tau = U (2 mu ln S + lambda tr(ln S)) U^T, and a yield stress.

    Yield: |dev tau| <= sqrt(2/3) (yield_stress + hardening alpha); alpha is the accumulated plastic strain.

    Args:
        E: Young's modulus > 0.
        nu: Poisson's ratio.
        yield_stress: Stress > 0 at which a bar begins to yield.
        hardening: Slope >= 0 of the yield stress with alpha.
        rho: Density.
    """

    yield_stress: float = math.inf
    hardening: float = 0.0
    kind: ClassVar[int] = 2

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        super().__post_init__()
        if not self.yield_stress > 0:
            raise ValueError(f"yield_stress must be > 0, got {self.yield_stress}")
        if not self.hardening >= 0:
            raise ValueError(f"hardening must be >= 0, got {self.hardening}")

    def _own(self) -> tuple[float, float, float, float, float]:
        return (self.yield_stress, self.hardening, 0.0, 0.0, 0.0)

    def stress(self, F: Tensor, state: Tensor) -> Tensor:
        """Kirchhoff stress (n, d, d) of F (n, d, d); state alpha (n,) is not read."""
        U, S, _ = signed_svd(F)
        strain = S.log()
        tau = 2 * self.mu * strain + self.lam * strain.sum(-1, keepdim=True)
        return U @ torch.diag_embed(tau) @ U.mT

    def energy(self, F: Tensor, state: Tensor) -> Tensor:
        """Mu |ln S|^2 + lambda/2 (tr ln S)^2, (n,), of F (n, d, d)."""
        strain = signed_svd(F)[1].log()
        return self.mu * strain.square().sum(-1) + self.lam / 2 * strain.sum(-1).square()

    def return_map(self, F: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Radial return with linear isotropic hardening: F (n, d, d) and state alpha (n,) as in `Material`."""
        F, _ = clamp_stretch(F)
        U, S, V = signed_svd(F)
        strain = S.log()
        mean = strain.mean(-1, keepdim=True)
        dev = strain - mean
        size = dev.norm(dim=-1)
        excess = 2 * self.mu * size - math.sqrt(2 / 3) * (self.yield_stress + self.hardening * state)
        flow = (excess / (2 * self.mu + 2 * self.hardening / 3)).clamp(min=0)
        flows = flow > 0
        shrunk = mean + dev * (1 - flow / torch.where(flows, size, 1.0))[:, None]
        mapped = U @ torch.diag_embed(shrunk.exp()) @ V.mT
        return torch.where(flows[:, None, None], mapped, F), state + math.sqrt(2 / 3) * flow


@dataclasses.dataclass(frozen=True)
class NACC(Material):
    """Non-associated Cam clay: brittle failure by softening (Wolper et al. 2019), as the paper uses it.

    tau = kappa/2 (J^2 - 1) I + mu J^(-2/d) dev(B). Pressure p must lie in [-beta p0, p0], the deviatoric stress within
    an ellipse over that interval; p0 = kappa (1e-5 + sinh(xi max(-alpha, 0))). Expansion under plastic flow raises
    alpha, which lowers p0: at alpha >= 0 the body has no strength left.

    Args:
        E: Young's modulus > 0.
        nu: Poisson's ratio.
        M: Slope of the critical state line > 0.
        beta: Cohesion >= 0: tension is borne up to beta p0.
        xi: Hardening rate > 0.
        alpha0: Initial hardening variable, ln of the "hardening factor" of the paper's table; nearer to 0 is weaker.
            xi |alpha0| < 0.48.
        rho: Density.
    """

    M: float = 2.36
    beta: float = 0.5
    xi: float = 1.0
    alpha0: float = math.log(0.99)
    kind: ClassVar[int] = 3
    brittle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        super().__post_init__()
        _positive("M", self.M)
        _positive("xi", self.xi)
        if not self.beta >= 0:
            raise ValueError(f"beta must be >= 0, got {self.beta}")
        if not self.alpha0 * self.xi > -LARGEST_HARDENING:
            raise ValueError(f"alpha0 must lie above -{LARGEST_HARDENING}/xi, got {self.alpha0} with xi {self.xi}")

    @property
    def initial_alpha(self) -> float:
        """alpha0."""
        return self.alpha0

    def _own(self) -> tuple[float, float, float, float, float]:
        return (self.M, self.beta, self.xi, 0.0, 0.0)

    def preconsolidation(self, alpha: Tensor) -> Tensor:
        """p0, the largest pressure that the material bears, (n,), for alpha (n,)."""
        return self.kappa * (1e-5 + torch.sinh(self.xi * (-alpha).clamp(min=0)))

    def stress(self, F: Tensor, state: Tensor) -> Tensor:
        """Kirchhoff stress (n, d, d) of F (n, d, d); state alpha (n,) is not read."""
        d = F.shape[-1]
        J = torch.linalg.det(F)
        spherical = _eye_times(self.kappa / 2 * (J.square() - 1), d)
        return spherical + (self.mu * J ** (-2 / d))[..., None, None] * _deviator(F @ F.mT)

    def energy(self, F: Tensor, state: Tensor) -> Tensor:
        """kappa/2 ((J^2 - 1)/2 - ln J) + mu/2 (J^(-2/d) tr B - d), (n,), of F (n, d, d)."""
        d = F.shape[-1]
        J = torch.linalg.det(F)
        isochoric = J ** (-2 / d) * F.square().sum((-2, -1)) - d
        return self.kappa / 2 * ((J.square() - 1) / 2 - J.log()) + self.mu / 2 * isochoric

    def return_map(self, F: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Project to the yield surface, then harden or soften.

        Args:
            F: Trial elastic deformation gradients (n, d, d).
            state: alpha (n,).

        Returns:
            F (n, d, d) and alpha (n,); alpha is kept above -0.48/xi.
        """
        d = F.shape[-1]
        F, _ = clamp_stretch(F)
        J = torch.linalg.det(F)
        p0 = self.preconsolidation(state)
        p_tr = -self.kappa / 2 * (J - 1 / J) * J
        size2 = (self.mu * J ** (-2 / d)).square() * _deviator(F @ F.mT).square().sum((-2, -1))  # |s_hat|^2
        ys = (6 - d) / 2 * (1 + 2 * self.beta)
        yp = self.M**2 * (p_tr + self.beta * p0) * (p_tr - p0)
        crush, burst = p_tr > p0, p_tr < -self.beta * p0
        # The 1e-4 of public codes are stresses; ours follow the unit.
        shear = ~crush & ~burst & (ys * size2 + yp >= 1e-10 * self.kappa**2)
        plastic = crush | burst | shear
        if not bool(plastic.any()):
            return F, state
        # Only what yields needs the decomposition.
        J, p0, p_tr, size, yp = J[plastic], p0[plastic], p_tr[plastic], size2[plastic].sqrt(), yp[plastic]
        crush, burst, shear, alpha = crush[plastic], burst[plastic], shear[plastic], state[plastic]
        U, S, V = signed_svd(F[plastic])
        edge = torch.where(crush, p0, -self.beta * p0)  # cases 1 and 2: the tips of the ellipse
        J_tip = (1 - 2 * edge / self.kappa).clamp(min=0).sqrt()
        S_tip = (J_tip ** (1 / d))[:, None].expand_as(S)
        S2 = S.square()
        mean = S2.mean(-1, keepdim=True)
        scale = torch.where(shear, (-yp / ys).clamp(min=0).sqrt() / torch.where(shear, size, 1.0), 0.0)
        S_side = (mean + (S2 - mean) * scale[:, None]).clamp(min=SMALLEST_STRETCH**2).sqrt()
        S_new = torch.where(shear[:, None], S_side, S_tip)
        rise = torch.where(shear, self._hardening(p0, p_tr, size, J, d), (J / torch.where(shear, 1.0, J_tip)).log())
        mapped, risen = F.clone(), state.clone()
        mapped[plastic] = U @ torch.diag_embed(S_new) @ V.mT
        risen[plastic] = (alpha + rise).clamp(min=-LARGEST_HARDENING / self.xi)
        return mapped, risen

    def _hardening(self, p0: Tensor, p_tr: Tensor, size: Tensor, J: Tensor, d: int) -> Tensor:
        """Rise of alpha on the side of the ellipse: ln(J / J_x), J_x at the point towards the centre of the ellipse."""
        p_c = (1 - self.beta) * p0 / 2
        q_tr = math.sqrt((6 - d) / 2) * size
        to_centre = torch.stack([p_c - p_tr, -q_tr], -1)
        u = to_centre / to_centre.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(J.dtype).tiny)
        a = self.M**2 * u[:, 0].square() + (1 + 2 * self.beta) * u[:, 1].square()
        b = self.M**2 * u[:, 0] * (2 * p_c - p0 + self.beta * p0)
        c = self.M**2 * (p_c + self.beta * p0) * (p_c - p0)
        root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
        first, second = p_c + u[:, 0] * (-b + root) / (2 * a), p_c + u[:, 0] * (-b - root) / (2 * a)
        p_x = torch.where((first - p_c) * (p_tr - p_c) > 0, first, second)
        J_x = (1 - 2 * p_x / self.kappa).abs().sqrt()
        counts = (p0 > 1e-10 * self.kappa) & (p_tr > -self.beta * p0) & (p_tr < p0) & (J_x > 1e-4)
        return torch.where(counts, (J / torch.where(counts, J_x, 1.0)).log(), 0.0)


def _preset(E: float, nu: float, rho: float, factor: float, beta: float, xi: float) -> NACC:
    return NACC(E, nu, beta=beta, xi=xi, alpha0=math.log(factor), rho=rho)


PRESETS: dict[str, NACC] = {
    "bowl": _preset(5e4, 0.46, 2, 0.98, 0.5, 1),
    "teapot": _preset(5e5, 0.46, 5, 0.98, 0.5, 1),
    "ficus_leaf": _preset(8e4, 0.39, 0.6, 0.94, 2, 3),
    "ficus_branch": _preset(1e6, 0.39, 5, 0.94, 2, 3),
    "ficus_pot": _preset(2e4, 0.39, 2, 0.98, 0.5, 2),
    "table_top": _preset(1.5e4, 0.39, 1, 0.99, 0.5, 1),
    "table_leg": _preset(1e8, 0.39, 1000, 0.94, 2, 3),
}
"""The paper's materials as a re-implementation's log gives them: E in MPa, M = 2.36, alpha0 = ln of the factor."""
