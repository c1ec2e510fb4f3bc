"""Benchmarks of operators: what a replicate is, and what its process executes.

A replicate counts as done if its record is finished and was made on this machine with these libraries. An interrupted
one is repeated, since all problems of a replicate have to be measured in one process.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np
from msgspec import structs

from levelbench.errors import CheckFailedError
from levelbench.experiments.kernel import (
    Kind,
    Make,
    Plan,
    Turn,
    Watcher,
    disagreement,
    measured_before,
    need_frameworks,
)
from levelbench.experiments.processes import (
    ProcessNote,
    Starter,
    ceilings_of,
    framework_ceilings,
    listen,
    need_folder,
    patience,
    raise_reported,
    serve,
    survived,
)
from levelbench.measure.clocks import HOST
from levelbench.measure.forking import ending_leftovers
from levelbench.operators.benchmark.measuring import fixed_inputs, merged, read_inputs
from levelbench.operators.benchmark.outside import OutsideCalls, call_from_outside
from levelbench.operators.contract import OperatorBackend
from levelbench.records import key_of, new_id
from levelbench.records.benchmark_summary import is_above_ceiling
from levelbench.records.benchmarks import (
    FOLDER,
    OPTIMIZERS,
    BenchmarkRecord,
    BenchmarkSpecification,
    BenchmarkWriter,
    Case,
)
from levelbench.records.figures import largest_ceilings
from levelbench.records.processes import Planned
from levelbench.records.schema import Samples

__all__ = ["BenchmarkJob", "Note", "OperatorBenchmarks", "main", "unmeasured"]


class BenchmarkJob(msgspec.Struct, frozen=True):
    """A replicate to measure or, if ``seed`` is ``None``, the framework's ceilings in ``dtype``.

    With ``flops``, of those only what its best calls of about that many operations reach.
    ``crashed`` holds the problems at which an earlier process crashed, and how: they are not tried again.
    ``planned`` is for the header. ``file`` is
    the user's file of operators or optimizers, ``examples`` the folder with the inputs of operators.
    """

    specification: BenchmarkSpecification
    store: str
    id: str = ""
    seed: int | None = None
    dtype: str = "float32"
    ceilings: dict[str, Any] = {}
    own: dict[str, Any] = {}
    crashed: dict[int, str] = {}
    planned: Planned = Planned()
    file: str = ""
    examples: str = ""
    flops: float = 0.0


class Note(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also a measured case, and what the process's clock shows, in nanoseconds."""

    case: Case | None = None
    clock_ns: int | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, BenchmarkJob, _carry_out)


def _carry_out(job: BenchmarkJob, tell: Callable[[ProcessNote], None]) -> None:
    if job.seed is None:
        arm = job.specification
        tell(Note(ceilings=framework_ceilings(arm.framework, arm.device, job.dtype, job.flops)))
        return
    from levelbench.operators.benchmark.measuring import Measure, make_record, measure_problem
    from levelbench.operators.custom.library import load_file

    warm: Callable[[OperatorBackend], object] | None = None
    load: Callable[[], object] | None = partial(load_file, job.file) if job.file else None
    measure: Measure = partial(measure_problem, examples=Path(job.examples) if job.examples else None)
    if job.specification.problems[0].domain == OPTIMIZERS:
        from levelbench.training.optimizer_benchmark import loaded, measure_optimizer, warm_up

        warm = warm_up
        load = partial(loaded, job.file) if job.file else None
        measure = partial(measure_optimizer, file=job.file)
    make_record(
        job.specification,
        job.seed,
        job.id,
        Path(job.store),
        job.ceilings,
        job.own,
        lambda path, case: tell(Note(path=str(path), case=case, clock_ns=HOST.now_ns())),
        crashed=job.crashed,
        planned=job.planned,
        warm=warm,
        load=load,
        measure=measure,
    )


_CHILD = "levelbench.experiments.operators"


