"""Train a small model on a verifiable task up to a stated accuracy."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from paperworks.kit.lm.tasks import Problem, Task


@dataclass(frozen=True)
class Pretrained:
    """What pre-training came to: steps taken, exact-match accuracy on test problems, CPU seconds."""

    steps: int
    accuracy: float
    cpu_seconds: float


def _batch(tokenizer: PreTrainedTokenizerBase, problems: list[Problem]) -> dict[str, torch.Tensor]:
    rows = []
    for problem in problems:
        prompt = tokenizer.encode(problem.prompt, add_special_tokens=False)
        answer = [*tokenizer.encode(problem.answer, add_special_tokens=False), tokenizer.eos_token_id]
        rows.append((prompt + answer, [-100] * len(prompt) + answer))
    width = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    return {
        "input_ids": torch.tensor([[pad] * (width - len(ids)) + ids for ids, _ in rows]),
        "attention_mask": torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids, _ in rows]),
        "labels": torch.tensor([[-100] * (width - len(labels)) + labels for _, labels in rows]),
    }


@torch.no_grad()
def exact_match(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    problems: list[Problem],
    max_new_tokens: int = 24,
) -> float:
    """Share of `problems` that greedy decoding solves, by the task's checker."""
    was_training = model.training
    model.eval()
    inputs = tokenizer([p.prompt for p in problems], return_tensors="pt", padding=True, add_special_tokens=False)
    out = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=max_new_tokens,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model.train(was_training)
    texts = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return float(np.mean([task.check(p, text) for p, text in zip(problems, texts, strict=True)]))


def pretrain(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    steps: int,
    generator: np.random.Generator,
    target_accuracy: float,
    *,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    check_every: int = 100,
    test_count: int = 256,
) -> Pretrained:
    """Train `model` in place until greedy decoding solves `target_accuracy` of the drawn test problems.

    AdamW, 50 steps of warm-up; only the answer and its end are scored. All chance comes from `generator` (a model
    with dropout would add torch's own). Stopping on the drawn test problems favours the figure a little: measure
    anew with `exact_match` on other problems where that matters.

    Args:
        model: The model, on the CPU.
        tokenizer: Its tokenizer, padding on the left.
        task: The task; training sees its train part alone.
        steps: Most steps to take.
        generator: Source of the problems.
        target_accuracy: Exact match at which to stop, in (0, 1].
        batch_size: Problems a step.
        learning_rate: Rate after the warm-up.
        check_every: Steps between two measurements.
        test_count: Test problems of a measurement.

    Returns:
        Steps, accuracy and CPU seconds.

    Raises:
        ValueError: `steps` or `target_accuracy` not allowed.
        RuntimeError: The accuracy was not reached in `steps` steps.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}: allowed are 1 and more")
    if not 0 < target_accuracy <= 1:
        raise ValueError(f"target_accuracy is {target_accuracy}: allowed is (0, 1]")
    begin = time.process_time()
    tests = task.sample(generator, "test", test_count)
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    accuracy = 0.0
    for step in range(1, steps + 1):
        model.train()
        for group in optimiser.param_groups:
            group["lr"] = learning_rate * min(1.0, step / 50)
        loss = model(**_batch(tokenizer, task.sample(generator, "train", batch_size))).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % check_every == 0 or step == steps:
            accuracy = exact_match(model, tokenizer, task, tests)
            if accuracy >= target_accuracy:
                model.eval()
                return Pretrained(step, accuracy, time.process_time() - begin)
    raise RuntimeError(f"accuracy is {accuracy:.3f} after {steps} steps: {target_accuracy} was asked for")
