"""Photographs, the stereo pair and the emoji, as their files have them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from paperworks.kit.assets import load_emoji, load_motorcycle, load_photographs, open_asset, status

pytest.importorskip("PIL", reason="the pictures are read by pillow")


@pytest.fixture(autouse=True)
def cache() -> None:
    """In the place of the empty cache of the other tests: the loaders read what this machine has."""


def _need(*names: str) -> None:
    missing = [name for name in names if status(name).state == "missing"]
    if missing:
        pytest.skip(f"not on this machine: paperworks data {' '.join(missing)}")


def test_photographs_are_colour_pictures_by_name() -> None:
    _need("photographs", "china_flower")
    photographs = load_photographs()
    assert len(photographs) == 13
    assert list(photographs) == sorted(photographs)
    assert {picture.dtype for picture in photographs.values()} == {np.dtype(np.uint8)}
    assert photographs["china"].shape == (427, 640, 3)
    assert photographs["chelsea"].shape == (300, 451, 3)
    for name, picture in photographs.items():
        grey = bool((picture[..., 0] == picture[..., 1]).all() and (picture[..., 1] == picture[..., 2]).all())
        assert grey == (name in {"brick", "camera", "grass", "gravel"})
    photographs["china"][:] = 0
    assert load_photographs()["china"].any()


def test_the_disparity_leads_from_the_left_picture_to_the_right_one() -> None:
    _need("motorcycle")
    left, right, disparity = load_motorcycle()
    assert left.shape == right.shape == (500, 741, 3)
    assert disparity.shape == (500, 741)
    known = np.isfinite(disparity)
    assert 0.9 < known.mean() < 0.95
    rows, columns = np.nonzero(known)

    def difference(sign: int) -> float:
        there = np.rint(columns + sign * disparity[known]).astype(int)
        inside = (there >= 0) & (there < left.shape[1])
        a, b = left[rows[inside], columns[inside]], right[rows[inside], there[inside]]
        return float(np.abs(a.astype(float) - b).mean())

    assert difference(-1) < 12 < 30 < difference(1)


@pytest.fixture(scope="module")
def emoji() -> dict[str, object]:
    _need("emoji_twitter", "emoji_google")
    return {vendor: load_emoji(vendor) for vendor in ("twitter", "google")}


def test_both_vendors_draw_the_same_emoji_in_the_same_order(emoji) -> None:
    twitter, google = emoji["twitter"], emoji["google"]
    assert twitter.images.shape == google.images.shape == (1911, 64, 64, 4)
    for field in ("names", "short_names", "categories", "subcategories"):
        assert (getattr(twitter, field) == getattr(google, field)).all()
        assert getattr(twitter, field).shape == (1911,)
    assert len(set(twitter.short_names)) == 1911
    assert (len(set(twitter.categories)), len(set(twitter.subcategories))) == (10, 99)
    dog = list(twitter.short_names).index("dog")
    assert (twitter.names[dog], twitter.categories[dog]) == ("dog face", "Animals & Nature")


def test_a_picture_stands_where_the_table_says(emoji) -> None:
    folder = open_asset("emoji_twitter")
    records = {r["short_name"]: r for r in json.loads((folder / "emoji.json").read_text())}
    for vendor in ("twitter", "google"):
        alpha = emoji[vendor].images[..., 3]
        inside = alpha[:, 8:-8, 8:-8].reshape(len(alpha), -1).mean(1)
        assert (inside > 20).all()  # no empty cell, no cell cut in half
        edge = np.concatenate([alpha[:, 0], alpha[:, :, 0]], 1).mean()
        assert edge < inside.mean() / 2
    # a red circle is red, and its picture round
    index = list(emoji["twitter"].short_names).index("red_circle")
    assert records["red_circle"]["name"].lower() == emoji["twitter"].names[index]
    for vendor in ("twitter", "google"):
        red, green, blue, alpha = emoji[vendor].images[index, 32, 32]
        assert alpha == 255
        assert red > 150 > 2 * max(green, blue)
        assert (emoji[vendor].images[index, [0, 0, -1, -1], [0, -1, 0, -1], 3] == 0).all()


def test_an_unknown_vendor_is_refused() -> None:
    with pytest.raises(ValueError, match="vendor is 'apple'; allowed: twitter, google"):
        load_emoji("apple")
