"""Plans and makes the replicates of a benchmark: which are done, which are to go, interleaved, one process each.

The same command resumes. A replicate counts as done if its record came to its end, on this machine with
these libraries; one that was interrupted is made anew, since its problems belong to a process that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from levelbench.operators.benchmark.run import merged
from levelbench.records import key_of, new_id
from levelbench.records.benchmarks import FOLDER, BenchmarkRecord, BenchmarkSpecification, Case
from levelbench.runner.agreement import disagreement
from levelbench.runner.benchmark_child import BenchmarkJob, Note
from levelbench.runner.children import CrashError, listen, need_folder, raise_told
from levelbench.runner.replicates import Place, Plan, Replicate, need_frameworks, plan_replicates

__all__ = ["BenchmarkPlan", "BenchmarkWatcher", "carry_out_benchmark", "plan_benchmark"]


BenchmarkPlan = Plan[BenchmarkSpecification, BenchmarkRecord]
"""Of one case, whose arms are the frameworks."""


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
    need_frameworks((arm.framework, arm.device) for arm in arms)
    return plan_replicates(
        [arms],
        count,
        find=lambda arm: BenchmarkRecord.find(store, key_of(arm)),
        why_not=lambda record: _why_not(record, environment),
        title=lambda arm: arm.framework,
        fresh=fresh,
    )


def _why_not(record: BenchmarkRecord, now: Mapping[str, Any]) -> str:
    """Why a record that came to its end does not count, or an empty string."""
    libraries = ("numpy", record.header.specification.framework)
    return disagreement(record.header.version, record.header.environment, now, libraries)


def carry_out_benchmark(
    plan: BenchmarkPlan, store: Path, dtype: str, watcher: BenchmarkWatcher
) -> dict[Place, BenchmarkRecord]:
    """Measure the ceilings once, then make what is to go; all records that count, by place.

    Raises the error of a process that could not be carried out; what was finished before it is kept.
    """
    records = dict(plan.done)
    if not plan.steps:
        return records
    need_folder(store / FOLDER)
    own: dict[int, dict[str, Any]] = {}
    (arms,) = plan.grid
    for at in sorted({step.arm for step in plan.steps}):
        watcher.ceilings(arms[at].framework)
        notes = _process(BenchmarkJob(arms[at], str(store), dtype=dtype))
        own[at] = next(note.ceilings for note in notes if note.ceilings is not None)
    ceilings = merged(list(own.values()))
    for number, step in enumerate(plan.steps, 1):

        def begin(step: Replicate = step, number: int = number) -> None:
            watcher.started(step, number, len(plan.steps))

        def on_note(note: Note, step: Replicate = step) -> None:
            if note.case is not None:
                watcher.case(step, note.case)

        job = BenchmarkJob(arms[step.arm], str(store), "", step.seed, dtype, ceilings, own[step.arm])
        notes = _survived(job, begin, on_note)
        path = next(note.path for note in notes if note.path)
        records[step.place] = BenchmarkRecord.read(Path(path))
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
