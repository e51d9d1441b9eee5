"""How far apart two classes are in a tree of classes, and what each factor of a space carries."""

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from torch import Tensor

from .spaces import _Space


def hierarchical_metrics(pred: Sequence[Any], true: Sequence[Any], graph: nx.DiGraph) -> dict[str, float]:
    """Errors of predicted classes by their place in a hierarchy, means over the pairs.

    With A(v) the ancestors of v, v included and the root left out:

    - tie: tree-induced error, the number of edges of the shortest way between both in the undirected graph;
    - lca: the same from the true class up to the lowest common ancestor, the deepest of them where there are several;
    - jaccard: |A(p) & A(t)| / |A(p) | A(t)|; precision: over |A(p)|; recall: over |A(t)|.

    Args:
        pred: Predicted nodes.
        true: True nodes.
        graph: Edges from the general to the special; one root.

    Returns:
        tie, lca, jaccard, precision, recall.

    Raises:
        ValueError: For sequences of different lengths or none, a node that is not in the graph, or more than one root.
    """
    if len(pred) != len(true) or len(true) == 0:
        raise ValueError(f"pred has {len(pred)} nodes, true {len(true)}: as many, and one at least, are needed")
    roots = [v for v in graph if graph.in_degree(v) == 0]
    if len(roots) != 1 or not nx.is_directed_acyclic_graph(graph):
        raise ValueError(f"graph has {len(roots)} roots: a directed acyclic graph with one is needed")
    for name, nodes in (("pred", pred), ("true", true)):
        for node in nodes:
            if node not in graph:
                raise ValueError(f"{name} holds {node!r}: it is not in the graph")
    undirected = graph.to_undirected(as_view=True)
    depth = nx.single_source_shortest_path_length(graph, roots[0])
    ways: dict[tuple[Any, Any], tuple[float, ...]] = {}

    def errors(p: Any, t: Any) -> tuple[float, ...]:
        of_p, of_t = (nx.ancestors(graph, v) | {v} for v in (p, t))
        lowest = max(of_p & of_t, key=lambda v: depth[v])
        up = float(nx.shortest_path_length(graph, lowest, t))
        a, b = of_p - {roots[0]}, of_t - {roots[0]}
        both, either = len(a & b), len(a | b)
        way = float(nx.shortest_path_length(undirected, p, t))
        return way, up, both / either if either else 1.0, both / len(a) if a else 1.0, both / len(b) if b else 1.0

    rows = []
    for p, t in zip(pred, true, strict=True):
        if (p, t) not in ways:
            ways[p, t] = errors(p, t)
        rows.append(ways[p, t])
    return dict(zip(("tie", "lca", "jaccard", "precision", "recall"), np.mean(rows, axis=0).tolist(), strict=True))


def mutual_information(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """The mutual information of two labellings (n,), in nats, from their joint counts."""
    _, a = np.unique(np.asarray(a), return_inverse=True)
    _, b = np.unique(np.asarray(b), return_inverse=True)
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1)
    joint /= joint.sum()
    outer = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    some = joint > 0
    return float((joint[some] * np.log(joint[some] / outer[some])).sum())


def specialisation(
    space: _Space, X: Tensor, labels: Sequence[Any], rng: np.random.Generator, permutations: int = 20
) -> float:
    """How much the factor with the largest norm tells of a label, in nats: 0 when it tells nothing.

    The mutual information of both, minus its mean with the labels permuted, which is above 0 in any finite sample.

    Args:
        space: The space.
        X: Points (n, k, d).
        labels: A label of each point.
        rng: For the permutations.
        permutations: Their number.
    """
    strongest = space.norms(X).detach().argmax(-1).cpu().numpy()
    names = np.asarray(labels)
    chance = [mutual_information(strongest, rng.permutation(names)) for _ in range(permutations)]
    return mutual_information(strongest, names) - float(np.mean(chance))


def factor_report(space: _Space, X: Tensor, labels: Sequence[Any]) -> list[dict[str, Any]]:
    """What each factor carries: the labels with the largest mean norm in it.

    Norms are divided by their mean over the points, factor by factor, so that factors can be compared.

    Args:
        space: The space.
        X: Points (n, k, d).
        labels: A label of each point.

    Returns:
        For each factor: factor, label (the one with the largest mean), lead (its mean over the average), curvature.
    """
    norms = space.norms(X).detach().cpu().numpy()
    relative = norms / np.maximum(norms.mean(0, keepdims=True), 1e-12)
    names = np.asarray(labels)
    kinds = np.unique(names)
    means = np.stack([relative[names == kind].mean(0) for kind in kinds])  # (labels, k)
    curv = getattr(space, "curv", None)
    return [
        {
            "factor": f,
            "label": kinds[means[:, f].argmax()].item(),
            "lead": float(means[:, f].max()),
            "curvature": -float(curv[f]) if curv is not None else 0.0,
        }
        for f in range(space.k)
    ]
