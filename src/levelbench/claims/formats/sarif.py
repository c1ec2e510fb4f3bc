"""The report as SARIF 2.1.0 (OASIS, 2020), which code hosts and editors read.

The one idea: a rule is a ``reportingDescriptor`` with its whole page, a finding a ``result``, what is ignored a result
with a ``suppression`` whose justification is the reason. "not stated" is a ``note``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from levelbench import __version__
from levelbench.claims.lint import Linted, Report
from levelbench.claims.pages import rule_page, rule_text
from levelbench.claims.reading.places import below_here, place_of
from levelbench.claims.rule import Finding, Rule, Severity

__all__ = ["as_sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "not-stated": "note"}


def as_sarif(report: Report, show: Severity = "warning") -> dict[str, Any]:
    """One run with the findings of severity ``show`` and worse, and all that was ignored."""
    numbers = {rule.code: number for number, rule in enumerate(report.rules)}
    results = []
    for linted in report.linted:
        shown = [(each, None) for each in linted.shown(show)]
        ignored = [(each.finding, each.reason) for each in linted.suppressed]
        results += [_result(report, each, linted, numbers, reason) for each, reason in [*shown, *ignored]]
    driver = {"name": "levelbench-lint", "version": __version__, "rules": [_descriptor(rule) for rule in report.rules]}
    unread = [{"level": "error", "message": {"text": _plain(each)}} for each in report.unread]
    invocation = {"executionSuccessful": not unread, "toolExecutionNotifications": unread}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _descriptor(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": _plain(rule.name.replace("-", " "))},
        "fullDescription": {"text": _plain(rule.why)},
        "help": {"text": _plain(rule_text(rule)), "markdown": rule_page(rule)},
        "properties": {"tags": [f"way-{rule.way}" if rule.way else "sound-practice"], "source": rule.source},
    }


def _result(
    report: Report, finding: Finding, linted: Linted, numbers: dict[str, int], reason: str | None
) -> dict[str, Any]:
    rule = report.rule(finding.code)
    text = f"{linted.claim.title}: {finding.found}. {rule.why} {finding.do[:1].upper()}{finding.do[1:]}."
    suppressions = [] if reason is None else [{"kind": "external", "status": "accepted", "justification": reason}]
    return {
        "ruleId": rule.code,
        "ruleIndex": numbers[rule.code],
        "level": _LEVELS[finding.severity],
        "kind": "fail",
        "message": {"text": _plain(text)},
        "locations": [_location(finding, linted)],
        # Of all results or of none, says the specification (3.27.23): an empty list is "not suppressed".
        "suppressions": suppressions,
        "properties": {"severity": finding.severity, "claim": linted.claim.title, "where": finding.where},
    }


def _location(finding: Finding, linted: Linted) -> dict[str, Any]:
    place = place_of(finding, linted)
    name = finding.field or linted.claim.title or "claim"
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name, "kind": "member"}]}
    if place.file:
        # Code hosts show nothing without a line: the first stands for the whole file.
        region = {"startLine": place.line or 1}
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place.file)}, "region": region}
    return location


def _uri(file: str) -> str:
    """A URI reference: relative where the file lies in the current folder."""
    relative = below_here(file)
    return Path(file).absolute().as_uri() if relative is None else quote(relative.as_posix())


def _plain(text: str) -> str:
    """``text`` as a message's: braces would be placeholders and ``[..](..)`` a link (3.11.5, 3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")
