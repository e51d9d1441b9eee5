"""What a user can do wrong, or a machine refuse: each a single line that says what, which value and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PaperworksError(Exception):
    """Any error that the command line prints as one line, without a traceback."""

    exit_code = 1


class UsageError(PaperworksError):
    """The call itself is wrong: an unknown name, a bad value."""

    exit_code = 2


class PaperError(PaperworksError):
    """A paper's room is wrong: its paper.toml, study or evidence."""

    exit_code = 2


class LedgerError(PaperworksError):
    """The ledger cannot be read or written."""


def last_line(error: str) -> str:
    """The line of a traceback that says what happened."""
    return error.strip().splitlines()[-1] if error.strip() else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)' when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
