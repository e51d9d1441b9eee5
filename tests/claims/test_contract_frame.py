"""The contract catches what it is there for: each test writes a paper that is wrong in one way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Desk
from paperworks.claims import api, catalog, contract, engine, evidence
from paperworks.claims.engine import Request
from paperworks.claims.executors import InlineExecutor
from paperworks.claims.ledger import Ledger
from paperworks.claims.paper import load_paper
from toy_package import DERIVE, INIT, LAB_PAPER, LAB_STUDY, PAPER, STUDY

CONTROL = 'control = [{ metric = "error", arm = "mean", level = { outliers = "none" }, better = "lower", value = 0.5 }]'
GOOD = PAPER.replace("margin = -0.2\n", f"margin = -0.2\n{CONTROL}\n")


@pytest.fixture
def room(make_toy: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Desk]:
    """Makes a room; subprocesses of the contract find it too."""

    def make(**files: str) -> Desk:
        desk = make_toy(**{"paper": GOOD, **files})
        monkeypatch.setenv("PYTHONPATH", desk.environment()["PYTHONPATH"])
        return desk

    return make


def look(*parts: Callable[[Any], None], known: list[str] | None = None) -> contract.Report:
    """What some parts of the contract say of the toy paper."""
    found = catalog.find("toy")
    subject = contract._Subject(found, load_paper(found.folder), contract.Report("toy"), known)
    for part in parts:
        part(subject)
    return subject.report


def replaced(text: str, old: str, new: str, count: int = 1) -> str:
    assert old in text, old
    return text.replace(old, new, count)


# --- a paper that is right -----------------------------------------------------------------------------------------

STUB = 'from .method import estimate as estimate\n\n__all__ = ["estimate"]\n'
LAZY = f"""{INIT}
from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
"""
METHOD = '''"""The method."""

import numpy as np


def estimate(draws: np.ndarray, parts: int = 3) -> float:
    """The median of means.

    Args:
        draws: Numbers of shape (n,).
        parts: Number of means.
    """
    return float(np.median([part.mean() for part in np.array_split(draws, parts)]))
'''
WHOLE = {"init": LAZY, "stub": STUB, "method": METHOD}


def test_a_sound_paper_has_no_problem_and_leaves_nothing_behind(room: Callable[..., Desk]) -> None:
    desk = room(**WHOLE)
    report = contract.check(catalog.find("toy"), ["mnist5k"])
    assert report.problems == []
    assert report.notes == []
    assert report.ok
    assert set(report.seconds) == {"metadata", "public_names", "docstrings", "evidence", "speed", "smoke"}
    assert report.to_dict()["ok"] is True
    assert list(desk.folder.iterdir()) == []


def test_knobs_artefacts_and_items_are_sound_too(room: Callable[..., Desk]) -> None:
    room(paper=LAB_PAPER, study=LAB_STUDY)
    assert look(contract.check_smoke).problems == []


def test_a_paper_toml_that_is_wrong_is_the_one_problem(room: Callable[..., Desk]) -> None:
    room(paper=GOOD.replace("margin = 0.1", "marjin = 0.1"))
    (problem,) = contract.check(catalog.find("toy")).problems
    assert "claim M1.marjin: unknown key" in problem


def test_a_part_that_breaks_is_a_problem_and_the_others_are_done(
    room: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    room(study=STUDY + "\n1 / 0\n")

    def breaks(subject: Any) -> None:
        raise KeyError("broken")

    breaks.__name__ = "check_speed"
    monkeypatch.setattr(contract, "check_speed", breaks)
    report = contract.check(catalog.find("toy"))
    assert "check_speed: KeyError: 'broken'" in report.problems
    assert any("study.py, line" in problem and "ZeroDivisionError" in problem for problem in report.problems)
    assert not report.ok


# --- metadata ------------------------------------------------------------------------------------------------------

METADATA = {
    "no claim": (GOOD[: GOOD.index("[[claim]]")], "paper.toml has no [[claim]]"),
    "no control": (PAPER, "claim M2 has no control that fails when nothing was learnt"),
    "few seeds": (GOOD.replace("laptop = { seeds = 6 }", "laptop = { seeds = 5 }"), "claim M1: fewer than 6 seeds"),
    "smoke lacks an arm": (
        replaced(GOOD, "smoke = { seeds = 2 }", 'smoke = { seeds = 2, arms = ["mean"] }'),
        "claim M1: the smoke scale does not run all arms and levels that it names",
    ),
    "laptop lacks an arm": (
        replaced(GOOD, "laptop = { seeds = 6 }", 'laptop = { seeds = 6, arms = ["mean"] }'),
        "claim M1 is judged at 'laptop', where not all its arms, levels and experiments are run",
    ),
    "asset": (GOOD + '\n[[asset]]\nname = "mnist6k"\n', "asset 'mnist6k' is not in the assets' catalogue"),
    "erratum without file": (
        GOOD + '\n[[erratum]]\nwhere = "Eq. 1"\nprinted = "1"\nours = "2"\ncheck = "tests/no.py::test_x"\n',
        "erratum 'Eq. 1': its test tests/no.py::test_x does not exist",
    ),
    "erratum without test": (
        GOOD + '\n[[erratum]]\nwhere = "Eq. 1"\nprinted = "1"\nours = "2"\n'
        'check = "tests/claims/test_paper.py::test_x"\n',
        "erratum 'Eq. 1': its test tests/claims/test_paper.py::test_x does not exist",
    ),
}


@pytest.mark.parametrize("case", METADATA)
def test_metadata(room: Callable[..., Desk], case: str) -> None:
    text, says = METADATA[case]
    room(paper=text)
    assert any(says in problem for problem in look(contract.check_metadata, known=["mnist5k"]).problems)


def test_metadata_that_is_right(room: Callable[..., Desk]) -> None:
    check = 'check = "tests/claims/test_contract_frame.py::test_metadata_that_is_right"\n'
    room(
        paper=GOOD + '\n[[asset]]\nname = "mnist5k"\n[[erratum]]\nwhere = "Eq. 1"\nprinted = "1"\nours = "2"\n' + check
    )
    assert look(contract.check_metadata, known=["mnist5k"]).problems == []


def test_a_room_of_ours_lies_in_its_family(room: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    desk = room()
    monkeypatch.setattr(catalog, "PACKAGE", desk.plugins)
    monkeypatch.setattr(catalog, "_own", lambda: iter(()))
    assert look(contract.check_metadata).problems == ["family is 'theory', but the room lies in 'toy_papers'"]


# --- smoke ---------------------------------------------------------------------------------------------------------

RNG = "trial.rng("
LAST = '    metrics = {"error": abs(estimator(x)), "spread": x.std()}\n'
SMOKE = {
    "constant metric": (replaced(STUDY, "x.std()}", "1.0}"), "estimate: metric 'spread' is 1 in every smoke outcome"),
    "arms that do not differ": (
        replaced(STUDY, "np.median}", "np.mean}"),
        "claim M1: arms 'mean' and 'median' give the same outcomes",
    ),
    "noise of the machine": (
        replaced(STUDY, LAST, LAST + '    metrics["error"] += int.from_bytes(os.urandom(4), "big")\n'),
        "estimate: the same cell run twice gives different metrics: error = ",
    ),
    "time": (
        replaced(STUDY, LAST, LAST + '    metrics["error"] += time.perf_counter()\n'),
        "estimate: the same cell run twice gives different metrics: error = ",
    ),
    "unseeded generator": (
        replaced(STUDY, "trial.rng(\"data\", cell)", "np.random.default_rng()"),
        "the same cell run twice gives different metrics",
    ),
    "global generator, the same for every seed": (
        replaced(STUDY, "trial.rng(\"data\", cell).normal(", "np.random.normal("),
        "estimate: different seeds give the same metrics",
    ),
    "seeds ignored": (
        replaced(STUDY, "trial.rng(\"data\", cell)", "np.random.default_rng(0)"),
        "estimate: different seeds give the same metrics",
    ),
    "looks at the method's name": (
        replaced(STUDY, LAST, LAST + '    metrics["error"] *= 2.0 if trial.arm == "mean" else 1.0\n'),
        "claim M1, placebo: 'mean' given the factory of 'median' still differs: error = ",
    ),
    "looks at the baseline's name": (
        replaced(STUDY, LAST, LAST + '    metrics["error"] *= 2.0 if trial.arm == "median" else 1.0\n'),
        "claim M1, placebo: 'mean' given the factory of 'median' still differs: error = ",
    ),
    "fails under another factory": (
        replaced(STUDY, "    estimator = trial.build()\n    for", '    estimator = trial.build()\n'
                 '    assert (trial.arm == "mean") == (estimator is np.mean), "wrong factory"\n    for'),
        "still differs: AssertionError: wrong factory",
    ),
    "undeclared metric": (
        replaced(STUDY, 'trial.config.fault == "undeclared"', "True"),
        "smoke: estimate mean, seed 0: paperworks.claims.errors.PaperError: estimate returned metric 'foo'",
    ),
    "exception": (replaced(STUDY, LAST, LAST + "    1 / 0\n"), "smoke: estimate mean, seed 0: ZeroDivisionError"),
}  # fmt: skip


@pytest.mark.parametrize("case", SMOKE)
def test_smoke(room: Callable[..., Desk], case: str) -> None:
    study, says = SMOKE[case]
    room(study=study)
    problems = look(contract.check_smoke).problems
    assert any(says in problem for problem in problems), problems


def test_arms_that_differ_in_items_only_differ(room: Callable[..., Desk]) -> None:
    room(paper=LAB_PAPER, study=replaced(LAB_STUDY, '"max": lambda: max}', '"max": lambda: sum}'))
    problems = look(contract.check_smoke).problems
    assert "claim L2: arms 'sum' and 'max' give the same outcomes" in problems
    assert not any("L1" in problem for problem in problems)


def test_items_that_are_not_repeatable(room: Callable[..., Desk]) -> None:
    room(
        paper=LAB_PAPER, study=replaced(LAB_STUDY, 'trial.rng("questions")', "__import__('numpy').random.default_rng()")
    )
    assert any("marked: the same cell run twice gives different metrics: score of item" in p
               for p in look(contract.check_smoke).problems)  # fmt: skip


def test_a_derived_metric_that_never_comes(room: Callable[..., Desk]) -> None:
    room(derive=replaced(DERIVE, '{"some", "none"}', '{"some", "never"}'))
    assert "claim M1: the smoke outcomes have no 'gain' of arm 'mean'" in look(contract.check_smoke).problems


def test_a_derive_that_needs_all_its_inputs(room: Callable[..., Desk]) -> None:
    """After Ctrl-C some are missing, and the claims that do not need them must be judged."""
    room(derive=replaced(DERIVE, "    if not", "    if False and not"))
    report = contract.check(catalog.find("toy"))
    assert any("estimate failed for seed 1 with KeyError" in p and "should return no row" in p for p in report.problems)


def test_an_experiment_without_smoke(room: Callable[..., Desk]) -> None:
    room(
        paper=replaced(
            GOOD, "scale.smoke = { seeds = 2 }\nscale.laptop = { seeds = 8 }", "scale.laptop = { seeds = 8 }"
        )
    )
    assert look(contract.check_smoke).problems == ["experiment 'jointly' has no smoke scale"]


# --- evidence ------------------------------------------------------------------------------------------------------

VERIFIED = GOOD.replace('status = "draft"', 'status = "verified"')


def ship(*, seeds: tuple[int, ...] | None = None) -> None:
    with Ledger(Path("ledger.db")) as ledger:
        ledger._db.execute("PRAGMA synchronous=OFF")
        engine.run(Request(("toy.estimate",), seeds=seeds), ledger, executor=InlineExecutor())
    api.export("toy", ledger=Path("ledger.db"))


def test_verified_without_evidence(room: Callable[..., Desk]) -> None:
    room(paper=VERIFIED)
    assert look(contract.check_evidence).problems == [
        "status is 'verified', but claim M1 has no shipped evidence",
        "status is 'verified', but claim M2 has no shipped evidence",
    ]  # M3 can be tested at the paper's scale only


def test_verified_with_evidence_of_today(room: Callable[..., Desk]) -> None:
    room(paper=VERIFIED)
    ship()
    assert look(contract.check_evidence).problems == []


def test_verified_with_cells_that_are_missing(room: Callable[..., Desk]) -> None:
    room(paper=VERIFIED)
    ship(seeds=(0, 1, 2, 3, 5))
    problems = look(contract.check_evidence).problems
    assert len(problems) == 2
    assert all("'verified', but claim M" in p and "is not judged: 2 of 12 needed values" in p for p in problems)


def test_verified_with_evidence_of_yesterday(room: Callable[..., Desk]) -> None:
    desk = room(paper=VERIFIED)
    ship()
    (desk.room / "study.py").write_text(STUDY.replace("+= 20", "+= 21"))
    (desk.room / "paper.toml").write_text(VERIFIED.replace("margin = 0.1", "margin = 0.2"))
    assert look(contract.check_evidence).problems == [
        "claim M1 was changed after its evidence was run: move the version and run it again",
        "the method or study was changed after the shipped evidence was run: run `make evidence` again",
    ]
    (desk.room / "paper.toml").write_text(GOOD)
    assert look(contract.check_evidence).problems == []  # a draft may be behind


def test_evidence_that_is_not_sound_or_too_large(room: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    desk = room()
    ship()
    with (desk.room / "evidence.jsonl").open("a") as stream:
        stream.write('{"line": "outcome"')
    monkeypatch.setattr(evidence, "EVIDENCE_LIMIT", 5000)
    first, second = look(contract.check_evidence).problems
    assert first.startswith("evidence.jsonl, line 30: JSONDecodeError")
    assert "evidence.jsonl has" in second


# --- public names --------------------------------------------------------------------------------------------------

EXTRA = GOOD.replace('extra = "core"', 'extra = "torch"')
EAGER = """
def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    import jaxtyping
    return jaxtyping


