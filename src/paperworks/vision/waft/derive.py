"""Metrics that compare outcomes of one seed: how memory grows, and one resolution against another."""

import numpy as np
import pandas as pd


def memory(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`exponent`: the slope of log memory on log pixels over the sides, for each arm and stride."""
    rows = []
    for (arm, stride), part in table.groupby(["arm", "stride"]):
        kept = part[part.metric == "train_mib"].set_index("side")["value"]
        pixels = part[part.metric == "pixels"].set_index("side")["value"]
        if len(kept) > 1 and len(kept) == len(pixels):
            slope = np.polyfit(np.log(pixels[kept.index].to_numpy()), np.log(kept.to_numpy()), 1)[0]
            rows.append({"arm": arm, "stride": stride, "metric": "exponent", "value": float(slope)})
    return pd.DataFrame(rows, columns=["arm", "stride", "metric", "value"])


def memory_video(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """`saving`: log2 of what all pairs need at 1/4 over what an arm needs at 1/2."""
    kept = table[table.metric == "train_gib"].pivot_table(index="arm", columns="stride", values="value")
    rows = []
    if "all_pairs" in kept.index and {2, 4} <= set(kept.columns):
        quarter = kept.loc["all_pairs", 4]
        rows = [
            {"arm": arm, "metric": "saving", "value": float(np.log2(quarter / half))}
            for arm, half in kept[2].items()
            if arm != "all_pairs"
        ]
    return pd.DataFrame(rows, columns=["arm", "metric", "value"]).dropna()