@final
class OperatorBenchmarks(Kind[BenchmarkSpecification, BenchmarkRecord]):
    """Processes that measure operators; the arms are frameworks.

    ``dtype`` is that of the ceilings, ``fork`` says whether processes may be forked from one that has done the imports,
    and ``effect`` is the effect for which looks at the comparison are planned, if they are. ``file`` defines the
    operators of the arms that are the user's own, whose inputs are in the folder ``examples``.
    """

    def __init__(
        self,
        store: Path,
        dtype: str,
        *,
        fork: bool = True,
        effect: float | None = None,
        file: Path | None = None,
        examples: Path | None = None,
    ) -> None:
        self._store, self._dtype, self._fork, self._effect = store, dtype, fork, effect
        self._file, self._examples = str(file or ""), str(examples or "")

    def check(self, arms: Sequence[BenchmarkSpecification]) -> None:
        """Raise ``MissingError`` for a framework or device that is not available."""
        need_frameworks((arm.framework, arm.device) for arm in arms)

    def key(self, wanted: BenchmarkSpecification) -> str:
        """The key of its records."""
        return key_of(wanted)

    def title(self, wanted: BenchmarkSpecification) -> str:
        """Its framework, and that it is the user's own."""
        return wanted.arm

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
        own: dict[str, dict[str, Any]] = {}
        examples = _digest(self._examples)
        with Starter(_CHILD, [(arm.framework, arm.device) for arm in plan.arms], fork=self._fork) as starter:
            starter.begin(plan.to_go[0].seed)
            for at in sorted({turn.arm for turn in plan.to_go}):
                if (framework := plan.arms[at].framework) in own:
                    continue
                watcher.preparing(f"measuring the ceilings with {framework}")
                own[framework] = ceilings_of(
                    partial(_process, BenchmarkJob(plan.arms[at], store, dtype=dtype), starter)
                )
            ceilings = merged(list(own.values()))
            before = measured_before(self, plan)
            outside: dict[tuple[str, int], tuple[float, OutsideCalls]] = {}
            rounds: Counter[tuple[str, int]] = Counter()

            def make(turn: Turn, begin: Callable[[], None]) -> tuple[BenchmarkRecord, None]:
                starter.begin(turn.seed)
                wanted = plan.arms[turn.arm]
                planned = Planned(self._effect, len(plan.seeds), before[turn.arm])
                job = BenchmarkJob(
                    wanted,
                    store,
                    "",
                    turn.seed,
                    dtype,
                    ceilings,
                    own[wanted.framework],
                    planned=planned,
                    file=self._file if wanted.own else "",
                    examples=self._examples,
                )
                cases: list[Case] = []

                def on_note(note: Note) -> None:
                    if note.case is not None:
                        cases.append(note.case)
                        watcher.progress(turn, _stage(wanted, cases))

                notes = _survived(job, starter, begin, on_note)
                if _digest(self._examples) != examples:
                    found = "its process changed the examples that others are measured on"
                    raise CheckFailedError(f"a benchmark on {wanted.framework}", found, "leave other files alone")
                record = BenchmarkRecord.read(Path(next(note.path for note in notes if note.path)))
                record = self._under_the_ceiling(record, starter, rounds)
                return (self._called_from_outside(record, outside) if wanted.own else record), None

            yield make

    def _under_the_ceiling(
        self, record: BenchmarkRecord, starter: Starter, rounds: Counter[tuple[str, int]]
    ) -> BenchmarkRecord:
        """The record with a ceiling that is measured again, a few times, if one of its results lies above it.

        Others may have been busy when it was measured first. It is measured in a process without the user's operators.
        ``rounds`` counts how often that was done, by arm and problem.
        """
        wanted = record.header.specification
        ceilings = record.header.ceilings
        for at, case in record.cases.items():
            for _ in range(_ROUNDS):
                if rounds[wanted.arm, at] == _MOST_ROUNDS or not is_above_ceiling(record, at, ceilings):
                    break
                rounds[wanted.arm, at] += 1
                dtype = wanted.problems[at].tensors[0].dtype
                notes = _process(BenchmarkJob(wanted, str(self._store), dtype=dtype, flops=case.flops or 0.0), starter)
                found = [note.ceilings for note in notes if note.ceilings is not None]
                ceilings = {**ceilings, **largest_ceilings([ceilings, *found])}
        return record if ceilings == record.header.ceilings else _with_cases(record, {}, ceilings)

    def _called_from_outside(
        self, record: BenchmarkRecord, known: dict[tuple[str, int], tuple[float, OutsideCalls]]
    ) -> BenchmarkRecord:
        """The record with the cases that do not stand when the operator is called from outside.

        That is done once for each operator and framework, and again for a much shorter time. ``known`` holds these.
        """
        wanted = record.header.specification
        changed: dict[int, OutsideCalls] = {}
        for at, case in record.cases.items():
            problem = wanted.problems[at]
            if case.outcome != "measured" or problem.domain == OPTIMIZERS or wanted.device != "cpu":
                continue
            took_s = float(np.median(record.samples[at]))
            shortest_s, found = known.get((wanted.arm, at), (inf, OutsideCalls()))
            if took_s < _MUCH_SHORTER * shortest_s and not found.status:
                inputs = read_inputs(problem, at, 0, Path(self._examples))
                fixed = fixed_inputs(problem)
                found = call_from_outside(
                    Path(self._file),
                    problem,
                    wanted.framework,
                    inputs,
                    took_s,
                    fixed,
                    channels_last=wanted.layout is not None,
                )
                known[wanted.arm, at] = took_s, found
            if found.status:
                changed[at] = found
        return _with_cases(record, changed) if changed else record


