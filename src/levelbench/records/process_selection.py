"""Selects records of processes, with the grammar that also selects runs.

Headers are read first, and only the selected records in full, since one may hold a million latencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from levelbench.errors import LevelbenchError, RecordError, StoreError, UnknownNameError
from levelbench.measure.environment import machine_of
from levelbench.records.processes import ENDING, ProcessHeader, ProcessRecord
from levelbench.records.selection import Selector, Value, parse_selector, parse_value

__all__ = ["arms_among", "named_processes", "select_processes"]

Kind = TypeVar("Kind", bound=ProcessRecord[Any])
_AFTERWARDS = ("status",)
_PREFIXES = ("id", "key", "revision")


def select_processes(kind: type[Kind], store: Path, word: str = "", limit: int | None = None) -> list[Kind]:
    """The records of ``kind`` that ``word`` selects, newest first, at most ``limit``; an empty word selects all.

    A word is ``digits``, the beginning of an id, ``latest:3``, a file or a folder, with filters such as
    ``[scenario=offline]``. Raises ``UnknownNameError`` for a filter by a name that no record has, and ``RecordError``
    if the word is the path of a damaged file.
    """
    if word.endswith(ENDING):
        return [kind.read(word)]
    headers = list(kind.headers(store / kind.form.folder))
    # A command's name may look like a path or a filter.
    named = not word or any(word in kind.names(header) for _, header in headers)
    chosen = Selector(word, word) if named else parse_selector(word)
    if chosen.path:
        headers = list(kind.headers(chosen.path))
    _require_known(kind, chosen, [header for _, header in headers])
    meant = [(header.started, str(path)) for path, header in headers if _meant(kind, chosen, header)]
    found: list[Kind] = []
    most = chosen.latest or limit
    for _, path in sorted(meant, reverse=True):
        if most is not None and len(found) == most:
            break
        with suppress(RecordError, StoreError):
            record = kind.read(path)
            if all(record.status == text for name, text in chosen.filters if name in _AFTERWARDS):
                found.append(record)
    return found[:limit]


def named_processes(kind: type[Kind], store: Path, words: Iterable[str]) -> list[Kind]:
    """The records that the words select, each once, oldest first for each word; none if any word selects none."""
    found: dict[Path, Kind] = {}
    for word in words:
        try:
            meant = select_processes(kind, store, word)
        except LevelbenchError:
            return []
        if not meant:
            return []
        for each in reversed(meant):
            found.setdefault(each.path, each)
    return list(found.values())


def arms_among(records: Sequence[Kind]) -> list[list[list[Kind]]]:
    """The finished records by measurement, arm and process; each measurement is an argument for a summary.

    Arms of one measurement ran on one machine, and are in the order of the records. If a process was repeated, its
    newest record counts.
    """
    found: dict[tuple[str, str], dict[str, dict[int, Kind]]] = {}
    for record in records:
        if record.status == "done":
            header = record.header
            arms = found.setdefault((record.measurement(header), machine_of(header.environment)), {})
            own = arms.setdefault(header.key, {})
            before = own.get(header.seed)
            own[header.seed] = record if before is None or before.header.started <= header.started else before
    return [[list(processes.values()) for processes in arms.values()] for arms in found.values()]


def _words(kind: type[Kind], header: ProcessHeader[object]) -> dict[str, Value]:
    """What filters can select by."""
    return {**kind.words(header), "id": header.id, "key": header.key, "seed": header.seed}


def _meant(kind: type[Kind], chosen: Selector, header: ProcessHeader[object]) -> bool:
    if chosen.word and chosen.word not in kind.names(header) and not _begins(header.id, chosen.word):
        return False
    words = _words(kind, header)
    return all(_agrees(words.get(name), name, text) for name, text in chosen.filters if name not in _AFTERWARDS)


def _begins(identity: str, word: str) -> bool:
    return re.fullmatch("[0-9a-z]{4,}", word) is not None and identity.startswith(word)


def _agrees(value: Value | None, name: str, text: str) -> bool:
    if name in _PREFIXES:
        return str(value).startswith(text)
    wanted = parse_value(text)
    return value is not None and (value == wanted and isinstance(value, bool) == isinstance(wanted, bool))


def _require_known(kind: type[Kind], chosen: Selector, headers: list[ProcessHeader[object]]) -> None:
    known = {name for header in headers for name in _words(kind, header)} | set(_AFTERWARDS)
    for name, _ in chosen.filters if headers else ():
        if name not in known:
            raise UnknownNameError(f"filter of {kind.form.folder}", name, sorted(known))
