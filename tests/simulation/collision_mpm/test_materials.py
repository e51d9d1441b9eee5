"""Stress, energy and return mapping, against the reference, and what must hold of them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.simulation.collision_mpm import NACC, PRESETS, FixedCorotated, NeoHookean, VonMises
from paperworks.simulation.collision_mpm.materials import clamp_stretch, signed_svd

from . import reference

E, NU = 100.0, 0.3
KINDS = {
    "neo_hookean": NeoHookean(E, NU),
    "corotated": FixedCorotated(E, NU),
    "hencky": VonMises(E, NU, 1.0),
    "nacc": NACC(E, NU),
}


def deformations(n, d, size=0.2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.eye(d, dtype=torch.float64) + size * torch.randn(n, d, d, generator=g, dtype=torch.float64)


def rotation(d, seed=0):
    return signed_svd(deformations(1, d, 1.0, seed))[0][0]


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_stress_is_the_reference_and_the_derivative_of_the_energy(kind, d):
    F = deformations(20, d)
    F = F[torch.linalg.det(F) > 0.2]
    zero = torch.zeros(len(F), dtype=F.dtype)
    tau = KINDS[kind].stress(F, zero)
    expected = np.stack([reference.stress(kind, f.numpy(), E, NU) for f in F])
    np.testing.assert_allclose(tau, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(tau, tau.mT)
    # tau = (d psi / d F) F^T
    dpsi = None
    if kind in ("neo_hookean", "nacc"):
        leaf = F.clone().requires_grad_()
        (dpsi,) = torch.autograd.grad(KINDS[kind].energy(leaf, zero).sum(), leaf)
    if dpsi is None:  # by differences: the decomposition's own derivative is not at stake
        dpsi = torch.zeros_like(F)
        for i in range(d):
            for j in range(d):
                h = torch.zeros(d, d, dtype=F.dtype)
                h[i, j] = 1e-6
                dpsi[:, i, j] = (KINDS[kind].energy(F + h, zero) - KINDS[kind].energy(F - h, zero)) / 2e-6
    torch.testing.assert_close(dpsi @ F.mT, tau, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rest_and_rotations_are_without_stress_and_frames_do_not_matter(kind):
    material, zero = KINDS[kind], torch.zeros(1, dtype=torch.float64)
    for d in (2, 3):
        R = rotation(d)
        assert float(material.stress(R[None], zero).abs().max()) < 1e-11
        assert float(material.energy(R[None], zero).abs().max()) < 1e-12
        F = deformations(1, d)
        turned = material.stress(R @ F, zero)
        torch.testing.assert_close(turned, R @ material.stress(F, zero) @ R.T)


@pytest.mark.parametrize("material", [NeoHookean(E, NU), NACC(E, NU)])
def test_stress_gradcheck(material):
    F = deformations(2, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda f: material.stress(f, torch.zeros(2, dtype=torch.float64)), F)


@pytest.mark.parametrize("d", [2, 3])
def test_cam_clay_is_the_reference(d):
    material = NACC(E, NU, M=2.36, beta=0.5, xi=1.5, alpha0=math.log(0.9))
    F = torch.cat([deformations(60, d, size, seed) for seed, size in enumerate((0.003, 0.02, 0.1))])
    F = F[torch.linalg.det(F) > 0.3]
    g = torch.Generator().manual_seed(9)
    alpha = 0.3 * torch.rand(len(F), generator=g, dtype=torch.float64) - 0.28
    mapped, risen = material.return_map(F, alpha)
    cases = set()
    for f, a, g_, r in zip(F.numpy(), alpha.numpy(), mapped.numpy(), risen.numpy(), strict=True):
        expected, rise = reference.cam_clay(f, a, E, NU, 2.36, 0.5, 1.5)
        np.testing.assert_allclose(g_, expected, rtol=1e-9, atol=1e-9)
        assert r == pytest.approx(rise, abs=1e-9)
        cases.add("elastic" if expected is f else "harder" if rise < a else "softer")
    assert cases == {"elastic", "harder", "softer"}


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([2, 3]),
    st.floats(0.01, 0.3),
    st.floats(0.0, 2.0),
    st.floats(0.5, 3.0),
    st.floats(-0.15, 0.1),
)
def test_after_the_return_nothing_lies_beyond_the_surface(seed, d, size, beta, xi, alpha):
    material = NACC(E, NU, beta=beta, xi=xi, alpha0=-0.1)
    F = deformations(5, d, size, seed)
    state = torch.full((5,), alpha, dtype=torch.float64)
    mapped, risen = material.return_map(F, state)
    p0, kappa, mu = material.preconsolidation(state), material.kappa, material.mu
    old, new = signed_svd(clamp_stretch(F)[0])[1], signed_svd(mapped)[1]
    J = old.prod(-1)
    p_tr = kappa / 2 * (1 - J.square())

    def deviator(S):
        square = S.square()
        return (mu * J[:, None] ** (-2 / d) * (square - square.mean(-1, keepdim=True))).norm(dim=-1)

    bound = ((-(material.M**2) * (p_tr + beta * p0) * (p_tr - p0)).clamp(min=0) / ((6 - d) / 2 * (1 + 2 * beta))).sqrt()
    tip = (p_tr > p0) | (p_tr < -beta * p0)
    # At a tip what is left is round, with the pressure of the tip; else the deviator is on the ellipse or within.
    edge = torch.where(p_tr > p0, p0, -beta * p0)
    round_to = (1 - 2 * edge / kappa).sqrt() ** (1 / d)
    torch.testing.assert_close(new[tip], round_to[tip, None].expand(-1, d))
    assert bool((deviator(new)[~tip] <= bound[~tip] + 1.1e-5 * kappa).all())
    torch.testing.assert_close(new.square().sum(-1)[~tip], old.square().sum(-1)[~tip])
    shrunk = ~tip & (deviator(old) > bound + 1.1e-5 * kappa)
    torch.testing.assert_close(deviator(new)[shrunk], bound[shrunk])
    assert bool((risen >= -0.48 / xi - 1e-12).all())
    assert bool((risen == state)[~tip & ~shrunk & (deviator(old) < bound)].all())


def test_expansion_breaks_and_compression_hardens():
    material = NACC(E, NU, alpha0=-0.05)
    alpha = torch.full((2,), -0.05, dtype=torch.float64)
    F = torch.eye(2, dtype=torch.float64) * torch.tensor([1.2, 0.85], dtype=torch.float64)[:, None, None]
    _, risen = material.return_map(F, alpha)
    assert risen[0] > 0 > alpha[1] > risen[1]
    # At the floor of p0 a body bears next to nothing: what is left of a pull is round and almost at rest.
    weak, _ = material.return_map(F[:1], torch.full((1,), 0.1, dtype=torch.float64))
    assert float((weak - torch.eye(2)).abs().max()) < 1e-4


def test_results_do_not_depend_on_the_unit_of_stress():
    F = deformations(40, 3, 0.05)
    alpha = torch.full((40,), -0.02, dtype=torch.float64)
    one, two = (NACC(scale, NU).return_map(F, alpha) for scale in (1.0, 1e9))
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)


def test_capped_alpha():
    material = NACC(E, NU, xi=3.0, alpha0=-0.15)
    F = 0.5 * torch.eye(3, dtype=torch.float64)[None]
    assert float(material.return_map(F, torch.tensor([-0.15], dtype=torch.float64))[1]) == pytest.approx(-0.16)


def test_plasticity_is_multiplicative():
    """F = F_E F_P: an elastic increment leaves F_P alone; it would not leave F - F_E alone, the sum of the paper."""
    material = NACC(E, NU)
    alpha = torch.tensor([material.alpha0], dtype=torch.float64)
    whole = torch.tensor([[1.0, 0.2], [0.0, 0.95]], dtype=torch.float64)[None]
    elastic, alpha = material.return_map(whole, alpha)
    assert float((elastic - whole).abs().max()) > 0.01
    small = (
        torch.eye(2, dtype=torch.float64)
        * (1 + 1e-7) ** 0.5
        @ torch.linalg.matrix_exp(torch.tensor([[0.0, 0.3], [-0.3, 0.0]], dtype=torch.float64))
    )
    after, _ = material.return_map(small @ elastic, alpha)
    torch.testing.assert_close(
        torch.linalg.inv(after) @ (small @ whole), torch.linalg.inv(elastic) @ whole, rtol=0, atol=1e-3
    )
    assert float(((small @ whole - after) - (whole - elastic)).abs().max()) > 0.02


def test_von_mises_returns_to_its_yield_stress():
    material = VonMises(E, NU, 1.0, hardening=5.0)
    F = deformations(10, 3, 0.1)
    alpha = torch.full((10,), 0.02, dtype=torch.float64)
    mapped, risen = material.return_map(F, alpha)
    tau = material.stress(mapped, risen)
    dev = tau - tau.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(3)
    limit = math.sqrt(2 / 3) * (1.0 + 5.0 * risen)
    assert bool((risen > alpha).all())
    torch.testing.assert_close(torch.linalg.matrix_norm(dev), limit)
    torch.testing.assert_close(torch.linalg.det(mapped), torch.linalg.det(F))  # flow keeps the volume
    same, quiet = VonMises(E, NU, 1e9).return_map(F, alpha)
    assert torch.equal(same, F)
    assert torch.equal(quiet, alpha)


@pytest.mark.parametrize("d", [2, 3])
def test_signed_decomposition_and_clamp(d):
    F = deformations(200, d, 1.0)
    U, S, V = signed_svd(F)
    torch.testing.assert_close(U @ torch.diag_embed(S) @ V.mT, F)
    for R in (U, V):
        torch.testing.assert_close(torch.linalg.det(R), torch.ones(200, dtype=F.dtype))
    mended, changed = clamp_stretch(F)
    assert 0 < int(changed.sum()) < 200
    assert torch.equal(mended[~changed], F[~changed])
    assert float(signed_svd(mended)[1].min()) == pytest.approx(0.05)
    assert bool((S[~changed] >= 0.05).all())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NeoHookean(-1.0), "E must be a finite number > 0, got -1.0"),
        (lambda: NeoHookean(1.0, 0.5), "nu must lie in"),
        (lambda: NeoHookean(1.0, rho=0.0), "rho must be a finite number > 0, got 0.0"),
        (lambda: NACC(1.0, xi=3.0, alpha0=-0.2), "alpha0 must lie above -0.48/xi, got -0.2 with xi 3.0"),
        (lambda: NACC(1.0, beta=-1.0), "beta must be >= 0, got -1.0"),
        (lambda: VonMises(1.0, 0.3, 0.0), "yield_stress must be > 0, got 0.0"),
    ],
)
def test_bad_numbers(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_presets_are_the_papers_table():
    assert len(PRESETS) == 7
    leaf = PRESETS["ficus_leaf"]
    assert (leaf.E, leaf.nu, leaf.rho, leaf.beta, leaf.xi, leaf.M) == (8e4, 0.39, 0.6, 2, 3, 2.36)
    assert math.exp(leaf.alpha0) == pytest.approx(0.94)
    # A factor nearer to 1 is a weaker body.
    one, two = (float(NACC(1.0, alpha0=math.log(f)).preconsolidation(torch.tensor(math.log(f)))) for f in (0.9, 0.99))
    assert one > 5 * two > 0
