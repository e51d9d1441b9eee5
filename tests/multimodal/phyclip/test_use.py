"""Heads on real interfaces, encoders, retrieval, hierarchies."""

import math

import networkx as nx
import numpy as np
import pytest
import torch

from paperworks.multimodal.phyclip import (
    Cosine,
    HyperbolicRetriever,
    PHyCLIPHead,
    PHyCLIPLoss,
    ProductEuclidean,
    ProductHyperbolic,
    TextEncoder,
    TwoTowers,
    VisionEncoder,
    class_points,
    factor_report,
    hierarchical_metrics,
    specialisation,
)
from paperworks.multimodal.phyclip.encoders import SmallConvNet, parameter_groups, sincos_positions, warmup_cosine
from paperworks.multimodal.phyclip.hierarchy import mutual_information


def towers():
    torch.manual_seed(0)
    return TwoTowers(VisionEncoder((32, 2, 4), (32, 32), 8), TextEncoder(20, 16, 1, 2, 7))


def inputs():
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 18, (3, 6), generator=generator)
    ids[:, -1] = 19
    return torch.rand(3, 3, 32, 32, generator=generator), ids


def test_a_head_on_open_clips_interface_trains_end_to_end():
    head = PHyCLIPHead(towers(), ProductHyperbolic(4, 2), 32, 16)
    loss = PHyCLIPLoss(head.space, boxes=False)
    images, ids = inputs()
    points = head(images, ids)
    assert [p.shape for p in points] == [(3, 4, 2), (3, 4, 2)]
    torch.testing.assert_close(points[0], head.space.lift(head.encode_image(images), "image"))
    first = loss(head.encode_image(images), head.encode_text(ids))
    optimiser = torch.optim.Adam([*head.parameters(), loss.log_scale], 1e-2)
    for _ in range(15):
        value = loss(head.encode_image(images), head.encode_text(ids))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
    assert float(value) < 0.7 * float(first.detach())
    assert float(head.image_projection.weight.std()) == pytest.approx(32**-0.5, rel=0.3)


def test_a_head_on_transformers_clip():
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 30, "max_position_embeddings": 8, "eos_token_id": 29, "bos_token_id": 1},
        vision_config={**small, "image_size": 16, "patch_size": 8},
        projection_dim=12,
    )
    model = transformers.CLIPModel(config)
    head = PHyCLIPHead(model, ProductHyperbolic(3, 4), freeze=True)
    ids = torch.tensor([[1, 5, 29], [1, 7, 29]])
    images, texts = head({"pixel_values": torch.rand(2, 3, 16, 16)}, {"input_ids": ids})
    assert images.shape == texts.shape == (2, 3, 4)
    plain = model.get_text_features(input_ids=ids)
    plain = getattr(plain, "pooler_output", plain)
    torch.testing.assert_close(texts, head.space.lift(plain, "text"))


def test_a_frozen_model_stays_as_it_is():
    model = towers()
    head = PHyCLIPHead(model, ProductHyperbolic(4, 2), 32, 16, freeze=True).train()
    assert not model.training
    images, ids = inputs()
    sum(p.sum() for p in head(images, ids)).backward()
    assert all(p.grad is None for p in model.parameters())
    assert head.image_projection.weight.grad is not None
    with pytest.raises(TypeError, match="model is a Linear: encode_image and encode_text"):
        PHyCLIPHead(torch.nn.Linear(2, 2), ProductHyperbolic(1, 2))
    with pytest.raises(ValueError, match="text_width = 0"):
        PHyCLIPHead(model, ProductHyperbolic(4, 2), 32, 0)


def test_encoders_have_the_papers_shapes():
    positions = sincos_positions(2, 3, 8)
    assert positions.shape == (6, 8)
    w = [1, 1e-2]
    row, column = 1, 2
    expected = [f(p * a) for p in (column, row) for f in (math.sin, math.cos) for a in w]
    np.testing.assert_allclose(positions[row * 3 + column].numpy(), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="size = 'huge': one of small, base, large"):
        VisionEncoder("huge")
    with pytest.raises(ValueError, match="multiples of patch = 16"):
        VisionEncoder("small", (200, 224))
    assert SmallConvNet(16)(torch.rand(2, 3, 48, 96)).shape == (2, 16)


def test_text_is_read_forwards_up_to_its_end():
    text = towers().text.eval()
    _, ids = inputs()
    longer = torch.cat([ids, torch.full((3, 1), 4)], 1)  # what comes after the end is not read
    torch.testing.assert_close(text(longer), text(ids))
    other = ids.clone()
    other[:, 0] = 18
    assert not torch.allclose(text(other), text(ids))
    with pytest.raises(ValueError, match="ids has 8 tokens: at most 7"):
        text(torch.ones(1, 8, dtype=torch.long))


def test_scales_and_biases_are_not_decayed():
    head = PHyCLIPHead(towers(), ProductHyperbolic(4, 2), 32, 16)
    decayed, free = parameter_groups(torch.nn.ModuleList([head, PHyCLIPLoss(head.space)]), 0.2)
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.2, 0)
    kept = {id(p) for p in free["params"]}
    for parameter in (head.space.log_curv, head.space.log_gain_text, head.model.text.blocks.norm.weight):
        assert id(parameter) in kept
    assert id(head.text_projection.weight) not in kept
    rates = [warmup_cosine(t, 4, 12) for t in range(13)]
    np.testing.assert_allclose(rates[:5], [0.25, 0.5, 0.75, 1, 1])
    np.testing.assert_allclose(rates[8::4], [0.5, 0], atol=1e-12)


