"""A search over a frozen corpus: BM25, dense or both, with as much noise as asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .documents import Document, digest, load_documents, save_documents

Mode = Literal["bm25", "dense", "hybrid"]
Variant = Literal["lucene", "robertson", "atire", "bm25+", "bm25l"]
Encoder = Callable[[list[str]], Any]
MODES = ("bm25", "dense", "hybrid")
_TOKEN = re.compile(r"[^\W_]+")
_STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "both",
        "by",
        "for",
        "from",
        "had",
        "has",
        "have",
        "how",
        "in",
        "is",
        "it",
        "its",
        "of",
        "on",
        "or",
        "that",
        "the",
        "their",
        "there",
        "this",
        "to",
        "was",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "will",
        "with",
    ]
)


def tokenize(text: str) -> list[str]:
    """Words and numbers of a text, lower case, without function words; 12,100 is one token."""
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower())
    return [token for token in _TOKEN.findall(plain) if token not in _STOP]


class NoisySearchIndex:
    """Searches pages; a plain class, usable without Inspect.

    Scores are those of BM25 (bm25s), cosines of an encoder, or for "hybrid" the mean of both after each was scaled to
    0..1 over all pages. Noise adds to scores scaled to 0..1 over the candidates, so that a noise of 0.2 can lift a page
    by a fifth of the best page's lead over the worst; each call draws it anew.

    Args:
        docs: The pages.
        mode: "bm25", "dense" or "hybrid".
        noise: Standard deviation of what is added to scaled scores; 0 leaves the ranking alone.
        encoder: For "dense" and "hybrid": a callable that maps a list of n texts to an array (n, width), such as the
            `encode` of a sentence-transformers model.
        variant: The formula of BM25, as bm25s names it.
        k1: Saturation of term frequency.
        b: Weight of document length, from 0 to 1.

    Raises:
        ValueError: No pages, an unknown mode, a negative noise, an encoder missing, or ids that are not unique.
    """

    def __init__(
        self,
        docs: Sequence[Document],
        mode: Mode = "bm25",
        noise: float = 0.0,
        *,
        encoder: Encoder | None = None,
        variant: Variant = "lucene",
        k1: float = 1.5,
        b: float = 0.75,
    ) -> None:
        if not docs:
            raise ValueError("docs is empty; allowed are one page or more")
        if mode not in MODES:
            raise ValueError(f"mode={mode!r}; allowed are {', '.join(map(repr, MODES))}")
        if not noise >= 0:
            raise ValueError(f"noise={noise}; allowed is 0 or more")
        if mode != "bm25" and encoder is None:
            raise ValueError(f"mode={mode!r} needs encoder, a callable from a list of texts to vectors")
        self.docs = tuple(docs)
        self.mode = mode
        self.noise = float(noise)
        self.digest = digest(docs)
        self._place = {document.id: i for i, document in enumerate(self.docs)}
        if len(self._place) != len(self.docs):
            raise ValueError(f"docs has {len(self.docs) - len(self._place)} repeated ids; allowed are unique ones")
        self._encoder = encoder
        texts = [f"{document.title}. {document.text}" for document in self.docs]
        if mode != "dense":
            import bm25s

            self._bm25 = bm25s.BM25(method=variant, idf_method=variant, k1=k1, b=b)
            self._bm25.index([tokenize(text) for text in texts], show_progress=False)
        if mode != "bm25":
            self._vectors = self._unit(texts)

    @classmethod
    def load(cls, path: str | Path, mode: Mode = "bm25", noise: float = 0.0, **options: Any) -> NoisySearchIndex:
        """Opens a frozen corpus.

        Args:
            path: A file of `save`.
            mode: As for the class.
            noise: As for the class.
            **options: Further arguments of the class.
        """
        return cls(load_documents(path), mode, noise, **options)

    def save(self, folder: str | Path) -> Path:
        """Freezes the pages in a file that is named for their digest, and returns it."""
        return save_documents(self.docs, folder)

    def scores(self, query: str) -> npt.NDArray[np.float64]:
        """Scores of all pages for a query, without noise, shape (docs,)."""
        if self.mode == "bm25":
            return self._sparse(query)
        dense = self._vectors @ self._unit([query])[0]
        if self.mode == "dense":
            return dense
        return (_scaled(self._sparse(query)) + _scaled(dense)) / 2

    def search(
        self,
        query: str,
        k: int = 5,
        *,
        among: Sequence[Document] | None = None,
        rng: np.random.Generator | None = None,
    ) -> list[Document]:
        """Finds the best pages.

        Args:
            query: Any text.
            k: How many pages at most.
            among: Only these, which must be in the index; all when not given. Word frequencies are always those of
                the whole corpus.
            rng: Where noise comes from; needed when `noise` is above 0.

        Returns:
            Up to k pages, best first; ties keep their order.
        """
        if k < 1:
            raise ValueError(f"k={k}; allowed is 1 or more")
        places = np.arange(len(self.docs)) if among is None else np.array([self._place[d.id] for d in among], dtype=int)
        return self.ranked(self.scores(query), places, rng)[:k]

    def ranked(
        self, scores: npt.NDArray[np.float64], places: npt.NDArray[Any], rng: np.random.Generator | None = None
    ) -> list[Document]:
        """Sorts the pages at some places by scores that are known already, noise added.

        Args:
            scores: From `scores`, shape (docs,).
            places: Rows of `docs` to sort.
            rng: Where noise comes from.
        """
        if not len(places):
            return []
        own = scores[places]
        if self.noise:
            if rng is None:
                raise ValueError(f"noise={self.noise} needs rng, a numpy Generator")
            own = _scaled(own) + self.noise * rng.standard_normal(len(own))
        return [self.docs[places[i]] for i in np.argsort(-own, kind="stable")]

    def places(self, documents: Sequence[Document]) -> npt.NDArray[np.int64]:
        """Rows at which pages stand in `docs`."""
        return np.array([self._place[document.id] for document in documents], dtype=np.int64)

    def _sparse(self, query: str) -> npt.NDArray[np.float64]:
        known = [token for token in tokenize(query) if token in self._bm25.vocab_dict]
        if not known:
            return np.zeros(len(self.docs))
        return np.asarray(self._bm25.get_scores(known), dtype=np.float64)

    def _unit(self, texts: list[str]) -> npt.NDArray[np.float64]:
        assert self._encoder is not None
        vectors = np.asarray(self._encoder(texts), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise ValueError(
                f"encoder gave shape {vectors.shape} for {len(texts)} texts; expected ({len(texts)}, width)"
            )
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _scaled(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    span = scores.max() - scores.min()
    return (scores - scores.min()) / span if span > 0 else np.zeros_like(scores)
