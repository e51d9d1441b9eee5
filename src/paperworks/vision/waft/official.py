"""Weights in the layout of the authors' checkpoints, of timm's ViT and ResNet, brought to ours."""

import re
from collections.abc import Mapping

from torch import Tensor, nn

from .encoders import DepthAnything, SideNetwork
from .model import WAFT
from .vit import TapViT

# In their checkpoints, yet without effect on the flow: a depth head, a join that has nothing to join, a masking token.
UNUSED = re.compile(r"(\.output_conv2\.|scratch\.refinenet4\.resConfUnit1\.|\.mask_token$)")

_DPT = [
    (r"projects\.", "project."),
    (r"resize_layers\.", "resize."),
    (r"scratch\.output_conv1\.", "out."),
    (r"out_conv\.", "out."),
    (r"resConfUnit1\.", "join."),
    (r"resConfUnit2\.", "refine."),
]
_BLOCK = [(r"\.mlp\.(fc[12])\.", r".\1."), (r"\.ls([12])\.gamma$", r".scale\1")]
_WAFT = [
    (r"^da_feature\.depth_anything\.pretrained\.", "backbone.vit."),
    (r"^da_feature\.depth_anything\.depth_head\.", "backbone.head."),
    (r"^fnet\.ds1\.", "side.stem."),
    (r"^refine_net\.dpt_head\.", "refine.head."),
    (r"^refine_net\.blks\.", "refine.vit.blocks."),
    (r"^refine_net\.", "refine.vit."),
    (r"^fmap_conv\.", "project."),
    (r"^hidden_conv\.", "hidden."),
    (r"^warp_linear\.", "mix."),
    (r"^refine_transform\.", "transform."),
    (r"^upsample_weight\.", "mask_head."),
    (r"patch_embed\.proj\.", "embed."),
    (r"pos_embed$", "positions"),
    (r"cls_token$", "class_token"),
    (r"\.conv\.1\.", ".conv1."),
    (r"\.conv\.3\.", ".conv2."),
    (r"\.skip_conv\.", ".skip."),
]


def our_name(name: str) -> str | None:
    """Translate a name of the authors' checkpoint.

    Args:
        name: Such as "fnet.ds1.conv.1.weight"; "module." before it, of a distributed training, is dropped.

    Returns:
        Ours, or ``None`` for weights that have no effect.
    """
    name = name.removeprefix("module.")
    if UNUSED.search(name):
        return None
    name = re.sub(r"scratch\.layer(\d)_rn\.", lambda m: f"reduce.{int(m[1]) - 1}.", name)
    name = re.sub(r"scratch\.refinenet(\d)\.", lambda m: f"fuse.{int(m[1]) - 1}.", name)
    name = re.sub(r"^fnet\.conv(\d)\.", lambda m: f"side.stages.{int(m[1]) - 1}.", name)
    name = re.sub(r"^fnet\.up_(\d)\.", lambda m: f"side.up.{int(m[1]) - 2}.", name)
    name = re.sub(r"^fnet\.proj_(\d)\.", lambda m: f"side.join.{int(m[1]) - 1}.", name)
    for pattern, ours in [*_WAFT, *_DPT, *_BLOCK]:
        name = re.sub(pattern, ours, name)
    return name


def official_waft(size: str = "vit_s", backbone_size: str = "vit_s") -> WAFT:
    """Build the model of the authors' configurations, DAv2-a1, with random weights.

    Args:
        size: Size of the update.
        backbone_size: Size of Depth-Anything-V2.
    """
    return WAFT(DepthAnything(backbone_size), size, padding="zeros", detour=14, head_scale=1.0)


def load_official(model: WAFT, state: Mapping[str, Tensor]) -> list[str]:
    """Load a checkpoint of the authors (`torch.load(path, weights_only=True)`).

    Args:
        model: Such as `official_waft` builds.
        state: Weights by the authors' names, each of the shape (...) of ours.

    Returns:
        The names that have no effect on the flow and were left out.

    Raises:
        ValueError: Weights are missing, unknown, or of another shape; the first few are named.
    """
    ours: dict[str, Tensor] = {}
    unused = []
    for name, value in state.items():
        target = our_name(name)
        if target is None:
            unused.append(name)
        else:
            ours[target] = value
    _load(model, ours, "the checkpoint")
    return unused


def load_vit_blocks(update: TapViT, state: Mapping[str, Tensor]) -> None:
    """Start the update's blocks from a ViT in timm's layout, such as vit_small_patch16_224.

    Args:
        update: `model.refine.vit`.
        state: timm's weights, shapes (...) as there; only "blocks." is read.
    """
    blocks = {name: value for name, value in state.items() if name.startswith("blocks.")}
    for pattern, ours in _BLOCK:
        blocks = {re.sub(pattern, ours, name): value for name, value in blocks.items()}
    _load(update.blocks, {name.removeprefix("blocks."): value for name, value in blocks.items()}, "the ViT")


def load_resnet_stages(side: SideNetwork, state: Mapping[str, Tensor]) -> None:
    """Start the side network's stages from a ResNet-18, whose layout is the same in timm and torchvision.

    Args:
        side: `model.side`.
        state: Weights, shapes (...) as there; only "layer1." to "layer4." are read.
    """
    stages = {
        f"{int(name[5]) - 1}.{name[7:]}": value
        for name, value in state.items()
        if re.match(r"layer\d\.", name) and int(name[5]) <= len(side.stages)
    }
    _load(side.stages, stages, "the ResNet")


def _load(module: nn.Module, state: Mapping[str, Tensor], what: str) -> None:
    wanted = {name: value.shape for name, value in module.state_dict().items()}
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    unknown = [name for name in state if name not in wanted]
    bent = [
        f"{n} {tuple(v.shape)} for {tuple(wanted[n])}" for n, v in state.items() if n in wanted and v.shape != wanted[n]
    ]
    for problem, names in (("lacks", missing), ("has unknown", unknown), ("has other shapes:", bent)):
        if names:
            rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise ValueError(f"{what} {problem} {', '.join(names[:3])}{rest}; it does not fit this model")
    module.load_state_dict(state, strict=False)
