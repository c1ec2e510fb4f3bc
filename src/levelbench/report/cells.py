"""Cells that several tables share: an estimate with its interval, a verdict, a share of a ceiling, an error."""

from __future__ import annotations

from levelbench.measure.statistics import Estimate
from levelbench.measure.verdict import Verdict
from levelbench.records.judging import Share
from levelbench.report.numbers import with_interval
from levelbench.report.tables import Absent, Cell, Number, Text

__all__ = ["error_text", "estimate_cell", "number_cell", "share_cell", "verdict_text"]


def estimate_cell(found: Estimate | None, reason: str = "", remark: str = "") -> Cell:
    """The value with its interval; without one the reason."""
    if found is None:
        return Absent(reason)
    inside = found.interval
    return Number(found.value, inside.low if inside else None, inside.high if inside else None, remark)


def number_cell(value: float | None, reason: str = "") -> Cell:
    """A value that has no spread; without one the reason."""
    return Absent(reason) if value is None else Number(value)


def share_cell(share: Share | None, reason: str = "") -> Cell:
    """The share of the nearer ceiling: ``c`` for arithmetic, ``m`` for memory."""
    return Absent(reason) if share is None else Number(share.value, remark="m" if share.bound == "memory" else "c")


def verdict_text(found: Verdict) -> str:
    """``FASTER 0.81 [0.78, 0.84]``."""
    if found.ratio is None:
        return str(found.kind)
    return f"{found.kind} {with_interval(found.ratio, found.low, found.high)}"


def error_text(value: float) -> Text:
    """A relative error in two digits."""
    return Text("exact" if value == 0 else f"{value:.1e}")
