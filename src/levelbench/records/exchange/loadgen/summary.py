"""Reads ``mlperf_log_summary.txt``: what LoadGen prints for people, line by line.

The one idea: a line is a name, a colon and a value, and the few that are not are the early-stopping notes, which are
kept as they stand; an unknown line is passed over, since each version of LoadGen prints a little more.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from msgspec import Struct, field

from levelbench.errors import RecordError
from levelbench.records.exchange.mlperf.sources import read_bytes

__all__ = ["SUMMARY_LIMIT", "Summary", "parse_summary", "read_summary"]

SUMMARY_LIMIT = 4 * 1024 * 1024
"""The largest summary in bytes that is read."""

_NUMBER = r"([-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,3})?)"
_PERCENTILE = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)(?:th)? percentile latency \(ns\)")
_ESTIMATE = re.compile(rf"Early stopping (\d{{1,3}}(?:\.\d{{1,4}})?)(?:th)? percentile estimate: {_NUMBER}")
_PROCESSED = re.compile(r"rocessed (?:at least \d+ queries \((\d{1,18})\)|(\d{1,18}) queries)")
_LINE = re.compile(r"^\s*(?:\* )?([^:\n]{1,100}?)\s*: ?(.*)$")


class Summary(Struct, frozen=True):
    """One summary. ``scenario`` and ``mode`` are LoadGen's words; latencies are in seconds, by quantile.

    ``headline_quantile`` is the scenario's own; ``estimates_s`` are early-stopping estimates by quantile. ``figures``
    and ``parameters`` hold the other numbers by the name that the summary gives them. ``None`` was not printed.
    """

    scenario: str
    mode: str
    sut: str | None = None
    valid: bool | None = None
    checks: dict[str, bool] = field(default_factory=dict)
    queries: int | None = None
    headline_quantile: float | None = None
    quantiles_s: dict[str, float] = field(default_factory=dict)
    estimates_s: dict[str, float] = field(default_factory=dict)
    early_stopping: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    parameters: dict[str, float] = field(default_factory=dict)


def read_summary(path: str | Path) -> Summary:
    """The summary at ``path``; ``RecordError`` for a file that is none, as that of an accuracy run is none."""
    path = Path(path)
    asked = f"reading the LoadGen summary {path}"
    return parse_summary(read_bytes(path, asked, SUMMARY_LIMIT), asked)


def parse_summary(content: bytes, asked: str) -> Summary:
    """The summary in a file's bytes; raises as ``read_summary`` does."""
    sections = _sections(content.decode("latin-1"))
    head, stats = sections.get("MLPerf Results Summary", ""), sections.get("Additional Stats", "")
    words = dict(_pairs(head))
    if "Scenario" not in words or "Mode" not in words:
        do = "give the mlperf_log_summary.txt of a performance run"
        raise RecordError(asked, "it says no scenario and no mode", do)
    text, _, notes = head.partition("Early Stopping Result:")
    pairs = dict(_pairs(text))
    headline = next((match for name in pairs if (match := _PERCENTILE.fullmatch(name))), None)
    processed = _PROCESSED.search(notes)
    figures = {name: value for name, raw in [*pairs.items(), *_pairs(stats)] if (value := _number(raw)) is not None}
    return Summary(
        scenario=words["Scenario"][:100],
        mode=words["Mode"][:100],
        sut=words.get("SUT name", "")[:200] or None,
        valid={"VALID": True, "INVALID": False}.get(pairs.get("Result is", "").strip()),
        checks={
            name: raw.strip().lower() == "yes" for name, raw in pairs.items() if raw.strip().lower() in ("yes", "no")
        },
        queries=int(processed[1] or processed[2]) if processed else None,
        headline_quantile=_quantile(headline[1]) if headline else None,
        quantiles_s={
            f"{_quantile(match[1]):.10g}": value / 1e9
            for name, raw in _pairs(stats)
            if (match := _PERCENTILE.fullmatch(name)) and (value := _number(raw)) is not None
        },
        estimates_s={f"{_quantile(each[1]):.10g}": float(each[2]) / 1e9 for each in _ESTIMATE.finditer(notes)},
        early_stopping=" ".join(notes.split())[:2000],
        figures={name: value for name, value in figures.items() if not _PERCENTILE.fullmatch(name)},
        parameters={
            name: value
            for name, raw in _pairs(sections.get("Test Parameters Used", ""))
            if (value := _number(raw)) is not None
        },
    )


def _sections(text: str) -> dict[str, str]:
    """The parts between rules of equals signs, by their titles; of a title that comes twice, the first."""
    parts = re.split(r"^=+\s*$", text, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for title, body in zip(parts[1::2], parts[2::2], strict=False):
        found.setdefault(title.strip(), body)
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(match[1].strip(), match[2].strip()) for line in text.splitlines() if (match := _LINE.match(line))]


def _number(raw: str) -> float | None:
    if not re.fullmatch(_NUMBER, raw.strip(), re.ASCII):
        return None
    value = float(raw)
    return value if math.isfinite(value) else None


def _quantile(percent: str) -> float:
    return float(percent) / 100
