"""The experiments: distractors (S4), search noise (S2), effort (S3), position (S5), selection; S1, S6 at paper scale.

Subjects are readers without a model and SmolLM2, which chooses among answers by their log-probability. All arms and
levels of a seed share a corpus, and the log-probabilities of all prompts of a call are computed once.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from pydantic import Field

from paperworks.claims.study import Cell, ExperimentConfig, Outcome, Preparation, Trial, experiment, prepared
from paperworks.kit.assets import load_wordnet

from .choosers import Item, LikelihoodChooser, StringFrequency
from .contexts import place_gold
from .corpus import sample_corpus
from .documents import Corpus, Document, Question
from .facts import Fact, wordnet_facts, world_facts
from .index import NoisySearchIndex
from .judging import grade
from .readers import UNKNOWN, LeadReader, OracleReader, RecencyReader, Top1Reader, VoteReader, extract, majority

HELD = {"homonym": 0.5, "temporal": 0.5}  # classes whose four kinds of pages give four different names


def _seed(trial: Trial[Any], name: str) -> int:
    return int(trial.rng(name).integers(2**31 - 1))


def _right(question: Question, answer: str) -> bool:
    return grade(question.question, question.answer, answer, question.aliases) == "A"


class _Library:
    """A corpus with its index and every question's scores, which readers rank by."""

    def __init__(self, corpus: Corpus, noise: float = 0.0) -> None:
        self.questions = corpus.questions
        self.index = NoisySearchIndex(corpus.documents, noise=noise)
        self.scores = {q.id: self.index.scores(q.question) for q in corpus.questions}

    def ranker(self, question: Question, rng: np.random.Generator | None = None) -> Callable[..., list[Document]]:
        def rank(_text: str, documents: Sequence[Document]) -> list[Document]:
            return self.index.ranked(self.scores[question.id], self.index.places(documents), rng)

        return rank


# --- readers: more distractors (S4) ---------------------------------------------------------------


class Readers(ExperimentConfig):
    """Sizes of the experiments on readers."""

    questions: int = Field(150, gt=0, description="questions a seed")
    conflict: float = Field(0.25, ge=0, le=1, description="share of negatives that contradict the key")
    stale: float = Field(0.25, ge=0, le=1, description="share of negatives that are out of date")
    documents: int = Field(12, gt=0, description="pages in context (position)")

    def corpus(self, seed: int, negatives: int, **changes: Any) -> Corpus:
        """Draws the corpus of a seed."""
        shares = {"conflict": self.conflict, "stale": self.stale} | changes
        return sample_corpus(seed, self.questions, distractors=negatives, **shares)


READERS: dict[str, Callable[..., Any]] = {
    "bm25_top1": Top1Reader,
    "recency": RecencyReader,
    "vote": partial(VoteReader, among=3),
    "vote_order": partial(VoteReader, among=3, ties="order"),
    "lead": LeadReader,
    "oracle": OracleReader,
}


def _readers(*names: str) -> dict[str, Callable[..., Any]]:
    return {name: READERS[name] for name in names}


def _accuracy(library: _Library, reader: Any, contexts: dict[str, list[Document]]) -> float:
    right = [_right(q, reader(q, contexts[q.id], library.ranker(q))) for q in library.questions]
    return round(float(np.mean(right)), 4)


@experiment(
    "distractors",
    config={"smoke": Readers(questions=16), "laptop": Readers()},
    arms=_readers("bm25_top1", "recency", "vote", "lead", "oracle"),
)
def distractors(trial: Trial[Readers]) -> Iterator[tuple[Cell, Outcome]]:
    """Answer from k documents; those of a smaller k are among those of a larger one."""
    most = max(int(cell.level["k"]) for cell in trial.cells)
    library = _Library(trial.config.corpus(_seed(trial, "corpus"), most - 1))
    for i, cell in enumerate(trial.cells):
        trial.progress(i, len(trial.cells))
        order = trial.rng("order")
        contexts = {q.id: place_gold(q, int(cell.level["k"]), rng=order) for q in library.questions}
        words = float(np.mean([sum(len(page.text.split()) for page in pages) for pages in contexts.values()]))
        yield cell, Outcome({"acc": _accuracy(library, trial.build(cell=cell), contexts), "words": round(words, 1)})


# --- readers: where the gold page stands (S5) ---------------------------------------------------------------

PLACES = {"first": 0.0, "middle": 0.5, "last": 1.0}


