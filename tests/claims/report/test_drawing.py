"""Figures and the numbers on them."""

from __future__ import annotations

import dataclasses
import math
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.claims.ledger import Row
from paperworks.claims.report import content, drawing
from paperworks.claims.report.content import Cell, decimals, shown
from paperworks.claims.report.drawing import Curve, tick_labels, ticks
from paperworks.claims.verdict import Finding

FINDING = Finding(
    experiment="e",
    version=1,
    metric="acc",
    arm="quest",
    against="none",
    value=None,
    ratio=1.0,
    level={},
    better="higher",
    margin=0.1,
    equivalence=False,
    unit="seed",
    verdict="supported",
    reason="",
    effect=0.2,
    low=0.15,
    high=0.25,
    n=6,
    units=(0, 1, 2),
    values=(0.1, 0.2, 0.3),
)


def places(svg: str, css_class: str) -> list[float]:
    return [float(x) for x in re.findall(rf'class="{css_class}" (?:x1|cx|x)="([\d.]+)%', svg)]


def test_a_difference():
    figure = drawing.interval(FINDING, "a")
    (zero,), (margin,), (effect,) = (places(figure.svg, c) for c in ("zero", "margin", "effect"))
    low = min(places(figure.svg, "interval"))
    assert zero < margin < low < effect
    assert len(places(figure.svg, "unit")) == 3
    assert places(figure.svg, "zone") == [margin]
    assert (figure.left, figure.right) == ("against the claim", "for the claim")
    assert "Mean 0.20, 95 % interval 0.15 to 0.25" in figure.svg
    assert "above 0.1" in figure.svg


def test_a_threshold_is_drawn_on_the_metric_and_turned_when_lower_is_better():
    below = dataclasses.replace(FINDING, against=None, value=1.0, better="lower", margin=0.0)
    figure = drawing.interval(below, "a")
    (margin,), (effect,) = places(figure.svg, "margin"), places(figure.svg, "effect")
    assert effect < margin
    assert places(figure.svg, "zone") == [0.0]
    assert not places(figure.svg, "zero")
    assert (figure.left, figure.right) == ("for the claim", "against the claim")
    assert "Mean 0.80, 95 % interval 0.75 to 0.85" in figure.svg
    assert figure.title == "acc of quest"


def test_an_equivalence_has_two_margins_and_a_zone_between():
    figure = drawing.interval(dataclasses.replace(FINDING, equivalence=True, margin=0.5), "a")
    first, last = sorted(places(figure.svg, "margin"))
    assert places(figure.svg, "zone") == [first]
    assert first < places(figure.svg, "effect")[0] < last
    assert "within 0.5" in figure.svg


def test_little_to_draw():
    assert drawing.interval(dataclasses.replace(FINDING, effect=None, values=()), "a") is None
    single = dataclasses.replace(FINDING, low=None, high=None, values=(0.2,), n=1)
    assert "without an interval" in drawing.interval(single, "a").svg
    same = dataclasses.replace(FINDING, effect=0.0, low=0.0, high=0.0, margin=0.0, values=(0.0, 0.0))
    assert places(drawing.interval(same, "a").svg, "effect") == [50.0]
    assert drawing.interval(dataclasses.replace(FINDING, values=(1e308, -1e308)), "a") is None


def test_names_are_escaped():
    svg = drawing.interval(dataclasses.replace(FINDING, metric="<script>", arm='"&'), "a").svg
    assert "<script>" not in svg
    assert "&lt;script&gt;" in svg


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_are_round_ordered_and_inside(low, span):
    high = low + span
    if high <= low or span < 1e-9 * abs(low):
        return
    found = ticks(low, high)
    assert found == sorted(found)
    assert 1 <= len(found) <= 12
    slack = 1e-6 * span
    assert all(low - slack <= t <= high + slack for t in found)


def test_tick_labels():
    assert tick_labels([-0.025, 0.0, 0.025]) == ["−0.025", "0", "0.025"]
    assert tick_labels([0, 200, 1000]) == ["0", "200", "1,000"]
    assert tick_labels([1e6, 2e6]) == ["1e6", "2e6"]


def curve(arm: str, factor: float) -> Curve:
    steps = [1.0, 2.0, 3.0]
    mean = [factor * s for s in steps]
    return Curve(arm, steps, mean, [m * 0.9 for m in mean], [m * 1.1 for m in mean])


def test_a_panel_tells_arms_apart_without_colour():
    curves = [curve("a", 1), curve("b", 2)]
    svg = drawing.panel(curves, drawing.shared_scale(curves), {"a": 0, "b": 1}, "p", "title")
    dashes = re.findall(r'class="line arm-\d" stroke-dasharray="([^"]+)"', svg)
    assert len(set(dashes)) == 2
    assert len(set(re.findall(r'class="marker arm-\d" d="M[\d. ]+([a-z])', svg))) == 2
    assert "a from 1 to 3; b from 2 to 6" in svg


def test_more_arms_than_colours_differ_in_dash_or_marker():
    keys = [drawing.legend_key(i) for i in range(12)]
    assert len(set(keys)) == 12


def test_wide_curves_have_a_logarithmic_axis():
    assert drawing.shared_scale([curve("a", 1), curve("b", 1000)]).log
    assert not drawing.shared_scale([curve("a", 1), curve("b", -1000)]).log
    assert drawing.shared_scale([]) is None
    flat = drawing.shared_scale([Curve("a", [1], [0.0], [0.0], [0.0])])
    assert flat.low < 0 < flat.high


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5))
def test_points_lie_in_the_panel(values):
    steps = [float(i) for i in range(len(values))]
    one = Curve("a", steps, values, [v - 1 for v in values], [v + 1 for v in values])
    scale = drawing.shared_scale([one])
    shares = scale.shares([*one.low, *one.mean, *one.high])
    assert ((shares >= 0) & (shares <= 1)).all()
    assert all(math.isfinite(t) for t in scale.ticks())


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([(0.1642, 0.0076), (0.1589, 0.011)], [("0.164", "0.008"), ("0.159", "0.011")]),
        ([(12.0, 0.0)], [("12.0", "")]),
        ([(12345.6, 210.0)], [("12,346", "210")]),
        ([(0.0, 0.0)], [("0", "")]),
        ([(1e9, 1e8)], [("1e+09", "1e+08")]),
        ([(-0.0001, 0.02)], [("-0.0001", "0.02")]),
    ],
)
def test_numbers_of_a_table_share_their_decimals(cells, texts):
    made = [Cell(6, mean, sd) for mean, sd in cells]
    assert [shown(cell, decimals(made)) for cell in made] == texts
    assert shown(None, 2) is None


def test_a_picture_that_several_arms_have_is_shown_once() -> None:
    def row(arm: str, svg: str, seed: int = 0) -> Row:
        return Row(
            key=f"{arm}{seed}", paper="p", experiment="e", version=1, scale="laptop", arm=arm, level={}, seed=seed,
            figures={"map.svg": svg},
        )  # fmt: skip

    rows = [row("a", "<svg>1</svg>"), row("b", "<svg>1</svg>"), row("c", "<svg>2</svg>"), row("a", "<svg>3</svg>", 1)]
    group = content._drawings(SimpleNamespace(good=rows, experiment="e", scale="laptop"))  # type: ignore[arg-type]
    assert group is not None
    assert [one.where for one in group.drawings] == ["a, seed 0; the same in 1 more", "c, seed 0"]
    assert group.left_out == 1  # the picture of the second seed
