"""DAWNBench: reading a folder of its entries, its own checks, doubts about its entries, and its leaderboard."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from levelbench.competition.entries import Submission, name_in
from levelbench.competition.exchange import read_bytes
from levelbench.competition.exchange.dawnbench.entries import (
    LARGEST_JSON,
    LARGEST_TSV,
    MODES,
    PLACES,
    TASKS,
    DawnTask,
    RawEntry,
    build,
    place_of,
    quality_key,
    read_raw,
    rules_of,
    unit_of,
)
from levelbench.competition.rivals import machines_of, prices_by_machine
from levelbench.competition.scoring import first_arrival_s
from levelbench.errors import LevelbenchError, RecordError, UnknownNameError
from levelbench.measure.clocks import utc_now
from levelbench.measure.crossing import find_crossing

_REQUIRED = ("version", "author", "authorEmail", "framework", "model", "hardware", "timestamp")
_VERSION = "v1.0"


def failed_checks(path: Path, task: DawnTask, mode: str) -> list[str]:
    """The CI checks that the entry at ``path`` fails, each name with what was found; empty if it passes.

    There are fourteen: two of syntax, two of fields, three of curves, six of thresholds, one of a range.
    """
    record, fault = None, ""
    try:
        # No utf-8-sig: the CI's parser rejected a byte order mark.
        record = json.loads(read_bytes(path, LARGEST_JSON).decode(), parse_int=float)
    except LevelbenchError as error:
        fault = error.found
    except (ValueError, RecursionError) as error:
        fault = str(error)
    found = {f"{mode}-json": fault, f"{mode}-fields": _wrong_fields(record, mode)}
    threshold = rules_of(task).target.threshold * 10**task.places
    if mode == "inference":
        value = record.get(task.key) if isinstance(record, dict) else None
        quality = value if isinstance(value, int | float) else None
        below = "" if quality is None or quality >= threshold else f"it is {quality:g}, below {threshold:g}"
        found[f"{task.task}-inference-threshold"] = f"there is no {task.key}" if quality is None else below
    else:
        columns = _columns(path.with_suffix(".tsv"))
        qualities = (columns or {}).get(task.key, [])
        found[f"{task.task}-tsv"] = _wrong_columns(path.with_suffix(".tsv"), columns, task)
        if isinstance(record, dict) and record.get("version") == _VERSION:
            best = max((each for each in qualities if each == each), default=None)
            below = "" if best is None or best >= threshold else f"the best is {best:g}, below {threshold:g}"
            found[f"{task.task}-train-threshold"] = f"there is no {task.key}" if best is None else below
        outside = [each for each in qualities if not 0 <= each <= 1]
        if task.task == "squad" and outside:
            found["squad-f1-range"] = f"{outside[0]:g} is out of range"
    return [f"{name}: {said}" for name, said in found.items() if said]


def _wrong_fields(record: object, mode: str) -> str:
    """Required fields exist, day and version are valid."""
    if not isinstance(record, dict):
        return "it is not an object"
    for name in (*_REQUIRED, *(["latency"] if mode == "inference" else [])):
        if name not in record:
            return f"{name!r} is required"
    try:
        datetime.strptime(record["timestamp"], "%Y-%m-%d")
    except (TypeError, ValueError) as error:
        return str(error)
    return "" if record["version"] == _VERSION else f"version {record['version']!r} is not {_VERSION}"


def _columns(path: Path) -> dict[str, list[float]] | None:
    """The columns of a TSV as the CI read it; ``None`` if it could not."""
    try:
        lines = read_bytes(path, LARGEST_TSV).decode("utf-8-sig").splitlines()
        names, *rows = [line.split("\t") for line in lines if line.strip()] or [[]]
        return {name: [float(row[at]) for row in rows] for at, name in enumerate(names)}
    except (LevelbenchError, ValueError, IndexError):
        return None


def _wrong_columns(path: Path, columns: Mapping[str, Sequence[float]] | None, task: DawnTask) -> str:
    """A TSV of the entry's name exists, with exactly the task's columns and at least one row."""
    if columns is None:
        return "the TSV cannot be read" if path.exists() else "there is no TSV"
    if sorted(columns) != sorted(task.columns):
        return f"its columns are {', '.join(columns)}, not {', '.join(task.columns)}"
    # The CI accepted an empty curve for SQuAD.
    return "it has no rows" if not any(columns.values()) and task.places else ""


PRICE_TOLERANCE = 0.01
"""How far the stated cost may differ from latency times price: published figures have two digits or more."""

_DOCUMENTED = {"version", "logFilename", "misc", *PLACES} - {"commitHash", "costPerHour"}
_OF_MODE = {"train": {"costPerHour"}, "inference": {"latency", "cost"}}


def doubts(raw: RawEntry, entry: Submission, task: DawnTask, mode: str, today: date) -> list[str]:
    """All doubts about the entry, the most serious first; ``today`` is the latest plausible day."""
    found = [*_of_curve(raw, entry, task)] if mode == "train" else [*_of_inference(raw.record, entry, task)]
    found += [*_of_price(raw.record, entry, mode), *_of_form(raw, entry, task, mode, today)]
    return found + [f"format: {each}" for each in raw.oddities]


def _of_curve(raw: RawEntry, entry: Submission, task: DawnTask) -> Iterator[str]:
    curve, target = entry.runs[0].curve, entry.target
    yield "single-run: one run, so its spread and its success rate are unknown"
    first, sustained = (
        find_crossing(curve.quality, target.threshold, direction=target.direction, rule=rule, x=curve.time_s)
        for rule in ("first", "sustained")
    )
    if first is None:
        yield f"threshold: the best of {len(curve.quality)} evaluations is {max(curve.quality):g}"
    elif sustained is None:
        yield f"flapping: at the target after {first.position:.2f} s, but below it again at the end"
    elif sustained.index > first.index:
        yield f"flapping: at the target after {first.position:.2f} s, for good only after {sustained.position:.2f} s"
    if first is not None and first.index == len(curve.quality) - 1:
        yield "censored: the curve ends where it crosses, so whether the model stays at the target is unknown"
    if curve.time_s[0] < 0:
        yield f"curve: it begins at {curve.time_s[0]:g} s"
    for name, values in (("hours", curve.time_s), ("epoch", curve.epoch or ())):
        at = next((i for i in range(1, len(values)) if values[i] <= values[i - 1]), None)
        if at is not None:
            yield f"curve: {name} does not increase in row {at + 1}"
    yield from _of_scale(list((raw.columns or {}).get(task.key, ())), curve.quality, task)


def _of_scale(given: Sequence[Decimal], shares: Sequence[float], task: DawnTask) -> Iterator[str]:
    places = unit_of(list(given), task)
    if given and places != task.places:
        said, due = ("per cent", "a share") if places else ("a share", "per cent")
        yield f"scale: {task.key} is given as {said} instead of {due}; read as {said}"
    outside = [each for each in shares if not 0 <= each <= 1]
    if outside:
        yield f"scale: a quality of {outside[0]:g} is impossible"


def _of_inference(record: Mapping[str, Any], entry: Submission, task: DawnTask) -> Iterator[str]:
    measured = entry.inference[0]
    yield "single-run: one mean, so the spread of the latency is unknown"
    key = quality_key(record, task)
    if key != task.key:
        yield f"fields: the quality is in {key!r} instead of {task.key!r}"
    if measured.quality is None:
        yield f"quality: {task.key!r} is not stated"
    else:
        if measured.quality < entry.target.threshold:
            yield f"threshold: the quality is {measured.quality:g}, the target {entry.target.threshold:g}"
        yield from _of_scale([Decimal(record[key])], [measured.quality], task)
    if measured.mean_latency_s is None:
        yield "latency: it is not stated"
    elif measured.mean_latency_s <= 0:
        yield f"latency: {measured.mean_latency_s:g} s is not a time"


def _of_price(record: Mapping[str, object], entry: Submission, mode: str) -> Iterator[str]:
    if mode == "train":
        if entry.price is None:
            given = record.get("costPerHour")
            yield "price: it is not stated" if given is None else f"price: costPerHour is {given!r}, not a price"[:200]
        return
    cost = entry.inference[0].cost_usd
    if cost is None:
        yield "price: the cost is not stated"
    elif cost <= 0:
        yield f"price: impossible cost {cost:g}"
    elif entry.price is not None:
        yield from inconsistent(entry, entry.price.usd_per_hour, "its own costPerHour")


def inconsistent(entry: Submission, usd_per_hour: float, source: str) -> Iterator[str]:
    """A doubt if the stated cost is not latency times price."""
    measured = entry.inference[0]
    if measured.cost_usd is None or not measured.mean_latency_s or measured.mean_latency_s < 0:
        return
    due = usd_per_hour / 3600 * measured.mean_latency_s
    if abs(measured.cost_usd - due) > PRICE_TOLERANCE * due:
        yield f"cost: {measured.cost_usd:.4g} USD is stated, but latency times price is {due:.4g} ({source})"


def _of_form(raw: RawEntry, entry: Submission, task: DawnTask, mode: str, today: date) -> Iterator[str]:
    record = raw.record
    if entry.code.url is None:
        yield "code: no link"
    elif entry.code.commit is None:
        yield "code: the link does not name a commit, so the code may have changed since"
    if entry.code.url is not None and not entry.code.url.startswith(("https://", "http://")):
        yield "code: the link is not a web address"
    if date.fromisoformat(entry.submitted) > today:
        yield f"date: {entry.submitted} is in the future"
    if record.get("timestamp") != entry.submitted:
        yield f"date: {record.get('timestamp')!r} is not written as YYYY-MM-DD"
    known = _DOCUMENTED | _OF_MODE[mode] | ({quality_key(record, task)} if mode == "inference" else set())
    if record.get("usedBlacklist") is True:
        yield "data: evaluated without the images on the dataset's blacklist, which other entries include"
    unknown = sorted(set(record) - known)
    if unknown:
        yield f"fields: unknown to the format: {', '.join(unknown)}"[:1000]
    if not isinstance(record.get("misc", {}), dict):
        yield "fields: misc is not an object"
    for name in ("author", "framework", "model", "hardware"):
        if len(str(record[name]).strip()) > 200:
            yield f"fields: {name} is longer than 200 characters and is shown cut"
    if raw.path.stem.count("_") < 3:
        yield "name: the file is not named AUTHOR_MODEL_HARDWARE_FRAMEWORK"


CI = "CI"
"""The prefix of doubts raised by the competition's own CI."""

