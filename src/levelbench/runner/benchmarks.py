"""Plans and makes the replicates of a benchmark: which are done, which are to go, interleaved, one process each.

The one idea: the same command resumes. A replicate counts as done if its record came to its end, on this machine with
these libraries; one that was interrupted is made anew, since its problems belong to a process that is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from levelbench.errors import LevelbenchError, MissingError, UsageError
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
from levelbench.records.faults import store_fault
from levelbench.runner.agreement import disagreement
from levelbench.runner.benchmark_child import BenchmarkJob, Note

# What a process dies of by its own fault: others send SIGKILL and SIGTERM.
_CRASHES = {signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}

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
    _need_folder(store / FOLDER)
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


def _need_folder(folder: Path) -> None:
    """Make the folder of the records before anything is measured for it: ``StoreError`` where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise store_fault("a store for the records", folder, error) from error


class _CrashError(LevelbenchError):
    """A process that a framework brought down at the problem ``index``."""

    exit_code = 3
    index = 0


def _survived(job: BenchmarkJob, begin: Callable[[], None], on_note: Callable[[Note], None]) -> list[Note]:
    """The notes of a process that came to its end: problems at which one crashed are left out of the next."""
    crashed: dict[int, str] = {}
    while True:
        begin()
        try:
            return _process(structs.replace(job, id=new_id(), crashed=crashed), on_note)
        except _CrashError as crash:
            if crash.index in crashed:
                raise
            crashed = {**crashed, crash.index: crash.found}


def _process(job: BenchmarkJob, on_note: Callable[[Note], None] | None = None) -> list[Note]:
    """Carry out a job in a fresh process, alone; its notes. Raises what it told, or how it died."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "levelbench.runner.benchmark_child", str(write)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(write,),
        )
        os.close(write)
        notes: list[Note] = []
        try:
            assert process.stdin is not None
            # It may have died before it read its job; how it died is told below.
            with suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(job))
                process.stdin.close()
            with os.fdopen(read, "rb") as pipe:
                # The loop sleeps until a line comes, and ends with the process.
                for line in pipe:
                    notes.append(msgspec.json.decode(line, type=Note, strict=False))
                    if on_note is not None:
                        on_note(notes[-1])
            process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    _raise_failure(job, notes, process.returncode, text)
    return notes


def _raise_failure(job: BenchmarkJob, notes: Sequence[Note], code: int, output: str) -> None:
    told = next((note for note in notes if note.error is not None), None)
    if told is not None and told.error is not None:
        said = LevelbenchError(*told.error)
        said.exit_code, said.trace = told.exit_code, told.trace
        raise said
    if code == 0 and any(note.done for note in notes):
        return
    specification = job.specification
    measured = sum(note.case is not None for note in notes)
    at = f" at {specification.problems[measured].name}" if measured < len(specification.problems) else ""
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    last = output.strip().splitlines()[-1:] or ["nothing printed"]
    began = any(note.path for note in notes)
    kind = _CrashError if -code in _CRASHES and at and began else LevelbenchError
    error = kind(
        f"a benchmark on {specification.framework}",
        f"its process {ended}{at} ({last[0]})",
        "run the same command again to resume; --debug shows all that it printed",
    )
    if isinstance(error, _CrashError):
        error.index = measured
    error.exit_code, error.trace = 3, output
    raise error
