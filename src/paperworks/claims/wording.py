"""Fair words: the one sentence that stands beside a verdict.

A sentence says what we measured, where, with how many units, and what of the paper that does not test. It speaks of our
test and never of whether a paper is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from paperworks.claims.statistics import MIN_UNITS

if TYPE_CHECKING:
    from paperworks.claims.paper import Experiment
    from paperworks.claims.verdict import Comparison, Finding, Verdict

_PREPOSITIONS = ("on ", "in ", "at ", "with ", "for ", "over ", "across ", "under ", "by ", "from ", "to ", "after ")
_DIGITS_BEFORE_SCIENTIFIC = 7


def numbers(values: Sequence[float], spread: float, marks: Sequence[float] = ()) -> list[str]:
    """Format numbers that belong together to the digits that their uncertainty leaves.

    Args:
        values: The numbers.
        spread: Half the width of the interval; it keeps one digit, or two when its first is a 1.
        marks: Numbers the reader compares them with: no value is rounded onto a mark or to its other side.
    """
    largest = max((abs(v) for v in values), default=0.0)
    exponent = math.floor(math.log10(largest)) if largest > 0 else 0
    exact = spread <= 1e-12 * largest
    places = 2 - exponent if exact else _leading_place(spread)
    for _ in range(4):
        if all(_side(round(v, places), m) == _side(v, m) for v in values for m in marks):
            break
        places += 1
    if places >= _DIGITS_BEFORE_SCIENTIFIC or exponent >= _DIGITS_BEFORE_SCIENTIFIC:
        return [f"{v:.{max(0, places + exponent)}e}" for v in values]
    texts = [f"{round(v, places):,.{max(0, places)}f}" for v in values]
    if exact:
        texts = [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]
    return [text.removeprefix("-") if not text.strip("-0.,") else text for text in texts]


def _leading_place(spread: float) -> int:
    exponent = math.floor(math.log10(spread))
    return -exponent + (spread / 10.0**exponent < 1.95)


def _side(value: float, mark: float) -> int:
    return 0 if math.isclose(value, mark, rel_tol=1e-9, abs_tol=1e-15) else (value > mark) - (value < mark)


def number(value: float) -> str:
    """A number that stands as it was written: 0.03, 600, 1e-05."""
    return f"{value:.6g}"


def about(value: float) -> str:
    """A number of which only the size matters: two digits."""
    return number(float(f"{value:.2g}"))


def p_value(p: float) -> str:
    """A p value with two digits."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def duration(minutes: float) -> str:
    """A rough time: minutes, then hours, then days."""
    for size, unit in ((1440.0, "day"), (60.0, "hour"), (1.0, "minute")):
        if minutes >= 1.5 * size or unit == "minute":
            count = max(1, round(minutes / size))
            return f"{count:,} {unit}{'s' * (count != 1)}"
    raise AssertionError


def seed_list(seeds: Sequence[int]) -> str:
    """Seeds as the command line takes them: "6:18" for 6 to 17, or "1,4,7" when they are no range."""
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}:{seeds[-1] + 1}"
    return ",".join(map(str, seeds))


def sentence(verdict: Verdict, experiment: Experiment) -> str:
    """The sentence of a claim's verdict."""
    scale = "" if verdict.scale == "laptop" else f" ({verdict.scale} scale)"
    head = f"{experiment.text.rstrip(' .,;')}{scale}, "
    if verdict.verdict == "untested":
        return _end(f"Not tested here: {verdict.reason}", _command(verdict, "would test it"), _paper(verdict))
    if "incomplete" in verdict.flags:
        return _end(f"{head}undecided: {verdict.reason}", _command(verdict, "runs what is missing"), _paper(verdict))
    if verdict.verdict == "void":
        void = f"{head}{_units(verdict)}, the test is void: {verdict.reason}"
        idle = f"so {measured(verdict, experiment)} says nothing of the claim"
        return _end(void, idle, _cautions(verdict), _paper(verdict))
    found = f"{_units(verdict)}, {measured(verdict, experiment)}, {outcome(verdict)}"
    return _end(head + found, _mechanism(verdict), _cautions(verdict), _paper(verdict))


def _end(*parts: str) -> str:
    return "; ".join(part for part in parts if part) + "."


def _units(finding: Finding) -> str:
    count = f"{finding.n:,}"
    plural = "s" * (finding.n != 1)
    if "exploratory" in finding.flags and finding.unit == "seed":
        return f"{count} exploratory seed{plural} ({seed_list([int(u) for u in finding.units])})"
    return f"{count} {finding.unit}{plural}"


def subject(finding: Finding) -> str:
    """What is subtracted from what, larger being in favour of the claim; or the arm that is compared with a number."""
    if finding.against is None:
        return finding.arm
    other = finding.against if finding.ratio == 1 else f"{number(finding.ratio)} × {finding.against}"
    first, second = (other, finding.arm) if finding.better == "lower" else (finding.arm, other)
    return f"{first} minus {second}"


