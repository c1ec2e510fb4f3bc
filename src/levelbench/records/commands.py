"""Records of ``levelbench time``, one file per process of a command, and their summary.

The process is the replicate. The files are in the store's folder ``commands``. Verdicts are about the wall time from
just before the process is started until it has ended, as measured by its parent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from msgspec import Struct

from levelbench.errors import RecordError
from levelbench.measure.statistics import geometric_mean
from levelbench.measure.verdict import Verdict, VerdictKind
from levelbench.records.caveats import listed, other_texts, read_by_few
from levelbench.records.doubts import AGAIN, FIRST, interrupted_processes, out_of_turn, process_doubts
from levelbench.records.figures import Figure, arm_differences, judged, measured, planned_effect, starts_of
from levelbench.records.integrity import beyond_cores, beyond_counters
from levelbench.records.processes import (
    FileLines,
    ProcessEnd,
    ProcessFormat,
    ProcessHeader,
    ProcessRecord,
    ProcessWriter,
)
from levelbench.records.schema import Measurement

__all__ = ["FOLDER", "CommandEntry", "CommandHeader", "CommandOutcome", "CommandRecord", "CommandSpecification"]
__all__ += ["LEFT_RUNNING", "MAY_USE_CACHE", "CommandSummary", "CommandWriter", "latest_measurement", "slow_first"]
__all__ += ["summarise_commands"]

LEFT_RUNNING = "it left processes running"
"""Begins the doubt on a process whose time is not that of its work."""

FOLDER = "commands"
"""The folder in a store that holds processes of commands."""


class CommandSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """Which command a process runs; its key is the digest of this alone.

    ``title`` is the program's name. ``command`` is written as for a shell, without anything that looks like a secret;
    ``shell`` says that a shell runs it. ``folder`` is the SHA-256 of the working directory's path. ``revision`` is the
    git commit, if one was checked out for this, and ``label`` the user's name for it. ``copy`` numbers otherwise equal
    arms. ``prepare`` is run before each process. ``source`` is the SHA-256 of the first file that the command names,
    which usually is its program.
    """

    title: str
    command: str
    shell: bool
    folder: str
    label: str = ""
    revision: str = ""
    copy: int = 0
    prepare: str = ""
    timeout_s: float | None = None
    source: str = ""

    @property
    def name(self) -> str:
        """Its name in tables."""
        name = f"{self.command} at {self.label}" if self.label else self.command
        return f"{name} ({self.copy + 1})" if self.copy else name


class CommandHeader(ProcessHeader[CommandSpecification], frozen=True, tag="command"):
    """The first line."""


class CommandOutcome(Struct, frozen=True, tag="outcome", tag_field="kind"):
    """How the process ended: its exit code, negative for a signal, and why that is a failure; empty if it is not."""

    exit_code: int
    reason: str = ""


CommandEvent = Measurement | CommandOutcome | ProcessEnd
_FORMAT = ProcessFormat[CommandHeader, CommandEvent]("command's record", FOLDER, CommandHeader, CommandEvent)


@dataclass(frozen=True)
class CommandRecord(ProcessRecord[CommandHeader]):
    """The record of one process.

    ``measurements`` are named ``wall``, ``user`` and ``system`` (in s) and ``peak_memory`` (in B). An interrupted one
    has the ``wall`` that it had taken until then.
    """

    form = _FORMAT

    measurements: dict[str, Measurement]
    outcome: CommandOutcome | None

    @classmethod
    def _parts(cls, found: FileLines[CommandHeader, CommandEvent], asked: str) -> dict[str, Any]:
        return {
            "measurements": {each.name: each for each in found.all(Measurement)},
            "outcome": found.last(CommandOutcome),
        }

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """As for other records; ``RecordError`` also for one whose figures exclude each other."""
        record = super().read(path)
        if found := list(_contradictions(record)):
            raise RecordError(
                f"the {cls.form.name} {path}",
                f"it contradicts itself: {'; '.join(found)}",
                "find what changes a clock on this machine, or restore the record from a copy; until then it does not "
                "count",
            )
        return record

    @classmethod
    def names(cls, header: CommandHeader) -> tuple[str, ...]:
        """Its program, and the full command."""
        return header.specification.title, header.specification.command


def latest_measurement(store: Path) -> list[CommandRecord]:
    """The readable records of the program that ran last in ``store``, oldest first: one process alone is no answer."""
    records = sorted(CommandRecord.all(store), key=lambda each: (each.header.started, str(each.path)))
    programs = [(each.header.specification.title, each.header.specification.folder) for each in records]
    return [each for each, program in zip(records, programs, strict=True) if program == programs[-1]]


def _contradictions(record: CommandRecord) -> Iterator[str]:
    """Its time lies within what the machine counted, and its processor time within its time on all cores."""
    before = record.header.environment
    wall, *spent = (
        each.value if (each := record.measurements.get(name)) is not None else None
        for name in ("wall", "user", "system")
    )
    if wall is None or record.end is None:
        return
    yield from beyond_cores(before, sum(each or 0.0 for each in spent), wall)
    yield from beyond_counters(before, record.end.environment_after, "process", wall)


class CommandWriter(ProcessWriter[CommandHeader, CommandEvent]):
    """Writes the record of a command's process."""

    form = _FORMAT


