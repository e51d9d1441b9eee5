"""Metrics that compare outcomes of one seed."""

import numpy as np
import pandas as pd


def biased_retrieval(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What the cue does: outcomes of training with it beside those of training without it.

    `harm` is the accuracy on unbiased samples that it costs. `harm_odds` is the same in log odds: near 1 an equal step
    in accuracy is a larger step in errors, so a method that solves the task better has less harm to show on the plain
    scale. `key_rise` is what it adds to the key norm of biased answers.
    """

    def by_cue(metric: str) -> pd.DataFrame:
        rows = table[table.metric == metric]
        return rows.pivot_table(index=["arm", "host"], columns="cue", values="value").reindex(
            columns=["masked", "present"]
        )

    accuracy, key_ratio = by_cue("acc"), by_cue("key_ratio")
    share = accuracy.clip(1e-4, 1 - 1e-4)  # a share of 0 or 1 has no log odds; a test of 12,000 answers ends near there
    odds = np.log(share / (1 - share))
    effects = {
        "harm": accuracy["masked"] - accuracy["present"],
        "harm_odds": odds["masked"] - odds["present"],
        "key_rise": key_ratio["present"] - key_ratio["masked"],
    }
    parts = [effect.rename("value").reset_index().assign(metric=metric) for metric, effect in effects.items()]
    return pd.concat(parts, ignore_index=True).dropna(subset="value")