def measured(finding: Finding, experiment: Experiment) -> str:
    """The numbers: "quest minus none = 0.10 [0.08, 0.12] in acc at cue = masked", or "acc of quest = 0.93 [...]"."""
    values = _shown(finding)
    if finding.low is None or values[0] is None:
        interval = "an unknown amount" if values[0] is None else about(values[0])
    else:
        mean, low, high = (v for v in values if v is not None)
        if finding.against is None and finding.value is not None:
            marks = [finding.value, _bar(finding)]
        else:
            marks = [0.0, finding.margin] + [-finding.margin] * finding.equivalence
        texts = numbers([mean, low, high], (high - low) / 2, marks)
        same = high - low <= 1e-12 * max(abs(mean), abs(low))
        interval = f"{texts[0]} in every {finding.unit}" if same else f"{texts[0]} [{texts[1]}, {texts[2]}]"
    where = _place(finding, experiment)
    if finding.against is None:
        return f"{finding.metric} of {finding.arm} = {interval}{where}"
    lower = " (lower is better)" if finding.better == "lower" and not finding.equivalence else ""
    return f"{subject(finding)} = {interval} in {finding.metric}{where}{lower}"


def _shown(finding: Finding) -> tuple[float | None, float | None, float | None]:
    """Contrast and interval, or for a threshold the arm's own mean and interval."""
    effect, low, high = finding.effect, finding.low, finding.high
    if finding.value is None or effect is None:
        return effect, low, high
    if low is None or high is None:
        return finding.arm_mean, None, None
    if finding.better == "lower":
        return finding.value - effect, finding.value - high, finding.value - low
    return finding.value + effect, finding.value + low, finding.value + high


def _bar(finding: Finding) -> float:
    assert finding.value is not None
    return finding.value + (-finding.margin if finding.better == "lower" else finding.margin)


def _place(finding: Finding, experiment: Experiment) -> str:
    fixed, means = [], []
    for axis, chosen in finding.level.items():
        whole = experiment.level[axis]
        if len(chosen) == 1 and len(whole) > 1:
            fixed.append(f"{axis} = {_value(chosen[0])}")
        elif len(chosen) > 1:
            means.append(axis if set(chosen) == set(whole) else f"{axis} {' and '.join(map(_value, chosen))}")
    parts = [f"at {', '.join(fixed)}"] if fixed else []
    parts += [f"mean over {' and '.join(means)}"] if means else []
    return f" {', '.join(parts)}" if parts else ""


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def outcome(verdict: Verdict) -> str:
    """How the measured contrast lies to what the claim says, in words that suit its kind of comparison."""
    if verdict.verdict == "undecided":
        return _undecided(verdict)
    if verdict.equivalence:
        return _equivalence(verdict)
    return _difference(verdict) if verdict.value is None else _threshold(verdict)


def _equivalence(finding: Finding) -> str:
    inside, margin = finding.verdict == "supported", number(finding.margin)
    if finding.value is not None:
        return f"{'within' if inside else 'more than'} {margin} {'of' if inside else 'from'} {number(finding.value)}"
    return f"{'inside' if inside else 'outside'} ±{margin}"


def _difference(finding: Finding) -> str:
    size = number(abs(finding.margin))
    if finding.margin < 0:
        return f"at most {size} worse" if finding.verdict == "supported" else f"worse by more than {size}"
    return {
        "supported": f"above the margin of {size}" if finding.margin else "in the direction of the claim",
        "opposite": "in the direction opposite to the claim",
        "below margin": f"below the margin of {size}",
    }[finding.verdict]


def _threshold(finding: Finding) -> str:
    assert finding.value is not None
    wanted, other = ("below", "above") if finding.better == "lower" else ("above", "below")
    at, bar = number(finding.value), number(_bar(finding))
    if finding.verdict == "supported":
        return f"{wanted} {bar}"
    if finding.verdict == "opposite":
        return f"{other} {at if finding.margin >= 0 else bar}, where the claim says {wanted} {bar}"
    return f"{other} {bar}, where the claim says {wanted}"


def wanted(finding: Finding) -> str:
    """What a statement asks for: "above 0.85", "a contrast above 0.03", "within 0.05"."""
    if finding.equivalence:
        at = "" if finding.value is None else f" of {number(finding.value)}"
        return f"within {number(finding.margin)}{at}"
    if finding.value is None:
        return f"above {number(finding.margin)}"
    return f"{'below' if finding.better == 'lower' else 'above'} {number(_bar(finding))}"


def not_controlled(control: Finding, experiment: Experiment) -> str:
    """Why a control voids its claim, with the control's numbers."""
    lies = "is not shown to lie" if control.verdict == "undecided" else "does not lie"
    return f"its control, {measured(control, experiment)}, {lies} {wanted(control)}"


