"""Reads ``mlperf_log_detail.txt``: LoadGen's events, in the dialect of MLPerf's training logs.

The one idea: times in it count from the start of LoadGen and not from the epoch, so the run's day comes from the event
that says it, and its length from the two events that were made for power meters.
"""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from levelbench.records.exchange.mlperf.dialects import FILE_LIMIT, Event, number_of, scan
from levelbench.records.exchange.mlperf.sources import read_bytes

__all__ = ["Detail", "parse_detail", "read_detail"]

_TIMES = "%m-%d-%Y %H:%M:%S.%f"


class Detail(Struct, frozen=True):
    """One detail log: the last number of every key, and what LoadGen complained about.

    ``duration_s`` is from ``power_begin`` to ``power_end``, to the millisecond; ``day`` is the ISO day of the test.
    ``valid`` is LoadGen's own verdict.
    """

    version: str | None = None
    day: str | None = None
    duration_s: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    valid: bool | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_detail(path: str | Path) -> Detail:
    """The log at ``path``; ``RecordError`` for a broken line, with its number, or a file without an event."""
    path = Path(path)
    asked = f"reading the LoadGen log {path}"
    return parse_detail(read_bytes(path, asked, FILE_LIMIT), asked)


def parse_detail(content: bytes, asked: str) -> Detail:
    """The log in a file's bytes; raises as ``read_detail`` does."""
    events = scan(io.BytesIO(content), asked).events
    last = {event.key: event.value for event in events}
    numbers = {key: number for key, value in last.items() if (number := number_of(value)) is not None}
    day = last.get("test_datetime")
    return Detail(
        version=_text(last.get("loadgen_version")),
        day=_day(day) if isinstance(day, str) else None,
        duration_s=_between(last.get("power_begin"), last.get("power_end")),
        figures=numbers,
        valid={"VALID": True, "INVALID": False}.get(str(last.get("result_validity"))),
        errors=_said(events, "is_error"),
        warnings=_said(events, "is_warning"),
    )


def _said(events: tuple[Event, ...], flag: str) -> list[str]:
    """The texts of the events that are marked so, each once, ten at most."""
    texts = [" ".join(str(event.value).split())[:300] for event in events if event.metadata.get(flag) is True]
    return list(dict.fromkeys(texts))[:10]


def _text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _day(text: str) -> str | None:
    try:
        return datetime.fromisoformat(text).date().isoformat()
    except ValueError:
        return None


def _between(begin: Any, end: Any) -> float | None:
    """Seconds between two of LoadGen's wall-clock texts; ``None`` unless both are there and in order."""
    try:
        seconds = (datetime.strptime(str(end), _TIMES) - datetime.strptime(str(begin), _TIMES)).total_seconds()
    except ValueError:
        return None
    return seconds if seconds >= 0 else None
