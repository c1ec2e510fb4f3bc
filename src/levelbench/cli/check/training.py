"""``levelbench check FILE`` on a task or recipes: what is asked for, what was found, and how it is printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.cli.check.findings import print_reports
from levelbench.cli.check.operators import open_frameworks
from levelbench.cli.progress_line import ProgressLine
from levelbench.errors import MissingError, UnknownNameError, UnsupportedError

if TYPE_CHECKING:
    from levelbench.networks.executor import Backend
    from levelbench.training.datasets.base import Dataset
    from levelbench.training.task import Setting, Task
    from levelbench.training.validation.probes import Report

__all__ = ["TrainingWords", "check_training"]

_USUAL = ("torch", "numpy")


@dataclass(frozen=True)
class TrainingWords:
    """What the command line says about the check of a task and its recipes."""

    frameworks: str
    device: str
    recipe: str
    data: Path | None
    seed: int
    seconds: float


def check_training(what: str, words: TrainingWords, as_json: bool) -> int:
    """Check a task and its recipes; the exit code: 1 for a finding.

    ``what`` is a task's name or file, with settings in brackets. Of a file that adds recipes to another's task, those
    recipes alone are checked.
    """
    from levelbench.records.selection import parse_item
    from levelbench.runner.request import load_task
    from levelbench.training.validation.task import check_task

    reference, given = parse_item(what)
    task = load_task(reference)
    recipes = _recipes(task, reference, str(given.pop("recipe", "")) or words.recipe)
    names = open_frameworks(words.frameworks, words.device) if words.frameworks else [_installed(words.device)]
    with ProgressLine() as line:
        line.say(f"reading {task.name}")
        task.data.fetch(words.data)
        dataset = task.data.load(words.data)
        reports = [
            check_task(
                task,
                dataset,
                lambda probe: _say(line, task.name, probe),
                again=lambda: task.data.load(words.data),
            )
        ]
        for framework in names:
            backend = _opened(framework, words.device)
            for recipe in recipes:
                reports.append(_checked(task, recipe, dataset, backend, framework, given, words, line))
    print_reports(reports, as_json)
    return int(any(report.failed for report in reports))


def _checked(
    task: Task,
    recipe: str,
    dataset: Dataset,
    backend: Backend,
    framework: str,
    given: dict[str, Setting],
    words: TrainingWords,
    line: ProgressLine,
) -> Report:
    from levelbench.training.validation.recipe import check_recipe

    report = check_recipe(
        task,
        recipe,
        dataset,
        backend,
        framework=framework,
        given=given,
        reference=None if framework == "numpy" else _opened("numpy", "cpu"),
        seed=words.seed,
        seconds=words.seconds,
        tell=lambda probe: _say(line, f"{recipe} on {framework}", probe),
    )
    return replace(report, name=f"{report.name} on {framework}")


def _say(line: ProgressLine, subject: str, probe: str) -> None:
    if line.live:
        line.say(f"{subject}: {probe}")


def _recipes(task: Task, reference: str, only: str) -> tuple[str, ...]:
    """The recipes to check: the one asked for; those of the file; all."""
    from levelbench.runner.request import own_recipes

    if only and only not in task.recipes:
        raise UnknownNameError(f"recipe of task {task.name!r}", only, task.recipes)
    return (only,) if only else own_recipes(task, reference)


def _installed(device: str) -> str:
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    known = plugins.names("framework")
    for name in _USUAL:
        if name in known and load_framework(name).lacks(device) is None:
            return name
    raise MissingError(f"a framework on {device!r}", "none can run here", 'pip install "levelbench[torch]"')


def _opened(name: str, device: str) -> Backend:
    from levelbench.networks.executor import Backend
    from levelbench.operators.frameworks import open_framework

    backend = open_framework(name, device)
    if not isinstance(backend, Backend):
        raise UnsupportedError(f"framework {name!r}", "it does not train", "use torch or numpy")
    return backend
