"""The algorithms: what each does with a batch, at the start of an epoch and before training.

An algorithm is a class with the hooks of `Algorithm`; a further one is a further class in `ALGORITHMS`. All work on
lanes, models trained side by side, and leave data, batches, calibration and checkpoints to `training.Run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from . import losses
from .adversary import PAN
from .alignment import PULDA
from .base import Algorithm as Algorithm
from .base import Batch as Batch
from .partial_mixup import P3MixC, P3MixE
from .propensity import PUe
from .self_paced import RobustPU
from .trends import HolisticPU

if TYPE_CHECKING:
    from .training import Run


class Simple(Algorithm):
    """A loss of the scores of both batches."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, **options: Any) -> None:
        self.options = options

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """Scores of both batches in one pass, then the loss, calibrated or not."""
        return run.risk(type(self).function, *run.scores(batch.x_p, batch.x_u), **self.options)


class Naive(Simple):
    """P against U: the trivial baseline."""

    function = staticmethod(losses.naive)


class UPU(Simple):
    """Unbiased PU learning."""

    function = staticmethod(losses.upu)


class NNPU(Simple):
    """Non-negative PU learning."""

    function = staticmethod(losses.nnpu)


class NNPUGA(Simple):
    """Non-negative PU learning with gradient ascent."""

    function = staticmethod(losses.nnpu_ga)


class PUSB(NNPU):
    """nnPU, then a threshold that calls a share pi of the population positive."""

    def threshold(self, run: Run) -> Tensor:
        """The (1 - pi) quantile of f over U; over P and U in the one-sample setting, where both are the sample."""
        return losses.pusb_threshold(run.score_population(), run.prior)


class PUbN(Algorithm):
    """A first net estimates p(y = 1 | x) by nnPU; rows of U that it finds positive are re-weighted from P."""

    def __init__(self, tau: float = 0.7, rho: float = 0.2, **options: Any) -> None:
        self.tau, self.rho, self.options = tau, rho, options

    def begin(self, run: Run) -> None:
        """Train the first net and store s of every training row."""
        run.add_net("s")
        for _ in range(run.warmup_steps):
            batch = run.draw()
            run.step(run.risk(losses.nnpu, *run.scores(batch.x_p, batch.x_u, net="s"), **self.options), "s")
        self.s_p, self.s_u = (torch.sigmoid(run.score_all(x, net="s")) for x in (run.x_p, run.x_u))
        population = torch.sigmoid(run.score_population(net="s"))
        self.eta = losses.pubn_eta(population, run.prior, self.tau, self.rho)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """PUbN's risk with s of the rows in the batch."""
        s_p, s_u = self.s_p.gather(1, batch.rows_p), self.s_u.gather(1, batch.rows_u)
        if run.puts_back_weights:
            s_u = torch.cat([s_p, s_u], dim=-1)
        scores = run.scores(batch.x_p, batch.x_u)
        return run.risk(losses.pubn, *scores, prob_p=s_p, prob_u=s_u, eta=self.eta, **self.options)


class VPU(Algorithm):
    """Variational risk with a mixup of labelled and unlabeled rows."""

    def __init__(self, mixup: float = 0.03, alpha: float = 0.3) -> None:
        self.mixup, self.alpha = mixup, alpha

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """Variational risk plus the regulariser; its partners follow the calibrated U too."""
        if not self.mixup:
            return run.risk(losses.vpu, *run.scores(batch.x_p, batch.x_u))
        share = run.beta(self.alpha)[:, None]
        other = run.partners(batch.x_p, batch.x_u)
        mixed = share[..., None] * batch.x_p + (1 - share[..., None]) * other
        f_p, f_u, f_mix, f_other = run.scores(batch.x_p, batch.x_u, mixed, other)
        return run.risk(losses.vpu, f_p, f_u) + self.mixup * losses.vpu_mixup(f_mix, f_other, share)


class CVIR(Algorithm):
    """Each epoch drops the share pi of U that looks least negative."""

    puts_back = "rows"

    def __init__(self, **options: Any) -> None:
        self.options = options

    def epoch(self, run: Run) -> Tensor:
        """Keep the most negative rows."""
        return losses.cvir_keep(run.score_all(run.x_u), run.prior)

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """Loss on the kept rows."""
        return run.risk(losses.cvir, *run.scores(batch.x_p, batch.x_u), **self.options)


