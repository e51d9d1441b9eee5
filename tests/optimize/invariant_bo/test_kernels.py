"""Kernels: against every pair of group elements, and GPyTorch's own contract (shapes, diagonal, gradients, batches)."""

from functools import partial

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import i0

from paperworks.optimize.invariant_bo import (
    BlockPermutations,
    CanonicalKernel,
    Cyclic,
    MaxKernel,
    OrbitAverageKernel,
    PlanarRotations,
    PSDMaxKernel,
    Scaling,
    SignedPermutations,
    SignFlips,
)

from . import reference

GROUPS = {
    "signs": (SignFlips(2), reference.signs(2)),
    "signed": (SignedPermutations(2), reference.signed(2)),
    "blocks": (BlockPermutations(2, 2), reference.blocks(2, 2)),
    "cyclic": (Cyclic(3), reference.rotations(3)),
}
BASES = {"rbf": (RBFKernel, reference.rbf), "matern52": (partial(MaternKernel, nu=2.5), reference.matern52)}


def points(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_lengthscale(kernel, lengthscale=0.7):
    kernel = kernel.double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize(
    ("kind", "formula"), [(MaxKernel, reference.max_gram), (OrbitAverageKernel, reference.average_gram)]
)
def test_values_are_those_of_the_formula(name, base, kind, formula):
    group, matrices = GROUPS[name]
    make, plain = BASES[base]
    x, y = points(3, group.dim), points(4, group.dim, 1)
    kernel = kind(with_lengthscale(make()), group)
    expected = formula(x.numpy(), y.numpy(), matrices, partial(plain, lengthscale=0.7))
    np.testing.assert_allclose(kernel(x, y).to_dense().detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [MaxKernel, OrbitAverageKernel])
def test_a_base_kernel_with_a_scale_for_each_coordinate_takes_all_pairs_of_elements(kind):
    base = RBFKernel(ard_num_dims=2).double()
    base.lengthscale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    x, y = points(3, 2), points(2, 2, 1)

    def plain(a, b):
        return reference.rbf(a / np.array([0.5, 2.0]), b / np.array([0.5, 2.0]), 1.0)

    formula = reference.max_gram if kind is MaxKernel else reference.average_gram
    expected = formula(x.numpy(), y.numpy(), reference.signed(2), plain)
    kernel = kind(base, SignedPermutations(2))
    np.testing.assert_allclose(kernel(x, y).to_dense().detach().numpy(), expected, rtol=1e-9)
    diagonal = kernel(x, x, diag=True).detach()
    torch.testing.assert_close(diagonal, kernel(x, x).to_dense().detach().diagonal())


@pytest.mark.parametrize(
    "base", [PeriodicKernel(), LinearKernel(), RBFKernel(active_dims=[0])], ids=["periodic", "linear", "part"]
)
def test_what_is_not_isotropic_is_not_taken_for_it(base):
    assert not MaxKernel(base, SignFlips(2)).isotropic
    with pytest.raises(ValueError, match="not isotropic: PlanarRotations"):
        MaxKernel(base, PlanarRotations())


@pytest.mark.parametrize("base", [RQKernel(), ScaleKernel(MaternKernel(nu=1.5))], ids=["rq", "scaled"])
def test_any_isotropic_kernel_is_read_off_on_a_line(base):
    x = points(4, 3)
    kernel = MaxKernel(base.double(), SignedPermutations(3))
    assert kernel.isotropic
    representatives = x.abs().sort(-1).values
    torch.testing.assert_close(kernel(x, x).to_dense(), base(representatives, representatives).to_dense())


def test_rotations_of_the_plane_have_closed_forms():
    scale = 0.8
    x, y = points(5, 2), points(4, 2, 1)
    r, s = x.norm(dim=-1)[:, None], y.norm(dim=-1)[None]
    base = with_lengthscale(RBFKernel(), scale)
    best = torch.exp(-(r - s).square() / (2 * scale**2))
    torch.testing.assert_close(MaxKernel(base, PlanarRotations())(x, y).to_dense().detach(), best)
    mean = np.exp(-(r**2 + s**2) / (2 * scale**2)).numpy() * i0((r * s / scale**2).numpy())
    got = OrbitAverageKernel(base, PlanarRotations())(x, y).to_dense().detach()
    np.testing.assert_allclose(got.numpy(), mean, rtol=1e-10)


@pytest.mark.parametrize("group", [SignedPermutations(2), PlanarRotations()], ids=str)
def test_with_unit_the_average_has_variance_one_everywhere(group):
    base = with_lengthscale(RBFKernel(), 0.5)
    x, y = points(4, 2), points(3, 2, 1)
    plain, unit = OrbitAverageKernel(base, group), OrbitAverageKernel(base, group, unit=True)
    assert float(plain(x, x, diag=True).max()) < 0.9
    torch.testing.assert_close(unit(x, x, diag=True), torch.ones(4, dtype=torch.float64))
    scale = plain(x, x, diag=True).sqrt()[:, None] * plain(y, y, diag=True).sqrt()[None]
    torch.testing.assert_close(unit(x, y).to_dense(), plain(x, y).to_dense() / scale)
    torch.testing.assert_close(unit(x[:3], y, diag=True), unit(x[:3], y).to_dense().diagonal())


def test_over_multiples_the_average_is_a_kernel_and_invariant():
    """Multiples are no isometries: the sum over one side only would not even be symmetric."""
    group, x, y = Scaling(), 0.3 * points(6, 2).exp(), 0.2 * points(3, 2, 1).exp()
    kernel = OrbitAverageKernel(with_lengthscale(RBFKernel(), 0.5), group, angles=4)
    whole = kernel(x, x).to_dense().detach()
    torch.testing.assert_close(whole, whole.mT)
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-9
    torch.testing.assert_close(kernel(3 * x, y).to_dense(), kernel(x, y).to_dense())
    pairs = [
        [
            np.mean([reference.rbf(a, b, 0.5) for a in group.ray(p, 4).numpy() for b in group.ray(q, 4).numpy()])
            for q in y.split(1)
        ]
        for p in x.split(1)
    ]
    np.testing.assert_allclose(kernel(x, y).to_dense().detach().numpy(), pairs, rtol=1e-9)
    many, few = (OrbitAverageKernel(kernel.base_kernel, group, angles=angles) for angles in (128, 16))
    torch.testing.assert_close(many(x, y).to_dense(), few(x, y).to_dense())  # a ray has 16 points at most


def test_the_trivial_group_gives_the_base_kernel():
    x = points(4, 2)
    base = with_lengthscale(MaternKernel(nu=2.5))
    plain = base(x, x).to_dense()
    for kind in (MaxKernel, OrbitAverageKernel):
        torch.testing.assert_close(kind(base, Cyclic(1))(x, x).to_dense(), plain)
    torch.testing.assert_close(PSDMaxKernel(base, Cyclic(1), x)(x, x).to_dense(), plain)


@pytest.mark.parametrize("kind", [MaxKernel, OrbitAverageKernel, partial(PSDMaxKernel, design=points(6, 2, 7))])
def test_values_are_invariant_and_symmetric(kind):
    group = SignedPermutations(2)
    kernel = kind(with_lengthscale(RBFKernel()), group)
    x, y = points(4, 2), points(3, 2, 1)
    value = kernel(x, y).to_dense()
    for image in group.act(x):
        torch.testing.assert_close(kernel(image, y).to_dense(), value)
    torch.testing.assert_close(kernel(y, x).to_dense(), value.mT)


def test_the_projection_is_that_of_the_formula():
    group, matrices = Cyclic(3), reference.rotations(3)
    design, x, y = points(30, 2), points(4, 2, 1), points(3, 2, 2)
    plain = partial(reference.rbf, lengthscale=0.7)
    K = reference.max_gram(design.numpy(), design.numpy(), matrices, plain)
    assert np.linalg.eigvalsh(K).min() < -0.01  # really indefinite
    kernel = PSDMaxKernel(with_lengthscale(RBFKernel()), group, design, tol=1e-6)
    plus, inverse = reference.projected(K, 1e-6)
    np.testing.assert_allclose(kernel(design, design).to_dense().detach().numpy(), plus, atol=1e-8)
    left = reference.max_gram(x.numpy(), design.numpy(), matrices, plain)
    right = reference.max_gram(design.numpy(), y.numpy(), matrices, plain)
    np.testing.assert_allclose(kernel(x, y).to_dense().detach().numpy(), left @ inverse @ right, atol=1e-6)
    values = np.linalg.eigvalsh(K)
    assert float(kernel.clipped_mass()) == pytest.approx(-values[values < 0].sum() / np.abs(values).sum())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.floats(0.2, 2.0))
