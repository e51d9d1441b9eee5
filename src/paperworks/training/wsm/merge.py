"""The average of checkpoints, one tensor at a time."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from .sources import Checkpoint, Source, copy_companions, open_source, whole_file, write_safetensors
from .weights import Curve, merge_weights

FILES = frozenset({".safetensors", ".pt", ".pth", ".bin", ".ckpt"})
LORA = re.compile(r"(^|\.)lora_(A|B|embedding_A|embedding_B)(\.|$)")
CHECKPOINT = re.compile(r"\d+")


def merge_checkpoints(
    sources: Sequence[Checkpoint],
    weights: npt.ArrayLike | None = None,
    curve: Curve = "linear",
    out: str | Path | None = None,
    *,
    steps: Sequence[float] | None = None,
    dtype: torch.dtype | None = None,
    streaming: bool = True,
    **options: Any,
) -> dict[str, Tensor] | Path:
    """Average checkpoints of one run so that the result is the model after a decay (Theorem 3.1).

    Sums run in float32, or in float64 for tensors that are. Whole numbers and booleans come from the newest checkpoint.
    Statistics of batch normalisation are averaged like weights: run ``torch.optim.swa_utils.update_bn`` afterwards.

    Args:
        sources: Checkpoints, oldest first: state dicts, .safetensors or torch files, Hugging Face folders.
        weights: One a checkpoint, summing to 1; instead of a curve. Weights below 0 need ``allow_negative=True``.
        curve: As in `merge_weights`.
        out: File (.safetensors, or .pt, .pth, .bin, .ckpt for torch's format) or, under any other name, folder to
            write; a folder gets the newest checkpoint's companions and shards. ``None`` returns the state dict.
        steps: Steps of the checkpoints, when they are not equally spaced.
        dtype: Of the result's floating-point tensors; that of the newest checkpoint by default.
        streaming: Read and write one tensor at a time, with room for two tensors (safetensors only; torch's format
            needs the whole result in memory). Off: the result is made in memory first.
        **options: For the curve, and `allow_negative`.

    Returns:
        The state dict, or the path written.

    Raises:
        ValueError: When there is no checkpoint, weights do not fit, or checkpoints differ: the first tensor that
            differs is named. Also for LoRA factors, whose products would have to be averaged, and quantised weights.
        FileNotFoundError: When a path holds no checkpoint.
    """
    if len(sources) == 0:
        raise ValueError("sources is empty: at least one checkpoint is needed")
    _check_dtype(dtype)
    opened = [open_source(source) for source in sources]
    if weights is None:
        c = merge_weights(curve, len(opened) - 1, steps=steps, **options)
    else:
        negative = bool(options.pop("allow_negative", False))
        unused = sorted(options) + ["steps"] * (steps is not None) + ["curve"] * (curve != "linear")
        if unused:
            raise ValueError(f"weights were given: {', '.join(unused)} would not be used")
        c = torch.as_tensor(weights, dtype=torch.float64).numpy()
        if c.shape != (len(opened),) or not abs(float(c.sum()) - 1) < 1e-6:
            raise ValueError(f"weights of shape {c.shape} sum to {c.sum():.6g}: {len(opened)} that sum to 1 are needed")
        if not negative and (c < -1e-12).any():
            j = int(c.argmin())
            raise ValueError(f"weights[{j}] = {c[j]:.4g}: 0 or more is needed (allow_negative=True takes it as it is)")
    last = opened[-1]
    _check(opened)
    merge = _Merge(opened, c.tolist(), dtype)
    if out is None:
        return merge.state_dict()
    out = Path(out)
    if out.suffix in FILES and not out.is_dir():
        out.parent.mkdir(parents=True, exist_ok=True)
        _write(merge, out, merge.kept(), streaming)
        return out
    out.mkdir(parents=True, exist_ok=True)
    folder = next((Path(s) for s in reversed(sources) if not hasattr(s, "keys") and Path(s).is_dir()), None)
    if folder is not None:
        copy_companions(folder, out)
    shards = last.shards()
    files: dict[str, list[str]] = {}
    for key in merge.kept():
        files.setdefault(Path(shards.get(key, "model.safetensors")).with_suffix(".safetensors").name, []).append(key)
    for file, keys in files.items():
        _write(merge, out / file, keys, streaming)
    if len(files) > 1 or shards:
        place = {key: file for file, keys in files.items() for key in keys}
        total = sum(merge.size(key) for key in place)
        index = {"metadata": {"total_size": total}, "weight_map": place}
        with whole_file(out / "model.safetensors.index.json") as temporary:
            temporary.write_text(json.dumps(index, indent=1))
    return out


def _check_dtype(dtype: torch.dtype | None) -> None:
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise ValueError(f"dtype = {dtype!r}: a floating-point type such as torch.bfloat16 is needed")


class _Merge:
    """The merged tensors, made when they are asked for."""

    def __init__(self, opened: Sequence[Source], c: Sequence[float], dtype: torch.dtype | None) -> None:
        self.opened, self.c, self.dtype = opened, c, dtype
        self.names, self.tied = opened[-1].keys(), opened[-1].shared()

    def kept(self) -> list[str]:
        """Names, each tied tensor once: a file holds it once."""
        return [key for key in self.names if key not in self.tied]

    def kind(self, key: str) -> tuple[torch.dtype, torch.Size]:
        dtype, shape = self.opened[-1].kind(key)
        return (self.dtype if self.dtype is not None and dtype.is_floating_point else dtype), shape

    def size(self, key: str) -> int:
        dtype, shape = self.kind(key)
        return shape.numel() * dtype.itemsize

    def tensor(self, key: str) -> Tensor:
        newest = self.opened[-1].read(key)
        if not (newest.is_floating_point() or newest.is_complex()):
            return newest.clone()
        wide = newest.dtype == torch.float64 or newest.is_complex()
        exact = newest.dtype if wide else torch.float32
        total: Tensor | None = None
        for source, weight in zip(self.opened, self.c, strict=True):
            if weight != 0:
                part = source.read(key)
                if total is None:
                    total = part.to(exact, copy=True).mul_(weight)
                else:
                    total.add_(part.to(total.device, exact), alpha=weight)
        assert total is not None
        return total.to(self.kind(key)[0])

    def state_dict(self) -> dict[str, Tensor]:
        merged = {key: self.tensor(key) for key in self.kept()}
        merged |= {key: merged[first] for key, first in self.tied.items()}
        return {key: merged[key] for key in self.names}


def _write(merge: _Merge, path: Path, keys: Sequence[str], streaming: bool) -> None:
    if path.suffix != ".safetensors":
        with whole_file(path) as temporary:
            torch.save(merge.state_dict(), temporary)
        return
    made = {key: merge.tensor(key) for key in keys} if not streaming else {}

    def tensors() -> Iterator[Tensor]:
        for key in keys:
            yield made[key] if made else merge.tensor(key)

    write_safetensors(path, {key: merge.kind(key) for key in keys}, tensors())


def refuse_factors(names: Iterable[str]) -> None:
    """Raise ValueError at the first factor of LoRA among the names of tensors."""
    for name in names:
        if LORA.search(name):
            raise ValueError(
                f"{name!r} is a factor of LoRA: the average of factors is not the average of their products; "
                "merge each adapter into its model first (merge_and_unload)"
            )


def _check(opened: Sequence[Source]) -> None:
    """The first difference between checkpoints, by name."""
    newest = opened[-1]
    keys = newest.keys()
    refuse_factors(keys)
    for source in (newest, *opened[:-1]):
        for key in source.keys():  # noqa: SIM118, not a mapping
            dtype, shape = source.kind(key)
            eight_bits = dtype.is_floating_point and dtype.itemsize == 1  # they stand beside a scale of each block
            if eight_bits or (key.endswith("weight") and not dtype.is_floating_point and len(shape) > 1):
                raise ValueError(
                    f"{key!r} has dtype {dtype}: quantised weights cannot be averaged, dequantise them first"
                )
    for i, source in enumerate(opened[:-1]):
        others = set(source.keys())
        missing = [key for key in keys if key not in others] or sorted(others - set(keys))
        if missing:
            where = "lacks" if missing[0] not in others else "alone has"
            raise ValueError(f"sources[{i}] ({source.name}) {where} {missing[0]!r}: checkpoints of one run are needed")
        for key in keys:
            ours, theirs = tuple(newest.kind(key)[1]), tuple(source.kind(key)[1])
            if ours != theirs:
                raise ValueError(f"{key!r} has shape {theirs} in sources[{i}] ({source.name}), {ours} in the newest")


def checkpoints_in(folder: str | Path) -> tuple[list[Path], list[float]]:
    """The checkpoints of a run, oldest first, by the number in their names, such as checkpoint-500 or step_500.pt.

    What is named merged... is a merge already, such as `WSMCallback` leaves beside the checkpoints, and is left out.

    Args:
        folder: The folder of the run.

    Returns:
        Paths, and their steps.

    Raises:
        FileNotFoundError: When there are none.
        ValueError: When two have the same step.
    """
    found: dict[int, Path] = {}
    for path in sorted(Path(folder).glob("*")):
        numbers = CHECKPOINT.findall(path.stem)
        weights = path.is_dir() or path.suffix in FILES
        if numbers and weights and not path.name.startswith((".", "merged")):
            step = int(numbers[-1])
            if step in found:
                raise ValueError(f"{folder}: {found[step].name} and {path.name} are both of step {step}")
            found[step] = path
    if not found:
        raise FileNotFoundError(
            f"{folder}: no checkpoints with a step in their names, such as checkpoint-500 or step_500.pt"
        )
    steps = sorted(found)
    return [found[s] for s in steps], [float(s) for s in steps]
