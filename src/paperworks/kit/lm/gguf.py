"""Reads GGUF files, version 3: metadata, and tensors of the kinds that our models have.

The format is described in the ggml project's docs/gguf.md: a header of counts, pairs of key and value, a description of
each tensor, then the tensors, each at a multiple of the alignment. All numbers are little-endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_F32, _F16, _Q4_1, _Q8_0 = 0, 1, 3, 8
_WEIGHTS = {_Q4_1: 32, _Q8_0: 32}  # in one block
_LAYOUT: dict[int, Any] = {
    _F32: "<f4",
    _F16: "<f2",
    _Q4_1: [("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)],
    _Q8_0: [("d", "<f2"), ("q", "i1", 32)],
}


class GGUFError(ValueError):
    """A file that is no GGUF, or holds what this reader does not know."""


class GGUF:
    """A GGUF file.

    Args:
        path: The file; it stays open as long as this object lives.

    Attributes:
        metadata: The file's keys and values.
        names: Names of the tensors, in the order of the file.

    Raises:
        GGUFError: The file cannot be read; the message says why.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as stream:
            magic = stream.read(8)
            if magic != b"GGUF" + struct.pack("<I", 3):
                raise GGUFError(f"{path.name} is no GGUF file of version 3: it begins with {magic!r}")
            self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._position = len(magic)
        self.metadata: dict[str, Any] = {}
        self._tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
        try:
            self._head()
        except (struct.error, UnicodeDecodeError) as error:
            raise GGUFError(f"{path.name} is damaged: {error}") from error
        alignment = self.metadata.get("general.alignment", 32)
        self._data = -(-self._position // alignment) * alignment
        self.names = tuple(self._tensors)

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """Returns a tensor in float32, de-quantised.

        Q8_0: 32 weights w = d q, with d in float16 and q in int8. Q4_1: 32 weights w = d q + m, with d and m in float16
        and q of 4 bits; the low halves of 16 bytes are the first 16 weights, the high halves the others.

        Raises:
            KeyError: There is no such tensor.
            GGUFError: It is of another kind.
        """
        shape, kind, offset = self._tensors[name]
        if kind not in _LAYOUT:
            raise GGUFError(f"tensor {name!r} is of kind {kind}; known: 0 (F32), 1 (F16), 3 (Q4_1), 8 (Q8_0)")
        layout, weights = np.dtype(_LAYOUT[kind]), _WEIGHTS.get(kind, 1)
        count, start = math.prod(shape) // weights, self._data + offset
        if start + count * layout.itemsize > len(self._bytes):
            raise GGUFError(f"tensor {name!r} ends after the file")
        blocks = np.frombuffer(self._bytes, layout, count, start)
        if kind in (_F32, _F16):
            return blocks.astype(np.float32).reshape(shape)
        quanta = blocks["q"]
        if kind == _Q4_1:
            quanta = np.concatenate([quanta & 15, quanta >> 4], axis=1)
        flat = blocks["d"].astype(np.float32)[:, None] * quanta.astype(np.float32)
        if kind == _Q4_1:
            flat += blocks["m"].astype(np.float32)[:, None]
        return flat.reshape(shape)

    def _head(self) -> None:
        tensors, pairs = self._number("Q"), self._number("Q")
        for _ in range(pairs):
            key = self._text()
            self.metadata[key] = self._value(self._number("I"))
        for _ in range(tensors):
            name = self._text()
            shape = tuple(self._number("Q") for _ in range(self._number("I")))[::-1]  # fastest axis first in the file
            self._tensors[name] = (shape, self._number("I"), self._number("Q"))

    def _number(self, form: str) -> Any:
        value = struct.unpack_from(f"<{form}", self._bytes, self._position)[0]
        self._position += struct.calcsize(f"<{form}")
        return value

    def _text(self) -> str:
        length = self._number("Q")
        text = self._bytes[self._position : self._position + length].decode("utf-8")
        self._position += length
        return text

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind == _ARRAY:
            inner, length = self._number("I"), self._number("Q")
            return [self._value(inner) for _ in range(length)]
        if kind not in _NUMBERS:
            raise GGUFError(f"a value is of kind {kind}; known: 0 to 12")
        return self._number(_NUMBERS[kind])
