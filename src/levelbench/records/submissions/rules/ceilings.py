"""The rule about figures that no machine could have made: more operations a second than its measured ceiling.

The one idea: an entry may state what its machine can do (``provenance.environment["ceiling.flop_s"]``, as
``levelbench doctor`` measures it) and what a sample costs (``settings["flops_per_sample"]``, forward and backward, for
training). Where both are there, its times are held against them; where one is not, nothing is concluded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from levelbench.records.submissions.rules.entry import Entry
from levelbench.records.submissions.rules.findings import Finding

__all__ = ["CEILING", "FLOPS", "ceiling"]

CEILING = "ceiling.flop_s"
"""Measured floating-point operations a second of the whole system, in the precision that ran."""
FLOPS = "flops_per_sample"
"""Floating-point operations a sample, counting 2 a multiply-add: of a training step, or of an answer."""
_SLACK = 0.1
"""A ceiling that was measured is not the last word: by this much it may be passed."""


def ceiling(entry: Entry) -> Iterator[Finding]:
    """No run and no measurement needs more operations a second than the stated ceiling."""
    limit, flops = _number(entry.submission.provenance.environment.get(CEILING)), _stated_flops(entry)
    if limit is None or flops is None:
        return
    for at, run in enumerate(entry.submission.runs):
        samples, times = run.curve.samples, run.curve.time_s
        if samples and times and len(samples) == len(times) and times[-1] > 0:
            yield from _over(entry, f"runs[{at}].curve.time_s", flops * samples[-1] / times[-1], limit)
    for at, each in enumerate(entry.submission.inference):
        if each.duration_s > 0:
            yield from _over(entry, f"inference[{at}].duration_s", flops * each.samples / each.duration_s, limit)


def _over(entry: Entry, field: str, rate: float, limit: float) -> Iterator[Finding]:
    if rate > limit * (1 + _SLACK):
        found = f"{rate:.3g} operations a second; the machine's ceiling is {limit:.3g}"
        yield entry.error("B190", field, found, f"correct the times, the samples, or {FLOPS}")


def _stated_flops(entry: Entry) -> float | None:
    value = entry.submission.settings.get(FLOPS)
    return None if isinstance(value, bool) else _number(value)


def _number(value: object) -> float | None:
    """A positive, finite number, also written as text; ``None`` for anything else."""
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number > 0 and math.isfinite(number) else None
