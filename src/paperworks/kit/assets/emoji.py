"""Emoji: small pictures with names in a tree of two levels, each drawn by two vendors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from paperworks.kit.assets.store import open_asset

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VENDORS = ("twitter", "google")
SIDE = 64
_STEP = SIDE + 2  # the sheet leaves one empty pixel on each side of a picture


class Emoji(NamedTuple):
    """Emoji that both vendors draw; row i of each vendor is the same emoji.

    Attributes:
        names: Their names in lower case, of shape (n,), nearly all different: "dog face".
        short_names: Short identifiers, of shape (n,), all different: "dog".
        categories: Of shape (n,): "Animals & Nature".
        subcategories: Of shape (n,): "animal-mammal".
        images: RGBA, of shape (n, 64, 64, 4), 0..255, on a transparent ground.
    """

    names: npt.NDArray[np.str_]
    short_names: npt.NDArray[np.str_]
    categories: npt.NDArray[np.str_]
    subcategories: npt.NDArray[np.str_]
    images: npt.NDArray[np.uint8]


def load_emoji(vendor: str) -> Emoji:
    """Reads the emoji of one vendor.

    Args:
        vendor: "twitter" or "google".

    Returns:
        A new copy, yours to change; in the order in which keyboards show them.

    Raises:
        AssetMissing: The files are not on this machine.
        ValueError: There is no such vendor.
    """
    import numpy as np
    from PIL import Image

    if vendor not in VENDORS:
        raise ValueError(f"vendor is {vendor!r}; allowed: {', '.join(VENDORS)}")
    folder = open_asset(f"emoji_{vendor}")
    records = json.loads((folder / "emoji.json").read_text(encoding="utf-8"))
    records = [r for r in records if r["name"] and all(r[f"has_img_{v}"] for v in VENDORS)]
    records.sort(key=lambda record: record["sort_order"])
    with Image.open(folder / "img" / vendor / "sheets" / f"{SIDE}.png") as picture:
        sheet = np.array(picture.convert("RGBA"))
    corners = [(1 + _STEP * record["sheet_y"], 1 + _STEP * record["sheet_x"]) for record in records]
    return Emoji(
        names=np.array([record["name"].lower() for record in records]),
        short_names=np.array([record["short_name"] for record in records]),
        categories=np.array([record["category"] for record in records]),
        subcategories=np.array([record["subcategory"] for record in records]),
        images=np.stack([sheet[y : y + SIDE, x : x + SIDE] for y, x in corners]),
    )
