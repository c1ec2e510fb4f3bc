"""Learning-rate schedules: a factor on the optimizer's base rate."""

from levelbench.training.schedules.base import Schedule, has_fixed_length
from levelbench.training.schedules.curved import Cosine, InverseSquareRoot, OneCycle, Polynomial
from levelbench.training.schedules.straight import Constant, PiecewiseLinear, Step, Trapezoid
from levelbench.training.schedules.warmup import Warmup

__all__ = [
    "Constant",
    "Cosine",
    "InverseSquareRoot",
    "OneCycle",
    "PiecewiseLinear",
    "Polynomial",
    "Schedule",
    "Step",
    "Trapezoid",
    "Warmup",
    "has_fixed_length",
]
