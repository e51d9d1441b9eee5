"""What multiplies a gradient before the step: nothing, the inverse of its length, or any function of its length.

Every algorithm here is x <- x + p, p <- beta p - delta eta(s) grad L, where s = |grad L| / sqrt(n) is the gradient's
size for one coordinate. `eta` sees the fresh gradient alone, never the momentum p.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Algorithm = str | Callable[[Array], Any]

NAMED = ("sgd", "unit")


def check_algorithm(algorithm: Algorithm) -> None:
    """Raise ValueError unless `algorithm` is a known name or a callable."""
    if not callable(algorithm) and algorithm not in NAMED:
        raise ValueError(f"algorithm={algorithm!r}; allowed are 'sgd', 'unit' and a callable eta(s) of arrays")


def eta(algorithm: Algorithm, size: Array) -> Array:
    """Return the factor on the gradient.

    Args:
        algorithm: "sgd" for 1; "unit" for 1/s, which makes the length of the gradient sqrt(n), and 0 where s = 0; or a
            callable of s, such as clipping to length tau sqrt(n): `lambda s: np.minimum(1.0, tau / s)`.
        size: s = |grad L| / sqrt(n), any shape.

    Returns:
        eta, of the shape of `size`.
    """
    size = np.asarray(size, dtype=float)
    if callable(algorithm):
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.asarray(algorithm(size), dtype=float)
        if factor.shape not in ((), size.shape):
            raise ValueError(
                f"algorithm returned an array of shape {factor.shape}; allowed is the shape of s, {size.shape}"
            )
        return np.broadcast_to(factor, size.shape)
    if algorithm == "unit":
        return np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    return np.ones_like(size)
