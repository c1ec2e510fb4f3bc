"""Folders and archives of MLPerf's results, and its reference convergence points."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from levelbench.competition.entries import Submission
from levelbench.competition.exchange.mlperf.entries import submission_of
from levelbench.competition.exchange.mlperf.logs import (
    TrainingLog,
    Tree,
    benchmark,
    json_value,
    number_of,
    parse_log,
    read_bytes,
    read_tree,
)
from levelbench.competition.rulesets.convergence import ReferencePoint
from levelbench.competition.rulesets.scores import scaling_of
from levelbench.errors import LevelbenchError, RecordError

_LOG = re.compile(r"result_\d{1,6}\.txt")


def read_results(path: str | Path) -> tuple[list[Submission], list[str]]:
    """The submissions below ``path``, and the problems: what could not be read, and why.

    ``path`` is a folder, a tar archive of one, or a single log. A log that cannot be read is a problem and a doubt
    about its submission. Raises ``RecordError`` where there is no such path, no log below it, or an archive is damaged.
    """
    path = Path(path)
    asked = f"reading the MLPerf results in {path}"
    tree = read_tree(path, _LOG, asked)
    groups: dict[PurePosixPath, list[PurePosixPath]] = {}
    for name in tree:
        if name.suffix != ".json":
            groups.setdefault(name.parent, []).append(name)
    if not groups:
        raise RecordError(asked, "there is no result_<i>.txt in it", "give a folder of results, or one log")
    found: list[Submission] = []
    problems: list[str] = []
    for folder, names in groups.items():
        try:
            found.append(_read_group(tree, folder, names, problems))
        except LevelbenchError as error:
            problems.append(str(error))
    return found, problems


def _read_group(tree: Tree, folder: PurePosixPath, names: Sequence[PurePosixPath], problems: list[str]) -> Submission:
    logs: list[TrainingLog] = []
    digests: dict[str, str] = {}
    doubts: list[str] = []
    for name in names:
        try:
            logs.append(parse_log(io.BytesIO(tree[name]), name.name, f"reading the MLPerf log {name}"))
        except LevelbenchError as error:
            problems.append(str(error))
            doubts.append(f"{name.name} cannot be read: {error.found}")
        else:
            digests[name.name] = hashlib.sha256(tree[name]).hexdigest()
    fields: dict[str, int | float | str | bool | None] = {}
    if (scaling := folder / "scaling.json") in tree:
        fields["scaling_factor"] = scaling_of(tree[scaling], f"reading {scaling}")
    where = str(folder) if str(folder) != "." else names[0].name if len(names) == 1 else str(folder)
    system, doubt = system_of(tree, folder)
    return submission_of(
        logs, file=where, system=system, digests=digests, fields=fields, doubts=[*doubts, *([doubt] if doubt else [])]
    )


def system_of(tree: Tree, folder: PurePosixPath) -> tuple[dict[str, Any], str | None]:
    """The description of the system that a folder of logs belongs to, empty if there is none; a doubt about it."""
    parts = folder.parts
    if "results" not in parts:
        return {}, None
    at = len(parts) - 1 - parts[::-1].index("results")
    if at + 1 >= len(parts):
        return {}, None
    name = PurePosixPath(*parts[:at], "systems", f"{parts[at + 1]}.json")
    if name not in tree:
        return {}, None
    try:
        described = json_value(tree[name].decode("utf-8-sig"))
    except ValueError as error:
        return {}, f"{name} cannot be read ({error})"
    return (described, None) if isinstance(described, dict) else ({}, f"{name} is not an object")


_LIMIT = 16 * 1024 * 1024
_FIELDS = ("epochs to converge", "samples to converge")


def read_points(path: str | Path) -> dict[str, list[ReferencePoint]]:
    """The points of a file by benchmark, in the file's order; as many runs are dropped as the benchmark's score drops.

    Raises ``RecordError`` for a file that is none, or a record without benchmark, batch size or values.
    """
    path = Path(path)
    asked = f"reading the reference points in {path}"
    do = 'give {"<name>": {"Benchmark": ..., "BS": ..., "Epochs to converge": [...]}, ...}'
    try:
        said = json_value(read_bytes(path, asked, _LIMIT).decode("utf-8-sig"))
    except ValueError as error:
        raise RecordError(asked, str(error), do) from error
    if not isinstance(said, dict):
        raise RecordError(asked, "it is not an object", do)
    found: dict[str, list[ReferencePoint]] = {}
    for name, record in said.items():
        try:
            which, point = _point(record)
        except ValueError as error:
            raise RecordError(asked, f"{name[:80]}: {error}", do) from error
        found.setdefault(which, []).append(point)
    return found


def _point(record: Any) -> tuple[str, ReferencePoint]:
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    name, batch_size = record.get("Benchmark"), record.get("BS")
    if not isinstance(name, str) or isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError("it has no Benchmark, or no BS above zero")
    values = next((each for field, each in record.items() if field.lower() in _FIELDS), None)
    if not isinstance(values, list) or not values:
        raise ValueError("it has no values to converge")
    numbers = [number_of(value) for value in values]
    known = benchmark(name)
    point = ReferencePoint(batch_size, tuple(n for n in numbers if n is not None), known.drop if known else 1)
    if len(point.values) < len(numbers):
        raise ValueError("a value is not a number")
    return name, point
