"""Spaces, their products, and what can be embedded in them."""

import math

import numpy as np
import pytest
import torch

from paperworks.multimodal.phyclip import Cosine, ProductEuclidean, ProductHyperbolic, ProductMixed, embed_metric
from paperworks.multimodal.phyclip.geometry import lorentz
from paperworks.multimodal.phyclip.trees import cube_distances, grow_tree, tree_distances

SPACES = {
    "hyperbolic": lambda: ProductHyperbolic(4, 3),
    "one": lambda: ProductHyperbolic(1, 12),
    "l2": lambda: ProductHyperbolic(4, 3, metric="l2"),
    "linf": lambda: ProductHyperbolic(4, 3, metric="linf"),
    "euclidean": lambda: ProductEuclidean(4, 3),
    "mixed": lambda: ProductMixed(4, 3),
    "cosine": lambda: Cosine(12),
}


def features(n=6, seed=0):
    return torch.randn(n, 12, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]()


def test_all_spaces_have_one_interface(space):
    x, y = space.lift(features(), "image"), space.lift(features(5, 1), "text")
    assert x.shape == (6, space.k, space.d)
    assert space.factor_dist(x, y).shape == (space.k, 6, 5)
    assert space.dist(x, y).shape == space.similarity(x, y).shape == (6, 5)
    torch.testing.assert_close(space.dist(x, y), space.dist(y, x).mT)
    assert space.norms(x).shape == (6, space.k)
    assert space.entailment(x[:5], y, 0.7).shape == (5,)
    assert space.compose(x[:5], y).shape == y.shape
    order = space.similarity(x, y).argsort(1, descending=True)
    assert torch.equal(order, space.dist(x, y).argsort(1))


def test_every_parameter_gets_a_gradient(space):
    """Parameters that no gradient reaches stop DistributedDataParallel."""
    if isinstance(space, Cosine):
        assert not list(space.parameters())
        return
    x, y = space.lift(features(), "image"), space.lift(features(6, 1), "text")
    (space.similarity(x, y).sum() + space.entailment(x, y, 0.1).sum()).backward()
    for name, parameter in space.named_parameters():
        assert parameter.grad is not None, name
        if "curv" not in name or not isinstance(space, ProductMixed):
            assert parameter.grad.abs().sum() > 0, name


def test_lifting_scales_by_the_gains_of_the_modality_at_most_by_one():
    space = ProductHyperbolic(2, 4)
    v = features(3)[:, :8]
    assert torch.equal(space.gain("image"), torch.full((2,), 0.5))
    torch.testing.assert_close(space.lift(v, "image"), lorentz.exp_map0(0.5 * v.unflatten(1, (2, 4)), space.curv))
    with torch.no_grad():
        space.log_gain_text.copy_(torch.tensor([3.0, math.log(0.25)]))
    torch.testing.assert_close(space.gain("text"), torch.tensor([1.0, 0.25]))
    torch.testing.assert_close(space.norms(space.lift(v)), v.unflatten(1, (2, 4)).norm(dim=-1))


def test_curvatures_stay_in_their_bounds():
    space = ProductHyperbolic(3, 2, curv=2.0)
    torch.testing.assert_close(space.curv, torch.full((3,), 2.0))
    with torch.no_grad():
        space.log_curv.copy_(torch.tensor([-9.0, 0.0, 9.0]))
    torch.testing.assert_close(space.curv, torch.tensor([0.1, 1.0, 10.0]))
    assert not ProductHyperbolic(3, 2, learn=False).log_curv.requires_grad


