"""``levelbench run``: run or resume tasks; several are interleaved and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.cli.options import listed_schemes, team, team_options
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.experiments.request import Arm
    from levelbench.experiments.training import Extras, RunPlan
    from levelbench.measure.verdict import Verdict
    from levelbench.records import Record, RunGroup, Store
    from levelbench.report.tables import Table

    Made = tuple[RunPlan, dict[tuple[int, int], Record]]

__all__ = ["answer_lines", "command", "compared", "conclude", "measured", "remark_lines"]


@click.command("run", cls=shared.Grouped)
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@click.option(
    "-n", "--runs", type=int, default=5, show_default=True, help="Number of runs of each TASK; all use the same seeds."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The first seed; the others follow.")
@shared.several("--recipe", help="Recipe, or several to compare, separated by commas.")
@shared.several("--framework", help="Framework, or several to compare, separated by commas.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--target", type=float, help="Target to use instead of the task's, on the metric's scale.")
@click.option("--crossing", help="When a target counts as reached: confirmed, final, first, sustained.")
@click.option("--clock", help="Clock policy of the score: wall, dawnbench, mlperf, algoperf.")
@click.option("--every", help='Interval between evaluations: "1 epoch", "100 steps".')
@click.option("--epochs", type=float, help="Give up after this many epochs.")
@click.option("--budget", help="Give up a run after this time: 90, 2min. With --until-clear: time limit for all runs.")
@click.option("--until-clear", is_flag=True, help="Add runs until the verdict is clear or 10min (--budget) are over.")
@shared.effect_option
@click.option("--budget-samples", type=int, help="Give up after this many training examples.")
@click.option("--budget-joules", type=float, help="Give up after this much energy, where it can be measured.")
@click.option("--plateau", type=int, help="Give up after this many evaluations without an improvement.")
@click.option("--ranks", type=int, help="Train each TASK on this many ranks.")
@team_options
@click.option("--checkpoint", help='Interval between checkpoints, "1 epoch"; an interrupted run resumes from the last.')
@click.option("--keep-model", is_flag=True, help="Keep the trained networks, for infer and analyze generalization.")
@click.option(
    "--observe",
    multiple=True,
    help="Observers: csv=FOLDER, tensorboard=FOLDER, mistakes=FOLDER, statistics=FOLDER, noise=FOLDER, wandb=PROJECT, "
    "mlflow=ADDRESS",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    envvar="LEVELBENCH_DATA",
    help="Folder of the dataset; default: $LEVELBENCH_DATA.",
)
@click.option("--fresh", is_flag=True, help="Run everything again, even if the store has it.")
@shared.spawn_option
@shared.price_option
@shared.table_options
@click.option("--report", "report_path", type=click.Path(path_type=Path), help="Write the HTML report to this file.")
@click.option("--no-report", is_flag=True, help="Write no report.")
@shared.statistics_options
@shared.fail_on("missed", looks=True)
@shared.store_option
@shared.json_option
@shared.debug_option
def command(tasks: tuple[str, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Train each TASK to its target, in separate processes, and say which is faster.

    TASK is the name of a task, or a Python file that defines a task (its first recipe runs) or adds recipes to
    one (all of these run), with settings in brackets:

    \b
      levelbench run digits
      levelbench run 'digits[framework=numpy]' 'digits[framework=torch]' -n 5
      levelbench run 'digits[recipe=onecycle,lr=0.2]' --framework numpy,torch
      levelbench run 'digits[lr=0.1]' 'digits[lr=0.2]' --until-clear --budget 5min
      levelbench run my_task.py --target 0.9 --budget 60
      levelbench run digits --ranks 4 --scheme 'top-k[ratio=0.01]' --engine mpi

    Runs that are already in the store are not repeated: the same command resumes.
    """
    wrong = shared.read_fail_on(given["fail_on"])
    plan, records, store = measured(tasks, store_path, as_json=as_json, given=given)
    return conclude(plan, records, store, as_json, given, wrong)


