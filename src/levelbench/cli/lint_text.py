"""What ``levelbench lint`` prints for people: findings by claim, a summary, a table of the rules."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from levelbench.claims.formats import place_of

if TYPE_CHECKING:
    from levelbench.claims.lint import Linted, LintReport
    from levelbench.claims.rule import Diagnostic, Rule, Severity

__all__ = ["report_lines", "rule_lines"]


def report_lines(report: LintReport, show: Severity) -> list[str]:
    """The whole report: claims that have findings, what was ignored and why, and the summary."""
    lines: list[str] = []
    for linted in report.linted:
        found, caveats = linted.shown(show), linted.claim.caveats
        if found or caveats:
            lines += [_title(linted), *(f"  {each}" for each in caveats)]
            lines += [*(line for each in found for line in _finding(report, each, linted)), ""]
    lines += [*_by_rule(report, show), *_ignored(report)]
    # A line break in a title must not look like a line of ours.
    return [line.replace("\n", " ") for line in [*lines, _summary(report, show)]]


def rule_lines(rules: tuple[Rule, ...]) -> list[str]:
    """The rules as a table in plain text."""
    width = max((len(rule.name) for rule in rules), default=0)
    about = max((len(rule.about) for rule in rules), default=0)
    return [f"{rule.code}  {rule.name:<{width}}  {rule.about:<{about}}  {rule.why}" for rule in rules]


def _title(linted: Linted) -> str:
    title, place = linted.claim.title, linted.claim.where or linted.source
    return title if place in title else f"{title} ({place})"


def _finding(report: LintReport, finding: Diagnostic, linted: Linted) -> list[str]:
    rule = report.rule(finding.code)
    place = str(place_of(finding, linted)) or finding.where
    seen = ", ".join(each for each in (place, finding.field) if each)
    lines = [f"  {finding.severity} {finding.code} {rule.name}{f' at {seen}' if seen else ''}"]
    if finding.where and finding.where.rsplit(":", 1)[0] not in place:
        lines.append(f"     in: {finding.where}")
    for name, text in (("found", finding.found), ("why", rule.why), ("do", finding.do)):
        lines += _folded(f"  {name:>5}: ", text)
    return lines


def _folded(head: str, text: str) -> list[str]:
    """Folded to the terminal; one line where there is none, for other programs to read."""
    if not sys.stdout.isatty():
        return [head + text]
    width = max(60, min(110, shutil.get_terminal_size().columns))
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    ) or [head]


def _by_rule(report: LintReport, show: Severity) -> list[str]:
    """Where there are several claims: how often each rule found something, the most frequent first."""
    counts = Counter(each.code for linted in report.linted for each in linted.shown(show))
    if len(report.linted) < 2 or not counts:
        return []
    return ["by rule", *(f"  {count:>6,} {code} {report.rule(code).name}" for code, count in counts.most_common()), ""]


def _ignored(report: LintReport) -> list[str]:
    if not report.ignored:
        return []
    suppressed = report.suppressed()
    lines = ["ignored"]
    for code, reason in sorted(report.ignored.items()):
        count = sum(each.finding.code == code for each in suppressed)
        lines.append(f"  {code}: {_plural(count, 'finding')}, because: {reason}")
    return [*lines, ""]


def _summary(report: LintReport, show: Severity) -> str:
    counts = report.counts()
    found = [_plural(counts["error"], "error"), _plural(counts["warning"], "warning")]
    text = f"{_plural(len(report.linted), 'claim')} checked against {_plural(len(report.rules), 'rule')}"
    text += f": {', '.join(found)}"
    if unsaid := counts["not-stated"]:
        text += f", {unsaid} not stated"
        text += "" if show == "not-stated" else " (--show not-stated lists them)"
    if suppressed := len(report.suppressed()):
        text += f", {suppressed} ignored"
    if report.unread:
        text += f", {_plural(len(report.unread), 'file')} not read"
    return text


def _plural(count: int, one: str) -> str:
    return f"{count:,} {one}{'' if count == 1 else 's'}"
