"""``levelbench report``: one HTML file, with Markdown and CSV of every table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.records import RunSummary, Store

__all__ = ["command"]


@click.command("report")
@click.argument("runs", nargs=-1, metavar="[RUNS]...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The HTML file. [default: STORE/report.html]")
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables as one Markdown file too.")
@click.option("--csv", "csv_folder", type=click.Path(path_type=Path), help="Write each table as CSV into this folder.")
@click.option("--across-machines", is_flag=True, help="Give verdicts on time though the machines differ.")
@shared.view_options
@shared.statistics_options
@shared.store_option
@shared.answer_options
def command(
    runs: tuple[str, ...],
    output: Path | None,
    markdown: Path | None,
    csv_folder: Path | None,
    across_machines: bool,
    margin: float,
    level: float,
    store_path: Path,
    as_json: bool,
    **view: Any,
) -> int:
    """Write a report on RUNS; without an argument on all runs of the store.

    Groups of the same task are compared with the first of them.
    """
    from levelbench.analysis.comparison import compare_all
    from levelbench.cli.reporting import write
    from levelbench.errors import UsageError
    from levelbench.records import group_runs, read_record

    shared.check_statistics(margin, level)
    store = shared.open_store(store_path)
    found = shared.select_runs(store, runs) if runs else sorted(store.summaries(), key=lambda run: run.started)
    # A run that is left out because its record is damaged would change the verdict without a word.
    if not runs and store.problems:
        raise store.problems[0]
    for word in runs:
        for _ in store.each_found(word):
            pass
        store.require_readable(word)
    if not found:
        raise UsageError(f"a report on {store.path}", "it holds no run", "run something first: levelbench run digits")
    groups = group_runs(shared.apply_view(found, store, **view))
    records = [read_record(Path(run.path)) for group in groups for run in (*group.runs, *group.unfinished)]
    comparisons, refusals = compare_all(
        groups, margin, level, across_machines=across_machines, history=lambda: group_runs(store.summaries())
    )
    for refusal in refusals:
        click.echo(refusal, err=True)
    page = output or store.path / "report.html"
    written = write(
        groups,
        records,
        comparisons,
        page,
        markdown=markdown,
        csv_folder=csv_folder,
        rows=store.rows() if all(_lies_in(store, run) for run in found) else (),
        refusals=refusals,
    )
    if as_json:
        from levelbench.cli.reporting import comparison_json

        found_of_all = [comparison_json(each) for each in comparisons]
        shared.emit_json(
            {"written": [str(path) for path in written], "comparisons": found_of_all, "refusals": refusals}
        )
    else:
        for path in written:
            click.echo(f"report: {path}")
    return 0


def _lies_in(store: Store, run: RunSummary) -> bool:
    """Whether the run is one of the store's own: what lies in the store says nothing of runs elsewhere."""
    return Path(run.path).resolve().is_relative_to(store.path.resolve())
