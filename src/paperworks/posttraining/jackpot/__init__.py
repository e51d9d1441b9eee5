"""Jackpot: optimal budget rejection sampling for off-policy reinforcement learning of language models.

Paper: "Jackpot: Optimal Budgeted Rejection Sampling for Extreme Actor-Policy Mismatch Reinforcement Learning", ICLR
2026, arXiv 2602.06107; https://github.com/Infini-AI-Lab/jackpot has the paper and no code. Tokens drawn by an actor q
train another policy p. Instead of weighting them all, each is kept with probability min(1, p / (lam q)) and the kept
ones are weighted by p over the distribution that rejection leaves.

What is here:
    `obrs_accept_prob`, `obrs_normalizer`, `obrs_log_density`, `obrs_weight`, `solve_lambda`, `solve_batch_lambda`: the
        mathematics on log-probabilities of any leading shape.
    `obrs_topk_normalizer` with `TopK`, `full_topk`, `merge_topk`: the normaliser from the likeliest tokens of both.
    `jackpot_loss`: the loss, with the corrections it is compared with one argument away (`PRESETS`), or one of yours.
    `JackpotGRPOTrainer`, `JackpotGRPOConfig`: the same in TRL, for any model, with vLLM or an `ActorPool`.
    `ModelActor`, `StaleActor`, `quantise_`, `drop_layers_`: actors that differ from the policy.
    `TwoModelGRPOTrainer`, `two_model_loss`, `distillation_loss`: a small actor trained beside the policy.
    `diagnose`: shift, acceptance by position and effective sample size of any batch.

Example:
    >>> import torch
    >>> from paperworks.posttraining.jackpot import jackpot_loss
    >>> policy = torch.full((2, 5), -1.0, requires_grad=True)  # log p of the drawn tokens
    >>> actor = torch.full((2, 5), -1.2)
    >>> out = jackpot_loss(policy, actor, actor, torch.tensor([1.0, -1.0]), torch.ones(2, 5), clip_eps=None)
    >>> out.loss.backward()
    >>> round(out.metrics["acceptance"], 2)
    1.0

    In TRL (any model of the hub, with vLLM: ``use_vllm=True``):
    >>> from paperworks.posttraining.jackpot import JackpotGRPOConfig, JackpotGRPOTrainer
    >>> config = JackpotGRPOConfig(steps_per_generation=128, lam=1.0)  # doctest: +SKIP
    >>> JackpotGRPOTrainer("Qwen/Qwen3-4B-Base", reward, config, dataset).train()  # doctest: +SKIP

Differences from the paper:
    The paper gives no values for lam, c1, c2 and eps: ours are 1, 3, 3 and 0.2, and 0.1 for the distillation.
    Its algorithm box has no draw of the mask, its equations have: `mask_mode` is "sample" unless told otherwise; "none"
    is the box.
    `mask_mode="expected"`, `acceptance=` (a budget solved for in each batch), `diagnose` and `unknown=` (what stands
    for probabilities that an engine does not return) are additions.
    The distillation term is the forward divergence of its Eq. 7; its text elsewhere says reverse: `kl_direction`.
    With target "new" the baselines "tis", "is" and "icepop" correct p_new / q and turn it back as Jackpot does, so that
    the mask is all that differs; with "ref" they are those of their papers. "none" is plain PPO with either.
    Under gradient accumulation kappa pools the micro-batches of a step so far, not those to come.
    Not here: the paper's own runs (Qwen3 on DeepScaleR). Ours are a GPT of 0.1 million parameters on additions, and
    SmolLM2's distributions. vLLM's path was written from TRL's source and not run.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
