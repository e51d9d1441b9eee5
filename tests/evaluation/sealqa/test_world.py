"""The invented world and its pages: exact keys, nested conflict, no false negatives."""

from collections import Counter

import numpy as np
import pytest

from paperworks.evaluation.sealqa import corpus as corpus_module
from paperworks.evaluation.sealqa import extract, false_negatives, grade, place_gold, sample_corpus
from paperworks.evaluation.sealqa.corpus import CLASSES, MIX
from paperworks.evaluation.sealqa.documents import QUESTION_TYPES
from paperworks.evaluation.sealqa.world import LEXICON, build_world


@pytest.fixture(scope="module")
def corpus():
    return sample_corpus(3, 80)


def test_a_corpus_depends_on_its_seed_alone_and_more_questions_change_none(corpus):
    fewer = sample_corpus(3, 10)
    assert sample_corpus(3, 10) == fewer
    assert fewer.questions == corpus.questions[:10]
    assert sample_corpus(4, 10).questions[0] != fewer.questions[0]
    clean = sample_corpus(3, 10, conflict=0, stale=0)
    assert [q.question for q in clean.questions] == [q.question for q in fewer.questions]
    assert [q.gold for q in clean.questions] == [q.gold for q in fewer.questions]
    assert not any(q.conflicting for q in clean.questions)


def test_every_name_is_borne_by_two_of_a_kind_in_two_regions():
    world = build_world(np.random.default_rng(0))
    assert len(world.entities) == 300
    assert set(Counter(e.name for e in world.entities).values()) == {2}
    for a, b in zip(world.entities[::2], world.entities[1::2], strict=True):
        assert (a.name, a.foreign, a.kind) == (b.name, b.foreign, b.kind)
        assert a.region != b.region
        assert a.founder != b.founder
        epithet, rest = a.name.split(" ", 1)
        assert a.foreign == f"{LEXICON[epithet]} {rest}"
    assert all(len(set(e.holders.values())) > 1 for e in world.entities)
    assert all(max(e.holders) == e.ended - 1 for e in world.entities if e.ended)
    assert {e.kind.name for e in world.entities} == {"town", "club", "instrument", "prize"}


def test_classes_have_their_shares_and_the_papers_five_types():
    questions = sample_corpus(0, 1500, distractors=0).questions
    shares = Counter(q.metadata["class"] for q in questions)
    for name in CLASSES:
        assert shares[name] / 1500 == pytest.approx(MIX[name], abs=0.035)
    assert {t for q in questions for t in q.question_types} == set(QUESTION_TYPES)
    assert all(("as of" in q.question) or (str(q.effective_year) in q.question) for q in questions)


def test_negatives_have_their_shares_in_every_beginning(corpus):
    for question in corpus.questions[:5]:
        kinds = [page.kind for page in question.negatives]
        assert Counter(kinds) == {"contradicting": 15, "stale": 9, "homonym": 3, "on_topic": 3}
        for k in range(1, 31):
            assert abs(kinds[:k].count("contradicting") - 0.5 * k) <= 1
            assert abs(kinds[:k].count("stale") - 0.3 * k) <= 1


def test_pages_are_of_their_length_and_say_what_their_kind_says(corpus):
    words = [len(page.text.split()) for page in corpus.documents]
    assert min(words) >= 60
    assert max(words) <= 120
    short = sample_corpus(3, 20, length="short")
    words = [len(page.text.split()) for page in short.documents]
    assert np.percentile(words, 1) >= 15
    assert max(words) <= 50
    assert 22 <= np.mean(words) <= 38
    for question in corpus.questions:
        if question.metadata["class"] in ("homonym", "temporal", "cross_lingual"):
            assert question.answer in question.gold.text
            assert len(set(question.options.values())) == 4
            for page in question.negatives:
                assert question.answer not in page.text
                if page.kind == "contradicting":
                    assert question.options["contradicting"] in page.text
                    assert page.authority <= 0.2
                else:
                    assert page.authority >= 0.7
        for page in question.negatives:
            assert page.kind != "on_topic" or str(question.effective_year) not in page.text
    stale = [page for q in corpus.questions for page in q.negatives if page.kind == "stale" and page.date]
    late = np.mean([page.date.startswith("2025") and "2025" not in page.text for page in stale])
    assert 0.15 < late < 0.35  # republished: the date says nothing
    for question in corpus.questions:
        if question.metadata["class"] == "false_premise":
            assert question.effective_year > int(question.answer[-4:])
    undated = [page.date is None for page in corpus.documents]
    assert 0.07 < np.mean(undated) < 0.13