@dataclass(frozen=True)
class CommandEntry:
    """One command: its figures in seconds and bytes, and the ``verdict`` compared with the first.

    ``why`` explains the ratio of the times in words. ``failed`` counts the processes that failed; their times are
    included.
    """

    name: str
    status: str
    wall: Figure
    user: Figure
    system: Figure
    memory: Figure
    failed: int
    verdict: Verdict | None = None
    why: str = ""
    share: None = None

    @property
    def times_s(self) -> Mapping[int, float]:
        """Wall times by the number of the process."""
        return self.wall.values


@dataclass(frozen=True)
class CommandSummary:
    """The commands in the order in which they were given; the first is the baseline."""

    entries: tuple[CommandEntry, ...]
    level: float
    margin: float
    suspect: tuple[str, ...]
    in_turns: str
    """What to do for processes that take turns."""


def summarise_commands(
    arms: Sequence[Sequence[CommandRecord]], level: float = 0.95, margin: float = 0.02, among: int = 1
) -> CommandSummary:
    """``arms`` holds the records of each command; among several, each verdict must survive Holm's correction.

    Verdicts of so many summaries share the ``level``, by Bonferroni's.
    """
    entries = [_entry(records, level) for records in arms]
    starts = [starts_of(records) for records in arms]
    if any("untold" in each.header.environment for records in arms for each in records):
        # Imported processes may not have taken turns, so they count as if they had not.
        starts = [dict.fromkeys(each, float(at)) for at, each in enumerate(starts)]
    effect = planned_effect(record for records in arms for record in records)
    columns = judged(
        [[each] for each in entries],
        [[each] for each in starts],
        1 - (1 - level) / among,
        margin,
        "commands",
        effect,
        "turn",
    )
    names = [each.name for each in entries]
    headers = [[each.header for each in records] for records in arms]
    walls_s = [[_wall_s(each) for each in records] for records in arms]
    known = [{each.seed for each in arm if each.environment.get(AGAIN)} for arm in headers]
    doubts = [
        *process_doubts(names, arms, "--resume makes the missing ones"),
        *out_of_turn(names, "processes", headers, walls_s, known),
    ]
    for name, records, walls in zip(names, arms, walls_s, strict=True):
        doubts += _other_texts(name, records)
        doubts += interrupted_processes(name, [each.header.environment for each in records], walls)
    doubts += [each for entry, times in zip(entries, starts, strict=True) for each in _after_the_first(entry, times)]
    doubts += [each for entry, records in zip(entries, arms, strict=True) for each in _after_a_trial(entry, records)]
    imported = any(each.header.environment.get("started") == "imported" for records in arms for each in records)
    do = "let levelbench time start them, with --vs" if imported else "measure them together, without --resume"
    again = arm_differences(names, [None] * len(arms), [list(each.values()) for each in starts], do)
    first, *others = [column[0] for column in columns]
    left = {name for name, records in zip(names, arms, strict=True) if any(map(_left_work, records))}
    failed = {each.name for each in entries if each.failed == len(each.times_s)}
    explained = []
    for each in others:
        pair = {first.name, each.name}
        found = _withheld(
            _explained(first, each), pair & left, "left processes running, whose time is not in it: wait for them"
        )
        explained.append(_withheld(found, pair & failed, "failed in every process: how long its work takes is unknown"))
    return CommandSummary((first, *explained), level, margin, (*doubts, *again), do)


