"""A clone of DAWNBench's entries, one task's folder or one file, as submissions with their doubts.

The one idea: a broken file is a sentence with its name, and the rest is imported; what only a look at all entries shows
(two of the same curve, a cost that no price explains) is said on each entry that it concerns.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import msgspec

from levelbench.errors import LevelbenchError, RecordError
from levelbench.measure.clocks import utc_now
from levelbench.records.exchange.dawnbench.checks import failed_checks
from levelbench.records.exchange.dawnbench.doubts import doubts, inconsistent
from levelbench.records.exchange.dawnbench.entry import build, place_of
from levelbench.records.exchange.dawnbench.raw import read_raw
from levelbench.records.exchange.dawnbench.tasks import MODES, TASKS
from levelbench.records.exchange.files import place_in
from levelbench.records.submissions.schema import Submission

__all__ = ["CI", "MOST_FILES", "entry_files", "read_entry", "read_folder"]

CI = "CI"
"""How a doubt begins that the competition's own CI raises."""

MOST_FILES = 20_000


def read_entry(path: Path, *, root: Path | None = None, today: date | None = None) -> Submission:
    """The entry whose JSON is at ``path``, with its TSV beside it and all doubts about it.

    ``root`` is the folder that names it and that it may not lead out of; ``today`` stands in for the present day.
    Raises ``RecordError`` for what is no entry.
    """
    raw = read_raw(path, root)
    task, mode = place_of(raw)
    entry = build(raw, place_in(path.parent if root is None else root, path))
    # Theirs first; ours never repeat a threshold that theirs has said.
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
    # Only a folder without folders of entries holds entries itself: a clone's own JSON files are none.
    there = [folder for folder in folders if folder.is_dir()] or [root]
    found = [path for folder in there for path in _json_files(folder)]
    if len(found) > MOST_FILES:
        raise RecordError(f"reading {root}", f"it has more than {MOST_FILES:,} entries", "read its tasks one by one")
    return found


def _json_files(folder: Path) -> list[Path]:
    with os.scandir(folder) as scanned:
        return sorted(folder / each.name for each in scanned if each.name.endswith(".json"))


def read_folder(root: Path, *, today: date | None = None) -> tuple[list[Submission], list[str]]:
    """All entries under ``root``, and a sentence for each file that is none.

    A curve without its JSON is such a sentence too. Raises ``RecordError`` where there is no entry at all to look for.
    """
    files = entry_files(root)
    base = root if root.is_dir() else root.parent
    entries, problems = [], []
    for path in files:
        try:
            entries.append(read_entry(path, root=base, today=today))
        except LevelbenchError as error:
            problems.append(f"{place_in(base, path)}: {error.found}; {error.do}")
    problems += _lonely(root, set(files))
    if not files and not problems:
        do = "give a clone of the entries, one of its folders CIFAR10, ImageNet and SQuAD, or one JSON file"
        raise RecordError(f"reading {root}", "no entries lie there", do)
    return _compared(entries), problems


def _lonely(root: Path, files: set[Path]) -> list[str]:
    """A sentence for each curve whose JSON is missing."""
    if not root.is_dir():
        return []
    folders = {path.parent for path in files} | {root / task.folder / "train" for task in TASKS} | {root / "train"}
    curves = sorted(path for folder in folders if folder.is_dir() for path in folder.glob("*.tsv"))
    lonely = [path for path in curves if path.with_suffix(".json") not in files]
    return [f"{place_in(root, path)}: it has no JSON of its name; add the entry's JSON" for path in lonely]


def _compared(entries: list[Submission]) -> list[Submission]:
    """The entries with the doubts that only all of them together raise."""
    more: dict[int, list[str]] = defaultdict(list)
    for at, doubt in [*_twins(entries), *_costs(entries)]:
        more[at].append(doubt)
    return [_doubting(each, more[at]) if at in more else each for at, each in enumerate(entries)]


def _twins(entries: list[Submission]) -> Iterator[tuple[int, str]]:
    """Entries with the same curve, and files whose names differ in nothing but their letters' case."""
    curves: dict[tuple[object, ...], list[int]] = defaultdict(list)
    names: dict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(entries):
        if each.runs:
            curves[(each.task, *each.runs[0].curve.time_s, *each.runs[0].curve.quality)].append(at)
        names[_file(each).lower()].append(at)
    for groups, what in ((curves, "the same curve"), (names, "the same name but for case")):
        for group in groups.values():
            for at in group[1:]:
                yield at, f"duplicate: {what} as {_file(entries[group[0]])}"


def _file(entry: Submission) -> str:
    return entry.origin.file if entry.origin else ""


def _costs(entries: list[Submission]) -> Iterator[tuple[int, str]]:
    """Costs of inference, and prices, beside those that others state for hardware of exactly the same words."""
    prices: dict[str, dict[float, str]] = defaultdict(dict)
    for each in entries:
        if each.price is not None:
            prices[each.hardware.description].setdefault(each.price.usd_per_hour, _file(each))
    for at, each in enumerate(entries):
        known = prices.get(each.hardware.description, {})
        if each.inference and each.price is None and known:
            found = [list(inconsistent(each, price, f"price of {file}")) for price, file in known.items()]
            if all(found):
                yield at, found[0][0]
        if each.price is not None and len(known) > 1:
            lowest, highest = min(known), max(known)
            yield at, f"price: entries with hardware of the same words state {lowest:g} to {highest:g} USD an hour"
