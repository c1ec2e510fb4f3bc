"""Says on standard error how far a benchmark of operators is."""

from __future__ import annotations

from levelbench.cli.progress_line import ProgressLine
from levelbench.experiments.operator import BenchmarkPlan, BenchmarkWatcher
from levelbench.experiments.replicates import Replicate
from levelbench.records.benchmarks import Case

__all__ = ["OperatorProgress"]


class OperatorProgress(ProgressLine, BenchmarkWatcher):
    """One line that is rewritten on a terminal; elsewhere a plain line a process."""

    def __init__(self, plan: BenchmarkPlan) -> None:
        super().__init__()
        self._plan = plan
        self._at, self._total, self._count = 0, 0, 0
        self._bad: dict[str, int] = {}

    def ceilings(self, framework: str) -> None:
        """Said everywhere: it takes a few seconds."""
        self.say(f"measuring the ceilings with {framework}")

    def started(self, step: Replicate, at: int, total: int) -> None:
        """A process begins."""
        self._at, self._total, self._count, self._bad = at, total, 0, {}
        self.say(self._where(step))

    def case(self, step: Replicate, case: Case) -> None:
        """On a terminal, how many problems are done and what is next."""
        self._count += 1
        if case.status != "measured":
            self._bad[case.status] = self._bad.get(case.status, 0) + 1
        if self.live:
            problems = self._plan.specification(step).problems
            following = f" · {problems[self._count].name}" if self._count < len(problems) else ""
            self.say(f"{self._where(step)} · {self._count} of {len(problems)}{self._found()}{following}")

    def finished(self, step: Replicate) -> None:
        """What the process did not measure, where there is any."""
        if self._bad and not self.live:
            self.say(f"{self._where(step)}: done{self._found()}")

    def _where(self, step: Replicate) -> str:
        return f"{self._at}/{self._total} {self._plan.specification(step).framework}, process {step.seed + 1}"

    def _found(self) -> str:
        return "".join(f" · {count} {status}" for status, count in self._bad.items())
