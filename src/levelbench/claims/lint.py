"""Runs rules over claims: selection of rules, findings, what was ignored and why, and a project's settings.

Ignored findings are kept with the reason and shown with the rest, so that a report never looks cleaner than it is.
Settings (``lint.toml``, or ``[tool.levelbench.lint]`` in ``pyproject.toml``) are read from the folder where the linter
is called, never from the claim's folder: an author must not silence a reviewer.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from levelbench.claims.contradictions import contradictions
from levelbench.claims.rule import SEVERITIES, Diagnostic, Rule, Severity
from levelbench.claims.rules import all_rules
from levelbench.claims.view import Claim
from levelbench.errors import UnknownNameError, UsageError

__all__ = ["NAMES", "LintReport", "Linted", "Settings", "Suppressed", "checked_reason", "chosen_rules", "find_rule"]
__all__ += ["find_settings", "findings_of", "lint", "read_ignore", "read_settings"]


@dataclass(frozen=True)
class Suppressed:
    """A finding that was ignored, and why."""

    finding: Diagnostic
    reason: str


@dataclass(frozen=True)
class Linted:
    """One linted claim: ``source`` is what it was read from, as the user wrote it."""

    claim: Claim
    source: str
    findings: tuple[Diagnostic, ...]
    suppressed: tuple[Suppressed, ...] = ()

    def shown(self, least: Severity) -> list[Diagnostic]:
        """The findings of ``least`` severity and worse."""
        return [each for each in self.findings if _rank(each.severity) <= _rank(least)]


@dataclass(frozen=True)
class LintReport:
    """All linted claims, the rules, and what to ignore (code to reason).

    ``unread`` says why files could not be read: what they claim is unknown.
    """

    linted: tuple[Linted, ...]
    rules: tuple[Rule, ...]
    ignored: Mapping[str, str]
    unread: tuple[str, ...] = ()

    def counts(self) -> dict[Severity, int]:
        """The number of findings of each severity, without ignored ones."""
        found = Counter(each.severity for one in self.linted for each in one.findings)
        return {severity: found[severity] for severity in SEVERITIES}

    def suppressed(self) -> list[Suppressed]:
        """All ignored findings."""
        return [each for one in self.linted for each in one.suppressed]

    def fails(self, least: Severity | None) -> bool:
        """Whether there is a finding of ``least`` severity or worse, or a comparison that the gate refuses.

        With ``None`` nothing fails.
        """
        return least is not None and (self.refusals() > 0 or any(one.shown(least) for one in self.linted))

    def refusals(self) -> int:
        """How many reasons the gate has to refuse comparisons."""
        return sum(text.startswith("refuse:") for one in self.linted for text in one.claim.caveats)

    def rule(self, code: str) -> Rule:
        """The rule of that code."""
        return next(rule for rule in self.rules if rule.code == code)


def lint(
    claims: Iterable[tuple[str, Claim]], rules: Sequence[Rule] | None = None, ignore: Mapping[str, str] | None = None
) -> LintReport:
    """The findings of ``rules`` (by default all) on claims, each with what it was read from.

    ``ignore`` maps codes to reasons: their findings are kept separately, with the reason.
    """
    chosen = tuple(all_rules() if rules is None else rules)
    reasons = dict(ignore or {})
    linted = []
    for source, claim in claims:
        if against := contradictions(claim):
            claim = replace(claim, caveats=[*claim.caveats, *against])
        found = findings_of(claim, chosen)
        kept = tuple(each for each in found if each.code not in reasons)
        suppressed = tuple(Suppressed(each, reasons[each.code]) for each in found if each.code in reasons)
        linted.append(Linted(claim, source, kept, suppressed))
    return LintReport(tuple(linted), chosen, reasons)


def findings_of(claim: Claim, rules: Sequence[Rule] | None = None) -> list[Diagnostic]:
    """What the rules find in one claim, worst first, then by code; of questions, first what can change most."""
    chosen = all_rules() if rules is None else rules
    found = _asked_once([finding for rule in chosen for finding in rule.check(claim)])
    return sorted(found, key=lambda each: (_rank(each.severity), _weight(each), each.code))


_ASKED_FIRST = ("LB112", "LB102", "LB101", "LB204", "LB123", "LB132", "LB104", "LB105", "LB208", "LB103", "LB106")
"""What is not stated, by how far its answer can change the judgement: quality and spread before how it was measured."""


def _weight(finding: Diagnostic) -> int:
    if finding.severity != "not-stated" or finding.code not in _ASKED_FIRST:
        return len(_ASKED_FIRST)
    return _ASKED_FIRST.index(finding.code)


def _asked_once(found: list[Diagnostic]) -> list[Diagnostic]:
    """The findings, with the same question about several sides asked once, of the first."""
    kept: list[Diagnostic] = []
    alike: dict[tuple[str, str, str], int] = {}
    asked: Counter[int] = Counter()
    for each in found:
        # The same fact is missing elsewhere: its path without indices, and what to do about it.
        key = (each.code, re.sub(r"\[\d+\]", "", each.field), each.do)
        if each.severity != "not-stated" or key not in alike:
            alike.setdefault(key, len(kept)) if each.severity == "not-stated" else None
            kept.append(each)
        else:
            asked[alike[key]] += 1
    for at, more in asked.items():
        kept[at] = dataclasses.replace(kept[at], found=f"{kept[at].found} (and {more:,} more like it)")
    return kept


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
    """The rules that the words select: codes, beginnings of codes (``LB2``) and names. Without words, all rules."""
    wanted = [word.strip() for text in words for word in text.split(",") if word.strip()]
    if not wanted:
        return all_rules()
    codes: set[str] = set()
    for word in wanted:
        begun = {rule.code for rule in all_rules() if rule.code.startswith(word.upper())}
        codes |= begun or {find_rule(word).code}
    return tuple(rule for rule in all_rules() if rule.code in codes)


def read_ignore(texts: Iterable[str]) -> dict[str, str]:
    """Codes and reasons from texts such as ``LB107=counted by the vendor``; ``UsageError`` if a reason is missing."""
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


NAMES = ("select", "ignore", "show", "fail-on")
_LIMIT = 1 << 20


@dataclass(frozen=True)
class Settings:
    """A project's settings: codes to select, codes to ignore with their reasons, severities."""

    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = field(default_factory=dict)
    show: str | None = None
    fail_on: str | None = None


