"""LongSeal: one gold page hidden among k - 1 hard negatives, wherever it is wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from .documents import Document, Question
from .judging import grade
from .readers import extract

Order = Literal["shuffled", "ranked"]
CUTOFF = "2023-01-01"


def place_gold(
    question: Question,
    k: int,
    gold_position: float | None = None,
    order: Order = "shuffled",
    rng: np.random.Generator | None = None,
) -> list[Document]:
    """Makes the context of a question: its gold page and its first k - 1 negatives.

    Contexts of one question are nested: that of a larger k holds all pages of a smaller one.

    Args:
        question: With its gold page and at least k - 1 negatives.
        k: Documents in the context.
        gold_position: Where the gold page stands, from 0 (first) to 1 (last); anywhere when ``None``.
        order: Whether negatives are "shuffled" or stay "ranked", the most useful first.
        rng: Where the order comes from; needed when something is drawn.

    Returns:
        k pages.

    Raises:
        ValueError: There are too few negatives, no gold page, or an argument is out of range.
    """
    if question.gold is None:
        raise ValueError(f"question {question.id!r} has no gold page")
    if not 1 <= k <= len(question.negatives) + 1:
        raise ValueError(f"k={k}; question {question.id!r} allows 1 to {len(question.negatives) + 1}")
    if gold_position is not None and not 0 <= gold_position <= 1:
        raise ValueError(f"gold_position={gold_position}; allowed is None or a share from 0 to 1")
    if order not in ("shuffled", "ranked"):
        raise ValueError(f"order={order!r}; allowed are 'shuffled' and 'ranked'")
    if rng is None and (order == "shuffled" or gold_position is None):
        raise ValueError("rng is needed when the order or the gold position is drawn")
    pages = list(question.negatives[: k - 1])
    if order == "shuffled":
        assert rng is not None
        pages = [pages[i] for i in rng.permutation(len(pages))]
    if gold_position is None:
        assert rng is not None
        place = int(rng.integers(k))
    else:
        place = round(gold_position * (k - 1))
    return [*pages[:place], question.gold, *pages[place:]]


Search = Callable[[str], Sequence[Document]]


def build_longseal(
    question: Question,
    gold: Document,
    search: Search,
    *,
    related: Iterable[str] = (),
    gives_answer: Callable[[Question, Document], bool] | None = None,
    top: int = 10,
) -> Question:
    """Builds a LongSeal item from a search: pages of the question, pages before 2023, pages of related questions.

    Args:
        question: The question with its key.
        gold: The page from which its key can be inferred.
        search: Maps a query to all pages that are to be looked through, best first; a live engine, or
            ``lambda query: index.search(query, k=100)`` of a `NoisySearchIndex`.
        related: Further queries; the paper takes three, written by a small model.
        gives_answer: Whether a page lets the key be inferred and must go; the paper asks a model. `states_key` when
            not given.
        top: Pages taken of each source.

    Returns:
        The question with its gold page and its negatives, each page once.
    """
    gives_answer = gives_answer or states_key
    results = list(search(question.question))
    old = [page for page in results if page.date is not None and page.date < CUTOFF]
    found = [*results[:top], *old[:top]]
    for query in related:
        found += list(search(query))[:top]
    kept: dict[str, Document] = {}
    for page in found:
        if page.id != gold.id and page.text != gold.text and not gives_answer(question, page):
            kept.setdefault(page.id, page)
    return dataclasses.replace(question, gold=gold, negatives=tuple(kept.values()))


def states_key(question: Question, page: Document) -> bool:
    """Whether what a reader takes from a page is judged right: then it is no negative.

    Args:
        question: With its key.
        page: A page that is to be a hard negative.
    """
    answer = extract(question.question, page.text)
    return bool(answer) and grade(question.question, question.answer, answer, question.aliases) == "A"


def false_negatives(question: Question) -> list[Document]:
    """Negatives of a question that give its key after all; test before use.

    Args:
        question: With its key and negatives.
    """
    return [page for page in question.negatives if states_key(question, page)]
