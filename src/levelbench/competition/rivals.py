"""Entries against each other: the same one twice, shared runs, curves nearly copied, and comparability with a board.

Entries are compared only where they compete, that is under one ruleset, in one task and mode. Of two that share a run
the signed one is believed, then the one of the earlier day, and never the one whose file's name comes first: where that
decides nothing, both get a finding and stay. Curves are compared by the smallest few hashes of their points (bottom-k
sketches, Broder 1997), and point by point only where sketches agree: n curves need n log n steps, not n² comparisons.

A ranking compares every entry with every other, so the gate of every comparison, ``levelbench.records.comparable``, is
asked about each entry that differs from most of its board: about the data (checksums, split, labels), the code of the
task and the options of a quality. What most entries say does not settle who is right, so nothing that the gate finds
keeps an entry off its board: it is shown beside the rank.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from operator import lt
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from levelbench.competition.checks import CODES, EntryFinding, error, note, shown, warning
from levelbench.competition.checks.identity import skeleton
from levelbench.competition.entries import Submission, SubmittedCurve
from levelbench.competition.rulesets import ruleset, ruleset_ids, task_rules
from levelbench.records import RunGroup, RunSummary, comparable
from levelbench.records.comparable import Caveat
from levelbench.records.schema import DatasetFacts, Target

_SIGNATURES = "signatures."
_SUBJECTS = frozenset(
    {"checksums", "dataset", "split rule", "split sizes", "labels", "inputs", "task definition", "source", "quality"}
)
"""What the gate looks at that entries of one board have in common."""
_CODE_OF = {"refuse": "B260", "no verdict": "B260", "doubt": "B261", "note": "B262"}
_BESIDE_RANK = frozenset({"B155", "B241", "B242", "B243", "B244", "B260", "B261"})


_DIGESTS = ("quality_digest", "data_digest", "source_digest")
_AS_STATED = ("dataset", "split_rule", "labels", "inputs", "checksums", *_DIGESTS)
_UNSAID: dict[str, Any] = {
    **dict.fromkeys(("key", "framework", "device", "crossing", "clock", "started", "path"), ""),
    **{name: {} for name in ("settings", "excluded_s", "phases_s", "quality")},
    **dict.fromkeys(("time_to_accuracy_s", "given_up_s", "time_per_step_s", "peak_memory_bytes", "error")),
    **dict.fromkeys(("epochs_to_target", "samples_to_target", "steps_to_target")),
    **dict.fromkeys(("energy_j", "energy_method", "energy_reason")),
}
"""What a run's summary has besides the facts of its board, which are all that the gate is asked about."""


BoardFacts = dict[str, Any]
"""What an entry says of what is the same for all entries of a board, by name; nothing where it says nothing."""


def board_facts(submission: Submission) -> BoardFacts:
    """The facts of any submission."""
    stated = submission.provenance
    options = {
        name.removeprefix(_SIGNATURES): text
        for name, text in stated.environment.items()
        if name.startswith(_SIGNATURES)
    }
    found = {
        "recipe": str(submission.settings.get("recipe", "")),
        "sizes": stated.split_sizes,
        "signatures": options,
        **{name: getattr(stated, name) for name in _AS_STATED},
    }
    return {name: value for name, value in found.items() if value}


def compared_with_board(entries: Iterable[tuple[str, tuple[str, ...], BoardFacts]]) -> Iterator[EntryFinding]:
    """What the gate finds between each entry (its file, board and facts) and what most entries of its board say."""
    boards: dict[tuple[str, ...], dict[bytes, tuple[BoardFacts, list[str]]]] = {}
    for file, board, facts in entries:
        # Most entries of a board say the same: each kind is compared once.
        kinds = boards.setdefault(board, {})
        kinds.setdefault(msgspec.msgpack.encode(facts, order="deterministic"), (facts, []))[1].append(file)
    for board, kinds in boards.items():
        if len(kinds) < 2:
            continue
        most = _most([(facts, len(files)) for facts, files in kinds.values()])
        for facts, files in kinds.values():
            for caveat in _caveats(board[1], most, facts):
                code = _CODE_OF[caveat.weight]
                say = note if code == "B262" else warning
                found = f"it and most entries of its board: {caveat.sentence}"
                yield from (say(code, file, "provenance", found) for file in files)


