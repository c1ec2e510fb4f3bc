"""Says on standard error how far a benchmark of networks is."""

from __future__ import annotations

from levelbench.cli.progress_line import ProgressLine
from levelbench.records.networks import NetworkOutcome, NetworkSpecification
from levelbench.report.networks import arm_label, case_label
from levelbench.runner.networks import NetworkPlan, NetworkWatcher
from levelbench.runner.replicates import Replicate

__all__ = ["Progress"]


class Progress(ProgressLine, NetworkWatcher):
    """On a terminal also the stage that a process is at; elsewhere a plain line a process."""

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__()
        self._plan = plan
        self._at, self._total = 0, 0

    def ceilings(self, framework: str) -> None:
        """Said everywhere: it takes a few seconds."""
        self.say(f"measuring the ceilings with {framework}")

    def reference(self, specification: NetworkSpecification) -> None:
        """Said everywhere: it takes a while for a large network."""
        self.say(f"computing the reference of {specification.case.title}")

    def started(self, step: Replicate, at: int, total: int) -> None:
        """A process begins."""
        self._at, self._total = at, total
        self.say(self._where(step))

    def stage(self, step: Replicate, stage: str) -> None:
        """On a terminal, what the process is at."""
        if self.live:
            self.say(f"{self._where(step)} · {stage}")

    def finished(self, step: Replicate, outcome: NetworkOutcome) -> None:
        """Elsewhere, what went otherwise than it should."""
        if outcome.status != "measured" and not self.live:
            self.say(f"{self._where(step)}: {outcome.status}: {outcome.reason}")

    def _where(self, step: Replicate) -> str:
        found = self._plan.specification(step)
        case, arm = case_label(found.case), arm_label(found.arm)
        return f"{self._at}/{self._total} {found.case.name} {case} on {arm}, process {step.seed + 1}"
