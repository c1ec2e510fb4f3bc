"""``levelbench network``: Level 1, whole networks compared with each other and broken down by operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.experiments.kernel import Place, Plan
    from levelbench.measure.verdict import Verdict
    from levelbench.records.network_summary import NetworkSummary
    from levelbench.records.networks import NetworkRecord, NetworkSpecification

    NetworkPlan = Plan[NetworkSpecification, NetworkRecord]

__all__ = ["command"]

_NOTHING_MEASURED = 4
_ONE, _SEVERAL = 5, 3


@click.command("network", cls=shared.Grouped)
@click.argument("network", metavar="NETWORK")
@shared.several(
    "--framework",
    "frameworks",
    help="Frameworks, separated by commas, each with an optional mode: torch:compiled,jax.  [default: all that run]",
)
@shared.several("--batch", "batches", help="Batch sizes, separated by commas: 1,8,32.  [default: 1]")
@click.option("--size", "sizes", multiple=True, help="Value of an open size of the network: length=128.")
@click.option("--shape", "shapes", "--input", multiple=True, help="Shape of an input: input=1x3x64x64.")
@click.option("--option", "options", multiple=True, help="Option of the function that builds it: classes=10.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option(
    "--direction",
    type=click.Choice(["forward", "backward"]),
    default="forward",
    show_default=True,
    help="Inference, or a training step (loss and gradients).",
)
@click.option(
    "--loss",
    type=click.Choice(["cross-entropy", "mse", "huber", "binary-cross-entropy", "focal"]),
    help="Loss to train with.  [default: the network's own]",
)
@click.option(
    "--transform",
    "transforms",
    multiple=True,
    help="Also measure the transformed network: microbatch, fuse.",
)
@click.option("--memory", help="Memory limits for micro-batching: 1GiB,2GiB.")
@click.option(
    "--by",
    type=click.Choice(["type", "node"]),
    default="type",
    show_default=True,
    help="What a row of the breakdown is.",
)
@click.option(
    "--top", type=click.IntRange(min=1), default=10, show_default=True, help="Maximum number of rows of the breakdown."
)
@click.option(
    "-n", "--processes", type=int, help="Number of processes per arm and batch.  [default: 5; 3 for several batches]"
)
@click.option(
    "--timeout",
    "trial_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds of processor time for a trial of a file with loops.  [default: 3]",
)
@click.option("--budget-s", type=float, default=5.0, show_default=True, help="Seconds of measurement in a process.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="Write the figures to this folder, or under this name in .svg or .png.",
)
@shared.table_options
@click.option("--fresh", is_flag=True, help="Measure everything again, even if the store has it.")
@shared.until_clear_options
@shared.statistics_options
@shared.store_option
@shared.json_option
@shared.debug_option
def command(network: str, store_path: Path, as_json: bool, debug: bool, **given: Any) -> int:
    """Measure a network of the zoo, an ONNX file, or a model of your own (FILE.py:function).

    \b
      levelbench network resnet18 --framework torch,onnxruntime,jax --batch 1,8,32
      levelbench network model.onnx --framework onnxruntime,onnxruntime:unoptimised --size length=128
      levelbench network my_model.py:build --framework torch,torch:compiled
      levelbench network vgg16 --batch 64 --transform microbatch --memory 2GiB

    Outputs (and gradients) are compared with the reference before they are timed. Exits with 1 if one is wrong or
    fails, or takes more than its --memory, with 4 if nothing could be measured. Processes that are already in the store
    are not repeated: the same command resumes.
    """
    from levelbench.cli.progress_line import ProcessProgress, outcome_remark
    from levelbench.cli.watching import measure
    from levelbench.experiments.networks import NetworkBenchmarks
    from levelbench.records.network_summary import summarise_networks
    from levelbench.report.networks import arm_label, case_label

    _check(given)
    until = shared.until_clear(given, "processes")
    count, grid = _grid(network, given)
    shared.need_two(until, len(grid[0]))
    changes = _changes(grid)

    def what(found: NetworkSpecification) -> str:
        return f"{found.case.name} {case_label(found.case)} on {arm_label(found.arm)}"

    def conclude(plan: NetworkPlan, records: dict[Place, NetworkRecord]) -> NetworkSummary:
        return summarise_networks(plan.arranged(records), given["level"], given["margin"])

    def judge(found: NetworkSummary) -> tuple[list[tuple[str, Verdict]], str]:
        return [(each.arm, each.verdict) for each in found.totals if each.verdict is not None], ""

    summary = measure(
        NetworkBenchmarks(store_path, effect=None if until is None else until.effect),
        [each for row in grid for each in row],
        count,
        folder=store_path / "networks",
        first_lines=lambda plan: changes,
        watch=lambda plan: ProcessProgress(plan, what, outcome_remark),
        conclude=conclude,
        judge=judge,
        cases=len(grid),
        until=until,
        fresh=given["fresh"],
        as_json=as_json,
    )
    _show(summary, store_path, as_json, given)
    return _code(summary) or shared.code_until_clear(until, judge(summary))


def _check(given: dict[str, Any]) -> None:
    """Refuse what can be refused without loading a network."""
    from levelbench.cli.network_words import check_figures

    shared.check_statistics(given["margin"], given["level"])
    if given["processes"] is not None and given["processes"] < 1:
        found = "there must be at least one process"
        raise UsageError(
            f"-n {given['processes']}", found, "give a number of 1 or more; six processes give an interval"
        )
    if not given["budget_s"] > 0:
        raise UsageError(
            f"--budget-s {given['budget_s']:g}", "it is not positive", "give a number of seconds, such as 1"
        )
    if given["loss"] is not None and given["direction"] == "forward":
        raise UsageError(f"--loss {given['loss']}", "inference has no loss", "add --direction backward")
    check_figures(given["plot"])
    shared.check_writable(given["csv_path"], given["markdown_path"])


def _grid(word: str, given: dict[str, Any]) -> tuple[int, list[list[NetworkSpecification]]]:
    """The number of processes, and the specification of each case on each arm."""
    from levelbench.cli.network_words import make_arms, make_cases, name_network, transform_lists
    from levelbench.records.networks import NetworkSpecification

    named = name_network(word, given["options"])
    lists = transform_lists(given["transforms"], given["memory"])
    cases = make_cases(named, given["batches"], given["sizes"], given["shapes"], given["trial_s"])
    arms = make_arms(named, given["frameworks"], given["device"], lists, given["direction"] == "backward")
    count = given["processes"] or (_ONE if len(cases) == 1 else _SEVERAL)
    common = {"direction": given["direction"], "loss": given["loss"] or "", "budget_s": given["budget_s"]}
    return count, [[NetworkSpecification(named.name, case, arm, **common) for arm in arms] for case in cases]


def _changes(grid: list[list[NetworkSpecification]]) -> list[str]:
    """What each list of transforms changes at each batch; raises if one cannot be applied (within a limit)."""
    from levelbench.networks.benchmark.cases import make_case
    from levelbench.report.networks import arm_label, case_label

    lines = []
    for row in grid:
        for transforms in dict.fromkeys(each.arm.transforms for each in row if each.arm.transforms):
            specification = next(each for each in row if each.arm.transforms == transforms)
            label = arm_label(specification.arm).partition(" + ")[2]
            said = make_case(specification).changes or ("nothing to change",)
            lines.append(f"{label} at {case_label(specification.case)}:")
            # With one transform, the heading names it already.
            own = f"{transforms[0].partition(';')[0].partition(':')[0]}: " if len(transforms) == 1 else ""
            lines += [f"  {line.removeprefix(own)}" for each in said for line in each.splitlines()]
    return lines


def _show(summary: NetworkSummary, store: Path, as_json: bool, given: dict[str, Any]) -> None:
    from levelbench.cli.as_json import network_json
    from levelbench.cli.network_words import write_figures
    from levelbench.report import networks as report
    from levelbench.report.operators import ceilings_line

    tables = [report.latency_table(summary), *report.breakdown_tables(summary, given["by"], given["top"])]
    more = [report.phases_table(summary), numbers := report.records_table(summary)]
    lines = [
        *report.facts_lines(summary),
        *report.network_lines(summary),
        *report.transform_lines(summary),
        *report.profile_lines(summary),
        ceilings_line(summary.ceilings),
        *(f"doubt: {doubt}" for doubt in summary.suspect),
    ]
    shared.present(
        [each.without_empty() for each in tables],
        lines,
        lambda: network_json(summary),
        lambda: {
            **shared.write_tables(
                given,
                [each.without_empty() for each in (*tables, *more)],
                lines,
                csv={"all": numbers, "operators": report.operators_table(summary)},
            ),
            **write_figures(summary, store, given["plot"]),
        },
        as_json=as_json,
    )


def _beyond(summary: NetworkSummary) -> bool:
    """Whether a transformed network takes more memory than the limit that it was planned for."""
    return any(
        (limit := arm.memory_limit) is not None and (taken := entry.memory.estimate) is not None and taken.value > limit
        for _, entries in summary.rows
        for arm, entry in zip(summary.arms, entries, strict=True)
    )


def _code(summary: NetworkSummary) -> int:
    statuses = {entry.status for _, entries in summary.rows for entry in entries}
    if statuses & {"wrong", "refused", "failed"} or _beyond(summary):
        return 1
    return 0 if "measured" in statuses else _NOTHING_MEASURED
