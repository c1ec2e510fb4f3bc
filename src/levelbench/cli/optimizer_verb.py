"""``levelbench optimizer``: Level 2, optimizers compared: an update, a step of training, and time to accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.checks.findings import Report
    from levelbench.experiments.kernel import Place, Plan
    from levelbench.experiments.own_optimizers import NamedOptimizer, OwnOptimizers
    from levelbench.records.benchmark_summary import BenchmarkSummary, Entry
    from levelbench.records.benchmarks import BenchmarkRecord, BenchmarkSpecification, Problem

    BenchmarkPlan = Plan[BenchmarkSpecification, BenchmarkRecord]
    Arm = tuple[NamedOptimizer, str]

__all__ = ["command"]

_USUAL = ("torch", "jax")
_CHECKED_ON = ("numpy", "torch")
_PRECISION = 0.05
_NOT_JUDGED = 4


@click.command(
    "optimizer",
    cls=shared.Grouped,
    groups={k: v for k, v in shared.OPTION_GROUPS.items() if k != "Distributed training"},
)
@click.argument("optimizer", metavar="NAME|FILE.py[:NAME]")
@shared.several("--beside", help="Optimizers to compare with: torch.optim.AdamW,optax.adamw,'Adam[beta2=0.99]'.")
@shared.several("--framework", "frameworks", help="Frameworks, separated by commas; default: those of --beside.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option("--network", default="mlp", show_default=True, help="Network to train: mlp, or one of the zoo.")
@click.option(
    "--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Examples in a step of the network."
)
@click.option(
    "--shape", "shapes", multiple=True, help="Shape of a tensor to update, besides those of the network: W=1024x1024."
)
@click.option("--task", help="Also train to accuracy: digits, 'digits[recipe=onecycle]', ...")
@click.option("--reference", default="", help="Optimizer that the check compares with; default: the file's own.")
@click.option(
    "-n", "--processes", type=click.IntRange(min=1), default=5, show_default=True, help="Processes, and runs, of each."
)
@click.option(
    "--budget-s",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds for an update or a step in a process.",
)
@shared.data_option
@shared.table_options
@click.option("--fresh", is_flag=True, help="Measure everything again, even if the store has it.")
@shared.spawn_option
@shared.statistics_options
@shared.store_option
@shared.json_option
@shared.debug_option
def command(optimizer: str, store_path: Path, as_json: bool, **given: Any) -> int:
    """Compare an optimizer with others: the update alone, a whole step of training, and the time to accuracy.

    \b
      levelbench optimizer Adam --beside torch.optim.AdamW,optax.adamw
      levelbench optimizer my_optimizer.py --beside 'torch.optim.AdamW[fused=true]' --shape W=1024x1024
      levelbench optimizer 'Adam[lr=0.002]' --beside torch.optim.Adam --task digits -n 5

    FILE.py defines optimizers as for levelbench check, which is made first: what it finds wrong gets no verdict. The
    others get the rate of the first, unless their brackets set one; all other settings are their own defaults.

    Exits with 1 if the optimizer is wrong or an update fails, with 4 if it could not be judged. Processes and runs that
    are already in the store are not repeated: the same command resumes.
    """
    from levelbench.experiments.own_optimizers import listed, own_optimizers
    from levelbench.training.optimizer_benchmark import network_of

    shared.check_statistics(given["margin"], given["level"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    network_of(given["network"])
    found = own_optimizers(optimizer, [] if given["beside"] is None else listed(given["beside"]))
    arms = _arms(found, given)
    if given["task"] is not None:
        _base_recipe(given["task"])
    report = _checked(found.subject, given)
    summary = _measured(found, arms, report, store_path, as_json, given)
    remarks: list[str] = []
    if given["task"] is not None:
        summary, remarks = _to_accuracy(found, arms, summary, store_path, as_json, given)
    _show(summary, report, remarks, as_json, given)
    return _code(summary, report)


def _checked(subject: NamedOptimizer, given: dict[str, Any]) -> Report:
    """The report of ``levelbench check`` on the subject."""
    from levelbench.cli.findings import installed
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.experiments.own_optimizers import check_subject

    with ProgressLine() as line:

        def tell(probe: str) -> None:
            if line.live:
                line.say(f"check of {subject.label}: {probe}")

        return check_subject(subject, given["reference"], installed(_CHECKED_ON, "cpu"), tell=tell)


def _arms(found: OwnOptimizers, given: dict[str, Any]) -> list[Arm]:
    """Each optimizer with each framework that it runs on: on every framework the subject first, then the others."""
    from levelbench.cli.findings import installed
    from levelbench.experiments.kernel import need_frameworks

    subject = found.subject
    natives = [each.framework for each in (subject, *found.beside) if each.framework]
    wanted = [each.strip() for each in (given["frameworks"] or "").split(",") if each.strip()]
    if given["frameworks"] is not None and not wanted:
        raise UsageError("--framework", "it names no framework", "give at least one: --framework torch")
    names = list(dict.fromkeys(wanted or natives or installed((*_USUAL, "numpy"), given["device"])))
    need_frameworks((name, given["device"]) for name in names)
    arms = [(each, name) for name in names for each in (subject, *found.beside) if each.framework in ("", name)]
    missing = [each for each in (subject, *found.beside) if each not in [one for one, _ in arms]]
    if missing:
        asked = f"{missing[0].label} on {', '.join(names)}"
        do = f"add {missing[0].framework} to --framework, or leave --framework out"
        raise UsageError(asked, f"it belongs to {missing[0].framework}", do)
    # The subject's first arm is what everything is compared with that has none on its own framework.
    first = next(at for at, (each, _) in enumerate(arms) if each is subject)
    arms.insert(0, arms.pop(first))
    if len({arm_label(*arm) for arm in arms}) < len(arms):
        raise UsageError(f"--beside {given['beside']}", "it names an optimizer twice", "name each once")
    return arms


def arm_label(optimizer: NamedOptimizer, framework: str) -> str:
    """``Adam on torch``; a framework's own optimizer says itself where it runs."""
    return optimizer.label if optimizer.framework else f"{optimizer.label} on {framework}"


