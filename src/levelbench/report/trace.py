"""Runs as a trace for Perfetto or ``chrome://tracing``: phases, the steps of each rank, quality and loss over time.

The format is the JSON of Chrome's Trace Event Format. A record has the sum of each phase between two evaluations and
the duration of each step, but not its start. Within such an interval phases are drawn one after another, and the steps
end where the evaluation begins. Durations and evaluations are measured; a note says that the order of the rest is not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from levelbench.report.markup import PHASES

if TYPE_CHECKING:
    from levelbench.records.reader import Record
    from levelbench.records.schema import Samples

__all__ = ["trace_json"]

_PLACED = "durations are measured; the order within an interval between evaluations is not"
_FIRST_RANK = 2
"""The track of the first rank; track 1 has the phases."""


def trace_json(records: Iterable[tuple[str, Record]]) -> str:
    """The trace of runs, each as a process with the given name; times are from the start of each run."""
    events = [{**event, "pid": at} for at, named in enumerate(records, 1) for event in _run(*named)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"levelbench": _PLACED}})


def _run(name: str, record: Record) -> Iterator[dict[str, object]]:
    yield {"ph": "M", "name": "process_name", "args": {"name": name}}
    yield _track(1, "phases, in sums between evaluations")
    stretches = _stretches(record)
    for start_ns, end_ns, title, phases, args in stretches:
        yield _slice(1, title, start_ns, end_ns - start_ns, args)
        begin_ns = start_ns
        for phase, took_ns in phases.items():
            yield _slice(1, phase, begin_ns, took_ns, {})
            begin_ns += took_ns
    for each in record.evaluations:
        values = each.quality | ({} if each.loss is None else {"loss": each.loss})
        for title, value in values.items():
            yield {"ph": "C", "tid": 1, "name": title, "ts": each.t_ns / 1e3, "args": {title: value}}
    ranks = record.ranks or {0: record.samples}
    ends_ns = _common_ends(record)
    for rank, samples in sorted(ranks.items()):
        if "step_time" in samples:
            yield _track(_FIRST_RANK + rank, f"steps of rank {rank}" if record.ranks else "steps")
            yield from _steps(_FIRST_RANK + rank, samples, record, ends_ns)


def _common_ends(record: Record) -> Sequence[float]:
    """When each step ended, by the first rank's clock, if all ranks leave each step together; else none."""
    first = record.ranks.get(0, {})
    together = all(each["lockstep"].values[0] for each in record.ranks.values() if "lockstep" in each)
    counts = {len(each["step_time"].values) for each in record.ranks.values() if "step_time" in each}
    if "step_time" not in first or not together or len(counts) != 1:
        return ()
    found: list[float] = []
    took_ns = first["step_time"].values
    for begin, last, end_ns in _blocks(len(took_ns), record):
        own = took_ns[begin:last]
        found += accumulate(own[1:], initial=end_ns - sum(own[1:])) if own else ()
    return found


def _stretches(record: Record) -> Iterator[tuple[int, int, str, dict[str, int], dict[str, object]]]:
    """The intervals between evaluations: begin and end in ns, a title, the time of each phase, and details."""
    start_ns, before = 0, dict.fromkeys(PHASES, 0)
    for at, each in enumerate(record.evaluations, 1):
        yield (
            start_ns, each.t_ns, f"to evaluation {at}", _since(before, each.phases_ns),
            {"step": each.step, "epoch": each.epoch, "samples": each.samples, **each.quality},
        )  # fmt: skip
        start_ns, before = each.t_ns, dict(each.phases_ns)
    if record.end is not None and record.end.t_ns > start_ns:
        yield start_ns, record.end.t_ns, "to the end", _since(before, record.end.phases_ns), {}


def _since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The time of each phase in the interval, in the order of a step."""
    names = [*(name for name in PHASES if name in after), *(name for name in after if name not in PHASES)]
    return {name: took for name in names if (took := after[name] - before.get(name, 0)) > 0}


def _steps(
    track: int, samples: Mapping[str, Samples], record: Record, ends_ns: Sequence[float]
) -> Iterator[dict[str, object]]:
    """Its steps; the last of each interval ends where the evaluation begins, and each ends in communication.

    Clocks of ranks are not compared where all leave a step together: its end is the first rank's (``ends_ns``), or a
    little earlier, where a rank that was woken late would begin a step before the last one's end. Else the last step of
    an interval ends when its rank came to the evaluation, by its own clock, which began with the others'.
    """
    took_ns = samples["step_time"].values
    communicated = samples["communicate_time"].values if "communicate_time" in samples else ()
    blocks = list(_blocks(len(took_ns), record))
    placed = _without_overlap(took_ns, ends_ns) if ends_ns else []
    met_ns = samples["met_at"].values if "met_at" in samples else ()
    if len(met_ns) == len(blocks):
        blocks = [(first, last, float(end_ns)) for (first, last, _), end_ns in zip(blocks, met_ns, strict=True)]
    for first, last, end_ns in blocks:
        own = took_ns[first:last]
        begins: Iterable[float] = accumulate(own, initial=end_ns - sum(own))
        if ends_ns:
            begins = placed[first:last]
        for at, begin_ns, length_ns in zip(range(first, last), begins, own, strict=False):
            yield _slice(track, f"step {at + 1}", begin_ns, length_ns, {})
            if at < len(communicated):
                spent_ns = min(communicated[at], length_ns)
                yield _slice(track, "communicate", begin_ns + length_ns - spent_ns, spent_ns, {})


def _without_overlap(took_ns: Sequence[float], ends_ns: Sequence[float]) -> list[float]:
    """When each step begins, if it ends at its time in ``ends_ns`` or earlier, and before the next one begins."""
    begins, begin_ns = [], math.inf
    for took, end_ns in zip(reversed(took_ns), reversed(ends_ns), strict=True):
        begin_ns = min(end_ns, begin_ns) - took
        begins.append(begin_ns)
    return begins[::-1]


def _blocks(count: int, record: Record) -> Iterator[tuple[int, int, float]]:
    """The first and last step of each interval, and when its evaluation began; one interval if the steps do not say."""
    steps = [0, *(each.step for each in record.evaluations)]
    if steps[-1] != count:
        # Workers of a server make steps of their own; an interrupted run has some after its last evaluation.
        begin_ns = record.evaluations[-1].t_ns if record.evaluations else 0
        yield 0, count, float(begin_ns)
        return
    stretches: Sequence[tuple[Any, ...]] = list(_stretches(record))
    for (first, last), (_, end_ns, _, phases, _) in zip(pairwise(steps), stretches, strict=False):
        yield first, last, float(end_ns - phases.get("evaluate", 0))


def _track(track: int, name: str) -> dict[str, object]:
    return {"ph": "M", "tid": track, "name": "thread_name", "args": {"name": name}}


def _slice(track: int, name: str, start_ns: float, took_ns: float, args: Mapping[str, object]) -> dict[str, object]:
    return {"ph": "X", "tid": track, "name": name, "ts": start_ns / 1e3, "dur": took_ns / 1e3, "args": dict(args)}