def test_the_projection_is_positive_semi_definite_everywhere_and_never_above_the_max_kernel(seed, m, lengthscale):
    base = with_lengthscale(RBFKernel(), lengthscale)
    design, x = points(12, 2, seed), points(8, 2, seed + 1)
    kernel = PSDMaxKernel(base, Cyclic(m), design)
    both = torch.cat([design, x])
    assert float(torch.linalg.eigvalsh(kernel(both, both).to_dense()).min()) > -1e-8
    exact = PSDMaxKernel(base, SignedPermutations(2), design)
    assert bool((exact(x, x, diag=True) <= 1 + 1e-6).all())


def test_on_the_design_it_equals_a_max_kernel_that_is_definite_already():
    design = points(15, 3)
    base = with_lengthscale(MaternKernel(nu=2.5))
    got = PSDMaxKernel(base, SignedPermutations(3), design)(design, design).to_dense()
    torch.testing.assert_close(got, MaxKernel(base, SignedPermutations(3))(design, design).to_dense())


def test_eigenvalues_below_the_absolute_tolerance_are_dropped():
    design = points(10, 2)
    base = with_lengthscale(RBFKernel())
    values = torch.linalg.eigvalsh(PSDMaxKernel(base, SignFlips(2), design).gram())
    kernel = PSDMaxKernel(base, SignFlips(2), design, abs_tol=float(values[-3:].mean()))
    kept = int((values > float(values[-3:].mean())).sum())
    assert int(torch.linalg.matrix_rank(kernel(design, design).to_dense())) == kept < 10


