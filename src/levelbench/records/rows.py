"""A run as a list shows it, and the SQL table that holds such rows.

The one idea: a row is a run's summary without its bulk (environment, phases), and rows of one specification share it,
so a hundred thousand of them fit into the memory and the second that a list may take.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from levelbench.records.reader import Status
from levelbench.records.schema import Specification, Target
from levelbench.records.summary import RunSummary

__all__ = ["COLUMNS", "ORDERS", "TABLES", "Row", "column_values"]


class Row(msgspec.Struct, frozen=True):
    """One run as the index knows it.

    ``suspect`` counts the reasons to doubt it and its contradictions; see ``RunSummary`` for the rest.
    """

    path: str
    id: str
    key: str
    seed: int
    status: Status
    reached: bool
    started: str
    time_to_accuracy_s: float | None
    given_up_s: float | None
    wall_s: float
    validation: float | None
    test: float | None
    peak_memory_bytes: float | None
    energy_j: float | None
    suspect: int
    synthetic: bool
    error: str | None
    specification: Specification

    @property
    def task(self) -> str:
        """The specification's task."""
        return self.specification.task

    @property
    def recipe(self) -> str:
        """The specification's recipe."""
        return self.specification.recipe

    @property
    def framework(self) -> str:
        """The specification's framework."""
        return self.specification.framework

    @property
    def device(self) -> str:
        """The specification's device."""
        return self.specification.device

    @property
    def settings(self) -> dict[str, int | float | str | bool]:
        """The specification's settings (shared between rows: not to be changed)."""
        return self.specification.settings

    @property
    def target(self) -> Target:
        """The specification's target."""
        return self.specification.target

    @property
    def crossing(self) -> str:
        """The specification's crossing rule."""
        return self.specification.crossing

    @property
    def clock(self) -> str:
        """The specification's clock."""
        return self.specification.clock


COLUMNS = (
    *("path", "id", "key", "seed", "status", "reached", "started", "time_to_accuracy_s", "given_up_s", "wall_s"),
    *("validation", "test", "peak_memory_bytes", "energy_j", "suspect", "synthetic", "error", "specification"),
)
"""The columns of a run that make a ``Row``, in its order; ``specification`` is a number in ``specifications``."""

ORDERS = {
    name: name
    for name in (
        *("path", "id", "key", "status", "time_to_accuracy_s", "given_up_s", "wall_s", "validation", "test"),
        *("peak_memory_bytes", "energy_j", "suspect"),
    )
} | {"started": "started_s", "seed": "CAST(seed AS INTEGER)"}
"""What rows can be ordered by, as SQL."""

TABLES = (
    "CREATE TABLE folders (path BLOB PRIMARY KEY, mtime_ns INTEGER NOT NULL)",
    "CREATE TABLE specifications (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE, task TEXT NOT NULL)",
    """CREATE TABLE runs (
        path BLOB PRIMARY KEY, folder BLOB NOT NULL, stamp INTEGER NOT NULL,
        problem TEXT, id TEXT, key TEXT, seed TEXT, status TEXT, reached INTEGER,
        started TEXT, started_s REAL, time_to_accuracy_s REAL, given_up_s REAL, wall_s REAL, validation REAL,
        test REAL, peak_memory_bytes REAL, energy_j REAL, suspect INTEGER, synthetic INTEGER, error TEXT,
        specification INTEGER
    )""",
    "CREATE INDEX runs_by_folder ON runs (folder)",
    "CREATE INDEX runs_by_id ON runs (id)",
    "CREATE INDEX runs_by_key ON runs (key)",
    "CREATE INDEX runs_by_specification ON runs (specification)",
    "CREATE INDEX runs_unreadable ON runs (path) WHERE problem IS NOT NULL",
)


def column_values(run: RunSummary) -> dict[str, Any]:
    """The columns of ``run``, and its ``task``; ``specification`` as JSON text."""
    return {
        "task": run.task,
        "id": run.id,
        "key": run.key,
        "seed": str(run.seed),
        "status": run.status,
        "reached": run.reached,
        "started": run.started,
        "started_s": _instant_s(run.started),
        "time_to_accuracy_s": run.time_to_accuracy_s,
        "given_up_s": run.given_up_s,
        "wall_s": run.wall_s,
        "validation": run.quality.get("validation"),
        "test": run.quality.get("test"),
        "peak_memory_bytes": run.peak_memory_bytes,
        "energy_j": run.energy_j,
        "suspect": len(run.suspect) + len(run.contradictions),
        "synthetic": run.synthetic,
        "error": run.error,
        "specification": msgspec.json.encode(run.specification, order="sorted").decode(),
    }


def row_of(values: tuple[Any, ...], path: str, specification: Specification, shared: dict[str, str]) -> Row:
    """The row of ``COLUMNS`` values; texts that rows repeat are kept once, in ``shared``."""
    _, identity, key, seed, status, reached, started, time_s, given_up_s, wall_s, *more = values
    validation, test, peak_memory_bytes, energy_j, suspect, synthetic, error, _ = more
    return Row(
        path=path,
        id=identity,
        key=shared.setdefault(key, key),
        seed=int(seed),
        status=cast(Status, shared.setdefault(status, status)),
        reached=bool(reached),
        started=started,
        time_to_accuracy_s=time_s,
        given_up_s=given_up_s,
        wall_s=wall_s,
        validation=validation,
        test=test,
        peak_memory_bytes=peak_memory_bytes,
        energy_j=energy_j,
        suspect=suspect,
        synthetic=bool(synthetic),
        error=error,
        specification=specification,
    )


def _instant_s(started: str) -> float:
    """Seconds since 1970 of an ISO 8601 time (UTC where it does not say), 0 for what is none."""
    try:
        instant = datetime.fromisoformat(started)
    except ValueError:
        return 0.0
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