def measured(
    tasks: tuple[str, ...], store_path: Path, *, as_json: bool, given: dict[str, Any]
) -> tuple[RunPlan, dict[tuple[int, int], Record], Store]:
    """Check everything that was asked for, and make the runs that the store lacks; progress as in ``measure``."""
    from levelbench.cli.watching import measure_runs
    from levelbench.experiments.training import Training

    shared.refuse_in_ranks("levelbench run", given["engine"])
    if given["runs"] < 1:
        raise UsageError(
            f"-n {given['runs']}",
            "there must be at least one run",
            "give a number of 1 or more; six runs give an interval",
        )
    if given["seed"] < 0:
        raise UsageError(f"--seed {given['seed']}", "it is negative", "give a seed of 0 or more")
    shared.check_statistics(given["margin"], given["level"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    until = shared.until_clear(given, "runs", budget_of_a_run=True)
    given["budget"] = (
        None if until is not None or given["budget"] is None else shared.seconds("--budget", given["budget"])
    )
    shared.read_prices(given.get("prices", ()))
    arms = _arms(tasks, given)
    shared.need_two(until, len(arms))
    store = shared.open_store(store_path)
    kind = Training(store, given["data"], _extras(given, None if until is None else until.effect))

    def judge(made: Made) -> tuple[list[tuple[str, Verdict]], str]:
        _, comparisons, refusals = compared(*made, store, given)
        return [(each.b.label, each.verdict) for each in comparisons if each.verdict is not None], "; ".join(refusals)

    plan, records = measure_runs(
        kind,
        arms,
        given["runs"],
        folder=store.path,
        first_lines=lambda plan: _not_again(plan, store, given),
        judge=judge,
        first_seed=given["seed"],
        until=until,
        fresh=given["fresh"],
        as_json=as_json,
    )
    return plan, records, store


def compared(
    plan: RunPlan, records: dict[tuple[int, int], Record], store: Store, given: dict[str, Any]
) -> tuple[list[RunGroup], list[Comparison], list[str]]:
    """The groups of a plan's records, each compared with the first, and what could not be compared.

    The groups know of further runs in the store that would count: whoever asks for a part of them chooses the result.
    """
    from msgspec import structs

    from levelbench.analysis.comparison import compare_all
    from levelbench.records import group_runs, summarise
    from levelbench.records.selection import Selector

    # A finished run may have had another clock, which is only another way to read it.
    clocks = [arm.specification.clock for arm in plan.arms]
    counted = [*((arm, record) for (arm, _), record in records.items()), *plan.failed]
    for number, arm in enumerate(plan.arms):
        made = store.records(Selector("", word=arm.specification.task, filters=(("key", arm.key),)))
        counted += [(number, record) for record in made if record.status == "interrupted"]
    runs = []
    for number, record in counted:
        run, chosen = summarise(record, clock=clocks[number]), plan.arms[number].chosen
        # All that this command asks for are there; how many others have asked for says nothing about these.
        asked = given.get("runs") or len(counted)
        told = {} if chosen is None else {"chosen": list(chosen)}
        runs.append(structs.replace(run, planned_runs=min(run.planned_runs, asked), whole=True, **told))
    left_out: dict[tuple[str, str], set[int]] = {}
    for _, record in plan.left_out:
        left_out.setdefault((record.header.key, record.header.source.whole), set()).add(record.header.seed)
    groups = [
        replace(group, unselected=tuple(sorted(left_out.get((group.key, group.source_digest), ()))))
        for group in group_runs(runs)
    ]
    groups = shared.priced(groups, shared.read_prices(given.get("prices", ())))
    earlier = partial(_all_groups, store)
    return groups, *compare_all(groups, given["margin"], given["level"], history=earlier)


def _all_groups(store: Store) -> list[RunGroup]:
    from levelbench.records import group_runs

    return group_runs(store.summaries())


def conclude(
    plan: RunPlan,
    records: dict[tuple[int, int], Record],
    store: Store,
    as_json: bool,
    given: dict[str, Any],
    wrong: frozenset[str],
) -> int:
    """Compare, print, write the report, in this order, so that a report that cannot be written loses nothing."""
    from levelbench.cli.reporting import exit_code, report_name, write
    from levelbench.report.runs import groups_table

    groups, comparisons, refusals = compared(plan, records, store, given)

    def report() -> Path | None:
        if given["no_report"]:
            return None
        page = given["report_path"] or store.path / report_name(plan.arms)
        return write(groups, list(records.values()), comparisons, page, refusals=refusals)[0]

    code = exit_code(groups, comparisons, wrong, refused=len(refusals))
    table, lines = groups_table(groups), remark_lines(groups, comparisons)
    answer = answer_lines(comparisons, refusals)

    def tables() -> dict[str, str]:
        return shared.write_tables(given, [table], [*answer, *lines])

    if as_json:
        found = _as_json(plan, groups, comparisons, refusals) | tables()
        return _emit(found, report, given["debug"]) or code

    def files() -> dict[str, str]:
        written = tables()
        path = report()
        return written if path is None else {**written, "report": str(path)}

    shorter = partial(short_forms, groups, comparisons, refusals)
    shared.present([table], lines, dict, files, answer=answer, as_json=False, shorter=shorter)
    return code


def _emit(found: dict[str, Any], report: Callable[[], Path | None], debug: bool) -> int:
    """Print one JSON document, with the report's path or the error of writing it; returns that error's exit code."""
    try:
        path = report()
    except LevelbenchError as error:
        shared.emit_json({**found, "report": None, "error": shared.error_parts(error)})
        shared.say_error(error, debug)
        return error.exit_code
    shared.emit_json({**found, "report": str(path) if path else None})
    return 0


def _arms(tasks: tuple[str, ...], given: dict[str, Any]) -> list[Arm]:
    """Each task, once for each listed recipe, framework and scheme."""
    from levelbench.experiments.request import Options, load_task, meant_recipes, resolve
    from levelbench.records.selection import parse_item

    arms = []
    names = ["", *(text.partition("[")[0] for text in tasks)]
    parsed = [parse_item(text, before) for before, text in zip(names, tasks, strict=False)]
    shared.refuse_overruled(parsed, given)
    for reference, settings in parsed:
        recipes: Sequence[str | None] = _listed("recipe", given["recipe"])
        if recipes == [None] and "recipe" not in settings:
            recipes = meant_recipes(load_task(reference), reference)
        for recipe, framework, scheme in product(
            recipes,
            _listed("framework", given["framework"]),
            listed_schemes(given["scheme"]),
        ):
            wanted = Options(
                recipe=recipe,
                framework=framework,
                device=given["device"],
                target=given["target"],
                crossing=given["crossing"],
                clock=given["clock"],
                evaluate_every=given["every"],
                budget_epochs=given["epochs"],
                budget_s=given["budget"],
                budget_samples=given["budget_samples"],
                budget_j=given["budget_joules"],
                plateau=given["plateau"],
                data=given["data"],
                team=team({**given, "scheme": scheme}, given["ranks"]),
            )
            arms.append(resolve(reference, dict(settings), wanted))
    return arms


def _extras(given: dict[str, Any], effect: float | None) -> Extras:
    """What runs do besides training, checked before the first run starts."""
    from levelbench.experiments.training import Extras
    from levelbench.training.observers import read
    from levelbench.training.stopping import Evaluate

    if given["checkpoint"] is not None:
        Evaluate.parse(given["checkpoint"])
    read(given["observe"])
    return Extras(
        given["checkpoint"], given["observe"], given["timeout"], given["keep_model"], effect, fork=not given["spawn"]
    )


def _listed(option: str, text: str | None) -> list[str | None]:
    if text is None:
        return [None]
    words: list[str | None] = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(f"--{option} {text!r}", "it names none", f"give one {option}, or several separated by commas")
    return words


def _not_again(plan: RunPlan, store: Store, given: dict[str, Any]) -> list[str]:
    """What ``--observe`` and ``--keep-model`` miss of the runs that are already finished."""
    unseen = len(plan.done) if given["observe"] else 0
    unkept = _unkept(plan, store) if given["keep_model"] else 0
    return [
        f"{count} of the runs are already finished and are not {word}: --fresh makes them again"
        for count, word in ((unseen, "observed"), (unkept, "made again to be kept"))
        if count
    ]


def _unkept(plan: RunPlan, store: Store) -> int:
    """The number of finished runs without a network in the store."""
    from levelbench.experiments.inference.models import find_model

    return sum(find_model(store.path, plan.arms[arm].key, seed) is None for arm, seed in plan.done)


def answer_lines(comparisons: Sequence[Comparison], refusals: Sequence[str]) -> list[str]:
    """Each verdict with its reason, then what was refused: what a reader wants to know first."""
    return [line for each in comparisons for line in each.answer()] + list(refusals)


_FIRST = ("reached", "time_to_accuracy_s", "restarts_s", "cost_usd", "test_quality", "epochs_to_target")
"""Columns that a short answer keeps before others."""


def short_forms(
    groups: Sequence[RunGroup], comparisons: Sequence[Comparison], refusals: Sequence[str], width: int
) -> list[shared.ShortForm]:
    """Shorter and shorter answers, with their tables, on groups of one task that are compared with one of them.

    Of two groups, the names in the table get shorter first: the task is named in the verdict.
    """
    from levelbench.analysis.comparison import answer_in_brief
    from levelbench.analysis.targets import final_line
    from levelbench.records.selection import short_name
    from levelbench.report.commands import brief_names
    from levelbench.report.runs import groups_table

    if not comparisons or len({each.specification.task for each in groups}) > 1:
        return []

    named, tersely = (
        [replace(group, label=short_name(group.label, terse=terse)) for group in groups] for terse in (False, True)
    )
    briefly = comparisons
    if all("command" in group.specification.settings for group in groups):
        # Commands may be longer than a line.
        names = brief_names([group.label.removeprefix("command=") for group in tersely])
        tersely = [replace(group, label=name) for group, name in zip(tersely, names, strict=True)]
        by_label = dict(zip((group.label for group in groups), tersely, strict=True))
        briefly = [replace(each, a=by_label[each.a.label], b=by_label[each.b.label]) for each in comparisons]

    def table(groups: Sequence[RunGroup]) -> Table:
        return groups_table(groups).without_absent().fitted(width, _FIRST)

    def bare(table: Table) -> Table:
        targets = [note for note in table.notes if ": target " in note]
        common = {note.partition(", ")[0] for note in targets}
        return replace(table, notes=(f"{common.pop()}.",) if len(common) < len(targets) else tuple(targets))

    with_why, without = ([*answer_in_brief(comparisons, why=why), *refusals] for why in (True, False))
    tersest = [*answer_in_brief(briefly, why=False, terse=True), *refusals]
    untitled = replace(bare(table(tersely)), title="")
    if len(comparisons) == 1:
        answer, both = answer_lines(comparisons, refusals), groups_table(named)
        forms: list[shared.ShortForm] = [(answer, [both], {}), (answer, [bare(both)], {}), (with_why, [bare(both)], {})]
        return forms if briefly is comparisons else [*forms, (tersest, [untitled], {})]
    whole = table(named)
    finals = {
        final_line(group) or "": final_line(short, brief=True) or ""
        for group, short in zip(groups, tersely, strict=True)
    }
    return [
        (with_why, [whole], {}),
        (with_why, [bare(whole)], {}),
        (without, [bare(whole)], {}),
        (tersest, [untitled], finals),
    ]


def remark_lines(groups: list[RunGroup], comparisons: Sequence[Comparison]) -> list[str]:
    """The lines below the table: whether final qualities reach the target, and each doubt once."""
    from levelbench.cli.reporting import doubt_lines, final_lines

    said: set[str] = set()
    caveats = [line for each in comparisons for line in each.caveat_lines(said)]
    return [*final_lines(groups), *doubt_lines(groups, comparisons), *caveats]


def _as_json(
    plan: RunPlan, groups: list[RunGroup], comparisons: list[Comparison], refusals: Sequence[str]
) -> dict[str, Any]:
    from levelbench.cli.reporting import comparison_json, group_json

    return {
        "plan": {"wanted": plan.wanted, "done_before": len(plan.done), "run": len(plan.to_go)},
        "runs": [run for group in groups for run in group.runs],
        "groups": [group_json(group) for group in groups],
        "comparisons": [comparison_json(comparison) for comparison in comparisons],
        "refusals": list(refusals),
    }
