"""A store: a folder of records, from which runs are selected.

Everything is derived from the files. Records can be copied in, moved and deleted with ordinary tools while runs are
being written; to merge two stores, copy one into the other.

A row is a run as listed: its summary without the large parts (environment, phases). Rows of one specification share it,
so that a hundred thousand rows take little memory and about a second.
"""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import msgspec

from levelbench.errors import LevelbenchError, MissingError, RecordError, StoreError, UnknownNameError, UsageError
from levelbench.records import lines
from levelbench.records.locks import store_fault
from levelbench.records.reader import SUPERSEDED, Record, Status, ids_in, read_header, read_record
from levelbench.records.schema import Specification, Target, instant_s
from levelbench.records.searches import SEARCHES, Search, find_searches, trial_ids, without_trials
from levelbench.records.selection import ATTRIBUTES, RULES, Selector, parse_selector
from levelbench.records.summary import RunGroup, RunSummary, group_runs, summarise
from levelbench.records.writer import path_part

__all__ = ["COLUMNS", "ORDERS", "SUPERSEDED", "TABLES", "Row", "Store", "column_values", "differing", "distinct"]
__all__ += ["each_once", "ordered", "read_folder", "row_of", "row_of_run", "runs_to_pandas", "two_of_one_id"]


class Row(msgspec.Struct, frozen=True):
    """One run as stored in the index.

    ``suspect`` counts the reasons to doubt the run and its contradictions. ``checksum`` is that of the last line, which
    covers the whole file (empty without checksums). See ``RunSummary`` for the rest.
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
        """The specification's settings, shared between rows: do not change them."""
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
"""The columns of a ``Row``, in its order; ``specification`` is a number in the table ``specifications``."""

ORDERS = {
    name: name
    for name in (
        *("path", "id", "key", "status", "time_to_accuracy_s", "given_up_s", "wall_s", "validation", "test"),
        *("peak_memory_bytes", "energy_j", "suspect"),
    )
} | {"started": "started_s", "seed": "CAST(seed AS INTEGER)"}
"""The names that rows can be ordered by, as SQL."""

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


