"""Holds one submission, one file or a whole leaderboard to the rules.

The one idea: a leaderboard is read as a stream. Of an entry that was judged only what other entries are compared with
is kept (digests, sketches of curves), so ten thousand entries need no more memory than their points.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path

from levelbench.errors import LevelbenchError
from levelbench.measure.clocks import utc_now
from levelbench.records.rulesets.registry import folder_rulesets, rulesets
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions.digests import file_digest
from levelbench.records.submissions.reading import UnreadableError, parse_submission, read_bytes
from levelbench.records.submissions.rules import ceilings, curves, identity, latency, provenance, results, texts
from levelbench.records.submissions.rules.entry import Entry
from levelbench.records.submissions.rules.findings import Finding, error, ordered, warning
from levelbench.records.submissions.rules.rivals import Rivals
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.signatures import ENDING

__all__ = [
    "RULES",
    "SITE_MARKER",
    "check",
    "check_file",
    "check_folder",
    "checked_folder",
    "record_digests",
    "submission_files",
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
    results.phases,
    results.numbers,
    provenance.price,
    provenance.code,
    provenance.data,
    provenance.records,
    provenance.tuning,
    ceilings.ceiling,
    latency.inference,
    texts.texts,
)
SITE_MARKER = ".levelbench-site"
"""The file that says of a folder that it is a built site."""
_RECORDS = (".jsonl", ".jsonlines")
_OWN = frozenset({"board.toml", "authors.toml"})
_PLAIN_ENDINGS = (".md", ".txt", ".yml", ".yaml", ".toml")


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
    return ordered(_judged(submission, file, _known(known), records, today or utc_now().date()))


def _known(known: Mapping[str, Ruleset] | None) -> Mapping[str, Ruleset]:
    return {each.id: each for each in rulesets()} if known is None else known


def _judged(
    submission: Submission, file: str, known: Mapping[str, Ruleset], records: Mapping[str, str] | None, today: date
) -> Iterator[Finding]:
    entry = Entry(submission, today, known, file, records)
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
    file = _name(path, root) if root else path.name
    known, found = _rulesets_of(root) if root else (_known(None), [])
    signing = Signing(root or path.parent)
    found += signing.problems
    try:
        raw = read_bytes(path, root=root)
        submission = parse_submission(raw, f"reading the submission {path}")
    except UnreadableError as problem:
        return ordered([*found, _unreadable(problem, file)])
    found += _judged(submission, file if root else "", known, records, today or utc_now().date())
    found += signing.check(path, file, raw, submission)
    return ordered(found)


def _root_of(path: Path) -> Path | None:
    """The leaderboard of a file at ``DIR/<task>/<mode>/<stem>.json``, by where it lies."""
    return path.parents[2] if len(path.parents) > 2 and path.parent.name in ("training", "inference") else None


def _unreadable(problem: LevelbenchError, file: str) -> Finding:
    code, field = (problem.code, problem.field) if isinstance(problem, UnreadableError) else ("B252", "")
    return error(code, file, field, problem.found, problem.do)


def check_folder(
    folder: Path | str, *, records: Mapping[str, str] | None = None, today: date | None = None
) -> list[Finding]:
    """What is wrong in a whole leaderboard: every file by itself, and files against each other; by file.

    Raises ``UnreadableError`` if there is no such folder. A file that cannot be read is a finding.
    """
    return checked_folder(folder, records=records, today=today)[1]


def checked_folder(
    folder: Path | str, *, records: Mapping[str, str] | None = None, today: date | None = None
) -> tuple[int, list[Finding]]:
    """As ``check_folder``, after how many files of entries there are."""
    root = Path(folder)
    if not root.is_dir():
        raise UnreadableError(f"checking the leaderboard {root}", "there is no such folder", "check the path")
    known, found = _rulesets_of(root)
    signing, rivals, day = Signing(root), Rivals(), today or utc_now().date()
    found += signing.problems
    entries = 0
    for path in submission_files(root, found):
        entries += 1
        file = _name(path, root)
        try:
            raw = read_bytes(path)
            submission = parse_submission(raw)
        except UnreadableError as problem:
            found.append(_unreadable(problem, file))
            continue
        found += _judged(submission, file, known, records, day)
        found += signing.check(path, file, raw, submission)
        found += rivals.add(submission, file)
    return entries, ordered(found)


def _rulesets_of(root: Path) -> tuple[Mapping[str, Ruleset], list[Finding]]:
    """The rulesets that entries of the leaderboard may name, and what is wrong with its own."""
    try:
        return folder_rulesets(root), []
    except LevelbenchError as problem:
        return _known(None), [_unreadable(problem, "rulesets")]


def submission_files(root: Path, findings: list[Finding]) -> Iterator[Path]:
    """The files of a leaderboard's entries by name; links and files that are none of its are added to ``findings``.

    No link is followed and nothing hidden is looked at.
    """

    def closed(problem: OSError) -> None:
        place = Path(os.fsdecode(problem.filename or root))
        findings.append(error("B252", _name(place, root), "", problem.strerror or str(problem), "make it readable"))

    for place, inner, names in os.walk(root, onerror=closed):
        here = Path(place)
        for name in sorted(inner):
            if (here / name).is_symlink():
                findings.append(_link(here / name, root))
        inner[:] = sorted(name for name in inner if not name.startswith(".") and not (here / name).is_symlink())
        if here == root:
            inner[:] = [name for name in inner if name != "rulesets" and not (here / name / SITE_MARKER).exists()]
        listed = {name.casefold(): name for name in sorted(names, reverse=True)}
        for name in sorted(name for name in names if not name.startswith(".")):
            path = here / name
            if path.is_symlink():
                findings.append(_link(path, root))
            elif name.endswith(".json"):
                if listed[name.casefold()] != name:
                    found = f"it differs from {listed[name.casefold()]} in capitals only"
                    findings.append(error("B115", _name(path, root), "", found, "rename one of them"))
                yield path
            elif name.endswith(f".json{ENDING}"):
                if name.removesuffix(ENDING) not in names:
                    do = "remove it, or bring the entry"
                    findings.append(warning("B236", _name(path, root), "", "there is no such entry", do))
            elif not (here == root and (name in _OWN or name.endswith(_PLAIN_ENDINGS) or "." not in name)):
                findings.append(warning("B251", _name(path, root), "", "it is no entry", "remove it"))


def _name(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
    return name.encode("utf-8", "backslashreplace").decode()


def _link(path: Path, root: Path) -> Finding:
    return error("B250", _name(path, root), "", "it is a link, which is not followed", "put a file in its place")


def record_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every record below ``folder``, of training and of inference, with the record's path."""
    found = {}
    for place, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(_RECORDS) and not name.startswith("."):
                found[file_digest(Path(place, name))] = str(Path(place, name))
    return found
