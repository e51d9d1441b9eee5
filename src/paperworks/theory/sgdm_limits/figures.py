"""Two drawings as SVG text: lines of theory over measured points, and a phase diagram."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

Point = tuple[float, float]
COLOURS = ("#1f6fb4", "#d1495b", "#3a7d44", "#8661c1")
SHADES = 10
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 420, 280, 52, 40, 26, 14


class _Frame:
    """A pair of axes; `x` and `y` turn numbers into places."""

    def __init__(self, title: str, labels: tuple[str, str], xs: Sequence[float], ys: Sequence[float]) -> None:
        self.low, self.high = (min(xs), min(ys)), (max(xs), max(ys))
        self.high = (
            max(self.high[0], self.low[0] + 1e-12),
            max(self.high[1], self.low[1] + 1e-12),
        )
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
            f'<text x="{LEFT}" y="16" font-size="12">{escape(title)}</text>',
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
            f"{escape(labels[0])}</text>",
            f'<text x="12" y="{HEIGHT / 2:.0f}" text-anchor="middle" '
            f'transform="rotate(-90 12 {HEIGHT / 2:.0f})">{escape(labels[1])}</text>',
        ]

    def x(self, value: float) -> float:
        share = (value - self.low[0]) / (self.high[0] - self.low[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low[1]) / (self.high[1] - self.low[1])
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    def finish(self, show: Callable[[float], str]) -> str:
        for i in range(5):
            at = [low + (high - low) * i / 4 for low, high in zip(self.low, self.high, strict=True)]
            self.parts.append(
                f'<text x="{self.x(at[0]):.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{show(at[0])}</text>'
            )
            self.parts.append(
                f'<text x="{LEFT - 5}" y="{self.y(at[1]) + 4:.1f}" text-anchor="end">{show(at[1])}</text>'
            )
        box = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - BOTTOM - TOP}"'
        return "\n".join([*self.parts, f'<rect {box} fill="none" stroke="#444"/>', "</svg>"])


def lines_over_points(
    title: str, labels: tuple[str, str], measured: Mapping[str, Sequence[Point]], theory: Mapping[str, Sequence[Point]]
) -> str:
    """Draw measured points and, in the same colour, the line that theory gives for them.

    Args:
        title: above the drawing.
        labels: of the two axes.
        measured: name to points.
        theory: the same names to points of a line.

    Returns:
        SVG text.
    """
    points = [p for series in (*measured.values(), *theory.values()) for p in series if all(map(math.isfinite, p))]
    frame = _Frame(title, labels, [p[0] for p in points], [0.0, *(p[1] for p in points)])
    names = []
    for i, (name, series) in enumerate(measured.items()):
        colour = COLOURS[i % len(COLOURS)]
        line = " ".join(f"{frame.x(a):.0f},{frame.y(b):.1f}" for a, b in theory[name] if math.isfinite(b))
        frame.parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        dots = "".join(f"M{frame.x(a):.0f} {frame.y(b):.1f}h0" for a, b in series if math.isfinite(b))
        frame.parts.append(
            f'<path d="{dots}" fill="none" stroke="{colour}" stroke-width="4.4" stroke-linecap="round"/>'
        )
        names.append(f'<tspan fill="{colour}">{escape(name)}</tspan>')
    frame.parts.append(f'<text x="{WIDTH - RIGHT}" y="16" text-anchor="end">{" ".join(names)}</text>')
    return frame.finish(lambda value: f"{value:.2g}")


def phase_diagram(
    title: str,
    labels: tuple[str, str],
    xs: Sequence[float],
    ys: Sequence[float],
    values: Any,
    line: Sequence[Point],
) -> str:
    """Draw a field of values in 0..1 over two logarithmic axes, white to blue, and a line over it.

    Args:
        title: above the drawing.
        labels: of the two axes.
        xs: places along x, in geometric progression.
        ys: places along y, likewise.
        values: shape (len(xs), len(ys)).
        line: (x, y) points.

    Returns:
        SVG text.
    """
    log_x, log_y = [math.log10(v) for v in xs], [math.log10(v) for v in ys]
    half_x, half_y = (log_x[1] - log_x[0]) / 2, (log_y[1] - log_y[0]) / 2
    frame = _Frame(title, labels, [log_x[0] - half_x, log_x[-1] + half_x], [log_y[0] - half_y, log_y[-1] + half_y])
    shades: dict[int, list[str]] = {}
    for i, a in enumerate(log_x):
        for j, b in enumerate(log_y):
            left, right = round(frame.x(a - half_x)), round(frame.x(a + half_x))
            top, bottom = round(frame.y(b + half_y)), round(frame.y(b - half_y))
            shade = round(SHADES * min(max(float(values[i][j]), 0.0), 1.0))
            if shade:  # the ground is white already
                shades.setdefault(shade, []).append(f"M{left} {top}H{right}V{bottom}H{left}z")
    for shade, cells in sorted(shades.items()):
        dark = 255 - round(255 * shade / SHADES)
        frame.parts.append(f'<path fill="rgb({dark},{(dark + 255) // 2},255)" d="{"".join(cells)}"/>')
    inside = [(math.log10(a), math.log10(b)) for a, b in line if a > 0 and b > 0]
    inside = [p for p in inside if all(low <= v <= high for v, low, high in zip(p, frame.low, frame.high, strict=True))]
    path = " ".join(f"{frame.x(a):.1f},{frame.y(b):.1f}" for a, b in inside)
    frame.parts.append(f'<polyline points="{path}" fill="none" stroke="#d1495b" stroke-width="2"/>')
    return frame.finish(lambda value: f"{10**value:.2g}")
