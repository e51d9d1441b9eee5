"""Metrics that compare outcomes of one seed."""

import numpy as np
import pandas as pd

ALGORITHMS = ("upu", "nnpu", "nnpu_ga", "pusb", "vpu", "cvir", "dist_pu", "count", "glws")
NOTHING = pd.DataFrame(columns=["arm", "metric", "value"])


def regimes(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Lift of each algorithm by calibration, their mean, and the shortfall of the best algorithm overall.

    `lift` is accuracy with calibration less accuracy without, one value a data set, at the calibrated arm. `mean_lift`
    is the mean over the nine algorithms (not the baseline) and the data sets; it stands at arm "upu_osc", for want of
    an arm that means all. `shortfall`, likewise: choose the algorithm that is best on average over the data sets, and
    the best one of each data set, all on one repetition; on the other, how far does the former fall short of the
    latter? Mean over both ways round. Since choice and test are independent, noise alone gives 0.
    """
    wide = table[table["metric"].isin(["accuracy", "first", "second"])].pivot_table(
        index="arm", columns=["metric", "data"], values="value"
    )
    parts = []
    for arm in wide.index:
        plain = arm.removesuffix("_osc") + "_os"
        if arm.endswith("_osc") and plain in wide.index:
            lift = (wide.loc[arm, "accuracy"] - wide.loc[plain, "accuracy"]).rename("value").reset_index()
            parts.append(lift.assign(arm=arm, metric="lift"))
    calibrated = [f"{name}_osc" for name in ALGORITHMS]
    if not set(calibrated) <= set(wide.index):
        return pd.concat(parts, ignore_index=True) if parts else NOTHING
    overall = []
    if {f"{name}_os" for name in ALGORITHMS} <= set(wide.index):
        lifts = [p["value"].mean() for p in parts if p["arm"].iloc[0] in calibrated]
        overall.append(("mean_lift", float(np.mean(lifts))))
    first, second = (wide[part].loc[calibrated].to_numpy(dtype=float) for part in ("first", "second"))
    if np.isfinite(first).all() and np.isfinite(second).all():
        overall.append(("shortfall", (_shortfall(first, second) + _shortfall(second, first)) / 2))
    parts.append(pd.DataFrame([{"arm": "upu_osc", "metric": metric, "value": value} for metric, value in overall]))
    return pd.concat(parts, ignore_index=True)


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