def _baselines(found: OwnOptimizers, arms: Sequence[Arm]) -> list[int]:
    """The arm that each is compared with: the subject on the same framework, else on its first."""
    subjects = {framework: at for at, (each, framework) in enumerate(arms) if each is found.subject}
    return [0 if each is found.subject else subjects.get(framework, 0) for each, framework in arms]


def _problems(optimizer: NamedOptimizer, given: dict[str, Any]) -> tuple[Problem, ...]:
    from levelbench.cli.check_levels import read_shape
    from levelbench.training.optimizer_benchmark import network_of, step_problem, update_problem

    words = {"name": optimizer.name, "settings": optimizer.settings}
    network = network_of(given["network"])
    trained = {each.name for each in network.parameters}
    shapes = {name: each.shape for name, each in network.initialise(0).items() if name in trained}
    problems = [update_problem(given["network"], shapes, words)]
    own = {}
    for word in given["shapes"]:
        name, shape, kind = read_shape(word)
        if kind:
            raise UsageError(f"--shape {word}", "parameters are float32", "leave the dtype out: W=1024x1024")
        own[name] = shape
    if own:
        title = ", ".join(word.partition("=")[2] or "a scalar" for word in given["shapes"])
        problems.append(update_problem(title, own, words))
    return (*problems, step_problem(given["network"], given["batch"], words))


