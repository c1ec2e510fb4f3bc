"""``levelbench communicator``: latency and bandwidth of communicators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from levelbench.cli.communicator_words import Swept
    from levelbench.distributed.communicator import Reduction
    from levelbench.distributed.launching.base import Engine
    from levelbench.experiments.communicators import SweepJob

__all__ = ["command"]

_SUITES = ("deepbench",)
_SIZES = "4B:64MiB"


@click.command("communicator")
@click.option("--ranks", type=click.IntRange(min=1), default=2, show_default=True, help="Number of ranks.")
@click.option(
    "--engine",
    help="Engine: process, torchrun, mpi, 'hosts[rate=100mbit,delay=5ms]', ...  [default: one that fits]",
)
@shared.several(
    "--communicator",
    "communicators",
    help="Communicators, separated by commas: gloo, mpi, nccl.  [default: the engine's, or gloo]",
)
@shared.several("--operation", "operations", help='Operations, separated by commas, or "all".  [default: all-reduce]')
@shared.several("--op", "ops", help="How to reduce: sum, mean, max, min, product, or several, or all.  [default: sum]")
@click.option(
    "--sizes", help=f"Sizes: 4B:64MiB (doubling), 1KiB:1MiB:4 (times four), or 4B,1KiB,1MB.  [default: {_SIZES}]"
)
@click.option(
    "--dtype", default="float32", show_default=True, help="Type of an element: float64, float16, bfloat16, int32, ..."
)
@click.option("--out-of-place", is_flag=True, help="Keep arguments: copy those that an operation overwrites.")
@click.option("--overlap", is_flag=True, help="Measure how much a rank can compute beside operations, too.")
@click.option("--suite", type=click.Choice(_SUITES), help="Use DeepBench's all-reduce sizes.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Approximate time to measure each.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds until a rank counts as lost.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw latency and bandwidth to this .svg or .png file.")
@shared.table_options
@shared.json_option
@shared.debug_option
def command(as_json: bool, debug: bool, **given: Any) -> int:
    """Measure the operations of a communicator over sizes, and fit t = α + n β to them.

    \b
      levelbench communicator --communicator gloo,mpi
      levelbench communicator --ranks 4 --suite deepbench
      levelbench communicator --operation all-reduce,broadcast --sizes 1KiB:16MiB:4 --plot gloo.svg
      levelbench communicator --operation all-reduce,reduce-scatter --op max,product --dtype int32
      levelbench communicator --operation bidirectional,window --dtype bfloat16   # both ways; 64 messages on their way
      levelbench communicator --overlap                                           # how much hides behind computation

    The result of each operation is checked at each size before it is timed. Communicators are measured one after
    another.
    """
    from levelbench.cli.communicator_words import Swept
    from levelbench.cli.progress_line import ProgressLine
    from levelbench.distributed.sweep import SweepPoint
    from levelbench.experiments.communicators import measure_communicator
    from levelbench.records.selection import parse_item
    from levelbench.report.drawing import check_ending

    shared.check_statistics(0.02, given["level"])
    if given["plot"] is not None:
        check_ending(given["plot"])
    shared.check_writable(given["plot"], given["csv_path"], given["markdown_path"])
    name, options = parse_item(given["engine"]) if given["engine"] else (None, {})
    todo = _todo({**given, "engine": name}, options)
    ranks = given["ranks"]
    with shared.as_far_as_read(err=as_json):
        for line in _crowded(ranks):
            click.echo(line, err=as_json)
    swept = []
    with ProgressLine() as progress:
        for job, engine in todo:

            def on_point(point: SweepPoint, name: str = job.communicator) -> None:
                if progress.live:
                    progress.say(f"{name}: {point.operation}, {point.nbytes:,} B")

            if not progress.live:
                progress.say(f"measuring {job.communicator} on {ranks} ranks, started by {engine.name}")
            points = measure_communicator(job, engine, ranks, on_point, options=options)
            swept.append(Swept(job.communicator, given["engine"] or engine.name, ranks, tuple(points), job.how))
    _show(swept, as_json, given)
    return 0


def _todo(given: dict[str, Any], options: Mapping[str, object]) -> list[tuple[SweepJob, Engine]]:
    """A job for each communicator, with the engine that starts its ranks; refuses what can be refused."""
    from levelbench.distributed.sweep import DTYPES, OPERATIONS, How, parse_sizes
    from levelbench.experiments.communicators import SweepJob, default_communicator, engine_for
    from levelbench.operators.suites.deepbench import all_reduce_messages

    if not given["seconds"] > 0 or not given["timeout"] > 0:
        raise UsageError(
            "--seconds and --timeout", "they are not both positive", "give a number of seconds, such as 10"
        )
    if given["suite"] is not None and (given["sizes"] is not None or given["operations"] is not None):
        raise UsageError("--suite with --sizes or --operation", "the suite defines both", "give either")
    if given["dtype"] not in DTYPES:
        raise UnknownNameError("type of an element", given["dtype"], DTYPES)
    how = How(given["dtype"], given["out_of_place"], given["overlap"])
    names = _names(given, how.dtype)
    if pairs := [name for name in names if OPERATIONS[name].pair and given["ranks"] < 2]:
        raise UsageError(f"{pairs[0]} of one rank", "there is no rank to send to", "give at least --ranks 2")
    if how.overlap and not any(OPERATIONS[name].start for name in names):
        able = ", ".join(each.name for each in OPERATIONS.values() if each.start)
        raise UsageError("--overlap", f"none of {', '.join(names)} can be begun without waiting", f"name one of {able}")
    if given["suite"] is not None:
        sizes = [each.elements * 4 for each in all_reduce_messages()]
    else:
        sizes = parse_sizes(given["sizes"] or _SIZES)
    jobs = []
    asked = given["communicators"] or default_communicator(given["engine"])
    for word in dict.fromkeys(each.strip() for each in asked.split(",")):
        job = SweepJob(word, tuple(names), tuple(sizes), given["seconds"], given["timeout"], how)
        jobs.append((job, engine_for(given["engine"], job.communicator, options)))
    return jobs


def _names(given: dict[str, Any], dtype: str) -> list[str]:
    """The names of the operations, reductions with each of the ops; refuses what has no such reduction."""
    from levelbench.distributed.sweep import OPERATIONS, operation_named, reducing_name

    asked, whole = given["operations"] or "all-reduce", "int" in dtype
    ops = _ops(given["ops"] if given["ops"] is not None else "all" if asked == "all" else "sum", whole)
    if asked == "all":
        found = [each for each in OPERATIONS.values() if given["ranks"] > 1 or not each.pair]
        found = [each for each in found if each.op is None or each.op in ops]
    else:
        found = [operation_named(word.strip()) for word in asked.split(",")]
        if given["ops"] is not None and (other := next((each for each in found if each.op != "sum"), None)):
            why = f"it is the {other.op} already" if other.op else "it reduces nothing"
            raise UsageError(f"{other.name} with --op", why, "name only all-reduce and reduce-scatter with it")
        if given["ops"] is not None:
            found = [OPERATIONS[reducing_name(each.name, op)] for each in found for op in ops]
    if whole and (mean := next((each for each in found if each.op == "mean"), None)):
        do = "take the sum, or a type with fractions"
        raise UsageError(f"{mean.name} of {dtype}", "whole numbers cannot represent a mean", do)
    return [each.name for each in found]


def _ops(text: str, whole: bool) -> list[Reduction]:
    """The reductions that ``--op`` names, also as NCCL's tests do; ``whole``: of whole numbers, which have no mean."""
    from levelbench.distributed.communicator import REDUCTIONS

    known: dict[str, Reduction] = {**{each: each for each in REDUCTIONS}, "prod": "product", "avg": "mean"}
    if text == "all":
        return [each for each in REDUCTIONS if not (whole and each == "mean")]
    words = [each.strip() for each in text.split(",")]
    if (unknown := next((each for each in words if each not in known), None)) is not None:
        raise UnknownNameError("reduction", unknown, REDUCTIONS)
    return list(dict.fromkeys(known[each] for each in words))


def _crowded(ranks: int) -> list[str]:
    from levelbench.measure.meters.resources import available_cores

    cores = available_cores()
    if ranks <= cores:
        return []
    return [f"warning: {ranks} ranks share {cores} cores: the times show queueing, not scaling"]


def _show(swept: list[Swept], as_json: bool, given: dict[str, Any]) -> None:
    from levelbench.cli.communicator_words import curves, fits_table, sweep_json, times_table
    from levelbench.report.distributed import write_communicators

    level = given["level"]
    fits = fits_table(swept, level)
    tables = [times_table(swept, level), *([] if fits is None else [fits])]
    warnings = _crowded(given["ranks"])

    def write() -> dict[str, str]:
        written = shared.write_tables(given, tables, warnings)
        if given["plot"] is not None:
            title = f"{' and '.join(each.communicator for each in swept)}, {given['ranks']} ranks"
            written["plot"] = str(write_communicators(title, curves(swept, level), given["plot"]))
        return written

    def view() -> dict[str, Any]:
        return {"level": level, "warnings": warnings, "swept": sweep_json(swept, level)}

    shared.present(tables, [], view, write, as_json=as_json, apart=False)
