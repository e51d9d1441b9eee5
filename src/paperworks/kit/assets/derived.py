"""What is made from an asset once and kept beside it in the cache: another file format, converted weights."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from paperworks.kit.assets.catalog import catalog
from paperworks.kit.assets.store import cache_folder, locked, open_asset, sha256_of, writing

_MANIFEST = "paperworks-derived.json"


def derive(
    asset: str, name: str, version: int, build: Callable[[Path, Path], None], *, toml: Path | None = None
) -> Path:
    """Returns the folder of what `build` makes of an asset; it is built where it is not here, whole.

    Processes that ask at once wait for the first of them. What was built is checked against the checksums noted then,
    once a process, and built again where it is damaged. The asset itself is needed for building only.

    Args:
        asset: Name of an asset.
        name: What is made of it.
        version: Another number is another folder: to be raised when `build` writes something else.
        build: Called with the path of the asset and the folder to fill.
        toml: Another catalogue than the one of the package.

    Raises:
        AssetMissing: It has to be built, and the asset is not on this machine.
        CacheError: The cache folder cannot be written.
    """
    digest = catalog(toml)[asset].digest
    home = cache_folder() / "derived" / asset
    target = home / f"{name}-v{version}-{digest[:16]}"
    if _whole(target):
        return target
    source = open_asset(asset, toml=toml)
    with writing():
        home.mkdir(parents=True, exist_ok=True)
    with locked(home / f"{name}.lock"):
        if _whole(target):
            return target  # another process was faster
        for stale in home.glob(f".work-{name}-*"):  # of a process that was killed
            shutil.rmtree(stale, ignore_errors=True)
        work = home / f".work-{name}-{uuid.uuid4().hex}"
        try:
            with writing():
                files = work / "files"
                files.mkdir(parents=True)
                build(source, files)
                for path in _files(files):
                    path.chmod(0o644)  # some writers make private files
                manifest = {path.relative_to(files).as_posix(): sha256_of(path) for path in _files(files)}
                (files / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
                if target.exists():  # damaged
                    target.rename(work / "old")
                files.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)


def _whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(sha256_of(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError):
        return False
