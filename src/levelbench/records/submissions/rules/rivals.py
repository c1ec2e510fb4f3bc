"""Rules about entries beside each other: the same one twice, shared runs, curves that are nearly copies.

The one idea: entries are compared only where they compete, that is under one ruleset, in one task and mode; the same
run may well be submitted under two rulesets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from operator import lt

import msgspec

from levelbench.records.submissions.near import Near
from levelbench.records.submissions.rules.findings import Finding, error, warning
from levelbench.records.submissions.schema import Submission

__all__ = ["Rivals"]

_ENCODER = msgspec.json.Encoder(order="deterministic")
_Field = tuple[str, str]


class Rivals:
    """The entries seen so far, by what tells them apart. One for a whole leaderboard."""

    def __init__(self) -> None:
        self._entries: dict[bytes, str] = {}
        self._runs: dict[tuple[str, ...], _Field] = {}
        self._near: dict[tuple[str, ...], tuple[Near, list[_Field]]] = {}

    def add(self, submission: Submission, file: str) -> list[Finding]:
        """What of the entry in ``file`` an earlier one has already."""
        first = self._entries.setdefault(hashlib.sha256(_ENCODER.encode(submission)).digest(), file)
        if first != file:
            return [error("B240", file, "", f"the same as {first}", "remove one of them")]
        scope = (submission.ruleset, submission.task, submission.mode)
        shared = list(self._shared(submission, file, scope))
        return [*shared, *self._nearly(submission, file, scope, {each.field.partition(".")[0] for each in shared})]

    def _shared(self, submission: Submission, file: str, scope: tuple[str, ...]) -> Iterator[Finding]:
        """Runs and measurements whose record another entry has."""
        parts = [(f"runs[{at}]", run.record_digest) for at, run in enumerate(submission.runs)]
        parts += [(f"inference[{at}]", each.record_digest) for at, each in enumerate(submission.inference)]
        for at, digest in parts:
            if digest is None:
                continue
            other, field = self._runs.setdefault((*scope, digest), (file, at))
            if other != file:
                found = f"the same record as {field} of {other}"
                yield error("B241", file, f"{at}.record_digest", found, "submit a run in one entry")

    def _nearly(self, submission: Submission, file: str, scope: tuple[str, ...], told: set[str]) -> Iterator[Finding]:
        near, fields = self._near.setdefault(scope, (Near(), []))
        for at, run in enumerate(submission.runs):
            curve = run.curve
            if len(curve.time_s) != len(curve.quality) or not all(map(lt, curve.time_s, curve.time_s[1:])):
                continue
            _, match = near.add(curve)
            fields.append((file, f"runs[{at}]"))
            if match is None or f"runs[{at}]" in told:
                continue
            other, field = fields[match.earlier]
            if other == file and curve == submission.runs[int(field[5:-1])].curve:
                # A run that is there twice in one entry is told by a rule of its own.
                continue
            place = field if other == file else f"{field} of {other}"
            scaled = "" if match.scale == 1 else f", with times {match.scale:.4g} of its"
            found = f"{match.agree} of {match.points} points as in {place}{scaled}"
            yield warning("B242", file, f"runs[{at}].curve", found, "see whether it is a run of its own")
