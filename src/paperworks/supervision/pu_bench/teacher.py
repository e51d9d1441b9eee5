"""A mean teacher: a net whose weights are a moving average of another's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .base import require

if TYPE_CHECKING:
    from .training import Run


class Teacher:
    """Exponential moving average of a net's weights, in all lanes.

    The decay is min(decay, 1 - 1 / t) at the t-th update, so the teacher is the plain mean of the weights so far until
    it is old enough, and its random start is forgotten at the first update. Buffers are copied.

    Args:
        run: The training.
        name: Name of the teacher among its nets.
        student: Name of the net to average.
        decay: Decay of the average, in [0, 1).
    """

    def __init__(self, run: Run, name: str, student: str = "main", decay: float = 0.999) -> None:
        require(0 <= decay < 1, "decay", decay, "lie in [0, 1)")
        run.add_net(name)
        self._net, self._student, self._decay, self.updates = run.net(name), run.net(student), decay, 0

    @torch.no_grad()
    def update(self) -> None:
        """Move towards the student."""
        self.updates += 1
        move = max(1 - self._decay, 1 / self.updates)
        for own, theirs in zip(self._net.parameters(), self._student.parameters(), strict=True):
            own.lerp_(theirs, move)
        for own, theirs in zip(self._net.buffers(), self._student.buffers(), strict=True):
            own.copy_(theirs)
