"""Search: BM25 against the formula, dense against cosines, noise, snapshots; prompts and LongSeal from a search."""

import dataclasses

import numpy as np
import pytest

from paperworks.evaluation.sealqa import (
    Document,
    NoisySearchIndex,
    Question,
    build_longseal,
    fresh_prompt_text,
    plain_prompt_text,
    sample_corpus,
)
from paperworks.evaluation.sealqa.documents import load_documents
from paperworks.evaluation.sealqa.fresh import highlights, oldest_first
from paperworks.evaluation.sealqa.index import tokenize
from paperworks.kit.assets import status

from . import reference

PAGES = [
    Document("a", "Apples", "Green apples and red apples fall in the garden.", "https://fruit.example/1", "2020-05-01"),
    Document("b", "Pears", "The pears of the garden are ripe; nobody picks pears.", "https://fruit.example/2"),
    Document("c", "Roads", "A road of 12,100 stones leads to the garden gate.", "https://road.example/3", "2018-01-01"),
    Document("d", "Nothing", "Of and in the.", "", "2021-01-01"),
]


def letters(texts):
    """An encoder: counts of letters."""
    return [[text.lower().count(chr(i)) for i in range(97, 123)] for text in texts]


def test_words_are_lower_case_without_function_words_and_numbers_are_whole():
    assert tokenize("The 12,100 Stones of Ash-Wood; 3 May") == ["12100", "stones", "ash", "wood", "3", "may"]


def test_bm25_is_lucenes_formula():
    index = NoisySearchIndex(PAGES)
    texts = [tokenize(f"{page.title}. {page.text}") for page in PAGES]
    for query in ("red apples garden", "pears", "12100 stones", "garden garden pears"):
        np.testing.assert_allclose(index.scores(query), reference.bm25(tokenize(query), texts), rtol=1e-5, atol=1e-6)
    assert not index.scores("zebra").any()
    assert [page.id for page in index.search("pears in the garden", 2)] == ["b", "a"]


def test_dense_scores_are_cosines_and_hybrid_is_the_mean_of_scaled_ones():
    dense = NoisySearchIndex(PAGES, "dense", encoder=letters)
    vectors = np.array(letters([f"{page.title}. {page.text}" for page in PAGES]), dtype=float)
    query = np.array(letters(["ripe pears"])[0], dtype=float)
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    np.testing.assert_allclose(dense.scores("ripe pears"), cosines)
    hybrid = NoisySearchIndex(PAGES, "hybrid", encoder=letters)
    sparse = NoisySearchIndex(PAGES).scores("ripe pears")
    both = [(x - x.min()) / (x.max() - x.min()) for x in (sparse, cosines)]
    np.testing.assert_allclose(hybrid.scores("ripe pears"), (both[0] + both[1]) / 2)


@pytest.mark.slow
@pytest.mark.skipif(status("minilm").state == "missing", reason="not on this machine: paperworks data minilm")
def test_a_sentence_encoder_finds_what_shares_no_word():
    from paperworks.kit.lm import encode

    index = NoisySearchIndex(PAGES[:3], "dense", encoder=encode)
    assert index.search("street made of rocks", 1)[0].id == "c"
    assert not NoisySearchIndex(PAGES[:3]).scores("street made of rocks").any()


def test_search_among_some_pages_keeps_the_frequencies_of_all():
    index = NoisySearchIndex(PAGES)
    found = index.search("garden pears", 5, among=[PAGES[2], PAGES[1]])
    assert [page.id for page in found] == ["b", "c"]
    assert index.search("garden", 1, among=[]) == []


def test_noise_moves_ranks_by_its_size_and_is_drawn_anew():
    corpus = sample_corpus(0, 3, distractors=15)
    question = corpus.questions[0].question
    top = NoisySearchIndex(corpus.documents).search(question, 1)[0]
    share = []
    for noise in (0.01, 0.2, 3.0):
        index = NoisySearchIndex(corpus.documents, noise=noise)
        rng = np.random.default_rng(0)
        share.append(np.mean([index.search(question, 1, rng=rng)[0] == top for _ in range(200)]))
    assert share[0] > share[1] > share[2]
    assert share[2] < 0.2
    scores, places = index.scores(question), np.arange(16)
    ranked = [index.ranked(size * scores, places, np.random.default_rng(1)) for size in (1, 1000)]
    assert ranked[0] == ranked[1]  # noise is in units of the candidates' spread
    with pytest.raises(ValueError, match=r"noise=3.0 needs rng, a numpy Generator"):
        index.search(question)


