"""Fetching from addresses: a real HTTP server on loopback that fails in every way a server can."""

from __future__ import annotations

import hashlib
import io
import logging
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from paperworks.kit.assets import FetchError, fetch, open_asset, status

DATA = bytes(range(256)) * 1000
Declare = Callable[..., Path]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Promises everything, sends a part and hangs up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(DATA)))
    handler.end_headers()
    handler.wfile.write(DATA[:1000])
    handler.close_connection = True


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Sends far more than declared, without saying how much it will be."""
    handler.send_response(200)
    handler.send_header("Connection", "close")
    handler.end_headers()
    with suppress(OSError):
        for _ in range(1000):
            handler.wfile.write(bytes(1 << 16))
    handler.close_connection = True


def test_fetch_then_open(server: Any, declare: Declare, cache: Path) -> None:
    toml = declare(DATA, server.source("a", DATA))
    steps: list[tuple[int, int]] = []
    path = fetch("thing", lambda done, total: steps.append((done, total)), toml=toml)
    assert path.read_bytes() == DATA
    assert path == open_asset("thing", toml=toml) == fetch("thing", toml=toml) == status("thing", toml=toml).path
    assert path.is_relative_to(cache)
    assert path.name == "thing.bin"
    assert path.stat().st_mode & 0o444 == 0o444, "other users of a shared cache can read it"
    assert server.hits == ["/a"], "asked once, then read from disk"
    assert server.headers[0]["Accept-Encoding"] == "identity", "else a .gz could arrive unpacked"
    assert steps == sorted(steps)
    assert steps[-1] == (len(DATA), len(DATA))
    assert files(cache) == ["thing.bin"]


@pytest.mark.parametrize("trouble", [500, 503, 429, cut])
@pytest.mark.usefixtures("no_waiting")
def test_passing_trouble_is_retried(server: Any, declare: Declare, trouble: Any) -> None:
    toml = declare(DATA, server.source("a", trouble, DATA))
    assert fetch("thing", toml=toml).read_bytes() == DATA
    assert len(server.hits) == 2


@pytest.mark.parametrize(("trouble", "said"), [(500, "500 Server Error"), (cut, "IncompleteRead")])
@pytest.mark.usefixtures("no_waiting")
def test_lasting_trouble_is_reported(server: Any, declare: Declare, cache: Path, trouble: Any, said: str) -> None:
    toml = declare(DATA, server.source("a", trouble))
    with pytest.raises(FetchError) as caught:
        fetch("thing", toml=toml)
    assert str(caught.value).startswith(f"asset 'thing' could not be fetched: url {server.url}a: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.hits) == 3
    assert files(cache) == [], "nothing half-written"


def test_absent_file_is_not_retried_and_the_next_source_is_tried(server: Any, declare: Declare) -> None:
    toml = declare(DATA, server.source("gone", 404), server.source("mirror", DATA))
    assert fetch("thing", toml=toml).read_bytes() == DATA
    assert server.hits == ["/gone", "/mirror"]


def test_wrong_checksum_names_everything(server: Any, declare: Declare, cache: Path) -> None:
    wrong = DATA[:-1] + b"?"
    toml = declare(DATA, server.source("a", wrong))
    with pytest.raises(FetchError) as caught:
        fetch("thing", toml=toml)
    message = str(caught.value)
    expected, got = hashlib.sha256(DATA).hexdigest(), hashlib.sha256(wrong).hexdigest()
    for part in ("asset 'thing'", f"url {server.url}a", f"expected {expected}", f"got {got}"):
        assert part in message
    assert "\n" not in message
    assert server.hits == ["/a"], "the same bytes would come again"
    assert files(cache) == []


def test_wrong_checksum_tries_the_next_source(server: Any, declare: Declare, caplog: pytest.LogCaptureFixture) -> None:
    toml = declare(DATA, server.source("bad", b"wrong"), server.source("good", DATA))
    with caplog.at_level(logging.WARNING):
        assert fetch("thing", toml=toml).read_bytes() == DATA
    assert "bad: wrong checksum of thing.bin" in caplog.text, (
        "a source that serves other bytes is not passed over silently"
    )


def test_a_flood_is_cut_off(server: Any, declare: Declare) -> None:
    toml = declare(b"small", server.source("a", endless))
    with pytest.raises(FetchError, match="more than the 5 bytes declared"):
        fetch("thing", toml=toml)
    assert server.hits == ["/a"]


def test_nobody_listens(declare: Declare, no_waiting: None) -> None:
    toml = declare(DATA, {"kind": "url", "url": "http://127.0.0.1:9/a"})
    with pytest.raises(FetchError, match="ConnectionError") as caught:
        fetch("thing", toml=toml)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_folder_from_an_archive(server: Any, declare: Declare, cache: Path, kind: str) -> None:
    content = {"a.txt": b"alpha", "deep/b.txt": b"beta"}
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in {**content, "c.txt": b"not declared"}.items():
                archive.writestr(f"top/{name}", data)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, data in content.items():
                info = tarfile.TarInfo(f"./top/{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    toml = declare(content, server.source("pack", out.getvalue(), path="top"))
    folder = fetch("thing", toml=toml)
    assert {name: (folder / name).read_bytes() for name in content} == content
    assert files(cache) == ["a.txt", "b.txt"]
    assert server.hits == ["/pack"], "one download for both files"
    assert open_asset("thing", toml=toml) == folder


def test_folder_of_addresses_is_whole_or_absent(server: Any, declare: Declare, cache: Path) -> None:
    content = {"a.txt": b"alpha", "b.txt": b"beta"}
    toml = declare(content, server.source("base", 404))
    server.script |= {"/base/a.txt": [b"alpha"], "/base/b.txt": [b"BETA"]}
    with pytest.raises(FetchError, match=r"wrong checksum of b\.txt"):
        fetch("thing", toml=toml)
    assert files(cache) == []
    server.script["/base/b.txt"] = [b"beta"]
    steps: list[tuple[int, int]] = []
    path = fetch("thing", lambda *step: steps.append(step), toml=toml)
    assert (path / "b.txt").read_bytes() == b"beta"
    assert steps == sorted(steps)
    assert steps[-1] == (9, 9), "progress counts over all files"
