"""The experiments: branches from one trunk (W3, W4, W5, W7), the grid of windows (W2), annealing data (W1).

A trunk is trained once a seed: warm-up and constant rate, then a last phase at constant rate whose states are kept. An
arm says how a model is made from it: ``factory()`` returns a `Finish`, a schedule for the last phase and what becomes
of its states. All arms see the same batches.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from paperworks.claims.study import ExperimentConfig, Outcome, Preparation, Trial, experiment, prepared
from paperworks.kit.assets import load_wordnet
from paperworks.kit.lm import TinyGPT, TinyGPTConfig

from .corpus import Bytes, gloss_bytes, python_bytes, word_questions
from .merge import merge_checkpoints
from .schedule import WSDScheduler
from .weights import Curve, merge_weights

State = dict[str, Tensor]


class Run(ExperimentConfig):
    """Sizes of a training."""

    hidden: int = Field(96, gt=0, description="width")
    layers: int = Field(3, gt=0, description="layers")
    heads: int = Field(4, gt=0, description="attention heads")
    length: int = Field(64, gt=0, description="bytes in a sequence")
    batch: int = Field(16, gt=0, description="sequences in a batch")
    lr: float = Field(3e-3, gt=0, description="peak learning rate of AdamW (0.9, 0.95, weight decay 0.1, clip 1)")
    warmup: int = Field(50, ge=0, description="steps of the warm-up")
    stable: int = Field(550, gt=0, description="steps at the peak before the last phase")
    last: int = Field(200, gt=0, description="steps of the last phase")
    every: int = Field(5, gt=0, description="steps between two kept states of the last phase")
    validation: int = Field(65_536, gt=0, description="bytes of the held-out files that the loss is taken on")
    tuning: int = Field(0, ge=0, description="steps of fine-tuning on questions after the last phase; 0 for none")
    tuning_lr: float = Field(1e-3, gt=0, description="learning rate of the fine-tuning, falling to 0 on a cosine")
    questions: int = Field(512, gt=0, description="held-out questions")
    windows: tuple[int, int, int] = Field((40, 80, 160), description="windows of the grid, in steps")


SMOKE = Run(
    hidden=16,
    layers=1,
    heads=2,
    length=16,
    batch=4,
    warmup=2,
    stable=8,
    last=32,
    every=1,
    validation=512,
    tuning=4,
    questions=32,
    windows=(8, 16, 32),
)
CONFIG = {
    "smoke": SMOKE,
    "laptop": Run(),
    "paper": Run(
        hidden=768,
        layers=12,
        heads=12,
        length=1024,
        batch=64,
        stable=20_000,
        last=4_000,
        every=100,
        validation=1_048_576,
        tuning=1_000,
        tuning_lr=1e-4,
        windows=(800, 1600, 3200),
    ),
}


NIGHT = Run(tuning=200)


@dataclasses.dataclass(frozen=True)
class Finish:
    """How a model is made from a trunk.

    Attributes:
        decay: Curve by which the rate of the last phase falls (with an optimiser: all of it after the warm-up);
            ``None`` keeps it constant.
        merge: Makes a state from those kept in the last phase, oldest first, and their steps; ``None``: the newest.
        optimiser: For a run of its own from the first step on, beside the trunk: makes the optimiser from parameters
            and the peak rate. Its ``train()`` and ``eval()`` are called where it has them.
    """

    decay: Curve | None = None
    merge: Callable[..., State] | None = None
    optimiser: Callable[[Any, float], torch.optim.Optimizer] | None = None


def merged(
    states: Sequence[State],
    steps: Sequence[int],
    curve: Curve = "linear",
    window: int | None = None,
    count: int | None = None,
    **options: Any,
) -> State:
    """The merge of `count` equally spaced states of the last `window` steps; of all when these are not given."""
    if window is not None:
        assert count is not None
        interval = window // count
        wanted = [steps[-1] - interval * i for i in reversed(range(count))]
        at = {step: state for step, state in zip(steps, states, strict=True)}
        states, steps = [at[step] for step in wanted], wanted
    result = merge_checkpoints(list(states), merge_weights(curve, len(states) - 1, **options))
    assert isinstance(result, dict)
    return result


def adamw(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """The optimiser of the trunk."""
    return torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1)


def schedule_free(parameters: Any, lr: float) -> torch.optim.Optimizer:
    """Schedule-free AdamW (Defazio et al. 2024): it averages as it goes and needs no schedule."""
    import schedulefree

    return schedulefree.AdamWScheduleFree(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1)  # type: ignore[no-any-return]


ARMS: dict[str, Callable[[], Finish]] = {
    "constant": Finish,
    "decay_linear": partial(Finish, decay="linear"),
    "decay_1sqrt": partial(Finish, decay="1-sqrt"),
    "decay_cosine": partial(Finish, decay="cosine"),
    "full_cosine": partial(Finish, decay="cosine", optimiser=adamw),
    "merge_mean": partial(Finish, merge=merged),
    "merge_1sqrt": partial(Finish, merge=partial(merged, curve="1-sqrt")),
    "merge_cosine": partial(Finish, merge=partial(merged, curve="cosine")),
    "merge_ema": partial(Finish, merge=partial(merged, curve="ema", alpha=0.2)),
    "merge_ema_tuned": partial(Finish, merge=partial(merged, curve="ema", alpha=0.08)),
    "decay_and_merge": partial(Finish, decay="linear", merge=merged),
    "schedule_free": partial(Finish, optimiser=schedule_free),
}


@functools.lru_cache(maxsize=2)
def _corpus(name: str) -> tuple[Bytes, Bytes]:
    return python_bytes() if name == "python" else gloss_bytes(load_wordnet())


class _Data:
    """Batches of random windows, and random windows of what is held out; both are the same for all arms of a seed."""

    def __init__(self, corpus: str, c: Run, entropy: int, held_out_entropy: int = 0) -> None:
        train, held_out = _corpus(corpus)
        self.c, self._train, self._rng = c, torch.from_numpy(train.copy()), np.random.default_rng(entropy)
        pieces = len(held_out) // c.length
        chosen = np.random.default_rng(held_out_entropy).permutation(pieces)[: c.validation // c.length]
        table = held_out[: pieces * c.length].reshape(pieces, c.length)
        self.validation = torch.from_numpy(table[np.sort(chosen)].astype(np.int64))

    def batches(self) -> Iterator[Tensor]:
        while True:
            starts = torch.from_numpy(self._rng.integers(0, len(self._train) - self.c.length, self.c.batch))
            yield self._train[starts[:, None] + torch.arange(self.c.length)].long()

    @torch.no_grad()
    def loss(self, model: nn.Module) -> float:
        """Nats a byte on the held-out bytes."""
        model.eval()
        parts = [float(model(input_ids=x, labels=x).loss) * len(x) for x in self.validation.split(128)]
        model.train()
        return sum(parts) / len(self.validation)


def _model(c: Run) -> TinyGPT:
    shape = TinyGPTConfig(
        vocab_size=256, hidden_size=c.hidden, intermediate_size=8 * c.hidden // 3, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, max_position_embeddings=c.length,
    )  # fmt: skip
    return TinyGPT(shape)


def _copy(model: nn.Module) -> State:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def _train(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    schedule: WSDScheduler | None,
    batches: Iterator[Tensor],
    steps: range,
    keep: int = 0,
    tell: Callable[[int], None] = lambda step: None,
) -> tuple[list[State], list[int]]:
    """Train over `steps`, keeping the state every `keep` steps."""
    states: list[State] = []
    kept: list[int] = []
    for step in steps:
        x = next(batches)
        optimiser.zero_grad(set_to_none=True)
        model(input_ids=x, labels=x).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if schedule is not None:
            schedule.step()
        if keep and (step + 1 - steps.start) % keep == 0:
            states.append(_copy(model))
            kept.append(step + 1)
        tell(step)
    return states, kept


def _trunk(p: Preparation, last: str) -> None:
    """Warm-up and stable phase on Python sources; then the last phase at constant rate on `last`."""
    c: Run = p.config
    entropy = {name: int(p.rng(name).integers(2**62)) for name in ("batches", "last", "held out", "questions")}
    with p.seeded("init"):
        model = _model(c)
    begin = _copy(model)
    optimiser = adamw(model.parameters(), c.lr)
    schedule = WSDScheduler(optimiser, c.warmup, c.stable + c.last)
    middle = c.warmup + c.stable
    _train(model, optimiser, schedule, _Data("python", c, entropy["batches"]).batches(), range(middle))
    torch.save({"begin": begin, "model": _copy(model), "optimiser": optimiser.state_dict()}, p.folder / "middle.pt")
    batches = _Data(last, c, entropy["last"]).batches()
    states, steps = _train(model, optimiser, schedule, batches, range(middle, middle + c.last), c.every)
    torch.save({"states": states, "steps": steps}, p.folder / "last.pt")
    (p.folder / "entropy.json").write_text(json.dumps(entropy))


@prepared("trunk", scope="seed", version=2, timeout=900, config=CONFIG)
def trunk(p: Preparation) -> None:
    """The run at constant rate, whose last phase goes on with the same data."""
    _trunk(p, "python")


@prepared("annealed_trunk", scope="seed", version=2, timeout=900, config={**CONFIG, "overnight": NIGHT})
def annealed_trunk(p: Preparation) -> None:
    """The run at constant rate, whose last phase changes to WordNet's glosses."""
    _trunk(p, "glosses")


