"""The three official flavours from the hub, at a pinned revision; their schema is checked, whatever it has grown to."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from .documents import Document, Question
from .judging import dates

Flavour = Literal["seal_0", "seal_hard", "longseal"]
REPOSITORY = "vtllms/sealqa"
# Keys are revised about monthly: scores at two revisions cannot be compared.
REVISION = "b2ecadf036972d8471a5c4cdf92aa3b3c6ba96e7"
FILES = {"seal_0": "seal-0.parquet", "seal_hard": "seal-hard.parquet", "longseal": "longseal.parquet"}
LENGTHS = (12, 20, 30)
OFFLINE = "the offline flavour needs no network: `inspect eval paperworks/sealqa_sample`, or sample_corpus(seed)"


@dataclasses.dataclass(frozen=True)
class Loaded:
    """One flavour.

    Attributes:
        questions: In the order of the file.
        flavour: Which one.
        revision: Commit of the hub's repository; store it with every score.
        licence: As the hub's card says, or "not stated".
    """

    questions: tuple[Question, ...]
    flavour: str
    revision: str
    licence: str


def load(
    flavour: Flavour = "seal_0",
    revision: str = REVISION,
    k: int | None = None,
    *,
    folder: str | Path | None = None,
) -> Loaded:
    """Loads a flavour from the hub, or from a folder with its parquet files, and prints its licence.

    Args:
        flavour: "seal_0" (111 questions), "seal_hard" (254) or "longseal" (254, with documents).
        revision: Commit of the hub's repository.
        k: Documents of each longseal question: 12, 20 or 30 (12 when not given); for longseal only.
        folder: A folder with the hub's files, used in place of the hub.

    Returns:
        The questions with what belongs to them.

    Raises:
        ValueError: An unknown flavour or k, or a file without questions or answers.
        ConnectionError: The hub cannot be reached.
    """
    if flavour not in FILES:
        raise ValueError(f"flavour={flavour!r}; allowed are {', '.join(map(repr, FILES))}")
    if flavour == "longseal":
        k = LENGTHS[0] if k is None else k
        if k not in LENGTHS:
            raise ValueError(f"k={k}; allowed are {', '.join(map(str, LENGTHS))}")
    elif k is not None:
        raise ValueError(f"k={k} with flavour={flavour!r}; k is for 'longseal' only")
    rows, licence = _from_folder(Path(folder), flavour) if folder is not None else _from_hub(flavour, revision)
    if folder is not None:
        revision = f"folder {folder}"
    print(f"{REPOSITORY} {flavour}, {revision}: licence {licence}", file=sys.stderr)
    return Loaded(tuple(questions_from_rows(rows, k)), flavour, revision, licence)


def _from_folder(folder: Path, flavour: str) -> tuple[Iterable[Mapping[str, Any]], str]:
    import pyarrow.parquet as parquet

    path = folder / FILES[flavour]
    if not path.is_file():
        raise ValueError(f"folder={str(folder)!r} has no {FILES[flavour]}; {OFFLINE}")
    return parquet.read_table(path).to_pylist(), "see the files' own"


def _from_hub(flavour: str, revision: str) -> tuple[Iterable[Mapping[str, Any]], str]:
    import datasets
    import httpx
    from huggingface_hub.errors import HfHubHTTPError

    try:
        data = datasets.load_dataset(REPOSITORY, flavour, split="test", revision=revision)
    except (OSError, HfHubHTTPError, httpx.HTTPError, datasets.exceptions.DatasetNotFoundError) as error:
        raise ConnectionError(
            f"{REPOSITORY} at {revision[:12]} cannot be had ({type(error).__name__}); {OFFLINE}"
        ) from error
    return data, data.info.license or _card_licence(revision)


def _card_licence(revision: str) -> str:
    import httpx
    from huggingface_hub import DatasetCard, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        card = DatasetCard.load(hf_hub_download(REPOSITORY, "README.md", repo_type="dataset", revision=revision))
    except (OSError, ValueError, HfHubHTTPError, httpx.HTTPError):
        return "not stated"
    return str(card.data.get("license") or "not stated")


def questions_from_rows(rows: Iterable[Mapping[str, Any]], k: int | None = None) -> list[Question]:
    """Maps rows to questions: known columns to fields, all others into metadata.

    Args:
        rows: At least "question" and "answer" in each.
        k: Takes the documents of column "<k>_docs".

    Returns:
        The questions.

    Raises:
        ValueError: A row lacks question or answer, or the documents asked for; found columns are listed.
    """
    return [_question(i, dict(row), k) for i, row in enumerate(rows)]


def _question(i: int, row: dict[str, Any], k: int | None) -> Question:
    needed = ["question", "answer", *([f"{k}_docs"] if k is not None else [])]
    if missing := [name for name in needed if row.get(name) in (None, "")]:
        raise ValueError(f"row {i} lacks {', '.join(missing)}; found columns: {', '.join(sorted(row)) or 'none'}")
    gold: Document | None = None
    negatives: tuple[Document, ...] = ()
    position: float | None = None
    golds = [_document(f"gold-{i}-{j}", d, "gold") for j, d in enumerate(_list(row.get("golds")))]
    if k is not None:
        pages = [_document(f"{i}-{j}", d, "") for j, d in enumerate(_list(row[f"{k}_docs"]))]
        place = next((j for j, page in enumerate(pages) if _among(page, golds)), None)
        if place is not None:
            gold = dataclasses.replace(pages[place], kind="gold")
            position = place / max(1, len(pages) - 1)
        negatives = tuple(page for j, page in enumerate(pages) if j != place)
    elif golds:
        gold = golds[0]
    year = row.get("effective_year")
    digits = str(year or "").strip()
    types = row.get("question_types")
    known = {"question", "answer", "freshness", "question_types", "effective_year", "search_results", "topic"}
    return Question(
        id=str(row.get("id") or i),
        question=str(row["question"]),
        answer=str(row["answer"]),
        question_types=tuple(t.strip() for t in types.split(",")) if isinstance(types, str) else tuple(types or ()),
        freshness=str(row.get("freshness") or "").partition("-")[0],
        effective_year=int(digits) if digits.isdigit() else None,
        conflicting=str(row.get("search_results") or "").lower().startswith("conflict"),
        topic=str(row.get("topic") or ""),
        gold=gold,
        negatives=negatives,
        metadata={
            **{name: value for name, value in row.items() if name not in known and not name.endswith("_docs")},
            "raw_effective_year": year,
            "gold_position": position,
            "origin": "official",
        },
    )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if not isinstance(value, str | Mapping) else [value]


def _document(name: str, raw: Any, kind: Any) -> Document:
    if not isinstance(raw, Mapping):
        return Document(id=name, title="", text=str(raw or ""), url=str(raw or ""), kind=kind)
    return Document(
        id=name,
        title=str(raw.get("title") or ""),
        text=str(raw.get("text") or ""),
        url=str(raw.get("url") or ""),
        date=_day(raw.get("date")),
        kind=kind,
    )


def _day(raw: Any) -> str | None:
    """A day as YYYY-MM-DD, a month as YYYY-MM, a year as YYYY, whatever the spelling; ``None`` when there is none."""
    text = str(raw or "").strip()
    if iso := re.match(r"\d{4}-\d{2}-\d{2}", text):
        return iso.group()
    for year, month, day in dates(text):
        if year is not None:
            return "-".join([f"{year:04d}", *(f"{part:02d}" for part in (month, day) if part is not None)])
    year_alone = re.search(r"\b(?:19|20)\d\d\b", text)
    return year_alone.group() if year_alone else None


def _among(page: Document, golds: list[Document]) -> bool:
    return any((page.url and page.url == g.url) or (page.text and page.text == g.text) for g in golds)
