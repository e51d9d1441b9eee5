"""What the mixture says about the error of each pixel, and whether it is right."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from .losses import mixture_parameters


class FlowUncertainty:
    """The distribution of the error |e| of one flow component: sum_k p_k exp(-|e| / b_k) / b_k.

    Args:
        info: Mixture logits and raw log-scales (b, 4, h, w), as in `FlowOutput.info`.
        var_min: Smallest log-scale of component 2.
        var_max: Largest log-scale of component 1.
        scale: Factor on both scales, from `calibrate`.
    """

    def __init__(
        self, info: Float[Tensor, " b 4 h w"], var_min: float = 0.0, var_max: float = 10.0, scale: float = 1.0
    ) -> None:
        if scale <= 0:
            raise ValueError(f"scale={scale}; a factor on the scales is > 0")
        logits, log_b = mixture_parameters(info, var_min, var_max)
        self.weights = logits.softmax(dim=1)
        self.scales = scale * log_b.exp()

    @property
    def expected_error(self) -> Float[Tensor, " b h w"]:
        """E|e| of one component = sum_k p_k b_k, pixels."""
        return (self.weights * self.scales).sum(1)

    def confidence(self, within: float = 1.0) -> Float[Tensor, " b h w"]:
        """P(|e| <= within) of one component.

        Args:
            within: Distance in pixels.
        """
        return 1 - (self.weights * torch.exp(-within / self.scales)).sum(1)

    def quantile(self, level: float) -> Float[Tensor, " b h w"]:
        """The distance q with P(|e| <= q) = level, pixels, by bisection between the quantiles of the components.

        Args:
            level: Probability, 0 < level < 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"level={level}; allowed is 0 < level < 1")
        single = -math.log1p(-level) * self.scales
        low, high = single.amin(1), single.amax(1)
        for _ in range(60):
            middle = (low + high) / 2
            below = 1 - (self.weights * torch.exp(-middle[:, None] / self.scales)).sum(1) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def coverage(
        self, error: Float[Tensor, " b 2 h w"], levels: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    ) -> dict[float, float]:
        """The share of errors within the quantile of each level; equal to the level when calibrated.

        Args:
            error: Prediction minus truth (b, 2, h, w), pixels; not finite where unknown.
            levels: Probabilities.
        """
        known = torch.isfinite(error)
        return {
            level: ((error.abs() <= self.quantile(level)[:, None]) & known).sum().item() / max(int(known.sum()), 1)
            for level in levels
        }

    def calibration_error(
        self, error: Float[Tensor, " b 2 h w"], levels: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9)
    ) -> float:
        """The mean over levels of |coverage - level|.

        Args:
            error: Prediction minus truth (b, 2, h, w), pixels; not finite where unknown.
            levels: Probabilities.
        """
        return sum(abs(share - level) for level, share in self.coverage(error, levels).items()) / len(levels)


def calibrate(
    info: Float[Tensor, " b 4 h w"],
    error: Float[Tensor, " b 2 h w"],
    var_min: float = 0.0,
    var_max: float = 10.0,
    steps: int = 60,
) -> float:
    """Find the one factor on both scales that makes held-out errors most likely.

    Args:
        info: Mixture logits and raw log-scales (b, 4, h, w).
        error: Prediction minus truth on held-out pairs (b, 2, h, w), pixels; not finite where unknown.
        var_min: Smallest log-scale of component 2.
        var_max: Largest log-scale of component 1.
        steps: Steps of the golden-section search over log(factor) in -7..7.

    Returns:
        The factor, to be given to `FlowUncertainty` as `scale`.
    """
    logits, log_b = (x.detach().double() for x in mixture_parameters(info, var_min, var_max))
    size = error.detach().double().abs()
    known = torch.isfinite(size)
    if not known.any():
        raise ValueError("error has no finite value; calibration needs pixels with known truth")
    size = size.nan_to_num(0, 0, 0)

    def cost(shift: float) -> float:
        b = log_b + shift
        inner = (logits.log_softmax(1) - b).unsqueeze(1) - size.unsqueeze(2) * torch.exp(-b).unsqueeze(1)
        return -(torch.logsumexp(inner, dim=2)[known]).mean().item()

    golden = (math.sqrt(5) - 1) / 2
    low, high = -7.0, 7.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(steps):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = cost(right)
    return math.exp((low + high) / 2)
