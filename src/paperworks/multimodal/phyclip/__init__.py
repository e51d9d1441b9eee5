"""PHyCLIP: pictures and text in an l1 product of hyperbolic spaces.

Paper: "PHyCLIP: l1-Product of Hyperbolic Factors Unifies Hierarchy and Compositionality in Vision-Language
Representation Learning", Yoshikawa and Matsubara, ICLR 2026, arXiv 2510.08919. The k d numbers that an
encoder gives are cut into k factors; each goes onto a hyperboloid of its own, with a curvature that is learned, and
distances are added up. A tree fits into a factor, and a conjunction of concepts moves several factors at once, like the
bits of a Boolean lattice. Training is contrastive on distances, with entailment cones in every factor.

What is here:
    `ProductHyperbolic`: the space; `geometry.lorentz`: its operations, batched over factors.
    `PHyCLIPLoss`: the loss, in place of open_clip's ClipLoss; MERU, HyCoCLIP and CLIP are options of it.
    `PHyCLIPHead`: the space on top of an open_clip or transformers CLIP model, or of features that are frozen.
    `product_dist`: distances of all pairs in the memory of one factor.
    `HyperbolicRetriever`, `class_points`: search and zero-shot classes; factors can be muted in a query.
    `hierarchical_metrics`, `specialisation`, `factor_report`: errors in a tree of classes, what each factor carries.
    `ProductEuclidean`, `ProductMixed`, `Cosine`: the spaces it is compared with.
    `VisionEncoder`, `TextEncoder`, `TwoTowers`: encoders to train from scratch. `embed_metric`: a finite metric space
        in a space.

Example:
    >>> import torch
    >>> from paperworks.multimodal.phyclip import PHyCLIPLoss, ProductHyperbolic
    >>> space = ProductHyperbolic(k=8, d=8)
    >>> loss = PHyCLIPLoss(space)
    >>> image, text, box_image, box_text = torch.randn(4, 32, 64)
    >>> loss(image, text, box_image, box_text).shape
    torch.Size([])
    >>> points = space.lift(image, "image")
    >>> space.dist(points, space.lift(text, "text")).shape
    torch.Size([32, 32])

Differences from the paper:
    Retrieval and zero-shot classes are scored by minus the distance, as in training. The released evaluation adds up
    Lorentz inner products, which order otherwise when there are several factors: ``score="inner"`` reproduces it.
    Gradients of distances of two equal points are 0, and so is the angle at an apex in the origin of a factor.
    The Euclidean product with its own cones is an ablation of ours; how the paper's mixed-curvature product is made up
    is unconfirmed (ours: a third each of hyperbolic, Euclidean and spherical factors, no cones on the sphere).
    The muting of factors, the shortlist in the tangent space, `factor_report` and `embed_metric` are additions.
    Not here: training on GRIT, the evaluation on ImageNet, COCO, SugarCrepe and VL-CheckList. Our study trains
    projections of frozen encoders on pictures of emoji.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