@experiment(
    "position",
    config={"smoke": Readers(questions=16), "laptop": Readers()},
    arms=_readers("bm25_top1", "vote", "vote_order", "lead", "oracle"),
)
def position(trial: Trial[Readers]) -> Iterator[tuple[Cell, Outcome]]:
    """Answer from the same documents with the gold page first, in the middle or last."""
    c = trial.config
    library = _Library(c.corpus(_seed(trial, "corpus"), c.documents - 1))
    for i, cell in enumerate(trial.cells):
        trial.progress(i, len(trial.cells))
        order, share = trial.rng("order"), PLACES[str(cell.level["position"])]
        contexts = {q.id: place_gold(q, c.documents, share, rng=order) for q in library.questions}
        yield cell, Outcome({"acc": _accuracy(library, trial.build(cell=cell), contexts)})


# --- readers: more samples and deeper reading (S3) ---------------------------------------------------------------


class Effort(Readers):
    """Sizes of the effort experiment."""

    negatives: int = Field(26, gt=0, description="hard negatives of a question")
    support: int = Field(3, ge=0, description="further pages that state the key")
    noise: float = Field(0.2, ge=0, description="noise of a retrieval, in units of the spread of scores")


def first_answer(answers: Sequence[str]) -> str:
    """Takes the first sample, however many there are: the baseline that more samples cannot change."""
    return answers[0] or UNKNOWN


@experiment(
    "effort",
    config={"smoke": Effort(questions=16), "laptop": Effort()},
    arms={"vote": lambda: majority, "single": lambda: first_answer},
)
def effort(trial: Trial[Effort]) -> Iterator[tuple[Cell, Outcome]]:
    """Retrieve n times with independent noise, read `depth` pages each time by majority, and combine the answers."""
    c = trial.config
    most = max(int(cell.level["n"]) for cell in trial.cells)
    for condition in dict.fromkeys(cell.level["condition"] for cell in trial.cells):
        shares = {"conflict": 0.0, "stale": 0.0} if condition == "clean" else {}
        corpus = c.corpus(_seed(trial, "corpus"), c.negatives, support=c.support, **shares)
        library = _Library(corpus, c.noise)
        rng = trial.rng(f"noise {condition}")
        read: dict[str, list[list[str]]] = {}  # for each question and retrieval what its pages say, best first
        for question in library.questions:
            assert question.gold is not None
            pages = [question.gold, *question.support, *question.negatives]
            says = {page.id: extract(question.question, page.text) for page in pages}
            rank = library.ranker(question, rng)
            read[question.id] = [[says[page.id] for page in rank("", pages)] for _ in range(most)]
        for cell in trial.cells:
            if cell.level["condition"] != condition:
                continue
            n, depth, combine = int(cell.level["n"]), int(cell.level["depth"]), trial.build(cell=cell)
            right = [
                _right(q, combine([majority(sample[:depth]) for sample in read[q.id][:n]])) for q in library.questions
            ]
            yield cell, Outcome({"acc": round(float(np.mean(right)), 4)})


# --- readers: a set that one reader fails (selection) ---------------------------------------------------------------


class Selection(Readers):
    """Sizes of the selection experiment."""

    runs: int = Field(10, gt=0, description="tries that reader A must all fail for a question to be kept")
    noise: float = Field(0.3, ge=0, description="noise of a retrieval, in units of the spread of scores")


@experiment(
    "selection",
    config={"smoke": Selection(questions=30, runs=4), "laptop": Selection()},
    arms=_readers("bm25_top1", "recency", "vote", "lead", "oracle"),
)
def selection(trial: Trial[Selection]) -> Iterator[tuple[Cell, Outcome]]:
    """Keep what reader A (BM25's best page) fails in every noisy run, and try reader B once on both parts.

    Where B is of A's kind, its run is A's next one.
    """
    c = trial.config
    library = _Library(c.corpus(_seed(trial, "corpus"), c.documents - 1), c.noise)
    tries, order = trial.rng("runs of A"), trial.rng("order")
    contexts = {q.id: place_gold(q, c.documents, rng=order) for q in library.questions}
    reader = Top1Reader()
    kept = np.array(
        [
            not any(_right(q, reader(q, contexts[q.id], library.ranker(q, tries))) for _ in range(c.runs))
            for q in library.questions
        ]
    )
    for cell in trial.cells:
        other, rng = trial.build(cell=cell), trial.rng("run of B")
        right = np.array([_right(q, other(q, contexts[q.id], library.ranker(q, rng))) for q in library.questions])
        on = {name: float(right[rows].mean()) if rows.any() else 0.0 for name, rows in (("k", kept), ("r", ~kept))}
        metrics = {"kept": kept.mean(), "acc_kept": on["k"], "acc_rejected": on["r"], "gap": on["k"] - on["r"]}
        yield cell, Outcome({name: round(float(value), 4) for name, value in metrics.items()})


