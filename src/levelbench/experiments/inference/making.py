"""Finds the trained network of a task's run in the store, or trains and keeps it.

Where no trained network is kept, the run that trains it is made as ``levelbench run`` would make it, with
the same specification and seed; on a CPU, and by a framework that repeats itself, that gives the same weights again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from levelbench.errors import StoreError
from levelbench.experiments.inference.models import Basis, KeptModel, find_model, kept_facts, stale
from levelbench.experiments.inference.training import TrainingNote
from levelbench.experiments.jobs import Job
from levelbench.experiments.processes import listen, need_folder, raise_told
from levelbench.records import Record, Store, new_id
from levelbench.records.schema import Specification
from levelbench.records.selection import Selector

__all__ = ["TrainingRun", "expected_s", "kept_model", "train_model", "why_not_kept"]


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

    notes, code, output = listen("levelbench.experiments.inference.training", job, TrainingNote, on_note)
    raise_told(notes, code, output, f"training {wanted.specification.task}, seed {wanted.seed}", "", 0)
    found = kept_model(store, wanted)
    if found is None:
        raise StoreError("the trained network", f"it is not in {store}", "see whether the store can be written")
    return found
