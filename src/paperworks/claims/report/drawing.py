"""Figures as inline SVG: a contrast against its margin, and curves with bands. Colours come from the page's CSS."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from paperworks.claims import wording
from paperworks.claims.verdict import Finding

COLOURS = 6
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2 1 2")
_LOG_FROM = 60.0  # largest over smallest mean from which a curve's axis is logarithmic

Point = tuple[float, float]


# --- axes ----------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from low to high, about ``count`` of them."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    rough = span / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999), 10 * power)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12 - math.floor(math.log10(step))) + 0.0 for i in range(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Labels with as many digits as tell the ticks apart."""
    largest = max((abs(v) for v in values), default=0.0)
    if largest >= 1e5 or (0 < largest < 1e-3):
        return [f"{v:.3g}".replace("e+0", "e").replace("e-0", "e-") for v in values]
    places = next((p for p in range(7) if all(math.isclose(round(v, p), v, abs_tol=1e-9) for v in values)), 6)
    return ["0" if v == 0 else f"{v:,.{places}f}".replace("-", "−") for v in values]


# --- a contrast against its margin ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class IntervalFigure:
    """A drawn contrast.

    Attributes:
        svg: The drawing.
        title: What the axis shows.
        left: Words for its left end.
        right: Words for its right end.
    """

    svg: Markup
    title: str
    left: str
    right: str


@dataclasses.dataclass(frozen=True)
class _Axis:
    """A statement's own axis: the contrast, or for a threshold the metric itself."""

    finding: Finding

    def at(self, contrast: float) -> float:
        value = self.finding.value
        if value is None:
            return contrast
        return value - contrast if self.finding.better == "lower" else value + contrast

    @property
    def turned(self) -> bool:
        """Whether smaller numbers speak for the statement."""
        return self.finding.value is not None and self.finding.better == "lower"


def interval(finding: Finding, anchor: str) -> IntervalFigure | None:
    """Draw a finding's interval against its margin; ``None`` when there is no effect to draw.

    Args:
        finding: What was found.
        anchor: Prefix of the ids in the drawing.
    """
    if finding.effect is None or not finding.values:
        return None
    axis = _Axis(finding)
    margins = [axis.at(finding.margin)] + [axis.at(-finding.margin)] * finding.equivalence
    ends = [finding.low, finding.high] if finding.low is not None and finding.high is not None else []
    shown = [axis.at(0.0), *margins, axis.at(finding.effect), *map(axis.at, ends), *map(axis.at, finding.values)]
    low, high = min(shown), max(shown)
    if not math.isfinite(high - low):
        return None
    pad = 0.07 * (high - low) or max(abs(high), 1.0) * 0.5
    low, high = low - pad, high + pad

    def x(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.2f}%"

    parts = [_zone(axis, margins, low, high)]
    parts += _axis_ticks(low, high)
    if finding.value is None:
        parts.append(Markup('<line class="zero" x1="{0}" x2="{0}" y1="22" y2="84"/>').format(x(0.0)))
    parts += [Markup('<line class="margin" x1="{0}" x2="{0}" y1="22" y2="84"/>').format(x(m)) for m in margins]
    parts.append(_margin_label(finding, margins, low, high))
    parts += [
        Markup('<line class="unit" x1="{0}" x2="{0}" y1="64" y2="76"/>').format(x(axis.at(v))) for v in finding.values
    ]
    if ends:
        first, last = sorted(map(axis.at, ends))
        parts.append(Markup('<line class="interval" x1="{}" x2="{}" y1="46" y2="46"/>').format(x(first), x(last)))
        parts += [
            Markup('<line class="interval" x1="{0}" x2="{0}" y1="40" y2="52"/>').format(x(e)) for e in (first, last)
        ]
    parts.append(Markup('<circle class="effect" cx="{}" cy="46" r="5.5"/>').format(x(axis.at(finding.effect))))
    svg = Markup(
        '<svg class="interval-figure" width="100%" height="108" role="img" aria-labelledby="{0}-t {0}-d">'
        '<title id="{0}-t">{1}</title><desc id="{0}-d">{2}</desc>{3}</svg>'
    ).format(anchor, axis_title(finding), described(finding), Markup("").join(parts))
    against, speaks = ("against the claim", "for the claim")
    if finding.equivalence:
        against = speaks = "a difference"
    left, right = (speaks, against) if axis.turned else (against, speaks)
    return IntervalFigure(svg, axis_title(finding), left, right)


