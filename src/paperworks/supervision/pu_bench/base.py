"""What an algorithm is: hooks into the one training loop, and the batches that it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from .training import Run


class Batch(NamedTuple):
    """Equally many labelled and unlabeled rows of every lane.

    Attributes:
        x_p: Labelled rows, shape (lanes, batch, features).
        x_u: Unlabeled rows, shape (lanes, batch, features).
        rows_p: Their numbers in the training set, shape (lanes, batch).
        rows_u: Likewise.
    """

    x_p: Tensor
    x_u: Tensor
    rows_p: Tensor
    rows_u: Tensor


class Algorithm:
    """Base of the algorithms, and the whole of those that are a loss of two batches of scores.

    Attributes:
        puts_back: How calibration puts labelled rows back into U. "weights": as weighted rows of the loss's mean over
            U. "rows": as rows of the training set U, for losses that count, sort or pair rows. "never": the algorithm
            models the labelling itself.
        nets: The networks that a step trains.
        largest_gradient: Norm to which a step's gradient is scaled down; ``None`` for no limit.
    """

    puts_back: ClassVar[Literal["weights", "rows", "never"]] = "weights"
    nets: ClassVar[tuple[str, ...]] = ("main",)
    largest_gradient: float | None = None

    def begin(self, run: Run) -> None:
        """Warm up, before the first step."""

    def epoch(self, run: Run) -> Tensor | None:
        """At the start of a pass over U: the rows to draw from, shape (lanes, n), or ``None`` for all."""
        return None

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """The loss of every lane, shape (lanes,)."""
        raise NotImplementedError

    def threshold(self, run: Run) -> Tensor | None:
        """The score from which a row is called positive, shape (lanes,); ``None`` for 0."""
        return None


def require(fine: bool, name: str, value: object, allowed: str) -> None:
    """Raise one error that names an option, its value and what is allowed, unless all is fine."""
    if not fine:
        raise ValueError(f"{name} must {allowed}, got {value!r}")
