"""Runs the rules over claims: which ones, what was found, what was ignored and why.

The one idea: what is ignored is kept with its reason and shown beside the rest, so that a report never looks cleaner
than it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from levelbench.claims.rule import SEVERITIES, Finding, Rule, Severity
from levelbench.claims.rules import all_rules
from levelbench.claims.view import Claim
from levelbench.errors import UnknownNameError, UsageError

__all__ = ["Linted", "Report", "Suppressed", "checked_reason", "chosen_rules"]
__all__ += ["find_rule", "findings_of", "lint", "read_ignore"]


@dataclass(frozen=True)
class Suppressed:
    """A finding that was ignored, and why."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Linted:
    """One claim after the rules: ``source`` is what it was read from, as the user wrote it."""

    claim: Claim
    source: str
    findings: tuple[Finding, ...]
    suppressed: tuple[Suppressed, ...] = ()

    def shown(self, least: Severity) -> list[Finding]:
        """The findings of ``least`` severity and worse."""
        return [each for each in self.findings if _rank(each.severity) <= _rank(least)]


@dataclass(frozen=True)
class Report:
    """All claims after the rules, the rules themselves, and what was to be ignored (code to reason).

    ``unread`` says why files could not be read: nothing is known of what they claim.
    """

    linted: tuple[Linted, ...]
    rules: tuple[Rule, ...]
    ignored: Mapping[str, str]
    unread: tuple[str, ...] = ()

    def counts(self) -> dict[Severity, int]:
        """How many findings of each severity there are; what is ignored does not count."""
        found = Counter(each.severity for one in self.linted for each in one.findings)
        return {severity: found[severity] for severity in SEVERITIES}

    def suppressed(self) -> list[Suppressed]:
        """All that was ignored."""
        return [each for one in self.linted for each in one.suppressed]

    def fails(self, least: Severity | None) -> bool:
        """Whether there is a finding of ``least`` severity or worse; with ``None`` nothing fails."""
        return least is not None and any(one.shown(least) for one in self.linted)

    def rule(self, code: str) -> Rule:
        """The rule of that code."""
        return next(rule for rule in self.rules if rule.code == code)


def lint(
    claims: Iterable[tuple[str, Claim]], rules: Sequence[Rule] | None = None, ignore: Mapping[str, str] | None = None
) -> Report:
    """The findings of ``rules`` (all of them, if none are given) on claims, each with what it was read from.

    ``ignore`` maps codes to reasons: their findings are kept apart, with the reason.
    """
    chosen = tuple(all_rules() if rules is None else rules)
    reasons = dict(ignore or {})
    linted = []
    for source, claim in claims:
        found = findings_of(claim, chosen)
        kept = tuple(each for each in found if each.code not in reasons)
        suppressed = tuple(Suppressed(each, reasons[each.code]) for each in found if each.code in reasons)
        linted.append(Linted(claim, source, kept, suppressed))
    return Report(tuple(linted), chosen, reasons)


def findings_of(claim: Claim, rules: Sequence[Rule] | None = None) -> list[Finding]:
    """What the rules find in one claim: the worst first, then by code."""
    chosen = all_rules() if rules is None else rules
    found = [finding for rule in chosen for finding in rule.check(claim)]
    return sorted(found, key=lambda each: (_rank(each.severity), each.code))


def find_rule(name: str) -> Rule:
    """The rule of that code or name; ``UnknownNameError`` with the nearest ones if there is none."""
    wanted = name.strip().lower()
    for rule in all_rules():
        if wanted in (rule.code.lower(), rule.name):
            return rule
    known = [each for rule in all_rules() for each in (rule.code, rule.name)]
    wanted = wanted.upper() if wanted.startswith("lb") else wanted
    raise UnknownNameError("rule", wanted, known, "levelbench lint --rules lists them")


def chosen_rules(words: Iterable[str]) -> tuple[Rule, ...]:
    """The rules that the words select: codes, beginnings of codes (``LB2``) and names. Without words, all of them."""
    wanted = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if not wanted:
        return all_rules()
    codes: set[str] = set()
    for word in wanted:
        begun = {rule.code for rule in all_rules() if rule.code.startswith(word.upper())}
        codes |= begun or {find_rule(word).code}
    return tuple(rule for rule in all_rules() if rule.code in codes)


def read_ignore(texts: Iterable[str]) -> dict[str, str]:
    """Codes and reasons of texts as ``LB107=counted by the vendor``; ``UsageError`` where the reason is missing."""
    found = {}
    for text in texts:
        name, _, reason = text.partition("=")
        rule = find_rule(name)
        found[rule.code] = checked_reason(rule.code, reason)
    return found


def checked_reason(code: str, reason: str) -> str:
    """The reason on one line; ``UsageError`` if it says nothing."""
    words = " ".join(reason.strip().strip("\"'").split())
    if not any(each.isalnum() for each in words):
        raise UsageError(
            f"to ignore {code}", "no reason is given", f'write one, which every report shows: {code}="why it is sound"'
        )
    return words


def _rank(severity: Severity) -> int:
    return SEVERITIES.index(severity)
