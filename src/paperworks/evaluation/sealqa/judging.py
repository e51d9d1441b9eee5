"""The judge by rules: correct (A), incorrect (B) or not attempted (C), from question, key and prediction alone.

The rules are those that the paper adapts from SimpleQA, as far as they can be had without a model: containment up to
spelling, aliases, numbers to the last significant figure of the key, dates at the precision of the key, no credit for
several answers, hedging allowed beside the right answer, refusals told from wrong answers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

Grade = Literal["A", "B", "C"]
GRADES: tuple[Grade, ...] = ("A", "B", "C")

_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_NUMBER_WORDS = {word: i for i, word in enumerate(_UNITS)} | {word: 10 * (i + 2) for i, word in enumerate(_TENS)}
_ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]
_ORDINAL_WORDS = {word: i + 1 for i, word in enumerate(_ORDINALS)}
_SCALES = {"k": 3, "thousand": 3, "m": 6, "mn": 6, "million": 6, "b": 9, "bn": 9, "billion": 9, "trillion": 12}
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH = {name: i + 1 for i, name in enumerate(_MONTHS)} | {name[:3]: i + 1 for i, name in enumerate(_MONTHS)}
_MONTH |= {"sept": 9}
_REFUSAL = re.compile(
    r"\b(?:i )?(?:do not|don't|dont|can not|cannot|can't|could not|couldn't|am not able to|am unable to|unable to|"
    r"was not able to|wasn't able to) (?:really |currently |reliably )?(?:know|answer|determine|find|say|tell|verify|"
    r"confirm|provide|be sure|access|help|assist)\b|"
    r"\bnot (?:sure|certain|able to|known|available|clear)\b|\bno (?:idea|information|answer|record|mention|way)\b|"
    r"\bno (?:clear|definite|reliable) answer\b|\b(?:do not|don't|did not|didn't) have (?:enough|any|access|real)\b|"
    r"\b(?:do|does|did)(?: not|n't) (?:mention|say|state|specify|contain|tell|give)\b|"
    r"\bnone of the (?:pages|documents|sources|results|articles)\b|"
    r"\bunknown\b|\bi have no\b|\bnot enough information\b|\binsufficient\b|\bplease (?:check|consult)\b|"
    r"\bwould need (?:more|to)\b|\bn/a\b|\b(?:hard|impossible) to (?:say|tell|know)\b",
    re.IGNORECASE,
)
_REJECTION = re.compile(  # says outright that there is no such thing
    r"\bno such\b|\b(?:does|do|did)(?: not|n't) exist\b|\bno longer (?:exist|awarded|held|given)|"
    r"\bnever (?:existed|happened|took)\b|\bfalse premise\b|\bthe premise\b|"
    r"\b(?:was|were)(?: not|n't| never) (?:awarded|held|given)\b|\bcame to an end\b|\bended in\b|"
    r"\bwas (?:dissolved|abolished|discontinued)\b|\bceased\b|^0$|^zero$",
    re.IGNORECASE,
)
_WEAK_REJECTION = re.compile(  # may also stand beside an answer: "Tom Cole, who had never won it before"
    r"\bnever (?:won|was|were|has|had|held|been)\b|\bnobody\b|\bno one\b|\bnone\b|"
    r"\bthere (?:is|was|were|are|has been|have been) no\b"
    r"(?! (?:doubt|question|way|information|record|mention|evidence))|"
    r"\b(?:had|has) no\b|\bhas(?: not|n't) (?:been|had|won)\b",
    re.IGNORECASE,
)
_GUESS = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|likely|might be|may be|could be|i think|i believe|i guess|my guess|"
    r"best guess|if i had to)\b",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"(?:^|\n|[.;:]\s+)\W*(?:the )?(?:final |short |correct )?answer\W*\s*(?:is\b)?\s*:?\s*", re.IGNORECASE
)
_VAGUE = re.compile(
    r"\b(?:around|about|approximately|roughly|some|more than|less than|over|under|at least|at most|nearly|almost|up to|"
    r"fewer than)\s+(?=\S*\d)",
    re.IGNORECASE,
)
_ARTICLES = frozenset(["a", "an", "the", "of", "in", "on", "at", "to", "is", "was", "it", "and", "by", "for"])


def grade(question: str, reference: str, prediction: str, aliases: Sequence[str] = ()) -> Grade:
    """Judges a prediction.

    Args:
        question: The question; what it names is not taken for an answer.
        reference: The key. One that starts with "No such" (or the like) says that the premise is false, and every
            rejection of the premise is right.
        prediction: What the model said; after "Answer:" only what follows counts.
        aliases: Other spellings of the key.

    Returns:
        "A" correct, "B" incorrect, "C" not attempted.

    Raises:
        ValueError: The reference is empty.
    """
    if not reference.strip():
        raise ValueError("reference is empty; the judge needs a key")
    said = final_answer(prediction)
    if not said or not re.search(r"\w", said):
        return "C"
    if _rejects(reference) and not _rejects(question):
        return _of_false_premise(said, question, reference)
    kept = _without_question(said, question)
    results = [_of_key(kept, said, key, question) for key in (reference, *aliases)]
    if "A" in results:
        return "A"
    return "C" if _refuses(said) or "C" in results else "B"


def final_answer(prediction: str) -> str:
    """What follows the last "Answer:", or all of it.

    Args:
        prediction: What the model said.
    """
    marks = [m for m in _MARKER.finditer(prediction) if ":" in m.group() or " is" in m.group().lower()]
    after = prediction[marks[-1].end() :].strip() if marks else ""
    return after or prediction.strip()


def normalise(text: str) -> str:
    """Lower case without accents, punctuation, articles and thousands separators; number words as digits.

    Args:
        text: Any text.
    """
    plain = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in plain if not unicodedata.combining(c)).lower().replace("&", " and ")
    plain = re.sub(r"(?<=\d)[,\u202f\u00a0 ](?=\d{3}\b)", "", plain)
    plain = re.sub(r"(?<=\w)['’](?=s\b)", " ", plain)
    words = re.findall(r"\d+(?:\.\d+)?|[^\W_]+", plain)
    return " ".join(w for w in _numbers_as_digits(words) if w not in _ARTICLES)


def _numbers_as_digits(words: list[str]) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(words):
        word = words[i]
        if word in _NUMBER_WORDS:
            value = _NUMBER_WORDS[word]
            if value >= 20 and i + 1 < len(words) and 0 < _NUMBER_WORDS.get(words[i + 1], 0) < 10:
                i += 1
                value += _NUMBER_WORDS[words[i]]
            out.append(str(value))
        elif word in _ORDINAL_WORDS:
            out.append(f"{_ORDINAL_WORDS[word]}")
        elif re.fullmatch(r"\d+(?:st|nd|rd|th)", word):
            out.append(word[:-2])
        else:
            out.append(word)
        i += 1
    return out


# --- what the key is ---------------------------------------------------------------


def _of_key(kept: str, said: str, key: str, question: str) -> Grade:
    if date := dates(key):
        if _is_date(key, date[0]):
            return _of_date(kept, date[0])
    elif number := numbers(key):
        bare = re.sub(r"[\d.,%$€£]|\b(?:" + "|".join([*_SCALES, *_NUMBER_WORDS]) + r")\b", " ", key.lower())
        if len(number) == 1 and len(re.findall(r"[^\W\d_]+", bare)) <= 2:
            return _of_number(kept, said, number[0])
    return _of_text(kept, said, key, question)


def _rejects(text: str) -> bool:
    return bool(_REJECTION.search(text) or _WEAK_REJECTION.search(text))


def _of_false_premise(said: str, question: str, reference: str) -> Grade:
    if _REJECTION.search(said):
        return "A"
    known = normalise(f"{question} {reference}")
    named = any(_find(known, normalise(name)) is None for name in _PERSON.findall(said))
    if _WEAK_REJECTION.search(_REFUSAL.sub(" ", said)) and not named:
        return "A"
    return "C" if _REFUSAL.search(said) and not _GUESS.search(said) else "B"


def _refuses(said: str) -> bool:
    """Whether an answer that is not right declines to answer; a hedged guess, or a name of its own, does not."""
    if not _REFUSAL.search(said):
        return False
    rest = _REFUSAL.sub(" ", said)
    if any(_PERSON.fullmatch(piece.strip(" .!?")) for piece in _SENTENCE.split(rest)):
        return False
    guess = _GUESS.search(rest)
    if guess is None:
        return True
    after = rest[guess.end() :]
    return not re.search(r"[A-Z][a-z]|\d", after)


def _without_question(said: str, question: str) -> str:
    """Drops from an answer what it repeats of the question: spans of two words and more, years and numbers."""
    for number in sorted(set(re.findall(r"\d[\d,.]*\d|\d", question)), key=len, reverse=True):
        said = re.sub(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", " ", said)
    return said


# --- numbers ---------------------------------------------------------------

_NOT_JUST_BEFORE = re.compile(
    r"(?:\bnot|\bnever|n't)(?:\s+(?!but\b|and\b|sure\b|certain\b)[^\W\d]+){0,3}\s*$", re.IGNORECASE
)
_FIGURE = re.compile(
    r"(?<![\w.])[-−]?(\d{1,3}(?:[, \u00a0\u202f]\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"\s?(k|(?-i:[MB])|thousand|mn|million|bn|billion|trillion)?(?![\w])",
    re.IGNORECASE,
)
_SPELLED = r"(?:(?:" + "|".join([*_TENS, *_UNITS]) + r")(?:[- ](?:" + "|".join(_UNITS[1:10]) + r"))?)"
_HUNDREDS = re.compile(rf"\b({_SPELLED}|a)[- ]hundred(?:[- ](?:and )?({_SPELLED}))?\b", re.IGNORECASE)


def numbers(text: str) -> list[tuple[Decimal, Decimal]]:
    """Numbers of a text, each with the size of its last significant figure.

    Args:
        text: Any text; "1.2 million", "1,200" and "twelve" are understood.

    Returns:
        Pairs (value, unit of the last significant figure): 120 has unit 10, 12.5 has 0.1, 1.2 million has 100,000.
    """
    return [number for number, _ in _figures(text)]


def _as_digits(spelled: str) -> str:
    return " ".join(_numbers_as_digits(re.findall(r"[a-z]+", spelled.lower())))


def _written(text: str) -> str:
    """A text with its number words and "minus" as digits and signs."""

    def hundreds(match: re.Match[str]) -> str:
        many = 1 if match[1].lower() == "a" else int(_as_digits(match[1]))
        return str(100 * many + int(_as_digits(match[2] or "zero")))

    text = _HUNDREDS.sub(hundreds, text)
    text = re.sub(rf"\b{_SPELLED}\b", lambda m: _as_digits(m.group()), text, flags=re.IGNORECASE)
    return re.sub(r"\b(?:minus|negative) (?=\d)", "-", text, flags=re.IGNORECASE)


def _figures(text: str) -> list[tuple[tuple[Decimal, Decimal], bool]]:
    """Numbers, and whether each is denied ("not 12")."""
    words = _written(text)
    found = []
    for match in _FIGURE.finditer(words):
        digits = re.sub(r"[^\d.]", "", match.group(1))
        power = _SCALES[match.group(2).lower()] if match.group(2) else 0
        value = Decimal(digits).scaleb(power)
        if "." in digits:
            exponent = -len(digits.partition(".")[2])
        else:
            stripped = digits.rstrip("0")
            exponent = len(digits) - len(stripped) if stripped and len(digits) > 2 else 0
        signed = -value if match.group().lstrip()[0] in "-−" else value
        denied = _NOT_JUST_BEFORE.search(words[: match.start()]) is not None
        found.append(((signed, Decimal(1).scaleb(exponent + power)), denied))
    return found


def _of_number(kept: str, said: str, key: tuple[Decimal, Decimal]) -> Grade:
    value, unit = key
    if unit == 1 and 1500 <= value <= 2100:  # a year may be given with its day
        for pattern in _DATES:
            kept = pattern.sub(lambda m: m["year"] or " ", kept)
    given = [number for number, denied in _figures(kept) if not denied]
    if not given and numbers(kept):
        return "B"
    if not given:
        # The right number may be one that the question names too.
        given = [n for n in numbers(said) if abs(n[0] - value) <= unit / 2]
        if not given:
            return "C" if _REFUSAL.search(said) else "B"
    near = [abs(number - value) <= unit / 2 for number, _ in given]
    exact = any(number == value for number, _ in given)
    if _VAGUE.search(said) and not exact:
        return "C"
    if all(near):
        return "A"
    if not any(near):
        return "B"
    # Right and other numbers together: a year or a part beside the answer is no second answer, an alternative is.
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", _written(kept))
    for match in re.finditer(
        r"(?<![\w.])\$?(\d\S*)\s*(?:,|/|&|\b(?:or|and|to)\b|-|–)\s*(?:maybe |perhaps |possibly )?\$?(\d[\d.]*)", plain
    ):
        if any(abs(number - value) <= unit / 2 for side in match.groups() for number, _ in numbers(side.rstrip(".,"))):
            return "B"
    others = [
        number
        for (number, coarse), ok in zip(given, near, strict=True)
        if not ok and abs(number - value) > coarse / 2  # "about twelve thousand" agrees with 12,100
    ]
    return "A" if all(1500 <= number <= 2100 for number in others) or near[0] else "B"


# --- dates ---------------------------------------------------------------

_NAMES = "|".join(sorted(_MONTH, key=len, reverse=True))
_DATES = [
    re.compile(r"\b(?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?\b"),
    re.compile(
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<name>{_NAMES})\.?,?(?: (?P<year>\d{{4}}))?\b", re.IGNORECASE
    ),
    re.compile(
        rf"\b(?P<name>{_NAMES})\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,? (?P<year>\d{{4}}))?\b", re.IGNORECASE
    ),
    re.compile(rf"\b(?P<name>{_NAMES})\.?,? (?P<year>\d{{4}})\b", re.IGNORECASE),
]
Date = tuple[int | None, int | None, int | None]


def dates(text: str) -> list[Date]:
    """Dates of a text as (year, month, day), what is not said being ``None``.

    Args:
        text: Any text; 3 May 2019, May 3rd, 2019-05-03 and May 2019 are understood.
    """
    return [date for date, _ in _days(text)]


def _days(text: str) -> list[tuple[Date, bool]]:
    """Dates, and whether each is denied ("not opened on 3 May")."""
    found: list[tuple[int, Date]] = []
    taken: list[tuple[int, int]] = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            if any(match.start() < end and begin < match.end() for begin, end in taken):
                continue
            parts = match.groupdict()
            month = _MONTH[parts["name"].lower()] if parts.get("name") else int(parts["month"])
            if not 1 <= month <= 12:
                continue
            year, day = (int(parts[p]) if parts.get(p) else None for p in ("year", "day"))
            taken.append(match.span())
            found.append((match.start(), (year, month, day)))
    ordered = sorted(found, key=lambda pair: pair[0])
    return [(date, _NOT_JUST_BEFORE.search(text[:place]) is not None) for place, date in ordered]


def _is_date(key: str, date: Date) -> bool:
    """Whether a key is a date and not a text that has one."""
    rest = key.lower()
    for pattern in _DATES:
        rest = pattern.sub(" ", rest)
    return len(re.findall(r"[^\W\d_]+", rest)) <= 1


def _of_date(said: str, key: Date) -> Grade:
    found = _days(said)
    if not found:
        return "C" if _REFUSAL.search(said) else "B"
    given = [date for date, denied in found if not denied]

    def agrees(date: Date) -> bool:
        return all(k is None or k == d for k, d in zip(key, date, strict=True))

    return "A" if given and all(map(agrees, given)) else "B"


# --- texts ---------------------------------------------------------------


def _of_text(kept: str, said: str, key: str, question: str) -> Grade:
    parts = _items(key)
    if len(parts) > 1:
        has = [_find(normalise(said), normalise(part)) is not None for part in parts]
        if not all(has):
            return "B"
        return "B" if any(_denied(said, part) for part in parts) or _several(said, key, question) else "A"
    text, wanted = normalise(said), normalise(key)
    if wanted in ("yes", "no"):
        first = next((word for word in text.split() if word in ("yes", "no")), None)
        return "A" if first == wanted else "B"
    if not wanted:
        wanted = key.strip().lower()
        return "A" if said.strip().lower() == wanted else "B"
    place = _find(text, wanted)
    if place is None:
        place = _find_surname(said, key)
        if place is None:
            return "B"
    if _denied(said, key) or _denied(said, key.split()[-1]) or _several(said, key, question):
        return "B"
    return "A"


def _items(key: str) -> list[str]:
    """The parts of a key that is a list: "A and B", "A, B and C"."""
    parts = re.split(r",\s*(?:and\s+)?|\s+and\s+" if "," in key else r"\s+and\s+", key)
    parts = [part.strip() for part in parts if part.strip()]
    return parts if len(parts) > 1 and all(part[0].isupper() or part[0].isdigit() for part in parts) else [key]


def _find(text: str, wanted: str) -> int | None:
    """Where a phrase stands in a text, both normalised, a letter wrong in a long word allowed."""
    words, key = text.split(), wanted.split()
    for start in range(len(words) - len(key) + 1):
        if all(_like(a, b) for a, b in zip(words[start : start + len(key)], key, strict=True)):
            return start
    return None


def _like(a: str, b: str) -> bool:
    if a == b:
        return True
    if min(len(a), len(b)) < 6 or a[0] != b[0] or any(c.isdigit() for c in a + b):
        return False
    return _one_edit(a, b)


def _one_edit(a: str, b: str) -> bool:
    if abs(len(a) - len(b)) > 1:
        return False
    if len(a) == len(b):
        wrong = [i for i in range(len(a)) if a[i] != b[i]]
        swapped = (
            len(wrong) == 2 and wrong[1] == wrong[0] + 1 and a[wrong[0]] == b[wrong[1]] and a[wrong[1]] == b[wrong[0]]
        )
        return len(wrong) <= 1 or swapped
    short, long = sorted((a, b), key=len)
    return any(long[:i] + long[i + 1 :] == short for i in range(len(long)))


_PERSON = re.compile(r"[^\W\d_a-z][\w'’-]+(?: [A-Z]\.)?(?: [^\W\d_a-z][\w'’-]+)+")
_CAPITAL = re.compile(r"\b[^\W\d_a-z][\w'’-]*(?:\s+[^\W\d_a-z][\w'’-]*)*")


def _find_surname(said: str, key: str) -> int | None:
    """A person's last name alone is enough when no other first name stands before it."""
    if not _PERSON.fullmatch(key.strip()) or len(key.split()) > 3:
        return None
    first, last = normalise(key.split()[0]), normalise(key.split()[-1])
    if len(last) < 4:
        return None
    for match in _CAPITAL.finditer(said):
        words = [normalise(word) for word in match.group().split()]
        for i, word in enumerate(words):
            if word == last and (i == 0 or words[i - 1] in ("", first, "mr", "ms", "mrs", "dr", "president", "mayor")):
                return match.start()
    return None


