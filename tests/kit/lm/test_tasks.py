"""Checkers, splits that do not leak, and pre-training on a task."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperworks.kit.lm.pretraining import exact_match, pretrain
from paperworks.kit.lm.tasks import Countdown, LookUps, Problem, Sums, Task, evaluate
from paperworks.kit.lm.tinygpt import TinyGPT, TinyGPTConfig
from paperworks.kit.lm.tokenizers import character_tokenizer

TASKS = [Sums(1), Sums(2), Countdown(), LookUps()]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_answers_pass_seeds_repeat_and_parts_are_disjoint(task: Task) -> None:
    parts = {part: task.sample(np.random.default_rng(3), part, 100) for part in ("train", "test")}
    assert parts["train"] == task.sample(np.random.default_rng(3), "train", 100)
    for problem in parts["train"] + parts["test"]:
        assert task.check(problem, problem.answer)
        assert not task.check(problem, problem.answer + "1")
        assert set(problem.prompt + problem.answer) <= set(task.alphabet)
    assert not {p.key for p in parts["train"]} & {p.key for p in parts["test"]}


def test_no_sum_leaks() -> None:
    task = Sums(1)
    problems = [task.problem(a, b) for a, b in product(range(10), repeat=2)]
    side = {p.prompt: task.part(p.key) for p in problems}
    assert set(side.values()) == {"train", "test"}
    assert all(side[f"{a}+{b}="] == side[f"{b}+{a}="] for a, b in product(range(10), repeat=2))
    drawn = {part: {p.prompt for p in task.sample(np.random.default_rng(0), part, 2000)} for part in ("train", "test")}
    assert all(drawn[part] == {prompt for prompt, at in side.items() if at == part} for part in drawn)


def test_share_of_test_keys() -> None:
    task = Sums(2, test_fraction=0.2)
    share = np.mean([task.part(task.problem(a, b).key) == "test" for a in range(100) for b in range(a, 100)])
    assert abs(share - 0.2) < 4 * (0.2 * 0.8 / 5050) ** 0.5  # four standard errors


@pytest.mark.parametrize(
    ("expression", "right"),
    [("(1+2)*4", True), ("4*(2+1)", True), ("4+4+4", False), ("12", False), ("1+2*4", False), ("(1+2)*4+", False),
     ("-(1+2)*-4", False), ("(1+2)**4", False), ("__import__('os')", False), ("(" * 150 + "1", False), ("", False),
     ("4/(2-2)", False), ("(1+2)*4.0", False)],
)  # fmt: skip
def test_countdown_checker(expression: str, right: bool) -> None:
    assert Countdown().check(Problem("1,2,4:12=", "", ""), expression) is right


@given(st.text("0123456789+-*/() a_.", max_size=20))
def test_evaluation_never_raises(text: str) -> None:
    found = evaluate(text)
    assert found is None or all(n >= 0 for n in found[1])


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="test_fraction is 1"):
        Sums(2, test_fraction=1)
    with pytest.raises(ValueError, match="digits is 0"):
        Sums(0)
    with pytest.raises(ValueError, match="part is 'all'"):
        Sums(2).sample(np.random.default_rng(0), "all", 1)


def small(task: Task, **shape: int) -> tuple[TinyGPT, object]:
    tokenizer = character_tokenizer(task.alphabet)
    torch.manual_seed(0)
    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    return TinyGPT(TinyGPTConfig(vocab_size=len(tokenizer), **ends, **shape)), tokenizer


def test_pretraining_is_deterministic_and_says_when_it_fails() -> None:
    task = Sums(1)
    runs = []
    for seed in (0, 0, 1):
        model, tokenizer = small(task, hidden_size=16, intermediate_size=16, num_hidden_layers=1)
        with pytest.raises(RuntimeError, match=r"after 3 steps: 1\.0 was asked for"):
            pretrain(model, tokenizer, task, 3, np.random.default_rng(seed), 1.0, batch_size=8, test_count=8)
        runs.append(model.lm_head.weight.detach().clone())
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.slow
def test_two_digit_sums_are_learnt() -> None:
    task = Sums(2)
    model, tokenizer = small(task, hidden_size=160, intermediate_size=432)
    assert 1e6 < model.num_parameters() < 3e6
    done = pretrain(model, tokenizer, task, 3000, np.random.default_rng(0), 0.9, check_every=50)
    assert done.accuracy >= 0.9
    fresh = task.sample(np.random.default_rng(9), "test", 1000)
    assert exact_match(model, tokenizer, task, fresh) >= 0.87
