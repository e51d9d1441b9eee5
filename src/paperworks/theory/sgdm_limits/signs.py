"""Integrals of sign(res f'(Z)) over two normals and the noise, for any f.

The sign is a step function of Z, and Z = m A + r B is normal given A. So for each A (and noise eps) the integral over B
is a sum of normal distribution functions at the places where the sign steps, without error; those places depend on f, A
and eps alone, not on (m, r), and are found once. What is left, an integral over A and eps of something continuous, is a
sum on a uniform grid. Without noise and for smooth links the error is below 1e-6; with noise that reaches beyond the
range of f it may be 2e-3.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from .algorithms import Array

GRID = 2048  # places at which the sign is looked at, within +-reach
BISECTIONS = 32
WIDTH = 7.0  # of the ranges of A and eps, in standard deviations
NODES, NOISY_NODES = (241, 1), (121, 81)  # on the axes of A and eps, without noise and with it


class SignIntegrals:
    """The table of steps of sign(res f'(Z)) for |Z| <= reach.

    Args:
        f: the link.
        fprime: its derivative.
        noise: standard deviation of eps.
        reach: largest |Z|.
    """

    def __init__(self, f: Callable[[Any], Any], fprime: Callable[[Any], Any], noise: float, reach: float) -> None:
        count, noise_count = NOISY_NODES if noise > 0 else NODES
        a = np.linspace(-WIDTH, WIDTH, count)
        e = np.linspace(-WIDTH, WIDTH, noise_count) if noise > 0 else np.zeros(1)
        node = np.repeat(a, len(e))
        target = f(node) + noise * np.tile(e, len(a))  # res = 0 where f(Z) is this

        def sign(z: Array, y: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.nan_to_num(np.sign(fprime(z)) * np.sign(f(z) - y))

        # An odd shift, so that the grid does not hit zeros at round numbers.
        grid = np.linspace(-reach, reach, GRID) + reach / GRID * 0.137
        with np.errstate(all="ignore"):
            values, slopes = np.asarray(f(grid), dtype=float), np.sign(fprime(grid))
        rows, columns = [], []
        for begin in range(0, len(node), 256):  # in parts: the table of all signs would be large
            part = slopes * np.sign(values - target[begin : begin + 256, None])
            row, column = np.nonzero(part[:, 1:] != part[:, :-1])
            rows.append(row + begin)
            columns.append(column)
        row, column = np.concatenate(rows), np.concatenate(columns)
        low, high = grid[column], grid[column + 1]
        before, after = sign(low, target[row]), sign(high, target[row])
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            same = sign(middle, target[row]) == before
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        w = np.outer(np.exp(-0.5 * a * a), np.exp(-0.5 * e * e)).ravel()
        self._weight = w / w.sum()
        self._node = node
        self._first = sign(np.full(len(node), grid[0]), target)
        self._place, self._row = 0.5 * (low + high), row
        self._step, self._step_square = after - before, after**2 - before**2

    def moments(self, m: float, r: float) -> tuple[Array, float, Array]:
        """Return E[S (A, B)], E[S^2] and E[S^2 (A, B)(A, B)^T] for S = sign(res f'(Z)), shapes (2,), (), (2, 2).

        Args:
            m: <x, v>.
            r: |x - m v|.
        """
        a, w = self._node[self._row], self._weight[self._row]
        b = (self._place - m * a) / max(r, 1e-12)  # S steps where B passes b
        above, density = ndtr(-b), np.exp(-0.5 * b * b) / np.sqrt(2 * np.pi)
        whole = self._weight * self._first
        mean_a = (whole * self._node).sum() + (w * a * self._step * above).sum()
        mean_b = (w * self._step * density).sum()  # integral of B beyond b is the density at b
        square = self._weight * self._first**2
        jump = w * self._step_square
        aa = (square * self._node**2).sum() + (jump * a * a * above).sum()
        ab = (jump * a * density).sum()
        bb = square.sum() + (jump * (b * density + above)).sum()
        total = square.sum() + (jump * above).sum()
        return np.array([mean_a, mean_b]), float(total), np.array([[aa, ab], [ab, bb]])
