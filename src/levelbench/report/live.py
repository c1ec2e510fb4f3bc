"""The line with the state of a running measurement: run, phase, time, quality against target, estimate.

Callers need not check for a terminal. A :class:`LiveLine` prints nothing; of its subclasses, one rewrites one line of a
terminal, the other prints a plain line now and then.
"""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from typing import TextIO

from levelbench.measure.clocks import HOST, Clock
from levelbench.report.numbers import ABSENT, duration, duration_range
from levelbench.report.tables import cell_width, clean

__all__ = ["LiveLine", "PlainLines", "TerminalLine", "live_line"]

_SECOND_NS = 1_000_000_000
_GAP = " · "


class LiveLine:
    """Shows progress until it is closed; this class prints nothing (``--quiet``, ``--json``)."""

    def start(self, total: int) -> None:
        """Begin, with ``total`` runs to come."""

    def update(
        self,
        position: int,
        label: str,
        seed: int,
        phase: str,
        elapsed_s: float,
        quality: float | None = None,
        target: float | None = None,
        estimate_text: str = "",
        *,
        epoch: float | None = None,
        metric: str = "accuracy",
        left_s: tuple[float, float] | None = None,
    ) -> None:
        """The run at ``position`` (from 1) is in ``phase``.

        ``quality`` is its latest quality, ``estimate_text`` its group's estimate so far, ``left_s`` the range of the
        time that all runs still take.
        """

    def finish_run(self, label: str, seed: int, outcome: str) -> None:
        """A run has ended as ``outcome`` says: print a permanent line."""

    def close(self) -> None:
        """End the line; safe to call twice."""

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _WrittenLine(LiveLine, ABC):
    """What both printing classes share: the parts of the line, and how often it is written."""

    def __init__(self, stream: TextIO, every_ns: int, clock: Clock) -> None:
        self._stream = stream
        self._every_ns = every_ns
        self._clock = clock
        self._total = 0
        self._shown: tuple[int, str] | None = None
        self._due_ns = clock.now_ns()

    def start(self, total: int) -> None:
        """Remember the number of runs."""
        self._total = total

    def update(
        self,
        position: int,
        label: str,
        seed: int,
        phase: str,
        elapsed_s: float,
        quality: float | None = None,
        target: float | None = None,
        estimate_text: str = "",
        *,
        epoch: float | None = None,
        metric: str = "accuracy",
        left_s: tuple[float, float] | None = None,
    ) -> None:
        """Write the line if it is due, and always when a new run begins."""
        run = (position, f"{label} {seed}")
        now_ns = self._clock.now_ns()
        if run == self._shown and now_ns < self._due_ns:
            return
        self._shown, self._due_ns = run, now_ns + self._every_ns
        self._write(
            [
                clean(f"{position}/{self._total} {label} seed {seed}"),
                clean(phase),
                duration(elapsed_s),
                "" if epoch is None else f"epoch {epoch:.4g}",
                _against_target(quality, target, metric),
                clean(estimate_text),
                "" if left_s is None else f"{duration_range(*left_s)} left",
            ]
        )

    @abstractmethod
    def _write(self, parts: list[str]) -> None:
        """Write the parts in order; some may be empty."""


class PlainLines(_WrittenLine):
    """A plain line at the start of a run, then at most every ``every_s`` seconds, for files and pipes."""

    def __init__(self, stream: TextIO, every_s: float = 5.0, clock: Clock = HOST) -> None:
        super().__init__(stream, round(every_s * _SECOND_NS), clock)

    def _write(self, parts: list[str]) -> None:
        self._line(_GAP.join(filter(None, parts)))

    def _line(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def finish_run(self, label: str, seed: int, outcome: str) -> None:
        """Print the outcome."""
        self._line(clean(f"{label} seed {seed}: {outcome}"))

    def close(self) -> None:
        """Flush."""
        self._stream.flush()


class TerminalLine(_WrittenLine):
    """One line that is rewritten, at most ten times per second; parts that do not fit are left out, never cut."""

    # Indices of the parts to drop first on a narrow terminal.
    _GIVEN_UP = (3, 1, 2, 5, 6, 4)

    def __init__(self, stream: TextIO, clock: Clock = HOST, width: int | None = None) -> None:
        super().__init__(stream, _SECOND_NS // 10, clock)
        self._width = width

    def _write(self, parts: list[str]) -> None:
        width = (self._width or shutil.get_terminal_size().columns) - 1
        kept = list(parts)
        for at in self._GIVEN_UP:
            if cell_width(_GAP.join(filter(None, kept))) <= width:
                break
            kept[at] = ""
        text = _GAP.join(filter(None, kept))
        while cell_width(text) > width:
            text = text[:-1]
        self._stream.write(f"\r\x1b[2K{text}")
        self._stream.flush()

    def finish_run(self, label: str, seed: int, outcome: str) -> None:
        """Replace the line by the outcome, and continue below."""
        self._stream.write("\r\x1b[2K" + clean(f"{label} seed {seed}: {outcome}") + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Clear the line."""
        self._stream.write("\r\x1b[2K")
        self._stream.flush()


def _against_target(quality: float | None, target: float | None, metric: str) -> str:
    """``accuracy 0.962 / 0.970``, with three decimals or as many as the target has."""
    if target is None:
        return "" if quality is None else clean(f"{metric} {quality:.3f}")
    decimals = max(3, len(f"{target:.6g}".partition(".")[2]))
    shown = ABSENT if quality is None else f"{quality:.{decimals}f}"
    return clean(f"{metric} {shown} / {target:.{decimals}f}")


def live_line(stream: TextIO | None = None, *, on_stderr: bool = True, quiet: bool = False) -> LiveLine:
    """The live line for ``stream`` (standard error, or output if not ``on_stderr``).

    It prints nothing if ``quiet``, one rewritten line on a capable terminal, else plain lines.
    """
    if quiet:
        return LiveLine()
    chosen = stream or (sys.stderr if on_stderr else sys.stdout)
    if chosen.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return TerminalLine(chosen)
    return PlainLines(chosen)
