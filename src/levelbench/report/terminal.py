"""Tables for a terminal and for plain text: aligned columns that fit the width and never lose a digit.

The one idea: a table that is too wide is not truncated; its headers wrap, then its columns continue in a second block
that repeats the first column. A terminal gets the same lines, styled.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelbench.report.tables import Layout, Table, clean, lay_out

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_table", "to_text"]

_GAP = "  "
_LABEL = 30
_TEXT = 48
_LONG_WORD = 16


def to_text(table: Table, width: int = 80) -> str:
    """The table as lines of at most ``width`` cells, title first, notes last; no colour, no line ends in blanks."""
    lines = [clean(table.title), *_body(table, width), *_below(table, width)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def print_table(table: Table, console: Console) -> None:
    """Print the table to ``console`` in its width; a terminal gets bold headers and dim rules."""
    from rich.text import Text as Styled

    console.print(Styled(clean(table.title), style="bold"), soft_wrap=True)
    for line in _body(table, console.width):
        style = "dim" if set(line) <= {"─", " "} else ""
        console.print(Styled(line.rstrip(), style=style), soft_wrap=True)
    for line in _below(table, console.width):
        console.print(Styled(line, style="dim"), soft_wrap=True)


def cell_width(text: str) -> int:
    """How many terminal cells ``text`` takes: two for wide East Asian characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def _body(table: Table, width: int) -> list[str]:
    """The blocks of the table, an empty line between them."""
    if not table.rows:
        return ["(nothing)"]
    layout = lay_out(table)
    columns = [_wrapped(layout, table, at) for at in range(len(table.columns))]
    lines: list[str] = []
    for block in _blocks([_extent(column) for column in columns], width):
        lines += ([""] if lines else []) + _lines(
            [columns[at] for at in block], [table.columns[at].is_text for at in block]
        )
    return lines


def _below(table: Table, width: int) -> list[str]:
    """Footnotes and notes, wrapped."""
    lines: list[str] = []
    for mark, reason in lay_out(table).footnotes:
        lines += textwrap.wrap(f"({mark}) {reason}", width, subsequent_indent="    ")
    for note in table.notes:
        lines += textwrap.wrap(clean(note), width)
    return lines


def _wrapped(layout: Layout, table: Table, at: int) -> list[list[str]]:
    """Column ``at`` as cells of lines, the header first; a number's header wraps to its numbers' width."""
    cells = [row[at] for row in layout.cells]
    if table.columns[at].is_text:
        most = _LABEL if at == 0 else _TEXT
        body = [_fold(cell, most) for cell in cells]
    else:
        body = [[cell] for cell in cells]
    widest = max((cell_width(line) for cell in body for line in cell), default=1)
    longest_word = max(map(cell_width, layout.headers[at].split()), default=1)
    return [_fold(layout.headers[at], max(widest, min(longest_word, _LONG_WORD))), *body]


def _fold(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width``: at blanks, else after ``[``, ``,`` or ``/``, else anywhere."""
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


def _blocks(extents: Sequence[int], width: int) -> list[list[int]]:
    """Which columns go together so that each block fits ``width``; the first column begins each block."""
    blocks, used = [[0]], extents[0]
    for at in range(1, len(extents)):
        if len(blocks[-1]) > 1 and used + len(_GAP) + extents[at] > width:
            blocks.append([0])
            used = extents[0]
        blocks[-1].append(at)
        used += len(_GAP) + extents[at]
    return blocks


def _lines(columns: list[list[list[str]]], flush_left: list[bool]) -> list[str]:
    """One block: headers set at the bottom, a rule, the rows set at the top."""
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
    """``text`` filled up to ``extent`` cells."""
    fill = " " * (extent - cell_width(text))
    return text + fill if flush_left else fill + text