def test_fitc_gives_the_variance_back_and_leaves_the_rest_alone():
    design, x = points(5, 2), points(4, 2, 1)
    base = with_lengthscale(RBFKernel(), 0.2)
    plain = PSDMaxKernel(base, SignFlips(2), design)
    fitc = PSDMaxKernel(base, SignFlips(2), design, fitc=True)
    assert float(plain(x, x, diag=True).min()) < 0.5
    torch.testing.assert_close(fitc(x, x, diag=True), torch.ones(4, dtype=torch.float64))
    dense = fitc(x, x).to_dense()
    torch.testing.assert_close(dense.diagonal(), torch.ones(4, dtype=torch.float64))
    off = ~torch.eye(4, dtype=torch.bool)
    torch.testing.assert_close(dense[off], plain(x, x).to_dense()[off])
    torch.testing.assert_close(fitc(x, design).to_dense(), plain(x, design).to_dense())


KINDS = {
    "max": MaxKernel,
    "average": OrbitAverageKernel,
    "unit": partial(OrbitAverageKernel, unit=True),
    "canonical": CanonicalKernel,
    "psd": partial(PSDMaxKernel, design=points(6, 2, 7)),
    "fitc": partial(PSDMaxKernel, design=points(6, 2, 7), fitc=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_diagonal_batches_and_rectangles_agree_with_the_matrix(kind):
    kernel = KINDS[kind](with_lengthscale(MaternKernel(nu=2.5)), SignedPermutations(2))
    x, y = points(5, 2), points(3, 2, 1)
    whole = kernel(x, y).to_dense()
    assert whole.shape == (5, 3)
    torch.testing.assert_close(kernel(x, x, diag=True), kernel(x, x).to_dense().diagonal())
    torch.testing.assert_close(kernel(x[:3], y, diag=True), whole[:3].diagonal())
    stacked = kernel(torch.stack([x, x + 1]), torch.stack([y, y])).to_dense()
    assert stacked.shape == (2, 5, 3)
    torch.testing.assert_close(stacked[0], whole)
    torch.testing.assert_close(stacked[1], kernel(x + 1, y).to_dense())


@pytest.mark.parametrize(
    "kind", [MaxKernel, OrbitAverageKernel, partial(OrbitAverageKernel, unit=True), CanonicalKernel, "psd", "fitc"]
)
def test_a_batch_of_lengthscales_gives_a_batch_of_matrices(kind):
    base = MaternKernel(nu=2.5, batch_shape=torch.Size([2])).double()
    base.lengthscale = torch.tensor([[[0.3]], [[1.5]]])
    x = points(4, 2)
    kind = KINDS[kind] if isinstance(kind, str) else kind
    kernel = kind(base, SignedPermutations(2))
    got = kernel(x, x).to_dense()
    torch.testing.assert_close(kernel(x, x, diag=True), got.diagonal(dim1=-2, dim2=-1))
    for value, lengthscale in zip(got, (0.3, 1.5), strict=True):
        one = kind(with_lengthscale(MaternKernel(nu=2.5), lengthscale), SignedPermutations(2))
        torch.testing.assert_close(value, one(x, x).to_dense())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [SignedPermutations(2), Cyclic(3)], ids=str)
def test_gradients_by_points_are_right_in_float64(kind, group):
    kernel = KINDS[kind](with_lengthscale(MaternKernel(nu=2.5)), group)
    y = points(3, 2, 5)
    assert torch.autograd.gradcheck(lambda x: kernel(x, y).to_dense(), points(2, 2, 6).requires_grad_())


def test_gradients_at_distance_zero_are_finite():
    x = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    MaxKernel(MaternKernel(nu=2.5).double(), SignFlips(2))(x, x.detach()).to_dense().sum().backward()
    assert bool(torch.isfinite(x.grad).all())


def test_the_projection_learns_when_asked():
    design, x = points(6, 2), points(3, 2, 1)

    def value(raw, learn):
        kernel = PSDMaxKernel(RBFKernel().double(), Cyclic(3), design, learn=learn)
        kernel.base_kernel.raw_lengthscale.data.fill_(raw)
        out = kernel(x, x).to_dense().sum()
        return out, kernel.base_kernel.raw_lengthscale

    out, raw = value(-0.5, learn=True)
    slope = float(torch.autograd.grad(out, raw)[0])
    finite = (float(value(-0.5 + 1e-5, True)[0]) - float(value(-0.5 - 1e-5, True)[0])) / 2e-5
    assert slope == pytest.approx(finite, rel=1e-5)
    assert not value(-0.5, learn=False)[0].requires_grad


def test_the_projection_is_kept_in_evaluation_mode_and_follows_its_device_and_dtype():
    design, x = points(6, 2), points(3, 2, 1)
    kernel = PSDMaxKernel(with_lengthscale(RBFKernel()), Cyclic(3), design).eval()
    assert not kernel(x, x).to_dense().requires_grad
    first = kernel._root
    kernel(x, x).to_dense()
    assert kernel._root is first is not None
    with torch.no_grad():
        assert not kernel.train()(x.clone().requires_grad_(), x).to_dense().requires_grad
    design.zero_()
    assert float(kernel.design.abs().max()) > 0  # a copy
    assert kernel.float().design.dtype == torch.float32
    assert "design" not in kernel.state_dict()


def test_the_projection_follows_its_hyper_parameters_and_design():
    design, x = points(8, 2), points(3, 2, 1)
    kernel = PSDMaxKernel(with_lengthscale(RBFKernel(), 0.5), Cyclic(3), design).eval()  # where it is kept
    before = kernel(x, x).to_dense()
    kernel.base_kernel.lengthscale = 1.5
    fresh = PSDMaxKernel(with_lengthscale(RBFKernel(), 1.5), Cyclic(3), design)
    torch.testing.assert_close(kernel(x, x).to_dense(), fresh(x, x).to_dense())
    assert float((kernel(x, x).to_dense() - before).abs().max()) > 1e-3
    kernel.set_design(design[:4])
    torch.testing.assert_close(kernel(x, x).to_dense(), fresh.set_design(design[:4])(x, x).to_dense())


def test_bad_input_is_named():
    base, group = RBFKernel(), SignFlips(2)
    with pytest.raises(TypeError, match=r"base_kernel = 'rbf': a gpytorch\.kernels\.Kernel"):
        MaxKernel("rbf", group)
    with pytest.raises(TypeError, match="group = 3: a Group"):
        MaxKernel(base, 3)
    with pytest.raises(RuntimeError, match="no design yet"):
        PSDMaxKernel(base, group)(torch.zeros(1, 2), torch.zeros(1, 2)).to_dense()
    with pytest.raises(ValueError, match="angles = 0"):
        OrbitAverageKernel(base, PlanarRotations(), angles=0)
    with pytest.raises(ValueError, match="tol = -1"):
        PSDMaxKernel(base, group, tol=-1)
    with pytest.raises(ValueError, match="at least one point and finite"):
        PSDMaxKernel(base, group, torch.full((1, 2), torch.nan))
    with pytest.raises(ValueError, match=r"shape \(4, 3\): SignFlips\(2\) acts on 2"):
        MaxKernel(base, group)(torch.zeros(4, 3), torch.zeros(4, 3)).to_dense()
    with pytest.raises(ValueError, match=r"shape \(4, 3\): SignFlips\(2\) acts on 2"):
        OrbitAverageKernel(base, group)(torch.zeros(4, 3), torch.zeros(4, 3)).to_dense()


def test_with_fitc_the_variance_is_never_below_that_of_the_max_kernel_or_of_its_projection():
    """The projection of an indefinite matrix has a larger diagonal; taking that away again would undo it."""
    x = points(12, 2)
    base = with_lengthscale(RBFKernel(), 0.5)
    whole, plain = MaxKernel(base, Cyclic(3)), PSDMaxKernel(base, Cyclic(3), x)
    fitc = PSDMaxKernel(base, Cyclic(3), x, fitc=True)
    assert float(plain.clipped_mass()) > 1e-3
    of_max, of_plain, got = (k(x, x).to_dense().diagonal() for k in (whole, plain, fitc))
    assert bool((of_plain > of_max + 1e-4).any())
    torch.testing.assert_close(got, torch.maximum(of_plain, of_max))


def test_the_projection_is_made_in_double_precision():
    x = points(6, 2).float()
    kernel = PSDMaxKernel(RBFKernel(), SignedPermutations(2), x)
    assert kernel.gram().dtype == torch.float64
    assert kernel(x, x).to_dense().dtype == torch.float32
