"""The newest entries as an Atom feed (RFC 4287), for whoever wants to hear of a record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice
from operator import itemgetter
from xml.sax.saxutils import escape, quoteattr

from levelbench.report.site.boards import counted
from levelbench.report.site.payload import BoardPayload, EntryPayload
from levelbench.report.tables import clean

__all__ = ["feed"]

_MOST = 50


def feed(title: str, url: str, generated: str, boards: Sequence[BoardPayload]) -> bytes:
    """The feed of the site at ``url``: its fifty newest entries, each with its figures on every board that it is on."""
    dated = ((entry.date, entry.id, entry, board) for board in boards for entry in board.entries)
    # An entry that is on several boards comes once, from the first of them on.
    same = groupby(sorted(dated, key=itemgetter(0, 1), reverse=True), itemgetter(0, 1))
    items = "".join(_item(url, [each[2:] for each in sides]) for _, sides in islice(same, _MOST))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f"<title>{_text(title)}</title><id>{_text(url)}/</id><updated>{generated}T00:00:00Z</updated>"
        f'<link rel="self" href={quoteattr(f"{url}/feed.xml")}/><link href={quoteattr(f"{url}/index.html")}/>'
        f"{items}</feed>\n"
    ).encode("utf-8", "replace")


def _item(url: str, sides: Sequence[tuple[EntryPayload, BoardPayload]]) -> str:
    entry, board = sides[0]
    figures = "; ".join([_figures(entry, board), *(f"{on.task_title}: {_figures(each, on)}" for each, on in sides[1:])])
    address = f"{url}/{entry.page}"
    return (
        f"<entry><title>{_text(f'{board.task_title}: {entry.model}, {entry.author}')}</title>"
        f"<id>{_text(address)}</id><link href={quoteattr(address)}/><updated>{_text(entry.date)}T00:00:00Z</updated>"
        f"<author><name>{_text(entry.author)}</name></author>"
        f"<summary>{_text(f'{figures} on {entry.hardware}')}</summary></entry>\n"
    )


def _figures(entry: EntryPayload, board: BoardPayload) -> str:
    """The figures on one board, with how many runs or measurements they rest on."""
    figures = ", ".join(f"{column.replace('_', ' ')} {figure.text}" for column, figure in entry.figures.items())
    return f"{figures} ({counted(entry, board.ruleset.aggregation_rule)})"


def _text(text: str) -> str:
    """``text`` as XML has it: escaped, without the control characters that XML forbids."""
    return escape(clean(text))
