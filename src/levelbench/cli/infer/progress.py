"""Says on standard error how far an inference benchmark is."""

from __future__ import annotations

from levelbench.cli.progress_line import ProcessProgress
from levelbench.experiments.inference.processes import InferencePlan, InferenceWatcher
from levelbench.experiments.replicates import Replicate

__all__ = ["InferenceProgress"]


class InferenceProgress(ProcessProgress, InferenceWatcher):
    """Which network is measured under which scenario, and where."""

    def __init__(self, plan: InferencePlan) -> None:
        super().__init__()
        self._plan = plan

    def _what(self, step: Replicate) -> str:
        found = self._plan.specification(step)
        return f"{found.title}, {found.scenario.name} on {found.arm.title}"
