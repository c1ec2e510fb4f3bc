"""The lines of MLPerf's logs, in the three dialects that there have been, as events.

The one idea: a log is whatever a program printed, and an event is a token somewhere in a line with JSON after it. So
other lines are passed over, and a line with a token that cannot be read is damage, said with its number.

| dialect  | since      | line |
|----------|------------|------|
| ``mllog``| v0.7, 2020 | ``:::MLLOG {"namespace", "time_ms", "event_type", "key", "value", "metadata"}`` |
| ``v0.6`` | 2019       | ``:::MLL <epoch seconds> <key>: {"value", "metadata"}`` |
| ``v0.5`` | 2018       | ``:::MLPv0.5.0 <benchmark> <epoch seconds> (<file>:<line>) <tag>[: JSON]`` |
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

from levelbench.errors import RecordError

__all__ = ["EVENT_LIMIT", "FILE_LIMIT", "LINE_LIMIT", "Dialect", "Event", "Scan", "json_value", "parse", "scan"]

FILE_LIMIT = 256 * 1024 * 1024
"""The largest log in bytes that is read."""
LINE_LIMIT = 8 * 1024 * 1024
"""The longest line in bytes."""
EVENT_LIMIT = 500_000
"""The most events of one log."""

Dialect = Literal["mllog", "v0.6", "v0.5"]
Kind = Literal["start", "end", "point"]

_TOKENS: tuple[tuple[Dialect, str], ...] = (("mllog", ":::MLLOG "), ("v0.6", ":::MLL "), ("v0.5", ":::MLPv0.5.0 "))
_MLL = re.compile(r"(\d{1,12}(?:\.\d{1,18})?) ([A-Za-z0-9_]{1,200}) ?:\s*(.+)", re.DOTALL)
_MLP = re.compile(
    r"(?P<benchmark>[\w.-]{1,100}) +(?P<time>\d{1,12}(?:\.\d{1,18})?) +\((?P<site>[^()]{0,1000})\) +"
    r"(?P<tag>[A-Za-z0-9_]{1,200}) *(?::\s*(?P<value>.+))?",
    re.DOTALL,
)
_DEFERRED = re.compile(r"\[[0-9a-f-]{8,40}\]")
"""A value that v0.5 printed from inside a graph, for a tag that was announced before."""
_KINDS: dict[str, Kind] = {"INTERVAL_START": "start", "INTERVAL_END": "end", "POINT_IN_TIME": "point"}
_LATEST_MS = 2**53
"""Beyond this a float no longer holds every millisecond, and no clock says it (the year 287396)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its line (from 1), the time in nanoseconds (of the epoch; in LoadGen's logs since its start).

    ``metadata`` names file and line of the caller (``file``, ``lineno``) where the dialect does. A v0.5 line names
    its benchmark, which is ``namespace`` here.
    """

    line: int
    time_ns: int
    key: str
    value: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "point"
    namespace: str = ""


@dataclass(frozen=True)
class Scan:
    """What a log holds: events of one dialect in order, and notes about what was passed over."""

    dialect: Dialect
    events: tuple[Event, ...]
    notes: tuple[str, ...]


def scan(file: BinaryIO, asked: str) -> Scan:
    """The events of an open log, decoded as latin-1 as the official parser does.

    A log that mixes dialects is read in its newest one; a line that repeats an event word for word (printed and logged,
    or by another rank at the same instant) counts once. Both are notes. Raises ``RecordError`` (about ``asked``) for a
    line that cannot be read, with its number, and for a file without any event or beyond the limits.
    """
    found: dict[Dialect, list[Event]] = {dialect: [] for dialect, _ in _TOKENS}
    seen: set[str] = set()
    repeated = deferred = 0
    for number, text in _lines(file, asked):
        dialect, rest = _split(text)
        if dialect is None:
            continue
        if dialect == "v0.5" and _DEFERRED.match(rest):
            deferred += 1
            continue
        if rest in seen:
            repeated += 1
            continue
        seen.add(rest)
        if len(seen) > EVENT_LIMIT:
            raise RecordError(asked, f"it has more than {EVENT_LIMIT} events", "give the log of one training run")
        try:
            found[dialect].append(parse(dialect, rest, number))
        except ValueError as error:
            raise RecordError(asked, f"line {number} is broken ({error})", "correct or remove the line") from error
    used = next((dialect for dialect, events in found.items() if events), None)
    if used is None:
        raise RecordError(asked, "no line has an event of MLPerf's (`:::MLLOG`, `:::MLL`, `:::MLPv0.5.0`)", _GIVE)
    others = sum(len(events) for dialect, events in found.items() if dialect != used)
    return Scan(used, tuple(found[used]), tuple(_notes(used, repeated, deferred, others)))


_GIVE = "give a file that MLPerf logging wrote"


def _notes(dialect: Dialect, repeated: int, deferred: int, others: int) -> Iterator[str]:
    if repeated:
        yield f"{repeated} lines repeat an event word for word and count once"
    if deferred:
        yield f"{deferred} lines give a deferred value from inside a graph and are not read"
    if others:
        yield f"{others} events of another dialect than {dialect} are not read"


def _lines(file: BinaryIO, asked: str) -> Iterator[tuple[int, str]]:
    size = number = 0
    while line := file.readline(LINE_LIMIT + 1):
        number += 1
        size += len(line)
        if len(line) > LINE_LIMIT:
            raise RecordError(asked, f"line {number} is longer than {LINE_LIMIT} bytes", _GIVE)
        if size > FILE_LIMIT:
            raise RecordError(asked, f"it is larger than {FILE_LIMIT} bytes", _GIVE)
        # A carriage return ends a line too: progress bars share theirs with what comes after them.
        for text in line.decode("latin-1").split("\r"):
            yield number, text


def _split(text: str) -> tuple[Dialect | None, str]:
    """The dialect and what follows its token, the last one in the line; the dialect is ``None`` without a token."""
    if ":::ML" not in text:
        return None, ""
    for dialect, token in _TOKENS:
        _, mark, rest = text.rpartition(token)
        if mark:
            return dialect, rest.strip()
    return None, ""


def parse(dialect: Dialect, rest: str, number: int) -> Event:
    """The event that ``rest``, what follows the token in line ``number``, says; ``ValueError`` with the reason."""
    return {"mllog": _parse_mllog, "v0.6": _parse_mll, "v0.5": _parse_mlp}[dialect](rest, number)


def _parse_mllog(rest: str, number: int) -> Event:
    fields = json_value(rest)
    if not isinstance(fields, dict):
        raise ValueError("what follows the token is not an object")
    missing = [name for name in ("key", "value", "time_ms", "metadata") if name not in fields]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    key, metadata, kind = fields["key"], fields["metadata"], fields.get("event_type", "POINT_IN_TIME")
    if not isinstance(key, str) or not isinstance(metadata, dict):
        raise ValueError("its key is not a string, or its metadata not an object")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError("its event_type is none of " + ", ".join(_KINDS))
    time_ns = _nanoseconds_of_ms(fields["time_ms"])
    return Event(number, time_ns, key, fields["value"], metadata, _KINDS[kind], str(fields.get("namespace") or ""))


def _nanoseconds_of_ms(time_ms: Any) -> int:
    """Whole nanoseconds; the official parser takes a number as a string as well."""
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float | str):
        raise ValueError("its time_ms is not a number")
    try:
        value = float(time_ms) if isinstance(time_ms, str) else time_ms
    except ValueError:
        raise ValueError("its time_ms is not a number") from None
    if not 0 <= value < _LATEST_MS:  # NaN included
        raise ValueError("its time_ms is not a time")
    return value * 1_000_000 if isinstance(value, int) else round(value * 1e6)


def _parse_mll(rest: str, number: int) -> Event:
    match = _MLL.fullmatch(rest)
    if match is None:
        raise ValueError("it does not read `<seconds> <key>: <JSON>`")
    time, key, text = match.groups()
    said = json_value(text)
    if not isinstance(said, dict) or "value" not in said:
        raise ValueError("what follows the key is not an object with a value")
    metadata = said.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is not an object")
    return Event(number, _nanoseconds(time), key, said["value"], metadata, _kind_of(key))


def _parse_mlp(rest: str, number: int) -> Event:
    match = _MLP.fullmatch(rest)
    if match is None:
        raise ValueError("it does not read `<benchmark> <seconds> (<file>:<line>) <tag>[: <JSON>]`")
    tag, text = match["tag"], match["value"]
    file, _, line = match["site"].rpartition(":")
    metadata: dict[str, Any] = {"file": file, "lineno": int(line)} if line.isdecimal() and len(line) < 10 else {}
    value = None if text is None else _lenient(text)
    if isinstance(value, dict):
        metadata |= {name: each for name, each in value.items() if name != "value"}
        value = value.get("value")
    return Event(number, _nanoseconds(match["time"]), tag, value, metadata, _kind_of(tag), match["benchmark"])


def _lenient(text: str) -> Any:
    """JSON, or the text itself: v0.5 never said what a value may be, and submitters wrote Python's ``True``."""
    try:
        return json_value(text)
    except ValueError:
        return text


def json_value(text: str) -> Any:
    """JSON with NaN and infinities, which a diverged run logs; ``ValueError`` with a short reason."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _nanoseconds(seconds: str) -> int:
    """Exact, which a float of the epoch would not be: its steps are a quarter of a microsecond."""
    whole, _, part = seconds.partition(".")
    return int(whole) * 1_000_000_000 + int(part[:9].ljust(9, "0"))


def _kind_of(key: str) -> Kind:
    return "start" if key.endswith("_start") else "end" if key.endswith("_stop") else "point"


def number_of(value: Any) -> float | None:
    """The value as a float if it is a number that a float can hold, NaN and infinities included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
