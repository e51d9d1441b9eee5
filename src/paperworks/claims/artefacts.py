"""Prepared artefacts: built once under a lock, kept in the cache by paper, version and configuration."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from paperworks.claims.study import Preparation, Prepared

_DONE = "paperworks-artefact.json"


def cache_root() -> Path:
    """Where artefacts are kept: ``$PAPERWORKS_CACHE``, else the user's cache folder."""
    import platformdirs

    chosen = os.environ.get("PAPERWORKS_CACHE") or platformdirs.user_cache_dir("paperworks", appauthor=False)
    return Path(chosen).expanduser().absolute() / "prepared"


def folder_of(artefact: Prepared, paper: str, scale: str, seed: int | None) -> Path:
    """The folder of one artefact; another version or configuration is another folder."""
    config = artefact.config.get(scale)
    text = json.dumps([artefact.version, config.model_dump(mode="json") if config else None], sort_keys=True)
    name = f"v{artefact.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return cache_root() / paper / artefact.name / (name if seed is None else f"{name}-seed{seed}")


def build(artefact: Prepared, paper: str, scale: str, seed: int | None, folder: Path) -> Path:
    """Fill an artefact's folder unless that is done; of several processes asking at once, one builds.

    The builder writes into a folder beside the final one, which is renamed when it is whole.
    """
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if ready(folder):
            return folder
        partial = folder.with_name(f"{folder.name}.partial")
        for leftover in (partial, folder):
            if leftover.exists():
                shutil.rmtree(leftover)
        partial.mkdir()
        origin = ("prepared", paper, artefact.name, artefact.version, "" if seed is None else seed)
        artefact.function(Preparation(folder=partial, config=artefact.config.get(scale), seed=seed, origin=origin))
        (partial / _DONE).write_text(json.dumps({"hash": content_hash(partial)}), encoding="utf-8")
        partial.rename(folder)
    return folder


def ready(folder: Path) -> bool:
    """Whether the artefact is there, whole."""
    return (folder / _DONE).is_file()


def recorded_hash(folder: Path) -> str:
    """The hash of the content, as recorded when it was built."""
    return str(json.loads((folder / _DONE).read_text(encoding="utf-8"))["hash"])


def content_hash(folder: Path) -> str:
    """sha256 over the names and bytes of all files."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != _DONE):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()[:16]
