"""Completion of values in shells: tasks with settings, runs, frameworks, rules, by the parameter that takes them.

Click itself completes verbs and options. Values without a list (files, numbers) are left to the shell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from levelbench import plugins

__all__ = ["complete_option_values", "complete_values"]

_MOST_RUNS = 50
_ITEM = re.compile(r"(?P<before>(?P<name>[^\[]*)\[(?:[^\]]*,)?)(?P<setting>\w*)(?P<value>=[^,\]]*)?$")

Named = Iterable[tuple[str, str]]
"""The possible values, each with a description."""


class _Words(click.types.StringParamType):
    """Text whose known values a shell completes; after a comma the next one, if several are allowed."""

    def __init__(self, known: Callable[[click.Context, str], Named], several: bool) -> None:
        self._known, self._several = known, several

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The values with this beginning, or file names if there are none."""
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        given = before.split(",")
        found: list[CompletionItem] = []
        # A store or plug-in that cannot be read completes nothing, and must not print into the line being typed.
        with suppress(Exception):
            found = [
                CompletionItem(before + comma + name, help=what)
                for name, what in self._known(ctx, last)
                if name.startswith(last) and name not in given
            ]
        return found or [CompletionItem(incomplete, type="file")]


def complete_option_values() -> None:
    """Let shells complete the value in ``--option=value`` too.

    Click answers with the value alone. Bash, if ``=`` does not break words there, zsh and fish would replace the whole
    word by it, and bash, where ``=`` is a word, would get the arguments of the verb. Nor do bash and zsh put a
    space after ``digits[lr=``, where a value follows.
    """
    add, more = "COMPREPLY+=($value)", "; [[ $value == *= ]] && compopt -o nospace"
    every = "compadd -U -V unsorted -a completions"
    open_ones = "compadd -U -S '' -V unsorted -- ${(M)completions:#*=}; completions=(${completions:#*=}); "
    for shell in (BashComplete, ZshComplete, FishComplete):
        template = shell.source_template.replace(add, add + more).replace(every, open_ones + every)
        add_completion_class(type(shell.__name__, (_OptionValues, shell), {"source_template": template}))