def test_cross_lingual_questions_name_the_thing_in_the_other_language(corpus):
    asked = [q for q in corpus.questions if q.metadata["class"] == "cross_lingual"]
    assert asked
    for question in asked:
        assert any(word in question.question for word in LEXICON.values())
        assert any(f"In Ravic its name is {word}" in question.gold.text for word in LEXICON.values())


def test_a_reader_takes_the_key_from_every_gold_page_and_from_no_negative(corpus):
    for question in corpus.questions:
        answer = extract(question.question, question.gold.text)
        assert grade(question.question, question.answer, answer, question.aliases) == "A", question
        assert false_negatives(question) == []


def test_a_contradicting_count_names_two_others_who_are_not_the_same(monkeypatch):
    """The second wrong name must not be the first one again: the count would be the key."""
    monkeypatch.setattr(corpus_module, "_other", lambda rng, world, *taken: min({*world.people} - {*taken}))
    for question in sample_corpus(0, 4, 1.0, 0.0, 1, mix={"count": 1.0}).questions:
        assert extract(question.question, question.negatives[0].text) == question.options["contradicting"]
        assert int(question.options["contradicting"]) == int(question.answer) + 1
        assert false_negatives(question) == []


def test_further_pages_with_the_key():
    corpus = sample_corpus(1, 10, support=2, distractors=3)
    assert len(corpus.documents) == 10 * 6
    assert len({page.id for page in corpus.documents}) == 60
    for question in corpus.questions:
        for page in question.support:
            assert grade(question.question, question.answer, extract(question.question, page.text)) == "A"


def test_contexts_are_nested_and_hold_the_gold_page_where_it_is_wanted(corpus):
    question = corpus.questions[0]
    rng = np.random.default_rng(0)
    before: set[str] = set()
    for k in (1, 4, 12, 31):
        pages = place_gold(question, k, rng=rng)
        ids = {page.id for page in pages}
        assert len(ids) == k
        assert question.gold in pages
        assert before <= ids
        before = ids
    for share, place in ((0.0, 0), (0.5, 5), (1.0, 10)):
        pages = place_gold(question, 11, share, "ranked")
        assert pages[place] == question.gold
        assert [p for p in pages if p != question.gold] == list(question.negatives[:10])
    places = [place_gold(question, 4, rng=rng).index(question.gold) for _ in range(400)]
    assert all(70 < places.count(i) < 130 for i in range(4))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"conflict": 1.5}, r"conflict=1.5; allowed is a share from 0 to 1"),
        ({"conflict": 0.8, "stale": 0.3}, r"conflict=0.8 and stale=0.3 make 1.1; allowed is at most 1"),
        ({"n": 0}, r"n=0, distractors=30, support=0"),
        ({"length": "tiny"}, r"length='tiny'; allowed are 'long' and 'short'"),
        ({"mix": {"riddle": 1.0}}, r"mix has \['riddle'\]; allowed are count, compare"),
        ({"mix": {"count": 0.0}}, r"mix={'count': 0.0}; allowed are shares"),
        ({"entities": 101}, r"entities=101; allowed is an even number from 100 on"),
    ],
)
def test_corpora_that_cannot_be_drawn(arguments, words):
    with pytest.raises(ValueError, match=words):
        sample_corpus(0, **{"n": 2, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"k": 0}, "k=0; question 'q0' allows 1 to 31"),
        ({"k": 32}, "k=32; question 'q0' allows 1 to 31"),
        ({"k": 3, "gold_position": 2.0}, "gold_position=2.0; allowed is None or a share"),
        ({"k": 3, "order": "sorted"}, "order='sorted'; allowed are 'shuffled' and 'ranked'"),
        ({"k": 3}, "rng is needed when the order or the gold position is drawn"),
    ],
)
def test_contexts_that_cannot_be_made(corpus, arguments, words):
    with pytest.raises(ValueError, match=words):
        place_gold(corpus.questions[0], **arguments)
