"""The parts of the study that a verdict leans on: derived metrics, the trivial baseline, the split of the data."""

import math

import pandas as pd
import pytest
import torch

from paperworks.claims.study import Cell, Trial
from paperworks.layers.quest import study
from paperworks.layers.quest.derive import biased_retrieval
from paperworks.layers.quest.module import QuestAttention
from paperworks.layers.quest.retrieval import RunAttention


def rows(values):
    keys = ["arm", "host", "cue", "metric", "value"]
    return pd.DataFrame([dict(zip(keys, row, strict=True)) | {"seed": 3, "item": None} for row in values])


def test_what_the_cue_costs_and_what_it_adds_to_key_norms():
    table = rows(
        [
            ("none", "bare", "masked", "acc", 0.9),
            ("none", "bare", "present", "acc", 0.6),
            ("none", "bare", "present", "success", 0.5),
            ("none", "bare", "present", "key_ratio", 1.7),
            ("none", "bare", "masked", "key_ratio", 1.1),
            ("quest", "bare", "masked", "acc", 1.0),
            ("quest", "bare", "present", "acc", 0.5),
            ("quest", "embedding", "masked", "acc", 0.7),
        ]
    )
    copy = table.copy()
    out = biased_retrieval(table, 3)
    found = {(r.arm, r.host, r.metric): r.value for r in out.itertuples()}
    both = {(arm, "bare", metric) for arm in ("none", "quest") for metric in ("harm", "harm_odds")}
    assert set(found) == both | {("none", "bare", "key_rise")}
    assert found["none", "bare", "key_rise"] == pytest.approx(0.6)
    assert found["none", "bare", "harm"] == pytest.approx(0.3)
    assert found["none", "bare", "harm_odds"] == pytest.approx(math.log(9) - math.log(1.5))
    assert found["quest", "bare", "harm"] == pytest.approx(0.5)
    assert math.isfinite(found["quest", "bare", "harm_odds"])
    pd.testing.assert_frame_equal(table, copy)
    assert biased_retrieval(table[table.cue == "masked"], 3).empty


def test_uniform_attention_is_attention_with_zero_queries():
    torch.manual_seed(0)
    uniform = study.UniformAttention(8, 2, batch_first=True)
    other = QuestAttention(8, 2, batch_first=True)
    other.load_state_dict(uniform.state_dict())
    with torch.no_grad():
        other.in_proj_weight[:8] = 0
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(uniform(x, x, x)[0], other(x, x, x)[0])


