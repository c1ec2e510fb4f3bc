"""Holds one entry after another to the rules, and to the linter where it is asked for: what a process does of a check.

The one idea: a file is read once, and whoever looks at an entry looks at it then; of an entry that was judged only
what other entries are compared with is kept (digests, sketches of curves).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from levelbench.errors import LevelbenchError
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions import board
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
from levelbench.records.submissions.rules.findings import Finding, error
from levelbench.records.submissions.rules.rivals import Trace, trace_of
from levelbench.records.submissions.rules.signing import Signing
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.several import FEW, TOGETHER, Steps, in_step, shared_out
from levelbench.records.submissions.signatures import ENDING

__all__ = ["RULES", "Judge", "Judged", "KnownLimits", "Lint", "Standard", "judged", "rulesets_of", "unreadable"]

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
_SMALL_BYTES = 1 << 18
KnownLimits = Callable[[Submission], Limits]
"""What is known of an entry's machine and network beside what it states."""
Lint = Callable[[Submission, str, Mapping[str, Ruleset]], list[Finding]]
"""What the linter finds in an entry, by its file's name and under the rulesets that it may name."""


def judged(entry: Entry) -> Iterator[Finding]:
    """What is wrong with one entry, in the order of the rules."""
    for rule in RULES:
        yield from rule(entry)


def unreadable(problem: LevelbenchError, file: str) -> Finding:
    """The finding about a file that cannot be read."""
    code, field = (problem.code, problem.field) if isinstance(problem, UnreadableError) else ("B252", "")
    found = problem.brief if isinstance(problem, UnreadableError) else problem.found
    return error(code, file, field, found, problem.do)


class Judged(Struct, array_like=True):
    """What came of one file: its findings, and what other entries are compared with, where it is an entry."""

    found: list[Finding]
    trace: Trace | None


class Standard(NamedTuple):
    """What a leaderboard's files are held to; ``records`` maps digests of the records at hand to their names."""

    root: Path
    today: date
    records: Mapping[str, str] | None = None
    limits: KnownLimits | None = None
    lint: Lint | None = None


class Judge:
    """Holds the files of one leaderboard to its rules; ``problems`` are those of the leaderboard's own files."""

    def __init__(self, standard: Standard) -> None:
        self._standard = standard
        self._start = len(os.path.join(standard.root, ""))  # noqa: PTH118 -- of a text, which is cut there
        self._known, self.problems = rulesets_of(standard.root)
        self._signing = Signing(standard.root)
        self.problems += self._signing.problems

    def name(self, path: str) -> str:
        """What findings call the file."""
        return path[self._start :].replace(os.sep, "/").encode("utf-8", "backslashreplace").decode()

    def judge(self, path: str) -> Steps[Judged]:
        """One file, whatever is in it; in steps, for ``in_step``."""
        file = self.name(path)
        try:
            raw = read_bytes(path)
            submission = parse_submission(raw)
        except UnreadableError as problem:
            return Judged([unreadable(problem, file)], None)
        # What takes much memory is gone before the next is read.
        pause = (None,) if len(raw) <= _SMALL_BYTES else ()
        yield from pause
        standard = self._standard
        entry = Entry(submission, standard.today, self._known, file, standard.records, raw, standard.limits)
        signing = [*self._signing.check(Path(path), file, raw, submission)]
        signed = not signing and os.path.lexists(f"{path}{ENDING}")
        task = entry.task.task if entry.task else None
        found = [*judged(entry), *signing]
        yield from pause
        if standard.lint is not None:
            found += standard.lint(submission, file, self._known)
            yield from pause
        return Judged(found, trace_of(submission, task, signed=signed))

    def judge_each(self, paths: Sequence[str]) -> Iterator[Judged]:
        """Each file, in order; a few are worked on together."""
        for at in range(0, len(paths), TOGETHER):
            yield from in_step(map(self.judge, paths[at : at + TOGETHER]))

    def judge_all(self, paths: Sequence[str], processes: int) -> Iterator[Judged]:
        """Each file, in order."""
        if processes < 2 or len(paths) < FEW:
            yield from self.judge_each(paths)
            return
        for raw in shared_out(paths, _judge_chunk, processes, _begin, (self._standard,)):
            yield from _DECODER.decode(raw)


_DECODER = msgspec.msgpack.Decoder(list[Judged])
_judges: list[Judge] = []
"""The judge of a process of its own."""


def _begin(standard: Standard) -> None:
    _judges[:] = [Judge(standard)]


def _judge_chunk(paths: Sequence[str]) -> bytes:
    return msgspec.msgpack.encode(list(_judges[0].judge_each(paths)))


def rulesets_of(root: Path) -> tuple[Mapping[str, Ruleset], list[Finding]]:
    """The rulesets that entries of the leaderboard may name, and what is wrong with its own."""
    known, found = board.own_rulesets(root)
    return known, [*found, *board.board_findings(root, known)]
