"""The experiments: biased retrieval (Q1), training stability (Q2, Q6), accuracy and robustness on digits (Q3 to Q5).

The data of the second and third are real digits; the first is synthetic by definition. What differs between arms is in
their factories alone. An arm of `biased_retrieval` is called as `factory(runs=, heads=, head_dim=)` and returns a
`RunsAttention`; an arm of the others is called as `factory(dim, heads)` and returns a module with the interface of
`nn.MultiheadAttention(dim, heads, batch_first=True)` (for `vit_stability` an instance of it, so that its logits can be
read).
"""

import itertools
import math
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn

from paperworks.claims.study import ExperimentConfig, Outcome, Trial, experiment
from paperworks.kit.assets import load_digits8x8, load_mnist5k

from .attacks import fgsm, pgd
from .corruptions import CORRUPTIONS, SEVERITIES, corrupt
from .module import QuestAttention
from .probe import AttentionProbe
from .retrieval import Batch, BiasedRetrieval, GridAdamW, RetrievalModel, RunAttention, key_ratio
from .vit import ViT


class Retrieval(ExperimentConfig):
    """Sizes of the retrieval experiment; one trial trains every pair of learning rate and weight decay."""

    steps: int = Field(600, gt=0, description="optimisation steps")
    batch: int = Field(64, gt=0, description="sequences in a step")
    rates: tuple[float, ...] = Field((3e-3, 1e-2, 3e-2), description="learning rates of the grid")
    decays: tuple[float, ...] = Field((0.0, 0.1), description="weight decays of the grid")
    width: int = Field(32, gt=0, description="width of queries, keys and values, all heads together")
    heads: int = Field(2, gt=0, description="attention heads")
    test: int = Field(2000, gt=0, description="unbiased test sequences")
    solved: float = Field(0.85, gt=0, lt=1, description="unbiased accuracy from which a run counts as a success")


