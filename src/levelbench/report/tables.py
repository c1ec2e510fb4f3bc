"""Tables as data, and their text: for a terminal, as plain lines, Markdown, CSV and JSON.

A :class:`Table` has numbers in base units (seconds, bytes, joules) and reasons for missing values. ``lay_out`` turns it
into text once; the terminal, Markdown and HTML show that text, and CSV and JSON have the numbers at full precision. A
table that is too wide for a terminal is not truncated. Its headers wrap; then, if it has few rows, it is transposed,
with intervals below their values if need be; otherwise its columns continue in a second block that repeats the first
column, or as many as tell the rows apart.
"""

from __future__ import annotations

import csv
import io
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from levelbench.report.numbers import ABSENT, BYTES, ENERGY, ONE, PERCENT, TIME, USD, Unit, choose_unit, with_interval

if TYPE_CHECKING:
    from rich.console import Console

    from levelbench.measure.statistics import Estimate
    from levelbench.measure.verdict import Verdict
    from levelbench.records.figures import CeilingShare

__all__ = ["Absent", "Cell", "Column", "ColumnKind", "Number", "Reached", "Table", "Text", "TextTable", "cell_of"]
__all__ += [
    "cell_width",
    "clean",
    "error_text",
    "estimate_cell",
    "fold_text",
    "lay_out",
    "listing",
    "print_table",
    "share_cell",
    "to_csv",
]
__all__ += ["to_json", "to_markdown", "to_text", "verdict_text"]

Item = TypeVar("Item")


class ColumnKind(Enum):
    """What a column contains; a name ends in its base unit."""

    TEXT = "text"
    NUMBER = "number"
    TIME_S = "time_s"
    BYTES = "bytes"
    ENERGY_J = "energy_j"
    SHARE = "share"
    COST_USD = "cost_usd"


_UNITS: dict[ColumnKind, tuple[Unit, ...]] = {
    ColumnKind.TEXT: (Unit(""),),
    ColumnKind.NUMBER: ONE,
    ColumnKind.TIME_S: TIME,
    ColumnKind.BYTES: BYTES,
    ColumnKind.ENERGY_J: ENERGY,
    ColumnKind.SHARE: PERCENT,
    ColumnKind.COST_USD: USD,
}


@dataclass(frozen=True)
class Text:
    """A word or a sentence; it may come from outside, so every rendering escapes it."""

    text: str


@dataclass(frozen=True)
class Number:
    """A value in the column's base unit, its interval if it has one, and a short remark.

    ``observed``: ``low`` and ``high`` are the lowest and the highest of a few values.
    """

    value: float
    low: float | None = None
    high: float | None = None
    remark: str = ""
    observed: bool = False


@dataclass(frozen=True)
class Reached:
    """``reached`` of ``n`` runs; ``low`` and ``high`` are the interval of the share (Wilson), unless all reached it."""

    reached: int
    n: int
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Absent:
    """No value, and why: the reason is printed once below the table."""

    reason: str = ""


Cell = Text | Number | Reached | Absent
CellValue = Cell | str | float | bool | None


def cell_of(value: CellValue, reason: str = "") -> Cell:
    """``value`` as a cell: booleans as yes or no, and ``None`` as absent for ``reason``."""
    match value:
        case None:
            return Absent(reason)
        case bool():
            return Text("yes" if value else "no")
        case str():
            return Text(value)
        case int() | float():
            return Number(value)
    return value


@dataclass(frozen=True)
class Column:
    """``key`` names it for machines (with the base unit: ``time_s``), ``title`` for people.

    Columns of one ``series`` are shown in one unit, so that a row can be read across.
    """

    key: str
    title: str
    kind: ColumnKind = ColumnKind.TEXT
    digits: int = 3
    series: str = ""

    @property
    def is_text(self) -> bool:
        """Whether it is set flush left."""
        return self.kind is ColumnKind.TEXT


