"""The fourteen checks that DAWNBench's own CI ran on a file, with their verdict on it.

The one idea: they are told apart from our further doubts, so that everybody sees what the competition itself would have
refused and what it let through; so they read the bytes as that CI did, which takes NaN for a number and a mark at the
beginning of a JSON for a fault.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from levelbench.errors import LevelbenchError
from levelbench.records.exchange.dawnbench.raw import LARGEST_JSON, LARGEST_TSV
from levelbench.records.exchange.dawnbench.tasks import TASKS, DawnTask, target_of
from levelbench.records.exchange.files import read_bytes

__all__ = ["CHECKS", "Check", "failed_checks"]

_VERSIONS = ("v1.0",)
_REQUIRED = ("version", "author", "authorEmail", "framework", "model", "hardware", "timestamp")


class Check(NamedTuple):
    """One check: its name, the mode and task (``None``: all) whose files it reads, and what it asks."""

    name: str
    mode: str
    task: DawnTask | None
    asks: str


def _checks() -> Iterator[Check]:
    for mode in ("train", "inference"):
        yield Check(f"{mode}-json", mode, None, "the JSON parses")
    for mode in ("train", "inference"):
        yield Check(f"{mode}-fields", mode, None, "required fields are there, day and version are known")
    for task in TASKS:
        yield Check(f"{task.task}-tsv", "train", task, "a TSV of its name has these columns alone, and rows")
    for task in TASKS:
        yield Check(f"{task.task}-train-threshold", "train", task, "the best quality is at the threshold or above")
    for task in TASKS:
        yield Check(f"{task.task}-inference-threshold", "inference", task, "the quality is at the threshold or above")
    yield Check("squad-f1-range", "train", TASKS[2], "every F1 lies within 0 and 1")


CHECKS = tuple(_checks())
"""All fourteen: two of syntax, two of fields, three of curves, six of thresholds, one of a range."""


def failed_checks(path: Path, task: DawnTask, mode: str) -> list[str]:
    """The name of each check that the entry at ``path`` fails, with what it found; empty if the CI let it pass."""
    entry = _Entry(path, task)
    runs: dict[str, Callable[[], str]] = {
        "json": entry.syntax,
        "fields": lambda: entry.fields(mode),
        "tsv": entry.curve,
        "train-threshold": entry.best,
        "inference-threshold": entry.quality,
        "f1-range": entry.within,
    }
    found = []
    for check in CHECKS:
        if check.mode == mode and check.task in (None, task):
            kind = check.name.removeprefix(f"{mode if check.task is None else task.task}-")
            said = runs[kind]()
            if said:
                found.append(f"{check.name}: {said}")
    return found


class _Entry:
    """One entry as the CI saw it; each method answers with what is wrong, or nothing."""

    def __init__(self, path: Path, task: DawnTask) -> None:
        self.path = path
        self.task = task
        self.record: Any = None
        self.columns: dict[str, list[float]] | None = None
        self.fault = ""
        try:
            # No utf-8-sig: a mark at the beginning is a fault to the parser that the CI used.
            self.record = json.loads(read_bytes(path, LARGEST_JSON).decode(), parse_int=float)
        except LevelbenchError as error:
            self.fault = error.found
        except (ValueError, RecursionError) as error:
            self.fault = str(error)
        self.scale: float = 10**task.places

    def syntax(self) -> str:
        return self.fault

    def fields(self, mode: str) -> str:
        if not isinstance(self.record, dict):
            return "there is no object to look into"
        for name in (*_REQUIRED, *(["latency"] if mode == "inference" else [])):
            if name not in self.record:
                return f"{name!r} is required"
        try:
            datetime.strptime(self.record["timestamp"], "%Y-%m-%d")
        except (TypeError, ValueError) as error:
            return str(error)
        version = self.record["version"]
        return "" if version in _VERSIONS else f"version {version!r} is none of {', '.join(_VERSIONS)}"

    def curve(self) -> str:
        beside = self.path.with_suffix(".tsv")
        if not beside.exists():
            return "there is no TSV"
        columns = self._read()
        if columns is None:
            return "the TSV cannot be read"
        if sorted(columns) != sorted(self.task.columns):
            return f"its columns are {', '.join(columns)}, not {', '.join(self.task.columns)}"
        # An empty curve of SQuAD was let through.
        return "it has no rows" if not any(columns.values()) and self.task.places else ""

    def best(self) -> str:
        if not isinstance(self.record, dict) or self.record.get("version") != "v1.0":
            return ""
        values = [each for each in (self._read() or {}).get(self.task.key, []) if each == each]
        if not values:
            return f"there is no {self.task.key}"
        return "" if max(values) >= self._threshold() else f"the best is {max(values):g}, below {self._threshold():g}"

    def quality(self) -> str:
        value = self.record.get(self.task.key) if isinstance(self.record, dict) else None
        if not isinstance(value, int | float):
            return f"there is no {self.task.key}"
        return "" if value >= self._threshold() else f"it is {value:g}, below {self._threshold():g}"

    def within(self) -> str:
        values = (self._read() or {}).get(self.task.key, [])
        outside = [each for each in values if not 0 <= each <= 1]
        return f"{outside[0]:g} does not" if outside else ""

    def _threshold(self) -> float:
        return target_of(self.task).threshold * self.scale

    def _read(self) -> dict[str, list[float]] | None:
        if self.columns is None:
            try:
                text = read_bytes(self.path.with_suffix(".tsv"), LARGEST_TSV).decode("utf-8-sig")
                rows = [line.split("\t") for line in text.splitlines() if line.strip()]
                names = rows[0] if rows else []
                self.columns = {name: [float(row[at]) for row in rows[1:]] for at, name in enumerate(names)}
            except (LevelbenchError, ValueError, IndexError):
                return None
        return self.columns
