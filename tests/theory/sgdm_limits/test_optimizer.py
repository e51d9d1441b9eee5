"""`UnitGradSGD` as a torch optimiser: formula, options, errors, and the contract of its field."""

import copy
import io
import math
import pickle
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.theory.sgdm_limits.optimizer import UnitGradSGD

from . import reference

SHAPES = ((3, 2), (4,), (), (2, 1, 2))
both_paths = pytest.mark.parametrize("foreach", [True, False])


def make(seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in SHAPES
    ]


def give_gradients(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def flat(tensors):
    return [t.detach().double().flatten().tolist() for t in tensors]


@both_paths
@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("scale", ["sqrt_n", "unit"])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_steps_equal_the_reference(foreach, momentum, scale, per_tensor):
    params = make()
    start, grads = flat(params), []
    optimizer = UnitGradSGD(params, 0.1, momentum, scale, foreach=foreach, per_tensor=per_tensor)
    for step in range(4):
        give_gradients(params, step)
        grads.append(flat([p.grad for p in params]))
        optimizer.step()
    want = reference.unit_grad_sgd(start, grads, 0.1, momentum, scale, per_tensor)
    for p, w in zip(params, want, strict=True):
        torch.testing.assert_close(p.detach().flatten(), torch.tensor(w, dtype=torch.float64), rtol=1e-12, atol=1e-13)


@settings(max_examples=20, deadline=None)
@given(st.floats(1e-6, 1e6), st.integers(0, 10**6), st.booleans())
def test_the_size_of_the_loss_does_not_matter(size, seed, per_tensor):
    results = []
    for factor in (1.0, size):
        params = make()
        optimizer = UnitGradSGD(params, 0.1, 0.9, per_tensor=per_tensor)
        for step in range(3):
            give_gradients(params, seed + step)
            for p in params:
                p.grad *= factor
            optimizer.step()
        results.append(params)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_length_of_a_step():
    """lr sqrt(n) or lr without momentum, over all parameters or for each."""
    for scale, per_tensor in (("sqrt_n", False), ("unit", False), ("sqrt_n", True), ("unit", True)):
        params, before = make(), make()
        give_gradients(params, 1)
        UnitGradSGD(params, 0.1, scale=scale, per_tensor=per_tensor).step()
        moves = [(a - b).detach() for a, b in zip(params, before, strict=True)]
        if per_tensor:
            lengths = [(m.norm().item(), m.numel()) for m in moves]
        else:
            lengths = [(torch.cat([m.flatten() for m in moves]).norm().item(), sum(m.numel() for m in moves))]
        for length, n in lengths:
            assert length == pytest.approx(0.1 * (math.sqrt(n) if scale == "sqrt_n" else 1.0), rel=1e-9)


def test_normalisation_comes_before_momentum():
    """With one direction the buffer grows to 1/(1 - beta) lengths: it is not normalised itself."""
    p = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))
    optimizer = UnitGradSGD([p], 0.1, momentum=0.5, scale="unit")
    for step in range(40):
        p.grad = torch.tensor([2.0, 0, 0, 0], dtype=torch.float64) * (step + 1)
        optimizer.step()
    assert optimizer.state[p]["momentum_buffer"].norm().item() == pytest.approx(2.0)


def test_loose_callable_scale_is_torch_sgd_and_clipping_is_clip_grad_norm():
    rules = {
        "plain": (lambda norm, n: 1.0, lambda params: None),
        "clip": (
            lambda norm, n: (1.5 / norm).clamp(max=1.0),
            lambda params: torch.nn.utils.clip_grad_norm_(params, 1.5),
        ),
    }
    for scale, prepare in rules.values():
        ours, theirs = make(), make()
        a, b = UnitGradSGD(ours, 0.1, 0.8, scale), torch.optim.SGD(theirs, 0.1, 0.8)
        for step in range(4):
            for params in (ours, theirs):
                give_gradients(params, step)
            prepare(theirs)
            a.step(), b.step()
        for x, y in zip(ours, theirs, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)  # clip_grad_norm_ adds 1e-6 to the norm


