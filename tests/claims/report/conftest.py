"""Rooms with made-up outcomes in plugin distributions, and the site that is written of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paperworks.claims import evidence
from paperworks.claims.evidence import Record
from paperworks.claims.ledger import Row, RunInfo
from paperworks.claims.paper import Paper, grid, load_paper
from toy_package import write_distribution

ALPHA = """
title = "An estimator that keeps its head"
authors = ["Ada Example", "Béla Példa"]
year = 2026
venue = "ICLR 2026"
arxiv = "2601.00001"
openreview = "abcDEF123"
code = "https://example.org/alpha"
licence = "Apache-2.0"
family = "theory"
extra = "core"
status = "working"
basis = "full-text"
summary = "The median of means, with `k` blocks."
response = "We thank you and agree."

[experiment.estimate]
text = "On 200 draws with outliers"
arms = ["mean", "median"]
method = ["median"]
factory = "factory() makes an estimator"
level.outliers = ["none", "some"]
level.size = [10, 100]
metric.error = "absolute error (units of the draws)"
metric.hit = "share of items within 0.1"
metric.gain = { text = "error with outliers minus error without", over = ["outliers"] }
curve.running = "running estimate"
curve.spread = "spread by step"
scale.smoke = { seeds = 2 }
scale.laptop = { seeds = 6 }

[[claim]]
id = "A1"
text = "Outliers hurt the mean more than the median."
test = "reduced"
experiment = "estimate"
metric = "gain"
arm = "mean"
against = "median"
level = { size = 100 }
margin = 0.1
control = [{ metric = "error", arm = "mean", level = { outliers = "none", size = 10 }, better = "lower", value = 2 }]
paper = { arm = 0.9, against = 0.2, setting = "on 10,000 draws", source = "Table 1" }
pilot = "margin chosen on seeds 100-103"
note = "It costs a sort."

[[claim]]
id = "A2"
text = "Without outliers both are alike."
test = "direct"
experiment = "estimate"
metric = "error"
arm = "mean"
against = "median"
level = { outliers = "none", size = "mean" }
equivalence = true
margin = 0.5

[[claim]]
id = "A3"
text = "On a cluster as well."
test = "analogue"
experiment = "estimate"
metric = "error"
arm = "mean"
against = "median"
level = "mean"
scales = ["paper"]

[[claim]]
id = "A4"
text = "The median errs by less than a tenth."
test = "direct"
experiment = "estimate"
metric = "error"
arm = "median"
value = 0.1
better = "lower"
level = "mean"

[[erratum]]
where = "Eq. (3)"
printed = "`2 / n`"
ours = "`1 / n`"
check = "tests/theory/alpha/test_it.py::test_constant"

[[speed]]
name = "sorting"
peer = "numpy.median"
target = 1.2
"""

ALPHA_DERIVE = """
import pandas as pd


def estimate(table, seed):
    errors = table[table.metric == "error"]
    wide = errors.pivot(index=["arm", "size"], columns="outliers", values="value")
    return (wide["some"] - wide["none"]).rename("value").reset_index().assign(metric="gain")
"""

ALPHA_INIT = '''"""The median of means.

It sorts `k` blocks:

    m = median(mean(block) for block in blocks)

Example:
    >>> from alpha_papers.alpha import median
    >>> median([1, 2, 9])
    2

Differences from the paper:
    Blocks are of equal size.
    Ties go to the left.
"""
'''

BETA = """
title = "Zebras in a lattice"
authors = ["Carla Muster"]
year = 2026
licence = "MIT"
family = "interpret"
extra = "torch"
basis = "secondary"
summary = "Stripes as concepts."

[experiment.stripes]
text = "On 10 zebras"
arms = ["plain", "striped"]
metric.score = "share"
scale.laptop = { seeds = 6 }

[[claim]]
id = "B1"
text = "Stripes help."
test = "analogue"
experiment = "stripes"
metric = "score"
arm = "striped"
against = "plain"
margin = 0.0
"""

EVIL = "<script>alert('pw')</script>\"'><img src=x onerror=alert(1)>"
EVIL_TOML = r"<script>alert('pw')</script>\"'><img src=x onerror=alert(1)>"

HOSTILE = f"""
title = "Hostile {EVIL_TOML}"
authors = ["{EVIL_TOML}", "B"]
year = 2026
venue = "{EVIL_TOML}"
arxiv = "javascript:alert(1)"
openreview = "x\\" onclick=\\"alert(1)"
code = "javascript:alert('pw')"
licence = "MIT"
family = "safety"
extra = "{EVIL_TOML}"
basis = "official-code"
summary = "{EVIL_TOML} `{EVIL_TOML}`"
response = "{EVIL_TOML}"

[experiment."../../{EVIL_TOML}"]
text = "{EVIL_TOML}"
arms = ["{EVIL_TOML}", "b"]
level."{EVIL_TOML}" = ["{EVIL_TOML}", "y"]
metric."{EVIL_TOML}" = "{EVIL_TOML}"
curve."{EVIL_TOML}" = "{EVIL_TOML}"
scale.laptop = {{ seeds = 6 }}

[[claim]]
id = "H1"
text = "{EVIL_TOML}"
test = "direct"
experiment = "../../{EVIL_TOML}"
metric = "{EVIL_TOML}"
arm = "{EVIL_TOML}"
against = "b"
level = "mean"
control = [{{ metric = "{EVIL_TOML}", arm = "b", level = "mean", value = 0 }}]
paper = {{ arm = "{EVIL_TOML}", against = "javascript:alert(1)", setting = "{EVIL_TOML}", source = "{EVIL_TOML}" }}
pilot = "{EVIL_TOML}"
note = "{EVIL_TOML}"

