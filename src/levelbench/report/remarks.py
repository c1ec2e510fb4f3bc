"""What the linter says of the figures on a page: the codes next to each of them, and the findings below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from levelbench.report.markup import Html, tag
from levelbench.report.tables import clean

__all__ = ["NOTHING", "Linted", "Remark", "all_words", "lint_lines", "lint_section", "lint_words", "missing_line"]

NOTHING = "nothing found"
_MOST = 60
_MOST_CHARACTERS = 1000


class Remark(Protocol):
    """One finding: :class:`levelbench.claims.beside.Line` is one. ``side`` is a figure's label; empty: all of them."""

    @property
    def code(self) -> str:
        """Of the rule."""

    @property
    def name(self) -> str:
        """Of the rule."""

    @property
    def severity(self) -> str:
        """``error`` or ``warning``."""

    @property
    def found(self) -> str:
        """The evidence, with its numbers."""

    @property
    def do(self) -> str:
        """What settles it."""

    @property
    def side(self) -> str:
        """The label of the figure."""


class Linted(Protocol):
    """What is said of one claim: :class:`levelbench.claims.beside.Beside` is one."""

    @property
    def title(self) -> str:
        """What is claimed."""

    @property
    def task(self) -> str | None:
        """Of what task."""

    @property
    def sides(self) -> Sequence[str]:
        """The labels of its figures."""

    @property
    def lines(self) -> Sequence[Remark]:
        """The findings, the worst first."""

    @property
    def not_stated(self) -> int:
        """How many facts are missing."""


def lint_words(linted: Sequence[Linted], label: str, task: str) -> str:
    """What stands beside the figure ``label`` of ``task``: codes, or that nothing was found; empty if none looked.

    A figure that is a point of a study and no side of its own has what is said of the study as a whole.
    """
    about = [each for each in linted if label in each.sides] or [each for each in linted if each.task == task]
    return _codes(line.code for each in about for line in each.lines if line.side in ("", label)) if about else ""


def all_words(linted: Linted) -> str:
    """The same of a whole claim."""
    return _codes(line.code for line in linted.lines)


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(codes)) or NOTHING


def lint_lines(linted: Sequence[Linted]) -> list[str]:
    """Every finding as a line of text: rule, severity, figure, what was found, what to do."""
    return [
        f"{line.code} {line.name} ({line.severity}), {line.side or each.title}: {_sentence(line.found)} "
        f"{_sentence(line.do)}"
        for each in linted
        for line in each.lines
    ]


def lint_section(linted: Sequence[Linted]) -> Html:
    """The findings, each with its code, its severity, what was found and what to do; and what is not stated."""
    items = [
        tag(
            "li",
            tag("b", f"{line.code} {line.name}"),
            f" ({line.severity}), {line.side or each.title}: {_sentence(line.found)} ",
            tag("em", _sentence(line.do)),
        )
        for each in linted
        for line in each.lines
    ]
    missing = missing_line(linted)
    rest = len(items) - _MOST
    parts = [tag("ul", *items[:_MOST])] if items else [tag("p", "No error and no warning.")]
    parts += [tag("p", f"{rest} more; levelbench lint lists all.", class_="note")] if rest > 0 else []
    parts += [tag("p", missing, class_="note")] if missing else []
    return tag("section", tag("h2", "Lint"), *parts)


def missing_line(linted: Sequence[Linted]) -> str:
    """How many facts are not stated, and what lists them; empty where none is missing."""
    missing = sum(each.not_stated for each in linted)
    counted = f"{missing:,} facts are" if missing != 1 else "1 fact is"
    return f"{counted} not stated; levelbench lint lists what is missing." if missing else ""


def _sentence(text: str) -> str:
    """The text with a capital and a full stop, cut where it is very long."""
    shown = clean(text.strip())
    if len(shown) > _MOST_CHARACTERS:
        shown = f"{shown[: _MOST_CHARACTERS - 1]}…"
    return f"{shown[:1].upper()}{shown[1:].rstrip('.')}."
