"""Finds the trained network of a task's run in the store, or trains and keeps it.

Where no trained network is kept, the run that trains it is made as ``levelbench run`` would make it, with the same
specification and seed; on a CPU, and by a framework that repeats itself, that gives the same weights again. It is
carried out by the same code into the same store, in a process of its own (``python -m
levelbench.experiments.inference.making``), with one more observer that takes the weights as they were evaluated last.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import LevelbenchError, StoreError
from levelbench.experiments.child import execute
from levelbench.experiments.inference.models import (
    Basis,
    KeptModel,
    TrainedModel,
    basis_of,
    find_model,
    keep_facts,
    kept_facts,
    model_path,
    stale,
)
from levelbench.experiments.jobs import AloneMember, Job, Message
from levelbench.experiments.processes import Telling, listen, need_folder, raise_told, serve
from levelbench.experiments.request import load_task
from levelbench.networks.files import save
from levelbench.records import Record, Store, new_id, read_record
from levelbench.records.schema import Specification
from levelbench.records.selection import Selector
from levelbench.training.observers import Context, Observer, Progress

__all__ = ["TrainingNote", "TrainingRun", "expected_s", "keep_network", "kept_model", "main"]
__all__ += ["LastWeights", "train_model", "why_not_kept"]


@dataclass(frozen=True)
class TrainingRun:
    """The run whose trained network is asked for. ``reference`` is how its task is found, ``source`` the task's text.

    An empty ``source`` takes any, and so does a ``basis`` of ``None``.
    """

    reference: str
    specification: Specification
    key: str
    seed: int
    source: str = ""
    basis: Basis | None = None


def kept_model(store: Path, wanted: TrainingRun) -> KeptModel | None:
    """The trained network, if the store keeps it."""
    return find_model(store, wanted.key, wanted.seed, wanted.source, wanted.basis)


def why_not_kept(store: Path, wanted: TrainingRun) -> str:
    """Why a network that lies there does not count; empty where there is none."""
    facts = kept_facts(store, wanted.key, wanted.seed)
    return "" if facts is None else stale(facts, wanted.source, wanted.basis) or "it is damaged"


def expected_s(store: Store, wanted: TrainingRun) -> float | None:
    """How long such a run took here before: the median in seconds over those of any seed; ``None`` if none is known."""
    chosen = Selector("", word=wanted.specification.task, filters=(("key", wanted.key),))
    times = [_seconds(record) for record in store.records(chosen)]
    known = [each for each in times if each is not None]
    return median(known) if known else None


def _seconds(record: Record) -> float | None:
    return record.end.t_ns * 1e-9 if record.end is not None and record.end.status == "done" else None


def train_model(
    store: Path, wanted: TrainingRun, data: Path | None, on_phase: Callable[[str], None] = lambda phase: None
) -> KeptModel:
    """Make the run in a process of its own and keep its network. Raises what the run told, or how it died."""
    need_folder(store)
    job = Job(
        reference=wanted.reference,
        specification=wanted.specification,
        key=wanted.key,
        seed=wanted.seed,
        id=new_id(),
        store=str(store),
        data=str(data) if data else None,
        source=wanted.source,
    )

    def on_note(note: TrainingNote) -> None:
        if note.phase:
            on_phase(note.phase)

    notes, code, output = listen("levelbench.experiments.inference.making", job, TrainingNote, on_note)
    raise_told(notes, code, output, f"training {wanted.specification.task}, seed {wanted.seed}", "", 0)
    found = kept_model(store, wanted)
    if found is None:
        raise StoreError("the trained network", f"it is not in {store}", "see whether the store can be written")
    return found


class TrainingNote(Telling, frozen=True, kw_only=True):
    """A line to the parent: what any process tells, or the phase that begins."""

    phase: str = ""


class LastWeights(Observer):
    """Takes a copy of the weights after the last evaluation, on the clock, as a run that saves its network would."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self.values: dict[str, NDArray[Any]] = {}

    def on_prepared(self, context: Context) -> None:
        """Remember where they are."""
        self.context = context

    def on_end(self, progress: Progress) -> None:
        """Copy them."""
        assert self.context is not None
        executor, host = self.context.executor, self.context.backend.host
        held = {**executor.parameters, **executor.buffers}
        wanted = [each.name for each in self.context.recipe.onnx_network("a trained network as a file").parameters]
        # Copies: what is live goes back to the weights that are trained, where an average was evaluated.
        self.values = {name: np.array(host(held[name])) for name in wanted}


def main(arguments: list[str]) -> int:
    """Read a job from standard input, tell the parent on the file descriptor named first, and carry it out."""
    return serve(arguments, Job, _carry_out)


def _carry_out(job: Job, tell: Callable[[Telling], None]) -> None:
    def relay(message: Message) -> None:
        tell(TrainingNote(path=message.path, phase=message.phase or ""))

    weights = LastWeights()
    member = AloneMember(weights)
    execute(job, relay, member)
    keep_network(job, member.path, weights)


def keep_network(job: Job, record_path: Path, weights: LastWeights, *, for_inference: bool = True) -> Path:
    """Keep the network of the run with this record in the run's store; the model's path.

    ``for_inference`` says that the run was made for that alone, so that it is no trial and no entry of a leaderboard.

    Raises ``StoreError`` where it cannot be written, ``LevelbenchError`` for a run that came to no end.
    """
    context = weights.context
    record = read_record(record_path)
    if context is None or record.end is None:
        raise LevelbenchError("a trained network", "its run came to no end", "run the same command again")
    path = model_path(Path(job.store), job.key, job.seed)
    before = kept_facts(Path(job.store), job.key, job.seed)
    data = record.end.dataset.checksums if record.end.dataset is not None else {}
    recipe = load_task(job.reference).assemble(job.specification.recipe, job.specification.settings)
    network = recipe.onnx_network("a trained network as a file")
    basis = basis_of(job.specification, record.header.environment.get("libraries", {}), network, data)
    save(network.for_inference, path, weights.values)
    facts = TrainedModel(
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        key=job.key,
        seed=job.seed,
        run=job.id,
        run_digest=hashlib.sha256(record_path.read_bytes()).hexdigest(),
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
