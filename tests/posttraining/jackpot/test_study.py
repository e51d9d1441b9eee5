"""What the verdicts lean on: exact accuracy, masks, the draws, the arms, and the metrics of distributions."""

import functools
import math

import pytest
import torch

from paperworks.claims.study import Cell, Preparation, Trial
from paperworks.kit.assets import status
from paperworks.posttraining.jackpot import study
from paperworks.posttraining.jackpot.losses import LossOutput, jackpot_loss
from paperworks.posttraining.jackpot.obrs import full_topk, kl_divergence, obrs_normalizer, obrs_topk_normalizer

from . import reference

SMALL = study.Shape(width=32, start=0.15, actor_start=0.15, steps=75, digits=1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    study.models.function(Preparation(folder=folder, config=SMALL, seed=100, origin=("test", 100)))
    return folder


def trial(experiment, arm, level=None, cells=None, seed=100, factory=None, prepared=None, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    cells = [Cell(arm, level or {}, seed)] if cells is None else cells
    return Trial(
        origin=("jackpot", experiment.name, 1), cells=cells, scale="smoke", config=config,
        arms=experiment.arms if factory is None else {arm: factory}, prepared=lambda name, seed: prepared,
    )  # fmt: skip


def test_accuracy_is_the_share_of_right_samples(prepared):
    model = study._load(prepared / "policy").eval()
    problems = study._problems(trial(study.staleness, "tis").rng("x"), "test", 40, 1)
    exact = study._accuracy(model, problems)
    prompts = problems[0].repeat_interleave(250, 0)
    drawn, logq = study._draw(model, prompts, 3, torch.Generator().manual_seed(0))
    share = (drawn == problems[1].repeat_interleave(250, 0)).all(1).float().mean().item()
    assert 0.01 < exact < 0.95
    assert share == pytest.approx(exact, abs=5 * (exact / 10_000) ** 0.5)
    torch.testing.assert_close(logq, study._score(model, prompts, drawn).detach(), rtol=1e-3, atol=1e-4)


def test_training_and_test_sums_are_disjoint():
    rng = trial(study.staleness, "tis").rng("x")
    train, test = (study._problems(rng, part, 300, 1)[0] for part in ("train", "test"))
    assert not {tuple(r) for r in train.tolist()} & {tuple(r) for r in test.tolist()}


def test_tokens_after_the_end_do_not_count():
    end, digit = study.EOS, study.EOS + 5
    answers = torch.tensor([[digit, digit, digit, end], [digit, end, end, digit], [digit, digit, digit, digit]])
    assert study._until_end(answers).tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]


def test_collection_counts_answers_up_to_their_end(prepared):
    """A model of which half the draws end at once."""
    model = study._load(prepared / "policy").eval()
    with torch.no_grad():
        model.get_output_embeddings().weight[study.EOS] += 0.1
    c = study.staleness.config["smoke"]
    rng = trial(study.staleness, "tis").rng("x")
    found = study._Collection(model, 64, c, rng, torch.Generator().manual_seed(0))
    assert torch.equal(found.mask, study._until_end(found.answers))
    assert found.mask.sum() < found.mask.numel()
    assert sorted(found.order.tolist()) == list(range(64))


@pytest.mark.parametrize(
    ("curve", "expected"),
    [([0.2, 0.3, 0.1, 0.1, 0.1, 0.1], 1), ([0.3, 0.1, 0.1, 0.1, 0.2], 0), ([0.3, 0.2, 0.1, 0.1, 0.1], 0)],
)
def test_collapse_is_told_from_a_dip(curve, expected):
    assert study._collapsed(curve) == expected


@pytest.mark.parametrize("fresh", [False, True])
def test_fresh_arms_see_no_shift_and_others_their_collections(prepared, fresh):
    """Every update of a fresh arm is on samples of the policy as it is; of another, on those of the collection."""
    gaps = []

    class Spy(study.Recipe):
        def __call__(self, new, ref, actor, *args, **kwargs):
            gaps.append((new.detach() - actor).abs().max().item())
            assert ref is actor
            union = kwargs["topk"]  # of all tokens here: the drawn ones are among them, with both probabilities
            place = (union.logq - actor[..., None]).abs().argmin(-1, keepdim=True)
            torch.testing.assert_close(union.logq.gather(-1, place)[..., 0], actor)
            torch.testing.assert_close(union.logp.gather(-1, place)[..., 0], new.detach())
            return super().__call__(new, ref, actor, *args, **kwargs)

    mine = functools.partial(Spy, fresh=fresh, correction="none", clip_eps=0.2)
    study.staleness.function(trial(study.staleness, "mine", factory=mine, prepared=prepared, samples=128,
                                   topk=len(study.TOKENIZER)))  # fmt: skip
    assert len(gaps) == 8
    new = [gap < 1e-4 for gap in gaps]
    assert new == ([True] * 8 if fresh else [True, False, False, False] * 2)


def test_an_arm_of_ones_own_is_asked_as_the_paper_says(prepared):
    """A loss that returns nothing but zeros leaves the policy as it was."""

    def mine():
        def loss(logp_new, logp_ref, logp_actor, advantages, mask, *, topk, uniform):
            assert logp_new.shape == logp_ref.shape == logp_actor.shape == mask.shape == uniform.shape
            assert topk.logp.shape == (*mask.shape, 10)
            out = jackpot_loss(logp_new, logp_ref, logp_actor, advantages, mask, uniform=uniform)
            return LossOutput(0.0 * out.loss, out.metrics, out.per_token, out.weight)

        return loss

    outcome = study.staleness.function(trial(study.staleness, "mine", factory=mine, prepared=prepared))
    assert outcome.metrics["gain"] == pytest.approx(0, abs=1e-6)
    assert outcome.metrics["shift"] < 1e-6


def test_the_smaller_model_draws_and_both_learn(prepared):
    first = study._load(prepared / "actor")
    cell = trial(study.two_models, "tis_distill", prepared=prepared, rate=3e-3, distill=1.0)
    metrics = study.two_models.function(cell).metrics
    assert len(first.model.layers) == 1
    assert metrics["shift"] > 0.05
    own = study.two_models.function(trial(study.two_models, "on_policy", prepared=prepared, rate=3e-3)).metrics
    assert own["shift"] < 1e-4
    problems = study._problems(cell.rng("test"), "test", cell.config.test, 1)
    assert metrics["actor"] != pytest.approx(study._accuracy(first, problems), abs=1e-3)


def test_two_models_have_three_distributions(prepared):
    """p_ref is the policy when the batch was collected: p_new at its first update, never q."""
    gaps = []

    class Spy(study.Recipe):
        def __call__(self, new, ref, actor, *args, **kwargs):
            gaps.append([(x - ref).abs().max().item() for x in (new.detach(), actor)])
            return super().__call__(new, ref, actor, *args, **kwargs)

    mine = functools.partial(Spy, correction="tis", clip_eps=None)
    study.two_models.function(trial(study.two_models, "mine", factory=mine, prepared=prepared, collections=2))
    assert [moved < 1e-4 for moved, _ in gaps] == [True, False, False, False] * 2
    assert min(apart for _, apart in gaps) > 0.01


def test_shift_is_the_divergence_of_the_actor(prepared):
    call = trial(study.staleness, "tis", prepared=prepared)
    watch = study._Watch(call, study._load(prepared / "policy"))
    q, p = torch.randn(2, 1, 3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    out = LossOutput(torch.zeros(()), {"acceptance": 0.5}, q, q)
    watch(1, q, p, torch.tensor([[1.0, 1.0, 0.0]]), out)
    expected = sum(reference.kl(q[0, i].exp().tolist(), p[0, i].exp().tolist()) for i in range(2)) / 2
    assert watch.metrics()["shift"] == pytest.approx(expected, rel=1e-4)


def test_metrics_of_distributions_are_those_of_the_formulas():
    """A tempered actor, whose distribution is known; nothing is gained where there is no shift."""
    cells = [Cell(arm, {"lam": lam}, 100) for arm in ("temperature", "unchanged") for lam in (1.0, 4.0)]
    call = trial(study.logits, "", cells=cells)
    found = {(cell.arm, cell.level["lam"]): outcome.metrics for cell, outcome in study.logits.function(call)}
    policy, ids, _ = study._policy(call, cells[0])
    with torch.no_grad():
        scores = policy(input_ids=ids).logits[:, 7:15].flatten(0, 1)
    p, q = scores.log_softmax(-1), (scores / 1.1).log_softmax(-1)
    mine = found["temperature", 1.0]
    assert mine["kl_before"] == pytest.approx(kl_divergence(p, q).mean().item(), rel=1e-4)
    assert mine["acceptance"] == pytest.approx(obrs_normalizer(p, q).mean().item(), rel=1e-5)
    assert mine["log_kl_ratio"] < mine["log_kl_ratio_solved"] + 5
    z, part = obrs_normalizer(p, q), obrs_topk_normalizer(full_topk(p, q, 5))
    assert mine["error_k5_plain"] == pytest.approx((part / z - 1).abs().mean().item(), rel=1e-3)
    scaled = (z.mean() / part.mean() * part).clamp(max=1)  # with kappa as from endless draws
    assert mine["error_k5"] == pytest.approx((scaled / z - 1).abs().mean().item(), abs=0.03)
    assert mine["gain_k5"] == pytest.approx(mine["error_k5_plain"] - mine["error_k5"]) != 0
    assert mine["log_kl_ratio_solved"] == found["temperature", 4.0]["log_kl_ratio_solved"] < 0
    assert found["temperature", 4.0]["log_kl_ratio"] == pytest.approx(math.log(1e-6 / mine["kl_before"]), abs=3)
    assert found["unchanged", 1.0]["kl_before"] < 1e-6
    assert found["unchanged", 1.0]["log_kl_ratio"] == found["unchanged", 1.0]["log_kl_ratio_solved"] == 0
    assert found["unchanged", 4.0]["acceptance"] == pytest.approx(0.25, rel=1e-4)


def test_budget_for_all_positions_keeps_what_is_asked_for():
    g = torch.Generator().manual_seed(0)
    base = torch.randn(40, 30, generator=g)
    p, q = base.log_softmax(-1), (base + 0.5 * torch.randn(40, 30, generator=g)).log_softmax(-1)
    before = kl_divergence(p, q).mean().item()
    some, most = (study._log_ratio_at(p, q, share, before) for share in (0.5, 0.93))
    assert some < most < 0
    assert study._log_ratio_at(p, q, 0.999999, before) == pytest.approx(0, abs=0.01)


@pytest.mark.slow
@pytest.mark.skipif(
    "missing" in {status(name).state for name in ("smollm2", "wordnet")},
    reason="not on this machine: paperworks data smollm2 wordnet",
)
def test_real_model_on_glosses():
    c = study.Logits(texts=2, length=24, positions=8, draws=200)
    cells = [Cell("temperature", {"lam": 1.0}, 100)]
    call = Trial(origin=("jackpot", "logits", 1), cells=cells, scale="laptop", config=c, arms=study.logits.arms)
    metrics = dict(study.logits.function(call))[cells[0]].metrics
    assert 0.01 < metrics["kl_before"] < 0.1
    assert 0.8 < metrics["acceptance"] < 0.97
