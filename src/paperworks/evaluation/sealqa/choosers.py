"""Subjects that choose among answers: a language model by likelihood, and counting as its baseline."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from .documents import Document

LogProbs = Callable[[Sequence[str], Sequence[Sequence[str]]], Sequence[Sequence[float]]]


@dataclasses.dataclass(frozen=True)
class Item:
    """A choice to make.

    Attributes:
        ask: How the question ends the prompt; an option follows after a space.
        pages: The documents in context, in their order.
        options: The answers to choose from.
    """

    ask: str
    pages: tuple[Document, ...]
    options: tuple[str, ...]

    @property
    def prompt(self) -> str:
        """Documents, then the question; without the documents the question alone."""
        return "\n\n".join([*(page.text for page in self.pages), self.ask])


class LikelihoodChooser:
    """Takes the option whose tokens have the largest summed log-probability after the prompt.

    Args:
        logprobs: Maps prompts and, for each, its options to their sums, such as a causal model gives.
        contrast: Whether the sum without documents is subtracted, so that what counts is what documents add.
    """

    def __init__(self, logprobs: LogProbs, contrast: bool = False) -> None:
        self.logprobs = logprobs
        self.contrast = contrast

    def __call__(self, items: Sequence[Item]) -> list[int]:
        """Chooses for each item.

        Args:
            items: The choices to make.

        Returns:
            The index of an option for each.
        """
        options = [[f" {option}" for option in item.options] for item in items]
        sums = self.logprobs([item.prompt for item in items], options)
        if self.contrast:
            bare = self.logprobs([item.ask for item in items], options)
            sums = [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(sums, bare, strict=True)]
        return [max(range(len(row)), key=lambda i: row[i]) for row in sums]


class StringFrequency:
    """Takes the option that the documents name most often, the first of equals: no model, the trivial baseline.

    Args:
        logprobs: Not used.
    """

    def __init__(self, logprobs: LogProbs | None = None) -> None:
        del logprobs

    def __call__(self, items: Sequence[Item]) -> list[int]:
        """Chooses for each item.

        Args:
            items: The choices to make.

        Returns:
            The index of an option for each.
        """
        return [
            max(range(len(item.options)), key=lambda i: sum(_count(item.options[i], page.text) for page in item.pages))
            for item in items
        ]


def _count(option: str, text: str) -> int:
    """How often an option stands in a text as a whole: "Th" is no part of "The"."""
    return len(re.findall(rf"(?<!\w){re.escape(option)}(?!\w)", text))