@experiment(
    "biased_retrieval",
    config={
        "smoke": Retrieval(steps=12, batch=48, test=100, solved=0.35),
        "laptop": Retrieval(),
    },
    arms={norm: partial(RunAttention, norm=norm) for norm in ("none", "q", "qk", "quest")},
)
def biased_retrieval(trial: Trial[Retrieval]) -> Outcome:
    """Train the grid on fresh batches, with the biased samples in the loss or left out; test on unbiased ones."""
    c, task = trial.config, BiasedRetrieval()
    rates, decays = torch.cartesian_prod(torch.tensor(c.rates), torch.tensor(c.decays)).unbind(1)
    runs = len(rates)
    host = str(trial.level["host"])
    model = RetrievalModel(task, runs, trial.build, trial.generator("init"), host, c.width, c.heads)
    optimizer = GridAdamW(list(model.parameters()), rates, decays)
    stream = trial.generator("train")
    cue = task.sample(c.test // 2, trial.generator("cue"), biased_share=1.0)
    test = task.sample(c.test, trial.generator("test"), biased_share=0.0)

    @torch.no_grad()
    def accuracy_on(batch: Batch) -> torch.Tensor:  # (runs,)
        return (model(batch.tokens).argmax(dim=-1) == batch.label).double().mean(dim=1)

    for step in range(c.steps):
        batch = task.sample(c.batch, stream)
        weight = torch.ones(c.batch) if trial.level["cue"] == "present" else (~batch.biased).float()
        scores = model(batch.tokens)  # (runs, batch, classes)
        loss = F.cross_entropy(scores.flatten(0, 1), batch.label.repeat(runs), reduction="none").view(runs, -1)
        (loss * weight).mean(dim=1).sum().backward()  # a sum over runs: no run touches another's gradient
        optimizer.step()
        if step % 30 == 0 or step == c.steps - 1:
            trial.progress(step, c.steps)
            trial.curve("key_ratio", step, key_ratio(model, cue).mean().item())
        if step % 120 == 0 or step == c.steps - 1:
            accuracy = accuracy_on(test)
            trial.curve("acc", step, accuracy.mean().item())
            trial.curve("success", step, (accuracy >= c.solved).double().mean().item())
    accuracy = accuracy_on(test)
    for level in np.arange(0.3, 1.0, 0.02):  # the threshold of `success` is a choice: show what others would give
        trial.curve("success_at", round(float(level), 2), (accuracy >= level).double().mean().item())
    with torch.no_grad():
        q, k, _ = model.project(test.tokens)
        top = model.attention.logits(q, k).abs().flatten(1).amax(dim=1).double()
    # A run that blew up counts as one with very large logits and no preference among its keys.
    top, ratio = top.nan_to_num(nan=1e30).clamp(1e-12, 1e30), key_ratio(model, cue).nan_to_num(nan=1.0, posinf=1.0)
    return Outcome(
        metrics={
            "success": (accuracy >= c.solved).double().mean(),
            "acc": accuracy.mean(),
            "acc_biased": accuracy_on(cue).mean(),
            "key_ratio": ratio.mean(),
            "log_max_logit": top.log10().mean(),
        }
    )


class UniformAttention(nn.MultiheadAttention):
    """Every token takes the mean of all values: what attention gives when it attends to nothing in particular."""

    def forward(self, query, key, value, need_weights=False):
        """Ignore queries and keys."""
        width = self.embed_dim
        v = F.linear(value, self.in_proj_weight[2 * width :], self.in_proj_bias[2 * width :])
        return self.out_proj(v.mean(dim=1, keepdim=True).expand_as(query)), None


def _digits(trial: Trial, name: str, train: int, test: int) -> tuple[torch.Tensor, ...]:
    """Return training and test images (b, 1, h, w) within 0..1 and their labels, split anew for each seed."""
    load, top = {"mnist5k": (load_mnist5k, 255), "digits8x8": (load_digits8x8, 16)}[name]
    images, labels = load()
    order = trial.rng("split").permutation(len(images))[: train + test]
    x, y = torch.tensor(images[order] / top, dtype=torch.float32)[:, None], torch.tensor(labels[order])
    return x[:train], y[:train], x[train:], y[train:]


def _batches(count: int, size: int, steps: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield the rows of `steps` batches, each pass over the data in a new order."""
    passes = (torch.randperm(count, generator=generator).split(size) for _ in range(steps))
    return itertools.islice(itertools.chain.from_iterable(passes), steps)


def _vit(trial: Trial, images: torch.Tensor, dim: int, depth: int, heads: int) -> ViT:
    side = images.shape[-1]
    with trial.seeded("init"):
        return ViT(side, side // 4, dim=dim, depth=depth, heads=heads, attention=trial.build)


class Stability(ExperimentConfig):
    """Sizes of the stability experiment: a short training without warm-up."""

    data: str = Field("mnist5k", description="mnist5k or digits8x8")
    train: int = Field(2000, gt=0, description="training images")
    steps: int = Field(60, gt=0, description="optimisation steps")
    batch: int = Field(100, gt=0, description="images in a step")
    dim: int = Field(48, gt=0, description="width of a token")
    depth: int = Field(3, gt=0, description="blocks")
    heads: int = Field(4, gt=0, description="attention heads")
    decay: float = Field(0.05, ge=0, description="weight decay")
    early: int = Field(20, ge=0, description="step from which the growth of logits is counted")


@experiment(
    "vit_stability",
    config={
        "smoke": Stability(data="digits8x8", train=600, steps=25, early=5, batch=40, dim=32, depth=2, heads=2),
        "laptop": Stability(),
    },
    arms={norm: partial(QuestAttention, norm=norm, batch_first=True) for norm in ("none", "q", "qk_ds", "quest")},
)
def vit_stability(trial: Trial[Stability]) -> Outcome:
    """Train at one learning rate and follow what the attention of every layer does."""
    c = trial.config
    x, y, *_ = _digits(trial, c.data, c.train, 1)
    model = _vit(trial, x, c.dim, c.depth, c.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=float(trial.level["lr"]), weight_decay=c.decay)
    losses = []
    with AttentionProbe(model) as probe:
        for step, rows in enumerate(_batches(c.train, c.batch, c.steps, trial.generator("order"))):
            trial.progress(step, c.steps)
            loss = F.cross_entropy(model(x[rows]), y[rows])
            losses.append(loss.item())
            trial.curve("loss", step, losses[-1])
            trial.curve("max_logit", step, probe.max_logit(since=step))
            if step % 3 == 0:
                for name in ("mean_query", "mean_key", "entropy", "peaked"):
                    trial.curve(name, step, float(np.mean([getattr(reading, name) for reading in probe.table()])))
            if not math.isfinite(losses[-1]):
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    last = float(np.mean(losses[-10:]))
    peak = {key: [_finite(getattr(r, key)) for r in probe.readings] for key in ("max_logit", "max_query")}
    early = max(_finite(r.max_logit) for r in probe.readings if r.step <= c.early)
    return Outcome(
        metrics={
            "diverged": float(not last <= math.log(10)),
            "loss": min(last, 100.0) if math.isfinite(last) else 100.0,
            "log_max_logit": math.log10(max(peak["max_logit"])),
            "log_max_query": math.log10(max(peak["max_query"])),
            "growth": math.log10(max(peak["max_logit"]) / early),
        }
    )


def _finite(value: float) -> float:
    """A run that blew up counts as a very large number."""
    return min(max(value, 1e-12), 1e30) if math.isfinite(value) else 1e30


class Vision(ExperimentConfig):
    """Sizes of the accuracy and robustness experiment; the learning rate is one for all arms."""

    train: int = Field(2000, gt=0, description="training images, at most 1,000 of digits8x8")
    test: int = Field(1000, gt=0, description="test images, at most 797 of digits8x8")
    steps: int = Field(300, gt=0, description="optimisation steps")
    batch: int = Field(100, gt=0, description="images in a step")
    dim: int = Field(48, gt=0, description="width of a token")
    depth: int = Field(3, gt=0, description="blocks")
    heads: int = Field(4, gt=0, description="attention heads")
    rate: float = Field(3e-3, gt=0, description="largest learning rate, then a cosine to 0")
    decay: float = Field(0.05, ge=0, description="weight decay")
    weak: float = Field(0.02, gt=0, description="radius of FGSM and PGD, in units of the grey range")
    strong: float = Field(0.05, gt=0, description="radius of the stronger FGSM")
    attack_steps: int = Field(10, gt=0, description="steps of PGD")


@experiment(
    "vit_robustness",
    config={
        "smoke": Vision(train=400, test=60, steps=20, batch=40, dim=32, depth=2, heads=2, attack_steps=2),
        "laptop": Vision(),
    },
    arms={
        **{
            norm: partial(QuestAttention, norm=norm, batch_first=True)
            for norm in ("none", "qk_ds", "quest", "elliptical_quest")
        },
        "uniform": partial(UniformAttention, batch_first=True),
    },
)
def vit_robustness(trial: Trial[Vision]) -> Outcome:
    """Train once, then test clean, corrupted and attacked."""
    c, name = trial.config, str(trial.level["data"])
    train, test = (min(c.train, 1000), min(c.test, 797)) if name == "digits8x8" else (c.train, c.test)
    x, y, x_test, y_test = _digits(trial, name, train, test)
    model = _vit(trial, x, c.dim, c.depth, c.heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=c.rate, weight_decay=c.decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, c.steps)
    for step, rows in enumerate(_batches(train, c.batch, c.steps, trial.generator("order"))):
        trial.progress(step, c.steps)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 5 == 0:
            trial.curve("loss", step, loss.item())
    model.eval().requires_grad_(False)

    def right(images: torch.Tensor) -> torch.Tensor:
        return model(images).argmax(dim=-1) == y_test

    def share(hits: torch.Tensor) -> float:
        return hits.double().mean().item()

    metrics = {"clean": share(right(x_test))}
    rng, plain = trial.rng("corruptions"), x_test[:, 0].numpy()
    for kind in CORRUPTIONS:
        bad = [torch.from_numpy(corrupt(plain, kind, severity, rng))[:, None] for severity in SEVERITIES]
        metrics[kind] = float(np.mean([share(right(images)) for images in bad]))
    metrics["corrupted"] = float(np.mean([metrics[kind] for kind in CORRUPTIONS]))
    attacked = [
        right(fgsm(model, x_test, y_test, c.weak)),
        right(pgd(model, x_test, y_test, c.weak, c.attack_steps)),
        right(pgd(model, x_test, y_test, c.weak, c.attack_steps, loss="margin")),
    ]
    metrics["fgsm_weak"], metrics["pgd"], _ = map(share, attacked)
    metrics["worst"] = share(torch.stack(attacked).all(dim=0))
    metrics["fgsm_strong"] = share(right(fgsm(model, x_test, y_test, c.strong)))
    return Outcome(metrics=metrics)
