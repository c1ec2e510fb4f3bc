"""From a task's name to its trained network: found in the store, or trained once and kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.experiments.inference.making import TrainingRun
    from levelbench.experiments.inference.models import Basis, KeptModel
    from levelbench.records.inference import Data, Model
    from levelbench.training.task import Task

__all__ = ["TaskModel", "task_model"]


@dataclass(frozen=True)
class TaskModel:
    """A task's trained network, its test split, the folder of its data, and the framework that trained it."""

    model: Model
    data: Data
    folder: Path | None
    framework: str


def task_model(word: str, store: Path, as_json: bool, given: dict[str, Any]) -> TaskModel:
    """The trained network that ``word``, as in ``digits[hidden=64]``, and the options name; trains where none is kept.

    Says so beforehand. Raises ``UsageError`` for what cannot be meant, and what the run raised.
    """
    from levelbench.experiments.inference.making import kept_model
    from levelbench.experiments.inference.subject import refuse_quality
    from levelbench.experiments.request import load_task
    from levelbench.records.inference import Data, Model
    from levelbench.records.selection import parse_item

    if given["labels"] is not None or given["sizes"]:
        option = "--labels" if given["labels"] is not None else "--size"
        raise UsageError(f"{option} with a task", "its data are known", "leave it out, or give a model")
    # Before its data are looked for: nobody is to install data for what is refused in any case.
    task = load_task(parse_item(word)[0])
    refuse_quality(task.name, task.quality)
    wanted = _wanted(word, store, given)
    if given["target_accuracy"] is not None:
        # Refuses what is not on the metric's scale, as the target of a run.
        task.quality.as_target(given["target_accuracy"])
    wanted = replace(wanted, basis=_basis(task, wanted, checksums := dict(task.data.load(given["data"]).checksums)))
    kept = kept_model(store, wanted) or _trained(store, wanted, as_json, given["data"], task.description)
    facts, specification = kept.facts, kept.facts.specification
    model = Model(
        name=f"{specification.task}[{specification.recipe}]",
        kind="task",
        path=str(kept.path.relative_to(store)),
        digest=facts.digest,
        task=specification.task,
        reference=wanted.reference,
        recipe=specification.recipe,
        settings=specification.settings,
        run=facts.run,
        run_digest=facts.run_digest,
        quality=facts.quality.get("test"),
    )
    data = Data("task", f"the test split of {specification.task}", checksums=checksums)
    return TaskModel(model, data, given["data"], specification.framework)


def _basis(task: Task, wanted: TrainingRun, checksums: dict[str, str]) -> Basis:
    """What the network would be trained from now."""
    from levelbench.experiments.inference.models import basis_of
    from levelbench.measure.environment import capture

    specification = wanted.specification
    network = task.assemble(specification.recipe, specification.settings).network
    return basis_of(specification, capture().get("libraries", {}), network, checksums)


def _wanted(word: str, store: Path, given: dict[str, Any]) -> TrainingRun:
    from levelbench.experiments.inference.making import TrainingRun
    from levelbench.experiments.request import Options, load_task, resolve, source_of
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(word)
    if given["run_word"] is not None:
        if settings or given["recipe"] or given["train_seed"] is not None:
            found = "the run says by itself how it was trained"
            raise UsageError(f"--run {given['run_word']} with other settings", found, "give the task's name alone")
        record = shared.open_store(store).one(given["run_word"])
        header, task = record.header, load_task(reference)
        if header.specification.task != task.name:
            found = f"it trained {header.specification.task}"
            raise UsageError(f"--run {given['run_word']} for {task.name}", found, "give its own task")
        now = source_of(task, header.specification.recipe).whole
        if header.specification.distribution is not None or header.source.whole != now:
            found = "the task's source has changed since" if header.source.whole != now else "it had several ranks"
            raise UsageError(f"the network of --run {given['run_word']}", found, "leave --run out: it is trained anew")
        return TrainingRun(reference, header.specification, header.key, header.seed, now)
    arm = resolve(reference, dict(settings), Options(recipe=given["recipe"], data=given["data"]))
    if arm.specification.distribution is not None:
        raise UsageError(f"infer {word}", "its training is of several ranks", "train it in one process")
    return TrainingRun(reference, arm.specification, arm.key, given["train_seed"] or 0, arm.source.whole)


def _trained(store: Path, wanted: TrainingRun, as_json: bool, data: Path | None, description: str) -> KeptModel:
    """Train, having said so with the time that it took before, where that is known."""
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.experiments.inference.making import expected_s, train_model, why_not_kept
    from levelbench.report.numbers import duration

    specification = wanted.specification
    name = f"{specification.task}[{specification.recipe}]"
    expected = expected_s(shared.open_store(store), wanted)
    took = f"such a run took {duration(expected)} here" if expected is not None else f"{description or 'once'}"
    why = why_not_kept(store, wanted)
    does = f"is in {store}" if not why else f"in {store} counts ({why})"
    with shared.as_far_as_read(err=as_json):
        click.echo(
            f"no trained network of {name}, seed {wanted.seed}, on {specification.framework} {does}: "
            f"training it now ({took}); it is kept",
            err=as_json,
        )
    with ProgressLine() as line:
        return train_model(store, wanted, data, lambda phase: line.say(f"{name}: {phase}") if line.live else None)
