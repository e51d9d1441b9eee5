"""Metrics that compare outcomes of one seed."""

import numpy as np
import pandas as pd

# Billions of parameters.
LLAMA = {"llama_3b": 3.2, "llama_8b": 8.0, "llama_70b": 70.6}
PHYSICAL, ABSTRACT = ["animal", "plant", "food"], ["event", "cognition"]


def context(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """How much better physical domains are recovered than abstract ones; nothing unless all five are there."""
    parts = []
    for metric, name in (("f1", "gap"), ("auc_is", "gap_auc")):
        rows = table[table.metric == metric]
        by = rows.pivot_table(index=["arm", "encoder"], columns="domain", values="value").reindex(
            columns=PHYSICAL + ABSTRACT
        )
        by = by.dropna()
        gap = by[PHYSICAL].mean(axis=1) - by[ABSTRACT].mean(axis=1)
        parts.append(gap.rename("value").reset_index().assign(metric=name))
    return pd.concat(parts, ignore_index=True)


def algebra(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """How much better meets are found than joins."""
    by = table[table.metric.isin(["meet", "join"])].pivot_table(
        index=["arm", "domain"], columns="metric", values="value"
    )
    by = by.reindex(columns=["meet", "join"]).dropna()
    return (by["meet"] - by["join"]).rename("value").reset_index().assign(metric="meet_lead")


def model_size(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """How much faster F1 grows with the size of Llama models on abstract domains than on physical ones."""
    rows = table[(table.metric == "f1_is") & table.model.isin(list(LLAMA))]
    by = rows.pivot_table(index="arm", columns=["domain", "model"], values="value")
    by = by.reindex(columns=pd.MultiIndex.from_product([PHYSICAL + ABSTRACT, list(LLAMA)])).dropna()
    size = np.log10(list(LLAMA.values()))
    size -= size.mean()
    slope = {domain: by[domain].to_numpy() @ size / (size @ size) for domain in PHYSICAL + ABSTRACT}
    lead = sum(slope[d] for d in ABSTRACT) / len(ABSTRACT) - sum(slope[d] for d in PHYSICAL) / len(PHYSICAL)
    return pd.DataFrame({"arm": by.index, "value": lead, "metric": "slope_gap"})
