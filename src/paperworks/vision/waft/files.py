"""Flow in files and in colours: Middlebury .flo, KITTI .png, the colour wheel."""

from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
FLO_TAG = 202021.25  # the bytes "PIEH"
UNKNOWN = 1e9  # Middlebury: a larger component means that the flow is not known


def read_flo(path: str | PathLike[str]) -> Array:
    """Read Middlebury's .flo.

    Args:
        path: The file.

    Returns:
        Flow (height, width, 2), pixels; NaN where unknown (a component above 1e9).

    Raises:
        ValueError: The file has another format, or is cut short.
    """
    data = Path(path).read_bytes()
    if len(data) < 12 or np.frombuffer(data, "<f4", 1)[0] != np.float32(FLO_TAG):
        raise ValueError(f"{path} is no .flo file: it does not start with the tag {FLO_TAG}")
    width, height = (int(x) for x in np.frombuffer(data, "<i4", 2, offset=4))
    if not (0 < width < 100_000 and 0 < height < 100_000) or len(data) < 12 + 8 * width * height:
        raise ValueError(f"{path} holds {len(data)} bytes, which is not enough for a flow of {width}x{height}")
    flow = np.frombuffer(data, "<f4", 2 * width * height, offset=12).reshape(height, width, 2).astype(np.float32)
    flow[(np.abs(flow) > UNKNOWN).any(-1) | np.isnan(flow).any(-1)] = np.nan
    return flow


def write_flo(path: str | PathLike[str], flow: npt.ArrayLike) -> None:
    """Write Middlebury's .flo; what is not finite is written as unknown.

    Args:
        path: The file.
        flow: Flow (height, width, 2), pixels.
    """
    array = _flow(flow)
    array = np.where(np.isfinite(array).all(-1, keepdims=True), array, np.float32(1e10))
    head = np.float32(FLO_TAG).astype("<f4").tobytes() + np.array(array.shape[1::-1], "<i4").tobytes()
    Path(path).write_bytes(head + array.astype("<f4").tobytes())


def read_kitti_png(path: str | PathLike[str]) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Read KITTI's 16-bit png: (u, v) = (value - 2^15) / 64, third channel 1 where valid.

    Args:
        path: The file.

    Returns:
        Flow (height, width, 2), pixels, NaN where unknown, and the valid pixels (height, width).

    Raises:
        ValueError: The file is no 16-bit png with three channels.
    """
    import cv2

    image = cv2.imdecode(np.frombuffer(Path(path).read_bytes(), np.uint8), cv2.IMREAD_UNCHANGED)
    if image is None or image.dtype != np.uint16 or image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"{path} is no KITTI flow: a png of 16 bits and three channels is expected")
    image = image[..., ::-1].astype(np.float32)  # OpenCV has BGR
    valid = image[..., 2] > 0
    flow = (image[..., :2] - 2**15) / 64
    flow[~valid] = np.nan
    return flow.astype(np.float32), valid


def write_kitti_png(path: str | PathLike[str], flow: npt.ArrayLike, valid: npt.ArrayLike | None = None) -> None:
    """Write KITTI's 16-bit png, in steps of 1/64 pixel within +-512 pixels.

    Args:
        path: The file.
        flow: Flow (height, width, 2), pixels.
        valid: Pixels whose flow is known (height, width); those with finite flow unless given.
    """
    import cv2

    array = _flow(flow)
    known = np.asarray(np.isfinite(array).all(-1))
    if valid is not None:
        known &= np.asarray(valid, bool)
    # 0 would be a displacement of -512 px: it is written only where nothing is known
    code = np.clip(np.rint(np.where(known[..., None], array, 0.0) * 64 + 2**15), 1, 2**16 - 1) * known[..., None]
    image = np.dstack([known, code[..., 1], code[..., 0]]).astype(np.uint16)
    done, data = cv2.imencode(".png", image)
    if not done:
        raise ValueError(f"flow of shape {array.shape} could not be written as png")
    Path(path).write_bytes(data.tobytes())


def _flow(flow: npt.ArrayLike) -> Array:
    array = np.asarray(flow, np.float32)
    if array.ndim != 3 or array.shape[2] != 2:
        raise ValueError(f"flow has shape {array.shape}; expected (height, width, 2)")
    return array


def colour_wheel() -> npt.NDArray[np.float64]:
    """Return Middlebury's wheel of 55 colours (55, 3), RGB 0..255: red, yellow, green, cyan, blue, magenta."""
    counts = (15, 6, 4, 11, 13, 6)  # steps between two of these colours, as the eye sees them
    corners = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1], [1, 0, 0]], float)
    arcs = [
        corners[i] + (corners[i + 1] - corners[i]) * (np.floor(255 * np.arange(n) / n) / 255)[:, None]
        for i, n in enumerate(counts)
    ]
    return 255 * np.concatenate(arcs)


def flow_to_image(flow: npt.ArrayLike, largest: float | None = None) -> npt.NDArray[np.uint8]:
    """Show a flow by the colour wheel: hue is direction, saturation is length; unknown pixels are black.

    Args:
        flow: Flow (height, width, 2), pixels; not finite where unknown.
        largest: Length shown with full saturation, pixels; the largest one unless given. Longer ones are darkened.

    Returns:
        Picture (height, width, 3), RGB.
    """
    array = _flow(flow).astype(np.float64)
    known = np.asarray(np.isfinite(array).all(-1))
    array = np.where(known[..., None], array, 0.0)
    length = np.hypot(array[..., 0], array[..., 1])
    largest = max(float(length.max()), 1e-9) if largest is None else largest
    if largest <= 0:
        raise ValueError(f"largest={largest}; a length > 0 is needed")
    wheel = colour_wheel() / 255
    n = len(wheel)
    place = (np.arctan2(-array[..., 1], -array[..., 0]) / np.pi + 1) / 2 * (n - 1)
    low = np.floor(place).astype(int)
    rest = (place - low)[..., None]
    colour = (1 - rest) * wheel[low] + rest * wheel[(low + 1) % n]
    r = (length / largest)[..., None]
    colour = np.where(r <= 1, 1 - r * (1 - colour), 0.75 * colour)
    return (np.floor(255 * colour) * known[..., None]).astype(np.uint8)
