"""FreshPrompt: evidence from the oldest to the newest page, then the question and how to weigh it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .documents import Document
from .index import tokenize

INSTRUCTION = (
    "Pages may be out of date, wrong, about something else of the same name, or of no use. Consider how recent each "
    "one is, who publishes it and where pages contradict each other; then answer for the date that the question names. "
    "If the question rests on something that is not so, say so. End with one line: Answer: <answer>"
)


def highlights(question: str, text: str, limit: int = 5) -> list[str]:
    """Words of a page that the question has too, as they stand there, each once.

    Args:
        question: The question.
        text: The page.
        limit: How many words at most.
    """
    asked = set(tokenize(question))
    words = (word for word in re.findall(r"[^\W_]+", text) if word.lower() in asked)
    return list(dict.fromkeys(words))[:limit]


def oldest_first(documents: Sequence[Document]) -> list[Document]:
    """Pages by date; those without a date come first, for nothing says that they are recent.

    Args:
        documents: The pages.
    """
    return sorted(documents, key=lambda document: document.date or "")


def fresh_prompt_text(question: str, documents: Sequence[Document], instruction: str = INSTRUCTION) -> str:
    """Builds the prompt.

    Args:
        question: The question.
        documents: The evidence, in any order.
        instruction: What stands after the question.

    Returns:
        Source, date, title, snippet and highlighted words of each page, oldest first, then question and instruction.
    """
    blocks = [
        f"source: {page.source}\ndate: {page.date or 'unknown'}\ntitle: {page.title}\nsnippet: {page.text}\n"
        f"highlight: {', '.join(highlights(question, page.text)) or 'none'}"
        for page in oldest_first(documents)
    ]
    return "\n\n".join([*blocks, f"question: {question}", instruction])


def plain_prompt_text(question: str, documents: Sequence[Document] = (), instruction: str = INSTRUCTION) -> str:
    """Builds a prompt with pages in the order given, as LongSeal asks for; closed book without pages.

    Args:
        question: The question.
        documents: The pages, in the order in which the model is to see them.
        instruction: What stands after the question when there are pages.

    Returns:
        The prompt.
    """
    if not documents:
        return f"{question}\n\nAnswer in a few words. If you do not know, say so. End with one line: Answer: <answer>"
    blocks = [
        f"[{i}] {page.title} ({page.source}, {page.date or 'no date'})\n{page.text}"
        for i, page in enumerate(documents, 1)
    ]
    return "\n\n".join([*blocks, f"Question: {question}", instruction])
