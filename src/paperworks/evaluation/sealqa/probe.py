"""A probe for contamination: is the question's own wording likelier to a model than wordings that mean the same?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from .metrics import wilson


@dataclasses.dataclass(frozen=True)
class Probe:
    """What the probe found.

    Attributes:
        preferred: Share of questions whose own wording has the highest log-probability per token of all wordings.
        low: Lower end of its 95 % Wilson interval.
        high: Upper end.
        chance: The share that would be preferred if wordings were exchangeable.
        margin: Mean of own minus mean paraphrase, nats per token.
    """

    preferred: float
    low: float
    high: float
    chance: float
    margin: float


def contamination(
    questions: Sequence[str], paraphrases: Sequence[Sequence[str]], logprob: Callable[[str], tuple[float, int]]
) -> Probe:
    """Compares the log-likelihood of questions with that of their paraphrases.

    Args:
        questions: The wordings that may have been seen, or canary strings.
        paraphrases: For each question one other wording or more.
        logprob: Maps a text to its summed log-probability in nats and its number of tokens.

    Returns:
        The probe; `preferred` well above `chance` hints at the questions having been trained on.

    Raises:
        ValueError: Counts differ, or a question has no paraphrase.
    """
    if len(questions) != len(paraphrases) or not questions or not all(paraphrases):
        raise ValueError(
            f"{len(questions)} questions with {len(paraphrases)} lists of paraphrases; each needs one or more"
        )

    def rate(text: str) -> float:
        total, tokens = logprob(text)
        return total / max(1, tokens)

    margins, wins, chances = [], 0, []
    for question, others in zip(questions, paraphrases, strict=True):
        own, rest = rate(question), [rate(other) for other in others]
        wins += own > max(rest)
        margins.append(own - float(np.mean(rest)))
        chances.append(1 / (1 + len(rest)))
    share = wilson(wins, len(questions))
    return Probe(share.value, share.low, share.high, float(np.mean(chances)), float(np.mean(margins)))
