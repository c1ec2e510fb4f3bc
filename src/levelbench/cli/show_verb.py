"""``levelbench show``: one run or several: phases, curve, warnings, environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.records import Record, RunSummary

__all__ = ["command"]


@click.command("show")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--environment", "with_environment", is_flag=True, help="Show the whole environment.")
@shared.view_options
@shared.store_option
@shared.json_option
@shared.debug_option
def command(
    runs: tuple[str, ...],
    with_environment: bool,
    clock: str | None,
    crossing: str | None,
    target: float | None,
    store_path: Path,
    as_json: bool,
    debug: bool,
) -> int:
    """Show runs; without an argument the latest one.

    \b
      levelbench show
      levelbench show 3fa9
      levelbench show 'digits[framework=torch,seed=0]' --clock dawnbench
    """
    from levelbench.records import read_record, summarise

    store = shared.open_store(store_path)
    found = shared.select_runs(store, runs or ("latest",))
    records = [read_record(Path(run.path)) for run in found]
    views = [summarise(record, clock=clock, crossing=crossing, threshold=target) for record in records]
    if as_json:
        shared.emit_json([_as_json(record, run) for record, run in zip(records, views, strict=True)])
        return 0
    for record, run in zip(records, views, strict=True):
        _print(record, run, with_environment)
    return 0


def _as_json(record: Record, run: RunSummary) -> dict[str, Any]:
    import msgspec

    from levelbench.records.teamwork import teamwork

    found = {**msgspec.to_builtins(run), "curve": msgspec.to_builtins(record.evaluations)}
    team = teamwork(record)
    return found if team is None else {**found, "teamwork": msgspec.to_builtins(team)}


def _print(record: Record, run: RunSummary, with_environment: bool) -> None:
    from levelbench.report.ranks import divergence_table, operations_table, ranks_table, staleness_table
    from levelbench.report.single import curve_table, phases_table, run_facts

    of_ranks = (make(record) for make in (ranks_table, operations_table, staleness_table, divergence_table))
    tables = [run_facts(run), phases_table(run), curve_table(record, run), *(each for each in of_ranks if each)]
    shared.print_tables(*tables)
    click.echo()
    for doubt in run.suspect:
        click.echo(f"suspect: {doubt}")
    if run.error:
        click.echo(f"error: {run.error}")
    if with_environment:
        shared.emit_json(run.environment)
    click.echo(f"record: {run.path}")
