"""``levelbench operator``: Level 0, operators compared with each other and with the machine's ceilings."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, MissingError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from levelbench.experiments.kernel import Place, Plan
    from levelbench.measure.verdict import Verdict
    from levelbench.records.benchmark_summary import BenchmarkSummary
    from levelbench.records.benchmarks import BenchmarkRecord, BenchmarkSpecification, Problem

    BenchmarkPlan = Plan[BenchmarkSpecification, BenchmarkRecord]

__all__ = ["command"]

_PREFERRED = ("torch", "jax", "onnxruntime")
_TAKE_CUSTOM = ("torch", "jax")
_LAYOUTS = ("channels_first", "channels_last")
_PRECISION = 0.05
_NOTHING_VALIDATED = 4
_SINGLE = (5, 5.0)
_SUITE = (3, 1.0)


@click.command("operator", cls=shared.Grouped)
@click.argument("operator", required=False, metavar="[NAME|FILE[:NAME]]")
@click.option("--suite", help="Suite of problems: deepbench-gemm, -conv, -rnn, -sparse.")
@click.option("--subset", help="Part of the suite: training, inference-server, inference-device.")
@shared.several("--framework", "frameworks", help="Frameworks, separated by commas; default: all that run here.")
@shared.several("--beside", help="FILE: frameworks, separated by commas, whose own operator is measured beside yours.")
@click.option(
    "--shape", "shapes", multiple=True, help="Shape of an input: X=8x64x56x56, with an optional dtype: I=8:int64."
)
@click.option("--input", "values", multiple=True, help="Values of an input: axes=0,1.")
@click.option("--attr", "attributes", multiple=True, help="Attribute: pads=1,1,1,1.")
@click.option("--opset", type=int, help="Opset of the operators.  [default: 21]")
@click.option("--dtype", default="float32", show_default=True, help="Dtype: float32, float64, bfloat16 or float16.")
@click.option("--device", default="cpu", show_default=True, help="Device: cpu, cuda, cuda:1, ...")
@click.option(
    "--cache", type=click.Choice(["hot", "cold"]), default="hot", show_default=True, help="State of the caches."
)
@click.option(
    "--direction",
    type=click.Choice(["forward", "backward"]),
    default="forward",
    show_default=True,
    help="Pass to measure.",
)
@shared.several(
    "--layout",
    "layouts",
    default=_LAYOUTS[0],
    show_default=True,
    help="Memory layout of inputs with 4 or 5 axes: channels_first, channels_last, or both, separated by a comma.",
)
@click.option("--limit", type=int, help="Maximum number of problems of the suite.")
@click.option("--match", default="", help="Measure only problems whose name contains this.")
@click.option("-n", "--processes", type=int, help="Number of processes per framework.  [default: 5; 3 for a suite]")
@click.option("--budget-s", type=float, help="Seconds per problem in a process.  [default: 5; 1 for a suite]")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the roofline to this .svg or .png file.")
@shared.table_options
@click.option("--fresh", is_flag=True, help="Measure everything again, even if the store has it.")
@shared.spawn_option
@shared.until_clear_options
@shared.statistics_options
@shared.store_option
@shared.json_option
@shared.debug_option
def command(operator: str | None, store_path: Path, as_json: bool, debug: bool, **given: Any) -> int:
    """Measure an ONNX operator, operators of your own, or a suite of problems, in one or more frameworks.

    \b
      levelbench operator --suite deepbench-gemm --framework torch,onnxruntime --limit 10
      levelbench operator Conv --shape X=8x64x56x56 --shape W=64x64x3x3 --attr pads=1,1,1,1
      levelbench operator ReduceSum --shape data=4096x4096 --input axes=1 --cache cold
      levelbench operator my_operator.py --beside torch,jax --shape x=64x1024

    Each result is compared with NumPy's in float64, also results of timed calls, before which the contents of the
    inputs change. FILE (.py, .cpp) defines operators as for levelbench check: each is compared with its own reference,
    and measured beside the frameworks' implementation of the ONNX operator of its name (or same_as). It is also called
    by a process that runs none of FILE: one that is wrong there, or far slower than in its record, does not count.

    Exits with 1 if a result is wrong or refused, with 4 if nothing could be measured or compared. Processes that are
    already in the store are not repeated: the same command resumes.
    """
    from levelbench.experiments.own_operators import file_and_name

    shared.check_statistics(given["margin"], given["level"])
    if given["plot"] is not None and given["plot"].suffix.lower() not in (".svg", ".png"):
        raise UsageError(f"--plot {given['plot']}", "its ending is neither .svg nor .png", "end it in .svg or .png")
    shared.check_writable(given["csv_path"], given["markdown_path"], given["plot"])
    own = None if operator is None else file_and_name(operator)
    if own is not None:
        with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
            count, arms, notes = _own_arms(*own, Path(folder), given)
            arms, not_there = _laid_out(arms, given)
            notes = (*notes, *not_there)
            return _measured(count, arms, "; ".join(notes), store_path, as_json, given, own[0], Path(folder))
    if given["beside"] is not None:
        do = "choose frameworks with --framework, or give a file of operators: levelbench operator my_operator.py"
        raise UsageError(f"--beside {given['beside']}", "there is no file of your own to measure beside it", do)
    title, problems, left_out = _problems(operator, given)
    count, arms = _arms(title, problems, given)
    arms, not_there = _laid_out(arms, given)
    left_out = "; ".join(filter(None, (left_out, *not_there)))
    return _measured(count, arms, left_out, store_path, as_json, given)


def _measured(
    count: int,
    arms: list[BenchmarkSpecification],
    left_out: str,
    store_path: Path,
    as_json: bool,
    given: dict[str, Any],
    file: Path | None = None,
    examples: Path | None = None,
) -> int:
    """Measure the arms, show them, and return the exit code."""
    from levelbench.cli.progress_line import ProcessProgress
    from levelbench.cli.watching import measure
    from levelbench.experiments.operators import OperatorBenchmarks, unmeasured
    from levelbench.records.benchmark_summary import summarise_benchmark

    until = shared.until_clear(given, "processes")
    shared.need_two(until, len(arms))
    effect = None if until is None else until.effect

    def remark(record: BenchmarkRecord) -> str:
        bad = unmeasured(list(record.cases.values()))
        return f"done{bad}" if bad else ""

    def conclude(plan: BenchmarkPlan, records: dict[Place, BenchmarkRecord]) -> BenchmarkSummary:
        (columns,) = plan.arranged(records)
        return summarise_benchmark(columns, given["level"], given["margin"])

    def judge(found: BenchmarkSummary) -> tuple[list[tuple[str, Verdict]], str]:
        return [(each.arm, each.verdict) for each in found.totals if each.verdict is not None], ""

    summary = measure(
        OperatorBenchmarks(
            store_path, _dtype(arms, given), fork=not given["spawn"], effect=effect, file=file, examples=examples
        ),
        arms,
        count,
        folder=store_path / "operators",
        first_lines=lambda plan: [left_out] if left_out else [],
        watch=lambda plan: ProcessProgress(plan, lambda arm: arm.arm, remark),
        conclude=conclude,
        judge=judge,
        until=until,
        fresh=given["fresh"],
        as_json=as_json,
    )
    _show(summary, left_out, store_path, as_json, given)
    return _code(summary) or shared.code_until_clear(until, judge(summary))


def _problems(operator: str | None, given: dict[str, Any]) -> tuple[str, list[Problem], str]:
    """The title, the problems, and what was left out, in words."""
    from msgspec.structs import replace

    from levelbench.operators.suites.deepbench import load_suite, subsets_of

    if (operator is None) == (given["suite"] is None):
        found = "neither is given" if operator is None else "both are given"
        raise UsageError("an operator's name or --suite", found, "give one: levelbench operator --suite deepbench-gemm")
    opset = _checked_opset(given)
    if operator is not None:
        from levelbench.operators.benchmark.measuring import refuse_unfit
        from levelbench.operators.suites.single import parse_problem

        _refuse_of_suites(given)
        words = given["shapes"], given["values"], given["attributes"]
        problem = parse_problem(operator, *words, opset=opset, dtype=given["dtype"])
        refuse_unfit(problem)
        return operator, [problem], ""
    if given["shapes"] or given["values"] or given["attributes"]:
        raise UsageError(
            "--shape, --input and --attr with a suite",
            "the problems of a suite define their own",
            "leave them out, or name an operator",
        )
    suite = given["suite"]
    everything = load_suite(suite, given["subset"], given["dtype"])
    found_all = [each for each in everything if given["match"].lower() in each.name.lower()]
    if given["limit"] is not None and given["limit"] < 1:
        raise UsageError(
            f"--limit {given['limit']}", "there must be at least one problem", "give a number of 1 or more"
        )
    chosen = found_all[: given["limit"]]
    if not chosen:
        shown = everything[0].name
        raise UsageError(
            f"problems of {suite} that match {given['match']!r}", "there is none", f"try part of {shown!r}"
        )
    out = len(everything) - len(chosen)
    said = f"{len(chosen)} of {len(everything)} problems: {out} left out by --limit or --match" if out else ""
    title = f"{suite}-{given['subset'] or subsets_of(suite)[0]}"
    return title, [replace(each, opset=opset) for each in chosen], said


def _checked_opset(given: dict[str, Any]) -> int:
    """The opset of ONNX's operators. Refuses an unknown one, and an unknown dtype."""
    from levelbench.operators.node import DEFAULT_OPSET, OPSETS
    from levelbench.operators.suites.single import FLOATS

    if given["dtype"] not in FLOATS:
        raise UsageError(f"--dtype {given['dtype']}", "it is not supported", f"give one of {', '.join(FLOATS)}")
    opset: int = DEFAULT_OPSET if given["opset"] is None else given["opset"]
    if opset not in OPSETS:
        raise UsageError(f"--opset {opset}", "no adapter implements it", f"give one from {OPSETS[0]} to {OPSETS[-1]}")
    return opset


