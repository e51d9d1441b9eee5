"""What is made of an asset: built once, whole, and again where it is damaged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paperworks
from paperworks.kit.assets import AssetMissing, CacheError, cache_folder, derive, fetch

DATA = b"abc" * 1000
Declare = Callable[..., Path]


class Reverse:
    """Writes the asset backwards, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, source: Path, folder: Path) -> None:
        self.calls += 1
        (folder / "deep").mkdir()
        (folder / "deep" / "reversed.bin").write_bytes(source.read_bytes()[::-1])
        (folder / "note.txt").write_text("made")


@pytest.fixture
def toml(declare: Declare, server: Any) -> Path:
    path = declare(DATA, server.source("thing", DATA))
    fetch("thing", toml=path)
    return path


def test_is_built_once_and_needs_the_asset_no_more(toml: Path) -> None:
    build = Reverse()
    folder = derive("thing", "reversed", 1, build, toml=toml)
    assert (folder / "deep" / "reversed.bin").read_bytes() == DATA[::-1]
    for copy in (cache_folder() / "assets").rglob("thing.bin"):
        copy.unlink()
    assert derive("thing", "reversed", 1, build, toml=toml) == folder
    assert build.calls == 1


def test_another_version_or_name_is_another_folder(toml: Path) -> None:
    build = Reverse()
    folders = {derive("thing", name, version, build, toml=toml) for name in ("a", "b") for version in (1, 2)}
    assert len(folders) == build.calls == 4


@pytest.mark.parametrize("damage", ["changed", "missing", "no manifest"])
def test_damaged_is_built_again(toml: Path, damage: str) -> None:
    build = Reverse()
    folder = derive("thing", "reversed", 1, build, toml=toml)
    file = folder / "deep" / "reversed.bin"
    if damage == "changed":
        file.write_bytes(b"x" + file.read_bytes()[1:])
    elif damage == "missing":
        file.unlink()
    else:
        (folder / "paperworks-derived.json").unlink()
    assert derive("thing", "reversed", 1, build, toml=toml) == folder
    assert (folder / "deep" / "reversed.bin").read_bytes() == DATA[::-1]
    assert build.calls == 2
    assert not list(folder.parent.glob(".work-*"))


def test_a_failed_build_leaves_nothing(toml: Path) -> None:
    def fail(source: Path, folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        derive("thing", "reversed", 1, fail, toml=toml)
    assert [path.name for path in (cache_folder() / "derived").rglob("*") if path.is_file()] == ["reversed.lock"]
    assert (derive("thing", "reversed", 1, Reverse(), toml=toml) / "note.txt").read_text() == "made"


def test_what_a_killed_process_left_is_removed(toml: Path) -> None:
    stale = cache_folder() / "derived" / "thing" / ".work-reversed-0123"
    (stale / "files").mkdir(parents=True)
    derive("thing", "reversed", 1, Reverse(), toml=toml)
    assert not stale.exists()


def test_without_the_asset_the_command_is_named(declare: Declare, server: Any) -> None:
    with pytest.raises(AssetMissing, match="paperworks data thing"):
        derive("thing", "reversed", 1, Reverse(), toml=declare(DATA, server.source("thing", DATA)))


def test_a_cache_that_cannot_be_written_is_said(toml: Path) -> None:
    (cache_folder() / "derived").write_text("in the way")
    with pytest.raises(CacheError, match="set PAPERWORKS_CACHE"):
        derive("thing", "reversed", 1, Reverse(), toml=toml)


def test_processes_that_ask_at_once_build_once(toml: Path, tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from paperworks.kit.assets import derive

def build(source, folder):
    with open(sys.argv[3], "a") as log:
        log.write("built\\n")
    time.sleep(0.5)
    (folder / "copy").write_bytes(source.read_bytes())

print(derive("thing", "copy", 1, build, toml=Path(sys.argv[2])))
"""
    source, log = str(Path(paperworks.__file__).parents[1]), tmp_path / "log"
    command = [sys.executable, "-c", code, source, str(toml), str(log)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    folders = {process.communicate(timeout=60)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert log.read_text() == "built\n"
    assert [(Path(folder) / "copy").read_bytes() for folder in folders] == [DATA]
