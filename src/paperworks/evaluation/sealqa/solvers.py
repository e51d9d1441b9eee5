"""Inspect's side of the settings: closed book, FreshPrompt, search as a tool, documents in context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from inspect_ai.model import ChatMessageUser
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, tool

from .documents import Document, digest
from .fresh import fresh_prompt_text, oldest_first, plain_prompt_text
from .index import NoisySearchIndex

SEARCH_LIMIT = 10


def _question(state: TaskState) -> str:
    return str(state.metadata.get("asked") or state.input_text)


def _pages(state: TaskState) -> list[Document]:
    return [Document(**raw) for raw in state.metadata.get("documents") or []]


def _key(state: TaskState) -> list[int]:
    return [*str(state.sample_id).encode(), state.epoch]


def _stream(state: TaskState) -> np.random.Generator:
    """Noise of a search that depends on the sample and its epoch alone."""
    return np.random.default_rng(_key(state))


def _ask(state: TaskState, prompt: str) -> None:
    state.messages = [ChatMessageUser(content=prompt)]


def _record(state: TaskState, pages: Sequence[Document], corpus: str) -> None:
    """A score without the retrieved pages cannot be checked: they go into the log, the corpus by its digest."""
    state.metadata["evidence"] = [page.id for page in pages]
    state.metadata["evidence_digest"] = digest(pages)
    state.metadata["corpus_digest"] = corpus


@solver
def fresh_prompt(evidence: NoisySearchIndex | None = None, k: int = 5) -> Solver:
    """FreshPrompt: k pages from the oldest to the newest, the question, and how to weigh them.

    Args:
        evidence: Where to search; the documents of the sample when not given.
        k: Pages shown, the last in the prompt being the newest.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question = _question(state)
        if evidence is None:
            pages, corpus = _pages(state)[:k], str(state.metadata.get("corpus_digest", ""))
        else:
            pages = evidence.search(question, k, rng=_stream(state) if evidence.noise else None)
            corpus = evidence.digest
        _record(state, oldest_first(pages), corpus)
        _ask(state, fresh_prompt_text(question, pages))
        return await generate(state)

    return solve


@solver
def read_documents() -> Solver:
    """LongSeal and the oracle: the sample's documents in their order, then the question; closed book without any."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        pages = _pages(state)
        _record(state, pages, str(state.metadata.get("corpus_digest", "")))
        _ask(state, plain_prompt_text(_question(state), pages))
        return await generate(state)

    return solve


@tool
def search(index: NoisySearchIndex, k: int = 5, key: Sequence[int] = (), seen: list[Document] | None = None) -> Tool:
    """The tool that a model calls.

    Args:
        index: Where it searches.
        k: Pages it returns.
        key: What noise depends on, beside the query and how many there were: the sample and its epoch.
        seen: Gets the pages that were returned.
    """
    calls = 0

    async def execute(query: str) -> str:
        """Search the web and get the best pages with source and date.

        Args:
            query: What to search for.
        """
        nonlocal calls
        calls += 1
        rng = np.random.default_rng([*key, 0, *query.encode(), calls]) if index.noise else None
        found = index.search(query, k, rng=rng)
        if seen is not None:
            seen.extend(found)
        return "\n\n".join(f"{p.title} ({p.source}, {p.date or 'no date'})\n{p.text}" for p in found)

    return execute


@solver
def search_tool(index: NoisySearchIndex, k: int = 5, limit: int = SEARCH_LIMIT) -> Solver:
    """The model searches as often as it likes, up to a limit, and then answers.

    Args:
        index: Where it searches.
        k: Pages a search returns.
        limit: Searches at most; after them the tool is taken away.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        seen: list[Document] = []
        state.tools = [search(index, k, _key(state), seen)]  # one a sample, for its noise must not depend on others'
        state = await converse(state, generate)
        _record(state, seen, index.digest)
        return state

    async def converse(state: TaskState, generate: Generate) -> TaskState:
        _ask(
            state,
            f"{_question(state)}\n\nUse the search tool before you answer. Pages may be out of date, wrong or about "
            "something else of the same name. End with one line: Answer: <answer>",
        )
        for _ in range(limit):
            state = await generate(state, tool_calls="single")
            called = state.output.message.tool_calls or []
            state.metadata["searches"] = state.metadata.get("searches", 0) + len(called)
            if not called:
                return state
        state.tools = []
        return await generate(state)

    return solve


@solver
def choose_by_likelihood() -> Solver:
    """The answer is the likeliest of the sample's options, on a server that knows "guided_choice" (vLLM, ours).

    The prompt is whatever an earlier solver has made, which must not have generated; else the sample's documents and
    the question.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        options: dict[str, Any] = state.metadata.get("options") or {}
        if not options:
            raise ValueError(f"sample {state.sample_id!r} has no options; choose=True is for the offline flavours")
        pages = _pages(state)
        _record(state, pages, str(state.metadata.get("corpus_digest", "")))
        _ask(state, plain_prompt_text(_question(state), pages, "Answer with nothing but the answer."))
        # Sorted, for a server that takes the first of equals must not learn where the key stands.
        return await generate(state, extra_body={"guided_choice": sorted(set(options.values()))})

    return solve
