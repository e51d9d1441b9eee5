"""Metrics that compare outcomes of one seed."""

import pandas as pd


def group_size(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What an arm gains over the average kernel, and how the gain grows with the group.

    `gain` = log regret of `average` minus that of the arm, for each group; `growth` = gain for signed permutations
    (384) minus gain for sign flips (16).
    """
    logs = table[table.metric == "regret"].pivot_table(index="arm", columns="group", values="value")
    if "average" not in logs.index:
        return pd.DataFrame(columns=["arm", "group", "metric", "value"])
    gain = logs.loc["average"] - logs.drop(index="average")
    rows = gain.reset_index().melt(id_vars="arm", var_name="group", value_name="value").assign(metric="gain").dropna()
    if {"signed", "signs"} <= set(gain.columns):
        growth = (gain["signed"] - gain["signs"]).rename("value").reset_index().assign(metric="growth").dropna()
        rows = pd.concat([rows, growth], ignore_index=True)
    return rows