_SENTENCE = re.compile(r"\s*\n\s*|(?<=[.!?])\s+")
_BULLET = re.compile(r"^(?:\d+[.)]|[-*•])\s+", re.MULTILINE)
_NOT = re.compile(
    r"\b(?:not|isn't|wasn't|never|neither|nor|rather than|instead of|incorrect|wrong)\b\W*(?:the |a |be |by )?$", re.I
)


def _denied(said: str, key: str) -> bool:
    """Whether the key is only named to be denied: "not X", "rather than X"."""
    places = [m.start() for m in re.finditer(re.escape(key), said, re.IGNORECASE)]
    return bool(places) and all(_NOT.search(said[max(0, p - 25) : p]) for p in places)


def _several(said: str, key: str, question: str) -> bool:
    """Whether another answer of the kind is offered beside the key."""
    lowered_key, lowered_question = normalise(key), normalise(question)
    near = _SENTENCE.split(_BULLET.sub("", said))
    holding = [s for s in near if _find(normalise(s), lowered_key) is not None] or [said]
    for sentence in holding:
        parts = re.split(r"\s*(?:/|;|,|&|\bor\b|\band\b|\beither\b)\s*", sentence)
        if len(parts) < 2:
            continue
        alternatives = re.search(r"\bor\b|/|\beither\b", sentence) is not None
        names = []
        for part in parts:
            for match in _CAPITAL.finditer(part):
                name = normalise(match.group())
                if not name or name in lowered_question or _find(lowered_key, name) is not None:
                    continue
                if _find(name, lowered_key) is not None:
                    continue
                if _NOT.search(part[: match.start()]):
                    continue
                begins = match.start() == 0 and part is parts[0] and " " not in name
                if not begins:
                    names.append(match.group())
        bare = normalise(_CAPITAL.sub(" ", sentence)).split()
        if names and (alternatives or (len(bare) <= 2 and len(names) >= 1)):
            return True
    # A list with one name a line or sentence.
    if any(
        _PERSON.fullmatch(alone := s.strip(' .!?*_"')) and _find(lowered_key, normalise(alone)) is None
        for s in near
        if s not in holding and normalise(s) not in lowered_question
    ):
        return True
    # A later sentence that takes the answer back.
    rest = " ".join(s for s in near if s not in holding)
    if re.search(r"\b(?:or|actually|correction|in fact|alternatively)\b", rest, re.I):
        names = [n for n in _PERSON.findall(rest) if normalise(n) not in lowered_question]
        return any(_find(normalise(n), lowered_key) is None for n in names)
    return False
