"""Holds one submission, one file or a whole leaderboard to the rules.

The one idea: a leaderboard is read as a stream, by several processes where asked. Of an entry that was judged only
what other entries are compared with is kept (digests, sketches of curves).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.errors import LevelbenchError
from levelbench.measure.clocks import utc_now
from levelbench.records.rulesets.registry import rulesets
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions import board
from levelbench.records.submissions.digests import file_digest
from levelbench.records.submissions.reading import UnreadableError, parse_submission, read_bytes
from levelbench.records.submissions.rules import (
    ceilings,
    curves,
    identity,
    latency,
    provenance,
    recorded,
    results,
    texts,
)
from levelbench.records.submissions.rules.entry import Entry
from levelbench.records.submissions.rules.findings import Finding, error, ordered, warning
from levelbench.records.submissions.rules.listing import SITE_MARKER, name_in, submission_files, submission_paths
from levelbench.records.submissions.rules.rivals import Rivals, Trace, trace_of
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.schema import Curve, Submission
from levelbench.records.submissions.several import FEW, shared_out
from levelbench.records.submissions.signatures import ENDING

__all__ = [
    "RULES",
    "SITE_MARKER",
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
    latency.inference,
    texts.texts,
)
_RECORDS = (".jsonl", ".jsonlines")


def check(
    submission: Submission,
    file: str = "",
    *,
    known: Mapping[str, Ruleset] | None = None,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
) -> list[Finding]:
    """What is wrong with one submission, errors first.

    ``file`` is its path in the leaderboard (empty: it lies in none), ``known`` the rulesets by id (those that ship,
    unless given), ``records`` the digests of the records at hand with their names.
    """
    return ordered(judged(Entry(submission, today or utc_now().date(), _known(known), file, records)))


def _known(known: Mapping[str, Ruleset] | None) -> Mapping[str, Ruleset]:
    return {each.id: each for each in rulesets()} if known is None else known


def judged(entry: Entry) -> Iterator[Finding]:
    """What is wrong with one entry, in the order of the rules."""
    for rule in RULES:
        yield from rule(entry)


def check_file(
    path: Path | str,
    *,
    root: Path | None = None,
    records: Mapping[str, str] | None = None,
    today: date | None = None,
) -> list[Finding]:
    """What is wrong with the file at ``path``, its signature too; ``root``: the leaderboard that it lies in.

    Without one, it is ``path``'s third parent where that folder has a leaderboard's files, else none.
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
    found += judged(Entry(submission, today or utc_now().date(), known, file if root else "", records))
    found += signing.check(path, file, raw, submission)
    return ordered(found)


def _root_of(path: Path) -> Path | None:
    """The leaderboard of a file at ``DIR/<task>/<mode>/<stem>.json``, by where it lies."""
    return path.parents[2] if len(path.parents) > 2 and path.parent.name in ("training", "inference") else None


def _unreadable(problem: LevelbenchError, file: str) -> Finding:
    code, field = (problem.code, problem.field) if isinstance(problem, UnreadableError) else ("B252", "")
    found = problem.brief if isinstance(problem, UnreadableError) else problem.found
    return error(code, file, field, found, problem.do)


def check_folder(
    folder: Path | str, *, records: Mapping[str, str] | None = None, today: date | None = None
) -> list[Finding]:
    """What is wrong in a whole leaderboard: every file by itself, and files against each other; by file.

    Raises ``UnreadableError`` if there is no such folder. A file that cannot be read is a finding.
    """
    return checked_folder(folder, records=records, today=today)[1]


class _Judged(Struct, array_like=True):
    """What came of one file: its findings, and what other entries are compared with, where it is an entry."""

    found: list[Finding]
    trace: Trace | None


class _Judge:
    """What a leaderboard's files are held to."""

    def __init__(self, root: Path, records: Mapping[str, str] | None, day: date) -> None:
        self.root, self._records, self._day = root, records, day
        self._start = len(os.path.join(root, ""))  # noqa: PTH118 -- of a text, which is cut there
        self._known, self.problems = _rulesets_of(root)
        self._signing = Signing(root)
        self.problems += self._signing.problems

    def name(self, path: str) -> str:
        """What findings call the file."""
        return path[self._start :].replace(os.sep, "/").encode("utf-8", "backslashreplace").decode()

    def judge(self, path: str) -> _Judged:
        """One file, whatever is in it."""
        file = self.name(path)
        try:
            raw = read_bytes(path)
            submission = parse_submission(raw)
        except UnreadableError as problem:
            return _Judged([_unreadable(problem, file)], None)
        entry = Entry(submission, self._day, self._known, file, self._records, raw)
        signing = [*self._signing.check(Path(path), file, raw, submission)]
        signed = not signing and os.path.lexists(f"{path}{ENDING}")
        task = entry.task.task if entry.task else None
        return _Judged([*judged(entry), *signing], trace_of(submission, task, signed=signed))

    def judge_all(self, paths: Sequence[str], processes: int) -> Iterator[_Judged]:
        """Each file, in order."""
        if processes < 2 or len(paths) < FEW:
            yield from map(self.judge, paths)
            return
        for raw in shared_out(paths, _judge_chunk, processes, _begin, (self.root, self._records, self._day)):
            yield from _DECODER.decode(raw)


_DECODER = msgspec.msgpack.Decoder(list[_Judged])
_judges: list[_Judge] = []
"""The judge of a process of its own."""


def _begin(root: Path, records: Mapping[str, str] | None, day: date) -> None:
    _judges[:] = [_Judge(root, records, day)]


def _judge_chunk(paths: Sequence[str]) -> bytes:
    return msgspec.msgpack.encode([_judges[0].judge(path) for path in paths])


def checked_folder(
    folder: Path | str, *, records: Mapping[str, str] | None = None, today: date | None = None, processes: int = 1
) -> tuple[int, list[Finding]]:
    """As ``check_folder``, after how many files of entries there are.

    Many files are shared out among ``processes``, which are spawned: whoever asks for more than one is a program with
    a main guard.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UnreadableError(f"checking the leaderboard {root}", "there is no such folder", "check the path")
    judge, rivals = _Judge(root, records, today or utc_now().date()), Rivals()
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


def _rulesets_of(root: Path) -> tuple[Mapping[str, Ruleset], list[Finding]]:
    """The rulesets that entries of the leaderboard may name, and what is wrong with its own."""
    known, found = board.own_rulesets(root)
    return known, [*found, *board.board_findings(root, known)]


def record_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every record below ``folder``, of training and of inference, with the record's path."""
    found = {}
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(_RECORDS) and not name.startswith("."):
                found[file_digest(Path(place, name))] = str(Path(place, name))
    return found
