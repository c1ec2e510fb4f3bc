"""One replicate of a benchmark, in a process of its own: ``python -m levelbench.runner.benchmark_child``.

The one idea: as for runs, what happened is in the record; the pipe only says where it is, how far it has come, and why
there is none.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.measure.lifetime import die_with_parent
from levelbench.records.benchmarks import BenchmarkSpecification, Case

__all__ = ["BenchmarkJob", "Note", "main"]


class BenchmarkJob(msgspec.Struct, frozen=True):
    """A replicate to make or, if ``seed`` is ``None``, the framework's ceilings to measure in ``dtype``.

    ``crashed`` says of problems at which a process before was brought down, and how: they are not tried again.
    """

    specification: BenchmarkSpecification
    store: str
    id: str = ""
    seed: int | None = None
    dtype: str = "float32"
    ceilings: dict[str, Any] = {}
    own: dict[str, Any] = {}
    crashed: dict[int, str] = {}


class Note(msgspec.Struct, frozen=True):
    """A line to the parent: the record's path, a case, the ceilings, the end, or an error in its three parts."""

    path: str | None = None
    case: Case | None = None
    ceilings: dict[str, Any] | None = None
    done: bool = False
    error: tuple[str, str, str] | None = None
    exit_code: int = 0
    trace: str = ""


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()
    pipe = int(arguments[0])

    def tell(note: Note) -> None:
        line = msgspec.json.encode(note) + b"\n"
        while line:
            line = line[os.write(pipe, line) :]

    job = msgspec.json.decode(sys.stdin.buffer.read(), type=BenchmarkJob)
    name = job.specification.framework
    try:
        if job.seed is None:
            tell(Note(ceilings=_ceilings(job)))
        else:
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
            )
        tell(Note(done=True))
    except LevelbenchError as error:
        parts = error.asked, error.found, error.do
        tell(Note(error=parts, exit_code=error.exit_code, trace=traceback.format_exc()))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # the process's boundary: told to the parent
        found = f"it raised {type(error).__name__}: {error}"
        failure = DefinitionError(f"a benchmark on {name}", found, "--debug shows where; correct the adapter")
        parts = failure.asked, failure.found, failure.do
        tell(Note(error=parts, exit_code=failure.exit_code, trace=traceback.format_exc()))
        return failure.exit_code
    return 0


def _ceilings(job: BenchmarkJob) -> dict[str, Any]:
    from levelbench.operators.benchmark.ceilings import backend_ceilings
    from levelbench.operators.frameworks import load_framework

    specification = job.specification
    framework = load_framework(specification.framework)
    backend = framework.open(specification.device)
    found = backend_ceilings(framework, backend, specification.device, job.dtype)
    return {**found.to_dict(), "framework": specification.framework}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