def test_callable_scale_sees_the_length_and_the_number_of_entries():
    seen = []
    params = make()
    give_gradients(params, 0)
    UnitGradSGD(params, 0.1, scale=lambda norm, n: seen.append((norm.item(), n)) or 0.0).step()
    ((norm, n),) = seen
    assert n == sum(p.numel() for p in params)
    assert norm == pytest.approx(torch.cat([p.grad.flatten() for p in params]).norm().item())
    torch.testing.assert_close(params[0], make()[0])


@both_paths
def test_zero_and_tiny_gradients(foreach):
    for momentum in (0.0, 0.9):
        params = make()
        optimizer = UnitGradSGD(params, 0.1, momentum, foreach=foreach)
        for p in params:
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for p, before in zip(params, make(), strict=True):
            assert torch.equal(p, before)
        for p in params:
            p.grad = torch.full_like(p, 1e-20)  # below eps: a step that shrinks with the gradient
        optimizer.step()
        assert max((p - q).abs().max().item() for p, q in zip(params, make(), strict=True)) < 1e-7


@both_paths
def test_parameters_without_a_gradient_do_not_count(foreach):
    params = make()
    give_gradients(params, 0)
    params[1].grad = None
    optimizer = UnitGradSGD(params, 0.1, 0.9, foreach=foreach)
    optimizer.step()
    assert torch.equal(params[1], make()[1])
    assert params[1] not in optimizer.state
    rest = [0, 2, 3]
    other = make()
    want = reference.unit_grad_sgd(
        [flat(other)[i] for i in rest],
        [[flat([p.grad for p in (params[0], params[2], params[3])])[j] for j in range(3)]],
        0.1,
        0.9,
    )
    torch.testing.assert_close(params[0].detach().flatten(), torch.tensor(want[0], dtype=torch.float64))
    for p in params:
        p.grad = None
    before = [p.detach().clone() for p in params]
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@both_paths
def test_groups_share_one_length_and_keep_their_own_rates(foreach):
    params, alone = make(), make()
    for p in (params, alone):
        give_gradients(p, 3)
    grouped = UnitGradSGD(
        [{"params": params[:2]}, {"params": params[2:], "lr": 0.4}], lr=0.1, momentum=0.5, foreach=foreach
    )
    whole = UnitGradSGD(alone, lr=0.1, momentum=0.5, foreach=foreach)
    grouped.step(), whole.step()
    torch.testing.assert_close(params[0], alone[0])
    start = make()
    torch.testing.assert_close(params[3] - start[3], 4 * (alone[3] - start[3]))


