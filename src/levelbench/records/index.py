"""The index of a store: what its records say in short, in one SQLite file beside them.

The index is derived, so every doubt about it ends the same way. Another version, a damaged file: it is
thrown away and made again. A folder that cannot be written to, a lock that is not let go: it is made in memory.
Nothing is lost but time.

It is brought up to date before each query. A folder whose modification time has not changed is not listed again, and
a record is not read again unless it was running or its stamp has changed: a hash of the file's size, its time of
change and its number in the file system. An edit in place that keeps size and modification time changes the time of
change, which no program can set.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from levelbench.errors import RecordError, UnknownNameError
from levelbench.records.reader import SUPERSEDED, ids_in
from levelbench.records.rows import COLUMNS, ORDERS, TABLES, Row, differing, each_once, row_of
from levelbench.records.schema import Specification
from levelbench.records.selection import Selector
from levelbench.records.survey import Survey

__all__ = ["Index"]

_NAME = ".index.sqlite"
_VERSION = 5
_WAIT_S = 10.0
_LAST = "\U0010ffff"
"""Sorts behind any text: what begins with x lies between x and x with this."""
_SPECIFICATION = COLUMNS.index("specification")
_EVERYTHING = Selector("")

T = TypeVar("T")


class Index:
    """The index of the store at ``store``; a context manager. ``where`` overrides the place of its file."""

    def __init__(self, store: Path, where: Path | None = None) -> None:
        self.store = store
        self._file = where or store / _NAME
        self._connection = self._open()
        self.copies: list[tuple[Row, Row]] = []
        """The files that the last listing left out as copies, each after the row of its run."""

    def query(
        self,
        selector: Selector | None = None,
        *,
        order_by: str = "started",
        descending: bool = True,
        limit: int | None = None,
    ) -> list[Row]:
        """The rows of ``listing``, without the problems."""
        return self.listing(selector, order_by=order_by, descending=descending, limit=limit)[0]

    def listing(
        self,
        selector: Selector | None = None,
        *,
        order_by: str = "started",
        descending: bool = True,
        limit: int | None = None,
    ) -> tuple[list[Row], list[RecordError]]:
        """The rows that ``selector`` means (all without one) and the store's ``problems``, in one look at the store.

        Rows come in order, those without the figure ordered by last. ``latest:N`` means the N newest whatever the
        order. Raises ``UnknownNameError`` for an unknown order.
        """
        if order_by not in ORDERS:
            raise UnknownNameError("order", order_by, ORDERS)
        chosen = selector or _EVERYTHING
        if chosen.latest is not None:
            order_by, descending = "started", True
            limit = chosen.latest if limit is None else min(limit, chosen.latest)

        def answer() -> tuple[list[Row], list[RecordError]]:
            copies: list[tuple[Row, Row]] = []
            matching = (row for row in self._rows(chosen, order_by, descending) if chosen.matches(row))
            rows = [row for row, _ in zip(each_once(matching, copies), _counter(limit), strict=False)]
            self.copies = copies
            return rows, [*self._problems(), *differing(copies)]

        return self._safely(answer)

    def paths(self, selector: Selector) -> list[str]:
        """The files of the runs that ``selector`` means, every copy of them, also of runs that were set aside."""

        def answer() -> list[str]:
            return [row.path for row in self._rows(selector, "path", False, copies=True) if selector.matches(row)]

        return self._safely(answer)

    def problems(self) -> list[RecordError]:
        """Why each unreadable record or folder cannot be read, by path."""
        return self._safely(self._problems)

    def _problems(self) -> list[RecordError]:
        found = self._connection.execute("SELECT problem FROM runs WHERE problem IS NOT NULL ORDER BY path")
        return [RecordError(*msgspec.json.decode(text, type=tuple[str, str, str])) for (text,) in found]

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, chosen: Selector, order_by: str, descending: bool, *, copies: bool = False) -> Iterator[Row]:
        texts = self._connection.execute("SELECT number, text FROM specifications")
        specifications = {number: msgspec.json.decode(text, type=Specification) for number, text in texts}
        condition, values = _narrowed(chosen)
        column, direction = ORDERS[order_by], "DESC" if descending else "ASC"
        rows = self._connection.execute(
            f"SELECT {', '.join(COLUMNS)} FROM runs WHERE problem IS NULL{condition}"
            f" ORDER BY {column} IS NULL, {column} {direction}, path {direction}",
            values,
        )
        shared: dict[str, str] = {}
        before = f"{self.store}/"
        aside = frozenset[str]() if copies else self._superseded_ids()
        for row in rows:
            if row[1] in aside:
                continue
            yield row_of(row, before + os.fsdecode(row[0]), specifications[row[_SPECIFICATION]], shared)

    def _superseded_ids(self) -> frozenset[str]:
        """What has been set aside in any folder of the store; a copy of it elsewhere is set aside as well."""
        folders = self._connection.execute("SELECT path FROM folders").fetchall()
        return ids_in(self.store / os.fsdecode(path) / SUPERSEDED for (path,) in folders)

    def _safely(self, answer: Callable[[], T]) -> T:
        """``answer`` from an index that is up to date: this one, one made again, or one in memory."""
        for made_again in (self._open, self._in_memory):
            try:
                return self._current(answer)
            except sqlite3.OperationalError:
                self._connection.close()
                self._connection = self._in_memory()
            except sqlite3.DatabaseError:
                self._connection.close()
                self._discard()
                self._connection = made_again()
        return self._current(answer)

    def _current(self, answer: Callable[[], T]) -> T:
        Survey(self.store, self._connection).refresh()
        return answer()

    def _open(self) -> sqlite3.Connection:
        """A connection to the file, made again if it is damaged or of another version; else one to memory."""
        for _ in range(2):
            try:
                return _prepared(sqlite3.connect(self._file, timeout=_WAIT_S, isolation_level=None))
            except sqlite3.OperationalError:
                break
            except sqlite3.DatabaseError:
                self._discard()
        return self._in_memory()

    def _in_memory(self) -> sqlite3.Connection:
        return _prepared(sqlite3.connect(":memory:", isolation_level=None))

    def _discard(self) -> None:
        for name in (self._file.name, f"{self._file.name}-journal"):
            with suppress(OSError):
                self._file.with_name(name).unlink()


def _narrowed(chosen: Selector) -> tuple[str, list[str]]:
    """What SQL can say of a selector through the table's indices; ``Selector.matches`` has the last word."""
    condition, values = "", []
    if chosen.word:
        condition = " AND (specification IN (SELECT number FROM specifications WHERE task = ?) OR id BETWEEN ? AND ?)"
        values = [chosen.word, chosen.word, chosen.word + _LAST]
    for name, text in chosen.filters:
        if name in ("id", "key"):
            condition += f" AND {name} BETWEEN ? AND ?"
            values += [text, text + _LAST]
    return condition, values


def _prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, with this version's tables in it; closed again if that fails."""
    try:
        if _version(connection) != _VERSION:
            connection.execute("BEGIN EXCLUSIVE")
            # Somebody else may have been faster.
            if _version(connection) != _VERSION:
                _make_tables(connection)
            connection.execute("COMMIT")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> Any:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _make_tables(connection: sqlite3.Connection) -> None:
    there = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for (name,) in there.fetchall():
        connection.execute(f'DROP TABLE "{name}"')
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_VERSION}")


def _counter(limit: int | None) -> Iterator[int]:
    number = 0
    while limit is None or number < limit:
        yield number
        number += 1
