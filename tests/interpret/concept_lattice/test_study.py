"""The study's parts: scores against scikit-learn, splits, pairs, questions; planted data that can be recovered."""

import itertools
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from paperworks.claims.study import Cell, Preparation, Trial
from paperworks.interpret.concept_lattice import arms, derive, study
from paperworks.interpret.concept_lattice.arms import Concept
from paperworks.interpret.concept_lattice.context import FormalContext
from paperworks.interpret.concept_lattice.implications import Implication
from paperworks.interpret.concept_lattice.lattice import ConceptLattice
from paperworks.interpret.concept_lattice.profiles import soft_equivalence, soft_inclusion
from paperworks.interpret.concept_lattice.whitening import CausalWhitening
from paperworks.kit.assets import status


class Same:
    """The frame as it is."""

    def transform(self, V):
        return V


def planted(n=300, d=12, m=5, seed=0):
    """Embeddings in which attribute j is the sign of coordinate j."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(n, d))
    return V, V[:, :m] > 0.3


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth, scores = rng.random((40, 5)) < 0.3, rng.integers(0, 6, (40, 5)).astype(float)
    assert study.auc(truth, scores).mean() == pytest.approx(roc_auc_score(truth, scores, average="macro"))
    said = scores > 3
    said[:, 0] = False
    assert study.f1(truth, said).mean() == pytest.approx(f1_score(truth, said, average="macro", zero_division=0))
    assert study.f1(truth[:, 1], said[:, 1]) == pytest.approx(f1_score(truth[:, 1], said[:, 1]))
    best = study._best_threshold(truth[:, 1], scores[:, 1])
    every = {t: f1_score(truth[:, 1], scores[:, 1] >= t) for t in range(6)}
    assert every[best] == max(every.values())


def test_a_split_keeps_groups_together():
    groups = np.random.default_rng(0).integers(0, 40, 200)
    test = study._held_out(groups, 0.3, np.random.default_rng(1))
    assert not set(groups[test]) & set(groups[~test])
    assert 0.3 <= test.mean() < 0.4
    other = study._held_out(groups, 0.3, np.random.default_rng(2))
    assert (other != test).any()


def test_probes_on_planted_attributes():
    """The linear probe finds them; with shuffled labels, random directions or the prevalence alone nothing is found."""
    V, table = planted()
    found = {}
    for name, factory in study.PROBES.items():
        model = factory(frame=Same(), random_state=0).fit(V[:200], table[:200])
        found[name] = (
            study.auc(table[200:], model.decision_function(V[200:])).mean(),
            study.f1(table[200:], model.predict(V[200:])).mean(),
        )
    assert min(found[name][0] for name in ("linear", "linear_euclidean", "logistic", "mean")) > 0.95
    assert max(abs(found[name][0] - 0.5) for name in ("random", "linear_shuffled", "prevalence")) < 0.2
    assert found["prevalence"][1] == 0  # no attribute holds for more than half


def test_shuffled_labels_keep_rows_whole():
    V, table = planted()
    seen = []

    class Spy(arms.AttributeDirections):
        def fit(self, X, y):
            seen.append(y)
            return super().fit(X, y)

    probe = arms.Probe(Same(), 0, shuffle=True)
    probe.model = Spy()
    probe.fit(V, table)
    assert (seen[0] != table).any()
    assert sorted(map(tuple, seen[0])) == sorted(map(tuple, table))


def test_pairs_are_disjoint_and_of_the_right_kind():
    members = {
        "top": frozenset(range(12)), "left": frozenset(range(5)), "right": frozenset(range(5, 10)),
        "leaf": frozenset(range(3)), "other": frozenset(range(20, 25)),
    }  # fmt: skip
    parents = {"left": ["top"], "right": ["top"], "leaf": ["left"]}
    below, siblings, unrelated = study._concept_pairs(members, parents, 2)
    assert (members["leaf"], members["left"] - members["leaf"]) in below
    assert (members["left"], members["top"] - members["left"]) in below
    assert siblings == [(members["left"], members["right"])]
    assert (members["leaf"], members["right"]) in unrelated
    assert all(not a & b for a, b in itertools.chain(below, siblings, unrelated))


def test_a_set_that_happens_to_lie_in_another_is_no_hypernym_pair_and_each_pair_of_sets_is_there_once():
    members = {
        "top": frozenset(range(20)), "a": frozenset(range(6)), "b": frozenset(range(6, 12)),
        "pet": frozenset(range(8, 10)),  # some of b, but not below it
        "chain": frozenset(range(6)),  # another name for the members of a
    }  # fmt: skip
    parents = {"top": [], "a": ["top"], "b": ["top"], "pet": ["top"], "chain": ["a"]}
    below, siblings, unrelated = study._concept_pairs(members, parents, 2)
    top, a, b, pet = (members[name] for name in ("top", "a", "b", "pet"))
    assert sorted(below, key=str) == sorted([(a, top - a), (b, top - b), (pet, top - pet)], key=str)
    assert siblings == [(a, b), (a, pet)]
    assert unrelated == []  # chain and b have the members of the siblings a and b


def test_questions_have_the_common_parent_and_the_common_objects_as_gold():
    synsets = {
        "p": frozenset(range(9)),
        "a": frozenset(range(4)),
        "b": frozenset(range(4, 8)),
        "p2": frozenset({1, 30}),
    }
    parents = {"a": ["p", "p2"], "b": ["p"]}
    big, cross = frozenset(range(20)), frozenset(range(2, 6))
    questions, extents = study._questions(synsets, parents, [big, cross])
    assert questions["join"] == [(synsets["a"], synsets["b"], synsets["p"])]
    golds = {frozenset((a, b)): gold for a, b, gold in questions["meet"]}
    assert golds[frozenset((synsets["a"], cross))] == {2, 3}
    assert not any(a <= b or b <= a for a, b, _ in questions["meet"])
    assert len(extents) == 6


@pytest.mark.parametrize("name", list(study.COMPOSERS))
def test_composers_rank_every_candidate(name):
    V, table = planted()
    composer = study.COMPOSERS[name](frame=Same(), random_state=0).fit(V[:100], table[:100])
    parts = [Concept(V[100:][rows], int(rows.sum())) for rows in table[100:].T]
    both = Concept(V[100:][table[100:, 0] & table[100:, 1]], 30)
    composer.index([*parts[2:], both])
    scores = composer.score("meet", parts[:1], parts[1:2])
    assert scores.shape == (1, 4)
    if name in ("fca_sharp", "centroid"):
        assert scores[0].argmax() == 3
    if name == "size":
        assert scores[0].argmax() == 3  # the smallest
        assert composer.score("join", parts[:1], parts[1:2])[0].argmin() == 3


def test_lift_is_the_gain_of_a_premise():
    context = FormalContext([[1, 1], [1, 1], [0, 1], [0, 0]], attributes="ab")
    assert study._lift(context, Implication(frozenset("a"), frozenset("b"), 2)) == pytest.approx(1 - 3 / 4)
    none = FormalContext([[0, 1], [0, 0]], attributes="ab")
    assert study._lift(none, Implication(frozenset("a"), frozenset("b"), 2)) == 0


def test_derived_metrics():
    rows = [
        {"arm": "linear", "domain": domain, "encoder": "minilm", "seed": 0, "metric": metric, "value": value}
        for domain, value in zip(study.DOMAINS, [0.9, 0.8, 0.7, 0.6, 0.4], strict=True)
        for metric in ("f1", "auc_is")
    ]
    found = derive.context(pd.DataFrame(rows), 0)
    assert set(found.metric) == {"gap", "gap_auc"}
    np.testing.assert_allclose(found.value, 0.3)
    assert derive.context(pd.DataFrame(rows[:8]), 0).empty
    meets = [
        {"arm": "paper", "domain": "food", "seed": 0, "metric": m, "value": v}
        for m, v in (("meet", 0.5), ("join", 0.3))
    ]
    found = derive.algebra(pd.DataFrame(meets), 0)
    assert found[["metric", "value"]].values.tolist() == [["meet_lead", pytest.approx(0.2)]]


@pytest.mark.skipif(status("wordnet").state == "missing", reason="not on this machine: paperworks data wordnet")
def test_the_path_of_hub_models_on_a_small_model_of_ones_own(tmp_path, monkeypatch):
    """From a folder that `from_pretrained` reads to scores: what the paper's scale runs, with random weights."""
    letters = {chr(i): i - 31 for i in range(32, 127)} | {"[UNK]": 0}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(tmp_path / "tiny")
    config = LlamaConfig(
        vocab_size=96, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "tiny")
    monkeypatch.setitem(study.HUB, "tiny", str(tmp_path / "tiny"))
    folder = tmp_path / "prepared"
    folder.mkdir()
    corpus = study.Corpus(pool=80, synonyms=1, min_share=0.1, attributes=6, models=("tiny",))
    study.hub_embeddings.function(Preparation(folder=folder, config=corpus, seed=None, origin=("test",)))
    with np.load(folder / "food.npz") as stored:
        assert stored["tiny"].shape == (80, 16)
        assert np.isfinite(stored["tiny"]).all()
    found = {}
    for arm in study.model_size.arms:
        cell = Cell(arm, {"domain": "food", "model": "tiny"}, 0)
        trial = Trial(
            origin=("test",), cells=[cell], scale="paper", config=study.Recovery(objects=80, fewest=2),
            arms=study.model_size.arms, prepared=lambda name, seed: folder,
        )  # fmt: skip
        found[arm] = study.model_size.function(trial).metrics
    assert set(found["linear"]) == {"f1", "auc", "f1_is", "auc_is", "f1_always"}
    assert found["linear"] != found["linear_shuffled"]
    assert found["linear"]["f1_always"] == found["random"]["f1_always"]


