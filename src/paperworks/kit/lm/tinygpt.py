"""A small decoder one can read, which Transformers, PEFT and TRL take for one of their own."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast


class TinyGPTConfig(PreTrainedConfig):
    """Shape of a `TinyGPT`; the defaults give 0.8 M parameters beside the embeddings.

    With `image_size` set, the model takes `pixel_values` of shape (images, channels, image_size, image_size); each
    image fills (image_size / patch_size)² positions that hold `image_token_id`.
    """

    model_type = "tinygpt"

    vocab_size: int = 64
    hidden_size: int = 128
    intermediate_size: int = 344
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int | None = None
    max_position_embeddings: int = 512
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    use_cache: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    image_size: int | None = None
    patch_size: int = 4
    num_channels: int = 3
    image_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        super().__post_init__(**kwargs)
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size is {self.hidden_size}: allowed are multiples of 2 * num_attention_heads "
                f"= {2 * self.num_attention_heads}"
            )
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_key_value_heads}: it has to divide num_attention_heads "
                f"= {self.num_attention_heads}"
            )
        if self.image_size is not None:
            if self.image_size % self.patch_size:
                raise ValueError(f"image_size is {self.image_size}: allowed are multiples of {self.patch_size}")
            if self.image_token_id is None:
                raise ValueError("image_token_id is None: with image_size it has to be the id of the image token")


class RMSNorm(nn.Module):
    """y = w · x / sqrt(mean(x²) + eps) over the last axis."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` of shape (..., size)."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotary(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, each (batch, 1, length, head_dim), of positions (batch, length)."""
    # Made anew in each call: a buffer that is not saved would be lost where weights are loaded onto an empty model.
    exponent = torch.arange(0, head_dim, 2, device=positions.device, dtype=torch.float32) / head_dim
    angle = positions[:, None, :, None].float() / theta**exponent
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + head_dim/2}) by its angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Attention(nn.Module):
    """Grouped-query causal attention with rotary positions."""

    def __init__(self, config: TinyGPTConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.hidden_size // config.num_attention_heads
        narrow = (config.num_key_value_heads or config.num_attention_heads) * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, narrow, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, narrow, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, cache: Cache | None) -> Tensor:
        """Attend from `x` (batch, length, hidden) to itself and to what `cache` holds."""
        q, k, v = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.update(k, v, self.layer)
        # No mask means nothing is padded; then a single query sees all keys and several see the causal triangle.
        causal = mask is None and q.shape[2] > 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """W_down(silu(W_gate x) · W_up x)."""

    def __init__(self, config: TinyGPTConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` (..., hidden) to the same shape."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(GradientCheckpointingLayer):
    """Attention and feed-forward, each behind a norm and beside a residual path."""

    def __init__(self, config: TinyGPTConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, cache: Cache | None = None) -> Tensor:
        """Map `x` (batch, length, hidden) to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), mask, cos, sin, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embeddings, blocks and last norm; its parameter names are those of Llama."""

    def __init__(self, config: TinyGPTConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        if config.image_size is not None:
            size = config.patch_size
            self.patches = nn.Conv2d(config.num_channels, config.hidden_size, size, stride=size)
            self.projector = nn.Linear(config.hidden_size, config.hidden_size)
            self.patch_positions = nn.Embedding((config.image_size // size) ** 2, config.hidden_size)


class TinyGPT(PreTrainedModel, GenerationMixin):
    """Decoder-only language model: RoPE, RMSNorm, SwiGLU, key-value cache, fused attention, optional images."""

    config_class = TinyGPTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["Block"]
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: TinyGPTConfig) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding."""
        return self.model.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.model.embed_tokens = value

    def _insert_images(self, x: Tensor, input_ids: Tensor, pixel_values: Tensor) -> Tensor:
        if self.config.image_size is None:
            raise ValueError("pixel_values are given, but image_size of the configuration is None")
        patches = self.model.patches(pixel_values).flatten(2).transpose(1, 2)
        patches = self.model.projector(patches + self.model.patch_positions.weight).flatten(0, 1)
        slot = input_ids == self.config.image_token_id
        if int(slot.sum()) != len(patches):
            raise ValueError(f"input_ids hold {int(slot.sum())} image tokens: pixel_values fill {len(patches)}")
        return x.masked_scatter(slot[..., None], patches.to(x.dtype))

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Score the next token at each position.

        Args:
            input_ids: Token ids (batch, length); or `inputs_embeds` (batch, length, hidden) in their place.
            attention_mask: 1 for tokens, 0 for padding, (batch, past + length).
            position_ids: Positions (batch, length); by default counted over what `attention_mask` keeps.
            cache: Keys and values of earlier positions; the new ones are added to it.
            inputs_embeds: See `input_ids`.
            pixel_values: Images (images, channels, image_size, image_size), in the order of their slots.
            labels: Token ids (batch, length), -100 where not scored; shifted here.
            use_cache: Return a cache; by default `config.use_cache` outside training.
            logits_to_keep: Score the last so many positions alone (0: all), or those of an index tensor.
            **kwargs: `num_items_in_batch` divides the summed loss; `past_key_values`, the older name of `cache`, is
                taken for it; the rest is not used.

        Returns:
            `logits` (batch, length, vocabulary), `loss` in nats per token where labels are given, `cache`.

        Raises:
            ValueError: Not exactly one of `input_ids` and `inputs_embeds`, or images that do not fit their slots.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        cache = kwargs.pop("past_key_values", None) if cache is None else cache
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if pixel_values is not None:
            if input_ids is None:
                raise ValueError("pixel_values need input_ids, which say where the images stand")
            x = self._insert_images(x, input_ids, pixel_values)
        if use_cache is None:
            use_cache = self.config.use_cache and not self.training
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        length = x.shape[1]
        if position_ids is None:
            if attention_mask is not None and attention_mask.ndim == 2:
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]
            else:
                past = cache.get_seq_length() if cache is not None else 0
                position_ids = torch.arange(past, past + length, device=x.device)[None]
        mask = create_causal_mask(
            config=self.config, inputs_embeds=x, attention_mask=attention_mask, cache=cache, position_ids=position_ids
        )
        head_dim = self.config.hidden_size // self.config.num_attention_heads
        cos, sin = rotary(position_ids, head_dim, self.config.rope_theta, x.dtype)
        for block in self.model.layers:
            x = block(x, mask, cos, sin, cache=cache)
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(self.model.norm(x[:, keep]))
        loss = None
        if labels is not None:
            items = kwargs.get("num_items_in_batch")
            loss = ForCausalLMLoss(logits, labels, self.config.vocab_size, num_items_in_batch=items)
        return CausalLMOutputWithPast(loss=loss, logits=logits, cache=cache if use_cache else None)

    def prepare_inputs_for_generation(
        self, *args: Any, is_first_iteration: bool | None = False, **kwargs: Any
    ) -> dict[str, Any]:
        """As in Transformers; images go in with the prompt alone, for later steps find them in the cache."""
        inputs = super().prepare_inputs_for_generation(*args, is_first_iteration=is_first_iteration, **kwargs)
        if not is_first_iteration and kwargs.get("use_cache", True):
            inputs.pop("pixel_values", None)
        return inputs


AutoConfig.register("tinygpt", TinyGPTConfig, exist_ok=True)
AutoModelForCausalLM.register(TinyGPTConfig, TinyGPT, exist_ok=True)
