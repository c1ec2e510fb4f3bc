"""A claim as rules see it, whatever it was read from.

The one idea: ``None`` means that nobody stated it, and never "no". A rule that needs it answers "not stated".
"""

from __future__ import annotations

from levelbench.claims.view.claim import (
    Claim,
    Comparison,
    Composition,
    Figure,
    ScalingPoint,
    Standard,
    Summarised,
    Uncounted,
)
from levelbench.claims.view.parts import (
    ClockView,
    CurveView,
    DataView,
    HardwareView,
    Operations,
    QualityView,
    RunView,
    Setup,
    TimingView,
    TuningView,
    WorkloadView,
)
from levelbench.claims.view.side import Side

__all__ = [
    "Claim",
    "ClockView",
    "Comparison",
    "Composition",
    "CurveView",
    "DataView",
    "Figure",
    "HardwareView",
    "Operations",
    "QualityView",
    "RunView",
    "ScalingPoint",
    "Setup",
    "Side",
    "Standard",
    "Summarised",
    "TimingView",
    "TuningView",
    "Uncounted",
    "WorkloadView",
]