def test_similarity_is_the_mean_over_factors_and_the_inner_score_another_order():
    space = ProductHyperbolic(4, 3).double()
    x, y = space.lift(features(40).double()), space.lift(2 * features(30, 1).double())
    parts = space.factor_dist(x, y)
    torch.testing.assert_close(space.similarity(x, y), -parts.mean(0))
    torch.testing.assert_close(space.score(x, y, "inner"), -((space.curv.sqrt()[:, None, None] * parts).cosh()
                                                             / space.curv[:, None, None]).sum(0))  # fmt: skip
    assert not torch.equal(space.score(x, y).argsort(1), space.score(x, y, "inner").argsort(1))
    one = ProductHyperbolic(1, 12).double()
    x, y = one.lift(features(40).double()), one.lift(features(30, 1).double())
    assert torch.equal(one.score(x, y).argsort(1), one.score(x, y, "inner").argsort(1))
    l2, linf = ProductHyperbolic(4, 3, metric="l2").double(), ProductHyperbolic(4, 3, metric="linf").double()
    x, y = l2.lift(features().double()), l2.lift(features(5, 1).double())
    parts = l2.factor_dist(x, y)
    torch.testing.assert_close(l2.similarity(x, y), -parts.square().mean(0).sqrt())
    torch.testing.assert_close(linf.similarity(x, y), -parts.amax(0))


def test_half_precision_of_autocast_does_not_reach_the_geometry():
    space = ProductHyperbolic(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = space.lift(features().bfloat16(), "image")
        y = space.lift(features(6, 1).bfloat16(), "text")
        inside = [space.dist(x, y), space.factor_dist(x, y), space.score(x, y, "inner"), space.entailment(x, y, 0.7)]
    outside = [space.dist(x, y), space.factor_dist(x, y), space.score(x, y, "inner"), space.entailment(x, y, 0.7)]
    assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))
    assert x.dtype == torch.float32
    assert ProductHyperbolic(4, 3).lift(features().double()).dtype == torch.float64


def test_composing_takes_the_farther_point_factor_by_factor():
    space = ProductHyperbolic(2, 2)
    x = space.lift(torch.tensor([[1.0, 0.0, 0.1, 0.0]]))
    y = space.lift(torch.tensor([[0.0, 0.2, 0.0, 0.3]]))
    both = space.compose(x, y)
    assert torch.equal(both[0, 0], x[0, 0])
    assert torch.equal(both[0, 1], y[0, 1])
    least = space.compose(x, y, "min")
    assert torch.equal(least[0, 0], y[0, 0])
    assert torch.equal(least[0, 1], x[0, 1])


def test_entailment_vanishes_inside_the_cone_only():
    for space in (ProductHyperbolic(1, 2), ProductEuclidean(1, 2)):
        apex = space.lift(torch.tensor([[0.5, 0.0]]))
        inside, outside = space.lift(torch.tensor([[2.0, 0.05]])), space.lift(torch.tensor([[0.0, 2.0]]))
        assert float(space.entailment(apex, inside, 1.0)) == 0
        assert float(space.entailment(apex, outside, 1.0)) > 0.5
        assert float(space.entailment(apex, outside, 0.5)) > float(space.entailment(apex, outside, 1.0))
        assert float(space.entailment(0 * apex, outside, 1.0)) == 0
    flat = ProductEuclidean(1, 2)
    apex, point = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, 3.0]]])
    assert float(flat.entailment(apex, point, 1.0)) == pytest.approx(math.pi / 2 - math.asin(0.2), abs=1e-5)


