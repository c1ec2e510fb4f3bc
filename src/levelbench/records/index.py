"""The index of a store: a summary of each record, in one SQLite file in the store's folder.

The index is derived from the records, so it can always be made again: an index of another version, or a damaged one, is
deleted first; if the folder is not writable or a lock is not released, the new one is in memory. Only time is lost.

It is updated before each query. A folder whose modification time (mtime) has not changed is not listed again, and a
record is not read again unless it was running or its stamp has changed: a hash of the file's size, change time (ctime)
and inode. An edit in place that keeps size and mtime still changes the ctime, which no program can set.

Files are read outside of transactions, and transactions are short, so several processes can update one index at once.
An entry that one of them writes late may be outdated. The next update notices that, because it compares the stamps of
files with the entries themselves.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from levelbench.errors import LevelbenchError, RecordError, UnknownNameError
from levelbench.records.locks import store_fault
from levelbench.records.reader import SUPERSEDED, Record, ids_in, is_record_name, read_record
from levelbench.records.schema import Specification
from levelbench.records.selection import Selector
from levelbench.records.store import COLUMNS, ORDERS, TABLES, Row, column_values, differing, each_once, row_of
from levelbench.records.summary import RunSummary, summarise

__all__ = ["Index", "Survey", "summary_of"]


_BATCH = 4000
_FOLDER = "INSERT OR REPLACE INTO folders VALUES (?, ?)"
_NEW_FOLDER = "INSERT OR IGNORE INTO folders VALUES (?, -1)"
_INSERT_SPECIFICATION = "INSERT OR IGNORE INTO specifications (text, task) VALUES (?, ?)"
_POSITIVE = 2**63 - 1
_SETTLED_NS = 50_000_000
"""File systems stamp changes by the kernel's ticks, of up to 10 ms: two changes within one have the same stamp."""
_UNSETTLED_NS = 2_000_000_000
"""A folder that changed within this time before it was listed may change again without a new modification time."""


def summary_of(record: Record) -> RunSummary:
    """``summarise(record)``; ``RecordError`` if a figure in the record is too large to compute with."""
    try:
        return summarise(record)
    except OverflowError as error:
        asked = f"summarising the record {record.path}"
        raise RecordError(asked, f"a figure in it is too large ({error})", "remove the file") from error


@dataclass(frozen=True)
class _Seen:
    """A record file: its path relative to the store, and its stamp."""

    path: str
    stamp: int


def _stamp(facts: os.stat_result, now_ns: int) -> int:
    """Distinguishes states of a file; negative if it has just changed, so that the next change might go unnoticed."""
    # Setting the modification time, even back, updates the change time.
    stamp = hash((facts.st_size, facts.st_ctime_ns, facts.st_ino)) & _POSITIVE
    return stamp if now_ns - facts.st_ctime_ns > _SETTLED_NS else -1 - stamp