def _wall_s(record: CommandRecord) -> float:
    wall = record.measurements.get("wall")
    return (wall.value if wall is not None else None) or 0.0


def _left_work(record: CommandRecord) -> bool:
    return record.end is not None and any(each.startswith(LEFT_RUNNING) for each in record.end.suspect)


def _withheld(entry: CommandEntry, names: Collection[str], why: str) -> CommandEntry:
    """``entry`` without a verdict where there are commands whose times are not those of their work, for a reason."""
    if entry.verdict is None or not names:
        return entry
    what = f"{' and '.join(sorted(names))} {why}"
    return replace(entry, verdict=replace(entry.verdict, kind=VerdictKind.UNCLEAR, runs_to_settle=None, reason=what))


def _other_texts(name: str, records: Sequence[CommandRecord]) -> list[str]:
    """A doubt if a text that processes of one command read was changed between them, other than to prepare each."""
    ends = [each.end.environment_after for each in records if each.end is not None]
    texts, data = (
        [each[what] for each in ends if isinstance(each.get(what), dict)] for what in ("files_read", "data_read")
    )
    few = read_by_few(data)
    changed = [*other_texts(texts), *(each for each in other_texts(data) if each not in few)]
    if not changed or records[0].header.specification.prepare:
        return []
    return [f"processes of {name} read different versions of {listed(changed)}: measure all of them again"]


def _after_the_first(entry: CommandEntry, starts: Mapping[int, float]) -> list[str]:
    """A doubt if the first process took much longer than every later one, for example because it filled a cache."""
    times_s = [entry.times_s[seed] for seed in sorted(entry.times_s, key=lambda seed: starts.get(seed, 0.0))]
    if not (longer := slow_first(times_s)):
        return []
    return [f"the first process of {entry.name} took {longer:.2g} times as long as any later one, {MAY_USE_CACHE}"]


def _after_a_trial(entry: CommandEntry, records: Sequence[CommandRecord]) -> list[str]:
    """The same doubt where the first process was that of an earlier command, such as a trial."""
    firsts = [float(each.header.environment[FIRST]) for each in records if FIRST in each.header.environment]
    if len(firsts) < len(records) or not (longer := slow_first([firsts[0], *entry.times_s.values()])):
        return []
    text = f"the first process of {entry.name} in this store took {longer:.2g} times as long as any of these"
    return [f"{text}, {MAY_USE_CACHE}"]


MAY_USE_CACHE = (
    "so those may use what it left behind, such as a cache: clear it with --prepare, or, if a full cache is intended, "
    "leave out the first process with --warmup 1"
)
_MUCH_LONGER = 1.5


def slow_first(times_s: Sequence[float]) -> float:
    """How many times as long as any later one the first took, in order of time; 0 if that is not much."""
    first, *later = times_s or [0.0]
    return first / max(later) if len(later) > 1 and first >= _MUCH_LONGER * max(later) else 0.0


def _entry(records: Sequence[CommandRecord], level: float) -> CommandEntry:
    ordered = sorted(records, key=lambda each: each.header.seed)
    found = [(each.header.seed, each.measurements) for each in ordered]
    return CommandEntry(
        name=ordered[0].header.specification.name,
        status="measured",
        wall=measured(found, "wall", "s", level),
        user=measured(found, "user", "s", level),
        system=measured(found, "system", "s", level),
        memory=measured(found, "peak_memory", "B", level),
        failed=sum(1 for each in ordered if each.outcome is not None and each.outcome.reason),
    )


def _explained(first: CommandEntry, entry: CommandEntry) -> CommandEntry:
    """``entry`` with the ratio of times as a product: processor times, and time per second of processor."""
    spent = [_processor_s(each) for each in (first, entry)]
    if entry.verdict is None or min((*spent[0], *spent[1]), default=0.0) <= 0:
        return entry
    walls = [geometric_mean(list(each.times_s.values())) for each in (first, entry)]
    work = geometric_mean(spent[1]) / geometric_mean(spent[0])
    whole = walls[1] / walls[0]
    why = f"times {whole:.3g} = processor time x{work:.3g} · time per second of processor x{whole / work:.3g}"
    return replace(entry, why=why)


def _processor_s(entry: CommandEntry) -> list[float]:
    user, system = entry.user.values, entry.system.values
    return [user[seed] + system[seed] for seed in user if seed in system]
