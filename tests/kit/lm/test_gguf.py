"""The reader of GGUF files, against a writer and de-quantisers written from the format's description."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperworks.kit.lm.gguf import GGUF, GGUFError

from .gguf_file import write_gguf
from .reference import dequantise_q4_1, dequantise_q8_0


def blocks(rng: np.random.Generator, count: int, numbers: int, payload: int) -> bytes:
    """Blocks of `numbers` finite float16 numbers and `payload` bytes."""
    heads = rng.normal(size=(count, numbers)).astype("<f2")
    tails = rng.integers(0, 256, size=(count, payload), dtype=np.uint8)
    return b"".join(head.tobytes() + tail.tobytes() for head, tail in zip(heads, tails, strict=True))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 4),
    columns=st.integers(1, 3).map(lambda n: 32 * n),
    alignment=st.sampled_from([8, 32, 64]),
)
def test_tensors(tmp_path: Path, seed: int, rows: int, columns: int, alignment: int) -> None:
    rng = np.random.default_rng(seed)
    shape, count = (rows, columns), rows * columns // 32
    q4, q8 = blocks(rng, count, 2, 16), blocks(rng, count, 1, 32)
    plain = rng.normal(size=(rows, 5)).astype("<f4")
    half = rng.normal(size=7).astype("<f2")
    write_gguf(
        tmp_path / "x.gguf",
        {"general.alignment": alignment} if alignment != 32 else {},
        {
            "q4": (shape, 3, q4),
            "plain": (plain.shape, 0, plain.tobytes()),
            "half": (half.shape, 1, half.tobytes()),
            "q8": (shape, 8, q8),
        },
        alignment,
    )
    gguf = GGUF(tmp_path / "x.gguf")
    assert gguf.names == ("q4", "plain", "half", "q8")
    np.testing.assert_array_equal(gguf.tensor("plain"), plain)
    np.testing.assert_array_equal(gguf.tensor("half"), half.astype(np.float32))
    for name, expected in (("q4", dequantise_q4_1(q4)), ("q8", dequantise_q8_0(q8))):
        got = gguf.tensor(name)
        assert (got.dtype, got.shape) == (np.float32, shape)
        np.testing.assert_allclose(got.ravel(), expected, rtol=1e-6, atol=1e-6)  # rounding of one float32 sum


def test_metadata(tmp_path: Path) -> None:
    metadata = {"a": "text, ünï", "b": 7, "c": 0.5, "d": True, "e": ["x", "", "漢"], "f": [1, 2], "g": [["p"], ["q"]]}
    write_gguf(tmp_path / "x.gguf", metadata, {})
    assert GGUF(tmp_path / "x.gguf").metadata == metadata


def test_what_it_does_not_know_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write_gguf(path, {}, {"t": ((256,), 12, b"\0" * 144)})
    with pytest.raises(GGUFError, match=r"tensor 't' is of kind 12; known: 0 \(F32\)"):
        GGUF(path).tensor("t")
    with pytest.raises(KeyError):
        GGUF(path).tensor("u")
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\2" + data[5:])
    with pytest.raises(GGUFError, match=r"x\.gguf is no GGUF file of version 3"):
        GGUF(path)


@pytest.mark.parametrize("size", [0, 3, 40, 60, 100])
def test_a_file_cut_short_is_no_gguf(tmp_path: Path, size: int) -> None:
    path = tmp_path / "x.gguf"
    write_gguf(path, {"key": "some text that is long enough"}, {"t": ((64,), 0, b"\0" * 256)})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(GGUFError, match=r"x\.gguf"):
        GGUF(path)


def test_a_tensor_cut_short_is_said(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write_gguf(path, {}, {"t": ((64,), 0, b"\0" * 256)})
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GGUFError, match="tensor 't' ends after the file"):
        GGUF(path).tensor("t")
