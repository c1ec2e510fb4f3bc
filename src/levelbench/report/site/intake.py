"""Reads a leaderboard's folder for the site: its own facts, and each file once, checked and scored.

The one idea: of a submission only what the site shows is kept, so ten thousand of them need no more memory than their
pages' data; and a file that is wrong is a reason to say so beside the others, never to stop.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.records.rulesets.registry import folder_rulesets, task_rules
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions.reading import UnreadableError, parse_submission, read_bytes
from levelbench.records.submissions.rules import Finding, check, ordered
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.scoring import score
from levelbench.records.submissions.signatures import AUTHORS, ENDING
from levelbench.report.site.entries import Signed, entry_payload
from levelbench.report.site.payload import FindingCounts
from levelbench.report.site.state import Entry, Input, is_same, look

__all__ = ["BOARD", "Leaderboard", "Read", "Twins", "line"]

BOARD = "board.toml"
_LARGEST_BYTES = 1 << 20
_WRONG = frozenset({"B230", "B232", "B233", "B235"})
_UNVERIFIED = "B231"
_ENCODER = msgspec.json.Encoder(order="deterministic")


class _Facts(Struct):
    """What ``board.toml`` may say; what else is in it is for others."""

    title: str = "Time to accuracy"
    rulesets: list[str] = []
    url: str = ""


class Read(Struct):
    """A file that was read: what is remembered of it, and what its page is made of (``None``: no submission)."""

    entry: Entry
    submission: Submission | None
    findings: list[Finding]


class Leaderboard:
    """A folder of submissions with its rules and keys; ``problems`` says what of these files cannot be used.

    ``only`` is the id of one ruleset that all entries are scored under, whichever they name. Raises ``UsageError``
    where there is no folder, ``UnknownNameError`` for a ruleset that is neither ours nor the folder's, and
    ``DefinitionError`` for a ``board.toml`` or ruleset that cannot be read.
    """

    def __init__(self, folder: Path, today: date, *, only: str | None = None) -> None:
        if not folder.is_dir():
            raise UsageError(f"the leaderboard {folder}", "there is no such folder", "give the folder of the entries")
        self.folder, self.today = folder, today
        self.known: Mapping[str, Ruleset] = folder_rulesets(folder)
        facts, self._raw = _facts(folder / BOARD)
        self.title, self.url = facts.title, facts.url
        for name in (*facts.rulesets, *([only] if only else [])):
            if name not in self.known:
                raise UnknownNameError("ruleset", name, self.known)
        self._listed, self.only = frozenset(facts.rulesets), only
        self._signing = Signing(folder)
        self.problems: list[Finding] = self._signing.problems

    def settings(self) -> list[bytes]:
        """Everything beside the entries that decides what is made of them."""
        keys = self.folder / AUTHORS
        authors = keys.read_bytes() if keys.is_file() else b""
        only = (self.only or "").encode()
        return [self._raw, authors, only, *(msgspec.json.encode(self.known[id]) for id in sorted(self.known))]

    def rules_of(self, id: str) -> Ruleset:
        """The ruleset of that id."""
        return self.known[id]

    def remembered(self, path: str, before: Entry | None, day: str) -> Entry | None:
        """``before`` if the file and its signature are what they were, and no date in it has come since ``day``."""
        if before is None or (before.day > day and day != self.today.isoformat()):
            return None
        file, signature = look(path, before.file), look(path + ENDING, before.signature)
        if file is None or not is_same(file, before.file) or not is_same(signature, before.signature):
            return None
        if file is before.file and signature is before.signature:
            return before
        return msgspec.structs.replace(before, file=file, signature=signature)

    def read(self, path: Path) -> Read:
        """The entry in the file at ``path``, whatever is in it."""
        file = path.relative_to(self.folder).as_posix().encode("utf-8", "backslashreplace").decode()
        # Looked at before they are read: a file that changes meanwhile differs at the next look.
        seen, signature = look(str(path), None), look(f"{path}{ENDING}", None)
        seen = seen or Input(0, 0, "")
        try:
            raw = read_bytes(path)
            submission = parse_submission(raw)
        except UnreadableError as problem:
            found = Finding(problem.code, "error", file, problem.field, problem.found, problem.do)
            return Read(Entry(seen, signature, None, None, 1, 0, [line(found)]), None, [found])
        signing = list(self._signing.check(path, file, raw, submission))
        findings = ordered([*check(submission, file, known=self.known, today=self.today), *signing])
        entry = Entry(
            file=seen,
            signature=signature,
            board=None,
            payload=None,
            errors=sum(each.severity == "error" for each in findings),
            warnings=sum(each.severity == "warning" for each in findings),
            reasons=[line(each) for each in findings if each.severity == "error"],
            scope=(submission.ruleset, submission.task, submission.mode),
            digest=hashlib.sha256(_ENCODER.encode(submission)).hexdigest(),
            records=_records(submission),
            day=submission.submitted,
        )
        if not entry.reasons:
            self._score(entry, submission, file.removesuffix(".json"), _signed(signing, signature is not None))
        return Read(entry, submission, findings)

    def _score(self, entry: Entry, submission: Submission, id: str, signed: Signed) -> None:
        """Give the entry its board and its figures, or the reason why it is on none."""
        if self.only is None and self._listed and submission.ruleset not in self._listed:
            listed = ", ".join(sorted(self._listed))
            entry.reasons = [
                f"It is made for {submission.ruleset}; {BOARD} lists {listed}. Submit it under one of them."
            ]
            return
        rules = self.known[self.only or submission.ruleset]
        task = task_rules(rules, submission.task)
        if task is None:
            entry.reasons = [f"{rules.id} has no task {submission.task!r}. Build the site under its own ruleset."]
            return
        counts = FindingCounts(entry.errors, entry.warnings)
        found = score(submission, rules)
        entry.board = (rules.id, task.task)
        payload = entry_payload(id, submission, found, rules, signed=signed, findings=counts)
        entry.payload, entry.steps = payload, msgspec.json.encode(payload.steps)


class Twins:
    """Entries by what tells them apart: the same one twice, or one record in two, keeps the later off the board.

    Curves that are nearly the same are for ``board check`` to tell: they keep no entry off.
    """

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}
        self._records: dict[tuple[str, ...], tuple[str, str]] = {}

    def add(self, entry: Entry, file: str) -> list[Finding]:
        """What of the entry in ``file`` an earlier one has already; nothing of a file that is no submission."""
        if not entry.digest:
            return []
        first = self._entries.setdefault(entry.digest, file)
        if first != file:
            return [Finding("B240", "error", file, "", f"the same as {first}", "remove one of them")]
        found = []
        for at, digest in entry.records:
            other, field = self._records.setdefault((*entry.scope, digest), (file, at))
            if other != file:
                words = f"the same record as {field} of {other}"
                found.append(Finding("B241", "error", file, at, words, "submit a run in one entry"))
        return found


def line(finding: Finding) -> str:
    """A finding as a line for people."""
    at = f" {finding.field}" if finding.field else ""
    return f"{finding.code}{at}: {finding.found.rstrip('.')}. {finding.do[:1].upper()}{finding.do[1:].rstrip('.')}."


def _facts(path: Path) -> tuple[_Facts, bytes]:
    asked, do = f"reading {path}", "correct the file: it may have title, rulesets (a list of ids) and url"
    if not path.exists():
        return _Facts(), b""
    try:
        raw = read_bytes(path, limit=_LARGEST_BYTES)
        return msgspec.convert(tomllib.loads(raw.decode("utf-8")), _Facts), raw
    except UnreadableError as error:
        raise DefinitionError(asked, error.found, do) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, msgspec.ValidationError) as error:
        raise DefinitionError(asked, str(error).replace("$.", ""), do) from error


def _signed(findings: list[Finding], has_signature: bool) -> Signed:
    codes = {each.code for each in findings}
    if not has_signature or _UNVERIFIED in codes:
        return "unsigned"
    return "wrong" if codes & _WRONG else "signed"


def _records(submission: Submission) -> list[tuple[str, str]]:
    parts = [(f"runs[{at}].record_digest", run.record_digest) for at, run in enumerate(submission.runs)]
    parts += [(f"inference[{at}].record_digest", each.record_digest) for at, each in enumerate(submission.inference)]
    return [(at, digest) for at, digest in parts if digest is not None]
