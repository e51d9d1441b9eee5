"""The judge by rules against labelled cases, and its parts."""

import json
from decimal import Decimal
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperworks.evaluation.sealqa import confusion, grade
from paperworks.evaluation.sealqa.judging import dates, final_answer, normalise, numbers

CASES = [
    json.loads(line)
    for line in (files("paperworks.evaluation.sealqa") / "judge_cases.jsonl").read_text(encoding="utf-8").splitlines()
]


def judged(case):
    return grade(case["question"], case["reference"], case["prediction"], case.get("aliases", ()))


def test_the_rules_agree_with_sixty_labelled_cases():
    assert len(CASES) == 60
    labels = [case["label"] for case in CASES]
    assert {label: labels.count(label) for label in "ABC"} == {"A": 25, "B": 25, "C": 10}
    table = confusion(labels, [judged(case) for case in CASES])
    assert table.shape == (3, 3)
    assert table.sum(axis=1).tolist() == [25, 25, 10]
    assert np.trace(table) / 60 >= 0.95, table  # what is asked of the rules
    assert [case for case in CASES if judged(case) != case["label"]] == []  # what they reach


# Written after the rules were fixed, and not looked at while they were written.
HELD_OUT = [
    ("A", "Who keeps the organ?", "Lia Brandt", "The current keeper is Brandt."),
    ("A", "Who keeps the organ?", "Lia Brandt", "LIA BRANDT"),
    ("A", "Who keeps the organ?", "Lia Brandt", "Final answer: Lia Brandt."),
    ("B", "Who keeps the organ?", "Lia Brandt", "Lia Brandt / Tom Cole"),
    ("B", "Who keeps the organ?", "Lia Brandt", "I think it is Tom Cole."),
    ("C", "Who keeps the organ?", "Lia Brandt", "There is no way to tell; I can't verify who keeps it."),
    ("A", "How many pipes has it?", "1,204", "It has 1204 pipes in all."),
    ("B", "How many pipes has it?", "1,204", "1,240"),
    ("A", "How many bells are there?", "7", "Seven bells."),
    ("A", "What is the budget?", "$1.2 million", "about 1.2 million dollars"),
    ("B", "What is the budget?", "$1.2 million", "12 million dollars"),
    ("A", "When did it open?", "14 March 2021", "It opened on 14th March 2021."),
    ("B", "When did it open?", "14 March 2021", "14 March 2020"),
    ("A", "Who coached in 1950?", "No such coach: the club was founded in 1961", "The club did not exist in 1950."),
    ("B", "Who coached in 1950?", "No such coach: the club was founded in 1961", "Tom Cole"),
    ("A", "Where does it stand?", "Upper Varnel", "It stands in Upper Varnel, near the river."),
    ("B", "Where does it stand?", "Upper Varnel", "It stands in Lower Varnel."),
    ("A", "Is it older than the bridge?", "Yes", "Yes."),
    ("B", "Is it older than the bridge?", "Yes", "No."),
    ("C", "Where does it stand?", "Upper Varnel", "No information is available."),
]


def test_the_rules_agree_with_cases_they_were_not_made_on():
    labels = [case[0] for case in HELD_OUT]
    found = [grade(question, key, said) for _, question, key, said in HELD_OUT]
    right = sum(a == b for a, b in zip(labels, found, strict=True))
    wrong = [(case, g) for case, g in zip(HELD_OUT, found, strict=True) if case[0] != g]
    assert right >= 18, wrong


WHO, KEY = "Who was the mayor of Upper Varnel in Ostrey as of 2019?", "Teram Solbeck"
MANY = "How many inhabitants did the town have in 2021?"
DAY = "When was the hall opened?"
WON, ENDED = "Who won the medal in 2023?", "No such winner: the medal came to an end in 2019"