def test_the_mixed_product_has_all_three_curvatures():
    space = ProductMixed(7, 3).double()
    assert space.sizes == (3, 2, 2)
    v, w = torch.randn(2, 4, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.5
    parts = space.factor_dist(space.lift(v), space.lift(w))
    a, b = v.unflatten(1, (7, 3)), w.unflatten(1, (7, 3))
    flat = torch.cdist(a.transpose(0, 1), b.transpose(0, 1))
    torch.testing.assert_close(parts[3:5], flat[3:5])
    assert bool((parts[:3] > flat[:3]).all())  # geodesics spread
    assert bool((parts[5:] < flat[5:]).all())  # and meet again
    origin = torch.zeros(1, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(
        space.factor_dist(space.lift(origin), space.lift(v))[:, 0].mT, a.norm(dim=-1), atol=2e-3, rtol=1e-3
    )


@pytest.mark.parametrize("n", [2, 3])
def test_the_cube_embeds_in_the_l1_product_and_not_below_root_n_in_one_space(n):
    """Proposition 1, and the bound sqrt(n) of every space without positive curvature (Enflo's inequality)."""
    target = cube_distances(n)
    bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    product = ProductHyperbolic(n, 1).double()
    exact = product.lift(torch.tensor(bits - 0.5, dtype=torch.float64))
    off = ~np.eye(2**n, dtype=bool)
    np.testing.assert_allclose(product.dist(exact, exact).detach().numpy()[off], target[off], rtol=0.01)
    for space in (ProductHyperbolic(1, 4), ProductEuclidean(1, 4)):
        generator = torch.Generator().manual_seed(0)
        found = embed_metric(space, target, generator=generator, steps=400, lr=0.05, batch=2**n)
        assert math.sqrt(n) * (1 - 1e-3) <= found.worst < 1.3 * math.sqrt(n)


def test_a_tree_fits_into_a_hyperbolic_plane_better_than_into_a_flat_one():
    target = tree_distances([-1, *(i // 2 for i in range(30))])
    found = {}
    for name, space in (("bent", ProductHyperbolic(1, 2)), ("flat", ProductEuclidean(1, 2))):
        generator = torch.Generator().manual_seed(0)
        found[name] = embed_metric(space, target, generator=generator, steps=400, lr=0.05, batch=31)
    assert found["bent"].mean < 0.7 * found["flat"].mean
    assert found["bent"].points.shape == (31, 1, 2)


def test_trees_are_connected_and_their_distances_are_paths():
    children = {"r": ["a", "b"], "a": ["c", "d"], "b": ["d", "e"], "c": [], "d": ["f"], "e": [], "f": []}
    rng = np.random.default_rng(0)
    for _ in range(20):
        parents = grow_tree(children, 7, rng)
        assert parents[0] == -1
        assert all(parent < i for i, parent in enumerate(parents))
    d = tree_distances([-1, 0, 0, 1, 1])
    assert d[3].tolist() == [2, 1, 3, 0, 2]
    assert (d == d.T).all()
    with pytest.raises(ValueError, match="count = 8: there are only 7 nodes"):
        grow_tree(children, 8, rng)
    assert cube_distances(3)[0].tolist() == [0, 1, 1, 2, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProductHyperbolic(0, 2), "k = 0: a whole number of at least 1"),
        (lambda: ProductHyperbolic(2, 2.5), "d = 2.5"),
        (lambda: ProductHyperbolic(2, 2, curv=-1.0), "curv = -1.0: a number from 0.1 to 10.0"),
        (lambda: ProductHyperbolic(2, 2, metric="l3"), "metric = 'l3': one of l1, l2, linf"),
        (lambda: ProductMixed(2, 2), "k = 2: a mixed product needs at least 3"),
        (lambda: ProductHyperbolic(2, 3).lift(torch.zeros(4, 5)), r"v has shape \(4, 5\): \(..., 6\) is needed"),
        (lambda: ProductHyperbolic(2, 3).lift(torch.zeros(4, 6, dtype=torch.long)), "v has dtype torch.int64"),
        (lambda: ProductHyperbolic(3, 2).lift(torch.tensor([[0, 0, 0, math.nan, 0, 0]])), "not finite in factor 1"),
        (lambda: ProductHyperbolic(2, 3).lift(torch.zeros(4, 6), "sound"), "gain = 'sound': 'image', 'text' or None"),
        (lambda: ProductHyperbolic(2, 3).dist(torch.zeros(4, 6), torch.zeros(4, 2, 3)), r"X has shape \(4, 6\)"),
        (lambda: ProductHyperbolic(2, 3).compose(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), "sum"), "op = 'sum'"),
        (lambda: ProductHyperbolic(2, 3).score(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), "cos"), "score = 'cos'"),
        (lambda: ProductEuclidean(2, 3).score(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), "inner"), "only 'distance'"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
