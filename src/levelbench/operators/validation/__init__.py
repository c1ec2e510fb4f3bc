"""Validation that fails: operators against references, gradients against differences, and what else a right one does.

The one idea: a check raises or is silent for a reason that it can name: what, where, how much, against which tolerance,
and why that tolerance. What it could not look at is said too.
"""

from __future__ import annotations

from levelbench.operators.validation.check import check_operator
from levelbench.operators.validation.findings import Finding, Report
from levelbench.operators.validation.forward import check_forward
from levelbench.operators.validation.gradient import GradientReport, InputGradient, check_gradient
from levelbench.operators.validation.metrics import Errors, errors
from levelbench.operators.validation.repeatability import Repeatability, repeatability
from levelbench.operators.validation.tolerances import Tolerance, tolerance_for

__all__ = [
    "Errors",
    "Finding",
    "GradientReport",
    "InputGradient",
    "Repeatability",
    "Report",
    "Tolerance",
    "check_forward",
    "check_gradient",
    "check_operator",
    "errors",
    "repeatability",
    "tolerance_for",
]
