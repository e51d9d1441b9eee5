"""The network: shapes, padding, freezing, options, official layout, tiles, adapter."""

import math

import pytest
import torch
from torch import nn

from paperworks.vision.waft import (
    INDEXING,
    RAFT,
    VIT_CONFIGS,
    WAFT,
    DepthAnything,
    WAFTPtlflow,
    load_official,
    load_resnet_stages,
    load_vit_blocks,
    official_waft,
    our_name,
    sequence_loss,
    tile_corners,
    tiled,
)
from paperworks.vision.waft.tiling import blending_weights

SMALL = {"side_widths": (8, 12, 16), "side_blocks": 1, "side_channels": 16, "iters": 2}


class Brightness(nn.Module):
    """A frozen encoder with statistics that training would change."""

    out_channels, stride, multiple = 4, 2, 14

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 2, stride=2), nn.BatchNorm2d(4))

    def forward(self, x):
        return self.net(x)


def pictures(h=64, w=64, b=1):
    return 255 * torch.rand(2, b, 3, h, w, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("indexing", INDEXING)
def test_every_way_to_read_trains(indexing):
    torch.manual_seed(0)
    stride = 4 if indexing in ("all_pairs", "local_volume") else 2
    model = WAFT(None, "vit_micro", index_stride=stride, indexing=indexing, **SMALL)
    out = model(*pictures(), flow_gt=torch.ones(1, 2, 64, 64))
    assert [x.shape for x in out.flows] == [(1, 2, 64, 64)] * 2
    assert [x.shape for x in out.info] == [(1, 4, 64, 64)] * 2
    sequence_loss(out.nll, torch.ones(1, 2, 64, 64)).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.trainable())


@pytest.mark.parametrize(
    "build",
    [
        lambda: WAFT(None, "convgru", dim=16, context=True, **SMALL),
        lambda: WAFT(None, "resnet", dim=16, mixture=False, index_stride=8, **SMALL),
        lambda: RAFT(None, levels=3, **SMALL),
        lambda: RAFT(None, levels=3, sea=True, **SMALL),
    ],
)
def test_peers_have_the_same_interface(build):
    model = build()
    out = model(*pictures(), flow_gt=torch.zeros(1, 2, 64, 64))
    assert out.flows[-1].shape == (1, 2, 64, 64)
    assert len(out.nll) == 2
    assert len(out.info) == (2 if model.mixture else 0)


def test_shapes_of_the_worked_example():
    model = WAFT(None, "vit_t", 1, side_widths=(8, 12), side_blocks=1, side_channels=8)
    seen = {}
    model.refine.vit.embed.register_forward_hook(lambda m, i, o: seen.update(tokens=o.shape))
    model.refine.register_forward_hook(lambda m, i, o: seen.update(dpt=o.shape))
    model.flow_head.register_forward_hook(lambda m, i, o: seen.update(info=o.shape))
    with torch.no_grad():
        model(*pictures(128, 128))
    assert seen == {"tokens": (1, 192, 8, 8), "dpt": (1, 16, 64, 64), "info": (1, 6, 64, 64)}


def test_padding_is_undone_and_sizes_are_multiples():
    model = WAFT(Brightness(), "vit_micro", **SMALL)
    assert model.multiple == 112
    assert model.margins(100, 113) == (55, 56, 6, 6)
    assert model(*pictures(33, 47)).flows[-1].shape == (1, 2, 33, 47)
    official = WAFT(None, "vit_micro", padding="zeros", **SMALL)
    assert official.margins(540, 960) == (8, 8, 10, 10)  # 560 is the next multiple of 16 after 548, 976 after 968
    with pytest.raises(ValueError, match="at least 16 rows"):
        model(*pictures(8, 64))


def test_flow_counts_full_pixels():
    model = WAFT(None, "vit_micro", **SMALL)
    with torch.no_grad():
        for p in model.flow_head[-1].parameters():
            p.zero_()
        model.flow_head[-1].bias[0] = 1.0  # one half-resolution pixel an iteration
        out = model(*pictures())
    inside = (..., slice(4, -4), slice(4, -4))
    torch.testing.assert_close(out.flows[0][0, 0][inside], torch.full((56, 56), 2.0))
    torch.testing.assert_close(out.flows[1][0, 0][inside], torch.full((56, 56), 4.0))
    start = torch.full((1, 2, 64, 64), 6.0)
    with torch.no_grad():
        moved = model(*pictures(), iters=1, flow_init=start).flows[0]
    torch.testing.assert_close(moved[0, 0][inside], torch.full((56, 56), 8.0))
    wide = WAFT(None, "vit_micro", padding="zeros", **SMALL)
    seen = []
    hook = wide.index.register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[1]))
    with torch.no_grad():
        wide(*pictures(), iters=1, flow_init=start)
    hook.remove()
    torch.testing.assert_close(seen[0], torch.full_like(seen[0], 3.0))  # in the margins too


