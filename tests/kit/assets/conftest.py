"""A cache of one's own, catalogues written on the spot, and a server on loopback that fails on command."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paperworks.kit.assets import FetchError

Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PAPERWORKS_CACHE", str(folder))
    return folder


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)


@pytest.fixture
def declare(tmp_path: Path) -> Callable[..., Path]:
    """Writes a catalogue with the one asset `thing`: bytes for a file, a dict for a folder of files."""

    def write(content: bytes | dict[str, bytes], *sources: dict[str, Any], name: str = "thing.bin") -> Path:
        def entry(file: str, data: bytes) -> str:
            return f'file = "{file}"\nsize = {len(data)}\nsha256 = "{hashlib.sha256(data).hexdigest()}"\n'

        text = '[thing]\nwhat = "a thing"\nlicence = "CC0"\n'
        if isinstance(content, bytes):
            text += entry(name, content)
        else:
            text += "".join(f"[[thing.files]]\n{entry(file, data)}" for file, data in content.items())
        for source in sources:
            text += "[[thing.source]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in source.items())
        path = tmp_path / "assets.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


class Loopback:
    """A server whose answers are scripted: per path a list, of which the last one is repeated."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.script: dict[str, list[bytes | int | Answer]] = {}
        self.hits: list[str] = []
        self.headers: list[dict[str, str]] = []

    def source(self, address: str, *answers: bytes | int | Answer, **keys: Any) -> dict[str, Any]:
        """Scripts the answers of an address (bytes, an error code or a function) and returns it as a source."""
        self.script["/" + address] = list(answers)
        return {"kind": "url", "url": self.url + address, **keys}


@pytest.fixture
def server() -> Iterator[Loopback]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            loopback.hits.append(self.path)
            loopback.headers.append(dict(self.headers))
            answers = loopback.script.get(self.path, [404])
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if callable(answer):
                answer(self)
            elif isinstance(answer, int):
                self.send_error(answer)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(answer)

        do_HEAD = do_GET

        def log_message(self, *args: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.block_on_close = False
    loopback = Loopback(f"http://127.0.0.1:{httpd.server_address[1]}/")
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield loopback
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def registry(tmp_path: Path) -> Callable[[list[str]], AbstractContextManager[None]]:
    """Skips when the registry's ordinary client, called without any code of ours, gets nothing either."""

    @contextmanager
    def guard(command: list[str]) -> Iterator[None]:
        try:
            yield
        except FetchError:
            folder = tmp_path / "plain"
            folder.mkdir(exist_ok=True)
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
            except FileNotFoundError:
                pytest.skip(f"{command[0]} is not on this machine")
            if done.returncode:
                said = " ".join(done.stderr.split())[:200]
                pytest.skip(f"registry out of reach: {' '.join(command[:4])}: {said}")
            raise

    return guard
