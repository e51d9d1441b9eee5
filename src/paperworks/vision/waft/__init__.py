"""WAFT: optical flow by warping alone, without a cost volume.

Paper: "WAFT: Warping-Alone Field Transforms for Optical Flow", Yihan Wang, Jia Deng, ICLR 2026, arXiv 2506.21526. A
RAFT-like network looks similarities up in a volume of all pairs, which is so large that it is kept at 1/8 of the
resolution. WAFT warps the second frame's features by the current flow instead: one vector a pixel, at 1/2. What is
lost, the search among far candidates, is left to a transformer as the recurrent update.

What is here:
    `WAFT`: the network, with any frozen encoder (`Encoder`), every update (ViT with a DPT head, ConvGRU, ResNet) and
        every way to read the second frame (`INDEXING`: warp, no warp, picture warp, all pairs, local volume) of the
        paper's ablations; `predict` resizes and tiles. `RAFT`: RAFT and SEA-RAFT on the same trunk.
    `backward_warp`, `convex_upsample`, `mixture_laplace_nll`, `sequence_loss`, `occlusion_mask`: its parts.
    `epe`, `px_outlier`, `fl_all`, `wauc`, `displacement_report`, `motion_boundary`: errors of a flow.
    `FlowUncertainty`, `calibrate`: the mixture as an expected error, confidences and quantiles, and their calibration.
    `SyntheticFlowDataset`, `make_pair`: training pairs with exact flow and occlusions from photographs; `fit` trains.
    `official_waft`, `load_official`: the authors' configuration, and their checkpoints in it; `load_vit_blocks` and
        `load_resnet_stages` start from ImageNet weights.
    `read_flo`, `write_flo`, `read_kitti_png`, `write_kitti_png`, `flow_to_image`; `CLASSICAL`: DIS, Farneback, TV-L1
        and iterative Lucas-Kanade; `WAFTPtlflow`: the dictionaries of ptlflow.

Example:
    >>> import torch
    >>> from paperworks.vision.waft import WAFT, sequence_loss
    >>> model = WAFT(update="vit_micro", iters=2, side_widths=(16, 24, 32), side_blocks=1)
    >>> first, second = 255 * torch.rand(2, 1, 3, 90, 120)
    >>> model.predict(first, second).shape
    torch.Size([1, 2, 90, 120])

    A training step:
    >>> truth = torch.zeros(1, 2, 90, 120)
    >>> out = model(first, second, flow_gt=truth)
    >>> sequence_loss(out.nll, truth).backward()

Differences from the paper:
    The paper's text was not at hand. The method follows the authors' code (the variant DAv2-a1); numbers of tables come
    from summaries by others. What that code does not hold is unconfirmed: the Twins and DINOv3 encoders are not here
    (any module with `out_channels`, `stride` and `forward` can be `backbone`); `adaptation="a2"` is our reading of it;
    the ConvGRU and ResNet updates, the context encoder, the warp at 1/4 and 1/8 (features pooled, patches of the update
    smaller, so that tokens stay at 1/16) are ours, after RAFT and SEA-RAFT.
    Pictures are padded by replication to the least multiple that the modules need. The authors add zeros after
    normalisation, with a margin even where none is needed: `padding="zeros"`. Their DPT head resizes its map to 14/8 of
    the size and back, a leftover of the backbone's patches: `detour=14`. `official_waft` has both, since their weights
    were trained so.
    The flow head's last layer starts with 0.01 of torch's weights (`head_scale`), which helps small trainings.
    The positions of the update's tokens are resized by size, not by factor, which can round to a row too few. NaN in a
    sparse truth is taken out of the loss before anything is multiplied.
    Tiles have the authors' weights and steps; pictures with both sides at 16 pixels or more are taken.
    The generator, classical peers, calibration, `flow_init`, `occlusion_mask` and the ptlflow adapter are additions.
    `vit_micro` is a size of ours, for a laptop.
    Training does not fit a laptop: a prototype of ours was no better than no motion after a few hundred steps. What the
    paper says on accuracy is tested overnight or at its own scale, and only if the full model has then learnt to match
    (`gain`). The study trains without oneDNN, which crashes beside the wheel of OpenCV 5, and so more slowly.
    Memory, operations and reach are tested on a laptop, the first two at the paper's own sizes.
    Not here: the paper's training sets and their augmentations, ONNX files, and the
    caching of frozen features, since pairs are fresh at every step.
"""

from paperworks._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
