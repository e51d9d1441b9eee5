"""A recipe of a few hundred steps that brings a converted model back to what it computed before."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from .convert import run


def distill_attention(
    student: nn.Module,
    teacher: nn.Module,
    batches: Iterable[Any],
    steps: int = 300,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
) -> list[float]:
    """Train a converted model to give the outputs of the original, without labels.

    ```
    teacher = copy.deepcopy(model)
    student = convert_attention(model, rescale_queries=True, calibration=batches)
    distill_attention(student, teacher, batches)
    ```

    AdamW on every parameter that requires a gradient, a tenth of the steps as warm-up, then a cosine to 0; gradients
    are clipped to a norm of 1. Both models run in evaluation mode, so that dropout does not blur the target.

    Args:
        student: the converted model, trained in place.
        teacher: the model before the conversion; not changed.
        batches: inputs as `model(...)` takes them (a tensor, tuple or mapping); gone through again when used up.
        steps: optimisation steps.
        lr: largest learning rate.
        weight_decay: decoupled weight decay.

    Returns:
        The loss of each step: squared error over the variance of the teacher's outputs. 0 is a perfect copy, 1 the
        teacher's mean.
    """
    if steps < 1:
        raise ValueError(f"steps={steps}; allowed are 1, 2, ...")
    stored = list(batches)
    if not stored:
        raise ValueError("batches is empty; allowed are one or more inputs of the model")
    parameters = [p for p in student.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=weight_decay)
    warm = max(1, steps // 10)

    def rate(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    modes = student.training, teacher.training
    student.eval(), teacher.eval()
    losses = []
    for batch in itertools.islice(itertools.cycle(stored), steps):
        with torch.no_grad():
            target = run(teacher, batch)
        loss = (run(student, batch) - target).square().mean() / target.var()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    student.train(modes[0]), teacher.train(modes[1])
    return losses