def _finish(trial: Trial[Run], folder: Path, last: str) -> tuple[TinyGPT, float]:
    """One arm's model, and its held-out loss in nats a byte."""
    c = trial.config
    finish: Finish = trial.build()
    entropy = json.loads((folder / "entropy.json").read_text())
    phase = _Data(last, c, entropy["last"], entropy["held out"])
    middle = c.warmup + c.stable
    model = _model(c)
    if finish.decay is None and finish.optimiser is None:
        kept = torch.load(folder / "last.pt", weights_only=True)
        states, steps = kept["states"], kept["steps"]
        _load(model, states[-1] if finish.merge is None else finish.merge(states, steps))
        return model, phase.loss(model)
    saved = torch.load(folder / "middle.pt", weights_only=True)
    steps_left = range(middle, middle + c.last)

    def tell(step: int) -> None:
        trial.progress(step + 1, steps_left.stop)

    if finish.optimiser is not None:
        _load(model, saved["begin"])
        optimiser = finish.optimiser(model.parameters(), c.lr)
        falling = 0 if finish.decay is None else c.stable + c.last
        schedule = WSDScheduler(optimiser, c.warmup, c.stable + c.last - falling, falling, finish.decay or "linear")
        getattr(optimiser, "train", lambda: None)()
        _train(model, optimiser, schedule, _Data("python", c, entropy["batches"]).batches(), range(middle), tell=tell)
    else:
        _load(model, saved["model"])
        optimiser = adamw(model.parameters(), c.lr)
        optimiser.load_state_dict(saved["optimiser"])
        for group in optimiser.param_groups:
            group["lr"] = group["initial_lr"] = c.lr
        assert finish.decay is not None
        schedule = WSDScheduler(optimiser, 0, 0, c.last, finish.decay)
    states, steps = _train(model, optimiser, schedule, phase.batches(), steps_left, c.every, tell)
    getattr(optimiser, "eval", lambda: None)()
    if finish.merge is not None:
        _load(model, finish.merge(states, steps))
    return model, phase.loss(model)


