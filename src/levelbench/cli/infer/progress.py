"""Says on standard error how far an inference benchmark is."""

from __future__ import annotations

from levelbench.cli.progress_line import ProgressLine
from levelbench.records.inference import InferenceOutcome
from levelbench.runner.inference.processes import InferencePlan, InferenceWatcher
from levelbench.runner.replicates import Replicate

__all__ = ["Progress"]


class Progress(ProgressLine, InferenceWatcher):
    """On a terminal also the stage that a process is at; elsewhere a plain line a process."""

    def __init__(self, plan: InferencePlan) -> None:
        super().__init__()
        self._plan = plan
        self._at, self._total = 0, 0

    def started(self, step: Replicate, at: int, total: int) -> None:
        """A process begins."""
        self._at, self._total = at, total
        self.say(self._where(step))

    def stage(self, step: Replicate, stage: str) -> None:
        """On a terminal, what the process is at."""
        if self.live:
            self.say(f"{self._where(step)} · {stage}")

    def finished(self, step: Replicate, outcome: InferenceOutcome) -> None:
        """Elsewhere, what went otherwise than it should."""
        if outcome.status != "measured" and not self.live:
            self.say(f"{self._where(step)}: {outcome.status}: {outcome.reason}")

    def _where(self, step: Replicate) -> str:
        found = self._plan.specification(step)
        what = f"{found.title}, {found.scenario.name} on {found.arm.title}"
        return f"{self._at}/{self._total} {what}, process {step.seed + 1}"