def test_a_per_tensor_group_stands_beside_a_joint_one():
    params = make()
    give_gradients(params, 3)
    optimizer = UnitGradSGD([{"params": params[:2], "per_tensor": True}, {"params": params[2:]}], lr=0.1, scale="unit")
    optimizer.step()
    start = make()
    moves = [(p - q).detach() for p, q in zip(params, start, strict=True)]
    assert moves[0].norm().item() == pytest.approx(0.1)
    assert moves[1].norm().item() == pytest.approx(0.1)
    assert math.hypot(moves[2].norm().item(), moves[3].norm().item()) == pytest.approx(0.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@both_paths
def test_dtype_is_kept_and_16_bit_norms_do_not_overflow(dtype, foreach):
    params = make(dtype=dtype)
    for p in params:
        p.grad = torch.full_like(p, 6e4 if dtype == torch.float16 else 1e5)  # squares beyond float16
    optimizer = UnitGradSGD(params, 0.5, momentum=0.9, foreach=foreach)
    optimizer.step()
    for p, q in zip(params, make(dtype=dtype), strict=True):
        assert p.dtype == optimizer.state[p]["momentum_buffer"].dtype == dtype
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(p.double(), q.double() - 0.5, rtol=4 * eps, atol=8 * eps)


@both_paths
@pytest.mark.parametrize("per_tensor", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_factors_beyond_the_range_of_float16(foreach, per_tensor, momentum):
    """Gradients of 1e-6 are multiplied by 1e6 on their way to a size of 1."""
    params = make(dtype=torch.float16)
    for p in params:
        p.grad = torch.full_like(p, 1e-6)
    UnitGradSGD(params, 0.5, momentum, foreach=foreach, per_tensor=per_tensor).step()
    for p, q in zip(params, make(dtype=torch.float16), strict=True):
        torch.testing.assert_close(p.double(), q.double() - 0.5, rtol=0, atol=5e-3)


def test_complex_gradients_count_by_their_modulus():
    for foreach in (True, False):
        p = torch.nn.Parameter(torch.tensor([1 + 1j, 2.0], dtype=torch.complex128))
        p.grad = torch.tensor([3 + 4j, 0], dtype=torch.complex128)
        UnitGradSGD([p], 1.0, 0.5, "unit", foreach=foreach).step()
        torch.testing.assert_close(p.detach(), torch.tensor([0.4 + 0.2j, 2.0], dtype=torch.complex128))


def test_dtypes_may_differ_and_a_pickled_optimiser_goes_on():
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    params = [torch.nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in dtypes]
    optimizer = UnitGradSGD(params, 0.5, 0.5)
    for _ in range(2):
        for p in params:
            p.grad = torch.full_like(p, 7.0)
        optimizer.step()
        optimizer = pickle.loads(pickle.dumps(optimizer))
        params = optimizer.param_groups[0]["params"]
    for p, dtype in zip(params, dtypes, strict=True):
        torch.testing.assert_close(p.detach(), torch.full((2,), 1 - 0.5 - 0.75, dtype=dtype))


def test_foreach_and_the_loop_agree():
    for kwargs in ({}, {"momentum": 0.9}, {"momentum": 0.9, "per_tensor": True}):
        a, b = make(dtype=torch.float32), make(dtype=torch.float32)
        optimizers = [UnitGradSGD(p, 0.1, foreach=foreach, **kwargs) for p, foreach in ((a, True), (b, False))]
        for step in range(5):
            for params, optimizer in zip((a, b), optimizers, strict=True):
                give_gradients(params, step)
                optimizer.step()
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def parabola(x):
    return (x - 1.0).square().sum()


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


@both_paths
@pytest.mark.parametrize(("loss", "steps", "lr"), [(parabola, 400, 0.02), (rosenbrock, 1500, 0.02)])
def test_converges(loss, steps, lr, foreach):
    """Steps have a fixed length, so the rate must go to 0: linearly, by a scheduler of torch."""
    x = torch.nn.Parameter(torch.tensor([-1.0, 0.8]))
    optimizer = UnitGradSGD([x], lr, momentum=0.5, foreach=foreach)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-4, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(x).backward()
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-4 * lr)
    torch.testing.assert_close(x.detach(), torch.ones(2), rtol=0, atol=5e-2)


def test_closure_is_called_with_gradients_and_its_value_returned():
    x = torch.nn.Parameter(torch.tensor([3.0]))
    optimizer = UnitGradSGD([x], 0.1)

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = x.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == pytest.approx(9.0)
    assert x.item() == pytest.approx(2.9)
    assert optimizer.step() is None


@both_paths
def test_state_dict_round_trip_continues_identically(foreach):
    first = make()
    a = UnitGradSGD(first, 0.1, 0.9, foreach=foreach)
    for step in range(3):
        give_gradients(first, step)
        a.step()
    file = io.BytesIO()
    torch.save(a.state_dict(), file)
    file.seek(0)
    second = [torch.nn.Parameter(p.detach().clone()) for p in first]
    b = UnitGradSGD(second, 0.5)
    b.load_state_dict(torch.load(file, weights_only=True))
    third = copy.deepcopy((first, a))
    for step in range(3, 6):
        for params, optimizer in ((first, a), (second, b), third):
            give_gradients(params, step)
            optimizer.step()
    for x, y, z in zip(first, second, third[0], strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z)


def test_state_of_an_older_version_gets_the_new_options():
    params = make()
    optimizer = UnitGradSGD(params, 0.1)
    old = optimizer.state_dict()
    del old["param_groups"][0]["error_if_nonfinite"]
    optimizer.load_state_dict(old)
    give_gradients(params, 0)
    optimizer.step()
    assert optimizer.param_groups[0]["error_if_nonfinite"]


def test_learning_rate_as_a_tensor():
    a, b = make(), make()
    for params, lr in ((a, 0.1), (b, torch.tensor(0.1, dtype=torch.float64))):
        give_gradients(params, 0)
        UnitGradSGD(params, lr, 0.5).step()
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y)


