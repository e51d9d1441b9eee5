"""Pairs of pictures with an exact flow, made from photographs: moving layers, their flow and their occlusions.

A layer has a texture (a window of a photograph), a mask and a forward map p -> A p + t, projective if asked for, plus a
low-frequency displacement. Frame 2 is sampled by the inverse map, found by fixed-point iteration, so that the flow is
the forward map itself and not an estimate.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from scipy import ndimage

Picture = npt.NDArray[np.uint8]
Array = npt.NDArray[np.float32]
MOTIONS = ("translation", "affine", "homography", "smooth", "layers")


class FlowPair(NamedTuple):
    """A pair with its truth.

    Attributes:
        image1: First picture (h, w, 3), RGB 0..255.
        image2: Second picture (h, w, 3).
        flow: Motion of each pixel of the first picture (h, w, 2) as (x, y), pixels.
        occluded: Pixels of the first picture that are covered or outside in the second (h, w).
    """

    image1: Picture
    image2: Picture
    flow: Array
    occluded: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MotionModel:
    """How layers move; lengths in pixels of a picture of 128 pixels, scaled with the picture.

    Attributes:
        shift: Deviation of a translation.
        far_shift: Deviation for the share `far` of objects, so that displacements have a tail.
        far: That share.
        scale: Largest change of size, as a share.
        rotation: Largest rotation, degrees.
        perspective: Deviation of a corner's displacement by the projective part.
        smooth: Deviation of the low-frequency displacement at the points of a 4x4 grid.
        objects: Fewest and most objects.
        gamma: Largest change of the exponent of the grey values.
        noise: Deviation of the noise, grey levels.
    """

    shift: float = 4.0
    far_shift: float = 14.0
    far: float = 0.3
    scale: float = 0.1
    rotation: float = 8.0
    perspective: float = 4.0
    smooth: float = 1.5
    objects: tuple[int, int] = (3, 6)
    gamma: float = 0.2
    noise: float = 2.0


class _Map:
    """A forward map with its inverse: projective matrix, then a smooth displacement of the result."""

    def __init__(self, matrix: npt.NDArray[np.float64], bend: Array | None) -> None:
        self.matrix, self.bend = matrix, bend

    def _bent(self, p: Array) -> Array:
        """The smooth displacement at positions (h, w, 2), constant beyond the border."""
        assert self.bend is not None  # asked of bent maps only
        return _sample(self.bend, p, "nearest")

    def forward(self, p: Array) -> Array:
        moved = _project(self.matrix, p)
        return moved if self.bend is None else moved + self._bent(p)

    def inverse(self, q: Array, rounds: int = 12) -> Array:
        """P with forward(p) = q. The displacement changes by far less than a pixel a pixel: the iteration contracts."""
        back = np.linalg.inv(self.matrix)
        p = _project(back, q)
        for _ in range(rounds if self.bend is not None else 0):
            p = _project(back, (q - self._bent(p)).astype(np.float32))
        return p


def _sample(image: npt.NDArray[Any], p: npt.NDArray[Any], beyond: str) -> Array:
    """Bilinear values of an image (h, w) or (h, w, c) at positions (..., 2) as (x, y)."""
    at = (p[..., 1], p[..., 0])
    if image.ndim == 2:
        return ndimage.map_coordinates(image, at, np.float32, order=1, mode=beyond)  # type: ignore[no-any-return]
    parts = [
        ndimage.map_coordinates(image[..., c], at, np.float32, order=1, mode=beyond) for c in range(image.shape[2])
    ]
    return np.stack(parts, axis=-1)


def _projective(source: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The projective matrix (3, 3), 1 in its corner, that brings four points (4, 2) onto four others."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    return np.append(np.linalg.solve(np.array(rows), target.ravel()), 1.0).reshape(3, 3)


def _project(matrix: npt.NDArray[Any], p: Array) -> Array:
    out = p @ matrix[:2, :2].T + matrix[:2, 2]
    if matrix[2, 0] or matrix[2, 1]:
        out = out / (p @ matrix[2, :2] + 1.0)[..., None]
    return out.astype(np.float32)


@dataclass(frozen=True)
class _Layer:
    photo: Picture
    origin: npt.NDArray[np.float64]  # where the picture's (0, 0) lies in the photograph
    map: _Map
    mask: Array | None  # (h, w) in 0..1, frame 1; None for the background

    def colour(self, p: Array) -> Array:
        """The texture at positions of frame 1 (h, w, 2); reflected beyond the photograph."""
        return _sample(self.photo, p + self.origin, "mirror")

    def cover(self, p: Array) -> Array:
        """The mask at positions of frame 1 (h, w, 2); nothing beyond the frame's edge."""
        assert self.mask is not None  # the background is not asked
        return _sample(self.mask, p, "grid-constant")


def _grid(height: int, width: int) -> Array:
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)


