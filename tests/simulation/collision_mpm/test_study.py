"""The parts of the study that a verdict leans on."""

import base64
import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import torch

from paperworks.claims.study import Cell, Trial
from paperworks.simulation.collision_mpm import MPMSolver, NeoHookean, lattice, pictures, study
from paperworks.simulation.collision_mpm.derive import hardening, render


def trial(experiment, arm, level=None, seed=101, told=None, **changes):
    config = experiment.config["smoke"].model_copy(update=changes)
    arms = {**experiment.arms, **({arm: told} if told else {})}
    return Trial(
        origin=("collision_mpm", experiment.name, 1),
        cells=(Cell(arm, level or {}, seed),),
        scale="smoke",
        config=config,
        arms=arms,
    )


def table(rows):
    return pd.DataFrame([{"seed": 0, **row} for row in rows])


def test_rank_and_overhead():
    counts = {
        ("a", 0.9): 1,
        ("a", 0.95): 4,
        ("a", 0.98): 3,
        ("b", 0.9): 2,
        ("b", 0.95): 2,
        ("b", 0.98): 2,
        ("c", 0.9): 5,
    }
    rows = [{"arm": a, "factor": f, "metric": "fragments", "value": v} for (a, f), v in counts.items()]
    found = {r.arm: r.value for r in hardening(table(rows), 0).itertuples()}
    assert found == {"a": pytest.approx(0.5), "b": 0.0}
    costs = [{"arm": a, "metric": "work", "value": v} for a, v in (("keep", 100.0), ("fpgo", 150.0), ("drop", 80.0))]
    assert {r.arm: r.value for r in render(table(costs), 0).itertuples()} == pytest.approx({"fpgo": 0.5, "drop": -0.2})
    assert render(table(costs[1:]), 0).empty


def test_attached_needs_nearness_and_common_motion():
    sim = MPMSolver(10)
    sim.add_body(lattice((0.4, 0.5), (0.5, 0.6), 0.05), NeoHookean(1.0), (0.0, 1.0))
    plate = lattice((0.3, 0.4), (0.7, 0.5), 0.05)
    v = torch.zeros_like(plate)
    v[plate[:, 0] > 0.45, 1] = 1.05
    sim.add_body(plate, NeoHookean(1.0), v)
    reach = 0.06  # of 16: the upper row under the disc and beside it
    assert study.attached(sim.state(), reach, 0.1) == pytest.approx(1 / 16)
    assert study.attached(sim.state(), reach, 0.01) == 0
    assert study.attached(sim.state(), 1.0, 0.1) == pytest.approx(10 / 16)


def test_arms_of_a_seed_start_from_the_same_particles_and_seeds_differ():
    seen = {}

    def watching(name):
        def factory(cells, dim=2, **options):
            made = study.CONTACTS["single"](cells, dim, **options)
            add = made.add_body

            def record(x, *args, **kwargs):
                seen.setdefault(name, []).append(x)
                return add(x, *args, **kwargs)

            made.add_body = record
            return made

        return factory

    level = {"plate": "elastic", "speed": 5.0}
    for name, seed in (("a", 101), ("b", 101), ("c", 102)):
        study.adhesion.function(trial(study.adhesion, "single", level, seed, watching(name), end=1e-4))
    assert all(torch.equal(x, y) for x, y in zip(seen["a"], seen["b"], strict=True))
    assert not any(x.shape == y.shape and torch.equal(x, y) for x, y in zip(seen["a"], seen["c"], strict=True))


def test_a_run_that_blows_up_has_finite_metrics():
    found = study.momentum_of_discs.function(trial(study.momentum_of_discs, "printed", {"impact": "head_on"}))
    assert found.metrics["growth"] == study.GROWTH_CAP


def test_the_truth_of_an_undeformed_block_is_drawn_well_and_a_blank_badly():
    calm = {"end": 1e-4, "looks": 1, "height": 0.05}
    values = {arm: study.images.function(trial(study.images, arm, **calm)).metrics for arm in ("keep", "fpgo", "blank")}
    assert values["keep"] == values["fpgo"]  # nothing has broken
    assert values["keep"]["broken"] == 0
    assert values["keep"]["psnr"] > values["blank"]["psnr"] + 3
    assert values["keep"]["psnr"] == values["keep"]["psnr_whole"]
    assert values["keep"]["psnr_crack"] == study.PERFECT
    assert values["keep"]["uncovered"] < 0.1 < values["blank"]["uncovered"]


def test_png_files_are_what_was_drawn():
    from PIL import Image

    for colors in (3, 16, 216):
        image = np.random.default_rng(0).integers(0, colors, (13, 17))
        palette = np.random.default_rng(1).integers(0, 256, (colors, 3))
        read = np.asarray(Image.open(io.BytesIO(pictures.png(image, palette))).convert("RGB"))
        np.testing.assert_array_equal(read, palette[image])


def test_figures_move_and_are_small():
    found = study.adhesion.function(trial(study.adhesion, "single", {"plate": "brittle", "speed": 10.0}, seed=100))
    svg = found.figures["impact.svg"]
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    frames = root.findall(f"{space}image")
    assert len(frames) == 3
    assert all(f.find(f"{space}animate").get("repeatCount") == "indefinite" for f in frames)
    assert base64.b64decode(re.search(r"base64,([^\"]+)", svg)[1]).startswith(b"\x89PNG")
    assert len(svg) < 10_000
    other = study.adhesion.function(trial(study.adhesion, "single", {"plate": "brittle", "speed": 10.0}, seed=101))
    assert not other.figures
