"""One process of an inference benchmark: ``python -m levelbench.experiments.inference.child``.

Nothing heavy is imported here, so that the first that is, the framework, is measured as it starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from levelbench.experiments.children import Telling, serve
from levelbench.experiments.inference.threads import told_by_environment
from levelbench.records.inference import InferenceArm, InferenceOutcome, InferenceSpecification

__all__ = ["InferenceJob", "InferenceNote", "limit_cores", "main"]


class InferenceJob(msgspec.Struct, frozen=True):
    """What to measure. ``data`` is the folder of the task's data, if the user gave one.

    ``crashed`` says how a process before this one was brought down: it is recorded, and not tried again.
    ``planned`` are the effect that looks are planned for and the number of processes, for the header.
    """

    specification: InferenceSpecification
    store: str
    id: str = ""
    seed: int = 0
    data: str = ""
    crashed: str = ""
    planned: tuple[float | None, int] = (None, 0)


class InferenceNote(Telling, frozen=True, kw_only=True):
    """A line to the parent: what any process tells, a stage that begins, or the outcome."""

    stage: str = ""
    outcome: InferenceOutcome | None = None


def limit_cores(arm: InferenceArm) -> None:
    """Leave a framework that takes a thread a core only so many cores, before it is imported and counts them."""
    if arm.threads is not None and not told_by_environment(arm.framework) and hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, usable[: arm.threads])


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    return serve(arguments, InferenceJob, _carry_out)


def _carry_out(job: InferenceJob, tell: Callable[[Telling], None]) -> None:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