def find_settings(folder: Path) -> Settings:
    """The settings in ``folder``: those in ``lint.toml``, else in ``pyproject.toml``, else none."""
    for name in ("lint.toml", "pyproject.toml"):
        if (folder / name).is_file():
            return read_settings(folder / name)
    return Settings()


def read_settings(path: Path) -> Settings:
    """The settings in the file at ``path``; ``UsageError`` if they are invalid."""
    asked = f"reading the settings in {path}"
    try:
        with path.open("rb") as file:
            raw = file.read(_LIMIT + 1)
        if len(raw) > _LIMIT:
            raise UsageError(asked, f"it has more than {_LIMIT} bytes", "give a file of settings")
        value = tomllib.loads(raw.decode("utf-8"))
    except OSError as error:
        raise UsageError(asked, error.strerror or str(error), "give a file that can be read") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(asked, f"it is not TOML: {error}", "fix it there") from error
    if path.name == "pyproject.toml":
        value = _table(_table(_table(value, "tool"), "levelbench"), "lint")
    return _checked(value, asked)


def _table(value: dict[str, object], name: str) -> dict[str, object]:
    inside = value.get(name, {})
    return inside if isinstance(inside, dict) else {}


def _checked(value: dict[str, object], asked: str) -> Settings:
    for name in value:
        if name not in NAMES:
            raise UnknownNameError("setting of lint", name, NAMES)
    select, ignore = value.get("select", []), value.get("ignore", {})
    if not isinstance(select, list) or not all(isinstance(each, str) for each in select):
        raise UsageError(asked, "select is not a list of codes", 'write select = ["LB1", "LB204"]')
    if not isinstance(ignore, dict) or not all(isinstance(each, str) for each in ignore.values()):
        raise UsageError(
            asked, "ignore has no reasons", 'write [ignore] and a line such as LB107 = "why it is sound here"'
        )
    return Settings(tuple(select), ignore, _severity(value, "show", asked), _severity(value, "fail-on", asked))


def _severity(value: dict[str, object], name: str, asked: str) -> str | None:
    word = value.get(name)
    if word is None or isinstance(word, str):
        return word
    raise UsageError(asked, f"{name} is not text", 'write "error", "warning" or "not-stated"')
