"""One replicate of a network's benchmark, in a process of its own: ``python -m levelbench.experiments.network_child``.

Nothing heavy is imported here, so that the first that is, the framework, is measured as it starts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from levelbench.experiments.children import Telling, serve
from levelbench.records.networks import NetworkOutcome, NetworkSpecification

__all__ = ["NetworkJob", "NetworkNote", "main"]


class NetworkJob(msgspec.Struct, frozen=True):
    """What to do: measure a replicate, the framework's ceilings in ``dtype``, or compute the case's reference.

    ``reference`` is the file that the reference goes to or is read from, empty for none, which ``no_reference``
    explains. ``crashed`` says how a process before this one was brought down: it is recorded, and not tried again.
    ``planned`` are the effect that looks are planned for and the number of processes, for the header.
    """

    specification: NetworkSpecification
    store: str
    purpose: Literal["measure", "ceilings", "reference"] = "measure"
    id: str = ""
    seed: int = 0
    dtype: str = "float32"
    ceilings: dict[str, Any] = {}
    reference: str = ""
    no_reference: str = "there is no reference"
    crashed: str = ""
    planned: tuple[float | None, int] = (None, 0)


class NetworkNote(Telling, frozen=True, kw_only=True):
    """A line to the parent: what any process tells, a stage that begins, or the outcome."""

    stage: str = ""
    outcome: NetworkOutcome | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    return serve(arguments, NetworkJob, _carry_out)


def _carry_out(job: NetworkJob, tell: Callable[[Telling], None]) -> None:
    if job.purpose == "ceilings":
        tell(NetworkNote(ceilings=_ceilings(job)))
    elif job.purpose == "reference":
        from levelbench.networks.benchmark import reference

        reference.save(reference.make(job.specification), Path(job.reference))
    else:
        from levelbench.networks.benchmark.measuring import make_record

        make_record(
            job.specification,
            job.seed,
            job.id,
            Path(job.store),
            job.ceilings,
            Path(job.reference) if job.reference else job.no_reference,
            lambda path, stage, outcome: tell(NetworkNote(path=str(path), stage=stage, outcome=outcome)),
            job.crashed,
            job.planned,
        )


def _ceilings(job: NetworkJob) -> dict[str, Any]:
    from levelbench.operators.benchmark.measuring import backend_ceilings
    from levelbench.operators.frameworks import load_framework

    arm = job.specification.arm
    framework = load_framework(arm.framework)
    found = backend_ceilings(framework, framework.open(arm.device), arm.device, job.dtype)
    return {**found.to_dict(), "framework": arm.framework}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
