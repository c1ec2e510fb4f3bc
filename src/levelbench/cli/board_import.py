"""``levelbench board import``: another system's results as entries of a leaderboard, with what is doubtful in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import UsageError

if TYPE_CHECKING:
    from levelbench.records.submissions.schema import Submission
    from levelbench.report.tables import Table

__all__ = ["command"]

FORMATS = ("dawnbench", "mlperf", "loadgen", "algoperf")


@click.command("import")
@click.argument("kind", metavar=f"[{'|'.join(FORMATS)}]", type=click.Choice(FORMATS))
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder of the leaderboard.")
@click.option("--task", help="loadgen: the task of logs that lie outside of a results tree.")
@click.option("--author", help="loadgen: who submits them.")
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="Lines of each ranking.")
@click.option("--force", is_flag=True, help="Replace entries of the leaderboard that differ.")
@click.option("--no-doubts", is_flag=True, help="Count the doubts by kind, without a line for each.")
@shared.json_option
@shared.debug_option
def command(
    kind: str,
    path: Path,
    output: Path | None,
    task: str | None,
    author: str | None,
    top: int,
    force: bool,
    no_doubts: bool,
    as_json: bool,
    debug: bool,
) -> int:
    """Read another system's results, rank them as it did, and say what is doubtful in each.

    \b
      levelbench board import dawnbench dawn-bench-entries
      levelbench board import dawnbench dawn-bench-entries/CIFAR10/train -o board
      levelbench board import mlperf results_v5.0 -o board
      levelbench board import loadgen logs --task cifar10 --author me -o board

    Without -o nothing is written. Exit code 1 if a file could not be read; the others are imported all the same.
    """
    if kind != "loadgen" and (task or author):
        raise UsageError(f"import {kind}", "--task or --author is given", "leave it out: its files say both")
    submissions, problems = _read(kind, path, task, author)
    placed = None
    if output is not None:
        from levelbench.records.exchange.placing import place

        placed = place(submissions, output, force=force)
    if as_json:
        _print_json(
            kind, submissions, problems, top, None if placed is None else [str(each) for each in placed.written]
        )
    else:
        _print(kind, path, submissions, problems, top, no_doubts)
        if placed is not None:
            click.echo(f"wrote {len(placed.written)} entries to {output}, {placed.unchanged} were there already")
    return 1 if problems else 0


def _read(kind: str, path: Path, task: str | None, author: str | None) -> tuple[list[Submission], list[str]]:
    """Only the reader that is wanted is imported."""
    if kind == "dawnbench":
        from levelbench.records.exchange.dawnbench import read_folder

        return read_folder(path)
    if kind == "algoperf":
        from levelbench.records.exchange.algoperf import read_results

        return read_results(path)
    if kind == "mlperf":
        from levelbench.records.exchange.mlperf import read_results as read_logs

        return read_logs(path)
    from levelbench.records.exchange.loadgen import read_results as read_summaries

    return read_summaries(path, task=task, author=author)


def _rankings(kind: str, submissions: Sequence[Submission], top: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The first ``top`` of each task and column that have a figure; DAWNBench's own figures for its entries."""
    from levelbench.records.exchange.dawnbench.board import COLUMNS, leaderboard

    found = {}
    for task in sorted({each.task for each in submissions}):
        own = [each for each in submissions if each.task == task]
        for column, title in COLUMNS.items() if kind != "mlperf" else ():
            rows = leaderboard(own, column, top)
            if rows:
                found[task, title] = [
                    {
                        "rank": row.rank,
                        "value": row.value,
                        "text": row.text,
                        "model": row.entry.model,
                        "author": row.entry.author.name,
                        "hardware": row.entry.hardware.description,
                        "framework": row.entry.framework,
                        "submitted": row.entry.submitted,
                        "file": row.entry.origin.file if row.entry.origin else "",
                    }
                    for row in rows
                ]
    return found


def _profile_scores(kind: str, submissions: Sequence[Submission]) -> list[dict[str, Any]]:
    """The scores of AlgoPerf's algorithms over the workloads that all of them took part in, the best first."""
    if kind != "algoperf":
        return []
    from levelbench.records.exchange.algoperf import common_times
    from levelbench.records.rulesets.profiles import scores

    times = common_times(submissions)
    if not times:
        return []
    exact, grid = scores(times), scores(times, how="grid")
    return [
        {"submission": each, "score": score, "published": grid[each], "workloads": len(times[each])}
        for each, score in exact.items()
    ]


