"""Metrics computed from the table of outcomes: slopes, gains, effects of position, the crossing of a noise curve."""

import numpy as np
import pandas as pd


def _curves(table: pd.DataFrame, metric: str, axis: str, rest: list[str]) -> list[tuple[dict, pd.Series]]:
    """For each arm and each value of the other axes the metric along one axis."""
    rows = table[(table["metric"] == metric) & table["item"].isna()]
    out = []
    for key, group in rows.groupby(["arm", *rest], sort=False):
        out.append((dict(zip(["arm", *rest], key, strict=True)), group.set_index(axis)["value"].astype(float)))
    return out


def _frame(rows: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(rows)


def _slopes(table: pd.DataFrame) -> pd.DataFrame:
    """Least-squares slope of accuracy on ln k, over all k and over those with a choice of four pages or more."""
    rows = []
    for place, acc in _curves(table, "acc", "k", []):
        for metric, part in (("slope", acc), ("tail", acc[acc.index.astype(int) >= 4])):
            if len(part) > 1:
                x = np.log(np.array(part.index, dtype=float))
                x = x - x.mean()
                rows.append({**place, "metric": metric, "value": float((x * part.to_numpy()).sum() / (x * x).sum())})
    return _frame(rows)


def distractors(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Slope over the number of documents."""
    return _slopes(table)


def distractors_lm(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Slope over the number of documents."""
    return _slopes(table)


def _positions(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for place, acc in _curves(table, "acc", "position", []):
        if not {"first", "middle", "last"} <= set(acc.index):
            continue
        rows.append({**place, "metric": "edge", "value": acc["first"] - acc["last"]})
        rows.append({**place, "metric": "dip", "value": (acc["first"] + acc["last"]) / 2 - acc["middle"]})
    return _frame(rows)


def position(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """First against last, and the ends against the middle."""
    return _positions(table)


def position_lm(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """First against last, and the ends against the middle."""
    return _positions(table)


def effort(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Most samples against one."""
    rows = []
    for place, acc in _curves(table, "acc", "n", ["depth", "condition"]):
        if {1, 9} <= set(acc.index):
            rows.append({**place, "metric": "gain", "value": acc[9] - acc[1]})
    return _frame(rows)


def search_noise(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What conflict takes from the effect of search, and at which share search begins to hurt."""
    rows = []
    for place, delta in _curves(table, "delta", "conflict", []):
        delta = delta.sort_index()
        if not {0.0, 1.0} <= set(delta.index):
            continue
        rows.append({**place, "metric": "swing", "value": delta[0.0] - delta[1.0]})
        rows.append({**place, "metric": "crossing", "value": _crossing(delta)})
    return _frame(rows)


def _crossing(delta: pd.Series) -> float:
    """First share at which the effect falls to 0, interpolated; 0 when it starts there, 1 when it never does."""
    shares, values = delta.index.to_numpy(dtype=float), delta.to_numpy(dtype=float)
    if values[0] <= 0:
        return float(shares[0])
    for i in range(1, len(values)):
        if values[i] <= 0:
            before, after = values[i - 1], values[i]
            return float(shares[i - 1] + (shares[i] - shares[i - 1]) * before / (before - after))
    return float(shares[-1])
