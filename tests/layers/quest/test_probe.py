"""`AttentionProbe`: its numbers against plain ones, its alarm, and that it changes nothing."""

import math

import pytest
import torch
from torch import nn

from paperworks.layers.quest.attention import NORMS, attention_logits, attention_weights
from paperworks.layers.quest.module import QuestAttention, project_heads
from paperworks.layers.quest.probe import AttentionProbe, Reading
from paperworks.layers.quest.vit import ViT

E, H, B, N = 8, 2, 3, 5


def layer(norm):
    torch.manual_seed(0)
    if norm == "torch":
        return nn.MultiheadAttention(E, H, batch_first=True)
    return QuestAttention(E, H, batch_first=True, norm=norm)


class Sigmoidal(nn.MultiheadAttention):
    """A layer of somebody's own, which does not tell its logits."""

    def forward(self, query, key, value, **_):
        q, k, v = project_heads(self, query, key, value)
        return self.out_proj((self.scores(q, k).sigmoid() @ v).transpose(1, 2).flatten(2)), None

    def scores(self, q, k):
        return q @ k.mT / 3


class Telling(Sigmoidal):
    def logits(self, q, k, v):
        return self.scores(q, k)


def test_a_layer_of_ones_own_is_read_by_its_logits():
    torch.manual_seed(0)
    model, x = Telling(E, H, batch_first=True), torch.randn(B, N, E)
    with AttentionProbe(model) as probe:
        model(x, x, x)
    expected = model.scores(*project_heads(model, x, x, x)[:2])
    (reading,) = probe.readings
    assert reading.max_logit == pytest.approx(expected.abs().max().item(), rel=1e-6)
    assert reading.entropy == pytest.approx(torch.special.entr(expected.softmax(-1)).sum(-1).mean().item(), rel=1e-5)


@pytest.mark.parametrize("norm", ["torch", *NORMS])
def test_a_reading_against_plain_numbers(norm):
    model = layer(norm)
    model.requires_grad_(False)
    x = 3 * torch.randn(B, N, E)
    with AttentionProbe(model) as probe:
        model(x, x, x)
    (reading,) = probe.readings
    q, k, _ = project_heads(model, x, x, x)
    form = {"norm": "none"} if norm == "torch" else {"norm": norm, "q_gain": model.q_gain, "k_gain": model.k_gain}
    logits, weights = attention_logits(q, k, **form), attention_weights(q, k, **form)
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1).mean().item()
    peaked = (weights.max(-1).values > 0.99).float().mean().item()
    sizes = [x.norm(dim=-1) for x in (q, k)]
    expected = [logits.abs().max(), *(f(s) for s in sizes for f in (torch.mean, torch.max)), entropy, peaked]
    assert reading[:2] == ("(model)", 0)
    assert list(reading[2:]) == pytest.approx([float(v) for v in expected], rel=1e-5)


def test_masks_are_left_out_of_logits_and_entropy():
    """A blocked key with a huge logit is not seen; a row that may attend to nothing does not count."""
    model = layer("none")
    x = torch.randn(B, N, E)
    x[:, -1] *= 1e4
    block = torch.zeros(N, N, dtype=torch.bool)
    block[:, -1] = True
    block[-1] = True
    with AttentionProbe(model) as probe:
        model(x, x, x, attn_mask=block)
        model(x[:, :-1], x[:, :-1], x[:, :-1])
    masked, short = probe.readings
    assert masked.max_logit == pytest.approx(short.max_logit, rel=1e-5)
    assert masked.entropy == pytest.approx(short.entropy, rel=1e-5)
    assert masked.peaked == pytest.approx(short.peaked)


def test_extremes_of_entropy_and_peaked():
    model = layer("none")
    x = torch.randn(B, N, E)
    with torch.no_grad(), AttentionProbe(model) as probe:
        model.in_proj_weight[:E] = 0
        model(x, x, x)
        model.in_proj_weight[: 2 * E] = 1e3 * torch.eye(E).repeat(2, 1)
        model(x, x, x)
    flat, sharp = probe.readings
    assert flat.entropy == pytest.approx(math.log(N), rel=1e-5)
    assert flat.peaked == 0
    assert sharp.entropy == pytest.approx(0, abs=1e-5)
    assert sharp.peaked == 1


