"""White-box attacks within a maximum-norm ball: one signed step (FGSM) and several projected ones (PGD).

Both follow the gradient of the loss through whatever the model computes, the normalisation of keys included.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


def fgsm(
    model: nn.Module,
    images: Float[Tensor, "b c h w"],
    labels: Int[Tensor, " b"],
    eps: float,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Float[Tensor, "b c h w"]:
    """Return images moved by `eps` along the sign of the loss gradient: x + eps sign(dL/dx).

    Args:
        model: gives class scores; its own parameters get no gradient.
        images: within `bounds`.
        labels: true classes.
        eps: radius of the ball, in units of the pixels.
        bounds: smallest and largest pixel.
    """
    return (images + eps * _gradient(model, images, labels).sign()).clamp(*bounds)


def pgd(
    model: nn.Module,
    images: Float[Tensor, "b c h w"],
    labels: Int[Tensor, " b"],
    eps: float,
    steps: int = 10,
    step_size: float | None = None,
    generator: torch.Generator | None = None,
    loss: str = "cross_entropy",
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Float[Tensor, "b c h w"]:
    """Return images moved by `steps` signed steps, each projected back into the ball and the bounds.

    Args:
        model: gives class scores; its own parameters get no gradient.
        images: within `bounds`.
        labels: true classes.
        eps: radius of the ball, in units of the pixels.
        steps: number of steps.
        step_size: length of a step; 2.5 eps / steps when left out.
        generator: starts from a uniform draw in the ball; without it from the images themselves.
        loss: "cross_entropy", or "margin": best wrong score minus true score, whose gradient does not fade where the
            model is sure.
        bounds: smallest and largest pixel.
    """
    step_size = 2.5 * eps / steps if step_size is None else step_size
    moved = images.clone()
    if generator is not None:
        noise = torch.rand(images.shape, generator=generator, dtype=images.dtype, device=images.device)
        moved = (images + eps * (2 * noise - 1)).clamp(*bounds)
    for _ in range(steps):
        moved = moved + step_size * _gradient(model, moved, labels, loss).sign()
        moved = torch.clamp(moved, images - eps, images + eps).clamp(*bounds)
    return moved


def _gradient(model: nn.Module, images: Tensor, labels: Tensor, loss: str = "cross_entropy") -> Tensor:
    if loss not in ("cross_entropy", "margin"):
        raise ValueError(f"loss={loss!r}; allowed are 'cross_entropy' and 'margin'")
    images = images.detach().requires_grad_()
    scores = model(images)  # (b, classes)
    # Sums, not means, so that the gradient of an image does not depend on the batch it stands in.
    if loss == "cross_entropy":
        total = F.cross_entropy(scores, labels, reduction="sum")
    else:
        true = F.one_hot(labels, scores.shape[-1]).bool()
        total = scores.masked_fill(true, float("-inf")).amax(dim=-1).sum() - scores[true].sum()
    return torch.autograd.grad(total, images)[0]
