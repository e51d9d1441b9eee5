"""Inspect tasks: ``inspect eval paperworks/sealqa_sample --model paperworks/smollm2`` runs without a network."""

from __future__ import annotations

import datetime
from typing import Any, Literal

import numpy as np
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Scorer
from inspect_ai.solver import Solver

from .contexts import Order, place_gold
from .corpus import sample_corpus
from .documents import Document, Question, digest
from .index import NoisySearchIndex
from .official import REPOSITORY, REVISION, Flavour, load
from .scorers import rule_judge, simpleqa_judge
from .solvers import choose_by_likelihood, fresh_prompt, read_documents, search_tool

Search = Literal["none", "freshprompt", "tool", "oracle"]
SEARCHES = ("none", "freshprompt", "tool", "oracle")


def with_date(question: Question, as_of: str | None = None) -> str:
    """The question with the date for which it is asked, unless its answer never changes or it names one.

    Args:
        question: The question.
        as_of: A date in words; the effective year, or today, when not given.
    """
    if question.freshness == "never" or "as of" in question.question.lower() or question.metadata.get("class"):
        return question.question
    when = as_of or (str(question.effective_year) if question.effective_year else f"{datetime.date.today():%d %B %Y}")
    return f"{question.question} (as of {when})"


def _sample(question: Question, pages: list[Document], corpus: str, as_of: str | None = None, **more: Any) -> Sample:
    asked = with_date(question, as_of)
    place = next((i for i, page in enumerate(pages) if page.kind == "gold"), None)
    return Sample(
        id=question.id,
        input=asked,
        target=question.answer,
        metadata={
            "question": question.question,
            "asked": asked,
            "aliases": list(question.aliases),
            "question_types": list(question.question_types),
            "freshness": question.freshness,
            "effective_year": question.effective_year,
            "topic": question.topic,
            "conflicting": question.conflicting,
            "options": dict(question.options),
            "documents": [page.to_dict() for page in pages],
            "gold_position": None if place is None else place / max(1, len(pages) - 1),
            "corpus_digest": corpus,
            "canary": question.metadata.get("canary"),
            **more,
        },
    )


def _scorer(judge: str | None) -> Scorer:
    return rule_judge() if judge is None else simpleqa_judge(judge)


def _setting(search: str, index: NoisySearchIndex | None, k: int) -> Solver:
    if search == "freshprompt":
        return fresh_prompt(index, k)
    if search == "tool":
        assert index is not None
        return search_tool(index, k)
    return read_documents()


def _check_search(search: str) -> None:
    if search not in SEARCHES:
        raise ValueError(f"search={search!r}; allowed are {', '.join(map(repr, SEARCHES))}")


def _official(
    flavour: Flavour, search: str, judge: str | None, corpus: str | None, revision: str, folder: str | None,
    as_of: str | None, pages: int,
) -> Task:  # fmt: skip
    _check_search(search)
    index = NoisySearchIndex.load(corpus) if corpus is not None else None
    if search in ("freshprompt", "tool") and index is None:
        raise ValueError(
            f"search={search!r} needs corpus=FILE, frozen pages as NoisySearchIndex.save writes them: a live search "
            "cannot be checked afterwards"
        )
    loaded = load(flavour, revision, folder=folder)
    samples = []
    for question in loaded.questions:
        given = [question.gold] if search == "oracle" and question.gold is not None else []
        if search == "oracle" and not given:
            raise ValueError(
                f"search='oracle': question {question.id!r} of {flavour} has no gold page in this revision"
            )
        samples.append(_sample(question, given, index.digest if index else "", as_of))
    return Task(
        dataset=MemoryDataset(samples, name=f"{REPOSITORY}/{flavour}"),
        solver=_setting(search, index, pages),
        scorer=_scorer(judge),
        metadata={"revision": loaded.revision, "licence": loaded.licence, "search": search},
    )


@task
def seal_0(
    search: str = "none",
    judge: str | None = None,
    corpus: str | None = None,
    revision: str = REVISION,
    folder: str | None = None,
    as_of: str | None = None,
    pages: int = 10,
) -> Task:
    """SEAL-0: 111 questions on which chat models scored nothing in 10 to 15 tries.

    Args:
        search: "none" (closed book), "freshprompt", "tool" or "oracle" (gold page only).
        judge: A model of Inspect's; the rules when not given.
        corpus: Frozen pages, for "freshprompt" and "tool".
        revision: Commit of the data set.
        folder: The hub's files on this machine.
        as_of: Date that questions are asked for.
        pages: Pages shown, or returned by a search.
    """
    return _official("seal_0", search, judge, corpus, revision, folder, as_of, pages)


@task
def seal_hard(
    search: str = "none",
    judge: str | None = None,
    corpus: str | None = None,
    revision: str = REVISION,
    folder: str | None = None,
    as_of: str | None = None,
    pages: int = 10,
) -> Task:
    """SEAL-HARD: 254 questions, SEAL-0 among them; arguments as for `seal_0`.

    Args:
        search: See `seal_0`.
        judge: See `seal_0`.
        corpus: See `seal_0`.
        revision: See `seal_0`.
        folder: See `seal_0`.
        as_of: See `seal_0`.
        pages: See `seal_0`.
    """
    return _official("seal_hard", search, judge, corpus, revision, folder, as_of, pages)


