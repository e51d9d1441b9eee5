"""The adapter: equality with TRL's own loss, trajectories, accumulation, PEFT, resuming, actors and top-k."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl", reason="not installed: pip install 'paperworks[posttraining]'")

from datasets import Dataset
from peft import LoraConfig
from transformers import LlamaConfig, LlamaForCausalLM
from trl import GRPOConfig, GRPOTrainer

from paperworks.kit.lm import Sums, TinyGPT, TinyGPTConfig, character_tokenizer, trl_adapter
from paperworks.kit.lm.trl_adapter import TESTED, TokenBatch, TokenLoss, TokenLossTrainer, check_trl

TASK = Sums(1)
TOKENIZER = character_tokenizer(TASK.alphabet)
SHAPE = dict(
    vocab_size=len(TOKENIZER), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
    pad_token_id=TOKENIZER.pad_token_id, bos_token_id=TOKENIZER.bos_token_id, eos_token_id=TOKENIZER.eos_token_id,
    initializer_range=0.2,
)  # fmt: skip


def tiny(seed: int = 0, llama: bool = False) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SHAPE)) if llama else TinyGPT(TinyGPTConfig(**SHAPE))


def even(completions: list[str], **_: Any) -> list[float]:
    """Reward without training: a share of even digits, so that almost every group has a spread."""
    return [sum(c in "02468" for c in text) / 4 for text in completions]


PROMPTS = Dataset.from_list([{"prompt": p.prompt} for p in TASK.sample(np.random.default_rng(0), "train", 32)])


def make(
    folder: Path,
    *,
    kind: Any = TokenLossTrainer,
    model: Any = None,
    trainer: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    settings = dict(
        output_dir=str(folder), per_device_train_batch_size=8, num_generations=4, max_completion_length=4,
        learning_rate=1e-2, max_steps=4, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, seed=5,
        lr_scheduler_type="constant", disable_tqdm=True, bf16=False,
    )  # fmt: skip
    return kind(
        model=tiny() if model is None else model,
        reward_funcs=even,
        args=GRPOConfig(**settings | options),
        train_dataset=PROMPTS,
        processing_class=TOKENIZER,
        **trainer or {},
    )


def curve(trainer: Any, *names: str) -> dict[str, list[float]]:
    return {name: [row[name] for row in trainer.state.log_history if name in row] for name in names}


def run(*args: Any, **options: Any) -> Any:
    trainer = make(*args, **options)
    trainer.train()
    return trainer


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters() if p.requires_grad])


@pytest.mark.parametrize("options", [{"loss_type": "grpo", "beta": 0.0}, {"loss_type": "dapo"}, {"loss_type": "bnpo"},
                                     {"loss_type": "dr_grpo"}], ids=lambda o: o["loss_type"])  # fmt: skip
def test_plain_hook_trains_as_trl_does(tmp_path: Path, options: dict[str, Any]) -> None:
    """A Llama, which TRL itself can train: the same weights and logs after steps with stale samples, bit for bit."""
    both = [
        run(tmp_path / kind.__name__, kind=kind, model=tiny(llama=True), steps_per_generation=2, **options)
        for kind in (GRPOTrainer, TokenLossTrainer)
    ]
    names = ("loss", "reward", "entropy", "grad_norm")
    theirs, ours = (curve(trainer, *names) for trainer in both)
    assert ours == theirs
    assert {name: len(values) for name, values in ours.items()} == dict.fromkeys(names, 4) | {"reward": 2}
    torch.testing.assert_close(weights(both[1]), weights(both[0]), rtol=0, atol=0)
    assert max(map(abs, ours["loss"])) > 0


def test_plain_hook_is_trls_loss_on_equal_tensors(tmp_path: Path) -> None:
    """TinyGPT: value and gradient against TRL's own function, with its truncated correction and a reference penalty."""
    trainer = make(tmp_path, loss_type="dapo", vllm_importance_sampling_mode="token_truncate")
    trainer.use_vllm, trainer.beta, trainer.current_gradient_accumulation_steps = True, 0.1, 1
    g = torch.Generator().manual_seed(0)
    ids = torch.randint(3, SHAPE["vocab_size"], (8, 9), generator=g)
    mask = torch.ones(8, 4, dtype=torch.long)
    mask[1, 2:] = mask[5, 1:] = 0
    logps = trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 4)[0].detach()
    inputs = {
        "prompt_ids": ids[:, :5], "prompt_mask": torch.ones(8, 5, dtype=torch.long), "completion_ids": ids[:, 5:],
        "completion_mask": mask, "advantages": torch.randn(8, generator=g), "num_items_in_batch": mask.sum(),
        "old_per_token_logps": logps + 0.3 * torch.randn(8, 4, generator=g),
        "ref_per_token_logps": logps + 0.3 * torch.randn(8, 4, generator=g),
        "importance_sampling_ratio": torch.rand(8, 4, generator=g) * 2,
    }  # fmt: skip
    found = []
    for function in (TokenLossTrainer._compute_loss, GRPOTrainer._compute_loss):
        trainer.model.zero_grad()
        loss = function(trainer, trainer.model, inputs)
        loss.backward()
        found.append((loss.detach(), *(p.grad.clone() for p in trainer.model.parameters())))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
    assert found[0][0] != 0


