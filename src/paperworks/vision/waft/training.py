"""The training of the paper: AdamW, one cycle with a linear decay, clipped gradients."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from .losses import sequence_loss
from .model import FlowNetwork


def make_optimizer(
    model: FlowNetwork, steps: int, rate: float = 4e-4, decay: float = 1e-5
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW (eps 1e-8), a linear one-cycle schedule with 5 % of warm-up over `steps` + 100, as in the authors' code.

    Args:
        model: Its trainable parameters are optimised.
        steps: Optimisation steps.
        rate: Largest learning rate; 4e-4 from scratch, 1e-4 for fine-tuning.
        decay: Weight decay.
    """
    optimizer = torch.optim.AdamW(model.trainable(), lr=rate, weight_decay=decay, eps=1e-8)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, steps + 100, pct_start=0.05, cycle_momentum=False, anneal_strategy="linear"
    )
    return optimizer, schedule


def fit(
    model: FlowNetwork,
    batches: Iterable[Mapping[str, np.ndarray]],
    steps: int,
    rate: float = 4e-4,
    decay: float = 1e-5,
    gamma: float = 0.85,
    clip: float = 1.0,
    watch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train on batches with exact flow.

    Args:
        model: Trained in place.
        batches: Mappings with "image1", "image2" (b, 3, h, w), "flow" (b, 2, h, w) and "valid" (b, h, w), such as
            `SyntheticFlowDataset.batches` gives.
        steps: Steps of the schedule; training ends earlier when the batches do.
        rate: Largest learning rate.
        decay: Weight decay.
        gamma: Decay of the loss over iterations.
        clip: Largest norm of the gradient.
        watch: Called with step and loss.

    Returns:
        The loss of each step.

    Raises:
        FloatingPointError: The loss is no longer finite.
    """
    device = next(model.parameters()).device
    optimizer, schedule = make_optimizer(model, steps, rate, decay)
    was = model.training
    model.train()
    losses = []
    for step, batch in enumerate(batches):
        data: dict[str, Tensor] = {key: torch.as_tensor(value).to(device) for key, value in batch.items()}
        out = model(data["image1"], data["image2"], flow_gt=data["flow"])
        assert out.nll is not None  # a truth was given
        loss = sequence_loss(out.nll, data["flow"], data["valid"], gamma)
        losses.append(loss.item())
        if not np.isfinite(losses[-1]):
            raise FloatingPointError(f"loss is {losses[-1]} at step {step}; a smaller rate than {rate} may help")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.trainable(), clip)
        optimizer.step()
        schedule.step()
        if watch is not None:
            watch(step, losses[-1])
    model.train(was)
    return losses
