"""An invented world: entities with names that two of them share, and facts that change over the years.

Nothing in it can be known beforehand, so that a right answer comes from a page, and its key is exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

FIRST_YEAR, LAST_YEAR = 2008, 2025
_ONSET = ["b", "br", "d", "dr", "f", "g", "h", "k", "kl", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "z"]
_VOWEL = ["a", "e", "i", "o", "u", "ei", "au", "ia"]
_CODA = ["", "l", "n", "r", "s", "m", "nd", "rk", "lt", "th"]
EPITHETS = ["Upper", "Lower", "Old", "New", "Great", "Little", "North", "South", "East", "West", "High", "Far"]
# A fixed lexicon: the epithets in Ravic, the second language of the invented world.
LEXICON = {
    "Upper": "Ostam",
    "Lower": "Undam",
    "Old": "Vethir",
    "New": "Noveth",
    "Great": "Makor",
    "Little": "Pelin",
    "North": "Sever",
    "South": "Yugan",
    "East": "Zorat",
    "West": "Veker",
    "High": "Altur",
    "Far": "Delekin",
}
LANGUAGE = "Ravic"


@dataclasses.dataclass(frozen=True)
class EntityKind:
    """What sort of thing an entity is.

    Attributes:
        name: The kind.
        suffix: Last word of an entity's name, or "".
        office: The post that a person holds there; its holder is the fact that changes.
        count: What is counted there, in the plural; a number that changes yearly.
        pace: (shortest, longest) years for which an office is held.
        freshness: "slow" or "fast".
    """

    name: str
    suffix: str
    office: str
    count: str
    pace: tuple[int, int]
    freshness: str


ENTITY_KINDS = (
    EntityKind("town", "", "mayor", "inhabitants", (2, 5), "slow"),
    EntityKind("club", "Rovers", "coach", "members", (1, 3), "fast"),
    EntityKind("instrument", "Organ", "keeper", "pipes", (2, 5), "slow"),
    EntityKind("prize", "Medal", "winner", "nominees", (1, 1), "fast"),
)


@dataclasses.dataclass(frozen=True)
class Entity:
    """One thing of the world.

    Attributes:
        name: Its name; exactly one other entity, of the same kind and in another region, has the same.
        foreign: Its name in Ravic.
        region: Where it is.
        kind: Its kind.
        founder: A person; never changes.
        holders: Who holds the office in each year.
        counts: The number in each year.
        ended: The first year in which it is no more, or ``None``.
    """

    name: str
    foreign: str
    region: str
    kind: EntityKind
    founder: str
    holders: dict[int, str]
    counts: dict[int, int]
    ended: int | None


@dataclasses.dataclass(frozen=True)
class World:
    """All entities, those that share a name side by side: 2 i and 2 i + 1."""

    entities: tuple[Entity, ...]
    regions: tuple[str, ...]
    people: tuple[str, ...]


def pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    """The draw of `rng.choice`, which makes an array of the options each time."""
    return options[int(rng.integers(len(options)))]


class _Namer:
    """Makes words that it has not made before."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.used: set[str] = {word.lower() for word in [*EPITHETS, *LEXICON.values()]}

    def word(self, syllables: int) -> str:
        while True:
            parts = [
                pick(self.rng, _ONSET) + pick(self.rng, _VOWEL) + (pick(self.rng, _CODA) * last)
                for last in [False] * (syllables - 1) + [True]
            ]
            made = "".join(parts)
            if made not in self.used and len(made) >= 4:
                self.used.add(made)
                return made.capitalize()


def build_world(rng: np.random.Generator, entities: int = 300) -> World:
    """Draws a world.

    Args:
        rng: Where every draw comes from.
        entities: How many there are; even, since names are shared by two.

    Returns:
        The world.

    Raises:
        ValueError: `entities` is odd or below 100.
    """
    if entities < 100 or entities % 2:
        raise ValueError(f"entities={entities}; allowed is an even number from 100 on, for two share each name")
    namer = _Namer(rng)
    regions = tuple(namer.word(2) for _ in range(8))
    firsts = [namer.word(2) for _ in range(60)]
    people: list[str] = []

    def person() -> str:
        people.append(f"{pick(rng, firsts)} {namer.word(3)}")
        return people[-1]

    made = []
    for i in range(entities // 2):
        kind = ENTITY_KINDS[i % len(ENTITY_KINDS)]
        stem, epithet = namer.word(2), pick(rng, EPITHETS)
        name, foreign = (" ".join(filter(None, [word, stem, kind.suffix])) for word in (epithet, LEXICON[epithet]))
        group = i // len(ENTITY_KINDS) % 4  # names of one group have the same two regions, so that twins compare too
        for region in regions[2 * group : 2 * group + 2]:
            holders: dict[int, str] = {}
            while len(holders) < LAST_YEAR - FIRST_YEAR + 1:
                holder = person()
                for _ in range(rng.integers(kind.pace[0], kind.pace[1] + 1)):
                    holders[FIRST_YEAR + len(holders)] = holder
            drift = np.exp(rng.normal(0, 0.25, LAST_YEAR - FIRST_YEAR + 1).cumsum())
            counts = {FIRST_YEAR + j: int(3_000 + 9_000 * factor) for j, factor in enumerate(drift)}
            ended = int(rng.integers(2018, 2023)) if rng.random() < 0.15 else None
            years = range(FIRST_YEAR, LAST_YEAR + 1)
            made.append(
                Entity(
                    name,
                    foreign,
                    region,
                    kind,
                    person(),
                    {y: holders[y] for y in years if ended is None or y < ended},
                    {y: counts[y] for y in years if ended is None or y < ended},
                    ended,
                )
            )
    return World(tuple(made), regions, tuple(people))
