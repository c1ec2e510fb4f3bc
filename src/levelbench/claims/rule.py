"""What a rule is, how its page is read, and what it finds.

A rule is two files in one folder: a module with its check, and a Markdown page that explains it. The documentation,
``lint --explain`` and SARIF all show that page, so they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Literal

from levelbench.claims.view import Claim
from levelbench.errors import DefinitionError

__all__ = ["SEVERITIES", "Diagnostic", "Rule", "Severity", "read_rule", "rule_of_page"]

Severity = Literal["error", "warning", "not-stated"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "not-stated")
"""Worst first; ``not-stated`` says that something is missing, never that somebody is guilty."""

_TITLE = re.compile(r"# (?P<code>[A-Z]{2,12}\d{3}) (?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)")
_LEAD = re.compile(r"\*(?P<about>[^*]+)\.\* (?P<why>.+)")
_EXAMPLES = re.compile(r"Guilty:\n\n(?P<bad>(?:>.*\n)+)\nInnocent:\n\n(?P<good>(?:>.*\n?)+)")
_READS = re.compile(r"It reads (?P<reads>`[^`]+`(?:, `[^`]+`)*)\. (?P<blind>.+)")
_WAY = re.compile(r"way (\d+): ")
_SECTIONS = ("Sound practice", "Examples", "What it reads, and what it cannot see")


@dataclass(frozen=True)
class Diagnostic:
    """One use of one of the ways: what was ``found`` with its numbers, what to ``do`` about it, and where it is.

    A check may leave ``code`` empty: the rule's code is then filled in.
    ``field`` names the field of the claim ("sides[0].quality.split"); ``where`` the file or place.
    """

    code: str
    severity: Severity
    found: str
    do: str
    field: str = ""
    where: str = ""


@dataclass(frozen=True)
class Rule:
    """One rule. ``check`` is a pure function of the claim; the rest is read from ``page``, which is Markdown.

    ``about`` is one of Hoefler's ways ("way 3: tuning hidden") or another subject; ``why`` is one sentence; ``source``
    is the publication behind the rule; ``reads`` names the fields of the claim that it reads; ``blind`` says what it
    cannot see.
    """

    code: str
    name: str
    about: str
    why: str
    point: str
    practice: str
    bad: str
    good: str
    source: str
    reads: tuple[str, ...]
    blind: str
    page: str
    check: Callable[[Claim], Iterable[Diagnostic]]

    @property
    def way(self) -> int:
        """The number of Hoefler's way, or 0 if it is not one."""
        found = _WAY.match(self.about)
        return int(found[1]) if found else 0


def read_rule(path: Path, check: Callable[[Claim], Iterable[Diagnostic]]) -> Rule:
    """The rule whose page is the Markdown file at ``path``: ``read_rule(Path(__file__).with_suffix(".md"), check)``.

    ``DefinitionError`` if there is no such file, or as for :func:`rule_of_page`.
    """
    try:
        page = path.read_text(encoding="utf-8")
    except OSError as error:
        found = error.strerror or str(error)
        raise DefinitionError(
            f"the page of a rule, {path}", found, "write it next to the module of the rule"
        ) from error
    return rule_of_page(page, check, str(path))


def rule_of_page(page: str, check: Callable[[Claim], Iterable[Diagnostic]], where: str = "") -> Rule:
    """The rule that ``page`` describes; ``DefinitionError`` names what is missing in a page."""
    opening, *sections = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    title, lead, *point = [each for each in opening.split("\n\n") if each.strip()] or [""] * 2
    titles, bodies = sections[::2], [each.strip() + "\n" for each in sections[1::2]]
    if tuple(titles) != _SECTIONS:
        raise _incomplete(where, f"its sections are not {', '.join(_SECTIONS)}, in this order")
    practice, examples, reads = bodies
    known, _, source = reads.partition("\n\nSource: ")
    parts = {
        "a title such as '# LB103 tuning-hidden'": _TITLE.fullmatch(title.strip()),
        "a first paragraph such as '*Way 3: tuning hidden.* Why it matters.'": _LEAD.fullmatch(_one_line(lead)),
        "'Guilty:' and 'Innocent:', each with a quotation": _EXAMPLES.fullmatch(examples),
        "'It reads `field`, `field`.' and what it cannot see": _READS.fullmatch(_one_line(known)),
    }
    for what, match in parts.items():
        if match is None:
            raise _incomplete(where, f"it lacks {what}")
    if not source.strip():
        raise _incomplete(where, "it lacks 'Source: ' in a last paragraph")
    words = {name: text for match in parts.values() if match is not None for name, text in match.groupdict().items()}
    return Rule(
        code=words["code"],
        name=words["name"],
        about=words["about"][:1].lower() + words["about"][1:],
        why=words["why"],
        point=_paragraphs("\n\n".join(point)),
        practice=_paragraphs(practice),
        bad=_paragraphs(_unquoted(words["bad"])),
        good=_paragraphs(_unquoted(words["good"])),
        source=_one_line(source).removesuffix("."),
        reads=tuple(re.findall(r"`([^`]+)`", words["reads"])),
        blind=words["blind"],
        page=page,
        check=_with_code(words["code"], check),
    )


def _with_code(code: str, check: Callable[[Claim], Iterable[Diagnostic]]) -> Callable[[Claim], Iterator[Diagnostic]]:
    """The check, with the rule's code in every finding without a code."""

    @wraps(check)
    def coded(claim: Claim) -> Iterator[Diagnostic]:
        for finding in check(claim):
            yield finding if finding.code else replace(finding, code=code)

    return coded


def _incomplete(where: str, found: str) -> DefinitionError:
    do = "write it like the pages in levelbench/claims/rules, such as lb103_tuning_hidden.md"
    return DefinitionError(f"the page of a rule{f', {where}' if where else ''}", found, do)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str) -> str:
    """Each paragraph on one line."""
    return "\n\n".join(_one_line(each) for each in text.strip().split("\n\n"))


def _unquoted(text: str) -> str:
    return "\n".join(line.removeprefix(">").strip() for line in text.splitlines())