_MUCH_SHORTER = 0.8
_ROUNDS, _MOST_ROUNDS = 3, 9
"""How often a ceiling is measured again after one process, and after all of them."""


def _with_cases(
    record: BenchmarkRecord, changed: Mapping[int, OutsideCalls], ceilings: dict[str, Any] | None = None
) -> BenchmarkRecord:
    """The record written again, with another status of these cases or other ``ceilings``.

    Cases that are refused have no times.
    """
    header = record.header if ceilings is None else structs.replace(record.header, ceilings=ceilings)
    record.path.unlink()
    with BenchmarkWriter.begin(record.path.parents[3], header) as writer:
        for at, case in record.cases.items():
            found = changed.get(at)
            if at in record.samples and (found is None or found.status != "refused"):
                writer.add(Samples(str(at), "s", list(record.samples[at])))
            if found is None or not found.status:
                writer.add(case)
            else:
                checked = found.reason if found.status == "unchecked" else case.checked
                writer.add(structs.replace(case, status=found.status, reason=found.reason, checked=checked))
        if record.end is not None:
            writer.add(record.end)
        return BenchmarkRecord.read(writer.path)


def _digest(folder: str) -> str:
    """SHA-256 of all files in a folder; empty if there is no folder."""
    found = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()) if folder else ():
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest() if folder else ""


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
    """Carry out a job in a separate process; returns its notes. Raises what it reported, or how it died.

    Raises ``CheckFailedError``, and removes the record, if its clock and this process's disagree.
    """
    begin = partial(starter.start, job.specification.framework)
    clocks_ns: list[tuple[int, int]] = []
    written = b""

    def hear(note: Note) -> None:
        if note.clock_ns is not None:
            clocks_ns.append((note.clock_ns, HOST.now_ns()))
        if note.path is not None:
            nonlocal written
            written = Path(note.path).read_bytes()
        if on_note is not None:
            on_note(note)

    ending: AbstractContextManager[list[int]] = ending_leftovers() if job.file else nullcontext([])
    with ending as left:
        notes, code, output = listen(_CHILD, job, Note, hear, begin, patience(job.specification.framework))
    _raise_failure(job, notes, code, output)
    path = next((Path(note.path) for note in notes if note.path), None)
    if path is None:
        return notes
    found = _apart(clocks_ns)
    if left:
        found = f"it left processes behind ({len(left)}), which slow down what is measured beside it"
    elif not (path.is_file() and path.read_bytes().startswith(written)):
        found = "its record is not what it was when each problem had been measured"
    if found:
        path.unlink(missing_ok=True)
        do = "its operators change more than their results: their times cannot be used"
        raise CheckFailedError(f"a benchmark on {job.specification.framework}", found, do)
    return notes


_APART, _LATE_NS = 0.05, 300_000_000
"""Clocks disagree by more than this share, and by more than a busy machine delays a note."""


def _apart(clocks_ns: Sequence[tuple[int, int]]) -> str:
    """How the clock of a process differs from this one's, from pairs of readings; empty if it does not."""
    for theirs, ours in clocks_ns[1:]:
        claimed, real = theirs - clocks_ns[0][0], ours - clocks_ns[0][1]
        if abs(real - claimed) > _APART * abs(real) + _LATE_NS:
            return f"its clock counted {claimed * 1e-9:.3g} s while the one of its parent counted {real * 1e-9:.3g} s"
    return ""


def _raise_failure(job: BenchmarkJob, notes: Sequence[Note], code: int, output: str) -> None:
    problems = job.specification.problems
    measured = sum(note.case is not None for note in notes)
    at = f" at {problems[measured].name}" if measured < len(problems) else ""
    ceilings = job.seed is None
    at = " at its ceilings" if ceilings else at
    asked = f"a benchmark on {job.specification.framework}"
    raise_reported(notes, code, output, asked, at, measured, begun=ceilings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
