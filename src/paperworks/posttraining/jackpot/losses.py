"""The policy loss with OBRS and with the corrections that it is compared with.

For a token x drawn by the actor q = p_inf, p_ref being the policy that collected the batch and p_new the one in
training, the loss is -M SG[rho] min(r A, clip(r, 1 - eps, 1 + eps) A) with r = p_new / p_ref: M is the mask of kept
tokens and rho = F(p_target / q~) G(p_ref / p_target) the correction.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from .obrs import TopK, obrs_accept_prob, obrs_topk_normalizer, obrs_weight, solve_batch_lambda

Target = Literal["new", "ref"]
MaskMode = Literal["sample", "expected", "none"]
Normalise = Literal["tokens", "accepted"]
Pool = Callable[[Tensor], Tensor]


class LossOutput(NamedTuple):
    """A loss and what it says of the batch.

    Attributes:
        loss: A scalar with gradient.
        metrics: Plain numbers: acceptance, kappa, kl_actor_policy (nats a token, estimated from the drawn tokens),
            weight quantiles, fraction_truncated, clipped, budget, ess (effective share of the valid tokens).
        per_token: The loss of each token before reduction, of the mask's shape, with gradient.
        weight: M rho, detached, of the mask's shape.
        keep: M, detached, of the mask's shape.
    """

    loss: Tensor
    metrics: dict[str, float]
    per_token: Tensor
    weight: Tensor
    keep: Tensor | None = None


class Shift(NamedTuple):
    """What a correction sees of a batch; nothing carries a gradient.

    Attributes:
        logp_target: log p_target of the tokens, of shape (batch, tokens).
        logp_actor: log q, of the same shape.
        valid: True at tokens that count, of the same shape.
        uniform: A random number in [0, 1) for each token, of the same shape; ``None`` when there are none.
        topk: The union of likeliest tokens, or ``None``.
        z: The exact normaliser, or ``None``.
        pool: Adds the sums of other micro-batches and processes to a tensor of sums.
    """

    logp_target: Tensor
    logp_actor: Tensor
    valid: Tensor
    uniform: Tensor | None
    topk: TopK | None
    z: Tensor | None
    pool: Pool


class Reweighting(NamedTuple):
    """What a correction makes of a batch; nothing carries a gradient.

    Attributes:
        keep: M, the share of each token that is kept, of shape (batch, tokens).
        weight: F(p_target / q~), of the same shape.
        truncated: True where F changed its argument, of the same shape.
        metrics: Further numbers.
        of_target: Whether the weight moves the samples to p_target, so that p_ref / p_target has to turn it back.
    """

    keep: Tensor
    weight: Tensor
    truncated: Tensor
    metrics: dict[str, float]
    of_target: bool = True


class Correction(Protocol):
    """What makes the weights; give one of your own as `correction`."""

    def __call__(self, shift: Shift) -> Reweighting:
        """Reweight a batch."""
        ...


def _ratio(shift: Shift) -> Tensor:
    # Where an engine rounded q to 0 the ratio has no bound; exp(60) stays finite in float32.
    return (shift.logp_target - shift.logp_actor).nan_to_num(nan=0.0).clamp(max=60.0).exp()


def _plain(weight: Tensor, truncated: Tensor) -> Reweighting:
    return Reweighting(torch.ones_like(weight), weight, truncated, {})


def no_correction(shift: Shift) -> Reweighting:
    """As if the policy itself had drawn the tokens."""
    one = torch.ones_like(shift.logp_target)
    return _plain(one, one < 0)._replace(of_target=False)


def importance_sampling(shift: Shift) -> Reweighting:
    """F(x) = x (AReaL)."""
    weight = _ratio(shift)
    return _plain(weight, weight < 0)


class TruncatedIS(NamedTuple):
    """F(x) = min(x, cap) (Flash-RL, Llama-RL)."""

    cap: float = 2.0

    def __call__(self, shift: Shift) -> Reweighting:
        """Reweight a batch."""
        weight = _ratio(shift)
        return _plain(weight.clamp(max=self.cap), weight > self.cap)


class IcePop(NamedTuple):
    """F(x) = x within [low, high], else 0."""

    low: float = 0.5
    high: float = 5.0

    def __call__(self, shift: Shift) -> Reweighting:
        """Reweight a batch."""
        weight = _ratio(shift)
        outside = (weight < self.low) | (weight > self.high)
        return _plain(weight.masked_fill(outside, 0.0), outside)


class OBRS(NamedTuple):
    """Rejection by OBRS, then the weight p / q~, at most c1 (Eq. 5 and the batch-wide bias correction).

    Attributes:
        lam: The budget.
        c1: Truncation of the weight.
        mask: "sample", each token kept or not by chance; "expected", its loss times a(x), the mean over that chance;
            "none", all kept (the paper's algorithm box, read literally).
        acceptance: When given, `lam` is solved for in every batch so that this share is kept.
        bias_correction: Scale Z_approx by kappa, so that its mean is the observed acceptance.
    """

    lam: float = 1.0
    c1: float = 3.0
    mask: MaskMode = "sample"
    acceptance: float | None = None
    bias_correction: bool = True

    def __call__(self, shift: Shift) -> Reweighting:
        """Reweight a batch."""
        p, q, valid = shift.logp_target, shift.logp_actor, shift.valid
        lam: float | Tensor = self.lam
        if self.acceptance is not None and bool(valid.any()):
            lam = solve_batch_lambda(p, q, valid, self.acceptance).to(p.dtype)
        accept = obrs_accept_prob(p, q, lam)
        if self.mask == "none":
            keep = torch.ones_like(accept)
        elif self.mask == "expected":
            keep = accept
        else:
            assert shift.uniform is not None
            keep = (shift.uniform < accept).to(accept.dtype)
        # Without top-k every state has the same Z, which kappa then sets to the acceptance.
        z = torch.ones_like(accept)
        if shift.z is not None:
            z = shift.z.to(accept.dtype)
        elif shift.topk is not None:
            z = obrs_topk_normalizer(shift.topk, lam)
        kept = accept if self.mask == "none" else keep  # "none" keeps all, but Z is still the mean of a(x)
        on = valid.to(accept.dtype)
        z = torch.where(valid, z, torch.zeros_like(z))  # padding may hold anything
        sums = shift.pool(torch.stack([(kept * on).sum(), on.sum(), z.sum()]).double())
        kept_share = (sums[0] / sums[1].clamp(min=1)).item()
        kappa = 1.0
        if self.bias_correction and shift.z is None and sums[2] > 0:
            kappa = (sums[0] / sums[2]).item()
            z = (kappa * z).clamp(max=1.0)
        weight = obrs_weight(p, q, z, lam)
        metrics = {"acceptance": kept_share, "kappa": kappa, "budget": float(lam), "z": _mean(z, valid)}
        return Reweighting(keep, weight.clamp(max=self.c1), weight > self.c1, metrics)


def corrections(lam: float, c1: float, mask_mode: MaskMode, acceptance: float | None) -> dict[str, Correction]:
    """The corrections by the names that `jackpot_loss` takes."""
    return {
        "jackpot": OBRS(lam, c1, mask_mode, acceptance),
        "tis": TruncatedIS(),
        "is": importance_sampling,
        "icepop": IcePop(),
        "none": no_correction,
    }


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "on_policy": {"correction": "none", "clip_eps": 0.2},
    "off_policy": {"correction": "none", "clip_eps": 0.2},
    "no_clip": {"correction": "none", "clip_eps": None},
    "is": {"correction": "is", "clip_eps": 0.2},
    "tis": {"correction": "tis", "clip_eps": 0.2},
    "icepop": {"correction": "icepop", "clip_eps": 0.2},
    "jackpot": {"correction": "jackpot", "clip_eps": None},
}
"""The methods that the paper compares, as arguments of `jackpot_loss`; "on_policy" needs fresh samples besides."""


def _alone(sums: Tensor) -> Tensor:
    return sums


def _choice(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: allowed are {', '.join(map(repr, allowed))}")


def jackpot_loss(
    logp_new: Tensor,
    logp_ref: Tensor,
    logp_actor: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    topk: TopK | None = None,
    z: Tensor | None = None,
    lam: float = 1.0,
    target: Target = "new",
    clip_eps: float | None = 0.2,
    c1: float = 3.0,
    c2: float = 3.0,
    correction: str | Correction = "jackpot",
    mask_mode: MaskMode = "sample",
    acceptance: float | None = None,
    normalise: Normalise = "tokens",
    generator: torch.Generator | None = None,
    uniform: Tensor | None = None,
    pool: Pool = _alone,
) -> LossOutput:
    """Policy-gradient loss on tokens that another distribution has drawn.

    Args:
        logp_new: log p_new of the drawn tokens, with gradient, of shape (batch, tokens).
        logp_ref: log p_ref, of the policy when the batch was collected (PPO's "old"), of shape (batch, tokens).
        logp_actor: log q, of the actor that drew them, after temperature and filters, of shape (batch, tokens).
        advantages: A, of shape (batch,), (batch, 1) or (batch, tokens).
        mask: 1 at tokens that count, 0 at padding, of shape (batch, tokens).
        topk: Likeliest tokens of target and actor with both probabilities, of shape (batch, tokens, 2k); for the
            normaliser Z. Without it all states share one Z, the observed acceptance.
        z: The exact normaliser, of shape (batch, tokens), in place of `topk`; then kappa is 1.
        lam: The budget of OBRS.
        target: p_target, which rejection moves the samples to: "new" (for large shifts) or "ref". With "new" the factor
            min(p_ref / p_new, c2) turns it back into p_ref, which the ratio r expects. It holds for "is", "tis" and
            "icepop" too: with "ref" they correct p_ref / q, as in their papers. "none" moves nothing, and nothing is
            turned back.
        clip_eps: eps of the ratio's clip; ``None`` for no clip.
        c1: Truncation of the OBRS weight.
        c2: Truncation of p_ref / p_new.
        correction: "jackpot", "tis" (cap 2), "is", "icepop" (0.5 to 5), "none", or a `Correction` of yours.
        mask_mode: How OBRS rejects: "sample", "expected" or "none" (see `OBRS`).
        acceptance: Share of tokens that OBRS keeps, for which `lam` is solved in every batch.
        normalise: Divide the sum by the tokens that count ("tokens") or by those kept ("accepted").
        generator: Source of the rejection's random numbers.
        uniform: The random numbers themselves, of shape (batch, tokens), in place of `generator`: tied to the tokens,
            so that gradient accumulation and recomputation agree.
        pool: Adds to a tensor of sums those of other micro-batches and processes; kappa is one for a batch.

    Returns:
        Loss, metrics, loss of each token, weights, in float32 where the inputs have 16 bits. A batch in which
        nothing is kept has loss 0 and a warning.

    Raises:
        ValueError: Shapes that do not fit, or an argument outside of what is allowed.
    """
    shape = logp_new.shape
    for name, value in (("logp_ref", logp_ref), ("logp_actor", logp_actor), ("mask", mask), ("uniform", uniform)):
        if value is not None and value.shape != shape:
            raise ValueError(f"{name} is of shape {tuple(value.shape)}: logp_new has {tuple(shape)}")
    if advantages.ndim == 1:
        advantages = advantages.unsqueeze(-1)
    if advantages.shape not in ((shape[0], 1), shape):
        raise ValueError(f"advantages is of shape {tuple(advantages.shape)}: allowed are (batch, 1) and {tuple(shape)}")
    _choice("target", target, ("new", "ref"))
    _choice("mask_mode", mask_mode, ("sample", "expected", "none"))
    _choice("normalise", normalise, ("tokens", "accepted"))
    for name, value in (("c1", c1), ("c2", c2), ("clip_eps", clip_eps)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}: allowed is any number above 0")
    if isinstance(correction, str):
        named = corrections(lam, c1, mask_mode, acceptance)
        _choice("correction", correction, tuple(named))
        correction = named[correction]
    if z is not None and z.shape != shape:
        raise ValueError(f"z is of shape {tuple(z.shape)}: logp_new has {tuple(shape)}")
    if topk is not None and topk.logp.shape[:-1] != shape:
        raise ValueError(f"topk is of shape {tuple(topk.logp.shape)}: allowed is {tuple(shape)} and one axis more")
    valid = mask > 0
    given = {"logp_new": logp_new, "logp_ref": logp_ref, "logp_actor": logp_actor, "advantages": advantages}
    for name, value in given.items():
        if bool((value.isnan() & valid).any()):
            raise ValueError(f"{name} is NaN at a token that counts: allowed are numbers, and -inf for probability 0")
    if logp_new.dtype in (torch.float16, torch.bfloat16):
        logp_new = logp_new.float()
    logp_ref, logp_actor, advantages = (x.to(logp_new.dtype) for x in (logp_ref, logp_actor, advantages))
    new, ref, actor = (torch.where(valid, x.detach(), 0.0) for x in (logp_new, logp_ref, logp_actor))
    if uniform is None:
        device = generator.device if generator is not None else new.device
        uniform = torch.rand(shape, generator=generator, device=device, dtype=new.dtype).to(new.device)
    with torch.no_grad():
        shift = Shift(new if target == "new" else ref, actor, valid, uniform, topk, z, pool)
        made = correction(shift)
        back = (ref - new).exp()
        rho = made.weight * (back.clamp(max=c2) if target == "new" and made.of_target else 1.0)
        rho = torch.where(valid & (made.keep > 0), made.keep * rho, torch.zeros_like(rho))
        kept = torch.where(valid, made.keep, torch.zeros_like(rho))
    ratio = torch.where(valid, logp_new - ref, 0.0).exp()
    surrogate = ratio * advantages
    if clip_eps is not None:
        surrogate = torch.minimum(surrogate, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)
    # A token that is not kept has no part in the loss, not even 0 * inf.
    per_token = -rho * torch.where(rho != 0, surrogate, torch.zeros_like(surrogate))
    tokens = valid.sum().to(per_token.dtype)
    divisor = tokens if normalise == "tokens" else kept.sum()
    if not bool(kept.sum() > 0):
        if bool(valid.any()):
            warnings.warn("no token of the batch was kept: its loss is 0; lower lam or c1", stacklevel=2)
        per_token = per_token * 0.0
    loss = per_token.sum() / divisor.clamp(min=1e-12 if normalise == "accepted" else 1.0)
    with torch.no_grad():
        metrics = {
            "acceptance": _mean(kept, valid),
            **made.metrics,
            "kl_actor_policy": _mean(actor - new, valid),
            "fraction_truncated": _mean(made.truncated.to(rho.dtype), valid),
            "ess": _effective_share(rho, valid),
            **_quantiles(rho[valid & (kept > 0)]),
        }
        if clip_eps is not None:
            out = (ratio < 1 - clip_eps) & (advantages < 0) | (ratio > 1 + clip_eps) & (advantages > 0)
            metrics["clipped"] = _mean(out.to(rho.dtype), valid)
    return LossOutput(loss, metrics, per_token, rho, kept)


def _mean(x: Tensor, valid: Tensor) -> float:
    found = x[valid]
    found = found[found.isfinite()]
    return found.double().mean().item() if len(found) else 0.0


def _effective_share(weight: Tensor, valid: Tensor) -> float:
    """(sum w)^2 / (n sum w^2): 1 when all weigh alike."""
    w = weight[valid].double()
    return (w.sum() ** 2 / (len(w) * w.square().sum()).clamp(min=1e-300)).item() if len(w) else 0.0


def _quantiles(weight: Tensor) -> dict[str, float]:
    names = {"weight_q05": 0.05, "weight_q50": 0.5, "weight_q95": 0.95, "weight_max": 1.0}
    if not len(weight):
        return dict.fromkeys(names, 0.0)
    ordered = weight.double().sort().values
    return {name: ordered[math.floor(at * (len(ordered) - 1))].item() for name, at in names.items()}


def group_advantages(rewards: Tensor, group: int, eps: float = 1e-4) -> Tensor:
    """Advantages relative to a prompt's other completions: (R - mean) / (std + eps), as in GRPO.

    Args:
        rewards: Rewards of shape (prompts * group,), completions of a prompt side by side.
        group: Completions of a prompt, 2 or more.
        eps: Added to the sample standard deviation.

    Returns:
        Advantages of shape (prompts * group,).

    Raises:
        ValueError: `group` is below 2 or does not divide the rewards.
    """
    if group < 2 or len(rewards) % group:
        raise ValueError(f"group is {group}: allowed is 2 or more that divides the {len(rewards)} rewards")
    grouped = rewards.view(-1, group)
    centred = grouped - grouped.mean(1, keepdim=True)
    return (centred / (grouped.std(1, keepdim=True) + eps)).flatten()
