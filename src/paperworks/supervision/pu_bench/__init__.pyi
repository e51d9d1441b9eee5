from .algorithms import ALGORITHMS as ALGORITHMS
from .algorithms import Algorithm as Algorithm
from .benchmark import BenchmarkConfig as BenchmarkConfig
from .benchmark import run_benchmark as run_benchmark
from .data import PUData as PUData
from .data import make_pu as make_pu
from .learner import PULearner as PULearner
from .learner import SettingWarning as SettingWarning
from .learner import fit_together as fit_together
from .learner import prior_sensitivity as prior_sensitivity
from .losses import calibrated as calibrated
from .losses import count_log_prob as count_log_prob
from .losses import count_loss as count_loss
from .losses import count_posterior as count_posterior
from .losses import cvir as cvir
from .losses import cvir_keep as cvir_keep
from .losses import dist_pu as dist_pu
from .losses import glws as glws
from .losses import lbe as lbe
from .losses import lbe_posterior as lbe_posterior
from .losses import naive as naive
from .losses import nnpu as nnpu
from .losses import nnpu_ga as nnpu_ga
from .losses import pubn as pubn
from .losses import pubn_eta as pubn_eta
from .losses import pusb_threshold as pusb_threshold
from .losses import upu as upu
from .losses import vpu as vpu
from .losses import vpu_mixup as vpu_mixup
from .metrics import oracle_accuracy as oracle_accuracy
from .metrics import proxy_accuracy as proxy_accuracy
from .metrics import proxy_auc as proxy_auc
from .prior import estimate_prior as estimate_prior
from .prior import mixture_share as mixture_share
from .prior import shift_prior as shift_prior

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "BenchmarkConfig",
    "PUData",
    "PULearner",
    "SettingWarning",
    "calibrated",
    "count_log_prob",
    "count_loss",
    "count_posterior",
    "cvir",
    "cvir_keep",
    "dist_pu",
    "estimate_prior",
    "fit_together",
    "glws",
    "lbe",
    "lbe_posterior",
    "make_pu",
    "mixture_share",
    "naive",
    "nnpu",
    "nnpu_ga",
    "oracle_accuracy",
    "prior_sensitivity",
    "proxy_accuracy",
    "proxy_auc",
    "pubn",
    "pubn_eta",
    "pusb_threshold",
    "run_benchmark",
    "shift_prior",
    "upu",
    "vpu",
    "vpu_mixup",
]
