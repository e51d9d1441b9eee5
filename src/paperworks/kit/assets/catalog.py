"""The catalogue of assets, read from `assets.toml` and checked by hand: a bad key is named with its asset."""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from paperworks.kit.assets.errors import CatalogError

CATALOG = Path(__file__).with_name("assets.toml")

_COMMON = {"kind", "verified", "download"}
_KEYS: dict[str, tuple[set[str], set[str]]] = {  # kind -> (required, optional)
    "hub": ({"repo", "revision", "path"}, {"type"}),
    "installed": ({"package", "path"}, set()),
    "wheel": ({"package", "version", "path"}, set()),
    "npm": ({"package", "version", "path"}, set()),
    "deb": ({"package", "path"}, {"version"}),
    "url": ({"url"}, {"path"}),
}
_REQUIRED = {"what", "licence", "source"}
_OPTIONAL = {"package_licence", "note", "file", "size", "sha256", "files"}
_FORMS = {  # no value may be taken for an option of a command
    "package": re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._+-]*"),
    "version": re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:_-]*"),
    "repo": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?"),
    "revision": re.compile(r"[0-9a-f]{40}"),
    "type": re.compile(r"model|dataset"),
    "url": re.compile(r"https://\S+|http://(127\.0\.0\.1|localhost)[:/]\S*"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
}
_ALLOWED = {
    "revision": "a commit of 40 hex digits",
    "type": '"model" or "dataset"',
    "url": "an https address (http on loopback only)",
    "sha256": "64 lower-case hex digits",
}


@dataclass(frozen=True)
class File:
    """One file of an asset.

    Attributes:
        name: Path below the asset's folder.
        size: Bytes.
        sha256: Checksum in hex.
    """

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Source:
    """One place that an asset can come from; which attributes are set depends on `kind`.

    Attributes:
        kind: hub, installed, wheel, npm, deb or url.
        path: The file's path in the source; for a folder of files, the path of their folder ("." for the top).
        package: Name of the package.
        version: Version of the package.
        url: Address.
        repo: Repository on the hub.
        revision: Commit on the hub.
        type: Kind of hub repository, "model" or "dataset".
        download: Bytes that must travel, where they differ from the asset's size.
        verified: Whether the tests fetch the asset from exactly this source.
    """

    kind: str
    path: str = ""
    package: str = ""
    version: str = ""
    url: str = ""
    repo: str = ""
    revision: str = ""
    type: str = "model"
    download: int = 0
    verified: bool = False

    def __str__(self) -> str:
        """Names the source in messages."""
        what = self.package or self.repo or self.url
        return " ".join(part for part in (self.kind, what, self.version or self.revision[:12]) if part)

    def member(self, asset: Asset, file: File) -> str:
        """Returns the path of `file` in this source ("" where the source is the file itself)."""
        if not asset.folder:
            return self.path
        return file.name if self.path in ("", ".") else f"{self.path}/{file.name}"


@dataclass(frozen=True)
class Asset:
    """Data or a model that is not ours.

    Attributes:
        name: Key in the catalogue.
        what: One sentence.
        licence: Licence of the data.
        package_licence: Licence of the package that carries it, "" where there is none.
        files: One file, or those of a folder.
        sources: In the order in which they are tried.
        folder: Whether the asset is opened as a folder.
        note: Further remarks.
    """

    name: str
    what: str
    licence: str
    files: tuple[File, ...]
    sources: tuple[Source, ...]
    folder: bool = False
    package_licence: str = ""
    note: str = field(default="", repr=False)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """Checksum of the whole: that of the one file, or of the list of files."""
        if not self.folder:
            return self.files[0].sha256
        return hashlib.sha256("".join(f"{f.sha256}  {f.name}\n" for f in self.files).encode()).hexdigest()


def catalog(toml: Path | None = None) -> dict[str, Asset]:
    """Reads the catalogue.

    Args:
        toml: Another catalogue than the one of the package.

    Raises:
        CatalogError: The file breaks the schema; the message names the asset and the key.
    """
    path = toml or CATALOG
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CatalogError(f"cannot read the catalogue {path}: {error}") from error
    return {name: _asset(name, table) for name, table in tables.items()}


