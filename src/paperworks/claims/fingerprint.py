"""What was the code, and on what machine did it run."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_NOT_METHOD = frozenset({"derive.py", "speed.py"})
_NAMED_VERSIONS = ("torch", "numpy", "scipy", "pandas", "scikit-learn", "transformers", "trl", "peft", "botorch")


def code_hash(folder: Path) -> str:
    """Fingerprint of a room's method and study.

    ``derive.py`` is left out because its metrics are computed anew each time (a claim's own fingerprint has it),
    ``speed.py`` because no outcome needs it.
    """
    found = sorted(folder.rglob("*.py"))
    return source_hash([p for p in found if p.name not in _NOT_METHOD and "__pycache__" not in p.parts], folder)


def source_hash(paths: Iterable[Path], root: Path | None = None) -> str:
    """Fingerprint of Python files: comments, docstrings and layout do not count; a missing file counts as empty."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update((path.relative_to(root).as_posix() if root else path.name).encode())
        try:
            source = path.read_bytes()
        except FileNotFoundError:
            continue
        try:
            tokens = list(_tokens(ast.parse(source)))
        except (SyntaxError, ValueError):  # outcomes can be judged all the same
            digest.update(source)
        else:
            digest.update("\0".join(tokens).encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:16]


def file_hash(path: str | None) -> str:
    """Fingerprint of one file's bytes; empty when there is no such file."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path else ""
    except OSError:
        return ""


def _tokens(node: ast.AST) -> Iterator[str]:
    # Empty fields are skipped, so that a field which a later Python adds to a node changes nothing.
    yield type(node).__name__
    for field, value in ast.iter_fields(node):
        if field == "body" and isinstance(value, list) and value and _is_docstring(node, value[0]):
            value = value[1:]
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field
                yield from _tokens(child)
            elif child is not None and field not in {"type_comment", "kind"}:
                yield f"{field}={child!r}"
    yield "end"  # without it a statement that moves out of a block would change nothing


def _is_docstring(parent: ast.AST, first: ast.AST) -> bool:
    return (
        isinstance(parent, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def environment(jobs: int, backend: str) -> dict[str, Any]:
    """Versions, platform, processor, device and commit, as kept with every run."""
    versions = {"paperworks": _version("paperworks"), "python": platform.python_version()}
    versions |= {name: found for name in _NAMED_VERSIONS if (found := _version(name))}
    return {
        "versions": versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "jobs": jobs,
        "threads": 1,
        "backend": backend,
        "device": _device(),
        "commit": _commit(),
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor()


def _device() -> str:
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else "cpu"


def _commit() -> str:
    """The checkout's commit, with '+' when it has changes; empty for an installed package."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
