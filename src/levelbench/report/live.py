"""The line with the state of a running measurement: run, phase, time, quality against target, estimate.

Callers need not check for a terminal. A :class:`LiveLine` prints nothing; of its subclasses, one rewrites one or two
lines of a terminal, the other prints a plain line now and then.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from levelbench.measure.clocks import HOST, Clock
from levelbench.report.numbers import ABSENT, duration, duration_range, number
from levelbench.report.tables import cell_width, clean

__all__ = ["LiveLine", "PlainLines", "TerminalLine", "live_line"]

_SECOND_NS = 1_000_000_000
_GAP = " · "
_BAR = 8
_END = "\n"
_CLEAR = "\r\x1b[J"
"""Clears everything from the start of the line where the cursor is."""


class LiveLine:
    """Shows progress until it is closed; this class prints nothing (``--quiet``, ``--json``)."""

    def start(self, total: int, counted: str = "", passed_s: float = 0.0) -> None:
        """Begin, with ``total`` runs (or what else is ``counted``) in all, the first of them ``passed_s`` ago."""

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
        steps: tuple[int, int] = (0, 0),
        samples_per_s: float | None = None,
        loss: float | None = None,
    ) -> None:
        """The run at ``position`` (from 1) is in ``phase``.

        ``quality`` is its latest quality, ``estimate_text`` its group's estimate so far, ``left_s`` the range of the
        time that all runs still take, ``steps`` those done and the most there can be, ``loss`` the mean training loss
        before the latest evaluation.
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
        self._total, self._counted = 0, ""
        self._began_ns = clock.now_ns()
        self._shown: tuple[int, str] | None = None
        self._due_ns = clock.now_ns()

    def start(self, total: int, counted: str = "", passed_s: float = 0.0) -> None:
        """Remember the number of runs, and when they began."""
        self._total, self._counted = total, counted
        self._began_ns = self._clock.now_ns() - round(passed_s * _SECOND_NS)

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
        steps: tuple[int, int] = (0, 0),
        samples_per_s: float | None = None,
        loss: float | None = None,
    ) -> None:
        """Write the line if it is due, and always when a new run begins."""
        run = (position, f"{label} {seed}")
        now_ns = self._clock.now_ns()
        if run == self._shown and now_ns < self._due_ns:
            return
        self._shown, self._due_ns = run, now_ns + self._every_ns
        self._write(
            {
                "run": clean(f"{self._counted}{position}/{self._total} {label} seed {seed}"),
                "phase": clean(phase),
                "elapsed": duration(elapsed_s),
                "bar": _bar((now_ns - self._began_ns) / _SECOND_NS, left_s),
                "steps": "step {:,}/{:,}".format(*steps) if steps[0] else "",
                "epoch": "" if epoch is None else f"epoch {epoch:.4g}",
                "rate": "" if samples_per_s is None else f"{number(samples_per_s)} samples/s",
                "loss": "" if loss is None else f"loss {number(loss)}",
                "quality": _against_target(quality, target, metric),
                "estimate": clean(estimate_text),
                "left": "" if left_s is None else f"{duration_range(*left_s)} left",
            }
        )

    @abstractmethod
    def _write(self, parts: dict[str, str]) -> None:
        """Write the parts in order; some may be empty."""


class PlainLines(_WrittenLine):
    """A plain line at the start of a run, then at most every ``every_s`` seconds, for files and pipes."""

    def __init__(self, stream: TextIO, every_s: float = 5.0, clock: Clock = HOST) -> None:
        super().__init__(stream, round(every_s * _SECOND_NS), clock)

    def _write(self, parts: dict[str, str]) -> None:
        self._line(_GAP.join(text for name, text in parts.items() if text and name != "bar"))

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
    """One line that is rewritten, at most ten times per second; two lines where one has no room for all that matters.

    Parts that do not fit are left out, never cut; only the name of a run may be. The cursor rests at the start of the
    first line, so that whatever else is printed stays readable.
    """

    _MATTER = ("run", "left", "bar", "quality", "loss", "rate", "steps")
    _FIRST = ("run", "left", "bar", "elapsed", "phase")
    # Of these, what the first line has is left out.
    _SECOND = ("quality", "loss", "rate", "steps", "phase", "elapsed", "epoch", "estimate")
    # Each is shown if it fits beside those before it.
    _BY_IMPORTANCE = ("run", "quality", "left", "phase", "loss", "rate", "steps", "bar", "elapsed", "estimate", "epoch")
    _SHORT: Mapping[str, Callable[[str], str]] = {
        "run": lambda text: re.sub(r"[^\s\[]+\[(.*)\]", r"\1", text),
        "steps": lambda text: text.partition("/")[0],
        "rate": lambda text: text.replace(" samples", ""),
    }

    def __init__(self, stream: TextIO, clock: Clock = HOST, width: int | None = None) -> None:
        super().__init__(stream, _SECOND_NS // 10, clock)
        self._width = width

    @property
    def _room(self) -> int:
        return (self._width or shutil.get_terminal_size().columns) - 1

    def _write(self, parts: dict[str, str]) -> None:
        lines = [self._fitted(parts, self._BY_IMPORTANCE)]
        if any(parts[name] != lines[0].get(name, "") for name in (*self._MATTER, "phase")):
            first = self._fitted(parts, self._FIRST)
            rest = [name for name in self._SECOND if name not in first]
            lines = [first, self._fitted(parts, rest, (*self._MATTER, "phase"))]
        texts = [_GAP.join(kept[name] for name in parts if name in kept) for kept in lines]
        up = f"\x1b[{len(texts) - 1}A" if len(texts) > 1 else ""
        self._stream.write(f"{_CLEAR}{_END.join(texts)}{up}\r")
        self._stream.flush()

    def _fitted(self, parts: dict[str, str], order: Sequence[str], matter: Sequence[str] = _MATTER) -> dict[str, str]:
        """The parts that fit one line, by name, those first in ``order`` first; in short if that saves what matters."""
        width = self._room
        short = {name: self._SHORT.get(name, str)(text) for name, text in parts.items()}
        if cell_width(short["run"]) > (room := max(width // 2, width - cell_width(_GAP + parts["left"]))):
            short["run"] = f"{short['run'][: room - 1]}…"
        found: list[dict[str, str]] = []
        for texts in (parts, short):
            kept: dict[str, str] = {}
            for name in order:
                wider = [text for key in (*kept, name) if (text := texts[key])]
                if texts[name] and cell_width(_GAP.join(wider)) <= width:
                    kept[name] = texts[name]
            found.append(kept)
        whole, shortened = found
        return shortened if any(name in shortened and name not in whole for name in matter) else whole

    def finish_run(self, label: str, seed: int, outcome: str) -> None:
        """Replace the line by the outcome, and continue below."""
        text = clean(f"{label} seed {seed}: {outcome}")
        lines = textwrap.wrap(text, self._room, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        self._stream.write(f"{_CLEAR}{_END.join(lines)}\n")
        self._stream.flush()

    def close(self) -> None:
        """Clear the line."""
        self._stream.write(_CLEAR)
        self._stream.flush()


def _bar(passed_s: float, left_s: tuple[float, float] | None) -> str:
    """The share of the time of all runs that has passed, as far as it can be predicted.

    Not the share of a run's steps: a run that reaches its target ends long before its last possible one.
    """
    whole_s = passed_s if left_s is None else passed_s + sum(left_s) / 2.0
    if left_s is None or not whole_s:
        return ""
    filled = min(_BAR, int(_BAR * passed_s / whole_s))
    return "█" * filled + "░" * (_BAR - filled)


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