def _matrix(rng: np.random.Generator, kinds: set[str], model: MotionModel, centre: Array, size: int, far: bool):
    """A projective matrix about a centre, (3, 3)."""
    unit = size / 128
    angle, zoom = 0.0, 1.0
    if kinds & {"affine", "homography"}:
        angle = np.deg2rad(rng.uniform(-model.rotation, model.rotation))
        zoom = rng.uniform(1 - model.scale, 1 + model.scale)
    shift = rng.normal(0, (model.far_shift if far else model.shift) * unit, 2)
    matrix = np.eye(3)
    matrix[:2, :2] = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix[:2, 2] = centre - matrix[:2, :2] @ centre + shift
    if "homography" in kinds:
        corners = centre + (size / 2) * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
        moved = corners @ matrix[:2, :2].T + matrix[:2, 2] + rng.normal(0, model.perspective * unit, (4, 2))
        matrix = _projective(corners, moved)
    return matrix


def _map(rng, kinds: set[str], model: MotionModel, centre, size: tuple[int, int], far: bool) -> _Map:
    bend = None
    if "smooth" in kinds:
        points = rng.normal(0, model.smooth * min(size) / 128, (4, 4, 2)).astype(np.float32)
        bend = ndimage.zoom(points, (size[0] / 4, size[1] / 4, 1), order=3, mode="nearest", grid_mode=True)
    return _Map(_matrix(rng, kinds, model, np.asarray(centre, float), min(size), far), bend)


def _shape(rng: np.random.Generator, height: int, width: int) -> tuple[Array, npt.NDArray[np.float64]]:
    """A mask (h, w) with its centre: a convex or star-shaped polygon of 10-40 pixels, or a bar or curve 2-4 px wide."""
    unit = min(height, width) / 128
    centre = rng.uniform(0.1, 0.9, 2) * (width, height)
    if rng.uniform() < 0.3:
        way = rng.uniform(0, 2 * np.pi) + np.cumsum(rng.normal(0, 0.35, 12))
        points = centre + np.cumsum(np.stack([np.cos(way), np.sin(way)], -1), axis=0) * rng.uniform(2, 7) * unit
        points += centre - points.mean(axis=0)
        mask = _drawn(points, (height, width), max(2.0, rng.uniform(2, 4) * unit))
    else:
        n = int(rng.integers(5, 11))
        angle = np.sort(rng.uniform(0, 2 * np.pi, n))
        radius = rng.uniform(5, 20) * unit * (1.0 if rng.uniform() < 0.5 else rng.uniform(0.5, 1.2, n))
        points = centre + np.stack([np.cos(angle), np.sin(angle)], -1) * np.reshape(radius, (-1, 1))
        mask = _drawn(points, (height, width), None)
    return mask, centre


def _drawn(points: npt.NDArray[np.float64], size: tuple[int, int], thickness: float | None) -> Array:
    """A polygon, or a curve of some thickness, in 0..1; drawn four times as large for smooth edges."""
    large = Image.new("L", (4 * size[1], 4 * size[0]))
    corners = [(float(4 * x + 2), float(4 * y + 2)) for x, y in points]  # the middle of a pixel is a whole number
    if thickness is None:
        ImageDraw.Draw(large).polygon(corners, fill=255)
    else:
        ImageDraw.Draw(large).line(corners, fill=255, width=round(4 * thickness), joint="curve")
    return np.asarray(large.reduce(4), np.float32) / np.float32(255)


