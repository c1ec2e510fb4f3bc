"""Claims from ``levelbench time``, and from benchmarks by hyperfine and pyperf: each command is a side.

The replicate is the process, and its time is the wall time of the whole process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from levelbench.claims.reading.run_sides import digest_of, ends_of, spread, tidied
from levelbench.claims.view import (
    Claim,
    ClockView,
    ComparisonView,
    HardwareView,
    RunView,
    Setup,
    Side,
    TimingView,
)
from levelbench.errors import LevelbenchError
from levelbench.importing.timings import import_timings, read_timings
from levelbench.measure.environment import system_of
from levelbench.records.commands import CommandRecord, summarise_commands
from levelbench.report.numbers import plural

__all__ = ["read_command_files", "read_timings_file"]

_METHOD = "the parent's monotonic clock, from just before the process starts until it has ended"
_IMPORTED = "as {tool} wrote it"


def read_command_files(paths: Iterable[Path], problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """A claim for each program and working directory, with a side for each command.

    ``problems`` collects what cannot be read; without it, the first such file is an error. Unfinished processes are
    left out.
    """
    groups: dict[tuple[str, str], dict[str, list[CommandRecord]]] = {}
    for path in paths:
        try:
            record = CommandRecord.read(path)
        except LevelbenchError as error:
            if problems is None:
                raise
            problems.append(error)
            continue
        wall = record.measurements.get("wall")
        if record.status == "done" and wall is not None and wall.value:
            specification = record.header.specification
            arms = groups.setdefault((specification.title, specification.folder), {})
            arms.setdefault(specification.name, []).append(record)
    return [_claim(title, arms) for (title, _), arms in groups.items()]


def read_timings_file(path: Path) -> list[Claim]:
    """The claims in a JSON file of hyperfine or pyperf; raises as :func:`levelbench.importing.timings.read_timings`."""
    with TemporaryDirectory(prefix="levelbench-") as store:
        for processes in read_timings(path).values():
            import_timings(processes, Path(store))
        found = read_command_files(sorted(Path(store).rglob("*.jsonlines")))
    return [_placed(each, str(path)) for each in found]


def _placed(claim: Claim, place: str) -> Claim:
    """The claim with the file that was given as its place, not that of a record which is gone."""
    sides = [replace(side, where=place, runs=[replace(run, where=place) for run in side.runs]) for side in claim.sides]
    comparisons = [replace(each, where=place) for each in claim.comparisons]
    return replace(claim, where=place, sides=sides, comparisons=comparisons)


def _claim(title: str, arms: dict[str, list[CommandRecord]]) -> Claim:
    sides = [_side(name, records) for name, records in arms.items()]
    base = sides[0]
    comparisons = [
        ComparisonView(
            new=side.name,
            base=base.name,
            ratio=base.time_s / side.time_s if base.time_s and side.time_s else None,
            base_time_s=base.time_s,
            base_kind="same-scale",
            performance_compared=True,
            where=side.where,
        )
        for side in sides[1:]
    ]
    return Claim(
        title=f"time of {title}",
        sides=sides,
        read_from="records",
        comparisons=comparisons,
        caveats=[text for name, records in arms.items() if (text := _failed(name, records))] + _doubts(arms),
        where=base.where,
    )


def _doubts(arms: Mapping[str, Sequence[CommandRecord]]) -> list[str]:
    """The doubts about processes that levelbench measured; those of another tool's are of that tool."""
    if any(each.header.environment.get("started") == "imported" for records in arms.values() for each in records):
        return []
    return [f"doubt: {each}" for each in summarise_commands(list(arms.values())).suspect]


def _failed(name: str, records: Sequence[CommandRecord]) -> str:
    """What to say of a command that failed: in every process, its time is not that of its work."""
    reasons = [each.outcome.reason for each in records if each.outcome is not None and each.outcome.reason]
    if not reasons:
        return ""
    told = f"{len(reasons)} of {plural(len(records), 'process', 'processes')} of {name} failed ({reasons[0]})"
    if len(reasons) == len(records):
        return f"refuse: {told}: how long its work takes is unknown"
    return f"doubt: {told}, and their times count"


def _side(name: str, records: Sequence[CommandRecord]) -> Side:
    first = records[0].header
    figure = spread([_wall_s(each) for each in records])
    tool = first.specification.title if first.environment.get("started") == "imported" else ""
    return Side(
        name=name,
        time_s=figure.value if figure else None,
        time_of="call",
        reported=None if figure is None else "median" if figure.statistic == "median" else "mean",
        runs_made=len(records),
        interval=ends_of(figure),
        runs=[
            RunView(
                time_s=_wall_s(each),
                specification=first.key,
                failed=bool(each.outcome is not None and each.outcome.reason),
                where=str(each.path),
            )
            for each in records
        ],
        clock=ClockView(policy="wall", whole=True),
        timing=TimingView(_IMPORTED.format(tool=tool) if tool else _METHOD, deterministic=False),
        hardware=_hardware(records[0]),
        performance=Setup(
            specification=first.key,
            commit=first.specification.revision or None,
            environment=None if tool else digest_of(first.environment),
        ),
        where=str(records[0].path),
    )


def _wall_s(record: CommandRecord) -> float:
    return record.measurements["wall"].value or 0.0


def _hardware(record: CommandRecord) -> HardwareView:
    environment = tidied(record.header.environment, "cpu", 1)
    if not environment["machine"].get("cpu"):
        return HardwareView()
    stated = system_of(environment, "cpu")
    return HardwareView(description=stated.description, nodes=1, processor=stated.processor, cores=stated.cores)