MOST_FILES = 20_000


def read_entry(path: Path, *, root: Path | None = None, today: date | None = None) -> Submission:
    """The entry whose JSON is at ``path``, with the TSV next to it and all doubts about it.

    ``root`` is the folder that its name is relative to and that it may not lead out of; ``today`` replaces the current
    day. Raises ``RecordError`` if it is not an entry.
    """
    raw = read_raw(path, root)
    task, mode = place_of(raw)
    entry = build(raw, name_in(path, path.parent if root is None else root))
    # The CI's doubts first; ours do not repeat its threshold.
    theirs = [f"{CI}: {each}" for each in failed_checks(path, task, mode)]
    said = any("-threshold" in each for each in theirs)
    ours = doubts(raw, entry, task, mode, today or utc_now().date())
    return _doubting(entry, [*theirs, *(each for each in ours if not (said and each.startswith("threshold:")))])


def _doubting(entry: Submission, more: list[str]) -> Submission:
    assert entry.origin is not None
    origin = msgspec.structs.replace(entry.origin, doubts=[*entry.origin.doubts, *(each[:4000] for each in more)])
    return msgspec.structs.replace(entry, origin=origin)


def entry_files(root: Path) -> list[Path]:
    """The JSON files of the entries under ``root``: a clone, a task's folder, a mode's folder or one file; sorted."""
    if not root.is_dir():
        return [root]
    folders = [root / task.folder / mode for task in TASKS for mode in MODES] + [root / mode for mode in MODES]
    # Only a folder without entry folders holds entries itself: a clone's own JSON files are not entries.
    there = [folder for folder in folders if folder.is_dir()] or [root]
    found = [path for folder in there for path in sorted(folder.glob("*.json"))]
    if len(found) > MOST_FILES:
        raise RecordError(f"reading {root}", f"it has more than {MOST_FILES:,} entries", "read its tasks one by one")
    return found