def _asset(name: str, table: object) -> Asset:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise CatalogError(f"asset {name!r}: a name consists of a-z, 0-9, _ and -")
    if not isinstance(table, dict):
        raise CatalogError(f"asset {name!r}: expected a table, got {table!r}")
    folder = "files" in table
    _keys(name, "", table, _REQUIRED | ({"files"} if folder else {"file", "size", "sha256"}), _REQUIRED | _OPTIONAL)
    if folder and (mixed := {"file", "size", "sha256"} & table.keys()):
        _bad(name, min(mixed), f"stands beside 'files'; give either one {min(mixed)} or a list of files")
    entries = _tables(name, "files", table["files"]) if folder else [table]
    files = tuple(_file(name, f"files[{i}]." if folder else "", entry, folder) for i, entry in enumerate(entries))
    if len({file.name for file in files}) < len(files):
        _bad(name, "files", "names the same file twice")
    return Asset(
        name=name,
        what=_text(name, "what", table["what"]),
        licence=_text(name, "licence", table["licence"]),
        package_licence=_text(name, "package_licence", table["package_licence"]) if "package_licence" in table else "",
        note=_text(name, "note", table["note"]) if "note" in table else "",
        files=files,
        sources=tuple(
            _source(name, f"source[{i}].", s) for i, s in enumerate(_tables(name, "source", table["source"]))
        ),
        folder=folder,
    )


def _file(name: str, where: str, table: dict[str, Any], strict: bool) -> File:
    if strict:
        _keys(name, where, table, {"file", "size", "sha256"}, {"file", "size", "sha256"})
    return File(
        name=_path(name, f"{where}file", table["file"]),
        size=_count(name, f"{where}size", table["size"]),
        sha256=_text(name, f"{where}sha256", table["sha256"]),
    )


def _source(name: str, where: str, table: dict[str, Any]) -> Source:
    kind = table.get("kind")
    if kind not in _KEYS:
        _bad(name, f"{where}kind", f"is {kind!r}; allowed: {', '.join(_KEYS)}")
    required, optional = _KEYS[kind]
    _keys(name, where, table, required, required | optional | _COMMON)
    values: dict[str, Any] = {"kind": kind}
    for key in required | optional:
        if key in table:
            check = _path if key == "path" else _text
            values[key] = check(name, f"{where}{key}", table[key])
    if "download" in table:
        values["download"] = _count(name, f"{where}download", table["download"])
    if not isinstance(table.get("verified", False), bool):
        _bad(name, f"{where}verified", f"is {table['verified']!r}; allowed: true, false")
    return Source(**values, verified=table.get("verified", False))


def _keys(name: str, where: str, table: dict[str, Any], required: set[str], allowed: set[str]) -> None:
    if unknown := sorted(table.keys() - allowed):
        _bad(name, where + unknown[0], f"is unknown; allowed: {', '.join(sorted(allowed))}")
    if missing := sorted(required - table.keys()):
        _bad(name, where + missing[0], "is missing")


def _tables(name: str, key: str, value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
        _bad(name, key, f"must be one or more tables, [[{name}.{key}]]")
    return value


def _text(name: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        _bad(name, key, f"is {value!r}; a text is expected")
    form = key.rpartition(".")[2]
    if form in _FORMS and not _FORMS[form].fullmatch(value):
        _bad(name, key, f"is {value!r}; expected {_ALLOWED.get(form, f'a plain {form}')}")
    return value


def _path(name: str, key: str, value: object) -> str:
    text = _text(name, key, value)
    pure = PurePosixPath(text)
    if pure.is_absolute() or ".." in pure.parts or str(pure) != text or re.search(r"[\\:\x00-\x1f]", text):
        _bad(name, key, f"is {text!r}; expected a relative path with '/', without '..'")
    return text


def _count(name: str, key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        _bad(name, key, f"is {value!r}; expected a number of bytes")
    return value


def _bad(name: str, key: str, problem: str) -> NoReturn:
    raise CatalogError(f"asset {name!r}: {key} {problem}")
