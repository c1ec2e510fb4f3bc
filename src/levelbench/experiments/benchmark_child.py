"""One replicate of a benchmark, in a process of its own: ``python -m levelbench.experiments.benchmark_child``.

As for runs, what happened is in the record; the pipe only says where it is, how far it has come, and why
there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from levelbench.experiments.children import Telling, serve
from levelbench.records.benchmarks import BenchmarkSpecification, Case

__all__ = ["BenchmarkJob", "Note", "main"]


class BenchmarkJob(msgspec.Struct, frozen=True):
    """A replicate to make or, if ``seed`` is ``None``, the framework's ceilings to measure in ``dtype``.

    ``crashed`` says of problems at which a process before was brought down, and how: they are not tried again.
    ``planned`` are the effect that looks are planned for and the number of processes, for the header.
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


class Note(Telling, frozen=True, kw_only=True):
    """A line to the parent: what any process tells, or a case."""

    case: Case | None = None


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    return serve(arguments, BenchmarkJob, _carry_out)


def _carry_out(job: BenchmarkJob, tell: Callable[[Telling], None]) -> None:
    if job.seed is None:
        tell(Note(ceilings=_ceilings(job)))
        return
    from levelbench.operators.benchmark.run import make_record

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


def _ceilings(job: BenchmarkJob) -> dict[str, Any]:
    from levelbench.operators.benchmark.run import backend_ceilings
    from levelbench.operators.frameworks import load_framework

    specification = job.specification
    framework = load_framework(specification.framework)
    backend = framework.open(specification.device)
    found = backend_ceilings(framework, backend, specification.device, job.dtype)
    return {**found.to_dict(), "framework": specification.framework}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