@dataclass(frozen=True)
class Table:
    """A table: every row has one cell per column; ``notes`` are sentences printed below."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"table {self.name!r} has {len(self.columns)} columns and a row of {wrong[0]} cells")

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        items: Iterable[Item],
        *columns: tuple[Column, Callable[[Item], CellValue]],
        notes: Iterable[str] = (),
    ) -> Table:
        """A row for each of ``items``; each column comes with the function that reads its cell from an item."""
        rows = tuple(tuple(cell_of(read(item)) for _, read in columns) for item in items)
        return cls(name, title, tuple(column for column, _ in columns), rows, tuple(notes))

    def only(self, kept: Sequence[int]) -> Table:
        """The same table with only the columns at the indices ``kept``."""
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[at] for at in kept), rows=rows)

    def fitted(self, width: int, first: Sequence[str] = ()) -> Table:
        """With only as many columns as fit ``width`` side by side, those with keys in ``first`` before the others."""
        layout, kept = lay_out(self), [0]
        extents = [_extent(_wrapped(layout, self, at)) for at in range(len(self.columns))]
        keys = [column.key for column in self.columns]
        for at in [*map(keys.index, filter(keys.__contains__, first)), *range(1, len(keys))]:
            if at not in kept and sum(extents[i] + len(_GAP) for i in (*kept, at)) - len(_GAP) <= width:
                kept.append(at)
        return self.only(sorted(kept))

    def without_empty(self) -> Table:
        """The same table without the columns that have neither a value nor a reason."""
        nothing = (Absent(), Text(""))
        places = range(len(self.columns))
        return self.only([at for at in places if not self.rows or any(row[at] not in nothing for row in self.rows)])

    def without_absent(self) -> Table:
        """The same table without the columns that only say why they have no value, which becomes a note."""
        absent = [at for at, column in enumerate(zip(*self.rows, strict=True)) if all(map(_is_absent, column))]
        if not absent:
            return self
        notes: dict[str, None] = {}
        for at in absent:
            title = self.columns[at].title
            for reason in [cell.reason for row in self.rows if isinstance(cell := row[at], Absent)]:
                notes[f"{ABSENT} {reason}" if reason.startswith(f"{title}:") else f"{ABSENT} {title}: {reason}"] = None
        kept = self.only([at for at in range(len(self.columns)) if at not in absent])
        return replace(kept, notes=(*notes, *self.notes))


def _is_absent(cell: Cell) -> bool:
    return isinstance(cell, Absent) and bool(cell.reason)


def listing(name: str, title: str, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of plain text: what can run here and what each item lacks, settings, differences."""
    columns = tuple(Column(header.replace(" ", "_"), header) for header in headers)
    return Table(name, title, columns, tuple(tuple(map(Text, row)) for row in rows))


@dataclass(frozen=True)
class TextTable:
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
    """A tab or line end as a space; anything else as its Python escape."""
    return " " if character in "\t\n\r" else character.encode("unicode_escape", "surrogatepass").decode("ascii")


def lay_out(table: Table) -> TextTable:
    """The table as text: each column's unit is chosen and put into its header, reasons are collected as footnotes."""
    units = [_unit(column, _cells_beside(table, at)) for at, column in enumerate(table.columns)]
    marks: dict[str, str] = {}
    cells = tuple(
        tuple(_shown(cell, column, unit, marks) for cell, column, unit in zip(row, table.columns, units, strict=True))
        for row in table.rows
    )
    headers = tuple(
        clean(f"{column.title}, {unit.symbol}" if unit.symbol else column.title)
        for column, unit in zip(table.columns, units, strict=True)
    )
    return TextTable(headers, cells, tuple((mark, clean(reason)) for reason, mark in marks.items()))


def _cells_beside(table: Table, at: int) -> list[Cell]:
    """The cells of column ``at`` and of the others of its series."""
    series = table.columns[at].series
    places = [i for i, each in enumerate(table.columns) if i == at or (series and each.series == series)]
    return [row[i] for row in table.rows for i in places]


def _unit(column: Column, cells: Sequence[Cell]) -> Unit:
    """The unit for the column's numbers; none for a column without numbers."""
    values = [cell.value for cell in cells if isinstance(cell, Number)]
    return choose_unit(values, _UNITS[column.kind]) if values else Unit("")


def _shown(cell: Cell, column: Column, unit: Unit, marks: dict[str, str]) -> str:
    """One cell as text; a reason gets a mark in ``marks``, the same mark for the same reason."""
    match cell:
        case Text(text):
            return clean(text)
        case Number(value, low, high, remark, observed):
            low, high = (None if bound is None else bound / unit.size for bound in (low, high))
            shown = with_interval(value / unit.size, low, high, column.digits, observed=observed)
            return clean(f"{shown} {remark}") if remark else shown
        case Reached(reached, n, low, high):
            interval = "" if low is None or high is None else f" [{low * 100:.0f} %, {high * 100:.0f} %]"
            return f"{reached}/{n}{interval}"
        case Absent(reason):
            return f"{ABSENT} ({marks.setdefault(reason, str(len(marks) + 1))})" if reason else ABSENT


