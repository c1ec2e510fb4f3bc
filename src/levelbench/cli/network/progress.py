"""Says on standard error how far a benchmark of networks is."""

from __future__ import annotations

from levelbench.cli.progress_line import ProcessProgress
from levelbench.experiments.networks import NetworkPlan, NetworkWatcher
from levelbench.experiments.replicates import Replicate
from levelbench.records.networks import NetworkSpecification
from levelbench.report.networks import arm_label, case_label

__all__ = ["NetworkProgress"]


class NetworkProgress(ProcessProgress, NetworkWatcher):
    """Which network is measured at which batch, and where."""

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__()
        self._plan = plan

    def ceilings(self, framework: str) -> None:
        """Said everywhere: it takes a few seconds."""
        self.say(f"measuring the ceilings with {framework}")

    def reference(self, specification: NetworkSpecification) -> None:
        """Said everywhere: it takes a while for a large network."""
        self.say(f"computing the reference of {specification.case.title}")

    def _what(self, step: Replicate) -> str:
        found = self._plan.specification(step)
        return f"{found.case.name} {case_label(found.case)} on {arm_label(found.arm)}"
