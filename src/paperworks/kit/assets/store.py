"""The assets on this machine: found, fetched, described."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from paperworks.kit.assets.catalog import Asset, Source, catalog
from paperworks.kit.assets.errors import (
    AssetError,
    AssetMissing,
    CacheError,
    ChecksumError,
    FetchError,
    SourceError,
    UnknownAsset,
    one_line,
)
from paperworks.kit.assets.sources import Downloader, Progress, installed_path, sha256

_RETRIES = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Status:
    """Whether an asset is on this machine.

    Attributes:
        state: "ready" or "missing".
        path: The file or folder; None where it is missing.
        size: Bytes of the asset.
    """

    state: Literal["ready", "missing"]
    path: Path | None
    size: int


def cache_folder() -> Path:
    """Returns the folder for what was fetched: PAPERWORKS_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("PAPERWORKS_CACHE"):
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("paperworks", appauthor=False)


def open_asset(name: str, *, toml: Path | None = None) -> Path:
    """Returns the path of an asset that is on this machine; never touches the network.

    Args:
        name: Name in the catalogue.
        toml: Another catalogue than the one of the package.

    Returns:
        A file, or a folder for an asset of several files. It may lie in an installed package: do not write to it.

    Raises:
        AssetMissing: It is not here, or damaged; the message says which command gets it and how large it is.
        UnknownAsset: There is no such name.
    """
    asset = _find(name, toml)
    path, troubles = _search(asset)
    if path is None:
        why = f" ({'; '.join(troubles)})" if troubles else ""
        size = size_text(asset.size)
        raise AssetMissing(f"asset {name!r} ({size}) is not on this machine{why}; get it with: paperworks data {name}")
    return path


def status(name: str, *, toml: Path | None = None) -> Status:
    """Says whether an asset is on this machine, where, and how large it is."""
    asset = _find(name, toml)
    path, _ = _search(asset)
    return Status("ready" if path else "missing", path, asset.size)


def fetch(name: str, progress: Progress | None = None, *, toml: Path | None = None) -> Path:
    """Gets an asset unless it is here; the only function that contacts the network.

    Sources are tried in order. Processes that fetch the same asset wait for the first of them.

    Args:
        name: Name in the catalogue.
        progress: Called with the bytes that have arrived and the bytes expected.
        toml: Another catalogue than the one of the package.

    Returns:
        As `open_asset`.

    Raises:
        FetchError: No source delivered it; the message says why for each.
        CacheError: The cache folder cannot be written.
    """
    asset = _find(name, toml)
    path, troubles = _search(asset)
    if path is not None:
        return path
    with writing():
        _home(asset).mkdir(parents=True, exist_ok=True)
    with locked(_home(asset) / ".lock"):
        if (path := _cached(asset, [])) is not None:
            return path  # another process was faster
        for stale in _home(asset).glob(".work-*"):  # of a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        for source in asset.sources:
            if source.kind == "installed":
                continue
            try:
                return _build(asset, source, progress)
            except SourceError as error:
                troubles.append(f"{source}: {error}")
                if isinstance(error, ChecksumError):
                    _log.warning("asset %r: %s", name, troubles[-1])
    if not troubles:
        troubles.append(f"it is in no package here: {', '.join(map(str, asset.sources))}")
    raise FetchError(f"asset {name!r} could not be fetched: {'; '.join(troubles)}")


def describe(names: Iterable[str] | None = None, *, toml: Path | None = None) -> list[dict[str, Any]]:
    """Returns one row an asset, ready for a table or JSON: name, what, size (bytes), licence, status, path, sources."""
    rows = []
    for asset in _select(names, toml):
        path, _ = _search(asset)
        package = f"; package: {asset.package_licence}" if asset.package_licence else ""
        rows.append(
            {
                "name": asset.name,
                "what": asset.what,
                "size": asset.size,
                "licence": asset.licence + package,
                "status": "ready" if path else "missing",
                "path": str(path) if path else None,
                "sources": [{"source": str(source), "verified": source.verified} for source in asset.sources],
            }
        )
    return rows


def fetch_all(
    names: Iterable[str],
    announce: Callable[[str], None],
    progress: Progress | None = None,
    *,
    toml: Path | None = None,
) -> dict[str, Path]:
    """Fetches several assets; one that fails does not stop the others.

    Args:
        names: Names in the catalogue; all are checked before anything is fetched.
        announce: Given one line at a time: what will be downloaded and how large it is, then where each asset lies.
        progress: As in `fetch`.
        toml: Another catalogue than the one of the package.

    Returns:
        The path of each asset.

    Raises:
        FetchError: One or more could not be fetched; the others are there.
    """
    assets = _select(list(names), toml)
    here = {asset.name: _search(asset)[0] for asset in assets}
    for asset in assets:
        if here[asset.name] is None:
            announce(f"{asset.name}: {size_text(asset.size)}{_travels(asset)}; {asset.licence}")
    paths, failures = {}, []
    for asset in assets:
        try:
            paths[asset.name] = here[asset.name] or fetch(asset.name, progress, toml=toml)
            announce(f"{asset.name}: {paths[asset.name]}")
        except FetchError as error:
            failures.append(str(error))
    if failures:
        raise FetchError(" | ".join(failures))
    return paths


