"""``levelbench analyze``: analyses of many runs: stability, thresholds, other data, targets, whether gains multiply."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.analyze_batch_size import batch_size
from levelbench.cli.analyze_generalization import generalization_verb
from levelbench.cli.analyze_roofline import roofline
from levelbench.cli.analyze_scaling import scaling_verb
from levelbench.cli.analyze_threshold import threshold
from levelbench.cli.analyze_utilisation import utilisation_verb
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.composition import Composition, Lesion
    from levelbench.analysis.targets import Runs, TaskProposal
    from levelbench.experiments.request import Arm
    from levelbench.experiments.training import RunPlan
    from levelbench.records import Record, RunGroup
    from levelbench.report.tables import Table
    from levelbench.training.task import Setting, Task

__all__ = ["command", "task", "tune_target"]


@click.group("task", hidden=True)
def task() -> None:
    """Help for authors of tasks; ``tune-target`` is now ``analyze target``."""


@click.command("target", cls=shared.Grouped, short_help="A target that all seeds reach, by the knee rule.")
@click.argument("task")
@click.option("--recipe", help="Recipe whose curves are analysed; default: the task's first.")
@click.option(
    "-n", "--runs", type=click.IntRange(min=10), default=10, show_default=True, help="Number of seeds, at least 10."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option("--framework", help="Framework; default: one that is installed.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--epochs", type=float, help="Length of the curves: where a user would stop; default: the recipe's.")
@click.option("--every", help='Interval between evaluations of the curves: "1 epoch", "100 steps".')
@click.option("--step", type=click.FloatRange(min=0, min_open=True), help="Round the target to multiples of this.")
@click.option("--cost", type=float, default=0.05, show_default=True, help="Share of a run that evaluations may take.")
@click.option("--width", type=float, default=0.05, show_default=True, help="Desired half-width of the interval.")
@shared.data_option
@click.option("--fresh", is_flag=True, help="Run everything again, even if the store has it.")
@shared.spawn_option
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw the curves and the target to this .svg or .png file."
)
@shared.table_options
@shared.store_option
@shared.answer_options
def tune_target(task: str, store_path: Path, as_json: bool, **given: Any) -> int:
    """Propose a target for TASK by the knee rule, how often to evaluate, and how many runs to make.

    Trains with at least ten seeds, past any target, in one process per run. The same command resumes. TASK is a name or
    a file, with settings in brackets:

    \b
      levelbench analyze target digits --epochs 40 -n 30
      levelbench analyze target 'my_task.py[lr=0.1]' --recipe fast --plot curves.svg

    Exits with 4 if the curves have no good target.
    """
    from levelbench.analysis.targets import check_shares, tune
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.training import Extras, Training

    check_shares(given["cost"], given["width"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    arm = _arm_of_target(task, given)
    _check_evaluations(arm, given["data"])
    store = shared.open_store(store_path)
    _, found = measure_runs(
        Training(store, given["data"], Extras(fork=not given["spawn"])),
        [arm],
        given["runs"],
        folder=store.path,
        first_seed=given["seed"],
        fresh=given["fresh"],
        as_json=True,
    )
    records = [record for record in found.values() if record.evaluations]
    tuning = tune(records, step=given["step"], cost=given["cost"], width=given["width"])
    lines = _proposal(task, arm, tuning, given)
    table = _candidates_table(arm, tuning)
    said = _target_lines(arm, tuning)

    def write() -> dict[str, str]:
        written = shared.write_tables(given, [table], [*said, *(f"propose: {line}" for line in lines)], title="Target")
        return written | ({} if given["plot"] is None else {"plot": str(_draw_target(given["plot"], records, tuning))})

    view = {**asdict(tuning), "task": arm.specification.task, "propose": lines}
    shown = [table] if tuning.target.candidates else []
    shared.present(shown, said, lambda: view, write, as_json=as_json, apart=False)
    if lines and not as_json:
        # Never folded, as they are to be copied.
        with shared.as_far_as_read():
            click.echo("propose: " + "\n         ".join(lines))
    return 4 if tuning.target.target is None else 0


def _arm_of_target(task: str, given: dict[str, Any]) -> Arm:
    """The one arm, without a stopping rule: its runs continue past any target, to their end."""
    from levelbench.experiments.request import Options, resolve
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(task)
    shared.refuse_overruled([(reference, settings)], given)
    options = Options(
        recipe=given["recipe"],
        framework=given["framework"],
        device=given["device"],
        crossing="sustained",
        evaluate_every=given["every"],
        budget_epochs=given["epochs"],
        data=given["data"],
    )
    return resolve(reference, settings, options)


def _check_evaluations(arm: Arm, data: Path | None) -> None:
    """Refuse curves that would be too short, before they are measured."""
    from levelbench.analysis.targets import check_evaluations
    from levelbench.experiments.request import load_task
    from levelbench.training.stopping import Evaluate

    specification = arm.specification
    every, epochs = Evaluate.parse(specification.evaluate_every), specification.budget_epochs
    per_epoch, examples = 1, 1
    if every.unit != "epoch" or epochs % 1:
        if specification.distribution is not None:
            # The steps of an epoch then depend on the scheme; ``tune`` takes them from the records.
            return
        task = load_task(arm.reference)
        recipe, split = task.assemble(specification.recipe, specification.settings), task.data.load(data).train
        per_epoch = -(-recipe.sampler.steps(split) // recipe.accumulate)
        examples = int(recipe.sampler.epoch(split, 0, 0).sizes.sum())
    last = max(1, round(epochs * per_epoch))
    check_evaluations(-(-last // min(every.steps(per_epoch, examples), last)), specification.evaluate_every, epochs)


def _proposal(task: str, arm: Arm, tuning: TaskProposal, given: dict[str, Any]) -> list[str]:
    """The lines for the task file, and the command that measures with them; empty if there is no target."""
    if tuning.target.target is None or tuning.cadence is None or tuning.runs is None:
        return []
    threshold, every = f"{tuning.target.target:.10g}", tuning.cadence.every
    lines = [f"target={threshold}", f'evaluate_every="{every}"']
    if tuning.runs.needed is not None:
        # The number of runs is for confirmed crossings, even if the recipe is otherwise judged at its end.
        rules = ["--target", threshold, "--every", every, "--crossing", "confirmed"]
        number = ["-n", str(max(5, tuning.runs.needed))]
        lines.append(shlex.join(["levelbench", "run", _item(task, arm), *rules, *_limits(given), *number]))
    return lines


def _item(task: str, arm: Arm) -> str:
    """What was trained, as an argument of ``levelbench run``."""
    from levelbench.records.selection import format_item, parse_item

    reference, settings = parse_item(task)
    named = arm.specification
    device = {} if named.device == "cpu" else {"device": named.device}
    own = {name: value for name, value in settings.items() if name != "target"}
    return format_item(reference, {"framework": named.framework, "recipe": named.recipe, **device, **own})


def _limits(given: dict[str, Any]) -> list[str]:
    """The options ``--epochs`` and ``--data``, if they were given."""
    epochs = [] if given["epochs"] is None else ["--epochs", f"{given['epochs']:.10g}"]
    return epochs if given["data"] is None else [*epochs, "--data", str(given["data"])]


def _target_lines(arm: Arm, tuning: TaskProposal) -> list[str]:
    """The knee, the target, the interval between evaluations and the number of runs, with their reasons."""
    said = []
    target, cadence, runs = tuning.target, tuning.cadence, tuning.runs
    if target.knee_x is not None and target.knee_quality is not None:
        said.append(f"knee: {target.knee_x:g} epochs, {target.knee_quality:.4f}; the median ends at {tuning.final:.4f}")
    said.append(f"target: {'none' if target.target is None else f'{target.target:g}'}: {target.reason}")
    if cadence is None or runs is None:
        every, budget = arm.specification.evaluate_every, arm.specification.budget_epochs
        said.append(f"nothing is proposed; the runs were evaluated every {every} (--every) for {budget:g} (--epochs)")
        return said
    if tuning.metric in ("top1", "top5") and target.target is not None and target.target >= 1:
        said.append("  a target at the end of its scale leaves no room for improvement: make the task harder")
    quantisation = (
        "" if cadence.quantisation is None else f"; one is {cadence.quantisation:.0%} of the way to the target"
    )
    said.append(
        f"evaluate every {cadence.every}: {cadence.cost:.1%} of a run ({_time(cadence.evaluation_s)} an evaluation, "
        f"{_time(cadence.step_s)} a step){quantisation}; now {cadence.now}: {cadence.now_cost:.1%}"
    )
    if cadence.crossing is not None and cadence.shown > 1:
        said.append(f"  then {cadence.reached} of {runs.n} runs confirm it, after {cadence.crossing:g} epochs (median)")
    said += [f"  {note}" for note in (cadence.reason, cadence.coarse) if note]
    said.append(_runs_line(runs))
    if runs.reached < runs.n:
        said.append(f"reached {runs.reached}/{runs.n}: the interval leaves out the other runs")
    return said


def _runs_line(runs: Runs) -> str:
    if runs.deviation is None or runs.width_now is None:
        return f"runs: {runs.reached} of {runs.n} reached the target: too few to say how times vary"
    needed = "more than 1000" if runs.needed is None else f"{runs.needed}"
    return (
        f"runs: {needed} for an interval of ±{runs.width:.0%}; those {runs.reached} that reached it vary by "
        f"{runs.deviation:.1%} and give ±{runs.width_now:.0%}"
    )


def _candidates_table(arm: Arm, tuning: TaskProposal) -> Table:
    from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Reached, Table, Text

    def number(value: float | None) -> Cell:
        return Absent() if value is None else Number(value) if abs(value) < float("inf") else Text("inf")

    columns = (
        Column("target", "Target", ColumnKind.NUMBER, digits=4),
        Column("reached", "Reached"),
        Column("epochs", "Median epochs", ColumnKind.NUMBER),
        Column("cv", "Spread", ColumnKind.SHARE),
        Column("conditioning", "Conditioning", ColumnKind.NUMBER),
        Column("quantisation", "Quantisation", ColumnKind.SHARE),
        Column("finding", "Finding"),
    )
    rows = tuple(
        (
            Number(each.threshold),
            Reached(each.reached, tuning.target.seeds),
            number(each.crossing),
            number(each.cv),
            number(each.conditioning),
            number(each.quantisation),
            Text(each.finding + (", chosen" if each.threshold == tuning.target.target else "")),
        )
        for each in tuning.target.candidates
    )
    notes = ("conditioning: the slope with both ranges scaled to 1; 1 at the knee, flat above 3",)
    title = f"{arm.specification.task}[recipe={arm.specification.recipe}]: {tuning.metric} on the {tuning.split} split"
    return Table("targets", title, columns, rows, notes)


def _time(seconds: float) -> str:
    from levelbench.report.numbers import TIME, choose_unit

    unit = choose_unit([seconds], TIME)
    return f"{seconds / unit.size:.3g} {unit.symbol}"


def _draw_target(path: Path, records: list[Record], tuning: TaskProposal) -> Path:
    from levelbench.records import group_runs, summarise
    from levelbench.report.analyses import write_target
    from levelbench.report.run_figures import AXES, curves_of

    # Crossings of the proposed target, not of the target that the runs had.
    threshold = tuning.target.target
    (group,) = group_runs([summarise(record, crossing="confirmed", threshold=threshold) for record in records])
    curves = curves_of(group, records, AXES[1])
    whose = "the task's own" if threshold is None else "proposed"
    return write_target(curves, group.specification, path, whose)


task.add_command(tune_target, "tune-target")


_CANNOT_TELL = 4
_MOST_FULL = 3
_RUN_FACTORS = ("framework", "device", "ranks", "scheme", "engine", "communicator", "scaling", "lr_scale")
"""Parts of a run that are no settings of its recipe, and may be factors."""
_NO_FIGURE = "no arm has a speed-up, because runs missed the target or failed (raise --epochs or --budget)"


@click.group("analyze")
def command() -> None:
    """Analyse runs together, and make the missing ones."""


command.add_command(tune_target)
command.add_command(roofline)
command.add_command(threshold)
command.add_command(batch_size)
command.add_command(scaling_verb)
command.add_command(generalization_verb)
command.add_command(utilisation_verb)


@command.command("composition", short_help="Optimisations of a recipe on and off: factors of the time.")
@click.argument("task", metavar="TASK")
@click.option(
    "--factor",
    "factors",
    multiple=True,
    help="What to switch off: a setting, ranks, scheme, framework, device; NAME=VALUE if the task does not declare its "
    "off value.  [default: all declared]",
)
@click.option(
    "--design",
    type=click.Choice(["auto", "full", "one", "fraction", "lesion"]),
    default="auto",
    show_default=True,
    help="Arms: every combination (full), none, each alone and all (one), these and a fractional factorial of 5 to 11 "
    "factors (fraction), all and all but one (lesion); auto: full for up to three factors, else one.",
)
@click.option(
    "-n", "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Number of runs of each arm."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option("--framework", help="Framework.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--target", type=float, help="Target to use instead of the task's, on the metric's scale.")
@click.option("--clock", help="Clock policy of the score: wall, dawnbench, mlperf, algoperf.")
@click.option("--every", help='Interval between evaluations: "1 epoch", "100 steps".')
@click.option("--epochs", type=float, help="Give up after this many epochs.")
@click.option("--budget", type=float, help="Give up after this many seconds.")
@shared.data_option
@click.option("--fresh", is_flag=True, help="Run everything again, even if the store has it.")
@shared.spawn_option
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the speed-ups to this .svg or .png file.")
@shared.table_options
@click.option(
    "--margin",
    type=float,
    default=0.1,
    show_default=True,
    help="COMPOSABLE means that the whole interval is this close to 1.",
)
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@shared.store_option
@shared.answer_options
def composition(task: str, factors: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Switch optimisations of a recipe on and off, and compare their joint gain with the product of their single gains.

    \b
      levelbench analyze composition 'fashion-mnist[recipe=fast]' --factor nesterov --factor channels_last -n 5
      levelbench analyze composition digits --factor momentum=0.0 --factor lr=0.01
      levelbench analyze composition 'digits[ranks=2,batch=256]' --factor ranks=1 --factor batch=64 --factor lr=0.01
      levelbench analyze composition 'fashion-mnist[recipe=fast94]' --design fraction

    Runs that are already in the store are not repeated: the same command resumes. Exits with 4 if the runs are
    inconclusive.
    """
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.training import Extras, Training

    shared.check_statistics(given["margin"], given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["plot"], given["csv_path"], given["markdown_path"])
    arms, off = _arms(task, factors, given)
    store = shared.open_store(store_path)
    plan, records = measure_runs(
        Training(store, given["data"], Extras(fork=not given["spawn"])),
        arms,
        given["runs"],
        folder=store.path,
        first_lines=lambda plan: [f"{len(arms)} arms of {', '.join(off)}"],
        first_seed=given["seed"],
        fresh=given["fresh"],
        as_json=as_json,
    )
    return _conclude(plan, records, off, as_json, given)