def _refuse_of_suites(given: dict[str, Any]) -> None:
    if given["subset"] is not None or given["limit"] is not None or given["match"]:
        raise UsageError(
            "--subset, --limit and --match with one operator",
            "they choose problems of a suite",
            "add --suite, or leave them out",
        )


def _dtype(arms: list[BenchmarkSpecification], given: dict[str, Any]) -> str:
    """The dtype of the ceilings: for operators of a file that of their first floating-point input."""
    if not arms[0].source:
        return str(given["dtype"])
    tensors = (tensor for problem in arms[0].problems for tensor in problem.tensors)
    return next((each.dtype for each in tensors if "float" in each.dtype), str(given["dtype"]))


def _own_arms(
    path: Path, name: str, folder: Path, given: dict[str, Any]
) -> tuple[int, list[BenchmarkSpecification], tuple[str, ...]]:
    """The number of processes, an arm for each framework with the file's operators and each beside, and notes."""
    from msgspec.structs import replace

    from levelbench.cli.check_levels import read_attribute, read_shape
    from levelbench.experiments.kernel import need_frameworks
    from levelbench.experiments.own_operators import own_operators
    from levelbench.operators.frameworks import load_framework

    _refuse_of_suites(given)
    if given["suite"] is not None or given["values"]:
        raise UsageError(f"--suite and --input with {path}", "they do not go with a file", "leave them out")
    shapes = {key: (sizes, kind or given["dtype"]) for key, sizes, kind in map(read_shape, given["shapes"])}
    beside = [] if given["beside"] is None else _frameworks(given["beside"], given["device"], "--beside")
    lacking = {each: load_framework(each).lacks_custom() for each in beside}
    usual = [each for each in beside if lacking[each] is None] or list(_TAKE_CUSTOM)
    wanted = given["frameworks"] if given["frameworks"] is not None else ",".join(usual) if beside else None
    mine = _frameworks(wanted, given["device"], usual=_TAKE_CUSTOM)
    _checked_opset(given)
    need_frameworks((each, given["device"]) for each in (*beside, *mine))
    for each in mine:
        if (lacks := load_framework(each).lacks_custom()) is not None:
            raise MissingError(f"operators of {path} on {each}", *lacks)
    found = own_operators(
        path,
        name,
        folder,
        shapes=shapes,
        attributes=dict(map(read_attribute, given["attributes"])),
        opset=given["opset"],
    )
    count, arms = _arms(found.title, list(found.problems), {**given, "frameworks": ",".join(mine)})
    arms = [
        replace(each, own=path.name, source=found.source, label=f"{found.title} on {each.framework}") for each in arms
    ]
    notes = list(found.notes) if beside else [each for each in found.notes if "examples" in each]
    notes += [f"yours is not called by {each}: {why[0]} ({why[1]})" for each, why in lacking.items() if why]
    for framework in beside if found.beside else ():
        native = replace(arms[0], framework=framework, problems=found.beside, own=None, label=None)
        at = next((at for at, each in enumerate(arms) if each.framework == framework), len(arms))
        arms.insert(at, native)
    return count, arms, tuple(notes)


