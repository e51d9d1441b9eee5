"""What the frame itself costs: run ``python benchmarks/frame.py``. Figures, not tests.

- engine overhead: wall-clock of a trial that does nothing, less nothing, on one worker (wanted: at most 50 ms);
- judging: 10,000 outcomes read from a ledger and judged (wanted: at most 1 s);
- the command line: processor seconds of ``--help``, ``list`` and ``show`` (wanted: at most 0.4 s).
"""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from toy_package import DERIVE, PAPER, write_distribution  # noqa: E402

SEEDS = 25
SIZES = range(100)  # with two arms and two kinds of draws: 10,000 cells


def engine_overhead(folder: Path) -> float:
    """Seconds a trial, start of the worker excluded (taken from a run with one trial)."""
    from paperworks.claims import engine
    from paperworks.claims.ledger import Ledger

    seconds = []
    for seeds in (1, 2):
        with Ledger(folder / f"overhead{seeds}.db") as ledger:
            request = engine.Request(("toy.estimate",), seeds=tuple(range(seeds)))
            report = engine.run(request, ledger, jobs=1)
            seconds.append((report.ran, report.seconds))
    (few, short), (many, long) = seconds
    return (long - short) / (many - few)


def judging(folder: Path) -> tuple[int, float]:
    """Outcomes in a ledger, and seconds to read and judge them."""
    from paperworks.claims import api
    from paperworks.claims.ledger import Ledger, Row, RunInfo

    path = folder / "many.db"
    count = 0
    with Ledger(path) as ledger:
        info = RunInfo("toy", "laptop", "", {}, {}, "")
        ledger.start_run(info)
        ledger._db.execute("PRAGMA synchronous=OFF")
        for seed, arm, outliers, size in itertools.product(range(SEEDS), ("mean", "median"), ("none", "some"), SIZES):
            metrics = {"error": seed % 7 + (arm == "mean") * (outliers == "some"), "spread": 1.0}
            level = {"size": size, "outliers": outliers}
            ledger.record(
                Row(str(count), "toy", "estimate", 1, "laptop", arm, level, seed, metrics=metrics, run=info.id)
            )
            count += 1
    begun = time.perf_counter()
    verdicts = api.verdicts(["toy"], ledger=path)
    assert verdicts[0].n == SEEDS, verdicts[0]
    return count, time.perf_counter() - begun


def large_paper() -> dict[str, str]:
    """The toy paper with one more level axis, so that a study has 10,000 cells."""
    paper = PAPER.replace("level.outliers", f"level.size = {list(SIZES)}\nlevel.outliers", 1)
    paper = paper.replace('metric = "gain"', 'metric = "gain"\nlevel = "mean"').replace(
        'outliers = "none"', 'size = "mean", outliers = "none"'
    )
    derive = DERIVE.replace('index="arm"', 'index=["arm", "size"]').replace(
        'pd.DataFrame({"arm": gain.index, "metric": "gain", "value": gain.to_numpy()})',
        'gain.rename("value").reset_index().assign(metric="gain")',
    )
    return {"paper": paper.replace("laptop = { seeds = 6 }", f"laptop = {{ seeds = {SEEDS} }}"), "derive": derive}


def command_line(*arguments: str) -> float:
    """Processor seconds of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "paperworks.cli", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_distribution(folder / "plugins", **large_paper())
        sys.path.insert(0, str(folder / "plugins"))
        os.environ["PYTHONPATH"] = str(folder / "plugins")
        for arguments in (["--help"], ["list"], ["show", "quest"]):
            print(f"{' '.join(arguments):<12} {command_line(*arguments):.2f} CPU-s")
        print(f"engine       {1000 * engine_overhead(folder):.1f} ms a trial")
        count, seconds = judging(folder)
        print(f"judging      {seconds:.2f} s for {count} outcomes")


if __name__ == "__main__":
    main()
