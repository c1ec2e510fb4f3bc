"""Plans and makes the processes of an inference benchmark: one an arm and number, interleaved.

The same command resumes. A process counts as done if it was measured to its end, on this machine with
these libraries, and one that failed does not. Arms take turns, A B, B A, so that what drifts meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from levelbench.errors import UsageError
from levelbench.experiments.agreement import disagreement
from levelbench.experiments.children import listen, need_folder, raise_told, survived
from levelbench.experiments.inference.child import InferenceJob, InferenceNote
from levelbench.experiments.inference.threads import check_cores, with_threads, with_variables
from levelbench.experiments.replicates import Place, Plan, Replicate, need_frameworks, plan_replicates
from levelbench.records import key_of, new_id
from levelbench.records.inference import FOLDER, InferenceOutcome, InferenceRecord, InferenceSpecification

__all__ = ["InferencePlan", "InferenceWatcher", "carry_out_inference"]
__all__ += ["plan_inference"]

InferencePlan = Plan[InferenceSpecification, InferenceRecord]
"""Of one case, whose arms are frameworks and threads."""


class InferenceWatcher:
    """Looks on while processes are made; this one says nothing."""

    def started(self, step: Replicate, at: int, total: int) -> None:
        """The process at place ``at`` (from 1) of ``total`` begins."""

    def stage(self, step: Replicate, stage: str) -> None:
        """The process begins a stage of ``levelbench.experiments.inference.measuring.STAGES``."""

    def finished(self, step: Replicate, outcome: InferenceOutcome) -> None:
        """The process has ended, and its record is whole."""


def plan_inference(
    arms: Sequence[InferenceSpecification],
    count: int,
    store: Path,
    environment: Mapping[str, Any],
    *,
    fresh: bool = False,
    since: str = "",
) -> InferencePlan:
    """Look for what is done and interleave what is to go.

    Raises ``MissingError`` for a framework or device that is not here, ``UsageError`` for a process that another
    command is at right now, or an arm that is named twice.
    """
    need_frameworks((each.arm.framework, each.arm.device) for each in arms)
    for each in arms:
        check_cores(each.arm)
    if len({key_of(each) for each in arms}) < len(arms):
        raise UsageError("a comparison of frameworks", "one of them is named twice", "name each once")
    return plan_replicates(
        [arms],
        count,
        find=lambda each: InferenceRecord.find(store, key_of(each)),
        why_not=lambda record: _why_not(record, environment),
        title=lambda each: each.arm.title,
        fresh=fresh,
        since=since,
    )


def _why_not(record: InferenceRecord, now: Mapping[str, Any]) -> str:
    """Why a record that came to its end does not count, or an empty string."""
    if record.outcome is None or record.outcome.status == "failed":
        return f"it failed before: {record.outcome.reason if record.outcome is not None else 'nobody said why'}"
    arm = record.header.specification.arm
    now = with_threads(now, arm)
    return disagreement(record.header.version, record.header.environment, now, ("numpy", "onnx", arm.framework))


def carry_out_inference(
    plan: InferencePlan, store: Path, folder: Path | None, watcher: InferenceWatcher, *, effect: float | None = None
) -> dict[Place, InferenceRecord]:
    """Make what is to go; all records that count, by place.

    ``folder`` is that of the task's data, ``effect`` what looks at the comparison are planned for, if they are.
    A process that crashes has a record that says so, and the rest goes on. Raises the error of a process that could not
    be carried out; what was finished before it is kept.
    """
    records = dict(plan.done)
    if plan.steps:
        need_folder(store / FOLDER)
    for number, step in enumerate(plan.steps, 1):
        job = InferenceJob(plan.specification(step), str(store), seed=step.seed, data=str(folder) if folder else "")
        job = structs.replace(job, planned=(effect, plan.count))
        notes = _survived(job, step, number, len(plan.steps), watcher)
        record = InferenceRecord.read(next(note.path for note in notes if note.path))
        records[step.place] = record
        if record.outcome is not None:
            watcher.finished(step, record.outcome)
    return records


def _survived(
    job: InferenceJob, step: Replicate, at: int, total: int, watcher: InferenceWatcher
) -> list[InferenceNote]:
    """The notes of a process that came to its end: after a crash, of one that records it."""

    def on_note(note: InferenceNote) -> None:
        if note.stage:
            watcher.stage(step, note.stage)

    def attempt(crashed: dict[int, str]) -> list[InferenceNote]:
        watcher.started(step, at, total)
        asked = structs.replace(job, id=new_id(), crashed=crashed.get(0, ""))
        with with_variables(job.specification.arm.threads):
            notes, code, output = listen("levelbench.experiments.inference.child", asked, InferenceNote, on_note)
        stage = next((note.stage for note in reversed(notes) if note.stage), "")
        what = f"inference of {job.specification.title} on {job.specification.arm.title}"
        raise_told(notes, code, output, what, f" at {stage}" if stage else "", 0)
        return notes

    return survived(attempt)
