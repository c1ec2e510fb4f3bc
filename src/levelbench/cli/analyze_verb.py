"""``levelbench analyze``: what many runs say together; here, whether optimisations gain together."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.analyze_target import tune_target
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.composition import Composition
    from levelbench.experiments.request import Arm
    from levelbench.experiments.training import RunPlan
    from levelbench.records import Record, RunGroup
    from levelbench.training.task import Setting

__all__ = ["command"]

_CANNOT_TELL = 4
_MOST_FULL = 3
_NO_FIGURE = "no figure: no arm has a speed-up, for runs missed the target or failed (more: --epochs, --budget)"


@click.group("analyze")
def command() -> None:
    """Analyse runs together, and make those that are missing."""


command.add_command(tune_target)


@command.command("composition")
@click.argument("task", metavar="TASK")
@click.option(
    "--factor",
    "factors",
    multiple=True,
    help="A setting to switch off, or NAME=VALUE where the task does not say what off is.  [default: all it names]",
)
@click.option(
    "--design",
    type=click.Choice(["auto", "full", "one"]),
    default="auto",
    show_default=True,
    help="Every combination, or none, each alone and all; auto is full for up to three factors.",
)
@click.option("-n", "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each arm.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option("--framework", help="Framework.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--target", type=float, help="Another target than the task's, on the metric's scale.")
@click.option("--clock", help="Clock policy of the score: wall, dawnbench, mlperf, algoperf.")
@click.option("--every", help='Interval of evaluations: "1 epoch", "100 steps".')
@click.option("--epochs", type=float, help="Give up after this many epochs.")
@click.option("--budget", type=float, help="Give up after this many seconds.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="LEVELBENCH_DATA",
    help="Folder of the dataset, else $LEVELBENCH_DATA.",
)
@click.option("--fresh", is_flag=True, help="Run all anew, whatever the store holds.")
@shared.spawn_option
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the speed-ups to this .svg or .png file.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the tables as Markdown.")
@click.option(
    "--margin", type=float, default=0.1, show_default=True, help="COMPOSABLE: the whole interval this close to 1."
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@shared.store_option
@shared.json_option
@shared.debug_option
def composition(task: str, factors: tuple[str, ...], store_path: Path, as_json: bool, debug: bool, **given: Any) -> int:
    """Switch optimisations of a recipe off and on, and tell if all together gain the product of what each gains.

    \b
      levelbench analyze composition 'fashion-mnist[recipe=fast]' --factor nesterov --factor channels_last -n 5
      levelbench analyze composition digits --factor momentum=0.0 --factor lr=0.01

    Runs that the store already holds are not made again: the same command resumes. Exits with 4 where the runs cannot
    tell.
    """
    from levelbench.cli.watching import LiveWatcher
    from levelbench.experiments.kernel import carry_out, make_plan
    from levelbench.experiments.training import Extras, Training
    from levelbench.measure.environment import capture

    shared.check_statistics(given["margin"], given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["plot"], given["markdown_path"])
    arms, off = _arms(task, factors, given)
    store = shared.open_store(store_path)
    seeds = range(given["seed"], given["seed"] + given["runs"])
    kind = Training(store, given["data"], Extras(fork=not given["spawn"]))
    plan = make_plan(kind, arms, seeds, capture(), fresh=given["fresh"])
    with shared.as_far_as_read(err=as_json):
        for line in (f"{len(arms)} arms of {', '.join(off)}", *plan.lines()):
            click.echo(line, err=as_json)
        if plan.to_go:
            click.echo(f"records: {store.path}", err=as_json)
    with closing(LiveWatcher(plan, on_stderr=as_json)) as watcher:
        records = carry_out(plan, kind, watcher)
    return _conclude(plan, records, off, as_json, given)


def _arms(task_word: str, words: tuple[str, ...], given: dict[str, Any]) -> tuple[list[Arm], dict[str, Setting]]:
    """The arms of the design, and each factor's value when it is off."""
    from levelbench.analysis.composition import designs, one_at_a_time
    from levelbench.experiments.request import Options, load_task, resolve
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(task_word)
    options = Options(
        framework=given["framework"],
        device=given["device"],
        target=given["target"],
        clock=given["clock"],
        evaluate_every=given["every"],
        budget_epochs=given["epochs"],
        budget_s=given["budget"],
        data=given["data"],
    )
    every = resolve(reference, settings, options)
    task, recipe = load_task(reference), every.specification.recipe
    off = _off(words, task.factors(recipe), f"{task.name}[recipe={recipe}]")
    off = {name: task.settings(recipe, {name: value})[name] for name, value in off.items()}
    for name, value in off.items():
        if every.specification.settings[name] == value:
            raise UsageError(
                f"the factor {name} of {task.name}", f"it is off already: {value}", f"switch it on: [{name}=...]"
            )
    full = given["design"] == "full" or (given["design"] == "auto" and len(off) <= _MOST_FULL)
    chosen = designs(tuple(off)) if full else one_at_a_time(tuple(off))
    arms = [
        resolve(reference, {**settings, **{name: value for name, value in off.items() if name not in on}}, options)
        for on in chosen
    ]
    return arms, off


