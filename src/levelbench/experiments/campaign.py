"""Carries out a plan: one run after another, each in its process, telling a watcher what happens.

The first run that cannot be done ends the campaign, since what stops one (a corrupt dataset, a task that
raises) mostly stops all; what was finished before is in the store, and the same command goes on from there. A run is
claimed while it is made, so that two commands started at once share the work and make no run twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from levelbench.errors import RecordError
from levelbench.experiments.jobs import Job
from levelbench.experiments.launch import CHILD, Finished, launch
from levelbench.experiments.plan import Plan, Step
from levelbench.experiments.request import Arm, load_task
from levelbench.experiments.starting import Starter
from levelbench.experiments.task_files import is_ours, quick_doubts, target_doubts
from levelbench.experiments.witness import held
from levelbench.records import Event, Record, Store, new_id, read_record, summarise
from levelbench.records.locks import claimed

__all__ = ["Extras", "Watcher", "carry_out"]


_CLAIMS = ".claims"
"""Folder in the store: a file a run that is being made, locked by the process that makes it."""

_SHOWN = 3


class Watcher(Protocol):
    """Looks on while runs are made."""

    def doubted(self, doubts: list[str]) -> None:
        """Why the runs of the arm that is next will be doubted, whatever they show."""

    def started(self, step: Step, arm: Arm) -> None:
        """A run's process begins."""

    def progress(self, events: list[Event], elapsed_s: float, phase: str) -> None:
        """New events of the run that is going, how long it has been, and what it is at (``train, step 7/100``)."""

    def finished(self, step: Step, arm: Arm, finished: Finished, record: Record | None) -> None:
        """A run's process has ended."""


@dataclass(frozen=True)
class Extras:
    """What a run does beside training: how often it keeps a checkpoint, and who looks on.

    ``timeout_s`` is how long a rank waits for another one, ``keep_model`` whether trained networks are kept,
    ``planned_effect`` what looks at the comparison are planned for, where it goes on until it is clear. ``fork`` is
    whether the processes of runs may be forked from one that has done the imports.
    """

    checkpoint: str | None = None
    observe: tuple[str, ...] = ()
    timeout_s: float = 300.0
    keep_model: bool = False
    planned_effect: float | None = None
    fork: bool = True


def carry_out(
    plan: Plan, store: Store, data: Path | None, watcher: Watcher, extras: Extras | None = None
) -> dict[tuple[int, int], Record]:
    """Run what is to go, in order. All records that count, by arm and seed: those done before, and the new ones.

    Raises the error of a run that could not be done; its record, if there is one, says ``failed`` or ``interrupted``,
    or ``done`` where only its network could not be kept.
    """
    records = dict(plan.done)
    extras = extras or Extras()
    found: dict[int, list[str]] = {}
    with _starter(plan, extras.fork) as starter:
        for step in plan.steps:
            arm = plan.arms[step.arm]
            if step.arm not in found:
                found[step.arm] = _doubts(arm, data)
                watcher.doubted(found[step.arm])
            watcher.started(step, arm)
            claim = store.path / _CLAIMS / f"{arm.key[:16]}-s{step.seed}"
            with claimed(claim, lambda: watcher.progress([], 0.0, "another process is making it")):
                record = plan.made_meanwhile(step, store)
                if record is not None:
                    watcher.finished(step, arm, Finished(record.path, None), record)
                else:
                    starter.begin(plan.seeds.index(step.seed))
                    record = _made(step, arm, store, data, watcher, extras, found[step.arm], len(plan.seeds), starter)
            if record is not None:
                records[step.arm, step.seed] = record
    return records


def _starter(plan: Plan, fork: bool) -> Starter:
    """What starts the runs of a plan; ranks are new interpreters, and so are the runs beside them."""
    parts = [arm.specification for arm in plan.arms]
    alone = all(each.distribution is None for each in parts)
    return Starter(CHILD, [(each.framework, each.device) for each in parts], fork=fork and alone)


def _doubts(arm: Arm, data: Path | None) -> list[str]:
    """What quick probes find wrong before the first run: with a task of somebody else, or with another target."""
    task, specification = load_task(arm.reference), arm.specification
    target = specification.target.threshold
    if is_ours(arm.reference):
        return target_doubts(task, target, data)
    return quick_doubts(task, specification.recipe, specification.settings, data, target)


def _sound(record: Record | None) -> Record | None:
    """``record``; ``RecordError`` for one that no other command would take, as it contradicts itself."""
    found = summarise(record).contradictions if record is not None else []
    if record is None or not found:
        return record
    raise RecordError(
        f"the run of {record.header.specification.task}, seed {record.header.seed}",
        f"its record contradicts itself: {'; '.join(found[:_SHOWN])} ({record.path})",
        "look for what in the task or on the machine makes it so, and run it again; until then it does not count",
    )


def _witnessed(finished: Finished) -> Record | None:
    """The record, which has to hold what its parent told it as a witness; ``RecordError`` for one that does not.

    Such a record is set aside, as any reader would take it for a run like others.
    """
    record = read_record(finished.path) if finished.path else None
    if record is None or record.end is None or record.status != "done":
        return record
    testimony = finished.testimony
    if testimony is None or (testimony and held(record.end.witness, testimony)):
        return record
    aside = record.path.with_suffix(".refused")
    record.path.replace(aside)
    raise RecordError(
        f"the run of {record.header.specification.task}, seed {record.header.seed}",
        "its record does not hold what the process that started it saw of its clock",
        f"look for what changes the record while it is written ({aside}), and run it again",
    )


def _made(
    step: Step,
    arm: Arm,
    store: Store,
    data: Path | None,
    watcher: Watcher,
    extras: Extras,
    doubts: list[str],
    planned: int,
    starter: Starter,
) -> Record | None:
    """Make one run; what it replaces is superseded once it is done."""
    job = Job(
        reference=arm.reference,
        specification=arm.specification,
        key=arm.key,
        seed=step.seed,
        id=new_id(),
        store=str(store.path),
        data=str(data) if data else None,
        source=arm.source.whole,
        resume=str(step.resume) if step.resume else None,
        checkpoint=extras.checkpoint,
        observe=list(extras.observe),
        timeout_s=extras.timeout_s,
        keep_model=extras.keep_model,
        doubts=doubts,
        planned_effect=extras.planned_effect,
        planned_runs=planned,
        replaced=step.replaced,
    )
    finished = launch(job, watcher.progress, starter)
    record = _sound(_witnessed(finished))
    # What failed after the end of a run, as keeping its network may, makes it no failed run.
    done = record is not None and record.status == "done"
    if done:
        store.supersede(step.replaces)
    watcher.finished(step, arm, replace(finished, error=None) if done else finished, record)
    if finished.error is not None:
        raise finished.error
    return record
