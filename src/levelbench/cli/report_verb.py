"""``levelbench report``: one HTML file, or a folder with a page for each task; Markdown and CSV of every table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.analysis.comparison import Comparison
    from levelbench.records import RunGroup, RunSummary, Specification, Store

__all__ = ["command", "written"]


@click.command("report", cls=shared.Grouped)
@click.argument("runs", nargs=-1, metavar="[RUNS]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the HTML report to this file.  [default: STORE/report.html, or a name of its own for RUNS]",
)
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Write an index and a page for each task to this folder instead."
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write the tables to this Markdown file.")
@click.option("--csv", "csv_folder", type=click.Path(path_type=Path), help="Write each table as CSV to this folder.")
@click.option("--history", is_flag=True, help="Report times by git revision and where they changed, of RUNS or all.")
@click.option("--across-machines", is_flag=True, help="Give verdicts on time even if the machines differ.")
@shared.view_options
@shared.price_option
@shared.statistics_options
@shared.store_option
@shared.answer_options
def command(
    runs: tuple[str, ...],
    history: bool,
    store_path: Path,
    as_json: bool,
    **given: Any,
) -> int:
    """Write a report on RUNS, by default on all runs in the store.

    Groups of the same task are compared with the first of them: the first of RUNS if several are named, else the one
    that was measured first, or the first by name if they took turns.

    \b
      levelbench report
      levelbench report 'digits[framework=torch]' --markdown report.md
      levelbench report --folder reports
      levelbench report --history 'make bench'

    With --history, RUNS are names, or parts of names, of commands that levelbench time measured, or of tasks.
    """
    from levelbench.errors import UsageError

    store = shared.open_store(store_path)
    if history:
        for name, why in (("across_machines", "each machine has its own history"), ("folder", "a history is one page")):
            if given[name]:
                raise UsageError(f"--history with --{name.replace('_', '-')}", why, "leave it out")
        shared.check_statistics(given["margin"], given["level"])
        view = {name: given[name] for name in _VIEW}
        files = (given["output"], given["markdown"], given["csv_folder"])
        return _history(store, runs, *files, given["level"], as_json, view)
    paths, comparisons, refusals, left_out = written(store, runs, given)
    for line in (*refusals, *left_out):
        click.echo(line, err=True)
    if as_json:
        from levelbench.cli.reporting import comparison_json

        found = [comparison_json(each) for each in comparisons]
        said = {"refusals": refusals, "left_out": left_out}
        shared.emit_json({"written": [str(path) for path in paths], "comparisons": found, **said})
    else:
        for path in paths:
            click.echo(f"report: {path}")
    return 0


_VIEW = ("clock", "crossing", "threshold")


def written(
    store: Store, runs: tuple[str, ...], given: dict[str, Any]
) -> tuple[list[Path], list[Comparison], list[str], list[str]]:
    """Write the report on ``runs``; which files it is, what was compared, what could not be, and what is left out."""
    from levelbench.analysis.comparison import compare_all
    from levelbench.cli.reporting import refuse_copies, report_name, write, write_folder
    from levelbench.errors import UsageError
    from levelbench.records import group_runs, read_record

    shared.check_statistics(given["margin"], given["level"])
    if given["folder"] is not None and given["output"] is not None:
        raise UsageError("--folder with --output", "a report is one file or a folder of them", "leave out one of them")
    prices = shared.read_prices(given["prices"])
    found = shared.readable_runs(store, runs)
    if not found:
        raise UsageError(f"a report on {store.path}", "it has no runs", "run something first: levelbench run digits")
    viewed = shared.apply_view(found, store, **{name: given[name] for name in _VIEW})
    groups = group_runs(viewed)
    groups = shared.as_named(store.with_unselected(groups) if runs else groups, store, runs)
    left_out = _left_out(viewed, groups)
    if not groups:
        ended = f"none of its runs has ended ({'; '.join(left_out)})"
        raise UsageError(f"a report on {' '.join(runs) or store.path}", ended, "let a run end: levelbench run")
    groups = shared.priced(groups, prices)
    refuse_copies(groups, f"a report on {store.path}")
    records = [read_record(Path(run.path)) for group in groups for run in (*group.runs, *group.unfinished)]
    comparisons, refusals = compare_all(
        groups,
        given["margin"],
        given["level"],
        across_machines=given["across_machines"],
        history=lambda: group_runs(store.summaries()),
    )
    folder = given["folder"]
    paths = (write if folder is None else write_folder)(
        groups,
        records,
        comparisons,
        folder or given["output"] or store.path / (report_name(groups) if runs else "report.html"),
        markdown=given["markdown"],
        csv_folder=given["csv_folder"],
        rows=store.rows() if all(_lies_in(store, run) for run in found) else (),
        searches=store.searches(),
        refusals=refusals,
        left_out=[f"left out: {each}" for each in left_out],
    )
    return paths, comparisons, refusals, [f"left out: {each}" for each in left_out]


def _left_out(runs: Sequence[RunSummary], groups: Sequence[RunGroup]) -> list[str]:
    """What no group holds, since no run of it has ended: its label, with how many runs have which status."""
    from levelbench.records.summary import labels_of
    from levelbench.report.numbers import plural

    held = [(group.specification, group.chosen) for group in groups]
    keys = {group.key for group in groups}
    statuses: dict[str, list[str]] = {}
    found: dict[str, tuple[Specification, list[str] | None]] = {}
    for run in runs:
        if run.key not in keys:
            statuses.setdefault(run.key, []).append(run.status)
            found.setdefault(run.key, (run.specification, run.chosen))
    specifications, chosen = zip(*held, *found.values(), strict=True) if runs else ((), ())
    labels = labels_of(specifications, chosen=chosen)[len(held) :]
    return [
        f"{label}: {plural(len(own), 'run')}, {' and '.join(sorted(set(own)))}"
        for label, own in zip(labels, statuses.values(), strict=True)
    ]


def _history(
    store: Store,
    words: tuple[str, ...],
    output: Path | None,
    markdown: Path | None,
    csv_folder: Path | None,
    level: float,
    as_json: bool,
    view: dict[str, Any],
) -> int:
    """Print tables on standard output, and write the requested files."""
    from levelbench.analysis.history import histories_of_commands, histories_of_runs
    from levelbench.errors import UnknownNameError, UsageError
    from levelbench.measure.environment import commit_order, is_shallow
    from levelbench.records import group_runs
    from levelbench.records.commands import CommandRecord
    from levelbench.report.drawing import write_whole
    from levelbench.report.history import change_lines, history_page, history_table

    groups = group_runs(shared.apply_view(list(store.summaries()), store, **view))
    order = partial(commit_order, Path.cwd())
    records = CommandRecord.all(store.path)
    parts = [histories_of_commands(records, level, order), histories_of_runs(groups, level, order)]
    known = [each for histories, _ in parts for each in histories]
    found = [each for each in known if not words or any(word in each.name for word in words)]
    unknown = sum(count for _, count in parts)
    if known and not found:
        raise UnknownNameError("history", words[0], sorted({each.name for each in known}))
    if not found:
        why = f"{unknown} of its processes and runs have no known git commit" if unknown else "it has none"
        of = f" of {' or '.join(words)}" if words else ""
        raise UsageError(f"a history{of} from {store.path}", why, "measure in a git repository, with committed code")
    tables = [history_table(each, level) for each in found]
    shallow = is_shallow(Path.cwd())
    lines = [line for each in found for line in change_lines(each, shallow)]
    if unknown:
        lines.append(f"left out: {unknown} processes and runs without a known git commit")

    def write() -> dict[str, str]:
        page = write_whole(output or store.path / "history.html", history_page(found, level, shallow))
        given = {"csv_path": csv_folder and csv_folder / "history.csv", "markdown_path": markdown}
        named = {str(at + 1): table for at, table in enumerate(tables)}
        return {"report": str(page), **shared.write_tables(given, tables, lines, title="Times by revision", csv=named)}

    shared.present(tables, lines, lambda: {"histories": found}, write, as_json=as_json, apart=False)
    return 0


def _lies_in(store: Store, run: RunSummary) -> bool:
    """Whether the run lies in the store: the other runs there say nothing about a run elsewhere."""
    return Path(run.path).resolve().is_relative_to(store.path.resolve())
