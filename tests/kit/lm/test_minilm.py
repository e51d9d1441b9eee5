"""MiniLM: the published usage and published similarities; the cache of what was encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paperworks.kit.assets import AssetMissing, open_asset, status
from paperworks.kit.features import cached_features
from paperworks.kit.lm import encode, load_minilm, minilm

from .reference import published_minilm

TEXTS = [
    "This is an example sentence",
    "Each sentence is converted",
    "A sea lion.",
    "",
    "Größe, naïve, 漢字 and 12,345 cats!",
    "word " * 400,
    "a much longer sentence, which is there to make the others of this batch pad a good deal more than they would",
]

needed = pytest.mark.skipif(status("minilm").state == "missing", reason="not on this machine: paperworks data minilm")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder of one's own for features; the model stays where it is."""
    folder = open_asset("minilm")
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path))
    monkeypatch.setattr(minilm, "open_asset", lambda name: folder)


@needed
def test_equals_the_published_usage() -> None:
    got = encode(TEXTS, batch_size=3, cache=False)
    assert (got.dtype, got.shape) == (np.float32, (len(TEXTS), 384))
    np.testing.assert_allclose(got, published_minilm(open_asset("minilm"), TEXTS), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-6)


@needed
def test_similarities_are_those_of_the_documentation_of_sentence_transformers() -> None:
    vectors = encode(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."], cache=False
    )
    published = [[1.0000, 0.6660, 0.1046], [0.6660, 1.0000, 0.1411], [0.1046, 0.1411, 1.0000]]
    np.testing.assert_allclose(vectors @ vectors.T, published, atol=6e-5)  # printed to four digits


@needed
@pytest.mark.usefixtures("own_cache")
def test_what_was_encoded_is_looked_up_without_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    first = encode(TEXTS[:3])
    monkeypatch.setattr(minilm, "_loaded", lambda device: pytest.fail("loads the model"))
    again = encode([TEXTS[2], TEXTS[0], TEXTS[2]], batch_size=1)
    np.testing.assert_array_equal(again, first[[2, 0, 2]])


@needed
@pytest.mark.usefixtures("own_cache")
def test_the_cache_belongs_to_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def record(encoder: str, *rest: Any) -> Any:
        names.append(encoder)
        return cached_features(encoder, *rest)

    monkeypatch.setattr(minilm, "cached_features", record)
    encode(TEXTS[:1])
    assert minilm.catalog()["minilm"].digest[:16] in names[0]


@needed
def test_the_tokenizer_is_bert_uncased() -> None:
    _, tokenizer = load_minilm()
    ids = tokenizer("Hello, World! naïve")["input_ids"]
    assert ids == [101, 7592, 1010, 2088, 999, 15743, 102]  # of bert-base-uncased's vocabulary
    assert tokenizer.decode(ids) == "[CLS] hello, world! naive [SEP]"
    assert tokenizer(["a", "a b"], padding=True)["input_ids"] == [[101, 1037, 102, 0], [101, 1037, 1038, 102]]


@needed
@pytest.mark.usefixtures("own_cache")
def test_edges_and_bad_input() -> None:
    assert encode([], cache=False).shape == encode([]).shape == (0, 384)
    with pytest.raises(ValueError, match="batch_size is 0"):
        encode(["a"], batch_size=0)
    with pytest.raises(TypeError, match="texts is the text 'abc'"):
        encode("abc")


def test_a_missing_model_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path))
    monkeypatch.setattr("paperworks.kit.assets.store.installed_path", lambda source: None)
    with pytest.raises(AssetMissing, match="paperworks data minilm"):
        load_minilm()