def estimate_cell(found: Estimate | None, reason: str = "", remark: str = "", scale: float = 1.0) -> Cell:
    """The value with its interval, both times ``scale``, or the reason why there is none."""
    if found is None:
        return Absent(reason)
    inside = found.interval
    if inside is None:
        return Number(found.value * scale, remark=remark)
    return Number(found.value * scale, inside.low * scale, inside.high * scale, remark, inside.is_range)


def share_cell(share: CeilingShare | None, reason: str = "") -> Cell:
    """The share of the nearer ceiling: ``c`` for arithmetic, ``m`` for memory; none of a ceiling that is exceeded."""
    if share is not None and not share.is_possible:
        return Absent("above the measured ceiling, so one of the two is wrong (levelbench analyze roofline says which)")
    return Absent(reason) if share is None else Number(share.value, remark="m" if share.bound == "memory" else "c")


def verdict_text(found: Verdict) -> str:
    """``FASTER 0.81 [0.78, 0.84]``."""
    from levelbench.measure.verdict import ratio_text

    if found.ratio is None:
        return str(found.kind)
    if found.low is not None and found.high is not None:
        return f"{found.kind} {ratio_text(found)}"
    return f"{found.kind} {with_interval(found.ratio, found.low, found.high)}"


def error_text(value: float) -> Text:
    """A relative error in two digits."""
    return Text("exact" if value == 0 else f"{value:.1e}")


_GAP = "  "
_LABEL_WIDTH = 30
_LEAST_TEXT = 24
_TEXT_WIDTH = 48
_LONG_WORD = 16


