"""Holds submissions to the rules: one, one file, or a whole leaderboard.

A leaderboard is read as a stream, by several processes where asked. Every file is read once, by ``Leaderboard.read``,
for a check and for the site alike; of an entry that was judged a check keeps only what other entries are compared with
(its ``Trace``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from levelbench.measure.clocks import utc_now
from levelbench.records.rulesets.registry import rulesets
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions import board
from levelbench.records.submissions.digests import file_digest
from levelbench.records.submissions.reading import UnreadableError, parse_submission, read_bytes
from levelbench.records.submissions.rules import (
    ceilings,
    closed,
    curves,
    identity,
    latency,
    provenance,
    recorded,
    results,
    texts,
)
from levelbench.records.submissions.rules.ceilings import Limits
from levelbench.records.submissions.rules.entry import Entry
from levelbench.records.submissions.rules.findings import Finding, error, ordered, warning
from levelbench.records.submissions.rules.listing import SITE_MARKER, name_in, submission_files, submission_paths
from levelbench.records.submissions.rules.rivals import Rivals, Trace, trace_of
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.schema import Curve, Submission
from levelbench.records.submissions.several import shared_out
from levelbench.records.submissions.signatures import ENDING

__all__ = [
    "RULES",
    "SITE_MARKER",
    "FileRead",
    "KnownLimits",
    "Leaderboard",
    "Lint",
    "Signed",
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

RULES: tuple[Callable[[Entry], Iterator[Finding]], ...] = (
    identity.rules_of,
    identity.place,
    identity.dates,
    identity.author,
    curves.curves,
    results.claims,
    results.reached,
    results.replicates,
    results.measurements,
    results.phases,
    results.numbers,
    provenance.price,
    provenance.code,
    provenance.data,
    provenance.records,
    recorded.recorded,
    provenance.tuning,
    provenance.origin,
    ceilings.ceiling,
    closed.closed,
    latency.inference,
    texts.texts,
)
_RECORDS = (".jsonl", ".jsonlines")
_WRONG = frozenset({"B230", "B232", "B233", "B235"})
_UNVERIFIED = "B231"

Signed = Literal["signed", "unsigned", "wrong"]
KnownLimits = Callable[[Submission], Limits]
"""What is known of an entry's machine and network beside what it states."""
Lint = Callable[[Submission, str, Mapping[str, Ruleset]], list[Finding]]
"""What the linter finds in an entry, by its file's name and under the rulesets that it may name."""


def judged(entry: Entry) -> Iterator[Finding]:
    """What is wrong with one entry, in the order of the rules."""
    for rule in RULES:
        yield from rule(entry)


class FileRead(NamedTuple):
    """A file of a leaderboard that was read: its bytes, the entry in it, what is wrong with it, and its signature.

    ``entry`` and ``trace`` are ``None`` for what is no submission; ``findings`` says why.
    """

    file: str
    raw: bytes
    entry: Entry | None
    findings: list[Finding]
    signed: Signed = "unsigned"
    trace: Trace | None = None


class Leaderboard:
    """Reads the files of one leaderboard; ``problems`` says what is wrong with the leaderboard's own files.

    ``records`` maps digests of the records at hand to their names; ``limits`` says what is known of an entry's machine
    and network beside what it states.
    """

    def __init__(
        self,
        root: Path,
        today: date,
        records: Mapping[str, str] | None = None,
        limits: KnownLimits | None = None,
    ) -> None:
        self.root, self.today, self.records, self.limits = root, today, records, limits
        self._start = len(os.path.join(root, ""))  # noqa: PTH118 -- of a text, which is cut there
        self.known: Mapping[str, Ruleset]
        self.known, self.problems = _rulesets_of(root)
        self._signing = Signing(root)
        self.problems += self._signing.problems

    def name(self, path: str) -> str:
        """What findings call the file."""
        return path[self._start :].replace(os.sep, "/").encode("utf-8", "backslashreplace").decode()

    def read(self, path: str) -> FileRead:
        """One file, whatever is in it."""
        file = self.name(path)
        try:
            raw = read_bytes(path)
            submission = parse_submission(raw)
        except UnreadableError as problem:
            return FileRead(file, b"", None, [_unreadable(problem, file)])
        entry = Entry(submission, self.today, self.known, file, self.records, raw, self.limits)
        signing = list(self._signing.check(Path(path), file, raw, submission))
        signed = _signed(signing, os.path.lexists(f"{path}{ENDING}"))
        trace = trace_of(submission, entry.task.task if entry.task else None, signed=signed == "signed")
        return FileRead(file, raw, entry, [*judged(entry), *signing], signed, trace)


def _signed(findings: list[Finding], has_signature: bool) -> Signed:
    codes = {each.code for each in findings}
    if not has_signature or _UNVERIFIED in codes:
        return "unsigned"
    return "wrong" if codes & _WRONG else "signed"


def _unreadable(problem: UnreadableError, file: str) -> Finding:
    return error(problem.code, file, problem.field, problem.brief, problem.do)


def _rulesets_of(root: Path) -> tuple[Mapping[str, Ruleset], list[Finding]]:
    """The rulesets that entries of the leaderboard may name, and what is wrong with its own."""
    known, found = board.own_rulesets(root)
    return known, [*found, *board.board_settings(root, known)[1]]


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
    known, found = _rulesets_of(root) if root else (_known(None), [])
    signing = Signing(root or path.parent)
    found += signing.problems
    try:
        raw = read_bytes(path, root=root)
        submission = parse_submission(raw, f"reading the submission {path}")
    except UnreadableError as problem:
        return ordered([*found, _unreadable(problem, file)])
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
    given = (root, today or utc_now().date(), records, limits)
    leaderboard, rivals = Leaderboard(*given), Rivals()
    found = leaderboard.problems
    paths = list(submission_paths(root, found))
    names = list(map(leaderboard.name, paths))
    if not paths:
        do = "see whether this is the leaderboard's folder; entries lie in TASK/training and TASK/inference"
        found.append(warning("B254", ".", "", "there is no entry", do))
    with shared_out(len(paths), processes, _begin, (given, lint)) as share:
        for file, (findings, trace) in zip(names, share(_checked, paths), strict=True):
            found += findings
            if trace is not None:
                found += rivals.add(trace, file)
    found += rivals.near(curves_of(dict(zip(names, paths, strict=True))))
    return len(paths), ordered(found)


_reading: list[tuple[Leaderboard, Lint | None]] = []
"""What a process of its own reads with."""


def _begin(given: tuple[Path, date, Mapping[str, str] | None, KnownLimits | None], lint: Lint | None) -> None:
    _reading[:] = [(Leaderboard(*given), lint)]


def _checked(path: str) -> tuple[Sequence[Finding], Trace | None]:
    """The findings about a file, and what other entries are compared with."""
    ((leaderboard, lint),) = _reading
    read = leaderboard.read(path)
    linted = [] if lint is None or read.entry is None else lint(read.entry.submission, read.file, leaderboard.known)
    return [*read.findings, *linted], read.trace


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
