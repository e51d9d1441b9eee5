"""What lies on this machine: found, missing, damaged, shared by two processes, or out of room."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import paperworks
from paperworks.kit.assets import (
    AssetMissing,
    CacheError,
    FetchError,
    UnknownAsset,
    cache_folder,
    describe,
    fetch,
    fetch_all,
    open_asset,
    size_text,
    status,
)

DATA = b"some bytes of a thing" * 100
Declare = Callable[..., Path]
FETCH = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from paperworks.kit.assets import fetch
Path(sys.argv[3]).touch()
print(fetch("thing", toml=Path(sys.argv[2])))
"""


@pytest.fixture
def fetcher(tmp_path: Path) -> Callable[[Path, str], subprocess.Popen[str]]:
    def start(toml: Path, marker: str) -> subprocess.Popen[str]:
        source = str(Path(paperworks.__file__).parents[1])
        command = [sys.executable, "-c", FETCH, source, str(toml), str(tmp_path / marker)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def wait_for(*paths: Path) -> None:
    deadline = time.monotonic() + 20
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(0.01)


def install(site: Path, name: str, files: dict[str, bytes], *, editable: Path | None = None) -> None:
    """Lays out an installed distribution whose code must never run."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    package = (editable or site) / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    for path, data in files.items():
        (package / path).parent.mkdir(exist_ok=True)
        (package / path).write_bytes(data)


def test_missing_asset_says_what_to_do(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("open_asset went to the network or started a program")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    toml = declare(bytes(1_106_785), {"kind": "url", "url": "http://127.0.0.1:9/a"})
    with pytest.raises(AssetMissing) as caught:
        open_asset("thing", toml=toml)
    expected = "asset 'thing' (1.1 MB) is not on this machine; get it with: paperworks data thing"
    assert str(caught.value) == expected
    assert isinstance(caught.value, FileNotFoundError)
    assert status("thing", toml=toml).state == "missing"


def test_unknown_name_suggests(declare: Declare) -> None:
    with pytest.raises(UnknownAsset, match=r"no asset is named 'mnist5'; did you mean 'mnist5k'\? known: "):
        open_asset("mnist5")


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert cache_folder() == cache
    for empty in ("", None):
        monkeypatch.delenv("PAPERWORKS_CACHE", raising=False)
        if empty is not None:
            monkeypatch.setenv("PAPERWORKS_CACHE", empty)
        assert cache_folder().is_absolute()
        assert cache_folder().name == "paperworks"


@pytest.mark.parametrize("editable", [False, True])
def test_installed_file_is_read_where_it_lies(
    tmp_path: Path, declare: Declare, cache: Path, monkeypatch: pytest.MonkeyPatch, editable: bool
) -> None:
    place = tmp_path / ("checkout" if editable else "site")
    install(tmp_path / "site", "paperthing", {"data/a.bin": DATA}, editable=place if editable else None)
    for path in {tmp_path / "site", place}:
        monkeypatch.syspath_prepend(str(path))
    toml = declare(DATA, {"kind": "installed", "package": "paperthing", "path": "paperthing/data/a.bin"})
    path = open_asset("thing", toml=toml)
    assert path == place / "paperthing/data/a.bin"
    assert fetch("thing", toml=toml) == path
    assert not cache.exists(), "nothing is copied"
    assert "paperthing" not in sys.modules


def test_installed_folder(tmp_path: Path, declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "paperthing", {"data/a": b"a", "data/b": b"b"})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    source = {"kind": "installed", "package": "paperthing", "path": "paperthing/data"}
    assert open_asset("thing", toml=declare({"a": b"a", "b": b"b"}, source)) == tmp_path / "site/paperthing/data"
    with pytest.raises(AssetMissing, match="installed paperthing holds other bytes: c is missing"):
        open_asset("thing", toml=declare({"a": b"a", "c": b"c"}, source))


def test_other_bytes_in_the_package_fall_through_to_the_next_source(
    tmp_path: Path, declare: Declare, server: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "paperthing", {"a.bin": b"of another version"})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    source = {"kind": "installed", "package": "paperthing", "path": "paperthing/a.bin"}
    toml = declare(DATA, source, server.source("a", DATA))
    with pytest.raises(
        AssetMissing, match=r"installed paperthing holds other bytes: .* should have checksum [0-9a-f]{64}"
    ):
        open_asset("thing", toml=toml)
    assert fetch("thing", toml=toml).is_relative_to(cache)


def test_no_source_can_fetch(declare: Declare) -> None:
    toml = declare(DATA, {"kind": "installed", "package": "paperthing-nowhere", "path": "a/b"})
    with pytest.raises(FetchError, match="it is in no package here: installed paperthing-nowhere"):
        fetch("thing", toml=toml)


def test_damaged_copy_is_seen_and_replaced(declare: Declare, server: Any) -> None:
    toml = declare(DATA, server.source("a", DATA))
    path = fetch("thing", toml=toml)
    assert open_asset("thing", toml=toml) == path
    path.write_bytes(DATA[:-1] + b"?")  # same size; seen although this process has opened it before
    with pytest.raises(AssetMissing, match=r"the copy in the cache is damaged: thing\.bin should have checksum"):
        open_asset("thing", toml=toml)
    assert fetch("thing", toml=toml) == path
    assert path.read_bytes() == DATA


def test_new_checksum_is_a_new_copy(declare: Declare, server: Any) -> None:
    old = fetch("thing", toml=declare(DATA, server.source("a", DATA)))
    toml = declare(b"second edition", server.source("b", b"second edition"))
    assert status("thing", toml=toml).state == "missing"
    assert fetch("thing", toml=toml) != old
    assert old.read_bytes() == DATA


def test_two_processes_fetch_once(
    tmp_path: Path, declare: Declare, server: Any, fetcher: Callable[[Path, str], subprocess.Popen[str]]
) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        wait_for(tmp_path / "one", tmp_path / "two")  # both have begun
        time.sleep(0.5)
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA)

    toml = declare(DATA, server.source("a", slow))
    processes = [fetcher(toml, "one"), fetcher(toml, "two")]
    outputs = [process.communicate(timeout=30) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert Path(outputs[0][0].strip()).read_bytes() == DATA
    assert server.hits == ["/a"]


def test_killed_process_leaves_nothing_that_counts(
    declare: Declare, server: Any, cache: Path, fetcher: Callable[[Path, str], subprocess.Popen[str]]
) -> None:
    begun, end = threading.Event(), threading.Event()

    def stall(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(DATA)))
        handler.end_headers()
        handler.wfile.write(DATA[:100])
        begun.set()
        end.wait(20)

    toml = declare(DATA, server.source("a", stall, DATA))
    process = fetcher(toml, "one")
    assert begun.wait(20)
    process.kill()
    process.communicate()
    end.set()
    assert list(cache.rglob(".work-*")), "the process died at work"
    assert status("thing", toml=toml).state == "missing"
    assert fetch("thing", toml=toml).read_bytes() == DATA
    assert not list(cache.rglob(".work-*"))


@pytest.mark.parametrize("place", ["below a file", "proc"])
def test_unwritable_cache_is_one_line(
    tmp_path: Path, declare: Declare, server: Any, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place == "proc" and not Path("/proc/self").exists():
        pytest.skip("/proc, which even root cannot write, is not on this machine")
    (tmp_path / "file").touch()
    folder = "/proc/paperworks" if place == "proc" else str(tmp_path / "file" / "cache")
    monkeypatch.setenv("PAPERWORKS_CACHE", folder)
    toml = declare(DATA, server.source("a", DATA))
    with pytest.raises(AssetMissing):
        open_asset("thing", toml=toml)
    with pytest.raises(CacheError) as caught:
        fetch("thing", toml=toml)
    message = str(caught.value)
    assert message.startswith(f"cannot write to the cache folder {folder} (")
    assert message.endswith("); set PAPERWORKS_CACHE to a folder that you may write to")
    assert "\n" not in message
    assert server.hits == [], "nothing is downloaded that cannot be kept"


def test_full_disk_is_one_line(declare: Declare, server: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("paperworks.kit.assets.sources._http", full)
    with pytest.raises(CacheError, match=r"\(No space left on device\)"):
        fetch("thing", toml=declare(DATA, server.source("a", DATA)))
    assert [path.name for path in cache.rglob("*") if path.is_file()] == [".lock"]


def test_describe(declare: Declare, server: Any) -> None:
    toml = declare(DATA, server.source("a", DATA, verified=True), server.source("b", DATA))
    (row,) = describe(toml=toml)
    assert row == {
        "name": "thing",
        "what": "a thing",
        "size": len(DATA),
        "licence": "CC0",
        "status": "missing",
        "path": None,
        "sources": [
            {"source": f"url {server.url}a", "verified": True},
            {"source": f"url {server.url}b", "verified": False},
        ],
    }
    path = fetch("thing", toml=toml)
    (row,) = describe(["thing"], toml=toml)
    assert (row["status"], row["path"]) == ("ready", str(path))
    json.dumps(row)
    with pytest.raises(UnknownAsset):
        describe(["thing", "nothing"], toml=toml)


def test_fetch_all_announces_sizes_first(declare: Declare, server: Any) -> None:
    toml = declare(DATA, server.source("a", DATA))
    said: list[tuple[str, int]] = []
    paths = fetch_all(["thing"], lambda line: said.append((line, len(server.hits))), toml=toml)
    assert said == [(f"thing: 2.1 kB, from url {server.url}a; CC0", 0), (f"thing: {paths['thing']}", 1)]
    fetch_all(["thing"], lambda line: said.append((line, len(server.hits))), toml=toml)
    assert said[2:] == [(f"thing: {paths['thing']}", 1)]


def test_fetch_all_goes_on_after_a_failure(declare: Declare, server: Any) -> None:
    toml = declare(DATA, server.source("a", 404))
    text = toml.read_text()
    toml.write_text(text + declare(DATA, server.source("b", DATA)).read_text().replace("thing", "other"))
    lines: list[str] = []
    with pytest.raises(FetchError, match="asset 'thing' could not be fetched"):
        fetch_all(["thing", "other"], lines.append, toml=toml)
    assert status("other", toml=toml).state == "ready"
    server.hits.clear()
    with pytest.raises(UnknownAsset):
        fetch_all(["thing", "nothing"], lines.append, toml=toml)
    assert server.hits == [], "names are checked before anything is fetched"


@pytest.mark.parametrize(
    ("size", "text"), [(7, "7 B"), (1500, "1.5 kB"), (1_106_785, "1.1 MB"), (2_000_000_000, "2.0 GB")]
)
def test_size_text(size: int, text: str) -> None:
    assert size_text(size) == text
