"""HTML that is escaped by construction, and the style of every page: one style sheet for light, dark, paper and phone.

Text is a ``str`` and markup is an :class:`Html`; :func:`tag` escapes text and keeps markup, so external text (a task's
name, a setting, an error) cannot become markup by mistake. Every colour is a CSS variable. The series are Okabe and
Ito's colour-blind-safe set, darkened on light and lightened on dark for contrast, each with its dash pattern.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

from levelbench.report.tables import Table, clean, lay_out, to_csv

__all__ = ["DARK", "DASHES", "LIGHT", "PHASES", "SERIES", "Html", "breakable", "csv_link", "join", "style_sheet"]
__all__ += ["tag", "thinned", "to_html", "variables"]

# (on light, on dark)
SERIES = (
    ("#0072b2", "#56b4e9"),
    ("#c04e00", "#f0904a"),
    ("#00805c", "#2fc89a"),
    ("#a8457f", "#e08fc0"),
    ("#8a6a00", "#e6b400"),
    ("#4b4f9e", "#a3a8f0"),
    ("#5f5f5f", "#b5b5b5"),
    ("#0b7f8f", "#4fd0e0"),
)

# Solid, dashed, dotted, dash-dotted: offset and lengths in multiples of the line's width.
DASHES = ((0, ()), (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))

# Paul Tol's "muted" scheme ("Colour Schemes", SRON/EPS/TN/09-002, 2021), one per phase, in the timeline's order.
PHASES = {
    "prepare": ("#882255", "#c2608f"),
    "compile": ("#aa4499", "#d27fc4"),
    "data": ("#cc6677", "#e08a98"),
    "forward": ("#332288", "#7d70d8"),
    "backward": ("#4a9fd0", "#88ccee"),
    "communicate": ("#117733", "#3fae66"),
    "update": ("#44aa99", "#5cc7b5"),
    "evaluate": ("#b8a53f", "#ddcc77"),
    "checkpoint": ("#999933", "#bdbd55"),
    "other": ("#a0a0a0", "#8a8a8a"),
    "train": ("#4b5fb0", "#8f9fe8"),
    "environment": ("#7a6a53", "#b3a188"),
}

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f24",
    "soft": "#57606a",
    "faint": "#c9ced6",
    "panel": "#f5f7f9",
    "link": "#0057a8",
    "good": "#116b3a",
    "bad": "#a5201a",
    "open": "#7a5200",
}
DARK = {
    "paper": "#14171b",
    "ink": "#e6e9ed",
    "soft": "#a0a9b4",
    "faint": "#444c56",
    "panel": "#1d2127",
    "link": "#79b8ff",
    "good": "#5fd08f",
    "bad": "#ff8a80",
    "open": "#f0c05a",
}


def style_sheet() -> str:
    """The whole style sheet; paper is always printed light."""
    light, dark = variables(LIGHT, 0), variables(DARK, 1)
    rules = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{rules}"


def variables(base: dict[str, str], which: int) -> str:
    """The declarations of one colour scheme."""
    named: Iterable[tuple[str, str]] = (
        *base.items(),
        *((f"series-{at}", pair[which]) for at, pair in enumerate(SERIES)),
        *((f"phase-{name}", pair[which]) for name, pair in PHASES.items()),
    )
    return ";".join(f"--{name}:{value}" for name, value in named)


_LONG = 32
_VOID = frozenset({"meta", "br"})


class Html(str):
    """A string that is already markup."""

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
    """The parts joined; text is escaped and loses control characters."""
    return Html("".join(part if isinstance(part, Html) else escape(clean(part), quote=False) for part in parts))


def to_html(table: Table, most: int = 500) -> Html:
    """The table in a scrolling box, with a caption for screen readers, and notes and footnotes below.

    On a phone or a tablet every row is a card, which names the column of each of its values.
    At most ``most`` rows are shown; a note says how many there are.
    """
    layout = lay_out(table)
    classes = [
        ("w" if any(len(row[at]) > _LONG for row in layout.cells) else "t") if column.is_text else "n"
        for at, column in enumerate(table.columns)
    ]
    head = tag(
        "tr",
        *(tag("th", _header(text), scope="col", class_=at) for text, at in zip(layout.headers, classes, strict=True)),
    )
    body = []
    for first, *rest in layout.cells[:most]:
        named = zip(rest, classes[1:], layout.headers[1:], strict=True)
        cells = (tag("td", _cell(text, kind), class_=kind, data_of=header) for text, kind, header in named)
        body.append(tag("tr", tag("th", breakable(first), scope="row"), *cells))
    caption = tag("caption", table.title, class_="hidden")
    whole = tag("table", caption, tag("thead", head), tag("tbody", *body), class_="cards")
    notes = [f"({mark}) {reason}" for mark, reason in layout.footnotes] + list(table.notes)
    if len(layout.cells) > most:
        notes.append(f"The first {most} of {len(layout.cells)} rows.")
    box = tag("div", whole, class_="scroll", role="group", tabindex="0", aria_label=table.title)
    return join([box, *(tag("p", note, class_="note") for note in notes)])


def breakable(label: str) -> Html:
    """A label that may be broken after ``[``, ``/`` and commas, such as ``task[name=value,other=value]``."""
    return Html(re.sub(r"([\[,/])(?=[^\s\d])", r"\1<wbr>", join([label])))


def _header(text: str) -> str:
    return breakable(text) if "[" in text else text


def _cell(text: str, kind: str) -> str:
    """A cell; an interval is on a separate line below its value, so that wide tables fit."""
    value, bracket, interval = text.partition(" [")
    return text if kind != "n" or not bracket else join([value, " ", tag("small", f"[{interval}")])


def thinned(table: Table, most_bytes: int) -> tuple[Table, bool]:
    """The table, or evenly chosen rows of it to keep its CSV under ``most_bytes``, and whether it is complete."""
    size = len(to_csv(table).encode())
    if size <= most_bytes:
        return table, True
    step = -(-size // max(most_bytes, 1))
    return Table(table.name, table.title, table.columns, table.rows[::step], table.notes), False


def csv_link(table: Table, most_bytes: int) -> Html:
    """A link that contains the table's CSV, and says if rows were left out to keep the page small."""
    shown, whole = thinned(table, most_bytes)
    data = base64.b64encode(to_csv(shown).encode()).decode("ascii")
    text = f"{len(shown.rows):,} rows as CSV" if whole else f"{len(shown.rows):,} of {len(table.rows):,} rows as CSV"
    return tag("a", text, href=f"data:text/csv;charset=utf-8;base64,{data}", download=f"{table.name}.csv")
