"""A line of progress on standard error: rewritten on a terminal, one line after another elsewhere."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

import click

from levelbench.analysis.remaining import CurrentRun, RemainingTime
from levelbench.cli import options as shared
from levelbench.experiments.kernel import MadeRecord, Plan, Turn, Watcher
from levelbench.measure.clocks import HOST
from levelbench.report.numbers import duration_range

__all__ = ["ProcessProgress", "ProgressLine", "outcome_remark", "say_turns"]

W = TypeVar("W")
R = TypeVar("R", bound=MadeRecord)


class _Outcome(Protocol):
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...


class _Measured(Protocol):
    @property
    def outcome(self) -> _Outcome | None: ...


class ProgressLine:
    """A context for the work; the line is wiped at its end."""

    def __init__(self) -> None:
        self.live = bool(sys.stderr is not None and sys.stderr.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live:
            self._put("\r\x1b[2K", newline=False)

    def say(self, text: str) -> None:
        """Replace the line by ``text``, without what the terminal has no room for; elsewhere print it on a line."""
        if self.live:
            width = shutil.get_terminal_size().columns
            self._put("\r\x1b[2K" + textwrap.shorten(text, width - 1, placeholder=" …"), newline=False)
        else:
            self._put(text, newline=True)

    def _put(self, text: str, newline: bool) -> None:
        with shared.as_far_as_read(err=True):
            click.echo(text, err=True, nl=newline)


class ProcessProgress(ProgressLine, Watcher[R]):
    """Progress of a plan's processes: on a terminal with the stage of the current one; elsewhere one plain line each.

    ``what`` describes what an arm measures, ``remark`` what went wrong in a measurement (empty: nothing).
    """

    def __init__(self, plan: Plan[W, R], what: Callable[[W], str], remark: Callable[[R], str]) -> None:
        super().__init__()
        self._plan, self._what, self._remark = plan, what, remark
        self._at = ""
        self._remaining = RemainingTime([turn.arm for turn in plan.to_go])
        self._began_ns = HOST.now_ns()

    def preparing(self, what: str) -> None:
        """Printed everywhere: it takes a few seconds, longer for a large network."""
        self.say(what)

    def started(self, turn: Turn, number: int, total: int) -> None:
        """A process begins."""
        self._began_ns = HOST.now_ns()
        left_s = self._remaining.range_s(CurrentRun(turn.arm))
        left = "" if left_s is None else f" · {duration_range(*left_s)} left"
        self._at = f"{number}/{total} {self._what(self._plan.arms[turn.arm])}, process {turn.seed + 1}{left}"
        self.say(self._at)

    def progress(
        self,
        turn: Turn,
        stage: str,
        elapsed_s: float = 0.0,
        events: Sequence[object] = (),
        steps: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """On a terminal, the stage of the process."""
        if self.live:
            self.say(f"{self._at} · {stage}")

    def finished(self, turn: Turn, record: R | None) -> None:
        """Elsewhere, what went wrong."""
        self._remaining.finished(turn.arm, (HOST.now_ns() - self._began_ns) * 1e-9)
        if record is not None and not self.live and (remark := self._remark(record)):
            self.say(f"{self._at}: {remark}")


def say_turns(counted: str) -> Callable[[int, int], None]:
    """A callback that prints the number of each turn, such as ``process 2 of 6 · about 40 s left``, as it begins."""
    remaining, began_ns = RemainingTime([]), 0

    def on_turn(at: int, of: int) -> None:
        nonlocal began_ns
        if at > 1:
            remaining.finished(0, (HOST.now_ns() - began_ns) * 1e-9)
        began_ns, remaining.to_go = HOST.now_ns(), [0] * (of - at + 1)
        left_s = remaining.range_s(CurrentRun(0))
        left = "" if left_s is None else f" · {duration_range(*left_s)} left"
        click.echo(f"{counted} {at} of {of}{left}", err=True)

    return on_turn


def outcome_remark(record: _Measured) -> str:
    """What happened to a process that measured nothing."""
    outcome = record.outcome
    return "" if outcome is None or outcome.status == "measured" else f"{outcome.status}: {outcome.reason}"