def test_the_slope_over_model_size():
    sizes = {"llama_3b": 3.2, "llama_8b": 8.0, "llama_70b": 70.6}
    rows = [
        {"arm": "linear", "domain": domain, "model": model, "seed": 0, "metric": "f1_is", "value": value}
        for domain in study.DOMAINS
        for model, size in sizes.items()
        for value in [0.5 + (0.1 if domain in ("event", "cognition") else 0.03) * np.log10(size)]
    ]
    found = derive.model_size(pd.DataFrame(rows), 0)
    assert found.value.tolist() == [pytest.approx(0.07)]
    assert derive.model_size(pd.DataFrame(rows[:5]), 0).empty


def test_the_template_ends_with_the_term():
    """The last token is read: it must be the term's own."""
    for _, noun in study.DOMAINS.values():
        assert study.Corpus().template.format(noun=noun, term="sea lion").endswith("sea lion")


class Watched:
    """In the place of a method: keeps what it is shown, and scores pairs by a rule on their sizes."""

    made: ClassVar[list["Watched"]] = []

    def __init__(self, frame, random_state, rule=lambda a, b: 0):
        self.rule, self.asked, self.ranked = rule, [], []
        self.made.append(self)

    def fit(self, V, I):  # noqa: E741
        assert len(V) == len(I)
        self.seen = set(V[:, 0])
        return self

    def predict(self, V):
        assert not self.seen & set(V[:, 0])
        return np.ones((len(V), 4), dtype=int)

    def decision_function(self, V):
        assert not self.seen & set(V[:, 0])
        return np.zeros((len(V), 4))

    def index(self, candidates):
        self.ranked = candidates

    def score(self, *question):
        first, second = question[-2:]
        self.asked.append((first, second))
        if len(question) == 3:
            return np.zeros((len(first), len(self.ranked)))
        return np.array([self.rule(a.size, b.size) for a, b in zip(first, second, strict=True)])


