"""The step: both backends against the reference and against each other, conservation, limits, messages."""

import math

import numpy as np
import pytest
import torch

from paperworks.simulation.collision_mpm import (
    NACC,
    FixedCorotated,
    Grid,
    InterfaceForce,
    MPMSolver,
    NeoHookean,
    SingleField,
    VonMises,
    angular_momentum,
    lattice,
    momentum,
    penetration,
    restitution,
)

from . import reference


def scene(contact, backend, dim=2, materials=None, cells=10, speed=4.0, **options):
    """Two jittered blocks that meet."""
    g = torch.Generator().manual_seed(3)
    solver = MPMSolver(cells, backend=backend, dim=dim, contact=contact, **options)
    h = solver.grid.dx / 2
    for k, material in enumerate(materials or (NeoHookean(1e3), NACC(2e3, alpha0=math.log(0.99)))):
        low = [0.3, *[0.4] * (dim - 1)] if k == 0 else [0.52, *[0.38] * (dim - 1)]
        high = [low[0] + 0.18, *[a + 0.2 for a in low[1:]]]
        velocity = [speed * (1 - 2 * k), 0.5, 0.2][:dim]
        solver.add_body(lattice(low, high, h, jitter=0.3, generator=g), material, velocity)
    return solver


@pytest.mark.parametrize("backend", ["torch", "warp"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("single", [False, True])
def test_steps_are_the_reference(single, dim, backend):
    contact = SingleField() if single else InterfaceForce(0.8, 0.3)
    materials = (NeoHookean(1e3, rho=2.0), FixedCorotated(2e3, 0.2))
    cells = 10 if dim == 2 else 6
    gravity = [0.0, -9.0, 1.0][:dim]
    solver = scene(contact, backend, dim, materials, cells, gravity=gravity, dt=1e-3)
    state = solver.state()
    particles = [
        {"x": x, "v": v, "C": C, "F": F, "m": float(m), "V": float(V), "body": int(b)}
        for x, v, C, F, m, V, b in zip(
            *(getattr(state, name).numpy() for name in ("x", "v", "C", "F", "mass", "volume", "body")), strict=True
        )
    ]
    bodies = [("neo_hookean", 1e3, 0.3), ("corotated", 2e3, 0.2)]
    for _ in range(3 if dim == 2 else 2):
        particles = reference.step(
            particles, bodies, (cells + 1,) * dim, 1 / cells, 1e-3, gravity, 0.8, 0.3, single=single
        )
        solver.step()
    state = solver.state()
    for name in ("x", "v", "C", "F"):
        expected = np.stack([p[name] for p in particles])
        np.testing.assert_allclose(getattr(state, name).numpy(), expected, rtol=1e-10, atol=1e-10)


OPTIONS = [
    (2, {"contact": InterfaceForce(1.0, 0.2, gate=0.8), "track": True}),
    (2, {"contact": InterfaceForce(1.5), "transfer": "flip", "walls": "separate", "gravity": (0.0, -50.0)}),
    (2, {"contact": InterfaceForce(0.5, printed=True), "walls": "sticky"}),
    (3, {"contact": SingleField(), "walls": "slip", "gravity": (9.0, 0.0, 0.0), "margin": 2}),
    (3, {"contact": InterfaceForce(0.6, 0.1, gate=0.5), "transfer": "flip", "flip": 0.3}),
]


@pytest.mark.parametrize(("dim", "options"), OPTIONS)
def test_backends_agree_with_every_option_and_material(dim, options):
    materials = (VonMises(1e3, 0.3, 5.0, 20.0), NACC(2e3, alpha0=math.log(0.99)))
    warp, plain = (
        scene(backend=backend, dim=dim, materials=materials, speed=6.0, **options) for backend in ("warp", "torch")
    )
    warp.dt = plain.dt = warp.stable_dt()
    steps = 40
    warp.step(steps)
    plain.step(steps)
    a, b = warp.state(), plain.state()
    for name in ("x", "v", "F", "alpha", *(["deformation"] if options.get("track") else [])):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-7, atol=1e-7)
    assert (a.clamped, a.capped) == (b.clamped, b.capped)
    assert float(a.of(1).alpha.max()) > math.log(0.99)
    if options.get("track"):
        assert float((a.deformation - a.F).abs().max()) > 1e-3
        torch.testing.assert_close(a.of(0).deformation.det(), a.of(0).F.det(), rtol=1e-6, atol=1e-6)


def test_crushed_particles_are_clamped_and_counted():
    counts = set()
    for backend in ("warp", "torch"):
        solver = scene(InterfaceForce(), backend, materials=(NeoHookean(1.0), NeoHookean(1.0)), speed=30.0, dt=2e-3)
        solver.step(10)
        assert float(torch.linalg.svdvals(solver.state().F).min()) >= 0.05 - 1e-9
        counts.add(solver.state().clamped)
    assert len(counts) == 1
    assert counts.pop() > 0


@pytest.mark.parametrize("dim", [2, 3])
def test_single_precision_follows_double(dim):
    materials = (NeoHookean(1e3), NeoHookean(2e3))
    double = scene(InterfaceForce(), "torch", dim, materials, dt=1e-3)
    single = scene(InterfaceForce(), "torch", dim, materials, dt=1e-3, dtype=torch.float32)
    double.step(20)
    single.step(20)
    assert single.state().x.dtype is torch.float32
    torch.testing.assert_close(single.state().to(torch.float64).x, double.state().x, rtol=0, atol=1e-5)


@pytest.mark.slow  # compiles a module of its own where Warp's cache is empty
@pytest.mark.parametrize("dim", [2, 3])
def test_single_precision_in_warp_is_that_in_torch(dim):
    states = []
    for backend in ("warp", "torch"):
        solver = scene(InterfaceForce(0.9, 0.2, gate=0.8), backend, dim, dt=5e-4, dtype=torch.float32, speed=6.0)
        solver.step(40)
        states.append(solver.state())
    torch.testing.assert_close(states[0].x, states[1].x, rtol=0, atol=2e-5)
    torch.testing.assert_close(states[0].F, states[1].F, rtol=0, atol=5e-3)


@pytest.mark.parametrize("contact", [SingleField(), InterfaceForce(0.5, 0.3), InterfaceForce(gate=0.8)])
def test_momentum_and_angular_momentum_are_kept_without_walls(contact):
    solver = scene(contact, "warp", 3)
    before = solver.state()
    solver.dt = solver.stable_dt()
    solver.step(60)
    after = solver.state()
    assert float((after.of(0).v - before.of(0).v).norm()) > 1.0
    torch.testing.assert_close(momentum(after), momentum(before), rtol=0, atol=1e-14)
    torch.testing.assert_close(angular_momentum(after), angular_momentum(before), rtol=0, atol=1e-14)


def test_angular_momentum_has_the_sign_of_a_cross_product():
    solver = MPMSolver(8, dim=3)
    solver.add_body(torch.tensor([[0.5, 0.25, 0.5]]), NeoHookean(1.0), (1.0, 2.0, 3.0), volume=1.0)
    expected = torch.linalg.cross(torch.tensor([0.5, 0.25, 0.5]), torch.tensor([1.0, 2.0, 3.0])).double()
    torch.testing.assert_close(angular_momentum(solver.state()), expected)


def test_energy_is_bounded_and_its_parts_are_what_they_say():
    solver = scene(InterfaceForce(), "warp", materials=(NeoHookean(1e3), FixedCorotated(1e3)), gravity=(0.0, -3.0))
    start = solver.energy()
    state = solver.state()
    assert start["kinetic"] == pytest.approx(float((state.mass * state.v.square().sum(1)).sum() / 2))
    assert start["elastic"] == pytest.approx(0.0, abs=1e-12)
    assert start["potential"] == pytest.approx(float(3 * (state.mass * state.x[:, 1]).sum()))
    solver.dt = solver.stable_dt()
    most = 0.0
    for _ in range(20):
        solver.step(5)
        now = solver.energy()
        most = max(most, now["elastic"])
        assert now["total"] <= 1.001 * start["total"]
    assert most > 0.1 * start["kinetic"]


def test_free_fall_and_uniform_motion_are_exact():
    lone = MPMSolver(10, gravity=(0.0, -10.0), dt=1e-3)
    lone.add_body(lattice((0.4, 0.6), (0.6, 0.8), 0.05, jitter=0.4), NACC(1e4), (0.5, 0.0))
    start = lone.state()
    lone.step(50)
    state = lone.state()
    torch.testing.assert_close(state.v, torch.tensor([0.5, -0.5], dtype=torch.float64).expand_as(state.v))
    fallen = torch.tensor([0.025, -10 * 1e-6 * 50 * 51 / 2], dtype=torch.float64)
    torch.testing.assert_close(state.x - start.x, fallen.expand_as(state.x))
    torch.testing.assert_close(state.F, torch.eye(2, dtype=torch.float64).expand_as(state.F))


def test_elastic_bodies_bounce_by_themselves_and_gain_energy_above_mu_of_one():
    backs = {}
    for mu in (0.0, 1.0, 1.5):
        solver = scene(InterfaceForce(mu), "warp", materials=(NeoHookean(1e4), NeoHookean(1e4)), cells=20, speed=1.0)
        before = solver.state()
        assert restitution(before, before) == -1.0
        solver.run(0.05)
        backs[mu] = restitution(before, solver.state())
        assert (penetration(solver.state()) > 0) == (mu == 0)
    assert backs[0.0] == pytest.approx(-1.0)
    assert 0.5 < backs[1.0] < 1.0 < backs[1.5]


def test_gradients_reach_velocities_and_positions():
    x = lattice((0.4, 0.4), (0.6, 0.6), 0.05, jitter=0.2, generator=torch.Generator().manual_seed(1))

    def last(v, start):
        solver = MPMSolver(10, 1e-3, "torch", contact=InterfaceForce(0.9, 0.1))
        solver.add_body(start, NeoHookean(1e3), v)
        solver.add_body(x + torch.tensor([0.18, 0.01]), NACC(1e3, alpha0=-0.1), (-1.0, 0.0))
        solver.step(4)
        return solver.state().x[:6]

    v = torch.tensor([1.0, 0.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u: last(u, x), v)
    start = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(last(v.detach(), start)[:, 0].sum(), start)
    assert float(slope[0, 0]) == pytest.approx(1.0, abs=0.2)


def test_walls_hold():
    for walls in ("sticky", "slip", "separate"):
        solver = MPMSolver(16, walls=walls)
        solver.add_body(lattice((0.3, 0.25), (0.5, 0.45), 1 / 32), NeoHookean(1e3), (1.0, -3.0))
        solver.run(0.2)
        low = float(solver.state().x[:, 1].min())
        assert low > 0.08, walls
        moved = float(solver.state().x[:, 0].mean()) - 0.4
        assert moved == pytest.approx(0.2, abs=0.08) if walls != "sticky" else moved < 0.2


def test_run_ends_at_the_time_asked_for_and_keeps_states():
    solver = scene(SingleField(), "warp", dt=1e-3)
    states = solver.run(0.0105, every=4)
    assert solver.dt == 1e-3
    assert states[-1].time == pytest.approx(0.0105)
    assert [round(s.time / 0.0105 * 11) for s in states] == [4, 8, 11]


def test_stable_dt():
    solver = scene(SingleField(), "warp", materials=(NeoHookean(1e3, 0.3), NeoHookean(4e3, 0.3, rho=2.0)))
    c = math.sqrt((4e3 * 0.3 / 1.3 / 0.4 + 2 * 4e3 / 2.6) / 2)
    assert solver.stable_dt() == pytest.approx(0.3 * 0.1 / (c + math.hypot(4.0, 0.5)))


def test_a_body_of_its_own_name_leaves_the_grid():
    for backend in ("warp", "torch"):
        solver = MPMSolver(10, 1e-2, backend)
        solver.add_body(lattice((0.4, 0.4), (0.5, 0.5), 0.05), NeoHookean(1.0), name="stone")
        solver.add_body(lattice((0.7, 0.4), (0.8, 0.5), 0.05), NeoHookean(1.0), (5.0, 0.0), name="arrow")
        with pytest.raises(RuntimeError, match=r"arrow left the grid before t = 0\.1: take a larger grid"):
            solver.step(10)


@pytest.mark.parametrize("backend", ["warp", "torch"])
def test_what_is_not_finite_is_named(backend):
    solver = MPMSolver(10, 1e-2, backend)
    solver.add_body(lattice((0.4, 0.4), (0.5, 0.5), 0.05), NeoHookean(1.0), (math.nan, 0.0), name="ghost")
    with pytest.raises(RuntimeError, match="ghost has a velocity that is not finite"):
        solver.step()


def test_bad_arguments():
    cases = [
        ({"dim": 4}, "dim must be 2 or 3, got 4"),
        ({"dt": -1.0}, "dt must be > 0 or None, got -1.0"),
        ({"backend": "numpy"}, "backend must be 'warp' or 'torch', got 'numpy'"),
        ({"transfer": "pic"}, "transfer must be 'apic' or 'flip', got 'pic'"),
        ({"flip": 2.0}, r"flip must lie in \[0, 1\], got 2.0"),
        ({"walls": "wet"}, "walls must be None, 'sticky'"),
        ({"gravity": (0.0,)}, r"gravity must have 2 numbers, got \(0.0,\)"),
        ({"grid": Grid((8, 8, 8), 0.1)}, "grid has 3 axes, but dim is 2"),
    ]
    for options, said in cases:
        with pytest.raises(ValueError, match=said):
            MPMSolver(**{"grid": 10, **options})
    with pytest.raises(ValueError, match="cells must be two or three numbers >= 4"):
        Grid((2, 8), 0.1)
    solver = MPMSolver(10)
    with pytest.raises(RuntimeError, match="has no body"):
        solver.step()
    with pytest.raises(ValueError, match=r"body 0: particles must have shape \(n, 2\) with n > 0, got \(0, 2\)"):
        solver.add_body(torch.zeros(0, 2), NeoHookean(1.0))
    with pytest.raises(ValueError, match="cup: particles must lie within the grid"):
        solver.add_body(torch.tensor([[0.99, 0.5]]), NeoHookean(1.0), name="cup")
    with pytest.raises(ValueError, match="body 0: velocity must have shape"):
        solver.add_body(torch.tensor([[0.5, 0.5]]), NeoHookean(1.0), (1.0, 2.0, 3.0))
    with pytest.raises(ValueError, match="body 0: volume must be > 0"):
        solver.add_body(torch.tensor([[0.5, 0.5]]), NeoHookean(1.0), volume=-1.0)
    solver.add_body(torch.tensor([[0.5, 0.5]]), NeoHookean(1.0))
    solver.step()
    with pytest.raises(RuntimeError, match="body 1 must be added before the first step"):
        solver.add_body(torch.tensor([[0.5, 0.5]]), NeoHookean(1.0))
