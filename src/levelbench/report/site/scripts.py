"""A board's data for the page's script: scripts that carry nothing but data.

The one idea: a page opens from a folder, where a script may not fetch a file but may be one. So the data are JSON
inside one call, ``window.levelbench.board({...});``, in which no character can end a script or a line. Ten thousand
entries are read within a second because they come as columns, texts that come again and again as numbers, and because
what only another target or the curves need, the steps of the runs, is in a script of its own that is asked for then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec

from levelbench.report.site.payload import COLUMNS, BoardPayload, EntryPayload, FigurePayload, OriginFacts

__all__ = ["FEW_BYTES", "joined_steps", "script", "steps_script"]

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
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
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
