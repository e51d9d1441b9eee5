"""Readers without a model: they pick a page, or several, and take the answer from a sentence of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from .documents import Document, Question
from .index import tokenize

UNKNOWN = "I don't know"
Rank = Callable[[str, Sequence[Document]], list[Document]]

_NAME = re.compile(r"\b[^\W\d_a-z][^\W\d_]+(?: [^\W\d_a-z][^\W\d_]+)+")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d\b")
_NEGATED = re.compile(r"\bno longer\b|\bthere has been no\b|\bnever\b|\bceased\b|\bdoes not exist\b", re.IGNORECASE)
_CHOICE = re.compile(r"\bWhich\b.*?, (.+?) or (.+?)[,?]")
_OPENERS = frozenset(
    [
        "In",
        "As",
        "The",
        "From",
        "Since",
        "There",
        "It",
        "Its",
        "An",
        "A",
        "At",
        "On",
        "For",
        "By",
        "Who",
        "Which",
        "Several",
        "Prices",
        "Readers",
    ]
)


class Reader(Protocol):
    """What answers a question from pages."""

    def __call__(self, question: Question, documents: Sequence[Document], rank: Rank) -> str:
        """Returns an answer, or "I don't know".

        Args:
            question: Only its text may be read, except by an oracle.
            documents: The pages in context, in their order.
            rank: Sorts pages by relevance to a text.
        """
        ...


def extract(question: str, text: str) -> str:
    """Takes an answer out of a page.

    The sentence that shares most words with the question is searched for what the question word asks for: people's or
    other names for "who" and "which", a number for "how many" (how many names, for "how many different people"), the
    larger of two for "which had more, A or B". A sentence that denies what is asked gives "No such ...".

    Args:
        question: The question.
        text: The page.

    Returns:
        The answer, or "" when the page has none of the kind.
    """
    asked = set(tokenize(question))
    sentences = re.split(r"(?<=[.!?;]) (?=[A-Z])", text)
    shared = [len(asked & set(tokenize(sentence))) for sentence in sentences]
    order = sorted(range(len(sentences)), key=lambda i: -shared[i])
    found = (_from_sentence(question, sentences[i]) for i in order if shared[i] >= 2)
    return next((answer for answer in found if answer), "")


def _from_sentence(question: str, sentence: str) -> str:
    lowered = question.lower()
    if _NEGATED.search(sentence):
        return f"No such thing: {sentence}"
    if chosen := _CHOICE.search(question):
        return _larger(sentence, chosen.group(1), chosen.group(2))
    known = set(re.findall(r"[^\W_]+", lowered))
    names = [name for name in _names(sentence) if not known & set(name.lower().split())]
    if lowered.startswith("how many different"):
        return str(len(dict.fromkeys(names))) if names else ""
    if lowered.startswith(("how many", "how much", "what number")):
        numbers = [n for n in _NUMBER.findall(_YEAR.sub("", sentence)) if n not in question]
        return numbers[0].rstrip(",") if numbers else ""
    if lowered.startswith(("when", "in which year", "what year")):
        years = [year for year in _YEAR.findall(sentence) if year not in question]
        return years[0] if years else ""
    return names[0] if names else ""


def _names(sentence: str) -> list[str]:
    found = []
    for match in _NAME.finditer(sentence):
        words = match.group().split()
        if words[0] in _OPENERS:
            words = words[1:]
        if len(words) > 1:
            found.append(" ".join(words))
    return found


def _larger(sentence: str, first: str, second: str) -> str:
    """Which of two names is followed by the larger number."""
    values = {}
    for name in (first, second):
        place = sentence.find(name)
        number = _NUMBER.search(sentence, place + len(name)) if place >= 0 else None
        if number:
            values[name] = float(number.group().rstrip(",").replace(",", ""))
    return max(values, key=lambda name: values[name]) if len(values) == 2 else ""


class Top1Reader:
    """Believes the page that search ranks first."""

    def __call__(self, question: Question, documents: Sequence[Document], rank: Rank) -> str:
        """Answers from the best page that has an answer of the kind."""
        return _first(question, rank(question.question, documents))


class RecencyReader:
    """Believes the newest of the pages that search ranks highest.

    Args:
        among: How many of the best pages are looked at.
    """

    def __init__(self, among: int = 5) -> None:
        self.among = _positive("among", among)

    def __call__(self, question: Question, documents: Sequence[Document], rank: Rank) -> str:
        """Answers from the newest page; one without a date counts as the oldest."""
        best = rank(question.question, documents)[: self.among]
        return _first(question, sorted(best, key=lambda document: document.date or "", reverse=True))


class VoteReader:
    """Believes what most of the best pages say.

    Args:
        among: How many of the best pages vote.
        ties: Between equal counts, the answer of the page ranked higher ("rank"), which does not depend on the order
            of the context, or of the one that stands first in the context ("order").
    """

    def __init__(self, among: int = 10, ties: Literal["rank", "order"] = "rank") -> None:
        self.among = _positive("among", among)
        if ties not in ("rank", "order"):
            raise ValueError(f"ties={ties!r}; allowed are 'rank' and 'order'")
        self.ties = ties

    def __call__(self, question: Question, documents: Sequence[Document], rank: Rank) -> str:
        """Answers by majority."""
        best = rank(question.question, documents)[: self.among]
        if self.ties == "order":
            chosen = {document.id for document in best}
            best = [document for document in documents if document.id in chosen]
        return majority([extract(question.question, document.text) for document in best])


class LeadReader:
    """Believes the first page in the context: the baseline that position must move."""

    def __call__(self, question: Question, documents: Sequence[Document], rank: Rank) -> str:
        """Answers from the first page that has an answer of the kind."""
        return _first(question, documents)


class OracleReader:
    """Reads the gold page, and nothing else: what reading alone can reach when the right page is chosen."""

    def __call__(self, question: Question, documents: Sequence[Document], rank: Rank) -> str:
        """Answers from the gold page."""
        return _first(question, [document for document in documents if document.kind == "gold"])


def majority(answers: Sequence[str]) -> str:
    """The most frequent answer, the earliest of equals; "I don't know" when all are that or empty: they do not vote."""
    given = [answer for answer in answers if answer and answer != UNKNOWN]
    if not given:
        return UNKNOWN
    counts = Counter(map(_key, given))
    top = max(counts.values())
    return next(answer for answer in given if counts[_key(answer)] == top)


def _key(answer: str) -> str:
    """Rejections are one answer, however worded."""
    return "No such thing" if answer.startswith("No such") else answer


def _first(question: Question, documents: Sequence[Document]) -> str:
    answers = (extract(question.question, document.text) for document in documents)
    return next((answer for answer in answers if answer), UNKNOWN)


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name}={value}; allowed is 1 or more")
    return value
