"""WSM, warm-up, stable and merge: learning rate decay by averaging checkpoints afterwards.

Paper: "WSM: Decay-Free Learning Rate Schedule via Checkpoint Merging for LLM Pre-training", Changxin Tian, Jiapeng
Wang, Qian Zhao, Kunlong Chen, Jia Liu, Ziqi Liu, Jiaxin Mao, Wayne Xin Zhao, Zhiqiang Zhang, Jun Zhou, ICLR 2026, arXiv
2507.17634. Train at a constant rate and never decay. A weighted average of the last checkpoints equals, term by term,
multiplying the updates between them by falling coefficients; so each decay curve has its merge weights, and the
"annealed" model is an average that can be computed again with any curve and window.

What is here:
    `merge_weights`, `decay_curve`, `decay_from_merge`, `merge_from_decay`: weights and decay, both ways (Theorem 3.1).
    `merge_checkpoints`: averages state dicts, safetensors, torch files or Hugging Face folders, tensor by tensor.
    `CheckpointMerger`: keeps the last states of a model in training; `HierarchicalMerger`: many windows at once.
    `WSMAveragedModel`: in place of `torch.optim.swa_utils.AveragedModel`.
    `WSMCallback`: for trainers of transformers and TRL; `WSDScheduler`: the schedule that decays, as baseline.
    `fit_weights`: the best weights for given data.
    ``python -m paperworks.training.wsm RUN --curve 1-sqrt --out merged``: merges a folder, prints the implied decay.

Example:
    >>> import torch
    >>> from paperworks.training.wsm import CheckpointMerger, merge_weights
    >>> merge_weights("1-sqrt", 4).round(4).tolist()
    [0.4472, 0.1852, 0.1421, 0.1198, 0.1056]
    >>> model = torch.nn.Linear(3, 1)
    >>> optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    >>> merger = CheckpointMerger("linear", window=20, interval=5)
    >>> for step in range(1, 41):
    ...     optimiser.zero_grad()
    ...     model(torch.ones(1, 3)).square().sum().backward()
    ...     optimiser.step()
    ...     kept = merger.update(step, model)
    >>> with merger.apply_to(model) as annealed:
    ...     answer = annealed(torch.ones(1, 3))
    >>> merger.steps
    [25, 30, 35, 40]

Differences from the paper:
    The method was written from summaries by others and from the theorem; the text and code were not at hand.
    The curve is sampled at i / (k + 1), which makes "linear" the plain mean; other samplings would do.
    What a weight decay term adds to an update is decayed with it, as a decayed learning rate would.
    `HierarchicalMerger`, `fit_weights`, unequal spacing and `allow_negative` are additions.
    The identity holds along the recorded path. A run that really decays takes another path, since its gradients are
    taken elsewhere: that gap is what the study measures.
    Not here: the paper's runs (a mixture of experts of 16.3 B parameters on 10.6 T tokens, and its benchmarks).
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
