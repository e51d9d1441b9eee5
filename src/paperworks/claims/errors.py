"""What a user can do wrong, or a machine refuse: each a single line that says what, which value and what to do."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Iterable

# The command line sets it on Ctrl-C: an exception raised in a finaliser or a callback is lost, this is not.
interrupted = threading.Event()


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
    """What a traceback says happened, in one line: the exception and its message."""
    lines = error.strip().splitlines()
    frames = [i for i, line in enumerate(lines) if line.startswith("  File ")]
    said = lines[frames[-1] + 1 :] if frames else lines[-1:]
    while said and said[0].startswith(" "):  # the source of the last frame
        said = said[1:]
    return " ".join(part for line in said if (part := line.strip()))


def place(error: str) -> str:
    """Where a traceback ends, as "file.py, line 6"; nothing when there is none."""
    found = re.findall(r'^  File "(?:.*[/\\])?([^"]+)", (line \d+)', error, flags=re.MULTILINE)
    return ", ".join(found[-1]) if found else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' (did you mean ...?)' when a known name is close, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
