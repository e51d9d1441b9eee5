"""The Utah teapot: Martin Newell's Bezier patches of 1975, in the public domain, as a triangle mesh."""

from typing import NamedTuple

import numpy as np

# Ten patches of 4 x 4 control points; the z axis points up.
_POINTS = """
    1.4,0,2.4 1.4,-0.784,2.4 0.784,-1.4,2.4 0,-1.4,2.4 1.3375,0,2.53125 1.3375,-0.749,2.53125 0.749,-1.3375,2.53125
    0,-1.3375,2.53125 1.4375,0,2.53125 1.4375,-0.805,2.53125 0.805,-1.4375,2.53125 0,-1.4375,2.53125 1.5,0,2.4
    1.5,-0.84,2.4 0.84,-1.5,2.4 0,-1.5,2.4 1.75,0,1.875 1.75,-0.98,1.875 0.98,-1.75,1.875 0,-1.75,1.875 2,0,1.35
    2,-1.12,1.35 1.12,-2,1.35 0,-2,1.35 2,0,0.9 2,-1.12,0.9 1.12,-2,0.9 0,-2,0.9 2,0,0.45 2,-1.12,0.45 1.12,-2,0.45
    0,-2,0.45 1.5,0,0.225 1.5,-0.84,0.225 0.84,-1.5,0.225 0,-1.5,0.225 1.5,0,0.15 1.5,-0.84,0.15 0.84,-1.5,0.15
    0,-1.5,0.15 0,0,3.15 0,-0.002,3.15 0.002,0,3.15 0.8,0,3.15 0.8,-0.45,3.15 0.45,-0.8,3.15 0,-0.8,3.15 0,0,2.85
    0.2,0,2.7 0.2,-0.112,2.7 0.112,-0.2,2.7 0,-0.2,2.7 0.4,0,2.55 0.4,-0.224,2.55 0.224,-0.4,2.55 0,-0.4,2.55
    1.3,0,2.55 1.3,-0.728,2.55 0.728,-1.3,2.55 0,-1.3,2.55 1.3,0,2.4 1.3,-0.728,2.4 0.728,-1.3,2.4 0,-1.3,2.4 0,0,0
    0,-1.425,0 0.798,-1.425,0 1.425,-0.798,0 1.425,0,0 0,-1.5,0.075 0.84,-1.5,0.075 1.5,-0.84,0.075 1.5,0,0.075
    -1.6,0,2.025 -1.6,-0.3,2.025 -1.5,-0.3,2.25 -1.5,0,2.25 -2.3,0,2.025 -2.3,-0.3,2.025 -2.5,-0.3,2.25 -2.5,0,2.25
    -2.7,0,2.025 -2.7,-0.3,2.025 -3,-0.3,2.25 -3,0,2.25 -2.7,0,1.8 -2.7,-0.3,1.8 -3,-0.3,1.8 -3,0,1.8 -2.7,0,1.575
    -2.7,-0.3,1.575 -3,-0.3,1.35 -3,0,1.35 -2.5,0,1.125 -2.5,-0.3,1.125 -2.65,-0.3,0.9375 -2.65,0,0.9375 -2,0,0.9
    -2,-0.3,0.9 -1.9,-0.3,0.6 -1.9,0,0.6 1.7,0,1.425 1.7,-0.66,1.425 1.7,-0.66,0.6 1.7,0,0.6 2.6,0,1.425
    2.6,-0.66,1.425 3.1,-0.66,0.825 3.1,0,0.825 2.3,0,2.1 2.3,-0.25,2.1 2.4,-0.25,2.025 2.4,0,2.025 2.7,0,2.4
    2.7,-0.25,2.4 3.3,-0.25,2.4 3.3,0,2.4 2.8,0,2.475 2.8,-0.25,2.475 3.525,-0.25,2.49375 3.525,0,2.49375
    2.9,0,2.475 2.9,-0.15,2.475 3.45,-0.15,2.5125 3.45,0,2.5125 2.8,0,2.4 2.8,-0.15,2.4 3.2,-0.15,2.4 3.2,0,2.4
"""
_PATCHES = """
    0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15 12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27
    24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39 40,41,42,40,43,44,45,46,47,47,47,47,48,49,50,51
    48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63 64,64,64,64,65,66,67,68,69,70,71,72,39,38,37,36
    73,74,75,76,77,78,79,80,81,82,83,84,85,86,87,88 85,86,87,88,89,90,91,92,93,94,95,96,97,98,99,100
    101,102,103,104,105,106,107,108,109,110,111,112,113,114,115,116
    113,114,115,116,117,118,119,120,121,122,123,124,125,126,127,128
"""
_HALVES = 4  # the last four, handle and spout, are mirrored at y = 0 only; the others at x = 0 too


class Mesh(NamedTuple):
    """A triangle mesh.

    Attributes:
        vertices: (n, 3).
        faces: Numbers of corners (m, 3), counter-clockwise from outside.
    """

    vertices: np.ndarray
    faces: np.ndarray


def teapot(resolution: int = 8) -> Mesh:
    """The Utah teapot, its y axis up, its longest side from 0 to 1; the lid lies on it loosely, as it always has.

    Args:
        resolution: Cells along each side of a patch >= 1.

    Returns:
        32 patches of 2 resolution^2 triangles, not joined to each other.
    """
    if resolution < 1:
        raise ValueError(f"resolution must be >= 1, got {resolution}")
    points = np.array([[float(v) for v in word.split(",")] for word in _POINTS.split()])
    patches = points[[[int(v) for v in word.split(",")] for word in _PATCHES.split()]].reshape(-1, 4, 4, 3)
    t = np.linspace(0, 1, resolution + 1)
    basis = np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    surfaces = np.einsum("ia,jb,pijc->pabc", basis, basis, patches)
    row = np.arange(resolution)
    a = (row[:, None] * (resolution + 1) + row).ravel()
    b, c, d = a + 1, a + resolution + 1, a + resolution + 2
    cells = np.concatenate([np.stack([a, b, d], 1), np.stack([a, d, c], 1)])
    vertices: list[np.ndarray] = []
    faces: list[np.ndarray] = []
    for k, surface in enumerate(surfaces):
        for sx in (1, -1) if k < len(surfaces) - _HALVES else (1,):
            for sy in (1, -1):
                corner = cells if sx * sy > 0 else cells[:, ::-1]  # a mirror turns the orientation
                faces.append(corner + len(vertices) * len(surface) ** 2)
                vertices.append((surface * [sx, sy, 1]).reshape(-1, 3))
    found = np.concatenate(vertices)[:, [0, 2, 1]] * [1, 1, -1]
    low, high = found.min(0), found.max(0)
    return Mesh((found - low) / (high - low).max(), np.concatenate(faces))
