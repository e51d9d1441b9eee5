"""Where checkpoints come from and where a merge goes: tensors one at a time, so that memory stays bounded."""

import contextlib
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

Checkpoint = Mapping[str, Tensor] | str | os.PathLike[str]
TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
NAMES = {name: dtype for dtype, name in TYPES.items()}
INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WHOLE = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin")


class Source(ABC):
    """A checkpoint that is read tensor by tensor."""

    name: str

    @abstractmethod
    def keys(self) -> list[str]:
        """Names of the tensors."""

    @abstractmethod
    def read(self, key: str) -> Tensor:
        """One tensor."""

    def kind(self, key: str) -> tuple[torch.dtype, torch.Size]:
        """Dtype and shape of a tensor."""
        tensor = self.read(key)
        return tensor.dtype, tensor.shape

    def shared(self) -> dict[str, str]:
        """Tied tensors: name to the name of the first one that has the same storage."""
        return {}

    def shards(self) -> dict[str, str]:
        """Name of each tensor to the file that holds it; empty when there is one file or none."""
        return {}


class StateDict(Source):
    """A mapping in memory, or a file of torch, memory-mapped and never unpickled."""

    def __init__(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        self.name = name
        self._tensors = tensors
        for key, value in tensors.items():
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"{name}: {key!r} is a {type(value).__name__}, not a tensor: give the model's state dict"
                )

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self._tensors)

    def read(self, key: str) -> Tensor:
        """One tensor."""
        return self._tensors[key].detach()

    def shared(self) -> dict[str, str]:
        """Tied tensors."""
        first: dict[tuple[object, ...], str] = {}
        tied = {}
        for key, value in self._tensors.items():
            if value.numel() == 0:
                continue
            place = (value.device, value.data_ptr(), tuple(value.shape), value.stride())
            if place in first:
                tied[key] = first[place]
            first.setdefault(place, key)
        return tied


class SafeTensors(Source):
    """A file of safetensors."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._file = safe_open(path, framework="pt")

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self._file.keys())

    def read(self, key: str) -> Tensor:
        """One tensor."""
        return self._file.get_tensor(key)  # type: ignore[no-any-return]

    def kind(self, key: str) -> tuple[torch.dtype, torch.Size]:
        """Dtype and shape."""
        part = self._file.get_slice(key)  # nothing is read
        return NAMES[part.get_dtype()], torch.Size(part.get_shape())


class Folder(Source):
    """A Hugging Face checkpoint of several files."""

    def __init__(self, path: Path, index: Path) -> None:
        self.name = str(path)
        self._where: dict[str, str] = json.loads(index.read_text())["weight_map"]
        outside = [f for f in self._where.values() if Path(f).name != f]
        if outside:
            raise ValueError(f"{index}: the file name {outside[0]!r} leaves the folder")
        self._files = {f: open_source(path / f) for f in dict.fromkeys(self._where.values())}

    def keys(self) -> list[str]:
        """Names of the tensors."""
        return list(self._where)

    def read(self, key: str) -> Tensor:
        """One tensor."""
        return self._files[self._where[key]].read(key)

    def kind(self, key: str) -> tuple[torch.dtype, torch.Size]:
        """Dtype and shape."""
        return self._files[self._where[key]].kind(key)

    def shards(self) -> dict[str, str]:
        """Files of the tensors."""
        return dict(self._where)


def open_source(checkpoint: Checkpoint) -> Source:
    """A checkpoint by any of its forms.

    Args:
        checkpoint: A state dict, a .safetensors file, a file of ``torch.save``, or a Hugging Face folder.

    Returns:
        The source, with nothing read yet but names.

    Raises:
        FileNotFoundError: When there is nothing at the path, or no weights in the folder.
        ValueError: When a file holds something else than tensors.
    """
    if isinstance(checkpoint, Mapping):
        return StateDict("state dict", checkpoint)
    path = Path(checkpoint)
    if path.is_dir():
        for name in INDEX:
            if (path / name).exists():
                return Folder(path, path / name)
        for name in WHOLE:
            if (path / name).exists():
                return open_source(path / name)
        raise FileNotFoundError(f"{path}: no weights in this folder (looked for {', '.join((*INDEX, *WHOLE))})")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such checkpoint")
    if path.suffix == ".safetensors":
        return SafeTensors(path)
    loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if isinstance(loaded, Mapping):
        for key in ("state_dict", "model"):
            if isinstance(loaded.get(key), Mapping):
                loaded = loaded[key]
                break
    if not isinstance(loaded, Mapping):
        raise ValueError(f"{path}: holds a {type(loaded).__name__}, not a state dict")
    return StateDict(str(path), loaded)


def write_safetensors(
    path: Path, shapes: Mapping[str, tuple[torch.dtype, torch.Size]], tensors: Iterator[Tensor]
) -> None:
    """Write tensors as they come, in the order of `shapes`; the file appears when it is whole.

    The library's own writer wants all of them at once.

    Args:
        path: The file.
        shapes: Name to dtype and shape.
        tensors: The tensors.
    """
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in shapes.items():
        start, end = end, end + shape.numel() * dtype.itemsize
        header[name] = {"dtype": TYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with whole_file(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            file.write(memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy()))


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when all went well."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def copy_companions(folder: Path, out: Path) -> None:
    """Copy what stands beside the weights in a Hugging Face folder: configuration, tokenizer; no optimiser state."""
    for file in folder.iterdir():
        if file.suffix in {".json", ".txt", ".model", ".jinja", ".md"} and file.name not in (
            *INDEX,
            "trainer_state.json",
        ):
            shutil.copy2(file, out / file.name)
