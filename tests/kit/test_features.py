"""Features on disk: encoded once, the same ever after, shared by processes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import paperworks
from paperworks.kit.assets import CacheError, cache_folder
from paperworks.kit.features import cached_features

WIDTH = 3


class Encoder:
    """Features that tell texts apart, and a record of what was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: list[str]) -> npt.NDArray[np.float32]:
        self.asked.append(texts)
        return features_of(texts)


def features_of(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    rows = [[len(text), sum(map(ord, text)) % 9973, 1 / 3] for text in texts]
    return np.array(rows, dtype=np.float32).reshape(-1, WIDTH)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path / "cache"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(st.lists(st.text(max_size=3) | st.sampled_from(["a", "b", "\ud800", "\0"]), max_size=8), max_size=4),
    chunk=st.integers(1, 4),
)
def test_equals_encoding_and_asks_for_each_text_once(calls: list[list[str]], chunk: int) -> None:
    encoder, name = Encoder(), uuid.uuid4()
    for texts in calls:
        got = cached_features(f"toy-{name}", texts, encoder, WIDTH, chunk)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, features_of(texts))
    asked = [text for texts in encoder.asked for text in texts]
    assert sorted(asked) == sorted({text for texts in calls for text in texts})
    assert all(len(texts) <= chunk for texts in encoder.asked)


def test_encoders_do_not_mix() -> None:
    cached_features("one", ["a"], Encoder(), WIDTH)
    other = cached_features("two", ["a"], lambda texts: -features_of(texts), WIDTH)
    np.testing.assert_array_equal(other, -features_of(["a"]))


def test_more_texts_than_one_query_takes() -> None:
    texts, encoder = [str(i) for i in range(1234)], Encoder()
    for _ in range(2):
        np.testing.assert_array_equal(cached_features("toy", texts, encoder, WIDTH), features_of(texts))
    assert len(encoder.asked) == 2


def test_result_is_the_callers() -> None:
    cached_features("toy", ["a"], Encoder(), WIDTH)
    cached_features("toy", ["a"], Encoder(), WIDTH)[:] = 0
    np.testing.assert_array_equal(cached_features("toy", ["a"], Encoder(), WIDTH), features_of(["a"]))


def test_what_was_encoded_before_an_error_is_kept() -> None:
    encoder = Encoder()

    def fails_at_second(texts: list[str]) -> npt.NDArray[np.float32]:
        if encoder.asked:
            raise RuntimeError("out of memory")
        return encoder(texts)

    with pytest.raises(RuntimeError, match="out of memory"):
        cached_features("toy", ["a", "bb", "ccc"], fails_at_second, WIDTH, chunk=2)
    cached_features("toy", ["a", "bb", "ccc"], encoder, WIDTH, chunk=2)
    assert encoder.asked == [["a", "bb"], ["ccc"]]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (np.zeros((1, 4)), r"shape \(1, 4\); expected \(1, 3\)"),
        (np.zeros((2, 3)), r"shape \(2, 3\); expected \(1, 3\)"),
        (np.array([[0, 1, np.nan]]), "not finite"),
    ],
)
def test_bad_features_are_refused_and_not_kept(result: npt.NDArray[np.float32], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        cached_features("toy", ["a"], lambda texts: result, WIDTH)
    np.testing.assert_array_equal(cached_features("toy", ["a"], Encoder(), WIDTH), features_of(["a"]))


def test_bad_arguments_are_named() -> None:
    cached_features("toy", ["a"], Encoder(), WIDTH)
    with pytest.raises(ValueError, match="width is 5; the cache holds 3"):
        cached_features("toy", ["a"], Encoder(), 5)
    with pytest.raises(ValueError, match=r"encoder is '\.\./toy'"):
        cached_features("../toy", ["a"], Encoder(), WIDTH)
    with pytest.raises(ValueError, match="chunk is 0"):
        cached_features("toy", ["a"], Encoder(), WIDTH, chunk=0)
    with pytest.raises(TypeError, match="items is the text 'abc'"):
        cached_features("toy", "abc", Encoder(), WIDTH)


def test_a_damaged_cache_is_said_with_its_path() -> None:
    folder = cache_folder() / "features"
    folder.mkdir(parents=True)
    (folder / "toy.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(CacheError, match=r"toy\.db cannot be used .*delete it"):
        cached_features("toy", ["a"], Encoder(), WIDTH)


def test_processes_at_once(tmp_path: Path) -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from paperworks.kit.features import cached_features
order = np.random.default_rng(int(sys.argv[2])).permutation(1000)
encode = lambda texts: np.array([[float(text), 1, 2] for text in texts])
got = cached_features("numbers", [str(i) for i in order], encode, 3, chunk=20)
sys.exit(0 if (got[:, 0] == order).all() else "wrong features")
"""
    command = [sys.executable, "-c", code, str(Path(paperworks.__file__).parents[1])]
    started = [subprocess.Popen([*command, str(seed)], stderr=subprocess.PIPE, text=True) for seed in range(4)]
    said = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, said


def test_a_cache_that_cannot_be_opened_is_said() -> None:
    (cache_folder() / "features" / "toy.db").mkdir(parents=True)
    with pytest.raises(CacheError, match="set PAPERWORKS_CACHE"):
        cached_features("toy", ["a"], Encoder(), WIDTH)
