"""Prepared artefacts: built once, whole or not at all, and known by their hash."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Desk, forget
from paperworks.claims import artefacts, engine
from paperworks.claims.errors import PaperError
from paperworks.claims.executors import InlineExecutor, LocalExecutor
from paperworks.claims.ledger import Ledger, Row, RunInfo
from paperworks.claims.study import ExperimentConfig, Prepared
from toy_package import LAB_PAPER, LAB_STUDY


class Size(ExperimentConfig):
    words: int = 3


def artefact(function: Callable[[Any], None], **changes: Any) -> Prepared:
    return Prepared(**{
        "name": "corpus", "function": function, "version": 1, "scope": "once", "timeout": 60,
        "config": {"laptop": Size()}, **changes,
    })  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAPERWORKS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def slowly(preparation: Any) -> None:
    """Notes that it was called, and takes so long that others must wait."""
    with open(os.environ["CALLS"], "a") as log:
        log.write("called\n")
    (preparation.folder / "first").write_text("1")
    time.sleep(0.5)
    (preparation.folder / "second").write_text(str(preparation.rng("words").normal()))


def ask(folder: str, start: float) -> None:
    time.sleep(max(0.0, start - time.time()))
    builder = artefact(slowly)
    found = artefacts.build(builder, "toy", "laptop", None, Path(folder))
    assert (found / "second").exists()


def test_eight_processes_ask_at_once_and_it_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    folder = artefacts.folder_of(artefact(slowly), "toy", "laptop", None)
    context = multiprocessing.get_context("fork")  # quick to start; this process holds no lock and has no pool
    processes = [context.Process(target=ask, args=(str(folder), time.time() + 0.3)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 8
    assert (tmp_path / "calls").read_text() == "called\n"
    assert artefacts.ready(folder)


def build(function: Callable[[Any], None], scale: str = "laptop", seed: int | None = None, **changes: Any) -> Path:
    made = artefact(function, **changes)
    return artefacts.build(made, "toy", scale, seed, artefacts.folder_of(made, "toy", scale, seed))


def one_file(preparation: Any) -> None:
    (preparation.folder / "words").write_text(str(preparation.config.words if preparation.config else 0))


def test_it_is_rebuilt_when_version_configuration_or_seed_changes(cache: Path) -> None:
    folders = [
        build(one_file),
        build(one_file, version=2),
        build(one_file, config={"laptop": Size(words=4)}),
        build(one_file, seed=0),
        build(one_file, seed=1),
        build(one_file, name="other"),
        build(one_file, config={}),
    ]
    assert len(set(folders)) == len(folders)
    assert all(folder.is_relative_to(cache / "prepared" / "toy") for folder in folders)
    assert build(one_file) == folders[0]
    assert (folders[2] / "words").read_text() == "4"
    # Another scale with the same configuration is the same artefact.
    assert build(one_file, scale="smoke", config={"smoke": Size()}) == folders[0]


def test_it_is_not_built_again(tmp_path: Path) -> None:
    calls = []

    def count(preparation: Any) -> None:
        calls.append(preparation.seed)
        one_file(preparation)

    for seed in (None, None, 3, 3):
        build(count, seed=seed)
    assert calls == [None, 3]


def test_a_half_built_folder_is_never_used() -> None:
    def fails(preparation: Any) -> None:
        (preparation.folder / "half").write_text("half")
        raise RuntimeError("no disk left")

    folder = artefacts.folder_of(artefact(fails), "toy", "laptop", None)
    with pytest.raises(RuntimeError):
        build(fails)
    assert not artefacts.ready(folder)
    assert not folder.exists()
    folder.mkdir()  # as left by a copy that was cut off: no mark of completion
    (folder / "words").write_text("cut o")
    assert not artefacts.ready(folder)
    build(one_file)
    assert sorted(path.name for path in folder.iterdir()) == ["paperworks-artefact.json", "words"]
    assert (folder / "words").read_text() == "3"


def test_streams_of_a_builder_depend_on_its_name_version_and_seed_and_are_nobody_elses() -> None:
    drawn = {}

    def draws(key: str) -> Callable[[Any], None]:
        def note(preparation: Any) -> None:
            drawn[key] = preparation.rng("data").normal()

        return note

    for i in range(2):
        build(draws(f"one {i}"), config={"laptop": Size(words=i + 1)})  # the configuration is no part of the stream
    build(draws("seed 1"), seed=1)
    build(draws("version"), version=2, seed=1)
    build(draws("name"), name="estimate", seed=1)
    assert drawn.pop("one 0") == drawn["one 1"]
    from paperworks.claims.study import Streams

    drawn["experiment of that name"] = Streams("toy", "estimate", 1, 1).rng("data").normal()
    assert len(set(drawn.values())) == len(drawn)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c/d", "ab"]), st.binary(max_size=4), min_size=1), st.data())
def test_the_hash_is_of_names_and_bytes(files: dict[str, bytes], data: st.DataObject) -> None:
    import tempfile

    def write(root: Path, content: dict[str, bytes]) -> str:
        for name, body in content.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(body)
        return artefacts.content_hash(root)

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first = write(Path(one), files)
        assert write(Path(two), dict(reversed(files.items()))) == first
        name = data.draw(st.sampled_from(sorted(files)))
        assert write(Path(two), {name: files[name] + b"x"}) != first


def test_the_recorded_hash_is_that_of_the_content() -> None:
    folder = build(one_file)
    assert artefacts.recorded_hash(folder) == artefacts.content_hash(folder)


# --- within a run --------------------------------------------------------------------------------------------------


def run(**request: Any) -> tuple[list[Row], RunInfo]:
    with Ledger(Path("ledger.db")) as ledger:
        engine.run(engine.Request(("toy.cached",), **request), ledger, executor=InlineExecutor())
        return ledger.rows("toy"), max(ledger.runs("toy").values(), key=lambda info: info.started)


def test_a_run_builds_what_is_missing_before_its_trials_and_records_the_hashes(lab: Desk) -> None:
    rows, info = run()
    assert len(rows) == 12
    assert Path("built.log").read_text().splitlines() == ["corpus", *(f"split {seed}" for seed in range(6))]
    recorded = info.environment["prepared"]
    assert set(recorded) == {"corpus", "split"}
    assert set(recorded["split"]) == {str(seed) for seed in range(6)}
    (folder,) = (artefacts.cache_root() / "toy" / "corpus").glob("v1-*[!k]")
    assert recorded["corpus"] == {"": artefacts.content_hash(folder)}
    assert len(json.loads((folder / "words.json").read_text())) == 5
    run(seeds=(6,))
    assert Path("built.log").read_text().splitlines()[7:] == ["split 6"]
    assert len({row.metrics["total"] for row in rows}) == 12  # each seed has its own split


@pytest.mark.parametrize(
    ("old", "new"), [("version=1, timeout=30, config", "version=2, timeout=30, config"), ("Field(5", "Field(6")]
)
def test_an_artefact_that_changed_is_built_anew_and_its_trials_run_again(lab: Desk, old: str, new: str) -> None:
    first, _ = run()
    assert old in LAB_STUDY
    (lab.room / "study.py").write_text(LAB_STUDY.replace(old, new))
    forget()
    second, _ = run()
    assert Path("built.log").read_text().count("corpus") == 2
    assert len(second) == 2 * len(first)


@pytest.mark.parametrize("executor", [InlineExecutor(), LocalExecutor(1)], ids=["inline", "local"])
def test_a_builder_that_fails_is_one_clear_line(make_toy: Callable[..., Desk], executor: Any) -> None:
    study = LAB_STUDY.replace("    words = preparation", "    raise OSError('no corpus here')\n    words = preparation")
    make_toy(paper=LAB_PAPER, study=study)
    with Ledger(Path("ledger.db")) as ledger:
        with pytest.raises(PaperError) as caught:
            engine.run(engine.Request(("toy.cached",)), ledger, executor=executor)
        assert ledger.rows("toy") == []
    assert str(caught.value) == "toy: preparing 'corpus' failed: OSError: no corpus here"


def test_a_builder_that_hangs_is_stopped(make_toy: Callable[..., Desk]) -> None:
    study = LAB_STUDY.replace("version=1, timeout=30", "version=1, timeout=1").replace(
        "    words = preparation", "    import time; time.sleep(600)\n    words = preparation"
    )
    make_toy(paper=LAB_PAPER, study=study)
    with (
        Ledger(Path("ledger.db")) as ledger,
        pytest.raises(PaperError, match="'corpus' failed: not finished within 1 s"),
    ):
        engine.run(engine.Request(("toy.cached",)), ledger, executor=LocalExecutor(1))


def test_tuning_seeds_have_their_artefacts(make_toy: Callable[..., Desk]) -> None:
    study = LAB_STUDY.replace(
        '@experiment("cached"', '@tune(seeds=[100, 101], metric="total", k=[1])\n@experiment("cached"'
    )
    make_toy(paper=LAB_PAPER, study=study)
    rows, info = run(scale="smoke")
    assert {row.status for row in rows} == {"ok"}
    assert set(info.environment["prepared"]["split"]) == {"0", "1", "100", "101"}


@pytest.mark.parametrize("name", ["corpus", "split"])
def test_a_joint_call_must_say_whose_seed_s_artefact_it_means(make_toy: Callable[..., Desk], name: str) -> None:
    study = (
        LAB_STUDY
        + f'''

@experiment("cached", config=CONFIG, arms=ARMS, prepared=["corpus", "split"])
def cached(trial):
    for cell in trial.cells:
        yield cell, Outcome({{"total": float(len(str(trial.prepared("{name}"))) + cell.seed)}})
'''
    )
    make_toy(paper=LAB_PAPER.replace("[experiment.cached]", '[experiment.cached]\njoint = ["seed"]'), study=study)
    rows, _ = run()
    if name == "corpus":
        assert {row.status for row in rows} == {"ok"}
    else:
        assert {row.status for row in rows} == {"failed"}
        assert "'split' is one a seed: say which cell of this joint call is meant" in rows[0].error


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('prepared=["corpus", "split"]', 'prepared=["corpus", "slit"]', "has no @prepared('slit')"),
        ('prepared=["corpus", "split"]', 'prepared=["corpus"]', "opens prepared artefact 'split', which its @exp"),
        (', prepared=["corpus", "split"]', "", "prepared artefact 'corpus': the experiment does not list it"),
    ],
)
def test_what_is_not_listed_is_not_opened(make_toy: Callable[..., Desk], old: str, new: str, says: str) -> None:
    make_toy(paper=LAB_PAPER, study=LAB_STUDY.replace(old, new))
    assert says in complaint()


def complaint() -> str:
    """What a smoke run says: before any trial, or of a trial that failed."""
    try:
        return run(scale="smoke")[0][0].error
    except PaperError as error:
        return str(error)


def test_the_cache_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    assert artefacts.cache_root() == cache / "prepared"
    monkeypatch.setenv("PAPERWORKS_CACHE", "~/here")  # as kit.assets understands it
    assert artefacts.cache_root() == Path.home() / "here" / "prepared"
    monkeypatch.delenv("PAPERWORKS_CACHE")
    assert artefacts.cache_root().parts[-2:] == ("paperworks", "prepared")
