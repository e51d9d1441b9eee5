"""QUEST: attention with keys on the unit sphere and free queries.

Paper: "QUEST: A robust attention formulation using query-modulated spherical attention", Hariprasath Govindarajan, Per
Sidén, Jacob Roll, Fredrik Lindsten, ICLR 2026, arXiv 2604.00199. An attention logit is C |q| |k| cos(q, k). The norm of
a query sets how sharp its own row is; the norm of a key lets one token draw every query, and training can exploit that.
QUEST normalises the keys, leaves the queries alone and drops the factor 1/sqrt(d).

What is here:
    `quest_attention`: the function, in place of `torch.nn.functional.scaled_dot_product_attention`; fused kernels stay.
    `QuestAttention`: the layer, in place of `torch.nn.MultiheadAttention`; `UnitKeyCache` for decoding.
    `NORMS`: the variants that the paper compares, one argument away: none, quest, q, qk, qk_hs, qk_ds,
        elliptical_quest.
    `convert_attention`, `register_quest`, `distill_attention`: QUEST in models that exist, transformers ones included.
    `AttentionProbe`: norms, logits and entropies of every layer while a model trains, with an alarm.
    `ViT`, `BiasedRetrieval`, `RetrievalModel`, `fgsm`, `pgd`, `corrupt`: what the experiments are made of.

Example:
    >>> import torch
    >>> from paperworks.layers.quest import QuestAttention
    >>> layer = QuestAttention(64, 8, batch_first=True)
    >>> x = torch.randn(2, 10, 64)
    >>> layer(x, x, x, need_weights=False)[0].shape
    torch.Size([2, 10, 64])

    In a model of yours, and in one of transformers:
    >>> from paperworks.layers.quest import convert_attention
    >>> encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 8, batch_first=True), 2)
    >>> convert_attention(encoder)(x).shape
    torch.Size([2, 10, 64])
    >>> from paperworks.layers.quest import register_quest
    >>> register_quest()  # then AutoModel.from_pretrained(..., attn_implementation="quest")

Differences from the paper:
    The paper's text and code were not at hand; the method was written from its abstract and from summaries by others.
    Not confirmed: the start value of C in `qk`, and whether it is learned there (ours: sqrt(d), learned); C = 1 in `q`;
    the start values of `qk_ds` (ours: d^(1/4) each); the order of metric and normalisation in `elliptical_quest` (ours:
    softmax(q diag(m) kbar^T), m for each sample and head).
    `eps` = 1e-6, norms in float32 for 16-bit inputs, and zeros for rows that may attend to nothing are our choices.
    The sizes of the retrieval task are ours: the paper's are not known to us. In our pilots QK normalisation does as
    well there as QUEST, which is not what the paper reports, and the cue does harm only where queries and keys are
    affine in the tokens: behind an embedding network it helps.
    `elliptical_quest` takes its metric from all tokens of a sequence, padded ones included.
    `batch_first` is False unless asked for, as in torch.
    `rescale_queries`, `distill_attention`, `AttentionProbe` and `UnitKeyCache` are additions.
    Not here: the paper's own runs (ImageNet-1k and its variants, AutoAttack, segmentation, language, graphs, time
    series, point clouds). Ours are small Vision Transformers on digits.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