def to_text(table: Table, width: int = 80) -> str:
    """The table as lines of at most ``width`` cells, title first, notes last; without colour or trailing blanks."""
    lines = [*_body(table, width), *_below(table, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def print_table(table: Table, console: Console) -> None:
    """Print the table to ``console`` in its width; a terminal gets bold headers and dim rules.

    A column without any value is left out; the reason is said below.
    """
    from rich.text import Text as Styled

    table = table.without_absent()
    for at, line in enumerate(_body(table, console.width)):
        style = "bold" if at == 0 else "dim" if set(line) <= {"─", " "} else ""
        console.print(Styled(line.rstrip(), style=style), soft_wrap=True)
    for line in _below(table, console.width):
        console.print(Styled(line, style="dim"), soft_wrap=True)


def cell_width(text: str) -> int:
    """The terminal cells that ``text`` takes: two for wide East Asian characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _body(table: Table, width: int) -> list[str]:
    """The title and the table: in one block if it fits ``width`` directly or transposed; otherwise in several."""
    title = clean(table.title)
    if not table.rows:
        return [title, "(nothing)"]
    layout = lay_out(table)
    columns = [_wrapped(layout, table, at) for at in range(len(table.columns))]
    if table.columns[-1].is_text and len(columns) > 2:
        # A last column of sentences takes the room that is left, if that is enough to read them.
        room = width - sum(_extent(column) + len(_GAP) for column in columns[:-1])
        if _LEAST_TEXT <= room < _extent(columns[-1]):
            columns[-1] = _wrapped(layout, table, len(columns) - 1, room)
    blocks = _blocks([_extent(column) for column in columns], width, _naming(layout, table))
    if len(blocks) > 1:
        for above, turned in (([], _turned(layout, title)), ([title], _turned_narrow(layout, width))):
            if turned and sum(map(_extent, turned)) + len(_GAP) * len(turned[1:]) <= width:
                return above + _lines(turned, [True, *[False] * len(turned[1:])])
    lines: list[str] = []
    for block in blocks:
        lines.append("" if lines else title)
        lines += _lines([columns[at] for at in block], [table.columns[at].is_text for at in block])
    return lines


def _turned(layout: TextTable, title: str) -> list[list[list[str]]]:
    """The transposed table: the title above the headers, then a column for each row, under its first cell."""
    heads = [[header] for header in layout.headers[1:]]
    return [
        [fold_text(title, _LABEL_WIDTH), *heads],
        *([fold_text(row[0], _LABEL_WIDTH), *([cell] for cell in row[1:])] for row in layout.cells),
    ]


def _turned_narrow(layout: TextTable, width: int) -> list[list[list[str]]]:
    """The transposed table with each interval below its value; nothing if a label would be broken within a word."""
    heads = [fold_text(header, _NARROW_HEAD) for header in layout.headers]
    each = (width - _extent(heads)) // len(layout.cells) - len(_GAP)
    words = [word for row in layout.cells for word in _AFTER_CUT.split(row[0])]
    if max(map(cell_width, words)) > each:
        return []
    columns = [[fold_text(row[0], each), *map(_interval_below, row[1:])] for row in layout.cells]
    return [heads, *columns]


_NARROW_HEAD = 18
_AFTER_CUT = re.compile(r"(?<=[\[,/ ])")


def _interval_below(cell: str) -> list[str]:
    value, bracket, interval = cell.partition(" [")
    return [value, f"[{interval}"] if bracket else [cell]


def _below(table: Table, width: int) -> list[str]:
    """Footnotes and notes, wrapped."""
    lines: list[str] = []
    for mark, reason in lay_out(table).footnotes:
        lines += textwrap.wrap(f"({mark}) {reason}", width, subsequent_indent="    ")
    for note in table.notes:
        lines += textwrap.wrap(clean(note), width)
    return lines


def _wrapped(layout: TextTable, table: Table, at: int, most_text: int | None = None) -> list[list[str]]:
    """Column ``at`` as cells of lines, the header first; a number's header wraps to its numbers' width."""
    cells = [row[at] for row in layout.cells]
    if table.columns[at].is_text:
        most = most_text or (_LABEL_WIDTH if at == 0 else _TEXT_WIDTH)
        body = [fold_text(cell, most) for cell in cells]
    else:
        body = [[cell] for cell in cells]
    widest = max((cell_width(line) for cell in body for line in cell), default=1)
    longest_word = max(map(cell_width, layout.headers[at].split()), default=1)
    return [fold_text(layout.headers[at], max(widest, min(longest_word, _LONG_WORD))), *body]


def fold_text(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width``, broken at blanks, else after ``[``, ``,`` or ``/``, else anywhere.

    All lines are indented as the first.
    """
    if indent := text[: len(text) - len(text.lstrip())]:
        return [indent + line for line in fold_text(text.lstrip(), max(1, width - len(indent)))]
    lines: list[str] = []
    for word in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]:
        rest = word
        while cell_width(rest) > width:
            head = rest[:width]
            while cell_width(head) > width:
                head = head[:-1]
            cut = max(head.rfind(each) for each in "[,/ ") + 1 or len(head)
            lines.append(rest[:cut])
            rest = rest[cut:]
        lines.append(rest)
    return lines


def _extent(column: list[list[str]]) -> int:
    """The width of a wrapped column."""
    return max(cell_width(line) for cell in column for line in cell)


def _naming(layout: TextTable, table: Table) -> int:
    """How many of the first columns tell the rows apart: one, unless more columns of text are needed and suffice."""
    for count, column in enumerate(table.columns, 1):
        if not column.is_text:
            break
        if len({row[:count] for row in layout.cells}) == len(layout.cells):
            return count
    return 1


def _blocks(extents: Sequence[int], width: int, naming: int) -> list[list[int]]:
    """The columns of each block, so that each fits ``width``.

    Each block begins with the ``naming`` first columns, or with the first alone if they leave no room for another.
    """
    if sum(extents[:naming]) + len(_GAP) * naming + max(extents[naming:], default=0) > width:
        naming = 1
    first = list(range(naming))
    start = sum(extents[:naming]) + len(_GAP) * (naming - 1)
    blocks, used = [first.copy()], start
    for at in range(naming, len(extents)):
        if len(blocks[-1]) > naming and used + len(_GAP) + extents[at] > width:
            blocks.append(first.copy())
            used = start
        blocks[-1].append(at)
        used += len(_GAP) + extents[at]
    return blocks


def _lines(columns: list[list[list[str]]], flush_left: list[bool]) -> list[str]:
    """One block: headers aligned at the bottom, a rule, the rows aligned at the top."""
    extents = [_extent(column) for column in columns]
    lines: list[str] = []
    for row in range(len(columns[0])):
        cells = [column[row] for column in columns]
        height = max(len(cell) for cell in cells)
        for line in range(height):
            at = [line - (height - len(cell) if row == 0 else 0) for cell in cells]
            shown = [cell[i] if 0 <= i < len(cell) else "" for cell, i in zip(cells, at, strict=True)]
            lines.append(_GAP.join(_pad(*each) for each in zip(shown, extents, flush_left, strict=True)))
        if row == 0:
            lines.append(_GAP.join("─" * extent for extent in extents))
    return lines


def _pad(text: str, extent: int, flush_left: bool) -> str:
    """``text`` padded to ``extent`` cells."""
    fill = " " * (extent - cell_width(text))
    return text + fill if flush_left else fill + text


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = str.maketrans({each: f"\\{each}" for each in "\\`*_[]#|<>&~$"})


def markdown_text(text: str) -> str:
    """``text`` as literal Markdown: markup is escaped, line ends are removed."""
    return clean(text).translate(_MARKDOWN)


def to_markdown(table: Table, level: int = 2) -> str:
    """The table under a heading of ``level``, as a pipe table (GitHub-flavoured Markdown)."""
    layout = lay_out(table)
    lines = [f"{'#' * level} {markdown_text(table.title)}", ""]
    lines.append(_pipes(markdown_text(header) for header in layout.headers))
    lines.append(_pipes(":---" if column.is_text else "---:" for column in table.columns))
    lines += [_pipes(markdown_text(cell) for cell in row) for row in layout.cells]
    below = [f"({mark}) {markdown_text(reason)}" for mark, reason in layout.footnotes]
    below += [markdown_text(note) for note in table.notes]
    return "\n".join(lines) + "\n" + "".join(f"\n{each}\n" for each in below)


def _pipes(cells: Iterable[str]) -> str:
    """One line of a pipe table."""
    return f"| {' | '.join(cells)} |"


def to_csv(table: Table) -> str:
    """The table as CSV (RFC 4180, lines end in CRLF), a header first.

    Text that a spreadsheet would run as a formula (it begins with ``= + - @``) gets a leading apostrophe.
    """
    names, rows = _full(table)
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([_guarded(name) for name in names])
    writer.writerows([_guarded(each) if isinstance(each, str) else _plain(each) for each in row] for row in rows)
    return out.getvalue()


def to_json(table: Table) -> dict[str, object]:
    """The table as plain data: ``rows`` have the columns of the CSV as keys, numbers in base units, ``None`` if absent.

    A number that is not finite is ``None`` too, for JSON has no such number.
    """
    names, rows = _full(table)
    finite = (
        {name: None if isinstance(each, float) and not math.isfinite(each) else each for name, each in zipped}
        for zipped in (zip(names, row, strict=True) for row in rows)
    )
    return {"name": table.name, "title": table.title, "rows": list(finite), "notes": list(table.notes)}


Field = str | float | None


def _full(table: Table) -> tuple[list[str], list[list[Field]]]:
    """Names and rows with everything in the cells: spreads and reasons have their own columns, if needed."""
    names: list[str] = []
    columns: list[list[list[Field]]] = []
    for at, column in enumerate(table.columns):
        cells = [row[at] for row in table.rows]
        spread: tuple[str, ...] = ()
        if any(isinstance(cell, Reached) for cell in cells):
            spread = ("n", "low", "high")
        elif any(isinstance(cell, Number) and cell.low is not None for cell in cells):
            spread = ("low", "high")
        reason = any(isinstance(cell, Absent) and cell.reason for cell in cells)
        names += [column.key, *(f"{column.key}_{each}" for each in spread), *([f"{column.key}_reason"] * reason)]
        columns.append([_fields(cell, spread, reason) for cell in cells])
    return names, [[field for fields in row for field in fields] for row in zip(*columns, strict=True)]


def _fields(cell: Cell, spread: tuple[str, ...], reason: bool) -> list[Field]:
    """The value of ``cell``, its ``spread`` and, if the column has a ``reason``, why there is none."""
    bounds: dict[str, Field] = {}
    value: Field = None
    match cell:
        case Text(text):
            value = text
        case Number(number, low, high):
            value, bounds = number, {"low": low, "high": high}
        case Reached(reached, n, low, high):
            value, bounds = reached, {"n": n, "low": low, "high": high}
    why: list[Field] = [cell.reason if isinstance(cell, Absent) else ""] * reason
    return [value, *(bounds.get(each) for each in spread), *why]


def _guarded(text: str) -> str:
    """``text`` cleaned, with an apostrophe if a spreadsheet would run it."""
    shown = clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _plain(value: float | None) -> str:
    """A number at full precision, a whole one without a decimal point; nothing for ``None``."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