def _arms(task_word: str, words: tuple[str, ...], given: dict[str, Any]) -> tuple[list[Arm], dict[str, Setting]]:
    """The arms of the design, and the off value of each factor."""
    from levelbench.analysis.composition import factor_value
    from levelbench.experiments.request import Options, load_task, resolve
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(task_word)
    shared.refuse_overruled([(reference, settings)], given)
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
    off = {name: _off_value(task, recipe, name, value) for name, value in off.items()}
    for name, value in off.items():
        now = factor_value(every.specification, name)
        if now in (None, value):
            found = "it is already off" if now is not None else "the runs have none: they are of one process"
            raise UsageError(
                f"the factor {name} of {task.name}", f"{found}: {value}", f"switch it on: {task.name}[{name}=...]"
            )
    arms, made = [], dict[str, frozenset[str]]()
    for on in _combinations(given["design"], tuple(off)):
        arm = resolve(
            reference, {**settings, **{name: value for name, value in off.items() if name not in on}}, options
        )
        if arm.key in made:
            both = " and ".join(", ".join(sorted(each)) or "none" for each in (made[arm.key], on))
            do = "leave one of the factors out, or choose other values for off (a scheme needs ranks=2 or more)"
            raise UsageError(f"the factors {', '.join(off)}", f"the arms with {both} are the same runs", do)
        made[arm.key] = on
        arms.append(arm)
    return arms, off


