"""The experiments: distributions of a real model (J1, J6), stale samples (J2, J3, J5) and two models (J4).

What differs between arms is in their factories alone. An arm of `logits` is called as ``factory(policy, text)`` and
returns the actor: a function from token ids (batch, tokens) to logits (batch, tokens, vocabulary). An arm of the others
is called as ``factory()`` and returns a loss with the interface of `jackpot_loss`; its attribute `fresh`, where it has
one, asks for new samples before every update.
"""

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from paperworks.claims.study import Cell, ExperimentConfig, Outcome, Preparation, Trial, experiment, prepared
from paperworks.kit.assets import load_wordnet
from paperworks.kit.lm import Sums, TinyGPT, TinyGPTConfig, character_tokenizer, load_smollm2
from paperworks.kit.lm.loading import no_progress_bar

from .actors import drop_layers_, quantise_
from .losses import LossOutput, group_advantages, jackpot_loss
from .obrs import (
    full_topk,
    kl_divergence,
    obrs_accept_prob,
    obrs_log_density,
    obrs_normalizer,
    obrs_topk_normalizer,
)
from .two_models import distillation_loss, two_model_loss

TOKENIZER = character_tokenizer(Sums.alphabet)
EOS = TOKENIZER.eos_token_id
TOPS = (5, 20, 50)
STALE_RATE = 0.001  # about a twentieth of the samples is rejected then, as in the paper; at 0.02 it is half

# --- distributions of a language model -----------------------------------------------------------------------------

Actor = Callable[[Tensor], Tensor]


class Logits(ExperimentConfig):
    """Sizes of the experiment on distributions."""

    model: str = Field("smollm2", description="smollm2, or tiny: a random model of 50 tokens on random text")
    texts: int = Field(8, gt=0, description="texts of WordNet glosses in one seed")
    length: int = Field(64, gt=0, description="tokens of a text")
    positions: int = Field(32, gt=0, description="last positions of each text that are measured")
    draws: int = Field(20, gt=0, description="tokens drawn at each position for kappa")
    acceptance: float = Field(0.93, gt=0, lt=1, description="mean acceptance for which the budget is solved (J1b)")


