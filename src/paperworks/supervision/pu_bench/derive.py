"""Metrics that compare outcomes of one seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

ALGORITHMS = ("upu", "nnpu", "nnpu_ga", "pusb", "vpu", "cvir", "dist_pu", "count", "glws")
NOTHING = pd.DataFrame(columns=["arm", "metric", "value"])


def regimes(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Lift of the algorithms by calibration, and the shortfall of the one that is best overall.

    `mean_lift` is accuracy with calibration less accuracy without, mean over the data sets: at arm "naive_osc" that of
    the baseline, at arm "upu_osc", for want of an arm that means all, the mean over the nine algorithms. `shortfall`
    stands there too: choose the algorithm that is best on average over the data sets, and the best one of each data
    set, all on one repetition; on the other, how far does the former fall short of the latter? Mean over both ways
    round. Since choice and test are independent, noise alone gives 0, and one algorithm that wins everywhere 0 or less.
    """
    if table.empty:
        return NOTHING
    wide = table[table["metric"].isin(["accuracy", "first", "second"])].pivot_table(
        index="arm", columns=["metric", "data"], values="value"
    )

    def values(part: str, names: Sequence[str], regime: str) -> np.ndarray:
        """An algorithm a row and a data set a column; NaN where the table has none."""
        return wide[part].reindex([f"{name}_{regime}" for name in names]).to_numpy(dtype=float)

    rows = []
    for arm, names in (("naive_osc", ["naive"]), ("upu_osc", ALGORITHMS)):
        lift = values("accuracy", names, "osc") - values("accuracy", names, "os")
        rows.append({"arm": arm, "metric": "mean_lift", "value": lift.mean()})
    first, second = (values(part, ALGORITHMS, "osc") for part in ("first", "second"))
    if np.isfinite(first + second).all():
        shortfall = (_shortfall(first, second) + _shortfall(second, first)) / 2
        rows.append({"arm": "upu_osc", "metric": "shortfall", "value": shortfall})
    return pd.DataFrame(rows).dropna()


def _shortfall(chosen_on: np.ndarray, tested_on: np.ndarray) -> float:
    """Accuracy lost on one repetition by using one algorithm for all data sets, all being chosen on another.

    Both have an algorithm a row and a data set a column.
    """
    best = chosen_on.mean(axis=1).argmax()
    winners = chosen_on.argmax(axis=0)
    return float(np.mean(tested_on[winners, np.arange(len(winners))] - tested_on[best]))


def shares(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Slope, over the labelled share, of what an arm loses against the two-sample regime of its algorithm.

    In accuracy per 0.1 of share, by least squares; zero for the two-sample arm itself, which gets no row.
    """
    wide = table[table["metric"] == "accuracy"].pivot_table(index="arm", columns="share", values="value")
    rows = []
    for arm in wide.index:
        reference = arm.rpartition("_")[0] + "_ts"
        if arm == reference or reference not in wide.index or wide.shape[1] < 2:
            continue
        gap = (wide.loc[reference] - wide.loc[arm]).dropna()
        if len(gap) == wide.shape[1]:
            slope = np.polyfit(gap.index.to_numpy(dtype=float), gap.to_numpy(dtype=float), 1)[0]
            rows.append({"arm": arm, "metric": "slope", "value": float(slope) / 10})
    return pd.DataFrame(rows) if rows else NOTHING
