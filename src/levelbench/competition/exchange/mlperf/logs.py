"""MLPerf's training logs: lines of the three dialects, the files and archives that hold them, and one log as a run.

A log is raw data: everything about a run is computed from its events, and no text of a log is ever executed.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import tarfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

import msgspec
from msgspec import Struct

from levelbench.competition.entries import Setting
from levelbench.competition.exchange import read_bytes, text_of
from levelbench.errors import RecordError
from levelbench.records.reader import open_record
from levelbench.records.schema import Target

FILE_LIMIT = 256 * 1024 * 1024
"""The largest log that is read, in bytes."""
LINE_LIMIT = 8 * 1024 * 1024
"""The longest line in bytes."""
EVENT_LIMIT = 500_000
"""The most events in one log."""

Dialect = Literal["mllog", "v0.6", "v0.5"]
Kind = Literal["start", "end", "point"]

_TOKENS: tuple[tuple[Dialect, str], ...] = (("mllog", ":::MLLOG "), ("v0.6", ":::MLL "), ("v0.5", ":::MLPv0.5.0 "))
_MLL = re.compile(r"(\d{1,12}(?:\.\d{1,18})?) ([A-Za-z0-9_]{1,200}) ?:\s*(.+)", re.DOTALL)
_MLP = re.compile(
    r"(?P<benchmark>[\w.-]{1,100}) +(?P<time>\d{1,12}(?:\.\d{1,18})?) +\((?P<site>[^()]{0,1000})\) +"
    r"(?P<tag>[A-Za-z0-9_]{1,200}) *(?::\s*(?P<value>.+))?",
    re.DOTALL,
)
_DEFERRED = re.compile(r"\[[0-9a-f-]{8,40}\]")
"""A value that v0.5 printed from inside a graph, for a tag that was announced before."""
_KINDS: dict[str, Kind] = {"INTERVAL_START": "start", "INTERVAL_END": "end", "POINT_IN_TIME": "point"}
_GIVE = "give a file that MLPerf logging wrote"
_LATEST_MS = 2**53
"""Above this a float no longer represents every millisecond, and no clock shows it (the year 287396)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its line (from 1) and time in nanoseconds (since the epoch; in LoadGen's logs since the start).

    ``metadata`` names the caller's file and line (``file``, ``lineno``) if the dialect does. A v0.5 line names its
    benchmark, which is ``namespace`` here.
    """

    line: int
    time_ns: int
    key: str
    value: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    kind: Kind = "point"
    namespace: str = ""


def parse_log(file: BinaryIO, name: str, asked: str) -> TrainingLog:
    """The log in an open file, decoded as latin-1 like in the official parser.

    A log that mixes dialects is read in its newest one; a line that repeats an event verbatim (printed and logged, or
    by another rank at the same instant) counts once. Both are noted. Raises ``RecordError`` (about ``asked``) for a
    line that cannot be read, with its number, and for a file without events or beyond the limits.
    """
    found: dict[Dialect, list[Event]] = {dialect: [] for dialect, _ in _TOKENS}
    seen: set[str] = set()
    repeated = deferred = 0
    for number, text in _lines(file, asked):
        said = ((each, text.rpartition(token)[2].strip()) for each, token in _TOKENS if token in text)
        dialect, rest = next(said, (None, ""))
        if dialect is None:
            continue
        if dialect == "v0.5" and _DEFERRED.match(rest):
            deferred += 1
            continue
        if rest in seen:
            repeated += 1
            continue
        seen.add(rest)
        if len(seen) > EVENT_LIMIT:
            raise RecordError(asked, f"it has more than {EVENT_LIMIT} events", "give the log of one training run")
        try:
            found[dialect].append(_PARSERS[dialect](rest, number))
        except ValueError as error:
            raise RecordError(asked, f"line {number} is broken ({error})", "correct or remove the line") from error
    used = next((dialect for dialect, events in found.items() if events), None)
    if used is None:
        raise RecordError(asked, "no line has an MLPerf event (`:::MLLOG`, `:::MLL`, `:::MLPv0.5.0`)", _GIVE)
    notes = {
        f"{repeated} lines repeat an event verbatim and count once": repeated,
        f"{deferred} lines give a deferred value from inside a graph and are not read": deferred,
    }
    others = sum(len(events) for dialect, events in found.items() if dialect != used)
    notes[f"{others} events of another dialect than {used} are not read"] = others
    return TrainingLog(name, used, tuple(found[used]), tuple(note for note, count in notes.items() if count))


def _lines(file: BinaryIO, asked: str) -> Iterator[tuple[int, str]]:
    size = number = 0
    while line := file.readline(LINE_LIMIT + 1):
        number += 1
        size += len(line)
        if len(line) > LINE_LIMIT:
            raise RecordError(asked, f"line {number} is longer than {LINE_LIMIT} bytes", _GIVE)
        if size > FILE_LIMIT:
            raise RecordError(asked, f"it is larger than {FILE_LIMIT} bytes", _GIVE)
        # A carriage return ends a line too: progress bars put theirs on the same line as what follows.
        for text in line.decode("latin-1").split("\r"):
            yield number, text


def _parse_mllog(rest: str, number: int) -> Event:
    fields = json_value(rest)
    if not isinstance(fields, dict):
        raise ValueError("what follows the token is not an object")
    missing = [name for name in ("key", "value", "time_ms", "metadata") if name not in fields]
    if missing:
        raise ValueError(f"it lacks {' and '.join(missing)}")
    key, metadata, kind = fields["key"], fields["metadata"], fields.get("event_type", "POINT_IN_TIME")
    if not isinstance(key, str) or not isinstance(metadata, dict):
        raise ValueError("its key is not a string, or its metadata not an object")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError("its event_type is not one of " + ", ".join(_KINDS))
    time_ns = _nanoseconds_of_ms(fields["time_ms"])
    return Event(number, time_ns, key, fields["value"], metadata, _KINDS[kind], str(fields.get("namespace") or ""))


def _nanoseconds_of_ms(time_ms: object) -> int:
    """Whole nanoseconds; like the official parser it accepts a number as a string."""
    if isinstance(time_ms, bool) or not isinstance(time_ms, int | float | str):
        raise ValueError("its time_ms is not a number")
    try:
        value = float(time_ms) if isinstance(time_ms, str) else time_ms
    except ValueError:
        raise ValueError("its time_ms is not a number") from None
    if not 0 <= value < _LATEST_MS:  # NaN included
        raise ValueError("its time_ms is not a time")
    return value * 1_000_000 if isinstance(value, int) else round(value * 1e6)


def _parse_mll(rest: str, number: int) -> Event:
    match = _MLL.fullmatch(rest)
    if match is None:
        raise ValueError("it does not read `<seconds> <key>: <JSON>`")
    time, key, text = match.groups()
    said = json_value(text)
    if not isinstance(said, dict) or "value" not in said:
        raise ValueError("what follows the key is not an object with a value")
    metadata = said.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is not an object")
    return Event(number, _nanoseconds(time), key, said["value"], metadata, _kind_of(key))


def _parse_mlp(rest: str, number: int) -> Event:
    match = _MLP.fullmatch(rest)
    if match is None:
        raise ValueError("it does not read `<benchmark> <seconds> (<file>:<line>) <tag>[: <JSON>]`")
    tag, text = match["tag"], match["value"]
    file, _, line = match["site"].rpartition(":")
    metadata: dict[str, Any] = {"file": file, "lineno": int(line)} if line.isdecimal() and len(line) < 10 else {}
    value = None if text is None else _lenient(text)
    if isinstance(value, dict):
        metadata |= {name: each for name, each in value.items() if name != "value"}
        value = value.get("value")
    return Event(number, _nanoseconds(match["time"]), tag, value, metadata, _kind_of(tag), match["benchmark"])


_PARSERS: dict[Dialect, Callable[[str, int], Event]] = {"mllog": _parse_mllog, "v0.6": _parse_mll, "v0.5": _parse_mlp}
"""Makes an event from the rest of a line after the token and the line's number; ``ValueError`` with the reason."""


def _lenient(text: str) -> object:
    """JSON, or the text itself: v0.5 never defined values, and submitters wrote Python's ``True``."""
    try:
        return json_value(text)
    except ValueError:
        return text


def json_value(text: str) -> object:
    """JSON with NaN and infinities, which diverged runs log; ``ValueError`` with a short reason."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _nanoseconds(seconds: str) -> int:
    """Exact, unlike a float of the epoch, whose resolution is a quarter of a microsecond."""
    whole, _, part = seconds.partition(".")
    return int(whole) * 1_000_000_000 + int(part[:9].ljust(9, "0"))


def _kind_of(key: str) -> Kind:
    return "start" if key.endswith("_start") else "end" if key.endswith("_stop") else "point"


def number_of(value: Any) -> float | None:
    """The value as a float if it is a number in a float's range, including NaN and infinities."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


FILES_LIMIT = 20_000
"""The most files of one tree that are read."""
_ARCHIVE_LIMIT = 512 * 1024 * 1024
"""The largest unpacked size of an archive in bytes."""
_DEPTH = 12
_SMALL = 4 * 1024 * 1024
"""The largest JSON file that is read."""

Tree = dict[PurePosixPath, bytes]
"""Contents by path, relative to the tree's root."""


def read_tree(path: Path, wanted: re.Pattern[str], asked: str) -> Tree:
    """The files below ``path`` whose names match ``wanted``, and the JSON files of systems and scalings.

    ``path`` is a folder, a tar archive (``.tar``, ``.tar.gz``, ``.tgz``) or a single file, which is read whatever its
    name. Raises ``RecordError`` for any other path, a damaged archive, and beyond the limits.
    """
    if path.is_dir():
        return {name: read_bytes(path / name, _limit(name)) for name in _walk(path, wanted)}
    if path.name.endswith((".tar", ".tar.gz", ".tgz")):
        return _read_archive(path, wanted, asked)
    return {PurePosixPath(path.name): read_bytes(path, FILE_LIMIT, asked=asked)}


def _wanted(name: PurePosixPath, logs: re.Pattern[str]) -> bool:
    described = name.suffix == ".json" and (name.parent.name == "systems" or name.name == "scaling.json")
    return described or logs.fullmatch(name.name) is not None


def _limit(name: PurePosixPath) -> int:
    return _SMALL if name.suffix == ".json" and name.name != "mlperf_log_accuracy.json" else FILE_LIMIT


def _walk(root: Path, logs: re.Pattern[str]) -> list[PurePosixPath]:
    """The wanted files below ``root``, sorted; links and very deep folders are skipped."""
    found: list[PurePosixPath] = []
    for folder, folders, files in os.walk(root):
        inside = Path(folder).relative_to(root)
        folders[:] = sorted(each for each in folders if len(inside.parts) < _DEPTH and not each.startswith("."))
        for name in files:
            path = PurePosixPath(inside.as_posix()) / name
            if _wanted(path, logs) and not (root / path).is_symlink():
                found.append(path)
        if len(found) > FILES_LIMIT:
            found_text = f"it has more than {FILES_LIMIT} files of results"
            raise RecordError(f"reading {root}", found_text, "give one submitter's folder")
    return sorted(found, key=_natural)


def _natural(path: PurePosixPath) -> list[tuple[int, str]]:
    """Sort key that puts ``result_10`` after ``result_9``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", str(path))]


class _Limited:
    """A stream that refuses to deliver more than ``limit`` bytes, so that no small archive unpacks to a large one."""

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self._read = read
        self._left = limit

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes."""
        data = self._read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {_ARCHIVE_LIMIT} bytes")
        return data


def _read_archive(path: Path, logs: re.Pattern[str], asked: str) -> Tree:
    found: Tree = {}
    with open_record(path, asked) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            stream: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
            # As a stream without seeking, so that all bytes are counted once.
            with tarfile.open(fileobj=_Limited(stream.read, _ARCHIVE_LIMIT), mode="r|") as archive:  # type: ignore[call-overload]
                for name, content in _members(archive, logs):
                    # Which of two would count is nowhere written, and the last could replace a slow run.
                    if found.setdefault(name, content) != content:
                        raise ValueError(f"it has two files called {name}, with different content")
        except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError) as error:
            reason = str(error) or type(error).__name__
            raise RecordError(
                asked, f"the archive cannot be read ({reason})", "give a complete .tar or .tar.gz"
            ) from error
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _members(archive: tarfile.TarFile, logs: re.Pattern[str]) -> Iterator[tuple[PurePosixPath, bytes]]:
    for number, member in enumerate(archive):
        if number > FILES_LIMIT:
            raise ValueError(f"it has more than {FILES_LIMIT} members")
        name = PurePosixPath(member.name)
        if not member.isreg() or name.is_absolute() or ".." in name.parts or not _wanted(name, logs):
            continue
        if member.size > _limit(name):
            raise ValueError(f"{name} is larger than {_limit(name)} bytes")
        content = archive.extractfile(member)
        if content is not None:
            yield name, content.read()