def _off_value(task: Task, recipe: str, name: str, value: Setting) -> Setting:
    """The off value, checked: that of a setting by its type, that of another part of a run by its name."""
    if name in ("recipe", "target"):
        why = {
            "recipe": "each recipe has settings of its own",
            "target": "all arms have one, or their times say nothing",
        }
        do = {"recipe": "compare them: levelbench run --recipe A,B", "target": "leave it out, and use --target"}
        raise UsageError(f"--factor {name}={value}", f"the {name} cannot be a factor: {why[name]}", do[name])
    if name not in _RUN_FACTORS:
        return task.settings(recipe, {name: value})[name]
    if name == "ranks" and type(value) is not int:
        raise UsageError(f"--factor ranks={value}", "that is not a number of processes", "write --factor ranks=1")
    return value if name == "ranks" else str(value)


def _combinations(design: str, factors: tuple[str, ...]) -> list[frozenset[str]]:
    """The factors that are on in each arm of a design."""
    from levelbench.analysis.factorial import designs, fraction, lesion, one_at_a_time

    if design == "lesion":
        return lesion(factors)
    if design == "fraction":
        return list(dict.fromkeys([*one_at_a_time(factors), *fraction(factors).arms]))
    full = design == "full" or (design == "auto" and len(factors) <= _MOST_FULL)
    return designs(factors) if full else one_at_a_time(factors)