def _zone(axis: _Axis, margins: Sequence[float], low: float, high: float) -> Markup:
    """The part of the axis that supports the statement, tinted."""
    if axis.finding.equivalence:
        first, last = min(margins), max(margins)
    elif axis.turned:
        first, last = low, margins[0]
    else:
        first, last = margins[0], high
    start, width = (100 * (v - low) / (high - low) for v in (first, low + last - first))
    return Markup('<rect class="zone" x="{}%" y="22" width="{}%" height="62"/>').format(f"{start:.2f}", f"{width:.2f}")


def _axis_ticks(low: float, high: float) -> list[Markup]:
    values = ticks(low, high, 4)
    parts = [Markup('<line class="axis" x1="0" x2="100%" y1="84" y2="84"/>')]
    for value, label in zip(values, tick_labels(values), strict=True):
        share = 100 * (value - low) / (high - low)
        anchor = "start" if share < 4 else "end" if share > 96 else "middle"
        parts.append(Markup('<line class="axis" x1="{0}%" x2="{0}%" y1="84" y2="89"/>').format(f"{share:.2f}"))
        parts.append(
            Markup('<text class="tick" x="{}%" y="103" text-anchor="{}">{}</text>').format(
                f"{share:.2f}", anchor, label
            )
        )
    return parts


def _margin_label(finding: Finding, margins: Sequence[float], low: float, high: float) -> Markup:
    if finding.equivalence:
        label, at = f"must lie {wording.wanted(finding)}", sum(margins) / len(margins)
    elif finding.value is None:
        label, at = f"margin {wording.number(finding.margin)}", margins[0]
    else:
        label, at = f"must lie {wording.wanted(finding)}", margins[0]
    share = 100 * (at - low) / (high - low)
    anchor, shift = ("start", -1) if share < 25 else ("end", 1) if share > 75 else ("middle", 0)
    return Markup('<text class="mark" x="{}%" dx="{}" y="14" text-anchor="{}">{}</text>').format(
        f"{share:.2f}", shift, anchor, label
    )


def axis_title(finding: Finding) -> str:
    """What the axis of a finding's drawing shows."""
    if finding.value is not None:
        return f"{finding.metric} of {finding.arm}"
    return f"{wording.subject(finding)}, in {finding.metric}"


def described(finding: Finding) -> str:
    """The drawing in words."""
    axis = _Axis(finding)
    assert finding.effect is not None
    values = sorted(map(axis.at, finding.values))
    mean = axis.at(finding.effect)
    if finding.low is None or finding.high is None:
        text = f"Mean {wording.about(mean)}, without an interval"
    else:
        low, high = sorted((axis.at(finding.low), axis.at(finding.high)))
        marks = [axis.at(0.0), axis.at(finding.margin)]
        shown = wording.numbers([mean, low, high], (high - low) / 2, marks)
        text = f"Mean {shown[0]}, 95 % interval {shown[1]} to {shown[2]}"
    units = f"{len(values)} {finding.unit}{'s' * (len(values) != 1)}"
    return (
        f"{text}; to support the statement it must lie {wording.wanted(finding)}. "
        f"{units} from {wording.about(values[0])} to {wording.about(values[-1])}."
    )


# --- curves --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Curve:
    """One arm's curve: mean and band on common steps."""

    arm: str
    step: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclasses.dataclass(frozen=True)
