"""Rules about where an entry comes from: price, code, data, software, tuning, and its records.

That an entry names the digest of a record says nothing of what else it says; so where records are at hand each run is
made once more, as ``board submit`` makes it, and compared field by field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from levelbench.competition.checks import CheckedEntry, EntryFinding, is_sha256, shown
from levelbench.competition.entries import Inference, Submission, SubmittedRun, day_of, is_address
from levelbench.competition.figures import PRICE_USD, PRICE_WORDS, EntryScore, is_within
from levelbench.competition.scoring import score
from levelbench.errors import LevelbenchError

_FLOOR_USD = 0.001
"""What the smallest machine for rent costs several times over."""
_YEAR = 366
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_PINNED = re.compile(r"(?<![0-9a-f])[0-9a-f]{7,64}(?![0-9a-f])|/(?:releases/tag|tags?|tree/v?\d|archive)[/.\d]")


def price(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """A price is positive, on demand, and says where and when it was read."""
    stated, rules = entry.submission.price, entry.rules
    if stated is None:
        scores: list[EntryScore] = []
        if rules is not None and any(each.cost_usd is not None for each in entry.submission.inference):
            # It may be ranked by the cost of an answer that its author states, which needs no price.
            scores += score(entry.submission, rules).in_scenarios()
        if all(each.inference_cost.value is None for each in scores):
            yield entry.note("B160", "price", "it is not stated")
        return
    possible = is_within(stated.usd_per_hour, PRICE_USD)
    if not possible:
        found = f"{stated.usd_per_hour:g} US dollars an hour"
        yield entry.error("B164", "price.usd_per_hour", found, f"give {PRICE_WORDS}, of the whole system")
    required = rules is not None and rules.cost.source_required
    say = entry.error if required else entry.note
    if not stated.source:
        yield say("B161", "price.source", "it is not stated")
    elif not is_address(stated.source):
        yield entry.warning("B161", "price.source", f"it is {shown(stated.source)}")
    if possible and stated.usd_per_hour < _FLOOR_USD:
        yield entry.warning("B166", "price.usd_per_hour", f"{stated.usd_per_hour:g} US dollars an hour")
    day = day_of(stated.read_on or "")
    if stated.read_on is None:
        if required:
            yield entry.warning("B162", "price.read_on", "it is not stated", "give the day: prices change")
    elif day is None:
        yield entry.error("B162", "price.read_on", f"it is {shown(stated.read_on)}", "write the day as in 2026-01-31")
    elif (day - entry.today).days > 1:
        found = f"it is {stated.read_on} and today is {entry.today}"
        yield entry.error("B162", "price.read_on", found, "write the day")
    elif (since := day_of(entry.submission.submitted)) is not None and abs((day - since).days) > _YEAR:
        yield entry.warning("B165", "price.read_on", f"it was read on {stated.read_on} and the entry is of {since}")
    if rules is not None and rules.cost.on_demand_only:
        if stated.on_demand is False:
            do = f"give the on-demand price: {rules.id} takes no other"
            yield entry.error("B163", "price.on_demand", "it is a price for spot or reserved use", do)
        elif stated.on_demand is None and required:
            yield entry.warning("B163", "price.on_demand", "it is not stated", "say that the price is on demand")


def code(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The code can be found, in the version that ran, without changes that nobody has."""
    stated = entry.submission.code
    if not stated.url:
        yield entry.warning("B170", "code.url", "it is not stated")
    elif not is_address(stated.url):
        yield entry.error("B172", "code.url", f"it is {shown(stated.url)}")
    elif not stated.commit and _PINNED.search(stated.url) is None:
        yield entry.warning("B171", "code.url", f"{shown(stated.url)} and no commit")
    if stated.commit and _COMMIT.fullmatch(stated.commit) is None:
        yield entry.warning("B174", "code.commit", f"it is {shown(stated.commit)}")
    if stated.dirty:
        yield entry.warning("B173", "code.dirty", "the working tree had changes")


