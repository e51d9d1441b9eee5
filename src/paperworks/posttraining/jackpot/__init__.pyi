from .actors import ActorPool as ActorPool
from .actors import ModelActor as ModelActor
from .actors import Rollouts as Rollouts
from .actors import StaleActor as StaleActor
from .actors import drop_layers_ as drop_layers_
from .actors import quantise_ as quantise_
from .diagnostics import Diagnosis as Diagnosis
from .diagnostics import diagnose as diagnose
from .losses import OBRS as OBRS
from .losses import PRESETS as PRESETS
from .losses import IcePop as IcePop
from .losses import LossOutput as LossOutput
from .losses import Reweighting as Reweighting
from .losses import Shift as Shift
from .losses import TruncatedIS as TruncatedIS
from .losses import group_advantages as group_advantages
from .losses import jackpot_loss as jackpot_loss
from .obrs import TopK as TopK
from .obrs import full_topk as full_topk
from .obrs import kl_divergence as kl_divergence
from .obrs import merge_topk as merge_topk
from .obrs import obrs_accept_prob as obrs_accept_prob
from .obrs import obrs_log_density as obrs_log_density
from .obrs import obrs_normalizer as obrs_normalizer
from .obrs import obrs_topk_normalizer as obrs_topk_normalizer
from .obrs import obrs_weight as obrs_weight
from .obrs import solve_batch_lambda as solve_batch_lambda
from .obrs import solve_lambda as solve_lambda
from .trainer import JackpotGRPOConfig as JackpotGRPOConfig
from .trainer import JackpotGRPOTrainer as JackpotGRPOTrainer
from .two_model_trainer import TwoModelGRPOConfig as TwoModelGRPOConfig
from .two_model_trainer import TwoModelGRPOTrainer as TwoModelGRPOTrainer
from .two_models import distillation_loss as distillation_loss
from .two_models import two_model_loss as two_model_loss

__all__ = [
    "OBRS",
    "PRESETS",
    "ActorPool",
    "Diagnosis",
    "IcePop",
    "JackpotGRPOConfig",
    "JackpotGRPOTrainer",
    "LossOutput",
    "ModelActor",
    "Reweighting",
    "Rollouts",
    "Shift",
    "StaleActor",
    "TopK",
    "TruncatedIS",
    "TwoModelGRPOConfig",
    "TwoModelGRPOTrainer",
    "diagnose",
    "distillation_loss",
    "drop_layers_",
    "full_topk",
    "group_advantages",
    "jackpot_loss",
    "kl_divergence",
    "merge_topk",
    "obrs_accept_prob",
    "obrs_log_density",
    "obrs_normalizer",
    "obrs_topk_normalizer",
    "obrs_weight",
    "quantise_",
    "solve_batch_lambda",
    "solve_lambda",
    "two_model_loss",
]
