"""Ours beside a peer on the same inputs: times are compared after the results."""

import itertools

import torch
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from paperworks.claims.speed import Pair

from .groups import SignedPermutations
from .kernels import MaxKernel, OrbitAverageKernel
from .model import InvariantGP


def _orbit(x: Tensor) -> Tensor:
    """All signed permutations of x (n, d), written out: (|G|, n, d)."""
    d = x.shape[-1]
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=d)), dtype=x.dtype)
    orders = torch.tensor(list(itertools.permutations(range(d))))
    return (x[..., orders].unsqueeze(-3) * signs[:, None, :]).flatten(-3, -2).movedim(-2, 0)


def _points(size: str) -> tuple[Tensor, int]:
    n, d = (200, 5) if size == "full" else (12, 3)
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64), d


def gram(size: str = "full") -> Pair:
    """The Gram matrix of the max kernel: by representatives, and by brute force over all 3,840 images."""
    x, d = _points(size)
    kernel = MaxKernel(RBFKernel().double(), SignedPermutations(d))

    @torch.no_grad()
    def ours() -> Tensor:
        return kernel(x, x).to_dense()

    @torch.no_grad()
    def peer() -> Tensor:
        best = torch.zeros(len(x), len(x), dtype=x.dtype)
        lengthscale = kernel.base_kernel.lengthscale
        for images in _orbit(x).split(256):  # the orbit whole would take 1.2 GB
            best = torch.maximum(best, torch.exp(-0.5 * torch.cdist(x, images).square() / lengthscale**2).amax(0))
        return best

    return Pair(ours=ours, peer=peer, rtol=1e-6, atol=1e-8)


def average(size: str = "full") -> Pair:
    """The Gram matrix of the average kernel: ours, and that of `invariantkernels`, over all 3,840 images."""
    from invariantkernels import InvariantKernel

    x, d = _points(size)
    x = x[:60]  # the peer holds |G| x n x n kernel values at once
    base = MaternKernel(nu=2.5).double()
    ours_kernel = OrbitAverageKernel(base, SignedPermutations(d))
    peer_kernel = InvariantKernel(base, lambda z: _orbit(z), is_isotropic=True)

    @torch.no_grad()
    def ours() -> Tensor:
        return ours_kernel(x, x).to_dense()

    @torch.no_grad()
    def peer() -> Tensor:
        return peer_kernel(x, x).to_dense()

    return Pair(ours=ours, peer=peer, rtol=1e-6, atol=1e-8)


def max_against_average(size: str = "full") -> Pair:
    """The same Gram matrix of 60 points: the max kernel by representatives, the average kernel of `invariantkernels`.

    The two kernels differ, so that what is compared first is their trace on points that the group leaves alone.
    """
    from invariantkernels import InvariantKernel

    x, d = _points(size)
    x = x[:60]
    base = MaternKernel(nu=2.5).double()
    ours_kernel = MaxKernel(base, SignedPermutations(d))
    peer_kernel = InvariantKernel(base, lambda z: _orbit(z), is_isotropic=True)
    fixed = torch.zeros(1, d, dtype=x.dtype)

    @torch.no_grad()
    def ours() -> Tensor:
        ours_kernel(x, x).to_dense()
        return ours_kernel(fixed, fixed).to_dense()

    @torch.no_grad()
    def peer() -> Tensor:
        peer_kernel(x, x).to_dense()
        return peer_kernel(fixed, fixed).to_dense()

    return Pair(ours=ours, peer=peer, rtol=1e-6, atol=1e-8)


def _round(kernel: str, size: str):
    """The acquisition of 513 candidates with gradients, at 30 observations of rastrigin3d."""
    n, raw = (30, 513) if size == "full" else (6, 8)
    generator = torch.Generator().manual_seed(0)
    x = 2 * torch.rand(n, 3, generator=generator, dtype=torch.float64) - 1
    y = torch.cos(6 * x).sum(-1, keepdim=True)
    candidates = 2 * torch.rand(raw, 1, 3, generator=generator, dtype=torch.float64) - 1

    def run() -> Tensor:
        model = InvariantGP(x, y, SignedPermutations(3), kernel=kernel).fit_base()  # type: ignore[arg-type]
        leaf = candidates.clone().requires_grad_()
        value = UpperConfidenceBound(model, beta=2.0)(leaf)
        torch.autograd.grad(value.sum(), leaf)
        return model.base_kernel.lengthscale.detach()  # the same fit on both sides

    return run


def round_against_average(size: str = "full") -> Pair:
    """C4: a round (fit, 513 candidates, gradients) with the max kernel, and with the average kernel."""
    return Pair(ours=_round("psd_max", size), peer=_round("average", size))


def round_against_base(size: str = "full") -> Pair:
    """C4: the same round with the max kernel, and with the base kernel."""
    return Pair(ours=_round("psd_max", size), peer=_round("base", size))
