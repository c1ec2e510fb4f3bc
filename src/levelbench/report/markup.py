"""HTML that is escaped by construction.

The one idea: text is a ``str`` and markup is an :class:`Html`; :func:`tag` escapes the one and keeps the other, so
nothing that came from outside (a task's name, a setting, an error) can become markup by being forgotten.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from html import escape

from levelbench.report.exports import to_csv
from levelbench.report.tables import Table, clean, lay_out

__all__ = ["Html", "breakable", "csv_link", "join", "table_markup", "tag", "thinned"]

_LONG = 32
_VOID = frozenset({"meta", "br"})


class Html(str):
    """A string that is markup already."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str) -> Html:
    """An element: children are escaped unless they are :class:`Html`; ``class_`` and ``aria_label`` name attributes."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(clean(value), quote=True)}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Html:
    """The parts one after another, text escaped and without control characters."""
    return Html("".join(part if isinstance(part, Html) else escape(clean(part), quote=False) for part in parts))


def table_markup(table: Table, most: int = 500) -> Html:
    """The table in a box that scrolls, with a caption for readers that hear it; notes and footnotes below.

    At most ``most`` rows are shown; a note says how many there are.
    """
    layout = lay_out(table)
    classes = [
        ("w" if any(len(row[at]) > _LONG for row in layout.cells) else "t") if column.is_text else "n"
        for at, column in enumerate(table.columns)
    ]
    head = tag(
        "tr", *(tag("th", text, scope="col", class_=at) for text, at in zip(layout.headers, classes, strict=True))
    )
    body = []
    for first, *rest in layout.cells[:most]:
        cells = (tag("td", _cell(text, at), class_=at) for text, at in zip(rest, classes[1:], strict=True))
        body.append(tag("tr", tag("th", breakable(first), scope="row"), *cells))
    caption = tag("caption", table.title, class_="hidden")
    whole = tag("table", caption, tag("thead", head), tag("tbody", *body))
    notes = [f"({mark}) {reason}" for mark, reason in layout.footnotes] + list(table.notes)
    if len(layout.cells) > most:
        notes.append(f"The first {most} of {len(layout.cells)} rows.")
    box = tag("div", whole, class_="scroll", role="region", tabindex="0", aria_label=table.title)
    return join([box, *(tag("p", note, class_="note") for note in notes)])


def breakable(label: str) -> Html:
    """A label that may be broken after ``[``, ``/`` and commas, as in ``task[name=value,other=value]``."""
    return Html(re.sub(r"([\[,/])(?=[^\s\d])", r"\1<wbr>", join([label])))


def _cell(text: str, kind: str) -> str:
    """A cell; an interval goes on a line of its own below its value, so that wide tables fit."""
    value, bracket, interval = text.partition(" [")
    return text if kind != "n" or not bracket else join([value, " ", tag("small", f"[{interval}")])


def thinned(table: Table, most_bytes: int) -> tuple[Table, bool]:
    """The table, or evenly chosen rows of it so that its CSV stays under ``most_bytes``; whether it is whole."""
    size = len(to_csv(table).encode())
    if size <= most_bytes:
        return table, True
    step = -(-size // max(most_bytes, 1))
    return Table(table.name, table.title, table.columns, table.rows[::step], table.notes), False


def csv_link(table: Table, most_bytes: int) -> Html:
    """A link that carries the table's CSV in itself, and says if rows were left out to keep the page small."""
    shown, whole = thinned(table, most_bytes)
    data = base64.b64encode(to_csv(shown).encode()).decode("ascii")
    text = f"{len(shown.rows):,} rows as CSV" if whole else f"{len(shown.rows):,} of {len(table.rows):,} rows as CSV"
    return tag("a", text, href=f"data:text/csv;charset=utf-8;base64,{data}", download=f"{table.name}.csv")