@task
def longseal(
    k: int = 12,
    gold_position: float | None = None,
    order: Order = "shuffled",
    judge: str | None = None,
    revision: str = REVISION,
    folder: str | None = None,
    as_of: str | None = None,
    seed: int = 0,
) -> Task:
    """LongSeal: 254 questions, each with k documents, one of them gold.

    Args:
        k: 12, 20 or 30.
        gold_position: Where the gold page stands, 0 (first) to 1 (last); drawn when not given. Questions whose gold
            page cannot be told among the documents keep the official order.
        order: "shuffled" or "ranked" negatives.
        judge: A model of Inspect's; the rules when not given.
        revision: Commit of the data set.
        folder: The hub's files on this machine.
        as_of: Date that questions are asked for.
        seed: Of orders and positions.
    """
    loaded = load("longseal", revision, k, folder=folder)
    if gold_position is not None and not any(question.gold for question in loaded.questions):
        raise ValueError(f"gold_position={gold_position}: no gold page can be told in this revision; allowed is None")
    samples = []
    for i, question in enumerate(loaded.questions):
        pages = list(question.negatives)
        if question.gold is not None:
            rng = np.random.default_rng([seed, i])
            pages = place_gold(question, len(pages) + 1, gold_position, order, rng)
        samples.append(_sample(question, pages, digest(pages), as_of))
    return Task(
        dataset=MemoryDataset(samples, name=f"{REPOSITORY}/longseal-{k}"),
        solver=read_documents(),
        scorer=_scorer(judge),
        metadata={"revision": loaded.revision, "licence": loaded.licence, "k": k, "gold_position": gold_position},
    )


@task
def sealqa_sample(
    n: int = 20,
    seed: int = 0,
    search: str = "freshprompt",
    pages: int = 3,
    conflict: float = 0.5,
    stale: float = 0.3,
    distractors: int = 8,
    mode: str = "bm25",
    noise: float = 0.0,
    length: str = "short",
    choose: bool = False,
    judge: str | None = None,
) -> Task:
    """The offline flavour: questions on an invented world, which no model can know, with controlled conflict.

    Args:
        n: Questions.
        seed: Of the world.
        search: "none" (closed book), "freshprompt", "tool" or "oracle" (gold page only).
        pages: Pages shown, or returned by a search.
        conflict: Share of negatives that contradict.
        stale: Share of negatives that are out of date.
        distractors: Negatives of each question.
        mode: "bm25"; the other modes of `NoisySearchIndex` need an encoder and so Python.
        noise: Of the search.
        length: "short" or "long" pages.
        choose: Whether the model chooses among the answers that pages give ("guided_choice") instead of writing; its
            pages are then the first of a shuffled context of `pages` documents with the gold one ("none": no pages).
        judge: A model of Inspect's; the rules when not given.
    """
    _check_search(search)
    corpus = sample_corpus(seed, n, conflict, stale, distractors, length=length)  # type: ignore[arg-type]
    index = NoisySearchIndex(corpus.documents, mode, noise)  # type: ignore[arg-type]
    samples = []
    for i, question in enumerate(corpus.questions):
        given: list[Document] = []
        if search == "oracle":
            given = place_gold(question, 1, 0.0, "ranked")
        elif choose and search != "none":
            given = place_gold(question, min(pages, distractors + 1), rng=np.random.default_rng([seed, i]))
        samples.append(_sample(question, given, index.digest))
    return Task(
        dataset=MemoryDataset(samples, name=f"sealqa-sample-{seed}"),
        solver=choose_by_likelihood() if choose else _setting(search, index, pages),
        scorer=_scorer(judge),
        metadata={"search": search, "corpus_digest": index.digest, "conflict": conflict, "stale": stale},
    )


@task
def longseal_sample(
    k: int = 4,
    gold_position: float | None = None,
    order: Order = "shuffled",
    n: int = 20,
    seed: int = 0,
    conflict: float = 0.5,
    stale: float = 0.3,
    length: str = "short",
    judge: str | None = None,
) -> Task:
    """LongSeal on the invented world: k documents in context, one of them gold.

    Args:
        k: Documents, 1 to 31.
        gold_position: Where the gold page stands, 0 (first) to 1 (last); drawn when not given.
        order: "shuffled" or "ranked" negatives.
        n: Questions.
        seed: Of the world, orders and positions.
        conflict: Share of negatives that contradict.
        stale: Share of negatives that are out of date.
        length: "short" or "long" pages.
        judge: A model of Inspect's; the rules when not given.
    """
    corpus = sample_corpus(seed, n, conflict, stale, 30, length=length)  # type: ignore[arg-type]
    samples = []
    for i, question in enumerate(corpus.questions):
        pages = place_gold(question, k, gold_position, order, np.random.default_rng([seed, i]))
        samples.append(_sample(question, pages, digest(pages)))
    return Task(
        dataset=MemoryDataset(samples, name=f"longseal-sample-{seed}-{k}"),
        solver=read_documents(),
        scorer=_scorer(judge),
        metadata={"k": k, "gold_position": gold_position, "conflict": conflict, "stale": stale},
    )
