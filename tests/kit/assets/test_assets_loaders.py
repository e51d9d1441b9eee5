"""The loaders, against a plain reading of the same files, and the data itself."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paperworks
from paperworks.kit.assets import AssetMissing, load_digits8x8, load_mnist5k, open_asset, status

CASES = {
    "mnist5k": (load_mnist5k, (5000, 28, 28), 255),
    "digits8x8": (load_digits8x8, (1797, 8, 8), 16),
}


@pytest.fixture(autouse=True)
def cache() -> None:
    """In the place of the empty cache of the other tests: the loaders read what this machine has."""


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, Callable[[], Any], tuple[int, ...], int]:
    if status(request.param).state == "missing":
        pytest.skip(f"{request.param} is not on this machine: paperworks data {request.param}")
    return request.param, *CASES[request.param]


def test_equals_a_plain_reading(case: Any) -> None:
    name, load, shape, largest = case
    images, labels = load()
    assert (images.dtype, images.shape, labels.dtype, labels.shape) == (np.uint8, shape, np.int64, shape[:1])
    assert (images.min(), images.max()) == (0, largest)
    with gzip.open(open_asset(name), "rt") as stream:
        rows = [row for i, row in enumerate(csv.reader(stream)) if i % 50 == 7]
    assert [[float(value) for value in row[:-1]] for row in rows] == images[7::50].reshape(len(rows), -1).tolist()
    assert [float(row[-1]) for row in rows] == labels[7::50].tolist()


def test_images_and_labels_belong_together(case: Any) -> None:
    _, load, _, _ = case
    images, labels = load()
    pixels = images.reshape(len(images), -1).astype(float)
    centres = np.stack([pixels[labels == digit][::2].mean(0) for digit in range(10)])
    nearest = ((centres**2).sum(1) - 2 * pixels[1::2] @ centres.T).argmin(1)
    assert (nearest == labels[1::2]).mean() > 0.75


def test_what_is_returned_is_the_callers(case: Any) -> None:
    _, load, _, _ = case
    images, labels = load()
    images[:], labels[:] = 1, 1
    assert load()[0].max() > 1
    assert load()[1].max() > 1


def test_mnist_is_balanced_and_sorted_as_documented() -> None:
    if status("mnist5k").state == "missing":
        pytest.skip("mnist5k is not on this machine: paperworks data mnist5k")
    assert load_mnist5k()[1].tolist() == [digit for digit in range(10) for _ in range(500)]


def test_missing_data_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path))
    monkeypatch.setattr("paperworks.kit.assets.store.installed_path", lambda source: None)
    with pytest.raises(AssetMissing, match="paperworks data mnist5k"):
        load_mnist5k()


@pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="scikit-learn is not installed")
def test_packages_are_not_imported() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]);"
        "from paperworks.kit.assets import load_digits8x8; load_digits8x8();"
        "sys.exit('imported' if 'sklearn' in sys.modules else 0)"
    )
    source = str(Path(paperworks.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
