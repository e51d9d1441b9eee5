"""Slow and plain, in float64, from the formulas; nothing of paperworks."""

import math

import numpy as np


def bilinear(feat, x, y):
    """feat (c, h, w) at one position, zeros outside."""
    c, h, w = feat.shape
    out = np.zeros(c)
    x0, y0 = math.floor(x), math.floor(y)
    for i in (y0, y0 + 1):
        for j in (x0, x0 + 1):
            if 0 <= i < h and 0 <= j < w:
                out += (1 - abs(y - i)) * (1 - abs(x - j)) * feat[:, i, j]
    return out


def warp(feat, flow):
    """out(p) = feat(p + flow(p)) for feat (c, h, w), flow (2, h, w)."""
    _, h, w = feat.shape
    out = np.zeros_like(feat)
    for i in range(h):
        for j in range(w):
            out[:, i, j] = bilinear(feat, j + flow[0, i, j], i + flow[1, i, j])
    return out


def upsample(flow, mask, factor, scale):
    """Convex combination of 3x3 neighbours: flow (c, h, w), mask (9, factor, factor, h, w)."""
    c, h, w = flow.shape
    out = np.zeros((c, h * factor, w * factor))
    for i in range(h):
        for j in range(w):
            for a in range(factor):
                for b in range(factor):
                    weight = np.exp(mask[:, a, b, i, j] - mask[:, a, b, i, j].max())
                    weight /= weight.sum()
                    for k in range(9):
                        y, x = i + k // 3 - 1, j + k % 3 - 1
                        if 0 <= y < h and 0 <= x < w:
                            out[:, i * factor + a, j * factor + b] += weight[k] * scale * flow[:, y, x]
    return out


def nll(flow, info, target, low=0.0, high=10.0):
    """Mixture of two Laplacians at one pixel and component: -log sum_k p_k exp(-|e| / b_k) / (2 b_k)."""
    a = np.exp(info[:2] - info[:2].max())
    p = a / a.sum()
    b = [math.exp(min(max(info[2], 0.0), high)), math.exp(min(max(info[3], low), 0.0))]
    return -math.log(sum(p[k] * math.exp(-abs(target - flow) / b[k]) / (2 * b[k]) for k in (0, 1)))


def all_pairs(first, second, flow, levels, radius):
    """RAFT's lookup: first, second (d, h, w), flow (2, h, w) to (levels (2 radius + 1)^2, h, w)."""
    d, h, w = first.shape
    side = 2 * radius + 1
    out = np.zeros((levels * side**2, h, w))
    for i in range(h):
        for j in range(w):
            cost = np.einsum("d,dhw->hw", first[:, i, j], second)[None] / math.sqrt(d)
            for level in range(levels):
                for k in range(side**2):
                    x = (j + flow[0, i, j]) / 2**level + k % side - radius
                    y = (i + flow[1, i, j]) / 2**level + k // side - radius
                    out[level * side**2 + k, i, j] = bilinear(cost, x, y)[0]
                _, hh, ww = cost.shape
                cost = cost[:, : hh // 2 * 2, : ww // 2 * 2].reshape(1, hh // 2, 2, ww // 2, 2).mean((2, 4))
    return out
