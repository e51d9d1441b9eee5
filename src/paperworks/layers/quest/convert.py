"""Put QUEST into models that exist: swap `nn.MultiheadAttention`, or register with Hugging Face transformers."""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .attention import FORMS, NORMS, initial_gain, unit
from .module import QuestAttention, project_heads

QUERY_PROJECTIONS = ("q_proj", "query", "q_lin")  # names of the query's linear layer in transformers


def convert_attention(
    model: nn.Module,
    norm: str = "quest",
    rescale_queries: bool = False,
    calibration: Iterable[Any] | None = None,
) -> nn.Module:
    """Change the attention of a model, in place, and return it.

    Every `nn.MultiheadAttention` becomes a `QuestAttention` that holds the same parameters, within
    `nn.TransformerEncoder` and its like too. A transformers model is switched to the attention function "quest" of
    `register_quest`. A model that is itself an `nn.MultiheadAttention` is not changed: take the one returned.

    A trained model does not survive the change of its logits as it is: there is a warning when weights look trained.
    `rescale_queries` softens the change, `distill_attention` repairs it. Hooks of the layers stay. With
    "elliptical_quest" each layer follows the one before it in the module tree.

    Args:
        model: any module tree.
        norm: a key of `paperworks.layers.quest.NORMS`; for transformers models "quest", as the other variants bring
            parameters or have no place to keep their state.
        rescale_queries: multiply the query projection of each head by mean |k| / sqrt(d), so that logits keep their
            size on average. Only with "quest".
        calibration: inputs on which mean |k| is measured: tensors, tuples or mappings, as `model(...)` takes them.

    Raises:
        ValueError: nothing to convert, an unknown norm, or one that the model cannot have.
    """
    if norm not in FORMS:
        raise ValueError(f"norm={norm!r}; allowed are {', '.join(map(repr, NORMS))}")
    hugging_face = hasattr(model, "set_attn_implementation")
    layers = [m for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    if not layers and not hugging_face:
        allowed = "models with nn.MultiheadAttention, and transformers models"
        raise ValueError(f"model={type(model).__name__} has no attention that can be converted; allowed are {allowed}")
    if hugging_face and norm != "quest":
        raise ValueError(f"norm={norm!r} with {type(model).__name__}; allowed for transformers models is 'quest'")
    if rescale_queries:
        if norm != "quest" or calibration is None:
            given = f"norm={norm!r} and calibration={'None' if calibration is None else 'given'}"
            raise ValueError(f"rescale_queries=True with {given}; allowed is norm='quest' with calibration inputs")
        if any(getattr(m, "norm", "none") != "none" for m in layers) or (
            hugging_face and model.config._attn_implementation == "quest"
        ):
            raise ValueError(f"rescale_queries=True with converted {type(model).__name__}; allowed is plain attention")
        _rescale(model, calibration)
    elif looks_trained(model):
        warnings.warn(
            f"the weights of {type(model).__name__} look trained: with norm={norm!r} its outputs change a lot; "
            "use rescale_queries=True with calibration inputs, then distill_attention",
            stacklevel=2,
        )
    if hugging_face:
        register_quest()
        model.set_attn_implementation("quest")
    model = _swap(model, {id(m): _converted(m, norm) for m in layers})
    for before, layer in pairwise(m for m in model.modules() if isinstance(m, QuestAttention)):
        layer.follow(before)
    return model


def register_quest(name: str = "quest") -> None:
    """Register QUEST with transformers, for `AutoModel.from_pretrained(..., attn_implementation="quest")`.

    Keys are normalised after the model has rotated and cached them, so that every cache of transformers works. Masks,
    grouped queries and position biases are those of its "sdpa".

    Args:
        name: the name to register under.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def quest(module, query, key, value, attention_mask, scaling=None, **options):
        # The model's own scaling, 1/sqrt(d) as a rule, gives way to C = 1.
        return sdpa_attention_forward(module, query, unit(key), value, attention_mask, scaling=1.0, **options)

    AttentionInterface.register(name, quest)
    AttentionMaskInterface.register(name, sdpa_mask)


def looks_trained(model: nn.Module) -> bool:
    """Say whether biases of attention or gains of norm layers have left the constants that they start from."""
    watched = []
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention):
            watched += [module.in_proj_bias, module.out_proj.bias]
        elif "Norm" in type(module).__name__:
            watched += list(module.parameters(recurse=False))
    return any(p is not None and p.numel() and bool((p != p.flatten()[0]).any()) for p in watched)


def run(model: nn.Module, batch: Any) -> Tensor:
    """Call a model on a tensor, a tuple or a mapping and return its main output as one tensor."""
    if isinstance(batch, Mapping):
        out = model(**batch)
    else:
        out = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    for name in ("logits", "last_hidden_state"):
        if hasattr(out, name):
            return getattr(out, name)
    return out[0] if isinstance(out, tuple | list) else out


def _converted(old: nn.MultiheadAttention, norm: str) -> QuestAttention:
    """Build the layer around the parameters of the old one, which an optimiser may hold already."""
    new = QuestAttention(
        old.embed_dim,
        old.num_heads,
        old.dropout,
        bias=old.in_proj_bias is not None,
        add_bias_kv=old.bias_k is not None,
        add_zero_attn=old.add_zero_attn,
        kdim=old.kdim,
        vdim=old.vdim,
        batch_first=old.batch_first,
        device="meta",  # nothing is drawn
        norm=norm,
    )
    weight = old.out_proj.weight
    for name, hooks in vars(old).items():
        if "_hook" in name:
            setattr(new, name, hooks)
    for name, p in new.named_parameters(recurse=False):
        kept = old._parameters.get(name)
        if kept is None and "gain" not in name:
            raise ValueError(f"{name} of {type(old).__name__} is parametrised; allowed are plain parameters")
        if kept is None:
            start = torch.full(p.shape, initial_gain(norm, new.head_dim), device=weight.device, dtype=weight.dtype)
            kept = nn.Parameter(start)
        new.register_parameter(name, kept)
    new.out_proj = old.out_proj
    return new.train(old.training)


def _swap(model: nn.Module, new: dict[int, nn.Module]) -> nn.Module:
    if id(model) in new:
        return new[id(model)]
    for module in list(model.modules()):
        for name, child in module.named_children():
            if id(child) in new:
                setattr(module, name, new[id(child)])
        if isinstance(module, nn.TransformerEncoder):
            # It would pack padded batches into nested tensors for the fused layers that are no longer there.
            module.use_nested_tensor = False
    return model


@torch.no_grad()
def _rescale(model: nn.Module, calibration: Iterable[Any]) -> None:
    """Multiply the query projection of every head by the mean of scale * |k| over the calibration inputs."""
    seen: dict[nn.Module, list[Tensor]] = defaultdict(list)  # layer -> mean scale * |k| of each head, a batch an entry

    def read(layer: nn.MultiheadAttention, args: tuple, kwargs: dict) -> None:
        query, key, value = (*args, *(kwargs[n] for n in ("query", "key", "value")[len(args) :]))[:3]
        k = project_heads(layer, *(x.reshape(1, -1, x.shape[-1]) for x in (query, key, value))).k  # (1, h, tokens, d)
        seen[layer].append(layer.head_dim**-0.5 * k.norm(dim=-1).mean(dim=(0, 2)))

    hooks = [
        m.register_forward_pre_hook(read, with_kwargs=True)
        for m in model.modules()
        if isinstance(m, nn.MultiheadAttention)
    ]
    before = None
    if hasattr(model, "set_attn_implementation"):
        before = model.config._attn_implementation
        _register_reader(seen)
        model.set_attn_implementation("quest_calibration")
    training = model.training
    model.eval()
    try:
        for batch in calibration:
            run(model, batch)
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
        if before is not None:
            model.set_attn_implementation(before)
    if not seen:
        raise ValueError("calibration reached no attention layer; allowed are one or more inputs that run the model")
    for layer, sizes in seen.items():
        _multiply_queries(layer, torch.stack(sizes).mean(dim=0))


def _register_reader(seen: dict[nn.Module, list[Tensor]]) -> None:
    """Register an attention function that computes plain attention and notes the keys of each layer."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def read(module, query, key, value, attention_mask, scaling=None, **options):
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        size = scale * key.norm(dim=-1).mean(dim=(0, 2))  # (key heads,)
        seen[module].append(size.repeat_interleave(query.shape[1] // key.shape[1]))
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)

    AttentionInterface.register("quest_calibration", read)
    AttentionMaskInterface.register("quest_calibration", sdpa_mask)


def _multiply_queries(layer: nn.Module, factor: Float[Tensor, " h"]) -> None:
    if isinstance(layer, nn.MultiheadAttention):
        width = layer.embed_dim
        weight = layer.q_proj_weight if layer.in_proj_weight is None else layer.in_proj_weight[:width]
        bias = None if layer.in_proj_bias is None else layer.in_proj_bias[:width]
    else:
        linear = next((getattr(layer, n) for n in QUERY_PROJECTIONS if hasattr(layer, n)), None)
        if not isinstance(linear, nn.Linear) or hasattr(layer, "q_norm"):
            allowed = f"layers with a linear {', '.join(QUERY_PROJECTIONS)} and no norm of queries after it"
            raise ValueError(f"rescale_queries=True with {type(layer).__name__}; allowed are {allowed}")
        weight, bias = linear.weight, linear.bias
    rows = factor.repeat_interleave(len(weight) // len(factor)).to(weight)
    weight.mul_(rows[:, None])
    if bias is not None:
        bias.mul_(rows)
