"""WAFT, and RAFT-style peers on the same trunk: encoder, padding, loop, heads and upsampling are shared."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .encoders import SideNetwork, least_multiple, normalise
from .indexing import INDEXING, AllPairs
from .losses import absolute_error, mixture_laplace_nll, mixture_parameters, unknown_as_nan
from .tiling import resized, tiled
from .updates import UPDATES, ConvGRU, ResNetUpdate, ViTUpdate
from .upsample import convex_upsample
from .vit import VIT_CONFIGS, ViTConfig
from .warp import backward_warp

Images = Float[Tensor, " b 3 h w"]
Flow = Float[Tensor, " b 2 h w"]
Map = Float[Tensor, " b d h2 w2"]


class FlowOutput(NamedTuple):
    """What a forward pass gives, at the size of the pictures.

    Attributes:
        flows: The flow after each iteration (b, 2, h, w), pixels.
        info: Mixture logits and raw log-scales of each iteration (b, 4, h, w); empty without a mixture.
        nll: With a truth, the loss of each iteration (b, 2, h, w), for `sequence_loss`.
    """

    flows: list[Tensor]
    info: list[Tensor]
    nll: list[Tensor] | None = None


def _conv_head(dim: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(dim, 2 * dim, 3, padding=1), nn.ReLU(), nn.Conv2d(2 * dim, out, 1))


class FlowNetwork(nn.Module):
    """The trunk: frozen backbone, side network, padding, recurrent loop, convex upsampling.

    A subclass gives `prepare(first, second, image1, view)`, a state with the hidden map and the first flow, and
    `update(state, net, flow)`, the next hidden map, flow change with mixture channels, and upsampling logits.

    Args:
        dim: Channels of the maps.
        backbone: Frozen encoder, see `Encoder`, or ``None``.
        iters: Iterations T.
        index_stride: 2, 4 or 8.
        mixture: Whether the head gives a mixture of Laplacians.
        side_widths: Channels of the side network's stages.
        side_blocks: Blocks in a stage.
        side_channels: Channels that the side network gives.
        padding: "replicate" or "zeros".
        adaptation: "a1" or "a2", see `WAFT`.
        var_min: Smallest log-scale of component 2 of the mixture.
        var_max: Largest log-scale of component 1.
        mask_scale: Factor on the upsampling logits.
    """

    def __init__(
        self,
        dim: int,
        backbone: nn.Module | None,
        iters: int,
        index_stride: int,
        mixture: bool,
        side_widths: tuple[int, ...],
        side_blocks: int,
        side_channels: int,
        padding: str,
        adaptation: str,
        var_min: float,
        var_max: float,
        mask_scale: float,
    ) -> None:
        super().__init__()
        if index_stride not in (2, 4, 8):
            raise ValueError(f"index_stride={index_stride}; allowed are 2, 4, 8")
        if iters < 1:
            raise ValueError(f"iters={iters}; at least 1 is needed")
        if padding not in ("replicate", "zeros"):
            raise ValueError(f"padding={padding!r}; allowed are 'replicate' and 'zeros'")
        if adaptation not in ("a1", "a2"):
            raise ValueError(f"adaptation={adaptation!r}; allowed are 'a1' and 'a2'")
        mixture_parameters(torch.zeros(1, 4, 1, 1), var_min, var_max)  # bad bounds are told now
        self.dim, self.iters, self.index_stride, self.mixture = dim, iters, index_stride, mixture
        self.padding, self.var_min, self.var_max, self.mask_scale = padding, var_min, var_max, mask_scale
        self.backbone = backbone
        frozen = 0
        if backbone is not None:
            for name in ("out_channels", "stride"):
                if not hasattr(backbone, name):
                    raise TypeError(
                        f"backbone {type(backbone).__name__} has no {name!r}; an encoder has out_channels, stride"
                    )
            backbone.requires_grad_(False).eval()
            if adaptation == "a2" and hasattr(backbone, "head"):
                backbone.head.requires_grad_(True)
            frozen = backbone.out_channels
        widths = side_widths[:-1] if adaptation == "a2" else side_widths
        self.side = SideNetwork(frozen + 3, side_channels, widths, side_blocks)
        own = 1 if backbone is None else getattr(backbone, "multiple", backbone.stride)
        self.multiple = least_multiple(own, self.side.multiple, 16)
        self.project = nn.Conv2d(frozen + side_channels, dim, 1)

    def train(self, mode: bool = True) -> "FlowNetwork":
        """Set training mode; what is frozen stays in evaluation mode, for its BatchNorm statistics are frozen too.

        Args:
            mode: Whether to train.
        """
        super().train(mode)
        if self.backbone is not None:
            self.backbone.eval()
        return self

    def trainable(self) -> list[nn.Parameter]:
        """The parameters that are not frozen."""
        return [p for p in self.parameters() if p.requires_grad]

    def encode(self, images: Images) -> Map:
        """Encode pictures to a map at the index stride.

        Args:
            images: Normalised and padded pictures (b, 3, h, w).

        Returns:
            Map (b, dim, h / index_stride, w / index_stride).
        """
        half = (images.shape[2] // 2, images.shape[3] // 2)
        if self.backbone is None:
            x = self.side(images)
        else:
            grown = any(p.requires_grad for p in self.backbone.parameters())
            with torch.set_grad_enabled(torch.is_grad_enabled() and (grown or images.requires_grad)):
                known = self.backbone(images)

            def to(size: tuple[int, int]) -> Tensor:
                return F.interpolate(known, size=size, mode="bilinear", align_corners=True)

            full = known if known.shape[2:] == images.shape[2:] else to((images.shape[2], images.shape[3]))
            x = torch.cat([self.side(torch.cat([full, images], dim=1)), to(half)], dim=1)
        x = self.project(x)
        return x if self.index_stride == 2 else F.avg_pool2d(x, self.index_stride // 2)

    def margins(self, height: int, width: int) -> tuple[int, int, int, int]:
        """How much is added left, right, above and below pictures of this size, in pixels.

        "zeros" follows the authors' code, which always leaves a margin: to the next multiple of size + 8, exclusive.

        Args:
            height: Rows.
            width: Columns.
        """
        if min(height, width) < 16:
            raise ValueError(f"images are {height}x{width}; at least 16 rows and 16 columns are needed")
        extra = []
        for size in (height, width):
            m = self.multiple
            whole = ((size + 8) // m + 1) * m if self.padding == "zeros" else -(-size // m) * m
            extra.append(whole - size)
        below, right = extra
        return right // 2, right - right // 2, below // 2, below - below // 2

    def _pad(self, images: Images, margins: tuple[int, int, int, int]) -> Images:
        if self.padding == "zeros":
            return F.pad(images, margins)
        return F.pad(images, margins, mode="replicate")

    def forward(
        self,
        image1: Images,
        image2: Images,
        iters: int | None = None,
        flow_gt: Flow | None = None,
        flow_init: Flow | None = None,
    ) -> FlowOutput:
        """Estimate the motion from the first picture to the second.

        Args:
            image1: First pictures (b, 3, h, w), RGB, 0..255.
            image2: Second pictures, of the same shape (b, 3, h, w).
            iters: Iterations; those of the constructor unless given.
            flow_gt: True flow (b, 2, h, w), pixels, not finite where unknown; then `nll` is filled.
            flow_init: Flow to start from (b, 2, h, w), pixels; zero unless given.

        Raises:
            ValueError: Shapes that do not fit, or pictures that are too small.
        """
        if image1.ndim != 4 or image1.shape[1] != 3 or image1.shape != image2.shape:
            raise ValueError(
                f"image1 {tuple(image1.shape)} and image2 {tuple(image2.shape)} must both be (batch, 3, height, width)"
            )
        iters = self.iters if iters is None else iters
        if iters < 1:
            raise ValueError(f"iters={iters}; at least 1 is needed")
        b, _, height, width = image1.shape
        for name, given in (("flow_gt", flow_gt), ("flow_init", flow_init)):
            if given is not None and given.shape != (b, 2, height, width):
                raise ValueError(f"{name} has shape {tuple(given.shape)}; expected {(b, 2, height, width)}")
        margins = self.margins(height, width)
        one, two = (self._pad(normalise(x), margins) for x in (image1, image2))
        s = self.index_stride

        def view(flow: Tensor) -> Tensor:
            fine = F.interpolate(s * flow, size=two.shape[2:], mode="bilinear", align_corners=True)
            return self.encode(backward_warp(two, fine))

        state, net, flow = self.prepare(self.encode(one), self.encode(two), one, view)
        if flow_init is not None:
            flow = F.avg_pool2d(F.pad(flow_init, margins, mode="replicate"), s) / s
        flows: list[Tensor] = []
        infos: list[Tensor] = []
        top, left = margins[2], margins[0]
        for _ in range(iters):
            flow = flow.detach()  # no gradient through the position that is sampled
            net, change, mask = self.update(state, net, flow)
            flow = flow + change[:, :2]
            up = convex_upsample(flow, mask, s)
            flows.append(up[..., top : top + height, left : left + width])
            if self.mixture:
                info = convex_upsample(change[:, 2:], mask, s, scale=1)
                infos.append(info[..., top : top + height, left : left + width])
        return FlowOutput(flows, infos, None if flow_gt is None else self._losses(flows, infos, flow_gt))

    def _losses(self, flows: list[Tensor], infos: list[Tensor], target: Flow) -> list[Tensor]:
        if not self.mixture:
            return [unknown_as_nan(absolute_error(flow, target), target) for flow in flows]
        pairs = zip(flows, infos, strict=True)
        return [mixture_laplace_nll(flow, info, target, self.var_min, self.var_max) for flow, info in pairs]

    def prepare(self, first: Map, second: Map, image1: Images, view: Callable[[Tensor], Tensor]) -> Any:
        """Return state, hidden map and first flow; see the class.

        Args:
            first: Map of the first frame (b, dim, h2, w2).
            second: Map of the second frame (b, dim, h2, w2).
            image1: First pictures, normalised and padded (b, 3, h, w).
            view: Encodes the second pictures warped by a flow.
        """
        raise NotImplementedError

    def update(self, state: Any, net: Map, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return hidden map, change of flow with mixture channels, and logits of the upsampling; see the class.

        Args:
            state: From `prepare`.
            net: Hidden map (b, d, h2, w2).
            flow: Current flow (b, 2, h2, w2), pixels of this map.
        """
        raise NotImplementedError

    @torch.no_grad()
    def predict(
        self,
        img1: Images,
        img2: Images,
        tile: tuple[int, int] | None = None,
        iters: int | None = None,
        scale: float = 0.0,
    ) -> Flow:
        """Estimate the flow in evaluation mode, in tiles where the pictures are larger than those of training.

        Args:
            img1: First pictures (b, 3, h, w), RGB, 0..255.
            img2: Second pictures (b, 3, h, w).
            tile: Height and width of a tile; smaller pictures are padded to it. The whole picture unless given.
            iters: Iterations.
            scale: Pictures are resized by 2^scale beforehand, the flow back afterwards.

        Returns:
            Flow (b, 2, h, w), pixels.
        """
        was = self.training
        self.eval()
        try:
            return resized(
                lambda a, b: tiled(lambda p, q: self(p, q, iters=iters).flows[-1], a, b, tile), img1, img2, scale
            )
        finally:
            self.train(was)


