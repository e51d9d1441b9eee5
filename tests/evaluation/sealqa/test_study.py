"""The parts of the study that a verdict leans on: facts, derived metrics, pairing, the pool of facts."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from paperworks.claims.study import Cell, Preparation, Trial
from paperworks.evaluation.sealqa import derive, gloss_corpus, grade, study, wordnet_facts
from paperworks.evaluation.sealqa.facts import WORDINGS, Fact
from paperworks.kit.assets import load_wordnet, status

from . import reference

needs_wordnet = pytest.mark.skipif(
    status("wordnet").state == "missing", reason="not on this machine: paperworks data wordnet"
)


def table(rows, *axes):
    keys = ["arm", *axes, "metric", "value"]
    return pd.DataFrame([dict(zip(keys, row, strict=True)) | {"seed": 3, "item": None} for row in rows])


def values(frame):
    return {(r.arm, r.metric): r.value for r in frame.itertuples()}


def test_slopes_over_documents():
    rows = [("a", k, "acc", v) for k, v in ((1, 1.0), (4, 0.6), (30, 0.1))] + [("b", 1, "acc", 0.5)]
    found = values(derive.distractors(table(rows, "k"), 3))
    assert found == {
        ("a", "slope"): pytest.approx(reference.slope([0, math.log(4), math.log(30)], [1.0, 0.6, 0.1])),
        ("a", "tail"): pytest.approx(-0.5 / math.log(7.5)),
    }
    assert derive.distractors_lm(table(rows[-1:], "k"), 3).empty


def test_effects_of_position():
    rows = [("a", p, "acc", v) for p, v in (("first", 0.5), ("middle", 0.2), ("last", 0.3))]
    found = values(derive.position(table([*rows, ("b", "first", "acc", 1.0)], "position"), 3))
    assert found == {("a", "edge"): pytest.approx(0.2), ("a", "dip"): pytest.approx(0.2)}


def test_gains_of_samples():
    rows = [("v", n, d, "clean", "acc", 0.1 * n + d) for n in (1, 3, 9) for d in (1, 5)]
    found = derive.effort(table(rows, "n", "depth", "condition"), 3)
    assert found["value"].tolist() == pytest.approx([0.8, 0.8])
    assert set(found.columns) >= {"arm", "depth", "condition", "metric", "value"}


@pytest.mark.parametrize(
    ("deltas", "crossing"),
    [((0.3, 0.1, -0.1, -0.5), 0.625), ((-0.1, -0.2, -0.3, -0.4), 0.0), ((0.3, 0.2, 0.2, 0.1), 1.0)],
)
def test_where_search_begins_to_hurt(deltas, crossing):
    rows = [("m", c, "delta", v) for c, v in zip((0.0, 0.5, 0.75, 1.0), deltas, strict=True)]
    found = values(derive.search_noise(table(rows[::-1], "conflict"), 3))
    assert found["m", "crossing"] == pytest.approx(crossing)
    assert found["m", "swing"] == pytest.approx(deltas[0] - deltas[-1])
    assert derive.search_noise(table(rows[:1], "conflict"), 3).empty


@needs_wordnet
def test_facts_of_wordnet_are_what_everybody_knows():
    facts = wordnet_facts(load_wordnet(), np.random.default_rng(0), 1000)
    known = {(f.kind, f.subject): f.value for f in facts}
    assert known["capital", "France"] == "Paris" or ("capital", "France") not in known
    assert known["capital", "Albania"] == "Tirana"
    assert known["symbol", "iron"] == "Fe"
    assert known["currency", "Thailand"] == "baht"
    counts = {kind: sum(f.kind == kind for f in facts) for kind in WORDINGS if kind != "office"}
    assert min(counts.values()) >= 70
    for fact in facts:
        assert len(set(fact.wrong)) == 3
        assert fact.value not in fact.wrong
        assert {known[key] for key in known if key[0] == fact.kind} >= set(fact.wrong)
        assert fact.ask(0) != fact.ask(1)
        assert fact.value not in fact.ask(1).split() or fact.kind == "symbol"
        assert fact.wrong[0] in fact.state(fact.wrong[0])
    assert wordnet_facts(load_wordnet(), np.random.default_rng(0), 30) == wordnet_facts(
        load_wordnet(), np.random.default_rng(0), 30
    )


@needs_wordnet
def test_glosses_of_siblings_are_pages():
    corpus = gloss_corpus(load_wordnet(), 1, 60, 5)
    assert len(corpus.documents) == 360
    for question in corpus.questions:
        assert question.gold.text.endswith(question.question.removeprefix("Which word means: ").removesuffix("?"))
        assert question.gold.text.startswith(question.answer)
        assert len({page.title for page in question.negatives} | {question.answer, *question.aliases}) == 6 + len(
            set(question.aliases) - {question.answer}
        )
        assert len({page.text.partition(": ")[2] for page in (question.gold, *question.negatives)}) == 6
        assert question.answer.lower() not in question.question.lower()
        assert grade(question.question, question.answer, question.answer, question.aliases) == "A"
    with pytest.raises(ValueError, match="n=0, distractors=7; allowed are 1 or more"):
        gloss_corpus(load_wordnet(), 1, 0)


def trial(experiment, cells, prepared=None, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    return Trial(
        origin=("sealqa", experiment.name, 1),
        cells=cells,
        scale="smoke",
        config=config,
        arms=experiment.arms,
        prepared=None if prepared is None else lambda name, seed: prepared,
    )


def outcomes(experiment, cells, **options):
    return {cell: outcome.metrics for cell, outcome in experiment.function(trial(experiment, cells, **options))}


def test_arms_and_levels_of_a_seed_share_their_questions_and_a_cell_alone_gives_the_same():
    cells = [Cell(arm, {"k": k}, 100) for arm in ("bm25_top1", "oracle") for k in (4, 30)]
    together = outcomes(study.distractors, cells)
    assert together[cells[2]]["words"] == together[cells[0]]["words"] < together[cells[1]]["words"]
    assert together[cells[2]]["acc"] == together[cells[3]]["acc"] == 1
    alone = outcomes(study.distractors, cells[1:2])
    assert alone[cells[1]] == together[cells[1]]


def test_one_sample_is_the_same_for_votes_and_the_baseline_which_more_samples_do_not_change():
    level = {"depth": 1, "condition": "clean"}
    cells = [Cell(arm, {**level, "n": n}, 100) for arm in ("vote", "single") for n in (1, 9)]
    found = [o["acc"] for o in outcomes(study.effort, cells).values()]
    assert found[0] == found[2] == found[3]
    assert found[1] > found[0]


def test_the_eleventh_run_is_a_fresh_one_on_the_same_kept_set():
    cells = [Cell(arm, {}, 100) for arm in ("bm25_top1", "lead", "oracle")]
    found = outcomes(study.selection, cells)
    kept = {o["kept"] for o in found.values()}
    assert len(kept) == 1
    assert 0 < kept.pop() < 1
    assert found[cells[2]]["acc_kept"] == found[cells[2]]["acc_rejected"] == 1
    for metrics in found.values():
        assert metrics["gap"] == pytest.approx(metrics["acc_kept"] - metrics["acc_rejected"], abs=2e-4)


def test_log_probabilities_are_computed_once_for_all_arms(monkeypatch):
    from paperworks.kit.lm import likelihood

    asked = []
    real = likelihood.continuation_logprobs

    def counting(model, tokenizer, prompts, options):
        asked.extend(prompts)
        return real(model, tokenizer, prompts, options)

    monkeypatch.setattr(likelihood, "continuation_logprobs", counting)
    cells = [Cell(arm, {"k": k}, 100) for arm in ("smollm2", "smollm2_raw") for k in (1, 4)]
    found = outcomes(study.distractors_lm, cells)
    assert len(asked) == len(set(asked)) == 3 * 6  # two contexts and none, six questions
    assert all(0 <= o["acc"] <= 1 for o in found.values())


class Decided:
    """Log-probabilities of a model that prefers the right value by known amounts."""

    def __init__(self, gaps):
        self.gaps = gaps

    def __call__(self, prompts, options):
        return [[gap, 0.0, -1.0, -2.0] for gap in self.gaps]


@needs_wordnet
def test_facts_are_kept_whose_right_and_best_wrong_value_lie_closest(monkeypatch, tmp_path):
    gaps = [5.0, -0.1, 3.0, 0.2, -4.0, 0.3]
    monkeypatch.setattr(study, "_Remembered", lambda name: Decided(gaps))
    config = study.Facts(model="tiny", pool=6, kept=3)
    preparation = Preparation(folder=tmp_path, config=config, seed=None, origin=("a",))
    study.facts.function(preparation)
    kept = [Fact(**entry) for entry in json.loads((tmp_path / "facts.json").read_text())]
    pool = wordnet_facts(load_wordnet(), Preparation(tmp_path, config, None, ("a",)).rng("pool"), 6)
    assert [f.subject for f in kept] == [pool[i].subject for i in (1, 3, 5)]
    assert [tuple(f.wrong) for f in kept] == [pool[i].wrong for i in (1, 3, 5)]  # the most plausible first


def test_pages_state_one_wrong_value_in_the_share_asked_for():
    fact = Fact("capital", "France", "Paris", ("Lyon", "Nice", "Metz"))
    for share, wrong in ((0.0, 0), (0.5, 2), (0.75, 3), (1.0, 4)):
        pages = study._pages(np.random.default_rng(0), fact, share, 4)
        assert [sum(value in page.text for page in pages) for value in ("Lyon", "Paris")] == [wrong, 4 - wrong]
        assert len({page.text.partition(":")[0] for page in pages}) == 4


def test_search_noise_measures_the_same_facts_with_and_without_pages(tmp_path):
    raw = [
        {"kind": "capital", "subject": f"Land{i}", "value": f"V{i}", "wrong": [f"W{i}", f"X{i}", f"Y{i}"]}
        for i in range(9)
    ]
    (tmp_path / "facts.json").write_text(json.dumps(raw))
    cells = [Cell("frequency", {"conflict": c}, 100) for c in (0.0, 0.75, 1.0)]
    found = outcomes(study.search_noise, cells, prepared=tmp_path)
    closed = {o["closed"] for o in found.values()}
    assert len(closed) == 1
    assert [o["acc"] for o in found.values()] == [1, 0, 0]
    assert [o["delta"] for o in found.values()] == pytest.approx([1 - (c := closed.pop()), -c, -c])


def test_a_model_that_was_taught_facts_knows_them_closed_book():
    pytest.importorskip("peft", reason="pip install peft")
    config = study.Taught(model="tiny", questions=4, steps=60, batch=4, rate=0.02)
    cells = [Cell("smollm2", {"conflict": c}, 100) for c in (0.0, 1.0)]
    case = Trial(origin=("sealqa", "taught", 1), cells=cells, scale="overnight", config=config, arms=study.taught.arms)
    before = [p.clone() for p in study._load("tiny")[0].parameters()]
    facts = study.world_facts(case.rng("world"), 4)
    model, tokenizer = study._teach(case, facts)
    after = study._Remembered("tiny", (model, tokenizer))
    plain = study._Remembered("tiny")
    asked = [fact.ask(0) for fact in facts], [[f" {fact.value}"] for fact in facts]
    gain = np.array(after(*asked)) - np.array(plain(*asked))
    assert gain.min() > 5  # nats
    assert all((a == b).all() for a, b in zip(before, study._load("tiny")[0].parameters(), strict=True))
    found = dict(study._with_noise(case, facts, after))
    assert {o.metrics["closed"] for o in found.values()} == {found[cells[0]].metrics["closed"]}
