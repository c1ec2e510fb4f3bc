"""A line on standard error that says how far something is: rewritten on a terminal, one after the other elsewhere."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, Self

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.experiments.replicates import Replicate

__all__ = ["ProcessProgress", "ProgressLine"]


class ProgressLine:
    """Entered while the work lasts; the line is wiped at its end."""

    def __init__(self) -> None:
        self.live = bool(sys.stderr is not None and sys.stderr.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.live:
            self._put("\r\x1b[2K", newline=False)

    def say(self, text: str) -> None:
        """Show ``text`` in place of what is there, cut to the terminal; elsewhere as a line of its own."""
        if self.live:
            self._put("\r\x1b[2K" + text[: shutil.get_terminal_size().columns - 1], newline=False)
        else:
            self._put(text, newline=True)

    def _put(self, text: str, newline: bool) -> None:
        with shared.as_far_as_read(err=True):
            click.echo(text, err=True, nl=newline)


class _Outcome(Protocol):
    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str: ...


class ProcessProgress(ProgressLine, ABC):
    """Of processes, one a replicate: on a terminal also the stage that one is at; elsewhere a plain line each."""

    def __init__(self) -> None:
        super().__init__()
        self._at, self._total = 0, 0

    def started(self, step: Replicate, at: int, total: int) -> None:
        """A process begins."""
        self._at, self._total = at, total
        self.say(self._where(step))

    def stage(self, step: Replicate, stage: str) -> None:
        """On a terminal, what the process is at."""
        if self.live:
            self.say(f"{self._where(step)} · {stage}")

    def finished(self, step: Replicate, outcome: _Outcome) -> None:
        """Elsewhere, what went otherwise than it should."""
        if outcome.status != "measured" and not self.live:
            self.say(f"{self._where(step)}: {outcome.status}: {outcome.reason}")

    def _where(self, step: Replicate) -> str:
        return f"{self._at}/{self._total} {self._what(step)}, process {step.seed + 1}"

    @abstractmethod
    def _what(self, step: Replicate) -> str:
        """What the process measures, in words."""
