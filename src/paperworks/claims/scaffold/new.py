"""Writes a room that passes the contract as it is: a small method with its study, to be replaced part by part."""

from __future__ import annotations

import dataclasses
import keyword
import os
import re
import shutil
import tempfile
from pathlib import Path

import jinja2

from paperworks.claims import catalog
from paperworks.claims.errors import PaperError, UsageError

TEMPLATES = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Written:
    """A room that was written.

    Attributes:
        room: Its folder.
        tests: The folder of its tests.
        distribution: Folder of the distribution that was written around it; ``None`` in a checkout of paperworks.
        new_family: Whether the checkout had no such family before.
    """

    room: Path
    tests: Path
    distribution: Path | None
    new_family: bool


def new(name: str, folder: Path | None = None) -> Written:
    """Write a room that passes the contract as it is.

    In a checkout of paperworks it goes to ``src/paperworks/FAMILY/PAPER``, with its tests in the mirror folder;
    anywhere else it becomes a small distribution, whose entry point makes it one of the papers once it is installed.

    Args:
        name: "family/paper".
        folder: Where the distribution goes; ``./paperworks-PAPER`` unless given. Always a distribution when given.

    Raises:
        UsageError: When the name is none, is taken, or something lies where the room would go.
        PaperError: When it cannot be written.
    """
    family, slug = _names(name)
    checkout = Path.cwd()
    inside = folder is None and (checkout / "src" / "paperworks" / "claims").is_dir()
    context = {"slug": slug, "family": family, "module": f"paperworks.{family}.{slug}", "inside": inside}
    if inside:
        room, tests = checkout / "src" / "paperworks" / family / slug, checkout / "tests" / family / slug
        _require_free(room, tests)
        new_family = not room.parent.is_dir()
        _write({"room": room, "tests": tests}, context)
        if new_family:
            (room.parent / "__init__.py").write_text(f'"""{family.capitalize()}."""\n', encoding="utf-8")
        return Written(room, tests, None, new_family)
    target = Path(os.path.abspath(folder or f"paperworks-{slug}"))
    package = f"paperworks_{slug}"
    context |= {"module": f"{package}.{slug}", "package": package}
    _require_free(target)
    room, tests = target / "src" / package / slug, target / "tests"
    _write({"distribution": target, "room": room, "tests": tests}, context)
    return Written(room, tests, target, False)


def _names(name: str) -> tuple[str, str]:
    parts = name.split("/")
    sound = len(parts) == 2 and all(re.fullmatch(r"[a-z][a-z0-9_]*", p) and not keyword.iskeyword(p) for p in parts)
    if not sound:
        raise UsageError(f"{name!r} names no room: write FAMILY/PAPER in small letters, such as layers/mypaper")
    family, slug = parts
    there = catalog.rooms().get(slug)
    if there is not None:
        raise UsageError(f"there is a paper {slug!r} already, in {there.folder}; take another name")
    return family, slug


def _require_free(*folders: Path) -> None:
    for folder in folders:
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise UsageError(f"{folder} exists already; nothing was written")


def _write(places: dict[str, Path], context: dict[str, object]) -> None:
    """Render every template into a folder beside its place first, so that a failure leaves nothing half-written."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,  # it writes Python and TOML
    )
    staged: list[tuple[Path, Path]] = []
    try:
        for kind, place in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            stage = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=_standing(place)))
            staged.append((stage, place))
            for source in sorted((TEMPLATES / kind).rglob("*.jinja")):
                relative = source.relative_to(TEMPLATES / kind).with_suffix("").as_posix()
                path = stage / relative.replace("PACKAGE", str(context.get("package", "")))
                path.parent.mkdir(parents=True, exist_ok=True)
                text = templates.get_template(source.relative_to(TEMPLATES).as_posix()).render(context)
                path.write_text(text, encoding="utf-8")
        for stage, place in staged:
            shutil.copytree(stage, place, dirs_exist_ok=True)
    except OSError as error:
        raise PaperError(f"cannot write {error.filename or 'the room'}: {error.strerror or error}") from None
    finally:
        for stage, _ in staged:
            shutil.rmtree(stage, ignore_errors=True)


def _standing(place: Path) -> Path:
    """The nearest folder above that exists."""
    return next(parent for parent in place.parents if parent.is_dir())
