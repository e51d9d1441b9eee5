"""The Vision Transformer, the attacks (beside foolbox) and the corruptions."""

import numpy as np
import pytest
import torch
from torch import nn

from paperworks.layers.quest.attacks import fgsm, pgd
from paperworks.layers.quest.corruptions import CORRUPTIONS, corrupt
from paperworks.layers.quest.module import QuestAttention
from paperworks.layers.quest.vit import ViT


@pytest.fixture(scope="module")
def case():
    """A small ViT with random weights on random images: gradients reach the pixels through the normalised keys."""
    torch.manual_seed(0)
    model = ViT(8, 4, dim=16, depth=2, heads=2).eval()
    images = torch.rand(6, 1, 8, 8)
    return model, images, model(images).argmax(-1)


def test_fgsm_equals_foolbox(case):
    foolbox = pytest.importorskip("foolbox", reason="foolbox is a peer: install the dependency group `peers`")
    model, images, labels = case
    theirs = foolbox.PyTorchModel(model, bounds=(0, 1))
    raw, _, _ = foolbox.attacks.LinfFastGradientAttack(random_start=False)(theirs, images, labels, epsilons=0.1)
    torch.testing.assert_close(fgsm(model, images, labels, 0.1), raw)


def test_pgd_equals_foolbox(case):
    foolbox = pytest.importorskip("foolbox", reason="foolbox is a peer: install the dependency group `peers`")
    model, images, labels = case
    theirs = foolbox.PyTorchModel(model, bounds=(0, 1))
    attack = foolbox.attacks.LinfPGD(rel_stepsize=0.25, steps=5, random_start=False)
    raw, _, _ = attack(theirs, images, labels, epsilons=0.1)
    torch.testing.assert_close(pgd(model, images, labels, 0.1, steps=5, step_size=0.025), raw)


@pytest.mark.parametrize("loss", ["cross_entropy", "margin"])
def test_attacks_stay_in_the_ball_and_the_bounds_and_raise_the_loss(case, loss):
    model, images, labels = case
    model.zero_grad()
    for moved in (
        fgsm(model, images, labels, 0.1),
        pgd(model, images, labels, 0.1, loss=loss),
        pgd(model, images, labels, 0.1, loss=loss, generator=torch.Generator().manual_seed(0)),
    ):
        assert (moved - images).abs().max() <= 0.1 + 1e-6
        assert moved.min() >= 0
        assert moved.max() <= 1
        before, after = (nn.functional.cross_entropy(model(x), labels) for x in (images, moved))
        assert after > before + 1e-3
    assert all(p.grad is None for p in model.parameters())


def test_pgd_starts_where_its_generator_says(case):
    """With steps of length 0 what is left is the start: a uniform draw in the ball."""
    model, images, labels = case
    grey = torch.full_like(images, 0.5)
    start = [
        pgd(model, grey, labels, 0.1, step_size=0.0, generator=torch.Generator().manual_seed(seed)) - grey
        for seed in (0, 0, 1)
    ]
    assert torch.equal(start[0], start[1])
    assert not torch.equal(start[0], start[2])
    assert start[0].std() == pytest.approx(0.1 / 3**0.5, rel=0.1)
    assert torch.equal(pgd(model, images, labels, 0.1, step_size=0.0), images)


def test_an_attack_on_an_image_does_not_depend_on_its_batch(case):
    model, images, labels = case
    torch.testing.assert_close(pgd(model, images, labels, 0.1)[:1], pgd(model, images[:1], labels[:1], 0.1))


def test_a_linear_model_is_attacked_along_its_weights():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, -1, 1, -1], [-1, 1, -1, 1]]))
    images, labels = torch.full((1, 1, 2, 2), 0.5), torch.tensor([0])
    expected = 0.5 - 0.1 * torch.tensor([1.0, -1, 1, -1]).view(1, 1, 2, 2)
    torch.testing.assert_close(fgsm(model, images, labels, 0.1), expected)
    torch.testing.assert_close(pgd(model, images, labels, 0.1, loss="margin"), expected)


def test_unknown_loss_of_an_attack(case):
    with pytest.raises(ValueError, match="loss='l2'; allowed are 'cross_entropy' and 'margin'"):
        pgd(*case, 0.1, loss="l2")


IMAGES = np.clip(np.random.default_rng(0).normal(0.4, 0.3, (40, 28, 28)), 0, 1).astype(np.float32)


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_corruptions_keep_shape_type_and_range_and_grow_with_severity(kind):
    rng = np.random.default_rng(1)
    before = IMAGES.copy()
    distance = []
    for severity in (1, 2, 3):
        out = corrupt(IMAGES, kind, severity, rng)
        assert out.shape == IMAGES.shape
        assert out.dtype == IMAGES.dtype
        assert out.min() >= 0
        assert out.max() <= 1
        distance.append(np.abs(out - IMAGES).mean())
    assert np.array_equal(IMAGES, before)
    if kind == "shift":  # on white noise one wrong place is as far off as another
        assert 0 < CORRUPTIONS[kind][0] < CORRUPTIONS[kind][1] < CORRUPTIONS[kind][2]
    else:
        assert 0 < distance[0] < distance[1] < distance[2]
    if kind in ("occlusion", "shift", "rotation"):  # each image draws its own place or sign
        same = corrupt(np.repeat(IMAGES[:1], 30, 0), kind, 2, np.random.default_rng(3))
        assert len(np.unique(same.reshape(30, -1), axis=0)) == {"occlusion": 30, "shift": 4, "rotation": 2}[kind]
    repeat = [corrupt(IMAGES, kind, 2, np.random.default_rng(3)) for _ in range(2)]
    assert np.array_equal(*repeat)


