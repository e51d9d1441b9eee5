"""The site without a browser: complete, closed in itself, escaped, and its data equal to the evidence."""

from __future__ import annotations

import csv
import json
import re
import shutil
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from paperworks.claims import api, catalog, evidence, speed
from paperworks.claims.errors import PaperError, UsageError
from paperworks.claims.ledger import Ledger
from paperworks.claims.paper import load_paper
from paperworks.claims.report import MARKER, write_site
from paperworks.claims.report import site as site_module
from paperworks.claims.report.text import FLAGS as FLAG_WORDS
from paperworks.claims.report.text import TESTS, VERDICT_MEANING
from paperworks.claims.verdict import FLAGS, VERDICTS

OUTSIDE = ("http:", "https:", "data:")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def data_file(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


# --- closed in itself ------------------------------------------------------------------------------------------------


def test_every_internal_link_and_fragment_resolves(site, parsed):
    ids = {page.path: set(page.ids) for page in parsed}
    checked = 0
    for page in parsed:
        references = [
            (a.get("href") or a.get("src", ""), tag) for tag, a in page.elements if tag in {"a", "link", "script"}
        ]
        for address, tag in references:
            if address.startswith(OUTSIDE):
                assert tag == "a" or address == "data:,", (page.path, address)
                continue
            path, _, fragment = address.partition("#")
            assert not path.startswith("/")
            target = (page.path.parent / urllib.parse.unquote(path)).resolve() if path else page.path
            assert target.is_file(), (page.path, address)
            assert target.is_relative_to(site.resolve())
            if fragment:
                assert urllib.parse.unquote(fragment) in ids[target], (page.path, address)
            checked += 1
    assert checked > 100


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline(site, parsed):
    for page in parsed:
        for tag, attributes in page.elements:
            assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
            if tag != "a":
                for name in ("src", "href", "srcset", "action", "data", "poster"):
                    assert not attributes.get(name, "").startswith(("http", "//")), (tag, attributes)
        assert [s["src"].rpartition("/")[2] for s in page.all("script")] == ["site.js"]
        assert not page.all("style")
    css = (site / "static" / "style.css").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|https?:", css)
    assert not re.search(r"https?:|fetch\(|XMLHttpRequest|innerHTML|eval\(", (site / "static" / "site.js").read_text())


def test_ids_are_unique_and_labels_point_somewhere(parsed):
    for page in parsed:
        assert len(page.ids) == len(set(page.ids)), page.path
        for tag, attributes in page.elements:
            for name in ("aria-labelledby", "for", "aria-describedby"):
                assert set(attributes.get(name, "").split()) <= set(page.ids), (page.path, tag, attributes)


def test_every_drawing_has_a_text_alternative(parsed):
    drawn = 0
    for page in parsed:
        for tag, attributes in page.elements:
            if tag == "svg":
                assert attributes.get("aria-hidden") == "true" or (
                    attributes.get("role") == "img" and len(attributes["aria-labelledby"].split()) == 2
                )
                drawn += attributes.get("role") == "img"
            if tag == "img":
                assert attributes["alt"]
    assert drawn > 10


# --- what it says ----------------------------------------------------------------------------------------------------


def test_a_paper_is_told_in_order(site, tools):
    page = tools.Page(site / "papers" / "alpha.html")
    headings = [a["id"].removeprefix("h-") for a in page.all("h2")]
    assert headings == ["method", "claims", "curves", "levels", "figures", "speed", "differences", "errata", "run"]
    for text in (
        "from alpha_papers.alpha import median",
        "m = median(mean(block) for block in blocks)",
        "Blocks are of equal size.",
        "margin chosen on seeds 100-103",
        "on 10,000 draws",
        "Table 1",
        "paperworks run alpha --scale laptop --compare",
        "We thank you and agree.",
        "blocks = 3",
        "tests/theory/alpha/test_it.py::test_constant",
    ):
        assert text in page.text, text
    links = [a["href"] for a in page.all("a")]
    first_outside = [link for link in links if link.startswith("http")]
    assert first_outside == [
        "https://arxiv.org/abs/2601.00001",
        "https://openreview.net/forum?id=abcDEF123",
        "https://example.org/alpha",
    ]
    assert links.index(first_outside[0]) < links.index("#method")


def test_sentences_and_verdicts_are_the_frame_s_own(site, tools):
    text = " ".join(tools.Page(site / "papers" / "alpha.html").text.split())
    for verdict in api.verdicts(["alpha"], source="shipped"):
        assert " ".join(verdict.sentence.replace("`", "").split()) in text
    index = (site / "index.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'class="verdict v-[a-z-]+"><svg.*?</svg>([a-z ]+)</span>', index))
    assert shown
    assert shown <= set(VERDICTS)


def test_words_cover_the_frame_s_vocabulary():
    assert set(FLAG_WORDS) == set(FLAGS)
    assert set(VERDICT_MEANING) == set(VERDICTS)
    assert set(TESTS) == {"direct", "reduced", "analogue"}


def test_no_score_and_no_count_of_papers(parsed):
    for page in parsed:
        text = page.text.lower()
        assert not re.search(r"\d+ (of \d+ )?(papers?|claims?) (are |is )?(supported|hold|confirmed|reproduced)", text)
        assert not re.search(r"\b(reproduced|replicated|debunked|refuted|disproved|proved)\b", text)
        assert "score" not in text.replace("there is no score for a paper", "") or page.path.stem == "beta"


def test_the_errata_page_names_every_paper_with_one(site, tools):
    page = tools.Page(site / "errata.html")
    assert "An estimator that keeps its head" in page.text
    assert "1 / n" in page.text
    assert "Zebras" not in page.text


def test_a_paper_without_claims_or_evidence_has_its_page(site, tools):
    assert "import gamma_papers.gamma" in tools.Page(site / "papers" / "gamma.html").text
    assert "Not tested here" in tools.Page(site / "papers" / "beta.html").text


# --- data ------------------------------------------------------------------------------------------------------------


def test_unit_values_equal_the_verdicts(site):
    for verdict in api.verdicts(["alpha"], source="shipped"):
        path = site / "papers" / "alpha" / f"claim-{verdict.claim}.csv"
        assert path.is_file() == bool(verdict.values)
        if not verdict.values:
            continue
        rows = rows_of(path)
        named = {"claim": verdict} | {f"control {i}": c for i, c in enumerate(verdict.controls, 1)}
        assert {row["statement"] for row in rows} == set(named)
        for name, finding in named.items():
            own = [row for row in rows if row["statement"] == name]
            assert [float(row["contrast"]) for row in own] == list(finding.values)
            assert [float(row["arm_value"]) for row in own] == list(finding.arm_values)
            assert [row["unit"] for row in own] == [str(unit) for unit in finding.units]
            assert {row["metric"] for row in own} == {finding.metric}


def test_levels_equal_the_evidence(site):
    room = catalog.find("alpha")
    paper = load_paper(room.folder)
    table = evidence.long_table(paper, room.folder, evidence.current(paper, evidence.shipped(room.folder), "laptop"))
    rows = rows_of(data_file(site / "papers" / "alpha", "*.levels.csv"))
    seen = {
        (r["metric"], r["arm"], r["outliers"], r["size"]): (int(r["seeds"]), float(r["mean"]), float(r["sd"]))
        for r in rows
    }
    axes = {"error": ["outliers", "size"], "hit": ["outliers", "size"], "gain": ["size"]}
    expected = {}
    for metric, own in axes.items():
        by_seed = table[table.metric == metric].groupby(["arm", *own, "seed"])["value"].mean()
        for key, values in by_seed.groupby(level=list(range(len(own) + 1))):
            outliers = key[1] if metric != "gain" else ""
            expected[metric, key[0], outliers, str(key[-1])] = (len(values), values.mean(), values.std())
    assert seen.keys() == expected.keys()
    for key, numbers in expected.items():
        assert seen[key] == pytest.approx(numbers, rel=1e-12), key


def test_curves_equal_the_evidence(site):
    lines = evidence.shipped(catalog.find("alpha").folder).curves
    for name in ("running", "spread"):
        rows = rows_of(data_file(site / "papers" / "alpha", f"*curve.{name}.csv"))
        seen = {
            (r["arm"], r["outliers"], r["size"], float(r["step"])): [float(r[k]) for k in ("mean", "low", "high")]
            for r in rows
        }
        expected = {
            (line["arm"], line["level"]["outliers"], str(line["level"]["size"]), step): [mean, low, high]
            for line in lines
            if line["name"] == name
            for step, mean, low, high in zip(*(line[k] for k in ("step", "mean", "low", "high")), strict=True)
        }
        assert seen == expected


def test_figures_are_images_that_cannot_run_scripts(site, tools):
    page = tools.Page(site / "papers" / "alpha.html")
    sources = [image["src"] for image in page.all("img")]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "it is no SVG" in page.text
    assert not page.all("object")
    assert not page.all("iframe")
    assert not page.all("embed")


@pytest.mark.parametrize(
    ("svg", "problem"),
    [
        ("", "it is no SVG"),
        ('<!DOCTYPE svg [<!ENTITY a "b">]><svg/>', "it declares entities"),
        ("<svg>" + "x" * 500_000 + "</svg>", "it is larger than 400 KB"),
        ('<!DOCTYPE svg PUBLIC "a" "b"><svg/>', ""),
        ("<svg/>", ""),
    ],
)
def test_figures_that_are_left_out_say_why(svg, problem):
    from paperworks.claims.report.content import as_image

    drawing = as_image("a", "b", svg)
    assert drawing.problem == problem
    assert bool(drawing.uri) == (not problem)


# --- hostile texts ---------------------------------------------------------------------------------------------------


def test_hostile_texts_are_text(site, tools, parsed):
    page = tools.Page(site / "papers" / "hostile.html")
    assert page.text.count("<script>alert('pw')</script>") > 20
    for one in parsed:
        assert len(one.all("script")) == 1
        for tag, attributes in one.elements:
            assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
            for name in ("href", "src"):
                assert not attributes.get(name, "").strip().lower().startswith(("javascript:", "vbscript:")), attributes
            if tag == "img":
                assert attributes["src"].startswith("data:image/svg+xml;base64,")
    assert not [a for a in page.all("a") if a["href"].startswith("http")]


def test_hostile_names_stay_in_the_folder(site):
    folder = site.parent
    assert {path.name for path in folder.iterdir()} == {"site"}
    for path in site.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", path.name), path
    assert len(list((site / "papers" / "hostile").glob("*.csv"))) == 3


# --- where it is written ---------------------------------------------------------------------------------------------


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_that_is_no_report_is_left_alone(plugins, tmp_path):
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter.tex").write_text("years of work")
    with pytest.raises(UsageError, match="holds files that no earlier report wrote"):
        write_site(out, ["beta"])
    assert tree(tmp_path) == {"thesis/chapter.tex": b"years of work"}
    with pytest.raises(UsageError, match="is not a folder"):
        write_site(out / "chapter.tex", ["beta"])
    link = tmp_path / "link"
    link.symlink_to(out)
    with pytest.raises(UsageError, match="is not a folder"):
        write_site(link, ["beta"])
    assert (out / "chapter.tex").read_text() == "years of work"


def test_an_earlier_report_is_replaced_as_a_whole(plugins, tmp_path):
    out = tmp_path / "deep" / "site"
    assert write_site(out, ["beta"], source="shipped") == out / "index.html"
    assert (out / MARKER).is_file()
    write_site(out, ["gamma"], source="shipped")
    assert not (out / "papers" / "beta.html").exists()
    assert (out / "papers" / "gamma.html").exists()
    assert [path.name for path in out.parent.iterdir()] == ["site"]
    assert out.stat().st_mode & 0o055 == 0o055


def test_an_empty_folder_is_taken(plugins, tmp_path):
    write_site(tmp_path, ["gamma"], source="shipped")
    assert (tmp_path / "index.html").is_file()


@pytest.mark.parametrize("fails", ["_write", "_swap"])
def test_a_report_that_fails_leaves_the_old_one(plugins, tmp_path, monkeypatch, fails):
    out = tmp_path / "site"
    write_site(out, ["beta"], source="shipped")
    before = tree(tmp_path)

    def broken(fresh: Path, *_: Any) -> None:
        (fresh / "half.html").write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(site_module, fails, broken)
    with pytest.raises(OSError, match="disk full"):
        write_site(out, ["gamma"], source="shipped")
    assert tree(tmp_path) == before


def test_a_swap_that_fails_halfway_puts_the_old_one_back(plugins, tmp_path, monkeypatch):
    out = tmp_path / "site"
    write_site(out, ["beta"], source="shipped")
    before = tree(tmp_path)
    rename = site_module.os.rename

    def once(source: Path, target: Path) -> None:
        if str(source).endswith(".partial"):
            raise OSError("busy")
        rename(source, target)

    monkeypatch.setattr(site_module.os, "rename", once)
    with pytest.raises(OSError, match="busy"):
        write_site(out, ["gamma"], source="shipped")
    assert tree(tmp_path) == before


def test_an_unknown_paper_is_named(plugins, tmp_path):
    with pytest.raises(UsageError, match=r"'alpa'.*did you mean 'alpha'"):
        write_site(tmp_path / "site", ["alpa"])
    assert not (tmp_path / "site").exists()


# --- a reader's own outcomes, speed ----------------------------------------------------------------------------------


def test_own_outcomes_stand_beside_the_shipped(plugins, tmp_path, tools):
    paper = load_paper(catalog.find("alpha").folder)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.start_run(tools.made_run(paper))
        for row in tools.made_rows(paper):
            broken = row.seed == 5 and row.arm == "median" and row.level["size"] == 10
            ledger.record(
                tools.Row(**{**vars(row), "status": "failed", "error": "Boom\nValueError: <b>no</b>"})
                if broken
                else row
            )
    out = write_site(tmp_path / "site", ["alpha"], path).parent
    page = tools.Page(out / "papers" / "alpha.html")
    assert "your evidence, laptop scale" in page.text
    assert re.search(r"Your 6 seeds give .* the interval", page.text)
    assert "Cells that did not finish" in page.text
    assert "ValueError: <b>no</b>" in page.text
    assert "undecided" in page.text
    rows = rows_of(data_file(out / "papers" / "alpha", "*curve.running.csv"))
    assert {row["source"] for row in rows} == {"yours"}
    shipped = write_site(tmp_path / "site", ["alpha"], path, source="shipped").parent
    assert "your evidence" not in tools.Page(shipped / "papers" / "alpha.html").text


def test_an_arm_of_ones_own_stands_apart_and_a_part_of_a_run_hides_nothing(plugins, tmp_path, tools):
    paper = load_paper(catalog.find("alpha").folder)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.start_run(tools.made_run(paper))
        for row in tools.made_rows(paper):
            mine = {"arm": "mine", "custom": {"arm": "my_<i>pkg</i>:make"}, "key": f"mine {row.key}"}
            ledger.record(tools.Row(**{**vars(row), **(mine if row.arm == "median" else {})}))
    page = tools.Page((write_site(tmp_path / "site", ["alpha"], path).parent) / "papers" / "alpha.html")
    source = page.path.read_text(encoding="utf-8")
    assert "Your own method" in page.text
    assert "mine in the place of median my_<i>pkg</i>:make" in " ".join(page.text.split())
    assert {"own-mine-median-A1", "own-mine-median-A2", "own-mine-median-A4"} <= set(page.ids)
    own, plain = source.split('<section id="own"')[1].split("</section>")[0], source.split('<section id="claims"')[1]
    assert "mean minus mine" in own
    assert "They say nothing of the paper." in own
    # The median was not run: its claims stay on the shipped evidence, and say so.
    assert "shipped evidence, laptop scale" in plain
    assert re.search(r"Of its (\d+) cells you have run (?!\1)\d+: <code>paperworks run alpha.A1</code>", plain)
    assert {"your evidence", "shipped evidence"} <= set(re.findall(r"(?:your|shipped) evidence", page.text))
    assert len(list((page.path.parent / "alpha").glob("own-mine-median-*.csv"))) == 3
    assert (
        "Your own method"
        not in tools.Page(
            write_site(tmp_path / "site", ["alpha"], path, source="shipped").parent / "papers" / "alpha.html"
        ).text
    )


def test_speed_ratios_are_shown_when_there_are_some(plugins, tmp_path, tools):
    file = tmp_path / "speed.json"
    file.write_text(
        '[{"paper": "alpha", "name": "sorting", "median": 1.071, "low": 1.0, "high": 1.1, "pairs": 99, "x": 1}]'
    )
    out = write_site(tmp_path / "site", ["alpha"], speed=file, source="shipped").parent
    assert "1.07 [1.00, 1.10]" in tools.Page(out / "papers" / "alpha.html").text
    file.write_text('[{"paper": "alpha"}]')
    with pytest.raises(PaperError, match=r"holds no speed ratios: 0\.name"):
        write_site(tmp_path / "site", ["alpha"], speed=file)
    saved = catalog.find("alpha").folder / "speed.json"
    try:
        speed.save(saved.parent, [speed.Ratio("sorting", "numpy.median", 1.2, 0.5, 0.4, 0.6, 9, 0.1)])
        write_site(tmp_path / "site", ["alpha"], source="shipped")
        assert "0.50 [0.40, 0.60]" in tools.Page(out / "papers" / "alpha.html").text
        saved.write_text("[1]")
        with pytest.raises(PaperError, match=r"speed\.json holds no speed ratios"):
            write_site(tmp_path / "site", ["alpha"], source="shipped")
    finally:
        saved.unlink()
    with pytest.raises(PaperError, match="cannot read speed ratios"):
        write_site(tmp_path / "site", ["alpha"], speed=tmp_path / "nothing.json")


def test_lines_that_cannot_be_read_are_named(plugins, tmp_path, tools, monkeypatch):
    folder = tmp_path / "more"
    tools.write_room(folder, "torn", tools.BETA)
    path = folder / "torn_papers" / "torn" / "evidence.jsonl"
    same = {"line": "curve", "experiment": "stripes", "version": 1, "scale": "laptop", "arm": "plain", "level": {}}
    curve = json.dumps(same | {"name": "c", "step": [1], "mean": ["x"], "low": [1], "high": [1]}) + "\n"
    path.write_text(path.read_text() + '{"line":"what"}\n' + curve)
    monkeypatch.syspath_prepend(str(folder))
    out = write_site(tmp_path / "site", ["torn"], source="shipped").parent
    text = tools.Page(out / "papers" / "torn.html").text
    assert "unknown line 'what'" in text
    assert "Curves" not in text


def test_all_papers_of_this_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = write_site(tmp_path / "site").parent
    assert {p.stem for p in (out / "papers").glob("*.html")} == set(catalog.rooms())


def test_site_is_made_without_torch(plugins, tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from paperworks.claims.report import write_site\n"
        "write_site(Path(sys.argv[2]), ['alpha'], source='shipped')\n"
        "heavy = {'torch', 'matplotlib', 'transformers', 'alpha_papers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code, str(plugins), str(tmp_path / "site")], check=True, cwd=tmp_path)


def test_p_over_all_papers_is_shown_only_when_all_are(plugins, tmp_path, tools):
    for papers, shown in ((None, True), (["alpha"], False)):
        out = write_site(tmp_path / "site", papers, source="shipped").parent
        assert ("Benjamini" in tools.Page(out / "papers" / "alpha.html").text) == shown


@pytest.mark.slow
def test_57_papers_take_less_than_10_seconds(tmp_path, tools, monkeypatch):
    import time

    folder = tmp_path / "many"
    tools.write_room(folder, "p00", tools.ALPHA, init=tools.ALPHA_INIT, derive=tools.ALPHA_DERIVE)
    for number in range(1, 57):
        slug = f"p{number:02d}"
        room = tools.write_distribution(folder, slug, paper=tools.ALPHA, derive=tools.ALPHA_DERIVE)
        shutil.copy(folder / "p00_papers" / "p00" / "evidence.jsonl", room)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    begun = time.process_time()
    write_site(tmp_path / "site", [f"p{number:02d}" for number in range(57)])
    assert time.process_time() - begun < 10
