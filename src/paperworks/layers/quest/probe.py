"""`AttentionProbe`: what the attention of a model does while it trains, and an alarm when logits run away."""

from collections import defaultdict
from types import TracebackType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .attention import attention_logits
from .module import merge_masks, project_heads


class Reading(NamedTuple):
    """Diagnostics of one layer in one forward pass; maxima and means run over batch, heads and tokens.

    Attributes:
        layer: name of the module in the model.
        step: forward passes of the model before this one.
        max_logit: largest |logit| among the pairs that masks leave open.
        mean_query: mean |q|, before any normalisation; likewise below.
        max_query: largest |q|.
        mean_key: mean |k|.
        max_key: largest |k|.
        entropy: mean entropy of a row of A, in nats.
        peaked: share of rows whose top weight exceeds 0.99.
    """

    layer: str
    step: int
    max_logit: float
    mean_query: float
    max_query: float
    mean_key: float
    max_key: float
    entropy: float
    peaked: float


class Alarm(NamedTuple):
    """A layer whose largest |logit| has grown too fast: from `before` at `since` to `now` at `step`."""

    layer: str
    since: int
    step: int
    before: float
    now: float


class AttentionProbe:
    """Read diagnostics from every `nn.MultiheadAttention` and `QuestAttention` of a model while it runs.

    A subclass of your own is read by its method `logits(q, k, v)`, of projected queries (b, h, n, d), keys and values
    (b, h, s, d), which returns what goes into its softmax (b, h, n, s).

    ```
    with AttentionProbe(model, every=10) as probe:
        train(model)
    print(probe)
    probe.alarms()
    ```

    A reading computes the logits of its layer a second time; `every` sets how often. Nothing in the model's results,
    gradients or random numbers changes.

    Args:
        model: holds at least one such layer; layers of transformers models are not among them. A step is one forward
            pass of it.
        every: passes from one reading to the next.

    Attributes:
        readings: every `Reading` so far, in order.
    """

    def __init__(self, model: nn.Module, every: int = 1) -> None:
        layers = [(name or "(model)", m) for name, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)]
        if not layers:
            allowed = "allowed is a model with at least one such layer"
            raise ValueError(f"model={type(model).__name__} has no layer that is an nn.MultiheadAttention; {allowed}")
        for name, layer in layers:
            if not hasattr(layer, "logits") and type(layer).forward is not nn.MultiheadAttention.forward:
                allowed = "allowed is one with a method logits(q, k, v), which says what goes into its softmax"
                raise ValueError(f"layer {name} of model={type(model).__name__} has a forward of its own; {allowed}")
        if every < 1:
            raise ValueError(f"every={every}; allowed are 1, 2, ...")
        self.model, self.every = model, every
        self.readings: list[Reading] = []
        self._layers = layers
        self._handles: list[RemovableHandle] = []
        self._step = -1

    def __enter__(self) -> "AttentionProbe":
        """Start to read."""
        self._handles = [self.model.register_forward_pre_hook(self._count)]
        for name, layer in self._layers:
            hook = self._reader(name)
            self._handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading; what was read stays."""
        for handle in self._handles:
            handle.remove()

    def table(self) -> list[Reading]:
        """Return the last reading of each layer."""
        return list({reading.layer: reading for reading in self.readings}.values())

    def max_logit(self, since: int = 0) -> float:
        """Return the largest |logit| of any layer from step `since` on; 0 without readings."""
        return max((r.max_logit for r in self.readings if r.step >= since), default=0.0)

    def alarms(self, factor: float = 10.0, steps: int = 100) -> list[Alarm]:
        """Return, for each layer, the first growth of its largest |logit| by `factor` within `steps` steps."""
        history = defaultdict(list)
        for reading in self.readings:
            history[reading.layer].append((reading.step, reading.max_logit))
        found = []
        for layer, points in history.items():
            for i, (step, now) in enumerate(points):
                window = [(value, since) for since, value in points[:i] if step - since <= steps]
                before, since = min(window, default=(float("inf"), step))
                if now >= factor * before:
                    found.append(Alarm(layer, since, step, before, now))
                    break
        return found

    def __str__(self) -> str:
        rows = [Reading._fields, *((r.layer, str(r.step), *(f"{x:.4g}" for x in r[2:])) for r in self.table())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)

    def _count(self, *_: object) -> None:
        self._step += 1

    def _reader(self, name: str):
        def read(layer: nn.MultiheadAttention, args: tuple, kwargs: dict) -> None:
            if self._step % self.every == 0:
                with torch.no_grad():
                    self.readings.append(Reading(name, self._step, *_measure(layer, *args, **kwargs)))

        return read


def _measure(
    layer: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[float, ...]:
    """Take the arguments of the layer's own forward."""
    if query.ndim == 2:
        query, key, value = query[None], key[None], value[None]
    elif not layer.batch_first:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    q, k, v = project_heads(layer, query, key, value)
    mask = merge_masks(attn_mask, key_padding_mask, is_causal, q, key.shape[1], k.shape[-2])
    logits = layer.logits(q, k, v) if hasattr(layer, "logits") else attention_logits(q, k, "none")
    if mask is None:
        keep = torch.ones((), dtype=torch.bool, device=q.device)
    else:
        keep = mask if mask.dtype == torch.bool else ~mask.isneginf()
        logits = logits if mask.dtype == torch.bool else logits + mask
    weights = logits.masked_fill(~keep, float("-inf")).softmax(dim=-1).nan_to_num(0.0)
    rows = keep.expand_as(logits).any(dim=-1)  # a row that may attend to nothing says nothing
    size = rows.sum().clamp_min(1)
    q_norm, k_norm = q.norm(dim=-1), k.norm(dim=-1)
    return (
        float(logits.masked_fill(~keep, 0.0).abs().max()),
        float(q_norm.mean()),
        float(q_norm.max()),
        float(k_norm.mean()),
        float(k_norm.max()),
        float(torch.special.entr(weights).sum(dim=-1).sum() / size),
        float((weights.amax(dim=-1) > 0.99).sum() / size),
    )