def test_each_corruption_is_what_it_says():
    rng = np.random.default_rng(2)
    noisy = corrupt(np.full((200, 28, 28), 0.5, np.float32), "noise", 1, rng)
    assert noisy.std() == pytest.approx(0.15, rel=0.02)
    flat = corrupt(IMAGES, "contrast", 2, rng)
    np.testing.assert_allclose(flat.std((1, 2)), 0.3 * IMAGES.std((1, 2)), rtol=1e-4)
    hidden = corrupt(np.ones((30, 28, 28), np.float32), "occlusion", 3, rng)
    assert np.all((hidden == 0).sum((1, 2)) == 14 * 14)
    dot = np.zeros((30, 29, 29), np.float32)
    dot[:, 14, 14] = 1
    moved = corrupt(np.pad(dot, ((0, 0), (0, 1), (0, 1))), "shift", 1, rng)  # 0.07 of 30 pixels is 2.1
    rows = (moved.sum(2) * np.arange(30)).sum(1) - 14
    np.testing.assert_allclose(np.abs(rows), 2.1, rtol=1e-5)
    assert {-1.0, 1.0} == set(np.sign(rows))
    bar = np.zeros((10, 29, 29), np.float32)
    bar[:, 14, :] = 1
    turned = corrupt(bar, "rotation", 3, rng)  # 45 degrees: the bar's ends come to lie on a diagonal
    assert np.all(np.maximum(turned[:, 7, 7], turned[:, 7, 21]) > 0.4)
    assert np.all(turned[:, 14, 1] < 0.1)
    soft = corrupt(dot, "blur", 1, rng)
    np.testing.assert_array_equal(corrupt(IMAGES, "blur", 1, rng)[:1], corrupt(IMAGES[:1], "blur", 1, rng))
    variance = (soft[0].sum(1) * (np.arange(29) - 14) ** 2).sum()
    assert variance == pytest.approx((0.035 * 29) ** 2, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "severity", "words"),
    [("fog", 1, "kind='fog'; allowed are 'noise'"), ("blur", 4, "severity=4; allowed are 1, 2, 3")],
)
def test_unknown_corruptions(kind, severity, words):
    with pytest.raises(ValueError, match=words):
        corrupt(IMAGES, kind, severity, np.random.default_rng(0))


def test_vit_reads_patches_in_their_place():
    """The first linear layer sees each patch whole: a change inside one patch changes one token only."""
    model = ViT(8, 4, channels=3, classes=5, dim=16, depth=1, heads=2)
    seen = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    images = torch.rand(2, 3, 8, 8)
    assert model(images).shape == (2, 5)
    changed = images.clone()
    changed[:, :, 5, 2] += 1  # third patch: second row, first column
    model(changed)
    moved = (seen[0] - seen[1]).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [False, False, False, True, False]
    swapped = torch.cat([images[..., 4:], images[..., :4]], dim=-1)  # the same patches in other places
    assert (model(swapped) - model(images)).abs().max() > 1e-4


def test_vit_takes_a_norm_or_an_attention_of_ones_own():
    named = ViT(8, 4, dim=16, depth=2, heads=2, norm="qk_ds")
    assert [b.attention.norm for b in named.blocks] == ["qk_ds", "qk_ds"]
    own = ViT(8, 4, dim=16, heads=2, attention=lambda dim, heads: nn.MultiheadAttention(dim, heads, batch_first=True))
    assert not any(isinstance(m, QuestAttention) for m in own.modules())
    assert torch.isfinite(own(torch.rand(2, 1, 8, 8))).all()
    elliptical = ViT(8, 4, dim=16, depth=3, heads=2, norm="elliptical_quest")
    layers = [b.attention for b in elliptical.blocks]
    assert [layer._before for layer in layers] == [(), (layers[0],), (layers[1],)]


def test_vit_with_norm_none_is_a_vit_of_torch():
    """The same weights in `nn.TransformerEncoderLayer` blocks give the same scores."""
    model = ViT(8, 4, dim=16, depth=2, heads=2, norm="none").eval()
    encoder = nn.ModuleList(
        nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).eval() for _ in range(2)
    )
    for block, layer in zip(model.blocks, encoder, strict=True):
        layer.self_attn.load_state_dict(block.attention.state_dict())
        for name, part in (("norm1", block.norm1), ("norm2", block.norm2)):
            getattr(layer, name).load_state_dict(part.state_dict())
        layer.linear1.load_state_dict(block.mlp[0].state_dict())
        layer.linear2.load_state_dict(block.mlp[2].state_dict())
    images = torch.rand(3, 1, 8, 8)
    seen = []
    model.blocks[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    scores = model(images)
    x = seen[0]
    for layer in encoder:
        x = layer(x)
    torch.testing.assert_close(model.head(model.norm(x[:, 0])), scores, rtol=1e-4, atol=1e-5)


def test_vit_refuses_images_that_patches_do_not_tile():
    with pytest.raises(ValueError, match="image_size=10; allowed are multiples of patch_size=4"):
        ViT(10, 4)
