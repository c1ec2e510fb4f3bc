"""Turns a user's request into a specification: task, recipe, framework and settings, all checked.

Every error in a request is found here, before the first process starts.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast

from levelbench import plugins
from levelbench.errors import DefinitionError, MissingError, UnknownNameError, UnsupportedError, UsageError
from levelbench.experiments.importing import TASK_FOLDER, Importing, usual_cpu_s, watched
from levelbench.experiments.off_clock import called_before, refuse_data
from levelbench.experiments.own_code import is_ours, own_modules, packages_imported, variables_read
from levelbench.measure.policies import policy
from levelbench.operators.frameworks import load_framework
from levelbench.records import format_item, parse_item
from levelbench.records.schema import Distribution, Source, Specification, key_of, secret_settings, source_of_text
from levelbench.training.datasets.base import DatasetSource
from levelbench.training.quality import Quality
from levelbench.training.schedules import has_fixed_length
from levelbench.training.stopping import Evaluate
from levelbench.training.task import Recipe, Setting, Task

__all__ = ["STOPPING_RULES", "TEAM_WORDS", "Arm", "Options", "TeamOptions", "file_of", "load_task", "meant_recipes"]
__all__ += ["own_recipes", "resolve", "resolve_distribution", "source_of"]


TEAM_WORDS = ("ranks", "scheme", "engine", "communicator", "scaling", "lr_scale")
"""What a task's brackets may also contain."""


@dataclass(frozen=True)
class TeamOptions:
    """Options for ranks that apply to all arms of a command; ``None`` means the default."""

    ranks: int | None = None
    scheme: str | None = None
    engine: str | None = None
    communicator: str | None = None
    scaling: str | None = None
    lr_scale: str | None = None


def resolve_distribution(
    options: TeamOptions, given: dict[str, Setting], framework: str, device: str
) -> Distribution | None:
    """The distribution from ``options`` and ``given``, which wins and from which these settings are removed.

    ``None`` for one rank: a run of one process without the overhead of a scheme.
    """
    words: dict[str, Any] = {name: given.pop(name, getattr(options, name)) for name in TEAM_WORDS}
    ranks = words["ranks"]
    if ranks is None:
        _refuse_without_ranks(words)
        return None
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise UsageError(f"ranks={ranks}", "that is not a number of processes", "give a whole number of at least 1")
    scheme, settings, digest = _scheme(str(words["scheme"] or "all-reduce"), ranks, framework)
    engine, communicator = _engine(str(words["engine"] or "process"), words["communicator"], ranks, device)
    _check_scheme_communicator(scheme, settings, communicator)
    scaling, lr_scale = _scaling(words)
    if ranks == 1:
        return None
    return Distribution(ranks, scheme, settings, engine, communicator, cast(Any, scaling), cast(Any, lr_scale), digest)


def _refuse_without_ranks(words: dict[str, object]) -> None:
    for name, value in words.items():
        if value is not None:
            raise UsageError(f"{name}={value}", "it needs several ranks", "give their number, as in --ranks 2")


def _scheme(text: str, ranks: int, framework: str) -> tuple[str, dict[str, Setting], str]:
    """Its name, all its settings, and the digest of its file."""
    from levelbench.distributed.finding import file_of, named_scheme, settings_of

    name, given = parse_item(text)
    scheme = named_scheme(name, given)
    if scheme.frameworks and framework not in scheme.frameworks:
        raise UnsupportedError(
            f"scheme {scheme.name!r} on {framework}",
            f"it runs on {', '.join(scheme.frameworks)}",
            f"use --framework {scheme.frameworks[0]}, or another scheme",
        )
    if lacking := scheme.lacks():
        raise MissingError(f"scheme {scheme.name!r}", lacking, "choose another scheme, or install what it needs")
    if ranks > 1:
        scheme.workers(ranks)
    # An alias is stored as the scheme's name; a file as the path that the ranks will open, wherever they are.
    place, digest = file_of(name) if ".py" in name else (scheme.name, "")
    return place, settings_of(scheme), digest


def _check_scheme_communicator(name: str, settings: dict[str, Setting], communicator: str) -> None:
    from levelbench.distributed.finding import named_scheme

    scheme = named_scheme(name, settings)
    if scheme.messages and communicator == "nccl":
        raise UnsupportedError(
            f"scheme {scheme.name!r} over nccl",
            "its ranks send to each other at the same time, and over NCCL would wait for each other for ever",
            "use --communicator gloo, or another scheme",
        )
    if scheme.communicators and communicator not in scheme.communicators:
        raise UnsupportedError(
            f"scheme {scheme.name!r} over {communicator}",
            f"it uses {', '.join(scheme.communicators)}",
            f"use --communicator {scheme.communicators[0]}, or another scheme",
        )


