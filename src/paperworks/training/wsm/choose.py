"""The best weights for given data, chosen after training (an addition to the paper)."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from .sources import Checkpoint, open_source
from .weights import Vector


def _onto_simplex(c: Tensor) -> Tensor:
    """The nearest point with c >= 0 and sum 1 (Duchi et al. 2008)."""
    u = c.sort(descending=True).values
    excess = (u.cumsum(0) - 1) / torch.arange(1, len(c) + 1)
    return (c - excess[int((u > excess).nonzero().max())]).clamp(min=0)


def fit_weights(
    model: nn.Module,
    sources: Sequence[Checkpoint],
    loss: Callable[[nn.Module], Tensor],
    *,
    held_out: Callable[[nn.Module], Tensor] | None = None,
    steps: int = 50,
    lr: float = 0.5,
) -> Vector:
    """The non-negative weights, summing to 1, that minimise a loss, by projected gradient.

    Args:
        model: A model of the checkpoints' architecture; its weights are not changed.
        sources: Checkpoints, oldest first; all are held in memory.
        loss: Called with a module to call like the model, on a fixed set of data; returns a scalar.
        held_out: The same on other data: a warning is given when the weights found do worse there than the mean.
        steps: Steps of the descent.
        lr: Length of a step: the gradient is scaled to length 1.

    Returns:
        Weights c, shape (k + 1,).

    Raises:
        ValueError: When there is no checkpoint.
    """
    if len(sources) == 0:
        raise ValueError("sources is empty: at least one checkpoint is needed")
    opened = [open_source(source) for source in sources]
    names = [name for name, _ in model.named_parameters()]
    stacked = {name: torch.stack([s.read(name).float() for s in opened]) for name in names}

    class Merged(nn.Module):
        def __init__(self, c: Tensor) -> None:
            super().__init__()
            self.parts = {name: torch.tensordot(c, stack, dims=1) for name, stack in stacked.items()}

        def forward(self, *args: object, **kwargs: object) -> object:
            return functional_call(model, self.parts, args, kwargs)

    mean = torch.full((len(opened),), 1 / len(opened))
    c, best, lowest = mean.clone(), mean, float("inf")
    for step in range(steps + 1):
        c.requires_grad_()
        value = loss(Merged(c))
        if value.item() < lowest:
            best, lowest = c.detach().clone(), value.item()
        (slope,) = torch.autograd.grad(value, c)
        slope = slope - slope.mean()  # along the simplex
        c = _onto_simplex(c.detach() - lr / (1 + step) * slope / slope.norm().clamp(min=1e-12))
    if held_out is not None:
        with torch.no_grad():
            found, plain = float(held_out(Merged(best))), float(held_out(Merged(mean)))
        if found > plain:
            warnings.warn(
                f"held-out loss {found:.4g} with the weights found, {plain:.4g} with the mean: overfitted", stacklevel=2
            )
    return np.asarray(best, dtype=np.float64)