class WAFT(FlowNetwork):
    """Warping-Alone Field Transforms (Section 3): frozen backbone, side network, warp, ViT update with a DPT head.

    Args:
        backbone: Frozen encoder, see `Encoder`; ``None`` for the side network alone.
        update: A key of `VIT_CONFIGS`, a `ViTConfig`, "convgru", "resnet", "pointwise", or a function of (dim) that
            returns an update, see `updates`.
        iters: Iterations T.
        index_stride: Resolution at which the second frame is read: 2, 4 or 8.
        mixture: Mixture of Laplacians as loss and output; else plain L1.
        indexing: A key of `INDEXING`, or a function of (dim) that returns a module, see `indexing`.
        context: Add a context encoder, a second side network on the first picture.
        dim: Channels of the maps; those of the update's `features` unless given, 64 for updates without.
        side_widths: Channels of the side network's stages; ResNet-18's unless given.
        side_blocks: Blocks in a stage.
        side_channels: Channels that the side network gives.
        padding: "replicate", or "zeros" with the margins of the authors' code.
        adaptation: "a1", all of the backbone is frozen; "a2", its head (if it has one) is trained and the side network
            has one stage less.
        detour: See `DPTHead`; 14 for the authors' weights.
        head_scale: Factor on the first weights of the flow head's last layer; 1 is torch's own.
        var_min: Smallest log-scale of component 2 of the mixture.
        var_max: Largest log-scale of component 1.
    """

    def __init__(
        self,
        backbone: nn.Module | None = None,
        update: str | ViTConfig | Callable[[int], nn.Module] = "vit_s",
        iters: int = 5,
        index_stride: int = 2,
        mixture: bool = True,
        *,
        indexing: str | Callable[[int], nn.Module] = "warp",
        context: bool = False,
        dim: int | None = None,
        side_widths: tuple[int, ...] = (64, 128, 256, 512),
        side_blocks: int = 2,
        side_channels: int = 64,
        padding: str = "replicate",
        adaptation: str = "a1",
        detour: int | None = None,
        head_scale: float = 0.01,
        var_min: float = 0.0,
        var_max: float = 10.0,
    ) -> None:
        config = (
            VIT_CONFIGS.get(update) if isinstance(update, str) else update if isinstance(update, ViTConfig) else None
        )
        if isinstance(update, str) and config is None and update not in UPDATES:
            raise ValueError(
                f"update={update!r}; allowed are {', '.join([*VIT_CONFIGS, *UPDATES])}, a ViTConfig, a function"
            )
        if isinstance(indexing, str) and indexing not in INDEXING:
            raise ValueError(f"indexing={indexing!r}; allowed are {', '.join(INDEXING)}, or a function")
        dim = dim or (config.features if config else 64)
        super().__init__(
            dim,
            backbone,
            iters,
            index_stride,
            mixture,
            side_widths,
            side_blocks,
            side_channels,
            padding,
            adaptation,
            var_min,
            var_max,
            mask_scale=0.25,
        )
        self.index = (INDEXING[indexing] if isinstance(indexing, str) else indexing)(dim)
        if config is not None:
            self.refine = ViTUpdate(dim, 16 // index_stride, config, detour)
        else:
            self.refine = (UPDATES[update] if isinstance(update, str) else update)(dim)  # type: ignore[operator]
        self.hidden = nn.Conv2d(2 * dim, dim, 1)
        self.context = SideNetwork(3, side_channels, side_widths, side_blocks) if context else None
        self.context_project = nn.Conv2d(side_channels, dim, 1) if context else None
        self.mix = nn.Conv2d((3 if context else 2) * dim + self.index.channels + 2, dim, 1)
        self.transform = nn.Conv2d(self.refine.out_channels + dim, dim, 1)
        self.flow_head = _conv_head(dim, 6 if mixture else 2)
        self.mask_head = _conv_head(dim, 9 * index_stride**2)
        with torch.no_grad():
            self.flow_head[-1].weight *= head_scale
            self.flow_head[-1].bias *= head_scale

    def prepare(self, first: Map, second: Map, image1: Images, view: Callable[[Tensor], Tensor]) -> Any:
        """Return state, hidden map and zero flow.

        Args:
            first: Map of the first frame (b, dim, h2, w2).
            second: Map of the second frame (b, dim, h2, w2).
            image1: First pictures, normalised and padded (b, 3, h, w).
            view: Encodes the second pictures warped by a flow.
        """
        fixed = [first]
        if self.context is not None and self.context_project is not None:
            about = self.context_project(self.context(image1))
            fixed.append(about if self.index_stride == 2 else F.avg_pool2d(about, self.index_stride // 2))
        net = self.hidden(torch.cat([first, second], dim=1))
        flow = first.new_zeros(first.shape[0], 2, *first.shape[2:])
        return (torch.cat(fixed, dim=1), self.index.prepare(first, second, view)), net, flow

    def update(self, state: Any, net: Map, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read the second frame, refine, and give hidden map, change and upsampling logits.

        Args:
            state: From `prepare`.
            net: Hidden map (b, dim, h2, w2).
            flow: Current flow (b, 2, h2, w2), pixels of this map.
        """
        fixed, found = state
        x = self.mix(torch.cat([fixed, self.index(found, flow), net, flow], dim=1))
        net = self.transform(torch.cat([self.refine(x, net), net], dim=1))
        return net, self.flow_head(net), self.mask_scale * self.mask_head(net)


class MotionEncoder(nn.Module):
    """RAFT's: the looked-up costs and the flow, each through two convolutions, to 64 channels that end with the flow.

    Args:
        costs: Channels of the costs.
    """

    def __init__(self, costs: int) -> None:
        super().__init__()
        self.cost1, self.cost2 = nn.Conv2d(costs, 96, 1), nn.Conv2d(96, 64, 3, padding=1)
        self.flow1, self.flow2 = nn.Conv2d(2, 64, 7, padding=3), nn.Conv2d(64, 32, 3, padding=1)
        self.join = nn.Conv2d(96, 62, 3, padding=1)

    def forward(self, costs: Tensor, flow: Tensor) -> Tensor:
        """Encode.

        Args:
            costs: Looked-up costs (b, costs, h, w).
            flow: Current flow (b, 2, h, w).
        """
        a = torch.relu(self.cost2(torch.relu(self.cost1(costs))))
        b = torch.relu(self.flow2(torch.relu(self.flow1(flow))))
        return torch.cat([torch.relu(self.join(torch.cat([a, b], dim=1))), flow], dim=1)


class RAFT(FlowNetwork):
    """RAFT's cost volume, motion encoder and ConvGRU on WAFT's encoder; with `sea`, what SEA-RAFT changes.

    SEA-RAFT: a regressed first flow and a ResNet update instead of zeros and ConvGRU. Both use `mixture`.

    Args:
        backbone: Frozen encoder, see `Encoder`; ``None`` for the side network alone.
        iters: Iterations T.
        index_stride: Resolution of the cost volume: 2, 4 or 8.
        mixture: Mixture of Laplacians as loss and output; else plain L1, as in RAFT.
        sea: SEA-RAFT's first flow and update.
        dim: Channels of the features.
        hidden: Channels of the hidden state.
        levels: Levels of the pyramid.
        radius: Radius of the window.
        side_widths: Channels of the side network's stages.
        side_blocks: Blocks in a stage.
        side_channels: Channels that the side network gives.
        padding: "replicate" or "zeros".
        adaptation: "a1" or "a2", see `WAFT`.
        head_scale: Factor on the first weights of the flow head's last layer.
        var_min: Smallest log-scale of component 2 of the mixture.
        var_max: Largest log-scale of component 1.
    """

    def __init__(
        self,
        backbone: nn.Module | None = None,
        iters: int = 5,
        index_stride: int = 8,
        mixture: bool = True,
        *,
        sea: bool = False,
        dim: int = 64,
        hidden: int = 64,
        levels: int = 4,
        radius: int = 4,
        side_widths: tuple[int, ...] = (64, 128, 256, 512),
        side_blocks: int = 2,
        side_channels: int = 64,
        padding: str = "replicate",
        adaptation: str = "a1",
        head_scale: float = 0.01,
        var_min: float = 0.0,
        var_max: float = 10.0,
    ) -> None:
        super().__init__(
            dim,
            backbone,
            iters,
            index_stride,
            mixture,
            side_widths,
            side_blocks,
            side_channels,
            padding,
            adaptation,
            var_min,
            var_max,
            mask_scale=0.25,
        )
        self.index = AllPairs(dim, levels, radius)
        self.motion = MotionEncoder(self.index.channels)
        self.start = nn.Conv2d(2 * dim, 2 * hidden, 1)  # hidden state, and the context that stays
        self.first_flow = _conv_head(2 * dim, 2) if sea else None
        self.squeeze = nn.Conv2d(64 + 2 * hidden, hidden, 1) if sea else None
        self.refine: nn.Module = ResNetUpdate(hidden) if sea else ConvGRU(hidden, 64 + hidden)
        self.flow_head = _conv_head(hidden, 6 if mixture else 2)
        self.mask_head = _conv_head(hidden, 9 * index_stride**2)
        with torch.no_grad():
            for head in (self.flow_head, *([self.first_flow] if self.first_flow is not None else [])):
                head[-1].weight *= head_scale
                head[-1].bias *= head_scale

    def prepare(self, first: Map, second: Map, image1: Images, view: Callable[[Tensor], Tensor]) -> Any:
        """Return pyramid and context, hidden map, and a zero or regressed flow.

        Args:
            first: Map of the first frame (b, dim, h2, w2).
            second: Map of the second frame (b, dim, h2, w2).
            image1: Not used, (b, 3, h, w).
            view: Not used.
        """
        both = torch.cat([first, second], dim=1)
        net, about = self.start(both).chunk(2, dim=1)
        flow = (
            first.new_zeros(first.shape[0], 2, *first.shape[2:]) if self.first_flow is None else self.first_flow(both)
        )
        return (self.index.prepare(first, second), torch.relu(about)), torch.tanh(net), flow

    def update(self, state: Any, net: Map, flow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Look up, encode the motion, update, and give hidden map, change and upsampling logits.

        Args:
            state: From `prepare`.
            net: Hidden map (b, hidden, h2, w2).
            flow: Current flow (b, 2, h2, w2), pixels of this map.
        """
        pyramid, about = state
        x = torch.cat([self.motion(self.index(pyramid, flow), flow), about], dim=1)
        if self.squeeze is not None:
            x = self.squeeze(torch.cat([x, net], dim=1))
        net = self.refine(x, net)
        return net, self.flow_head(net), self.mask_scale * self.mask_head(net)