def _engine(text: str, communicator: object, ranks: int, device: str) -> tuple[str, str]:
    """The engine with the given options, and the communicator."""
    from levelbench.distributed.finding import communicator_kinds
    from levelbench.distributed.launching import ENGINES

    name, options = parse_item(text)
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    engine = ENGINES[name]
    if lacking := engine.lacks(options):
        raise MissingError(f"engine {name!r}", lacking, "choose another engine, or install what it needs")
    if ranks == 1 and engine.elsewhere(options):
        do = "start the command itself as a job (srun levelbench run ...), or give --ranks 2 or more"
        raise UsageError(f"--ranks 1 with engine {name!r}", "one rank runs in the process that you start, here", do)
    if ranks > 1:
        engine.check(ranks, options)
        if device.startswith("cuda:"):
            do = "use --device cuda: each rank then uses the accelerator with its local number"
            raise UsageError(f"--device {device} for {ranks} ranks", "each rank needs its own accelerator", do)
    usual = "nccl" if device.startswith("cuda") and "nccl" in engine.communicators else engine.communicators[0]
    chosen = str(communicator or usual)
    if chosen not in engine.communicators:
        fitting = [each.name for each in ENGINES.values() if chosen in each.communicators]
        if not fitting:
            raise UnknownNameError("communicator", chosen, communicator_kinds())
        raise UsageError(
            f"communicator {chosen!r} with engine {name!r}",
            f"its ranks open {', '.join(engine.communicators)}",
            f"use --engine {fitting[0]}",
        )
    if lacking := communicator_kinds().get(chosen):
        raise MissingError(f"communicator {chosen!r}", lacking, "choose another one, or install what it needs")
    return format_item(name, dict(sorted(options.items()))), chosen


def runs_elsewhere(team: Distribution) -> bool:
    """Whether its ranks run on other machines than the one that starts them."""
    from levelbench.distributed.launching import ENGINES

    name, options = parse_item(team.engine)
    return name in ENGINES and ENGINES[name].elsewhere(options)


def starts_on_each_node(team: Distribution) -> bool:
    """Whether the same command is given on several machines, each of which starts its own part of the ranks."""
    from levelbench.distributed.launching.launchers import nodes_of

    name, options = parse_item(team.engine)
    return name == "torchrun" and nodes_of(options, os.environ) > 1


def _scaling(words: dict[str, Any]) -> tuple[str, str]:
    from levelbench.distributed.ranks import LR_SCALES, SCALINGS

    scaling, lr_scale = words["scaling"] or "strong", words["lr_scale"] or "none"
    if scaling not in SCALINGS:
        raise UnknownNameError("way to scale", scaling, SCALINGS)
    if lr_scale not in LR_SCALES:
        raise UnknownNameError("rule of the learning rate", lr_scale, LR_SCALES)
    if scaling == "strong" and lr_scale != "none":
        raise UsageError(
            f"lr_scale={lr_scale} with strong scaling",
            "the batch does not grow with the ranks, so neither should the learning rate",
            "leave it out, or use weak scaling",
        )
    return scaling, lr_scale


Rule = Literal["confirmed", "final", "first", "sustained"]
STOPPING_RULES: tuple[Rule, ...] = ("confirmed", "final", "first", "sustained")
"""The rules under which a run can be made; ``interpolated`` is only a view of a finished run."""

_DEFAULT_FRAMEWORK = "torch", "numpy"


@dataclass(frozen=True)
class Options:
    """Options that apply to all arms of a command; ``None`` means the task's or recipe's default."""

    recipe: str | None = None
    framework: str | None = None
    device: str = "cpu"
    target: float | None = None
    crossing: str | None = None
    clock: str | None = None
    evaluate_every: str | None = None
    budget_epochs: float | None = None
    budget_s: float | None = None
    budget_samples: int | None = None
    budget_j: float | None = None
    plateau: int | None = None
    data: Path | None = None
    team: TeamOptions = field(default_factory=TeamOptions)


@dataclass(frozen=True)
class Arm:
    """One side of a comparison: how its task is found, and the specification of its runs.

    ``chosen`` has the names of settings that differ from the recipe's defaults, and ``recipe`` if that is not the
    task's default; ``None`` if that is not known. ``doubts`` say what calling the recipe before the runs has left for
    them.
    """

    reference: str
    specification: Specification
    source: Source
    chosen: tuple[str, ...] | None = None
    doubts: tuple[str, ...] = ()
    key: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_of(self.specification))


def load_task(reference: str) -> Task:
    """The task of that name, or the ``task`` that a Python file defines."""
    return load_watched(reference)[0]


