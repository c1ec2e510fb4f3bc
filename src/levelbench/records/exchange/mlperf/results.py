"""A tree of MLPerf training results, read into submissions: one for each benchmark on each system.

The one idea: the folder names are part of the format, ``<org>/results/<system>/<benchmark>/result_<i>.txt`` beside
``<org>/systems/<system>.json``; where a tree has fewer folders, the logs themselves say what they are.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from levelbench.errors import LevelbenchError, RecordError
from levelbench.records.exchange.mlperf.dialects import json_value
from levelbench.records.exchange.mlperf.entries import submission_of
from levelbench.records.exchange.mlperf.logs import TrainingLog, parse_log
from levelbench.records.exchange.mlperf.sources import Tree, read_tree
from levelbench.records.rulesets.olympic import scaling_of
from levelbench.records.submissions.schema import Submission

__all__ = ["read_results", "system_of"]

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