def _arms(title: str, problems: list[Problem], given: dict[str, Any]) -> tuple[int, list[BenchmarkSpecification]]:
    """The number of processes, and the specification for each framework."""
    from levelbench.records.benchmarks import BenchmarkSpecification

    default_count, default_budget_s = _SINGLE if len(problems) == 1 and given["suite"] is None else _SUITE
    count = default_count if given["processes"] is None else given["processes"]
    budget_s = default_budget_s if given["budget_s"] is None else given["budget_s"]
    if count < 1:
        raise UsageError(
            f"-n {count}",
            "there must be at least one process",
            "give a number of 1 or more; six processes give an interval",
        )
    if not budget_s > 0:
        raise UsageError(f"--budget-s {budget_s:g}", "it is not positive", "give a number of seconds, such as 1")
    return count, [
        BenchmarkSpecification(
            title=title,
            framework=name,
            device=given["device"],
            cache=given["cache"],
            direction=given["direction"],
            budget_s=budget_s,
            precision=_PRECISION,
            problems=tuple(problems),
        )
        for name in _frameworks(given["frameworks"], given["device"])
    ]


def _laid_out(
    arms: list[BenchmarkSpecification], given: dict[str, Any]
) -> tuple[list[BenchmarkSpecification], tuple[str, ...]]:
    """An arm for each layout that its framework has, and which frameworks do not have one."""
    from msgspec.structs import replace

    from levelbench.operators.frameworks import load_framework

    asked = f"--layout {given['layouts']}"
    layouts = list(dict.fromkeys(each.strip().replace("-", "_") for each in given["layouts"].split(",")))
    if unknown := [each for each in layouts if each not in _LAYOUTS]:
        raise UsageError(asked, f"{unknown[0]!r} is no layout", f"give {', '.join(_LAYOUTS)} or both")
    if layouts == [_LAYOUTS[0]]:
        return arms, ()
    tensors = (tensor for arm in arms for problem in arm.problems for tensor in problem.tensors)
    if all(len(tensor.shape) not in (4, 5) for tensor in tensors):
        raise UsageError(asked, "no input has four or five axes, so there are no channels to be last", "leave it out")
    lacking = dict.fromkeys(each.framework for each in arms if not load_framework(each.framework).channels_last)
    found = [
        replace(arm, layout="channels_last" if layout == _LAYOUTS[1] else None)
        for arm in arms
        for layout in layouts
        if layout == _LAYOUTS[0] or arm.framework not in lacking
    ]
    why = f"no channels_last on {', '.join(lacking)}: operators have ONNX's layout there"
    if not found:
        raise UnsupportedError(asked, why, "add --framework torch, or leave --layout out")
    return found, (why,) if lacking else ()


