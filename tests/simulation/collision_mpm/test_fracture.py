"""Broken particles, pieces, and the ellipsoids about overlaps of balls."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperworks.simulation.collision_mpm import (
    NACC,
    MPMSolver,
    NeoHookean,
    fracture_gaussians,
    fracture_mask,
    fragments,
    gap,
    lattice,
    mvee_lens,
    penetration,
)


def state(*blocks, material=None):
    """Bodies of 0.05-spaced particles, one for each (low, high)."""
    solver = MPMSolver(10)
    for low, high in blocks:
        solver.add_body(lattice(low, high, 0.05), material or NACC(1.0), volume=0.05**2)
    return solver.state()


def test_pieces_are_counted_within_bodies_and_dust_is_not():
    one = state(((0.2, 0.2), (0.4, 0.4)), ((0.4, 0.2), (0.6, 0.4)))  # two bodies that touch
    assert fragments(one).count == 2
    first = one.of(0)
    assert fragments(first).count == 1
    moved = first.x.clone()
    moved[first.rest[:, 0] > 0.3] += torch.tensor([0.06, 0.0])  # half of it, 0.11 away
    moved[0] -= 0.1
    parted = dataclasses.replace(first, x=moved)
    found = fragments(parted)
    assert found.count == 2
    assert found.labels[0] == -1
    assert sorted(torch.bincount(found.labels[1:]).tolist()) == [7, 8]
    assert int((found.labels == 0).sum()) == 8  # the largest comes first
    assert fragments(parted, reach=2.5).count == 1
    assert fragments(parted, least=8).count == 1
    assert fragments(parted, least=1).count == 3


def test_a_crack_parts_a_body_before_it_opens():
    whole = state(((0.2, 0.2), (0.45, 0.4)))
    alpha = whole.alpha.clone()
    alpha[(whole.x[:, 0] - 0.325).abs() < 0.01] = 0.02
    cracked = dataclasses.replace(whole, alpha=alpha)
    assert int(fracture_mask(cracked).sum()) == 4
    assert fragments(cracked).count == 1
    assert fragments(cracked, intact_only=True).count == 2
    assert not bool(fracture_mask(cracked, threshold=0.05).any())
    elastic = dataclasses.replace(state(((0.2, 0.2), (0.45, 0.4)), material=NeoHookean(1.0)), alpha=alpha)
    assert not bool(fracture_mask(elastic).any())
    with pytest.raises(ValueError, match="reach must be > 0, got 0"):
        fragments(cracked, reach=0)


def test_gap_and_penetration():
    apart = state(((0.2, 0.2), (0.4, 0.4)), ((0.5, 0.2), (0.7, 0.4)))
    assert gap(apart) == pytest.approx(0.15)
    assert penetration(apart) == 0
    half = state(((0.2, 0.2), (0.4, 0.4)), ((0.3, 0.2), (0.7, 0.4)))
    assert penetration(half) == pytest.approx(0.5)


# --- ellipsoids -------------------------------------------------------------------------------------------------------


def profile(r1, r2, D, count=2001):
    """Points (x, distance from the axis) of the surface of the overlap of two balls at 0 and D."""
    t = np.linspace(0, np.pi, count)
    arcs = np.concatenate(
        [np.stack([r1 * np.cos(t), r1 * np.sin(t)], 1), np.stack([D + r2 * np.cos(t), r2 * np.sin(t)], 1)]
    )
    within = (np.hypot(*arcs.T) <= r1 * (1 + 1e-9)) & (np.hypot(arcs[:, 0] - D, arcs[:, 1]) <= r2 * (1 + 1e-9))
    rim = (D**2 + r1**2 - r2**2) / (2 * D)
    ends = [(rim, np.sqrt(max(r1**2 - rim**2, 0))), (r1, 0.0), (D - r2, 0.0)] if abs(r1 - r2) < D else []
    return np.concatenate([arcs[within], np.array(ends).reshape(-1, 2)])


def lens(r1, r2, D):
    tensor = torch.tensor
    found = mvee_lens(
        torch.zeros(1, 3, dtype=torch.float64),
        tensor([r1], dtype=torch.float64),
        tensor([[D, 0.0, 0.0]], dtype=torch.float64),
        tensor([r2], dtype=torch.float64),
    )
    return float(found.center[0, 0]), float(found.axial), float(found.radial)


def least_volume(points, grid=120):
    """Least axial * radial^2 of an ellipsoid of revolution about points (x, rho), by brute force."""
    low, high = points[:, 0].min(), points[:, 0].max()
    rim = points[points[:, 1] > 1e-9]
    centre = np.linspace(low, high, grid)[:, None, None]
    axial = np.linspace((high - low) / 2, high - low, grid)[None, :, None]
    room = 1 - ((rim[:, 0] - centre) / axial) ** 2
    fits = (room > 1e-9).all(-1) & (np.maximum(high - centre, centre - low)[..., 0] <= axial[..., 0] * (1 + 1e-9))
    volume = axial[..., 0] * (rim[:, 1] ** 2 / np.maximum(room, 1e-12)).max(-1)
    return float(volume[fits].min())


@settings(max_examples=100, deadline=None)
@given(st.floats(0.1, 2), st.floats(0.1, 2), st.floats(0.001, 0.999))
def test_the_ellipsoid_holds_the_overlap_and_is_no_larger_than_the_smaller_ball(r1, r2, share):
    D = abs(r1 - r2) + share * (r1 + r2 - abs(r1 - r2))
    center, axial, radial = lens(r1, r2, D)
    x, rho = profile(r1, r2, D).T
    assert float((((x - center) / axial) ** 2 + (rho / radial) ** 2).max()) < 1 + 1e-6
    assert axial * radial**2 <= min(r1, r2) ** 3 * (1 + 1e-9)
    assert axial <= radial * (1 + 1e-9)


@pytest.mark.parametrize(
    ("r1", "r2", "D"),
    [(1, 1, 0.7), (1, 1, 1.8), (1, 0.6, 0.9), (1, 0.6, 1.4), (1, 0.3, 1.0), (1, 0.3, 0.85), (1, 0.9, 0.3)],
)
def test_no_ellipsoid_is_smaller(r1, r2, D):
    _, axial, radial = lens(r1, r2, D)
    best = least_volume(profile(r1, r2, D, 801))
    assert axial * radial**2 == pytest.approx(best, rel=0.02)
    assert axial * radial**2 <= best * (1 + 1e-9)


def test_equal_radii_have_the_simple_form_and_the_order_does_not_matter():
    assert lens(0.5, 0.5, 0.6) == pytest.approx((0.3, 0.2, 0.4))
    swapped = mvee_lens(torch.tensor([[0.9, 0.0, 0.0]]), torch.tensor([0.6]), torch.zeros(1, 3), torch.tensor([1.0]))
    assert (float(swapped.center[0, 0]), float(swapped.axial), float(swapped.radial)) == pytest.approx(
        lens(1.0, 0.6, 0.9), rel=1e-5
    )


def test_a_ball_within_a_ball_stays_and_the_form_is_continuous():
    for D in (0.0, 0.3, 0.4):
        assert lens(1.0, 0.6, D) == pytest.approx((D, 0.6, 0.6))
    for r1, r2, D in ((1.0, 0.6, 0.4), (1.0, 0.3, 0.9487), (1.0, 1.0, 1.99)):
        near = (lens(r1, r2, D - 1e-7), lens(r1, r2, D + 1e-7))
        assert near[0] == pytest.approx(near[1], abs=2e-3)
    # Where the smaller ball's own tip takes over from the rim, x0 - D = r2 / 3.
    r1, r2 = 1.0, 0.6
    D = -r2 / 3 + math.sqrt(r2**2 / 9 + r1**2 - r2**2)
    assert lens(r1, r2, D - 1e-9) == pytest.approx(lens(r1, r2, D + 1e-9), abs=1e-6)


def test_gradients_of_the_ellipsoid():
    c2 = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64, requires_grad=True)
    r = torch.tensor([[0.5], [0.45]], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda c, q: mvee_lens(zero, q[0], c, q[1]), (c2, r))


def test_broken_gaussians_become_ellipsoids_of_their_nearest_intact_neighbours():
    means = torch.tensor(
        [[0.0, 0, 0], [0.3, 0, 0], [0, -0.4, 0], [0, 0, 0.45], [0.05, 0.05, 0], [5, 5, 5], [9, 0, 0]],
        dtype=torch.float64,
    )
    fractured = torch.tensor([True, False, False, False, True, True, False])
    radii = torch.full((7,), 0.5, dtype=torch.float64)
    colors = torch.linspace(0, 1, 21, dtype=torch.float64).reshape(7, 3)
    opacities = torch.linspace(0.2, 0.8, 7, dtype=torch.float64)
    cloud = fracture_gaussians(means, radii, fractured, 1.0, colors=colors, opacities=opacities, c=2.0)
    assert len(cloud) == 4 + 1 + 4  # intact, the lonely broken one, two for each of the others
    assert cloud.crack.tolist() == [False] * 5 + [True] * 4
    torch.testing.assert_close(cloud.means[4], means[5])
    torch.testing.assert_close(cloud.scales[4], torch.full((3,), 0.25, dtype=torch.float64))
    # Particle 0 has 1 and 2 for nearest intact ones: not 4, which is broken, and not 3, the third.
    torch.testing.assert_close(cloud.means[5], torch.tensor([0.15, 0.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(cloud.means[6], torch.tensor([0.0, -0.2, 0.0], dtype=torch.float64))
    torch.testing.assert_close(cloud.colors()[5:7], colors[[0, 0]])
    torch.testing.assert_close(cloud.opacities[7:], opacities[[4, 4]])
    expected = torch.diag(torch.tensor([0.3**2, 0.5**2 - 0.2**2, 0.5**2 - 0.2**2], dtype=torch.float64))[[1, 0, 2]][
        :, [1, 0, 2]
    ]
    torch.testing.assert_close(cloud.covariance()[6] * 4, expected)
    one = fracture_gaussians(means, radii, fractured, 1.0, neighbours=1)
    assert int(one.crack.sum()) == 2
    assert not bool(fracture_gaussians(means, radii, fractured, 0.1).crack.any())
    assert len(fracture_gaussians(means, radii, torch.ones(7, dtype=torch.bool), 1.0)) == 7


def test_bad_arguments():
    zero, one = torch.zeros(2, 3), torch.ones(2)
    with pytest.raises(ValueError, match="2 pairs of balls do not overlap: leave them out"):
        mvee_lens(zero, one, zero + 3, one)
    with pytest.raises(ValueError, match=r"r2 must be > 0 everywhere, got 0\.0"):
        mvee_lens(zero, one, zero, 0 * one)
    flags = torch.tensor([True, False])
    for change, said in (
        ({"d_c": 0.0}, "d_c must be > 0, got 0.0"),
        ({"c": -1.0}, "c must be > 0, got -1.0"),
        ({"neighbours": 0}, "neighbours must be >= 1, got 0"),
        ({"radii": torch.ones(3)}, r"radii must have shape \(2,\), got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=said):
            fracture_gaussians(**{"means": zero, "radii": one, "fractured": flags, "d_c": 1.0, **change})
