"""Holds one submission, one file or a whole leaderboard to the rules.

The one idea: a leaderboard is read as a stream, by several processes where asked. Of an entry that was judged only
what other entries are compared with is kept (digests, sketches of curves).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date
from functools import lru_cache
from pathlib import Path

from levelbench.measure.clocks import utc_now
from levelbench.records.rulesets.registry import rulesets
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions.digests import file_digest
from levelbench.records.submissions.reading import UnreadableError, parse_submission, read_bytes
from levelbench.records.submissions.rules.entry import Entry
from levelbench.records.submissions.rules.findings import Finding, ordered, warning
from levelbench.records.submissions.rules.judging import (
    RULES,
    Judge,
    KnownLimits,
    Lint,
    Standard,
    judged,
    rulesets_of,
    unreadable,
)
from levelbench.records.submissions.rules.listing import SITE_MARKER, name_in, submission_files, submission_paths
from levelbench.records.submissions.rules.rivals import Rivals
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.schema import Curve, Submission

__all__ = [
    "RULES",
    "SITE_MARKER",
    "KnownLimits",
    "check",
    "check_file",
    "check_folder",
    "checked_folder",
    "curves_of",
    "judged",
    "record_digests",
    "submission_files",
    "submission_paths",
]

_RECORDS = (".jsonl", ".jsonlines")


def check(
    submission: Submission,
    file: str = "",
    *,
    known: Mapping[str, Ruleset] | None = None,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
    limits: KnownLimits | None = None,
) -> list[Finding]:
    """What is wrong with one submission, errors first.

    ``file`` is its path in the leaderboard (empty: it lies in none), ``known`` the rulesets by id (those that ship,
    unless given), ``records`` the digests of the records at hand with their names, ``limits`` what is known of an
    entry's machine and network beside what it states.
    """
    day = today or utc_now().date()
    return ordered(judged(Entry(submission, day, _known(known), file, records, limits=limits)))


def _known(known: Mapping[str, Ruleset] | None) -> Mapping[str, Ruleset]:
    return {each.id: each for each in rulesets()} if known is None else known


def check_file(
    path: Path | str,
    *,
    root: Path | None = None,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
    limits: KnownLimits | None = None,
    lint: Lint | None = None,
) -> list[Finding]:
    """What is wrong with the file at ``path``, its signature too; ``root``: the leaderboard that it lies in.

    Without one, it is ``path``'s third parent where that folder has a leaderboard's files, else none. ``lint`` says
    what the linter finds.
    """
    path = Path(path).absolute()
    root = root.absolute() if root else _root_of(path)
    file = name_in(path, root) if root else path.name
    known, found = rulesets_of(root) if root else (_known(None), [])
    signing = Signing(root or path.parent)
    found += signing.problems
    try:
        raw = read_bytes(path, root=root)
        submission = parse_submission(raw, f"reading the submission {path}")
    except UnreadableError as problem:
        return ordered([*found, unreadable(problem, file)])
    day = today or utc_now().date()
    found += judged(Entry(submission, day, known, file if root else "", records, limits=limits))
    found += signing.check(path, file, raw, submission)
    if lint is not None:
        found += lint(submission, file, known)
    return ordered(found)


def _root_of(path: Path) -> Path | None:
    """The leaderboard of a file at ``DIR/<task>/<mode>/<stem>.json``, by where it lies."""
    return path.parents[2] if len(path.parents) > 2 and path.parent.name in ("training", "inference") else None


def check_folder(
    folder: Path | str, *, records: Mapping[str, str] | None = None, today: date | None = None
) -> list[Finding]:
    """What is wrong in a whole leaderboard: every file by itself, and files against each other; by file.

    Raises ``UnreadableError`` if there is no such folder. A file that cannot be read is a finding.
    """
    return checked_folder(folder, records=records, today=today)[1]


def checked_folder(
    folder: Path | str,
    *,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
    processes: int = 1,
    limits: KnownLimits | None = None,
    lint: Lint | None = None,
) -> tuple[int, list[Finding]]:
    """As ``check_folder``, after how many files of entries there are.

    Many files are shared out among ``processes``, which are spawned: whoever asks for more than one is a program with
    a main guard, and its ``limits`` and ``lint`` are functions of a module.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UnreadableError(f"checking the leaderboard {root}", "there is no such folder", "check the path")
    judge, rivals = Judge(Standard(root, today or utc_now().date(), records, limits, lint)), Rivals()
    found = judge.problems
    paths = list(submission_paths(root, found))
    names = list(map(judge.name, paths))
    if not paths:
        do = "see whether this is the leaderboard's folder; entries lie in TASK/training and TASK/inference"
        found.append(warning("B254", ".", "", "there is no entry", do))
    for file, each in zip(names, judge.judge_all(paths, processes), strict=True):
        found += each.found
        if each.trace is not None:
            found += rivals.add(each.trace, file)
    found += rivals.near(curves_of(dict(zip(names, paths, strict=True))))
    return len(paths), ordered(found)


def curves_of(paths: Mapping[str, Path] | Mapping[str, str]) -> Callable[[str], list[Curve]]:
    """Reads the curves of a file again; none of one that cannot be read any more."""

    @lru_cache(maxsize=64)
    def read(file: str) -> list[Curve]:
        try:
            return [run.curve for run in parse_submission(read_bytes(paths[file])).runs]
        except UnreadableError:
            return []

    return read


def record_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every record below ``folder``, of training and of inference, with the record's path."""
    found = {}
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(_RECORDS) and not name.startswith("."):
                found[file_digest(Path(place, name))] = str(Path(place, name))
    return found
