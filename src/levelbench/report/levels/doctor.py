"""What ``levelbench doctor`` found, as a table of ceilings and sentences."""

from __future__ import annotations

from levelbench.measure.ceilings import Ceilings
from levelbench.measure.selftest import Diagnosis
from levelbench.measure.statistics import Estimate
from levelbench.report.tables import Cell, Column, Kind, Number, Table, Text

__all__ = ["ceilings_table", "doctor_lines"]

_GIGA = 1e-9


def ceilings_table(ceilings: Ceilings) -> Table:
    """Measured limits: matrix products by precision in GFLOP/s, memory bandwidth by kernel in GB/s."""
    rows: list[tuple[Cell, ...]] = [
        (Text(f"matrix product, {dtype}"), _giga(limit), Text("GFLOP/s")) for dtype, limit in ceilings.flop_s.items()
    ]
    rows += [
        (Text(f"memory, {kernel}"), _giga(limit), Text("GB/s")) for kernel, limit in ceilings.bandwidth_b_s.items()
    ]
    columns = (Column("limit", "limit of this machine"), Column("value", "measured", Kind.NUMBER), Column("unit", ""))
    note = "Medians with 95 % intervals. A multiply-add counts as 2 operations; copy counts 2 words, triad 3 (STREAM)."
    return Table("ceilings", "Ceilings", columns, tuple(rows), (note,))


def doctor_lines(diagnosis: Diagnosis) -> list[str]:
    """The findings on clock and noise, then each doubt; or that there is none."""
    doubts = [f"doubt: {doubt}" for doubt in diagnosis.doubts]
    return [
        *diagnosis.sentences(),
        *(doubts or ["nothing to doubt: quiet, with the threads and settings it should have"]),
    ]


def _giga(limit: Estimate) -> Number:
    low, high = (limit.interval.low * _GIGA, limit.interval.high * _GIGA) if limit.interval else (None, None)
    return Number(limit.value * _GIGA, low, high)