class _OptionValues(ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        if incomplete == "=":
            args, incomplete = [*args, "="], ""
        if args and args[-1] == "=":
            if "[" in (item := _split_item(args)):
                whole = super().get_completions(args[: -2 * item.count("=")], item + incomplete)
                told = [each for each in whole if each.value.startswith(item)]
                return [CompletionItem(each.value.removeprefix(item), each.type, each.help) for each in told]
            args = args[:-1]
        found = super().get_completions(args, incomplete)
        name, equals, _ = incomplete.partition("=")
        if not equals or not name.startswith("-"):
            return found
        return [CompletionItem(f"{name}={each.value}", type=each.type, help=each.help) for each in found]


def _split_item(args: list[str]) -> str:
    """``digits[lr=0.1,batch=`` where bash has split it into words at each ``=``."""
    at = len(args)
    while at >= 2 and args[at - 1] == "=":
        at -= 2
    return "".join(args[at:])


def complete_values(command: click.Command) -> None:
    """Let the parameters of ``command`` and its subcommands complete known values."""
    for parameter in command.params:
        known = _KNOWN.get(parameter.name or "")
        if known is not None and isinstance(parameter.type, click.types.StringParamType):
            parameter.type = _Words(known, several=isinstance(parameter, click.Option))
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (inner := command.get_command(click.Context(command), name)) is not None:
                complete_values(inner)


def _plugins(kind: str) -> Callable[[click.Context, str], Named]:
    return lambda ctx, text: [(name, "") for name in sorted(plugins.names(kind))]


def _tasks(ctx: click.Context, text: str) -> Named:
    """Tasks; inside the brackets of a task its settings and the other keys that are allowed there."""
    found = _ITEM.match(text)
    if found is None:
        return [(name, "") for name in sorted(plugins.names("task"))]
    from levelbench.experiments.request import load_task

    task, before, setting = load_task(found["name"]), found["before"], found["setting"]
    chosen = re.search(r"[\[,]recipe=([^,\]]+)", before)
    recipe = chosen[1] if chosen else task.recipes[0]
    values = {"recipe": task.recipes, "framework": _trainers()}
    if found["value"] is not None:
        return [(f"{before}{setting}={value}", "") for value in values.get(setting, ())]
    told = {name: f"default {value}" for name, value in task.settings(recipe, {}).items()}
    return [(f"{before}{name}=", what) for name, what in {**dict.fromkeys(values, ""), "target": "", **told}.items()]


def _trainers() -> list[str]:
    """The frameworks that can train."""
    from levelbench.operators.frameworks import load_framework

    return [name for name in sorted(plugins.names("framework")) if load_framework(name).trains]


def _frameworks(ctx: click.Context, text: str) -> Named:
    """All frameworks; only those that can train, for a verb that trains."""
    names = _trainers() if ctx.command.name in _TRAIN else sorted(plugins.names("framework"))
    return [(name, "") for name in names]


_TRAIN = ("run", "scale", "tune", "batch-size", "composition", "target")


def _recipes(ctx: click.Context, text: str) -> Named:
    """The recipes of the tasks given so far; of all tasks if none is given."""
    from levelbench.experiments.request import load_task

    known = plugins.names("task")
    # If an option has no value yet, click does not report the arguments before it.
    words = [word.strip("'\"").partition("[")[0] for word in os.environ.get("COMP_WORDS", "").split()]
    named = [word for word in words if word in known or (word.endswith(".py") and Path(word).is_file())]
    return {recipe: name for name in named or known for recipe in load_task(name).recipes}.items()


def _runs(ctx: click.Context, text: str) -> Named:
    """The newest runs in the store, and their tasks; inside the brackets of a task its settings."""
    if "[" in text:
        return _tasks(ctx, text)
    from levelbench.records import Store
    from levelbench.records.summary import labels_of

    place = ctx.params.get("store_path") or "levelbench-results"
    rows = Store(Path(place)).rows(order_by="started", descending=True)
    tasks = [(name, "its runs") for name in dict.fromkeys(row.task for row in rows)]
    shown = rows[:_MOST_RUNS]
    kinds = {(row.key, row.source_digest): row.specification for row in shown}
    labels = dict(zip(kinds, labels_of([*kinds.values()], [source for _, source in kinds]), strict=True))
    named = [(row.id[:8], f"{labels[row.key, row.source_digest]}, seed {row.seed}, {row.status}") for row in shown]
    return [("latest", "the newest run"), *tasks, *named]


def _rules(ctx: click.Context, text: str) -> Named:
    from levelbench.claims.rules import all_rules

    return [(rule.code, rule.name) for rule in all_rules()]


def _networks(ctx: click.Context, text: str) -> Named:
    from levelbench.networks import zoo

    return [(name, "") for name in zoo.names()]


def _measurable(ctx: click.Context, text: str) -> Named:
    """What ``analyze roofline`` takes: tasks and their runs, and networks."""
    return [*_tasks(ctx, text), *([] if "[" in text else _networks(ctx, text))]


def _optimizers(ctx: click.Context, text: str) -> Named:
    from levelbench.training import optimizers

    kinds = [getattr(optimizers, name) for name in optimizers.__all__]
    return [(each.__name__, "") for each in kinds if isinstance(each, type) and issubclass(each, optimizers.UpdateRule)]


def _rulesets(ctx: click.Context, text: str) -> Named:
    from levelbench.competition.rulesets import ruleset_ids

    return [(name, "") for name in ruleset_ids()]


def _datasets(ctx: click.Context, text: str) -> Named:
    """Datasets, for ``data``; other verbs ask for a name of one's own."""
    from levelbench.training import datasets

    return [(name, "") for name in datasets.names()] if ctx.command.name == "data" else []


def _transforms(ctx: click.Context, text: str) -> Named:
    from levelbench.networks import transforms

    return [(name, transforms.summary(name)) for name in transforms.names()]


def _operators(ctx: click.Context, text: str) -> Named:
    from levelbench.frameworks.numpy.operators import OPERATORS

    return [(name, "") for name in sorted(OPERATORS)]


def _clocks(ctx: click.Context, text: str) -> Named:
    from levelbench.measure.policies import POLICIES

    return [(each.name, "") for each in POLICIES.values()]


def _crossings(ctx: click.Context, text: str) -> Named:
    from levelbench.experiments.request import STOPPING_RULES
    from levelbench.measure.crossing import RULES

    measures = ctx.command.name in ("run", "scale")
    return [(name, "") for name in (STOPPING_RULES if measures else RULES)]


def _engines(ctx: click.Context, text: str) -> Named:
    from levelbench.distributed.launching import ENGINES

    return [(name, "") for name in ENGINES]


def _suites(ctx: click.Context, text: str) -> Named:
    from levelbench.operators.suites.deepbench import suite_names

    return [(name, "") for name in suite_names()]


def _listed(ctx: click.Context, text: str) -> Named:
    """What ``list KIND`` can be narrowed to: names of the kind, or runs."""
    known = {
        **dict.fromkeys(("tasks", "recipes", "settings"), _plugins("task")),
        "frameworks": _plugins("framework"),
        "schemes": _plugins("scheme"),
        "networks": _networks,
        "transforms": _transforms,
        "engines": _engines,
        "clocks": _clocks,
        "suites": _suites,
    }
    return known.get(ctx.params.get("kind") or "", _runs)(ctx, text)


def _checked(ctx: click.Context, text: str) -> Named:
    """What ``check`` takes by name: tasks, schemes and networks; what ``lint`` takes: runs."""
    if ctx.command.name == "lint":
        return _runs(ctx, text)
    named = _tasks(ctx, text)
    if ctx.command.name != "check" or "[" in text:
        return named
    return [*named, *_plugins("scheme")(ctx, text), *_networks(ctx, text)]


def _one_of(*words: str) -> Callable[[click.Context, str], Named]:
    return lambda ctx, text: [(word, "") for word in words]


def _kinds(ctx: click.Context, text: str) -> Named:
    from levelbench.cli.list_verb import KINDS

    return [(name, "") for name in KINDS]


def _parts(ctx: click.Context, text: str) -> Named:
    from levelbench.cli.new_verb import KINDS

    return [(name, what) for name, (what, _) in KINDS.items()]


def _actions(ctx: click.Context, text: str) -> Named:
    from levelbench.cli.data_verb import ACTIONS

    return [(name, "") for name in ACTIONS]


_KNOWN: dict[str, Any] = {
    **dict.fromkeys(("task", "tasks"), _tasks),
    **dict.fromkeys(("a", "b", "runs", "run_word"), _runs),
    "selection": _listed,
    "what": _checked,
    **dict.fromkeys(("framework", "frameworks"), _frameworks),
    **dict.fromkeys(("select", "ignore", "explain"), _rules),
    **dict.fromkeys(("operator", "operators"), _operators),
    **dict.fromkeys(("communicator", "communicators"), _one_of("gloo", "mpi", "nccl")),
    **dict.fromkeys(("ruleset", "ruleset_word"), _rulesets),
    "scheme": _plugins("scheme"),
    "scaling": _one_of("strong", "weak"),
    "lr_scale": _one_of("none", "linear", "sqrt"),
    "subject": _measurable,
    "optimizer": _optimizers,
    "name": _datasets,
    "recipe": _recipes,
    "network": _networks,
    "transforms": _transforms,
    "clock": _clocks,
    "crossing": _crossings,
    "engine": _engines,
    "suite": _suites,
    "kind": _kinds,
    "part": _parts,
    "action": _actions,
    "device": _one_of("cpu", "cuda"),
    "fail_on": _one_of("slower", "unclear", "missed", "never"),
}
