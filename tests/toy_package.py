"""Writes a small real distribution with a light paper in it, as an outside author would ship one.

Put its folder on ``PYTHONPATH`` and the paper is found through its entry point, like any installed plugin.
"""

from __future__ import annotations

from pathlib import Path

PAPER = """
title = "Estimating a mean"
authors = ["Nobody"]
year = 2026
licence = "Apache-2.0"
family = "theory"
extra = "core"
status = "draft"
basis = "full-text"
summary = "The median of means is a robust estimator."

[experiment.estimate]
text = "On 200 draws with outliers"
arms = ["mean", "median"]
timeout = 20
level.outliers = ["none", "some"]
metric.error = "absolute error of the estimate"
metric.spread = "spread of the draws"
metric.gain = { text = "error with outliers minus error without", over = ["outliers"] }
curve.running = "running estimate"
scale.smoke = { seeds = 2 }
scale.laptop = { seeds = 6 }

[experiment.jointly]
text = "On 50 draws"
arms = ["mean", "median"]
joint = ["seed"]
metric.error = "absolute error of the estimate"
scale.smoke = { seeds = 2 }
scale.laptop = { seeds = 8 }

[[claim]]
id = "M1"
text = "Outliers hurt the mean more than the median."
test = "direct"
experiment = "estimate"
metric = "gain"
arm = "mean"
against = "median"
margin = 0.1
control = [{ metric = "error", arm = "mean", level = { outliers = "none" }, better = "lower", value = 0.5 }]

[[claim]]
id = "M2"
text = "The mean is not worse without outliers."
test = "direct"
experiment = "estimate"
metric = "error"
arm = "mean"
against = "median"
level = { outliers = "none" }
better = "lower"
margin = -0.2

[[claim]]
id = "M3"
text = "On a cluster as well."
test = "reduced"
experiment = "estimate"
metric = "error"
arm = "mean"
against = "median"
level = "mean"
scales = ["paper"]
"""

STUDY = """
import os
import time

import numpy as np
from pydantic import Field

from paperworks.claims.study import ExperimentConfig, Outcome, experiment


class Estimate(ExperimentConfig):
    draws: int = Field(200, gt=0, description="number of draws")
    pause: float = Field(0.0, ge=0, description="seconds to wait, to make a trial last")
    fault: str = Field("", description="what goes wrong for seed 1 of the median: raise, hang, nan, undeclared")


CONFIG = {"smoke": Estimate(), "laptop": Estimate()}


def misbehave(trial):
    fault = trial.config.fault
    if not fault or trial.arm != "median" or trial.seed != 1 or trial.level.get("outliers") == "some":
        return
    if fault == "raise":
        raise ValueError("no such luck")
    if fault == "hang":
        time.sleep(1e6)
    if fault == "kill":
        os.kill(os.getpid(), 9)


def draws(trial, n, cell=None):
    return trial.rng("data", cell).normal(size=n)


@experiment("estimate", config=CONFIG, arms={"mean": lambda: np.mean, "median": lambda: np.median})
def estimate(trial):
    misbehave(trial)
    x = draws(trial, trial.config.draws)
    if trial.level["outliers"] == "some":
        x[: len(x) // 10] += 20
    estimator = trial.build()
    for i in range(1, 11):
        trial.progress(i, 10)
        trial.curve("running", i, estimator(x[: i * len(x) // 10]))
        time.sleep(trial.config.pause / 10)
    metrics = {"error": abs(estimator(x)), "spread": x.std()}
    if trial.config.fault == "nan":
        metrics["error"] = float("nan")
    if trial.config.fault == "undeclared":
        metrics["foo"] = 1.0
    return Outcome(metrics)


@experiment("jointly", config=CONFIG, arms={"mean": lambda: np.mean, "median": lambda: np.median})
def jointly(trial):
    estimator = trial.build()
    x = np.stack([draws(trial, 50, cell) for cell in trial.cells])
    for cell, error in zip(trial.cells, np.abs(estimator(x, axis=1))):
        time.sleep(trial.config.pause)
        yield cell, Outcome({"error": error})
"""

DERIVE = """
import pandas as pd


def estimate(table, seed):
    wide = table[table.metric == "error"].pivot(index="arm", columns="outliers", values="value")
    gain = wide["some"] - wide["none"]
    return pd.DataFrame({"arm": gain.index, "metric": "gain", "value": gain.to_numpy()})
"""

INIT = '''"""Estimating a mean: a light paper for the frame's own tests."""
'''


def write_distribution(folder: Path, slug: str = "toy", **files: str) -> Path:
    """Write the distribution ``<slug>_papers`` with the room ``slug`` and return the room's folder.

    Args:
        folder: Where it goes; put it on PYTHONPATH.
        slug: The paper's name.
        files: Other contents: ``paper``, ``study`` and ``derive``.
    """
    package = folder / f"{slug}_papers"
    room = package / slug
    room.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "raise ImportError('listing papers must import none of them')\n" if files.get("explode") else ""
    )
    (room / "__init__.py").write_text(INIT)
    (room / "paper.toml").write_text(files.get("paper", PAPER))
    (room / "study.py").write_text(files.get("study", STUDY))
    (room / "derive.py").write_text(files.get("derive", DERIVE))
    info = folder / f"{slug}_papers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {slug}-papers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[paperworks.papers]\n{slug} = {slug}_papers.{slug}\n")
    return room