@pytest.mark.parametrize(
    ("label", "question", "key", "said"),
    [
        # what is denied is no answer, and to deny another takes nothing away
        ("B", WHO, KEY, "It was not Teram Solbeck."),
        ("B", WHO, KEY, "Definitely not Solbeck."),
        ("A", WHO, KEY, "Teram Solbeck, not Ludo Harnim."),
        ("A", WHO, KEY, "Not Ludo Harnim but Teram Solbeck."),
        ("B", DAY, "3 May 2019", "It was not opened on 3 May 2019."),
        ("A", DAY, "3 May 2019", "Not on 2 May 2019 but on 3 May 2019."),
        ("B", MANY, "12,100", "It did not have 12,100."),
        # lists get no credit
        ("B", WHO, KEY, "1. Teram Solbeck\n2. Ludo Harnim"),
        ("B", WHO, KEY, "- Teram Solbeck\n- Ludo Harnim"),
        ("B", WHO, KEY, "Teram Solbeck & Ludo Harnim"),
        ("B", WHO, KEY, "Teram Solbeck. Ludo Harnim. Mirel Dast."),
        ("A", WHO, KEY, "Teram Solbeck. Upper Varnel."),
        ("B", MANY, "12,100", "12,100 and 13,000"),
        ("A", MANY, "12,100", "In 2019 and 2020 it grew, to 12,100."),
        ("B", "Which two?", "Old Sibon and Far Nahum", "Old Sibon, Far Nahum, High Kebrem"),
        ("B", "Which two?", "Old Sibon and Far Nahum", "Old Sibon, not Far Nahum"),
        # refusals
        ("C", WHO, KEY, "I'm sorry, but I can't help with that."),
        ("C", WHO, KEY, "It is not known who the mayor was."),
        ("C", WHO, KEY, "I don't have enough information to answer."),
        ("C", WHO, KEY, "The documents do not mention this."),
        ("C", WHO, KEY, "There is insufficient evidence."),
        ("B", WHO, KEY, "I'm not sure. Ludo Harnim?"),
        # numbers
        ("A", MANY, "12,100", "12 100"),
        ("A", "How many of the 40 seats did they win?", "12", "Of the 40 seats they won 12."),
        ("B", "How many of the 40 seats did they win?", "12", "All 40."),
        ("A", "How much?", "$5M", "5 million dollars"),
        ("A", "How far?", "87 m", "87 metres"),
        ("A", "How many?", "105", "one hundred and five"),
        ("A", "How many?", "two hundred", "200"),
        ("A", "What temperature?", "-5", "minus 5 degrees"),
        ("B", "What temperature?", "-5", "5 degrees"),
        ("A", DAY, "2019", "3 May 2019"),
        ("B", DAY, "2019", "3 May 2018"),
        ("B", DAY, "2019", "2019 or 2020"),
        # yes and no
        ("B", "Is it?", "No", "Yes, no doubt."),
        ("A", "Is it?", "No", "No, it is not."),
        # false premises
        ("B", WON, ENDED, "Pera Lindom, who had never won it before."),
        ("B", WON, ENDED, "There is no doubt: Pera Lindom."),
        ("B", WON, ENDED, "Pera Lindom. There were no other candidates."),
        ("A", WON, ENDED, "There was no winner in 2023."),
        ("A", WON, ENDED, "Nobody; Pera Lindom won the last one, and then it was discontinued."),
        ("C", WON, ENDED, "There is no information about the winner."),
        ("C", WON, ENDED, "None of the pages say."),
    ],
)
def test_cases_on_which_earlier_rules_failed_and_their_opposites(label, question, key, said):
    assert grade(question, key, said) == label


@given(st.sampled_from([c for c in CASES if c["label"] == "A" and "Answer" not in c["prediction"]]))
def test_an_answer_after_a_marker_is_what_counts(case):
    said = f"One page says Xenia Zorro, another Yannick Quast.\nAnswer: {case['prediction']}"
    assert grade(case["question"], case["reference"], said, case.get("aliases", ())) == "A"


@given(st.sampled_from(CASES))
def test_the_key_itself_is_right_and_a_refusal_is_not_attempted(case):
    assert grade(case["question"], case["reference"], case["reference"]) == "A"
    assert grade(case["question"], case["reference"], "I don't know.") == "C"
    assert grade(case["question"], case["reference"], "  ") == "C"


@given(st.integers(1, 10**7))
def test_a_number_is_right_in_any_spelling_and_its_double_is_wrong(value):
    key = f"{value:,}"
    assert grade("How many?", key, str(value)) == "A"
    assert grade("How many?", str(value), f"It is {value:,}.") == "A"
    assert grade("How many?", key, str(2 * value + 1)) == "B"


def test_numbers_with_the_size_of_their_last_figure():
    assert numbers("1,204 of 12.50") == [(Decimal(1204), Decimal(1)), (Decimal("12.50"), Decimal("0.01"))]
    assert numbers("120k") == [(Decimal(120_000), Decimal(10_000))]
    assert numbers("1.2 million") == [(Decimal(1_200_000), Decimal(100_000))]
    assert numbers("twenty-one") == [(Decimal(21), Decimal(1))]
    assert numbers("no number") == []


def test_dates_in_several_spellings():
    wanted = (2019, 5, 3)
    for text in ("3 May 2019", "May 3, 2019", "3rd of May 2019", "2019-05-03", "on May 3rd 2019,"):
        assert dates(text) == [wanted], text
    assert dates("May 2019") == [(2019, 5, None)]
    assert dates("3 May") == [(None, 5, 3)]
    assert dates("they may 2019") == [(2019, 5, None)]  # a known confusion, harmless beside a key that is a date
    assert dates("2019-13-01") == []


def test_texts_are_compared_without_accents_articles_and_punctuation():
    assert normalise("The Café, of Müller & Sons") == "cafe muller sons"
    assert normalise("twenty-one 1,204") == "21 1204"


@pytest.mark.parametrize(
    ("said", "final"),
    [
        ("Answer: x", "x"),
        ("I looked.\nFinal answer: x y", "x y"),
        ("The answer is x.", "x."),
        ("no marker", "no marker"),
        ("Answer: a\nAnswer: b", "b"),
        ("Answer:", "Answer:"),
    ],
)
def test_what_follows_the_last_marker(said, final):
    assert final_answer(said) == final


def test_a_judge_without_a_key():
    with pytest.raises(ValueError, match="reference is empty; the judge needs a key"):
        grade("Who?", " ", "x")
