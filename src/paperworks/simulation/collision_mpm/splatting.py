"""A small rasteriser of Gaussians in torch: EWA projection, depth-sorted compositing, tile by tile; differentiable."""

import dataclasses
import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .gaussians import GaussianCloud

DILATION = 0.3  # square pixels added to every projected covariance, as 3DGS does
FAINTEST = 1 / 255
BRIGHTEST = 0.99


@dataclasses.dataclass(frozen=True)
class Camera:
    """A pinhole camera.

    Args:
        position: Where it stands (3 numbers).
        target: What it looks at (3 numbers).
        up: Which way is up (3 numbers), not along the view.
        fov: Vertical field of view, degrees, in (0, 180).
        width: Pixels.
        height: Pixels.
        near: Least depth that is drawn > 0.
    """

    position: tuple[float, float, float]
    target: tuple[float, float, float]
    up: tuple[float, float, float] = (0.0, 1.0, 0.0)
    fov: float = 40.0
    width: int = 96
    height: int = 96
    near: float = 1e-2

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if not 0 < self.fov < 180:
            raise ValueError(f"fov must lie in (0, 180) degrees, got {self.fov}")
        if self.width < 1 or self.height < 1:
            raise ValueError(f"width and height must be >= 1, got {self.width} x {self.height}")
        if not torch.linalg.vector_norm(self.axes()).isfinite():
            raise ValueError("position, target and up must span a plane")

    def axes(self) -> Tensor:
        """Rows: right, down and forward in world coordinates (3, 3), float64."""
        forward = torch.tensor(self.target, dtype=torch.float64) - torch.tensor(self.position, dtype=torch.float64)
        forward = forward / forward.norm()
        right = torch.linalg.cross(forward, torch.tensor(self.up, dtype=torch.float64))
        right = right / right.norm()
        return torch.stack([right, torch.linalg.cross(forward, right), forward])

    @property
    def focal(self) -> float:
        """Focal length in pixels."""
        return self.height / (2 * math.tan(math.radians(self.fov) / 2))

    def see(self, points: Tensor) -> Tensor:
        """Points (n, 3) in the camera's frame (n, 3): right, down, forward."""
        position = torch.tensor(self.position, dtype=points.dtype, device=points.device)
        return (points - position) @ self.axes().to(points).T

    def project(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Pixel coordinates (n, 2), x and y from the upper left corner, and depths (n,), of points (n, 3)."""
        seen = self.see(points)
        centre = torch.tensor([self.width / 2, self.height / 2], dtype=points.dtype, device=points.device)
        return self.focal * seen[:, :2] / seen[:, 2:] + centre, seen[:, 2]


class Rendering(NamedTuple):
    """A picture.

    Attributes:
        image: RGB (height, width, 3).
        opacity: Share of light that the cloud stops (height, width).
    """

    image: Tensor
    opacity: Tensor


def harmonics(directions: Tensor, count: int) -> Tensor:
    """Real spherical harmonics as 3DGS orders and signs them.

    Args:
        directions: Unit vectors (n, 3).
        count: 1, 4, 9 or 16.

    Returns:
        (n, count).
    """
    x, y, z = directions.unbind(-1)
    pi = math.pi
    found = [torch.full_like(x, 0.5 / math.sqrt(pi))]
    if count >= 4:
        a = math.sqrt(3 / (4 * pi))
        found += [-a * y, a * z, -a * x]
    if count >= 9:
        a, b, c = math.sqrt(15 / (4 * pi)), math.sqrt(5 / (16 * pi)), math.sqrt(15 / (16 * pi))
        found += [a * x * y, -a * y * z, b * (3 * z * z - 1), -a * x * z, c * (x * x - y * y)]
    if count >= 16:
        a, b = math.sqrt(35 / (32 * pi)), math.sqrt(105 / (4 * pi))
        c, d, e = math.sqrt(21 / (32 * pi)), math.sqrt(7 / (16 * pi)), math.sqrt(105 / (16 * pi))
        found += [
            -a * y * (3 * x * x - y * y),
            b * x * y * z,
            -c * y * (5 * z * z - 1),
            d * z * (5 * z * z - 3),
            -c * x * (5 * z * z - 1),
            e * z * (x * x - y * y),
            -a * x * (x * x - 3 * y * y),
        ]
    return torch.stack(found, -1)


def render(
    cloud: GaussianCloud,
    camera: Camera,
    *,
    background: tuple[float, float, float] = (1.0, 1.0, 1.0),
    nearest_only: bool = True,
    tile: int = 16,
    rasteriser: Literal["torch", "gsplat"] = "torch",
) -> Rendering:
    """Draw a cloud.

    Args:
        cloud: The Gaussians.
        camera: Whence they are seen.
        background: RGB behind them.
        nearest_only: Along each ray, draw only the nearest of the Gaussians flagged as ``crack`` (the paper's occlusion
            rule).
        tile: Edge of a tile in pixels.
        rasteriser: "torch", or "gsplat" (a GPU and the package of that name; without the occlusion rule).

    Returns:
        The picture; gradients reach means, scales, rotations, opacities and colours.
    """
    if rasteriser == "gsplat":
        return _gsplat(cloud, camera, background, nearest_only)
    if rasteriser != "torch":
        raise ValueError(f"rasteriser must be 'torch' or 'gsplat', got {rasteriser!r}")
    seen = camera.see(cloud.means)
    order = torch.argsort(seen[:, 2].detach(), stable=True)
    order = order[seen[order, 2].detach() > camera.near]
    seen, cloud = seen[order], cloud.where(order)
    pixel, inverse, reach = _projected(cloud, camera, seen)
    toward = cloud.means - torch.tensor(camera.position, dtype=seen.dtype, device=seen.device)
    basis = harmonics(toward / toward.norm(dim=-1, keepdim=True), cloud.sh.shape[1])
    color = (0.5 + (basis[:, :, None] * cloud.sh).sum(1)).clamp(min=0)
    back = torch.tensor(background, dtype=seen.dtype, device=seen.device)
    rows = []
    for top in range(0, camera.height, tile):
        row = []
        for left in range(0, camera.width, tile):
            wide, high = min(tile, camera.width - left), min(tile, camera.height - top)
            corner = torch.tensor([left, top], dtype=seen.dtype, device=seen.device)
            far = corner + torch.tensor([wide, high], dtype=seen.dtype, device=seen.device)
            hit = ((pixel + reach > corner) & (pixel - reach < far)).all(1).detach()
            grid = torch.meshgrid(
                torch.arange(high, dtype=seen.dtype, device=seen.device) + top + 0.5,
                torch.arange(wide, dtype=seen.dtype, device=seen.device) + left + 0.5,
                indexing="ij",
            )
            points = torch.stack([grid[1], grid[0]], -1).reshape(-1, 1, 2)
            r = points - pixel[hit]
            a, b, c = inverse[hit].unbind(-1)
            power = -0.5 * (a * r[..., 0] ** 2 + c * r[..., 1] ** 2) - b * r[..., 0] * r[..., 1]
            alpha = (cloud.opacities[hit] * power.exp()).clamp(max=BRIGHTEST)
            alpha = torch.where(alpha < FAINTEST, 0.0, alpha)
            if nearest_only:
                crack = cloud.crack[hit]
                if bool(crack.any()):
                    seen_before = ((alpha > 0) & crack).cumsum(1) > 1
                    alpha = torch.where(crack & seen_before, 0.0, alpha)
            through = torch.cumprod(1 - alpha, 1)
            weight = alpha * torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], 1)
            stopped = weight.sum(1)
            shade = weight @ color[hit] + (1 - stopped)[:, None] * back
            row.append(torch.cat([shade, stopped[:, None]], 1).reshape(high, wide, 4))
        rows.append(torch.cat(row, 1))
    picture = torch.cat(rows, 0)
    return Rendering(picture[..., :3], picture[..., 3])


def _projected(cloud: GaussianCloud, camera: Camera, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pixel coordinates (n, 2), inverse covariance in pixels as (xx, xy, yy) (n, 3), and reach in pixels (n, 2)."""
    focal = camera.focal
    centre = torch.tensor([camera.width / 2, camera.height / 2], dtype=seen.dtype, device=seen.device)
    x, y, z = seen.unbind(-1)
    pixel = focal * seen[:, :2] / z[:, None] + centre
    # Far outside the view the linearisation would blow up: it is taken at the edge.
    limit = 1.3 * centre / focal
    u = torch.maximum(torch.minimum(x / z, limit[0]), -limit[0])
    v = torch.maximum(torch.minimum(y / z, limit[1]), -limit[1])
    zero = torch.zeros_like(z)
    J = torch.stack(
        [torch.stack([focal / z, zero, -focal * u / z], -1), torch.stack([zero, focal / z, -focal * v / z], -1)], -2
    )
    T = J @ camera.axes().to(seen)
    flat = T @ cloud.covariance() @ T.mT
    xx, xy, yy = flat[:, 0, 0] + DILATION, flat[:, 0, 1], flat[:, 1, 1] + DILATION
    det = xx * yy - xy * xy
    reach = 3.5 * torch.stack([xx, yy], -1).sqrt()  # beyond it an opaque Gaussian is fainter than 1/255
    return pixel, torch.stack([yy, -xy, xx], -1) / det[:, None], reach.detach()


def _gsplat(
    cloud: GaussianCloud, camera: Camera, background: tuple[float, float, float], nearest_only: bool
) -> Rendering:
    """The same by gsplat, on a GPU."""
    if nearest_only and bool(cloud.crack.any()):
        raise ValueError("nearest_only needs rasteriser 'torch'; gsplat composes all Gaussians along a ray")
    try:
        from gsplat import rasterization
    except ModuleNotFoundError:
        raise ImportError("rasteriser 'gsplat' needs a GPU and the package gsplat: pip install gsplat") from None
    device = cloud.means.device
    view = torch.eye(4, device=device)
    view[:3, :3] = camera.axes().float()
    view[:3, 3] = -view[:3, :3] @ torch.tensor(camera.position, device=device)
    K = torch.tensor(
        [[camera.focal, 0, camera.width / 2], [0, camera.focal, camera.height / 2], [0, 0, 1]], device=device
    )
    image, opacity, _ = rasterization(
        cloud.means.float(),
        cloud.rotations.float(),
        cloud.scales.float(),
        cloud.opacities.float(),
        cloud.sh.float(),
        view[None],
        K[None],
        camera.width,
        camera.height,
        near_plane=camera.near,
        sh_degree=math.isqrt(cloud.sh.shape[1]) - 1,
        backgrounds=torch.tensor([background], device=device),
    )
    return Rendering(image[0], opacity[0, ..., 0])


def render_points(
    points: Tensor, colors: Tensor, camera: Camera, *, background: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Rendering:
    """Draw opaque points two pixels wide with a depth buffer; the nearest is seen.

    Args:
        points: Positions (n, 3).
        colors: RGB (n, 3).
        camera: Whence they are seen.
        background: RGB behind them.
    """
    pixel, depth = camera.project(points)
    low = torch.floor(pixel - 0.5).long()
    target = torch.full((camera.height * camera.width,), torch.inf, dtype=depth.dtype, device=depth.device)
    spots = []
    for right in (0, 1):
        for down in (0, 1):
            x, y = low[:, 0] + right, low[:, 1] + down
            good = (depth > camera.near) & (x >= 0) & (x < camera.width) & (y >= 0) & (y < camera.height)
            rows = torch.nonzero(good).squeeze(1)
            spots.append((rows, y[rows] * camera.width + x[rows]))
            target.scatter_reduce_(0, spots[-1][1], depth[rows], "amin")
    back = torch.tensor(background, dtype=colors.dtype, device=colors.device)
    image = back.repeat(len(target), 1)
    for rows, spot in spots:
        front = depth[rows] <= target[spot]
        image[spot[front]] = colors[rows[front]]
    shape = (camera.height, camera.width)
    return Rendering(image.reshape(*shape, 3), torch.isfinite(target).to(colors.dtype).reshape(shape))


def work(cloud: GaussianCloud, camera: Camera, tile: int = 16) -> int:
    """Pairs of Gaussian and tile that `render` composes: what a picture costs, whatever the machine.

    Args:
        cloud: The Gaussians.
        camera: Whence they are seen.
        tile: Edge of a tile in pixels.
    """
    seen = camera.see(cloud.means)
    cloud, seen = cloud.where(seen[:, 2] > camera.near), seen[seen[:, 2] > camera.near]
    pixel, _, reach = _projected(cloud, camera, seen)
    first = torch.floor((pixel - reach) / tile).clamp(min=0)
    edge = torch.tensor([-(-camera.width // tile), -(-camera.height // tile)], dtype=seen.dtype, device=seen.device)
    last = torch.minimum(torch.ceil((pixel + reach) / tile), edge)
    return int((last - first).clamp(min=0).prod(1).sum())