def load_watched(reference: str) -> tuple[Task, Importing]:
    """The task, and what its file did while it was imported; ``DefinitionError`` if it opened data."""
    if is_ours(reference):
        return _task_named(reference), Importing()
    # The first call imports parts of levelbench; the second measures the time that a plain task takes.
    usual_s = min(usual_cpu_s() for _ in range(2))
    file = file_of(reference)
    with TASK_FOLDER.switch_to(file.resolve().parent) if file else nullcontext(), watched() as seen:
        task = _task_from_file(Path(reference)) if reference.endswith(".py") else _task_named(reference)
    seen.usual_s = seen.usual_s or usual_s
    refuse_data(reference, seen)
    return task, seen


def _task_named(reference: str) -> Task:
    found = plugins.load("task", reference)
    if not isinstance(found, Task):
        raise DefinitionError(f"task {reference!r}", f"its entry point is a {type(found).__name__}", "make it a Task")
    return found


def file_of(reference: str) -> Path | None:
    """The user's file, if ``reference`` is one."""
    return Path(reference) if reference.endswith(".py") else None


def own_recipes(task: Task, reference: str) -> tuple[str, ...]:
    """The recipes that the file ``reference`` defines; all of the task's if it is a name or a file without recipes."""
    if not reference.endswith(".py"):
        return task.recipes
    path = Path(reference).resolve()
    return tuple(name for name in task.recipes if _file_of(task.recipe_function(name)) == path) or task.recipes


def meant_recipes(task: Task, reference: str) -> tuple[str, ...]:
    """The recipes meant if none is named: the task's default, or those that a file adds to an existing task."""
    own, usual = own_recipes(task, reference), task.recipes[0]
    return (usual,) if usual in own else own


def _file_of(recipe: Callable[..., Recipe]) -> Path | None:
    file = inspect.getsourcefile(inspect.unwrap(recipe))
    return Path(file).resolve() if file else None


def source_of(task: Task, recipe: str) -> Source:
    """The text of the module that defines the recipe, which may be another one than the task's.

    It comes with digests of what the task fixes, whichever module defines the recipe, and of the user's modules that
    any of these import.
    """
    module = inspect.getmodule(task.recipe_function(recipe))
    file = getattr(module, "__file__", None)
    text = Path(file).read_text(encoding="utf-8") if file else ""
    name = module.__name__ if module is not None else task.name
    quality = _definition_digest(task.quality)
    modules = own_modules(module, _fixed_modules(task))
    return source_of_text(name, text, quality=quality, data=_definition_digest(task.data), modules=modules)


def variables_of(task: Task, recipe: str) -> dict[str, str]:
    """The environment variables that the code of the task and recipe reads, each with the first digits of a digest."""
    return variables_read(inspect.getmodule(task.recipe_function(recipe)), _fixed_modules(task))


def packages_of(task: Task, recipe: str) -> dict[str, str]:
    """The installed packages that the code of the task and recipe imports, with their versions."""
    return packages_imported(inspect.getmodule(task.recipe_function(recipe)), _fixed_modules(task))


def _fixed_modules(task: Task) -> list[ModuleType | None]:
    """The modules of what the task fixes, whichever recipe runs."""
    return [sys.modules.get(type(part).__module__) for part in (task.quality, task.data)]


def _definition_digest(part: Quality | DatasetSource) -> str:
    """SHA-256 of what defines a part of a task: its class, code from outside levelbench, plain settings and functions.

    For levelbench's own classes the name is enough, since the record has our version. The settings of its data sources
    are left out, since they depend on the machine; the record describes the data.
    """
    kind = type(part)
    own = [each for each in kind.__mro__ if not each.__module__.startswith(("levelbench.", "builtins", "abc"))]
    settings = {}
    if own or isinstance(part, Quality):
        settings = {
            name: value
            for name, value in sorted(vars(part).items())
            if name != "target" and isinstance(value, bool | int | float | str | None)
        }
    functions = [value for _, value in sorted(vars(part).items()) if inspect.isfunction(value)]
    texts = [_text_of(each) for each in (*own, *functions)]
    return _digest(repr((kind.__qualname__, settings, texts)))