class Scale:
    """A figure's vertical axis, shared by its panels."""

    low: float
    high: float
    log: bool

    def shares(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Where values lie, 0 at the bottom and 1 at the top; what lies outside is put on the edge."""
        at: NDArray[np.float64] = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        low, high = self.low, self.high
        if self.log:
            at, low, high = np.log(at), math.log(low), math.log(high)
        shares: NDArray[np.float64] = (at - low) / (high - low)
        return shares

    def ticks(self) -> list[float]:
        """Where its ticks stand."""
        if not self.log:
            return ticks(self.low, self.high, 4)
        powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
        every = max(1, len(powers) // 5)
        return [10.0**p for p in powers][::every]


def shared_scale(curves: Iterable[Curve]) -> Scale | None:
    """The vertical axis of all panels of a figure; ``None`` when there is nothing finite to draw."""
    every = list(curves)
    means = [v for c in every for v in c.mean if math.isfinite(v)]
    bands = [v for c in every for v in (*c.low, *c.high) if math.isfinite(v)]
    if not means:
        return None
    if min(means) > 0 and max(means) / min(means) > _LOG_FROM:
        low, high = min(means), max(*means, *bands)
        return Scale(10 ** (math.floor(math.log10(low) * 2) / 2), 10 ** (math.ceil(math.log10(high) * 2) / 2), True)
    low, high = min(*means, *bands), max(*means, *bands)
    pad = 0.05 * (high - low) or max(abs(high), 1.0) * 0.1
    return Scale(low - pad, high + pad, False) if math.isfinite(high - low) else None


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 340, 210, 48, 10, 8, 26


def panel(curves: Sequence[Curve], scale: Scale, order: Mapping[str, int], anchor: str, title: str) -> Markup:
    """One panel of small multiples.

    Args:
        curves: Its curves, one an arm.
        scale: The axis that all panels share.
        order: Each arm's number, which gives its colour, dash and marker.
        anchor: Prefix of the ids in the drawing.
        title: What the panel shows.
    """
    first = min(min(c.step) for c in curves)
    last = max(max(c.step) for c in curves)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def points(steps: Sequence[float], values: Sequence[float]) -> list[Point]:
        across = (np.asarray(steps, dtype=float) - first) / (last - first) if last > first else np.full(len(steps), 0.5)
        x, y = _LEFT + width * across, _TOP + height * (1 - scale.shares(values))
        return list(zip(x.tolist(), y.tolist(), strict=True))

    # Only numbers of ours are put into these parts; every name goes through `format`, which escapes it.
    parts = []
    values = scale.ticks()
    for (_, y), label in zip(points([first] * len(values), values), _scale_labels(values, scale), strict=True):
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    steps = ticks(first, last, 4)
    for (x, _), label in zip(points(steps, [scale.low] * len(steps)), tick_labels(steps), strict=True):
        at = f'x="{min(x, _WIDTH - 14):.1f}" y="{_HEIGHT - 8}"'
        parts.append(f'<text class="tick" {at} text-anchor="middle">{label}</text>')
    bottom = _TOP + height
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    for curve in curves:
        outline = points(curve.step, curve.high) + points(curve.step, curve.low)[::-1]
        parts.append(f'<path class="band arm-{order[curve.arm] % COLOURS}" d="{_path(outline)}Z"/>')
    parts += [_line(points(curve.step, curve.mean), order[curve.arm]) for curve in curves]
    described_ = "; ".join(
        f"{c.arm} from {wording.about(c.mean[0])} to {wording.about(c.mean[-1])}" for c in curves if len(c.mean)
    )
    return Markup(
        '<svg class="curve-figure" viewBox="0 0 {0} {1}" role="img" aria-labelledby="{2}-t {2}-d">'
        '<title id="{2}-t">{3}</title><desc id="{2}-d">{4}</desc>{5}</svg>'
    ).format(
        _WIDTH,
        _HEIGHT,
        anchor,
        title,
        f"Means by step, {wording.number(first)} to {wording.number(last)}: {described_}.",
        Markup("".join(parts)),
    )


def legend_key(number: int) -> Markup:
    """The sample of an arm's line in a legend."""
    return Markup('<svg class="key" width="38" height="12" aria-hidden="true">{}</svg>').format(
        _line([(1.0, 6.0), (19.0, 6.0), (37.0, 6.0)], number, marked=[1])
    )


def _scale_labels(values: Sequence[float], scale: Scale) -> list[str]:
    if not scale.log:
        return tick_labels(values)
    return [f"{v:,.0f}" if 1 <= v < 1e5 else f"{v:.0e}".replace("e+0", "e").replace("e-0", "e-") for v in values]


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _line(points: Sequence[Point], number: int, marked: Sequence[int] | None = None) -> Markup:
    dash = _DASHES[(number + number // COLOURS) % len(_DASHES)]
    if marked is None:
        last = len(points) - 1
        marked = sorted({round(last * share) for share in (0.08 + 0.03 * (number % COLOURS), 0.5, 0.96)})
    markers = "".join(_marker(points[i], number) for i in marked)
    arm = number % COLOURS
    return Markup(
        f'<path class="line arm-{arm}" stroke-dasharray="{dash or "none"}" d="{_path(points)}"/>'
        f'<path class="marker arm-{arm}" d="{markers}"/>'
    )


def _marker(point: Point, number: int) -> str:
    """A small shape of the arm's own: circle, square, triangle, diamond, cross, turned triangle."""
    x, y = point
    r = 3.4
    shapes: tuple[str, ...] = (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0Z",
        f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h{-2 * r}Z",
        f"M{x:.1f} {y - r - 0.6:.1f}l{r + 0.6} {2 * r}h{-2 * r - 1.2}Z",
        f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l{-r - 1} {r + 1}l{-r - 1} {-r - 1}Z",
        f"M{x - r:.1f} {y - r:.1f}l{2 * r} {2 * r}m0 {-2 * r}l{-2 * r} {2 * r}",
        f"M{x:.1f} {y + r + 0.6:.1f}l{r + 0.6} {-2 * r}h{-2 * r - 1.2}Z",
    )
    return shapes[number % COLOURS]
