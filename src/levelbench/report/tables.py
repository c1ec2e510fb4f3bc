"""Tables as data: typed cells under columns that know their unit, laid out once for every rendering.

The one idea: a :class:`Table` holds numbers in base units (seconds, bytes, joules) and reasons for what is missing;
:func:`lay_out` turns it into text once, and the terminal, Markdown and HTML print that same text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from levelbench.report.numbers import ABSENT, BYTES, ENERGY, ONE, PERCENT, TIME, Unit, choose_unit, with_interval

__all__ = ["Absent", "Cell", "Column", "Kind", "Layout", "Number", "Reached", "Table", "Text", "clean", "lay_out"]


class Kind(Enum):
    """What a column holds; a name ends in its base unit."""

    TEXT = "text"
    NUMBER = "number"
    TIME_S = "time_s"
    BYTES = "bytes"
    ENERGY_J = "energy_j"
    SHARE = "share"


_UNITS: dict[Kind, tuple[Unit, ...]] = {
    Kind.TEXT: (Unit(""),),
    Kind.NUMBER: ONE,
    Kind.TIME_S: TIME,
    Kind.BYTES: BYTES,
    Kind.ENERGY_J: ENERGY,
    Kind.SHARE: PERCENT,
}


@dataclass(frozen=True)
class Text:
    """A word or a sentence; it may come from outside, and every rendering escapes it."""

    text: str


@dataclass(frozen=True)
class Number:
    """A value in the column's base unit, its interval if it has one, and a short remark."""

    value: float
    low: float | None = None
    high: float | None = None
    remark: str = ""


@dataclass(frozen=True)
class Reached:
    """``reached`` of ``n`` runs; ``low`` and ``high`` are the interval of the share (Wilson), where it is not all."""

    reached: int
    n: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Absent:
    """No value, and why: the reason is printed once below the table."""

    reason: str = ""


Cell = Text | Number | Reached | Absent


@dataclass(frozen=True)
class Column:
    """``key`` names it for machines (with the base unit: ``time_s``), ``title`` for people."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    digits: int = 3

    @property
    def is_text(self) -> bool:
        """Whether it is set flush left."""
        return self.kind is Kind.TEXT


@dataclass(frozen=True)
class Table:
    """A table: every row has one cell a column; ``notes`` are sentences printed below."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.name!r} has {len(self.columns)} columns and a row of {wrong[0]} cells")

    def without_empty(self) -> Table:
        """The same table without the columns in which nothing was measured and nothing explains why."""
        kept = [
            at
            for at in range(len(self.columns))
            if any(row[at] not in (Absent(), Text("")) for row in self.rows) or not self.rows
        ]
        columns = tuple(self.columns[at] for at in kept)
        return Table(
            self.name, self.title, columns, tuple(tuple(row[at] for at in kept) for row in self.rows), self.notes
        )


@dataclass(frozen=True)
class Layout:
    """A table as text: ``headers`` and ``cells`` (rows of the same length), footnotes as ``(mark, reason)``."""

    headers: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    footnotes: tuple[tuple[str, str], ...]


def clean(text: str) -> str:
    """``text`` with control, format and surrogate characters as escapes: safe for a terminal and for XML."""
    if text.isprintable():
        return text
    return "".join(
        character if unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Cn", "Co") else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    """A tabulator or line end as a space; anything else as its Python escape."""
    return " " if character in "\t\n\r" else character.encode("unicode_escape", "surrogatepass").decode("ascii")


def lay_out(table: Table) -> Layout:
    """The table as text: a unit chosen for each column and put into its header, reasons gathered as footnotes."""
    units = [_unit(column, [row[at] for row in table.rows]) for at, column in enumerate(table.columns)]
    marks: dict[str, str] = {}
    cells = tuple(
        tuple(_shown(cell, column, unit, marks) for cell, column, unit in zip(row, table.columns, units, strict=True))
        for row in table.rows
    )
    headers = tuple(
        clean(f"{column.title}, {unit.symbol}" if unit.symbol else column.title)
        for column, unit in zip(table.columns, units, strict=True)
    )
    return Layout(headers, cells, tuple((mark, clean(reason)) for reason, mark in marks.items()))


def _unit(column: Column, cells: Sequence[Cell]) -> Unit:
    """The unit for the column's numbers; none for a column without a number."""
    values = [cell.value for cell in cells if isinstance(cell, Number)]
    return choose_unit(values, _UNITS[column.kind]) if values else Unit("")


def _shown(cell: Cell, column: Column, unit: Unit, marks: dict[str, str]) -> str:
    """One cell as text; a reason gets a mark in ``marks``, the same for the same reason."""
    match cell:
        case Text(text):
            return clean(text)
        case Number(value, low, high, remark):
            low, high = (None if bound is None else bound / unit.size for bound in (low, high))
            shown = with_interval(value / unit.size, low, high, column.digits)
            return clean(f"{shown} {remark}") if remark else shown
        case Reached(reached, n, low, high):
            interval = "" if low is None or high is None else f" [{low * 100:.0f} %, {high * 100:.0f} %]"
            return f"{reached}/{n}{interval}"
        case Absent(reason):
            return f"{ABSENT} ({marks.setdefault(reason, str(len(marks) + 1))})" if reason else ABSENT
