"""A concept lattice as a picture."""

from __future__ import annotations

from collections.abc import Hashable
from html import escape

from .lattice import ConceptLattice

_ROW, _COLUMN = 62, 118  # pixels


def draw_lattice(lattice: ConceptLattice, max_concepts: int = 60, max_label: int = 24) -> str:
    """Draw the line diagram of a lattice as SVG, with reduced labels.

    A concept stands below all that are above it. An attribute is written above the largest concept that has it, the
    objects below the smallest one that has them (their number when they do not fit): a concept has the attributes that
    can be reached from it by going up, and the objects that can be reached by going down.

    Args:
        lattice: What to draw.
        max_concepts: Most concepts; larger lattices are unreadable.
        max_label: Most characters of a label.

    Returns:
        SVG text without scripts.

    Raises:
        ValueError: The lattice has none or more than `max_concepts`; raise its `min_support`.
    """
    count = len(lattice)
    if not 0 < count <= max_concepts:
        raise ValueError(f"lattice has {count} concepts; allowed are 1 to max_concepts={max_concepts}")
    lower = lattice.lower_covers()
    depth = [0] * count
    for i in reversed(range(count)):  # larger extents first
        for j in lower[i]:
            depth[j] = max(depth[j], depth[i] + 1)
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for i in reversed(range(count)):
        layers[depth[i]].append(i)
    width = _COLUMN * max(map(len, layers))
    place = _place(layers, lower, width)
    height = _ROW * len(layers)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="9" text-anchor="middle"><rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for i in range(count):
        for j in lower[i]:
            (x1, y1), (x2, y2) = place[i], place[j]
            parts.append(f'<path d="M{x1} {y1}L{x2} {y2}" stroke="#999"/>')
    attributes, objects = _reduced_labels(lattice)
    for i in range(count):
        x, y = place[i]
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{"#27c" if attributes[i] else "#fff"}" stroke="#333"/>')
        if attributes[i]:
            parts.append(f'<text x="{x}" y="{y - 7}" fill="#15a">{_short(attributes[i], max_label)}</text>')
        if objects[i]:
            parts.append(f'<text x="{x}" y="{y + 14}" fill="#333">{_short(objects[i], max_label)}</text>')
    return "".join([*parts, "</svg>"])


def _place(layers: list[list[int]], lower: list[tuple[int, ...]], width: int) -> dict[int, tuple[int, int]]:
    """Coordinates; within a layer concepts stand in the order of the mean place of those above them."""
    upper: dict[int, list[int]] = {}
    for i, below in enumerate(lower):
        for j in below:
            upper.setdefault(j, []).append(i)
    found: dict[int, tuple[int, int]] = {}
    for row, layer in enumerate(layers):
        means = {i: sum(found[u][0] for u in upper.get(i, [])) / max(1, len(upper.get(i, []))) for i in layer}
        ordered = sorted(layer, key=lambda i: (means[i], i))
        for column, i in enumerate(ordered):
            found[i] = round(width * (column + 0.5) / len(layer)), round(_ROW * (row + 0.5))
    return found


def _reduced_labels(lattice: ConceptLattice) -> tuple[list[list[Hashable]], list[list[Hashable]]]:
    context = lattice.context
    attributes: list[list[Hashable]] = [[] for _ in range(len(lattice))]
    objects: list[list[Hashable]] = [[] for _ in range(len(lattice))]
    for m, label in enumerate(context.attributes):
        owners = [i for i, intent in enumerate(lattice.intents) if intent >> m & 1]
        if owners:
            attributes[max(owners)].append(label)  # the largest extent stands last
    for g, label in enumerate(context.objects):
        owners = [i for i, extent in enumerate(lattice.extents) if extent >> g & 1]
        if owners:
            # With a least support an object may have several smallest concepts; it is written below the first.
            objects[min(owners)].append(label)
    return attributes, objects


def _short(labels: list[Hashable], room: int) -> str:
    text = ", ".join(map(str, labels))
    if len(text) > room and len(labels) > 2:
        text = f"{labels[0]}, +{len(labels) - 1}"
    return escape(text if len(text) <= room else f"{text[: room - 1]}…")
