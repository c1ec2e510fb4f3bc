"""``levelbench import``: records from what other tools have logged or timed, and what they show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from levelbench.cli import options as shared
from levelbench.errors import DataError, UsageError

__all__ = ["command"]


@click.command("import", cls=shared.Grouped)
@click.argument("places", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--target", help="Logged runs: quality to reach, METRIC=VALUE, such as accuracy=0.94.")
@click.option("--metric", help="Name of the metric in the logs, such as val/acc.  [default: the target's metric]")
@click.option(
    "--direction",
    type=click.Choice(["higher", "lower"]),
    help="Which direction is better, if the metric's name does not say.",
)
@click.option(
    "--scale",
    metavar="LOWEST,HIGHEST",
    help="Values that the metric may have, if its name does not say: 0,100; -1000, has no highest.",
)
@click.option(
    "--crossing",
    type=click.Choice(["confirmed", "final", "first", "sustained"]),
    default="confirmed",
    show_default=True,
    help="Rule by which the target counts as reached.",
)
@click.option("--task", default="imported", show_default=True, help="Task to record the runs under.")
@click.option("--recipe", help="Name for the runs.  [default: the name of the PATH that they are in]")
@click.option(
    "--ignore", multiple=True, help="Setting that does not distinguish runs, such as output_dir; may be repeated."
)
@shared.statistics_options
@shared.table_options
@shared.store_option
@shared.answer_options
def command(places: tuple[Path, ...], store_path: Path, as_json: bool, **given: Any) -> int:
    """Make records from logs of TensorBoard, MLflow or W&B, or from JSON files of hyperfine and pyperf.

    \b
      levelbench import runs/adam runs/sgd --target accuracy=0.94 --metric val/acc --task cifar10
      levelbench import mlruns --target val_loss=3.28 --ignore output_dir
      levelbench import before.json after.json

    Runs of each PATH, or commands, are compared with those of the first as far as their logs allow, and benchmarks that
    several files have with those of the same name. Records state where they came from. What was imported before is not
    imported again. Exits with 4 if a run could not be imported.
    """
    shared.check_statistics(given["margin"], given["level"])
    shared.check_writable(given["csv_path"], given["markdown_path"])
    timed = [each.name.endswith((".json", ".json.gz")) and each.name != "trainer_state.json" for each in places]
    if any(timed) and not all(timed):
        found = "some are benchmarks in JSON, others logs of training runs"
        raise UsageError("importing these together", found, "import them separately")
    return (_timings if all(timed) else _runs)(places, store_path, as_json, given)


def _runs(places: Sequence[Path], store: Path, as_json: bool, given: dict[str, Any]) -> int:
    from levelbench.analysis.comparison import compare_all
    from levelbench.cli.reporting import comparison_json, group_json
    from levelbench.cli.run_verb import answer_lines, remark_lines
    from levelbench.experiments.programs import read_target
    from levelbench.importing.runs import import_run, read_runs
    from levelbench.records import group_runs, read_record, summarise
    from levelbench.report.runs import groups_table

    if given["target"] is None:
        raise UsageError("importing runs", "the quality to reach is not stated", "--target accuracy=0.94")
    target = read_target(given["target"], given["direction"], given["scale"])
    logged, damaged = [], []
    for place in places:
        try:
            logged += [(place, each) for each in read_runs(place)]
        except DataError as error:
            damaged.append(error)
    if not logged and damaged:
        raise damaged[0]
    found: dict[str, Any] = {}
    problems, new = [f"not imported: {each.asked.removeprefix('importing ')}: {each.found}" for each in damaged], 0
    for place, each in logged:
        # A folder's name ends in no suffix: lr0.1-s0 and lr0.05-s0 are two.
        recipe = given["recipe"] or (place.resolve().name if place.is_dir() else place.stem)
        try:
            own = {name: given[name] for name in ("metric", "crossing", "task", "ignore")}
            path, written = import_run(each, target, store, recipe=recipe, **own)
        except UsageError as error:
            problems.append(f"not imported: {each.name}: {error.found}: {error.do}")
            continue
        new += written
        run = summarise(read_record(path))
        found[run.id] = run
    if not found:
        raise UsageError(f"importing {', '.join(map(str, places))}", problems[0].partition(": ")[2], "see --help")
    groups = group_runs(list(found.values()))
    comparisons, refusals = compare_all(groups, given["margin"], given["level"])
    ended = Counter(run.status for run in found.values() if run.status != "done")
    among = f" ({', '.join(f'{count} {status}' for status, count in sorted(ended.items()))})" if ended else ""
    counted = f"{new} of {len(logged)} runs imported into {store}, {len(found) - new} were already there{among}"
    tables, answer = [groups_table(groups)], answer_lines(comparisons, refusals)
    lines = [*remark_lines(groups, comparisons), *problems]
    click.echo(counted, err=as_json)
    shared.present(
        tables,
        lines,
        lambda: {
            "runs": list(found.values()),
            "groups": [group_json(each) for each in groups],
            "comparisons": [comparison_json(each) for each in comparisons],
            "refusals": list(refusals),
            "problems": problems,
        },
        lambda: shared.write_tables(given, tables, [*answer, *lines]),
        answer=answer,
        as_json=as_json,
    )
    return 4 if problems else 0


def _timings(places: Sequence[Path], store: Path, as_json: bool, given: dict[str, Any]) -> int:
    from levelbench.cli.time_verb import show_commands
    from levelbench.importing.timings import import_timings, read_timings
    from levelbench.records.commands import CommandRecord, summarise_commands

    if given["target"] is not None:
        raise UsageError("--target with a benchmark of commands", "a benchmark has no quality", "leave it out")
    several = len(places) > 1
    found = [
        (
            name,
            import_timings(processes, store, place.name.removesuffix(".gz").removesuffix(".json") if several else ""),
        )
        for place in places
        for name, processes in read_timings(place).items()
    ]
    named: dict[str, list[list[CommandRecord]]] = {}
    for name, arm in found:
        named.setdefault(name, []).append(arm)
    # Files without a common name are alternatives.
    groups = [[arm for _, arm in found]] if len(named) in (1, len(found)) else list(named.values())
    among = sum(len(each) > 1 for each in groups)
    show_commands(
        [summarise_commands(each, given["level"], given["margin"], max(1, among)) for each in groups], as_json, given
    )
    return 0
