"""The parts of the study that a verdict leans on: derived metrics, the trivial baseline, the split of the data."""

import math

import pandas as pd
import pytest
import torch

from paperworks.claims.study import Cell, Trial
from paperworks.layers.quest import study
from paperworks.layers.quest.derive import biased_retrieval
from paperworks.layers.quest.module import QuestAttention


def rows(values):
    keys = ["arm", "host", "cue", "metric", "value"]
    return pd.DataFrame([dict(zip(keys, row, strict=True)) | {"seed": 3, "item": None} for row in values])


def test_harm_is_accuracy_without_the_cue_minus_accuracy_with_it():
    table = rows(
        [
            ("none", "bare", "masked", "acc", 0.9),
            ("none", "bare", "present", "acc", 0.6),
            ("none", "bare", "present", "success", 0.5),
            ("quest", "bare", "masked", "acc", 1.0),
            ("quest", "bare", "present", "acc", 0.5),
            ("quest", "embedding", "masked", "acc", 0.7),
        ]
    )
    copy = table.copy()
    out = biased_retrieval(table, 3)
    found = {(r.arm, r.host, r.metric): r.value for r in out.itertuples()}
    assert set(found) == {(arm, "bare", m) for arm in ("none", "quest") for m in ("harm", "harm_odds")}
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


def trial(experiment, arm, level, seed=100, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    cell = Cell(arm, level, seed)
    return Trial(origin=("quest", experiment.name, 1), cells=[cell], scale="smoke", config=config, arms=experiment.arms)


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
