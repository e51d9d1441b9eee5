"""Contrastive and entailment losses on images, captions, boxes and phrases."""

import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from .spaces import _Space

MAX_SCALE = 100.0


class PHyCLIPLoss(nn.Module):
    """InfoNCE on negative distances plus entailment cones in every factor, for any of the spaces.

        L_cont = 1/4 [CE(I -> T) + CE(T -> I) + CE(Ibox -> T) + CE(Tbox -> I)]
        L_ent  = 1/2 [cone(T, I; eta) + cone(Tbox, Ibox; eta) + cone(Ibox, I; eta') + cone(Tbox, T; eta')]
        L      = L_cont + entail_weight L_ent

    cone(apex, point; eta) is the mean over batch and factors of max(0, angle - eta half_aperture). Logits are the
    space's similarities times a learned scale of at most 100. Other losses of the family are options: HyCoCLIP is
    `ProductHyperbolic(1, d)`, MERU that with ``boxes=False, eta_inter=1.0``, CLIP `Cosine` (which has no cones).

    In a process group, captions and images of all ranks are the candidates; gradients flow back to their ranks.

    Args:
        space: The space; its parameters are learned with the loss.
        entail_weight: Weight of the entailment.
        eta_inter: Factor on the aperture of a text that entails a picture.
        eta_intra: Factor on the aperture of a part (box, phrase) that entails the whole.
        boxes: Whether boxes and phrases are expected. Where they then are missing, a warning is given once, and the
            terms with them are left out (L_cont is the mean of its two terms, L_ent = cone(T, I), as in MERU).
        radius: r of the cones' apertures.
        temperature: 1 / scale at the start.

    Shape:
        All inputs are (batch, k d), as encoders give them: the loss lifts them.

    Raises:
        ValueError: For batches of different sizes, one of the box inputs without the other, or a wrong width.
    """

    def __init__(
        self,
        space: _Space,
        entail_weight: float = 0.2,
        eta_inter: float = 0.7,
        eta_intra: float = 1.2,
        boxes: bool = True,
        radius: float = 0.1,
        temperature: float = 0.07,
    ) -> None:
        super().__init__()
        for name, value in (("radius", radius), ("temperature", temperature)):
            if not value > 0:
                raise ValueError(f"{name} = {value!r}: a number above 0 is needed")
        if entail_weight < 0:
            raise ValueError(f"entail_weight = {entail_weight!r}: a number of at least 0 is needed")
        self.space = space
        self.entail_weight, self.eta_inter, self.eta_intra = entail_weight, eta_inter, eta_intra
        self.boxes, self.radius = boxes, radius
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)))
        self._warned = False

    @property
    def scale(self) -> Tensor:
        """s, the factor on similarities."""
        return self.log_scale.exp().clamp(max=MAX_SCALE)

    def forward(
        self,
        image: Tensor,
        text: Tensor,
        box_image: Tensor | None = None,
        box_text: Tensor | None = None,
        *,
        output_dict: bool = False,
    ) -> Any:
        """The loss, or with `output_dict` its parts as in open_clip: contrastive_loss, entailment_loss, loss.

        Args:
            image: Features of pictures (batch, k d).
            text: Features of their captions (batch, k d).
            box_image: Features of a box of each picture (batch, k d).
            box_text: Features of the phrases of these boxes (batch, k d).
            output_dict: Return the parts.
        """
        if (box_image is None) != (box_text is None):
            raise ValueError("box_image and box_text belong together: only one of them was given")
        given = {"image": image, "text": text, "box_image": box_image, "box_text": box_text}
        for name, value in given.items():
            if value is not None and len(value) != len(image):
                raise ValueError(f"{name} has {len(value)} rows, image {len(image)}: one batch is needed")
        if self.boxes and box_image is None and not self._warned:
            warnings.warn("no boxes were given: the terms with boxes are left out of the loss", stacklevel=2)
            self._warned = True
        if not self.boxes:
            box_image = box_text = None
        space = self.space
        I, T = space.lift(image, "image"), space.lift(text, "text")  # noqa: E741
        all_I, all_T = _gathered(I), _gathered(T)
        targets = len(I) * _rank() + torch.arange(len(I), device=I.device)

        def contrast(queries: Tensor, candidates: Tensor) -> Tensor:
            return F.cross_entropy(self.scale * space.similarity(queries, candidates), targets)

        def cone(apex: Tensor, point: Tensor, eta: float) -> Tensor:
            return space.entailment(apex, point, eta, self.radius).mean()

        terms, cones = [contrast(I, all_T), contrast(T, all_I)], [cone(T, I, self.eta_inter)]
        if box_image is not None and box_text is not None:
            Ib, Tb = space.lift(box_image, "image"), space.lift(box_text, "text")
            terms += [contrast(Ib, all_T), contrast(Tb, all_I)]
            cones += [cone(Tb, Ib, self.eta_inter), cone(Ib, I, self.eta_intra), cone(Tb, T, self.eta_intra)]
        contrastive = torch.stack(terms).mean()
        entailment = torch.stack(cones).sum() * (0.5 if len(cones) > 1 else 1.0)
        loss = contrastive + self.entail_weight * entailment
        if output_dict:
            return {"contrastive_loss": contrastive, "entailment_loss": entailment, "loss": loss}
        return loss


def _parallel() -> bool:
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _rank() -> int:
    return distributed.get_rank() if _parallel() else 0


def _gathered(x: Tensor) -> Tensor:
    """The points of all ranks, in their order, with gradients."""
    if not _parallel():
        return x
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(x.contiguous()))
