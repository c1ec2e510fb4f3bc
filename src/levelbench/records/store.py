"""A store: a folder of records, asked for the runs that are meant.

The files are the truth and everything else is derived. Records may be copied in, moved about and
deleted with ordinary tools while runs are being written; merging two stores is copying one into the other.
"""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Iterator
from pathlib import Path

from levelbench.errors import LevelbenchError, RecordError, StoreError, UnknownNameError, UsageError
from levelbench.records import lines
from levelbench.records.locks import store_fault
from levelbench.records.reader import SUPERSEDED, Record, ids_in, read_header, read_record
from levelbench.records.rows import ORDERS, Row, ordered, row_of_run, two_of_one_id
from levelbench.records.selection import ATTRIBUTES, Selector, parse_selector
from levelbench.records.summary import RunSummary
from levelbench.records.writer import path_part

__all__ = ["SUPERSEDED", "Store", "distinct", "read_folder"]

_SHOWN = 5


class Store:
    """The records in the folder ``path``, which need not exist yet (then it holds none).

    A selector is text in the grammar of ``selection``, or a parsed one; none means every run. A path in a selector
    is read as it is, also outside of the store. Runs come oldest first. ``problems`` says, after each call, why
    records that were met could not be read: they never hide the others.

    Raises ``StoreError`` if ``path`` is a file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: list[LevelbenchError] = []
        self._copies: list[tuple[Row, Row]] = []
        if self.path.exists() and not self.path.is_dir():
            found = f"{self.path} is a file, not a folder"
            raise StoreError(
                f"opening the store {self.path}", found, "choose a folder, or give the file to show as it is"
            )

    def rows(
        self,
        selector: str | Selector | None = None,
        *,
        order_by: str = "started",
        descending: bool = False,
        limit: int | None = None,
        with_superseded: bool = False,
    ) -> list[Row]:
        """The runs in short, from the index alone: fast for any number of records. See ``Index.listing``.

        A path outside of the store is not in its index, and is read; so are those that fresh runs have replaced.
        """
        from levelbench.records.index import Index

        chosen = _parsed(selector)
        if with_superseded:
            now = self.rows(chosen)
            problems = [*self.problems]
            before = [row_of_run(summary) for _, summary in self._summarised(self.superseded(chosen))]
            self.problems = [*problems, *self.problems]
            return ordered([*now, *before], order_by, descending)[:limit]
        if chosen is not None and chosen.path is not None and not self._indexed(chosen.path):
            return self._rows_at(chosen, order_by, descending)[:limit]
        with Index(self.path) as index:
            rows, found = index.listing(chosen, order_by=order_by, descending=descending, limit=limit)
            self.problems = list(found)
            self._copies = index.copies
        return rows

    def _indexed(self, path: Path) -> bool:
        return path.is_relative_to(self.path.resolve()) and SUPERSEDED not in path.parts

    def _rows_at(self, chosen: Selector, order_by: str, descending: bool) -> list[Row]:
        if order_by not in ORDERS:
            raise UnknownNameError("order", order_by, ORDERS)
        runs = self._summarised(self.each(chosen))
        return ordered((row_of_run(summary) for _, summary in runs), order_by, descending)

    def records(self, selector: str | Selector | None = None) -> list[Record]:
        """The records of the runs that are meant, read whole."""
        return list(self.each(selector))

    def each(self, selector: str | Selector | None = None) -> Iterator[Record]:
        """The same one by one, so that no more than one of them need be in memory; read it to its end."""
        chosen = _parsed(selector)
        if chosen is not None and chosen.path is not None:
            yield from self._each_at(chosen.path, chosen)
            return
        rows = self.rows(chosen)
        for first, copy in self._copies:
            _require_copy(Path(first.path), Path(copy.path), copy.id)
        if chosen is not None and chosen.latest is not None:
            rows = rows[::-1]
        yield from self._read(Path(row.path) for row in rows)

    def summaries(self, selector: str | Selector | None = None) -> list[RunSummary]:
        """The summaries of the runs that are meant, each under its own rules, computed from the records."""
        return [summary for _, summary in self._summarised(self.each(selector))]

    def find(self, selector: str | Selector) -> list[Record]:
        """As ``records``, but to find none is a ``UsageError`` that names the nearest."""
        chosen = parse_selector(selector) if isinstance(selector, str) else selector
        return list(self.each_found(chosen))

    def each_found(self, selector: str | Selector) -> Iterator[Record]:
        """The same one by one."""
        chosen = parse_selector(selector) if isinstance(selector, str) else selector
        found = False
        for record in self.each(chosen):
            found = True
            yield record
        if not found:
            raise self._nothing(chosen)

    def require_readable(self, selector: str | Selector) -> None:
        """Raise the first of ``problems`` that may hide a run which ``selector`` means.

        What cannot be read has neither id nor settings: it counts where it lies in the folder or the task selected.
        """
        chosen = parse_selector(selector) if isinstance(selector, str) else selector
        # Records of a task lie in its folder; an id is of a run that was found.
        place = f"{self.path}/{path_part(chosen.word)}/" if chosen.word and chosen.path is None else ""
        for problem in self.problems:
            if place in problem.asked:
                raise problem

    def one(self, selector: str | Selector) -> Record:
        """The one record that is meant; ``UsageError`` if there are several."""
        records = self.find(selector)
        if len(records) > 1:
            text = selector if isinstance(selector, str) else selector.text
            shown = ", ".join(record.header.id for record in records[-_SHOWN:])
            found = f"it means {len(records)} runs, the newest of them {shown}"
            raise UsageError(f"the run {text!r}", found, "give an id, or more settings in brackets")
        return records[0]

    def copies(self, selector: Selector) -> list[Record]:
        """The records that are meant, with every copy of them in the store."""
        from levelbench.records.index import Index

        with Index(self.path) as index:
            paths = index.paths(selector)
        self.problems = []
        return list(self._read(map(Path, paths)))

    def supersede(self, paths: Iterable[Path]) -> None:
        """Set records aside: a fresh run has taken their place, and only ``superseded`` still shows them.

        Raises ``StoreError`` if one cannot be moved.
        """
        for path in paths:
            aside = path.parent / SUPERSEDED
            try:
                aside.mkdir(exist_ok=True)
                path.rename(aside / path.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise store_fault(f"superseding the record {path}", path, error) from error

    def superseded(self, selector: str | Selector | None = None) -> list[Record]:
        """The records that fresh runs have replaced, oldest first; ``selector`` narrows them as it does others."""
        chosen = _parsed(selector)
        self.problems = []
        found = list(self._read(sorted(self.path.rglob(f"{SUPERSEDED}/*.jsonl"))))
        found.sort(key=lambda record: (record.header.started, str(record.path)))
        if chosen is None:
            return found
        found = [record for record, summary in self._summarised(found) if chosen.matches(summary)]
        return found if chosen.latest is None else found[-chosen.latest :]

    def _each_at(self, path: Path, chosen: Selector) -> Iterator[Record]:
        self.problems = []
        records = distinct(self._read(self._in_order(path))) if path.is_dir() else iter([read_record(path)])
        if chosen.filters:
            records = (record for record, summary in self._summarised(records) if chosen.matches(summary))
        yield from records

    def _in_order(self, folder: Path) -> list[Path]:
        """The records in ``folder`` and the folders in it, oldest first, by their headers alone; no index."""
        from levelbench.records.index import records_below

        aside: frozenset[str] = frozenset()
        if SUPERSEDED not in folder.parts:
            root = self.path.resolve()
            aside = ids_in((root if folder.is_relative_to(root) else folder).rglob(SUPERSEDED))
        found = []
        for place in records_below(folder, self.problems):
            try:
                header = read_header(place, lines.RUN)
            except (RecordError, StoreError) as problem:
                self.problems.append(problem)
                continue
            if header.id not in aside:
                found.append((header.started, str(place)))
        return [Path(place) for _, place in sorted(found)]

    def _read(self, paths: Iterable[Path]) -> Iterator[Record]:
        for path in paths:
            try:
                record = read_record(path)
            except (RecordError, StoreError) as problem:
                self.problems.append(problem)
                continue
            yield record

    def _summarised(self, records: Iterable[Record]) -> Iterator[tuple[Record, RunSummary]]:
        from levelbench.records.index import summary_of

        for record in records:
            try:
                summary = summary_of(record)
            except LevelbenchError as problem:
                self.problems.append(problem)
                continue
            yield record, summary

    def require_known(self, selector: str | Selector) -> None:
        """Raise ``UnknownNameError``, with the nearest names, for a filter by what no run of its task has."""
        chosen = parse_selector(selector) if isinstance(selector, str) else selector
        rows = self.rows(Selector("", chosen.word) if chosen.word else None)
        if rows and (unknown := _unknown(chosen, rows)):
            raise unknown

    def _nothing(self, chosen: Selector) -> LevelbenchError:
        """Why ``chosen`` means no run, as well as the store can tell."""
        rows = self.rows()
        problems = f"; {len(self.problems)} records cannot be read" if self.problems else ""
        if not rows:
            found = f"there is no run in {self.path}{problems}"
            return UsageError(f"the runs {chosen.text!r}", found, "run a task first, or choose another store")
        same = [row for row in rows if not chosen.word or Selector("", chosen.word).matches(row)]
        if not same:
            return UnknownNameError("run", chosen.word, {row.task for row in rows}, "`levelbench list` shows the runs")
        if unknown := _unknown(chosen, same):
            return unknown
        found = f"none of {len(same)} runs matches{problems}"
        return UsageError(
            f"the runs {chosen.text!r}", found, "ask for fewer settings; `levelbench list` shows the runs"
        )


def read_folder(folder: str | Path) -> tuple[list[Record], list[LevelbenchError]]:
    """All records in ``folder`` and the folders in it, oldest first, and why others could not be read; no index."""
    from levelbench.records.index import records_below

    store = Store(folder)
    records = list(store._read(records_below(Path(folder), store.problems)))
    records.sort(key=lambda record: (record.header.started, str(record.path)))
    return records, store.problems


def distinct(records: Iterable[Record]) -> Iterator[Record]:
    """Each run once, wherever its copies lie, in the order of first meeting.

    Raises ``RecordError`` that names both files where two of one id differ.
    """
    found: dict[str, Path] = {}
    for record in records:
        first = found.setdefault(record.header.id, record.path)
        if first is record.path:
            yield record
        elif first != record.path:
            _require_copy(first, record.path, record.header.id)


def _require_copy(one: Path, other: Path, identity: str) -> None:
    try:
        same = filecmp.cmp(one, other, shallow=False)
    except OSError as error:
        raise store_fault(f"comparing the records {one} and {other}", other, error) from error
    if not same:
        raise two_of_one_id(identity, one, other)


def _unknown(chosen: Selector, rows: Iterable[Row]) -> UnknownNameError | None:
    """The first filter by what none of the runs has."""
    known = {*ATTRIBUTES, *(name for row in rows for name in (*row.settings, *row.specification.team()))}
    strange = next((name for name, _ in chosen.filters if name not in known), None)
    return None if strange is None else UnknownNameError("setting", strange, known)


def _parsed(selector: str | Selector | None) -> Selector | None:
    return parse_selector(selector) if isinstance(selector, str) else selector