[[erratum]]
where = "{EVIL_TOML}"
printed = "{EVIL_TOML}"
ours = "{EVIL_TOML}"
check = "{EVIL_TOML}"

[[speed]]
name = "{EVIL_TOML}"
peer = "{EVIL_TOML}"
target = 1.0

[[asset]]
name = "{EVIL_TOML}"
"""

HOSTILE_INIT = f'''"""{EVIL.replace('"', "'")}

Example:
    >>> f("{EVIL.replace('"', "'")}")

Differences from the paper:
    - [click](javascript:alert(1)) {EVIL.replace('"', "'")}
"""
'''

SVG = (
    '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/svg11.dtd">'
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20" onload="document.title=1">'
    '<script>document.title = "pw"</script><style>rect {fill: #888}</style><image href="http://example.org/beacon.png"/>'
    '<rect width="40" height="20"/></svg>'
)


def made_rows(
    paper: Paper, run: str = "r", scale: str = "laptop", *, start: int = 0, figures: bool = True
) -> list[Row]:
    """An outcome for every cell: later arms are larger, every number is different."""
    rng = np.random.default_rng(len(paper.slug) + start)
    rows = []
    for name, experiment in paper.experiment.items():
        for seed in range(start, start + experiment.at(scale).seeds):
            for level in grid(experiment.levels_at(scale)):
                for number, arm in enumerate(experiment.arms):
                    size = 0.5 + 0.3 * number + 0.5 * ("some" in level.values()) * (1 - number)
                    metrics = {
                        m: float(size + rng.normal(0, 0.02))
                        for m, declared in experiment.metric.items()
                        if not declared.derived and m != "hit"
                    }
                    items = (
                        {"hit": {str(i): float(rng.random()) for i in range(3)}} if "hit" in experiment.metric else {}
                    )
                    curves = {
                        curve: [(float(step), float(size * step**2 + rng.random())) for step in range(1, 12)]
                        for curve in experiment.curve
                    }
                    drawn = {"map": SVG, "broken": "no svg"} if figures and seed == 0 and number == 0 else {}
                    rows.append(
                        Row(
                            key=f"{name}|{arm}|{level}|{seed}",
                            paper=paper.slug,
                            experiment=name,
                            version=experiment.version,
                            scale=scale,
                            arm=arm,
                            level=level,
                            seed=seed,
                            metrics=metrics,
                            items=items,
                            curves=curves,
                            figures=drawn,
                            seconds=1.0,
                            run=run,
                            finished=1.0,
                        )
                    )
    return rows


def made_run(paper: Paper, run: str = "r") -> RunInfo:
    environment = {"versions": {"paperworks": "0.1.0", "numpy": "2"}, "processor": "a processor", "device": "cpu"}
    statements = {claim.id: paper.statement_hash(claim, "laptop") for claim in paper.claim}
    from paperworks.claims import fingerprint

    code = fingerprint.code_hash(paper.folder)
    return RunInfo(paper.slug, "laptop", f"paperworks run {paper.slug}", environment, statements, code, 1.7e9, run)


def write_room(plugins: Path, slug: str, paper: str, *, init: str = "", shipped: bool = True, **files: str) -> Paper:
    """A plugin with one paper, and evidence of every cell unless ``shipped`` is false."""
    folder = write_distribution(plugins, slug, paper=paper, **files)
    (folder / "__init__.py").write_text(init or f'"""{slug}."""\n', encoding="utf-8")
    loaded = load_paper(folder)
    if shipped:
        rows = made_rows(loaded)
        rows.append(
            Row(**{**vars(rows[0]), "key": "t", "seed": 100, "kind": "tune", "knobs": {"blocks": 3}, "figures": {}})
        )
        evidence.export(loaded, folder, Record("yours", rows, {"r": made_run(loaded)}))
    return loaded


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Four papers on the path: a usual one, one without evidence, a hostile one and one without claims."""
    folder = tmp_path_factory.mktemp("plugins")
    write_room(folder, "alpha", ALPHA, init=ALPHA_INIT, derive=ALPHA_DERIVE)
    write_room(folder, "beta", BETA, shipped=False)
    write_room(folder, "hostile", HOSTILE, init=HOSTILE_INIT)
    bare = BETA[: BETA.index("[experiment")].replace("Zebras in a lattice", "Nothing claimed yet")
    write_room(folder, "gamma", bare, shipped=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.chdir(tmp_path_factory.mktemp("here"))
        yield folder


PAPERS = ["alpha", "beta", "gamma", "hostile"]


@pytest.fixture(scope="module")
def site(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder."""
    from paperworks.claims.report import write_site

    return write_site(tmp_path_factory.mktemp("out") / "site", PAPERS, source="shipped").parent


class Page(HTMLParser):
    """A page, parsed: its elements with their attributes, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self._silent = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def pages_of(folder: Path) -> list[Page]:
    return [Page(path) for path in sorted(folder.rglob("*.html"))]


@pytest.fixture
def parsed(site: Path) -> list[Page]:
    return pages_of(site)


@pytest.fixture
def tools() -> Any:
    """What tests need of this file: with pytest's importlib mode it cannot be imported by name."""
    return sys.modules[__name__]
