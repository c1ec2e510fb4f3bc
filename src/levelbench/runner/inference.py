"""Plans and makes the processes of an inference benchmark: one an arm and number, interleaved.

The one idea: the same command resumes. A process counts as done if it was measured to its end, on this machine with
these libraries, and one that failed does not. Arms take turns, A B, B A, so that what drifts meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from levelbench.errors import MissingError, UsageError
from levelbench.operators.frameworks import load_framework
from levelbench.records import new_id
from levelbench.records.inference import (
    FOLDER,
    InferenceOutcome,
    InferenceRecord,
    InferenceSpecification,
    find_inference_records,
    inference_key,
    read_inference,
)
from levelbench.runner.agreement import disagreement
from levelbench.runner.children import CrashError, listen, need_folder, raise_told
from levelbench.runner.inference_child import InferenceJob, InferenceNote
from levelbench.runner.inference_threads import check_cores, with_threads, with_variables

__all__ = ["InferencePlan", "InferenceReplicate", "InferenceWatcher", "arms_of", "carry_out_inference"]
__all__ += ["plan_inference"]

Place = tuple[int, int]
"""The place of an arm, and the number of a process."""


@dataclass(frozen=True)
class InferenceReplicate:
    """One process to make: the place of its arm, its number, and why it is made again, if it is."""

    arm: int
    seed: int
    why: str = ""

    @property
    def place(self) -> Place:
        """What it is known by."""
        return self.arm, self.seed


@dataclass(frozen=True)
class InferencePlan:
    """``arms`` are the specifications; ``done`` the records that count, by place."""

    arms: tuple[InferenceSpecification, ...]
    count: int
    done: Mapping[Place, InferenceRecord]
    steps: tuple[InferenceReplicate, ...]

    def lines(self) -> list[str]:
        """The plan in words: the counts, then each reason that something is made again."""
        wanted = len(self.arms) * self.count
        reasons: dict[str, int] = {}
        for step in self.steps:
            if step.why:
                reasons[step.why] = reasons.get(step.why, 0) + 1
        counts = (
            f"{wanted} process{'es' if wanted != 1 else ''} wanted · {len(self.done)} done · {len(self.steps)} to go"
        )
        return [counts, *(f"  again: {number}: {why}" for why, number in reasons.items())]


class InferenceWatcher:
    """Looks on while processes are made; this one says nothing."""

    def started(self, step: InferenceReplicate, at: int, total: int) -> None:
        """The process at place ``at`` (from 1) of ``total`` begins."""

    def stage(self, step: InferenceReplicate, stage: str) -> None:
        """The process begins a stage of ``levelbench.runner.inference_measuring.STAGES``."""

    def finished(self, step: InferenceReplicate, outcome: InferenceOutcome) -> None:
        """The process has ended, and its record is whole."""


def plan_inference(
    arms: Sequence[InferenceSpecification],
    count: int,
    store: Path,
    environment: Mapping[str, Any],
    *,
    fresh: bool = False,
) -> InferencePlan:
    """Look for what is done and interleave what is to go.

    Raises ``MissingError`` for a framework or device that is not here, ``UsageError`` for a process that another
    command is at right now, or an arm that is named twice.
    """
    for each in arms:
        if lacking := load_framework(each.arm.framework).lacks(each.arm.device):
            asked = f"framework {each.arm.framework!r} on device {each.arm.device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")
        check_cores(each.arm)
    if len({inference_key(each) for each in arms}) < len(arms):
        raise UsageError("a comparison of frameworks", "one of them is named twice", "name each once")
    done: dict[Place, InferenceRecord] = {}
    whys: dict[Place, str] = {}
    for at, specification in enumerate(arms):
        for record in find_inference_records(store, inference_key(specification)):
            place = (at, record.header.seed)
            if record.header.seed >= count:
                continue
            if record.status == "running":
                found = f"another process is at it right now ({record.path.name})"
                raise UsageError(f"process {record.header.seed} of {specification.arm.title}", found, "wait for it")
            if fresh:
                continue
            if why := _why_not(record, environment):
                whys.setdefault(place, why)
            else:
                done[place] = record
    steps = []
    for seed in range(count):
        order = range(len(arms)) if seed % 2 == 0 else range(len(arms) - 1, -1, -1)
        steps += [InferenceReplicate(at, seed, whys.get((at, seed), "")) for at in order if (at, seed) not in done]
    return InferencePlan(tuple(arms), count, done, tuple(steps))


def _why_not(record: InferenceRecord, now: Mapping[str, Any]) -> str:
    """Why a record does not count as done, or an empty string."""
    if record.status != "done":
        return "the process before was interrupted"
    if record.outcome is None or record.outcome.status == "failed":
        return f"it failed before: {record.outcome.reason if record.outcome is not None else 'nobody said why'}"
    arm = record.header.specification.arm
    now = with_threads(now, arm)
    return disagreement(record.header.version, record.header.environment, now, ("numpy", "onnx", arm.framework))


def arms_of(plan: InferencePlan, records: Mapping[Place, InferenceRecord]) -> list[list[InferenceRecord]]:
    """The records as ``summarise_inference`` takes them: by arm and number."""
    return [[records[at, seed] for seed in range(plan.count)] for at in range(len(plan.arms))]


def carry_out_inference(
    plan: InferencePlan, store: Path, folder: Path | None, watcher: InferenceWatcher
) -> dict[Place, InferenceRecord]:
    """Make what is to go; all records that count, by place. ``folder`` is that of the task's data.

    A process that crashes has a record that says so, and the rest goes on. Raises the error of a process that could not
    be carried out; what was finished before it is kept.
    """
    records = dict(plan.done)
    if plan.steps:
        need_folder(store / FOLDER)
    for number, step in enumerate(plan.steps, 1):
        job = InferenceJob(plan.arms[step.arm], str(store), seed=step.seed, data=str(folder) if folder else "")
        notes = _survived(job, step, number, len(plan.steps), watcher)
        record = read_inference(next(note.path for note in notes if note.path))
        records[step.place] = record
        if record.outcome is not None:
            watcher.finished(step, record.outcome)
    return records


def _survived(
    job: InferenceJob, step: InferenceReplicate, at: int, total: int, watcher: InferenceWatcher
) -> list[InferenceNote]:
    """The notes of a process that came to its end: after a crash, of one that records it."""

    def on_note(note: InferenceNote) -> None:
        if note.stage:
            watcher.stage(step, note.stage)

    crashed = ""
    while True:
        watcher.started(step, at, total)
        asked = structs.replace(job, id=new_id(), crashed=crashed)
        with with_variables(job.specification.arm.threads):
            notes, code, output = listen("levelbench.runner.inference_child", asked, InferenceNote, on_note)
        stage = next((note.stage for note in reversed(notes) if note.stage), "")
        what = f"inference of {job.specification.title} on {job.specification.arm.title}"
        try:
            raise_told(notes, code, output, what, f" at {stage}" if stage else "", 0)
        except CrashError as crash:
            if crashed:
                raise
            crashed = crash.found
        else:
            return notes
