"""Metrics that compare outcomes of one seed."""

import numpy as np
import pandas as pd


def _gain(table: pd.DataFrame) -> pd.DataFrame:
    """`gain` = loss of the newest state at constant rate minus loss of the arm, in nats a byte."""
    losses = table[table.metric == "loss"].set_index("arm")["value"]
    if "constant" not in losses.index:
        return pd.DataFrame(columns=["arm", "metric", "value"])
    gain = losses["constant"] - losses.drop("constant")
    return gain.rename("value").reset_index().assign(metric="gain")


def branches(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`gain` over the newest state of the run at constant rate."""
    return _gain(table)


def anneal(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`gain` over the newest state of the run at constant rate."""
    return _gain(table)


def grid(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`lead` = share of the loss's variance that the window explains, minus that of the number of states.

    Main effects of a balanced 3 x 3 table.
    """
    rows = []
    for arm, part in table[table.metric == "loss"].groupby("arm"):
        loss = part.pivot_table(index="window", columns="count", values="value")
        if loss.shape != (3, 3) or loss.isna().to_numpy().any():
            continue
        total = float(((loss - loss.to_numpy().mean()) ** 2).to_numpy().mean())
        if total > 0:
            lead = (float(np.var(loss.mean(axis=1))) - float(np.var(loss.mean(axis=0)))) / total
            rows.append({"arm": arm, "metric": "lead", "value": lead})
    return pd.DataFrame(rows, columns=["arm", "metric", "value"])
