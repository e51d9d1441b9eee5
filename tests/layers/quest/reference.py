"""Slow and plain: the attention variants in float64 loops, one pair at a time, from the formula. Imports torch only."""

import math

import torch

UNIT_QUERY = {"q", "qk", "qk_hs", "qk_ds"}
UNIT_KEY = {"quest", "qk", "qk_hs", "qk_ds", "elliptical_quest"}


def normalised(x, eps):
    length = torch.sqrt((x * x).sum())
    return x / length if length > eps else x / eps


def attention(q, k, v, norm, q_gain=None, k_gain=None, keep=None, add=None, eps=1e-6):
    """(h, n, d), (h_k, s, d), (h_k, s, d_v) -> (h, n, d_v); `keep` (n, s) is True for allowed pairs, `add` (n, s)."""
    heads, n, d = q.shape
    share = heads // k.shape[0]
    rows = []
    for h in range(heads):
        for i in range(n):
            logits = []
            for j in range(k.shape[1]):
                a, b = q[h, i], k[h // share, j]
                a = normalised(a, eps) if norm in UNIT_QUERY else a
                b = normalised(b, eps) if norm in UNIT_KEY else b
                if norm in {"qk", "qk_hs"}:
                    c = q_gain if norm == "qk" else q_gain[h, 0, 0]
                elif norm == "none":
                    c = 1.0 / math.sqrt(d)
                else:
                    c = 1.0
                if norm == "qk_ds":
                    a, b = q_gain * a, k_gain * b
                if norm == "elliptical_quest":
                    a = q_gain[h, 0] * a
                logit = c * (a * b).sum()
                logits.append(logit if add is None else logit + add[i, j])
            allowed = [j for j in range(len(logits)) if keep is None or keep[i, j]]
            if not allowed:
                rows.append(torch.zeros_like(v[0, 0]))
                continue
            top = max(logits[j].item() for j in allowed)
            weight = {j: torch.exp(logits[j] - top) for j in allowed}
            total = sum(weight.values())
            rows.append(sum(weight[j] / total * v[h // share, j] for j in allowed))
    return torch.stack(rows).reshape(heads, n, -1)


def metric(v, v_before):
    """(h, n, d) twice -> (h, 1, d): mean over tokens of the absolute change, largest entry 1."""
    out = []
    for now, before in zip(v, v_before, strict=True):
        change = sum(abs(a - b) for a, b in zip(now, before, strict=True)) / len(now)
        out.append((change / change.max())[None])
    return torch.stack(out)
