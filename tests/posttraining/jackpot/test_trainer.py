"""JackpotGRPOTrainer on TinyGPT: trajectories, accumulation, PEFT, resuming, actors and what it refuses."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("trl", reason="not installed: pip install 'paperworks[posttraining]'")

from peft import LoraConfig

from paperworks.kit.lm import TinyGPT
from paperworks.posttraining.jackpot.actors import ModelActor, StaleActor, drop_layers_, quantise_
from paperworks.posttraining.jackpot.losses import OBRS
from paperworks.posttraining.jackpot.obrs import obrs_normalizer, obrs_topk_normalizer
from paperworks.posttraining.jackpot.trainer import GOLDEN, JackpotGRPOConfig, JackpotGRPOTrainer

from .helpers import EOS, PAD, PROMPTS, TOKENIZER, curve, even, tiny


def make(folder, *, kind=JackpotGRPOTrainer, model=None, trainer=None, **options):
    settings = dict(
        output_dir=str(folder), per_device_train_batch_size=8, num_generations=4, max_completion_length=4,
        learning_rate=1e-2, max_steps=4, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, seed=5,
        lr_scheduler_type="constant", disable_tqdm=True, bf16=False, obrs_topk=5,
    )  # fmt: skip
    return kind(
        model=tiny() if model is None else model,
        reward_funcs=even,
        args=JackpotGRPOConfig(**settings | options),
        train_dataset=PROMPTS,
        processing_class=TOKENIZER,
        **trainer or {},
    )


def run(*args, **options):
    trainer = make(*args, **options)
    trainer.train()
    return trainer


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters() if p.requires_grad])


def test_same_seed_same_trajectory(tmp_path):
    """With samples of up to three updates ago, in which tokens are rejected."""
    first, again, other = (run(tmp_path / f"{i}", seed=s, steps_per_generation=4) for i, s in enumerate((5, 5, 6)))
    for name in ("loss", "jackpot/acceptance", "jackpot/kappa", "jackpot/weight_q50"):
        assert curve(first, name) == curve(again, name)
    assert curve(first, "loss") != curve(other, "loss")
    torch.testing.assert_close(weights(first), weights(again), rtol=0, atol=0)
    accepted = curve(first, "jackpot/acceptance")
    assert accepted[0] == 1
    assert min(accepted) < 0.95
    assert max(curve(first, "jackpot/kl_actor_policy")) > 0.01


@pytest.mark.parametrize("options", [{"correction": "none", "clip_eps": 0.2}, {}, {"target": "ref"}])
def test_eight_micro_batches_of_one_are_one_batch_of_eight(tmp_path, options):
    """Exactly, with the exact Z of all tokens and without kappa, of which the first micro-batches see a part alone."""
    plain = dict(max_steps=2, optim="sgd", learning_rate=0.3, obrs_topk=len(TOKENIZER), **options)
    trainer = {"actor": ModelActor(tiny(1), EOS, PAD, generator=torch.Generator().manual_seed(0))}
    if "correction" not in options:
        trainer["correction"] = OBRS(bias_correction=False)
    whole = run(tmp_path / "a", **plain, trainer=trainer)
    trainer["actor"].generator.manual_seed(0)
    parts = run(tmp_path / "b", **plain, trainer=trainer, per_device_train_batch_size=1, gradient_accumulation_steps=8)
    assert curve(parts, "reward") == curve(whole, "reward")
    assert (weights(whole) - weights(make(tmp_path))).abs().max() > 0.01
    torch.testing.assert_close(weights(parts), weights(whole), rtol=1e-4, atol=1e-4)
    if "correction" not in options:
        assert curve(whole, "jackpot/acceptance")[0] < 0.9


def test_kappa_pools_the_micro_batches_of_a_step(tmp_path):
    """The last micro-batch of a step sees the sums of all; the next step starts anew."""
    seen = []

    class Spy(JackpotGRPOTrainer):
        def _pool(self, sums):
            seen.append((sums, super()._pool(sums)))
            return seen[-1][1]

    actor = ModelActor(tiny(1), EOS, PAD)
    run(tmp_path, kind=Spy, max_steps=2, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        trainer={"actor": actor})  # fmt: skip
    own, pooled = zip(*seen, strict=True)
    for first in (0, 2):
        torch.testing.assert_close(pooled[first], own[first])
        torch.testing.assert_close(pooled[first + 1], own[first] + own[first + 1])


def test_tokens_that_an_engine_says_nothing_of(tmp_path):
    """NaN in place of a log-probability: the token counts as drawn by the policy."""
    seen = []

    class Silent(ModelActor):
        def generate(self, *args, **options):
            found = super().generate(*args, **options)
            return found._replace(logps=[[math.nan] * len(row) for row in found.logps])

    def own(shift):
        seen.append((shift.logp_target - shift.logp_actor).abs().max().item())
        return OBRS()(shift)

    run(tmp_path, max_steps=1, trainer={"actor": Silent(tiny(1), EOS, PAD), "correction": own})
    assert seen[-1] == 0


def test_random_numbers_of_a_second_pass_are_shifted(tmp_path):
    """A token that was rejected is not bound to be rejected again."""
    seen = []

    def own(shift):
        seen.append(shift.uniform)
        return OBRS()(shift)

    run(tmp_path, max_steps=2, num_iterations=2, trainer={"correction": own})
    first, second = seen[-2:]
    torch.testing.assert_close(second, (first + GOLDEN) % 1)


@pytest.mark.parametrize(("target", "batches"), [("new", 2), ("ref", 2), ("ref", 1)])
def test_normaliser_is_that_of_the_target(tmp_path, target, batches):
    """On a fresh batch and a stale one, from all tokens and the captured cross terms: the exact Z of p_new or p_ref."""
    seen = []

    class Spy(JackpotGRPOTrainer):
        def token_loss(self, batch):
            policy = self.accelerator.unwrap_model(self.model)
            ids = torch.cat((batch.prompt_ids, batch.completion_ids), dim=1)
            # As the trainer scores: no position is shifted by padding, for all prompts are of one length.
            with torch.no_grad():
                log = [m(input_ids=ids).logits[:, batch.prompt_ids.shape[1] - 1 : -1].log_softmax(-1)
                       for m in (policy if target == "new" else tiny(), tiny(1))]  # fmt: skip
            on = batch.mask > 0
            z = obrs_topk_normalizer(self._union(batch), 1.2)
            seen.append((z[on], obrs_normalizer(*log, 1.2)[on]))
            return super().token_loss(batch)

    # With an adapter and a penalty a collection has a second pass, of the model without the adapter.
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    run(tmp_path, kind=Spy, target=target, max_steps=batches, steps_per_generation=batches, learning_rate=0.1,
        beta=0.05, obrs_topk=len(TOKENIZER),
        trainer={"actor": ModelActor(tiny(1), EOS, PAD), "peft_config": lora})  # fmt: skip
    assert len(seen) == batches
    for found, exact in seen:
        torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", [{"mask_mode": "expected"}, {"correction": "icepop"}, {}])
def test_divided_by_what_was_kept(tmp_path, options):
    """TRL's mean takes the place of `jackpot_loss`'s own, and is the same."""
    seen = []

    class Spy(JackpotGRPOTrainer):
        def token_loss(self, batch):
            made = super().token_loss(batch)
            seen.append(made)
            return made

    trainer = run(tmp_path, kind=Spy, normalise="accepted", loss_type="bnpo", max_steps=1, learning_rate=0.0,
                  trainer={"actor": ModelActor(tiny(1), EOS, PAD)}, **options)  # fmt: skip
    kept = seen[0].mask
    assert curve(trainer, "loss")[0] == pytest.approx((seen[0].per_token.sum() / kept.sum()).item(), abs=1e-4)
    if options.get("mask_mode") == "expected":
        assert ((kept > 0) & (kept < 1)).any()


def test_training_raises_the_reward_from_anothers_samples(tmp_path):
    """The policy learns from a tempered stale copy; measured on its own samples."""
    model = tiny()
    actor = StaleActor(model, EOS, PAD, every=3, temperature=1.3)
    trainer = make(tmp_path, model=model, max_steps=40, per_device_train_batch_size=32, num_generations=8,
                   trainer={"actor": actor})  # fmt: skip
    policy = ModelActor(model, EOS, PAD)

    def reward():
        prompts = TOKENIZER([row["prompt"] for row in PROMPTS])["input_ids"] * 4
        found = policy.generate(prompts, max_tokens=4, temperature=1.0, topk=0)
        return np.mean(even(TOKENIZER.batch_decode(found.completion_ids, skip_special_tokens=True)))

    before = reward()
    trainer.train()
    assert reward() > before + 0.15
    assert min(curve(trainer, "jackpot/acceptance")) < 0.95


def test_lora_accumulation_and_reference_penalty(tmp_path):
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = tiny()
    trainer = make(tmp_path, model=model, beta=0.05, steps_per_generation=4, gradient_accumulation_steps=2,
                   trainer={"peft_config": lora, "actor": StaleActor(model, EOS, PAD)})  # fmt: skip
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.train()
    changed = {name for name, p in trainer.model.named_parameters() if not torch.equal(p, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert len(curve(trainer, "kl")) == 4
    # The second collection's actor has the adapter merged in.
    merged = dict(trainer.actor.model.named_parameters())
    assert not torch.equal(merged["model.layers.0.self_attn.q_proj.weight"], dict(tiny().named_parameters())[
        "model.layers.0.self_attn.q_proj.weight"])  # fmt: skip


def test_resumed_run_is_the_unbroken_one(tmp_path):
    unbroken = run(tmp_path / "a", steps_per_generation=2)
    run(tmp_path / "b", steps_per_generation=2, max_steps=2, save_strategy="steps", save_steps=2)
    resumed = make(tmp_path / "b", steps_per_generation=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-2"))
    assert curve(resumed, "jackpot/acceptance") == pytest.approx(curve(unbroken, "jackpot/acceptance"), abs=1e-6)
    torch.testing.assert_close(weights(resumed), weights(unbroken), rtol=1e-4, atol=1e-6)


def test_own_correction_and_unknown_probabilities(tmp_path):
    seen = []

    def own(shift):
        from paperworks.posttraining.jackpot.losses import no_correction

        seen.append(shift)
        return no_correction(shift)

    actor = ModelActor(tiny(1), EOS, PAD)
    run(tmp_path, max_steps=1, trainer={"actor": actor, "correction": own})
    assert seen
    shift = seen[-1]
    assert shift.topk.logp.shape == (*shift.logp_actor.shape, 10)
    assert shift.topk.logq.isfinite().all()  # "tail" stands where the actor said nothing
    assert (shift.logp_target != shift.logp_actor).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top_p": 0.9}, "top_p is 0.9: OBRS needs the probabilities"),
        ({"top_k": 5}, "top_k is 5: OBRS"),
        ({"repetition_penalty": 1.1}, "repetition_penalty is 1.1"),
        ({"lam": 0.0}, "lam is 0.0: allowed is any number above 0"),
        ({"correction": "ppo"}, "correction is 'ppo': allowed are"),
        ({"mask_mode": "draw"}, "mask_mode is 'draw'"),
        ({"obrs_topk": -1}, "topk is -1"),
        ({"normalise": "accepted"}, "normalise is 'accepted': loss_type 'dapo' divides by a number fixed beforehand"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **options)


def test_needs_its_own_configuration(tmp_path):
    from trl import GRPOConfig

    with pytest.raises(ValueError, match="args is a GRPOConfig: allowed is a JackpotGRPOConfig"):
        JackpotGRPOTrainer(tiny(), even, GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False), PROMPTS)


def test_actor_reports_what_it_drew_from():
    """Each token's log-probability by a plain forward over prompt and completion, with padding and a cache."""
    model = tiny().eval()
    prompts = TOKENIZER(["1+2=", "=", "9+9+9="])["input_ids"]
    actor = ModelActor(model, EOS, PAD, generator=torch.Generator().manual_seed(3), temperature=1.5)
    found = actor.generate(prompts * 9, max_tokens=6, temperature=0.8, topk=4)
    for prompt, ids, logps, top, scores in zip(prompts * 9, *found, strict=True):
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        whole = (logits / (0.8 * 1.5)).log_softmax(-1).detach()
        torch.testing.assert_close(torch.tensor(logps), whole[range(len(ids)), ids], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(scores), whole.topk(4).values, rtol=1e-4, atol=1e-5)
        assert torch.equal(torch.tensor(top), whole.topk(4).indices)
        assert EOS not in ids[:-1]
        assert len(ids) <= 6
    assert len({len(ids) for ids in found.completion_ids}) > 1