def _measured(
    found: OwnOptimizers,
    arms: Sequence[Arm],
    report: Report,
    store_path: Path,
    as_json: bool,
    given: dict[str, Any],
) -> BenchmarkSummary:
    """Updates and steps of all arms, each in its own processes, which take turns."""
    from levelbench.cli.progress_line import ProcessProgress
    from levelbench.cli.watching import measure
    from levelbench.experiments.operators import OperatorBenchmarks, unmeasured
    from levelbench.records.benchmark_summary import summarise_benchmark
    from levelbench.records.benchmarks import BenchmarkSpecification

    wanted = [
        BenchmarkSpecification(
            title=found.subject.label,
            framework=framework,
            device=given["device"],
            cache="hot",
            direction="backward",
            budget_s=given["budget_s"],
            precision=_PRECISION,
            problems=_problems(each, given),
            own=Path(each.file).name if each.file else None,
            source=found.source if each.file else None,
            label=arm_label(each, framework),
        )
        for each, framework in arms
    ]
    faults = {at: fault for at, (each, _) in enumerate(arms) if each is found.subject and (fault := _fault(report))}

    def remark(record: BenchmarkRecord) -> str:
        bad = unmeasured(list(record.cases.values()))
        return f"done{bad}" if bad else ""

    def conclude(plan: BenchmarkPlan, records: dict[Place, BenchmarkRecord]) -> BenchmarkSummary:
        (columns,) = plan.arranged(records)
        baselines = _baselines(found, arms)
        return summarise_benchmark(columns, given["level"], given["margin"], baselines=baselines, faults=faults)

    file = Path(found.subject.file).resolve() if found.subject.file else None
    return measure(
        OperatorBenchmarks(store_path, "float32", fork=not given["spawn"], file=file),
        wanted,
        given["processes"],
        folder=store_path / "operators",
        watch=lambda plan: ProcessProgress(plan, lambda arm: arm.arm, remark),
        conclude=conclude,
        fresh=given["fresh"],
        as_json=as_json,
    )


def _fault(report: Report) -> tuple[str, str] | None:
    """Status and reason of an optimizer that is wrong, or of which nothing could be judged."""
    if report.failed:
        first = report.failed[0]
        return "wrong", f"levelbench check: {first.probe}: {first.found}"
    return None if report.judged else ("unchecked", "levelbench check could judge nothing")


def _base_recipe(word: str) -> tuple[str, str, dict[str, Any]]:
    """The task, recipe and settings in ``digits[recipe=onecycle,batch=32]``."""
    from levelbench.experiments.request import load_task
    from levelbench.records.selection import parse_item

    reference, settings = parse_item(word)
    if reference.endswith(".py"):
        found = "the recipes with other optimizers are added to a task of that name"
        raise UsageError(f"--task {word}", found, "give the name of a task: --task digits")
    task = load_task(reference)
    recipe = str(settings.pop("recipe", task.recipes[0]))
    task.settings(recipe, settings)
    return reference, recipe, settings


def _to_accuracy(
    found: OwnOptimizers,
    arms: Sequence[Arm],
    summary: BenchmarkSummary,
    store_path: Path,
    as_json: bool,
    given: dict[str, Any],
) -> tuple[BenchmarkSummary, list[str]]:
    """The summary with a row of times to accuracy, measured as by ``levelbench run``; and what its gate remarks."""
    from levelbench.analysis.comparison import compare_all, with_common_doubts
    from levelbench.cli import run_verb
    from levelbench.experiments.own_optimizers import recipes_file
    from levelbench.records.benchmarks import OPTIMIZERS, Problem

    reference, recipe, settings = _base_recipe(given["task"])
    chosen = list(dict.fromkeys(each.label for each, _ in arms))
    optimizers = [next(each for each, _ in arms if each.label == label) for label in chosen]
    path, names = recipes_file(store_path / "optimizers", reference, recipe, settings, optimizers, found.source)
    recipes = dict(zip(chosen, names, strict=True))
    words = [f"{path}[recipe={recipes[each.label]},framework={framework}]" for each, framework in arms]
    options = ["-n", str(given["processes"]), "--device", given["device"], "--store", str(store_path)]
    options += ["--margin", str(given["margin"]), "--level", str(given["level"])]
    options += [*(["--data", str(given["data"])] * (given["data"] is not None)), *["--fresh"] * given["fresh"]]
    with run_verb.command.make_context("run", [*words, *options, *["--spawn"] * given["spawn"]]) as context:
        asked = dict(context.params)
        tasks = asked.pop("tasks")
        asked.pop("store_path"), asked.pop("as_json")
        plan, records, store = run_verb.measured(tasks, store_path, as_json=as_json, given=asked)
        groups, _, _ = run_verb.compared(plan, records, store, asked)
    known = {group.key: group for group in groups}
    own = [known.get(arm.key) for arm in plan.arms]
    own = [
        None if each is None else replace(each, label=name) for each, name in zip(own, summary.frameworks, strict=True)
    ]
    entries = [_entry(group, summary.level) for group in own]
    remarks: list[str] = []
    made: list[Comparison] = []
    judged = [at for at in range(len(own)) if summary.baseline(at) != at and not _faulty(summary, at)]
    level = 1 - (1 - summary.level) / max(1, len(judged))
    for at in judged:
        pair = [own[summary.baseline(at)], own[at]]
        comparisons, refusals = compare_all([each for each in pair if each is not None], summary.margin, level)
        remarks += refusals
        made += comparisons
        for each in comparisons:
            entries[at] = replace(entries[at], verdict=each.verdict)
    for each in with_common_doubts(made):
        remarks += [line.strip() for line in each.caveat_lines() if line.strip() not in remarks]
    target = plan.arms[0].specification.target
    name = f"{reference} to {target.threshold:g} ({recipe})"
    problem = Problem(name, "accuracy", (), (), (), 0, {"task": reference, "recipe": recipe}, OPTIMIZERS)
    return replace(summary, rows=(*summary.rows, (problem, tuple(entries)))), remarks


