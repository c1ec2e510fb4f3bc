"""One run, in a process of its own: ``python -m levelbench.runner.child`` reads a job and leaves a record.

The one idea: this is the boundary at which any exception becomes a recorded status. The parent learns what happened
from the record and, where there is none, from a message of three parts on the pipe it gave us.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from levelbench import __version__
from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.measure.clocks import HOST, utc_now
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.lifetime import die_with_parent
from levelbench.measure.meters import Meter, meters
from levelbench.measure.timeline import Timeline
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.records import SCHEMA, End, Evaluation, Header, Measurement, RecordWriter, Samples, Specification
from levelbench.records.schema import DatasetFacts
from levelbench.runner.request import load_task, source_of
from levelbench.training.datasets.base import Dataset
from levelbench.training.observers import Observer, Progress
from levelbench.training.task import Evaluate, Task
from levelbench.training.trainer import Outcome, Stopping, Trainer

__all__ = ["Job", "Message", "Recorder", "execute", "main"]

Tell = Callable[["Message"], None]
_CATCH_UP_NS = 30_000_000_000


class Job(msgspec.Struct, frozen=True):
    """What the parent asks for. ``data`` is the folder of the dataset, if the user gave one."""

    reference: str
    specification: Specification
    key: str
    seed: int
    id: str
    store: str
    data: str | None = None
    source: str = ""
    """The digest of the task's source as the parent read it; empty if that does not matter."""


class Message(msgspec.Struct, frozen=True):
    """A line to the parent: where the record is, or an error in its three parts."""

    path: str | None = None
    phase: str | None = None
    error: tuple[str, str, str] | None = None
    exit_code: int = 0
    trace: str = ""


class Recorder(Observer):
    """Appends each evaluation, and the raw step times before it, to the record; lets meters keep up."""

    def __init__(self, writer: RecordWriter, tell: Tell, gauges: Sequence[Meter] = ()) -> None:
        self._writer = writer
        self._tell = tell
        self._gauges = gauges
        self._caught_up_ns = 0

    def on_start(self, progress: Progress) -> None:
        """Tell the parent."""
        self._tell(Message(phase="train"))

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """Two lines, and now and then a look at the counters that would wrap unseen in a long run."""
        self._writer.append(Samples("step_time", "ns", step_times_ns))
        self._writer.append(evaluation)
        if evaluation.t_ns - self._caught_up_ns > _CATCH_UP_NS:
            self._caught_up_ns = evaluation.t_ns
            for gauge in self._gauges:
                gauge.catch_up()

    def on_end(self, progress: Progress) -> None:
        """Tell the parent."""
        self._tell(Message(phase="test"))


def execute(job: Job, tell: Tell) -> None:
    """Carry out a job: open the framework, write the header, train, write the end."""
    task = load_task(job.reference)
    source = source_of(task)
    if job.source not in ("", source.digest):
        raise DefinitionError(
            f"a run of {task.name}", "the task's source changed while the runs were made", "start the command again"
        )
    backend = open_framework(job.specification.framework, job.specification.device)
    if not isinstance(backend, Backend):
        raise DefinitionError(
            f"framework {job.specification.framework!r}",
            "its backend cannot train",
            "set trains = False in its Framework",
        )
    environment = capture()
    environment["framework"] = backend.describe()
    header = Header(
        schema=SCHEMA,
        id=job.id,
        key=job.key,
        seed=job.seed,
        started=utc_now().isoformat(timespec="milliseconds"),
        specification=job.specification,
        environment=environment,
        source=source,
        version=__version__,
    )
    with RecordWriter.create(Path(job.store), header) as writer:
        tell(Message(path=str(writer.path), phase="prepare"))
        gauges = meters()
        for gauge in gauges:
            gauge.start()
        # What the imports left behind is not the run's: without this a collection of it falls somewhere on the clock.
        gc.collect()
        gc.freeze()
        timeline = Timeline(backend.clock())
        try:
            _train(job, task, backend, timeline, writer, environment, tell, gauges)
        except Exception as error:
            text = str(error) if isinstance(error, LevelbenchError) else traceback.format_exc()
            totals = timeline.totals_ns()
            writer.append(End("failed", sum(totals.values()), totals, error=text))
            raise


def _train(
    job: Job,
    task: Task,
    backend: Backend,
    timeline: Timeline,
    writer: RecordWriter,
    environment: dict[str, Any],
    tell: Tell,
    gauges: Sequence[Meter],
) -> None:
    """What is on the clock, then what the meters read, then the end."""
    began_ns = HOST.now_ns()
    specification = job.specification
    dataset = task.data.load(Path(job.data) if job.data else None)
    trainer = Trainer(
        backend,
        dataset,
        task.assemble(specification.recipe, specification.settings),
        task.quality,
        Stopping(
            specification.target,
            specification.crossing,
            Evaluate.parse(specification.evaluate_every),
            specification.budget_epochs,
            specification.budget_s,
        ),
        seed=job.seed,
        timeline=timeline,
        observers=(Recorder(writer, tell, gauges),),
    )
    outcome = trainer.run()
    totals = timeline.totals_ns()
    wall_ns = HOST.now_ns() - began_ns
    for gauge in gauges:
        reading = gauge.stop()
        writer.append(Measurement(reading.name, reading.unit, reading.value, reading.method, reading.reason))
    writer.append(_end(outcome, dataset, totals, wall_ns, environment))


def _end(outcome: Outcome, dataset: Dataset, totals: dict[str, int], wall_ns: int, environment: dict[str, Any]) -> End:
    elapsed_ns = sum(totals.values())
    after = capture_after()
    suspect = list(doubts(environment, after))
    if abs(elapsed_ns - wall_ns) > 0.01 * wall_ns + 1_000_000:
        suspect.append(f"phases sum to {elapsed_ns / 1e9:.3f} s where the host's clock saw {wall_ns / 1e9:.3f} s")
    facts = DatasetFacts(
        dataset.name, dataset.sizes(), dataset.checksums, dataset.split_rule, dataset.licence, dataset.synthetic
    )
    return End("done", elapsed_ns, totals, outcome.quality, outcome.diverged, suspect, after, facts, outcome.stopped_by)


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and run it."""
    # The parent decides what an interrupt means; here it ends the process at once, and the record stays readable.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with_parent()
    pipe = int(arguments[0])

    def tell(message: Message) -> None:
        os.write(pipe, msgspec.json.encode(message) + b"\n")

    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        execute(job, tell)
        tell(Message(phase="done"))
    except LevelbenchError as error:
        tell(
            Message(error=(error.asked, error.found, error.do), exit_code=error.exit_code, trace=traceback.format_exc())
        )
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # the run's boundary: recorded above, told here
        failure = DefinitionError(
            f"a run of {job.specification.task} with recipe {job.specification.recipe!r}, seed {job.seed}",
            f"it raised {type(error).__name__}: {error}",
            "correct the task or recipe; --debug shows where",
        )
        tell(Message(error=(failure.asked, failure.found, failure.do), exit_code=2, trace=traceback.format_exc()))
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
