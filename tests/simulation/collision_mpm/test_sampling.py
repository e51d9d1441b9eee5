"""Particles within shapes."""

import math

import numpy as np
import pytest
import torch
import trimesh

from paperworks.simulation.collision_mpm import lattice, sample_mesh, sample_sdf, teapot, winding_number


def test_winding_numbers_of_a_ball_and_of_one_with_a_hole():
    ball = trimesh.creation.icosphere(subdivisions=2, radius=1.0)
    triangles = torch.from_numpy(np.array(ball.triangles, dtype=np.float64))
    points = torch.tensor([[0.0, 0, 0], [0.9, 0, 0], [0, 1.1, 0], [3, 3, 3]], dtype=torch.float64)
    inside = torch.tensor([1.0, 1, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(winding_number(points, triangles), inside, atol=1e-12, rtol=0)
    assert torch.equal(winding_number(points, triangles, chunk=500), winding_number(points, triangles))
    holed = winding_number(points, triangles[3:])
    assert float((holed - inside).abs().max()) < 0.1
    assert not torch.equal(holed, inside)


def test_samples_fill_a_ball():
    g = torch.Generator().manual_seed(0)
    found = sample_sdf(lambda x: x.norm(dim=1) - 0.4, 3000, low=(-0.5,) * 3, high=(0.5,) * 3, generator=g)
    assert len(found.points) == pytest.approx(3000, rel=0.03)
    assert len(found.points) * found.volume == pytest.approx(4 / 3 * math.pi * 0.4**3, rel=0.02)
    assert float(found.points.norm(dim=1).max()) <= 0.4
    mesh = trimesh.creation.icosphere(subdivisions=2, radius=0.4)
    meshed = sample_mesh(mesh, 500, generator=g)
    assert len(meshed.points) * meshed.volume == pytest.approx(float(mesh.volume), rel=0.05)


def test_a_disc_in_the_plane():
    found = sample_sdf(lambda x: (x - 0.5).norm(dim=1) - 0.3, 500, low=(0.0, 0.0), high=(1.0, 1.0))
    assert found.points.shape[1] == 2
    assert len(found.points) * found.volume == pytest.approx(math.pi * 0.09, rel=0.03)


def test_lattice():
    still = lattice((0.0, 1.0), (1.0, 1.5), 0.25)
    assert len(still) == 8
    assert still[0].tolist() == [0.125, 1.125]
    moved = lattice((0.0, 1.0), (1.0, 1.5), 0.25, jitter=0.4, generator=torch.Generator().manual_seed(0))
    assert 0 < float((moved - still).abs().max()) <= 0.1


def test_the_teapot_is_a_teapot():
    mesh = teapot(2)
    assert mesh.faces.shape == (32 * 2 * 4, 3)
    assert mesh.vertices.min(0).tolist() == pytest.approx([0, 0, 0])
    x, y, z = mesh.vertices.max(0)
    assert x == 1.0  # from handle to spout
    assert 0.4 < y < 0.6
    assert 0.5 < z < 0.7
    found = sample_mesh(mesh, 300)  # type: ignore[arg-type]
    centre = found.points.mean(0)
    assert float(centre[2]) == pytest.approx(z / 2, abs=0.01)  # it is symmetric
    triangles = torch.from_numpy(mesh.vertices)[torch.from_numpy(mesh.faces)]
    enclosed = float(torch.linalg.det(triangles).sum()) / 6  # what spout and handle share with the body counts twice
    assert len(found.points) * found.volume == pytest.approx(enclosed, rel=0.1)
    middle = torch.tensor([[0.5, 0.2, float(z) / 2]], dtype=torch.float64)
    assert float(winding_number(middle, triangles)) == pytest.approx(1.0, abs=0.05)


def test_bad_arguments():
    with pytest.raises(ValueError, match="sdf is > 0 everywhere in the box"):
        sample_sdf(lambda x: torch.ones(len(x)), 10)
    with pytest.raises(ValueError, match="n must be >= 1, got 0"):
        sample_sdf(lambda x: -torch.ones(len(x)), 0)
    with pytest.raises(ValueError, match="spacing must be > 0, got -1"):
        lattice((0.0,), (1.0,), -1)
    with pytest.raises(ValueError, match="jitter must lie in"):
        lattice((0.0,), (1.0,), 0.1, jitter=0.6)
    with pytest.raises(ValueError, match="resolution must be >= 1, got 0"):
        teapot(0)
