"""A room's names come when they are used, and a missing extra is one clear line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from conftest import Desk
from toy_package import INIT, PAPER

LAZY = f"""{INIT}
from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
"""
STUB = """from .light import plus as plus
from .heavy import times as times
from .broken import minus as minus

__all__ = ["plus", "times", "minus"]
"""
ROOM = {
    "init": LAZY,
    "stub": STUB,
    "light": "def plus(a, b):\n    return a + b\n",
    "heavy": "import no_such_package.inner\n\n\ndef times(a, b):\n    return a * b\n",
    "broken": "from .no_such_part import x\n",
    "paper": PAPER.replace('extra = "core"', 'extra = "torch"'),
}


@pytest.fixture
def room(make_toy: Callable[..., Desk]) -> ModuleType:
    make_toy(**ROOM)
    return importlib.import_module("toy_papers.toy")


def test_names_come_when_they_are_used(room: ModuleType) -> None:
    assert sorted(room.__all__) == ["minus", "plus", "times"]
    assert {"plus", "times", "minus"} <= set(dir(room))
    assert "toy_papers.toy.light" not in sys.modules
    assert room.plus(1, 2) == 3
    assert "toy_papers.toy.light" in sys.modules
    assert "toy_papers.toy.heavy" not in sys.modules
    from toy_papers.toy import plus

    assert plus is room.plus


def test_a_missing_package_gives_the_line_that_installs_it(room: ModuleType) -> None:
    with pytest.raises(ImportError) as caught:
        _ = room.times
    assert str(caught.value) == "toy_papers/toy needs 'no_such_package': pip install 'paperworks[torch]'"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_module_of_ours_that_is_missing_is_no_matter_of_extras(room: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy_papers\.toy\.no_such_part'"):
        _ = room.minus


def test_an_unknown_name_is_an_attribute_error(room: ModuleType) -> None:
    with pytest.raises(AttributeError, match="divide"):
        _ = room.divide
    assert not hasattr(room, "divide")


def test_every_name_of_our_own_rooms_is_in_their_stub() -> None:
    from paperworks.claims import catalog

    for found in catalog.rooms().values():
        if found.folder.is_relative_to(catalog.PACKAGE):
            assert (found.folder / "__init__.pyi").is_file()
            assert importlib.import_module(found.module).__all__
