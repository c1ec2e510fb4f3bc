"""The linter's report for other programs: JSON, SARIF 2.1.0 (OASIS, 2020), annotations of a GitHub workflow.

In SARIF, a rule is a ``reportingDescriptor`` with its whole page, a finding is a ``result``, and an ignored finding is
a result with a ``suppression`` whose justification is the reason. A workflow command is ``::level
key=value,key=value::message``. Characters that would end one of its parts are escaped in the way that the runner
undoes, so no text of a claim can become a command.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from levelbench import __version__
from levelbench.claims.lint import Linted, LintReport
from levelbench.claims.pages import rule_text
from levelbench.claims.reading.claim_file import lines_of, nearest_line
from levelbench.claims.rule import Diagnostic, Rule, Severity

__all__ = ["FileLine", "as_json", "as_sarif", "below_here", "escaped_data", "escaped_property", "github_lines"]
__all__ += ["place_of", "rule_json"]

_FILE_LINE = re.compile(r"(?P<file>.+?):(?P<line>[1-9]\d{0,8})")


class FileLine(NamedTuple):
    """A file and a line in it, each if known."""

    file: str | None
    line: int | None = None

    def __str__(self) -> str:
        """``file:line``, ``file``, or nothing."""
        return f"{self.file or ''}:{self.line}" if self.line else self.file or ""


def place_of(finding: Diagnostic, linted: Linted) -> FileLine:
    """The place of ``finding``: its own, the claim's, or what the user named."""
    claim = linted.claim
    if claim.read_from == "claim" and _is_file(claim.where):
        # Only the file that was read: a place named by the author may be any other file.
        changed = Path(claim.where).stat().st_mtime_ns
        return FileLine(claim.where, nearest_line(finding.field, _lines(str(Path(claim.where).absolute()), changed)))
    here = str(Path.cwd())
    for where in (finding.where, claim.where, linted.source):
        for folder in ("", claim.where):
            place = _file(where, folder, here)
            if place.file is not None:
                return place
    return FileLine(None)


def below_here(file: str) -> Path | None:
    """``file`` relative to the repository of a workflow on GitHub, or else to the current folder, as code hosts expect.

    ``None`` if it lies in neither.
    """
    for folder in (os.environ.get("GITHUB_WORKSPACE", ""), "."):
        try:
            if folder:
                return Path(file).resolve().relative_to(Path(folder).resolve())
        except (OSError, ValueError):
            continue
    return None


@lru_cache(maxsize=4096)
def _file(where: str, folder: str, here: str) -> FileLine:
    """The file, or file and line, that ``where`` names in ``folder``, relative to ``here``."""
    match = _FILE_LINE.fullmatch(where)
    for name, line in ((where, None), (match["file"], int(match["line"])) if match else ("", None)):
        path = str(Path(folder, name)) if name else ""
        if _is_file(path):
            return FileLine(path, line)
    return FileLine(None)


def _is_file(text: str) -> bool:
    try:
        return bool(text) and Path(text).is_file()
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=64)
def _lines(file: str, changed: int) -> dict[str, int]:
    """The lines of a file as of ``changed``."""
    return lines_of(Path(file).read_text(encoding="utf-8", errors="replace"))


def as_json(report: LintReport, show: Severity = "warning") -> dict[str, object]:
    """All claims with their findings of severity ``show`` and worse; the counts include all severities."""
    return {
        "schema": 1,
        "claims": [_json_claim(report, each, show) for each in report.linted],
        "counts": report.counts(),
        "shown": show,
        "ignored": dict(report.ignored),
        "rules": [rule.code for rule in report.rules],
        "unread": list(report.unread),
    }


def rule_json(rule: Rule) -> dict[str, object]:
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


def _json_claim(report: LintReport, linted: Linted, show: Severity) -> dict[str, object]:
    suppressed = [{**_json_finding(report, each.finding, linted), "reason": each.reason} for each in linted.suppressed]
    return {
        "title": linted.claim.title,
        "task": linted.claim.task,
        "read_from": linted.claim.read_from,
        "source": linted.source,
        "caveats": list(linted.claim.caveats),
        "findings": [_json_finding(report, each, linted) for each in linted.shown(show)],
        "suppressed": suppressed,
    }


def _json_finding(report: LintReport, finding: Diagnostic, linted: Linted) -> dict[str, object]:
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


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_SARIF_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "not-stated": "note"}


def as_sarif(report: LintReport, show: Severity = "warning") -> dict[str, object]:
    """One run with the findings of severity ``show`` and worse, and all ignored findings."""
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


def _descriptor(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": _plain(rule.name.replace("-", " "))},
        "fullDescription": {"text": _plain(rule.why)},
        "help": {"text": _plain(rule_text(rule)), "markdown": rule.page},
        "properties": {"tags": [f"way-{rule.way}" if rule.way else "sound-practice"], "source": rule.source},
    }


def _result(
    report: LintReport, finding: Diagnostic, linted: Linted, numbers: dict[str, int], reason: str | None
) -> dict[str, object]:
    rule = report.rule(finding.code)
    text = f"{linted.claim.title}: {finding.found}. {rule.why} {finding.do[:1].upper()}{finding.do[1:]}."
    suppressions = [] if reason is None else [{"kind": "external", "status": "accepted", "justification": reason}]
    return {
        "ruleId": rule.code,
        "ruleIndex": numbers[rule.code],
        "level": _SARIF_LEVELS[finding.severity],
        "kind": "fail",
        "message": {"text": _plain(text)},
        "locations": [_location(finding, linted)],
        # The specification (3.27.23) requires it for all results or none: an empty list is "not suppressed".
        "suppressions": suppressions,
        "properties": {"severity": finding.severity, "claim": linted.claim.title, "where": finding.where},
    }


def _location(finding: Diagnostic, linted: Linted) -> dict[str, object]:
    place = place_of(finding, linted)
    name = finding.field or linted.claim.title or "claim"
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": name, "kind": "member"}]}
    if place.file:
        # Code hosts show nothing without a line: the first line stands for the whole file.
        region = {"startLine": place.line or 1}
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place.file)}, "region": region}
    return location


def _uri(file: str) -> str:
    """A URI reference, relative if the file lies in the current folder."""
    relative = below_here(file)
    return Path(file).absolute().as_uri() if relative is None else quote(relative.as_posix())


def _plain(text: str) -> str:
    """``text`` escaped for a message: braces would be placeholders and ``[..](..)`` a link (3.11.5, 3.11.6)."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "] (")


_WORKFLOW_LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "not-stated": "notice"}


def github_lines(report: LintReport, show: Severity = "warning") -> list[str]:
    """One command for each finding of severity ``show`` and worse, each unread file and each ignored rule."""
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


def _command(report: LintReport, finding: Diagnostic, linted: Linted) -> str:
    rule, place = report.rule(finding.code), place_of(finding, linted)
    properties = {"title": f"{rule.code} {rule.name}"}
    if place.file:
        file = (below_here(place.file) or Path(place.file)).as_posix()
        properties = {"file": file, **({"line": str(place.line)} if place.line else {}), **properties}
    listed = ",".join(f"{name}={escaped_property(value)}" for name, value in properties.items())
    where = f" ({finding.field})" if finding.field else ""
    text = f"{linted.claim.title}: {finding.found}{where}\nwhy: {rule.why}\ndo: {finding.do}"
    return f"::{_WORKFLOW_LEVELS[finding.severity]} {listed}::{escaped_data(text)}"
