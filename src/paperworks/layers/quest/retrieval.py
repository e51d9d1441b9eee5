"""Biased retrieval: a toy task with an easy cue that one inflated key can solve, and a model of many runs at once.

A sequence holds N vectors x_i = [x_i^k, x_i^v]: a real part and a one-hot class. One token, at a random place, is the
answer; its class is the label. Distractors have x^k ~ N(0, I); an answer has x^k ~ N(0, Sigma), which always tells it
apart by its spread. With probability p the sample is biased: its answer has x^k ~ N(b, 0.1 I) instead, with one shared
b, which is easier to find.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from .attention import FORMS, attention_logits, initial_gain, quest_attention

HOSTS = ("bare", "embedding", "layernorm", "bias_free")


class Batch(NamedTuple):
    """Sequences and what is known about them."""

    tokens: Float[Tensor, "b n f"]
    label: Int[Tensor, " b"]
    place: Int[Tensor, " b"]  # where the answer stands
    biased: Bool[Tensor, " b"]


class BiasedRetrieval(NamedTuple):
    """The distribution of the task. The paper's sizes are not known to us; the defaults are ours.

    Attributes:
        length: N, tokens in a sequence.
        features: width of the real part x^k.
        classes: width of the one-hot part x^v.
        spread: standard deviation of x^k of an unbiased answer; Sigma = spread^2 I.
        shift: last entry of b; its other entries are 0.
        cue_variance: variance of x^k of a biased answer around b.
    """

    length: int = 8
    features: int = 8
    classes: int = 10
    spread: float = 3.0
    shift: float = 3.0
    cue_variance: float = 0.1

    def sample(self, size: int, generator: torch.Generator, biased_share: float = 0.5) -> Batch:
        """Draw `size` sequences, each biased with probability `biased_share`."""
        real = torch.randn(size, self.length, self.features, generator=generator)
        kind = torch.randint(self.classes, (size, self.length), generator=generator)
        place = torch.randint(self.length, (size,), generator=generator)
        biased = torch.rand(size, generator=generator) < biased_share
        rows = torch.arange(size)
        noise, cue = real[rows, place], torch.zeros(self.features)
        cue[-1] = self.shift
        real[rows, place] = torch.where(biased[:, None], cue + self.cue_variance**0.5 * noise, self.spread * noise)
        return Batch(torch.cat([real, F.one_hot(kind, self.classes)], dim=-1), kind[rows, place], place, biased)


class RunsAttention(Protocol):
    """What `RetrievalModel` asks of an attention: a module that treats each run on its own. `RunAttention` is one.

    Parameters, if it has any, have a leading axis of runs, so that each run can have its own learning rate.
    """

    def __call__(
        self, q: Float[Tensor, "r b h n d"], k: Float[Tensor, "r b h n d"], v: Float[Tensor, "r b h n d"]
    ) -> Float[Tensor, "r b h n d"]:
        """Attend."""

    def logits(self, q: Float[Tensor, "r b h n d"], k: Float[Tensor, "r b h n d"]) -> Float[Tensor, "r b h n n"]:
        """Return what goes into the softmax."""


class RunAttention(nn.Module):
    """`quest_attention` with gains of its own for each run.

    Args:
        runs: independent runs, the leading axis.
        heads: attention heads.
        head_dim: width of a head.
        norm: the variant, a key of `paperworks.layers.quest.NORMS`.
    """

    def __init__(self, runs: int, heads: int, head_dim: int, norm: str = "quest") -> None:
        super().__init__()
        self.norm = norm
        shape = {"qk": (runs, 1, 1, 1, 1), "qk_hs": (runs, 1, heads, 1, 1), "qk_ds": (runs, 1, 1, 1, head_dim)}.get(
            norm
        )
        for name in ("q_gain", "k_gain"):
            learned = shape is not None and name in FORMS[norm].gains
            start = nn.Parameter(torch.full(shape, initial_gain(norm, head_dim))) if learned else None
            self.register_parameter(name, start)

    def forward(
        self, q: Float[Tensor, "r b h n d"], k: Float[Tensor, "r b h n d"], v: Float[Tensor, "r b h n d"]
    ) -> Float[Tensor, "r b h n d"]:
        """Attend within each sequence of each run."""
        return quest_attention(q, k, v, norm=self.norm, q_gain=self.q_gain, k_gain=self.k_gain)

    def logits(self, q: Float[Tensor, "r b h n d"], k: Float[Tensor, "r b h n d"]) -> Float[Tensor, "r b h n n"]:
        """Return what goes into the softmax."""
        return attention_logits(q, k, self.norm, self.q_gain, self.k_gain)


class RetrievalModel(nn.Module):
    """One self-attention layer, the mean over tokens and a linear read-out, for `runs` independent runs at once.

    Every parameter has a leading axis of runs. Weights start Xavier uniform, a draw for each run; biases start at 0.
    There is no residual: the answer can only come through the attention.

    Args:
        task: gives the widths.
        runs: number of independent runs R.
        attention: called as `attention(runs=, heads=, head_dim=)`, returns a `RunsAttention` module.
        generator: draws the initial weights.
        host: what stands before the attention. "bare": q, k, v are affine in the token. "embedding": in a two-layer
            ReLU network of the token. "layernorm": in the same network followed by a plain layer norm. "bias_free": q
            and k are linear in the real part alone.
        width: width of queries, keys and values, all heads together.
        heads: number of heads.
    """

    def __init__(
        self,
        task: BiasedRetrieval,
        runs: int,
        attention: Callable[..., RunsAttention],
        generator: torch.Generator,
        host: str = "bare",
        width: int = 32,
        heads: int = 2,
    ) -> None:
        super().__init__()
        if host not in HOSTS:
            raise ValueError(f"host={host!r}; allowed are {', '.join(map(repr, HOSTS))}")
        if width % heads:
            raise ValueError(f"width={width}; allowed are multiples of heads={heads}")
        self.task, self.runs, self.host, self.heads = task, runs, host, heads

        def weight(rows: int, *columns: int) -> nn.Parameter:
            blocks = []
            for size in columns:
                bound = (6 / (rows + size)) ** 0.5
                blocks.append(bound * (2 * torch.rand(runs, rows, size, generator=generator) - 1))
            return nn.Parameter(torch.cat(blocks, dim=-1))

        def bias(columns: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(runs, 1, columns))

        token = task.features + task.classes
        inner, self.embed = token, None
        if host in ("embedding", "layernorm"):
            inner = width
            parts = weight(token, width), bias(width), weight(width, width), bias(width)
            self.embed = nn.ParameterList(parts)
        if host == "bias_free":
            self.qk = weight(task.features, width, width)
            self.value, self.value_bias = weight(token, width), bias(width)
        else:
            self.qkv, self.qkv_bias = weight(inner, width, width, width), bias(3 * width)
        self.out, self.out_bias = weight(width, task.classes), bias(task.classes)
        self.attention = attention(runs=runs, heads=heads, head_dim=width // heads)

    def project(self, tokens: Float[Tensor, "b n f"]) -> tuple[Float[Tensor, "r b h n d"], ...]:
        """Return q, k, v of every run."""
        b, n, _ = tokens.shape
        x = tokens.flatten(0, 1).expand(self.runs, -1, -1)  # (r, b n, f), without a copy
        if self.embed is not None:
            first, first_bias, second, second_bias = self.embed
            x = torch.baddbmm(second_bias, torch.baddbmm(first_bias, x, first).relu(), second)
        if self.host == "layernorm":
            x = F.layer_norm(x, x.shape[-1:])
        if self.host == "bias_free":
            qk, value = torch.bmm(x[..., : self.task.features], self.qk), torch.baddbmm(self.value_bias, x, self.value)
            flat = torch.cat([qk, value], dim=-1)
        else:
            flat = torch.baddbmm(self.qkv_bias, x, self.qkv)
        return flat.view(self.runs, b, n, 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5).unbind(0)

    def forward(self, tokens: Float[Tensor, "b n f"]) -> Float[Tensor, "r b c"]:
        """Return the class scores that each run gives to the same `tokens`."""
        z = self.attention(*self.project(tokens))  # (r, b, h, n, d)
        return torch.baddbmm(self.out_bias, z.mean(dim=-2).flatten(2), self.out)


@torch.no_grad()
def key_ratio(model: RetrievalModel, batch: Batch) -> Float[Tensor, " r"]:
    """Return mean |k| of the answers over mean |k| of the distractors, for each run, over heads and sequences."""
    size = model.project(batch.tokens)[1].norm(dim=-1).mean(dim=2)  # (r, b, n)
    answer = F.one_hot(batch.place, model.task.length).bool()
    return size[:, answer].mean(dim=1) / size[:, ~answer].mean(dim=1)


class GridAdamW:
    """AdamW on parameters with a leading axis of runs, each run with its own learning rate and weight decay.

    Decay is decoupled and acts on weight matrices only: parameters with three axes whose last two exceed 1.

    Args:
        parameters: each of shape (runs, ...).
        lr: learning rate of each run.
        weight_decay: decay of each run, multiplied by its learning rate.
        betas: decay of the two running means.
        eps: added to the root of the second.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        lr: Float[Tensor, " r"],
        weight_decay: Float[Tensor, " r"],
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.parameters = list(parameters)
        for p in self.parameters:
            if p.shape[:1] != lr.shape:
                raise ValueError(f"a parameter has shape {tuple(p.shape)}; allowed is a leading axis of {len(lr)} runs")
        self.betas, self.eps, self.steps = betas, eps, 0
        self.lr, self.decay = lr, lr * weight_decay
        self.state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter from its gradient, and clear the gradient."""
        self.steps += 1
        fast, slow = self.betas
        rate = self.lr / (1 - fast**self.steps)
        root = (1 - slow**self.steps) ** 0.5
        for p, (mean, square) in zip(self.parameters, self.state, strict=True):
            if p.grad is None:
                continue
            shape = (-1, *[1] * (p.ndim - 1))
            mean.lerp_(p.grad, 1 - fast)
            square.mul_(slow).addcmul_(p.grad, p.grad, value=1 - slow)
            if p.ndim == 3 and min(p.shape[1:]) > 1:
                p.mul_(1 - self.decay.view(shape))
            p.sub_(mean / (square.sqrt() / root).add_(self.eps) * rate.view(shape))
            p.grad = None