def test_a_corpus_is_frozen_under_its_digest(tmp_path):
    index = NoisySearchIndex(PAGES)
    path = index.save(tmp_path)
    assert path.name == f"pages-{index.digest[:16]}.jsonl"
    again = NoisySearchIndex.load(path)
    assert again.docs == index.docs
    assert again.digest == index.digest
    other = [dataclasses.replace(PAGES[0], text="Blue apples."), *PAGES[1:]]
    assert NoisySearchIndex(other).digest != index.digest
    path.write_text(path.read_text().replace("Green", "Brown"))
    with pytest.raises(ValueError, match="its name says otherwise"):
        NoisySearchIndex.load(path)
    path.write_text('{"id": "a", "title": "t"}\n')
    with pytest.raises(ValueError, match=r":1: a page lacks text; found: id, title"):
        load_documents(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"docs": []}, "docs is empty"),
        ({"mode": "magic"}, "mode='magic'; allowed are 'bm25', 'dense', 'hybrid'"),
        ({"noise": -1}, "noise=-1; allowed is 0 or more"),
        ({"mode": "dense"}, "mode='dense' needs encoder"),
        ({"docs": [PAGES[0], PAGES[0]]}, "docs has 1 repeated ids"),
        ({"mode": "dense", "encoder": lambda texts: [1.0]}, r"encoder gave shape \(1,\) for 4 texts"),
    ],
)
def test_indexes_that_cannot_be_built(arguments, words):
    with pytest.raises(ValueError, match=words):
        NoisySearchIndex(**{"docs": PAGES, **arguments})
    with pytest.raises(ValueError, match="k=0; allowed is 1 or more"):
        NoisySearchIndex(PAGES).search("x", 0)


def test_fresh_prompt_shows_the_oldest_page_first_and_the_question_after_the_newest():
    text = fresh_prompt_text("Who picks red apples in the garden?", PAGES[:3])
    assert [text.index(word) for word in ("Pears", "Roads", "Apples")] == sorted(
        text.index(word) for word in ("Pears", "Roads", "Apples")
    )
    assert text.index("title: Apples") < text.index("question: Who picks") < text.index("Answer: <answer>")
    assert "source: fruit.example\ndate: 2020-05-01\ntitle: Apples\nsnippet: Green" in text
    assert "date: unknown\ntitle: Pears" in text
    assert highlights("red apples", "Red apples, red Apples") == ["Red", "apples", "red", "Apples"]
    assert [page.id for page in oldest_first(PAGES)] == ["b", "c", "a", "d"]


def test_plain_prompts_keep_the_order_and_a_closed_book_has_no_pages():
    text = plain_prompt_text("Who?", PAGES[:2])
    assert text.index("[1] Apples (fruit.example, 2020-05-01)") < text.index("[2] Pears (fruit.example, no date)")
    assert text.index("Question: Who?") > text.index("Pears")
    assert plain_prompt_text("Who?").startswith("Who?\n")


def test_longseal_takes_results_old_results_and_related_ones_but_none_with_the_key():
    def page(name, text, date=None):
        return Document(name, name, text, f"https://x.example/{name}", date)

    gold = page("gold", "The mayor of Ashton is Lia Brandt.")
    first = [page(f"r{i}", f"The mayor of Ashton is Tom Cole, says page {i}.", f"20{10 + i}-01-01") for i in range(16)]
    leak = page("leak", "As we know the mayor of Ashton is Lia Brandt.")
    related = [page("rel", "Ashton has a school."), first[0]]
    copied = dataclasses.replace(gold, id="copied")
    pages = {"Who is the mayor of Ashton?": [leak, gold, copied, *first], "Ashton": related}
    question = Question("1", "Who is the mayor of Ashton?", "Lia Brandt")
    built = build_longseal(question, gold, lambda query: pages[query], related=["Ashton"])
    ids = [page.id for page in built.negatives]
    assert built.gold == gold
    assert ids[:7] == [f"r{i}" for i in range(7)]  # ten results less the gold page, its copy and the leak
    assert ids[7:10] == ["r7", "r8", "r9"]  # of before 2023: the first ten
    assert ids[-1] == "rel"
    assert "leak" not in ids
    assert len(set(ids)) == len(ids)
    kept = build_longseal(question, gold, lambda query: pages[query], gives_answer=lambda q, page: False)
    assert "leak" in [page.id for page in kept.negatives]
    assert "copied" not in [page.id for page in kept.negatives]
