"""Readers and choosers."""

import numpy as np
import pytest

from paperworks.evaluation.sealqa import (
    Document,
    Item,
    LeadReader,
    LikelihoodChooser,
    NoisySearchIndex,
    OracleReader,
    Question,
    RecencyReader,
    StringFrequency,
    Top1Reader,
    VoteReader,
    extract,
    place_gold,
    sample_corpus,
)
from paperworks.evaluation.sealqa.readers import majority


def page(name, text, date=None, kind=""):
    return Document(name, name, text, date=date, kind=kind)


QUESTION = Question("1", "Who is the keeper of Old Sibon Organ in Ostrey as of 2020?", "Lia Brandt")
SAYS = "As of 2020, the keeper of Old Sibon Organ in Ostrey is {}."


@pytest.mark.parametrize(
    ("question", "text", "answer"),
    [
        (QUESTION.question, f"Rain fell. {SAYS.format('Lia Brandt')} It was founded by Tom Cole.", "Lia Brandt"),
        (QUESTION.question, "Rain fell on Ostrey. Nothing else.", ""),
        (
            "How many different people were the mayor of Ash from 2010 to 2014?",
            "From 2010 to 2014 the mayor of Ash was, in turn, Lia Brandt, Tom Cole and Ada Kor.",
            "3",
        ),
        ("How many inhabitants has Ash in 2010?", "In 2010 Ash had 12,100 inhabitants.", "12,100"),
        ("Who is the keeper of the organ?", "For Lia Brandt, keeper of the organ, all is well.", "Lia Brandt"),
        ("When was the hall of Ash opened?", "The hall of Ash was opened in 1987.", "1987"),
        (
            "Which had more members in 2020, East Nahum or Old Sibon, both in Ostrey?",
            "In 2020 East Nahum in Ostrey had 900 members and Old Sibon in Ostrey had 1,200 members.",
            "Old Sibon",
        ),
        ("Who is the coach of Ash Rovers?", "Since 2019 there has been no coach of Ash Rovers.", "No such thing"),
    ],
)
def test_answers_out_of_pages(question, text, answer):
    found = extract(question, text)
    assert found == answer or (answer == "No such thing" and found.startswith(answer))


def test_each_reader_believes_the_page_it_should():
    pages = [
        page("lead", SAYS.format("Ada Lead"), "2010-01-01"),
        page("top", SAYS.format("Ada Top"), "2012-01-01"),
        page("new", SAYS.format("Ada New"), "2019-01-01"),
        page("old1", SAYS.format("Ada Many"), None),
        page("old2", SAYS.format("Ada Many"), "2001-01-01"),
        page("gold", SAYS.format("Lia Brandt"), "2011-01-01", "gold"),
    ]
    order = ["top", "old1", "lead", "old2", "gold", "new"]

    def rank(text, documents):
        assert text == QUESTION.question
        return sorted(documents, key=lambda d: order.index(d.id))

    def read(reader):
        return reader(QUESTION, pages, rank)

    assert read(Top1Reader()) == "Ada Top"
    assert read(LeadReader()) == "Ada Lead"
    assert read(OracleReader()) == "Lia Brandt"
    assert read(VoteReader()) == "Ada Many"
    assert read(RecencyReader(among=6)) == "Ada New"
    assert read(RecencyReader(among=5)) == "Ada Top"  # the newest of the best five
    assert read(VoteReader(among=3)) == "Ada Top"  # a tie: the better ranked
    assert read(VoteReader(among=3, ties="order")) == "Ada Lead"  # a tie: the earlier one in the context


def test_readers_that_ignore_order_do_so_exactly():
    corpus = sample_corpus(5, 25, 0.25, 0.25, 8)
    index = NoisySearchIndex(corpus.documents)
    ranking = {document.id: i for i, document in enumerate(corpus.documents)}

    def rank(text, documents):  # scores that never tie
        scores = index.scores(text)
        return sorted(documents, key=lambda d: (-scores[ranking[d.id]], d.id))

    for reader in (Top1Reader(), RecencyReader(), VoteReader(), OracleReader()):
        for question in corpus.questions:
            said = {
                reader(question, place_gold(question, 9, share, rng=np.random.default_rng(i)), rank)
                for i, share in enumerate((0.0, 0.5, 1.0))
            }
            dates = {d.date for d in question.negatives[:8]} | {question.gold.date}
            assert len(said) == 1 or len(dates) < 9  # two pages of one day are a tie of the recency reader


def test_the_oracle_does_not_mind_distractors():
    corpus = sample_corpus(5, 25)
    rank = NoisySearchIndex(corpus.documents).search
    for question in corpus.questions:
        contexts = [place_gold(question, k, rng=np.random.default_rng(0)) for k in (1, 8, 31)]
        assert len({OracleReader()(question, pages, lambda t, d: rank(t, 50, among=d)) for pages in contexts}) == 1


def test_majorities():
    assert majority(["a", "b", "b", ""]) == "b"
    assert majority(["b", "a"]) == "b"
    assert majority(["", "", "a"]) == "a"
    assert majority(["", ""]) == "I don't know"
    assert majority(["I don't know", "a", "I don't know"]) == "a"  # who does not know has no vote
    assert majority(["a", "No such thing: x", "No such thing: y"]) == "No such thing: x"


def test_choosers():
    pages = tuple(page(str(i), f"It is {name}.") for i, name in enumerate(["Rome", "Paris", "Paris"]))
    item = Item("What is it? It is", pages, ("Rome", "Paris", "Oslo"))
    assert item.prompt == "It is Rome.\n\nIt is Paris.\n\nIt is Paris.\n\nWhat is it? It is"
    calls = []

    def logprobs(prompts, options):
        calls.append((list(prompts), [list(row) for row in options]))
        with_pages = [-1.0, -2.0, -9.0]
        without = [-1.0, -8.0, -2.0]
        return [with_pages if "Paris" in prompt else without for prompt in prompts]

    assert LikelihoodChooser(logprobs)([item]) == [0]
    assert LikelihoodChooser(logprobs, contrast=True)([item]) == [1]  # what pages add: 0, 6, -7
    assert calls[-1] == (["What is it? It is"], [[" Rome", " Paris", " Oslo"]])
    assert StringFrequency()([item]) == [1]
    assert StringFrequency()([Item("x", (), ("a", "b"))]) == [0]
    thorium = Item("x", (page("p", "The element xenon. There is the symbol Xe."),), ("Th", "Xe"))
    assert StringFrequency()([thorium]) == [1]  # whole words: "The" does not name Th


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RecencyReader(0), "among=0; allowed is 1 or more"),
        (lambda: VoteReader(ties="coin"), "ties='coin'; allowed are 'rank' and 'order'"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
