"""Checks of operators: outputs against references, gradients against finite differences, and memory behaviour."""

from __future__ import annotations

from levelbench.checks.arrays import Errors, Tolerance, errors, tolerance_for
from levelbench.checks.findings import Finding, Report
from levelbench.operators.probes.check import check_operator
from levelbench.operators.probes.forward import Repeatability, check_forward, repeatability
from levelbench.operators.probes.gradients import check_gradient
from levelbench.operators.probes.slopes import GradientReport, InputGradient

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