def make_pair(
    images: Sequence[Picture],
    size: tuple[int, int] = (128, 128),
    motion: str = "affine+smooth+layers",
    rng: np.random.Generator | None = None,
    model: MotionModel | None = None,
    repeat: bool = False,
) -> FlowPair:
    """Make one pair.

    Args:
        images: Photographs (h, w, 3), RGB 0..255, of any size.
        size: Height and width of the pair.
        motion: Names of `MOTIONS` joined by "+": "translation", "affine", "homography", "smooth" (a low-frequency
            displacement), "layers" (objects before the background, each with a motion of its own).
        rng: Source of randomness.
        model: Sizes of motions.
        repeat: All objects have one texture and one shape, at several places: repeated objects.

    Raises:
        ValueError: An unknown motion, no photograph, or a size below 16.
    """
    kinds = set(motion.split("+"))
    if not kinds <= set(MOTIONS):
        raise ValueError(f"motion={motion!r}; allowed are {', '.join(MOTIONS)}, joined by '+'")
    if not images:
        raise ValueError("images is empty; at least one photograph is needed")
    for image in images:
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"images holds {image.dtype} of shape {image.shape}; expected uint8, (height, width, 3)")
    if min(size) < 16:
        raise ValueError(f"size={size}; at least 16 rows and 16 columns are needed")
    rng = np.random.default_rng() if rng is None else rng
    model = model or MotionModel()
    height, width = size
    grid = _grid(height, width)

    def texture() -> tuple[Picture, npt.NDArray[np.float64]]:
        photo = images[int(rng.integers(len(images)))]
        room = np.maximum(np.array(photo.shape[1::-1]) - (width, height), 0)
        return photo, np.floor(rng.uniform(0, room + 1))

    photo, origin = texture()
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    layers = [_Layer(photo, origin, _map(rng, kinds, model, middle, size, far=False), None)]
    if "layers" in kinds:
        photo, origin = texture()
        mask, centre = _shape(rng, height, width)
        for _ in range(int(rng.integers(model.objects[0], model.objects[1] + 1))):
            if repeat:
                shift = np.rint(rng.uniform(0.1, 0.9, 2) * (width, height) - centre)
                moved = ndimage.shift(mask, shift[::-1], order=0)
                place, own, at = centre + shift, moved, origin - shift
            else:
                photo, at = texture()
                own, place = _shape(rng, height, width)
            far = bool(rng.uniform() < model.far)
            layers.append(_Layer(photo, at, _map(rng, kinds, model, place, size, far), own))

    one = layers[0].colour(grid)
    flow = layers[0].map.forward(grid) - grid
    owner = np.zeros(size, np.int32)  # the layer that is seen
    back = layers[0].map.inverse(grid)
    two = layers[0].colour(back)
    owner2 = np.zeros(size, np.int32)
    for i, layer in enumerate(layers[1:], start=1):
        assert layer.mask is not None
        one = one + layer.mask[..., None] * (layer.colour(grid) - one)
        seen = layer.mask > 0.5
        owner[seen] = i
        flow[seen] = (layer.map.forward(grid) - grid)[seen]
        back = layer.map.inverse(grid)
        cover = layer.cover(back)
        two = two + cover[..., None] * (layer.colour(back) - two)
        owner2[cover > 0.5] = i
    target = np.rint(grid + flow).astype(int)
    inside = ((target >= 0) & (target < (width, height))).all(-1)
    x, y = (np.clip(target[..., k], 0, n - 1) for k, n in enumerate((width, height)))
    occluded = ~inside | (owner2[y, x] != owner)
    image1, image2 = (_photometric(x, rng, model) for x in (one, two))
    return FlowPair(image1, image2, flow.astype(np.float32), occluded)


def _photometric(image: npt.NDArray[Any], rng: np.random.Generator, model: MotionModel) -> Picture:
    """Jitter one frame: gamma, and noise."""
    gamma = rng.uniform(1 - model.gamma, 1 + model.gamma)
    image = 255 * (image / 255) ** gamma + rng.normal(0, 1, image.shape) * model.noise
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


class SyntheticFlowDataset:
    """Pairs with exact flow, each made from its index alone; a map-style data set for `torch.utils.data`.

    Args:
        images: Photographs (h, w, 3), RGB 0..255, or a mapping of them by name.
        motion: See `make_pair`.
        size: Height and width, or one side of a square.
        seed: Pair i is made from (seed, i).
        length: Number of pairs.
        model: Sizes of motions.
        repeat: See `make_pair`.
    """

    def __init__(
        self,
        images: Sequence[Picture] | Mapping[str, Picture],
        motion: str = "affine+layers",
        size: int | tuple[int, int] = 128,
        seed: int = 0,
        length: int = 10_000,
        model: MotionModel | None = None,
        repeat: bool = False,
    ) -> None:
        self.images = list(images.values()) if isinstance(images, Mapping) else list(images)
        self.size = (size, size) if isinstance(size, int) else size
        self.motion, self.seed, self.length, self.model, self.repeat = motion, seed, length, model, repeat
        make_pair(self.images, self.size, motion, np.random.default_rng(0), model, repeat)  # bad arguments: told now

    def __len__(self) -> int:
        return self.length

    def pair(self, index: int) -> FlowPair:
        """Make pair `index` as arrays.

        Args:
            index: 0..length-1.
        """
        if not 0 <= index < self.length:
            raise IndexError(f"index={index}; allowed is 0..{self.length - 1}")
        rng = np.random.default_rng((self.seed, index))
        return make_pair(self.images, self.size, self.motion, rng, self.model, self.repeat)

    def __getitem__(self, index: int) -> dict[str, npt.NDArray[np.float32]]:
        """Return "image1" and "image2" (3, h, w), "flow" (2, h, w), "valid" and "occluded" (h, w), all float32."""
        pair = self.pair(index)
        return {
            "image1": pair.image1.transpose(2, 0, 1).astype(np.float32),
            "image2": pair.image2.transpose(2, 0, 1).astype(np.float32),
            "flow": pair.flow.transpose(2, 0, 1),
            "valid": np.ones(self.size, np.float32),
            "occluded": pair.occluded.astype(np.float32),
        }

    def batches(self, size: int, steps: int, start: int = 0) -> Iterator[dict[str, npt.NDArray[np.float32]]]:
        """Yield stacked batches, index by index, from the beginning again after the end.

        Args:
            size: Pairs in a batch.
            steps: Batches.
            start: Index of the first pair.
        """
        for step in range(steps):
            items = [self[(start + step * size + i) % self.length] for i in range(size)]
            yield {key: np.stack([item[key] for item in items]) for key in items[0]}
