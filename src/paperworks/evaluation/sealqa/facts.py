"""Real facts out of WordNet's nouns, for settings in which a model half knows the answer; and its glosses as pages."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from .documents import Corpus, Document, Question
from .world import LAST_YEAR, build_world

_NATIONAL, _STATE = "08709407", "08713353"  # synsets national_capital and state_capital of WordNet 3.1
_POINTER = re.compile(r" (@i|@|#p|~) (\d{8}) n ")

# kind: (two ways to ask, what a page says); the second wording is for measuring when the first has chosen.
WORDINGS = {
    "office": (
        "The {subject} is",
        "Who is the {subject}? It is",
        "The {subject} is {value}.",
    ),
    "capital": (
        "The capital of {subject} is",
        "Which city is the capital of {subject}? The answer is",
        "The capital of {subject} is {value}.",
    ),
    "currency": (
        "The basic unit of money in {subject} is the",
        "What is the currency of {subject} called? It is called the",
        "In {subject} people pay with the {value}.",
    ),
    "symbol": (
        "The chemical symbol of {subject} is",
        "How is the element {subject} written for short? It is written as",
        "The element {subject} has the symbol {value}.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Fact:
    """A fact with wrong values of its kind.

    Attributes:
        kind: "capital", "currency" or "symbol" of the real world, "office" of the invented one.
        subject: Country, state or element; an office with what it belongs to.
        value: The right value.
        wrong: Others of the kind.
    """

    kind: str
    subject: str
    value: str
    wrong: tuple[str, ...]

    def ask(self, wording: int) -> str:
        """A sentence that the value ends.

        Args:
            wording: 0 or 1.
        """
        return WORDINGS[self.kind][wording].format(subject=self.subject)

    def state(self, value: str) -> str:
        """The sentence of a page that gives a value.

        Args:
            value: Right or wrong.
        """
        return WORDINGS[self.kind][2].format(subject=self.subject, value=value)


def _synsets(folder: Path) -> Iterator[tuple[str, list[str], str, str]]:
    """Offset, words, pointers and gloss of each noun synset; the format is wndb(5)."""
    with (Path(folder) / "data.noun").open(encoding="utf-8") as stream:
        for line in stream:
            if line.startswith("  "):
                continue
            body, _, gloss = line.partition(" | ")
            fields = body.split(" ")
            count = int(fields[3], 16)
            words = [word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]]
            yield fields[0], words, " " + " ".join(fields[4 + 2 * count :]) + " ", gloss.strip()


def wordnet_facts(folder: str | Path, rng: np.random.Generator, count: int = 200, wrong: int = 3) -> list[Fact]:
    """Draws facts: capitals of countries and states, currencies, element symbols, in equal parts as far as they go.

    Args:
        folder: WordNet's database files, `data.noun` among them.
        rng: Where every draw comes from.
        count: Facts in all.
        wrong: Wrong values of each.

    Returns:
        Facts whose subject and value occur once in their kind.
    """
    pairs = _pairs(Path(folder))
    facts: list[Fact] = []
    share = -(-count // len(pairs))
    for kind, known in pairs.items():
        subjects, values = [s for s, _ in known], [v for _, v in known]
        once = [(s, v) for s, v in known if subjects.count(s) == 1 and values.count(v) == 1 and s != v]
        for i in rng.permutation(len(once))[:share]:
            others = [v for j, (_, v) in enumerate(once) if j != i]
            picked = tuple(others[j] for j in rng.permutation(len(others))[:wrong])
            facts.append(Fact(kind, once[i][0], once[i][1], picked))
    order = rng.permutation(len(facts))[:count]
    return [facts[i] for i in order]


@lru_cache(maxsize=1)
def _pairs(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """For each kind of fact all pairs of subject and value."""
    names: dict[str, str] = {}
    seats: list[tuple[str, str]] = []
    pairs: dict[str, list[tuple[str, str]]] = {"capital": [], "currency": [], "symbol": []}
    for offset, words, pointers, gloss in _synsets(folder):
        names[offset] = words[0]
        found = _POINTER.findall(pointers)
        if ("@i", _NATIONAL) in found or ("@i", _STATE) in found:
            wholes = [target for kind, target in found if kind == "#p"]
            if len(wholes) == 1:
                seats.append((wholes[0], words[0]))
        elif money := re.match(r"the basic unit of money in (?:the )?([A-Z][\w ]+?)(?:;|$)", gloss):
            pairs["currency"].append((money.group(1).strip(), words[0]))
        elif any(word.startswith("atomic number") for word in words):
            symbol = next((w for w in words[1:] if re.fullmatch(r"[A-Z][a-z]?", w)), None)
            if symbol is not None:
                pairs["symbol"].append((words[0], symbol))
    pairs["capital"] = [(names[place], city) for place, city in seats if place in names]
    return pairs


def world_facts(rng: np.random.Generator, count: int = 20, wrong: int = 3) -> list[Fact]:
    """Draws facts of the invented world, which no model knows before it is taught them.

    Args:
        rng: Where every draw comes from.
        count: Facts in all.
        wrong: Wrong values of each.

    Returns:
        Who holds an office at the end of the world's years, of as many different things.
    """
    world = build_world(rng)
    alive = [entity for entity in world.entities if entity.ended is None]
    facts = []
    for i in rng.permutation(len(alive))[:count]:
        entity = alive[i]
        value = entity.holders[LAST_YEAR]
        others = [person for person in world.people if person != value]
        picked = tuple(others[j] for j in rng.permutation(len(others))[:wrong])
        facts.append(Fact("office", f"{entity.kind.office} of {entity.name} in {entity.region}", value, picked))
    return facts


def _siblings(
    rng: np.random.Generator,
    families: list[list[str]],
    words: dict[str, list[str]],
    glosses: dict[str, str],
    distractors: int,
) -> list[str]:
    """A synset and siblings with words and glosses of their own; the first one's words are not in its gloss."""
    while True:
        family = families[rng.integers(len(families))]
        picked: list[str] = []
        for j in rng.permutation(len(family)):
            own = family[j]
            said = " ".join(glosses[own].lower().split())
            if not picked and any(word.lower() in said for word in words[own]):
                continue
            taken = {word.lower() for other in picked for word in words[other]}
            if taken.isdisjoint(word.lower() for word in words[own]) and glosses[own] not in map(glosses.get, picked):
                picked.append(own)
            if len(picked) > distractors:
                return picked


