"""Pages of the invented world, in several styles; the fact that a page states is one sentence of it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .documents import Document, Kind
from .world import LANGUAGE, Entity, pick

Length = Literal["long", "short"]

# (host, authority); who writes decides how far a page can be trusted.
_TRUSTED = [
    ("records.{region}.example", 0.95),
    ("gazette.{region}.example", 0.85),
    ("almanac.example", 0.8),
    ("daily-{region}.example", 0.7),
]
_UNTRUSTED = [("chatter.example", 0.15), ("fans-of-{region}.example", 0.2), ("copied-facts.example", 0.1)]
_OPENINGS = [
    "{name} in {region} is described here as part of a survey of the whole region.",
    "This entry on {name} in {region} belongs to a series on well known names of the area.",
    "Readers often write to us about {name} in {region}, and most letters ask the same things.",
    "A short portrait of {name} in {region}, put together from notes that were sent in.",
]
_FILLERS = [
    "The road from the coast was widened last autumn, and visitors now arrive in half the time.",
    "Rain kept the crowds away during the spring fair, yet most stalls stayed open until dusk.",
    "A new leaflet, printed on both sides, can be had at the counter on weekdays.",
    "Several letters in the archive describe the same view over the valley and the old quarry.",
    "The anniversary was kept with a lunch, two speeches and a walk along the river.",
    "Prices have risen a little, as they have nearly everywhere in the region.",
    "An exhibition about the early days is planned, though no opening day has been set.",
    "The reading room keeps a box of photographs, few of which carry a caption.",
]
_STATED = {
    "office": [
        "As of {year}, the {office} of {name} in {region} is {value}.",
        "In {year} the {office} of {name} in {region} was {value}, according to the register.",
        "The {office} of {name} in {region} for {year} is {value}, as announced in the spring.",
    ],
    "count": [
        "As of {year}, {name} in {region} has {value} {count}.",
        "In {year} {name} in {region} had {value} {count}, according to the register.",
    ],
    "ended": [
        "There has been no {office} of {name} in {region} since {ended}, when it came to an end.",
        "Since {ended} there has been no {office} of {name} in {region}; it no longer exists.",
    ],
    "history": ["From {since} to {year} the {office} of {name} in {region} was, in turn, {value}."],
    "compare": ["In {year} {name} in {region} had {value} {count} and {other} in {region} had {other_value} {count}."],
}


def statement(rng: np.random.Generator, what: str, entity: Entity, year: int, value: str, **more: object) -> str:
    """The sentence of a page that states a fact."""
    kind = entity.kind
    fields = {"office": kind.office, "count": kind.count, "name": entity.name, "region": entity.region}
    return pick(rng, _STATED[what]).format(**{**fields, "year": year, "value": value, **more})


def write_page(
    rng: np.random.Generator,
    page_id: str,
    entity: Entity,
    fact: str,
    kind: Kind,
    year: int,
    length: Length = "long",
    *,
    trusted: bool = True,
    late: bool = False,
    bilingual: bool = False,
) -> Document:
    """Writes a page of 60 to 120 words, or a short one of 15 to 35, around one sentence.

    Args:
        rng: Where every draw comes from.
        page_id: Its name.
        entity: What it is about.
        fact: The sentence that matters, or "" for a page on the topic without the answer.
        kind: What it is to its question.
        year: The year of its fact; the page is dated in it.
        length: "long" or "short".
        trusted: Whether a body of authority writes.
        late: Whether it was republished in the last year.
        bilingual: Whether it gives the name in Ravic too.

    Returns:
        The page; one in ten is without a date.
    """
    sites = _TRUSTED if trusted else _UNTRUSTED
    host, authority = sites[rng.integers(len(sites))]
    host = host.format(region=entity.region.lower())
    date = f"{2025 if late else year}-{rng.integers(1, 13):02d}-{rng.integers(1, 29):02d}"
    also = f" In {LANGUAGE} its name is {entity.foreign}." * bilingual
    opening = pick(rng, _OPENINGS).format(name=entity.name, region=entity.region)
    founder = f"It was founded by {entity.founder}."
    fillers = [str(s) for s in rng.permutation(_FILLERS)]
    if length == "short":
        sentences = [also.strip(), fact, fillers[0]] if fact else [founder, fillers[0], fillers[1]]
    else:
        sentences = [opening + also, founder if not fact or rng.random() < 0.5 else "", *fillers[: rng.integers(3, 5)]]
        if fact:
            sentences.insert(int(rng.integers(1, len(sentences) + 1)), fact)
    return Document(
        id=page_id,
        title=f"{entity.name} ({entity.region})",
        text=" ".join(filter(None, sentences)),
        url=f"https://{host}/{page_id}",
        date=None if rng.random() < 0.1 else date,
        authority=authority,
        kind=kind,
    )
