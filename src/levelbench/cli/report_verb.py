"""``levelbench report``: one HTML file, with Markdown and CSV of every table."""

from __future__ import annotations

from pathlib import Path

import click

from levelbench.cli import options as shared

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
@shared.json_option
@shared.debug_option
def command(
    runs: tuple[str, ...],
    output: Path | None,
    markdown: Path | None,
    csv_folder: Path | None,
    across_machines: bool,
    clock: str | None,
    crossing: str | None,
    target: float | None,
    margin: float,
    level: float,
    store_path: Path,
    as_json: bool,
    debug: bool,
) -> int:
    """Write a report on RUNS; without an argument on all runs of the store.

    Groups of the same task are compared with the first of them.
    """
    from levelbench.cli.reporting import attribution_lines, compare_with_first, write
    from levelbench.errors import UsageError
    from levelbench.records import group_runs, read_record
    from levelbench.report.files import write_csv, write_markdown

    shared.check_statistics(margin, level)
    store = shared.open_store(store_path)
    found = shared.select_runs(store, runs) if runs else sorted(store.summaries(), key=lambda run: run.started)
    if not found:
        raise UsageError(f"a report on {store.path}", "it holds no run", "run something first: levelbench run digits")
    view = {"clock": clock, "crossing": crossing, "threshold": target}
    groups = group_runs(shared.apply_view(found, store, **view))
    records = [read_record(Path(run.path)) for group in groups for run in (*group.runs, *group.unfinished)]
    comparisons = compare_with_first(groups, margin, level, across_machines=across_machines)
    written = [write(groups, records, comparisons, output or store.path / "report.html")]
    by_key = {group.key: [record for record in records if record.header.key == group.key] for group in groups}
    pairs = [(group, by_key[group.key]) for group in groups]
    verdicts = [(each.a.label, each.b.label, each.verdict) for each in comparisons if each.verdict is not None]
    if markdown is not None:
        written.append(write_markdown(pairs, verdicts, markdown, attributions=attribution_lines(comparisons)))
    if csv_folder is not None:
        written += write_csv(pairs, csv_folder)
    if as_json:
        shared.emit_json({"written": [str(path) for path in written]})
    else:
        for path in written:
            click.echo(f"report: {path}")
    return 0
