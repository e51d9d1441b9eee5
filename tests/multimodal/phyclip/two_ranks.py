"""One of two processes of a group: the loss on its half of a batch, and the gradients; run by test_losses.py."""

import sys

import torch
from torch import distributed

from paperworks.multimodal.phyclip import PHyCLIPLoss, ProductHyperbolic


def inputs(n=6, width=12):
    return [torch.randn(n, width, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(4)]


if __name__ == "__main__":
    rank, meeting, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    loss = PHyCLIPLoss(ProductHyperbolic(4, 3).double())
    mine = [x[3 * rank : 3 * rank + 3].requires_grad_() for x in inputs()]
    value = loss(*mine)
    (value / 2).backward()  # as DistributedDataParallel averages over the ranks
    torch.save([value.detach(), *(x.grad for x in mine)], out)
    distributed.destroy_process_group()
