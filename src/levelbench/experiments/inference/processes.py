"""Benchmarks of inference: each process is identified by its arm and number; its threads, and what it executes.

A process counts as done if its measurement finished on this machine with these libraries; a failed one does not.
Nothing heavy is imported at the top, so that the start of the framework can be measured.

The number of threads is set by the variables that an arm's framework reads, or by restricting its cores, and is
compared with what the framework reports. So the number in a record's name is correct.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import msgspec
from msgspec import structs

from levelbench.errors import CheckFailedError, UsageError
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
from levelbench.experiments.processes import ProcessNote, listen, need_folder, patience, raise_reported, serve, survived
from levelbench.records import key_of, new_id
from levelbench.records.inference import FOLDER, InferenceArm, InferenceOutcome, InferenceRecord, InferenceSpecification
from levelbench.records.processes import Planned

__all__ = ["InferenceBenchmarks", "InferenceJob", "InferenceNote", "check_cores", "check_threads", "limit_cores"]
__all__ += ["main", "reads_thread_variables", "with_threads", "with_variables"]

_CHILD = "levelbench.experiments.inference.processes"
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_READ_THEM = ("numpy", "torch", "onnxruntime", "tensorflow")


def reads_thread_variables(framework: str) -> bool:
    """Whether it reads its number of threads from variables; XLA, under JAX, starts one per allowed core."""
    return framework in _READ_THEM


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_cores(arm: InferenceArm) -> None:
    """Raise ``UsageError`` for a number of threads that its framework cannot use here."""
    if arm.threads is None or reads_thread_variables(arm.framework):
        return
    asked = f"--threads {arm.threads} on {arm.framework}"
    if not hasattr(os, "sched_setaffinity"):
        found = "it uses a thread per core, and cores cannot be restricted on this system"
        raise UsageError(asked, found, "leave --threads out")
    if arm.threads > _cores():
        found = f"it uses a thread per core, and {_cores()} may be used here"
        raise UsageError(asked, found, f"ask for at most {_cores()}")


def check_threads(arm: InferenceArm, described: Mapping[str, object]) -> None:
    """Raise ``CheckFailedError`` if the framework reports a different number of threads than requested."""
    has = described.get("threads")
    if arm.threads is not None and isinstance(has, int) and has != arm.threads:
        found = f"it has {has} instead of {arm.threads}"
        raise CheckFailedError(f"the threads of {arm.framework}", found, "leave --threads out")


def with_threads(environment: Mapping[str, Any], arm: InferenceArm) -> Mapping[str, Any]:
    """The environment as a process with the threads of ``arm`` sees it."""
    if arm.threads is None:
        return environment
    known, machine = environment.get("threads", {}), environment.get("machine", {})
    settings = {**(known.get("settings") or {}), **dict.fromkeys(_VARIABLES, str(arm.threads))}
    if not reads_thread_variables(arm.framework) and machine.get("cores_allowed") is not None:
        machine = {**machine, "cores_allowed": min(arm.threads, machine["cores_allowed"])}
    return {**environment, "threads": {**known, "settings": settings}, "machine": machine}


@contextmanager
def with_variables(count: int | None) -> Iterator[None]:
    """Set the thread variables to ``count`` for processes that are started in this context."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    if count is not None:
        os.environ.update(dict.fromkeys(_VARIABLES, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class InferenceJob(msgspec.Struct, frozen=True):
    """What to measure. ``data`` is the folder of the task's data, if the user named one.

    ``crashed`` says how an earlier process crashed: that is recorded, and the measurement is not tried again.
    ``planned`` is for the header.
    """

    specification: InferenceSpecification
    store: str
    id: str = ""
    seed: int = 0
    data: str = ""
    crashed: str = ""
    planned: Planned = Planned()


class InferenceNote(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also a stage that begins, or the outcome."""

    stage: str = ""
    outcome: InferenceOutcome | None = None


def limit_cores(arm: InferenceArm) -> None:
    """Restrict the cores of a framework that uses a thread per core, before it is imported and counts them."""
    if arm.threads is not None and not reads_thread_variables(arm.framework) and hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, usable[: arm.threads])


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, InferenceJob, _carry_out)


def _carry_out(job: InferenceJob, tell: Callable[[ProcessNote], None]) -> None:
    limit_cores(job.specification.arm)
    from levelbench.experiments.inference.measuring import make_inference_record

    make_inference_record(
        job.specification,
        job.seed,
        job.id,
        Path(job.store),
        Path(job.data) if job.data else None,
        lambda path, stage, outcome: tell(InferenceNote(path=str(path), stage=stage, outcome=outcome)),
        job.crashed,
        job.planned,
    )


@final
class InferenceBenchmarks(Kind[InferenceSpecification, InferenceRecord]):
    """Processes that measure inference; the arms are frameworks and threads.

    ``folder`` is that of the task's data, ``effect`` the effect for which looks at the comparison are planned, if they
    are. If a process crashes, its record says so, and the others continue.
    """

    def __init__(self, store: Path, folder: Path | None = None, *, effect: float | None = None) -> None:
        self._store, self._folder, self._effect = store, folder, effect

    def check(self, arms: Sequence[InferenceSpecification]) -> None:
        """Refuse missing frameworks (``MissingError``), arms named twice and too many threads (``UsageError``)."""
        need_frameworks((each.arm.framework, each.arm.device) for each in arms)
        for each in arms:
            check_cores(each.arm)
        if len({key_of(each) for each in arms}) < len(arms):
            raise UsageError("a comparison of frameworks", "one of them is named twice", "name each once")

    def key(self, wanted: InferenceSpecification) -> str:
        """The key of its records."""
        return key_of(wanted)

    def title(self, wanted: InferenceSpecification) -> str:
        """The title of its arm."""
        return wanted.arm.title

    def find(self, wanted: InferenceSpecification) -> Iterable[InferenceRecord]:
        """Its records in the store."""
        return InferenceRecord.find(self._store, key_of(wanted))

    def why_not(
        self, record: InferenceRecord, wanted: InferenceSpecification, environment: Mapping[str, object]
    ) -> str:
        """It failed, or was made on another machine, by another version, or with other libraries."""
        if record.outcome is None or record.outcome.status == "failed":
            return f"it failed before: {record.outcome.reason if record.outcome is not None else 'no reason given'}"
        now = with_threads(environment, wanted.arm)
        libraries = ("numpy", "onnx", wanted.arm.framework)
        return disagreement(record.header.version, record.header.environment, now, libraries)

    @contextmanager
    def opened(
        self, plan: Plan[InferenceSpecification, InferenceRecord], watcher: Watcher[InferenceRecord]
    ) -> Iterator[Make[InferenceRecord]]:
        """Only the folder is prepared."""
        need_folder(self._store / FOLDER)
        before = measured_before(self, plan)

        def make(turn: Turn, begin: Callable[[], None]) -> tuple[InferenceRecord, None]:
            job = InferenceJob(
                plan.arms[turn.arm],
                str(self._store),
                seed=turn.seed,
                data=str(self._folder) if self._folder else "",
                planned=Planned(self._effect, len(plan.seeds), before[turn.arm]),
            )

            def on_note(note: InferenceNote) -> None:
                if note.stage:
                    watcher.progress(turn, note.stage)

            notes = _survived(job, begin, on_note)
            return InferenceRecord.read(next(note.path for note in notes if note.path)), None

        yield make


def _survived(
    job: InferenceJob, begin: Callable[[], None], on_note: Callable[[InferenceNote], None]
) -> list[InferenceNote]:
    """The notes of a process that finished: after a crash, of one that records the crash."""

    def attempt(crashed: dict[int, str]) -> list[InferenceNote]:
        begin()
        asked = structs.replace(job, id=new_id(), crashed=crashed.get(0, ""))
        with with_variables(job.specification.arm.threads):
            silent_s = patience(job.specification.arm.framework)
            notes, code, output = listen(_CHILD, asked, InferenceNote, on_note, silent_s=silent_s)
        stage = next((note.stage for note in reversed(notes) if note.stage), "")
        what = f"inference of {job.specification.title} on {job.specification.arm.title}"
        raise_reported(notes, code, output, what, f" at {stage}" if stage else "", 0)
        return notes

    return survived(attempt)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
