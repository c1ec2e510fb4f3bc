"""One run, in a process of its own: ``python -m levelbench.experiments.child`` reads a job and leaves a record.

This is the boundary at which any exception becomes a recorded status. The parent learns what happened
from the record and, where there is none, from a message of three parts on the pipe it gave us.
"""

from __future__ import annotations

import os
import select
import sys
import traceback
from pathlib import Path

import msgspec

from levelbench.errors import DefinitionError, LevelbenchError, StoreError, UsageError
from levelbench.experiments.execution import execute
from levelbench.experiments.jobs import Job, Message, Tell
from levelbench.experiments.members import Member
from levelbench.experiments.request import file_of
from levelbench.experiments.witness import Hear, no_parent
from levelbench.measure.lifetime import die_with_parent, end_on_interrupt
from levelbench.records.redaction import fault
from levelbench.records.schema import Between
from levelbench.training.pulse import Pulse

__all__ = ["boundary", "main", "message_of"]

_ANSWER_S = 60.0


def message_of(error: LevelbenchError, file: Path | None = None) -> Message:
    """The error that is being handled, in its parts; ``file`` is the user's own."""
    return Message(
        error=(error.asked, error.found, error.do),
        exit_code=error.exit_code,
        trace=traceback.format_exc(),
        fault=fault(error, file),
    )


def boundary(
    job: Job, tell: Tell, member: Member | None = None, pulse: Pulse | None = None, hear: Hear = no_parent
) -> int:
    """Carry out the job (see ``execute``); whatever is raised is told, and answered with its exit code."""
    try:
        if job.keep_model:
            _keeping(job, tell, member, pulse, hear)
        else:
            execute(job, tell, member, pulse, hear)
        tell(Message(phase="done"))
    except LevelbenchError as error:
        lost = member is not None and member.lost(error)
        tell(msgspec.structs.replace(message_of(error, file_of(job.reference)), lost=lost))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # the run's boundary: recorded above, told here
        place = fault(error, file_of(job.reference))
        failure = DefinitionError(
            f"a run of {job.specification.task} with recipe {job.specification.recipe!r}, seed {job.seed}",
            f"it raised {type(error).__name__}: {error}",
            "correct the task or recipe; --debug shows where",
        )
        parts, trace = (failure.asked, failure.found, failure.do), traceback.format_exc()
        tell(Message(error=parts, exit_code=2, trace=trace, fault=place))
        return failure.exit_code
    return 0


def _keeping(job: Job, tell: Tell, member: Member | None, pulse: Pulse | None, hear: Hear) -> None:
    """The same, and its network is kept; ``StoreError`` where that fails, though the run is done and counts."""
    from levelbench.experiments.inference.training import KeepingMember, keep_network

    if member is not None:
        raise UsageError("the network of one of several ranks", "each rank has its own", "train it in one process")
    keeper = KeepingMember()
    execute(job, tell, keeper, pulse, hear)
    try:
        keep_network(job, keeper, for_inference=False)
    except Exception as error:  # what ONNX raises is not ours, and no fault of the task
        found, do = f"{type(error).__name__}: {error}", ""
        if isinstance(error, LevelbenchError):
            found, do = error.found, f"{error.do}; "
        raise StoreError(
            f"the trained network of {job.specification.task}, seed {job.seed}",
            f"it was not kept ({found}); its run is done and counts",
            f"{do}the same command with --fresh makes its run anew",
        ) from error


def main(arguments: list[str]) -> int:
    """Read a job from standard input, and run it; the file descriptor that is named first is a socket to the parent.

    The second one, if there is one, is that of the memory that the parent reads steps from.
    """
    # The parent decides what an interrupt means; here it ends the process at once, and the record stays readable.
    end_on_interrupt()
    die_with_parent()
    pipe, *steps = map(int, arguments)

    def tell(message: Message) -> None:
        os.write(pipe, msgspec.json.encode(message) + b"\n")

    def hear() -> list[Between] | str:
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], _ANSWER_S)[0]:
                return f"its parent gave no answer in {_ANSWER_S:g} s"
            if not (part := os.read(pipe, 1 << 20)):
                return "its parent is gone"
            line += part
        return msgspec.json.decode(line, type=list[Between])

    return boundary(msgspec.json.decode(sys.stdin.buffer.read(), type=Job), tell, pulse=Pulse(*steps), hear=hear)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
