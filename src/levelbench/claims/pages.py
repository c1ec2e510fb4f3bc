"""A rule's page for the terminal, the table and the checklist of all rules, and the pages in ``docs/reference``."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from levelbench.claims.rule import Rule
from levelbench.claims.rules import all_rules, shipped_rules

__all__ = ["BEGIN", "END", "all_pages", "checklist", "rule_text", "rules_table", "with_table"]

BEGIN, END = "<!-- rules: written by levelbench lint --docs -->", "<!-- end of rules -->"

_WIDTH, _PAGE_WIDTH = 88, 120


def rule_text(rule: Rule) -> str:
    """The page for a terminal, wrapped."""
    head = f"{rule.code} {rule.name} ({rule.about})"
    parts = [("Why", rule.why), ("The point", rule.point), ("Sound practice", rule.practice)]
    parts += [("Guilty", rule.bad), ("Innocent", rule.good), ("Cannot see", rule.blind)]
    parts += [("Reads", ", ".join(rule.reads)), ("Source", rule.source)]
    return "\n\n".join([head, *(f"{title}\n{_wrapped(text)}" for title, text in parts)]) + "\n"


def rules_table(rules: Sequence[Rule], folder: str = "rules") -> str:
    """A Markdown table of rules, each with a link to its page in ``folder``."""
    lines = ["| Code | Name | About | Why |", "|---|---|---|---|"]
    for rule in rules:
        cells = (f"[{rule.code}]({folder}/{rule.code}.md)", rule.name, rule.about, _one_line(rule.why))
        lines.append("| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |")
    return "\n".join(lines) + "\n"


def with_table(page: str, rules: Sequence[Rule]) -> str:
    """``page`` with the table of rules between its two marks; ``ValueError`` if it has no marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no {BEGIN} before {END}")
    return f"{before}{BEGIN}\n{rules_table(rules)}{END}{after}"


def all_pages(lint_page: str) -> dict[str, str]:
    """Every generated page by its path below ``docs/reference``; ``lint_page`` is the current text of ``lint.md``."""
    rules = shipped_rules()
    pages = {f"rules/{rule.code}.md": rule.page for rule in rules}
    return {**pages, "lint.md": with_table(lint_page, rules), "lint-checklist.md": checklist(rules)}


def checklist(rules: Sequence[Rule] | None = None) -> str:
    """A Markdown checklist for a reviewer: one box per rule, grouped by the ways."""
    chosen = all_rules() if rules is None else rules
    lines = ["# Checklist of a performance claim", ""]
    lines += ["Tick what the claim does; what it does not say is a question for its author.", ""]
    # By way, not by code: LB121 is a second rule for way 1.
    for about in dict.fromkeys(rule.about for rule in sorted(chosen, key=lambda rule: rule.way or math.inf)):
        head, _, title = about.partition(": ") if about.startswith("way ") else ("", "", about)
        number = f"{head.removeprefix('way ')}. " if head else ""
        boxes = [_filled(f"- [ ] {rule.practice} ({rule.code})", "  ") for rule in chosen if rule.about == about]
        lines += [f"## {number}{title[:1].upper()}{title[1:]}", "", *boxes, ""]
    return "\n".join(lines).rstrip() + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _filled(text: str, indent: str = "", first: str = "") -> str:
    line = _one_line(text)
    return textwrap.fill(
        line,
        _PAGE_WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _wrapped(text: str) -> str:
    return "\n\n".join(
        textwrap.fill(_one_line(each), _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        for each in text.strip().split("\n\n")
    )
