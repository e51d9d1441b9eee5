"""Clouds, their files and their pictures."""

import numpy as np
import pytest
import torch

from paperworks.simulation.collision_mpm import Camera, GaussianCloud, render, render_points
from paperworks.simulation.collision_mpm.gaussians import quaternion, rotation_matrix
from paperworks.simulation.collision_mpm.splatting import harmonics, work

from . import reference


def cloud(n=8, harmonic=1, seed=0, crack=False):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return GaussianCloud(
        means=0.2 * draw(n, 3),
        scales=0.03 + 0.05 * draw(n, 3).abs(),
        rotations=draw(n, 4),
        opacities=torch.sigmoid(draw(n)),
        sh=0.5 * draw(n, harmonic, 3),
        crack=draw(n) > 0 if crack else torch.zeros(n, dtype=torch.bool),
    )


CAMERA = Camera((0.3, 0.5, 2.0), (0.0, 0.1, 0.0), fov=35, width=20, height=14)


def test_quaternions():
    q = torch.randn(500, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q = torch.cat([q, torch.eye(4, dtype=torch.float64)])
    R = rotation_matrix(q)
    torch.testing.assert_close(R @ R.mT, torch.eye(3, dtype=torch.float64).expand_as(R))
    torch.testing.assert_close(torch.linalg.det(R), torch.ones(len(R), dtype=R.dtype))
    torch.testing.assert_close(rotation_matrix(quaternion(R)), R)
    quarter = rotation_matrix(torch.tensor([[1.0, 0.0, 0.0, 1.0]]))[0]  # about z: x goes to y
    torch.testing.assert_close(quarter @ torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 1.0, 0.0]))


def test_deformed_covariance_is_F_Sigma_Ft():
    start = cloud()
    F = torch.eye(3, dtype=torch.float64) + 0.4 * torch.randn(
        8, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    torch.testing.assert_close(start.deformed(F).covariance(), F @ start.covariance() @ F.mT)


def test_ellipsoids_are_thin_along_their_axis():
    axis = torch.nn.functional.normalize(
        torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64), dim=1
    )
    axis = torch.cat([axis, -torch.eye(3, dtype=torch.float64)])
    made = GaussianCloud.ellipsoids(
        torch.zeros_like(axis),
        axis,
        torch.full((9,), 0.1, dtype=torch.float64),
        torch.full((9,), 0.3, dtype=torch.float64),
    )
    along = axis[:, :, None] * axis[:, None, :]
    torch.testing.assert_close(made.covariance(), 0.01 * along + 0.09 * (torch.eye(3) - along))


@pytest.mark.parametrize("harmonic", [1, 4, 16])
def test_ply_files_come_back_and_have_the_names_of_3dgs(tmp_path, harmonic):
    from plyfile import PlyData

    start = cloud(harmonic=harmonic, crack=True)
    start.to_ply(tmp_path / "a.ply")
    vertex = PlyData.read(str(tmp_path / "a.ply"))["vertex"]
    names = [p.name for p in vertex.properties]
    rest = [f"f_rest_{i}" for i in range(3 * (harmonic - 1))]
    expected = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2", *rest, "opacity"]
    assert names == [*expected, "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3", "crack"]
    np.testing.assert_allclose(vertex["scale_1"], start.scales[:, 1].log(), rtol=1e-6)
    np.testing.assert_allclose(vertex["opacity"], torch.logit(start.opacities), rtol=1e-5)
    if harmonic > 1:  # channel by channel: first all of red
        np.testing.assert_allclose(vertex["f_rest_1"], start.sh[:, 2, 0] if harmonic > 2 else 0, rtol=1e-6)
    back = GaussianCloud.from_ply(tmp_path / "a.ply")
    for name in ("means", "scales", "rotations", "opacities", "sh", "crack"):
        torch.testing.assert_close(
            getattr(back, name), getattr(start, name).to(getattr(back, name).dtype), rtol=1e-5, atol=1e-6
        )


def test_a_file_of_another_kind_is_refused(tmp_path):
    import trimesh

    trimesh.creation.box().export(tmp_path / "box.ply")
    with pytest.raises(ValueError, match="has no vertex attribute 'f_dc_0'; 3D Gaussian Splatting writes one"):
        GaussianCloud.from_ply(tmp_path / "box.ply")


def test_harmonics_are_orthonormal_and_signed_as_in_3dgs():
    z, w = np.polynomial.legendre.leggauss(8)
    phi = np.arange(16) * 2 * np.pi / 16
    Z, P = np.meshgrid(z, phi, indexing="ij")
    s = np.sqrt(1 - Z**2)
    directions = torch.from_numpy(np.stack([s * np.cos(P), s * np.sin(P), Z], -1).reshape(-1, 3))
    weight = torch.from_numpy(np.repeat(w, 16) * 2 * np.pi / 16)
    Y = harmonics(directions, 16)
    torch.testing.assert_close(Y.T @ (weight[:, None] * Y), torch.eye(16, dtype=torch.float64), atol=1e-12, rtol=0)
    x = harmonics(torch.tensor([[0.6, 0.48, 0.64]], dtype=torch.float64), 16)[0]
    # Constants as printed in the code of 3DGS.
    assert x[1:4].tolist() == pytest.approx([-0.4886025 * 0.48, 0.4886025 * 0.64, -0.4886025 * 0.6])
    assert float(x[4]) == pytest.approx(1.0925484 * 0.6 * 0.48)
    assert float(x[5]) == pytest.approx(-1.0925484 * 0.48 * 0.64)
    assert float(x[10]) == pytest.approx(2.8906114 * 0.6 * 0.48 * 0.64)
    assert float(x[9]) == pytest.approx(-0.5900436 * 0.48 * (3 * 0.36 - 0.2304))