def size_text(size: int) -> str:
    """Returns a number of bytes as people read it, such as "1.1 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def _travels(asset: Asset) -> str:
    source = next((source for source in asset.sources if source.kind != "installed"), None)
    if source is None:
        return ""
    return f", from {source}" + (f", a download of {size_text(source.download)}" if source.download else "")


def _find(name: str, toml: Path | None) -> Asset:
    return _select([name], toml)[0]


def _select(names: Iterable[str] | None, toml: Path | None) -> list[Asset]:
    assets = catalog(toml)
    wanted = list(assets) if names is None else list(names)
    for name in wanted:
        if name not in assets:
            close = get_close_matches(name, assets, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UnknownAsset(f"no asset is named {name!r}; {hint}known: {', '.join(sorted(assets))}")
    return [assets[name] for name in wanted]


def _home(asset: Asset) -> Path:
    return cache_folder() / "assets" / asset.name


def _target(asset: Asset) -> Path:
    return _home(asset) / asset.digest[:16]  # a new checksum is a new folder


def _search(asset: Asset) -> tuple[Path | None, list[str]]:
    """Looks in the cache, then in installed packages; also says what lies there but is of no use."""
    troubles: list[str] = []
    path = _cached(asset, troubles)
    for source in asset.sources:
        if path is None and source.kind == "installed":
            path = _installed(asset, source, troubles)
    return path, troubles


def _cached(asset: Asset, troubles: list[str]) -> Path | None:
    folder = _target(asset)
    try:
        if not folder.is_dir():
            return None
        if wrong := _wrong(asset, folder if asset.folder else folder / asset.files[0].name):
            troubles.append(f"the copy in the cache is damaged: {wrong}")
            return None
    except OSError as error:
        troubles.append(f"the cache cannot be read: {one_line(error)}")
        return None
    return folder if asset.folder else folder / asset.files[0].name


def _installed(asset: Asset, source: Source, troubles: list[str]) -> Path | None:
    path = installed_path(source)
    if path is None:
        return None
    if wrong := _wrong(asset, path):
        troubles.append(f"{source} holds other bytes: {wrong}")
        return None
    return path


def _wrong(asset: Asset, place: Path) -> str:
    """Compares the file or folder at `place` with the catalogue; "" where every byte is right."""
    for file in asset.files:
        path = place / file.name if asset.folder else place
        if not path.is_file():
            return f"{file.name} is missing"
        if (got := sha256_of(path)) != file.sha256:
            return f"{file.name} should have checksum {file.sha256}, has {got}"
    return ""


def sha256_of(path: Path) -> str:
    """Returns the checksum of a file in hex; read once a process for each state of the file."""
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, changed: int, inode: int) -> str:
    return sha256(path)


def _build(asset: Asset, source: Source, progress: Progress | None) -> Path:
    """Downloads into a work folder beside the target and renames it: the target is whole or absent."""
    work = _home(asset) / f".work-{uuid.uuid4().hex}"
    files, scratch = work / "files", work / "scratch"
    try:
        with writing():
            files.mkdir(parents=True)
            scratch.mkdir()
            _download(asset, files, Downloader(asset, source, scratch, progress or _silent))
            target = _target(asset)
            if target.exists():  # damaged
                target.rename(work / "old")
            files.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target if asset.folder else target / asset.files[0].name


def _download(asset: Asset, folder: Path, downloader: Downloader) -> None:
    import pooch
    import requests

    puppy = pooch.create(
        path=folder,
        base_url="",
        registry={file.name: f"sha256:{file.sha256}" for file in asset.files},
        urls={file.name: file.name for file in asset.files},  # the downloader knows the address
        retry_if_failed=_RETRIES,
    )
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        for file in asset.files:
            Path(puppy.fetch(file.name, downloader=downloader)).chmod(0o644)  # pooch's temporary files are private
    except requests.RequestException as error:
        raise SourceError(f"{type(error).__name__}: {one_line(error)}") from error
    finally:
        logger.setLevel(level)


def _silent(done: int, total: int) -> None:
    pass


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock at `path`; of several processes one is inside."""
    from filelock import FileLock

    lock = FileLock(path)
    with writing():
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing() -> Iterator[None]:
    """Turns an error of writing to the cache into a `CacheError` that says what to do."""
    try:
        yield
    except AssetError:
        raise
    except OSError as error:
        raise CacheError(
            f"cannot write to the cache folder {cache_folder()} ({one_line(error.strerror or error)}); "
            "set PAPERWORKS_CACHE to a folder that you may write to"
        ) from error