def test_nothing_in_the_results_changes_and_hooks_are_removed():
    torch.manual_seed(0)
    model = ViT(8, 4, dim=16, depth=2, heads=2, norm="elliptical_quest")
    x = torch.rand(2, 1, 8, 8)
    alone = model(x)
    alone.sum().backward()
    before = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    with AttentionProbe(model) as probe:
        watched = model(x)
        watched.sum().backward()
    assert torch.equal(alone, watched)
    assert all(map(torch.equal, before, (p.grad for p in model.parameters() if p.grad is not None)))
    model(x)
    assert len(probe.readings) == 2
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_steps_every_table_and_print():
    model = ViT(8, 4, dim=16, depth=2, heads=2)
    with AttentionProbe(model, every=3) as probe:
        for _ in range(7):
            model(torch.rand(1, 1, 8, 8))
    assert [(r.layer, r.step) for r in probe.readings] == [
        (f"blocks.{b}.attention", step) for step in (0, 3, 6) for b in (0, 1)
    ]
    assert probe.table() == probe.readings[-2:]
    assert probe.max_logit(since=6) == max(r.max_logit for r in probe.readings[-2:])
    lines = str(probe).splitlines()
    assert lines[0].split() == list(Reading._fields)
    assert lines[1].split()[:2] == ["blocks.0.attention", "6"]


def test_layers_of_torch_are_read_in_evaluation_too():
    """nn.TransformerEncoderLayer skips its attention module in evaluation, unless something listens."""
    block = nn.TransformerEncoderLayer(E, H, 16, batch_first=True).eval()
    with torch.no_grad(), AttentionProbe(block) as probe:
        block(torch.randn(B, N, E))
    assert [r.layer for r in probe.readings] == ["self_attn"]


def test_sequence_first_cross_attention_without_a_batch():
    model = QuestAttention(E, H, kdim=6, vdim=4)
    q, k, v = torch.randn(N, B, E), torch.randn(7, B, 6), torch.randn(7, B, 4)
    with AttentionProbe(model) as probe:
        model(q, k, v)
        for b in range(B):
            model(q[:, b], key=k[:, b], value=v[:, b])
    whole, *parts = probe.readings
    assert whole.max_logit == pytest.approx(max(r.max_logit for r in parts), rel=1e-5)
    assert whole.entropy == pytest.approx(sum(r.entropy for r in parts) / B, rel=1e-5)


def history(values):
    probe = AttentionProbe(layer("none"))
    probe.readings = [Reading("a", step, value, *[0.0] * 6) for step, value in values]
    return probe


@pytest.mark.parametrize(
    ("values", "alarm"),
    [
        ([(0, 1.0), (50, 3.0), (100, 10.0)], ("a", 0, 100, 1.0, 10.0)),
        ([(0, 1.0), (50, 3.0), (101, 10.0)], None),  # too slow: 100 steps earlier it was 3 already
        ([(0, 1.0), (50, 3.0), (100, 9.9)], None),
        ([(0, 5.0), (10, 0.5), (20, 6.0), (30, 100.0)], ("a", 10, 20, 0.5, 6.0)),
        ([(0, 1.0)], None),
    ],
)
def test_alarm_is_a_growth_by_ten_within_a_hundred_steps(values, alarm):
    assert [tuple(a) for a in history(values).alarms()] == ([alarm] if alarm else [])


def test_alarm_in_a_real_run():
    """Keys that grow by a tenth each step trip the alarm of plain attention; quest does not see them."""
    for norm, expected in (("none", 1), ("quest", 0)):
        model = layer(norm)
        x = torch.randn(B, N, E)
        with torch.no_grad(), AttentionProbe(model) as probe:
            for _ in range(40):
                model(x, x, x)
                model.in_proj_weight[E : 2 * E] *= 1.1
        assert len(probe.alarms()) == expected


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: AttentionProbe(nn.Linear(2, 2)), "model=Linear has no layer that is an nn.MultiheadAttention"),
        (
            lambda: AttentionProbe(nn.Sequential(Sigmoidal(4, 2))),
            "layer 0 of model=Sequential has a forward of its own",
        ),
        (lambda: AttentionProbe(layer("none"), every=0), "every=0; allowed are 1, 2"),
    ],
)
def test_errors(call, words):
    with pytest.raises(ValueError, match=words):
        call()