CLOCK_SET_S = 1.0
"""Ranks share a log but not a clock: their lines may be out of order by less than this."""


def require_one_run(log: TrainingLog, asked: str) -> None:
    """Refuse a log to which lines were added after the run: ``RecordError`` with the line.

    These are a second run, a ``run_stop`` before evaluations that were logged earlier, and an evaluation from before an
    earlier line. Ranks whose logs were joined repeat each other's evaluations, which is no reason.
    """
    do = "give the log as the run wrote it, one run in each"
    latest = last_evaluation = 0
    stopped: Event | None = None
    seen: set[tuple[str, str]] = set()
    for event in log.events:
        if event.key == "run_start" and stopped is not None and event.time_ns > stopped.time_ns:
            raise RecordError(asked, f"a second run starts in line {event.line}", do)
        if event.key == "run_stop":
            stopped = event if stopped is None or event.time_ns > stopped.time_ns else stopped
            if last_evaluation - event.time_ns > CLOCK_SET_S * 1e9 and stopped is event:
                found = f"run_stop in line {event.line} is before evaluations that were logged earlier"
                raise RecordError(asked, found, do)
        if event.key in _EVALUATIONS:
            said = repr(event.value), repr(sorted(event.metadata.items(), key=lambda item: item[0]))
            if latest - event.time_ns > CLOCK_SET_S * 1e9 and said not in seen:
                back_s = (latest - event.time_ns) / 1e9
                found = f"the evaluation in line {event.line} is {back_s:.3f} s before an earlier line"
                raise RecordError(asked, found, do)
            seen.add(said)
            last_evaluation = max(last_evaluation, event.time_ns)
        latest = max(latest, event.time_ns)