def _off(words: tuple[str, ...], declared: dict[str, Setting], what: str) -> dict[str, Setting]:
    """The requested factors, two or more, with their off values."""
    from levelbench.records.selection import parse_item

    off: dict[str, Setting] = {} if words else dict(declared)
    for word in words:
        name, equals, _ = word.partition("=")
        if equals:
            own = parse_item(f"factor[{word}]")[1]
        elif name in declared:
            own = {name: declared[name]}
        else:
            known = f"it declares {', '.join(declared)}" if declared else "it declares none"
            raise UsageError(
                f"the factor {name!r} of {what}",
                f"its off value is unknown: {known}",
                f"give it: --factor {name}=...",
            )
        for twice in own.keys() & off.keys():
            found = f"{twice} is named twice, and a factor has one off value"
            raise UsageError(f"--factor {word}", found, f"name {twice} once")
        off |= own
    if len(off) < 2:
        found = f"it needs at least two factors, but there {'is one' if off else 'are none'}"
        raise UsageError(f"the composition of {what}", found, "name at least two: --factor NAME or --factor NAME=VALUE")
    return off


def _conclude(
    plan: RunPlan, records: dict[tuple[int, int], Record], off: dict[str, Setting], as_json: bool, given: dict[str, Any]
) -> int:
    """Analyze, print, write, in this order, so that a figure that cannot be drawn loses nothing."""
    from levelbench.analysis.composition import CompositionKind, compose, lesions
    from levelbench.cli.reporting import doubt_lines, groups_of_plan
    from levelbench.report.analyses import arms_table, effects_table, singles_table, write_composition

    groups = groups_of_plan(plan, records, given["runs"])
    found: Composition | Lesion
    if given["design"] == "lesion":
        found = lesions(groups, off, margin=given["margin"], level=given["level"])
        tables, unclear = [arms_table(found), singles_table(found)], found.unclear
    else:
        found = compose(groups, off, margin=given["margin"], level=given["level"])
        effects = effects_table(found)
        tables = [arms_table(found), singles_table(found), *([effects] if effects is not None else [])]
        unclear = found.kind is CompositionKind.UNCLEAR
    code = _CANNOT_TELL if unclear else 0
    lines = [*found.lines(), *doubt_lines(groups)]

    def write() -> dict[str, str]:
        written = shared.write_tables(given, tables, lines, title="Composition")
        if given["plot"] is not None:
            drawn = write_composition(found, given["plot"])
            written |= {"no_plot": _NO_FIGURE} if drawn is None else {"plot": str(drawn)}
        return written

    shared.present(tables, lines, lambda: _composition_json(found, groups), write, as_json=as_json)
    return code