def test_stale_copies_are_renewed_when_it_is_time():
    policy = tiny()
    actor = StaleActor(policy, EOS, PAD, every=2, change=quantise_)
    first = next(iter(policy.model.layers)).mlp.up_proj.weight
    for step in range(4):
        actor.sync(policy, step)
        with torch.no_grad():
            first += 1.0
        copied = next(iter(actor.model.model.layers)).mlp.up_proj.weight
        assert (first - copied).mean().item() == pytest.approx(1 + step % 2, abs=0.1)


def test_copies_of_a_policy_in_a_trainer_are_copies(tmp_path):
    """TRL patches the policy's forward; a stale copy of it has to run its own weights."""
    trainer = make(tmp_path)
    actor = StaleActor(trainer.model, EOS, PAD)
    prompt = torch.tensor([[9, 10]])
    before = actor.model(input_ids=prompt).logits.detach()
    with torch.no_grad():
        for p in trainer.model.parameters():
            p += 0.1
    torch.testing.assert_close(actor.model(input_ids=prompt).logits.detach(), before, rtol=0, atol=0)


def test_quantised_weights_lie_on_the_grid():
    layer = torch.nn.Sequential(torch.nn.Linear(64, 8))
    before = layer[0].weight.detach().clone()
    quantise_(layer, 4)
    for row, old in zip(layer[0].weight, before, strict=True):
        assert len(row.unique()) <= 15
        assert (row - old).abs().max() <= old.abs().max() / 14 + 1e-6
    with pytest.raises(ValueError, match="bits is 1: allowed are 2 to 16"):
        quantise_(layer, 1)


