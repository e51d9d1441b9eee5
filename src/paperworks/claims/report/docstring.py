"""What a room's docstring says: the method, an example and the differences from the paper. Parsed, never imported."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

EXAMPLE_LINES = 14

_UNDERLINE = re.compile(r"^([=\-~^\"'*#+])\1{2,}\s*$")
_HASHES = re.compile(r"^#{1,4}\s+(?P<title>.+)$")
_KNOWN = re.compile(
    r"^(?P<title>differences from the paper|examples?|usage|references?|notes?|see also)\s*:{0,2}\s*(?P<rest>.*)$",
    re.IGNORECASE,
)
_DIFFERENCES = "differences from the paper"
_EXAMPLES = ("example", "examples", "usage")


@dataclasses.dataclass(frozen=True)
class RoomText:
    """A room's docstring in parts.

    Attributes:
        about: What stands before the first section, without the example.
        example: Lines of code, without prompts; empty when there is none.
        differences: The section "Differences from the paper".
    """

    about: str = ""
    example: str = ""
    differences: str = ""


def read_room(folder: Path) -> RoomText:
    """Read the docstring of ``folder/__init__.py``; a room without one, or with broken code, has empty parts."""
    path = folder / "__init__.py"
    try:
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    except (OSError, SyntaxError, ValueError):
        return RoomText()
    return split(text)


def split(text: str) -> RoomText:
    """Split a docstring into its parts."""
    sections = _sections(text.splitlines())
    about = sections.get("", [])
    example: list[str] = []
    for name in _EXAMPLES:
        example = example or _code(sections.get(name, []))
    if not example:
        example = _doctest(about)
        about = _without_doctest(about)
    return RoomText(
        about=_joined(about),
        example=_joined(example[:EXAMPLE_LINES]),
        differences=_joined(sections.get(_DIFFERENCES, [])),
    )


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines).strip("\n")


def _sections(lines: Sequence[str]) -> dict[str, list[str]]:
    """Lines by lower-case section title; those before the first title have the title ''."""
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    position = 0
    indented = False  # whether the section's text is indented, so that text which is not ends it
    while position < len(lines):
        title, rest, used = _title(lines, position)
        after = next((line for line in lines[position + used :] if line.strip()), "")
        if title is not None:
            indented = not rest and after[:1].isspace()
        elif indented and lines[position][:1].strip():
            current, indented = found[""], False
        if title is None:
            current.append(lines[position])
        else:
            current = found.setdefault(title, [])
            current += [rest] if rest else []
        position += used
    return {title: _dedented(body) for title, body in found.items()}


def _title(lines: Sequence[str], position: int) -> tuple[str | None, str, int]:
    """The title that begins at a line, what follows it there, and how many lines it takes."""
    line = lines[position]
    if not line.strip() or line[0].isspace():
        return None, "", 1
    following = lines[position + 1] if position + 1 < len(lines) else ""
    if _UNDERLINE.match(following):
        return line.strip().rstrip(":").lower(), "", 2
    if heading := _HASHES.match(line):
        return heading["title"].strip().rstrip(":").lower(), "", 1
    known = _KNOWN.match(line)
    if known and (":" in line[: len(known["title"]) + 2] or not known["rest"]):
        return known["title"].lower(), known["rest"], 1
    return None, "", 1


def _dedented(lines: Sequence[str]) -> list[str]:
    """Without the indentation that all lines share; a first line that begins beside its title does not count."""
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    common = min(indents, default=0)
    return [line[common:] for line in lines]


def _doctest(lines: Iterable[str]) -> list[str]:
    """The code of doctest lines; what it prints as a comment below it."""
    code: list[str] = []
    inside = False
    for line in lines:
        stripped = line.strip()
        if stripped.startswith((">>>", "...")):
            code.append(re.sub(r"^(>>>|\.\.\.) ?", "", stripped))
            inside = True
        elif inside and stripped:
            code.append(f"# {stripped}")
        else:
            inside = False
    return code


def _without_doctest(lines: Iterable[str]) -> list[str]:
    kept: list[str] = []
    inside = False
    for line in lines:
        inside = line.strip().startswith((">>>", "...")) or (inside and bool(line.strip()))
        if not inside:
            kept.append(line)
    return kept


def _code(lines: Sequence[str]) -> list[str]:
    """The code of an example's section: its doctest, else its literal block, else all of it when it looks like code."""
    if doctest := _doctest(lines):
        return doctest
    fences = [i for i, line in enumerate(lines) if line.strip().startswith("```")]
    if len(fences) >= 2:
        return _dedented(lines[fences[0] + 1 : fences[1]])
    indented = [i for i, line in enumerate(lines) if line.startswith((" ", "\t")) and line.strip()]
    if indented and not lines[indented[0] - 1].strip():
        end = next(
            (i for i, line in enumerate(lines) if i > indented[0] and line.strip() and not line[0].isspace()),
            len(lines),
        )
        return _dedented(lines[indented[0] : end])
    looks = any(line.startswith(("import ", "from ")) for line in lines)
    return list(lines) if looks else []


