"""The experiments: memory and operations at the paper's sizes, reach of an update, classical peers, the ablation."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from paperworks.claims.study import ExperimentConfig, Outcome, Trial, experiment
from paperworks.kit.assets import load_motorcycle, load_photographs

from .classical import CLASSICAL, dis_flow
from .encoders import DepthAnything, denormalise
from .files import flow_to_image, read_flo, read_kitti_png
from .indexing import INDEXING, AllPairs
from .losses import sequence_loss
from .metrics import epe, fl_all, motion_boundary, px_outlier, wauc
from .model import RAFT, WAFT, FlowNetwork
from .official import load_official, official_waft
from .synthetic import SyntheticFlowDataset
from .tiling import resized
from .training import fit
from .uncertainty import FlowUncertainty, calibrate
from .updates import ConvGRU, PointwiseUpdate, ResNetUpdate, ViTUpdate
from .vit import VIT_CONFIGS

SMALL: dict[str, Any] = {"side_widths": (16, 24, 32), "side_blocks": 1, "side_channels": 32}
TEST_PHOTOS = ("chelsea", "china", "coffee")  # whole photographs are held out
MIB = 2**20


# --- memory and operations -----------------------------------------------------------------------------------------


class _Kept:
    """Counts the bytes of distinct storages that a forward pass keeps for the backward pass, parameters apart."""

    def __init__(self, model: nn.Module) -> None:
        self._own = {p.untyped_storage()._cdata for p in model.parameters()}
        self._kept: dict[int, torch.UntypedStorage] = {}  # holds them, so that no address is used twice

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._own:
            self._kept[storage._cdata] = storage
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._kept.values())


def kept_bytes(model: FlowNetwork, image1: Tensor, image2: Tensor) -> int:
    """Bytes that a training step holds for its backward pass: activations, without weights, gradients and optimiser.

    Args:
        model: In training mode.
        image1: First pictures (b, 3, h, w).
        image2: Second pictures (b, 3, h, w).
    """
    count = _Kept(model)
    truth = torch.zeros_like(image1[:, :2])
    with torch.autograd.graph.saved_tensors_hooks(count.pack, lambda tensor: tensor):
        out = model(image1, image2, flow_gt=truth)
        assert out.nll is not None  # a truth was given
        sequence_loss(out.nll, truth)
    return count.bytes


def _frame(trial: Trial, low: tuple[int, int], high: tuple[int, int]) -> tuple[int, int]:
    """The size of a video's frames, drawn for the seed: multiples of 16."""
    rng = trial.rng("frame")
    rows, columns = (16 * int(rng.integers(a // 16, b // 16 + 1)) for a, b in zip(low, high, strict=True))
    return rows, columns


class Memory(ExperimentConfig):
    """Sizes of the memory experiment."""

    iters: int = Field(5, gt=0, description="iterations T")
    update: str = Field("vit_micro", description="size of the update")


@experiment(
    "memory",
    config={"smoke": Memory(iters=1), "laptop": Memory()},
    arms={name: INDEXING[name] for name in ("no_warp", "warp", "local_volume", "all_pairs")},
)
def memory(trial: Trial[Memory]) -> Outcome:
    """Count what one training step keeps; nothing is computed, since only sizes matter."""
    side, stride = int(trial.level["side"]), int(trial.level["stride"])
    stretch = 1 + trial.rng("frame").uniform(0, 0.5)
    height, width = side, 16 * round(side * stretch / 16)
    with FakeTensorMode():
        model = WAFT(None, trial.config.update, trial.config.iters, stride, indexing=trial.build, **SMALL)
        pair = torch.zeros(2, 1, 3, height, width)
        kept = kept_bytes(model.train(), *pair)
    return Outcome({"train_mib": kept / MIB, "pixels": float(height * width)})


class Video(ExperimentConfig):
    """Sizes of the experiments at the paper's sizes."""

    backbone: str = Field("vit_s", description="size of Depth-Anything-V2, frozen")
    update: str = Field("vit_s", description="size of the update")
    iters: int = Field(5, gt=0, description="iterations T")
    widths: tuple[int, ...] = Field((64, 128, 256, 512), description="stages of the side network; ResNet-18's")
    low: tuple[int, int] = Field((352, 480), description="smallest frame, pixels")
    high: tuple[int, int] = Field((608, 1280), description="largest frame, pixels")


TINY = Video(backbone="vit_micro", update="vit_micro", iters=2, widths=(16, 24, 32), low=(96, 112), high=(144, 192))


def _body(indexing: str, config: Video, stride: int = 2, iters: int | None = None) -> FlowNetwork:
    """The body DAv2-a1 of the paper's ablations, with another way to read the second frame."""
    return WAFT(
        DepthAnything(config.backbone),
        config.update,
        iters or config.iters,
        stride,
        indexing=indexing,
        side_widths=config.widths,
        detour=14,
        padding="zeros",
    )


def _sea_raft(config: Video, stride: int = 8) -> FlowNetwork:
    return RAFT(
        DepthAnything(config.backbone),
        config.iters,
        stride,
        sea=True,
        side_widths=config.widths,
        padding="zeros",
    )


@experiment(
    "memory_video",
    config={"smoke": TINY.model_copy(update={"iters": 1}), "laptop": Video()},
    arms={
        **{name: partial(_body, name) for name in ("no_warp", "warp", "local_volume", "all_pairs")},
        "sea_raft": _sea_raft,
    },
)
def memory_video(trial: Trial[Video]) -> Outcome:
    """Count what one training step of the paper's sizes keeps, batch 1."""
    rows, columns = _frame(trial, trial.config.low, trial.config.high)
    with FakeTensorMode():
        model = trial.build(trial.config, stride=int(trial.level["stride"]))
        kept = kept_bytes(model.train(), *torch.zeros(2, 1, 3, rows, columns))
    return Outcome({"train_gib": kept / 2**30})


@experiment(
    "macs",
    config={"smoke": TINY, "laptop": Video()},
    arms={
        "one_iteration": partial(_body, "warp", iters=1),
        "warp": partial(_body, "warp"),
        "image_warp": partial(_body, "image_warp"),
        "all_pairs_eighth": partial(_body, "all_pairs", stride=8),
        "sea_raft": _sea_raft,
    },
)
def macs(trial: Trial[Video]) -> Outcome:
    """Count multiplications and additions of matrix products, convolutions and attention of one forward pass."""
    rows, columns = _frame(trial, trial.config.low, trial.config.high)
    with FakeTensorMode(), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = trial.build(trial.config).eval()
        pair = torch.zeros(2, 1, 3, rows, columns)
        model(*pair)
    return Outcome(
        {
            "gmacs": counter.get_total_flops() / 2e9,
            "kmacs_pixel": counter.get_total_flops() / 2e3 / (rows * columns),
        }
    )


# --- reach ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _no_onednn() -> Iterator[None]:
    """Turn oneDNN off: with the wheel of OpenCV 5 in the same process its backward passes corrupt memory."""
    was = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = False
    try:
        yield
    finally:
        torch.backends.mkldnn.enabled = was


@lru_cache(maxsize=1)
def _photographs() -> dict[str, np.ndarray]:
    return load_photographs()


def _dataset(test: bool, motion: str, size: int, seed: int, repeat: bool = False) -> SyntheticFlowDataset:
    photos = {name: photo for name, photo in _photographs().items() if (name in TEST_PHOTOS) == test}
    return SyntheticFlowDataset(photos, motion, size, seed=seed, repeat=repeat)


class Reach(ExperimentConfig):
    """Sizes of the reach experiment."""

    dim: int = Field(32, gt=0, description="channels of the maps")
    pairs: int = Field(2, gt=0, description="pairs of real photographs over which is averaged")
    floor: float = Field(1e-8, gt=0, description="share of the largest gradient that counts as reached")


@experiment(
    "reach",
    config={"smoke": Reach(pairs=1), "laptop": Reach()},
    arms={
        "pointwise": PointwiseUpdate,
        "convgru": ConvGRU,
        "resnet": ResNetUpdate,
        "vit": partial(ViTUpdate, patch=8, config=VIT_CONFIGS["vit_micro"]),
    },
)
def reach(trial: Trial[Reach]) -> Outcome:
    """The gradient of the central flow after one update with respect to the warped features, before any training."""
    c, side = trial.config, int(trial.level["side"])
    with trial.seeded("init"):
        model = WAFT(None, trial.build, iters=1, dim=c.dim, **SMALL).eval()
    found: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> None:
        output.retain_grad()
        found.append(output)

    model.index.register_forward_hook(keep)
    data = _dataset(False, "affine+layers", 2 * side, int(trial.rng("pairs").integers(2**31)))
    shares = []
    for index in range(c.pairs):
        found.clear()
        item = data[index]
        flows: list[Tensor] = []
        hook = model.flow_head.register_forward_hook(lambda _m, _i, out, flows=flows: flows.append(out[:, :2]))
        with _no_onednn():  # forward too, since it chooses what the backward pass calls
            model(*(torch.as_tensor(item[key])[None] for key in ("image1", "image2")))
            hook.remove()
            flows[0][0, :, side // 2, side // 2].sum().backward()
        grad = found[0].grad
        assert grad is not None  # the flow depends on what was read
        size = grad[0].double().square().sum(0).sqrt()
        place = torch.arange(side) - side // 2
        far = torch.maximum(place[:, None].abs(), place.abs()) > side // 4
        shares.append(
            (
                (size > c.floor * size.max()).double().mean().item(),
                (size > 0.01 * size.max()).double().mean().item(),
                (size[far].sum() / size.sum()).item(),
            )
        )
    names = ("reach", "reach_1pc", "far")
    return Outcome(dict(zip(names, np.mean(shares, axis=0).tolist(), strict=True)))


# --- classical peers -----------------------------------------------------------------------------------------------


class Classical(ExperimentConfig):
    """Sizes of the comparison of classical methods."""

    side: int = Field(128, ge=32, description="side of generated pairs, pixels")
    pairs: int = Field(6, gt=0, description="generated pairs")
    crop: tuple[int, int] = Field(
        (240, 352), description="window of the Motorcycle pair at half size (250x370), pixels"
    )


Truth = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _halved(picture: np.ndarray) -> np.ndarray:
    """Means of 2x2 pixels."""
    height, width, channels = picture.shape
    return np.rint(picture.reshape(height // 2, 2, width // 2, 2, channels).mean((1, 3))).astype(np.uint8)


def _motorcycle(trial: Trial, crop: tuple[int, int]) -> Truth:
    """A window of the real pair at half its size: pictures, flow (u = -disparity, v = 0), pixels known and in view."""
    real = load_motorcycle()
    half = (real.left.shape[1] // 2, real.left.shape[0] // 2)
    whole = (slice(2 * half[1]), slice(2 * half[0]))  # so that both axes shrink by exactly 2
    left, right = (_halved(x[whole]) for x in (real.left, real.right))
    flow = np.zeros((half[1], half[0], 2), np.float32)
    # A mean over the same four pixels as the pictures'; unknown where one of them is.
    flow[..., 0] = -real.disparity[whole].reshape(half[1], 2, half[0], 2).mean((1, 3)) / 2
    seen = _seen(-flow[..., 0])
    rng = trial.rng("crop")
    top = int(rng.integers(0, half[1] - crop[0] + 1))
    start = int(rng.integers(0, half[0] - crop[1] + 1))
    rows, columns = slice(top, top + crop[0]), slice(start, start + crop[1])
    left, right, flow = left[rows, columns], right[rows, columns], flow[rows, columns]
    inside = np.arange(crop[1]) + np.nan_to_num(flow[..., 0], nan=-np.inf) >= 0
    return left, right, flow, inside & seen[rows, columns]


def _seen(disparity: np.ndarray) -> np.ndarray:
    """Whether no pixel of the row that is nearer by more than 1 pixel falls on the same place of the second picture."""
    known = np.isfinite(disparity)
    target = np.arange(disparity.shape[1]) - np.rint(np.nan_to_num(disparity, posinf=0, neginf=0)).astype(int)
    inside = known & (target >= 0)
    nearest = np.full(disparity.shape, -np.inf)
    rows = np.broadcast_to(np.arange(len(disparity))[:, None], disparity.shape)
    np.maximum.at(nearest, (rows[inside], target[inside]), disparity[inside])
    seen = np.zeros(disparity.shape, bool)
    seen[inside] = disparity[inside] > nearest[rows[inside], target[inside]] - 1
    return seen


def _pairs(trial: Trial, data: str, config: Classical) -> Iterator[Truth]:
    if data == "motorcycle":
        yield _motorcycle(trial, config.crop)
        return
    motion = {"layers": "affine+smooth+layers"}.get(data, data)
    made = _dataset(True, motion, config.side, int(trial.rng("pairs").integers(2**31)))
    for index in range(config.pairs):
        pair = made.pair(index)
        yield pair.image1, pair.image2, pair.flow, ~pair.occluded


def _scores(flow: np.ndarray, truth: np.ndarray, visible: np.ndarray) -> dict[str, float]:
    mine, real = (torch.as_tensor(x.transpose(2, 0, 1)[None].astype(np.float64)) for x in (flow, truth))
    seen = torch.as_tensor(visible[None])
    return {
        "epe": epe(mine, real),
        "epe_visible": epe(mine, real, seen),
        "px1": px_outlier(mine, real, 1.0, seen),
        "fl": fl_all(mine, real, seen),
        "wauc": wauc(mine, real, seen),
    }


@experiment(
    "classical",
    config={"smoke": Classical(side=64, pairs=1, crop=(96, 160)), "laptop": Classical()},
    arms={name: method for name, method in CLASSICAL.items()},
)
def classical(trial: Trial[Classical]) -> Outcome:
    """Errors of a method that is not trained, on the real pair and on generated ones."""
    scores: list[dict[str, float]] = []
    figures: dict[str, str] = {}
    for first, second, truth, visible in _pairs(trial, str(trial.level["data"]), trial.config):
        flow = trial.build(first, second)
        scores.append(_scores(flow, truth, visible))
        if not figures and trial.seed == 0 and trial.level["data"] == "motorcycle":
            largest = float(np.nanmax(np.abs(truth)))
            figures = {"flow.svg": _colours([flow_to_image(x, largest) for x in (truth, flow)])}
    return Outcome({name: float(np.mean([s[name] for s in scores])) for name in scores[0]}, figures=figures)


def _colours(pictures: list[np.ndarray]) -> str:
    """Colour-wheel pictures (truth, estimate) side by side as SVG, at half their size, in 48 colours."""
    import base64
    import io

    from PIL import Image

    joined = np.concatenate([x[::2, ::2] for x in pictures], axis=1)
    data = io.BytesIO()
    Image.fromarray(joined).quantize(48).save(data, "png", optimize=True)
    height, width = joined.shape[:2]
    code = base64.b64encode(data.getvalue()).decode()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<image width="{width}" height="{height}" href="data:image/png;base64,{code}"/></svg>'
    )


# --- the ablation --------------------------------------------------------------------------------------------------


class FrozenLite(nn.Module):
    """EfficientNet-Lite0 with its ImageNet weights as WAFT's backbone: three stages, resized to half resolution.

    Args:
        network: From `paperworks.kit.nets.efficientnet_lite0`.
    """

    out_channels = 16 + 24 + 40
    stride = 2
    multiple = 32

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Encode pictures.

        Args:
            x: Normalised pictures (b, 3, h, w), h and w multiples of 32.
        """
        half = (x.shape[2] // 2, x.shape[3] // 2)
        maps = self.network.stages(denormalise(x))[:3]  # type: ignore[operator]
        return torch.cat([F.interpolate(m, size=half, mode="bilinear", align_corners=True) for m in maps], dim=1)


class Ablation(ExperimentConfig):
    """Sizes of the ablation: one training and one learning rate for all arms."""

    frozen: bool = Field(True, description="whether EfficientNet-Lite0 is the frozen backbone; else none")
    update: str = Field("vit_micro", description="size of the transformer")
    widths: tuple[int, ...] = Field((16, 24, 32), description="stages of the side network")
    side: int = Field(96, ge=32, description="side of a pair, pixels")
    batch: int = Field(16, gt=0, description="pairs in a step")
    steps: int = Field(20_000, gt=0, description="optimisation steps")
    iters: int = Field(3, gt=0, description="iterations T in training and test")
    rate: float = Field(1e-3, gt=0, description="largest learning rate")
    test: int = Field(200, gt=0, description="test pairs")
    held: int = Field(50, gt=0, description="pairs from which the uncertainty is calibrated")
    perturb: float = Field(3.0, ge=0, description="deviation of the perturbed start, pixels")
    motion: str = Field("affine+smooth+layers", description="motion of the pairs")


def _waft(backbone: nn.Module | None, config: Ablation, **options) -> FlowNetwork:
    sizes = {**SMALL, "side_widths": config.widths}
    dim = VIT_CONFIGS[config.update].features
    return WAFT(backbone, **{"update": config.update, "iters": config.iters, "dim": dim, **sizes, **options})


def _raft(backbone: nn.Module | None, config: Ablation, sea: bool) -> FlowNetwork:
    sizes = {**SMALL, "side_widths": config.widths}
    return RAFT(backbone, config.iters, 8, sea=sea, dim=32, hidden=64, levels=3, **sizes)


def _eighth_volume(dim: int) -> nn.Module:
    return AllPairs(dim, levels=3)  # 96 pixels leave 12, which is three levels


@experiment(
    "ablation",
    config={
        "smoke": Ablation(frozen=False, side=64, batch=2, steps=2, iters=2, test=2, held=1),
        "overnight": Ablation(steps=4_000, batch=4, test=100),
        "paper": Ablation(),
    },
    arms={
        "full": _waft,
        "at_eighth": partial(_waft, index_stride=8),
        "cost_volume_eighth": partial(_waft, index_stride=8, indexing=_eighth_volume),
        "raft": partial(_raft, sea=False),
        "sea_raft": partial(_raft, sea=True),
        "convgru": partial(_waft, update="convgru"),
        "resnet": partial(_waft, update="resnet"),
        "no_warp": partial(_waft, indexing="no_warp"),
        "one_iteration": partial(_waft, iters=1),
        "image_warp": partial(_waft, indexing="image_warp"),
        "context": partial(_waft, context=True),
    },
)
def ablation(trial: Trial[Ablation]) -> Outcome:
    """Train on generated pairs, test on pairs from other photographs and on the real Motorcycle pair."""
    c = trial.config
    backbone = None
    if c.frozen:
        from paperworks.kit.nets import efficientnet_lite0

        backbone = FrozenLite(efficientnet_lite0())
    with trial.seeded("init"):
        model = trial.build(backbone, c).to(trial.device)
    train, test, again = (int(x) for x in trial.rng("pairs").integers(2**31, size=3))

    def watch(step: int, loss: float) -> None:
        trial.progress(step, c.steps)
        if step % max(c.steps // 64, 1) == 0:
            trial.curve("loss", step, loss)

    data = _dataset(False, c.motion, c.side, train)
    data.length = c.steps * c.batch  # every pair is seen once
    with _no_onednn():
        fit(model, data.batches(c.batch, c.steps), c.steps, c.rate, watch=watch)
    model.eval()
    made = _dataset(True, c.motion, c.side, test)
    pairs = [made[i] for i in range(c.test)]
    flow, truth, info = _test(model, pairs, trial)
    error = torch.linalg.vector_norm(flow - truth, dim=1)
    length = torch.linalg.vector_norm(truth, dim=1)
    visible = torch.stack([torch.as_tensor(p["occluded"]) == 0 for p in pairs])
    edge = motion_boundary(truth)
    start = truth + c.perturb * torch.as_tensor(trial.rng("start").normal(size=(c.test, 2, 1, 1)), dtype=torch.float32)
    repeated = [_dataset(True, "translation+layers", c.side, again, repeat=True)[i] for i in range(max(c.test // 4, 1))]
    flow_repeat, truth_repeat, _ = _test(model, repeated, trial)
    held = [made[c.test + i] for i in range(c.held)]
    flow_held, truth_held, info_held = _test(model, held, trial)
    factor = calibrate(info_held, flow_held - truth_held)
    raw, mended = (FlowUncertainty(info, scale=s) for s in (1.0, factor))
    dis = [dis_flow(*(p[k].transpose(1, 2, 0).astype(np.uint8) for k in ("image1", "image2"))) for p in pairs]
    dis_error = epe(torch.as_tensor(np.stack(dis).transpose(0, 3, 1, 2)), truth)

    bins = {
        "epe_visible": visible,
        "epe_boundary": edge,
        "epe_0_5": length < 5,
        "epe_5_10": (length >= 5) & (length < 10),
        "epe_10": length >= 10,
    }
    return Outcome(
        {
            **{name: error[mask].mean().item() for name, mask in bins.items() if mask.any()},
            "gain": 1 - (error.mean() / length.mean()).item(),
            "epe": error.mean().item(),
            "px1": px_outlier(flow, truth),
            "epe_perturbed": epe(_test(model, pairs, trial, start)[0], truth),
            "epe_repeat": epe(flow_repeat, truth_repeat),
            "epe_real": _real_error(model, trial),
            "dis_ratio": error.mean().item() / dis_error,
            "calibration": raw.calibration_error(flow - truth),
            "calibration_mended": mended.calibration_error(flow - truth),
        }
    )


@torch.no_grad()
def _test(model: FlowNetwork, pairs: list[dict], trial: Trial, start: Tensor | None = None) -> tuple[Tensor, ...]:
    """Flow, truth (n, 2, h, w) and mixture (n, 4, h, w) of pairs, eight at a time."""
    flows, infos = [], []
    for i in range(0, len(pairs), 8):
        batch = [torch.as_tensor(np.stack([p[k] for p in pairs[i : i + 8]])) for k in ("image1", "image2")]
        init = None if start is None else start[i : i + 8].to(trial.device)
        out = model(*(x.to(trial.device) for x in batch), flow_init=init)
        flows.append(out.flows[-1].cpu())
        infos.append(out.info[-1].cpu())
    return torch.cat(flows), torch.as_tensor(np.stack([p["flow"] for p in pairs])), torch.cat(infos)


def _real_error(model: FlowNetwork, trial: Trial) -> float:
    left, right, truth, visible = _motorcycle(trial, (96, 160))
    pair = (torch.as_tensor(x.transpose(2, 0, 1)[None].astype(np.float32)).to(trial.device) for x in (left, right))
    flow = model.predict(*pair).cpu()
    return epe(flow, torch.as_tensor(truth.transpose(2, 0, 1)[None]), torch.as_tensor(visible[None]))


# --- the paper's own benchmarks ------------------------------------------------------------------------------------


class Benchmark(ExperimentConfig):
    """Where the benchmarks and the authors' weights lie; `--set` gives the folders."""

    spring: str = Field("", description="folder of Spring: train/<sequence>/frame_left and flow_FW_left")
    sintel: str = Field("", description="folder of Sintel: training/clean/<sequence> and training/flow/<sequence>")
    kitti: str = Field("", description="folder of KITTI 2015: training/image_2 and training/flow_occ")
    weights: str = Field("", description="the authors' checkpoint, a state dictionary")
    limit: int = Field(0, ge=0, description="pairs that are read, spread over the set; 0 for all")


def _authors(config: Benchmark) -> FlowNetwork:
    if not Path(config.weights).is_file():
        raise FileNotFoundError(f"weights={config.weights!r}; give the authors' checkpoint by --set weights=FILE")
    state = torch.load(config.weights, map_location="cpu", weights_only=True)
    model = official_waft()
    load_official(model, state.get("model", state))
    return model


def _read_picture(path: Path) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as picture:
        return np.array(picture.convert("RGB"))


def _read_flo5(path: Path) -> np.ndarray:
    """Spring's flow at twice the resolution, every second pixel of it."""
    import h5py  # type: ignore[import-not-found]  # only who has Spring needs it: pip install h5py

    with h5py.File(path) as file:
        return np.asarray(file["flow"])[::2, ::2].astype(np.float32)


def _spring(root: Path) -> Iterator[tuple[Path, Path, Path]]:
    for folder in sorted((root / "train").iterdir()):
        frames = sorted((folder / "frame_left").glob("*.png"))
        for (one, two), flow in zip(
            itertools.pairwise(frames), sorted((folder / "flow_FW_left").glob("*.flo5")), strict=True
        ):
            yield one, two, flow


def _sintel(root: Path) -> Iterator[tuple[Path, Path, Path]]:
    for folder in sorted((root / "training/clean").iterdir()):
        frames = sorted(folder.glob("*.png"))
        flows = sorted((root / "training/flow" / folder.name).glob("*.flo"))
        for (one, two), flow in zip(itertools.pairwise(frames), flows, strict=True):
            yield one, two, flow


def _kitti(root: Path) -> Iterator[tuple[Path, Path, Path]]:
    for flow in sorted((root / "training/flow_occ").glob("*_10.png")):
        frames = root / "training/image_2"
        yield frames / flow.name, frames / flow.name.replace("_10", "_11"), flow


READERS: dict[str, tuple[Callable, Callable]] = {
    "spring": (_spring, _read_flo5),
    "sintel": (_sintel, read_flo),
    "kitti": (_kitti, lambda path: read_kitti_png(path)[0]),
}


@experiment("benchmark", config={"paper": Benchmark()}, arms={"waft": _authors})
def benchmark(trial: Trial[Benchmark]) -> Outcome:
    """The authors' weights on a benchmark's training split, pair by pair."""
    c, name = trial.config, str(trial.level["data"])
    root = Path(getattr(c, name))
    if not getattr(c, name) or not root.is_dir():
        raise FileNotFoundError(f"{name}={str(root)!r}; give the folder of the data by --set {name}=FOLDER")
    model = trial.build(c).to(trial.device).eval()
    pairs, read = READERS[name]
    found = list(pairs(root))
    if c.limit:
        found = [found[i] for i in np.linspace(0, len(found) - 1, min(c.limit, len(found))).astype(int)]
    items: dict[str, dict[str, float]] = {"epe": {}, "px1": {}, "fl": {}, "latency_ms": {}}
    for i, (one, two, flow) in enumerate(found):
        trial.progress(i, len(found))
        batch = [
            torch.as_tensor(_read_picture(p).transpose(2, 0, 1)[None].astype(np.float32)).to(trial.device)
            for p in (one, two)
        ]
        truth = torch.as_tensor(read(flow).transpose(2, 0, 1)[None])

        def timed(one: Tensor, two: Tensor, key: str = str(i)) -> Tensor:
            if not items["latency_ms"]:
                model.predict(one, two).cpu()  # the first call also chooses kernels and fills caches
            begun = time.perf_counter()
            flow = model.predict(one, two).cpu()
            items["latency_ms"][key] = 1000 * (time.perf_counter() - begun)
            return flow

        estimate = resized(timed, *batch, scale=-1.0 if name == "spring" else 0.0).cpu()  # type: ignore[misc]  # Spring at 540p
        items["epe"][str(i)] = epe(estimate, truth)
        items["px1"][str(i)] = px_outlier(estimate, truth)
        items["fl"][str(i)] = fl_all(estimate, truth)
    return Outcome({metric: float(np.mean(list(v.values()))) for metric, v in items.items()}, items=items)
