"""Takes a method out of its room: a folder that needs neither this library nor its studies."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import os
import shutil
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement

import paperworks
from paperworks.claims import catalog
from paperworks.claims.errors import PaperError, UsageError
from paperworks.claims.paper import Paper, load_paper

_NOT_METHOD = frozenset({"study.py", "derive.py", "speed.py", "evidence.jsonl", "speed.json"})
_NOT_DATA = frozenset({".py", ".pyi", ".toml", ".partial"})
_LENT = "paperworks.kit.lm."
_LAZY = "from paperworks._lazy import attach\n\n__getattr__, __dir__, __all__ = attach(__name__, __file__)\n"


@dataclasses.dataclass(frozen=True)
class Ejected:
    """What was written.

    Attributes:
        folder: The folder.
        tests: Test files that came along.
        left_out: Test files that did not, each with what it imports of this library.
    """

    folder: Path
    tests: tuple[str, ...]
    left_out: dict[str, str]


def eject(slug: str, folder: Path) -> Ejected:
    """Write a paper's method as a package of its own: ``folder/pyproject.toml``, ``folder/SLUG``, ``folder/tests``.

    Its modules are copied with a licence header, and with them the modules of ``kit.lm`` that they use; all import
    third parties only. Study, derived metrics and speed stay behind. Tests come along where the tests of this library
    are at hand (a checkout), as far as they test the method alone.

    Args:
        slug: The paper.
        folder: Where it goes; new or empty.

    Raises:
        UsageError: When there is no such paper, or the folder holds something.
        PaperError: When the method imports other parts of this library, or the folder cannot be written.
    """
    room = catalog.find(slug)
    paper = load_paper(room.folder)
    target = Path(os.path.abspath(folder))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"{target} exists already and is not an empty folder; nothing was written")
    modules = sorted(p for p in room.folder.rglob("*.py") if p.name not in _NOT_METHOD)
    dotted = [".".join((room.module, *p.relative_to(room.folder).with_suffix("").parts)) for p in modules]
    names = {name.removesuffix(".__init__") for name in dotted}
    borrowed: dict[str, Path] = {}
    for path in modules:
        others = sorted(set(_imports(path, room.module)) - names - {"paperworks._lazy"})
        for other in others:
            lent = catalog.PACKAGE / "kit" / "lm" / f"{other.removeprefix(_LENT)}.py"
            if not other.startswith(_LENT) or not lent.is_file() or [*_imports(lent, "paperworks")]:
                raise PaperError(f"{path} imports {other}: a method that needs other parts of paperworks stays there")
            borrowed[other] = lent
    data = [p for p in room.folder.iterdir() if p.is_file() and p.suffix not in _NOT_DATA and p.name not in _NOT_METHOD]
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
    header = _header(paper)
    tests, left_out = [], {}
    try:
        package = fresh / slug
        package.mkdir(parents=True)
        for path in modules:
            text = path.read_text(encoding="utf-8")
            if path.parent == room.folder and path.name == "__init__.py":
                text = text.replace(_LAZY, _names(room.folder / "__init__.pyi"))
                shutil.copy(room.folder / "__init__.pyi", package)
            text = text.replace(room.module, slug).replace(_LENT, f"{slug}.")
            copy = package / path.relative_to(room.folder)
            copy.parent.mkdir(exist_ok=True)
            copy.write_text(header + text, encoding="utf-8")
        for path in borrowed.values():
            (package / path.name).write_text(header + path.read_text(encoding="utf-8"), encoding="utf-8")
        for path in data:
            shutil.copy(path, package)
        for path in sorted(_test_files(room), key=lambda path: bool(_neighbours(path))):
            others = sorted({*_imports(path, "tests"), *(n for n in _neighbours(path) if n in left_out)} - names)
            if others:
                left_out[path.name] = others[0]
            else:
                (fresh / "tests").mkdir(exist_ok=True)
                text = path.read_text(encoding="utf-8").replace(room.module, slug)
                (fresh / "tests" / path.name).write_text(header + text, encoding="utf-8")
                tests.append(path.name)
        (fresh / "pyproject.toml").write_text(
            _pyproject(paper, [*modules, *borrowed.values()], [fresh / "tests" / name for name in tests]),
            encoding="utf-8",
        )
        licence = catalog.PACKAGE.parents[1] / "LICENSE"
        if licence.is_file():
            shutil.copy(licence, fresh / "LICENSE")
        if target.exists():
            target.rmdir()
        os.rename(fresh, target)
    except OSError as error:
        raise PaperError(f"cannot write {error.filename or target}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Ejected(target, tuple(name for name in tests if name.startswith("test_")), left_out)


def _imports(path: Path, package: str) -> Iterator[str]:
    """Modules of this library, or of the room, that a file imports anywhere in it."""
    top = {"paperworks", package.partition(".")[0]}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found = [node.module or ""]
        else:
            continue
        yield from (name for name in found if name.partition(".")[0] in top)


def _neighbours(path: Path) -> list[str]:
    """Files beside a test file that it imports."""
    nodes = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    return [
        f"{name}.py" for n in nodes if n.level == 1 for name in ([n.module] if n.module else [a.name for a in n.names])
    ]


def _test_files(room: catalog.Room) -> list[Path]:
    """The files of the room's tests, where this is a checkout."""
    if not room.folder.is_relative_to(catalog.PACKAGE):
        return []
    return sorted((catalog.PACKAGE.parents[1] / "tests" / room.folder.relative_to(catalog.PACKAGE)).glob("*.py"))