def _load(model: nn.Module, state: State) -> None:
    """Put parameters in, in place: the output layer is tied to the embedding, and the optimiser holds them."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(state[name])


@functools.lru_cache(maxsize=2)
def _questions(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    train, train_labels, test, test_labels = map(torch.from_numpy, word_questions(load_wordnet(), length))
    return train, train_labels, test, test_labels


def _fine_tune(model: TinyGPT, c: Run, entropy: int) -> tuple[float, float]:
    """Train on questions about words; nats a byte of the answers to held-out ones, before and after."""
    train, train_labels, test, test_labels = _questions(c.length)
    rng = np.random.default_rng(entropy)
    chosen = torch.from_numpy(rng.permutation(len(test))[: c.questions])

    @torch.no_grad()
    def loss() -> float:
        model.eval()
        total = sum(float(model(input_ids=test[i], labels=test_labels[i]).loss) * len(i) for i in chosen.split(128))
        model.train()
        return total / len(chosen)

    before = loss()
    optimiser = adamw(model.parameters(), c.tuning_lr)
    schedule = WSDScheduler(optimiser, 0, 0, max(c.tuning, 1), "cosine")
    for _ in range(c.tuning):
        rows = torch.from_numpy(rng.integers(0, len(train), c.batch))
        optimiser.zero_grad(set_to_none=True)
        model(input_ids=train[rows], labels=train_labels[rows]).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return before, loss()


@experiment("branches", config=CONFIG, arms=ARMS, prepared=("trunk",))
def branches(trial: Trial[Run]) -> Outcome:
    """One arm's loss after the last phase."""
    return Outcome({"loss": _finish(trial, trial.prepared("trunk"), "python")[1]})


@experiment(
    "anneal",
    config={**CONFIG, "overnight": NIGHT},
    arms={k: v for k, v in ARMS.items() if k not in ("schedule_free", "full_cosine")},
    prepared=("annealed_trunk",),
)
def anneal(trial: Trial[Run]) -> Outcome:
    """One arm's loss on held-out glosses after a last phase on glosses, and on questions after fine-tuning."""
    folder = trial.prepared("annealed_trunk")
    model, loss = _finish(trial, folder, "glosses")
    untuned, tuned = _fine_tune(model, trial.config, json.loads((folder / "entropy.json").read_text())["questions"])
    return Outcome({"loss": loss, "tuned": tuned, "learnt": untuned - tuned})


@experiment(
    "grid",
    config=CONFIG,
    arms={
        "merge_mean": partial(Finish, merge=merged),
        "merge_1sqrt": partial(Finish, merge=partial(merged, curve="1-sqrt")),
    },
    prepared=("trunk",),
)
def grid(trial: Trial[Run]) -> Iterator[tuple[Any, Outcome]]:
    """Merges of 2, 4 or 8 states over each window, at equal distances."""
    c = trial.config
    folder = trial.prepared("trunk")
    kept = torch.load(folder / "last.pt", weights_only=True)
    data = _Data("python", c, 0, json.loads((folder / "entropy.json").read_text())["held out"])
    model = _model(c)
    windows = dict(zip(("short", "middle", "long"), c.windows, strict=True))
    for cell in trial.cells:
        finish: Finish = trial.build(cell=cell)
        assert finish.merge is not None
        window = windows[str(cell.level["window"])]
        _load(model, finish.merge(kept["states"], kept["steps"], window=window, count=int(cell.level["count"])))
        yield cell, Outcome({"loss": data.loss(model)})