def data(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The data is real and identified by its checksums; the software is named."""
    stated = entry.submission.provenance
    if stated.synthetic:
        yield entry.error("B177", "provenance.synthetic", "synthetic data")
    for name, digest in stated.checksums.items():
        if not is_sha256(digest):
            field = f"provenance.checksums.{shown(name)[1:-1]}"
            yield entry.error("B176", field, f"it is {shown(digest)}")
    if entry.imported:
        return
    if not stated.checksums and entry.submission.mode == "training":
        yield entry.warning("B175", "provenance.checksums", "there are none")
    if not stated.software:
        yield entry.note("B180", "provenance.software", "there is none")


def _recorded(submission: Submission) -> Iterator[tuple[str, SubmittedRun | Inference]]:
    """Whatever is made of a record, by its field."""
    yield from ((f"runs[{at}]", run) for at, run in enumerate(submission.runs))
    yield from ((f"inference[{at}]", each) for at, each in enumerate(submission.inference))


def records(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Every run and measurement names its record; where records are at hand, they are those."""
    for place, stated in _recorded(entry.submission):
        field, digest = f"{place}.record_digest", stated.record_digest
        if digest is None:
            if not entry.imported:
                yield entry.warning("B178", field, "it is not stated")
        elif not is_sha256(digest):
            yield entry.error("B176", field, f"it is {shown(digest)}")
        elif entry.records is not None and digest not in entry.records:
            found = f"no record has the digest {digest[:12]}..."
            yield entry.error("B179", field, found, "bring the record, unchanged, or make the entry again")


def origin(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """An entry of another system's file stands under that system's rules; whoever sends it says that it is one."""
    stated, submission = entry.submission.origin, entry.submission
    if stated is None:
        return
    found = f"imported from {shown(stated.file)} ({shown(stated.format)[1:-1]}), as the author says"
    if entry.imported:
        yield entry.note("B127", "origin", found, "compare it with that file")
    elif stated.format == "loadgen" and submission.mode == "inference":
        # LoadGen has scenarios and no tasks: its measurements stand under anybody's rules, which all hold for them.
        yield entry.warning("B127", "origin", found, "compare it with LoadGen's logs")
    else:
        do = f"make the entry from records: {submission.ruleset} is not that system's"
        yield entry.error("B127", "origin", found, do)


def tuning(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """How much was tried is said, and is no negative amount."""
    stated = entry.submission.tuning
    unsaid = stated.trials is None and stated.hours is None and stated.usd is None
    if unsaid and not entry.imported and entry.submission.mode == "training":
        yield entry.warning("B181", "tuning", "it is not stated")
    for name, value in (("hours", stated.hours), ("usd", stated.usd)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            yield entry.error("B182", f"tuning.{name}", f"{value:g}")


_CLOSE = 1e-9
"""Share by which a figure may differ: another machine may round the last digit otherwise."""
_SHOWN = 5
_AUTHORS_OWN = frozenset({"cost_usd", "time_to_target_s", "curve_digest"})
"""What is the author's to state, or is held against the curve by a rule of its own."""


def recorded(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Each run and measurement is what its record says, and no record of their group is missing."""
    records = entry.records
    if records is None:
        return
    for field, stated in _recorded(entry.submission):
        if stated.record_digest is not None and stated.record_digest in records:
            yield from _compared(entry, stated, Path(records[stated.record_digest]), field)
    yield from _labels(entry, records)
    yield from _left_out(entry, records)


def _labels(entry: CheckedEntry, records: Mapping[str, str]) -> Iterator[EntryFinding]:
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
            yield entry.error("B183", name, found)


def _compared(entry: CheckedEntry, stated: SubmittedRun | Inference, path: Path, at: str) -> Iterator[EntryFinding]:
    from levelbench.competition.making import run_of
    from levelbench.competition.making_inference import submitted
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.reader import read_record

    clock = entry.rules.clock if entry.rules is not None else entry.submission.clock or "wall"
    target = entry.task.target if entry.task is not None else entry.submission.target
    made: SubmittedRun | Inference
    try:
        if isinstance(stated, SubmittedRun):
            made = run_of(read_record(path), target, clock, entry.crossing)
        else:
            made = submitted([InferenceRecord.read(path)])
    except LevelbenchError as problem:
        yield entry.error("B179", f"{at}.record_digest", problem.found, "bring the record, unchanged")
        return
    for name in stated.__struct_fields__:
        was, is_now = getattr(made, name), getattr(stated, name)
        # Whatever an entry may leave out it may leave out; what it says is what the record says.
        if name in _AUTHORS_OWN or (is_now is None and was is not None) or _is_same(was, is_now):
            continue
        yield entry.error("B183", f"{at}.{name}", f"{shown(str(is_now))} in the entry, {shown(str(was))} in its record")


def _is_same(was: object, is_now: object) -> bool:
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


class _Head(NamedTuple):
    """What tells one run from others: its id and seed, what it is a replicate of, and what it was called."""

    id: str
    seed: int
    group: tuple[str, ...]
    labels: dict[str, Any] | None = None


def _left_out(entry: CheckedEntry, records: Mapping[str, str]) -> Iterator[EntryFinding]:
    """Records of the same specification, source and machine as the entry's that it does not have."""
    submission = entry.submission
    stated = {each.record_digest for _, each in _recorded(submission)}
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
        yield entry.warning("B184", field, found)


@lru_cache(maxsize=100_000)
def _head(path: str) -> _Head | None:
    """What tells the record's group; ``None`` for a file that cannot be read as one."""
    from levelbench.measure.environment import machine_of
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.reader import read_record
    from levelbench.records.schema import Header

    try:
        header: Any = InferenceRecord.read(path).header if path.endswith(".jsonlines") else read_record(path).header
    except LevelbenchError:
        return None
    machine = machine_of(header.environment)
    if not isinstance(header, Header):
        return _Head(header.id, header.seed, (header.key, "", machine))
    specification = header.specification
    labels: dict[str, Any] = {"task": specification.task, "framework": specification.framework}
    labels |= {f"settings.{name}": value for name, value in specification.settings.items()}
    return _Head(header.id, header.seed, (header.key, header.source.whole, machine), labels)
