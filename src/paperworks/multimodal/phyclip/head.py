"""The space on top of a model that embeds pictures and text."""

from typing import Any

import torch
from torch import Tensor, nn

from .spaces import _Space

METHODS = (("encode_image", "encode_text"), ("get_image_features", "get_text_features"))


class PHyCLIPHead(nn.Module):
    """Bring an open_clip or transformers CLIP model, or two encoders of yours, into a space.

    Args:
        model: A module with ``encode_image`` and ``encode_text`` (open_clip's interface) or ``get_image_features`` and
            ``get_text_features`` (transformers'), each giving (batch, width).
        space: The space.
        image_width: Width of the picture features; a bias-free projection to the space follows, with standard deviation
            width^(-1/2). ``None`` leaves features that are k d wide as they are.
        text_width: The same of text.
        freeze: Train projections and space only, with the model in evaluation mode.

    Raises:
        TypeError: When the model has neither interface.
        ValueError: For widths below 1.
    """

    def __init__(
        self,
        model: nn.Module,
        space: _Space,
        image_width: int | None = None,
        text_width: int | None = None,
        freeze: bool = False,
    ) -> None:
        super().__init__()
        found = [names for names in METHODS if all(callable(getattr(model, name, None)) for name in names)]
        if not found:
            raise TypeError(
                f"model is a {type(model).__name__}: encode_image and encode_text, or get_image_features and "
                "get_text_features, are needed"
            )
        self.model, self.space, self.freeze = model, space, freeze
        self._names = found[0]
        self.image_projection = projection(image_width, space.width, "image_width")
        self.text_projection = projection(text_width, space.width, "text_width")
        if freeze:
            model.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "PHyCLIPHead":
        """As in torch; a frozen model stays in evaluation mode."""
        super().train(mode)
        if self.freeze:
            self.model.eval()
        return self

    def encode_image(self, *args: Any, **kwargs: Any) -> Tensor:
        """Features of pictures (batch, k d), not lifted yet: for the loss, or ``space.lift(..., "image")``."""
        return self.image_projection(self._features(0, *args, **kwargs))  # type: ignore[no-any-return]

    def encode_text(self, *args: Any, **kwargs: Any) -> Tensor:
        """Features of text (batch, k d), not lifted yet."""
        return self.text_projection(self._features(1, *args, **kwargs))  # type: ignore[no-any-return]

    def _features(self, which: int, *args: Any, **kwargs: Any) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            out = getattr(self.model, self._names[which])(*args, **kwargs)
        out = getattr(out, "pooler_output", out)  # transformers 5 wraps its features
        if not isinstance(out, Tensor) or out.dim() != 2:
            raise ValueError(f"{self._names[which]} gave {type(out).__name__}: a tensor (batch, width) is needed")
        return out

    def forward(self, image: Any, text: Any) -> tuple[Tensor, Tensor]:
        """Points of pictures and of text (batch, k, d).

        Args:
            image: What the model's picture encoder takes: a tensor, or a dict of its arguments.
            text: The same of text.
        """
        features = []
        for encode, given in ((self.encode_image, image), (self.encode_text, text)):
            features.append(encode(**given) if hasattr(given, "keys") else encode(given))
        return self.space.lift(features[0], "image"), self.space.lift(features[1], "text")


def projection(width: int | None, to: int, name: str = "width") -> nn.Module:
    """A bias-free linear map of standard deviation width^(-1/2); the identity for ``None``."""
    if width is None:
        return nn.Identity()
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"{name} = {width!r}: a whole number of at least 1 is needed")
    layer = nn.Linear(width, to, bias=False)
    nn.init.normal_(layer.weight, std=width**-0.5)
    return layer