# --- SmolLM2 ---------------------------------------------------------------


class Subject(ExperimentConfig):
    """The language model, and sizes of the experiments on it."""

    model: str = Field("smollm2", description="smollm2, or 'tiny', an untrained model that only shows that all runs")
    questions: int = Field(20, gt=0, description="questions a seed")
    conflict: float = Field(0.25, ge=0, le=1, description="share of negatives that contradict the key")
    stale: float = Field(0.25, ge=0, le=1, description="share of negatives that are out of date")
    documents: int = Field(4, gt=0, description="pages in context (position, search noise)")


@lru_cache(maxsize=1)
def _load(name: str) -> tuple[Any, Any]:
    if name == "smollm2":
        from paperworks.kit.lm import load_smollm2

        return load_smollm2()
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from paperworks.kit.lm import character_tokenizer

    tokenizer = character_tokenizer(chr(i) for i in range(32, 127))
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval(), tokenizer


class _Remembered:
    """Log-probabilities from the model, each computed once a call of the study."""

    def __init__(self, name: str, loaded: tuple[Any, Any] | None = None) -> None:
        self.name = name
        self.loaded = loaded
        self.known: dict[tuple[str, ...], list[float]] = {}

    def __call__(self, prompts: Sequence[str], options: Sequence[Sequence[str]]) -> list[list[float]]:
        from paperworks.kit.lm.likelihood import continuation_logprobs

        keys = [(prompt, *row) for prompt, row in zip(prompts, options, strict=True)]
        new = [key for key in dict.fromkeys(keys) if key not in self.known]
        if new:
            model, tokenizer = self.loaded or _load(self.name)
            sums = continuation_logprobs(model, tokenizer, [key[0] for key in new], [key[1:] for key in new])
            self.known.update(zip(new, sums, strict=True))
        return [self.known[key] for key in keys]


def _ask_about(trial: Trial[Subject], corpus: Corpus, contexts: dict[str, list[Document]]) -> list[Item]:
    """One item a question; its options stand in an order drawn for the question."""
    rng = trial.rng("options")
    items = []
    for question in corpus.questions:
        options = list(question.options.values())
        mixed = tuple(options[i] for i in rng.permutation(len(options)))
        items.append(Item(f"Question: {question.question}\nAnswer:", tuple(contexts[question.id]), mixed))
    return items


def _held_corpus(trial: Trial[Subject], negatives: int) -> Corpus:
    c = trial.config
    return sample_corpus(_seed(trial, "corpus"), c.questions, c.conflict, c.stale, negatives, mix=HELD, length="short")


def _judge_choices(corpus: Corpus, items: Sequence[Item], chosen: Sequence[int]) -> dict[str, float]:
    kinds = []
    for question, item, place in zip(corpus.questions, items, chosen, strict=True):
        kinds.append(next(kind for kind, value in question.options.items() if value == item.options[place]))
    return {
        "acc": kinds.count("gold") / len(kinds),
        "fooled": kinds.count("contradicting") / len(kinds),
    }


CHOOSERS: dict[str, Callable[..., Any]] = {
    "smollm2": partial(LikelihoodChooser, contrast=True),
    "smollm2_raw": LikelihoodChooser,
    "frequency": StringFrequency,
}
TINY = {"model": "tiny", "questions": 6}


@experiment("distractors_lm", config={"smoke": Subject(**TINY), "laptop": Subject()}, arms=CHOOSERS)
def distractors_lm(trial: Trial[Subject]) -> Iterator[tuple[Cell, Outcome]]:
    """Choose among the answers of gold, stale, homonym and contradicting pages with k short documents in context."""
    most = max(int(cell.level["k"]) for cell in trial.cells)
    corpus = _held_corpus(trial, most - 1)
    logprobs = _Remembered(trial.config.model)
    for i, cell in enumerate(trial.cells):
        trial.progress(i, len(trial.cells))
        order = trial.rng("order")
        contexts = {q.id: place_gold(q, int(cell.level["k"]), rng=order) for q in corpus.questions}
        items = _ask_about(trial, corpus, contexts)
        yield cell, Outcome(_judge_choices(corpus, items, trial.build(logprobs=logprobs, cell=cell)(items)))