def points(n, space, seed=0):
    return space.lift(torch.randn(n, space.width, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("space", [ProductHyperbolic(4, 3), ProductEuclidean(4, 3), Cosine(12)])
def test_search_finds_the_nearest(space):
    with torch.no_grad():
        X, Q = points(50, space), points(7, space, 1)
        found = HyperbolicRetriever(space).index(X).query(Q, top=5)
        distances = space.dist(Q, X)
    assert torch.equal(found.indices, distances.argsort(1)[:, :5])
    assert bool((found.scores.diff(dim=1) <= 0).all())


def test_a_shortlist_is_put_in_the_order_of_the_space():
    space = ProductHyperbolic(4, 3)
    with torch.no_grad():
        X, Q = points(60, space), points(5, space, 1)
    whole = HyperbolicRetriever(space).index(X).query(Q, top=3)
    assert torch.equal(HyperbolicRetriever(space, shortlist=59).index(X).query(Q, 3).indices, whole.indices)
    short = HyperbolicRetriever(space, shortlist=10).index(X).query(Q, 3)
    assert bool((short.scores[:, 0] <= whole.scores[:, 0] + 1e-6).all())
    assert (short.indices[:, 0] == whole.indices[:, 0]).float().mean() >= 0.6
    assert bool((short.scores.diff(dim=1) <= 0).all())


def test_a_muted_factor_does_not_count():
    space = ProductHyperbolic(3, 2)
    with torch.no_grad():
        X, Q = points(40, space), points(4, space, 1)
    changed = Q.clone()
    changed[:, 1] = 5.0
    retriever = HyperbolicRetriever(space).index(X)
    assert not torch.equal(retriever.query(Q).indices, retriever.query(changed).indices)
    assert torch.equal(retriever.query(Q, mute=[1]).indices, retriever.query(changed, mute=[1]).indices)
    with pytest.raises(ValueError, match=r"mute holds factor 3: 0 \.\. 2"):
        retriever.query(Q, mute=[3])


def test_the_released_score_is_an_option_and_mistakes_are_named():
    space = ProductHyperbolic(4, 3)
    with torch.no_grad():
        X, Q = points(50, space), points(7, space, 1)
        inner = space.score(Q, X, "inner")
    found = HyperbolicRetriever(space, score="inner").index(X).query(Q, top=4)
    assert torch.equal(found.indices, inner.argsort(1, descending=True)[:, :4])
    with pytest.raises(RuntimeError, match="call index"):
        HyperbolicRetriever(space).query(Q)
    for make, message in (
        (lambda: HyperbolicRetriever(space, score="cos"), "score = 'cos'"),
        (lambda: HyperbolicRetriever(space, shortlist=0), "shortlist = 0"),
        (lambda: HyperbolicRetriever(space).index(X).query(Q, top=0), "top = 0"),
        (lambda: class_points(space, torch.zeros(2, 12)), r"prompts has shape \(2, 12\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_class_is_the_mean_of_its_prompts_before_the_lift():
    space = ProductHyperbolic(4, 3)
    prompts = torch.randn(5, 6, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(class_points(space, prompts), space.lift(prompts.mean(1), "text"))


TREE = nx.DiGraph([("root", "animal"), ("root", "thing"), ("animal", "dog"), ("animal", "cat"), ("dog", "pug"),
                   ("thing", "car")])  # fmt: skip


@pytest.mark.parametrize(
    ("pred", "true", "expected"),
    [
        ("pug", "pug", (0, 0, 1, 1, 1)),
        ("dog", "pug", (1, 1, 2 / 3, 1, 2 / 3)),
        ("pug", "cat", (3, 1, 1 / 4, 1 / 3, 1 / 2)),
        ("car", "cat", (4, 2, 0, 0, 0)),
    ],
)
def test_hierarchical_errors_are_those_of_the_tree(pred, true, expected):
    found = hierarchical_metrics([pred], [true], TREE)
    assert [found[k] for k in ("tie", "lca", "jaccard", "precision", "recall")] == pytest.approx(expected)


def test_hierarchical_errors_are_means_and_mistakes_are_named():
    assert hierarchical_metrics(["pug", "car"], ["pug", "cat"], TREE)["tie"] == 2
    for arguments, message in (
        ((["pug"], [], TREE), "pred has 1 nodes, true 0"),
        ((["cow"], ["pug"], TREE), "pred holds 'cow'"),
        ((["a"], ["a"], nx.DiGraph([("a", "c"), ("b", "c")])), "graph has 2 roots"),
    ):
        with pytest.raises(ValueError, match=message):
            hierarchical_metrics(*arguments)


def test_mutual_information_of_copies_and_of_strangers():
    labels = np.repeat(np.arange(4), 25)
    assert mutual_information(labels, labels) == pytest.approx(math.log(4))
    assert mutual_information(labels, np.tile(np.arange(25), 4)) == pytest.approx(0)


def test_factors_that_carry_a_label_are_found():
    space = ProductHyperbolic(3, 2)
    generator = torch.Generator().manual_seed(0)
    labels = ["a", "b", "c"] * 30
    v = 0.1 * torch.randn(90, 3, 2, generator=generator)
    for i, label in enumerate(labels):
        v[i, "cab".index(label)] += 1.5  # a in factor 1, b in 2, c in 0
    X = space.lift(v).detach()
    assert specialisation(space, X, labels, np.random.default_rng(0)) > 0.9
    mixed = specialisation(space, X, np.random.default_rng(1).permutation(labels).tolist(), np.random.default_rng(0))
    assert abs(mixed) < 0.1
    report = factor_report(space, X, labels)
    assert [row["label"] for row in report] == ["c", "a", "b"]
    assert all(row["lead"] > 1.5 and row["curvature"] == pytest.approx(-1) for row in report)
    assert specialisation(ProductHyperbolic(1, 6), v.flatten(1).unsqueeze(1), labels, np.random.default_rng(0)) == 0
