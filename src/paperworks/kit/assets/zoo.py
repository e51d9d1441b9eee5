"""UCI Zoo."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple

from paperworks.kit.assets.store import open_asset

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Zoo(NamedTuple):
    """101 animals and their traits.

    Attributes:
        names: The animals, of shape (101,). "frog" stands there twice: the second one is venomous.
        attributes: Names of the 16 traits: 15 of yes (1) or no (0), and "legs" (0, 2, 4, 5, 6 or 8).
        features: The traits, of shape (101, 16).
        types: The classes, of shape (101,): mammal, bird, reptile, fish, amphibian, insect or invertebrate.
    """

    names: npt.NDArray[np.str_]
    attributes: tuple[str, ...]
    features: npt.NDArray[np.uint8]
    types: npt.NDArray[np.str_]


def load_zoo() -> Zoo:
    """Reads the 101 animals of UCI Zoo.

    Returns:
        A new copy, yours to change.

    Raises:
        AssetMissing: The file is not on this machine.
    """
    import numpy as np

    with open_asset("zoo").open(encoding="ascii", newline="") as stream:
        header, _, _, *rows = csv.reader(stream, delimiter="\t")  # names, kinds, roles
    return Zoo(
        names=np.array([row[0] for row in rows]),
        attributes=tuple(header[1:-1]),
        features=np.array([row[1:-1] for row in rows], dtype=np.uint8),
        types=np.array([row[-1] for row in rows]),
    )