@experiment("position_lm", config={"smoke": Subject(**TINY), "laptop": Subject(questions=12)}, arms=CHOOSERS)
def position_lm(trial: Trial[Subject]) -> Iterator[tuple[Cell, Outcome]]:
    """The same with four documents and the gold one first, in the middle or last."""
    corpus = _held_corpus(trial, trial.config.documents - 1)
    logprobs = _Remembered(trial.config.model)
    by_place = {}
    for place in dict.fromkeys(str(cell.level["position"]) for cell in trial.cells):
        order = trial.rng("order")
        contexts = {q.id: place_gold(q, trial.config.documents, PLACES[place], rng=order) for q in corpus.questions}
        by_place[place] = _ask_about(trial, corpus, contexts)
    for arm in dict.fromkeys(cell.arm for cell in trial.cells):
        cells = [cell for cell in trial.cells if cell.arm == arm]
        chooser = trial.build(logprobs=logprobs, cell=cells[0])
        places = [str(cell.level["position"]) for cell in cells]
        chosen = chooser([item for place in places for item in by_place[place]])  # one call: prompts share beginnings
        for i, (cell, place) in enumerate(zip(cells, places, strict=True)):
            own = chosen[i * len(corpus.questions) : (i + 1) * len(corpus.questions)]
            yield cell, Outcome(_judge_choices(corpus, by_place[place], own))


# --- SmolLM2 on real facts that it half knows (S2) ---------------------------------------------------------------


class Facts(ExperimentConfig):
    """The pool of facts and how many are kept."""

    model: str = Field("smollm2", description="who must find the facts hard")
    pool: int = Field(210, gt=0, description="facts scored closed-book")
    kept: int = Field(60, gt=0, description="facts with the smallest gap between right and best wrong value")


class Noise(Subject):
    """Sizes of the search-noise experiment."""


@prepared("facts", timeout=900, config={"smoke": Facts(model="tiny", pool=24, kept=16), "laptop": Facts()})
def facts(preparation: Preparation) -> None:
    """Scores a pool of facts in one wording and keeps those about which the model is least decided."""
    c: Facts = preparation.config
    pool = wordnet_facts(load_wordnet(), preparation.rng("pool"), c.pool)
    options = [[f" {value}" for value in (fact.value, *fact.wrong)] for fact in pool]
    sums = np.array(_Remembered(c.model)([fact.ask(0) for fact in pool], options))
    gap = sums[:, 0] - sums[:, 1:].max(axis=1)
    kept = []
    for i in np.argsort(np.abs(gap), kind="stable")[: c.kept]:
        best = [pool[i].wrong[j] for j in np.argsort(-sums[i, 1:], kind="stable")]  # the most plausible one first
        kept.append(dataclasses.asdict(dataclasses.replace(pool[i], wrong=tuple(best))))
    (preparation.folder / "facts.json").write_text(json.dumps(kept), encoding="utf-8")


_HOSTS = [
    "A travel guide says: {}",
    "From a book for schools: {}",
    "An entry in a directory reads: {}",
    "A reader writes: {}",
]


def _pages(rng: np.random.Generator, fact: Fact, conflict: float, count: int) -> tuple[Document, ...]:
    wrong = round(conflict * count)
    values = [fact.wrong[0]] * wrong + [fact.value] * (count - wrong)
    hosts, values = rng.permutation(count), [values[i] for i in rng.permutation(count)]
    return tuple(
        Document(str(i), fact.subject, _HOSTS[host % len(_HOSTS)].format(fact.state(value)))
        for i, (host, value) in enumerate(zip(hosts, values, strict=True))
    )


@experiment(
    "search_noise",
    config={"smoke": Noise(**TINY), "laptop": Noise()},
    arms={"smollm2": LikelihoodChooser, "frequency": StringFrequency},
    prepared=("facts",),
)
def search_noise(trial: Trial[Noise]) -> Iterator[tuple[Cell, Outcome]]:
    """Ask in another wording, closed-book and with four pages of which a share states one plausible wrong value."""
    c = trial.config
    raw = json.loads((trial.prepared("facts") / "facts.json").read_text(encoding="utf-8"))
    known = [Fact(**{**entry, "wrong": tuple(entry["wrong"])}) for entry in raw]
    rng = trial.rng("facts")
    drawn = [known[i] for i in rng.permutation(len(known))[: c.questions]]
    yield from _with_noise(trial, drawn, _Remembered(c.model))


