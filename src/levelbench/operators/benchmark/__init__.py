"""Measures problems on a framework: time, operations, bytes, and how far the result is from the reference.

The one idea: what is measured is checked first, and a time of a wrong result is shown as wrong.
"""

from __future__ import annotations

from levelbench.operators.benchmark.ceilings import backend_ceilings, merged
from levelbench.operators.benchmark.measuring import Limits, measure_problem

__all__ = ["Limits", "backend_ceilings", "measure_problem", "merged"]