def _faulty(summary: BenchmarkSummary, at: int) -> bool:
    """Whether an arm, or what it is compared with, is not right."""
    entries = [summary.rows[0][1][each] for each in (at, summary.baseline(at))]
    return any(each.status in ("wrong", "unchecked") for each in entries)


def _entry(group: Any, level: float) -> Entry:
    """The runs of one arm: the times of those that reached the target."""
    from levelbench.measure.statistics import estimate
    from levelbench.records.benchmark_summary import Entry

    times = {} if group is None else {run.seed: run.time_to_accuracy_s for run in group.runs if run.reached}
    reached = "no run ended" if group is None else f"{group.reached} of {group.n} runs reached the target"
    complete = group is not None and group.reached == group.n
    return Entry(
        status="measured" if times else "missed",
        reason="" if complete else reached,
        times_s=times,
        time=estimate(list(times.values()), level) if times else None,
        flops=None,
        bytes=None,
        errors={},
        checked="",
        share=None,
    )


def _show(
    summary: BenchmarkSummary, report: Report, remarks: Sequence[str], as_json: bool, given: dict[str, Any]
) -> None:
    from levelbench.cli.as_json import operator_json
    from levelbench.cli.findings import check_line
    from levelbench.report.operators import ceilings_line
    from levelbench.report.optimizers import optimizers_lines, optimizers_table

    table = optimizers_table(summary)
    checks = [f"check of {check_line(report)}"]
    if report.failed:
        first, more = report.failed[0], len(report.failed) - 1
        others = f" (and {more} more: levelbench check)" * (more > 0)
        checks += [f"  {first.probe}: {first.found}{others}", "  a wrong optimizer gets no verdict: correct it first"]
    doubts = [f"doubt: {doubt}" for doubt in summary.suspect]
    tuned = ["rates are as given, and not tuned (levelbench tune)"] if given["task"] is not None else []
    lines = [*checks, *optimizers_lines(summary), ceilings_line(summary.ceilings), *doubts, *remarks, *tuned]
    shared.present(
        [table],
        lines,
        lambda: {**operator_json(summary), "check": report.to_dict(), "remarks": [*remarks, *tuned]},
        lambda: shared.write_tables(given, [table], lines),
        as_json=as_json,
    )


def _code(summary: BenchmarkSummary, report: Report) -> int:
    statuses = {entry.status for _, entries in summary.rows for entry in entries}
    if report.failed or statuses & {"wrong", "refused", "failed", "missed"}:
        return 1
    return 0 if report.judged and "measured" in statuses else _NOT_JUDGED
