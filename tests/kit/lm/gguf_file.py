"""Writes GGUF files as ggml's docs/gguf.md describes them. Imports nothing of ours."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(item: Any) -> bytes:
    """Kind and value: bool 7, uint32 4, float32 6, string 8, array 9."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    parts = [value(entry) for entry in item]
    return struct.pack("<I", 9) + parts[0][:4] + struct.pack("<Q", len(parts)) + b"".join(part[4:] for part in parts)


def write_gguf(
    path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[tuple[int, ...], int, bytes]], alignment: int = 32
) -> None:
    """Tensors by name: shape (as numpy has it), kind and bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value(item) for key, item in metadata.items())
    body = b""
    for name, (shape, kind, data) in tensors.items():
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += data + b"\0" * (-len(data) % alignment)
    path.write_bytes(head + b"\0" * (-len(head) % alignment) + body)
