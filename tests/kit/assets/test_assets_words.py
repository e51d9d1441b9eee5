"""WordNet, Zoo and the word vectors: against plain readings and against what is known of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperworks.kit.assets import AssetError, load_wink_vectors, load_wordnet, load_zoo, open_asset, status
from paperworks.kit.assets.wink_vectors import convert


@pytest.fixture(autouse=True)
def cache() -> None:
    """In the place of the empty cache of the other tests: the loaders read what this machine has."""


def needs(name: str) -> None:
    if status(name).state == "missing":
        pytest.skip(f"{name} is not on this machine: paperworks data {name}")


def test_wordnet_index_points_to_synsets() -> None:
    needs("wordnet")
    folder = load_wordnet()
    data = (folder / "data.noun").read_bytes()
    synsets = [line for line in data.splitlines() if not line.startswith(b"  ")]
    assert len(synsets) == 82192
    wanted = {"dog", "entity", "sea_lion", "zwieback", "cognition"}
    seen = set()
    for line in (folder / "index.noun").read_text("ascii").splitlines():
        lemma, *fields = line.split(" ")
        if lemma in wanted:
            seen.add(lemma)
            count = int(fields[1])
            for offset in fields[-count - 2 : -2]:
                line_there = data[int(offset) :].partition(b"\n")[0].decode("ascii")
                assert line_there.startswith(f"{offset} ")
                assert lemma in line_there.lower().split(" | ")[0].split(" ")
    assert seen == wanted


def test_zoo_is_what_uci_describes() -> None:
    needs("zoo")
    zoo = load_zoo()
    assert (zoo.names.shape, zoo.features.shape, zoo.types.shape) == ((101,), (101, 16), (101,))
    trait = dict(zip(zoo.attributes, zoo.features.T, strict=True))
    assert Counter(zoo.types.tolist()) == {
        "mammal": 41, "bird": 20, "reptile": 5, "fish": 13, "amphibian": 4, "insect": 8, "invertebrate": 10,
    }  # fmt: skip
    assert set(trait.pop("legs").tolist()) == {0, 2, 4, 5, 6, 8}
    assert all(set(values.tolist()) == {0, 1} for values in trait.values())
    assert (trait["milk"] == (zoo.types == "mammal")).all()
    assert (trait["feathers"] == (zoo.types == "bird")).all()
    frogs = zoo.names == "frog"
    assert trait["venomous"][frogs].tolist() == [0, 1]
    assert len(set(zoo.names.tolist())) == 100


def test_zoo_is_the_callers() -> None:
    needs("zoo")
    load_zoo().features[:] = 7
    assert load_zoo().features.max() == 8


def write_packed(path: Path, words: list[str], vectors: list[list[float]], rows: list[int] | None = None) -> None:
    entries = {
        word: [*vector, math.hypot(*vector), row]
        for word, vector, row in zip(words, vectors, rows or range(len(words)), strict=True)
    }
    packed = {"precision": 8, "l2NormIndex": 100, "wordIndex": 101, "size": len(words), "dimensions": 100}
    packed |= {"words": words, "vectors": entries, "unkVector": [0] * 101 + [-1]}
    path.write_text(json.dumps(packed, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)
        | st.sampled_from(['"', "]", ",", '"vectors":{', '],"vectors":{', "\\", "words", "vectors"]),
        min_size=1,
        unique=True,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_conversion_keeps_words_and_numbers(tmp_path: Path, words: list[str], seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(len(words), 100)).round(5)
    write_packed(tmp_path / "packed.json", words, vectors.tolist())
    convert(tmp_path / "packed.json", tmp_path)
    assert (tmp_path / "words.txt").read_bytes().decode().split("\n") == words
    got = np.load(tmp_path / "vectors.npy")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, vectors.astype(np.float32))


def test_conversion_notices_a_row_out_of_place(tmp_path: Path) -> None:
    write_packed(tmp_path / "packed.json", ["a", "b"], [[0.5] * 100] * 2, rows=[0, 2])
    with pytest.raises(AssetError, match="row 1 is the vector of 'b'"):
        convert(tmp_path / "packed.json", tmp_path)


@pytest.mark.slow
def test_word_vectors_are_those_of_the_file() -> None:
    needs("wink_vectors")
    words = ["cat", "sea lion", "dog", "economy", "cat", "zsombor"]
    vectors, known = load_wink_vectors(words)
    assert known.tolist() == [True, False, True, True, True, True]
    assert (vectors.shape, vectors.dtype) == ((6, 100), np.float32)
    assert np.isnan(vectors[1]).all()
    text = open_asset("wink_vectors").read_text("utf-8")
    for word, vector in zip(words, vectors, strict=True):
        if word != "sea lion":
            begin = text.index(f'"{word}":[') + len(word) + 3
            plain = json.loads(text[begin : text.index("]", begin) + 1])
            np.testing.assert_array_equal(vector, np.float32(plain[:100]))
            assert np.linalg.norm(vector) == pytest.approx(plain[100], rel=1e-5)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert unit[0] @ unit[2] > 0.8 > 0.3 > unit[0] @ unit[3]
    vectors[:] = 0
    assert load_wink_vectors(["cat"])[0].any()


def test_one_word_is_no_list_of_letters() -> None:
    with pytest.raises(TypeError, match="words is the text 'cat'"):
        load_wink_vectors("cat")
