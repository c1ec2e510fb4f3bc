"""Observers watch a trainer's run: override the hooks you need; ``make`` creates those that a command names.

The trainer calls only hooks that are overridden, so an observer pays for what it watches and others cost nothing. The
files of observers are named after their run and written atomically. ``Pulse`` shows a run's progress to other
processes: the trainer stores one number per step, which takes some tens of nanoseconds whether or not anybody reads it.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from levelbench.errors import StoreError, UnknownNameError, UsageError
from levelbench.records.schema import Evaluation, Specification
from levelbench.records.writer import path_part

if TYPE_CHECKING:
    from levelbench.networks.executor import Backend, Executor
    from levelbench.training.datasets.base import Dataset
    from levelbench.training.input import Held
    from levelbench.training.quality import Quality
    from levelbench.training.task import Recipe


@dataclass
class Progress:
    """How far training has come. Live: the trainer updates it and observers read it."""

    step: int = 0
    epoch: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Context:
    """The parts of a run that is about to start, for observers that look inside. Live: read, but do not modify.

    ``earlier`` are the evaluations before the checkpoint that the run resumes from, which observers do not receive
    again.
    """

    backend: Backend
    executor: Executor
    dataset: Dataset
    recipe: Recipe
    quality: Quality
    validation: Held
    test: Held
    earlier: tuple[Evaluation, ...] = ()


class Observer:
    """Hooks in the order of a run; each does nothing unless overridden.

    All are timed in phase ``other``, except ``on_step``, which is part of its step's time.
    """

    def on_prepared(self, context: Context) -> None:
        """Before :meth:`on_start`, once everything is prepared."""

    def on_start(self, progress: Progress) -> None:
        """Before the first step, once everything is prepared."""

    def on_step(self, progress: Progress) -> None:
        """After each update, in phase ``update`` and inside the step's time."""

    def on_epoch(self, progress: Progress) -> None:
        """After the last step of an epoch, before its evaluation."""

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """After each evaluation, with the times of the steps since the previous one."""

    def on_end(self, progress: Progress) -> None:
        """After the last evaluation, before the test set is measured."""


def overridden(observers: Sequence[Observer], hook: str) -> tuple[Callable[..., None], ...]:
    """The bound methods ``hook`` of the observers whose class overrides it."""
    base = getattr(Observer, hook)
    return tuple(getattr(each, hook) for each in observers if getattr(type(each), hook) is not base)


def run_name(specification: Specification, identity: str) -> str:
    """``TASK-RECIPE-FRAMEWORK-ID``, safe as a file name: several runs may write to one folder."""
    parts = (specification.task, specification.recipe, specification.framework, identity)
    return "-".join(path_part(each) for each in parts)


def ready(folder: Path) -> Path:
    """Create the folder; ``StoreError`` if that fails."""
    with stored(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file atomically."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    with stored(path):
        try:
            draft.write_bytes(content)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return path


@contextmanager
def stored(path: Path) -> Iterator[None]:
    """Turn errors of the file system into ``StoreError``."""
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        do = "choose a writable folder, or leave the observer out"
        raise StoreError(f"an observer's file {path}", found, do) from error


_BYTES = 32


class Pulse:
    """The steps done, the most there can be, and the examples of one on average: ``counts``, 0 until they are known.

    The last count is 1 while the validation data are evaluated.

    Shared with every process that maps the file ``descriptor``; without one, private to this process.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None:
            memory: mmap.mmap | bytearray = bytearray(_BYTES)
        else:
            os.ftruncate(descriptor, _BYTES)
            memory = mmap.mmap(descriptor, _BYTES)
        self.counts = memoryview(memory).cast("q")

    @classmethod
    def at(cls, path: Path) -> Pulse:
        """Shared through the file at ``path``, created if it is missing; private if the file cannot be shared."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError:
            return cls()
        try:
            return cls(descriptor)
        except (OSError, ValueError):
            # The file system has no shared memory: the run goes on, and progress is not shown.
            return cls()
        finally:
            os.close(descriptor)

    @property
    def steps(self) -> tuple[int, int, int]:
        """A copy of the counts."""
        done, most, examples, _ = self.counts
        return done, most, examples

    def stage(self, told: str) -> str:
        """The stage of a run whose last message told the stage ``told``: no message is sent for an evaluation."""
        return "evaluate" if told == "train" and self.counts[3] else told


KINDS = MappingProxyType(
    {
        "csv": "FOLDER: the evaluations and steps of each run as CSV",
        "tensorboard": "FOLDER: event files for TensorBoard",
        "wandb": "PROJECT: a run of Weights & Biases, offline unless WANDB_MODE says otherwise",
        "mlflow": "ADDRESS: a run at an MLflow tracking address, such as sqlite:///mlflow.db",
        "mistakes": "FOLDER: the validation examples that a classifier gets wrong at the end",
        "statistics": "FOLDER: norms of weights, updates and gradients by parameter, as CSV",
        "noise": "FOLDER: the gradient noise scale at each evaluation, as CSV",
    }
)
"""The kinds, and what goes after the equals sign."""

_FILES: Final = {"csv": "Tables", "mistakes": "Mistakes", "statistics": "Statistics", "noise": "GradientNoise"}
_TRACKERS: Final = {"tensorboard": "TensorBoard", "wandb": "WeightsAndBiases", "mlflow": "MLflow"}


def read(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The kinds and places of ``["csv=logs,mistakes=wrong", "tensorboard=events"]``, checked before anything runs.

    :raises UnknownNameError: for an unknown kind.
    :raises UsageError: for a word without a place, or given twice.
    :raises MissingError: when a package that one needs is not installed.
    """
    found: list[tuple[str, str]] = []
    for word in words:
        # A comma may be part of a folder's name; one before "kind=" separates.
        for part in re.split(r",(?=\w+=)", word):
            kind, equals, place = (each.strip() for each in part.partition("="))
            if kind not in KINDS:
                raise UnknownNameError("observer", kind, KINDS, "write --observe csv=FOLDER")
            if not equals or not place:
                raise UsageError(f"--observe {part}", "it has no place", f"write --observe {kind}=PLACE")
            if (kind, place) in found:
                raise UsageError(f"--observe {part}", "it is given twice", "give it once")
            if kind in _TRACKERS:
                from levelbench.training.observers.trackers import require

                require(kind, f"--observe {part}")
            found.append((kind, place))
    return tuple(found)


def make(words: Sequence[str], specification: Specification, identity: str) -> tuple[Observer, ...]:
    """The observers for one run, given its specification and id. Nothing is written yet.

    Raises the errors of :func:`read`.
    """
    name = run_name(specification, identity)
    found: list[Observer] = []
    for kind, place in read(words):
        # Imported only when used: a run without observers pays for none.
        if kind in _FILES:
            files = import_module("levelbench.training.observers.files")
            found.append(getattr(files, _FILES[kind])(Path(place), name))
        else:
            trackers = import_module("levelbench.training.observers.trackers")
            found.append(getattr(trackers, _TRACKERS[kind])(place, name, specification))
    return tuple(found)
