from .dynamics import EffectiveDynamics as EffectiveDynamics
from .dynamics import FixedPoints as FixedPoints
from .lanes import simulate_lanes as simulate_lanes
from .optimizer import UnitGradSGD as UnitGradSGD
from .problems import Moments as Moments
from .problems import SingleIndex as SingleIndex
from .problems import SpikedTensorPCA as SpikedTensorPCA
from .simulate import Trajectory as Trajectory

__all__ = [
    "EffectiveDynamics",
    "FixedPoints",
    "Moments",
    "SingleIndex",
    "SpikedTensorPCA",
    "Trajectory",
    "UnitGradSGD",
    "simulate_lanes",
]
