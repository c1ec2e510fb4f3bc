"""How ``levelbench check`` prints what it found, whatever was checked.

The one idea: every probe is a row, also one that could not be tried; what is wrong stands below once more, in full and
with what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from levelbench.cli import options as shared

if TYPE_CHECKING:
    from levelbench.report.tables import Table
    from levelbench.training.validation.probes import Report

__all__ = ["findings_table", "print_reports", "print_wrong", "summary"]

_LONGEST = 160


def print_reports(reports: list[Report], as_json: bool) -> None:
    """The tables of ``reports``, a line about each, and what is wrong."""
    if as_json:
        passed = not any(report.failed for report in reports)
        shared.emit_json({"passed": passed, "reports": [report.to_dict() for report in reports]})
        return
    shared.print_tables(*(_table(report) for report in reports))
    for report in reports:
        gaps = dict.fromkeys(each.probe for each in report.findings if each.status == "not tried")
        left = f"; not tried: {', '.join(gaps)}" if gaps else ""
        click.echo(f"{report.name}: {summary(len(report.failed))}{left}")
        print_wrong(report)


def print_wrong(report: Report) -> None:
    """What failed, each with what to do."""
    for each in report.failed:
        click.echo(f"  {each.probe}: {each.found}\n    do: {each.do}")


def summary(wrong: int) -> str:
    """How many findings there are, in words."""
    return f"{wrong} finding{'s' * (wrong > 1)}" if wrong else "nothing found wrong"


def findings_table(title: str, rows: Iterable[tuple[str, str, str]], what: str = "Probe") -> Table:
    """A row for each of (what was tried, its status, what was seen); ``what`` heads the first column."""
    from levelbench.report.tables import Column, Table, Text

    columns = (Column("probe", what), Column("status", "Status"), Column("seen", "Seen"))
    texts = tuple((Text(tried), Text(status), Text(_short(seen))) for tried, status, seen in rows)
    return Table("check", title, columns, texts, ("noted: seen, and not judged; not tried: with the reason",))


def _table(report: Report) -> Table:
    rows = []
    for each in report.findings:
        # Of what failed it stands below.
        advice = f" ({each.do})" if each.do and each.status != "failed" else ""
        rows.append((each.probe, each.status, f"{each.found}{advice}"))
    return findings_table(report.name, rows)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
