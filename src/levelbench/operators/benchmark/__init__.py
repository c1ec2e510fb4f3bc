"""Measures problems on a framework: time, operations, bytes, and how far the result is from the reference.

What is measured is checked first, and a time of a wrong result is shown as wrong.
"""

from __future__ import annotations

from levelbench.operators.benchmark.measuring import TrialSettings, backend_ceilings, measure_problem, merged

__all__ = ["TrialSettings", "backend_ceilings", "measure_problem", "merged"]
