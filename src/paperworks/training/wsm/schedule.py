"""The learning rate of the baseline, warm-up, stable, decay; and of WSM itself, whose decay is empty."""

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from .weights import Curve, decay_curve


class WSDScheduler(LRScheduler):
    """Warm-up, stable phase and decay to 0; with ``decay=0`` the constant rate of WSM, for ever.

    Counted in steps of the optimiser: the rate of step t (from 0) is peak * (t + 1) / warmup, then peak, then the
    curve at x_i = i / (decay + 1) for the i-th step of the decay: the i-th decayed update has the coefficient w_i of
    `decay_curve`. After the decay the rate is 0.

    Args:
        optimizer: Its rates are the peaks.
        warmup: Steps of the linear warm-up.
        stable: Steps at the peak.
        decay: Steps of the decay; 0 for none.
        curve: As in `decay_curve`.
        last_epoch: As in torch.
        **options: For the curve.

    Raises:
        ValueError: For negative numbers of steps.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup: int,
        stable: int,
        decay: int = 0,
        curve: Curve = "1-sqrt",
        last_epoch: int = -1,
        **options: Any,
    ) -> None:
        for name, value in (("warmup", warmup), ("stable", stable), ("decay", decay)):
            if value < 0:
                raise ValueError(f"{name} = {value}: a number of steps of at least 0 is needed")
        self.warmup, self.stable, self.decay = warmup, stable, decay
        self._curve = decay_curve(curve, decay, **options).tolist()
        super().__init__(optimizer, last_epoch)

    def factor(self, step: int) -> float:
        """The rate of a step over the peak.

        Args:
            step: The step, from 0.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        i = step - self.warmup - self.stable
        if i < 0 or self.decay == 0:
            return 1.0
        return float(self._curve[i]) if i < self.decay else 0.0

    def get_lr(self) -> list[float]:
        """The rates of the step that comes."""
        return [base * self.factor(self.last_epoch) for base in self.base_lrs]
