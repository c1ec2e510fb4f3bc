"""Benchmarks of operators: plans the replicates, starts a process for each, and is what the process executes.

The same command resumes. A replicate counts as done if its record came to its end, on this machine with these
libraries; one that was interrupted is made again, since its problems belong to a process that is gone. As for runs,
what happened is in the record; the pipe only says where it is, how far it has come, and why there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from levelbench.experiments.agreement import disagreement
from levelbench.experiments.children import Telling, listen, need_folder, raise_told, serve, survived
from levelbench.experiments.replicates import Place, Plan, Replicate, need_frameworks, plan_replicates
from levelbench.experiments.starting import Starter
from levelbench.operators.benchmark.measuring import merged
from levelbench.records import key_of, new_id
from levelbench.records.benchmarks import (
    FOLDER,
    BenchmarkRecord,
    BenchmarkSpecification,
    Case,
)

__all__ = ["BenchmarkJob", "BenchmarkPlan", "BenchmarkWatcher", "Note", "carry_out_benchmark", "main", "plan_benchmark"]


class BenchmarkJob(msgspec.Struct, frozen=True):
    """A replicate to make or, if ``seed`` is ``None``, the framework's ceilings to measure in ``dtype``.

    ``crashed`` says of problems at which a process before was brought down, and how: they are not tried again.
    ``planned`` are the effect that looks are planned for and the number of processes, for the header.
    """

    specification: BenchmarkSpecification
    store: str
    id: str = ""
    seed: int | None = None
    dtype: str = "float32"
    ceilings: dict[str, Any] = {}
    own: dict[str, Any] = {}
    crashed: dict[int, str] = {}
    planned: tuple[float | None, int] = (None, 0)


class Note(Telling, frozen=True, kw_only=True):
    """A line to the parent: what any process tells, or a case."""

    case: Case | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    return serve(arguments, BenchmarkJob, _carry_out)


def _carry_out(job: BenchmarkJob, tell: Callable[[Telling], None]) -> None:
    if job.seed is None:
        tell(Note(ceilings=_ceilings(job)))
        return
    from levelbench.operators.benchmark.measuring import make_record

    make_record(
        job.specification,
        job.seed,
        job.id,
        Path(job.store),
        job.ceilings,
        job.own,
        lambda path, case: tell(Note(path=str(path), case=case)),
        crashed=job.crashed,
        planned=job.planned,
    )


def _ceilings(job: BenchmarkJob) -> dict[str, Any]:
    from levelbench.operators.benchmark.measuring import backend_ceilings
    from levelbench.operators.frameworks import load_framework

    specification = job.specification
    framework = load_framework(specification.framework)
    backend = framework.open(specification.device)
    found = backend_ceilings(framework, backend, specification.device, job.dtype)
    return {**found.to_dict(), "framework": specification.framework}


_CHILD = "levelbench.experiments.operator"


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
    since: str = "",
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
        since=since,
    )


def _why_not(record: BenchmarkRecord, now: Mapping[str, Any]) -> str:
    """Why a record that came to its end does not count, or an empty string."""
    libraries = ("numpy", record.header.specification.framework)
    return disagreement(record.header.version, record.header.environment, now, libraries)


def carry_out_benchmark(
    plan: BenchmarkPlan,
    store: Path,
    dtype: str,
    watcher: BenchmarkWatcher,
    *,
    fork: bool = True,
    effect: float | None = None,
) -> dict[Place, BenchmarkRecord]:
    """Measure the ceilings once, then make what is to go; all records that count, by place.

    ``fork`` is whether processes may be forked from one that has done the imports; ``effect`` what looks at the
    comparison are planned for, if they are.
    Raises the error of a process that could not be carried out; what was finished before it is kept.
    """
    records = dict(plan.done)
    if not plan.steps:
        return records
    need_folder(store / FOLDER)
    own: dict[int, dict[str, Any]] = {}
    (arms,) = plan.grid
    with Starter(_CHILD, [(arm.framework, arm.device) for arm in arms], fork=fork) as starter:
        starter.begin(plan.steps[0].seed)
        for at in sorted({step.arm for step in plan.steps}):
            watcher.ceilings(arms[at].framework)
            notes = _process(BenchmarkJob(arms[at], str(store), dtype=dtype), starter)
            own[at] = next(note.ceilings for note in notes if note.ceilings is not None)
        ceilings = merged(list(own.values()))
        for number, step in enumerate(plan.steps, 1):

            def begin(step: Replicate = step, number: int = number) -> None:
                watcher.started(step, number, len(plan.steps))

            def on_note(note: Note, step: Replicate = step) -> None:
                if note.case is not None:
                    watcher.case(step, note.case)

            starter.begin(step.seed)
            specification = arms[step.arm]
            job = BenchmarkJob(specification, str(store), "", step.seed, dtype, ceilings, own[step.arm])
            job = structs.replace(job, planned=(effect, plan.count))
            notes = _survived(job, starter, begin, on_note)
            path = next(note.path for note in notes if note.path)
            records[step.place] = BenchmarkRecord.read(Path(path))
            watcher.finished(step)
    return records


def _survived(
    job: BenchmarkJob, starter: Starter, begin: Callable[[], None], on_note: Callable[[Note], None]
) -> list[Note]:
    """The notes of a process that came to its end: problems at which one crashed are left out of the next."""

    def attempt(crashed: dict[int, str]) -> list[Note]:
        begin()
        return _process(structs.replace(job, id=new_id(), crashed=crashed), starter, on_note)

    return survived(attempt)


def _process(job: BenchmarkJob, starter: Starter, on_note: Callable[[Note], None] | None = None) -> list[Note]:
    """Carry out a job in a process of its own, alone; its notes. Raises what it told, or how it died."""
    begin = partial(starter.start, job.specification.framework)
    notes, code, output = listen(_CHILD, job, Note, on_note, begin)
    _raise_failure(job, notes, code, output)
    return notes


def _raise_failure(job: BenchmarkJob, notes: Sequence[Note], code: int, output: str) -> None:
    problems = job.specification.problems
    measured = sum(note.case is not None for note in notes)
    at = f" at {problems[measured].name}" if measured < len(problems) else ""
    raise_told(notes, code, output, f"a benchmark on {job.specification.framework}", at, measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
