"""What the study is made of: scenes, splits, negatives, and a cell with the real frozen encoders."""

import numpy as np
import pytest
import torch

from paperworks.claims.study import Cell, Preparation, Streams, Trial
from paperworks.kit.assets import load_wordnet, status
from paperworks.multimodal.phyclip import study
from paperworks.multimodal.phyclip.scenes import (
    caption,
    choose_names,
    compose_scene,
    crop,
    draw_scenes,
    phrase,
    swap,
)
from paperworks.multimodal.phyclip.trees import wordnet_children


def names(each=6):
    table = [(f"{c} {i}", f"{c}-{i % 2}", c) for c in ("ape", "bus", "cup") for i in range(8)]
    columns = (np.array(column) for column in zip(*table, strict=True))
    return choose_names(*columns, ("ape", "bus", "cup"), each, np.random.default_rng(0))


def test_names_come_in_equal_numbers_with_their_tree_and_phrases():
    chosen = names()
    assert np.unique(chosen.categories, return_counts=True)[1].tolist() == [6, 6, 6]
    assert (np.char.partition(chosen.names, " ")[:, 0] == chosen.categories).all()
    tree = chosen.tree()
    assert tree.number_of_nodes() == 1 + 3 + 6 + 18
    assert tree.has_edge("ape", ("ape", "ape-0"))
    assert chosen.phrases()[0] == [f"an {chosen.names[0]}", f"an ape {chosen.subcategories[0][-1]}", "ape"]
    assert (phrase("owl"), phrase("dog")) == ("an owl", "a dog")
    assert caption(["owl", "fire engine"]) == "an owl and a fire engine"
    with pytest.raises(ValueError, match="each = 9"):
        names(9)


@pytest.mark.parametrize("objects", [2, 3])
def test_scenes_are_different_sets_from_different_categories(objects):
    chosen = names()
    scenes = draw_scenes(chosen, 60, objects, np.random.default_rng(0))
    assert scenes.shape == (60, objects)
    assert len({tuple(sorted(row)) for row in scenes.tolist()}) == 60
    assert all(len({chosen.categories[i] for i in row}) == objects for row in scenes)
    one, every = (swap(chosen, scenes, np.random.default_rng(1), whole) for whole in (False, True))
    assert ((one != scenes).sum(1) == 1).all()
    assert (every != scenes).all()
    for wrong in (one, every):
        assert (chosen.categories[wrong] == chosen.categories[scenes]).all()


def test_pictures_are_pasted_on_white_in_their_squares():
    red, blue = (np.zeros((64, 64, 4), np.uint8) for _ in range(2))
    red[..., 0] = blue[..., 2] = red[..., 3] = blue[..., 3] = 255
    orders = set()
    for seed in range(8):
        scene = compose_scene([red, blue], np.random.default_rng(seed))
        assert scene.shape == (48, 96, 3)
        is_red, is_blue = ((scene == colour).all(-1) for colour in ([255, 0, 0], [0, 0, 255]))
        for side in (is_red, is_blue):
            assert 30**2 <= side.sum() <= 44**2
        assert is_red.sum() + is_blue.sum() + (scene == 255).all(-1).sum() == 48 * 96
        orders.add(bool(is_red[:, :48].any()))
        assert is_red[:, :48].any() != is_blue[:, :48].any()
    assert orders == {True, False}
    assert (crop(red)[4:-4, 4:-4] == [255, 0, 0]).all()
    red[..., 3] = 0
    assert (crop(red) == 255).all()


def test_the_wordnet_trees_are_real():
    if status("wordnet").state == "missing":
        pytest.skip("wordnet is not on this machine: paperworks data wordnet")
    sizes = {root: len(wordnet_children(load_wordnet(), root)) for root in ("mammal", "vehicle")}
    assert sizes["mammal"] > 1000
    assert sizes["vehicle"] > 400
    with pytest.raises(ValueError, match="root = 'mmmal'"):
        wordnet_children(load_wordnet(), "mmmal")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    missing = [
        n for n in ("emoji_twitter", "emoji_google", "efficientnet_lite0", "minilm") if status(n).state == "missing"
    ]
    if missing:
        pytest.skip(f"not on this machine: paperworks data {' '.join(missing)}")
    c = study.Corpus(each=5, scenes=40)
    folder = tmp_path_factory.mktemp("corpus")
    study.corpus.function(Preparation(folder, c, None, ("phyclip", "corpus")))
    config = study.Scenes(**c.model_dump(), held_out=10, batch=30, steps=60, lr=3e-3)
    return folder, config


def test_held_out_sets_of_names_are_in_no_training_scene(frozen):
    folder, c = frozen
    data = study._Data(folder, c, Streams("x").rng("split"))
    sets = [{tuple(sorted(data.members[i].tolist())) for i in rows} for rows in (data.train, data.held_out)]
    assert not sets[0] & sets[1]
    assert (len(data.train), len(data.held_out)) == (30, 10)
    assert data.image["scenes"].shape == (40, 1280)
    assert data.text["phrases"].shape == (25, 3, 384)
    whole = torch.cat([data.image["scenes"][data.train], data.image["twitter"]])
    assert float(whole.mean(0).abs().max()) < 1e-4
    assert float(whole.square().mean()) == pytest.approx(1, rel=1e-3)


def test_a_cell_learns_on_real_frozen_encoders(frozen):
    folder, c = frozen
    trial = Trial(
        origin=("phyclip", "scenes", 1), cells=(Cell("l1_k8", {}, 100),), scale="smoke", config=c, arms=study.ARMS,
        prepared=lambda name, seed: folder,
    )  # fmt: skip
    metrics = study.scenes.function(trial).metrics
    assert metrics["easy"] >= 0.8
    assert metrics["to_text"] >= 0.4  # a tenth by chance
    assert metrics["tie"] < 5.5