class DistPU(Algorithm):
    """Label-distribution loss; after some epochs also entropy and mixup with pseudo labels.

    The entropy's weight follows ``entropy * (1 - cos(pi t / 2))`` with t the share of the late stage that is over.
    """

    def __init__(
        self,
        late: bool = True,
        warmup_epochs: int = 7,
        entropy: float = 0.004,
        mixup: float = 5.0,
        mixup_entropy: float = 0.04,
        alpha: float = 6.0,
    ) -> None:
        self.late, self.warmup_epochs = late, warmup_epochs
        self.entropy, self.mixup, self.mixup_entropy, self.alpha = entropy, mixup, mixup_entropy, alpha

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """The early loss, and what the late stage adds."""
        start = self.warmup_epochs * run.epoch_steps
        if not self.late or run.done < start:
            return run.risk(losses.dist_pu, *run.scores(batch.x_p, batch.x_u))
        x = torch.cat([batch.x_p, run.partners(batch.x_p, batch.x_u)], dim=1)
        order = run.permutation(x.shape[1])
        share = run.beta(self.alpha)[:, None]
        mixed = share[..., None] * x + (1 - share[..., None]) * x.gather(1, order[..., None].expand_as(x))
        f_p, f_u, f_mix, f = run.scores(batch.x_p, batch.x_u, mixed, x)
        label = torch.sigmoid(f.detach())
        label[:, : batch.x_p.shape[1]] = 1
        target = share * label + (1 - share) * label.gather(1, order)
        over = (run.done - start) / max(1, run.max_steps - start)
        entropy = self.entropy * (1 - math.cos(math.pi / 2 * over))
        return (
            run.risk(losses.dist_pu, f_p, f_u)
            + entropy * losses.binary_entropy(f).mean(dim=-1)
            + self.mixup * losses.soft_ce(f_mix, target).mean(dim=-1)
            + self.mixup_entropy * losses.binary_entropy(f_mix).mean(dim=-1)
        )


class Count(Algorithm):
    """Likelihood of the number of positives in an unlabeled batch, with clipped gradients: it sums over the batch."""

    puts_back = "rows"

    def __init__(self, largest_gradient: float | None = 10.0) -> None:
        self.largest_gradient = largest_gradient

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """CountLoss of the batch."""
        return run.risk(losses.count_loss, *run.scores(batch.x_p, batch.x_u))


class GLWS(Algorithm):
    """Soft labels given the number of positives in an unlabeled batch."""

    puts_back = "rows"

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """GLWS's loss of the batch."""
        return run.risk(losses.glws, *run.scores(batch.x_p, batch.x_u))


class LBE(Algorithm):
    """EM over the hidden class and the labelling, one gradient step on two nets for each M-step."""

    puts_back = "never"
    nets = ("main", "label")

    def begin(self, run: Run) -> None:
        """Train h to tell P from U."""
        run.add_net("label")
        for _ in range(run.warmup_steps):
            batch = run.draw()
            run.step(losses.naive(*run.scores(batch.x_p, batch.x_u)), "main")

    def loss(self, run: Run, batch: Batch) -> Tensor:
        """E-step and loss of the M-step; P and U weigh what they weigh in the data."""
        x = torch.cat([batch.x_p, batch.x_u], dim=1)
        (f,), (f_label,) = run.scores(x), run.scores(x, net="label")
        labelled = torch.zeros(f.shape[-1], dtype=torch.bool, device=f.device)
        labelled[: batch.x_p.shape[1]] = True
        weights = losses.union_weights(batch.x_p.shape[1], batch.x_u.shape[1], run.labelled_share).to(f)
        return losses.lbe(f, f_label, losses.lbe_posterior(f, f_label, labelled), labelled, weights)


ALGORITHMS: Mapping[str, type[Algorithm]] = MappingProxyType(
    {
        "naive": Naive,
        "upu": UPU,
        "nnpu": NNPU,
        "nnpu_ga": NNPUGA,
        "pusb": PUSB,
        "pubn": PUbN,
        "vpu": VPU,
        "cvir": CVIR,
        "dist_pu": DistPU,
        "count": Count,
        "glws": GLWS,
        "lbe": LBE,
        "pue": PUe,
        "holistic_pu": HolisticPU,
        "pulda": PULDA,
        "pan": PAN,
        "p3mix_e": P3MixE,
        "p3mix_c": P3MixC,
        "robust_pu": RobustPU,
    }
)