def stale(policy: Any, text: Tensor) -> Actor:
    """The policy after four steps of SGD on other text; `text` is of shape (batch, tokens)."""
    model = copy.deepcopy(policy).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=STALE_RATE)
    for rows in text.split(max(1, len(text) // 4)):
        logp = model(input_ids=rows).logits[:, :-1].log_softmax(-1)
        (-logp.gather(-1, rows[:, 1:, None]).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return _reads(model.eval())


def int4(policy: Any, text: Tensor) -> Actor:
    """The policy with weights of 4 bits, a scale for each row."""
    return _reads(quantise_(copy.deepcopy(policy), 4))


def layer_dropped(policy: Any, text: Tensor) -> Actor:
    """The policy without about an eighth of its blocks (4 of 30), spread over its middle."""
    depth = len(policy.model.layers)
    count = max(1, round(depth / 7.5))
    places = [round((i + 1) * depth / (count + 1)) for i in range(count)]
    return _reads(drop_layers_(copy.deepcopy(policy), places))


def temperature(policy: Any, text: Tensor) -> Actor:
    """The policy with logits divided by 1.1."""
    return lambda ids: policy(input_ids=ids).logits / 1.1


def unchanged(policy: Any, text: Tensor) -> Actor:
    """The policy itself: no shift, for which nothing can be gained."""
    return _reads(policy)


def _reads(model: nn.Module) -> Actor:
    return lambda ids: model(input_ids=ids).logits


@functools.cache
def _glosses() -> tuple[str, ...]:
    with (load_wordnet() / "data.noun").open(encoding="utf-8") as file:
        return tuple(line.split(" | ")[1].strip() for line in file if line[0] != " " and " | " in line)


def _texts(c: Logits, rng: np.random.Generator, count: int, tokenizer: Any) -> Tensor:
    """Token ids (count, length) of glosses one after another."""
    rows = []
    for _ in range(count):
        ids: list[int] = []
        while len(ids) < c.length:
            ids += tokenizer(f"{_glosses()[int(rng.integers(len(_glosses())))]}\n")["input_ids"]
        rows.append(ids[: c.length])
    return torch.tensor(rows)


def _policy(trial: Trial[Logits], cell: Cell) -> tuple[Any, Tensor, Tensor]:
    """The policy, the texts that are measured and others for the actor to learn from."""
    c = trial.config
    rng = trial.rng("text", cell)
    if c.model == "smollm2":
        model, tokenizer = load_smollm2()
        return model, _texts(c, rng, c.texts, tokenizer), _texts(c, rng, 4, tokenizer)
    with trial.seeded("model", cell):
        shape = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
        model = TinyGPT(TinyGPTConfig(**shape, num_hidden_layers=4, initializer_range=0.3)).eval()
    ids = torch.from_numpy(rng.integers(50, size=(c.texts + 4, c.length)))
    return model, ids[: c.texts], ids[c.texts :]


@experiment(
    "logits",
    config={"smoke": Logits(model="tiny", texts=4, length=16, positions=8, draws=64), "laptop": Logits()},
    arms={"stale": stale, "int4": int4, "layer_dropped": layer_dropped, "temperature": temperature,
          "unchanged": unchanged},
)  # fmt: skip
def logits(trial: Trial[Logits]) -> Iterator[tuple[Cell, Outcome]]:
    """Compare whole distributions of policy and actor at every position, before rejection and after."""
    c = trial.config
    policy, ids, other = _policy(trial, trial.cells[0])

    def distribution(logits: Tensor) -> Tensor:  # (positions, vocabulary), of the token after each position
        return logits[:, -c.positions - 1 : -1].flatten(0, 1).float().log_softmax(-1)

    with torch.no_grad():
        p = distribution(policy(input_ids=ids).logits)
    arms = dict.fromkeys(cell.arm for cell in trial.cells)
    for cells in ([cell for cell in trial.cells if cell.arm == arm] for arm in arms):
        actor = trial.build(policy, other, cell=cells[0])
        with torch.no_grad():
            q = distribution(actor(ids))
        del actor
        drawn = torch.multinomial(q.exp(), c.draws, replacement=True, generator=trial.generator("draws", cells[0]))
        chance = torch.rand(drawn.shape, generator=trial.generator("mask", cells[0]))
        before = kl_divergence(p, q).double().mean().item()
        solved = _log_ratio_at(p, q, c.acceptance, before)
        tops = {k: full_topk(p, q, min(k, p.shape[-1] // 4)) for k in TOPS}
        for i, cell in enumerate(cells):
            trial.progress(i, len(cells))
            lam = float(cell.level["lam"])
            z = obrs_normalizer(p, q, lam)
            after = kl_divergence(p, obrs_log_density(p, q, lam)).clamp(min=0).double().mean().item()
            accept = obrs_accept_prob(p.gather(-1, drawn), q.gather(-1, drawn), lam)
            share = (chance < accept).double().mean().item()
            metrics = {
                "kl_before": before,
                "log_kl_ratio": _log_ratio(after, before),
                "log_kl_ratio_solved": solved,
                "acceptance": z.double().mean().item(),
                "lost": 1 - z.double().mean().item(),
            }
            for k, topk in tops.items():
                part = obrs_topk_normalizer(topk, lam).double()
                scaled = (share / part.mean() * part).clamp(max=1)
                metrics[f"error_k{k}"] = (scaled / z - 1).abs().mean().item()
                metrics[f"error_k{k}_plain"] = (part / z - 1).abs().mean().item()
                metrics[f"gain_k{k}"] = metrics[f"error_k{k}_plain"] - metrics[f"error_k{k}"]
            yield cell, Outcome(metrics=metrics)


def _log_ratio(after: float, before: float) -> float:
    """ln(after / before); divergences below a millionth of a nat are rounding, and as good as none."""
    return math.log(max(after, 1e-6) / max(before, 1e-6))


def _log_ratio_at(p: Tensor, q: Tensor, acceptance: float, before: float) -> float:
    """The ratio of divergences at the one budget at which that share of all samples is kept, by bisection."""
    low, high = -12.0, 12.0
    for _ in range(14):
        middle = (low + high) / 2
        if obrs_normalizer(p, q, math.exp(middle)).mean().item() > acceptance:
            low = middle
        else:
            high = middle
    after = kl_divergence(p, obrs_log_density(p, q, math.exp((low + high) / 2))).clamp(min=0).double().mean().item()
    return _log_ratio(after, before)


# --- reinforcement learning ----------------------------------------------------------------------------------------


class Shape(ExperimentConfig):
    """The pre-trained models of the learning experiments."""

    width: int = Field(64, gt=0, description="width of the policy and of the actor")
    layers: int = Field(2, gt=0, description="blocks of the policy; the actor has 1")
    start: float = Field(0.2, gt=0, lt=1, description="accuracy of a sampled answer at which pre-training stops")
    actor_start: float = Field(0.1, gt=0, lt=1, description="the same of the actor")
    steps: int = Field(2500, gt=0, description="most steps of pre-training")
    digits: int = Field(2, gt=0, description="digits of a summand")


def _model(layers: int, width: int) -> TinyGPT:
    return TinyGPT(
        TinyGPTConfig(
            vocab_size=len(TOKENIZER),
            hidden_size=width,
            intermediate_size=round(2.7 * width),
            num_hidden_layers=layers,
            num_attention_heads=4,
            pad_token_id=TOKENIZER.pad_token_id,
            bos_token_id=TOKENIZER.bos_token_id,
            eos_token_id=EOS,
        )
    )


def _problems(rng: np.random.Generator, part: Any, count: int, digits: int) -> tuple[Tensor, Tensor]:
    """Prompts (count, 2 digits + 2) and answers with their end (count, digits + 2) of additions."""
    problems = Sums(digits).sample(rng, part, count)
    prompts = torch.tensor([TOKENIZER.encode(p.prompt) for p in problems])
    return prompts, torch.tensor([[*TOKENIZER.encode(p.answer), EOS] for p in problems])


def _score(model: Any, prompts: Tensor, answers: Tensor) -> Tensor:
    """Log-probabilities (batch, tokens, vocabulary) at every token of the answers."""
    ids = torch.cat((prompts, answers[:, :-1]), dim=1)
    return model(input_ids=ids, use_cache=False, logits_to_keep=answers.shape[1]).logits.log_softmax(-1)


def _of(logp: Tensor, tokens: Tensor) -> Tensor:
    return logp.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def _accuracy(model: Any, problems: tuple[Tensor, Tensor]) -> float:
    """Probability that a sampled answer is right, exactly: no sampling is needed to know it."""
    return _of(_score(model, *problems), problems[1]).sum(1).exp().mean().item()


@torch.no_grad()
def _draw(model: Any, prompts: Tensor, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Answers (batch, tokens) and the log-probabilities (batch, tokens, vocabulary) that they were drawn with."""
    drawn, scores, cache, ids = [], [], None, prompts
    for _ in range(tokens):
        out = model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
        cache = out.cache
        scores.append(out.logits[:, -1].log_softmax(-1))
        ids = torch.multinomial(scores[-1].exp(), 1, generator=generator)
        drawn.append(ids)
    return torch.cat(drawn, dim=1), torch.stack(scores, dim=1)


def _until_end(answers: Tensor) -> Tensor:
    """1 at the tokens of an answer, its end included."""
    ends = answers == EOS
    return ((ends.cumsum(1) - ends.long()) == 0).float()


def _load(folder: Any) -> TinyGPT:
    with no_progress_bar():
        return TinyGPT.from_pretrained(folder).train()


def _pretrain(layers: int, c: Shape, target: float, streams: Any, name: str) -> TinyGPT:
    with streams.seeded(f"init {name}"):
        model = _model(layers, c.width)
    rng, checks = streams.rng(f"sums {name}"), _problems(streams.rng("checks"), "test", 500, c.digits)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, c.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, step / 50)
        prompts, answers = _problems(rng, "train", 128, c.digits)
        loss = -_of(_score(model, prompts, answers), answers).mean()
        _step(optimizer, loss, model)
        if step % 25 == 0 and _accuracy(model, checks) >= target:
            break
    return model.eval()


def _step(optimizer: torch.optim.Optimizer, loss: Tensor, *models: nn.Module) -> None:
    optimizer.zero_grad()
    loss.backward()
    for model in models:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


@prepared(
    "models",
    scope="seed",
    config={"smoke": Shape(width=32, start=0.2, actor_start=0.2, steps=75, digits=1), "laptop": Shape()},
)
def models(preparation: Preparation) -> None:
    """Pre-train policy and actor on additions up to their accuracies."""
    c = preparation.config
    for name, layers, target in (("policy", c.layers, c.start), ("actor", 1, c.actor_start)):
        model = _pretrain(layers, c, target, preparation, name)
        with no_progress_bar():
            model.save_pretrained(preparation.folder / name)


@prepared("starts", scope="seed", version=3, config=models.config)
def starts(preparation: Preparation) -> None:
    """Pre-train the policies of `staleness`, which has had others before."""
    c = preparation.config
    model = _pretrain(c.layers, c, c.start, preparation, "policy")
    with no_progress_bar():
        model.save_pretrained(preparation.folder / "policy")


class Recipe:
    """An arm: `jackpot_loss` with its options; `fresh` asks for new samples before every update."""

    def __init__(self, fresh: bool = False, **options: Any) -> None:
        self.fresh = fresh
        self.options = options

    def __call__(self, *args: Any, **kwargs: Any) -> LossOutput:
        """The loss; what the study hands over is overridden by the recipe's options."""
        return jackpot_loss(*args, **{**kwargs, **self.options})


def _recipe(**options: Any) -> Callable[[], Recipe]:
    return functools.partial(Recipe, **options)


class Staleness(ExperimentConfig):
    """Sizes of the staleness experiment; one learning rate for all arms."""

    collections: int = Field(6, gt=0, description="collections of samples")
    samples: int = Field(4096, gt=0, description="samples of a collection")
    batch: int = Field(32, gt=0, description="samples of an update")
    group: int = Field(8, gt=1, description="samples of a problem")
    rate: float = Field(2.5e-4, gt=0, description="learning rate of AdamW; gradients are clipped to norm 1")
    checks: int = Field(16, gt=0, description="measurements of accuracy over the run")
    test: int = Field(500, gt=0, description="test problems")
    topk: int = Field(5, gt=0, description="likeliest tokens from each side, of 20 in all")
    digits: int = Field(2, gt=0, description="digits of a summand, as the models were pre-trained on")


class _Collection:
    """Samples of one actor with rewards, handed out in batches."""

    def __init__(self, actor: Any, count: int, c: Staleness, rng: np.random.Generator, g: torch.Generator) -> None:
        prompts, answers = _problems(rng, "train", count // c.group, c.digits)
        self.prompts, right = (x.repeat_interleave(c.group, 0) for x in (prompts, answers))
        self.answers, self.logq = _draw(actor, self.prompts, c.digits + 2, g)
        rewards = (self.answers == right).all(1).float()
        self.advantages, self.mask = group_advantages(rewards, c.group), _until_end(self.answers)
        self.order = torch.randperm(count, generator=g)
        self.uniform = torch.rand(self.mask.shape, generator=g)

    def batches(self, size: int) -> Iterator[Tensor]:
        """Rows of each update, in random order."""
        yield from self.order.split(size)


def _collapsed(accuracies: Sequence[float]) -> float:
    """Whether the last four checks all lie below half of the best."""
    return float(max(accuracies[-4:]) < max(accuracies) / 2)


class _Watch:
    """Accuracy and shift over a run."""

    def __init__(self, trial: Trial[Any], model: Any) -> None:
        self.trial, self.model, c = trial, model, trial.config
        self.problems = _problems(trial.rng("test"), "test", c.test, c.digits)
        self.total = c.collections * c.samples // c.batch
        self.every = max(1, self.total // c.checks)
        self.accuracies = [_accuracy(model, self.problems)]
        trial.curve("accuracy", 0, self.accuracies[0])
        self.shifts: list[float] = []
        self.kept: list[float] = []

    def __call__(self, update: int, logq: Tensor, logp: Tensor, mask: Tensor, out: LossOutput) -> None:
        """Look after an update; log-probabilities are whole distributions before it."""
        self.shifts.append(((kl_divergence(logq, logp) * mask).sum() / mask.sum()).item())
        self.kept.append(out.metrics["acceptance"])
        if update % self.every == 0:
            self.trial.progress(update, self.total)
            self.accuracies.append(_accuracy(self.model, self.problems))
            self.trial.curve("accuracy", update, self.accuracies[-1])
            self.trial.curve("shift", update, float(np.mean(self.shifts[-self.every :])))

    def metrics(self) -> dict[str, float]:
        """What both learning experiments report."""
        a = self.accuracies
        finite = [s if math.isfinite(s) else 100.0 for s in self.shifts]
        return {
            "area": float(np.mean(a[1:])),
            "final": a[-1],
            "gain": float(np.mean(a[1:])) - a[0],
            "rise": a[-1] - a[0],
            "collapse": _collapsed(a),
            "shift": min(max(finite), 100.0),
            "acceptance": float(np.mean(self.kept)),
        }


def _asked(loss: Any, new: Tensor, logq: Tensor, group: _Collection, rows: Tensor, c: Any, **more: Any) -> LossOutput:
    """Call an arm's loss on some rows of a collection, all of it drawn from q."""
    tokens = group.answers[rows]
    q = _of(logq, tokens)
    return loss(
        _of(new, tokens),
        more.pop("logp_ref", q),
        q,
        group.advantages[rows],
        group.mask[rows],
        topk=full_topk(new.detach(), logq, c.topk),
        uniform=group.uniform[rows],
        **more,
    )


@experiment(
    "staleness",
    config={
        "smoke": Staleness(collections=2, samples=256, batch=32, rate=3e-3, checks=8, test=50, digits=1),
        "laptop": Staleness(),
    },
    arms={
        "on_policy": _recipe(fresh=True, correction="none", clip_eps=0.2),
        "off_clip": _recipe(correction="none", clip_eps=0.2),
        "no_clip": _recipe(correction="none", clip_eps=None),
        "tis": _recipe(correction="tis", clip_eps=None),
        "jackpot": _recipe(correction="jackpot", clip_eps=None),
        "jackpot_clip": _recipe(correction="jackpot", clip_eps=0.2),
    },
    prepared=("starts",),
)
def staleness(trial: Trial[Staleness]) -> Outcome:
    """Train the pre-trained policy on its own samples, which grow old within a collection."""
    c, loss = trial.config, trial.build()
    model = _load(trial.prepared("starts") / "policy")
    optimizer = torch.optim.AdamW(model.parameters(), lr=c.rate, betas=(0.9, 0.98), weight_decay=0.0)
    rng, generator = trial.rng("sums"), trial.generator("draws")
    watch, update = _Watch(trial, model), 0
    fresh = getattr(loss, "fresh", False)
    # Of fresh samples one batch is used: a row from each of about as many problems as in a batch of a large collection.
    size = c.batch * c.group if fresh else c.samples
    while update < watch.total:
        group = _Collection(model, size, c, rng, generator)
        for rows in itertools.islice(group.batches(c.batch), 1 if fresh else None):
            logp, logq = _score(model, group.prompts[rows], group.answers[rows]), group.logq[rows]
            out = _asked(loss, logp, logq, group, rows, c)
            _step(optimizer, out.loss, model)
            update += 1
            watch(update, logq, logp.detach(), group.mask[rows], out)
    return Outcome(metrics=watch.metrics())


class TwoModels(Staleness):
    """Sizes of the experiment with two models."""

    collections: int = Field(24, gt=0, description="collections of samples")
    samples: int = Field(512, gt=0, description="samples of a collection")
    batch: int = Field(64, gt=0, description="samples of an update")
    rate: float = Field(1e-4, gt=0, description="learning rate of both models")
    distill: float = Field(0.1, ge=0, description="weight of the distillation, lambda_distill")


@experiment(
    "two_models",
    config={
        "smoke": TwoModels(collections=4, samples=128, batch=32, rate=3e-3, checks=8, test=50, digits=1),
        "laptop": TwoModels(),
    },
    arms={
        "on_policy": _recipe(fresh=True, correction="none", clip_eps=0.2),
        "none_distill": _recipe(correction="none", clip_eps=None),
        "tis_distill": _recipe(correction="tis", clip_eps=None),
        "jackpot_distill": _recipe(correction="jackpot", clip_eps=None),
    },
    prepared=("models",),
)
def two_models(trial: Trial[TwoModels]) -> Outcome:
    """Train the policy on what a smaller actor draws, and the actor by its own loss and by the policy."""
    c, loss = trial.config, trial.build()
    folder = trial.prepared("models")
    policy, actor = (_load(folder / name) for name in ("policy", "actor"))
    own = getattr(loss, "fresh", False)  # then the policy draws for itself
    optimizer = torch.optim.AdamW(
        [*policy.parameters(), *actor.parameters()], lr=c.rate, betas=(0.9, 0.98), weight_decay=0.0
    )
    rng, generator = trial.rng("sums"), trial.generator("draws")
    watch, update = _Watch(trial, policy), 0
    size = c.batch if own else c.samples
    while update < watch.total:
        group = _Collection(policy if own else actor, size, c, rng, generator)
        with torch.no_grad():  # p_ref: the policy when the batch was collected
            ref = _of(_score(policy, group.prompts, group.answers), group.answers)
        for rows in group.batches(c.batch):
            prompts, answers, mask = group.prompts[rows], group.answers[rows], group.mask[rows]
            logp, logq = _score(policy, prompts, answers), group.logq[rows]
            out = _asked(loss, logp, logq, group, rows, c, logp_ref=ref[rows])
            mine = _score(actor, prompts, answers)
            distilled = distillation_loss(logp, mine, mask)
            drawn = _of(logq, answers)
            out = two_model_loss(
                out, _of(mine, answers), drawn, group.advantages[rows], mask, distilled, weight=c.distill
            )
            _step(optimizer, out.loss, policy, actor)
            update += 1
            watch(update, logq, logp.detach(), mask, out)
    return Outcome(metrics={**watch.metrics(), "actor": _accuracy(actor, watch.problems)})