def test_both_ways_of_scoring_agree(tmp_path: Path) -> None:
    """From the hidden states by TRL's fused head, and from logits: log-probabilities, entropies and top-k."""
    trainer = make(tmp_path, model=tiny(llama=True), trainer={"topk": 5}, temperature=0.7)
    ids = torch.randint(3, SHAPE["vocab_size"], (3, 9), generator=torch.Generator().manual_seed(0))
    found = []
    for alone in (True, False):
        with pytest.MonkeyPatch.context() as patch, trainer._capturing(True, ids[:, 5:, None].expand(3, 4, 5)) as seen:
            if not alone:
                patch.setattr("paperworks.kit.lm.trl_adapter._runs_alone", lambda _: False)
            scores = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, torch.ones_like(ids), 4, batch_size=2, compute_entropy=True
            )
            found.append((*(s.detach() for s in scores[:2]), *seen.found()))
    torch.testing.assert_close(found[0], found[1])
    logits = trainer.model(input_ids=ids).logits[:, 4:-1] / 0.7
    whole = logits.log_softmax(-1).detach()
    torch.testing.assert_close(found[0][0], whole.gather(-1, ids[:, 5:, None]).squeeze(-1))
    torch.testing.assert_close(found[0][3], whole.topk(5).values)
    torch.testing.assert_close(found[0][4], found[0][0][..., None].expand(3, 4, 5))


def test_same_seed_same_trajectory(tmp_path: Path) -> None:
    first, again, other = (run(tmp_path / f"{i}", seed=seed) for i, seed in enumerate((5, 5, 6)))
    names = ("reward", "loss", "completions/mean_length")
    assert curve(first, *names) == curve(again, *names)
    assert curve(first, *names) != curve(other, *names)
    torch.testing.assert_close(weights(first), weights(again), rtol=0, atol=0)


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_eight_micro_batches_of_one_are_one_batch_of_eight(tmp_path: Path, loss_type: str) -> None:
    plain = dict(loss_type=loss_type, max_steps=3, optim="sgd", learning_rate=0.3)  # Adam would magnify rounding
    whole = run(tmp_path / "a", **plain)
    parts = run(tmp_path / "b", **plain, per_device_train_batch_size=1, gradient_accumulation_steps=8)
    assert curve(parts, "reward") == curve(whole, "reward")
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-4, atol=1e-5)
    assert (weights(whole) - weights(make(tmp_path))).abs().max() > 0.01
    np.testing.assert_allclose(
        curve(parts, "grad_norm")["grad_norm"], curve(whole, "grad_norm")["grad_norm"], rtol=1e-3
    )


def test_training_raises_the_reward(tmp_path: Path) -> None:
    trainer = run(tmp_path, max_steps=25, per_device_train_batch_size=32, num_generations=8)
    reward = curve(trainer, "reward")["reward"]
    assert np.mean(reward[-5:]) > np.mean(reward[:5]) + 0.2


def test_lora_trains_its_adapter_alone(tmp_path: Path) -> None:
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    trainer = make(tmp_path, trainer={"peft_config": lora}, beta=0.05, num_iterations=2)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    changed = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert len(curve(trainer, "kl")["kl"]) == 4


def test_resumed_run_is_the_unbroken_one(tmp_path: Path) -> None:
    """Saved after 2 of 4 steps, at the end of a collection: weights and the random numbers of tokens come back."""

    class Keeps(TokenLossTrainer):
        def token_loss(self, batch: TokenBatch) -> TokenLoss:
            self.seen = [*getattr(self, "seen", []), batch.uniform.sum().item()]
            return super().token_loss(batch)

    unbroken = run(tmp_path / "a", kind=Keeps)
    run(tmp_path / "b", kind=Keeps, max_steps=2, save_strategy="steps", save_steps=2)
    resumed = make(tmp_path / "b", kind=Keeps)
    resumed.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-2"))
    assert resumed.state.global_step == 4
    assert resumed.seen == unbroken.seen[2:]
    torch.testing.assert_close(weights(resumed), weights(unbroken), rtol=1e-4, atol=1e-6)