def small_trial(config, experiment, **options):
    Watched.made.clear()
    cell = Cell("watched", {"domain": "animal", "encoder": "minilm"}, 0)
    trial = Trial(
        origin=("test", experiment), cells=[cell], scale="laptop", config=config,
        arms={"watched": partial(Watched, **options)},
    )  # fmt: skip
    return trial, cell


def small_data():
    """A tree of concepts over 200 objects whose first feature is their number."""
    rng = np.random.default_rng(0)
    members = {"root": frozenset(range(200))}
    parents = {"root": []}
    for i in range(4):
        members[f"{i}"], parents[f"{i}"] = frozenset(range(50 * i, 50 * i + 50)), ["root"]
        for j in range(4):
            start = 50 * i + 12 * j
            members[f"{i}{j}"], parents[f"{i}{j}"] = frozenset(range(start, start + 12)), [f"{i}"]
    V = np.column_stack([np.arange(200.0), rng.normal(size=200)])
    table = rng.random((200, 4)) < 0.4
    return study._Data(V, table, np.arange(200) // 2, np.arange(4) < 2, members, parents, None)


def numbers(concepts):
    return [set(c.members[:, 0].astype(int)) for c in concepts]


RULES = {"same": lambda a, b: 0, "difference": lambda a, b: b - a, "sum": lambda a, b: a + b}


@pytest.mark.parametrize("rule", RULES)
def test_pairs_are_made_of_held_out_objects_and_shown_alike(rule, monkeypatch):
    data = small_data()
    chosen_on, best = [], study._best_threshold
    monkeypatch.setattr(study, "_best_threshold", lambda *given: chosen_on.append(given[0].size) or best(*given))
    trial, cell = small_trial(study.Pairs(smallest=3, shown=5), "inclusion", rule=RULES[rule])
    metrics = study._include(trial, cell, data).metrics
    (method,) = Watched.made
    forward, back, _, _ = method.asked
    for lower, upper in method.asked:
        for a, b in zip(lower, upper, strict=True):
            assert len(a.members) == len(b.members) == min(5, a.size, b.size)
            assert not set(a.members[:, 0]) & set(b.members[:, 0])
            assert not method.seen & set(np.concatenate([a.members, b.members])[:, 0])
    assert numbers(back[0]) == numbers(forward[1])
    assert numbers(back[1]) == numbers(forward[0])
    assert len({len(lower) for lower, _ in method.asked}) == 1
    assert chosen_on == [4 * round(0.3 * len(method.asked[0][0]))]  # the threshold, on the pairs that are not scored
    if rule == "same":
        assert metrics == {"f1": 0.4, "auc": 0.5, "auc_reverse": 0.5}  # one in four is right, and it says always yes
    elif rule == "difference":
        assert min(metrics.values()) > 0.9
    else:  # symmetric: a pair is its reverse
        assert metrics["auc_reverse"] == 0.5
        assert metrics["auc"] > 0.6


def test_composition_asks_with_one_half_of_the_held_out_objects_and_ranks_the_other():
    data = small_data()
    trial, cell = small_trial(study.Algebra(smallest=2), "algebra")
    metrics = study._compose(trial, cell, data).metrics
    (method,) = Watched.made
    ranked = set().union(*numbers(method.ranked))
    for first, second in method.asked:
        for concept in (*first, *second):
            assert len(concept.members) >= 2
            assert not ranked & set(concept.members[:, 0])
            assert not method.seen & set(concept.members[:, 0])
    assert not ranked & method.seen
    assert all(2 <= len(c.members) < c.size for c in method.ranked)  # the size counts both halves
    assert len({frozenset(few) for few in numbers(method.ranked)}) == len(method.ranked)
    # All scores are equal: the gold stands in the middle of all that are not operands.
    allowed = len(method.ranked) - 2
    assert metrics["join"] == round(1 / (1 + (allowed - 1) / 2), 4)


def test_recovery_trains_on_some_objects_and_tests_on_others(monkeypatch):
    data = small_data()
    monkeypatch.setattr(study, "_load", lambda *which: data)
    trial, cell = small_trial(study.Recovery(objects=150, fewest=2), "context")
    metrics = study._recover(trial, cell, None, "minilm").metrics
    (method,) = Watched.made
    assert 80 <= len(method.seen) <= 105
    assert metrics["f1"] == metrics["f1_always"]  # it says always yes
    assert metrics["auc"] == metrics["auc_is"] == 0.5


def test_each_animal_is_predicted_from_others_and_lattices_are_compared_by_intents(tmp_path):
    table = np.random.default_rng(0).random((60, 4)) < 0.6
    table[:, 1] |= table[:, 0]  # an implication
    true = FormalContext(table)
    np.savez(tmp_path / "zoo.npz", minilm=np.column_stack([np.arange(60.0)] * 2))
    np.savez(tmp_path / "frame_minilm.npz", matrix=np.eye(2), mean=np.zeros(2))
    trial, cell = small_trial(study.Zoo(), "lattice")
    trial._prepared = lambda name, seed: tmp_path
    outcome = study._compare(trial, cell, true, np.arange(60) // 2)
    assert len(Watched.made) == 5
    assert sum(60 - len(method.seen) for method in Watched.made) == 60
    assert outcome.metrics["concepts"] == 1  # all animals are said to have all traits
    concepts = len(ConceptLattice.from_context(true, min_support=5))
    assert outcome.metrics["intents"] == round(2 * int(table.all(axis=1).sum() >= 5) / (concepts + 1), 4)
    assert outcome.metrics["implications"] == 0
    assert set(outcome.figures) == {"induced.svg"}


def test_synonyms_are_averaged_up_to_the_number_asked_for():
    corpus = study.Corpus(synonyms=2, template="{noun} called {term}")
    found = study._synonym_means(
        [("ox",), ("cow", "kine", "neat animal")], "an animal", corpus,
        lambda texts: np.array([[float(len(text))] for text in texts]),
    )  # fmt: skip
    assert found[:, 0].tolist() == [len("an animal called ox"), len("an animal called ") + 3.5]


def test_arms_use_their_frame_and_their_options():
    V, table = planted()
    moved = V + 5.0
    frame = CausalWhitening(ridge=0.0).fit(np.random.default_rng(1).normal(size=(200, 12)) * np.arange(1, 13))
    a = arms.Probe(Same(), 0, estimator="mean").fit(V, table)
    b = arms.Probe(Same(), 0, estimator="mean").fit(moved, table)  # the origin is the mean of the training rows
    np.testing.assert_allclose(a.decision_function(V), b.decision_function(moved), atol=1e-9)
    plain, white = (arms.Probe(frame, 0, estimator="mean", whiten=w).fit(V, table) for w in (False, True))
    np.testing.assert_allclose(plain.decision_function(V), a.decision_function(V), atol=1e-9)
    assert np.abs(white.decision_function(V) - plain.decision_function(V)).max() > 0.1
    lower = [Concept(V[table[:, 0] & table[:, 1]], 20)]
    upper = [Concept(V[table[:, 0]], 90)]
    inclusion = arms.ProfileInclusion(Same(), 0, temperature=0.1).fit(V, table)
    low, high = inclusion.profiles(lower), inclusion.profiles(upper)
    np.testing.assert_allclose(inclusion.score(lower, upper), soft_inclusion(low, high, 0.1))
    assert inclusion.score(lower, upper) > inclusion.score(upper, lower)
    for operation, mode, of in (
        ("meet", "paper", np.minimum),
        ("meet", "fca", np.maximum),
        ("join", "fca", np.minimum),
    ):
        composer = arms.ProfileComposer(Same(), 0, mode, temperature=0.1).fit(V, table)
        composer.index([*lower, *upper])
        expected = soft_equivalence(np.concatenate([low, high]), of(low[0], high[0]), 0.1)
        np.testing.assert_allclose(composer.score(operation, lower, upper)[0], expected)
