"""The process in BoTorch, the loop, the objectives and the diagnostic."""

import importlib
import math
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from paperworks.optimize.invariant_bo import (
    PROBLEMS,
    WLAN,
    Cyclic,
    CyclicWells,
    InvariantGP,
    InvariantRastrigin,
    PartPack,
    PrototypeSelection,
    SignedPermutations,
    SignFlips,
    fitted,
    max_kernel_bo,
    suggest,
    symmetry_gain,
)

from . import reference

GROUP = SignedPermutations(2)
KERNELS = ["psd_max", "average", "canonical", "base"]


def data(n=10, d=2, seed=0):
    x = 2 * torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    return x, -(x.abs() - 0.5).square().sum(-1, keepdim=True)


def test_the_posterior_is_that_of_the_formula():
    x, y = data(12)
    new = data(5, seed=1)[0]
    model = InvariantGP(x, y, Cyclic(3)).eval()
    model.base_kernel.lengthscale, model.covar_module.outputscale, model.likelihood.noise = 0.8, 1.7, 0.01
    z = ((y - y.mean()) / y.std()).squeeze(-1).numpy()
    plain = partial(reference.matern52, lengthscale=0.8)
    gram = reference.max_gram(x.numpy(), x.numpy(), reference.rotations(3), plain)
    plus, inverse = reference.projected(gram, 1e-8)
    left = reference.max_gram(new.numpy(), x.numpy(), reference.rotations(3), plain)
    cross = 1.7 * left @ inverse @ gram  # K_+^dagger K is the projection on what is kept, as is K_+^dagger K_+
    mean, variance = reference.posterior(1.7 * left @ inverse @ left.T, cross, 1.7 * plus, z, 0.01)
    posterior = model.posterior(new)
    np.testing.assert_allclose(
        posterior.mean.detach().squeeze(-1).numpy(), float(y.mean()) + float(y.std()) * mean, rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(posterior.variance.detach().squeeze(-1).numpy(), float(y.var()) * variance, rtol=1e-4)


@pytest.mark.parametrize("kernel", KERNELS[:3])
def test_predictions_are_the_same_over_an_orbit(kernel):
    model = fitted(*data(), GROUP, kernel=kernel)
    new = data(3, seed=2)[0]
    expected = model.posterior(new)
    for image in GROUP.act(new):
        got = model.posterior(image)
        torch.testing.assert_close(got.mean, expected.mean)
        torch.testing.assert_close(got.variance, expected.variance, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_botorch_uses_it_unchanged(kernel):
    x, y = data()
    model = fitted(x, y, GROUP, kernel=kernel)
    bounds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    for acquisition, q in [
        (LogExpectedImprovement(model, best_f=y.max()), 1),
        (UpperConfidenceBound(model, beta=2.0), 1),
        (qLogExpectedImprovement(model, best_f=y.max()), 2),
    ]:
        found, value = optimize_acqf(acquisition, bounds, q=q, num_restarts=2, raw_samples=8, options={"maxiter": 5})
        assert found.shape == (q, 2)
        assert bool(torch.isfinite(value))
        assert bool(((found >= -1) & (found <= 1)).all())
    fantasy = model.condition_on_observations(x[:1] + 0.1, torch.zeros(1, 1, dtype=torch.float64))
    assert fantasy.train_inputs[0].shape[-2] == len(x) + 1
    sample = model.posterior(x[:4]).rsample(torch.Size([3]))
    assert sample.shape == (3, 4, 1)


def test_fit_base_takes_the_hyper_parameters_of_an_ordinary_process():
    """Adam with the same steps on GPyTorch's own marginal likelihood ends at the same place."""
    x, y = data(15)
    ours = InvariantGP(x, y, GROUP)
    plain = SingleTaskGP(
        x,
        y,
        likelihood=InvariantGP(x, y, GROUP).likelihood,
        covar_module=ScaleKernel(MaternKernel()),
        mean_module=ConstantMean(),
    )
    ours.fit_base(steps=20, lr=0.1)
    mll = ExactMarginalLogLikelihood(plain.likelihood, plain)
    optimiser = torch.optim.Adam(plain.parameters(), lr=0.1)
    plain.train()
    for _ in range(20):
        optimiser.zero_grad()
        (-mll(plain(*plain.train_inputs), plain.train_targets)).backward()
        optimiser.step()
    for a, b in [
        (ours.base_kernel.lengthscale, plain.covar_module.base_kernel.lengthscale),
        (ours.covar_module.outputscale, plain.covar_module.outputscale),
        (ours.likelihood.noise, plain.likelihood.noise),
    ]:
        assert float(a.detach()) == pytest.approx(float(b.detach()), rel=1e-4)


def test_all_kernels_share_the_hyper_parameters_of_fit_base():
    models = [fitted(*data(), GROUP, kernel=kernel) for kernel in KERNELS]
    assert len({round(float(m.base_kernel.lengthscale.detach()), 9) for m in models}) == 1


def test_fitting_through_the_kernel_raises_its_likelihood():
    x, y = data(12)
    model = InvariantGP(x, y, GROUP)
    start = float(model.base_kernel.lengthscale.detach())
    mll = ExactMarginalLogLikelihood(model.likelihood, model)

    def likelihood():
        model.train()
        with torch.no_grad():
            return float(mll(model(*model.train_inputs), model.train_targets))

    before = likelihood()
    fit_gpytorch_mll(mll)
    assert likelihood() > before + 0.1
    assert abs(float(model.base_kernel.lengthscale.detach()) - start) > 0.1
    learned = fitted(x, y, GROUP, fit="kernel")
    torch.testing.assert_close(learned.base_kernel.lengthscale, model.base_kernel.lengthscale, rtol=1e-3, atol=0)


def test_fitc_gives_predictions_the_variance_of_the_formula():
    x, y = data(8)
    far = data(4, seed=3)[0]
    plain, fitc = (InvariantGP(x, y, GROUP, fitc=on).eval() for on in (False, True))
    plain.base_kernel.lengthscale = fitc.base_kernel.lengthscale = 0.15
    missing = fitc.covar_module(far, diag=True) - plain.covar_module(far, diag=True)
    assert float(missing.max().detach()) > 0.1
    for points in (far, far.unsqueeze(1)):
        gained = fitc.posterior(points).variance - plain.posterior(points).variance
        torch.testing.assert_close(gained.reshape(-1), missing * y.var())


def test_fantasies_keep_the_design_and_batch():
    x, y = data(8)
    model = fitted(x, y, GROUP)
    new = data(4, seed=3)[0]
    fantasy = model.fantasize(new.unsqueeze(1), SobolQMCNormalSampler(torch.Size([3]), seed=0))
    assert fantasy.posterior(new[:2]).mean.shape == (3, 4, 2, 1)
    told = model.condition_on_observations(new[:1], torch.ones(1, 1, dtype=torch.float64))
    assert torch.equal(told.covar_module.base_kernel.design, x)
    both = torch.cat([x, new[:1]])
    noise = model.likelihood.noise * torch.eye(9, dtype=torch.float64)
    gram = model.covar_module(both, both).to_dense() + noise
    cross = model.covar_module(new, both).to_dense()
    scale, shift = y.std(), y.mean()
    z = (torch.cat([y, torch.ones(1, 1, dtype=torch.float64)]) - shift) / scale
    wanted = cross @ torch.linalg.solve(gram, z) * scale + shift
    torch.testing.assert_close(told.posterior(new).mean, wanted, rtol=1e-5, atol=1e-6)


def test_augmented_data_are_images_of_the_data():
    x, y = data(6)
    model = fitted(x, y, GROUP, kernel="base", augment=4)
    assert model.train_inputs[0].shape == (24, 2)
    torch.testing.assert_close(model.train_inputs[0][:6], x)
    plain = fitted(x, y, GROUP, kernel="base")
    torch.testing.assert_close(model.base_kernel.lengthscale, plain.base_kernel.lengthscale)
    # As standardised for the fit: n - 1 and 4 n - 1 give different scales.
    torch.testing.assert_close(model.train_targets, plain.train_targets.repeat(4))
    noise = model.likelihood.noise.detach() * torch.eye(24, dtype=torch.float64)
    gram = model.covar_module(*model.train_inputs, *model.train_inputs).to_dense().detach() + noise
    cross = model.covar_module(x, *model.train_inputs).to_dense().detach()
    mean = cross @ torch.linalg.solve(gram, model.train_targets) * y.std() + y.mean()
    torch.testing.assert_close(model.posterior(x).mean.detach().squeeze(-1), mean, rtol=1e-4, atol=1e-6)


def test_known_noise_is_used():
    x, y = data(5)
    model = InvariantGP(x, y, GROUP, torch.full_like(y, 1e-8)).fit_base()
    torch.testing.assert_close(model.posterior(x).mean, y, rtol=1e-2, atol=1e-3)


def test_the_loop_finds_the_optimum_and_repeats_itself():
    problem = InvariantRastrigin(2)
    runs = [max_kernel_bo(problem, problem.bounds, GROUP, 8, raw=64, starts=2, seed=3) for _ in range(2)]
    torch.testing.assert_close(runs[0].X, runs[1].X)
    other = max_kernel_bo(problem, problem.bounds, GROUP, 1, raw=64, starts=2, seed=4)
    assert not torch.equal(other.X[:5], runs[0].X[:5])
    assert runs[0].X.shape == (13, 2)
    assert runs[0].n_initial == 5
    point, value = runs[0].best
    assert value > float(runs[0].Y[:5].max()) - 1e-12
    assert value == pytest.approx(float(problem(point.unsqueeze(0))))
    assert bool(((problem.bounds[0] <= runs[0].X) & (problem.bounds[1] >= runs[0].X)).all())


def test_a_common_factor_of_the_coordinates_changes_nothing():
    small = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    start = data(5)[0]
    runs = [
        max_kernel_bo(
            lambda x, s=s: -(x / s - 0.3).square().sum(-1),
            s * small,
            SignFlips(2),
            2,
            initial=s * start,
            raw=32,
            starts=1,
        )
        for s in (1.0, 64.0)
    ]
    torch.testing.assert_close(64 * runs[0].X, runs[1].X)


def test_the_loop_never_asks_outside_the_box():
    """7 / 3 * 3 and the like need not give a bound back."""
    bounds = torch.tensor([[-5.12, 0.3], [0.7, 4.9]], dtype=torch.float64)
    seen = []

    def f(x):
        seen.append(x[0])
        return x.sum(-1) * torch.tensor(1.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = max_kernel_bo(f, bounds, SignFlips(2), 3, raw=8, starts=1, steps=3)
        corner = max_kernel_bo(f, bounds, SignFlips(2), 1, initial=bounds, raw=8, starts=1, steps=3)
    torch.testing.assert_close(torch.stack(seen[:8]), run.X, rtol=0, atol=0)
    assert torch.equal(corner.X[:2], bounds)
    assert all(bool(((x >= bounds[0]) & (x <= bounds[1])).all()) for x in seen)


def test_the_loop_hands_on_the_paper_s_beta_the_best_point_and_new_seeds(monkeypatch):
    seen = []

    def told(model, bounds, beta, incumbent, *, seed, **rest):
        seen.append((beta, incumbent, seed))
        return 0.5 * incumbent.unsqueeze(0)

    monkeypatch.setattr(importlib.import_module(max_kernel_bo.__module__), "suggest", told)
    box = torch.tensor([[-4.0, -4.0], [4.0, 4.0]], dtype=torch.float64)
    run = max_kernel_bo(lambda x: -x.square().sum(-1), box, GROUP, 2)
    assert [beta for beta, _, _ in seen] == pytest.approx([math.log(5), math.log(6)])  # d / 2 = 1
    best = run.X[:5][int(run.Y[:5].argmax())]
    torch.testing.assert_close(4 * seen[0][1], best)
    torch.testing.assert_close(4 * seen[1][1], 0.5 * best)
    assert seen[0][2] != seen[1][2]


def test_suggest_never_loses_to_its_candidates():
    x, y = data()
    model = fitted(x, y, GROUP)
    bounds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    best = x[int(y.argmax())]
    found = suggest(model, bounds, 1.0, best, raw=32, starts=2, seed=0)
    score = UpperConfidenceBound(model, beta=1.0)
    assert float(score(found.unsqueeze(0)).detach()) >= float(score(best[None, None]).detach()) - 1e-9


def test_a_box_that_the_group_leaves_is_told():
    bounds = torch.tensor([[-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"SignFlips\(2\) moves the box"):
        max_kernel_bo(lambda x: -x.square().sum(-1), bounds, SignFlips(2), 1, raw=8, starts=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        max_kernel_bo(
            lambda x: -x.square().sum(-1), 2 * torch.tensor([[-1.0, -1], [1, 1]]), SignFlips(2), 1, raw=8, starts=1
        )


@pytest.mark.parametrize("name", [n for n in PROBLEMS if n != "partpack"])
def test_objectives_do_not_change_over_orbits(name):
    problem = PROBLEMS[name]()
    unit = torch.rand(6, problem.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit
    expected = problem._evaluate_true(x)
    for image in problem.group.sample(7, torch.Generator().manual_seed(1))(x):  # may leave the box
        torch.testing.assert_close(problem._evaluate_true(image), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(problem(x, noise=False), -expected if problem.negate else expected)


@pytest.mark.parametrize("name", ["ackley", "griewank", "rastrigin", "radial", "scaling"])
def test_the_optimum_of_test_functions_is_zero_and_to_be_maximised(name):
    problem = PROBLEMS[name]()
    assert not problem.is_minimization_problem
    top = problem(problem.optimizers.double(), noise=False)
    torch.testing.assert_close(top, torch.zeros_like(top), atol=1e-9, rtol=0)
    unit = torch.rand(50, problem.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert bool((problem(problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit, noise=False) < 0).all())


def test_radial_is_largest_on_its_circle():
    problem = PROBLEMS["radial"]()
    r = 8 * math.sqrt(2)
    on = problem.evaluate_true(r / math.sqrt(2) * torch.ones(1, 2, dtype=torch.float64))
    assert float(on) == pytest.approx(0.0, abs=1e-12)
    off = problem.evaluate_true(torch.tensor([[7.0, 8.0], [0.0, 0.0], [10.0, 10.0]], dtype=torch.float64))
    assert bool((off < -1e-3).all())


def test_sign_flips_are_all_that_griewank_allows():
    problem = PROBLEMS["griewank"](2)
    x = torch.tensor([[3.0, 5.0]], dtype=torch.float64)
    assert float((problem.evaluate_true(x) - problem.evaluate_true(x.flip(-1))).abs()) > 0.1


def test_wlan_by_hand():
    users = torch.full((16, 2), 40.0, dtype=torch.float64)
    users[0] = 0.0
    x = torch.tensor([[0.0, 0.0, 40.0, 40.0, -50.0, -50.0, -50.0, 50.0]], dtype=torch.float64)
    loss = 10**-4.667
    points = x.reshape(4, 2).numpy()
    total = 0.0
    for user in users.numpy():
        power = [
            loss * min(np.linalg.norm(user - p) ** -3, 1) if np.linalg.norm(user - p) > 0 else loss for p in points
        ]
        nearest = int(np.argmin([np.linalg.norm(user - p) for p in points]))
        total += math.log2(1 + power[nearest] / (10**-8.5 + sum(power) - power[nearest]))
    assert float(WLAN(users).evaluate_true(x)) == pytest.approx(total, rel=1e-12)


def test_wells_lie_where_they_should():
    problem = CyclicWells(3)
    wells = problem.group.act(torch.tensor([[2.0, 1.0]], dtype=torch.float64))[:, 0]
    torch.testing.assert_close(problem.evaluate_true(wells), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    u = np.array([0.3, -0.2])
    value = -float((u**2 + 5 * (1 - np.cos(2 * np.pi * u))).sum())
    assert float(problem.evaluate_true(torch.tensor([[2.3, 0.8]], dtype=torch.float64))) == pytest.approx(value)


def test_packing_is_a_share_that_exchange_leaves_alone_and_mixtures_fill_better():
    problem = PartPack()
    x = torch.tensor([[0.35, 0.5, 0.8, 1.0, 0.5, 0.2]], dtype=torch.float64)
    value = float(problem.evaluate_true(x))
    assert 0.4 < value < 0.91  # loose to closest packing of discs
    assert float(problem.evaluate_true(x[:, [2, 3, 4, 5, 0, 1]])) == value
    assert float(problem.evaluate_true(x - torch.tensor([[0.0, 0.01] * 3]))) != value


def test_prototypes_are_scored_by_the_nearest():
    points = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    problem = PrototypeSelection(points, prototypes=2)
    x = torch.tensor([[0.0, 0.5, 1.0, 1.0]], dtype=torch.float64)
    variance = (0.25 + 0.0) / 2 / 2  # mean squared distance by the number of coordinates
    normal = torch.distributions.Normal(0.0, variance**0.5)
    offsets = torch.tensor([[0.0, 0.5], [0.0, 0.0]])
    assert float(problem.evaluate_true(x)) == pytest.approx(float(normal.log_prob(offsets).sum() / 2))
    line = PrototypeSelection(points[:, :1], prototypes=3)
    assert (line.dim, line.group.order) == (3, 6)
    with pytest.raises(ValueError, match=r"values in \[-1, 1\]"):
        PrototypeSelection(3 * points)


def test_the_diagnostic_tells_a_symmetry_that_holds_from_one_that_does_not():
    x = data(40)[0]
    group = SignFlips(2)
    holds, error = symmetry_gain(x, (3 * x.abs()).sin().sum(-1, keepdim=True), group, kernel="canonical")
    assert holds > 2 * error > 0
    fails, error = symmetry_gain(x, (3 * x).sin().sum(-1, keepdim=True), group, kernel="canonical")
    assert fails < -2 * error < 0
    assert math.isfinite(symmetry_gain(x, x[:, :1], group, fitc=True)[0])
    with pytest.raises(ValueError, match="2 points: at least 3"):
        symmetry_gain(x[:2], x[:2, :1], group)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: InvariantGP(x, y, GROUP, base="cubic"), "base = 'cubic': one of matern52"),
        (lambda x, y: InvariantGP(x, y, GROUP, kernel="mean"), "kernel = 'mean': one of psd_max"),
        (lambda x, y: InvariantGP(x * math.nan, y, GROUP), "train_X has values that are not finite"),
        (lambda x, y: InvariantGP(x, y * math.inf, GROUP), "train_Y has values that are not finite"),
        (lambda x, y: InvariantGP(x, y[:5], GROUP), r"train_X \(10, 2\), train_Y \(5, 1\): \(n, d\) and \(n, 1\)"),
        (lambda x, y: InvariantGP(x[:0], y[:0], GROUP), "n >= 1"),
        (lambda x, y: InvariantGP(x, y, GROUP, ftic=True), "'ftic' is unknown to kernel 'psd_max', which has: tol"),
        (lambda x, y: InvariantGP(x, y, GROUP, kernel="base", unit=True), "kernel 'base', which has: none"),
        (lambda x, y: fitted(x, y, GROUP, fit="adam"), "fit = 'adam': base or kernel"),
        (lambda x, y: fitted(x, y, GROUP, augment=0), "augment = 0"),
        (lambda x, y: InvariantGP(x, y, SignFlips(3)), r"train_X has shape \(10, 2\): SignFlips\(3\)"),
        (lambda x, y: max_kernel_bo(lambda z: 0, torch.zeros(2, 2), GROUP, 1), "lower < upper"),
        (lambda x, y: max_kernel_bo(lambda z: 0, torch.ones(2, 3), GROUP, 1), r"shape \(2, 3\)"),
        (lambda x, y: max_kernel_bo(lambda z: 0, torch.tensor([[-1.0, -1], [1, 1]]), GROUP, 0), "n_iter = 0"),
        (lambda x, y: max_kernel_bo(lambda z: math.nan, torch.tensor([[-1.0, -1], [1, 1]]), GROUP, 1), "f gave"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*data())


def test_what_is_no_tensor_or_group_is_named():
    x, y = data()
    with pytest.raises(TypeError, match="train_X is a list"):
        InvariantGP(x.tolist(), y, GROUP)
    with pytest.raises(TypeError, match="group = 3"):
        InvariantGP(x, y, 3)