class LoggedQuality(Struct, frozen=True, forbid_unknown_fields=True):
    """One quality: our ``name``, the name in the log if there are several, and the value that ends the run."""

    name: str
    threshold: float
    logged: str = ""
    direction: Literal["higher", "lower"] = "higher"
    high: float = 1.0

    def target(self) -> Target:
        """As one of our targets, on the validation split."""
        high = self.high if math.isfinite(self.high) else None
        return Target(self.name, self.threshold, self.direction, 0.0, high)


class Benchmark(Struct, frozen=True, forbid_unknown_fields=True):
    """One benchmark: the first metric is the one that a curve shows; ``drop`` runs are dropped on each side."""

    metrics: list[LoggedQuality]
    runs: int
    drop: int = 1
    counts: Literal["epochs", "samples"] = "epochs"
    """The unit of its convergence: samples come from ``samples_count``, epochs from ``epoch_num``."""


@cache
def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by their names in logs."""
    text = resources.files(__package__).joinpath("benchmarks.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Benchmark])


def benchmark(name: str | None) -> Benchmark | None:
    """The benchmark of that name; ``None`` if MLPerf does not have it, such as for our own tasks."""
    return benchmarks().get(name) if name else None


TARGET_KEY = "levelbench_target"
"""Our logs state their target, which MLPerf's leave to the benchmark's name; the format allows other keys."""
ENTRY_KEY = "levelbench_entry"
SETTINGS_KEY = "levelbench_settings"
ORIGIN_KEY = "levelbench_origin"
"""The origin of an imported entry and the doubts about it, which our logs keep."""

_EVALUATIONS = ("eval_accuracy", "eval_error")
_SEEDS = ("seed", "run_set_random_seed")
_BATCH = ("global_batch_size", "input_batch_size")
_HYPERPARAMETERS = ("opt_", "model_hp_", "gradient_accumulation_steps", "micro_batch_size", "max_sequence_length")
_LONGEST = 4000


@dataclass(frozen=True)
class LogEvaluation:
    """One value of one metric: seconds since ``run_start``, the value (maybe NaN), and how much training came before.

    ``metric`` is its name in the log, empty if the log has only one. ``key`` is ``eval_accuracy`` or ``eval_error``.
    """

    time_s: float
    value: float
    metric: str = ""
    epoch: float | None = None
    samples: int | None = None
    key: str = "eval_accuracy"
    line: int = 0


@dataclass(frozen=True)
class TrainingLog:
    """A log: its raw events, and what follows from them. ``name`` is the file's name, for messages.

    Times are in seconds. If several ranks log a key, the earliest ``run_start`` and the latest ``run_stop`` count: the
    run is not over before its last rank is.
    """

    name: str
    dialect: Dialect
    events: tuple[Event, ...]
    notes: tuple[str, ...] = ()

    def all(self, *keys: str) -> list[Event]:
        """The events of these keys, in the order of the log."""
        return [event for key in keys for event in self._by_key.get(key, ())]

    def value(self, *keys: str) -> Any:
        """The value of the first event of the first of these keys in the log, or ``None``."""
        return next((event.value for event in self.all(*keys)), None)

    @cached_property
    def _by_key(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.key, []).append(event)
        return found

    @cached_property
    def run_start(self) -> Event | None:
        """The event that starts the clock."""
        return min(self.all("run_start"), key=lambda event: event.time_ns, default=None)

    @cached_property
    def run_stop(self) -> Event | None:
        """The event that stops the clock; ``None`` in a truncated log."""
        return max(self.all("run_stop"), key=lambda event: event.time_ns, default=None)

    @property
    def time_s(self) -> float | None:
        """``run_stop - run_start`` in seconds, exact to the log's digits; ``None`` if either is missing."""
        if self.run_start is None or self.run_stop is None:
            return None
        return (self.run_stop.time_ns - self.run_start.time_ns) / 1e9

    @property
    def status(self) -> Literal["success", "aborted", "unfinished"]:
        """What ``run_stop`` reports: ``aborted`` unless all ranks report success, ``unfinished`` without it."""
        stops = self.all("run_stop")
        if not stops:
            return "unfinished"
        said = [event.metadata for event in stops]
        succeeded = all(each.get("status") == "success" or each.get("success") is True for each in said)
        return "success" if succeeded else "aborted"

    @cached_property
    def evaluations(self) -> tuple[LogEvaluation, ...]:
        """All values of all metrics up to ``run_stop``, in order of time; values repeated by ranks occur once."""
        origin = self.run_start.time_ns if self.run_start else None
        found: dict[tuple[Any, ...], LogEvaluation] = {}
        for event in sorted(self.all(*_EVALUATIONS), key=lambda event: event.time_ns):
            if origin is None or (self.run_stop is not None and event.time_ns > self.run_stop.time_ns):
                continue
            for each in _values(event, origin):
                # Ranks repeat a value with the same place in training; without a place, nothing counts as repeated.
                place = (each.epoch, each.samples) if (each.epoch, each.samples) != (None, None) else event.line
                found.setdefault((each.metric, place, repr(each.value)), each)
        return tuple(found.values())

    @property
    def to_converge(self) -> float | None:
        """Epochs (rounded to 3 digits) or samples at the last evaluation of a successful run; ``None`` otherwise.

        The benchmark decides which; for one that MLPerf does not have, samples if the log has them. This is compared
        with reference convergence points (as in the official checker).
        """
        if self.status != "success" or not self.evaluations:
            return None
        last, known = self.evaluations[-1], benchmark(self.benchmark)
        epoch = None if last.epoch is None else round(last.epoch, 3)
        if last.samples is None or (known is not None and known.counts == "epochs" and epoch is not None):
            return epoch
        return float(last.samples)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The distinct seeds that the run logged."""
        values = (_integer(event.value) for event in self.all(*_SEEDS))
        return tuple(dict.fromkeys(seed for seed in values if seed is not None))

    @property
    def batch_size(self) -> int | None:
        """Samples per step over all workers."""
        return _integer(self.value(*_BATCH))

    @property
    def benchmark(self) -> str | None:
        """Its benchmark's name."""
        return text_of(self.value("submission_benchmark")) or next(
            (event.namespace for event in self.events if event.namespace and self.dialect == "v0.5"), None
        )

    @property
    def division(self) -> str | None:
        """``closed`` or ``open``, as logged."""
        return text_of(self.value("submission_division"))

    @property
    def organisation(self) -> str | None:
        """Who submitted it."""
        return text_of(self.value("submission_org"))

    @property
    def platform(self) -> str | None:
        """The system's name."""
        return text_of(self.value("submission_platform"))

    @cached_property
    def hyperparameters(self) -> dict[str, Setting]:
        """The first value of every optimizer and model key, all settings of our own logs, and the global batch size."""
        own = self.value(SETTINGS_KEY)
        found = {name: each for name, each in own.items() if _is_setting(each)} if isinstance(own, dict) else {}
        for event in self.events:
            if event.key.startswith(_HYPERPARAMETERS) and _is_setting(event.value):
                found.setdefault(event.key, event.value)
        return found if self.batch_size is None else {"global_batch_size": self.batch_size, **found}


