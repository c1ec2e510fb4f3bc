"""A run as a list shows it, and the SQL table that holds such rows.

A row is a run's summary without its bulk (environment, phases), and rows of one specification share it,
so a hundred thousand of them fit into the memory and the second that a list may take.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from levelbench.errors import RecordError
from levelbench.records.reader import Status
from levelbench.records.schema import Specification, Target
from levelbench.records.summary import RunSummary

__all__ = ["COLUMNS", "ORDERS", "TABLES", "Row", "column_values", "differing", "each_once", "ordered", "row_of"]
__all__ += ["row_of_run", "two_of_one_id"]


class Row(msgspec.Struct, frozen=True):
    """One run as the index knows it.

    ``suspect`` counts the reasons to doubt it and its contradictions; ``checksum`` is that of its last line, which
    covers the whole file (empty for one without checksums). See ``RunSummary`` for the rest.
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
    source_digest: str = ""
    checksum: str = ""

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
    *("source_digest", "checksum"),
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
        specification INTEGER, source_digest TEXT, checksum TEXT
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
        "source_digest": run.source_digest,
        "checksum": run.checksum,
    }


def row_of(values: tuple[Any, ...], path: str, specification: Specification, shared: dict[str, str]) -> Row:
    """The row of ``COLUMNS`` values; texts that rows repeat are kept once, in ``shared``."""
    _, identity, key, seed, status, reached, started, time_s, given_up_s, wall_s, *more = values
    validation, test, peak_memory_bytes, energy_j, suspect, synthetic, error, _, source_digest, checksum = more
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
        source_digest=shared.setdefault(source_digest, source_digest),
        checksum=checksum,
    )


def row_of_run(run: RunSummary) -> Row:
    """The row of a run that no index knows."""
    values = column_values(run)
    return row_of(tuple(values.get(name) for name in COLUMNS), run.path, run.specification, {})


def each_once(rows: Iterable[Row], copies: list[tuple[Row, Row]]) -> Iterator[Row]:
    """Each run once, wherever its files lie; the others go into ``copies``, each with the first of its id."""
    seen: dict[str, Row] = {}
    for row in rows:
        first = seen.setdefault(row.id, row)
        if first is row:
            yield row
        else:
            copies.append((first, row))


def differing(copies: Iterable[tuple[Row, Row]]) -> list[RecordError]:
    """Why those that are not as the first of their id are no copies of it: by checksum, or else by what they show."""
    return [
        two_of_one_id(one.id, one.path, other.path)
        for one, other in copies
        if msgspec.structs.replace(other, path=one.path) != one
    ]


def two_of_one_id(identity: str, one: object, other: object) -> RecordError:
    """The error of two files of one run that are not copies."""
    do = "keep the one that is as it was written, and remove the other"
    return RecordError(f"the run {identity}", f"two files of it differ: {one} and {other}", do)


def ordered(rows: Iterable[Row], order_by: str, descending: bool) -> list[Row]:
    """In the order that the index gives: those without the figure last, then by path."""

    def figure(row: Row) -> Any:
        return _instant_s(row.started) if order_by == "started" else getattr(row, order_by)

    rows = sorted(rows, key=lambda row: row.path, reverse=descending)
    known = sorted((row for row in rows if figure(row) is not None), key=figure, reverse=descending)
    return [*known, *(row for row in rows if figure(row) is None)]


def _instant_s(started: str) -> float:
    """Seconds since 1970 of an ISO 8601 time (UTC where it does not say), 0 for what is none."""
    try:
        instant = datetime.fromisoformat(started)
    except ValueError:
        return 0.0
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
