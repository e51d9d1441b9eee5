"""Inspect's side of judging: two scorers, and metrics that know of answers not attempted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from inspect_ai.model import GenerateConfig, Model, get_model
from inspect_ai.scorer import (
    Metric,
    SampleScore,
    Score,
    Scorer,
    Target,
    Value,
    metric,
    scorer,
)
from inspect_ai.solver import TaskState

from .judging import Grade, final_answer, grade
from .metrics import rates


def _documented(function: Callable[..., Metric]) -> Callable[..., Metric]:
    """Makes a metric of Inspect's; its decorator drops the docstring."""
    made = metric(function)
    made.__doc__ = function.__doc__
    return made


# Not Inspect's letters: its reducers, which run even for one epoch, would make "not attempted" an incorrect answer.
_VALUE: dict[Grade, dict[str, float]] = {
    "A": {"correct": 1.0, "attempted": 1.0},
    "B": {"correct": 0.0, "attempted": 1.0},
    "C": {"correct": 0.0, "attempted": 0.0},
}


def _values(scores: list[SampleScore]) -> tuple[list[float], list[float]]:
    """Correct and attempted of each sample, means over its epochs."""
    found = [one.score.as_dict() for one in scores]
    return [float(v["correct"]) for v in found], [float(v["attempted"]) for v in found]


def _rate(name: str) -> Callable[[list[SampleScore]], Value]:
    def compute(scores: list[SampleScore]) -> Value:  # Inspect reads the annotation
        return rates(*_values(scores))[name]

    return compute


@_documented
def accuracy() -> Metric:
    """Correct of all."""
    return _rate("accuracy")


@_documented
def interval() -> Metric:
    """The 95 % Wilson interval of accuracy, as "low" and "high"."""

    def compute(scores: list[SampleScore]) -> Value:
        found = rates(*_values(scores))
        return {name: found[name] for name in ("accuracy_low", "accuracy_high")}

    return compute


@_documented
def attempted() -> Metric:
    """Answers that were attempted, of all."""
    return _rate("attempted")


@_documented
def given_attempted() -> Metric:
    """Correct of attempted."""
    return _rate("given_attempted")


@_documented
def f_score() -> Metric:
    """Harmonic mean of accuracy and `given_attempted`, as in SimpleQA."""
    return _rate("f_score")


@_documented
def by(field: str = "question_types") -> Metric:
    """Accuracy for each value of a field of the metadata; a list counts for each of its values.

    Args:
        field: Its name, such as "question_types", "freshness", "topic" or "conflicting".
    """

    def compute(scores: list[SampleScore]) -> Value:
        groups: dict[str, list[float]] = defaultdict(list)
        for one in scores:
            value = (one.sample_metadata or {}).get(field)
            for label in value if isinstance(value, list | tuple) else [value]:
                groups[str(label)].append(float(one.score.as_dict()["correct"]))
        return {f"{field}: {label}": sum(own) / len(own) for label, own in sorted(groups.items())}

    return compute


METRICS = [accuracy(), interval(), attempted(), given_attempted(), f_score(), by("question_types"), by("freshness")]


def _score(judged: Grade, prediction: str, **more: Any) -> Score:
    return Score(value=_VALUE[judged], answer=final_answer(prediction), metadata={"grade": judged, **more})


@scorer(metrics=METRICS)
def rule_judge() -> Scorer:
    """Judges by rules, without a model; see `grade`."""

    async def judge(state: TaskState, target: Target) -> Score:
        said = state.output.completion
        question = state.metadata.get("question") or state.input_text
        return _score(grade(question, target.text, said, state.metadata.get("aliases") or ()), said)

    return judge


_LETTER = re.compile(r"\b(A(?! (?!(?:is|or|and)\b)[a-z])|B|C)\b")  # "A refusal" is an article, no grade
JUDGE_PROMPT = """You grade one answer. You are given a question, its reference answer and a predicted answer.

Grade A (correct): the prediction contains everything that matters of the reference, whatever the wording, order,
spelling or further detail, and contradicts nothing of it. Hedging is allowed when the reference is there. A number must
agree up to the last significant figure of the reference.
Grade B (incorrect): the prediction contradicts the reference, gives another answer even as a guess, leaves out a part
that the question asks for, or offers several answers of which only one can be right.
Grade C (not attempted): the prediction neither contains the reference nor contradicts it: it declines, says that it
does not know, or stays so vague that nothing can be checked.
When the reference says that there is no such thing, a prediction that rejects the premise of the question is A.

Question: {question}
Reference: {reference}
Predicted answer: {prediction}

Reply with one letter, A, B or C."""


@scorer(metrics=METRICS)
def simpleqa_judge(model: str | Model | None = None, guided: bool = False) -> Scorer:
    """Judges by a model, which sees the question, the reference and the answer, but no documents.

    A reply without a letter, or with several, counts as the rules judge it, and is marked "unreadable".

    Args:
        model: Any model of Inspect's; its role "grader", or else the model evaluated, when not given.
        guided: Whether the letter is chosen by likelihood ("guided_choice"), where the server offers that.
    """

    async def judge(state: TaskState, target: Target) -> Score:
        judging = get_model(model) if model is not None else get_model(role="grader")
        said = state.output.completion
        question = state.metadata.get("question") or state.input_text
        prompt = JUDGE_PROMPT.format(question=question, reference=target.text, prediction=said)
        config = GenerateConfig(temperature=0.0, max_tokens=16)
        if guided:
            config = GenerateConfig(extra_body={"guided_choice": ["A", "B", "C"]})
        reply = (await judging.generate(prompt, config=config)).completion
        letters = set(_LETTER.findall(reply))
        if len(letters) != 1:
            judged = grade(question, target.text, said, state.metadata.get("aliases") or ())
            return _score(judged, said, judge=str(judging), reply=reply, unreadable=True)
        return _score(letters.pop(), said, judge=str(judging), reply=reply)

    return judge
