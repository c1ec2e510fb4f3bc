"""Optimizers, written once for the arrays of every framework.

An augmented assignment (``velocity *= 0.9``) works in place on NumPy and PyTorch arrays and rebinds the name on
immutable ones. As a rule returns its result either way, the same lines serve all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from levelbench.training.optimizers.base import Optimizer, Stepper, UpdateRule
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

if TYPE_CHECKING:
    from levelbench.training.optimizers.layerwise import LAMB, LARS, Adafactor, Muon, Shampoo

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

_LAYERWISE = ("LAMB", "LARS", "Adafactor", "Muon", "Shampoo")


def __getattr__(name: str) -> Any:
    # Few recipes use them, and a run loads nothing that it does not use.
    if name not in _LAYERWISE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.layerwise"), name)
