"""Tables as Markdown and CSV.

The one idea: Markdown shows the text that the terminal shows; CSV gives the numbers behind it, in base units and at
full precision, an interval as two more columns and a missing value's reason as one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from levelbench.report.tables import Absent, Cell, Column, Number, Reached, Table, Text, clean, lay_out

__all__ = ["to_csv", "to_markdown"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MARKDOWN = str.maketrans({each: f"\\{each}" for each in "\\`*_[]#|<>&~$"})


def markdown_text(text: str) -> str:
    """``text`` as Markdown that shows it literally: every mark escaped, line ends removed."""
    return clean(text).translate(_MARKDOWN)


def to_markdown(table: Table, level: int = 2) -> str:
    """The table under a heading of ``level``, as a pipe table (GitHub-flavoured Markdown)."""
    layout = lay_out(table)
    lines = [f"{'#' * level} {markdown_text(table.title)}", ""]
    lines.append(_line(markdown_text(header) for header in layout.headers))
    lines.append(_line(":---" if column.is_text else "---:" for column in table.columns))
    lines += [_line(markdown_text(cell) for cell in row) for row in layout.cells]
    below = [f"({mark}) {markdown_text(reason)}" for mark, reason in layout.footnotes]
    below += [markdown_text(note) for note in table.notes]
    return "\n".join(lines) + "\n" + "".join(f"\n{each}\n" for each in below)


def _line(cells: Iterable[str]) -> str:
    """One line of a pipe table."""
    return f"| {' | '.join(cells)} |"


def to_csv(table: Table) -> str:
    """The table as CSV (RFC 4180, lines end in CRLF), a header first.

    Text that a spreadsheet would run as a formula (it begins with ``= + - @``) gets a leading apostrophe.
    """
    spread = [_with_spread(table, at) for at in range(len(table.columns))]
    reasons = [_with_reason(table, at) for at in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(
        [name for each in zip(table.columns, spread, reasons, strict=True) for name in _names(*each)],
    )
    for row in table.rows:
        writer.writerow([value for each in zip(row, spread, reasons, strict=True) for value in _fields(*each)])
    return out.getvalue()


def _with_spread(table: Table, at: int) -> tuple[str, ...]:
    """The names of the further columns that column ``at`` needs for its spread."""
    cells = [row[at] for row in table.rows]
    if any(isinstance(cell, Reached) for cell in cells):
        return ("n", "low", "high")
    return ("low", "high") if any(isinstance(cell, Number) and cell.low is not None for cell in cells) else ()


def _with_reason(table: Table, at: int) -> bool:
    """Whether column ``at`` has a value that is missing for a reason."""
    return any(isinstance(row[at], Absent) and row[at] != Absent() for row in table.rows)


def _names(column: Column, spread: tuple[str, ...], reason: bool) -> list[str]:
    """The CSV columns of ``column``."""
    key = _guarded(column.key)
    return [key, *(f"{key}_{each}" for each in spread), *([f"{key}_reason"] if reason else [])]


def _guarded(text: str) -> str:
    """``text`` cleaned, and with an apostrophe where a spreadsheet would run it."""
    shown = clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _fields(cell: Cell, spread: tuple[str, ...], reason: bool) -> list[str]:
    """The CSV fields of ``cell``, as many as :func:`_names` gives."""
    none: float | None = None
    match cell:
        case Text(text):
            values: list[str] = [_guarded(text)]
            bounds = dict.fromkeys(spread, none)
        case Number(value, low, high):
            values, bounds = [_plain(value)], {"low": low, "high": high}
        case Reached(reached, n, low, high):
            values, bounds = [str(reached)], {"n": n, "low": low, "high": high}
        case Absent():
            values, bounds = [""], dict.fromkeys(spread, none)
    values += [_plain(bounds.get(each)) for each in spread]
    return values + ([_guarded(cell.reason) if isinstance(cell, Absent) else ""] if reason else [])


def _plain(value: float | None) -> str:
    """A number at full precision, a whole one without a decimal point; nothing for ``None``."""
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))