def read_folder(root: Path) -> tuple[list[Submission], list[str]]:
    """All entries under ``root``, and a sentence for each file that is not an entry.

    That includes curves without JSON. Raises ``RecordError`` if there are no entries at all.
    """
    files = entry_files(root)
    base = root if root.is_dir() else root.parent
    entries, problems = [], []
    for path in files:
        try:
            entries.append(read_entry(path, root=base))
        except LevelbenchError as error:
            problems.append(f"{name_in(path, base)}: {error.found}; {error.do}")
    if root.is_dir():
        # Curves whose JSON is missing.
        places = [path.parent for path in files] + [root / task.folder / "train" for task in TASKS] + [root / "train"]
        curves = sorted(path for folder in {*places} if folder.is_dir() for path in folder.glob("*.tsv"))
        lonely = [path for path in curves if path.with_suffix(".json") not in files]
        problems += [f"{name_in(path, root)}: there is no JSON of that name; add the entry's JSON" for path in lonely]
    if not files and not problems:
        do = "give a clone of the entries, one of its folders CIFAR10, ImageNet and SQuAD, or one JSON file"
        raise RecordError(f"reading {root}", "there are no entries", do)
    # Doubts that arise only from comparing the entries.
    more: dict[int, list[str]] = defaultdict(list)
    for at, doubt in [*_twins(entries), *_costs(entries)]:
        more[at].append(doubt)
    return [_doubting(each, more[at]) if at in more else each for at, each in enumerate(entries)], problems


