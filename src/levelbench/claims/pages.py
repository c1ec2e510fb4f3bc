"""A rule's page, for the terminal and as Markdown; the table and the checklist of all rules.

The one idea: every word of them is in the rule itself, so that documentation and code cannot part.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from levelbench.claims.rule import Rule
from levelbench.claims.rules import all_rules

__all__ = [
    "BEGIN",
    "END",
    "WAYS",
    "all_pages",
    "checklist",
    "origin",
    "rule_page",
    "rule_text",
    "rules_table",
    "with_table",
]

WAYS = (
    "Accuracy ignored when scaling",
    "No held-out quality",
    "Tuning hidden",
    "Unequal hardware",
    "Kernels only",
    "No input",
    "The highest number of operations",
    "Options A for speed, B for accuracy",
    "Huge inputs",
    "Just the right time",
    "Weak for strong scaling",
    "A chosen comparison",
)
"""Hoefler's twelve ways, in our words; the first is number 1."""

BEGIN, END = "<!-- rules: written by levelbench lint --docs -->", "<!-- end of rules -->"

_FAMILIES = {"2": "Sound measurement", "3": "Pitfalls of open competitions"}
_WIDTH, _PAGE_WIDTH = 88, 120


def origin(rule: Rule) -> str:
    """Which of the ways the rule is about, or of which family it is."""
    if rule.way:
        return f"way {rule.way}: {WAYS[rule.way - 1][:1].lower()}{WAYS[rule.way - 1][1:]}"
    return _FAMILIES[rule.code[2]].lower()


def rule_text(rule: Rule) -> str:
    """The page for a terminal, wrapped."""
    head = f"{rule.code} {rule.name} ({origin(rule)})"
    parts = [("Why", rule.why), ("The point", rule.point), ("Sound practice", rule.practice)]
    parts += [("Guilty", rule.bad), ("Innocent", rule.good), ("Cannot see", rule.blind)]
    parts += [("Reads", ", ".join(rule.reads)), ("Source", rule.source)]
    return "\n\n".join([head, *(f"{title}\n{_wrapped(text)}" for title, text in parts)]) + "\n"


def rule_page(rule: Rule) -> str:
    """The page as Markdown."""
    fields = ", ".join(f"`{each}`" for each in rule.reads)
    return f"""# {rule.code} {rule.name}

{_filled(f"*{origin(rule)[:1].upper()}{origin(rule)[1:]}.* {rule.why}")}

{_paragraphs(rule.point)}

## Sound practice

{_paragraphs(rule.practice)}

## Examples

Guilty:

{_quoted(rule.bad)}

Innocent:

{_quoted(rule.good)}

## What it reads, and what it cannot see

{_filled(f"It reads {fields}. {rule.blind}")}

{_filled(f"Source: {rule.source}.")}
"""


def rules_table(rules: Sequence[Rule], folder: str = "rules") -> str:
    """A Markdown table of rules, each with a link to its page in ``folder``."""
    lines = ["| Code | Name | About | Why |", "|---|---|---|---|"]
    for rule in rules:
        cells = (f"[{rule.code}]({folder}/{rule.code}.md)", rule.name, origin(rule), _one_line(rule.why))
        lines.append("| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |")
    return "\n".join(lines) + "\n"


def with_table(page: str, rules: Sequence[Rule]) -> str:
    """``page`` with the table of rules between its two marks; ``ValueError`` where it has no marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no {BEGIN} before {END}")
    return f"{before}{BEGIN}\n{rules_table(rules)}{END}{after}"


def all_pages(lint_page: str) -> dict[str, str]:
    """Every generated page by its path below ``docs``; ``lint_page`` is the text of ``lint.md`` as it is."""
    rules = all_rules()
    pages = {f"rules/{rule.code}.md": rule_page(rule) for rule in rules}
    return {**pages, "lint.md": with_table(lint_page, rules), "lint-checklist.md": checklist(rules)}


def checklist(rules: Sequence[Rule] | None = None) -> str:
    """A Markdown checklist for a reviewer: one box a rule, grouped by the ways."""
    chosen = all_rules() if rules is None else rules
    lines = ["# Checklist of a performance claim", ""]
    lines += ["Tick what the claim does; what it does not say is a question to its author.", ""]
    for number, title in enumerate(WAYS, 1):
        lines += _boxes(f"{number}. {title}", [rule for rule in chosen if rule.way == number])
    for digit, title in _FAMILIES.items():
        lines += _boxes(title, [rule for rule in chosen if not rule.way and rule.code[2] == digit])
    return "\n".join(lines).rstrip() + "\n"


def _boxes(title: str, rules: Iterable[Rule]) -> list[str]:
    boxes = [_filled(f"- [ ] {rule.practice} ({rule.code})", "  ") for rule in rules]
    return [f"## {title}", "", *boxes, ""] if boxes else []


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


def _paragraphs(text: str) -> str:
    return "\n\n".join(_filled(each) for each in text.strip().split("\n\n"))


def _quoted(text: str) -> str:
    return "\n>\n".join(_filled(each, "> ", "> ") for each in text.strip().split("\n\n"))


def _wrapped(text: str) -> str:
    return "\n\n".join(
        textwrap.fill(_one_line(each), _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        for each in text.strip().split("\n\n")
    )
