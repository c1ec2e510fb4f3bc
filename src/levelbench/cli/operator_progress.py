"""Says on standard error how far a benchmark of operators is."""

from __future__ import annotations

import shutil
import sys
from typing import Any, Self

import click

from levelbench.cli import options as shared
from levelbench.records.benchmarks import Case
from levelbench.runner.benchmarks import BenchmarkPlan, BenchmarkWatcher, Replicate

__all__ = ["Progress"]


class Progress(BenchmarkWatcher):
    """One line that is rewritten on a terminal; elsewhere a plain line a process."""

    def __init__(self, plan: BenchmarkPlan) -> None:
        self._plan = plan
        self._at, self._total, self._count = 0, 0, 0
        self._bad: dict[str, int] = {}
        self._live = bool(sys.stderr is not None and sys.stderr.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._put("\r\x1b[2K", newline=False)

    def ceilings(self, framework: str) -> None:
        """Said everywhere: it takes a few seconds."""
        self._line(f"measuring the ceilings with {framework}")

    def started(self, step: Replicate, at: int, total: int) -> None:
        """A process begins."""
        self._at, self._total, self._count, self._bad = at, total, 0, {}
        self._line(self._where(step))

    def case(self, step: Replicate, case: Case) -> None:
        """On a terminal, how many problems are done and what is next."""
        self._count += 1
        if case.status != "measured":
            self._bad[case.status] = self._bad.get(case.status, 0) + 1
        if self._live:
            problems = self._plan.arms[step.arm].problems
            following = f" · {problems[self._count].name}" if self._count < len(problems) else ""
            self._line(f"{self._where(step)} · {self._count} of {len(problems)}{self._found()}{following}")

    def finished(self, step: Replicate) -> None:
        """What the process did not measure, where there is any."""
        if self._bad and not self._live:
            self._line(f"{self._where(step)}: done{self._found()}")

    def _where(self, step: Replicate) -> str:
        return f"{self._at}/{self._total} {self._plan.arms[step.arm].framework}, process {step.seed + 1}"

    def _found(self) -> str:
        return "".join(f" · {count} {status}" for status, count in self._bad.items())

    def _line(self, text: str) -> None:
        if self._live:
            self._put("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1], newline=False)
        else:
            self._put(text, newline=True)

    def _put(self, text: str, newline: bool) -> None:
        with shared.as_far_as_read(err=True):
            click.echo(text, err=True, nl=newline)
