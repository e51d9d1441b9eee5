"""Small pictures, still and moving, as SVG text that holds PNG images."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np


def png(image: np.ndarray, palette: np.ndarray) -> bytes:
    """A PNG file of at most 256 colours.

    Args:
        image: Numbers of colours (height, width), integers.
        palette: RGB of each colour (k, 3), integers in 0..255.
    """
    bits = next(b for b in (1, 2, 4, 8) if 2**b >= len(palette))
    height, width = image.shape
    per_byte = 8 // bits
    padded = np.zeros((height, -(-width // per_byte) * per_byte), np.uint8)
    padded[:, :width] = image
    packed = np.zeros((height, padded.shape[1] // per_byte), np.uint8)
    for k in range(per_byte):
        packed |= padded[:, k::per_byte] << (8 - bits * (k + 1))
    raw = b"".join(b"\0" + row.tobytes() for row in packed)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, bits, 3, 0, 0, 0)
    colors = np.asarray(palette, np.uint8).tobytes()
    parts = [(b"IHDR", head), (b"PLTE", colors), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def film(frames: Sequence[bytes], width: int, height: int, *, label: str, seconds: float = 0.5) -> str:
    """PNG images one after the other, for ever, as an SVG that animates itself; a single image stands still.

    Args:
        frames: PNG files of equal size.
        width: Width of the images in pixels.
        height: Height in pixels.
        label: What is shown, for those who cannot see it.
        seconds: Time that each stays.
    """
    n = len(frames)
    parts = []
    for k, frame in enumerate(frames):
        data = base64.b64encode(frame).decode()
        shown = ";".join("1" if i == k else "0" for i in range(n))
        move = (
            f'<animate attributeName="opacity" calcMode="discrete" dur="{seconds * n:g}s" values="{shown}" '
            f'repeatCount="indefinite"/>'
            if n > 1
            else ""
        )
        first = ' opacity="0"' if k < n - 1 else ""  # where nothing moves, the last is seen
        parts.append(
            f'<image width="{width}" height="{height}" style="image-rendering:pixelated"{first} '
            f'href="data:image/png;base64,{data}">{move}</image>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{3 * width}" '
        f'height="{3 * height}" role="img"><title>{label}</title>{"".join(parts)}</svg>'
    )


PLANE = np.array([[255, 255, 255], [33, 102, 172], [110, 110, 110], [214, 96, 77]])


def plane(x: np.ndarray, kind: np.ndarray, low: Sequence[float], high: Sequence[float], width: int) -> np.ndarray:
    """Particles of a plane as coloured pixels, the y axis upwards.

    Args:
        x: Positions (n, 2).
        kind: Colour in `PLANE` of each (n,), 1 to 3; larger ones are drawn over smaller ones.
        low: Lower left corner of what is shown.
        high: Upper right corner.
        width: Pixels across.
    """
    scale = width / (high[0] - low[0])
    height = round((high[1] - low[1]) * scale)
    image = np.zeros((height, width), np.int64)
    for k in (1, 2, 3):
        i = ((x[kind == k] - np.asarray(low)) * scale).astype(int)
        i = i[((i >= 0) & (i < [width, height])).all(1)]
        image[height - 1 - i[:, 1], i[:, 0]] = k
    return image


def quantised(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An RGB image (height, width, 3) in [0, 1] with 64 colours: numbers (height, width) and palette (64, 3)."""
    steps = np.rint(np.clip(image, 0, 1) * 3).astype(int)
    index = steps @ np.array([16, 4, 1])
    levels = np.stack(np.meshgrid(*[np.arange(4) * 85] * 3, indexing="ij"), -1).reshape(-1, 3)
    return index, levels