def test_dropped_layers_leave_a_model_that_generates():
    model = drop_layers_(tiny(layers=3), [1])
    other = tiny(layers=3)
    other.model.layers[1] = torch.nn.Identity()
    ids = torch.tensor([[9, 10, 11]])
    cut = TinyGPT(model.config)
    cut.load_state_dict(model.state_dict())
    torch.testing.assert_close(cut(input_ids=ids).logits, model(input_ids=ids).logits)
    found = ModelActor(model, EOS, PAD).generate([[9, 10]], max_tokens=3, temperature=1.0, topk=0)
    logits = model(input_ids=torch.tensor([[9, 10, *found.completion_ids[0]]])).logits[0, 1:-1].log_softmax(-1)
    expected = logits[range(len(found.completion_ids[0])), found.completion_ids[0]]
    torch.testing.assert_close(torch.tensor(found.logps[0]), expected.detach(), rtol=1e-4, atol=1e-5)
    for layers in ([3], [0, 1, 2]):
        with pytest.raises(ValueError, match=r"layers is .*: allowed are numbers from 0 to"):
            drop_layers_(tiny(layers=3), layers)
    with pytest.raises(ValueError, match="every is 0"):
        StaleActor(tiny(), EOS, PAD, every=0)
    with pytest.raises(ValueError, match="temperature is 0"):
        ModelActor(tiny(), EOS, PAD, temperature=0)
    assert math.isfinite(expected.sum().item())
