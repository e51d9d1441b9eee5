"""Finding the nearest points, and classes by their prompts."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .spaces import Gain, _Space


class Found(NamedTuple):
    """What a query found.

    Attributes:
        indices: Rows of the index, best first (queries, top).
        scores: Their scores (queries, top).
    """

    indices: Tensor
    scores: Tensor


def class_points(space: _Space, prompts: Tensor, gain: Gain = "text") -> Tensor:
    """Points of classes: the mean of the unlifted features of a class's prompts, lifted.

    Args:
        space: The space.
        prompts: Features (classes, prompts, k d).
        gain: The modality of the prompts.

    Returns:
        Points (classes, k, d).
    """
    if prompts.dim() != 3:
        raise ValueError(f"prompts has shape {tuple(prompts.shape)}: (classes, prompts, {space.width}) is needed")
    return space.lift(prompts.mean(1), gain)


class HyperbolicRetriever:
    """Search by the distance of a space.

    The sum over factors is no inner product, so that indexes for inner products do not apply to it; `shortlist` takes
    the nearest in the tangent space at the origin first, where they would, and puts these in the space's order.

    Args:
        space: The space.
        score: "distance", or "inner" as the released evaluation has it (`ProductHyperbolic.score`).
        shortlist: Candidates from the tangent space that are put in order; ``None`` compares with all.
    """

    def __init__(self, space: _Space, score: str = "distance", shortlist: int | None = None) -> None:
        if score not in ("distance", "inner"):
            raise ValueError(f"score = {score!r}: 'distance' or 'inner' is needed")
        if shortlist is not None and shortlist < 1:
            raise ValueError(f"shortlist = {shortlist!r}: a whole number of at least 1, or None, is needed")
        self.space, self.kind, self.shortlist = space, score, shortlist
        self._points: Tensor | None = None

    def index(self, X: Tensor) -> "HyperbolicRetriever":
        """Make the points X (n, k, d) those that are searched; returns self."""
        self.space._check(X=X)
        self._points = X.detach()
        return self

    @torch.no_grad()
    def query(self, Q: Tensor, top: int = 10, mute: Sequence[int] = ()) -> Found:
        """The nearest of the index.

        Args:
            Q: Points (queries, k, d).
            top: Number of points wanted.
            mute: Factors that do not count: both sides are put at their origin there.

        Returns:
            Indices and scores (queries, min(top, n)).

        Raises:
            RuntimeError: Before there is an index.
            ValueError: For a factor or a number of points that does not exist.
        """
        if self._points is None:
            raise RuntimeError("nothing to search yet: call index(X) first")
        self.space._check(Q=Q)
        if top < 1:
            raise ValueError(f"top = {top!r}: a whole number of at least 1 is needed")
        for factor in mute:
            if not 0 <= factor < self.space.k:
                raise ValueError(f"mute holds factor {factor}: 0 .. {self.space.k - 1} are possible")
        X = self._points
        if len(mute):
            keep = torch.ones(self.space.k, 1, dtype=X.dtype, device=X.device)
            keep[list(mute)] = 0
            X, Q = X * keep, Q * keep
        top = min(top, len(X))
        if self.shortlist is None or self.shortlist >= len(X):
            scores, indices = self.space.score(Q, X, self.kind).topk(top, dim=1)
            return Found(indices, scores)
        flat_x, flat_q = (self._tangent(p).flatten(1) for p in (X, Q))
        near = torch.cdist(flat_q, flat_x).topk(max(top, self.shortlist), dim=1, largest=False).indices
        rows = [self.space.score(q[None], X[some], self.kind)[0].topk(top) for q, some in zip(Q, near, strict=True)]
        indices = torch.stack([some[row.indices] for row, some in zip(rows, near, strict=True)])
        return Found(indices, torch.stack([row.values for row in rows]))

    def _tangent(self, X: Tensor) -> Tensor:
        """The tangent vectors at the origin: directions with the points' norms."""
        length = X.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        return X / length * self.space.norms(X).unsqueeze(-1)
