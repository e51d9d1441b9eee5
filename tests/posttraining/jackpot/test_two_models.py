"""Two models: the sum of Eq. 7, where its gradients go, and the TRL trainer."""

import dataclasses
import math
import re

import pytest
import torch

from paperworks.posttraining.jackpot.losses import jackpot_loss
from paperworks.posttraining.jackpot.obrs import kl_divergence
from paperworks.posttraining.jackpot.two_models import distillation_loss, two_model_loss


def distributions(seed=0, shape=(3, 4, 7)):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=g, dtype=torch.float64).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_distillation_is_the_divergence_of_the_actor(direction):
    policy, actor = distributions()
    mask = torch.ones(3, 4, dtype=torch.float64)
    mask[1, 2:] = 0
    p, q = policy.log_softmax(-1), actor.log_softmax(-1)
    loss = distillation_loss(p, q, mask, direction)
    pair = (p, q) if direction == "forward" else (q, p)
    assert loss.item() == pytest.approx((kl_divergence(*pair) * mask).sum().item() / 10)
    loss.backward()
    assert policy.grad is None
    assert actor.grad[mask > 0].abs().sum() > 0
    assert (actor.grad[mask == 0] == 0).all()
    if direction == "forward":  # d KL(p || softmax(a)) / d a = q - p
        torch.testing.assert_close(actor.grad[0, 0], ((q - p).exp() * p.exp() - p.exp())[0, 0].detach() / 10)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_distillation_without_some_tokens_and_with_dirty_padding(direction):
    """Tokens that neither model can draw add nothing, nor does padding, whatever it holds."""
    policy, actor = distributions()
    banned = torch.zeros(7, dtype=torch.float64)
    banned[2] = -math.inf
    mask = torch.ones(3, 4, dtype=torch.float64)
    mask[0, 1] = 0
    p, q = ((x + banned).log_softmax(-1) for x in (policy, actor))
    p = torch.where(mask[..., None] > 0, p.detach(), 5.0)
    loss = distillation_loss(p, q, mask, direction)
    left = [0, 1, 3, 4, 5, 6]
    pair = [policy[..., left].log_softmax(-1), actor[..., left].log_softmax(-1)]
    expected = kl_divergence(*(pair if direction == "forward" else pair[::-1]))[mask > 0].mean()
    assert loss.item() == pytest.approx(expected.item())
    found, wanted = (torch.autograd.grad(x, actor, retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(found[mask > 0], wanted[mask > 0])
    assert (found[mask == 0] == 0).all()


def test_sum_of_the_parts_and_their_gradients():
    policy, actor = distributions(1)
    mask, advantages = torch.ones(3, 4), torch.tensor([1.0, -1.0, 0.5])
    ids = torch.zeros(3, 4, 1, dtype=torch.long)
    p, q = (x.log_softmax(-1) for x in (policy, actor))
    new, own = (x.gather(-1, ids).squeeze(-1) for x in (p, q))
    drawn = own.detach() + torch.tensor([0.05, 1.0, -1.0, 0.0])  # beyond the actor's clip on both sides
    uniform = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    first = jackpot_loss(new, new.detach(), drawn, advantages, mask, uniform=uniform, clip_eps=None)
    distilled = distillation_loss(p, q, mask)
    both = two_model_loss(first, own, drawn, advantages, mask, distilled, weight=0.3)
    alone = jackpot_loss(own, drawn, drawn, advantages, mask, correction="none", clip_eps=0.2)
    assert both.loss.item() == pytest.approx((first.loss + alone.loss + 0.3 * distilled).item())
    of_policy = torch.autograd.grad(both.loss, policy, retain_graph=True)[0]
    torch.testing.assert_close(of_policy, torch.autograd.grad(first.loss, policy, retain_graph=True)[0])
    assert torch.autograd.grad(both.loss, actor)[0].abs().sum() > 0
    assert {"actor_loss", "distillation", "acceptance"} <= set(both.metrics)


def test_bad_input_is_named():
    p, q = (x.log_softmax(-1) for x in distributions())
    mask = torch.ones(3, 4)
    with pytest.raises(ValueError, match="kl_direction is 'back': allowed are 'forward', 'reverse'"):
        distillation_loss(p, q, mask, "back")
    with pytest.raises(ValueError, match=re.escape("weight is -1: allowed are 0 and more")):
        two_model_loss(None, p, p, mask, mask, mask, weight=-1)


def make(folder, actor=None, kind=None, **options):
    from paperworks.posttraining.jackpot import TwoModelGRPOConfig, TwoModelGRPOTrainer

    from .helpers import PROMPTS, TOKENIZER, even, tiny

    settings = dict(
        output_dir=str(folder), per_device_train_batch_size=4, num_generations=4, max_completion_length=4,
        gradient_accumulation_steps=2, learning_rate=1e-2, max_steps=4, logging_steps=1, report_to=[],
        save_strategy="no", use_cpu=True, seed=5, lr_scheduler_type="constant", disable_tqdm=True, bf16=False,
        obrs_topk=5, actor_learning_rate=2e-2,
    )  # fmt: skip
    return (kind or TwoModelGRPOTrainer)(
        model=tiny(), reward_funcs=even, args=TwoModelGRPOConfig(**settings | options), train_dataset=PROMPTS,
        processing_class=TOKENIZER, actor_model=tiny(1, layers=1) if actor is None else actor,
    )  # fmt: skip


def test_trainer_adds_the_actors_loss_and_the_distillation(tmp_path):
    """From plain forwards, a prompt at a time, at temperature 0.7, with a prompt that has the padding's token in it."""
    pytest.importorskip("trl", reason="not installed: pip install 'paperworks[posttraining]'")
    from paperworks.posttraining.jackpot import TwoModelGRPOTrainer

    from .helpers import PAD

    found = []

    class Spy(TwoModelGRPOTrainer):
        def auxiliary_loss(self, batch, model):
            prompts = torch.tensor([[PAD, 5, 6, PAD, 7], [4, 5, 6, 7, 8]] * 2)
            batch = dataclasses.replace(batch, prompt_ids=prompts, sampling_logps=batch.sampling_logps + 0.4)
            parts = []
            for i, prompt in enumerate(prompts):
                n = int(batch.mask[i].sum())
                ids = torch.cat((prompt[prompt[0] == PAD :], batch.completion_ids[i, :n]))[None]
                scores = [m(input_ids=ids).logits[0, -n - 1 : -1] / 0.7 for m in (model, self.actor_model)]
                p, q = (x.log_softmax(-1) for x in scores)
                ratio = (q.gather(-1, ids[0, -n:, None])[:, 0] - batch.sampling_logps[i, :n]).exp()
                gain = torch.minimum(ratio * batch.advantages[i], ratio.clamp(0.8, 1.2) * batch.advantages[i])
                parts.append((0.3 * kl_divergence(p, q) - gain).sum().item())
            loss = super().auxiliary_loss(batch, model)
            found.append((loss.item(), sum(parts) / batch.mask.sum().item()))
            return loss

    trainer = make(tmp_path, kind=Spy, temperature=0.7, distill_weight=0.3, max_steps=2)
    trainer.train()
    assert len(found) == 4
    for got, expected in found:
        assert got == pytest.approx(expected, rel=1e-4, abs=1e-5)
    # What draws is the actor of the collection's start; the next collection takes over what it has learnt.
    drawing, learning = (m.get_output_embeddings().weight for m in (trainer.actor.model, trainer.actor_model))
    assert not torch.equal(drawing, learning)
    trainer.actor.sync(trainer.model, 2)
    assert torch.equal(drawing, learning)


def test_both_models_train_in_trl_and_resume(tmp_path):
    """The actor draws, both move, and a run resumed from its checkpoint ends where the unbroken one does."""
    pytest.importorskip("trl", reason="not installed: pip install 'paperworks[posttraining]'")
    from .helpers import curve, tiny

    def flat(model):
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    unbroken = make(tmp_path / "a")
    unbroken.train()
    assert (flat(unbroken.actor_model) - flat(tiny(1, layers=1))).abs().max() > 0.02
    assert (flat(unbroken.model) - flat(tiny())).abs().max() > 0.01
    assert len(curve(unbroken, "jackpot/distillation")) == 4
    assert curve(unbroken, "jackpot/acceptance")[0] < 1
    make(tmp_path / "b", max_steps=2, save_strategy="steps", save_steps=2).train()
    resumed = make(tmp_path / "b")
    resumed.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-2"))
    for name in ("model", "actor_model"):
        torch.testing.assert_close(flat(getattr(resumed, name)), flat(getattr(unbroken, name)), rtol=1e-4, atol=1e-5)
    for name, value in (("distill_weight", -1.0), ("actor_clip_eps", 0.0), ("kl_direction", "back")):
        with pytest.raises(ValueError, match=f"{name} is {value!r}"):
            make(tmp_path / "c", **{name: value})
    other = tiny()
    other.config.vocab_size = 9
    with pytest.raises(ValueError, match="actor_model has 9 tokens: the policy has"):
        make(tmp_path / "c", actor=other)