def _composition_json(found: Composition | Lesion, groups: list[RunGroup]) -> dict[str, Any]:
    from levelbench.cli.reporting import group_json

    cells = [{**dataclasses.asdict(cell), "on": sorted(cell.on)} for cell in found.cells]
    return {**dataclasses.asdict(found), "cells": cells, "groups": [group_json(group) for group in groups]}


@command.command("stability", short_help="Spread of runs, and what a claim needs.")
@click.argument("runs", nargs=-1, metavar="[RUNS]...")
@click.option(
    "--effect", "effects", type=float, multiple=True, help="Claim, as a share.  [default: 0.01 0.02 0.05 0.1 0.2]"
)
@shared.view_options
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw Kaplan-Meier curves to this .svg or .png file.")
@shared.table_options
@shared.store_option
@shared.answer_options
def stability_verb(
    runs: tuple[str, ...], effects: tuple[float, ...], store_path: Path, as_json: bool, **given: Any
) -> int:
    """How much RUNS vary, how many arrive, how many a claim needs, and where the spread comes from.

    RUNS are selected as everywhere, by default all in the store; each group of one specification is analysed by itself.

    \b
      levelbench analyze stability 'digits[framework=numpy]'
      levelbench analyze stability digits monday/ tuesday/ --effect 0.05

    Exits with 4 if no group has two runs that reached the target, at different times.
    """
    from levelbench.analysis.stability import EFFECTS, by_machine, stability
    from levelbench.cli.reporting import doubt_lines, group_json, require_sound
    from levelbench.records.summary import in_order
    from levelbench.report.studies import (
        MOST_DRAWN,
        curve_points_table,
        quantiles_table,
        stability_tables,
        write_stability,
    )

    shared.check_statistics(0.0, given["level"])
    shared.check_plot(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    store = shared.open_store(store_path)
    view = {name: given[name] for name in ("clock", "crossing", "threshold")}
    groups = by_machine(in_order(shared.selected_groups(store, runs, **view)))
    caveats = require_sound(groups, "the stability", store_path)
    if given["plot"] is not None and len(groups) > MOST_DRAWN:
        raise UsageError(
            f"--plot {given['plot']}", f"{len(groups)} curves are too many for a figure", "name fewer runs"
        )
    found = [stability(group, effects=sorted({*effects}) or EFFECTS, level=given["level"]) for group in groups]
    tables = stability_tables(found, groups)
    lines = [*(line for each in found for line in each.lacks), *dict.fromkeys([*caveats, *doubt_lines(groups)])]

    def write() -> dict[str, str]:
        csv = {each.name: each for each in [*tables, curve_points_table(found), quantiles_table(found, methods=True)]}
        written = shared.write_tables(given, tables, lines, title="Stability", csv=csv)
        if given["plot"] is not None:
            drawn = write_stability(found, given["plot"])
            written |= {"no_plot": "no run reached the target"} if drawn is None else {"plot": str(drawn)}
        return written

    def view_json() -> dict[str, Any]:
        pairs = zip(found, groups, strict=True)
        return {"groups": [{**asdict(each), "group": group_json(group)} for each, group in pairs], "lines": lines}

    shared.present(tables, lines, view_json, write, as_json=as_json, apart=False)
    return 0 if any(each.variation is not None for each in found) else _CANNOT_TELL