def test_the_backbone_stays_frozen():
    backbone = Brightness()
    model = WAFT(backbone, "vit_micro", **SMALL).train()
    before = {k: v.clone() for k, v in backbone.state_dict().items()}
    sequence_loss(model(*pictures(), flow_gt=torch.zeros(1, 2, 64, 64)).nll, torch.zeros(1, 2, 64, 64)).backward()
    assert not backbone.training
    assert all(torch.equal(v, before[k]) for k, v in backbone.state_dict().items())
    assert all(p.grad is None for p in backbone.parameters())
    tuned = WAFT(DepthAnything("vit_micro"), "vit_micro", adaptation="a2", **SMALL)
    assert all(p.requires_grad for p in tuned.backbone.head.parameters())
    assert not any(p.requires_grad for p in tuned.backbone.vit.parameters())
    assert len(tuned.side.stages) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"update": "vit_x"}, "update='vit_x'; allowed are"),
        ({"indexing": "sonar"}, "indexing='sonar'; allowed are"),
        ({"index_stride": 3}, "index_stride=3; allowed are 2, 4, 8"),
        ({"iters": 0}, "iters=0; at least 1"),
        ({"padding": "none"}, "padding='none'"),
        ({"var_min": -100.0}, "var_min=-100"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        WAFT(None, **{"update": "vit_micro", **SMALL, **options})


def official_shapes(d=64, width=384, depth=12, outs=(48, 96, 192, 384)):
    """Names and shapes of the authors' checkpoint (DAv2-a1, ViT-S), written down from their layout."""
    found = {}

    def conv(name, out, inp, k, bias=True):
        found[f"{name}.weight"] = (out, inp, k, k)
        if bias:
            found[f"{name}.bias"] = (out,)

    def linear(name, out, inp):
        found[f"{name}.weight"], found[f"{name}.bias"] = (out, inp), (out,)

    def norm(name, n, batch=False):
        found[f"{name}.weight"] = found[f"{name}.bias"] = (n,)
        if batch:
            found[f"{name}.running_mean"] = found[f"{name}.running_var"] = (n,)
            found[f"{name}.num_batches_tracked"] = ()

    def block(name, scaled):
        norm(f"{name}.norm1", width), norm(f"{name}.norm2", width)
        linear(f"{name}.attn.qkv", 3 * width, width), linear(f"{name}.attn.proj", width, width)
        linear(f"{name}.mlp.fc1", 4 * width, width), linear(f"{name}.mlp.fc2", width, 4 * width)
        if scaled:
            found[f"{name}.ls1.gamma"] = found[f"{name}.ls2.gamma"] = (width,)

    def dpt(name):
        for i, c in enumerate(outs):
            conv(f"{name}.projects.{i}", c, width, 1)
            conv(f"{name}.scratch.layer{i + 1}_rn", d, c, 3, bias=False)
            conv(f"{name}.scratch.refinenet{i + 1}.out_conv", d, d, 1)
            for unit, part in ((1, 1), (1, 2), (2, 1), (2, 2)):
                conv(f"{name}.scratch.refinenet{i + 1}.resConfUnit{unit}.conv{part}", d, d, 3)
        conv(f"{name}.resize_layers.0", outs[0], outs[0], 4)
        conv(f"{name}.resize_layers.1", outs[1], outs[1], 2)
        conv(f"{name}.resize_layers.3", outs[3], outs[3], 3)
        conv(f"{name}.scratch.output_conv1", d // 2, d, 3)
        conv(f"{name}.scratch.output_conv2.0", 32, d // 2, 3)
        conv(f"{name}.scratch.output_conv2.2", 1, 32, 1)

    vit = "da_feature.depth_anything.pretrained"
    found[f"{vit}.cls_token"] = (1, 1, width)
    found[f"{vit}.pos_embed"] = (1, 1370, width)
    found[f"{vit}.mask_token"] = (1, width)
    conv(f"{vit}.patch_embed.proj", width, 3, 14)
    norm(f"{vit}.norm", width)
    for i in range(depth):
        block(f"{vit}.blocks.{i}", True)
        block(f"refine_net.blks.{i}", False)
    dpt("da_feature.depth_anything.depth_head")
    dpt("refine_net.dpt_head")
    found["refine_net.pos_embed"] = (1, 64, width)
    conv("refine_net.patch_embed.proj", width, d, 8)
    conv("fnet.ds1.conv.1", 64, d // 2 + 3, 7), conv("fnet.ds1.conv.3", 64, 64, 3)
    conv("fnet.ds1.skip_conv", 64, d // 2 + 3, 1)
    for i, (inp, out) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], start=1):
        for j in range(2):
            base = f"fnet.conv{i}.{j}"
            conv(f"{base}.conv1", out, inp if j == 0 else out, 3, bias=False), norm(f"{base}.bn1", out, True)
            conv(f"{base}.conv2", out, out, 3, bias=False), norm(f"{base}.bn2", out, True)
        if inp != out:
            conv(f"fnet.conv{i}.0.downsample.0", out, inp, 1, bias=False)
            norm(f"fnet.conv{i}.0.downsample.1", out, True)
    for i, (out, inp) in ((4, (256, 512)), (3, (128, 256)), (2, (64, 128))):
        found[f"fnet.up_{i}.weight"], found[f"fnet.up_{i}.bias"] = (inp, out, 2, 2), (out,)
        conv(f"fnet.proj_{i - 1}.conv.1", out, out, 3), conv(f"fnet.proj_{i - 1}.conv.3", out, out, 3)
    conv("fmap_conv", d, d // 2 + 64, 1), conv("hidden_conv", d, 2 * d, 1), conv("warp_linear", d, 3 * d + 2, 1)
    conv("refine_transform", d, d // 2 * 3, 1)
    for name, out in (("upsample_weight", 36), ("flow_head", 6)):
        conv(f"{name}.0", 2 * d, d, 3), conv(f"{name}.2", out, 2 * d, 1)
    return found


def test_a_checkpoint_in_the_authors_layout_loads_whole():
    state = {f"module.{k}": torch.full(shape, 0.01) for k, shape in official_shapes().items()}
    with torch.device("meta"):
        model = official_waft()
    model = model.to_empty(device="cpu")
    unused = load_official(model, state)
    assert len(unused) == 2 * (4 + 4) + 1  # of both heads: depth output and the coarsest join; the masking token
    assert all((v == 0.01).all() for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked"))
    assert our_name("fnet.proj_2.conv.3.bias") == "side.join.1.conv2.bias"
    del state["module.flow_head.2.bias"]
    with pytest.raises(ValueError, match=r"lacks flow_head\.2\.bias"):
        load_official(model, state)


def test_imagenet_weights_fit_update_and_side_network():
    model = WAFT(None, "vit_micro", **SMALL)
    timm = {
        f"blocks.{k}".replace(".fc", ".mlp.fc"): torch.full_like(v, 0.5)
        for k, v in model.refine.vit.blocks.state_dict().items()
    }
    load_vit_blocks(model.refine.vit, {**timm, "norm.weight": torch.zeros(1)})
    assert all((v == 0.5).all() for v in model.refine.vit.blocks.state_dict().values())
    resnet = {f"layer{int(k[0]) + 1}.{k[2:]}": v * 0 + 1 for k, v in model.side.stages.state_dict().items()}
    load_resnet_stages(model.side, {**resnet, "layer4.0.conv1.weight": torch.zeros(1), "fc.bias": torch.zeros(1)})
    assert all((v == 1).all() for k, v in model.side.stages.state_dict().items() if "num_batches" not in k)


def test_blending_weights_are_the_same_from_all_sides():
    weights = blending_weights(6, 9, torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(weights, weights.flip(0))
    torch.testing.assert_close(weights, weights.flip(1))
    assert float(weights[0, 4]) == pytest.approx(math.exp(-((2.5 / 6) ** 2) / 2))


def test_tiles_cover_and_seams_are_no_higher_than_the_tiles_disagree():
    for size in (64, 65, 100, 200):
        covered = torch.zeros(size, 80)
        for top, left in tile_corners(size, 80, (64, 64)):
            covered[top : top + 64, left : left + 64] += 1
        assert (covered > 0).all()
    img = pictures(100, 90)[0]
    calls = []

    def estimate(a, b):
        calls.append(a.mean())
        return a[:, :2] + len(calls)  # each tile is off by another constant

    out = tiled(estimate, img, img, (64, 64)) - img[:, :2]
    assert len(calls) == 4
    assert out.min() >= 1 - 1e-3
    assert out.max() <= 4 + 1e-3
    torch.testing.assert_close(tiled(lambda a, b: a[:, :2], img, img, (64, 64)), img[:, :2])
    torch.testing.assert_close(tiled(lambda a, b: a[:, :2], img, img, (128, 128)), img[:, :2])
    with pytest.raises(ValueError, match="tile="):
        tiled(estimate, img, img, (8, 64))


def test_predict_resizes_and_restores_the_mode():
    model = WAFT(None, "vit_micro", **SMALL).train()
    one, two = pictures(64, 80)
    whole = model.predict(one, two)
    assert model.training
    torch.testing.assert_close(model.predict(one, two, tile=(64, 80)), whole)
    assert model.predict(one, two, scale=1.0).shape == whole.shape


def test_adapter_speaks_ptlflow():
    model = WAFT(None, "vit_micro", **SMALL).eval()
    one, two = pictures()
    adapter = WAFTPtlflow(model).eval()
    with torch.no_grad():
        out = adapter({"images": torch.stack([one, two], 1).flip(2) / 255})
        torch.testing.assert_close(out["flows"][:, 0], model(one, two).flows[-1], atol=1e-5, rtol=1e-4)
    assert out["flows"].shape == (1, 1, 2, 64, 64)
    assert out["expected_error"].shape == (1, 1, 1, 64, 64)
    with pytest.raises(ValueError, match=r"inputs\['images'\]"):
        adapter({})


def test_config_table():
    assert {k: (c.width, c.features, c.depth) for k, c in VIT_CONFIGS.items() if k != "vit_micro"} == {
        "vit_t": (192, 32, 12),
        "vit_s": (384, 64, 12),
        "vit_b": (768, 128, 12),
        "vit_l": (1024, 256, 24),
    }