def _with_noise(trial: Trial[Any], drawn: list[Fact], logprobs: _Remembered) -> Iterator[tuple[Cell, Outcome]]:
    """The protocol of S2 on some facts."""
    rng = trial.rng("options of facts")
    options = []
    for fact in drawn:
        values = (fact.value, *fact.wrong)
        options.append(tuple(values[i] for i in rng.permutation(len(values))))

    def accuracy(chooser: Any, conflict: float | None) -> float:
        stream = trial.rng("pages")
        items = [
            Item(fact.ask(1), () if conflict is None else _pages(stream, fact, conflict, trial.config.documents), own)
            for fact, own in zip(drawn, options, strict=True)
        ]
        chosen = [item.options[i] for item, i in zip(items, chooser(items), strict=True)]
        return float(np.mean([said == fact.value for said, fact in zip(chosen, drawn, strict=True)]))

    for i, cell in enumerate(trial.cells):
        trial.progress(i, len(trial.cells))
        chooser = trial.build(logprobs=logprobs, cell=cell)
        closed, acc = accuracy(chooser, None), accuracy(chooser, float(cell.level["conflict"]))
        yield cell, Outcome({"closed": closed, "acc": acc, "delta": round(acc - closed, 6)})


# --- SmolLM2 taught facts of the invented world (overnight) ----------------------------------------


class Taught(Noise):
    """Sizes of the experiment on taught facts."""

    steps: int = Field(80, gt=0, description="LoRA steps")
    batch: int = Field(8, gt=0, description="statements in a step")
    rank: int = Field(16, gt=0, description="rank of LoRA")
    rate: float = Field(2e-3, gt=0, description="learning rate of AdamW")


def _teach(trial: Trial[Taught], facts: list[Fact]) -> tuple[Any, Any]:
    """A copy of the model after LoRA steps on statements of the facts, the adapters merged."""
    import torch

    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError as error:
        raise ImportError("evaluation/sealqa's experiment 'taught' needs 'peft': pip install peft") from error
    from paperworks.kit.lm.embedding import pad_right

    c = trial.config
    model, tokenizer = _load(c.model)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    lora = LoraConfig(r=c.rank, lora_alpha=2 * c.rank, target_modules=targets, task_type="CAUSAL_LM")
    with trial.seeded("adapters"):
        adapted = get_peft_model(copy.deepcopy(model), lora)
    adapted.train()
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=c.rate)
    rng = trial.rng("lessons")
    for step in range(c.steps):
        trial.progress(step, c.steps)
        lesson = [facts[i] for i in rng.permutation(len(facts))[: c.batch]]
        ids, mask = pad_right([tokenizer(fact.state(fact.value))["input_ids"] for fact in lesson])
        loss = adapted(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return adapted.merge_and_unload().eval(), tokenizer


@experiment(
    "taught",
    config={"overnight": Taught()},
    arms={"smollm2": LikelihoodChooser, "frequency": StringFrequency},
)
def taught(trial: Trial[Taught]) -> Iterator[tuple[Cell, Outcome]]:
    """Teach facts of the invented world, then ask for them with conflicting pages, as in `search_noise`."""
    facts = world_facts(trial.rng("world"), trial.config.questions)
    loaded = _teach(trial, facts)
    yield from _with_noise(trial, facts, _Remembered(trial.config.model, loaded))


# --- the paper's own questions (S1, S6) ---------------------------------------------------------------


class Official(ExperimentConfig):
    """The official questions, asked through Inspect; it needs a network and the servers' keys."""

    judge: str = Field("openai/gpt-4o-mini", description="Inspect's name of the judge")
    limit: int = Field(254, gt=0, description="questions at most")


@dataclasses.dataclass(frozen=True)
class Served:
    """A model behind Inspect: its name and the generation settings that matter."""

    model: str
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


@experiment(
    "official",
    config={"paper": Official()},
    arms={
        "gpt5_high": partial(Served, "openai/gpt-5", {"reasoning_effort": "high"}),
        "o3_high": partial(Served, "openai/o3", {"reasoning_effort": "high"}),
        "gpt41": partial(Served, "openai/gpt-4.1"),
    },
)
def official(trial: Trial[Official]) -> Outcome:
    """Run one flavour, closed book."""
    from inspect_ai import eval as run

    from . import tasks

    served = trial.build()
    flavour = {"seal_0": tasks.seal_0, "seal_hard": tasks.seal_hard}[str(trial.level["flavour"])]
    log = run(
        flavour(judge=trial.config.judge),
        model=served.model,
        limit=trial.config.limit,
        seed=trial.seed,
        display="none",
        **served.settings,
    )[0]
    if log.status != "success" or log.results is None:
        raise RuntimeError(f"{served.model}: {log.error.message if log.error else log.status}")
    metrics = log.results.scores[0].metrics
    names = ("accuracy", "attempted", "given_attempted", "f_score")
    return Outcome({name: metrics[name].value for name in names})
