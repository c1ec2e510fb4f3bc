"""Reads a leaderboard's folder for the site: its own facts, and each file once, checked and scored.

The one idea: of a submission only what the site shows is kept, so ten thousand of them need no more memory than their
pages' data; and a file that is wrong is a reason to say so beside the others, never to stop.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError, UsageError
from levelbench.records.rulesets.registry import task_rules
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions.addresses import is_address
from levelbench.records.submissions.board import BOARD, own_rulesets
from levelbench.records.submissions.reading import UnreadableError, parse_submission, read_bytes
from levelbench.records.submissions.rules import Finding, ordered
from levelbench.records.submissions.rules.checking import judged
from levelbench.records.submissions.rules.entry import Entry as Judged
from levelbench.records.submissions.rules.entry import day_of
from levelbench.records.submissions.rules.judging import KnownLimits
from levelbench.records.submissions.rules.rivals import trace_of
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.scenarios import is_apart
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.scoring import score
from levelbench.records.submissions.several import Steps
from levelbench.records.submissions.signatures import AUTHORS, ENDING, available
from levelbench.records.submissions.steps import climbs_of, crossing_of
from levelbench.report.remarks import Remarks
from levelbench.report.site.entries import Signed, entry_payload, further_of, steps_json
from levelbench.report.site.payload import FindingCounts
from levelbench.report.site.state import Entry, glance, is_same, look

__all__ = ["BOARD", "KnownLimits", "Leaderboard", "Lint", "Read", "line"]

_LARGEST_BYTES = 1 << 20
_SMALL_BYTES = 1 << 18
_WRONG = frozenset({"B230", "B232", "B233", "B235"})
_UNVERIFIED = "B231"
_DAY = timedelta(days=1)

Lint = Callable[[Submission, str, Mapping[str, Ruleset]], Remarks]
"""What says what the linter finds in an entry: a function of a module, so that other processes have it, too."""


class _Facts(Struct):
    """What ``board.toml`` may say; what else is in it is for others."""

    title: str = "Time to accuracy"
    rulesets: list[str] = []
    url: str = ""


class Read(Struct):
    """A file that was read: what is remembered of it, and what its page is made of (``None``: no submission)."""

    entry: Entry
    raw: bytes
    submission: Submission | None
    findings: list[Finding]
    linted: Remarks | None = None


class Leaderboard:
    """A folder of submissions with its rules and keys; ``problems`` says what of these files cannot be used.

    ``only`` is the id of one ruleset that all entries are scored under, whichever they name; ``lint`` is asked about
    each entry that is shown, ``limits`` what is known of its machine and network, as a check asks it. Raises
    ``UsageError`` where there is no folder, ``UnknownNameError`` for a ruleset that is neither ours nor the folder's,
    and ``DefinitionError`` for a ``board.toml`` or ruleset that cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        today: date,
        *,
        only: str | None = None,
        lint: Lint | None = None,
        limits: KnownLimits | None = None,
    ) -> None:
        if not folder.is_dir():
            raise UsageError(f"the leaderboard {folder}", "there is no such folder", "give the folder of the entries")
        self.folder, self.today, self.lint, self.limits = folder, today, lint, limits
        self._start = len((folder / "x").as_posix()) - 1
        rulesets, wrong = own_rulesets(folder)
        self.known: Mapping[str, Ruleset] = rulesets
        facts, self._raw = _facts(folder / BOARD)
        self.title, self.url = facts.title, facts.url
        for name in facts.rulesets:
            if name not in self.known:
                raise UnknownNameError(f"ruleset of {folder / BOARD}", name, self.known, "correct that file's rulesets")
        if only and only not in self.known:
            raise UnknownNameError("ruleset", only, self.known)
        self._listed, self.only = frozenset(facts.rulesets), only
        self._signing = Signing(folder)
        self._signed: dict[str, frozenset[str]] = {}
        self.problems: list[Finding] = [*self._signing.problems, *wrong]

    def settings(self) -> list[bytes]:
        """Everything beside the entries that decides what is made of them."""
        keys = self.folder / AUTHORS
        authors = keys.read_bytes() if keys.is_file() else b""
        only, verifying = (self.only or "").encode(), b"signatures" if available() else b""
        rules = [msgspec.json.encode(self.known[id]) for id in sorted(self.known)]
        return [self._raw, authors, only, verifying, *rules]

    def rules_of(self, id: str) -> Ruleset:
        """The ruleset of that id."""
        return self.known[id]

    def remembered(self, path: str, before: Entry | None) -> Entry | None:
        """``before`` if the file and its signature are what they were, and no date in it has come meanwhile."""
        if before is None or "" < before.again <= self.today.isoformat():
            return None
        file, signature = look(path, before.file), None
        if before.signature is not None or f"{path}{ENDING}" in self._signatures(path):
            signature = look(path + ENDING, before.signature)
        if file is None or not is_same(file, before.file) or not is_same(signature, before.signature):
            return None
        if file is before.file and signature is before.signature:
            return before
        return msgspec.structs.replace(before, file=file, signature=signature)

    def _signatures(self, path: str) -> frozenset[str]:
        """All that lie in the file's folder: to ask for that of each file is as much work as to look at the file."""
        folder = path.rpartition(os.sep)[0]
        if folder not in self._signed:
            try:
                names = os.listdir(folder or os.curdir)  # noqa: PTH208 -- of ten thousand files, as texts
            except OSError:
                names = []
            self._signed[folder] = frozenset(f"{folder}{os.sep}{name}" for name in names if name.endswith(ENDING))
        return self._signed[folder]

    def read(self, path: Path) -> Steps[Read]:
        """The entry in the file at ``path``, whatever is in it; in steps, for ``in_step``."""
        where = str(path)
        file = path.as_posix()[self._start :].encode("utf-8", "backslashreplace").decode()
        # Looked at before they are read: a file that changes meanwhile differs at the next look.
        seen, signature = glance(where), look(f"{where}{ENDING}", None)
        try:
            raw = read_bytes(where)
            seen = msgspec.structs.replace(seen, sha256=sha256(raw).hexdigest())
            submission = parse_submission(raw)
        except UnreadableError as problem:
            found = Finding(problem.code, "error", file, problem.field, problem.brief, problem.do)
            return Read(Entry(seen, signature, None, None, 1, 0, [line(found)]), b"", None, [found])
        # What takes much memory is gone before the next is read.
        pause = (None,) if len(raw) <= _SMALL_BYTES else ()
        yield from pause
        signing = list(self._signing.check(path, file, raw, submission))
        held = Judged(submission, self.today, self.known, file, raw=raw, limits=self.limits)
        findings = ordered([*judged(held), *signing])
        signed = _signed(signing, signature is not None)
        yield from pause
        entry = Entry(
            file=seen,
            signature=signature,
            board=None,
            payload=None,
            errors=sum(each.severity == "error" for each in findings),
            warnings=sum(each.severity == "warning" for each in findings),
            reasons=[line(each) for each in findings if each.severity == "error"],
            trace=trace_of(submission, held.task.task if held.task else None, signed=signed == "signed"),
            again=_again(submission, self.today),
        )
        yield from pause
        if not entry.reasons:
            self._score(entry, held, file.removesuffix(".json"), signed)
        yield from pause
        linted = self._linted(submission, file) if entry.payload is not None else None
        if entry.payload is not None and linted is not None:
            entry.payload.lint = linted.words()
        yield from pause
        return Read(entry, raw, submission, findings, linted)

    def _linted(self, submission: Submission, file: str) -> Remarks | None:
        """What the linter says of the entry; nothing where no claim can be made of it."""
        try:
            return None if self.lint is None else self.lint(submission, file, self.known)
        except LevelbenchError:
            return None

    def _score(self, entry: Entry, held: Judged, id: str, signed: Signed) -> None:
        """Give the entry its boards and its figures, or the reason why it is on none."""
        submission = held.submission
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
        # An entry that keeps the rules it is scored by has been looked at by them already.
        own = rules is held.rules and submission.target == task.target
        climbs = held.climbs if own else climbs_of(submission, task.target, crossing_of(submission, rules))
        found = score(submission, rules, climbs=climbs)
        apart = [each.scenario if is_apart(each.scenario, task.inference) else None for each in found.in_scenarios()]
        entry.board = (rules.id, task.task, apart[0])
        entry.further = [further_of(each, key, rules) for each, key in zip(found.further, apart[1:], strict=True)]
        entry.payload = entry_payload(id, submission, found, rules, signed=signed, findings=counts, climbs=climbs)
        entry.steps = steps_json(climbs, task.target)


