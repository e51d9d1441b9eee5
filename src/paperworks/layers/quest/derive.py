"""Metrics that compare outcomes of one seed."""

import numpy as np
import pandas as pd


def biased_retrieval(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What the cue costs: accuracy on unbiased samples trained without it, minus trained with it.

    `harm` is that difference. `harm_odds` is the same difference of log odds: near 1 an equal step in accuracy is a
    larger step in errors, so a method that solves the task better has less harm to show on the plain scale.
    """
    accuracy = table[table.metric == "acc"].pivot_table(index=["arm", "host"], columns="cue", values="value")
    if not {"masked", "present"} <= set(accuracy.columns):
        return pd.DataFrame(columns=["arm", "host", "metric", "value"])
    odds = np.log(accuracy.clip(1e-4, 1 - 1e-4) / (1 - accuracy.clip(1e-4, 1 - 1e-4)))
    parts = []
    for metric, score in (("harm", accuracy), ("harm_odds", odds)):
        parts.append((score["masked"] - score["present"]).rename("value").reset_index().assign(metric=metric))
    return pd.concat(parts, ignore_index=True).dropna(subset="value")