def column_values(run: RunSummary) -> dict[str, object]:
    """The columns of ``run`` and its ``task``; ``specification`` as JSON."""
    return {
        "task": run.task,
        "id": run.id,
        "key": run.key,
        "seed": str(run.seed),
        "status": run.status,
        "reached": run.reached,
        "started": run.started,
        "started_s": instant_s(run.started) or 0.0,
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
    """The row with these values of ``COLUMNS``; repeated texts are kept once, in ``shared``."""
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
    """The row of a run that is not in an index."""
    values = column_values(run)
    return row_of(tuple(values.get(name) for name in COLUMNS), run.path, run.specification, {})


def each_once(rows: Iterable[Row], copies: list[tuple[Row, Row]]) -> Iterator[Row]:
    """Each run once; further files of it are added to ``copies``, each with the first of its id."""
    seen: dict[str, Row] = {}
    for row in rows:
        first = seen.setdefault(row.id, row)
        if first is row:
            yield row
        else:
            copies.append((first, row))


def differing(copies: Iterable[tuple[Row, Row]]) -> list[RecordError]:
    """An error for each pair that differs, in its checksum or in a figure."""
    return [
        two_of_one_id(one.id, one.path, other.path)
        for one, other in copies
        if msgspec.structs.replace(other, path=one.path) != one
    ]


def two_of_one_id(identity: str, one: object, other: object) -> RecordError:
    """The error of two different files with the id of one run."""
    do = "keep the original, and remove the other"
    return RecordError(f"the run {identity}", f"two files of it differ: {one} and {other}", do)


def ordered(rows: Iterable[Row], order_by: str, descending: bool) -> list[Row]:
    """``rows`` in the order of the index: by the figure, those without it last, then by path."""

    def figure(row: Row) -> Any:
        return instant_s(row.started) or 0.0 if order_by == "started" else getattr(row, order_by)

    rows = sorted(rows, key=lambda row: row.path, reverse=descending)
    known = sorted((row for row in rows if figure(row) is not None), key=figure, reverse=descending)
    return [*known, *(row for row in rows if figure(row) is None)]


def _flat_row(run: RunSummary) -> dict[str, object]:
    """A run as one flat row of plain values."""
    named = {**{name: getattr(run, name) for name in _FLAT}, "scored_by": run.quality_from}
    grouped: dict[str, Mapping[str, object]] = {
        "setting": run.settings,
        "phase_s": run.phases_s,
        "quality": run.quality,
    }
    spread = {f"{prefix}.{name}": value for prefix, values in grouped.items() for name, value in values.items()}
    target = {"metric": run.target.metric, "target": run.target.threshold, "doubts": len(run.suspect)}
    machine = run.environment.get("machine", {}).get("id")
    return {**named, **target, "machine": machine, **spread}


def runs_to_pandas(runs: Iterable[RunSummary]) -> Any:
    """See :meth:`Store.to_pandas`."""
    return _library("pandas", "pandas").DataFrame([_flat_row(run) for run in runs])


def _library(name: str, to_install: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingError("runs as a table", f"{name} is not installed", f'pip install "{to_install}"') from None


def _as_run_reads_it(selector: Selector | None, groups: list[RunGroup]) -> list[RunGroup]:
    """Of several groups of the task that ``selector`` names, the one that `levelbench run` would make for these words.

    All that they do not name has its default there. All of ``groups`` if that is none or several, as on two frameworks.
    """
    if selector is None or len(groups) < 2 or {selector.word} != {each.specification.task for each in groups}:
        return groups
    named = {name for name, _ in selector.filters}
    usual = [
        each
        for each in groups
        if each.chosen is not None
        and named.issuperset(each.chosen)
        and (each.specification.distribution is None or named & each.specification.team().keys())
    ]
    return usual if len(usual) == 1 else groups


_FLAT = (
    *("id", "task", "recipe", "framework", "device", "seed", "status", "reached", "crossing", "clock", "started"),
    *("time_to_accuracy_s", "given_up_s", "wall_s", "epochs_to_target", "samples_to_target", "steps_to_target"),
    *("time_per_step_s", "peak_memory_bytes", "energy_j", "scored_by", "synthetic", "error", "path", "key"),
)
_SHOWN = 5


class Store:
    """The records in the folder ``path``; a folder that does not exist yet holds none.

    A selector is text in the grammar of ``selection``, or a parsed one; ``None`` selects every run. A path in a
    selector may lie outside of the store. Runs come oldest first. After each call, ``problems`` says why some records
    could not be read; the others are still returned. ``left_out`` are the ids of the trials of searches that
    ``each_counted`` and ``group`` have left out so far (and plans, which make the winner's run instead).

    Raises ``StoreError`` if ``path`` is a file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: list[LevelbenchError] = []
        self.left_out: set[str] = set()
        self._copies: list[tuple[Row, Row]] = []
        self._searched: list[Path] | None = None
        if self.path.exists() and not self.path.is_dir():
            found = f"{self.path} is a file, not a folder"
            raise StoreError(
                f"opening the store {self.path}", found, "choose a folder, or pass the file to `levelbench show`"
            )

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def rows(
        self,
        selector: str | Selector | None = None,
        *,
        order_by: str = "started",
        descending: bool = False,
        limit: int | None = None,
        with_superseded: bool = False,
    ) -> list[Row]:
        """The rows of the selected runs, read from the index, which is fast. See ``Index.listing``.

        Records outside of the store, and replaced ones, are not in the index, so they are read.
        """
        from levelbench.records.index import Index

        chosen = _parsed(selector)
        if with_superseded:
            now = self.rows(chosen)
            problems = [*self.problems]
            before = [row_of_run(summary) for _, summary in self._summarised(self.superseded(chosen))]
            self.problems = [*problems, *self.problems]
            return ordered([*now, *before], order_by, descending)[:limit]
        if chosen.path is not None and not self._indexed(chosen.path):
            return self._rows_at(chosen, order_by, descending)[:limit]
        with Index(self.path) as index:
            rows, found = index.listing(chosen, order_by=order_by, descending=descending, limit=limit)
            self.problems = list(found)
            self._copies, self._searched = index.copies, index.folders(SEARCHES)
        return rows

    def _indexed(self, path: Path) -> bool:
        return path.is_relative_to(self.path.resolve()) and SUPERSEDED not in path.parts

    def _rows_at(self, chosen: Selector, order_by: str, descending: bool) -> list[Row]:
        if order_by not in ORDERS:
            raise UnknownNameError("order", order_by, ORDERS)
        runs = self._summarised(self.each(chosen))
        return ordered((row_of_run(summary) for _, summary in runs), order_by, descending)

    def records(self, selector: str | Selector | None = None) -> list[Record]:
        """The records of the selected runs."""
        return list(self.each(selector))

    def each(self, selector: str | Selector | None = None) -> Iterator[Record]:
        """The same one by one, so that not all are in memory at once; exhaust it before reading ``problems``."""
        chosen = _parsed(selector)
        if chosen.path is not None:
            yield from self._each_at(chosen.path, chosen)
            return
        rows = self.rows(chosen)
        for first, copy in self._copies:
            _require_copy(Path(first.path), Path(copy.path), copy.id)
        if chosen.latest is not None:
            rows = rows[::-1]
        yield from self._read(Path(row.path) for row in rows)

    def summaries(self, selector: str | Selector | None = None) -> list[RunSummary]:
        """The summaries of the selected runs under their own rules, computed from the records.

        Without the trials of searches, as of ``each_counted``.
        """
        counted = self._counted(self.each(selector), _parsed(selector), set())
        return [summary for _, summary in self._summarised(counted)]

    def group(self, selector: str | Selector, **view: Any) -> RunGroup:
        """The selected runs as one side of a comparison, labelled ``selector``.

        ``view`` may have another ``clock``, ``crossing`` or ``threshold`` than the runs' own, as for
        :func:`summarise`. Raises ``UsageError`` if they have several specifications or none has finished, and
        ``RecordError`` for a damaged record that may be one of them.
        """
        wanted = {name: value for name, value in view.items() if value is not None}
        found = (summarise(record, **wanted) for record in distinct(self.each_counted(selector)))
        runs = sorted(found, key=lambda run: run.started)
        # Leaving out a run because its record is damaged would change the verdict silently.
        self.require_readable(selector)
        groups = _as_run_reads_it(_parsed(selector), group_runs(runs))
        asked = f"one side {str(selector)!r}"
        if len(groups) > 1:
            # Named among all runs of the task, so that each name selects one kind.
            tasks = {group.specification.task for group in groups}
            others = [summary for task in sorted(tasks) for summary in self.summaries(task)]
            named = {(group.key, group.source_digest): group.label for group in group_runs(others)}
            labels = ", ".join(named.get((group.key, group.source_digest), group.label) for group in groups)
            raise UsageError(asked, f"it selects runs of {len(groups)} kinds: {labels}", "name one of them")
        if not groups:
            raise UsageError(asked, *_not_finished([run.status for run in runs]))
        (group,) = self.with_unselected(groups)
        return replace(group, label=str(selector))

    def with_unselected(self, groups: Sequence[RunGroup]) -> list[RunGroup]:
        """Groups of selected runs that know of the others of their kind, which are not missing but were left out."""
        known: dict[Path | str, list[RunSummary]] = {}
        return [replace(group, unselected=self._unselected(group, known)) for group in groups]

    def _unselected(self, group: RunGroup, known: dict[Path | str, list[RunSummary]]) -> tuple[int, ...]:
        """The seeds of other runs of this kind, if the group has fewer than a command asked for.

        They are in the store or, of runs outside of it, in the folder of their task. ``known`` holds what was read.
        """
        from levelbench.records.doubts import removed

        every = [*group.runs, *group.unfinished, *group.repeats]
        seeds = {run.seed for run in every}
        if not removed(every):
            return ()
        task = group.specification.task
        places: dict[Path | str, str | Selector] = {task: task}
        for folder in sorted({Path(run.path).resolve().parent for run in every}):
            if not self._indexed(folder):
                place = folder.parent if folder.parent.name == path_part(task) else folder
                places[place] = Selector(str(place), path=place)
        for where, selector in places.items():
            if where not in known:
                known[where] = self.summaries(selector)
        kind = group.key, group.source_digest
        others = {run.seed for where in places for run in known[where] if (run.key, run.source_digest) == kind}
        return tuple(sorted(others - seeds))

    def to_pandas(self, selector: str | Selector | None = None) -> Any:
        """A ``pandas.DataFrame`` with one row for each selected run; ``MissingError`` without pandas.

        Names of columns end in their base units, as in ``time_to_accuracy_s``; ``setting.lr``, ``phase_s.forward`` and
        ``quality.test`` are settings, phases up to the target, and qualities. ``doubts`` is their number.
        """
        return runs_to_pandas(self.summaries(selector))

    def to_arrow(self, selector: str | Selector | None = None) -> Any:
        """The same as a ``pyarrow.Table``; settings with values of different types become text."""
        arrow, rows = _library("pyarrow", "levelbench[parquet]"), self._flat(selector)
        columns = {name: [row.get(name) for row in rows] for row in rows for name in row}
        for name, values in columns.items():
            kinds = {type(each) for each in values if each is not None}
            if len(kinds) > 1 and kinds != {int, float}:
                columns[name] = [None if each is None else str(each) for each in values]
        return arrow.table(columns)

    def _flat(self, selector: str | Selector | None) -> list[dict[str, object]]:
        return [_flat_row(summary) for summary in self.summaries(selector)]

    def find(self, selector: str | Selector) -> list[Record]:
        """The same as ``records``, but an error that names close matches if no run is selected."""
        return list(self.each_found(selector))

    def each_found(self, selector: str | Selector) -> Iterator[Record]:
        """The same one by one."""
        chosen = _parsed(selector)
        found = False
        for record in self.each(chosen):
            found = True
            yield record
        if not found:
            raise self._nothing(chosen)

    def each_counted(self, selector: str | Selector) -> Iterator[Record]:
        """The same as far as statistics count them: without the trials of searches.

        A trial counts if it is named by its id or file, or if nothing else is selected.
        """
        return self._counted(self.each_found(selector), _parsed(selector), self.left_out)

    def _counted(self, records: Iterator[Record], chosen: Selector, left_out: set[str]) -> Iterator[Record]:
        # First, since listing the records finds the folders of the searches too.
        first = list(islice(records, 1))
        tried = trial_ids(self.searches(chosen)) if first else frozenset[str]()
        yield from without_trials(chain(first, records), tried, left_out, chosen.names)

    def searches(self, selector: str | Selector | None = None) -> list[Search]:
        """The searches of which the selected runs may be trials: those of this store and of stores copied into it.

        For a path, also those below it, and those of the store that its task's folder lies in.
        """
        from levelbench.records.index import folders_below

        chosen = _parsed(selector)
        places = [(self.path, "*")]
        if chosen.path is None:
            places += [(folder.parent, "*") for folder in self._search_folders()]
        else:
            place = chosen.path if chosen.path.is_dir() else chosen.path.parent
            places += [(below.parent, "*") for below, _ in folders_below(place, []) if below.name == SEARCHES]
            # The path may be a task's folder, or that of a day in it. What else is there may be anything, so only files
            # that name the task.
            places += [(folder.parent, folder.name) for folder in (place, place.parent)]
        once: dict[Path, tuple[Path, str]] = {}
        for folder, task in places:
            once.setdefault(folder.resolve(), (folder, task))
        return [each for folder, task in once.values() for each in find_searches(folder, task)]

    def _search_folders(self) -> list[Path]:
        from levelbench.records.index import Index

        if self._searched is None:
            with Index(self.path) as index:
                index.listing(Selector(""), limit=1)
                self._searched = index.folders(SEARCHES)
        return self._searched

    def require_readable(self, selector: str | Selector) -> None:
        """Raise the first of ``problems`` that may be a run that ``selector`` selects.

        An unreadable record has neither id nor settings, so it counts if it is in the folder of the path or task.
        """
        chosen = _parsed(selector)
        # Records of a task are in its folder, also of a store that was copied into this one; if the word is an id, its
        # run was found.
        place = f"/{path_part(chosen.word)}/" if chosen.word and chosen.path is None else ""
        for problem in self.problems:
            if place in f"/{problem.asked.partition(f'{self.path}/')[2]}":
                raise problem

    def one(self, selector: str | Selector) -> Record:
        """The one selected record; ``UsageError`` if there are several."""
        records = self.find(selector)
        if len(records) > 1:
            text = selector if isinstance(selector, str) else selector.text
            shown = ", ".join(record.header.id for record in records[-_SHOWN:])
            found = f"it selects {len(records)} runs, the newest of them {shown}"
            raise UsageError(f"the run {text!r}", found, "give an id, or more settings in brackets")
        return records[0]

    def copies(self, selector: Selector) -> list[Record]:
        """The selected records, with all copies in the store."""
        from levelbench.records.index import Index

        with Index(self.path) as index:
            paths = index.paths(selector)
        self.problems = []
        return list(self._read(map(Path, paths)))

    def supersede(self, paths: Iterable[Path]) -> None:
        """Move away records that later runs have replaced, so that only ``superseded`` still returns them.

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
        """The selected records among those that later runs have replaced, oldest first."""
        self.problems = []
        chosen = _parsed(selector)
        below = chosen.path if chosen.path is not None and chosen.path.is_dir() else self.path
        found = list(self._read(sorted(below.rglob(f"{SUPERSEDED}/*.jsonl"))))
        found.sort(key=lambda record: (record.header.started, str(record.path)))
        if selector is None:
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
        """The paths of all records below ``folder``, oldest first, without the index."""
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
        """Raise ``UnknownNameError``, with close matches, for a filter by a name that no run of the task has."""
        chosen = _parsed(selector)
        rows = self.rows(Selector("", chosen.word))
        if rows and (unknown := _unknown(chosen, rows)):
            raise unknown

    def _nothing(self, chosen: Selector) -> LevelbenchError:
        """The most specific reason that ``chosen`` selects no run."""
        place = chosen.path or self.path
        rows = self.rows() if chosen.path is None else self._rows_at(Selector("", path=place), "started", False)
        count = len(self.problems)
        problems = f"; {count} record{'s' * (count > 1)} cannot be read" if count else ""
        if not rows and self.problems:
            first = self.problems[0]
            which = f"none of the {count} records in {place} can be read, the first"
            found = (
                f"{which if count > 1 else f'the only record in {place} cannot be read'}: {first.asked}: {first.found}"
            )
            return RecordError(f"the runs {chosen.text!r}", found, first.do)
        if not rows:
            found, do = f"there are no runs in {place}", "run a task first, or choose another store"
            if chosen.path is None and chosen.word and Path(chosen.word).is_dir():
                found = f"the folder {chosen.word} has no records, and {found}"
            # What levelbench time measures without a target.
            if any(place.glob("commands/*/*")):
                found += ", only processes of commands"
                do = "levelbench show shows these, and levelbench compare 'python a.py' 'python b.py' compares them"
            return UsageError(f"the runs {chosen.text!r}", found, do)
        same = [row for row in rows if not chosen.word or Selector("", chosen.word).matches(row)]
        if not same:
            return UnknownNameError("run", chosen.word, {row.task for row in rows}, "levelbench list runs shows them")
        if unknown := _unknown(chosen, same):
            return unknown
        found = f"none of the {len(same)} runs matches" if len(same) > 1 else "the only run does not match"
        # A run that was interrupted is not what it was meant to be, and that is what its user does not know.
        others = tuple(each for each in chosen.filters if each[0] not in ("status", "reached"))
        left = [row.status for row in same if Selector("", chosen.word, others, chosen.path).matches(row)]
        if left and not {"done", "failed"} & {*left}:
            return UsageError(f"the runs {chosen.text!r}", *_not_finished(left))
        do = "give fewer settings; levelbench list runs shows them"
        return UsageError(f"the runs {chosen.text!r}", f"{found}{problems}", do)


def _not_finished(statuses: Sequence[str]) -> tuple[str, str]:
    """What is to be said, and done, of runs of which none has finished."""
    going, total = statuses.count("running"), len(statuses)
    if total == 1:
        found = "its only run is still running" if going else "its only run was interrupted before it had finished"
    else:
        cut = total - going
        parts = [f"{cut} {'were' if cut > 1 else 'was'} interrupted"] * bool(cut)
        parts += [f"{going} {'are' if going > 1 else 'is'} still running"] * bool(going)
        found = f"none of its {total} runs has finished: {', '.join(parts)}"
    if going == total:
        return found, "wait until it has ended: levelbench list runs shows it"
    it = "it" if total == 1 else "them"
    return found, f"repeat the command that started {it}, which makes interrupted runs again; then compare"


def read_folder(folder: str | Path) -> tuple[list[Record], list[LevelbenchError]]:
    """All records below ``folder``, oldest first, and why others could not be read; without an index."""
    from levelbench.records.index import records_below

    store = Store(folder)
    records = list(store._read(records_below(Path(folder), store.problems)))
    records.sort(key=lambda record: (record.header.started, str(record.path)))
    return records, store.problems


def distinct(records: Iterable[Record]) -> Iterator[Record]:
    """Each run once, in the order in which they first occur.

    Raises ``RecordError``, naming both files, if two with one id differ.
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
    """An error for the first filter whose name none of the runs has."""
    known = {*ATTRIBUTES, *RULES, *(name for row in rows for name in (*row.settings, *row.specification.team()))}
    strange = next((name for name, _ in chosen.filters if name not in known), None)
    return None if strange is None else UnknownNameError("setting", strange, known)


def _parsed(selector: str | Selector | None) -> Selector:
    return parse_selector(selector) if isinstance(selector, str) else selector or Selector("")
