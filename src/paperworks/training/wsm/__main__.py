"""Merge the checkpoints of a run: ``python -m paperworks.training.wsm RUN --curve 1-sqrt --last 8 --out merged``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .merge import checkpoints_in, merge_checkpoints
from .weights import CURVES, decay_from_merge, merge_weights


def main(arguments: Sequence[str] | None = None) -> int:
    """Merge, and print the decay that the merge stands for.

    Args:
        arguments: The command line; that of the process by default.

    Returns:
        The exit code: 0, or 2 when something is wrong with the arguments or checkpoints.
    """
    parser = argparse.ArgumentParser(prog="python -m paperworks.training.wsm", description=main.__doc__)
    parser.add_argument("run", type=Path, help="folder with checkpoints that have their step in the name")
    parser.add_argument("--curve", default="linear", help=f"one of {', '.join(CURVES)}")
    parser.add_argument("--last", type=int, help="merge the last so many checkpoints; all by default")
    parser.add_argument("--window", type=float, help="merge the checkpoints of the last so many steps, instead")
    parser.add_argument(
        "--out", type=Path, help="file (.safetensors, .pt) or folder to write; without it nothing is merged"
    )
    given = parser.parse_args(arguments)
    try:
        paths, steps = checkpoints_in(given.run)
        if given.last is not None and given.window is not None:
            raise ValueError("--last and --window: only one of them can be given")
        if given.window is not None:
            first = sum(step <= steps[-1] - given.window for step in steps)
            paths, steps = paths[first:], steps[first:]
        if given.last is not None:
            if given.last < 1:
                raise ValueError(f"--last {given.last}: at least 1 is needed")
            paths, steps = paths[-given.last :], steps[-given.last :]
        c = merge_weights(given.curve, steps=steps)
        w = [1.0, *decay_from_merge(c)]
        print(f"{given.curve}: {len(paths)} checkpoints, steps {steps[0]:g} to {steps[-1]:g}")
        print("step        weight  decay of the updates up to it")
        for step, weight, decay in zip(steps, c, w, strict=True):
            print(f"{step:<10g}  {weight:.4f}  {decay:.4f}")
        if given.out is not None:
            print(f"wrote {merge_checkpoints(list(paths), c, out=given.out)}")
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