def _twins(entries: list[Submission]) -> Iterator[tuple[int, str]]:
    """Entries with the same curve, and files whose names differ only in case."""
    curves: dict[tuple[object, ...], list[int]] = defaultdict(list)
    names: dict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(entries):
        if each.runs:
            curves[(each.task, *each.runs[0].curve.time_s, *each.runs[0].curve.quality)].append(at)
        names[_file(each).lower()].append(at)
    for groups, what in ((curves, "the same curve"), (names, "the same name except for case")):
        for group in groups.values():
            for at in group[1:]:
                yield at, f"duplicate: {what} as {_file(entries[group[0]])}"


def _file(entry: Submission) -> str:
    return entry.origin.file if entry.origin else ""


def _costs(entries: list[Submission]) -> Iterator[tuple[int, str]]:
    """Inference costs, and prices, that differ from those that others state for hardware of the same description."""
    prices = prices_by_machine(
        (_file(each), machines_of(each), each.price.usd_per_hour if each.price is not None else None)
        for each in entries
    )
    for at, each in enumerate(entries):
        # Its entries have no mark of the machine, only the words for its hardware.
        known = {price: file for file, stated in prices.get(machines_of(each)[0], {}).items() for price in stated}
        if each.inference and each.price is None and known:
            found = [list(inconsistent(each, price, f"price of {file}")) for price, file in known.items()]
            if all(found):
                yield at, found[0][0]
        if each.price is not None and len(known) > 1:
            lowest, highest = min(known), max(known)
            yield at, f"price: entries with the same hardware description state {lowest:g} to {highest:g} USD per hour"


COLUMNS = {
    "time": "training time",
    "cost": "training cost",
    "latency": "inference latency",
    "inference-cost": "inference cost",
}
PRINTED_ANSWERS = 10_000
"""The number of answers whose cost its site printed."""


@dataclass(frozen=True)
class LeaderboardRow:
    """One row: ``value`` in seconds or dollars (per answer, for inference), ``text`` as the site printed it."""

    rank: int
    value: float
    text: str
    entry: Submission


def value_of(entry: Submission, column: str) -> float | None:
    """The entry's figure in ``column``: seconds, or US dollars; ``None`` if it is missing or the target was.

    Time is that of the first run, to its first evaluation at the target; cost is that time multiplied by the price.
    """
    if column not in COLUMNS:
        raise UnknownNameError("column of the leaderboard", column, COLUMNS)
    if column == "latency":
        return entry.inference[0].mean_latency_s if entry.inference else None
    if column == "inference-cost":
        return entry.inference[0].cost_usd if entry.inference else None
    time_s = first_arrival_s(entry.runs[0].curve, entry.target) if entry.runs else None
    if column == "time" or time_s is None:
        return time_s
    return None if entry.price is None else time_s / 3600 * entry.price.usd_per_hour


def leaderboard(entries: Iterable[Submission], column: str, top: int | None = None) -> list[LeaderboardRow]:
    """The entries of one task that have a figure in ``column``, best first; its site showed the ``top`` five."""
    valued = [(value, each) for each in entries if (value := value_of(each, column)) is not None]
    valued.sort(key=lambda pair: (pair[0], pair[1].origin.file if pair[1].origin else "", pair[1].model))
    return [LeaderboardRow(at, value, shown(value, column), each) for at, (value, each) in enumerate(valued[:top], 1)]


def shown(value: float, column: str) -> str:
    """The figure as its site printed it: ``0:30:43``, ``$49.30``, ``9.784 ms``, and the cost of 10,000 answers.

    The site printed latencies with three or four digits; here they have four. What would round to $0.00 has two digits.
    """
    if column == "time":
        return hours_minutes_seconds(value)
    if column == "latency":
        return f"{value * 1000:.4g} ms"
    usd = value * (PRINTED_ANSWERS if column == "inference-cost" else 1)
    return f"${usd:.2f}" if usd == 0 or abs(usd) >= 0.005 else f"${usd:.2g}"


def hours_minutes_seconds(seconds: float) -> str:
    """``H:MM:SS`` with seconds rounded up.

    >>> hours_minutes_seconds(1842.9984), hours_minutes_seconds(370087.79)
    ('0:30:43', '102:48:08')
    """
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
