"""Observers look on while a trainer runs: override the hooks you need.

The trainer calls only hooks that somebody overrode, so an observer pays for what it watches and others cost nothing.
Files that observers leave are named after their run and written in one step.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.errors import StoreError
from levelbench.records.schema import Evaluation, Specification
from levelbench.records.writer import path_part

if TYPE_CHECKING:
    from levelbench.networks.executor import Backend, Executor
    from levelbench.training.datasets.base import Dataset
    from levelbench.training.input import Held
    from levelbench.training.quality import Quality
    from levelbench.training.recipe import Recipe


@dataclass
class Progress:
    """How far training has come. Live: the trainer moves it; observers read it."""

    step: int = 0
    epoch: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Context:
    """The parts of a run that is about to begin, for observers that look inside. Live: look, and leave as it was.

    ``earlier`` are the evaluations up to the checkpoint that the run goes on from, which no observer is told again.
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

    All are on the clock, in phase ``other``, but for ``on_step``, which is part of the step it looks at.
    """

    def on_prepared(self, context: Context) -> None:
        """Once everything is prepared, before :meth:`on_start`."""

    def on_start(self, progress: Progress) -> None:
        """Before the first step, once everything is prepared."""

    def on_step(self, progress: Progress) -> None:
        """After each update, in phase ``update`` and inside the step's time."""

    def on_epoch(self, progress: Progress) -> None:
        """After the last step of an epoch, before its evaluation."""

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """After each evaluation, with the times of the steps since the one before."""

    def on_end(self, progress: Progress) -> None:
        """After the last evaluation, before the test set is looked at."""


def overridden(observers: Sequence[Observer], hook: str) -> tuple[Callable[..., None], ...]:
    """The bound methods ``hook`` of those observers whose class overrides it."""
    base = getattr(Observer, hook)
    return tuple(getattr(each, hook) for each in observers if getattr(type(each), hook) is not base)


def run_name(specification: Specification, identity: str) -> str:
    """``TASK-RECIPE-FRAMEWORK-ID``, safe as the name of a file: several runs may write to one folder."""
    parts = (specification.task, specification.recipe, specification.framework, identity)
    return "-".join(path_part(each) for each in parts)


def ready(folder: Path) -> Path:
    """Make the folder; ``StoreError`` where that fails."""
    with stored(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file in one step: it is there whole, or as it was before."""
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
    """What the file system refuses, as a ``StoreError``."""
    try:
        yield
    except OSError as error:
        found = error.strerror or str(error)
        do = "choose a folder that is writable, or leave the observer out"
        raise StoreError(f"an observer's file {path}", found, do) from error