class Survey:
    """One update of the index behind ``connection``; ``now_ns`` reads the clock of the file system."""

    def __init__(self, store: Path, connection: sqlite3.Connection, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._store = str(store)
        self._bytes = os.fsencode(f"{store}/")
        self._connection = connection
        self._now_ns = now_ns
        self._changes: list[tuple[str, Any]] = []
        self._read: set[str] = set()

    def refresh(self) -> None:
        """Check everything that may have changed, and update its entries."""
        known = {os.fsdecode(path): mtime_ns for path, mtime_ns in self._all("SELECT path, mtime_ns FROM folders")}
        known_files = self._all("SELECT path, folder, stamp, status FROM runs")
        queue = ["", *(path for path in known if path)]
        queued = set(queue)
        for folder in queue:
            for inner in self._visit(folder, known.get(folder)):
                if inner not in queued:
                    queued.add(inner)
                    queue.append(inner)
        # This loop may visit a hundred thousand files.
        stat_of, below, now_ns = os.stat, self._bytes, self._now_ns()
        for path, folder, stamp, status in known_files:
            try:
                now = _stamp(stat_of(below + path), now_ns)
            except OSError:
                now = None
            if now != stamp or status == "running":
                self._visit_known(path, folder, now, stamp, status)
        self._flush()

    def _visit(self, folder: str, known_mtime_ns: int | None) -> list[str]:
        """Update one folder if it has changed; return its subfolders."""
        try:
            now_ns = self._now_ns()
            mtime_ns = self._stat(folder).st_mtime_ns
            if mtime_ns == known_mtime_ns:
                return []
            files, inner = self._listed(folder)
        except (FileNotFoundError, NotADirectoryError):
            self._forget_folder(folder, known_mtime_ns)
            return []
        except OSError as error:
            self._note_closed_folder(folder, error)
            return []
        key = os.fsencode(folder)
        before = {
            os.fsdecode(path): stamp for path, stamp in self._all("SELECT path, stamp FROM runs WHERE folder = ?", key)
        }
        for file in files:
            if before.get(file.path) != file.stamp:
                self._note(self._row(folder, file))
        self._forget(before.keys() - {file.path for file in files})
        for path in inner:
            # Written before this folder counts as done: if we are stopped in between, the next update visits them.
            self._change(_NEW_FOLDER, (os.fsencode(path),))
        settled_ns = mtime_ns if now_ns - mtime_ns > _UNSETTLED_NS else -1
        if settled_ns != known_mtime_ns:
            self._change(_FOLDER, (key, settled_ns))
        return inner

    def _visit_known(self, path: bytes, folder: bytes, now: int | None, stamp: int, status: str | None) -> None:
        """Read a file again if it was running or has another stamp ``now``; forget it if it is gone."""
        name = os.fsdecode(path)
        if path == folder or name in self._read:
            return
        if now is None:
            self._forget([name])
            return
        row = self._row(os.fsdecode(folder), _Seen(name, now))
        if now != stamp or row.get("status") != status:
            self._note(row)

    def _listed(self, folder: str) -> tuple[list[_Seen], list[str]]:
        files, inner = [], []
        with os.scandir(f"{self._store}/{folder}") as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir():
                    if not entry.name.startswith(".") and not (entry.is_symlink() and leads_back(self._store, path)):
                        inner.append(path)
                elif is_record_name(entry.name):
                    try:
                        facts = entry.stat()
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(facts.st_mode):
                        files.append(_Seen(path, _stamp(facts, self._now_ns())))
        return files, inner

    def _row(self, folder: str, file: _Seen) -> dict[str, object]:
        """The entry of a file: the columns of its run, or why it cannot be read."""
        self._read.add(file.path)
        row: dict[str, Any] = {
            "path": os.fsencode(file.path),
            "folder": os.fsencode(folder),
            "stamp": file.stamp,
        }
        try:
            summary = summary_of(read_record(f"{self._store}/{file.path}"))
        except LevelbenchError as error:
            return row | {"problem": _problem_text(error)}
        return row | column_values(summary)

    def _note(self, row: dict[str, object]) -> None:
        if "specification" in row:
            self._change(_INSERT_SPECIFICATION, (row["specification"], row.pop("task")))
        self._change(_insertion(tuple(row)), row)

    def _forget(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._change("DELETE FROM runs WHERE path = ?", (os.fsencode(path),))

    def _forget_folder(self, folder: str, known_mtime_ns: int | None) -> None:
        if known_mtime_ns is not None:
            key = os.fsencode(folder)
            self._change("DELETE FROM runs WHERE folder = ?", (key,))
            self._change("DELETE FROM folders WHERE path = ?", (key,))

    def _note_closed_folder(self, folder: str, error: OSError) -> None:
        """Record a folder that cannot be listed as a problem; it is tried again at the next update."""
        problem = store_fault(f"listing {self._store}/{folder}", Path(f"{self._store}/{folder}"), error)
        if not folder:
            raise problem from error
        key = os.fsencode(folder)
        row = {"path": key, "folder": key, "stamp": 0, "problem": _problem_text(problem)}
        self._note(row)
        self._change(_FOLDER, (key, -1))

    def _stat(self, path: str) -> os.stat_result:
        return Path(f"{self._store}/{path}").stat()

    def _all(self, query: str, *values: bytes) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def _change(self, statement: str, values: object) -> None:
        """Queue a change. Changes are written in order, so a folder is done only after all of its records."""
        self._changes.append((statement, values))
        if len(self._changes) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._changes:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in self._changes:
                self._connection.execute(statement, values)
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.rollback()
            raise
        self._changes.clear()


def _problem_text(error: LevelbenchError) -> str:
    """The error's parts as JSON, with parts of a path that are not UTF-8 escaped."""
    parts = [part.encode("utf-8", "backslashreplace").decode() for part in (error.asked, error.found, error.do)]
    return msgspec.json.encode(parts).decode()


@cache
def _insertion(names: tuple[str, ...]) -> str:
    marks = (
        "(SELECT number FROM specifications WHERE text = :specification)" if name == "specification" else f":{name}"
        for name in names
    )
    return f"INSERT OR REPLACE INTO runs ({', '.join(names)}) VALUES ({', '.join(marks)})"


def leads_back(root: str, path: str) -> bool:
    """Whether the link at ``path`` below ``root`` leads to one of its parent folders, or to a folder below ``root``."""
    top, target = Path(root).resolve(), Path(root, path).resolve()
    way = (Path(root, before).resolve() for before in Path(path).parents)
    return target.is_relative_to(top) or any(folder.is_relative_to(target) for folder in way)


def records_below(folder: Path, problems: list[LevelbenchError]) -> Iterator[Path]:
    """The paths of all records below ``folder``, sorted by name, as :func:`folders_below` finds them."""
    for place, names in folders_below(folder, problems):
        yield from (place / name for name in sorted(names) if is_record_name(name))


def folders_below(folder: Path, problems: list[LevelbenchError]) -> Iterator[tuple[Path, list[str]]]:
    """``folder`` and all below it, with the names of their files; links are followed unless they lead back.

    Folders that cannot be listed are added to ``problems``.
    """

    def closed(error: OSError) -> None:
        place = Path(os.fsdecode(error.filename or folder))
        problems.append(store_fault(f"listing {place}", place, error))

    for place, inner, names in os.walk(folder, onerror=closed, followlinks=True):
        here = Path(place)
        inner[:] = sorted(
            name
            for name in inner
            if not name.startswith(".")
            and not ((here / name).is_symlink() and leads_back(str(folder), str((here / name).relative_to(folder))))
        )
        yield here, names


_NAME = ".index.sqlite"
_VERSION = 5
_WAIT_S = 10.0
_LAST = "\U0010ffff"
"""Sorts after any text: everything that begins with x lies between x and x followed by this."""
_SPECIFICATION = COLUMNS.index("specification")

T = TypeVar("T")


class Index:
    """The index of the store at ``store``; a context manager. ``where`` overrides the path of its file."""

    def __init__(self, store: Path, where: Path | None = None) -> None:
        self.store = store
        self._file = where or store / _NAME
        self._connection = self._open()
        self.copies: list[tuple[Row, Row]] = []
        """The files that the last listing left out as copies, each with the row of its run before it."""

    def listing(
        self,
        chosen: Selector,
        *,
        order_by: str = "started",
        descending: bool = True,
        limit: int | None = None,
    ) -> tuple[list[Row], list[RecordError]]:
        """The selected rows, and why each unreadable record or folder cannot be read, from one update of the index.

        Rows without a value of ``order_by`` come last. ``latest:N`` selects the N newest in any order. Raises
        ``UnknownNameError`` for an unknown order.
        """
        if order_by not in ORDERS:
            raise UnknownNameError("order", order_by, ORDERS)
        if chosen.latest is not None:
            order_by, descending = "started", True
            limit = chosen.latest if limit is None else min(limit, chosen.latest)

        def answer() -> tuple[list[Row], list[RecordError]]:
            copies: list[tuple[Row, Row]] = []
            matching = (row for row in self._rows(chosen, order_by, descending) if chosen.matches(row))
            numbers = count() if limit is None else range(limit)
            # Up to the row after the last one, so that copies of the last one are found as well.
            rows = [row for row, _ in zip(each_once(matching, copies), numbers, strict=False)]
            self.copies = copies
            return rows, [*self._problems(), *differing(copies)]

        return self._safely(answer)

    def folders(self, name: str) -> list[Path]:
        """All folders of this name, as of the last update of the index."""
        found = self._connection.execute("SELECT path FROM folders ORDER BY path").fetchall()
        folders = (self.store / os.fsdecode(path) for (path,) in found)
        return [folder for folder in folders if folder.name == name]

    def paths(self, selector: Selector) -> list[str]:
        """The files of the selected runs, with all copies, also of replaced runs."""

        def answer() -> list[str]:
            return [row.path for row in self._rows(selector, "path", False, copies=True) if selector.matches(row)]

        return self._safely(answer)

    def _problems(self) -> list[RecordError]:
        found = self._connection.execute("SELECT problem FROM runs WHERE problem IS NOT NULL ORDER BY path")
        return [RecordError(*msgspec.json.decode(text, type=tuple[str, str, str])) for (text,) in found]

    def close(self) -> None:
        """Close the file."""
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
        """The ids of replaced runs in all folders of the store: copies of them elsewhere count as replaced too."""
        folders = self._connection.execute("SELECT path FROM folders").fetchall()
        return ids_in(self.store / os.fsdecode(path) / SUPERSEDED for (path,) in folders)

    def _safely(self, answer: Callable[[], T]) -> T:
        """``answer`` from an up-to-date index: this one, a new one, or one in memory."""
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
        """A connection to the file, made again if damaged or of another version; if that fails, one in memory."""
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
    """The part of a selector that the table's indices can answer; ``Selector.matches`` decides."""
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
    """The connection with the tables of this version; closed if that fails."""
    try:
        if _version(connection) != _VERSION:
            connection.execute("BEGIN EXCLUSIVE")
            # Another process may have made them by now.
            if _version(connection) != _VERSION:
                _make_tables(connection)
            connection.execute("COMMIT")
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> object:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _make_tables(connection: sqlite3.Connection) -> None:
    there = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    for (name,) in there.fetchall():
        connection.execute(f'DROP TABLE "{name}"')
    for statement in TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_VERSION}")