def trial(experiment, arm, level, seed=100, factory=None, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    cell = Cell(arm, level, seed)
    arms = experiment.arms if factory is None else {arm: factory}
    return Trial(origin=("quest", experiment.name, 1), cells=[cell], scale="smoke", config=config, arms=arms)


def test_masked_samples_leave_no_trace_in_training(monkeypatch):
    """Whatever the biased samples look like, a run in which they are masked ends with the same model."""
    results = []
    for shift in (3.0, -50.0):
        monkeypatch.setattr(study, "BiasedRetrieval", lambda shift=shift: study_task(shift=shift))
        metrics = [
            study.biased_retrieval.function(
                trial(study.biased_retrieval, "quest", {"cue": cue, "host": "bare"}, steps=15)
            ).metrics["log_max_logit"]
            for cue in ("masked", "present")
        ]
        results.append(metrics)
    (masked, present), (masked_too, present_too) = results
    assert masked == masked_too
    assert present != present_too


study_task = study.BiasedRetrieval


def test_training_cue_and_test_sequences_are_drawn_apart(monkeypatch):
    """Half of the training samples are biased, all of the cue's, none of the test's, each from a stream of its own."""
    drawn = {}

    class Spy(study_task):
        def sample(self, size, generator, biased_share=0.5):
            drawn.setdefault(generator.initial_seed(), []).append((size, biased_share))
            return super().sample(size, generator, biased_share)

    monkeypatch.setattr(study, "BiasedRetrieval", Spy)
    cell = trial(study.biased_retrieval, "none", {"cue": "present", "host": "bare"}, steps=3)
    outcome = study.biased_retrieval.function(cell)
    assert sorted(drawn.values()) == [[(48, 0.5)] * 3, [(50, 1.0)], [(100, 0.0)]]
    assert outcome.metrics["acc_biased"] != outcome.metrics["acc"]


def test_the_share_of_solved_runs_is_shown_for_every_threshold():
    cell = trial(study.biased_retrieval, "quest", {"cue": "masked", "host": "bare"}, steps=150, solved=0.5)
    outcome = study.biased_retrieval.function(cell)
    shares = dict(cell.finish(cell.cells[0], outcome).curves["success_at"])
    assert shares[0.5] == outcome.metrics["success"] > 0
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert shares[0.98] == 0


def test_training_and_test_digits_are_disjoint_and_split_anew_for_each_seed():
    splits = []
    for seed in (100, 101):
        x, y, x_test, y_test = study._digits(trial(study.vit_robustness, "none", {}, seed), "digits8x8", 1000, 797)
        assert (len(x), len(y), len(x_test), len(y_test)) == (1000, 1000, 797, 797)
        assert (x.min(), x.max()) == (0, 1)
        assert len(torch.cat([x, x_test]).flatten(1).unique(dim=0)) == 1797
        splits.append(x)
    assert not torch.equal(*splits)


def test_each_pass_over_the_data_visits_every_row_once():
    batches = list(study._batches(10, 4, 6, torch.Generator().manual_seed(0)))
    assert [len(b) for b in batches] == [4, 4, 2, 4, 4, 2]
    assert torch.cat(batches[:3]).sort().values.tolist() == list(range(10))
    assert torch.cat(batches[3:]).sort().values.tolist() == list(range(10))
    assert not torch.equal(torch.cat(batches[:3]), torch.cat(batches[3:]))


def test_a_run_that_blows_up_is_a_metric_and_not_an_error():
    grid = trial(study.biased_retrieval, "none", {"cue": "present", "host": "embedding"}, rates=(1e30,), steps=5)
    metrics = study.biased_retrieval.function(grid).metrics
    assert (metrics["success"], metrics["key_ratio"], metrics["log_max_logit"]) == (0, 1, 30)
    level = {"lr": 1e6}
    metrics = study.vit_stability.function(trial(study.vit_stability, "none", level)).metrics
    assert metrics["diverged"] == 1
    assert metrics["loss"] == 100
    assert all(map(math.isfinite, metrics.values()))


def test_the_largest_logit_is_what_the_attention_says():
    class Loud(RunAttention):
        def logits(self, q, k):
            return torch.full((*q.shape[:-1], k.shape[-2]), -100.0)

    cell = trial(study.biased_retrieval, "mine", {"cue": "present", "host": "bare"}, factory=Loud, steps=1)
    assert study.biased_retrieval.function(cell).metrics["log_max_logit"] == pytest.approx(2)


def test_attacks_have_the_radii_of_the_metrics_and_worst_is_the_worst(monkeypatch):
    """Each attack zeroes its own images: what is left right must be counted under the right name."""
    made = []

    def attack(name, zeroed):
        def run(model, images, labels, eps, *steps, **options):
            made.append((name, eps, *steps, *options.values()))
            images = images.clone()
            images[zeroed[len(made) - 1]] = 0.0
            return images

        return run

    pieces = [slice(0, 20), slice(20, 40), slice(40, 60), slice(0, 100)]
    monkeypatch.setattr(study, "fgsm", attack("fgsm", pieces))
    monkeypatch.setattr(study, "pgd", attack("pgd", pieces))
    cell = trial(study.vit_robustness, "quest", {"data": "digits8x8"}, steps=120, test=100)
    metrics = study.vit_robustness.function(cell).metrics
    assert made == [("fgsm", 0.02), ("pgd", 0.02, 2), ("pgd", 0.02, 2, "margin"), ("fgsm", 0.05)]
    lost = {name: metrics["clean"] - metrics[name] for name in ("fgsm_weak", "pgd", "worst", "fgsm_strong")}
    assert lost["fgsm_strong"] > lost["worst"] > lost["fgsm_weak"] > 0
    assert lost["worst"] >= lost["fgsm_weak"] + lost["pgd"] - 1e-9
    assert metrics["corrupted"] == pytest.approx(sum(metrics[kind] for kind in study.CORRUPTIONS) / 6)


def test_stability_measures_logits_over_the_run_and_their_growth_after_its_start():
    """With a rate of almost 0 nothing grows, but for what one batch differs from another."""

    def sharp(*sizes):  # logits of about 30 from the start
        layer = QuestAttention(*sizes, norm="none", batch_first=True)
        with torch.no_grad():
            layer.in_proj_weight *= 5
        return layer

    def measure(lr, **changes):
        cell = trial(study.vit_stability, "none", {"lr": lr}, batch=100, early=2, **changes)
        return study.vit_stability.function(cell).metrics

    grown, still = measure(3e-3, steps=70), measure(1e-12, steps=12, factory=sharp)
    assert still["growth"] == pytest.approx(0, abs=0.1)
    assert still["log_max_logit"] > 1
    assert 0.1 < grown["growth"] < grown["log_max_logit"] - 0.1
    assert grown["loss"] < 2 < math.log(10) < still["loss"]
    assert (grown["diverged"], still["diverged"]) == (0, 1)


def test_the_rate_of_the_vision_experiment_falls_to_zero(monkeypatch):
    rates = []

    class Spy(torch.optim.AdamW):
        def step(self, *args):
            rates.append(self.param_groups[0]["lr"])
            return super().step(*args)

    monkeypatch.setattr(torch.optim, "AdamW", Spy)
    study.vit_robustness.function(trial(study.vit_robustness, "uniform", {"data": "digits8x8"}, steps=10, test=20))
    assert rates[0] == 3e-3
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 1e-4