# --- docstring prose to blocks ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Block:
    """A paragraph, a list or a literal block of a docstring.

    Attributes:
        kind: "paragraph", "list" or "literal".
        lines: The paragraph or the literal as one entry, or the entries of the list.
    """

    kind: str
    lines: tuple[str, ...]


def statements(text: str) -> list[Block]:
    """The blocks of a section of short statements: one that ends a line is an entry of a list of its own."""
    found: list[Block] = []
    for chunk in re.split(r"\n\s*\n", text.strip("\n")):
        lines = chunk.splitlines()
        plain = not any(_bullet(line) or line[:1].isspace() for line in lines)
        entries = re.split(r"(?<=\.)\n", chunk) if plain else []
        if len(entries) > 1:
            found.append(Block("list", tuple(" ".join(entry.split()) for entry in entries)))
        else:
            found += blocks(chunk)
    return found


def blocks(text: str) -> list[Block]:
    """Prose as blocks: blank lines part them, '- ' begins an entry of a list, indented text is literal.

    Lines that are indented below a line which ends in a colon are a list as well.
    """
    found: list[Block] = []
    for chunk in re.split(r"\n\s*\n", text.strip("\n")):
        lines = [line for line in chunk.splitlines() if line.strip()]
        if not lines:
            continue
        literal = [line for line in lines if line.startswith(("    ", "\t"))]
        if len(literal) == len(lines) and not _bullet(lines[0]):
            previous = found[-1] if found else None
            body = _joined(_dedented(lines))
            if previous is not None and previous.kind == "literal":
                found[-1] = Block("literal", (f"{previous.lines[0]}\n\n{body}",))
            else:
                found.append(Block("literal", (body,)))
            continue
        paragraph: list[str] = []
        entries: list[str] = []
        indents = [len(line) - len(line.lstrip()) for line in lines]
        listed = len(lines) > 2 and indents[0] == 0 and lines[0].endswith(":") and min(indents[1:]) > 0
        for line, indent in zip(lines, indents, strict=True):
            if _bullet(line):
                entries.append(line.strip()[2:].strip())
            elif listed and indent == min(indents[1:]):
                entries.append(line.strip())
            elif entries:
                entries[-1] += f" {line.strip()}"
            else:
                paragraph.append(line.strip())
        if paragraph:
            found.append(Block("paragraph", (" ".join(paragraph).replace("::", ":"),)))
        if entries and not paragraph and found and found[-1].kind == "list":
            found[-1] = Block("list", (*found[-1].lines, *entries))
        elif entries:
            found.append(Block("list", tuple(entries)))
    return found


def _bullet(line: str) -> bool:
    return line.lstrip().startswith(("- ", "* ", "• "))


def public_names(room: Path) -> list[str]:
    """The public names in a room's ``__init__.pyi`` or ``__init__.py``, read with ast; empty when neither names any."""
    for name in ("__init__.pyi", "__init__.py"):
        try:
            tree = ast.parse((room / name).read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        imported = [
            a.asname or a.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.level
            for a in node.names
        ]
        listed = _listed(tree)
        if listed or (name.endswith("i") and imported):
            return listed or imported
    return []


def _listed(tree: ast.Module) -> list[str]:
    values: Mapping[str, ast.expr] = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    value = values.get("__all__")
    if not isinstance(value, ast.List | ast.Tuple):
        return []
    return [e.value for e in value.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
