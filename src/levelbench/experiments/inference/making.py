"""Finds the trained network of a task's run in the store, or trains it and keeps it.

If no trained network is kept, the run is repeated as ``levelbench run`` would make it, with the same specification and
seed; on a CPU, with a deterministic framework, that gives the same weights again. The same code writes to the same
store, in a separate process (``python -m levelbench.experiments.inference.making``), with an additional observer that
copies the weights that were evaluated last.
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

from levelbench.distributed.finding import named_scheme
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
from levelbench.experiments.jobs import Job, Message
from levelbench.experiments.processes import ProcessNote, listen, need_folder, raise_reported, serve
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
    """The run whose trained network is wanted: ``reference`` finds its task, ``source`` is the digest of its text.

    An empty ``source`` accepts any text, and a ``basis`` of ``None`` any basis.
    """

    reference: str
    specification: Specification
    key: str
    seed: int
    source: str = ""
    basis: Basis | None = None


def kept_model(store: Path, wanted: TrainingRun) -> KeptModel | None:
    """The trained network, if the store has it."""
    return find_model(store, wanted.key, wanted.seed, wanted.source, wanted.basis)


def why_not_kept(store: Path, wanted: TrainingRun) -> str:
    """Why the store's network does not count; empty if there is none."""
    facts = kept_facts(store, wanted.key, wanted.seed)
    return "" if facts is None else stale(facts, wanted.source, wanted.basis) or "it is damaged"


def expected_s(store: Store, wanted: TrainingRun) -> float | None:
    """How long such a run has taken here: the median in seconds over runs of any seed; ``None`` if there are none."""
    chosen = Selector("", word=wanted.specification.task, filters=(("key", wanted.key),))
    times = [_seconds(record) for record in store.records(chosen)]
    known = [each for each in times if each is not None]
    return median(known) if known else None


def _seconds(record: Record) -> float | None:
    return record.end.t_ns * 1e-9 if record.end is not None and record.end.status == "done" else None


def train_model(
    store: Path, wanted: TrainingRun, data: Path | None, on_phase: Callable[[str], None] = lambda phase: None
) -> KeptModel:
    """Make the run in a separate process and keep its network. Raises what the run reported, or how it died."""
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
    raise_reported(notes, code, output, f"training {wanted.specification.task}, seed {wanted.seed}", "", 0)
    found = kept_model(store, wanted)
    if found is None:
        raise StoreError("the trained network", f"it is not in {store}", "check that the store can be written")
    return found


class TrainingNote(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also the phase that begins."""

    phase: str = ""


class LastWeights(Observer):
    """Copies the weights after the last evaluation, on the clock, as any run that saves its network would."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self.values: dict[str, NDArray[Any]] = {}

    def on_prepared(self, context: Context) -> None:
        """Remember where the weights are."""
        self.context = context

    def on_end(self, progress: Progress) -> None:
        """Copy the weights."""
        assert self.context is not None
        executor, host = self.context.executor, self.context.backend.host
        held = {**executor.parameters, **executor.buffers}
        wanted = [each.name for each in self.context.recipe.onnx_network("a trained network as a file").parameters]
        # Copies, because live arrays return to the trained weights after an average was evaluated.
        self.values = {name: np.array(host(held[name])) for name in wanted}


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, Job, _carry_out)


def _carry_out(job: Job, tell: Callable[[ProcessNote], None]) -> None:
    def relay(message: Message) -> None:
        tell(TrainingNote(path=message.path, phase=message.phase or ""))

    weights = LastWeights()
    keep_network(job, execute(job, relay, also=(weights,)), weights)


def keep_network(job: Job, record_path: Path, weights: LastWeights, *, for_inference: bool = True) -> Path:
    """Keep the network of the run with this record in the run's store; returns the model's path.

    ``for_inference`` means that the run was made only for its network, so it is neither a trial nor an entry of a
    leaderboard. Raises ``StoreError`` if the network cannot be written, ``LevelbenchError`` for an unfinished run.
    """
    context = weights.context
    record = read_record(record_path)
    if context is None or record.end is None:
        raise LevelbenchError("a trained network", "its run did not finish", "run the same command again")
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
        weights_of=_weights_of(job.specification),
    )
    keep_facts(path, facts)
    return path


def _weights_of(specification: Specification) -> str:
    """Whose weights are kept of a run on several ranks, in words; empty for one process."""
    if specification.distribution is None:
        return ""
    scheme = named_scheme(specification.distribution.scheme, specification.distribution.settings)
    if scheme.consistent or scheme.replicated:
        return f"rank 0's: all ranks of {scheme.name} have the same"
    return f"those that were evaluated: ranks of {scheme.name} differ, and it makes one model of theirs"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
