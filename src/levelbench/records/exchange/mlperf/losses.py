"""What of an entry its MLPerf logs cannot say, or say otherwise than MLPerf's rules mean it.

The one idea: a log's time is ``run_stop - run_start`` to whoever reads it, so an entry that was measured by another
clock or arrived by another rule is written as it was measured, and that is the first thing that is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from levelbench.measure.crossing import find_crossing
from levelbench.records.exchange.mlperf.entries import RULESET
from levelbench.records.exchange.mlperf.timeline import crossing_of
from levelbench.records.submissions.schema import Submission, SubmittedRun

__all__ = ["losses_of"]

_PLACES: dict[str, tuple[str, ...]] = {
    "author": ("email", "key"),
    "hardware": ("cores", "memory_bytes"),
    "code": ("url", "commit", "dirty"),
    "tuning": ("trials", "hours", "usd", "notes"),
}
_OF_RUNS = ("phases_s", "energy_j", "peak_memory_bytes", "test_quality", "suspect", "record_digest")


def losses_of(submission: Submission) -> list[str]:
    """Each by its field, what changes the meaning of the time first."""
    return [*_meaning(submission), *_places(submission), *_runs(submission)]


def _meaning(submission: Submission) -> Iterator[str]:
    crossing = crossing_of(submission)
    if submission.ruleset != RULESET:
        yield f"ruleset: {submission.ruleset}, which only levelbench reads back"
    if submission.clock != "mlperf":
        stated = submission.clock or "not stated"
        yield f"clock: {stated}; run_stop minus run_start is the time on it, MLPerf's clock leaves initialisation out"
    if submission.crossing != "first":
        stated = submission.crossing or "not stated"
        stops = "at the first evaluation at the target" if crossing == "first" else f"where the rule {crossing!r} does"
        yield f"crossing: {stated}; run_stop stands {stops}, MLPerf's at the first evaluation at the target"


def _places(submission: Submission) -> Iterator[str]:
    for name, fields in _PLACES.items():
        yield from (f"{name}.{each}" for each in fields if getattr(getattr(submission, name), each) is not None)
    provenance = submission.provenance
    stated = {
        "price": submission.price,
        "provenance": any(getattr(provenance, each) for each in provenance.__struct_fields__),
        "notes": submission.notes,
    }
    yield from (name for name, value in stated.items() if value)
    origin = submission.origin
    if origin is not None:
        yield f"cache_clear, init_start, init_stop: {origin.format} does not say them, so MLPerf's checker refuses it"


def _runs(submission: Submission) -> Iterator[str]:
    for each in _OF_RUNS:
        if any(_is_stated(getattr(run, each)) for run in submission.runs):
            yield f"runs.{each}"
    if submission.clock != "mlperf" and any(run.excluded_s for run in submission.runs):
        yield "runs.excluded_s"
    if any(run.curve.others for run in submission.runs):
        yield "runs.curve.others"
    after = sum(_after(submission, run) for run in submission.runs)
    if after:
        yield f"runs.curve: {after} {'evaluation' if after == 1 else 'evaluations'} after the clock stopped"


def _is_stated(value: Any) -> bool:
    return value not in (None, [], {})


def _after(submission: Submission, run: SubmittedRun) -> int:
    if run.status != "done" or run.reached is False:
        return 0
    target = submission.target
    rule = crossing_of(submission)
    found = find_crossing(run.curve.quality, target.threshold, direction=target.direction, rule=rule)
    return 0 if found is None else len(run.curve.quality) - 1 - found.index
