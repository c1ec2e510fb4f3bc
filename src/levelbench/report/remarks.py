"""The linter's remarks about the figures on a page: the codes next to each figure, and the findings below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from levelbench.report.markup import Html, tag
from levelbench.report.tables import clean

__all__ = ["NOTHING", "Remark", "Remarks", "lint_lines", "lint_section", "lint_words", "missing_line"]

NOTHING = "nothing found"
_MOST = 60
_MOST_CHARACTERS = 1000


class Remark(Struct, frozen=True):
    """One error or warning: the rule's code and name, its page in the documentation, what was found, what to do.

    ``field`` is the field of the claim that it is about; ``side`` is the label of the figure that it belongs to (a
    group's, an entry's model), empty for the claim as a whole.
    """

    code: str
    name: str
    severity: str
    found: str
    do: str
    field: str
    side: str
    page: str


class Remarks(Struct, frozen=True):
    """The linter's remarks about one claim, named ``title``; ``sides`` are the labels of its figures.

    ``lines`` has the findings, worst first; ``not_stated`` counts the missing facts.
    """

    title: str
    task: str | None
    sides: list[str]
    lines: list[Remark]
    not_stated: int

    def words(self, side: str | None = None) -> str:
        """The text for a table: ``"LB110, LB122"``, of one side or of all; or that nothing was found."""
        return _codes(each.code for each in self.lines if side is None or each.side in ("", side))


def lint_words(linted: Sequence[Remarks], label: str, task: str) -> str:
    """The text next to the figure ``label`` of ``task``: codes, or that nothing was found; empty if not linted.

    A figure that is a point of a study, but not a side, has the remarks about the whole study.
    """
    about = [each for each in linted if label in each.sides] or [each for each in linted if each.task == task]
    return _codes(line.code for each in about for line in each.lines if line.side in ("", label)) if about else ""


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(codes)) or NOTHING


def lint_lines(linted: Sequence[Remarks]) -> list[str]:
    """Every finding as a line of text: rule, severity, figure, what was found, what to do."""
    return [
        f"{line.code} {line.name} ({line.severity}), {line.side or each.title}: {_sentence(line.found)} "
        f"{_sentence(line.do)}"
        for each in linted
        for line in each.lines
    ]


def lint_section(linted: Sequence[Remarks]) -> Html:
    """The findings, each with its code, its severity, what was found and what to do; and how much is not stated."""
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


def missing_line(linted: Sequence[Remarks]) -> str:
    """How many facts are not stated, and how to list them; empty if none is missing."""
    missing = sum(each.not_stated for each in linted)
    counted = f"{missing:,} facts are" if missing != 1 else "1 fact is"
    return f"{counted} not stated; levelbench lint lists what is missing." if missing else ""


def _sentence(text: str) -> str:
    """The text with a capital and a full stop, cut if it is very long."""
    shown = clean(text.strip())
    if len(shown) > _MOST_CHARACTERS:
        shown = f"{shown[: _MOST_CHARACTERS - 1]}…"
    return f"{shown[:1].upper()}{shown[1:].rstrip('.')}."
