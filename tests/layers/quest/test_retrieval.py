"""The retrieval task's statistics, and the model of many runs: each run must be exactly what it would be alone."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paperworks.layers.quest.attention import NORMS
from paperworks.layers.quest.retrieval import (
    HOSTS,
    BiasedRetrieval,
    GridAdamW,
    RetrievalModel,
    RunAttention,
    key_ratio,
)

from . import reference

TASK = BiasedRetrieval()


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def answers(batch):
    return batch.tokens[torch.arange(len(batch.label)), batch.place, : TASK.features]


def test_the_label_is_the_class_of_the_answer_and_places_are_uniform():
    batch = TASK.sample(20_000, seeded())
    rows = torch.arange(20_000)
    kinds = batch.tokens[..., TASK.features :]
    assert kinds.sum(-1).eq(1).all()
    assert torch.equal(kinds[rows, batch.place].argmax(-1), batch.label)
    for drawn, values in ((batch.place, TASK.length), (batch.label, TASK.classes)):
        share = torch.bincount(drawn, minlength=values) / 20_000
        assert torch.all((share - 1 / values).abs() < 5 * math.sqrt(1 / values / 20_000))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_share_of_biased_samples(share):
    biased = TASK.sample(20_000, seeded(), share).biased.double().mean().item()
    assert abs(biased - share) <= 4 * math.sqrt(share * (1 - share) / 20_000)


def test_moments_of_distractors_and_of_both_kinds_of_answers():
    """N(0, I); N(0, 9 I); N(b, 0.1 I) with b = 3 on the last axis alone."""
    batch = TASK.sample(40_000, seeded())
    answer = answers(batch)
    other = torch.ones(40_000, TASK.length, dtype=torch.bool)
    other[torch.arange(40_000), batch.place] = False
    eye, b = torch.eye(TASK.features), torch.zeros(TASK.features)
    b[-1] = 3.0
    for drawn, mean, covariance in (
        (batch.tokens[other][:40_000, : TASK.features], torch.zeros(TASK.features), eye),
        (answer[~batch.biased], torch.zeros(TASK.features), 9 * eye),
        (answer[batch.biased], b, 0.1 * eye),
    ):
        variance, n = covariance[0, 0].item(), len(drawn)
        assert torch.all((drawn.mean(0) - mean).abs() < 5 * math.sqrt(variance / n))
        assert torch.all((torch.cov(drawn.T) - covariance).abs() < 5 * variance * math.sqrt(2 / n))


@pytest.mark.parametrize("host", HOSTS)
def test_every_host_keeps_runs_apart(host):
    """A gradient of one run's loss touches that run alone, in every parameter; and all parameters of it."""
    model = RetrievalModel(TASK, 3, RunAttention, seeded(), host)
    batch = TASK.sample(16, seeded(1))
    F.cross_entropy(model(batch.tokens)[1], batch.label).backward()
    for name, p in model.named_parameters():
        moved = p.grad.flatten(1).abs().sum(1) > 1e-12
        assert moved.tolist() == [False, True, False], name


@pytest.mark.parametrize("norm", [n for n in NORMS if n != "elliptical_quest"])
def test_the_bare_model_is_the_formula(norm):
    """One run, one sequence, against the float64 reference with the run's own weights."""
    model = RetrievalModel(TASK, 2, lambda **sizes: RunAttention(**sizes, norm=norm), seeded()).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=seeded(2), dtype=p.dtype))
    tokens = TASK.sample(2, seeded(1)).tokens.double()
    out = model(tokens)
    gains = {name: p[1, 0] for name, p in model.attention.named_parameters()}
    gains = {
        name: p if norm == "qk_hs" else p.reshape(-1) if norm == "qk_ds" else p.squeeze() for name, p in gains.items()
    }
    q, k, v = (
        (tokens[0] @ model.qkv[1] + model.qkv_bias[1]).reshape(TASK.length, 3, 2, 16).permute(1, 2, 0, 3)
    ).unbind()
    z = reference.attention(q, k, v, norm, **gains).permute(1, 0, 2).flatten(1)  # (n, heads d)
    torch.testing.assert_close(out[1, 0], z.mean(0) @ model.out[1] + model.out_bias[1, 0])


def test_initial_weights_are_xavier_for_each_projection_and_biases_zero():
    model = RetrievalModel(TASK, 50, RunAttention, seeded())
    bound = math.sqrt(6 / (18 + 32))
    assert bound * 0.99 < model.qkv.abs().max() <= bound
    assert not torch.equal(model.qkv[0], model.qkv[1])
    assert model.qkv_bias.eq(0).all()


