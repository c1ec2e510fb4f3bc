"""Plans and makes the replicates of a benchmark: which are done, which are to go, interleaved, one process each.

The one idea: the same command resumes. A replicate counts as done if its record came to its end, on this machine with
these libraries; one that was interrupted is made anew, since its problems belong to a process that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from levelbench.errors import MissingError, UsageError
from levelbench.operators.benchmark.ceilings import merged
from levelbench.operators.frameworks import load_framework
from levelbench.records import new_id
from levelbench.records.benchmarks import (
    FOLDER,
    BenchmarkRecord,
    BenchmarkSpecification,
    Case,
    benchmark_key,
    find_benchmarks,
    read_benchmark,
)
from levelbench.runner.agreement import disagreement
from levelbench.runner.benchmark_child import BenchmarkJob, Note
from levelbench.runner.children import CrashError, listen, need_folder, raise_told

__all__ = ["BenchmarkPlan", "BenchmarkWatcher", "Replicate", "carry_out_benchmark", "plan_benchmark"]


@dataclass(frozen=True)
class Replicate:
    """One process to make: the arm (a framework's place), its number, and why it is made again, if it is."""

    arm: int
    seed: int
    why: str = ""


@dataclass(frozen=True)
class BenchmarkPlan:
    """``arms`` are the specifications, one a framework; ``done`` the records that count, by arm and number."""

    arms: tuple[BenchmarkSpecification, ...]
    count: int
    done: Mapping[tuple[int, int], BenchmarkRecord]
    steps: tuple[Replicate, ...]

    def lines(self) -> list[str]:
        """The plan in words: the counts, then each reason that something is made again."""
        wanted = len(self.arms) * self.count
        reasons: dict[str, int] = {}
        for step in self.steps:
            if step.why:
                reasons[step.why] = reasons.get(step.why, 0) + 1
        counts = f"{wanted} processes wanted · {len(self.done)} done · {len(self.steps)} to go"
        return [counts, *(f"  again: {number}: {why}" for why, number in reasons.items())]


class BenchmarkWatcher:
    """Looks on while replicates are made; this one says nothing."""

    def ceilings(self, framework: str) -> None:
        """The ceilings of a framework are being measured."""

    def started(self, step: Replicate, at: int, total: int) -> None:
        """The process of the replicate at place ``at`` (from 1) of ``total`` begins."""

    def case(self, step: Replicate, case: Case) -> None:
        """A problem has ended."""

    def finished(self, step: Replicate) -> None:
        """The process has ended, and its record is whole."""


def plan_benchmark(
    arms: Sequence[BenchmarkSpecification],
    count: int,
    store: Path,
    environment: Mapping[str, Any],
    *,
    fresh: bool = False,
) -> BenchmarkPlan:
    """Look for what is done and interleave what is to go: A B, B A, A B, ...

    Raises ``MissingError`` for a framework or device that is not here, ``UsageError`` for a replicate that another
    process is at right now.
    """
    for arm in arms:
        if lacking := load_framework(arm.framework).lacks(arm.device):
            asked = f"framework {arm.framework!r} on device {arm.device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")
    done: dict[tuple[int, int], BenchmarkRecord] = {}
    whys: dict[tuple[int, int], str] = {}
    for at, arm in enumerate(arms):
        for record in find_benchmarks(store, benchmark_key(arm)):
            place = (at, record.header.seed)
            if record.status == "running" and record.header.seed < count:
                found = f"another process is at it right now ({record.path.name})"
                raise UsageError(f"process {record.header.seed} of {arm.framework}", found, "wait for it")
            if fresh or record.header.seed >= count:
                continue
            if why := _why_not(record, environment):
                whys[place] = why
            else:
                done[place] = record
    steps = []
    for seed in range(count):
        order = range(len(arms)) if seed % 2 == 0 else range(len(arms) - 1, -1, -1)
        steps += [Replicate(at, seed, whys.get((at, seed), "")) for at in order if (at, seed) not in done]
    return BenchmarkPlan(tuple(arms), count, done, tuple(steps))


def _why_not(record: BenchmarkRecord, now: Mapping[str, Any]) -> str:
    """Why a record does not count as done, or an empty string."""
    if record.status != "done":
        return "the process before was interrupted"
    libraries = ("numpy", record.header.specification.framework)
    return disagreement(record.header.version, record.header.environment, now, libraries)


def carry_out_benchmark(
    plan: BenchmarkPlan, store: Path, dtype: str, watcher: BenchmarkWatcher
) -> dict[tuple[int, int], BenchmarkRecord]:
    """Measure the ceilings once, then make what is to go; all records that count, by arm and number.

    Raises the error of a process that could not be carried out; what was finished before it is kept.
    """
    records = dict(plan.done)
    if not plan.steps:
        return records
    need_folder(store / FOLDER)
    own: dict[int, dict[str, Any]] = {}
    for at in sorted({step.arm for step in plan.steps}):
        watcher.ceilings(plan.arms[at].framework)
        notes = _process(BenchmarkJob(plan.arms[at], str(store), dtype=dtype))
        own[at] = next(note.ceilings for note in notes if note.ceilings is not None)
    ceilings = merged(list(own.values()))
    for number, step in enumerate(plan.steps, 1):

        def begin(step: Replicate = step, number: int = number) -> None:
            watcher.started(step, number, len(plan.steps))

        def on_note(note: Note, step: Replicate = step) -> None:
            if note.case is not None:
                watcher.case(step, note.case)

        job = BenchmarkJob(plan.arms[step.arm], str(store), "", step.seed, dtype, ceilings, own[step.arm])
        notes = _survived(job, begin, on_note)
        path = next(note.path for note in notes if note.path)
        records[step.arm, step.seed] = read_benchmark(Path(path))
        watcher.finished(step)
    return records


def _survived(job: BenchmarkJob, begin: Callable[[], None], on_note: Callable[[Note], None]) -> list[Note]:
    """The notes of a process that came to its end: problems at which one crashed are left out of the next."""
    crashed: dict[int, str] = {}
    while True:
        begin()
        try:
            return _process(structs.replace(job, id=new_id(), crashed=crashed), on_note)
        except CrashError as crash:
            if crash.index in crashed:
                raise
            crashed = {**crashed, crash.index: crash.found}


def _process(job: BenchmarkJob, on_note: Callable[[Note], None] | None = None) -> list[Note]:
    """Carry out a job in a fresh process, alone; its notes. Raises what it told, or how it died."""
    notes, code, output = listen("levelbench.runner.benchmark_child", job, Note, on_note)
    _raise_failure(job, notes, code, output)
    return notes


def _raise_failure(job: BenchmarkJob, notes: Sequence[Note], code: int, output: str) -> None:
    problems = job.specification.problems
    measured = sum(note.case is not None for note in notes)
    at = f" at {problems[measured].name}" if measured < len(problems) else ""
    raise_told(notes, code, output, f"a benchmark on {job.specification.framework}", at, measured)
