"""What the documentation shows is run: its modules are written out, its commands called at smoke scale."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "own_method.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MODULES = {block.partition("\n")[0].removeprefix("# "): block for block in BLOCKS if block.startswith("# my_")}
COMMANDS = [c for c in re.findall(r"^\$ paperworks (run .*)$", PAGE, re.MULTILINE) if "--scale smoke" in c]

# The baseline that each runs beside here: all arms would take a paper's whole smoke budget.
BESIDE = {"quest": "none", "pu_bench": "upu_os", "sgdm_limits": "sgd"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in MODULES.items():
        (tmp_path / name).write_text(code)
    return tmp_path


def python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_kind_of_method_has_its_example() -> None:
    assert list(MODULES) == ["my_attention.py", "my_learner.py", "my_optimizer.py"]
    assert [re.search(r"run (\w+)", c)[1] for c in COMMANDS] == ["quest", "pu_bench", "sgdm_limits"]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_worked_example_runs_and_is_judged_in_the_method_s_place(line: str, folder: Path) -> None:
    paper = line.split()[1].partition(".")[0]
    limits = ["--arm", BESIDE[paper], "--seeds", "1", "--jobs", "1", "--json"]
    found = json.loads(python("-m", "paperworks.cli", *shlex.split(line), *limits, cwd=folder))
    assert found["failed"] == 0
    own = [v for v in found["verdicts"] if v["custom"]]
    assert own
    assert {v["stands_for"] for v in own} <= {"quest", "upu_osc", "sgd_u"}
    assert any(v["arm_mean"] is not None for v in own)


def test_an_attention_of_ones_own_is_read_by_the_probe(folder: Path) -> None:
    line = "run quest.vit_stability --arm mine=my_attention:CappedAttention --arm none --seeds 1 --jobs 1 --scale smoke"
    found = json.loads(python("-m", "paperworks.cli", *line.split(), "--json", cwd=folder))
    assert found["failed"] == 0


def test_the_script_runs(folder: Path) -> None:
    (script,) = (block for block in BLOCKS if "pw.run" in block)
    (folder / "script.py").write_text(script.replace('arms={"mine": SignSGD}', 'arms={"mine": SignSGD, "sgd": None}'))
    assert re.search(r"R1 +\S+ +mine +sgd_u", python("script.py", cwd=folder))