def _print_json(
    kind: str, submissions: Sequence[Submission], problems: list[str], top: int, written: list[str] | None
) -> None:
    rankings = [
        {"task": task, "column": column, "rows": rows}
        for (task, column), rows in _rankings(kind, submissions, top).items()
    ]
    entries = [
        {
            "file": each.origin.file if each.origin else "",
            "task": each.task,
            "mode": each.mode,
            "model": each.model,
            "author": each.author.name,
            "runs": len(each.runs),
            "measurements": len(each.inference),
            "doubts": each.origin.doubts if each.origin else [],
        }
        for each in submissions
    ]
    found = {"entries": entries, "rankings": rankings, "scores": _profile_scores(kind, submissions)}
    shared.emit_json({**found, "problems": problems, "written": written})


def _print(
    kind: str, path: Path, submissions: Sequence[Submission], problems: list[str], top: int, no_doubts: bool
) -> None:
    modes = Counter(each.mode for each in submissions)
    click.echo(
        f"{len(submissions)} entries of {kind} in {path}: {modes['training']} of training, "
        f"{modes['inference']} of inference; {len(problems)} files could not be read"
    )
    tables = [_table(task, column, rows) for (task, column), rows in _rankings(kind, submissions, top).items()]
    tables += _score_table(_profile_scores(kind, submissions))
    tables += [] if kind == "dawnbench" else [_listing(kind, submissions)]
    if tables:
        click.echo()
        shared.print_tables(*tables)
    _print_doubts(submissions, no_doubts)
    for each in problems:
        click.echo(shared.visible(f"not read: {each}"), err=True)


def _table(task: str, column: str, rows: list[dict[str, Any]]) -> Table:
    from levelbench.report.tables import Cell, Column, Kind, Number, Table, Text

    columns = (
        Column("rank", "rank", Kind.NUMBER),
        Column("figure", column.rpartition(" ")[2]),
        *(Column(name, name) for name in ("model", "hardware", "framework", "submitted")),
    )
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (Number(row["rank"]), Text(row["text"]), *(Text(row[each.key]) for each in columns[2:])) for row in rows
    )
    notes = ("of 10,000 answers",) if column == "inference cost" else ()
    return Table(f"{task}-{column.replace(' ', '-')}", f"{task}: {column}", columns, cells, notes)


def _listing(kind: str, submissions: Sequence[Submission]) -> Table:
    from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

    def score(entry: Submission) -> Cell:
        value = _olympic(entry)
        return Absent("not enough runs reached the target") if value is None else Number(value)

    columns = [Column(name, name) for name in ("task", "model", "framework", "hardware")]
    columns += [Column("runs", "runs", Kind.NUMBER), Column("measurements", "measurements of inference", Kind.NUMBER)]
    rows: list[tuple[Cell, ...]] = []
    for each in submissions:
        said = (each.task, each.model, each.framework, each.hardware.description)
        counts = (len(each.runs), len(each.inference))
        rows.append((*map(Text, said), *map(Number, counts), *([score(each)] if kind == "mlperf" else [])))
    if kind == "mlperf":
        columns.append(Column("olympic_s", "Olympic mean", Kind.TIME_S, digits=4))
    return Table("entries", "entries", tuple(columns), tuple(rows))


def _olympic(entry: Submission) -> float | None:
    """MLPerf's score in seconds: the fastest and the slowest run left out, four each of unet3d."""
    from levelbench.records.rulesets.olympic import olympic_score

    times = [run.time_to_target_s if run.reached else None for run in entry.runs]
    return olympic_score(times, drop=4 if entry.task == "unet3d" else 1).score_s


def _score_table(rows: list[dict[str, Any]]) -> list[Table]:
    from levelbench.report.tables import Column, Kind, Number, Table, Text

    if not rows:
        return []
    columns = (
        Column("submission", "submission"),
        Column("score", "score", Kind.NUMBER, digits=4),
        Column("published", "on 100 points", Kind.NUMBER, digits=4),
    )
    cells = tuple((Text(row["submission"]), Number(row["score"]), Number(row["published"])) for row in rows)
    title = f"performance profile over {rows[0]['workloads']} workloads that all took part in"
    return [Table("profile", title, columns, cells)]


def _print_doubts(submissions: Sequence[Submission], no_doubts: bool) -> None:
    """The kinds with how many entries have them, then each entry's; a kind that all have is not said of each."""
    doubted = [(each.origin.file, each.origin.doubts) for each in submissions if each.origin and each.origin.doubts]
    kinds = Counter(kind for _, doubts in doubted for kind in dict.fromkeys(map(_kind, doubts)))
    if not doubted:
        return
    counts = ", ".join(f"{kind} in {'all' if n == len(submissions) else n}" for kind, n in kinds.most_common())
    click.echo(shared.visible(f"\ndoubtful, of {len(submissions)} entries: {counts}"))
    for file, doubts in doubted if not no_doubts else ():
        own = [each for each in doubts if len(submissions) == 1 or kinds[_kind(each)] < len(submissions)]
        for each in [f"  {file}", *(f"    {each}" for each in own)] if own else ():
            click.echo(shared.visible(each))
    click.echo()


def _kind(doubt: str) -> str:
    return doubt.partition(":")[0]
