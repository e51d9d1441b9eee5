"""What every setting of SealQA handles: a page that a search returns, and a question with its key."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

Kind = Literal["gold", "support", "stale", "homonym", "contradicting", "on_topic", ""]
KINDS: tuple[Kind, ...] = ("stale", "homonym", "contradicting", "on_topic")
QUESTION_TYPES = (
    "advanced reasoning",
    "entity/event disambiguation",
    "temporal tracking",
    "cross-lingual reasoning",
    "false-premise detection",
)


@dataclasses.dataclass(frozen=True)
class Document:
    """A page.

    Attributes:
        id: Its name in its corpus.
        title: Headline.
        text: Body.
        url: Where it was found; its host is shown as the source.
        date: Day of publication, ``YYYY-MM-DD``, or ``None`` where the page does not say.
        authority: From 0 (anybody may write there) to 1 (a public body); readers may weigh by it.
        kind: What it is to its question: gold, support, one of the four hard negatives, or "" when that is not known.
    """

    id: str
    title: str
    text: str
    url: str = ""
    date: str | None = None
    authority: float = 0.5
    kind: Kind = ""

    @property
    def source(self) -> str:
        """The host of its address."""
        return self.url.partition("://")[2].partition("/")[0] or "unknown source"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe copy."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with its key and its pages.

    Attributes:
        id: Its name.
        question: The text; one that depends on time names its "as of" year.
        answer: The key.
        aliases: Other spellings of the key.
        question_types: Some of `QUESTION_TYPES`.
        freshness: "never", "slow" or "fast": how often the key changes.
        effective_year: The year for which the key holds.
        conflicting: Whether some page contradicts the key.
        topic: What it is about.
        gold: The page with the answer, where there is one.
        support: Further pages that state the key.
        negatives: Pages beside it, the most useful first: the first k - 1 of them and the gold page make k documents.
        options: Answers that pages of a kind give, by kind; "gold" is the key.
        metadata: Anything else that its source says.
    """

    id: str
    question: str
    answer: str
    aliases: tuple[str, ...] = ()
    question_types: tuple[str, ...] = ()
    freshness: str = ""
    effective_year: int | None = None
    conflicting: bool = False
    topic: str = ""
    gold: Document | None = None
    support: tuple[Document, ...] = ()
    negatives: tuple[Document, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Questions and every page that belongs to them.

    Attributes:
        questions: With their keys.
        documents: The pages, what a search is to look through.
    """

    questions: tuple[Question, ...]
    documents: tuple[Document, ...]


def digest(documents: Iterable[Document]) -> str:
    """sha256 over the content of pages, in their order: two logs with the same digest searched the same corpus."""
    total = hashlib.sha256()
    for document in documents:
        total.update(json.dumps(document.to_dict(), sort_keys=True, ensure_ascii=False).encode())
    return total.hexdigest()


def save_documents(documents: Sequence[Document], folder: str | Path) -> Path:
    """Freezes a corpus as one JSON line a page, in a file that carries its digest in its name.

    Args:
        documents: The pages.
        folder: Where the file goes; made when it is not there.

    Returns:
        The file, ``pages-<first 16 digits of the digest>.jsonl``.
    """
    path = Path(folder) / f"pages-{digest(documents)[:16]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(document.to_dict(), ensure_ascii=False) for document in documents)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def load_documents(path: str | Path) -> list[Document]:
    """Reads a frozen corpus; one whose name carries a digest is checked against it.

    Args:
        path: A file of `save_documents`, or any file of JSON lines with at least ``id``, ``title`` and ``text``.

    Returns:
        The pages.

    Raises:
        ValueError: A line lacks a field, or the content is not what the name says.
    """
    path = Path(path)
    known = {field.name for field in dataclasses.fields(Document)}
    documents = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        raw = json.loads(line)
        if missing := {"id", "title", "text"} - raw.keys():
            raise ValueError(f"{path}:{number}: a page lacks {', '.join(sorted(missing))}; found: {', '.join(raw)}")
        documents.append(Document(**{key: value for key, value in raw.items() if key in known}))
    stem = path.stem
    if stem.startswith("pages-") and not digest(documents).startswith(stem.removeprefix("pages-")):
        raise ValueError(f"{path}: its content has digest {digest(documents)[:16]}, its name says otherwise")
    return documents