@pytest.mark.parametrize("host", ["embedding", "layernorm"])
def test_hosts_with_a_network_before_the_attention(host):
    """Two linear layers with a ReLU between, then the plain norm: mean 0 and variance 1 of each token."""
    model = RetrievalModel(TASK, 2, RunAttention, seeded(), host).double()
    tokens = TASK.sample(3, seeded(1)).tokens.double()
    first, first_bias, second, second_bias = model.embed
    for run in range(2):
        x = (tokens @ first[run] + first_bias[run]).clamp_min(0) @ second[run] + second_bias[run]
        if host == "layernorm":
            x = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        want = (x @ model.qkv[run] + model.qkv_bias[run]).reshape(3, TASK.length, 3, 2, 16).permute(2, 0, 3, 1, 4)
        for got, expected in zip(model.project(tokens), want, strict=True):
            torch.testing.assert_close(got[run], expected)


def test_bias_free_looks_at_the_real_part_alone():
    model = RetrievalModel(TASK, 2, RunAttention, seeded(), "bias_free")
    tokens = TASK.sample(4, seeded()).tokens
    changed = tokens.clone()
    changed[..., TASK.features :] = tokens[..., TASK.features :].roll(1, -1)
    (q, k, v), (q2, k2, v2) = model.project(tokens), model.project(changed)
    assert torch.equal(q, q2)
    assert torch.equal(k, k2)
    assert not torch.equal(v, v2)
    zero = model.project(torch.zeros(1, 8, 18))
    assert zero[0].eq(0).all()


def test_key_ratio_against_a_plain_loop():
    model = RetrievalModel(TASK, 2, RunAttention, seeded())
    batch = TASK.sample(20, seeded(), 1.0)
    k = model.project(batch.tokens)[1]  # (r, b, h, n, d)
    for run in range(2):
        answer, other = [], []
        for i in range(20):
            for n in range(TASK.length):
                size = sum(k[run, i, h, n].norm().item() for h in range(2)) / 2
                (answer if n == batch.place[i] else other).append(size)
        expected = (sum(answer) / len(answer)) / (sum(other) / len(other))
        assert key_ratio(model, batch)[run].item() == pytest.approx(expected, rel=1e-5)


def test_grid_adamw_is_torch_adamw_for_each_run():
    """Matrices decay, vectors do not; 30 steps of a quadratic, three runs with their own rate and decay."""
    rates, decays = torch.tensor([0.1, 0.01, 0.05]), torch.tensor([0.0, 0.3, 0.1])
    start = torch.randn(3, 4, 5, generator=seeded()), torch.randn(3, 1, 5, generator=seeded(1))
    grid = [nn.Parameter(x.clone()) for x in start]
    optimizer = GridAdamW(grid, rates, decays)
    target = torch.randn(3, 4, 5, generator=seeded(2))

    def loss(matrix, vector, t):
        return ((matrix + vector - t) ** 2).sum()

    for _ in range(30):
        sum(loss(grid[0][r], grid[1][r], target[r]) for r in range(3)).backward()
        optimizer.step()
    for r in range(3):
        alone = [nn.Parameter(x[r].clone()) for x in start]
        groups = [{"params": alone[:1], "weight_decay": decays[r].item()}, {"params": alone[1:], "weight_decay": 0.0}]
        theirs = torch.optim.AdamW(groups, lr=rates[r].item())
        for _ in range(30):
            theirs.zero_grad()
            loss(*alone, target[r]).backward()
            theirs.step()
        for ours, expected in zip(grid, alone, strict=True):
            torch.testing.assert_close(ours[r], expected, rtol=1e-4, atol=1e-5)


def test_an_attention_of_ones_own_takes_the_place():
    """Anything that attends over (runs, batch, heads, n, d) will do."""

    class Mean(nn.Module):
        def __init__(self, runs, heads, head_dim):
            super().__init__()
            self.size = nn.Parameter(torch.ones(runs, 1, 1, 1, 1))

        def forward(self, q, k, v):
            return self.size * v.mean(-2, keepdim=True).expand_as(v)

        def logits(self, q, k):
            return 0 * (q @ k.mT)

    model = RetrievalModel(TASK, 2, Mean, seeded())
    optimizer = GridAdamW(list(model.parameters()), torch.tensor([0.0, 0.1]), torch.zeros(2))
    model(TASK.sample(4, seeded()).tokens).square().sum().backward()
    optimizer.step()
    assert model.attention.size[0].item() == 1
    assert model.attention.size[1].item() != 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: RetrievalModel(TASK, 1, RunAttention, seeded(), "deep"),
            "host='deep'; allowed are 'bare', 'embedding'",
        ),
        (
            lambda: RetrievalModel(TASK, 1, RunAttention, seeded(), heads=3),
            "width=32; allowed are multiples of heads=3",
        ),
        (
            lambda: GridAdamW([nn.Parameter(torch.ones(2, 3))], torch.ones(4), torch.ones(4)),
            r"shape \(2, 3\); allowed is a leading axis of 4 runs",
        ),
    ],
)
def test_errors_name_argument_value_and_what_is_allowed(call, words):
    with pytest.raises(ValueError, match=words):
        call()
