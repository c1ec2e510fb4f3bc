"""Rules about records at hand: every run of an entry is made again of its record, and what is left out is told.

The one idea: that an entry names the digest of a record says nothing of what else it says; so each run and measurement
is made once more, as ``board submit`` makes it, and compared field by field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from levelbench.errors import LevelbenchError
from levelbench.records.submissions.rules.entry import Entry, shown
from levelbench.records.submissions.rules.findings import Finding
from levelbench.records.submissions.schema import Inference, SubmittedRun

__all__ = ["recorded"]

_CLOSE = 1e-9
"""Share by which a figure may differ: another machine may round the last digit otherwise."""
_SHOWN = 5
_AUTHORS_OWN = frozenset({"cost_usd", "time_to_target_s", "curve_digest"})
"""What is the author's to state, or is held against the curve by a rule of its own."""


def recorded(entry: Entry) -> Iterator[Finding]:
    """Each run and measurement is what its record says, and no record of their group is missing."""
    records = entry.records
    if records is None:
        return
    for at, run in enumerate(entry.submission.runs):
        if run.record_digest is not None and run.record_digest in records:
            yield from _compared(entry, run, Path(records[run.record_digest]), f"runs[{at}]")
    for at, each in enumerate(entry.submission.inference):
        if each.record_digest is not None and each.record_digest in records:
            yield from _compared(entry, each, Path(records[each.record_digest]), f"inference[{at}]")
    yield from _labels(entry, records)
    yield from _left_out(entry, records)


def _labels(entry: Entry, records: Mapping[str, str]) -> Iterator[Finding]:
    """Task, framework and settings are those of the first run's record; an entry may say more settings."""
    digest = next((run.record_digest for run in entry.submission.runs if run.record_digest in records), None)
    head = _head(records[digest]) if digest is not None else None
    if head is None or head.labels is None:
        return
    submission = entry.submission
    task = entry.task.task if entry.task else submission.task
    stated: dict[str, Any] = {"task": task, "framework": submission.framework}
    stated |= {f"settings.{name}": value for name, value in submission.settings.items()}
    for name, value in head.labels.items():
        if not _is_same(value, stated.get(name)):
            found = f"{shown(str(stated.get(name)))} in the entry, {shown(str(value))} in its record"
            yield entry.error("B183", name, found, "make the entry again: levelbench board submit")


def _compared(entry: Entry, stated: SubmittedRun | Inference, path: Path, at: str) -> Iterator[Finding]:
    try:
        made = _run(entry, path) if isinstance(stated, SubmittedRun) else _measured(path)
    except LevelbenchError as problem:
        yield entry.error("B179", f"{at}.record_digest", problem.found, "bring the record, unchanged")
        return
    for name in stated.__struct_fields__:
        was, is_now = getattr(made, name), getattr(stated, name)
        # Whatever an entry may leave out it may leave out; what it says is what the record says.
        if name in _AUTHORS_OWN or (is_now is None and was is not None) or _is_same(was, is_now):
            continue
        found = f"{shown(str(is_now))} in the entry, {shown(str(was))} in its record"
        yield entry.error("B183", f"{at}.{name}", found, "make the entry again: levelbench board submit")


def _run(entry: Entry, path: Path) -> SubmittedRun:
    from levelbench.records.reader import read_record
    from levelbench.records.submissions.making import run_of

    clock = entry.rules.clock if entry.rules is not None else entry.submission.clock or "wall"
    target = entry.task.target if entry.task is not None else entry.submission.target
    return run_of(read_record(path), target, clock, entry.crossing)


def _measured(path: Path) -> Inference:
    from levelbench.records.inference import read_inference, submitted

    return submitted([read_inference(path)])


def _is_same(was: Any, is_now: Any) -> bool:
    if isinstance(was, Struct) and isinstance(is_now, Struct):
        names = was.__struct_fields__
        return all(_is_same(getattr(was, name), getattr(is_now, name)) for name in names)
    if isinstance(was, Mapping) and isinstance(is_now, Mapping):
        return was.keys() == is_now.keys() and all(_is_same(was[name], is_now[name]) for name in was)
    if isinstance(was, list) and isinstance(is_now, list):
        return len(was) == len(is_now) and all(map(_is_same, was, is_now))
    if isinstance(was, float) and isinstance(is_now, int | float):
        return abs(was - is_now) <= _CLOSE * max(abs(was), 1e-3)
    return bool(was == is_now)


class _Head(msgspec.Struct, frozen=True):
    id: str
    seed: int
    group: tuple[str, ...]
    labels: dict[str, Any] | None = None


def _left_out(entry: Entry, records: Mapping[str, str]) -> Iterator[Finding]:
    """Records of the same specification, source and machine as the entry's that it does not have."""
    submission = entry.submission
    stated = {run.record_digest for run in submission.runs}
    stated |= {each.record_digest for each in submission.inference}
    heads = {digest: _head(records[digest]) for digest in stated if digest is not None and digest in records}
    groups = {head.group for head in heads.values() if head is not None}
    if not groups:
        return
    have = {(head.id, head.seed) for head in heads.values() if head is not None}
    missing = []
    for digest, path in records.items():
        head = _head(path) if digest not in stated else None
        # Copies of one record in two folders are one run.
        if head is not None and head.group in groups and (head.id, head.seed) not in have:
            missing.append(f"{head.id} (seed {head.seed})")
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        found = f"{len(missing)} of the same specification, source and machine: {', '.join(missing[:_SHOWN])}{more}"
        field = "runs" if submission.runs else "inference"
        yield entry.warning("B184", field, found, "submit all of them, or see why they are left out")


@lru_cache(maxsize=100_000)
def _head(path: str) -> _Head | None:
    """What tells the record's group; ``None`` for a file that cannot be read as one."""
    from levelbench.records.inference import read_inference
    from levelbench.records.reader import read_record
    from levelbench.records.schema import Header
    from levelbench.records.submissions.terms import machine_of

    try:
        header: Any = read_inference(path).header if path.endswith(".jsonlines") else read_record(path).header
    except LevelbenchError:
        return None
    machine = machine_of(header.environment)
    if not isinstance(header, Header):
        return _Head(header.id, header.seed, (header.key, "", machine))
    specification = header.specification
    labels: dict[str, Any] = {"task": specification.task, "framework": specification.framework}
    labels |= {f"settings.{name}": value for name, value in specification.settings.items()}
    return _Head(header.id, header.seed, (header.key, header.source.whole, machine), labels)
