"""What all kinds of ``levelbench check`` share: choosing frameworks, printing findings, the exit code.

Every probe is a row, even if it could not be tried. Failures stand below the table in full, once for each thing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from levelbench.cli import options as shared
from levelbench.errors import MissingError, UnknownNameError, UsageError
from levelbench.report.numbers import plural

if TYPE_CHECKING:
    from levelbench.checks.findings import Finding, Report
    from levelbench.report.tables import Table

__all__ = ["check_line", "chosen", "finish", "installed", "open_frameworks", "summary"]

_LONGEST = 160
_PLACES = 20


def finish(
    reports: Sequence[Report], as_json: bool, details: Sequence[Mapping[str, Any]] = (), notes: Sequence[str] = ()
) -> int:
    """Print ``reports``, with ``details`` in the JSON of each and ``notes`` in its summary; returns the exit code."""
    from levelbench.checks.findings import NOTHING_CHECKED, exit_code, reports_to_dict

    if as_json:
        found = reports_to_dict(reports)
        for shown, more in zip(found["reports"], details, strict=False):
            shown.update(more)
        shared.emit_json(found)
    else:
        shared.print_tables(*(_table(report) for report in reports))
        for at, report in enumerate(reports):
            note = notes[at] if notes else ""
            click.echo(check_line(report, note))
            for number, alike in enumerate(report.causes, 1):
                click.echo(_finding(number, alike))
    code = exit_code(reports)
    if code == NOTHING_CHECKED:
        click.echo("nothing was checked, for the reasons above", err=True)
    return code


def _finding(number: int, alike: Sequence[Finding]) -> str:
    """The first of failures that have one cause, where else it shows, and what to do."""
    first, *others = alike
    case = f" ({first.case})" if first.case else ""
    lines = [f"  {number}. {first.probe}{case}: {first.found}"]
    places = dict.fromkeys(each.probe if each.probe != first.probe else each.case for each in others)
    if shown := [each for each in places if each][:_PLACES]:
        more = len(places) - len(shown)
        lines.append(f"    also: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}")
    if first.do:
        lines.append(f"    do: {first.do}")
    return "\n".join(lines)


def check_line(report: Report, note: str = "") -> str:
    """``MyAdam: nothing found wrong; not tried: reference``."""
    return f"{report.title}: {summary(report)}{note}{_gaps(report)}"


def summary(report: Report) -> str:
    """The number of different findings, in words."""
    return plural(len(report.causes), "finding") if report.failed else "nothing found wrong"


def _gaps(report: Report) -> str:
    """The probes that could not be tried at all, or not with every input."""
    missed = dict.fromkeys(each.probe for each in report.findings if each.status == "not tried")
    seen = {each.probe for each in report.findings if each.status != "not tried"}
    never, partly = [each for each in missed if each not in seen], [each for each in missed if each in seen]
    said = f"; not tried: {', '.join(never)}" if never else ""
    return f"{said}; not tried everywhere: {', '.join(partly)}" if partly else said


def _table(report: Report) -> Table:
    from levelbench.report.tables import Column, Table

    numbers = {id(each): number for number, alike in enumerate(report.causes, 1) for each in alike}

    def seen(each: Finding) -> str:
        if each.status == "failed":
            return f"finding {numbers[id(each)]}{f': {each.case}' if each.case else ''}"
        advice = f" ({each.do})" if each.do else ""
        text = f"{each.found or each.case}{advice}"
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."

    return Table.of(
        "check",
        report.title,
        report.findings,
        (Column("probe", "Probe"), lambda each: each.probe),
        (Column("status", "Status"), lambda each: each.status),
        (Column("seen", "Seen"), seen),
        notes=("noted: seen but not judged; not tried: for the stated reason",),
    )


def chosen(known: Iterable[str], only: str, asked: str) -> list[str]:
    """All names, or just ``only``; ``UnknownNameError`` if it is not among them."""
    names = list(known)
    if only and only not in names:
        raise UnknownNameError(asked, only, names)
    return [only] if only else names


def open_frameworks(words: str, device: str) -> list[str]:
    """Names or files of frameworks separated by commas; ``MissingError`` for one not running on ``device`` here."""
    from levelbench.operators.frameworks import named_framework

    names = list(dict.fromkeys(each.strip() for each in words.split(",") if each.strip()))
    if not names:
        raise UsageError("--framework", "it names no framework", "give at least one: --framework numpy,torch")
    for name in names:
        if lacking := named_framework(name).lacks(device):
            raise MissingError(f"framework {name!r} on {device!r}", lacking, "levelbench list shows what runs")
    return names


def installed(usual: Sequence[str], device: str) -> list[str]:
    """The ``usual`` frameworks that run on ``device`` here; ``MissingError`` if none does."""
    from levelbench.operators.frameworks import installed_frameworks

    found = installed_frameworks(usual, device)
    if not found:
        do = "pip install levelbench[torch], or name one with --framework"
        raise MissingError(f"a framework on {device!r}", f"none of {', '.join(usual)} is installed", do)
    return found