def _again(submission: Submission, today: date) -> str:
    """The first day on which a date that lies in the future of ``today`` is judged otherwise; empty if there is none.

    A rule may give a day's grace, so that is the day before the date, or tomorrow; whoever looks then finds the next.
    """
    texts = [submission.submitted, *(run.started[:10] for run in submission.runs if run.started)]
    if submission.price is not None and submission.price.read_on:
        texts.append(submission.price.read_on)
    # As texts nearly all are past; only of the others it is asked whether they are dates.
    days = map(day_of, {text for text in texts if text > today.isoformat()})
    ahead = [day for day in days if day is not None and day > today]
    return max(min(ahead) - _DAY, today + _DAY).isoformat() if ahead else ""


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
        facts = msgspec.convert(tomllib.loads(raw.decode("utf-8")), _Facts)
    except UnreadableError as error:
        raise DefinitionError(asked, error.found, do) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, msgspec.ValidationError) as error:
        raise DefinitionError(asked, str(error).replace("$.", ""), do) from error
    if facts.url and not is_address(facts.url):
        raise DefinitionError(asked, f"url is {facts.url[:100]!a}", "give an address with http or https")
    return facts, raw


def _signed(findings: list[Finding], has_signature: bool) -> Signed:
    codes = {each.code for each in findings}
    if not has_signature or _UNVERIFIED in codes:
        return "unsigned"
    return "wrong" if codes & _WRONG else "signed"
