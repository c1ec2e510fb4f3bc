"""Brings an index up to date with the folders and files of its store.

Reading happens outside of any transaction and writing in short ones, so that several processes may
survey one store at once. What one of them writes late is at worst old, and the next survey sees that it is: it
compares the stamps of files with what was written, never with what it remembers.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from levelbench.errors import LevelbenchError, RecordError
from levelbench.records.faults import store_fault
from levelbench.records.reader import Record, is_record_name, read_record
from levelbench.records.rows import column_values
from levelbench.records.summary import RunSummary, summarise

__all__ = ["Survey", "summary_of"]

_BATCH = 4000
_FOLDER = "INSERT OR REPLACE INTO folders VALUES (?, ?)"
_NEW_FOLDER = "INSERT OR IGNORE INTO folders VALUES (?, -1)"
_SPECIFICATION = "INSERT OR IGNORE INTO specifications (text, task) VALUES (?, ?)"
_POSITIVE = 2**63 - 1
_SETTLED_NS = 50_000_000
"""File systems stamp changes by the kernel's ticks, of up to 10 ms: two changes within one have the same stamp."""
_UNSETTLED_NS = 2_000_000_000
"""A folder that changed this shortly before it was listed may change again without a new modification time."""


def summary_of(record: Record) -> RunSummary:
    """``summarise(record)``, with ``RecordError`` for a record whose figures nothing can be computed from."""
    try:
        return summarise(record)
    except OverflowError as error:
        asked = f"summarising the record {record.path}"
        raise RecordError(asked, f"a figure in it is too large ({error})", "remove the file") from error


@dataclass(frozen=True)
class _Seen:
    """A file as the file system shows it: its path below the store, and its stamp."""

    path: str
    stamp: int


def _stamp(facts: os.stat_result, now_ns: int) -> int:
    """What tells one state of a file from another; negative where it changed just now and may change again unseen."""
    # Whatever changes the time of modification, or sets it back, changes the time of change.
    stamp = hash((facts.st_size, facts.st_ctime_ns, facts.st_ino)) & _POSITIVE
    return stamp if now_ns - facts.st_ctime_ns > _SETTLED_NS else -1 - stamp


class Survey:
    """One look at the store, through ``connection``; ``now_ns`` tells the time of the file system's clock."""

    def __init__(self, store: Path, connection: sqlite3.Connection, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._store = str(store)
        self._bytes = os.fsencode(f"{store}/")
        self._connection = connection
        self._now_ns = now_ns
        self._changes: list[tuple[str, Any]] = []
        self._read: set[str] = set()

    def refresh(self) -> None:
        """Visit what may have changed, and write down what has."""
        known = {os.fsdecode(path): mtime_ns for path, mtime_ns in self._all("SELECT path, mtime_ns FROM folders")}
        known_files = self._all("SELECT path, folder, stamp, status FROM runs")
        queue = ["", *(path for path in known if path)]
        queued = set(queue)
        for folder in queue:
            for inner in self._visit(folder, known.get(folder)):
                if inner not in queued:
                    queued.add(inner)
                    queue.append(inner)
        # A hundred thousand files are looked at in this loop.
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
        """Bring one folder up to date if it has changed; the folders in it."""
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
            # Before this folder is settled: if we are stopped in between, the next survey still knows of them.
            self._change(_NEW_FOLDER, (os.fsencode(path),))
        settled_ns = mtime_ns if now_ns - mtime_ns > _UNSETTLED_NS else -1
        if settled_ns != known_mtime_ns:
            self._change(_FOLDER, (key, settled_ns))
        return inner

    def _visit_known(self, path: bytes, folder: bytes, now: int | None, stamp: int, status: str | None) -> None:
        """Read a file again that was running or has another stamp ``now``; forget one that is gone."""
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
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        inner.append(path)
                elif is_record_name(entry.name):
                    try:
                        facts = entry.stat()
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(facts.st_mode):
                        files.append(_Seen(path, _stamp(facts, self._now_ns())))
        return files, inner

    def _row(self, folder: str, file: _Seen) -> dict[str, Any]:
        """What the index is to hold of a file: its run's columns, or why it cannot be read."""
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

    def _note(self, row: dict[str, Any]) -> None:
        if "specification" in row:
            self._change(_SPECIFICATION, (row["specification"], row.pop("task")))
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
        """A folder that cannot be listed hides no others: it is a problem of its own, and looked at again."""
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

    def _change(self, statement: str, values: Any) -> None:
        """Have a change written, in order: a folder is settled in the transaction of its last record, or later."""
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
    """The error's parts as JSON, without the half characters of a path that is not UTF-8."""
    parts = [part.encode("utf-8", "backslashreplace").decode() for part in (error.asked, error.found, error.do)]
    return msgspec.json.encode(parts).decode()


@cache
def _insertion(names: tuple[str, ...]) -> str:
    marks = (
        "(SELECT number FROM specifications WHERE text = :specification)" if name == "specification" else f":{name}"
        for name in names
    )
    return f"INSERT OR REPLACE INTO runs ({', '.join(names)}) VALUES ({', '.join(marks)})"


def records_below(folder: Path, problems: list[LevelbenchError]) -> Iterator[Path]:
    """The paths of all records in ``folder`` and the folders in it, by name; links to folders are not followed.

    A folder that cannot be listed is added to ``problems``.
    """

    def closed(error: OSError) -> None:
        place = Path(os.fsdecode(error.filename or folder))
        problems.append(store_fault(f"listing {place}", place, error))

    for place, inner, names in os.walk(folder, onerror=closed):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names) if is_record_name(name))