def _names(stub: Path) -> str:
    """The public names of a room's stub, each imported when it is first asked for."""
    imports = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    homes = sorted((alias.name, node.module or "") for node in imports for alias in node.names)
    table = "".join(f'    "{name}": "{module}",\n' for name, module in homes)
    return (
        "import importlib\n\n"
        f"_MODULES = {{\n{table}}}\n__all__ = list(_MODULES)\n\n\n"
        "def __getattr__(name):\n"
        "    if name in _MODULES:\n"
        '        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)\n'
        '    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")\n'
    )


def _header(paper: Paper) -> str:
    source = f"arXiv {paper.arxiv}" if paper.arxiv else paper.venue or str(paper.year)
    return (
        f"# SPDX-License-Identifier: {paper.licence}\n"
        f"# Copyright The Paperworks authors. From paperworks {paperworks.__version__} ({paper.slug}), new imports.\n"
        f'# The method is that of "{paper.title}", {source}.\n\n'
    )


def _requirements(modules: Iterable[Path]) -> list[str]:
    """What the modules import at their top, with the versions that this library asks for."""
    owners = importlib.metadata.packages_distributions()
    asked = {r.name: str(r.specifier) for r in map(Requirement, importlib.metadata.requires("paperworks") or [])}
    found = set()
    for path in modules:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"paperworks"}
            found |= {owners[top][0] for top in tops if top in owners}
    return sorted(f"{name}{asked.get(name, '')}" for name in found)


def _pyproject(paper: Paper, modules: Sequence[Path], tests: Sequence[Path]) -> str:
    needed = _requirements(modules)
    needs = "\n".join(f'  "{requirement}",' for requirement in needed)
    for_tests = sorted({*_requirements(tests), "pytest"} - set(needed))
    group = "".join(f'  "{requirement}",\n' for requirement in for_tests)
    return (
        '[build-system]\nrequires = ["hatchling>=1.27"]\nbuild-backend = "hatchling.build"\n\n'
        f'[project]\nname = "{paper.slug.replace("_", "-")}"\nversion = "{paperworks.__version__}"\n'
        f'description = "{paper.summary.replace(chr(34), chr(39))}"\nrequires-python = ">=3.11"\n'
        f'license = "{paper.licence}"\ndependencies = [\n{needs}\n]\n\n'
        f"[dependency-groups]\ntest = [\n{group}]\n\n"
        f'[tool.hatch.build.targets.wheel]\npackages = ["{paper.slug}"]\n'
    )
