"""The stylesheet: contrast of every pair that is used, in light and dark and in print."""

from __future__ import annotations

import re

import pytest

from paperworks.claims.report.site import static_text

CSS = static_text("style.css")
TEXT = ["ink", "muted", "accent", "supported", "opposite", "below", "open"]
DRAWN = ["edge", "focus", *(f"arm-{i}" for i in range(6))]


def palettes() -> dict[str, dict[str, str]]:
    roots = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    light, dark, printed = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", root)) for root in roots)
    return {"light": light, "dark": light | dark, "print": light | printed}


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_itself():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_has_contrast_aa(scheme):
    palette = palettes()[scheme]
    for name in TEXT:
        assert contrast(palette[name], palette["page"]) >= 4.5, name
    for name in ("ink", "muted", "accent"):
        assert contrast(palette[name], palette["panel"]) >= 4.5, name


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_lines_borders_and_focus_have_contrast_aa(scheme):
    palette = palettes()[scheme]
    for name in DRAWN:
        assert contrast(palette[name], palette["page"]) >= 3, name
    for name in ("ink", "edge", "muted"):
        assert contrast(palette[name], palette["zone"]) >= 3, name


def test_no_colour_but_the_palette_s():
    rest = re.sub(r":root \{.*?\}", "", CSS, flags=re.DOTALL)
    assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b", rest)) <= {"#ffffff"}
    assert not re.search(r"\b(rgba?|hsla?|oklch)\(", rest)
    used = set(re.findall(r"var\(--([\w-]+)\)", CSS))
    assert used <= set(re.findall(r"--([\w-]+):", CSS))


def test_focus_is_never_taken_away():
    for rule in re.findall(r"([^{}]+)\{([^{}]*outline: none[^{}]*)\}", CSS):
        assert rule[0].strip() == "main:focus"  # the target of the skip link, not a control
    assert "prefers-reduced-motion" in CSS
    assert "@media print" in CSS
