"""A run whose trained network is kept, in its own process: ``python -m levelbench.experiments.inference.training``.

It is a run like any other, carried out by the same code into the same store, with one more observer that
takes the weights as they were evaluated last.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import LevelbenchError
from levelbench.experiments.execution import execute
from levelbench.experiments.inference.models import TrainedModel, basis_of, keep_facts, kept_facts, model_path
from levelbench.experiments.jobs import Job, Message
from levelbench.experiments.members import AloneMember, Member, Together, Written
from levelbench.experiments.processes import Telling, serve
from levelbench.experiments.request import load_task
from levelbench.measure.meters import Reading
from levelbench.networks.files import save
from levelbench.records import Header, read_record
from levelbench.training.observers.base import Context, Observer, Progress

__all__ = ["KeepingMember", "TrainingNote", "keep_network", "main"]


class TrainingNote(Telling, frozen=True, kw_only=True):
    """A line to the parent: what any process tells, or the phase that begins."""

    phase: str = ""


class _Weights(Observer):
    """Takes a copy of the weights after the last evaluation, on the clock, as a run that saves its network would."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self.values: dict[str, NDArray[Any]] = {}

    def on_prepared(self, context: Context) -> None:
        self.context = context

    def on_end(self, progress: Progress) -> None:
        assert self.context is not None
        executor, host = self.context.executor, self.context.backend.host
        held = {**executor.parameters, **executor.buffers}
        wanted = [each.name for each in self.context.recipe.network.parameters]
        # Copies: what is live goes back to the weights that are trained, where an average was evaluated.
        self.values = {name: np.array(host(held[name])) for name in wanted}


class KeepingMember(Member):
    """The one process of a run, with the observer that takes the weights."""

    def __init__(self) -> None:
        self._alone = AloneMember()
        self.team, self.first = self._alone.team, True
        self.weights = _Weights()
        self.path = Path()

    def begin(self, store: Path, header: Header) -> Written:
        """Its record."""
        written = self._alone.begin(store, header)
        self.path = written.path
        return written

    def ready(self) -> None:
        """It waits for nobody."""
        self._alone.ready()

    def observers(self) -> Sequence[Observer]:
        """The one that takes the weights."""
        return (self.weights,)

    def end(self, readings: Sequence[Reading]) -> Together:
        """Nothing to bring together."""
        return self._alone.end(readings)

    def leave(self) -> None:
        """Nobody to leave."""
        self._alone.leave()


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    return serve(arguments, Job, _carry_out)


def _carry_out(job: Job, tell: Callable[[Telling], None]) -> None:
    def relay(message: Message) -> None:
        tell(TrainingNote(path=message.path, phase=message.phase or ""))

    member = KeepingMember()
    execute(job, relay, member)
    keep_network(job, member)


def keep_network(job: Job, member: KeepingMember, *, for_inference: bool = True) -> Path:
    """Keep the network of the run that ``member`` has carried out in the run's store; the model's path.

    ``for_inference`` says that the run was made for that alone, so that it is no trial and no entry of a leaderboard.

    Raises ``StoreError`` where it cannot be written, ``LevelbenchError`` for a run that came to no end.
    """
    context = member.weights.context
    record = read_record(member.path)
    if context is None or record.end is None:
        raise LevelbenchError("a trained network", "its run came to no end", "run the same command again")
    path = model_path(Path(job.store), job.key, job.seed)
    before = kept_facts(Path(job.store), job.key, job.seed)
    data = record.end.dataset.checksums if record.end.dataset is not None else {}
    recipe = load_task(job.reference).assemble(job.specification.recipe, job.specification.settings)
    basis = basis_of(job.specification, record.header.environment.get("libraries", {}), recipe.network, data)
    save(context.recipe.network.for_inference, path, member.weights.values)
    facts = TrainedModel(
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        key=job.key,
        seed=job.seed,
        run=job.id,
        run_digest=hashlib.sha256(member.path.read_bytes()).hexdigest(),
        source=record.header.source.whole,
        specification=job.specification,
        quality=record.end.quality,
        basis=basis,
        for_inference=for_inference,
        earlier=[] if before is None else sorted({*before.earlier, *([before.run] if before.for_inference else [])}),
    )
    keep_facts(path, facts)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
