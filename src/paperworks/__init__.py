"""Paperworks: 57 ICLR 2026 papers that work, each a component to import and a set of claims to test.

>>> import paperworks as pw
>>> pw.papers()                                       # the papers, a pandas table
>>> pw.verdicts("quest")                              # what the evidence says of each claim
>>> pw.run("quest.Q3", arms={"mine": MyAttention})    # your own method in the paper's test

The methods are in packages of their own: ``from paperworks.layers.quest import QuestAttention``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paperworks.tables import papers as papers
    from paperworks.tables import run as run
    from paperworks.tables import verdicts as verdicts

__version__ = "0.1.0"
__all__ = ["papers", "run", "verdicts"]


def __getattr__(name: str) -> Any:
    """Import pandas and the frame when they are first asked for."""
    if name in __all__:
        from paperworks import tables

        return getattr(tables, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
