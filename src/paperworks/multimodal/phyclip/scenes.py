"""Pictures of two or three emoji with captions, boxes and phrases, as GRIT has them, in a tree of names."""

import dataclasses
from collections.abc import Sequence

import networkx as nx
import numpy as np
import numpy.typing as npt

SIDE = 48  # height of a scene, and side of a crop
SIZES = (30, 45)  # sides of an emoji in a scene, half open

Pixels = npt.NDArray[np.uint8]


@dataclasses.dataclass(frozen=True)
class Names:
    """The emoji that occur.

    Attributes:
        names: Their names (n,).
        subcategories: (n,).
        categories: (n,).
        rows: Where they stand in the table that they were taken from (n,).
    """

    names: npt.NDArray[np.str_]
    subcategories: npt.NDArray[np.str_]
    categories: npt.NDArray[np.str_]
    rows: npt.NDArray[np.int64]

    def phrases(self) -> list[list[str]]:
        """The phrases of each emoji, from the special to the general: name, subcategory, category."""
        triples = zip(self.names, self.subcategories, self.categories, strict=True)
        return [[phrase(n), phrase(s.replace("-", " ")), c.replace("&", "and").lower()] for n, s, c in triples]

    def tree(self) -> nx.DiGraph:
        """Root "", categories, (category, subcategory), names."""
        graph = nx.DiGraph()
        for n, s, c in zip(self.names.tolist(), self.subcategories.tolist(), self.categories.tolist(), strict=True):
            graph.add_edges_from([("", c), (c, (c, s)), ((c, s), ("name", n))])
        return graph


def phrase(name: str) -> str:
    """With its article: "a dog face", "an owl"."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def caption(names: Sequence[str]) -> str:
    """Names in a row: "a dog face and a fire engine"."""
    return " and ".join(phrase(name) for name in names)


def choose_names(
    names: npt.NDArray[np.str_],
    subcategories: npt.NDArray[np.str_],
    categories: npt.NDArray[np.str_],
    kinds: Sequence[str],
    each: int,
    rng: np.random.Generator,
) -> Names:
    """Draw `each` names from every one of some categories."""
    rows = np.concatenate([np.sort(rng.permutation(np.flatnonzero(categories == kind))[:each]) for kind in kinds])
    if len(rows) != each * len(kinds):
        raise ValueError(f"each = {each}: some of the categories {list(kinds)} have fewer names")
    return Names(names[rows], subcategories[rows], categories[rows], rows)


def draw_scenes(chosen: Names, count: int, objects: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Different sets of `objects` names from different categories (count, objects), in random order."""
    kinds = np.unique(chosen.categories)
    members = {kind: np.flatnonzero(chosen.categories == kind) for kind in kinds}
    if not 2 <= objects <= len(kinds):
        raise ValueError(f"objects = {objects}: 2 .. {len(kinds)} are possible, one of a category")
    scenes: dict[tuple[int, ...], list[int]] = {}
    while len(scenes) < count:
        some = [int(rng.choice(members[kind])) for kind in rng.permutation(kinds)[:objects]]
        scenes.setdefault(tuple(sorted(some)), some)
    return np.array(list(scenes.values()))


def swap(
    chosen: Names, scenes: npt.NDArray[np.int64], rng: np.random.Generator, all_objects: bool
) -> npt.NDArray[np.int64]:
    """Negatives: one object, or each, replaced by another of its own category."""
    wrong = scenes.copy()
    for row in wrong:
        for place in range(len(row)) if all_objects else [int(rng.integers(len(row)))]:
            others = np.flatnonzero(chosen.categories == chosen.categories[row[place]])
            row[place] = rng.choice(others[others != row[place]])
    return wrong


def _on_white(picture: Pixels, side: int) -> Pixels:
    from PIL import Image

    scaled = np.asarray(Image.fromarray(picture).resize((side, side), Image.Resampling.LANCZOS), dtype=float)
    share = scaled[..., 3:] / 255
    return (scaled[..., :3] * share + 255 * (1 - share)).round().astype(np.uint8)


def crop(picture: Pixels) -> Pixels:
    """One emoji (64, 64, 4) in the middle of a white square (48, 48, 3)."""
    out = np.full((SIDE, SIDE, 3), 255, dtype=np.uint8)
    out[4:-4, 4:-4] = _on_white(picture, SIDE - 8)
    return out


def compose_scene(pictures: Sequence[Pixels], rng: np.random.Generator) -> Pixels:
    """Emoji side by side in random order, each at a random place and size in its own square (48, 48 n, 3)."""
    out = np.full((SIDE, SIDE * len(pictures), 3), 255, dtype=np.uint8)
    for slot, i in enumerate(rng.permutation(len(pictures))):
        side = int(rng.integers(*SIZES))
        y, x = (int(rng.integers(SIDE - side + 1)) for _ in range(2))
        out[y : y + side, SIDE * slot + x : SIDE * slot + x + side] = _on_white(pictures[int(i)], side)
    return out
