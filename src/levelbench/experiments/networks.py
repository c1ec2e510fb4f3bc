"""Plans and makes the replicates of a network's benchmark: one process a case, an arm and a number, interleaved.

The same command resumes. A replicate counts as done if its record came to its end, on this machine with
these libraries. Arms take turns at each case, A B, B A, so that what drifts meets all of them alike.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from levelbench.experiments.agreement import disagreement
from levelbench.experiments.children import listen, need_folder, raise_told, survived
from levelbench.experiments.network_child import NetworkJob, NetworkNote
from levelbench.experiments.replicates import Place, Plan, Replicate, need_frameworks, plan_replicates
from levelbench.operators.benchmark.measuring import merged
from levelbench.records import key_of, new_id
from levelbench.records.networks import FOLDER, NetworkArm, NetworkOutcome, NetworkRecord, NetworkSpecification

__all__ = ["NetworkPlan", "NetworkWatcher", "carry_out_networks", "plan_networks"]

NetworkPlan = Plan[NetworkSpecification, NetworkRecord]


class NetworkWatcher:
    """Looks on while replicates are made; this one says nothing."""

    def ceilings(self, framework: str) -> None:
        """The ceilings of a framework are being measured."""

    def reference(self, specification: NetworkSpecification) -> None:
        """The reference of a case is being computed."""

    def started(self, step: Replicate, at: int, total: int) -> None:
        """The process of the replicate at place ``at`` (from 1) of ``total`` begins."""

    def stage(self, step: Replicate, stage: str) -> None:
        """The process begins a stage of ``levelbench.networks.benchmark.measuring.STAGES``."""

    def finished(self, step: Replicate, outcome: NetworkOutcome) -> None:
        """The process has ended, and its record is whole."""


def plan_networks(
    grid: Sequence[Sequence[NetworkSpecification]],
    count: int,
    store: Path,
    environment: Mapping[str, Any],
    *,
    fresh: bool = False,
    since: str = "",
) -> NetworkPlan:
    """Look for what is done and interleave what is to go; ``grid[case][arm]`` has the same arms for each case.

    Raises ``MissingError`` for a framework or device that is not here, ``UsageError`` for a replicate that another
    process is at right now.
    """
    need_frameworks((each.arm.framework, each.arm.device) for row in grid for each in row)
    return plan_replicates(
        grid,
        count,
        find=lambda each: NetworkRecord.find(store, key_of(each)),
        why_not=lambda record: _why_not(record, environment),
        title=lambda each: each.arm.title,
        fresh=fresh,
        since=since,
    )


def _why_not(record: NetworkRecord, now: Mapping[str, Any]) -> str:
    """Why a record that came to its end does not count, or an empty string."""
    libraries = ("numpy", "onnx", record.header.specification.arm.framework)
    return disagreement(record.header.version, record.header.environment, now, libraries)


def carry_out_networks(
    plan: NetworkPlan, store: Path, watcher: NetworkWatcher, *, effect: float | None = None
) -> dict[Place, NetworkRecord]:
    """Measure the ceilings and compute the references once, then make what is to go; all records that count, by place.

    ``effect`` is what looks at the comparison are planned for, if they are. A process that crashes has a record that
    says so, and the rest goes on. Raises the error of a process that could not be carried out; what was finished before
    it is kept.
    """
    records = dict(plan.done)
    if not plan.steps:
        return records
    need_folder(store / FOLDER)
    ceilings = _ceilings(plan, store, watcher)
    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        references = {
            case: _reference(NetworkJob(plan.grid[case][0], str(store)), Path(folder) / f"{case}.npz", watcher)
            for case in sorted({step.case for step in plan.steps})
        }
        for number, step in enumerate(plan.steps, 1):
            job = structs.replace(
                references[step.case], specification=plan.specification(step), seed=step.seed, ceilings=ceilings
            )
            job = structs.replace(job, planned=(effect, plan.count))

            def begin(step: Replicate = step, number: int = number) -> None:
                watcher.started(step, number, len(plan.steps))

            def on_note(note: NetworkNote, step: Replicate = step) -> None:
                if note.stage:
                    watcher.stage(step, note.stage)

            notes = _survived(job, begin, on_note)
            record = NetworkRecord.read(Path(next(note.path for note in notes if note.path)))
            records[step.place] = record
            if record.outcome is not None:
                watcher.finished(step, record.outcome)
    return records


def _ceilings(plan: NetworkPlan, store: Path, watcher: NetworkWatcher) -> dict[str, Any]:
    """The largest that any framework of the plan reached, in each dtype in which something is to be computed."""
    found = []
    wanted = {}
    for step in plan.steps:
        specification = plan.specification(step)
        arm = specification.arm
        wanted[arm.framework, arm.device, "float32"] = specification
        wanted.update({(arm.framework, arm.device, dtype): specification for dtype in _other_dtypes(arm)})
    for (framework, _, dtype), specification in wanted.items():
        watcher.ceilings(framework)
        notes = _process(NetworkJob(specification, str(store), "ceilings", dtype=dtype))
        found += [note.ceilings for note in notes if note.ceilings is not None]
    return merged(found)


def _other_dtypes(arm: NetworkArm) -> list[str]:
    """The dtypes to which its transforms change the network, as ``precision:bfloat16`` does."""
    words = [word.partition(";")[0].partition(":")[2] for word in arm.transforms]
    return [word for word in words if word in ("bfloat16", "float16", "float64")]


def _reference(job: NetworkJob, path: Path, watcher: NetworkWatcher) -> NetworkJob:
    """``job`` with the file of its case's reference, or with the reason why there is none.

    Raises what the process told: a network that cannot be made is no arm's fault. One that died costs the comparison.
    """
    if job.specification.case.kind == "native":
        return structs.replace(job, no_reference="a native model has no other to be compared with")
    watcher.reference(job.specification)
    asked = structs.replace(job, purpose="reference", reference=str(path))
    notes, code, output = listen("levelbench.experiments.network_child", asked, NetworkNote)
    if code == 0 or any(note.error is not None for note in notes):
        _raise_failure(asked, notes, code, output)
        return structs.replace(job, reference=str(path))
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return structs.replace(job, no_reference=f"the process of the reference {ended}")


def _survived(job: NetworkJob, begin: Callable[[], None], on_note: Callable[[NetworkNote], None]) -> list[NetworkNote]:
    """The notes of a process that came to its end: after a crash, of one that records it."""

    def attempt(crashed: dict[int, str]) -> list[NetworkNote]:
        begin()
        return _process(structs.replace(job, id=new_id(), crashed=crashed.get(0, "")), on_note)

    return survived(attempt)


def _process(job: NetworkJob, on_note: Callable[[NetworkNote], None] | None = None) -> list[NetworkNote]:
    """Carry out a job in a fresh process, alone; its notes. Raises what it told, or how it died."""
    notes, code, output = listen("levelbench.experiments.network_child", job, NetworkNote, on_note)
    _raise_failure(job, notes, code, output)
    return notes


def _raise_failure(job: NetworkJob, notes: Sequence[NetworkNote], code: int, output: str) -> None:
    stage = next((note.stage for note in reversed(notes) if note.stage), "")
    specification = job.specification
    asked = f"{job.purpose} of {specification.case.title} on {specification.arm.title}"
    raise_told(notes, code, output, asked, f" at {stage}" if stage else "", 0)
