"""`paperworks.papers`, `verdicts` and `run`: tables for Python and notebooks."""

from __future__ import annotations

import html
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import paperworks as pw
from conftest import Desk
from paperworks.claims.errors import PaperworksError, UsageError
from toy_package import PAPER


def test_papers(toy: Desk) -> None:
    table = pw.papers()
    assert isinstance(table, pd.DataFrame)
    assert table.loc["toy", ["title", "family", "claims", "module"]].tolist() == [
        "Estimating a mean", "theory", 3, "toy_papers.toy"
    ]  # fmt: skip
    assert table.loc["quest", "module"] == "paperworks.layers.quest"
    assert "<td" in table._repr_html_()
    assert "Estimating a mean" in table._repr_html_()


def test_run_and_verdicts(toy: Desk) -> None:
    own = pw.run("toy.M2", "toy.M1", arms={"mine": "=median"}, jobs=1)
    assert own.index.tolist() == [("toy", "M1"), ("toy", "M2")] * 2
    assert own["verdict"].tolist() == ["supported"] * 4
    assert own["in_place_of"].tolist() == [None, None, "median", "median"]
    assert own["effect"].iloc[0] == own["effect"].iloc[2]
    assert (own["low"] <= own["effect"]).all()
    pd.testing.assert_frame_equal(pd.DataFrame(pw.verdicts("toy.M1", "toy.M2")), pd.DataFrame(own))
    assert pw.verdicts("toy")["verdict"].tolist() == ["supported", "supported", "untested", "supported", "supported"]
    assert pw.verdicts("toy.M1", ledger=Path("paperworks-runs/ledger.db")).index.tolist() == [("toy", "M1")] * 2
    few = pw.run("toy.M2", seeds=range(6, 9), arms=["mean", "median"])
    assert few["n"].tolist() == [3]
    assert few["flags"].tolist() == [("few_seeds", "exploratory")]
    assert pw.run("toy.M2", seeds=2)["own_arm"].tolist() == [None]  # of what it was asked for
    assert pw.verdicts("toy.M2")["own_arm"].tolist() == [None, "mine"]
    assert len(pw.run("toy.M2", settings={"draws": 20}, seeds=1)) == 0  # never judged
    with pytest.raises(UsageError, match="no paper is called 'toi'"):
        pw.run("toi")


def test_failures_are_told(make_toy) -> None:
    make_toy()

    def fails_later():
        def location(x, axis=None):
            if abs(x).max() > 8:  # where there are outliers
                raise ZeroDivisionError("too far")
            return x.mean(axis=axis)

        return location

    with pytest.warns(UserWarning, match=r"of \d+ cells failed, the first in estimate, arm mine, seed \d: ZeroDiv"):
        found = pw.run("toy.M1", arms={"mine": fails_later}, seeds=2, jobs=1)
    assert found["verdict"].iloc[0] == "undecided"
    with pytest.raises(PaperworksError, match="in its first cell"):
        pw.run("toy.M2", arms={"mine": lambda: lambda x: 1 / 0}, seeds=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seeds": "a"}, "seeds = 'a': a number of seeds"),
        ({"seeds": [0.5]}, r"seeds = \[0.5\]"),
        ({"seeds": 0}, "seeds = 0"),
        ({"seeds": [-1]}, r"seeds = \[-1\]"),
        ({"seeds": True}, "seeds = True"),
        ({"jobs": 0}, "jobs = 0"),
        ({"arms": "mean"}, "arms = 'mean': a list of names"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_runs(make_toy, arguments, message) -> None:
    make_toy()
    with pytest.raises(UsageError, match=message):
        pw.run("toy.M2", **arguments)
    with pytest.raises(UsageError, match="name what to run"):
        pw.run()
    assert not Path("paperworks-runs").exists()


def test_a_notebook_shows_texts_whole_and_escaped(make_toy) -> None:
    text = "Outliers <b>hurt</b> the mean more than the median, and this is long enough to be cut by pandas."
    make_toy(paper=PAPER.replace("Outliers hurt the mean more than the median.", text))
    table = pw.verdicts("toy")
    page = table._repr_html_()
    assert "&lt;b&gt;hurt&lt;/b&gt; the mean more than the median, and this is long enough to be cut by pandas." in page
    assert "in_place_of" not in page
    assert all(sentence in html.unescape(page) for sentence in table["sentence"])
    assert type(table[["verdict"]]) is pd.DataFrame  # what is taken from it is shown as pandas does


def test_importing_the_package_imports_no_pandas() -> None:
    code = "import sys, paperworks; assert 'run' in dir(paperworks); sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    with pytest.raises(AttributeError, match="module 'paperworks' has no attribute 'verdict'"):
        pw.verdict  # noqa: B018