def test_works_with_a_gradient_scaler():
    """On the CPU: scaled gradients give the step of plain ones; a step with an infinite one is left out."""
    a, b = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaled, plain = UnitGradSGD([a], 0.1, 0.9), UnitGradSGD([b], 0.1, 0.9)
    for _ in range(3):
        scaled.zero_grad(), plain.zero_grad()
        scaler.scale(a.pow(4).sum()).backward()
        b.pow(4).sum().backward()
        scaler.step(scaled)
        scaler.update()
        plain.step()
    torch.testing.assert_close(a, b)
    before = a.detach().clone()
    a.grad = torch.tensor([math.inf, 1.0])
    scaler.scale(torch.tensor(1.0))
    scaler.step(scaled)
    scaler.update()
    assert torch.equal(a, before)
    assert scaler.get_scale() == 512.0


@both_paths
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_gradients_that_are_not_finite(foreach, bad, per_tensor):
    params = make()
    give_gradients(params, 0)
    params[1].grad[2] = bad
    optimizer = UnitGradSGD(params, 0.1, 0.9, foreach=foreach, per_tensor=per_tensor)
    with pytest.raises(RuntimeError, match=f"the gradient has length {bad}; allowed are finite ones"):
        optimizer.step()
    for p, before in zip(params, make(), strict=True):
        assert torch.equal(p, before)
    assert not optimizer.state
    UnitGradSGD(params, 0.1, foreach=foreach, per_tensor=per_tensor, error_if_nonfinite=False).step()
    assert params[1].isnan().any()


def test_a_strict_group_refuses_what_another_lets_pass():
    """Both share one length, so that one bad entry would spoil the strict group as well."""
    params = make()
    give_gradients(params, 0)
    params[3].grad[:] = math.inf
    loose = {"params": params[2:], "error_if_nonfinite": False}
    with pytest.raises(RuntimeError, match="the gradient has length inf"):
        UnitGradSGD([{"params": params[:2]}, loose], 0.1).step()
    UnitGradSGD([{"params": params[:2]}, {**loose, "per_tensor": True}], 0.1).step()
    assert torch.isfinite(params[0]).all()


def test_sparse_gradients_are_refused():
    table = torch.nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients; allowed are dense ones"):
        UnitGradSGD(table.parameters(), 0.1).step()


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"lr": -0.1}, "lr=-0.1; allowed are numbers of at least 0"),
        ({"lr": math.nan}, "lr=nan; allowed"),
        ({"momentum": 1.0}, "momentum=1.0; allowed is 0 <= beta < 1".replace("beta", "momentum")),
        ({"scale": "sqrt"}, "scale='sqrt'; allowed are 'sqrt_n', 'unit' and a callable"),
        ({"eps": 0.0}, "eps=0.0; allowed are numbers above 0"),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(kwargs, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        UnitGradSGD(make(), **{"lr": 0.1, **kwargs})
    with pytest.raises(ValueError, match=re.escape(words)):
        UnitGradSGD([{"params": make(), **kwargs}], lr=0.1)
