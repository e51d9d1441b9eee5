"""Many runs at once: one lane for each `EffectiveDynamics`, in the reduced simulator."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .dynamics import EffectiveDynamics
from .problems import check_run
from .simulate import Trajectory, run_lanes, warn_if_outside


def simulate_lanes(
    dynamics: Sequence[EffectiveDynamics],
    n: int,
    steps: int,
    streams: Sequence[np.random.Generator],
    start: tuple[float, float] | str = (0.3, 1.0),
    points: int = 200,
    progress: Callable[[int, int], None] | None = None,
) -> Trajectory:
    """Run the algorithm behind each of many limits, all in one loop.

    Args:
        dynamics: one for each lane; their problems may differ in numbers (lambda, noise), not in k or f.
        n: dimension, at least 4.
        steps: number of steps.
        streams: one generator for each lane. Lanes that are given the same object see the same noise; a lane's result
            depends on its own stream alone, not on the other lanes.
        start: (m, r^2), or "random" for x ~ N(0, I/n).
        points: number of times kept.
        progress: called with (step, steps) now and then.

    Returns:
        The trajectory, m and r2 of shape (points, lanes).
    """
    if not dynamics or len(dynamics) != len(streams):
        raise ValueError(
            f"{len(dynamics)} dynamics with {len(streams)} streams; allowed are one or more, and a stream for each"
        )
    families = {d.problem.family() for d in dynamics}
    if len(families) > 1:
        raise ValueError(f"dynamics has {len(families)} kinds of problems; allowed is one k, or one f and fprime")
    for d in dynamics:
        check_run(n, d.c, d.beta, steps, 1, points)
    warn_if_outside(n, max(d.beta for d in dynamics))
    problems: list[Any] = [d.problem for d in dynamics]
    return run_lanes(
        problems[0].stack(problems),
        n,
        delta=np.array([d.c / n for d in dynamics]),
        beta=np.array([d.beta for d in dynamics]),
        algorithms=[d.algorithm for d in dynamics],
        streams=streams,
        steps=steps,
        start=start,
        points=points,
        progress=progress,
    )
