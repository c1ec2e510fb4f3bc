"""The report as plain data, for ``--format json``."""

from __future__ import annotations

from typing import Any

from levelbench.claims.lint import Linted, Report
from levelbench.claims.reading.places import place_of
from levelbench.claims.rule import Finding, Rule, Severity

__all__ = ["as_json", "rule_json"]


def as_json(report: Report, show: Severity = "warning") -> dict[str, Any]:
    """All claims with their findings of severity ``show`` and worse; the counts are of all severities."""
    return {
        "schema": 1,
        "claims": [_claim(report, each, show) for each in report.linted],
        "counts": report.counts(),
        "shown": show,
        "ignored": dict(report.ignored),
        "rules": [rule.code for rule in report.rules],
        "unread": list(report.unread),
    }


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule's page as plain data."""
    return {
        "code": rule.code,
        "name": rule.name,
        "way": rule.way or None,
        "why": rule.why,
        "point": rule.point,
        "practice": rule.practice,
        "bad": rule.bad,
        "good": rule.good,
        "source": rule.source,
        "reads": list(rule.reads),
        "blind": rule.blind,
    }


def _claim(report: Report, linted: Linted, show: Severity) -> dict[str, Any]:
    suppressed = [{**_finding(report, each.finding, linted), "reason": each.reason} for each in linted.suppressed]
    return {
        "title": linted.claim.title,
        "task": linted.claim.task,
        "read_from": linted.claim.read_from,
        "source": linted.source,
        "caveats": list(linted.claim.caveats),
        "findings": [_finding(report, each, linted) for each in linted.shown(show)],
        "suppressed": suppressed,
    }


def _finding(report: Report, finding: Finding, linted: Linted) -> dict[str, Any]:
    rule = report.rule(finding.code)
    place = place_of(finding, linted)
    return {
        "code": finding.code,
        "name": rule.name,
        "severity": finding.severity,
        "found": finding.found,
        "why": rule.why,
        "do": finding.do,
        "field": finding.field,
        "where": finding.where,
        "file": place.file,
        "line": place.line,
    }
