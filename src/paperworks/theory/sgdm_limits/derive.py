"""Metrics that compare outcomes of one seed."""

import numpy as np
import pandas as pd


def pca(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """How fast a run approaches its limit: `decay` = log10 of the error at the small n over that at the large n.

    The error is the larger of `sup_m` and `sup_r2`. Fluctuations of order n^(-1/2) give 0.5 for a tenfold n.
    """
    errors = table[table.metric.isin(["sup_m", "sup_r2"])]
    largest = errors.pivot_table(index=["arm", "lam"], columns="size", values="value", aggfunc="max")
    if not {"small", "large"} <= set(largest.columns):
        return pd.DataFrame(columns=["arm", "lam", "metric", "value"])
    decay = pd.Series(np.log10(largest["small"] / largest["large"]))
    return decay.rename("value").reset_index().assign(metric="decay").dropna(subset="value")