def read_log(path: str | Path) -> TrainingLog:
    """The log at ``path``.

    Raises ``RecordError`` for a broken line (with its number), a file without events or beyond the limits, and
    ``StoreError`` for a file that cannot be opened.
    """
    path = Path(path)
    asked = f"reading the MLPerf log {path}"
    with open_record(path, asked) as file:
        return parse_log(file, path.name, asked)


def _values(event: Event, origin: int) -> Iterable[LogEvaluation]:
    """The values of one event: a number, or several by name as Mask R-CNN logs them."""
    metadata = event.metadata
    epoch = number_of(metadata.get("epoch_num", metadata.get("epoch")))
    samples = _integer(metadata.get("samples_count"))
    named = event.value if isinstance(event.value, dict) else {str(metadata.get("metric", "")): event.value}
    for name, value in named.items():
        number = number_of(value)
        if number is not None:
            time_s = (event.time_ns - origin) / 1e9
            yield LogEvaluation(time_s, number, name, epoch, samples, event.key, event.line)


def _is_setting(value: object) -> bool:
    """Whether a submission can hold it: text of bounded length, or numbers of at most 64 bits."""
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return isinstance(value, int | float) and abs(value) < 2**63


def _integer(value: Any) -> int | None:
    """The value as a whole number of at most 64 bits; v0.5 wrote some as text."""
    if isinstance(value, str) and len(value) < 20 and value.strip().isdecimal():
        value = int(value)
    number = number_of(value)
    if number is None or not 0 <= number < 2**63 or number != int(number):
        return None
    return int(value)
