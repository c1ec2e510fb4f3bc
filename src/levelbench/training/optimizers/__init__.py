"""Optimizers, written once for the arrays of every framework.

An augmented assignment (``velocity *= 0.9``) works in place on NumPy and PyTorch arrays and rebinds the name on
immutable ones. As a rule returns its result either way, the same lines serve all of them.
"""

from levelbench.training.optimizers.base import Optimizer, Stepper, UpdateRule
from levelbench.training.optimizers.layerwise import LAMB, LARS, Adafactor, Muon, Shampoo
from levelbench.training.optimizers.rules import (
    SGD,
    AcceleGrad,
    Adadelta,
    AdaGrad,
    Adam,
    AdamW,
    AveragingRule,
    Lion,
    Momentum,
    NAdam,
    RMSProp,
    ScheduleFreeAdamW,
    ScheduleFreeSGD,
)
from levelbench.training.optimizers.wrappers import EMA, Clip, ClipValue, Decay, Groups, Native

__all__ = [
    "EMA",
    "LAMB",
    "LARS",
    "SGD",
    "AcceleGrad",
    "AdaGrad",
    "Adadelta",
    "Adafactor",
    "Adam",
    "AdamW",
    "AveragingRule",
    "Clip",
    "ClipValue",
    "Decay",
    "Groups",
    "Lion",
    "Momentum",
    "Muon",
    "NAdam",
    "Native",
    "Optimizer",
    "RMSProp",
    "ScheduleFreeAdamW",
    "ScheduleFreeSGD",
    "Shampoo",
    "Stepper",
    "UpdateRule",
]