def _most(kinds: Sequence[tuple[BoardFacts, int]]) -> dict[str, list[object]]:
    """Of each fact what most entries say that say anything: several values where they are said equally often."""
    counts: dict[str, Counter[bytes]] = {}
    for facts, count in kinds:
        for name, value in facts.items():
            said = msgspec.msgpack.encode(value, order="deterministic")
            counts.setdefault(name, Counter())[said] += count
    return {
        name: [msgspec.msgpack.decode(value) for value, count in said.items() if count == max(said.values())]
        for name, said in counts.items()
    }


def _caveats(task: str, most: Mapping[str, Sequence[object]], facts: BoardFacts) -> Iterator[Caveat]:
    """What the gate finds between the entry with these facts and what ``most`` entries say of them.

    Of several values that are not its own: with one entry against another, nobody knows which of them ran the task as
    it is meant, and both are asked.
    """
    usual = {name: next((each for each in most[name] if each != own), most[name][0]) for name, own in facts.items()}
    if usual != facts:
        gate = comparable(_group("most entries", task, usual), _group("the entry", task, facts))
        yield from (each for each in gate.caveats if each.subject in _SUBJECTS)


def _group(label: str, task: str, facts: BoardFacts) -> RunGroup:
    """The facts as the gate takes them: a group of one run that came to its end."""
    of_data = [facts.get(name) for name in ("dataset", "sizes", "split_rule", "labels", "inputs")]
    name, sizes, split_rule, labels, inputs = of_data
    data = DatasetFacts(name or "", sizes or {}, {}, split_rule or "", "", digests=labels or {}, inputs=inputs or {})
    run = RunSummary(
        **_UNSAID,
        id=label,
        task=task,
        recipe=facts.get("recipe", ""),
        seed=0,
        status="done",
        reached=True,
        target=Target("", 0.0),
        environment={"signatures": facts["signatures"]} if "signatures" in facts else {},
        wall_s=0.0,
        suspect=[],
        synthetic=False,
        checksums=facts.get("checksums", {}),
        dataset=data if any(of_data[:4]) else None,
        **{name: facts.get(name, "") for name in _DIGESTS},
    )
    return RunGroup(label, "", run.specification, (run,))


def doubts_beside_rank(findings: Iterable[EntryFinding]) -> list[str]:
    """What is shown beside an entry's rank: the doubts that the gate, its own runs or other entries cast on it."""
    told = {f"{CODES[each.code]}: {each.found}": None for each in findings if each.code in _BESIDE_RANK}
    return list(told)


LEAST_POINTS = 5
"""Shorter curves are compared by digest only: a few points agree by chance."""
MOST_RIVALS = 8
"""With how many earlier curves one is compared at most: a thousand copies of one curve are found all the same."""
_DIGITS, _SAME = 1e6, 2e-6
"""Of a quality six digits are compared; by how much equal ones may differ for it."""
_MOST = 1e300
"""A figure beyond it cannot be true, and rounding it would overflow."""
_SIGNIFICANT, _LEAST_S = 1e4, 1e-9
"""Times are compared in shares of the first of a curve."""
_KEPT_POINTS = 400
_SKETCH = 6
_AGREE = 0.9
"""The share of points that must agree."""
_RATIO = 1e-4
"""Within what share the times of a scaled copy have one ratio: measured times vary by far more."""


class CurveMatch(NamedTuple):
    """A curve like an earlier one: how many of ``points`` agree, and by how much its times are scaled (1: not)."""

    agree: int
    points: int
    scale: float


def _begun(curve: SubmittedCurve) -> tuple[list[float], list[float]]:
    """Times and qualities that are compared: before anything was timed there is nothing to compare."""
    begun = bisect_right(curve.time_s, 0.0)
    return curve.time_s[begun : begun + _KEPT_POINTS], curve.quality[begun : begun + _KEPT_POINTS]


