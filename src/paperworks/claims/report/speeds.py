"""Measured speed ratios: those a room ships, or a document that `paperworks speed --json` printed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from paperworks.claims import speed
from paperworks.claims.catalog import Room
from paperworks.claims.errors import PaperError


class Measured(BaseModel):
    """One measured ratio: time of ours over time of the peer.

    Attributes:
        paper: Slug of the paper.
        name: Name of its ``[[speed]]`` entry.
        median: Median over alternated pairs.
        low: Lower end of its 95 % interval.
        high: Upper end.
        pairs: Number of pairs.
        memory: Peak memory of ours, in MiB.
        peer_memory: That of the peer.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    paper: str
    name: str
    median: float
    low: float
    high: float
    pairs: int = 0
    memory: float | None = None
    peer_memory: float | None = None


def shipped_speeds(room: Room) -> list[Measured]:
    """The ratios in a room's ``speed.json``; none when it was never measured.

    Raises:
        PaperError: When the file is not what `paperworks speed --save` writes.
    """
    try:
        return [Measured(paper=room.slug, **dataclasses.asdict(ratio)) for ratio in speed.saved(room.folder)]
    except (ValueError, TypeError) as error:
        raise PaperError(f"{room.folder / 'speed.json'} holds no speed ratios: {error}") from None


def read_speeds(path: Path) -> list[Measured]:
    """Read a file of ratios: a JSON list of objects with paper, name, median, low, high and pairs.

    Raises:
        PaperError: When the file cannot be read or does not hold such a list.
    """
    try:
        return TypeAdapter(list[Measured]).validate_json(path.read_bytes())
    except OSError as error:
        raise PaperError(f"cannot read speed ratios from {path}: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise PaperError(f"{path} holds no speed ratios: {where + ': ' if where else ''}{first['msg']}") from None