@pytest.mark.parametrize("nearest_only", [True, False])
def test_pictures_are_the_reference(nearest_only):
    scene = cloud(crack=True)
    picture = render(scene, CAMERA, nearest_only=nearest_only, tile=6)
    expected = reference.splat(
        scene.means.numpy(),
        scene.covariance().numpy(),
        scene.opacities.numpy(),
        scene.colors().clamp(min=0).numpy(),
        scene.crack.numpy(),
        CAMERA.axes().numpy(),
        np.array(CAMERA.position),
        CAMERA.focal,
        20,
        14,
        nearest_only,
    )
    np.testing.assert_allclose(picture.image, expected, atol=1e-9)
    assert float(picture.opacity.max()) > 0.3
    assert float((picture.image - render(scene, CAMERA, nearest_only=not nearest_only).image).abs().max()) > 1e-3


def test_the_camera_sees_right_and_up_where_they_are():
    camera = Camera((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), width=40, height=30)
    points = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.5, 0.0]], dtype=torch.float64)
    pixel, depth = camera.project(points)
    assert pixel[0].tolist() == pytest.approx([20.0, 15.0])
    assert pixel[1, 0] > 20
    assert pixel[2, 1] < 15
    assert depth.tolist() == pytest.approx([3.0] * 3)
    edge = camera.project(torch.tensor([[0.0, 3 * np.tan(np.radians(20)), 0.0]], dtype=torch.float64))[0]
    assert float(edge[0, 1]) == pytest.approx(0.0, abs=1e-12)


def test_gradients_of_a_picture():
    scene = cloud(3, harmonic=4)
    camera = Camera(CAMERA.position, CAMERA.target, fov=35, width=6, height=5)

    def draw(means, scales, rotations, opacities, sh):
        return render(GaussianCloud(means, scales, rotations, opacities, sh, scene.crack), camera).image

    inputs = [
        getattr(scene, name).clone().requires_grad_() for name in ("means", "scales", "rotations", "opacities", "sh")
    ]
    assert torch.autograd.gradcheck(draw, inputs, eps=1e-7, atol=1e-4)


def test_what_is_behind_the_camera_or_absent_is_not_drawn():
    scene = cloud(2)
    behind = GaussianCloud.isotropic(torch.tensor([[0.3, 0.5, 2.5]], dtype=torch.float64), 0.1)
    assert torch.equal(render(scene.join(behind), CAMERA).image, render(scene, CAMERA).image)
    empty = render(scene.where(torch.zeros(2, dtype=torch.bool)), CAMERA, background=(0.2, 0.4, 0.6))
    assert empty.image[3, 5].tolist() == [0.2, 0.4, 0.6]
    assert float(empty.opacity.max()) == 0.0


def test_work_counts_pairs_of_gaussian_and_tile():
    camera = Camera((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), width=64, height=64)
    dot = GaussianCloud.isotropic(torch.tensor([[0.1, 0.1, 0.0]], dtype=torch.float64), 1e-4)
    assert work(dot, camera) == 1
    assert work(GaussianCloud.isotropic(dot.means, 1.0), camera) == 16
    assert work(dot.join(dot), camera) == 2


def test_points_hide_what_is_behind_them():
    camera = Camera((0.0, 0.0, 3.0), (0.0, 0.0, 0.0), width=8, height=8)
    points = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5]], dtype=torch.float64)
    colors = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    for order in ([0, 1], [1, 0]):
        picture = render_points(points[order], colors[order], camera, background=(0.0, 0.0, 0.0))
        assert picture.image[3:5, 3:5].reshape(-1, 3).tolist() == [[0.0, 1.0, 0.0]] * 4
        assert float(picture.opacity.sum()) == 4


def test_gsplat_is_asked_for_by_name():
    with pytest.raises(ValueError, match="nearest_only needs rasteriser 'torch'"):
        render(cloud(crack=True), CAMERA, rasteriser="gsplat")
    with pytest.raises(ValueError, match="rasteriser must be 'torch' or 'gsplat', got 'opengl'"):
        render(cloud(), CAMERA, rasteriser="opengl")


def test_bad_shapes():
    good = cloud(3)
    with pytest.raises(ValueError, match=r"scales must have shape \(3, 3\), got \(2, 3\)"):
        GaussianCloud(good.means, good.scales[:2], good.rotations, good.opacities, good.sh, good.crack)
    with pytest.raises(ValueError, match=r"sh must have shape \(3, 1|4|9|16, 3\), got \(3, 2, 3\)"):
        GaussianCloud(good.means, good.scales, good.rotations, good.opacities, good.sh.repeat(1, 2, 1), good.crack)
    for options, said in (
        ({"fov": 180}, r"fov must lie in \(0, 180\) degrees, got 180"),
        ({"width": 0}, "width and height must be >= 1, got 0 x 96"),
        ({"up": (0.0, 0.0, 1.0)}, "position, target and up must span a plane"),
    ):
        with pytest.raises(ValueError, match=said):
            Camera((0.0, 0.0, 2.0), (0.0, 0.0, 0.0), **options)