def _text_of(part: Any) -> str:
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        return str(part.__qualname__)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def resolve(reference: str, given: dict[str, Setting], options: Options) -> Arm:
    """The arm for ``reference[given]`` under ``options``; what is in the brackets wins."""
    task = load_task(reference)
    settings = dict(given)
    recipe = str(settings.pop("recipe", None) or options.recipe or _only(task, reference))
    framework = str(settings.pop("framework", None) or options.framework or _default_framework())
    device = str(settings.pop("device", None) or options.device)
    distribution = resolve_distribution(options.team, settings, framework, device)
    threshold = settings.pop("target", options.target)
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise UsageError(
            f"target {threshold!r} of {task.name}", "it is not a number", "give a number, such as target=0.9"
        )
    full = task.settings(recipe, settings)
    if secret := secret_settings(full):
        raise UsageError(
            f"recipe {recipe!r} of {task.name}",
            f"its setting {', '.join(secret)} looks like a secret, and records contain settings unchanged",
            "remove it from the recipe's settings and read it from the environment (os.environ['NAME']) where it is "
            "used",
        )
    # A login node need not have the accelerators of the nodes where the ranks run; those check for themselves.
    here = "cpu" if distribution and runs_elsewhere(distribution) else device
    _check_available(task, framework, here, options.data)
    if is_ours(reference):
        parts, left = task.assemble(recipe, full), list[str]()
    else:
        parts, left = called_before("its recipe", lambda: task.assemble(recipe, full))
    budget_epochs = _check_options(options, parts, f"{task.name}[recipe={recipe}]")
    specification = Specification(
        task=task.name,
        recipe=recipe,
        framework=framework,
        device=device,
        settings=full,
        target=task.quality.as_target(threshold),
        crossing=_crossing(options, parts),
        clock=policy(options.clock or task.clock).name,
        evaluate_every=str(Evaluate.parse(options.evaluate_every or task.evaluate_every)),
        budget_epochs=budget_epochs,
        budget_s=options.budget_s,
        budget_samples=options.budget_samples,
        budget_j=options.budget_j,
        plateau=options.plateau,
        distribution=distribution,
    )
    usual = task.settings(recipe, {})
    chosen = ["recipe"] * (recipe != task.recipes[0]) + [name for name in settings if full[name] != usual[name]]
    return Arm(reference, specification, source_of(task, recipe), tuple(chosen), tuple(left))


def _only(task: Task, reference: str) -> str:
    found = meant_recipes(task, reference)
    if len(found) > 1:
        what = f"it adds {len(found)} recipes to {task.name}: {', '.join(found)}"
        raise UsageError(f"the recipe of {reference}", what, f"name one: {reference}[recipe={found[0]}]")
    return found[0]


def _crossing(options: Options, parts: Recipe) -> Rule:
    """The requested rule, or else the one that suits the schedule."""
    if options.crossing is None:
        return "final" if has_fixed_length(parts.schedule) else "confirmed"
    for rule in STOPPING_RULES:
        if rule == options.crossing:
            return rule
    raise UnknownNameError("crossing rule of a run", options.crossing, STOPPING_RULES)


def _check_options(options: Options, parts: Recipe, label: str) -> float:
    """The budget in epochs; ``UsageError`` for impossible numbers."""
    for name, value in (
        ("epochs", options.budget_epochs),
        ("seconds", options.budget_s),
        ("samples", options.budget_samples),
        ("joules", options.budget_j),
        ("evaluations without a better one", options.plateau),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UsageError(f"a budget of {value:g} {name}", "it is not positive", f"give a positive number of {name}")
    _check_energy(options.budget_j)
    epochs = options.budget_epochs or float(parts.epochs)
    if has_fixed_length(parts.schedule) and epochs != parts.epochs:
        raise UsageError(
            f"--epochs {epochs:g} for the schedule of fixed length of {label}",
            f"its learning rate is planned for {parts.epochs} epochs, and cutting it short is a different recipe",
            f"set the length of the schedule itself: [epochs={epochs:g}]",
        )
    return epochs


def _check_energy(budget_j: float | None) -> None:
    if budget_j is None:
        return
    from levelbench.measure.meters import energy_meter

    meter = energy_meter()
    meter.start()
    reading = meter.stop()
    if reading.value is None and reading.reason:
        raise MissingError(
            f"a budget of {budget_j:g} joules",
            f"energy is not available here ({reading.reason})",
            "give a budget of seconds, samples or epochs",
        )


def _check_available(task: Task, framework: str, device: str, data: Path | None) -> None:
    found = load_framework(framework)
    if not found.trains:
        raise UnsupportedError(
            f"framework {framework!r} for task {task.name!r}", "it does not train", "use torch or numpy"
        )
    if lacking := found.lacks(device):
        raise MissingError(f"framework {framework!r} on device {device!r}", lacking, "levelbench list shows what runs")
    # Here and not in the first run's process, where the download would be on the clock.
    task.data.fetch(data)


def _default_framework() -> str:
    for name in _DEFAULT_FRAMEWORK:
        if name in plugins.names("framework") and load_framework(name).lacks() is None:
            return name
    raise MissingError("a framework", "none can run here", 'pip install "levelbench[torch]"')


def _task_from_file(path: Path) -> Task:
    task = getattr(plugins.load_file("task", path), "task", None)
    if not isinstance(task, Task):
        raise DefinitionError(f"task file {path}", "it defines no `task` of type Task", "write task = Task(...)")
    return task
