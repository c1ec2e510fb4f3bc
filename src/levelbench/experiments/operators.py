"""Benchmarks of operators: what a replicate is, and what its process executes.

A replicate counts as done if its record is finished and was made on this machine with these libraries. An interrupted
one is repeated, since all problems of a replicate have to be measured in one process.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, final

import msgspec
from msgspec import structs

from levelbench.experiments.kernel import Kind, Make, Plan, Turn, Watcher, disagreement, need_frameworks
from levelbench.experiments.processes import (
    ProcessNote,
    Starter,
    framework_ceilings,
    listen,
    need_folder,
    raise_reported,
    serve,
    survived,
)
from levelbench.operators.benchmark.measuring import merged
from levelbench.records import key_of, new_id
from levelbench.records.benchmarks import FOLDER, BenchmarkRecord, BenchmarkSpecification, Case

__all__ = ["BenchmarkJob", "Note", "OperatorBenchmarks", "main", "unmeasured"]


class BenchmarkJob(msgspec.Struct, frozen=True):
    """A replicate to measure or, if ``seed`` is ``None``, the framework's ceilings in ``dtype``.

    ``crashed`` holds the problems at which an earlier process crashed, and how: they are not tried again.
    ``planned`` holds, for the header, the effect for which looks are planned and the number of processes.
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


class Note(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also a measured case."""

    case: Case | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, BenchmarkJob, _carry_out)


def _carry_out(job: BenchmarkJob, tell: Callable[[ProcessNote], None]) -> None:
    if job.seed is None:
        arm = job.specification
        tell(Note(ceilings=framework_ceilings(arm.framework, arm.device, job.dtype)))
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


_CHILD = "levelbench.experiments.operators"


@final
class OperatorBenchmarks(Kind[BenchmarkSpecification, BenchmarkRecord]):
    """Processes that measure operators; the arms are frameworks.

    ``dtype`` is that of the ceilings, ``fork`` says whether processes may be forked from one that has done the imports,
    and ``effect`` is the effect for which looks at the comparison are planned, if they are.
    """

    def __init__(self, store: Path, dtype: str, *, fork: bool = True, effect: float | None = None) -> None:
        self._store, self._dtype, self._fork, self._effect = store, dtype, fork, effect

    def check(self, arms: Sequence[BenchmarkSpecification]) -> None:
        """Raise ``MissingError`` for a framework or device that is not available."""
        need_frameworks((arm.framework, arm.device) for arm in arms)

    def key(self, wanted: BenchmarkSpecification) -> str:
        """The key of its records."""
        return key_of(wanted)

    def title(self, wanted: BenchmarkSpecification) -> str:
        """Its framework."""
        return wanted.framework

    def find(self, wanted: BenchmarkSpecification) -> Iterable[BenchmarkRecord]:
        """Its records in the store."""
        return BenchmarkRecord.find(self._store, key_of(wanted))

    def why_not(
        self, record: BenchmarkRecord, wanted: BenchmarkSpecification, environment: Mapping[str, object]
    ) -> str:
        """It was made on another machine, by another version, or with other libraries."""
        libraries = ("numpy", wanted.framework)
        return disagreement(record.header.version, record.header.environment, environment, libraries)

    @contextmanager
    def opened(
        self, plan: Plan[BenchmarkSpecification, BenchmarkRecord], watcher: Watcher[BenchmarkRecord]
    ) -> Iterator[Make[BenchmarkRecord]]:
        """Measure the ceilings, once for all processes."""
        need_folder(self._store / FOLDER)
        store, dtype = str(self._store), self._dtype
        own: dict[int, dict[str, Any]] = {}
        with Starter(_CHILD, [(arm.framework, arm.device) for arm in plan.arms], fork=self._fork) as starter:
            starter.begin(plan.to_go[0].seed)
            for at in sorted({turn.arm for turn in plan.to_go}):
                watcher.preparing(f"measuring the ceilings with {plan.arms[at].framework}")
                notes = _process(BenchmarkJob(plan.arms[at], store, dtype=dtype), starter)
                own[at] = next(note.ceilings for note in notes if note.ceilings is not None)
            ceilings = merged(list(own.values()))

            def make(turn: Turn, begin: Callable[[], None]) -> tuple[BenchmarkRecord, None]:
                starter.begin(turn.seed)
                wanted = plan.arms[turn.arm]
                planned = self._effect, len(plan.seeds)
                job = BenchmarkJob(wanted, store, "", turn.seed, dtype, ceilings, own[turn.arm], planned=planned)
                cases: list[Case] = []

                def on_note(note: Note) -> None:
                    if note.case is not None:
                        cases.append(note.case)
                        watcher.progress(turn, _stage(wanted, cases))

                notes = _survived(job, starter, begin, on_note)
                return BenchmarkRecord.read(Path(next(note.path for note in notes if note.path))), None

            yield make


def unmeasured(cases: Sequence[Case]) -> str:
    """How many problems were not measured, by status: `` · 2 failed``; empty if all were measured."""
    found = Counter(case.status for case in cases if case.status != "measured")
    return "".join(f" · {count} {status}" for status, count in found.items())


def _stage(wanted: BenchmarkSpecification, cases: Sequence[Case]) -> str:
    """The number of problems done, and the name of the next one."""
    problems = wanted.problems
    following = f" · {problems[len(cases)].name}" if len(cases) < len(problems) else ""
    return f"{len(cases)} of {len(problems)}{unmeasured(cases)}{following}"


def _survived(
    job: BenchmarkJob, starter: Starter, begin: Callable[[], None], on_note: Callable[[Note], None]
) -> list[Note]:
    """The notes of a process that finished: a problem at which one crashed is left out of the next."""

    def attempt(crashed: dict[int, str]) -> list[Note]:
        begin()
        return _process(structs.replace(job, id=new_id(), crashed=crashed), starter, on_note)

    return survived(attempt)


def _process(job: BenchmarkJob, starter: Starter, on_note: Callable[[Note], None] | None = None) -> list[Note]:
    """Carry out a job in a separate process; returns its notes. Raises what it reported, or how it died."""
    begin = partial(starter.start, job.specification.framework)
    notes, code, output = listen(_CHILD, job, Note, on_note, begin)
    _raise_failure(job, notes, code, output)
    return notes


def _raise_failure(job: BenchmarkJob, notes: Sequence[Note], code: int, output: str) -> None:
    problems = job.specification.problems
    measured = sum(note.case is not None for note in notes)
    at = f" at {problems[measured].name}" if measured < len(problems) else ""
    raise_reported(notes, code, output, f"a benchmark on {job.specification.framework}", at, measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