def _off(words: tuple[str, ...], declared: dict[str, Setting], what: str) -> dict[str, Setting]:
    """The factors that were asked for, with their values when off: two or more."""
    from levelbench.records.selection import parse_item

    off: dict[str, Setting] = {} if words else dict(declared)
    for word in words:
        name, equals, _ = word.partition("=")
        if equals:
            off |= parse_item(f"factor[{word}]")[1]
        elif name in declared:
            off[name] = declared[name]
        else:
            known = f"it declares {', '.join(declared)}" if declared else "it declares none"
            raise UsageError(
                f"the factor {name!r} of {what}",
                f"what off means is not known: {known}",
                f"say it: --factor {name}=...",
            )
    if len(off) < 2:
        found = f"it is a question of two factors or more, and there {'is one' if off else 'are none'}"
        raise UsageError(f"the composition of {what}", found, "name two or more: --factor NAME or --factor NAME=VALUE")
    return off


def _conclude(
    plan: RunPlan, records: dict[tuple[int, int], Record], off: dict[str, Setting], as_json: bool, given: dict[str, Any]
) -> int:
    """Analyse, print, write: in this order, so that a figure that cannot be drawn loses nothing."""
    from levelbench.analysis.composition import CompositionKind, compose
    from levelbench.records import group_runs, summarise

    clocks = [arm.specification.clock for arm in plan.arms]
    runs = [summarise(record, clock=clocks[arm]) for (arm, _), record in sorted(records.items())]
    groups = group_runs(runs)
    found = compose(groups, off, margin=given["margin"], level=given["level"])
    code = _CANNOT_TELL if found.kind is CompositionKind.UNCLEAR else 0
    if as_json:
        shared.emit_json({**_as_json(found, groups), **_write(found, given)})
        return code
    with shared.as_far_as_read():
        _print(found, groups)
    for name, path in _write(found, given).items():
        click.echo(f"{name}: {path}" if path else _NO_FIGURE)
    return code


def _print(found: Composition, groups: list[RunGroup]) -> None:
    from levelbench.cli.reporting import doubt_lines
    from levelbench.report.analyses import arms_table, effects_table

    tables = [each for each in (arms_table(found), effects_table(found)) if each is not None]
    click.echo()
    shared.print_tables(*tables)
    click.echo("\n" + "\n".join([*found.lines(), *doubt_lines(groups)]))


def _as_json(found: Composition, groups: list[RunGroup]) -> dict[str, Any]:
    from levelbench.cli.reporting import group_json

    cells = [{**dataclasses.asdict(cell), "on": sorted(cell.on)} for cell in found.cells]
    return {**dataclasses.asdict(found), "cells": cells, "groups": [group_json(group) for group in groups]}


def _write(found: Composition, given: dict[str, Any]) -> dict[str, str | None]:
    """What was asked for, written; the paths by name, ``None`` for a figure that had nothing to show."""
    from levelbench.report.analyses import arms_table, effects_table, write_composition
    from levelbench.report.drawing import write_whole
    from levelbench.report.tables import to_markdown

    written: dict[str, str | None] = {}
    if given["markdown_path"] is not None:
        tables = [each for each in (arms_table(found), effects_table(found)) if each is not None]
        text = "\n".join(["# Composition", "", *found.lines(), "", *(to_markdown(each, 2) for each in tables)])
        written["markdown"] = str(write_whole(given["markdown_path"], text))
    if given["plot"] is not None:
        drawn = write_composition(found, given["plot"])
        written["plot"] = None if drawn is None else str(drawn)
    return written
