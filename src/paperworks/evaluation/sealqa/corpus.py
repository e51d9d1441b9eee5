"""The offline flavour: questions of five classes on the invented world, each with its gold page and hard negatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from .documents import QUESTION_TYPES, Corpus, Document, Kind, Question
from .pages import Length, statement, write_page
from .world import FIRST_YEAR, LANGUAGE, LAST_YEAR, Entity, World, build_world

CLASSES = ("count", "compare", "homonym", "temporal", "cross_lingual", "false_premise")
# Shares of our classes; the paper's five (multi-label) come out as in `_TYPES`.
MIX = {"count": 0.15, "compare": 0.15, "homonym": 0.25, "temporal": 0.25, "cross_lingual": 0.1, "false_premise": 0.1}
_REASONING, _NAMES, _TIME, _LINGUAL, _PREMISE = QUESTION_TYPES
_TYPES = {
    "count": (_REASONING, _TIME),
    "compare": (_REASONING, _NAMES),
    "homonym": (_NAMES,),
    "temporal": (_NAMES, _TIME),
    "cross_lingual": (_LINGUAL, _NAMES),
    "false_premise": (_PREMISE, _NAMES),
}
_TRIES = 100_000
_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


@dataclasses.dataclass(frozen=True)
class _Draft:
    """A question before its pages: what the pages of each kind say, as functions of the generator."""

    text: str
    answer: str
    aliases: tuple[str, ...]
    year: int
    entity: Entity
    twin: Entity
    options: dict[str, str]
    gold: Callable[[np.random.Generator], str]
    says: Mapping[str, Callable[[np.random.Generator], tuple[str, int]]]  # kind: (sentence, its year)


def sample_corpus(
    seed: int,
    n: int = 100,
    conflict: float = 0.5,
    stale: float = 0.3,
    distractors: int = 30,
    *,
    entities: int = 300,
    mix: Mapping[str, float] | None = None,
    length: Length = "long",
    support: int = 0,
) -> Corpus:
    """Draws a world, and questions on it with controlled conflict.

    Of the hard negatives of a question a share `conflict` are pages of little authority that state one and the same
    wrong answer, a share `stale` state the fact of an older year; half of the rest are about the other entity of the
    same name and half about the right one, without the answer. Kinds are mixed evenly, so that the first k negatives
    have about the same shares for any k.

    Args:
        seed: Two calls with the same arguments give the same corpus; with other shares they ask the same questions.
        n: Questions.
        conflict: Share of contradicting pages among the negatives.
        stale: Share of stale pages among the negatives.
        distractors: Hard negatives of each question.
        entities: Entities of the world.
        mix: Shares of the classes "count", "compare", "homonym", "temporal", "cross_lingual", "false_premise";
            `MIX` when not given.
        length: "long" pages of 60 to 120 words, or "short" ones of 15 to 35.
        support: Further pages of authority that state the key, for readers that vote; LongSeal has none.

    Returns:
        The questions and all their pages, each question's gold page first.

    Raises:
        ValueError: A share is out of range, or a count below 1 (0 for `distractors`).
    """
    for name, value in (("conflict", conflict), ("stale", stale)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value}; allowed is a share from 0 to 1")
    if conflict + stale > 1:
        raise ValueError(f"conflict={conflict} and stale={stale} make {conflict + stale:g}; allowed is at most 1")
    if n < 1 or distractors < 0 or support < 0:
        raise ValueError(
            f"n={n}, distractors={distractors}, support={support}; allowed are n from 1 on, the others from 0 on"
        )
    if length not in ("long", "short"):
        raise ValueError(f"length={length!r}; allowed are 'long' and 'short'")
    shares = dict(MIX if mix is None else mix)
    if unknown := shares.keys() - set(CLASSES):
        raise ValueError(f"mix has {sorted(unknown)}; allowed are {', '.join(CLASSES)}")
    if not shares or min(shares.values()) < 0 or sum(shares.values()) <= 0:
        raise ValueError(f"mix={shares}; allowed are shares from 0 on, one of them above 0")
    world = build_world(np.random.default_rng([seed, 20250601]), entities)
    kinds = _kinds(conflict, stale, distractors)
    names = list(shares)
    weights = np.array([shares[name] for name in names], dtype=float)
    questions = []
    for i in range(n):
        rng = np.random.default_rng([seed, 20250602, i])  # one stream a question: more of them change none
        cls = names[rng.choice(len(names), p=weights / weights.sum())]
        questions.append(_question(rng, world, f"q{i}", cls, kinds, length, support))
    pages = [page for q in questions for page in (q.gold, *q.support, *q.negatives) if page is not None]
    return Corpus(tuple(questions), tuple(pages))


def _kinds(conflict: float, stale: float, count: int) -> list[Kind]:
    """Kinds in an order in which each has its share in every beginning, as nearly as whole pages allow."""
    rest = (1 - conflict - stale) / 2
    shares: dict[Kind, float] = {"contradicting": conflict, "stale": stale, "homonym": rest, "on_topic": rest}
    order: list[Kind] = []
    for place in range(1, count + 1):
        order.append(max(shares, key=lambda kind: shares[kind] * place - order.count(kind)))
    return order


def _question(
    rng: np.random.Generator, world: World, qid: str, cls: str, kinds: list[Kind], length: Length, support: int
) -> Question:
    draft = _DRAFTS[cls](rng, world)
    bilingual = cls == "cross_lingual"
    gold = write_page(
        rng, f"{qid}-gold", draft.entity, draft.gold(rng), "gold", draft.year, length, bilingual=bilingual
    )
    further = tuple(
        write_page(
            rng, f"{qid}-s{j}", draft.entity, draft.gold(rng), "support", draft.year, length, bilingual=bilingual
        )
        for j in range(support)
    )
    negatives: list[Document] = []
    for place, kind in enumerate(kinds):
        sentence, year = draft.says[kind](rng)
        negatives.append(
            write_page(
                rng,
                f"{qid}-{place}-{kind}",
                draft.twin if kind == "homonym" else draft.entity,
                sentence,
                kind,
                year,
                length,
                trusted=kind != "contradicting",
                late=kind == "stale" and rng.random() < 0.25,
                bilingual=bilingual and kind != "homonym",
            )
        )
    return Question(
        id=qid,
        question=draft.text,
        answer=draft.answer,
        aliases=draft.aliases,
        question_types=_TYPES[cls],
        freshness=draft.entity.kind.freshness,
        effective_year=draft.year,
        conflicting=any(kind in ("contradicting", "stale") for kind in kinds),
        topic=draft.entity.kind.name,
        gold=gold,
        support=further,
        negatives=tuple(negatives),
        options=draft.options,
        metadata={"class": cls, "origin": "sample"},
    )


def _pair(rng: np.random.Generator, world: World, alive: bool = True) -> tuple[Entity, Entity]:
    """An entity and the other one of its name, which exists to the end; the first does too, unless not `alive`."""
    for _ in range(_TRIES):
        i = int(rng.integers(len(world.entities)))
        entity, twin = world.entities[i], world.entities[i ^ 1]
        if (entity.ended is None) == alive and twin.ended is None:
            return entity, twin
    raise _too_small(world)


def _too_small(world: World) -> ValueError:
    return ValueError(f"entities={len(world.entities)}: no question of some class can be asked; take more entities")


def _other(rng: np.random.Generator, world: World, *taken: str) -> str:
    while True:
        value = world.people[rng.integers(len(world.people))]
        if value not in taken:
            return value


def _held_by(rng: np.random.Generator, world: World, *, latest: bool, foreign: bool = False) -> _Draft:
    """Who held an office in a year; an older year has another holder."""
    entity, twin = _pair(rng, world)
    while True:
        year = LAST_YEAR if latest else int(rng.integers(2014, LAST_YEAR - 2))
        before = [y for y in range(FIRST_YEAR, year) if entity.holders[y] != entity.holders[year]]
        if before:
            break
    # Stale pages tell of the time just before, most of them of the same predecessor.
    stale_year = before[-1]
    answer, old, homonym = entity.holders[year], entity.holders[stale_year], twin.holders[year]
    rumour = _other(rng, world, answer, old, homonym)
    name = entity.foreign if foreign else entity.name
    where = f"(the {LANGUAGE} name) in {entity.region}" if foreign else f"in {entity.region}"
    tense = "is" if latest else "was"
    older = [y for y in before if y >= stale_year - 4]

    def stale(rng: np.random.Generator) -> tuple[str, int]:
        y = int(rng.choice(older))
        return statement(rng, "office", entity, y, entity.holders[y]), y

    def namesake(rng: np.random.Generator) -> tuple[str, int]:
        y = year if rng.random() < 0.5 else int(rng.integers(year - 6, year))
        return statement(rng, "office", twin, y, twin.holders[y]), y

    return _Draft(
        text=f"Who {tense} the {entity.kind.office} of {name} {where} as of {year}?",
        answer=answer,
        aliases=(),
        year=year,
        entity=entity,
        twin=twin,
        options={"gold": answer, "stale": old, "homonym": homonym, "contradicting": rumour},
        gold=lambda rng: statement(rng, "office", entity, year, answer),
        says={
            "stale": stale,
            "homonym": namesake,
            "contradicting": lambda rng: (statement(rng, "office", entity, year, rumour), year),
            "on_topic": lambda rng: ("", year),
        },
    )


def _count(rng: np.random.Generator, world: World) -> _Draft:
    """How many people held an office over some years; the gold page names them."""

    def span(entity: Entity, since: int, year: int) -> list[str]:
        return list(dict.fromkeys(entity.holders[y] for y in range(since, year + 1)))

    def told(rng: np.random.Generator, entity: Entity, people: list[str], since: int, year: int) -> str:
        listed = f"{', '.join(people[:-1])} and {people[-1]}" if len(people) > 1 else people[0]
        return statement(rng, "history", entity, year, listed, since=since)

    for _ in range(_TRIES):
        entity, twin = _pair(rng, world)
        year = int(rng.integers(2016, LAST_YEAR + 1))
        since = year - int(rng.integers(4, 7))
        people, old, other = span(entity, since, year), span(entity, since, year - 3), span(twin, since, year)
        if 2 <= len(people) <= 7 and len(old) < len(people) and len(other) != len(people):
            break
    else:
        raise _too_small(world)
    wrong = [*people[:-1], _other(rng, world, *people)]
    wrong.append(_other(rng, world, *people, *wrong))  # a name twice would make the count right
    return _Draft(
        text=f"How many different people were the {entity.kind.office} of {entity.name} in {entity.region} "
        f"from {since} to {year}?",
        answer=str(len(people)),
        aliases=(_WORDS[len(people)],),
        year=year,
        entity=entity,
        twin=twin,
        options={
            "gold": str(len(people)),
            "stale": str(len(old)),
            "homonym": str(len(other)),
            "contradicting": str(len(wrong)),
        },
        gold=lambda rng: told(rng, entity, people, since, year),
        says={
            "stale": lambda rng: (told(rng, entity, old, since, year - 3), year - 3),
            "homonym": lambda rng: (told(rng, twin, other, since, year), year),
            "contradicting": lambda rng: (told(rng, entity, wrong, since, year), year),
            "on_topic": lambda rng: ("", year),
        },
    )


def _compare(rng: np.random.Generator, world: World) -> _Draft:
    """Which of two entities of a kind and region had more; the gold page has both numbers, which once lay otherwise."""

    def lead(x: Entity, y: Entity, at: int) -> int:
        return int(np.sign(x.counts[at] - y.counts[at]))  # 0 when equal, which answers nothing

    for _ in range(_TRIES):
        a, a_twin = _pair(rng, world)
        b, b_twin = _pair(rng, world)
        same = a.region == b.region and a.kind == b.kind and a_twin.region == b_twin.region
        if not same or a.name == b.name:
            continue
        year = int(rng.integers(2014, LAST_YEAR + 1))
        now = lead(a, b, year)
        before = [at for at in range(FIRST_YEAR, year) if lead(a, b, at) == -now]
        if now and before and lead(a_twin, b_twin, year) == -now:
            break
    else:
        raise _too_small(world)
    more = a if now > 0 else b

    def told(rng: np.random.Generator, x: Entity, y: Entity, at: int, swap: bool = False) -> str:
        values = [f"{x.counts[at]:,}", f"{y.counts[at]:,}"]
        values = values[::-1] if swap else values
        return statement(rng, "compare", x, at, values[0], other=y.name, other_value=values[1])

    def stale(rng: np.random.Generator) -> tuple[str, int]:
        at = int(rng.choice(before))
        return told(rng, a, b, at), at

    loser = b if more is a else a
    return _Draft(
        text=f"Which had more {a.kind.count} in {year}, {a.name} or {b.name}, both in {a.region}?",
        answer=more.name,
        aliases=(),
        year=year,
        entity=a,
        twin=a_twin,
        options={"gold": more.name, "contradicting": loser.name},
        gold=lambda rng: told(rng, a, b, year),
        says={
            "stale": stale,
            "homonym": lambda rng: (told(rng, a_twin, b_twin, year), year),
            "contradicting": lambda rng: (told(rng, a, b, year, swap=True), year),
            "on_topic": lambda rng: ("", year),
        },
    )


def _false_premise(rng: np.random.Generator, world: World) -> _Draft:
    """Asks for the holder of an office of something that is no more."""
    entity, twin = _pair(rng, world, alive=False)
    ended = entity.ended
    assert ended is not None
    year = int(rng.integers(ended + 1, LAST_YEAR + 1))
    office, old, homonym = entity.kind.office, entity.holders[ended - 1], twin.holders[year]
    rumour = _other(rng, world, old, homonym)

    def stale(rng: np.random.Generator) -> tuple[str, int]:
        y = int(rng.integers(ended - 3, ended))
        return statement(rng, "office", entity, y, entity.holders[y]), y

    return _Draft(
        text=f"Who was the {office} of {entity.name} in {entity.region} as of {year}?",
        answer=f"No such {office}: {entity.name} in {entity.region} came to an end in {ended}",
        aliases=(),
        year=year,
        entity=entity,
        twin=twin,
        options={"gold": f"no such {office}", "stale": old, "homonym": homonym, "contradicting": rumour},
        gold=lambda rng: statement(rng, "ended", entity, year, "", ended=ended),
        says={
            "stale": stale,
            "homonym": lambda rng: (statement(rng, "office", twin, year, homonym), year),
            "contradicting": lambda rng: (statement(rng, "office", entity, year, rumour), year),
            "on_topic": lambda rng: ("", year),
        },
    )


_DRAFTS: dict[str, Callable[[np.random.Generator, World], _Draft]] = {
    "count": _count,
    "compare": _compare,
    "homonym": lambda rng, world: _held_by(rng, world, latest=True),
    "temporal": lambda rng, world: _held_by(rng, world, latest=False),
    "cross_lingual": lambda rng, world: _held_by(rng, world, latest=True, foreign=True),
    "false_premise": _false_premise,
}
