"""Optimizers, written once for every framework's arrays.

The one idea: an augmented assignment (``velocity *= 0.9``) works in place on NumPy and PyTorch arrays and rebinds the
name on immutable ones, and a rule returns what it was given either way, so the same lines serve all of them.
"""

from levelbench.training.optimizers.accelegrad import AcceleGrad
from levelbench.training.optimizers.adafactor import Adafactor
from levelbench.training.optimizers.adam import Adam, AdamW, NAdam
from levelbench.training.optimizers.adaptive import Adadelta, AdaGrad, RMSProp
from levelbench.training.optimizers.averaging import AveragingRule
from levelbench.training.optimizers.base import Optimizer, Stepper, UpdateRule
from levelbench.training.optimizers.groups import Groups
from levelbench.training.optimizers.layerwise import LAMB, LARS
from levelbench.training.optimizers.lion import Lion
from levelbench.training.optimizers.muon import Muon
from levelbench.training.optimizers.native import Native
from levelbench.training.optimizers.schedule_free import ScheduleFreeAdamW, ScheduleFreeSGD
from levelbench.training.optimizers.sgd import SGD, Momentum
from levelbench.training.optimizers.shampoo import Shampoo
from levelbench.training.optimizers.wrappers import EMA, Clip, ClipValue, Decay

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