@dataclasses.dataclass
class Rolled:
    completion_ids: list[list[int]]
    logps: list[list[float]]
    topk_ids: list[Any] | None
    topk_logps: list[Any] | None


class Uniformly:
    """Draws from the digits alike; says so, with two of them as its likeliest."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.generator = torch.Generator().manual_seed(0)

    def sync(self, policy: torch.nn.Module, step: int) -> None:
        assert isinstance(policy, TinyGPT)
        self.steps.append(step)

    def generate(self, prompt_ids: Any, *, max_tokens: int, temperature: float, topk: int) -> Rolled:
        digits = TOKENIZER.encode("0123456789")
        lengths = [1 + i % max_tokens for i in range(len(prompt_ids))]
        draws = [[digits[int(torch.randint(10, (), generator=self.generator))] for _ in range(n)] for n in lengths]
        q = math.log(0.1)
        return Rolled(
            draws, [[q] * n for n in lengths], [[digits[:2]] * n for n in lengths], [[[q, q]] * n for n in lengths]
        )


class Watches(TokenLossTrainer):
    """Keeps the batches that its loss sees."""

    def token_loss(self, batch: TokenBatch) -> TokenLoss:
        self.batches = [*getattr(self, "batches", []), batch]
        made = super().token_loss(batch)
        return made._replace(metrics={"mine": 7.0})

    def collected(self, collection: Any, examples: Any) -> dict[str, torch.Tensor]:
        ids = collection["completion_ids"]
        assert len(examples) == len(ids)
        return {"first_token": ids[:, 0].clone()}


def test_actor_draws_and_the_loss_sees_both_sides(tmp_path: Path) -> None:
    actor = Uniformly()
    trainer = run(tmp_path, kind=Watches, trainer={"actor": actor, "topk": 3}, steps_per_generation=2, num_iterations=2)
    assert actor.steps == [0]  # one collection for two batches, each seen twice
    assert [b.iteration for b in trainer.batches] == [0, 0, 1, 1]
    assert curve(trainer, "mine")["mine"] == [7.0] * 4
    for batch in trainer.batches:
        on = batch.mask > 0
        torch.testing.assert_close(batch.sampling_logps[on], torch.full_like(batch.sampling_logps[on], math.log(0.1)))
        assert torch.equal(batch.extra["first_token"], batch.completion_ids[:, 0])
        top = batch.topk
        assert top.actor_logq[on][:, :2].exp().allclose(torch.tensor(0.1))
        assert (top.actor_logq[on][:, 2] == -math.inf).all()  # the actor gave two, three were asked for
        assert (top.policy_logp.diff(dim=-1) <= 0).all()
        drawn = batch.completion_ids == top.policy_ids[..., 0]
        torch.testing.assert_close(top.policy_logp[..., 0][drawn & on], batch.logps[drawn & on].detach())
        assert (top.actor_ids[on][:, :2] == torch.tensor(TOKENIZER.encode("01"))).all()
        asked = batch.completion_ids == top.actor_ids[..., 0]
        torch.testing.assert_close(top.actor_logp[..., 0][asked & on], batch.logps[asked & on].detach())
    # The random numbers move with their tokens: the second pass over a batch sees those of the first.
    for first, second in ((0, 2), (1, 3)):
        assert torch.equal(trainer.batches[first].uniform, trainer.batches[second].uniform)
        assert torch.equal(trainer.batches[first].completion_ids, trainer.batches[second].completion_ids)
    assert not torch.equal(trainer.batches[0].uniform, trainer.batches[1].uniform)


def test_stale_policy_has_its_likeliest_tokens_from_the_collection(tmp_path: Path) -> None:
    trainer = run(tmp_path, kind=Watches, trainer={"topk": 4}, steps_per_generation=2, max_steps=2)
    fresh, stale = trainer.batches
    on = fresh.mask > 0
    torch.testing.assert_close(fresh.topk.actor_logq[on], fresh.topk.policy_logp[on])
    torch.testing.assert_close(fresh.old_logps[on], fresh.logps[on].detach())
    on = stale.mask > 0
    assert (stale.topk.actor_logq - stale.topk.actor_logp)[on].abs().max() > 1e-3
    assert stale.sampling_logps is stale.old_logps
    assert run(tmp_path, kind=Watches, trainer={"topk": 4}, max_steps=1).batches[0].topk is None


def test_likeliest_tokens_of_vllm_lists(tmp_path: Path) -> None:
    """The lists as TRL describes them: the sampled token first, then the k likeliest, of which it may be one.

    vLLM itself does not run on this test's machines, so its lists are written out here.
    """

    class Engine:
        logprobs = None
        synced = 0

        def sync_weights(self) -> None:
            self.synced += 1

        def generate(self, **asked: Any) -> Any:
            assert asked["num_generations"] == 4
            return None, [[5, 6]], [[[-3.0, -0.5, -1.0], [-0.2, None]]], [[[5, 7, 8], [6, 9]]]

    trainer = make(tmp_path, trainer={"topk": 2})
    trainer.use_vllm, trainer.vllm_generation, trainer._last_loaded_step = True, Engine(), -1
    ids, logps = trainer._generate_single_turn([[1]], None, {}, 4)
    assert (ids, logps) == ([[5, 6]], [[-3.0, -0.2]])
    assert trainer.vllm_generation.synced == 1
    assert trainer._rollouts.topk_ids == [[[7, 8, 5], [6]]]
    assert trainer._rollouts.topk_logps == [[[-0.5, -1.0, -3.0], [-0.2]]]
    padded = trl_adapter._padded(trainer._rollouts.topk_logps, (1, 2), 2, -math.inf, torch.float32)
    assert padded.tolist() == [[[-0.5, -1.0], [pytest.approx(-0.2), -math.inf]]]


def test_auxiliary_loss_is_added_once_a_step(tmp_path: Path) -> None:
    class Decays(TokenLossTrainer):
        def token_loss(self, batch: TokenBatch) -> TokenLoss:
            return TokenLoss(0.0 * batch.logps)

        def auxiliary_loss(self, batch: TokenBatch, model: Any) -> torch.Tensor:
            return sum(p.square().sum() for p in model.parameters())

    norms = []
    for size, steps in ((8, 1), (2, 4)):
        trainer = run(tmp_path / str(size), kind=Decays, per_device_train_batch_size=size, max_steps=1,
                      gradient_accumulation_steps=steps)  # fmt: skip
        norms.append(curve(trainer, "grad_norm")["grad_norm"][0])
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert norms[0] == pytest.approx(2 * weights(make(tmp_path)).norm().item(), rel=1e-4)


def test_evaluation_reports_the_loss(tmp_path: Path) -> None:
    trainer = make(tmp_path, per_device_eval_batch_size=8)
    found = trainer.evaluate(PROMPTS.select(range(4)))
    assert math.isfinite(found["eval_loss"])
    assert 0 <= found["eval_reward"] <= 1


@pytest.mark.parametrize(
    ("options", "trainer", "message"),
    [
        ({"loss_type": "sapo"}, {}, "loss_type is 'sapo': TokenLossTrainer allows one of grpo, bnpo"),
        ({"importance_sampling_level": "sequence"}, {}, "importance_sampling_level is 'sequence'"),
        ({"top_entropy_quantile": 0.5}, {}, "top_entropy_quantile is 0.5: TokenLossTrainer allows 1.0"),
        ({"entropy_coef": 0.1}, {}, "entropy_coef is 0.1: TokenLossTrainer allows 0"),
        ({}, {"topk": -1}, "topk is -1: allowed are 0 and more"),
    ],
)
def test_what_the_loss_would_not_read_is_refused(
    tmp_path: Path, options: dict[str, Any], trainer: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, trainer=trainer, **options)


def test_hooks_that_return_nonsense_are_named(tmp_path: Path) -> None:
    class Short(TokenLossTrainer):
        def token_loss(self, batch: TokenBatch) -> TokenLoss:
            return TokenLoss(batch.logps.sum(1))

    class Clash(TokenLossTrainer):
        def collected(self, collection: Any, examples: Any) -> Any:
            return {"advantages": torch.zeros(8)}

    with pytest.raises(ValueError, match=r"token_loss returned shape \(8,\): the batch has \(8, 4\)"):
        run(tmp_path, kind=Short)
    with pytest.raises(ValueError, match="collected returned 'advantages': the collection has that name already"):
        run(tmp_path, kind=Clash)


@pytest.mark.parametrize(("found", "good"), [("1.15.2", False), ("1.16.0", True), ("1.16.9", True), ("1.17.0", False)])
def test_versions_outside_the_tested_range_are_refused(found: str, good: bool) -> None:
    assert TESTED == ("1.16", "1.17")
    if good:
        check_trl(found)
    else:
        with pytest.raises(ImportError, match=f"trl is {found}: tested are versions from 1.16 on, below 1.17"):
            check_trl(found)
    check_trl(importlib.metadata.version("trl"))
