"""``levelbench check`` for optimizers, tasks with their recipes, and schemes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared
from levelbench.cli.findings import chosen, finish, installed, open_frameworks
from levelbench.cli.progress_line import ProgressLine
from levelbench.errors import LevelbenchError, UnknownNameError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from levelbench.checks.findings import Report
    from levelbench.distributed.scheme import Scheme
    from levelbench.networks.executor import Backend
    from levelbench.records.selection import Value
    from levelbench.training.datasets.base import Dataset
    from levelbench.training.probes.optimizers import Checked
    from levelbench.training.task import Setting, Task

__all__ = [
    "SchemeWords",
    "TrainingWords",
    "check_communicators",
    "check_optimizers",
    "check_schemes",
    "check_training",
]

_OPTIMIZERS_ON = ("numpy", "torch")


def check_optimizers(
    path: Path | None,
    *,
    only: str = "",
    reference: str,
    framework: str,
    plot: Path | None,
    seed: int,
    as_json: bool,
    timeout: float = 300.0,
) -> int:
    """Check the optimizers in a file, each in its own process; returns the exit code, 1 for a finding.

    ``only`` names one of them; without a file, one of ours or a framework's: ``torch.optim.SGD[momentum=0.9]``.
    ``reference`` is a name, or empty for the file's own. ``framework`` lists frameworks separated by commas; if empty,
    NumPy and PyTorch are used where installed. ``plot`` shows the first wrong optimizer, else the first.
    """
    from levelbench.experiments.own_optimizers import namesake
    from levelbench.records.selection import parse_item
    from levelbench.training.probes.optimizer_files import check_isolated, load_optimizers
    from levelbench.training.probes.optimizer_references import named_optimizer
    from levelbench.training.probes.optimizer_runs import framework_of

    shared.check_plot(plot)
    settings: dict[str, Value] = {}
    usual: tuple[str, ...] = _OPTIMIZERS_ON
    if path is not None:
        names = list(chosen(load_optimizers(path)[0], only, f"optimizer of {path}"))
    else:
        name, settings = parse_item(only)
        made = named_optimizer(name, settings)
        usual = tuple(filter(None, [framework_of(made, "")])) or usual
        names, reference = [name], reference or namesake(name, settings)
    frameworks = open_frameworks(framework, "cpu") if framework else installed(usual, "cpu")
    checked: dict[str, Checked] = {}
    with ProgressLine() as line:
        for name in names:
            tell = partial(_say, line, name)
            checked[name] = check_isolated(
                path,
                name,
                reference,
                settings=settings,
                frameworks=frameworks,
                seed=seed,
                tell=tell,
                timeout_s=timeout,
            )
    notes = []
    for one in checked.values():
        longest = max((len(way.linf) for way in one.divergences), default=0)
        notes.append(f", in up to {longest:,} steps alongside the reference" if longest else "")
    details = [{"divergences": [way.to_dict() for way in each.divergences]} for each in checked.values()]
    code = finish([each.report for each in checked.values()], as_json, details, notes)
    if plot is not None:
        _draw(checked, plot)
    return code


def _draw(checked: dict[str, Checked], path: Path) -> None:
    from levelbench.report.analyses import Way, write_divergence

    compared = {name: each for name, each in checked.items() if each.divergences}
    if not compared:
        raise UsageError(f"--plot {path}", "there is no reference to diverge from", "give one: --reference adam")
    name = next((name for name, each in compared.items() if each.report.failed), next(iter(compared)))
    ways = [Way(each.problem, each.l2, each.linf, each.tolerance) for each in compared[name].divergences]
    click.echo(f"divergence: {write_divergence(ways, path, f'{name} and its reference')}", err=True)


_TRAINS_ON = ("torch", "numpy")


@dataclass(frozen=True)
class TrainingWords:
    """The options of a check of a task and its recipes."""

    frameworks: str
    device: str
    recipe: str
    data: Path | None
    seed: int
    seconds: float


def check_training(what: str, words: TrainingWords, as_json: bool) -> int:
    """Check a task and its recipes; returns the exit code, 1 for a finding.

    ``what`` is a task's name or file, with settings in brackets. If the file adds recipes to an existing task, only
    those recipes are checked.
    """
    from levelbench.experiments.request import load_task
    from levelbench.records.selection import parse_item
    from levelbench.training.probes.task import check_task

    reference, given = parse_item(what)
    shared.refuse_overruled([(reference, given)], {"recipe": words.recipe or None})
    task = load_task(reference)
    recipes = _recipes(task, reference, str(given.pop("recipe", "")) or words.recipe)
    names = (
        open_frameworks(words.frameworks, words.device) if words.frameworks else installed(_TRAINS_ON, words.device)[:1]
    )
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
        refused: list[LevelbenchError] = []
        for framework in names:
            backend = _opened(framework, words.device)
            for recipe in recipes:
                try:
                    reports.append(_checked(task, recipe, dataset, backend, framework, given, words, line))
                except LevelbenchError as error:
                    # The others are checked all the same.
                    if len(names) * len(recipes) == 1:
                        raise
                    refused.append(error)
    code = finish(reports, as_json)
    for each in refused:
        shared.say_error(each, debug=False)
    return refused[0].exit_code if refused else code


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
    from levelbench.training.probes.recipe import check_recipe

    return check_recipe(
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


def _say(line: ProgressLine, subject: str, probe: str) -> None:
    if line.live:
        line.say(f"{subject}: {probe}")


def _recipes(task: Task, reference: str, only: str) -> tuple[str, ...]:
    """The recipes to check: the requested one, else those of the file, else all."""
    from levelbench.experiments.request import own_recipes

    if only and only not in task.recipes:
        raise UnknownNameError(f"recipe of task {task.name!r}", only, task.recipes)
    return (only,) if only else own_recipes(task, reference)


def _opened(name: str, device: str) -> Backend:
    from levelbench.networks.executor import Backend
    from levelbench.operators.frameworks import open_framework

    backend = open_framework(name, device)
    if not isinstance(backend, Backend):
        raise UnsupportedError(f"framework {name!r}", "it does not train", "use torch or numpy")
    return backend


@dataclass(frozen=True)
class SchemeWords:
    """The options of a check of schemes."""

    frameworks: str
    ranks: str
    seed: int
    seconds: float
    timeout: float


def check_schemes(what: str, words: SchemeWords, as_json: bool) -> int:
    """Check the schemes in a file, or the named one; returns the exit code, 1 for a finding."""
    from levelbench.distributed.probes.files import check_scheme_isolated, schemes_of

    ranks = _ranks(words.ranks)
    schemes = schemes_of(what)
    frameworks = open_frameworks(words.frameworks, "cpu") if words.frameworks else [""]
    reports: list[Report] = []
    with ProgressLine() as line:
        for name, scheme in schemes.items():
            for asked in frameworks:
                framework = asked or _usual(scheme)
                reports.append(
                    check_scheme_isolated(
                        what,
                        name,
                        ranks=ranks,
                        framework=framework,
                        seed=words.seed,
                        seconds=words.seconds,
                        tell=partial(_say, line, f"{name} on {framework}"),
                        timeout_s=words.timeout,
                    )
                )
    return finish(reports, as_json)


def check_communicators(path: Path, only: str, words: SchemeWords, as_json: bool) -> int:
    """Check the communicators in a file, or one of them; returns the exit code, 1 for a finding."""
    from levelbench.distributed.probes.files import check_communicator_isolated, load_communicators

    ranks, known = _ranks(words.ranks), load_communicators(path)
    with ProgressLine() as line:
        return finish(
            [
                check_communicator_isolated(
                    path,
                    name,
                    ranks=ranks,
                    seconds=words.seconds,
                    tell=partial(_say, line, name),
                    timeout_s=words.timeout,
                )
                for name in chosen(known, only, f"communicator of {path}")
            ],
            as_json,
        )


def _usual(scheme: Scheme) -> str:
    """NumPy, unless the scheme runs only on other frameworks."""
    return "numpy" if not scheme.frameworks or "numpy" in scheme.frameworks else scheme.frameworks[0]


def _ranks(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(each) for each in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 2:
        raise UsageError(f"--ranks {text}", "it is not a list of numbers of at least 2", "write --ranks 2,3,4")
    return found