def _undecided(verdict: Verdict) -> str:
    more, minutes = verdict.units_to_decide, verdict.minutes_to_decide
    if verdict.scale == "smoke":
        return "; ".join(part for part in (f"a trend only ({verdict.reason})", _command(verdict, "judges it")) if part)
    text = f"a trend only ({verdict.reason})" if "few_seeds" in verdict.flags else _power(verdict)
    if more is None and verdict.effect == 0 and verdict.smallest_detectable == 0:
        return "which decides nothing: every contrast is 0"
    if more is None:
        return f"{text}; it lies so near the margin that no practical number of {verdict.unit}s would decide"
    time = "" if minutes is None else f" (about {duration(minutes)})"
    kind = "fresh seeds" if verdict.unit == "seed" else "items"
    command = f": `{verdict.command}`" if verdict.command else ""
    return f"{text}; about {more:,} {kind}{time} would decide{command}"


def _power(verdict: Verdict) -> str:
    if verdict.smallest_detectable is None:
        return "which decides nothing"
    size = about(verdict.smallest_detectable)
    find = f"confirm a half width of {size}" if verdict.equivalence else f"find a difference of {size}"
    place = "" if verdict.value is None or verdict.equivalence else f" from {number(verdict.value)}"
    return f"which decides nothing ({verdict.n:,} {verdict.unit}s {find}{place} in four studies of five)"


def _command(verdict: Verdict, does: str) -> str:
    return f"`{verdict.command}` {does}" if verdict.command else ""


def _mechanism(verdict: Verdict) -> str:
    if verdict.test != "analogue":
        return ""
    return {
        "supported": "the mechanism shows in our analogue",
        "undecided": "whether the mechanism shows in our analogue is open",
    }.get(verdict.verdict, "the mechanism does not show in our analogue")


def _cautions(verdict: Verdict) -> str:
    cautions = {
        "secondary_basis": "details of the method are unconfirmed, for our sources are secondary",
        "custom": f"with your own {' and '.join(verdict.custom)}",
        "skewed": "skewed values could give this result too often",
        "statement_changed": "the statement was changed after these runs",
        "code_changed": "the code was changed after these runs",
    }
    return "; ".join(text for flag, text in cautions.items() if flag in verdict.flags)


def _paper(verdict: Verdict) -> str:
    arm, against, setting = verdict.paper_arm, verdict.paper_against, verdict.paper_setting.rstrip(" .")
    where = f" {setting}" if setting.startswith(_PREPOSITIONS) else f" ({setting})" if setting else ""
    untested = "" if verdict.test == "direct" or verdict.verdict == "untested" else ", which this does not test"
    if arm is None and against is None:
        if setting.startswith("not in the paper"):
            return ""
        return f"the paper's own setting{where} is not tested by this" if untested else ""
    if arm is None or against is None:
        value = _reported(arm if against is None else against)
        whose = "" if against is None else f" for {verdict.against or 'the baseline'}"
        return f"the paper reports {value}{whose}{where}{untested}"
    if isinstance(arm, str) or isinstance(against, str) or verdict.ratio != 1 or verdict.value is not None:
        return f"the paper reports {_reported(arm)} against {_reported(against)}{where}{untested}"
    difference = Decimal(repr(arm)) - Decimal(repr(against))
    return f"the paper reports {-difference if verdict.better == 'lower' else difference:+f}{where}{untested}"


def _reported(value: float | str | None) -> str:
    return value if isinstance(value, str) else number(value or 0.0)


def why(finding: Finding) -> str:
    """The reason of a verdict that comes from the numbers alone."""
    if finding.n < MIN_UNITS:
        return f"{finding.n} {finding.unit}{'s' * (finding.n != 1)}: fewer than {MIN_UNITS} decide nothing"
    p = "" if finding.p is None else f" ({p_value(finding.p)})"
    if finding.equivalence:
        bound = f"±{number(finding.margin)}"
        place = {"supported": f"lies inside {bound}", "opposite": f"lies outside {bound}"}
    else:
        margin = number(finding.margin)
        below = min(0.0, finding.margin)
        place = {
            "supported": f"lies above {margin}",
            "opposite": f"lies below {number(below)}",
            "below margin": f"lies below the margin of {margin}",
        }
    if finding.verdict in place:
        return f"the contrast {place[finding.verdict]}{p}"
    if finding.equivalence:
        return f"the contrast can be told neither inside nor outside {bound}{p}"
    return f"the contrast cannot be told from {margin}{p}"


def compared(comparison: Comparison) -> str:
    """The sentence that sets a reader's own run beside the shipped one."""
    if comparison.inside is None or comparison.effect is None or comparison.low is None or comparison.high is None:
        return f"The two runs of {comparison.paper}.{comparison.claim} cannot be compared: {comparison.reason}."
    marks = [comparison.low, comparison.high]
    spread = (comparison.high - comparison.low) / 2
    low, high = numbers(marks, spread)
    (mine,) = numbers([comparison.effect], spread, marks)
    unit = f"{comparison.unit}{'s' * (comparison.n != 1)}"
    return (
        f"Your {comparison.n:,} {unit} give {mine}, {'inside' if comparison.inside else 'outside'} the interval "
        f"[{low}, {high}] in which the {comparison.shipped_n:,} shipped ones let 95 % of such runs lie."
    )