def _frameworks(
    words: str | None, device: str, option: str = "--framework", usual: tuple[str, ...] = _PREFERRED
) -> list[str]:
    from levelbench import plugins
    from levelbench.operators.frameworks import load_framework

    if words is not None:
        names = list(dict.fromkeys(each.strip() for each in words.split(",") if each.strip()))
        if not names:
            raise UsageError(option, "it names no framework", f"give at least one: {option} torch")
        return names
    known = plugins.names("framework")
    found = [name for name in usual if name in known and load_framework(name).lacks(device) is None]
    if not found and device == "cpu":
        return ["numpy"]
    if not found:
        raise MissingError(f"a framework on {device!r}", "none can run there", "levelbench list shows what runs")
    return found


def _show(summary: BenchmarkSummary, left_out: str, store: Path, as_json: bool, given: dict[str, Any]) -> None:
    from levelbench.cli.as_json import operator_json
    from levelbench.report.operators import algorithm_lines, ceilings_line, details_table, problems_table, summary_lines

    table = problems_table(summary)
    doubts = [f"doubt: {doubt}" for doubt in summary.suspect]
    lines = [
        *summary_lines(summary),
        *algorithm_lines(summary),
        ceilings_line(summary.ceilings),
        *doubts,
        *([left_out] if left_out else []),
    ]
    shared.present(
        [table],
        lines,
        lambda: {**operator_json(summary), "left_out": left_out},
        lambda: {
            **shared.write_tables(given, [table, details_table(summary)], lines, csv={"all": table}),
            **_draw(summary, store, given),
        },
        as_json=as_json,
    )


def _draw(summary: BenchmarkSummary, store: Path, given: dict[str, Any]) -> dict[str, str]:
    """The path of the roofline, or why there is none."""
    from levelbench.report.roofline import write_roofline

    kind = f"{summary.direction}-{summary.cache}-{given['dtype']}-{given['device']}"
    # Another shape or other frameworks make another figure.
    digest = zlib.crc32("\n".join([*summary.frameworks, *(each.name for each, _ in summary.rows)]).encode())
    name = f"roofline-{summary.title}-{kind}-{digest:08x}.svg"
    path = given["plot"] or store / "operators" / name
    try:
        return {"roofline": str(write_roofline(summary, path))}
    except LevelbenchError as error:
        if given["plot"] is not None:
            raise
        return {"no_roofline": error.found}


def _code(summary: BenchmarkSummary) -> int:
    statuses = {entry.status for _, entries in summary.rows for entry in entries}
    if statuses & {"wrong", "refused", "failed"}:
        return 1
    if any(summary.own):
        # What is measured beside says nothing of the user's own.
        rows = [zip(summary.own, entries, strict=True) for _, entries in summary.rows]
        statuses = {entry.status for row in rows for own, entry in row if own}
    # A time whose result was not compared with anything may be the time of anything.
    return 0 if "measured" in statuses else _NOTHING_VALIDATED