def sketch(curve: SubmittedCurve) -> bytes:
    """A few hashes of the curve, 8 bytes each; none of a curve that says too little for agreeing to be no accident.

    They are of the points in round figures, and of a few qualities in a row, which stay as they are if times are
    scaled. The curve's columns must be of one length, with times that increase.
    """
    time_s, quality = _begun(curve)
    if len(time_s) < LEAST_POINTS or len(set(quality)) < 3:
        return b""
    # In round figures: nobody measures the digits behind them, and whoever copies may change them.
    unit = _SIGNIFICANT / max(time_s[0], _LEAST_S)
    if time_s[-1] * unit > _MOST or max(quality) > _MOST or min(quality) < -_MOST:
        return b""
    time_s = [(each * unit + 0.5) // 1.0 for each in time_s]
    quality = [(each * _DIGITS + 0.5) // 1.0 for each in quality]
    # In its own unit the first time is the same for all curves: that point would tell nothing but one quality.
    points = sorted(map(hash, zip(time_s[1:], quality[1:], strict=True)))[:_SKETCH]
    steps = sorted(map(hash, zip(quality, quality[1:], quality[2:], quality[3:], strict=False)))[:_SKETCH]
    # A copy that was cut short keeps its beginning.
    kept = {*points, *steps, hash((time_s[1], quality[1])), hash(tuple(quality[:4]))}
    return array("q", kept).tobytes()


def rivals(sketches: Sequence[bytes]) -> dict[int, list[int]]:
    """For each curve that shares a hash with earlier ones, those that it shares most with, at most ``MOST_RIVALS``.

    Of each hash only the first ``MOST_RIVALS`` curves that have it count, so the work is in proportion to the curves.
    """
    hashes, counts = np.unique(np.frombuffer(b"".join(sketches), np.int64), return_counts=True)
    # Nearly all hashes are one curve's alone.
    owners: dict[int, list[int]] = {shared: [] for shared in hashes[counts > 1].tolist()}
    found = {}
    for number, hashes_of in enumerate(sketches):
        votes: Counter[int] = Counter()
        for having in (owners[each] for each in array("q", hashes_of) if each in owners):
            votes.update(having)
            if len(having) < MOST_RIVALS:
                having.append(number)
        if votes:
            found[number] = sorted(votes, key=lambda earlier: (-votes[earlier], earlier))[:MOST_RIVALS]
    return found


def match(earlier: SubmittedCurve, curve: SubmittedCurve) -> CurveMatch | None:
    """The match, if almost all points of the shorter curve are points of the other, at one scale of time."""
    (times_before, before), (times, after) = _begun(earlier), _begun(curve)
    points = min(len(times_before), len(times))
    ratios = [b / a for a, b in zip(times_before, times, strict=False)]
    if not ratios:
        return None
    scale = sorted(ratios)[points // 2]
    agree = sum(
        abs(ratio - scale) <= _RATIO * scale and abs(one - other) <= _SAME
        for ratio, one, other in zip(ratios, before, after, strict=False)
    )
    if agree < _AGREE * points or agree < LEAST_POINTS:
        return None
    return CurveMatch(agree, points, 1.0 if abs(scale - 1) <= _RATIO else scale)


_ENCODER = msgspec.json.Encoder(order="deterministic")


class EntryTrace(Struct, array_like=True, gc=False):
    """What tells an entry from others: its digest, the record of each run or measurement, a sketch of each curve.

    ``records`` are fields with digests, ``sketches`` numbers of runs with ``near.sketch``. ``figures`` are fields with
    digests of what is too short for one: a few points, a measurement of inference. ``signed`` says that the author's
    key made its signature, ``day`` when it was submitted, ``author`` in whose name. ``runs`` are fields with what a run
    is known by and the digest of its record: its id, or its start with the time of each phase. ``facts`` are what is
    the same for all entries of a board.
    """

    digest: bytes
    scope: tuple[str, str, str]
    records: list[tuple[str, str]]
    sketches: list[tuple[int, bytes]]
    figures: list[tuple[str, bytes]] = []
    signed: bool = False
    day: str = ""
    author: str = ""
    runs: list[tuple[str, str, str]] = []
    facts: BoardFacts = {}


def trace_of(submission: Submission, task: str | None = None, *, signed: bool = False) -> EntryTrace:
    """The trace of any submission, however wrong it is. ``task`` is its task's own name, where it gives another."""
    sketches = [(at, sketch(run.curve)) for at, run in enumerate(submission.runs) if _goes_forward(run.curve)]
    records = [(f"runs[{at}]", run.record_digest) for at, run in enumerate(submission.runs)]
    records += [(f"inference[{at}]", each.record_digest) for at, each in enumerate(submission.inference)]
    return EntryTrace(
        hashlib.sha256(_ENCODER.encode(submission)).digest(),
        (submission.ruleset, task or _own_name(submission.ruleset, submission.task), submission.mode),
        [(at, digest) for at, digest in records if digest is not None],
        sketches,
        _figures(submission, {at for at, hashes in sketches if hashes}),
        signed,
        submission.submitted,
        submission.author.name,
        list(_identities(submission)),
        board_facts(submission),
    )


def _identities(submission: Submission) -> Iterator[tuple[str, str, str]]:
    """What each run made by levelbench is known by. Other systems' logs have names that come again."""
    if submission.origin is not None:
        return
    for at, run in enumerate(submission.runs):
        if run.record_digest is None:
            continue
        if run.record_id:
            yield f"runs[{at}].record_id", f"run {shown(run.record_id)}", run.record_digest
        if run.started and run.phases_s:
            times = hashlib.sha256(_ENCODER.encode((run.started, run.phases_s))).hexdigest()[:16]
            yield f"runs[{at}].started", f"the start and the phases {times}", run.record_digest


_skeleton = lru_cache(maxsize=4096)(skeleton)


@lru_cache(maxsize=1024)
def _own_name(id: str, task: str) -> str:
    """A task's own name under a ruleset that ships; under another the one that is given."""
    found = task_rules(ruleset(id), task) if id in ruleset_ids() else None
    return found.task if found is not None else task


def _figures(submission: Submission, sketched: Set[int]) -> list[tuple[str, bytes]]:
    """Digests, in round figures, of curves without a sketch and of measurements of inference."""
    found: list[tuple[str, bytes]] = []
    for at, run in enumerate(submission.runs):
        if at not in sketched and run.curve.time_s:
            found.append((f"runs[{at}].curve", _rounded("", run.curve.time_s, run.curve.quality)))
    for at, each in enumerate(submission.inference):
        single = [each.duration_s, each.mean_latency_s or 0.0, each.estimate_s or 0.0, each.throughput_per_s or 0.0]
        named = sorted(each.quantiles_s.items())
        words = " ".join([each.scenario, str(each.queries), str(each.samples), *(name for name, _ in named)])
        found.append((f"inference[{at}]", _rounded(words, single, [value for _, value in named])))
    return found


def _rounded(words: str, *columns: Sequence[float]) -> bytes:
    text = "|".join([words, *(",".join(f"{value:.6g}" for value in column) for column in columns)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _goes_forward(curve: SubmittedCurve) -> bool:
    return len(curve.time_s) == len(curve.quality) and all(map(lt, curve.time_s, curve.time_s[1:]))


class _Run(NamedTuple):
    """One run of a file; ``told``: it has a graver finding already."""

    file: str
    number: int
    told: bool


class _Holder(NamedTuple):
    """Whose something is: the field of a file, whether that is signed, and its day."""

    file: str
    field: str
    signed: bool
    day: str


class Rivals:
    """The entries seen so far, by what tells them apart. One for a whole leaderboard."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Holder] = {}
        self._traces: dict[str, EntryTrace] = {}
        self._records: dict[tuple[str, ...], dict[str, _Holder]] = {}
        self._figures: dict[tuple[str, ...], dict[bytes, _Holder]] = {}
        self._told: list[EntryFinding] = []
        self._authors: dict[str, tuple[str, str]] = {}
        self._curves: dict[tuple[str, ...], list[tuple[_Run, bytes]]] = {}
        self._runs: dict[tuple[str, ...], dict[str, tuple[_Holder, str]]] = {}

    def add(self, trace: EntryTrace, file: str) -> list[EntryFinding]:
        """What keeps the entry in ``file`` off the board, since one that goes before it has the same.

        What else there is to say, of it or of entries that were added before it, is for ``near`` to tell.
        """
        own = _Holder(file, "", trace.signed, trace.day)
        self._look_alike(trace.author, file)
        first = self._entries.setdefault(trace.digest, own)
        if first is not own:
            return self._judged(first, own, "B240", "the same as {0}", "remove one of them")
        self._traces[file] = trace
        found, told = self._shared(own, trace)
        found += self._one_run(own, trace)
        self._compare(own, trace, told)
        self._curves.setdefault(trace.scope, []).extend(
            (_Run(file, at, f"runs[{at}]" in told), hashes) for at, hashes in trace.sketches
        )
        return found

    def _shared(self, own: _Holder, trace: EntryTrace) -> tuple[list[EntryFinding], set[str]]:
        """What comes of records that others have too, and which of the entry's runs have one of them."""
        known, found, told = self._records.setdefault(trace.scope, {}), [], set()
        shared: dict[str, list[tuple[_Holder, _Holder]]] = {}
        for at, digest in trace.records:
            mine = own._replace(field=f"{at}.record_digest")
            other = known.setdefault(digest, mine)
            if other.file != own.file:
                shared.setdefault(other.file, []).append((other, mine))
                known[digest] = min(other, mine, key=_behind)
                told.add(at)
        for pairs in shared.values():
            more = f", and {len(pairs) - 1} more in the same two entries" if len(pairs) > 1 else ""
            words = f"the same record as {{1}} of {{0}}{more}"
            found += self._judged(*pairs[0], "B241", words, "submit a run in one entry")
        return found, told

    def _one_run(self, own: _Holder, trace: EntryTrace) -> list[EntryFinding]:
        """A run is its id, and no two begin at one instant and take the same times: one of its records was changed."""
        known, found, told = self._runs.setdefault(trace.scope, {}), [], set[str]()
        for field, what, digest in trace.runs:
            mine = own._replace(field=field)
            other, record = known.setdefault(what, (mine, digest))
            if other.file != own.file and record != digest and other.file not in told:
                told.add(other.file)
                words = "the same run as {1} of {0}, of another record"
                found += self._judged(other, mine, "B244", words, "bring both records, unchanged")
        return found

    def _judged(self, first: _Holder, second: _Holder, code: str, words: str, do: str) -> list[EntryFinding]:
        """Both get a finding; one behind by more than its name is off the board, its finding returned if it is new."""
        loser = None if _behind(first) == _behind(second) else max(first, second, key=_behind)
        if code == "B240" and loser is None:
            # They are equal in all that is shown, so nobody loses anything.
            loser = second
        found: list[EntryFinding] = []
        for one, other in ((first, second), (second, first)):
            say = error if one is loser else warning
            finding = say(code, one.file, one.field, words.format(other.file, other.field), do)
            (found if one is loser and one is second else self._told).append(finding)
        return found

    def _look_alike(self, author: str, file: str) -> None:
        """Two names that differ, and are one to whoever reads them, are told."""
        name, before = self._authors.setdefault(_skeleton(author), (author, file))
        if name != author:
            words = f"{shown(author)} looks like {shown(name)} of {before}"
            do = "write the name alike if it is one author; else see who is meant"
            self._told.append(warning("B237", file, "author.name", words, do))

    def _compare(self, own: _Holder, trace: EntryTrace, told: Set[str]) -> None:
        """What is too short for a sketch, and measurements of inference: the same figures are a warning."""
        known = self._figures.setdefault(trace.scope, {})
        for at, digest in trace.figures:
            other = known.setdefault(digest, own._replace(field=at))
            # Another rule finds what one entry says twice.
            if other.file == own.file or at.partition(".")[0] in told:
                continue
            words = f"the same figures as {other.field} of {other.file}"
            code = "B243" if at.startswith("inference") else "B242"
            self._told.append(warning(code, own.file, at, words, "see whether it was measured independently"))

    def near(self, curves: Callable[[str], list[SubmittedCurve]]) -> Iterator[EntryFinding]:
        """What ``add`` left to tell, and curves that are nearly those of earlier ones.

        ``curves`` gives those of a file, empty if it cannot.
        """
        yield from self._told
        yield from compared_with_board((file, trace.scope, trace.facts) for file, trace in self._traces.items())
        for members in self._curves.values():
            for number, earlier in rivals([hashes for _, hashes in members]).items():
                run = members[number][0]
                if run.told:
                    continue
                for other in (members[each][0] for each in earlier):
                    before, after = _curve(curves, other), _curve(curves, run)
                    found = None if before is None or after is None else match(before, after)
                    if found is not None:
                        # Another rule finds a run that is in one entry twice.
                        if other.file != run.file or before != after:
                            place = f"runs[{other.number}]" + ("" if other.file == run.file else f" of {other.file}")
                            scaled = "" if found.scale == 1 else f", with times {found.scale:.4g} of its"
                            words = f"{found.agree} of {found.points} points as in {place}{scaled}"
                            yield warning("B242", run.file, f"runs[{run.number}].curve", words)
                        break


def _behind(holder: _Holder) -> tuple[bool, str]:
    """The smaller, the more it is believed: signed before unsigned, then the earlier day (an ISO day, or any text)."""
    return not holder.signed, holder.day


def _curve(curves: Callable[[str], list[SubmittedCurve]], run: _Run) -> SubmittedCurve | None:
    # The file may have changed since its sketch was made.
    found = curves(run.file)
    return found[run.number] if run.number < len(found) and _goes_forward(found[run.number]) else None