__all__ = ["x"]
"""
NAMES = {
    "does not resolve": (
        {
            **WHOLE,
            "stub": STUB.replace("estimate as estimate", "estimat as estimat").replace('["estimate"]', '["estimat"]'),
        },
        "toy_papers.toy.estimat does not resolve with extra 'core' alone: AttributeError",
    ),
    "module that is missing": (
        {**WHOLE, "stub": STUB.replace(".method", ".methods")},
        "toy_papers.toy.estimate does not resolve with extra 'core' alone: ModuleNotFoundError",
    ),
    "work at import": (
        {**WHOLE, "init": INIT + "\nimport numpy\n"},
        "importing toy_papers.toy already imports numpy: work at import time",
    ),
    "needs more than its extra": (
        {**WHOLE, "method": "import psutil\n" + METHOD},
        "toy_papers.toy.estimate does not resolve with extra 'core' alone: ImportError: toy_papers/toy needs 'psutil'",
    ),
    "no line on the extra": (
        {"init": INIT + EAGER, "paper": EXTRA},
        "without extra 'torch', toy_papers.toy.x says \"ModuleNotFoundError: No module named 'jaxtyping'\" and not how",
    ),
    "an extra that is not ours": (
        {**WHOLE, "method": "import jaxtyping\n" + METHOD},
        "does not resolve with extra 'core' alone",
    ),
    "breaks at import": ({"init": INIT + "\n1 / 0\n"}, "ZeroDivisionError"),
}


@pytest.mark.parametrize("case", NAMES)
def test_public_names(room: Callable[..., Desk], case: str) -> None:
    files, says = NAMES[case]
    room(**files)
    problems = contract.check(catalog.find("toy")).problems
    assert any(says in problem for problem in problems), problems


def test_the_line_on_a_missing_extra_is_enough(room: Callable[..., Desk]) -> None:
    room(**{**WHOLE, "method": "import jaxtyping\n" + METHOD, "paper": EXTRA})
    assert look(contract.check_public_names).problems == []


def test_an_extra_that_nobody_declares_is_one_problem(room: Callable[..., Desk]) -> None:
    room(**{**WHOLE, "method": "import jaxtyping\n" + METHOD, "paper": GOOD.replace('"core"', '"nobodys"')})
    (problem,) = look(contract.check_public_names).problems
    assert problem.startswith("extra 'nobodys' is not one of core, ")


def test_what_an_extra_brings() -> None:
    assert {"torch", "jaxtyping"} <= contract.extra_requirements("torch")
    assert "numpy" not in contract.extra_requirements("torch")  # the core has it
    assert contract.extra_requirements("core") == set()
    assert {"pydantic", "pydantic-core", "numpy", "paperworks"} <= contract.closure({"paperworks"})
    assert "torch" not in contract.closure({"paperworks"})


# --- docstrings ----------------------------------------------------------------------------------------------------

DOCS = {
    "no differences": ({"init": LAZY.replace("Differences", "Distances")}, "has no 'Differences from the paper'"),
    "no docstring": (
        {"method": replaced(METHOD, '    """The median of means.', '    _ = """The')},
        "estimate has no docstring",
    ),
    "argument": (
        {"method": METHOD.replace("        parts: Number of means.\n", "")},
        "argument 'parts' is not in the docstring",
    ),
    "shape": (
        {"method": METHOD.replace("np.ndarray", '"torch.Tensor"').replace(" of shape (n,)", "")},
        "estimate: tensor 'draws' has no shape in signature or docstring",
    ),
    "class without docstring": (
        {"method": 'class estimate(dict):\n    """Doc."""\nclass estimate(estimate):\n    pass\n'},
        "estimate has no docstring",
    ),
    "forward": (
        {"method": 'class estimate:\n    """Doc."""\n    def forward(self, queries: "Tensor"):\n        """Go."""\n'},
        "estimate.forward: argument 'queries' is not in the docstring",
    ),
}


@pytest.mark.parametrize("case", DOCS)
def test_docstrings(room: Callable[..., Desk], case: str) -> None:
    files, says = DOCS[case]
    room(**{**WHOLE, **files})
    problems = look(contract.check_docstrings).problems
    assert any(says in problem for problem in problems), problems


# --- speed ---------------------------------------------------------------------------------------------------------

SPEED = """
from paperworks.claims.speed import Pair


def alike(size):
    assert size == "small"
    return Pair(lambda: 1.0, lambda: 1.0)


def unlike(size):
    return Pair(lambda: 1.0, lambda: 2.0)


def absent(size):
    import no_such_peer
"""


def test_speed_is_checked_for_equality_only(room: Callable[..., Desk]) -> None:
    tables = "".join(f'\n[[speed]]\nname = "{n}"\npeer = "p"\ntarget = 1\n' for n in ("alike", "unlike", "absent"))
    room(paper=GOOD + tables, speed=SPEED)
    report = look(contract.check_speed)
    assert report.problems == ["speed unlike: output 0: differs from the peer's by up to 1"]
    assert report.notes == ["speed absent: peer 'no_such_peer' is not installed, not compared"]
