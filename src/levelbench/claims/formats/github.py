"""Annotations of a GitHub workflow, which show a finding beside the line in a pull request.

The one idea: a workflow command is ``::level key=value,key=value::message``; what would end one of its parts is
escaped as the runner reads it back (``%``, CR and LF everywhere, ``:`` and ``,`` in properties too), so that no text of
a claim becomes a command.
"""

from __future__ import annotations

from pathlib import Path

from levelbench.claims.lint import Linted, Report
from levelbench.claims.reading.places import below_here, place_of
from levelbench.claims.rule import Finding, Severity

__all__ = ["escaped_data", "escaped_property", "github_lines"]

_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "not-stated": "notice"}


def github_lines(report: Report, show: Severity = "warning") -> list[str]:
    """One command a finding of severity ``show`` and worse, for each file not read, and for each rule ignored."""
    lines = [_command(report, each, linted) for linted in report.linted for each in linted.shown(show)]
    lines += [f"::warning title=unreadable::{escaped_data(each)}" for each in report.unread]
    suppressed = report.suppressed()
    for code, reason in report.ignored.items():
        count = sum(each.finding.code == code for each in suppressed)
        title = escaped_property(f"{code} ignored")
        lines.append(f"::notice title={title}::{escaped_data(f'findings: {count}; reason: {reason}')}")
    return lines


def escaped_data(text: str) -> str:
    """``text`` as the message of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escaped_property(text: str) -> str:
    """``text`` as the value of a command's property."""
    return escaped_data(text).replace(":", "%3A").replace(",", "%2C")


def _command(report: Report, finding: Finding, linted: Linted) -> str:
    rule, place = report.rule(finding.code), place_of(finding, linted)
    properties = {"title": f"{rule.code} {rule.name}"}
    if place.file:
        file = (below_here(place.file) or Path(place.file)).as_posix()
        properties = {"file": file, **({"line": str(place.line)} if place.line else {}), **properties}
    listed = ",".join(f"{name}={escaped_property(value)}" for name, value in properties.items())
    where = f" ({finding.field})" if finding.field else ""
    text = f"{linted.claim.title}: {finding.found}{where}\nwhy: {rule.why}\ndo: {finding.do}"
    return f"::{_LEVELS[finding.severity]} {listed}::{escaped_data(text)}"
