"""Metrics that compare outcomes of one seed."""

import pandas as pd
from scipy.stats import spearmanr


def hardening(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`rank` = Spearman correlation of the number of fragments with the hardening factor; 0 where all are equal."""
    rows = []
    counts = table[table.metric == "fragments"]
    for arm, group in counts.groupby("arm"):
        if group["factor"].nunique() < 3:
            continue
        flat = group["value"].nunique() == 1
        value = 0.0 if flat else float(spearmanr(group["factor"].astype(float), group["value"]).statistic)
        rows.append({"arm": arm, "metric": "rank", "value": value})
    return pd.DataFrame(rows, columns=["arm", "metric", "value"])


def render(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`overhead` = work of a rendering over that of `keep`, minus 1."""
    work = table[table.metric == "work"].set_index("arm")["value"]
    if "keep" not in work.index or work["keep"] <= 0:
        return pd.DataFrame(columns=["arm", "metric", "value"])
    rows = [{"arm": a, "metric": "overhead", "value": v / work["keep"] - 1} for a, v in work.items() if a != "keep"]
    return pd.DataFrame(rows, columns=["arm", "metric", "value"])
