"""The interface force: at a node, against the reference, and between bodies."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.simulation.collision_mpm import (
    InterfaceForce,
    MPMSolver,
    NeoHookean,
    SingleField,
    gap,
    lattice,
    momentum,
    resolve,
)

from . import reference


def nodes(bodies, count=50, d=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    v, n = (torch.randn(bodies, count, d, generator=g, dtype=torch.float64) for _ in range(2))
    m = torch.rand(bodies, count, generator=g, dtype=torch.float64) * (
        torch.rand(bodies, count, generator=g, dtype=torch.float64) > 0.2
    )
    return v, m, n


@pytest.mark.parametrize("friction", [0.0, 0.4])
@pytest.mark.parametrize(("bodies", "d"), [(2, 2), (2, 3), (3, 2), (4, 3)])
def test_against_the_reference(bodies, d, friction):
    v, m, n = nodes(bodies, d=d)
    after = resolve(v, m, n, InterfaceForce(0.7, friction))
    assert not torch.equal(after, v)
    for i in range(v.shape[1]):
        expected = reference.contact(v[:, i].numpy(), m[:, i].numpy(), n[:, i].numpy(), 0.7, friction)
        np.testing.assert_allclose(after[:, i], expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(0, 2), st.floats(0, 2), st.sampled_from([2, 3]))
def test_momentum_is_kept_and_energy_falls_as_the_formula_says(seed, mu, friction, d):
    v, m, n = nodes(2, d=d, seed=seed)
    m = m + 0.1
    for f in (0.0, friction):
        after = resolve(v, m, n, InterfaceForce(mu, f))
        torch.testing.assert_close((m[..., None] * after).sum(0), (m[..., None] * v).sum(0))
        lost = (m * (v.square().sum(-1) - after.square().sum(-1))).sum(0) / 2
        assert float(lost.min()) > -1e-12
        if f == 0:
            normal = n[0] / n[0].norm(dim=-1, keepdim=True) - n[1] / n[1].norm(dim=-1, keepdim=True)
            normal = normal / normal.norm(dim=-1, keepdim=True)
            w = ((v[0] - v[1]) * normal).sum(-1).clamp(min=0)
            torch.testing.assert_close(lost, m.prod(0) / m.sum(0) * w.square() * mu * (2 - mu) / 2)
            left = ((after[0] - after[1]) * normal).sum(-1)
            torch.testing.assert_close(left[w > 0], ((1 - mu) * w)[w > 0])


def one_node(va, vb, ma=2.0, mb=1.0):
    v = torch.tensor([[va], [vb]], dtype=torch.float64)
    m = torch.tensor([[ma], [mb]], dtype=torch.float64)
    n = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]], dtype=torch.float64)
    return v, m, n


def kinetic(v, m):
    return float((m * v.square().sum(-1)).sum()) / 2


def test_the_printed_numerator_adds_energy():
    v, m, n = one_node([1.0, 0.0], [-1.0, 0.0])
    assert kinetic(v, m) == 1.5
    assert kinetic(resolve(v, m, n, InterfaceForce(printed=True)), m) == pytest.approx(83 / 12)
    assert kinetic(resolve(v, m, n, InterfaceForce()), m) == pytest.approx(1.5 - 4 / 3)
    # As printed it is not zero for equal velocities either.
    numerator = 2.0 * (2.0 * 1.0) - 1.0 * (1.0 * 1.0)
    assert numerator != 0


def test_equal_or_parting_velocities_are_left_alone():
    for va, vb in (([1.0, 2.0], [1.0, 2.0]), ([-1.0, 0.0], [1.0, 3.0]), ([0.0, 1.0], [0.0, -1.0])):
        v, m, n = one_node(va, vb)
        assert torch.equal(resolve(v, m, n, InterfaceForce(1.0, 0.5)), v)


def test_friction_brings_to_rest_at_most():
    v, m, n = one_node([1.0, 0.3], [-1.0, 0.0])
    rough = resolve(v, m, n, InterfaceForce(1.0, 100.0))
    torch.testing.assert_close(rough[0], rough[1])
    some = resolve(v, m, n, InterfaceForce(1.0, 0.1))
    normal, tangential = 2 / 3 * 2.0, 0.1 * 2 / 3 * 2.0
    torch.testing.assert_close(some[0, 0], torch.tensor([1 - normal / 2, 0.3 - tangential / 2], dtype=torch.float64))


def test_normals_that_cancel_are_skipped():
    v, m, n = one_node([1.0, 0.0], [-1.0, 0.0])
    along = n[:1].repeat(2, 1, 1)
    tilted = along.clone()
    tilted[1, 0, 1] = 5e-4
    for outward in (along, tilted, 0 * n):
        assert torch.equal(resolve(v, m, outward, InterfaceForce()), v)


def test_gate():
    v, m, n = one_node([1.0, 0.0], [-1.0, 0.0])
    centre = torch.tensor([[[-0.5, 0.0]], [[0.4, 0.0]]], dtype=torch.float64)
    assert torch.equal(resolve(v, m, n, InterfaceForce(gate=0.8), centre), v)
    assert not torch.equal(resolve(v, m, n, InterfaceForce(gate=1.0), centre), v)
    with pytest.raises(ValueError, match="centre is needed"):
        resolve(v, m, n, InterfaceForce(gate=0.8))


def touching(contact, speed=-1.0):
    """Two blocks half a cell apart, which part (speed < 0) or meet."""
    solver = MPMSolver(32, contact=contact)
    for k, low in enumerate((0.3, 0.5)):
        solver.add_body(lattice((low, 0.4), (low + 0.2, 0.6), 1 / 64), NeoHookean(1e3), (speed * (1 - 2 * k), 0.0))
    solver.dt = 2e-4
    return solver


def test_parting_bodies_stick_in_one_field_and_not_in_two():
    left = {}
    for name, contact in (("single", SingleField()), ("interface", InterfaceForce())):
        solver = touching(contact)
        solver.step(100)
        left[name] = solver.state().of(0).v[:, 0]
    assert float((left["interface"] + 1).abs().max()) < 1e-12
    assert float(left["single"].mean()) > -0.8


def test_three_bodies_in_a_row_pass_the_push_on():
    solver = MPMSolver(32, contact=InterfaceForce())
    for k, low in enumerate((0.2, 0.43, 0.66)):
        solver.add_body(lattice((low, 0.4), (low + 0.15, 0.6), 1 / 64), NeoHookean(1e3), ((2.0, 0.0), None, None)[k])
    before = momentum(solver.state())
    solver.run(0.12)
    state = solver.state()
    torch.testing.assert_close(momentum(state), before, rtol=0, atol=1e-14)
    means = [float(state.of(k).v[:, 0].mean()) for k in range(3)]
    assert means[2] > 1.0 > 0.8 > max(means[:2])
    assert gap(state, 0, 2) > 0.1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mu": 2.1}, r"mu must lie in \[0, 2\], got 2.1"),
        ({"friction": -1.0}, "friction must be >= 0, got -1.0"),
        ({"gate": 0.0}, "gate must be > 0 cells or None, got 0.0"),
    ],
)
def test_bad_numbers(options, said):
    with pytest.raises(ValueError, match=said):
        InterfaceForce(**options)