def gloss_corpus(folder: str | Path, seed: int, n: int = 50, distractors: int = 7) -> Corpus:
    """The real-text variant: which word has this gloss, among the glosses of its siblings?

    Args:
        folder: WordNet's database files.
        seed: Two calls with the same arguments give the same corpus.
        n: Questions.
        distractors: Siblings' glosses beside the gold one; words with fewer siblings are not asked for.

    Returns:
        Questions whose text is a gloss, whose key is the word and whose pages are glosses under their words.
    """
    if n < 1 or distractors < 1:
        raise ValueError(f"n={n}, distractors={distractors}; allowed are 1 or more")
    rng = np.random.default_rng([seed, 31])
    words: dict[str, list[str]] = {}
    glosses: dict[str, str] = {}
    children: dict[str, list[str]] = {}
    for offset, own, pointers, gloss in _synsets(Path(folder)):
        words[offset], glosses[offset] = own, gloss.split(";")[0]
        for kind, target in _POINTER.findall(pointers):
            if kind == "@":
                children.setdefault(target, []).append(offset)
    families = [own for own in children.values() if len(own) > distractors]
    questions, documents = [], []
    for i in range(n):
        picked = _siblings(rng, families, words, glosses, distractors)
        pages = [
            Document(
                f"g{i}-{offset}",
                words[offset][0],
                f"{words[offset][0]}: {glosses[offset]}",
                f"https://wordnet.example/{offset}",
                authority=0.9,
                kind="gold" if offset == picked[0] else "on_topic",
            )
            for offset in picked
        ]
        questions.append(
            Question(
                id=f"g{i}",
                question=f"Which word means: {glosses[picked[0]]}?",
                answer=words[picked[0]][0],
                aliases=tuple(words[picked[0]][1:]),
                freshness="never",
                topic="gloss",
                gold=pages[0],
                negatives=tuple(pages[1:]),
                options={
                    page.kind + str(j) * (j > 0): words[o][0]
                    for j, (page, o) in enumerate(zip(pages, picked, strict=True))
                },
                metadata={"class": "gloss", "origin": "wordnet"},
            )
        )
        documents += pages
    return Corpus(tuple(questions), tuple(documents))
