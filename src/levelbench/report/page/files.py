"""Writes what a report hands over: whole files, or nothing.

The one idea: a file appears under its name only when it is complete: it is written beside it and then renamed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.errors import StoreError
from levelbench.report.exports import markdown_text, to_csv, to_markdown
from levelbench.report.figures.figure import Group
from levelbench.report.numbers import number
from levelbench.report.page.beside import Linted, lint_lines, missing_line
from levelbench.report.runs.ranks import rank_tables, typical
from levelbench.report.runs.summaries import groups_table, phases_by_group, runs_table
from levelbench.report.tables import Table

if TYPE_CHECKING:
    from levelbench.measure.verdict import Verdict
    from levelbench.records.reader import Record
    from levelbench.records.summary import RunSummary

__all__ = ["all_runs", "by_task", "report_tables", "write_csv", "write_markdown", "write_whole"]


def write_whole(path: Path, text: str) -> Path:
    """Write ``text`` (UTF-8) to ``path`` in one step, making its folder; ``StoreError`` where that fails."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        found = error.strerror or str(error)
        raise StoreError(f"write {path}", found, "Choose a folder that is writable and has room") from error
    finally:
        # Renamed if all went well; whatever went wrong, an interrupt among it, leaves nothing behind.
        _remove(beside)
    return path


def _remove(path: Path) -> None:
    """Remove what was begun; it may never have been made, or lie on a file system that has become read-only."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def by_task(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """The groups of each task, in order of appearance: curves of different tasks share no axis."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group[0].specification.task, []).append(group)
    return list(found.items())


def all_runs(groups: Sequence[Group]) -> list[RunSummary]:
    """Every run of the groups, those that did not come to an end after the others of their group."""
    return [run for group, _ in groups for run in (*group.runs, *group.unfinished)]


def report_tables(groups: Sequence[Group], linted: Sequence[Linted] = ()) -> list[tuple[str, Table]]:
    """Every table of a report with a name for its file: groups, phases, evaluations and ranks by task, then all runs.

    Those of ranks are of each group's run of the median time. ``linted`` is what the linter says of the groups.
    """
    from levelbench.report.figures.bands import evaluations_table

    found = []
    for task, members in by_task(groups):
        only = [group for group, _ in members]
        for table in (groups_table(only, linted), phases_by_group(only), evaluations_table(members)):
            found.append((f"{_safe(task)}-{table.name}", table))
        for _, records in members:
            found += [(f"{_safe(task)}-{table.name}", table) for table in rank_tables(typical(records))]
    return [*found, ("runs", runs_table(all_runs(groups)))]


def _safe(name: str) -> str:
    """``name`` as part of a file's name."""
    kept = "".join(each if each.isascii() and (each.isalnum() or each in "-_") else "-" for each in name)
    return kept.strip("-")[:60] or "task"


def write_csv(groups: Sequence[Group], folder: Path, *, linted: Sequence[Linted] = ()) -> list[Path]:
    """Every table of the report as a CSV file in ``folder``; numbers in base units at full precision.

    With ``linted`` the table of groups has a column of the rules that fired.
    """
    used: dict[str, int] = {}
    paths = []
    for name, table in report_tables(groups, linted):
        used[name] = used.get(name, 0) + 1
        suffix = f"-{used[name]}" if used[name] > 1 else ""
        paths.append(write_whole(folder / f"{name}{suffix}.csv", to_csv(table)))
    return paths


def _ranks(label: str, record: Record | None) -> list[str]:
    tables = rank_tables(record)
    if record is None or not tables:
        return []
    which = f"Run {record.header.id[:8]}, seed {record.header.seed}, the one of the median time."
    return [f"### Ranks of {markdown_text(label)}\n\n{which}\n", *(to_markdown(table, 4) for table in tables)]


def write_markdown(
    groups: Sequence[Group],
    verdicts: Sequence[tuple[str, str, Verdict]],
    path: Path,
    *,
    attributions: Iterable[str] = (),
    caveats: Iterable[str] = (),
    linted: Sequence[Linted] = (),
) -> Path:
    """The verdicts and every table but the single evaluations as one Markdown file.

    With ``linted`` every group has the rules that fired beside its figures, and the findings stand above.
    """
    from levelbench.measure.verdict import format_verdict

    lines = ["# Time to accuracy", ""]
    for name_a, name_b, verdict in verdicts:
        lines.append(f"- {markdown_text(format_verdict(verdict, name_a, name_b))}")
        lines.append(f"  (same means: the whole interval within ±{number(verdict.margin * 100)} %)")
    missing = missing_line(linted)
    said = [*caveats, *attributions, *lint_lines(linted), *([missing] if missing else [])]
    lines += [f"- {markdown_text(line)}" for line in said]
    parts = ["\n".join(lines) + "\n"]
    for task, members in by_task(groups):
        parts.append(f"## {markdown_text(task)}\n")
        only = [group for group, _ in members]
        parts += [to_markdown(table, 3) for table in (groups_table(only, linted), phases_by_group(only))]
        for group, records in members:
            parts += _ranks(group.label, typical(records))
    parts.append(to_markdown(runs_table(all_runs(groups))))
    return write_whole(path, "\n".join(parts))
