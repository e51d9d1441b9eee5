from .adversary import pan_classifier as pan_classifier
from .adversary import pan_discriminator as pan_discriminator
from .algorithms import ALGORITHMS as ALGORITHMS
from .algorithms import Algorithm as Algorithm
from .alignment import margin_loss as margin_loss
from .alignment import pulda as pulda
from .alignment import softplus_distance as softplus_distance
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
from .partial_mixup import elr as elr
from .partial_mixup import p3mix as p3mix
from .partial_mixup import p3mix_pool as p3mix_pool
from .partial_mixup import p3mix_unsure as p3mix_unsure
from .prior import estimate_prior as estimate_prior
from .prior import mixture_share as mixture_share
from .prior import shift_prior as shift_prior
from .propensity import inverse_propensity_weights as inverse_propensity_weights
from .propensity import pue as pue
from .propensity import pue_propensity as pue_propensity
from .self_paced import paced_threshold as paced_threshold
from .self_paced import robust_pu as robust_pu
from .self_paced import self_paced_weights as self_paced_weights
from .trends import fisher_break as fisher_break
from .trends import holistic_pu as holistic_pu
from .trends import holistic_warmup as holistic_warmup
from .trends import trend_labels as trend_labels
from .trends import trend_score as trend_score

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
    "elr",
    "estimate_prior",
    "fisher_break",
    "fit_together",
    "glws",
    "holistic_pu",
    "holistic_warmup",
    "inverse_propensity_weights",
    "lbe",
    "lbe_posterior",
    "make_pu",
    "margin_loss",
    "mixture_share",
    "naive",
    "nnpu",
    "nnpu_ga",
    "oracle_accuracy",
    "p3mix",
    "p3mix_pool",
    "p3mix_unsure",
    "paced_threshold",
    "pan_classifier",
    "pan_discriminator",
    "prior_sensitivity",
    "proxy_accuracy",
    "proxy_auc",
    "pubn",
    "pubn_eta",
    "pue",
    "pue_propensity",
    "pulda",
    "pusb_threshold",
    "robust_pu",
    "run_benchmark",
    "self_paced_weights",
    "shift_prior",
    "softplus_distance",
    "trend_labels",
    "trend_score",
    "upu",
    "vpu",
    "vpu_mixup",
]
