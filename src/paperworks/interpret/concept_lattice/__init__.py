"""Concept lattices from the geometry of embeddings.

Paper: "The Lattice Representation Hypothesis of Large Language Models", Bo Xiong, ICLR 2026, arXiv 2603.01227. If an
attribute is a direction with a threshold, it is a half-space, and an object has the attribute when its embedding lies
inside. Who has what is then a formal context in the sense of Formal Concept Analysis, and its concepts, intersections
of half-spaces, form a complete lattice with meets and joins.

What is here:
    `AttributeDirections`: directions and thresholds of many attributes at once, a scikit-learn multilabel classifier;
        `canonical_shift`, `CausalWhitening`, `embed_terms`.
    `FormalContext`, `ConceptLattice`: contexts and lattices on bit sets, by In-Close or NextClosure, with a least
        support; to networkx, `concepts` and fcapy; `draw_lattice`.
    `duquenne_guigues`, `consequences`, `confidence`: the smallest base of implications, and what follows from it.
    `ConceptProfile`, `soft_inclusion`, `soft_equivalence`, `meet`, `join`, `Region`, `HalfSpaceSpace`: the soft algebra
        of concepts, in the paper's convention and in that of Formal Concept Analysis.
    `wordnet_domain`, `WordNet`: nouns, and attributes that lexicographers wrote, from WordNet's files.

Example:
    >>> import numpy as np
    >>> from paperworks.interpret.concept_lattice import AttributeDirections, ConceptLattice, FormalContext
    >>> rng = np.random.default_rng(0)
    >>> V = rng.normal(size=(200, 16))  # embeddings of objects
    >>> I = V[:, :4] + 0.1 * rng.normal(size=(200, 4)) > 0  # labels: who has which attribute
    >>> model = AttributeDirections().fit(V[:150], I[:150])
    >>> bool((model.predict(V[150:]) == I[150:]).mean() > 0.8)
    True
    >>> context = FormalContext(model.predict(V), attributes=["swims", "flies", "walks", "talks"])
    >>> lattice = ConceptLattice.from_context(context, min_support=20)
    >>> a, b = lattice.covers(lattice.top)[:2]
    >>> lattice.meet(a, b).intent >= a.intent | b.intent
    True

    Meets and joins of profiles, searched in a vocabulary:
    >>> from paperworks.interpret.concept_lattice import HalfSpaceSpace, meet
    >>> space = HalfSpaceSpace(model, context.attributes)
    >>> swims, flies = (space.add(name, V[I[:, m]]) for m, name in enumerate(["swimmers", "flyers"]))
    >>> _ = space.add("swimming flyers", V[I[:, 0] & I[:, 1]])
    >>> space.query(meet(swims, flies, mode="fca"), k=1, exclude=["swimmers", "flyers"])[0].name
    'swimming flyers'

Differences from the paper:
    The paper's text and code were not at hand; the method was written from summaries by others.
    Not confirmed: the frame (whitening of hidden states by the unembedding covariance; `CausalWhitening` has the other
    side of the pairing too), train and test splits, negatives for inclusion, and the length of directions: ours have
    length 1 unless `normalize=False`, so that a margin is a distance.
    The minimum for a meet and the maximum for a join are the paper's rule (`mode="paper"`). For intents it is the wrong
    way round, since a meet has more attributes: `mode="fca"` is the other one.
    A join of regions is R(Y_A n Y_B). That is the conic hull of both if the directions of Y_A u Y_B are linearly
    independent; of dependent ones (complementary attributes have antipodal directions) it may be larger.
    Attributes with few positives are refused from `min_positives` on, which is 1 unless given, as scikit-learn's checks
    want it; our study asks for 5.
    `temperature` is an addition: profiles of length 1 have inclusions near 1/2 at the paper's temperature of 1.
    The canonical shift need not exist when there are more attributes than dimensions; what is left is reported.
    Attributes in our study are not labels by GPT-4o but ancestors, parts and words of glosses in WordNet 3.1, and the
    traits of UCI Zoo. Objects of a domain are drawn at random, and splits keep nouns with a head word in common on one
    side (of the lemmas that are embedded, two at most; Latin names share a genus, their first word, across sides).
    The centroid baseline is in the plain frame, where it does better. Models are SmolLM2-135M and MiniLM in the place
    of three of 7 to 8 billion parameters.
    Implications and the picture are additions. Not here: a sweep over layers (but `embed_terms` takes one), steering.

Links: https://arxiv.org/abs/2603.01227, https://openreview.net/forum?id=5K1FG92m5s. The author has a repository, whose
address is not known to us.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
