"""Ours and a peer, alternated in one process, outputs compared first; only ratios are reported."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paperworks.claims.errors import PaperError


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two callables without arguments that do the same work.

    Attributes:
        ours: Our implementation; returns arrays or tensors, or tuples of them.
        peer: The named peer; returns the same shapes.
        rtol: Relative tolerance of the comparison that comes first.
        atol: Absolute tolerance.
    """

    ours: Callable[[], Any]
    peer: Callable[[], Any]
    rtol: float = 1e-5
    atol: float = 1e-6


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Time of ours over time of the peer.

    Attributes:
        median: Median over the alternated pairs.
        low: Lower end of the 95 % interval of the median (order statistics).
        high: Upper end.
        pairs: Number of alternated pairs.
        ours: Median seconds of ours, to give the ratio a size; never a target.
        memory: Peak memory of one call of ours, in MiB above what the inputs take; ``None`` where it cannot be told.
        peer_memory: That of the peer.
    """

    name: str
    peer: str
    target: float
    median: float
    low: float
    high: float
    pairs: int
    ours: float
    memory: float | None = None
    peer_memory: float | None = None

    @property
    def met(self) -> bool:
        """Whether the median is within the target."""
        return self.median <= self.target

    def to_dict(self) -> dict[str, Any]:
        """A JSON-safe copy."""
        return {**dataclasses.asdict(self), "met": self.met}


def pair_of(module: str, name: str, size: str) -> Pair:
    """Build the pair of one ``[[speed]]`` entry.

    Raises:
        PaperError: When speed.py has no function of that name.
        ModuleNotFoundError: When the peer is not installed.
    """
    speed = importlib.import_module(f"{module}.speed")
    if not hasattr(speed, name):
        raise PaperError(f"{module}.speed has no function {name!r}, which a [[speed]] entry of paper.toml names")
    return getattr(speed, name)(size)  # type: ignore[no-any-return]


def difference(pair: Pair) -> str:
    """'' when both return the same numbers within the pair's tolerances, else one line that says how they differ."""
    ours, peer = _arrays(pair.ours()), _arrays(pair.peer())
    if len(ours) != len(peer):
        return f"ours returns {len(ours)} arrays, the peer {len(peer)}"
    for i, (a, b) in enumerate(zip(ours, peer, strict=True)):
        if a.shape != b.shape:
            return f"output {i}: shape {a.shape} against the peer's {b.shape}"
        if not np.allclose(a, b, rtol=pair.rtol, atol=pair.atol):
            return f"output {i}: differs from the peer's by up to {np.abs(a - b).max():.3g}"
    return ""


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [array for part in value for array in _arrays(part)]
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()
    array = np.asarray(value)
    return [array if np.iscomplexobj(array) else array.astype(float)]


def measure(pair: Pair, name: str, peer: str, target: float, *, seconds: float = 10.0) -> Ratio:
    """Alternate ours and the peer for about ``seconds`` and return the ratio of their times.

    Raises:
        PaperError: When their outputs differ.
    """
    problem = difference(pair)
    if problem:
        raise PaperError(f"speed {name!r}: {problem}; nothing was timed")
    ours: list[float] = []
    theirs: list[float] = []
    begun = time.perf_counter()
    gc.disable()
    try:
        while len(ours) < 7 or (time.perf_counter() - begun < seconds and len(ours) < 1000):
            for timed, call in ((ours, pair.ours), (theirs, pair.peer)):
                start = time.perf_counter()
                call()
                timed.append(time.perf_counter() - start)
    finally:
        gc.enable()
    ratios = np.sort(np.array(ours[1:]) / np.array(theirs[1:]))  # the first pair warms up
    n = len(ratios)
    half = 0.98 * np.sqrt(n)  # order statistics about the median that cover 95 %
    low, high = ratios[max(0, int(n / 2 - half))], ratios[min(n - 1, int(np.ceil(n / 2 + half)))]
    return Ratio(name, peer, target, float(np.median(ratios)), float(low), float(high), n, float(np.median(ours[1:])))


# In a process of its own for each side: what an allocator keeps from one call would hide what the next one needs.
_PEAK = """
import gc, re, sys
from paperworks.claims.speed import pair_of
module, name, side = sys.argv[1:]
def resident(what):
    return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
getattr(pair_of(module, name, "small"), side)()
torch = sys.modules.get("torch")
call = getattr(pair_of(module, name, "full"), side)
gc.collect()
if torch is not None and torch.cuda.is_available():
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    print((torch.cuda.max_memory_allocated() - before) / 2**20)
else:
    before = resident("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
    call()
    print(max(resident("VmHWM") - before, 0.0))
"""


def peak_memory(module: str, name: str, side: str) -> float | None:
    """Peak memory in MiB of one call of "ours" or "peer" at full size: of the GPU where there is one, else resident.

    ``None`` where the system does not tell (outside Linux, when there is no GPU).
    """
    command = [sys.executable, "-c", _PEAK, module, name, side]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def save(folder: Path, ratios: Sequence[Ratio]) -> Path:
    """Write a room's ``speed.json``, whole or not at all."""
    path = folder / "speed.json"
    partial = path.with_name("speed.json.partial")
    rows = [
        {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in dataclasses.asdict(r).items()} for r in ratios
    ]
    partial.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def saved(folder: Path) -> list[Ratio]:
    """The ratios that a room ships; none when it was never measured."""
    path = folder / "speed.json"
    return [Ratio(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []
