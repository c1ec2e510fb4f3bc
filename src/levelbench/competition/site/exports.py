"""A board's data for its page's script, all boards for programs (JSON, CSV), and the feed of new entries.

A page opens from a folder, where a script may not fetch a file but may be one. So the data are JSON inside one call, in
which no character can end a script or a line, and come as columns, texts that come again and again as numbers.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import msgspec
from msgspec import Struct

from levelbench.competition.figures import COLUMNS, RankedScenario
from levelbench.competition.site.boards import counted
from levelbench.competition.site.payload import (
    BOARD_SCHEMA,
    BoardPayload,
    EntryPayload,
    FigurePayload,
    OriginFacts,
)
from levelbench.report.tables import clean

FEW_BYTES = 1 << 18
"""Up to so many bytes of steps are part of the board's own script."""

_CODED = (
    "model", "author", "organisation", "framework", "hardware", "date", "division", "mode", "signed", "reached_text",
    "lint",
)  # fmt: skip
_PLAIN = ("slug", "id", "code_url", "n", "reached", "single_run")
_FIELDS = (*_PLAIN, *_CODED, "origin", "price", "findings", "best_quality", "figures", "doubts")
_OF_ENTRY = attrgetter(*_FIELDS)
_FIGURE = ("value", "low", "high", "rank", "shared", "text")
_OF_FIGURE = attrgetter(*_FIGURE)
_UNSAFE = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}
_UNSAFE |= {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def joined_steps(payload: BoardPayload, known: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """The steps of all entries in their order as JSON; ``known`` has those of some by id, as JSON already."""
    return b"[%s]" % b",".join(
        known[each.id] if each.id in known else msgspec.json.encode(each.steps) for each in payload.entries
    )


def steps_script(steps: bytes) -> bytes:
    """The script that brings the steps when they are asked for: numbers alone, so nothing in it needs an escape.

    As a text of JSON, which a browser reads a quarter faster than the same as a script's own arrays.
    """
    return b"window.levelbench.steps(JSON.parse('" + steps + b"'));\n"


def script(payload: BoardPayload, steps: bytes = b"") -> bytes:
    """The board as the text of a script (UTF-8) that is safe in its own file and between ``<script>`` tags.

    ``steps`` are those of all entries (``joined_steps``), unless they are in a file of their own (``payload.steps``).
    Figures that are not finite become ``null``. The five characters that could end a script or a line occur in JSON
    only inside strings, where an escape means the same.
    """
    facts: dict[str, Any] = {
        name: getattr(payload, name) for name in payload.__struct_fields__ if name not in ("data", "entries")
    }
    facts["reach"] = _reach(payload)
    facts["columns"] = _columns(payload.entries)
    if not payload.steps:
        facts["runs"] = msgspec.Raw(steps or joined_steps(payload))
    text = msgspec.json.encode(facts)
    for character, escaped in _UNSAFE.items():
        text = text.replace(character, escaped)
    return b"window.levelbench.board(" + text + b");\n"


def _reach(payload: BoardPayload) -> float | None:
    """The best quality that any entry reached: where the page's slider ends."""
    known = [entry.best_quality for entry in payload.entries if entry.best_quality is not None]
    return (min(known) if payload.target.direction == "lower" else max(known)) if known else None


def _columns(entries: Sequence[EntryPayload]) -> dict[str, Any]:
    """The entries' fields as the page uses them (``assets/data.js`` makes entries of them again)."""
    # One pass over all of them: what is in an entry lies together in memory, and is fetched once.
    fields = dict(zip(_FIELDS, zip(*map(_OF_ENTRY, entries), strict=True), strict=True)) if entries else {}
    found: dict[str, Any] = {name: fields.get(name, ()) for name in _PLAIN}
    for name in _CODED:
        found[name] = _coded(fields.get(name, ()))
    found["origin"] = _coded(map(_origin, fields.get("origin", ())))
    # A line each: no text of a finding has a line's end.
    found["doubts"] = _coded("\n".join(doubts) for doubts in fields.get("doubts", ()))
    found["usd_per_hour"] = [price and price.usd_per_hour for price in fields.get("price", ())]
    found["errors"] = [findings.errors for findings in fields.get("findings", ())]
    found["warnings"] = [findings.warnings for findings in fields.get("findings", ())]
    found["curve"] = [best is not None for best in fields.get("best_quality", ())]
    figures = {}
    for column in COLUMNS:
        having = [each.get(column) for each in fields.get("figures", ())]
        if any(having):
            figures[column] = _figures(having)
    return {**found, "figures": figures}


def _figures(figures: Sequence[FigurePayload | None]) -> dict[str, Any]:
    """A column: which entries have a figure in it, and these figures' fields; a note only where there is no value."""
    having = [figure for figure in figures if figure is not None]
    found: dict[str, Any] = dict(zip(_FIGURE, zip(*map(_OF_FIGURE, having), strict=True), strict=True))
    if len(having) < len(figures):
        found["at"] = [at for at, figure in enumerate(figures) if figure is not None]
    found["note"] = _coded(figure.note if figure.value is None else "" for figure in having)
    return found


def _coded(texts: Iterable[str]) -> tuple[list[str], list[int]]:
    """The distinct texts, and which of them each one is."""
    all_of_them = list(texts)
    distinct = list(dict.fromkeys(all_of_them))
    places = {text: place for place, text in enumerate(distinct)}
    return distinct, list(map(places.__getitem__, all_of_them))


def _origin(origin: OriginFacts | None) -> str:
    """Where an entry was read from, for its badge."""
    if origin is None:
        return ""
    doubts = len(origin.doubts)
    return origin.format + (f", {doubts} doubt{'s' * (doubts > 1)}" if doubts else "")


_SCENARIO = ("scenario", "latency_bound_s", "samples_per_query")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BOUNDS = ("value", "low", "high", "rank")
_TEXTS = ("id", "page", "model", "author", "organisation", "framework", "hardware", "date", "division", "mode")
_COUNTS = ("n", "reached", "expected_with_restarts_s", "best_s")


class _Board(Struct):
    task: str
    ruleset: str
    scenario: RankedScenario | None
    target: msgspec.Raw
    page: str
    data: str
    steps: str
    generated: str
    entries: list[EntryPayload]


class _Leaderboard(Struct):
    schema: int
    title: str
    version: str
    boards: list[_Board]


def leaderboard_json(title: str, version: str, boards: Iterable[BoardPayload]) -> bytes:
    """All boards for programs: seconds and US dollars, an interval's open end as ``null``.

    ``scenario`` is that of a board apart, ``null`` on the task's own. The scripts ``data`` and ``steps`` of a board
    have the steps of its runs.
    """
    found = [
        _Board(
            board.task,
            board.ruleset.id,
            board.scenario,
            msgspec.Raw(msgspec.json.encode(board.target)),
            board.page,
            board.data,
            board.steps,
            board.generated,
            [msgspec.structs.replace(entry, steps=[]) if entry.steps else entry for entry in board.entries],
        )
        for board in boards
    ]
    return msgspec.json.encode(_Leaderboard(BOARD_SCHEMA, title, version, found)) + b"\n"


def leaderboard_csv(boards: Iterable[BoardPayload]) -> bytes:
    """All entries as one table (RFC 4180): a column each for value, bounds and rank of the five figures.

    One that is on several boards has a row of each. ``scenario`` and its condition are those of a board apart, empty on
    the task's own. Text that a spreadsheet would run as a formula gets a leading apostrophe. A figure that is not
    finite is empty.
    """
    out = io.StringIO(newline="")
    table = csv.writer(out)
    figures = [f"{column}_{name}" for column in COLUMNS for name in _BOUNDS]
    table.writerow(["task", "ruleset", *_SCENARIO, *_TEXTS, "code_url", "usd_per_hour", "signed", *figures, *_COUNTS])
    for board in boards:
        apart, same = board.scenario, [_cell(board.task), _cell(board.ruleset.id)]
        same += ["", "", ""] if apart is None else [_cell(apart.name), _number(apart.bound_s), _number(apart.samples)]
        for entry in board.entries:
            texts = (getattr(entry, name) for name in _TEXTS)
            shown = [entry.figures.get(column) for column in COLUMNS]
            bounds = (getattr(figure, name, None) for figure in shown for name in _BOUNDS)
            counts = (getattr(entry, name) for name in _COUNTS)
            price = _number(entry.price.usd_per_hour if entry.price else None)
            about = [*map(_cell, (*texts, entry.code_url or "")), price, entry.signed]
            table.writerow([*same, *about, *map(_number, bounds), *map(_number, counts)])
    return out.getvalue().encode("utf-8", "replace")


def _number(value: float | None) -> str:
    """A number as a cell, empty where there is none or it is not finite."""
    return repr(value) if value is not None and math.isfinite(value) else ""


def _cell(text: str) -> str:
    """A text as a cell that no spreadsheet runs as a formula."""
    shown = text if text.isprintable() else clean(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


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
    figures = "; ".join(
        [_figure_words(entry, board), *(f"{on.task_title}: {_figure_words(each, on)}" for each, on in sides[1:])]
    )
    address = f"{url}/{entry.page}"
    return (
        f"<entry><title>{_text(f'{board.task_title}: {entry.model}, {entry.author}')}</title>"
        f"<id>{_text(address)}</id><link href={quoteattr(address)}/><updated>{_text(entry.date)}T00:00:00Z</updated>"
        f"<author><name>{_text(entry.author)}</name></author>"
        f"<summary>{_text(f'{figures} on {entry.hardware}')}</summary></entry>\n"
    )


def _figure_words(entry: EntryPayload, board: BoardPayload) -> str:
    """The figures on one board, with how many runs or measurements they rest on."""
    figures = ", ".join(f"{column.replace('_', ' ')} {figure.text}" for column, figure in entry.figures.items())
    return f"{figures} ({counted(entry, board.ruleset.aggregation_rule)})"


def _text(text: str) -> str:
    """``text`` as XML has it: escaped, without the control characters that XML forbids."""
    return escape(clean(text))
