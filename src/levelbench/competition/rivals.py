"""Compares entries with each other: duplicates, shared runs, near copies of curves, comparability with their board.

Only entries that compete are compared: those of one ruleset, task and mode. If two entries share a run, the signed one
is believed, then the one submitted on the earlier day. The order of file names decides nothing: if signature and day
are equal, both get a finding and stay. Curves are compared by the smallest few hashes of their points (bottom-k
sketches, Broder 1997), and point by point only if the sketches agree: n curves need n log n steps, not n² comparisons.

A ranking compares every entry with every other, so each entry that differs from most of its board goes through the gate
of every comparison, ``levelbench.records.comparable``: data (checksums, split, labels), the task's code and the options
of a quality. The majority is not necessarily right, so a finding of the gate never keeps an entry off its board: it is
shown next to the rank.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from functools import lru_cache
from itertools import chain, pairwise
from math import isfinite
from operator import lt
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from levelbench.competition.checks import CODES, EntryFinding, error, note, shown, warning
from levelbench.competition.checks.identity import joined, skeleton
from levelbench.competition.entries import Inference, Submission, SubmittedCurve
from levelbench.competition.figures import PRICE_USD, is_within
from levelbench.competition.rulesets import ruleset, ruleset_ids, task_rules
from levelbench.records import RunGroup, RunSummary, comparable
from levelbench.records.caveats import Caveat
from levelbench.records.schema import DatasetFacts, Target
from levelbench.report.numbers import plural

_SIGNATURES = "signatures."
_SUBJECTS = frozenset(
    {"checksums", "dataset", "split rule", "split sizes", "labels", "inputs", "task definition", "source", "quality"}
)
"""The gate's subjects that all entries of a board should share."""
_CODE_OF = {"refuse": "B260", "no verdict": "B260", "doubt": "B261", "note": "B262"}
_SHOWN_AT_RANK = frozenset(
    {
        *(
            "B120",
            "B126",
            "B129",
            "B138",
            "B139",
            "B144",
            "B145",
            "B154",
            "B155",
            "B167",
            "B169",
            "B184",
            "B186",
            "B190",
        ),
        *("B222", "B237", "B241", "B242", "B243", "B244", "B260", "B261", "B269"),
    }
)
"""What casts doubt on a figure or on whose it is; the other findings are on the entry's page."""
_SHOWN_IF_WARNED = frozenset(
    {
        *(
            "B124",
            "B128",
            "B133",
            "B153",
            "B158",
            "B159",
            "B161",
            "B162",
            "B163",
            "B165",
            "B166",
            "B168",
            "B175",
            "B178",
        ),
        *("B185", "B191", "B207", "B209", "B213", "B234"),
    }
)
"""Hardly any energy or money, a price that nobody can look up, and an author with a key who did not sign.

Also what every record has and an entry leaves out, so that nothing can be checked.
"""


_DIGESTS = ("quality_digest", "data_digest", "source_digest")
_OWN_PROGRAM = "time its program "
"""When a program that levelbench times or tracks is evaluated begins with this: the time that it does, or prints it."""
_AS_STATED = ("dataset", "split_rule", "labels", "inputs", "checksums", *_DIGESTS)
_UNSTATED: dict[str, Any] = {
    **dict.fromkeys(("key", "framework", "device", "crossing", "clock", "started", "path"), ""),
    **{name: {} for name in ("settings", "excluded_s", "phases_s", "quality")},
    **dict.fromkeys(("time_to_accuracy_s", "given_up_s", "time_per_step_s", "peak_memory_bytes", "error")),
    **dict.fromkeys(("epochs_to_target", "samples_to_target", "steps_to_target")),
    **dict.fromkeys(("energy_j", "energy_method", "energy_reason")),
}
"""The fields of a run's summary that the gate is not asked about: all but the facts of its board."""


BoardFacts = dict[str, Any]
"""The facts that should be the same for all entries of a board, by name; unstated ones are left out."""


def board_facts(submission: Submission) -> BoardFacts:
    """The facts of any submission, valid or not."""
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
    if not found["quality_digest"] and str(submission.settings.get("evaluate_every", "")).startswith(_OWN_PROGRAM):
        # Programs of the authors' own are what competes, so they may differ.
        del found["source_digest"]
    return {name: value for name, value in found.items() if value}


def compared_with_board(entries: Iterable[tuple[str, tuple[str, ...], BoardFacts]]) -> Iterator[EntryFinding]:
    """The gate's findings between each entry (its file, board and facts) and what most entries of its board state."""
    boards: dict[tuple[str, ...], dict[bytes, tuple[BoardFacts, list[str]]]] = {}
    for file, board, facts in entries:
        # Most entries of a board state the same facts: each distinct set is compared once.
        kinds = boards.setdefault(board, {})
        kinds.setdefault(msgspec.msgpack.encode(facts, order="deterministic"), (facts, []))[1].append(file)
    for board, kinds in boards.items():
        if len(kinds) < 2:
            continue
        most = _majority([(facts, len(files)) for facts, files in kinds.values()])
        usual = _usually_stated([(facts, len(files)) for facts, files in kinds.values()])
        for facts, files in kinds.values():
            # Imports state none of them, and an entry of training without checksums has a finding of its own.
            lacks = [words for name, words in usual.items() if name not in facts]
            if lacks and _STATED.keys() & facts.keys():
                found = f"most entries of its board state {', '.join(lacks)}; this one does not"
                yield from (warning("B261", file, "provenance", found, "make it from its records") for file in files)
            for caveat in _caveats(board[1], most, facts):
                code = _CODE_OF[caveat.weight]
                say = note if code == "B262" else warning
                found = f"compared with most entries of its board: {caveat.sentence}"
                yield from (say(code, file, "provenance", found) for file in files)


_STATED = {
    "labels": "the labels",
    "inputs": "the inputs",
    "sizes": "the sizes of the splits",
    "quality_digest": "the code of the quality",
    "data_digest": "the code that loads the data",
}
"""Facts that decide what is comparable, in words; whoever leaves one out is not compared by it."""


def _usually_stated(kinds: Sequence[tuple[BoardFacts, int]]) -> dict[str, str]:
    """Which of these facts more than half of the entries state that state any."""
    some = [(facts, count) for facts, count in kinds if _STATED.keys() & facts.keys()]
    entries = sum(count for _, count in some)
    counts = {name: sum(count for facts, count in some if name in facts) for name in _STATED}
    return {name: words for name, words in _STATED.items() if 2 * counts[name] > entries}


def _majority(kinds: Sequence[tuple[BoardFacts, int]]) -> dict[str, list[object]]:
    """For each fact, the value that most entries that state it have; several values in a tie."""
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
    """The gate's findings between an entry with these facts and what ``most`` entries state.

    In a tie the value that differs from the entry's own is taken: with one entry against another, nobody knows which of
    them ran the task as intended, so both get the finding.
    """
    usual = {name: next((each for each in most[name] if each != own), most[name][0]) for name, own in facts.items()}
    if usual != facts:
        gate = comparable(_group("most entries", task, usual), _group("the entry", task, facts))
        yield from (each for each in gate.caveats if each.subject in _SUBJECTS)


def _group(label: str, task: str, facts: BoardFacts) -> RunGroup:
    """The facts as the gate takes them: a group of one completed run."""
    of_data = [facts.get(name) for name in ("dataset", "sizes", "split_rule", "labels", "inputs")]
    name, sizes, split_rule, labels, inputs = of_data
    data = DatasetFacts(name or "", sizes or {}, {}, split_rule or "", "", digests=labels or {}, inputs=inputs or {})
    run = RunSummary(
        **_UNSTATED,
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


def doubts_at_rank(findings: Iterable[EntryFinding]) -> list[str]:
    """The doubts shown next to an entry's rank: one line per code, with its first finding and the number of others."""
    found: dict[str, list[str]] = {}
    for each in findings:
        if each.code in _SHOWN_AT_RANK or (each.code in _SHOWN_IF_WARNED and each.severity == "warning"):
            found.setdefault(each.code, []).append(each.found)
    return [
        f"{CODES[code]}: {_brief(said[0])}" + (f" (and {len(said) - 1} more)" if len(said) > 1 else "")
        for code, said in ((code, list(dict.fromkeys(texts))) for code, texts in found.items())
    ]


_MOST_SAID = 140


def _brief(text: str) -> str:
    """``text`` cut at a word; the entry's page has all of it."""
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID].rpartition(' ')[0].rstrip(':,;')} …"


LEAST_POINTS = 5
"""Shorter curves are compared by digest only: a few points may agree by chance."""
MOST_RIVALS = 8
"""The most earlier curves that a curve is compared with; even a thousand copies of one curve are all found."""
_DIGITS, _SAME = 1e6, 2e-6
"""Qualities are compared to six digits; equal ones may therefore differ by ``_SAME``."""
_MOST = 1e300
"""No true figure is larger, and rounding it would overflow."""
_SIGNIFICANT, _LEAST_S = 1e4, 1e-9
"""Times are compared in units of the curve's first time."""
_KEPT_POINTS = 400
_SKETCH = 6
_FAR = (1, 2, 3)
_AGREE = 0.9
"""The share of points that must agree."""
_RATIO = 1e-4
"""The times of a scaled copy have one ratio within this share: measured times vary far more."""


class CurveMatch(NamedTuple):
    """A curve like an earlier one: ``agree`` of ``points`` agree, with times scaled by ``scale`` (1: not scaled)."""

    agree: int
    points: int
    scale: float


def _begun(curve: SubmittedCurve) -> tuple[list[float], list[float]]:
    """The times and qualities that are compared: those after the clock started."""
    begun = bisect_right(curve.time_s, 0.0)
    return curve.time_s[begun : begun + _KEPT_POINTS], curve.quality[begun : begun + _KEPT_POINTS]


def sketch(curve: SubmittedCurve) -> bytes:
    """A few hashes of the curve, 8 bytes each; empty for a curve so plain that agreement may be an accident.

    They cover the rounded points, and runs of four qualities, which survive a scaling of the times. Three qualities at
    equal distances of one to three evaluations survive it too if every second or third point was left out, or points
    were put between. The columns of the
    curve must have the same length, and its times must increase.
    """
    time_s, quality = _begun(curve)
    if len(time_s) < LEAST_POINTS or len(set(quality)) < 3:
        return b""
    # Rounded: the later digits are noise, and whoever copies a curve may change them.
    unit = _SIGNIFICANT / max(time_s[0], _LEAST_S)
    if time_s[-1] * unit > _MOST or max(quality) > _MOST or min(quality) < -_MOST:
        return b""
    time_s = [(each * unit + 0.5) // 1.0 for each in time_s]
    quality = [(each * _DIGITS + 0.5) // 1.0 for each in quality]
    # In its own unit the first time is the same for all curves, so the first point would only compare a quality.
    points = sorted(map(hash, zip(time_s[1:], quality[1:], strict=True)))[:_SKETCH]
    steps = sorted(map(hash, zip(quality, quality[1:], quality[2:], quality[3:], strict=False)))[:_SKETCH]
    # Without the distance, since a point left out doubles it.
    apart = (sorted(map(hash, zip(quality, quality[far:], quality[2 * far :], strict=False)))[:_SKETCH] for far in _FAR)
    # A truncated copy keeps its beginning.
    kept = {*points, *steps, *chain.from_iterable(apart), hash((time_s[1], quality[1])), hash(tuple(quality[:4]))}
    return array("q", kept).tobytes()


def rivals(sketches: Sequence[bytes]) -> dict[int, list[int]]:
    """For each curve that shares a hash with earlier ones, the earlier curves that share most, at most ``MOST_RIVALS``.

    For each hash only the first ``MOST_RIVALS`` curves that have it count, so the work grows linearly.
    """
    hashes, counts = np.unique(np.frombuffer(b"".join(sketches), np.int64), return_counts=True)
    # Nearly all hashes belong to one curve only.
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
    """The match, if almost all points of the shorter curve are points of the other one, at one scale of time."""
    first, second = _begun(earlier), _begun(curve)
    return _same_places(first, second) or _thinned_match(first, second)


_Points = tuple[list[float], list[float]]


def _same_places(earlier: _Points, curve: _Points) -> CurveMatch | None:
    """The match of points at equal places."""
    (times_before, before), (times, after) = earlier, curve
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


def _thinned_match(earlier: _Points, curve: _Points) -> CurveMatch | None:
    """The match, if points of one curve were left out of the other: each is looked for in the longer one."""
    swapped = len(earlier[0]) < len(curve[0])
    (times, longer), (few, shorter) = (curve, earlier) if swapped else (earlier, curve)
    points = len(few)
    if points < LEAST_POINTS:
        return None
    # The scale at which each point lies on the next one of its quality, that of the ends, and none.
    at, ratios = 0, [1.0]
    for time, quality in zip(few, shorter, strict=True):
        found = next((i for i in range(at, len(longer)) if abs(longer[i] - quality) <= _SAME), None)
        if found is not None:
            at = found + 1
            ratios.append(time / times[found])
    scales = {1.0, few[-1] / times[-1], sorted(ratios)[len(ratios) // 2]}
    agree, scale = max((_on(few, shorter, times, longer, each), each) for each in scales)
    if agree < _AGREE * points or agree < LEAST_POINTS:
        return None
    scale = 1.0 / scale if swapped else scale
    return CurveMatch(agree, points, 1.0 if abs(scale - 1) <= _RATIO else scale)


def _on(
    few: Sequence[float], shorter: Sequence[float], times: Sequence[float], longer: Sequence[float], scale: float
) -> int:
    """How many points of the shorter curve are points of the longer one, whose times are multiplied by ``scale``."""
    count = 0
    for time, quality in zip(few, shorter, strict=True):
        at = bisect_left(times, time / scale * (1.0 - _RATIO))
        count += at < len(times) and times[at] * scale <= time * (1.0 + _RATIO) and abs(longer[at] - quality) <= _SAME
    return count


_ENCODER = msgspec.json.Encoder(order="deterministic")


class EntryTrace(Struct, array_like=True, gc=False):
    """What identifies an entry: its digest, the record of each run or measurement, a sketch of each curve.

    ``records`` are fields with digests, ``sketches`` run numbers with their :func:`sketch`. ``figures`` are fields with
    digests of what is too short for a sketch: a few points, a measurement of inference. ``signed`` says that the
    author's key made the signature. ``runs`` are fields with an identity of the run (its id, or its start with the time
    of each phase) and the digest of its record. ``facts`` are what all entries of a board should share.
    ``machines`` are names of its machine, and ``usd_per_hour`` is its price.
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
    machines: list[str] = []
    usd_per_hour: float | None = None


def trace_of(
    submission: Submission, task: str | None = None, *, signed: bool = False, imported: bool = False
) -> EntryTrace:
    """The trace of any submission, valid or not. ``task`` is the task's own name if the submission uses an alias.

    If it is ``imported`` from the system whose rules these are, its import has compared the prices already.
    """
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
        machines_of(submission),
        None if imported or submission.price is None else submission.price.usd_per_hour,
    )


def machines_of(submission: Submission) -> list[str]:
    """What tells an entry's machine from others: the words for its hardware, and the mark of its records, if any.

    Several nodes, or another number of cores or accelerators, are another machine, which has another price.
    """
    hardware, mark = submission.hardware, submission.provenance.environment.get("machine.id", "")
    words, nodes = " ".join(hardware.description.split()).casefold(), hardware.nodes or 1
    names = [f"words {words}, {hardware.cores}, {hardware.accelerators}, {nodes}"]
    return [*names, f"mark {mark}, {nodes}"] if mark else names


def prices_by_machine(entries: Iterable[tuple[str, Iterable[str], float | None]]) -> dict[str, dict[str, list[float]]]:
    """For each machine the prices that each file or author states; entries are (who, ``machines_of``, price)."""
    found: dict[str, dict[str, list[float]]] = {}
    for who, machines, usd_per_hour in entries:
        if usd_per_hour is not None:
            for machine in machines:
                found.setdefault(machine, {}).setdefault(who, []).append(usd_per_hour)
    return found


PRICES_APART = 2.0
"""One machine for rent costs more in one place than in another, but seldom this many times as much."""


def _cheap(traces: Mapping[str, EntryTrace]) -> Iterator[EntryFinding]:
    """A warning for each entry whose price is far below what is stated on its board for the same machine.

    That is the middle one of the authors' prices, or the higher one of two: a single absurd price accuses nobody else.
    An author with several prices counts once, with the middle one of these.
    """
    boards: dict[tuple[str, ...], dict[str, EntryTrace]] = {}
    for file, trace in traces.items():
        if trace.usd_per_hour is not None and is_within(trace.usd_per_hour, PRICE_USD):
            boards.setdefault(trace.scope[:2], {})[file] = trace
    for members in boards.values():
        known = prices_by_machine((each.author, each.machines, each.usd_per_hour) for each in members.values())
        usual = {machine: (_middle(map(_middle, by.values())), len(by)) for machine, by in known.items()}
        for file, trace in members.items():
            (most, authors), kind = max((usual[each], each.partition(" ")[0]) for each in trace.machines)
            if trace.usd_per_hour and most > PRICES_APART * trace.usd_per_hour:
                which = "with the same mark" if kind == "mark" else "described in the same words"
                found = f"{trace.usd_per_hour:g} US dollars an hour; {most:g} is the middle price"
                found += f" of {plural(authors, 'author')} for machines {which}"
                yield warning("B168", file, "price.usd_per_hour", found)


def _middle(prices: Iterable[float]) -> float:
    ordered = sorted(prices)
    return ordered[len(ordered) // 2]


def _identities(submission: Submission) -> Iterator[tuple[str, str, str]]:
    """What identifies each run made by levelbench. Names in other systems' logs repeat, so these are left out."""
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
    """The task's own name under a shipped ruleset; under any other the given one."""
    found = task_rules(ruleset(id), task) if id in ruleset_ids() else None
    return found.task if found is not None else task


def _figures(submission: Submission, sketched: Set[int]) -> list[tuple[str, bytes]]:
    """Digests of the rounded figures of curves without a sketch and of measurements of inference."""
    found: list[tuple[str, bytes]] = []
    for at, run in enumerate(submission.runs):
        if at not in sketched and run.curve.time_s:
            found.append((f"runs[{at}].curve", _rounded("", run.curve.time_s, run.curve.quality)))
        # From the first point or the second: a copy may lack the first, or end earlier.
        for first in (run.curve.time_s[:_FEW_TIMES], run.curve.time_s[1 : _FEW_TIMES + 1]):
            if submission.origin is None and _is_fine(first):
                found.append((f"runs[{at}].{_TIMES}", _rounded("times", _shares(first, first), digits=7)))
    for at, each in enumerate(submission.inference):
        single = [each.duration_s, each.mean_latency_s or 0.0, each.estimate_s or 0.0, each.throughput_per_s or 0.0]
        named = sorted(each.quantiles_s.items())
        words = " ".join([each.scenario, str(each.queries), str(each.samples), *(name for name, _ in named)])
        values = [value for _, value in named]
        found.append((f"inference[{at}]", _rounded(words, single, values)))
        if submission.origin is None:
            digests = _of_latencies(each.mean_latency_s or None, sorted(values))
            found += [(f"inference[{at}].{_LATENCIES}", digest) for digest in digests]
            found += [(f"inference[{at}].{_DURATION}", digest) for digest in _of_duration(each)]
    return found


def _of_duration(each: Inference) -> Iterator[bytes]:
    """Digests of a fine duration with one latency each: a copy may have changed the others."""
    if not isfinite(each.duration_s) or float(f"{each.duration_s:.6g}") == each.duration_s:
        return
    for name, value in (("mean", each.mean_latency_s), ("estimate", each.estimate_s), *each.quantiles_s.items()):
        if value and float(f"{value:.4g}") != value:
            yield _rounded(f"{each.scenario} {each.queries} {each.samples} {name}", [each.duration_s, value], digits=12)


def _of_latencies(mean: float | None, quantiles: list[float]) -> Iterator[bytes]:
    """Digests of latencies up to a factor and a constant: of all, and of all but one, which a copy may have changed."""
    some = [quantiles[:at] + quantiles[at + 1 :] for at in range(len(quantiles))]
    for one, among in ((mean, quantiles), *((mean, each) for each in some), (None, quantiles)):
        figures = among if one is None else [one, *among]
        if len(set(among)) < _LEAST_QUANTILES or not isfinite(max(among) - min(among)):
            continue
        shares = _shares(figures, among)
        # A mean of many latencies has more digits than any clock, so no other measurement has these shares.
        if len({f"{share:.5g}" for share in shares}) <= _LEAST_QUANTILES or (one and float(f"{one:.6g}") == one):
            continue
        if one and among is quantiles:
            yield _rounded("latencies", shares, digits=5)
        # Fewer figures have to be finer: those of a coarse clock may agree by chance.
        noise = 1e-8 / _MOST_TICKS + 4e-16 * max(among) / (max(among) - min(among))
        between = shares[len(figures) - len(among) :][1:-1]
        if not any(_is_of_ticks(share, noise) for share in between) and any(float(f"{v:.8f}") != v for v in among):
            yield _rounded("some latencies", shares, digits=7)


def _is_of_ticks(share: float, noise: float) -> bool:
    """Whether a value at this share of a range is a whole number of ticks, of which the range has not many."""
    return abs(share - Fraction(share).limit_denominator(_MOST_TICKS)) < noise


def _shares(values: Iterable[float], among: Sequence[float]) -> list[float]:
    """Where ``values`` lie between the ends of ``among``; neither a factor nor a constant on all of them matters."""
    low, high = min(among), max(among)
    return [(value - low) / (high - low) for value in values]


_DURATION = "duration_s"
_LATENCIES, _LEAST_QUANTILES, _MOST_TICKS = "quantiles_s", 3, 200_000
_TIMES, _FEW_TIMES = "curve.time_s", 5
_IN_PART = {
    _TIMES: "the times of {0}, up to a factor or a constant",
    _LATENCIES: "the latencies of {0}, up to a factor or a constant",
    _DURATION: "the duration, the number of queries and a latency of {0}",
}


def _is_fine(time_s: Sequence[float]) -> bool:
    """Whether no other run has such times, up to a factor or a constant: enough, from a fine clock, not at a beat."""
    if len(time_s) < _FEW_TIMES or not (time_s[0] >= 0 and all(map(lt, time_s, time_s[1:])) and isfinite(time_s[-1])):
        return False
    apart = {f"{(after - before) / (time_s[-1] - time_s[0]):.4f}" for before, after in pairwise(time_s)}
    return len(apart) > len(time_s) // 2 and all(float(f"{each:.6g}") != each for each in time_s[1:-1])


def _rounded(words: str, *columns: Iterable[float], digits: int = 6) -> bytes:
    text = "|".join([words, *(",".join(f"{value:.{digits}g}" for value in column) for column in columns)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _goes_forward(curve: SubmittedCurve) -> bool:
    return len(curve.time_s) == len(curve.quality) and all(map(lt, curve.time_s, curve.time_s[1:]))


class _Run(NamedTuple):
    """One run of a file; ``reported``: it already has a more serious finding."""

    file: str
    number: int
    reported: bool


class _Holder(NamedTuple):
    """Where a value occurs: the field of a file, whether the file is signed, its day and its author."""

    file: str
    field: str
    signed: bool
    day: str
    author: str


class Rivals:
    """Collects the entries of a whole leaderboard and finds those that resemble each other."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Holder] = {}
        self._traces: dict[str, EntryTrace] = {}
        self._records: dict[tuple[str, ...], dict[str, _Holder]] = {}
        self._figures: dict[tuple[str, ...], dict[bytes, _Holder]] = {}
        self._later: list[EntryFinding] = []
        self._scaled: list[EntryFinding] = []
        self._copied: set[tuple[str, ...]] = set()
        self._authors: dict[str, tuple[str, str]] = {}
        self._curves: dict[tuple[str, ...], list[tuple[_Run, bytes]]] = {}
        self._runs: dict[tuple[str, ...], dict[str, tuple[_Holder, str]]] = {}

    def add(self, trace: EntryTrace, file: str) -> list[EntryFinding]:
        """Add an entry; returns the findings that keep it off the board because an entry with precedence has the same.

        Other findings, about it or about entries added before, come from ``near``.
        """
        own = _Holder(file, "", trace.signed, trace.day, trace.author)
        self._look_alike(trace.author, file)
        first = self._entries.setdefault(trace.digest, own)
        if first is not own:
            return self._judged(first, own, "B240", "the same as {0}", "remove one of them")
        self._traces[file] = trace
        found, reported = self._shared(own, trace)
        found += self._one_run(own, trace)
        self._compare(own, trace, reported)
        self._curves.setdefault(trace.scope, []).extend(
            (_Run(file, at, f"runs[{at}]" in reported), hashes) for at, hashes in trace.sketches
        )
        return found

    def _shared(self, own: _Holder, trace: EntryTrace) -> tuple[list[EntryFinding], set[str]]:
        """The findings about records that other entries have too, and the entry's runs that have one of them."""
        known, found, reported = self._records.setdefault(trace.scope, {}), [], set()
        shared: dict[str, list[tuple[_Holder, _Holder]]] = {}
        for at, digest in trace.records:
            mine = own._replace(field=f"{at}.record_digest")
            other = known.setdefault(digest, mine)
            if other.file != own.file:
                shared.setdefault(other.file, []).append((other, mine))
                known[digest] = min(other, mine, key=_precedence)
                reported.add(at)
        for pairs in shared.values():
            more = f", and {len(pairs) - 1} more in the same two entries" if len(pairs) > 1 else ""
            words = f"the same record as {{1}} of {{0}}{more}"
            found += self._judged(*pairs[0], "B241", words, "submit a run in one entry")
        return found, reported

    def _one_run(self, own: _Holder, trace: EntryTrace) -> list[EntryFinding]:
        """The same id, or the same start and phase times, in two records: one of the records was changed."""
        known, found, reported = self._runs.setdefault(trace.scope, {}), [], set[str]()
        for field, what, digest in trace.runs:
            mine = own._replace(field=field)
            other, record = known.setdefault(what, (mine, digest))
            if other.file != own.file and record != digest and other.file not in reported:
                reported.add(other.file)
                words = "the same run as {1} of {0}, but from another record"
                found += self._judged(other, mine, "B244", words, "provide both records, unchanged")
        return found

    def _judged(self, first: _Holder, second: _Holder, code: str, words: str, do: str) -> list[EntryFinding]:
        """Both get a finding; if one has lower precedence, its finding is an error, returned if it is the new entry."""
        loser = None if _precedence(first) == _precedence(second) else max(first, second, key=_precedence)
        if first.author != second.author and first.signed == second.signed:
            # Whoever copies an entry may date it before the original.
            loser = None
        if code == "B240" and loser is None:
            # The entries are identical, so dropping either of them loses nothing.
            loser = second
        found: list[EntryFinding] = []
        for one, other in ((first, second), (second, first)):
            say = error if one is loser else warning
            finding = say(code, one.file, one.field, words.format(other.file, other.field), do)
            (found if one is loser and one is second else self._later).append(finding)
        return found

    def _look_alike(self, author: str, file: str) -> None:
        """Report different names that look the same to a reader."""
        parted = self._authors.setdefault(f"={joined(author)}", (author, file))
        name, before = self._authors.setdefault(_skeleton(author), parted)
        if name != author:
            words = f"{shown(author)} looks like {shown(name)} of {before}"
            do = "write the name the same way if it is one author; otherwise check who is meant"
            self._later.append(warning("B237", file, "author.name", words, do))

    def _compare(self, own: _Holder, trace: EntryTrace, reported: Set[str]) -> None:
        """Warn of equal figures in measurements of inference and in curves too short for a sketch."""
        known = self._figures.setdefault(trace.scope, {})
        for at, digest in trace.figures:
            other = known.setdefault(digest, own._replace(field=at))
            part = other.field.partition(".")[2]
            same = other.file == own.file
            # Another rule finds duplicates within one entry, but not one run that was made into several.
            if (same and (part not in _IN_PART or other.field == at)) or at.partition(".")[0] in reported:
                continue
            code = "B243" if at.startswith("inference") else "B242"
            if part in _IN_PART:
                do = "check whether it is an independent run: no two runs take the same times"
                self._scaled += self._both(other, own._replace(field=at), code, _IN_PART[part], do)
                continue
            do = "check whether it was measured independently"
            self._later += self._both(other, own._replace(field=at), code, "the same figures as {0}", do)

    def _both(
        self, first: _Holder, second: _Holder, code: str, words: str, do: str = "", back: str = ""
    ) -> Iterator[EntryFinding]:
        """A warning for each of two that are alike: neither a file's name nor a day tells which is the copy.

        Only a signature does, and the day between entries of one author. ``words`` has a place for the other one;
        ``back`` are those for ``first``, if they differ. However often a field was copied, it gets one such warning.
        """
        pairs = [(second, first, words)]
        if first.file != second.file:
            pairs.append((first, second, back or words))
            if first.signed != second.signed or first.author == second.author:
                believed = min(first, second, key=_precedence)
                pairs = [pair for pair in pairs if _precedence(pair[0]) != _precedence(believed)] or pairs
        for own, other, said in pairs:
            field = own.field.removesuffix(".time_s").removesuffix(f".{_LATENCIES}").removesuffix(f".{_DURATION}")
            before = len(self._copied)
            if own is first and first.file != second.file:
                self._copied.add((code, own.file, field, do))
                if len(self._copied) == before:
                    continue
            place = other.field.partition(".")[0] + (f" of {other.file}" if other.file != own.file else "")
            yield warning(code, own.file, field, said.format(place), do)

    def near(self, curves: Callable[[str], list[SubmittedCurve]]) -> Iterator[EntryFinding]:
        """The findings that ``add`` postponed, and curves that nearly equal earlier ones.

        ``curves`` returns the curves of a file, empty if it cannot be read.
        """
        alike = set()
        for each in chain(self._later, self._copies(curves)):
            alike.add((each.code, each.file, each.field))
            yield each
        # A copy with its qualities is one, whatever its times.
        for each in self._scaled:
            if (each.code, each.file, each.field) not in alike:
                alike.add((each.code, each.file, each.field))
                yield each
        yield from compared_with_board((file, trace.scope, trace.facts) for file, trace in self._traces.items())
        yield from _cheap(self._traces)

    def _copies(self, curves: Callable[[str], list[SubmittedCurve]]) -> Iterator[EntryFinding]:
        for members in self._curves.values():
            for number, earlier in rivals([hashes for _, hashes in members]).items():
                run = members[number][0]
                for other in () if run.reported else (members[each][0] for each in earlier):
                    before, after = _curve(curves, other), _curve(curves, run)
                    found = None if before is None or after is None else match(before, after)
                    if found is None:
                        continue
                    # Another rule finds a run that occurs twice in one entry.
                    if other.file != run.file or before != after:
                        words, back = (_points_as_in(found, scale) for scale in (found.scale, 1 / found.scale))
                        yield from self._both(self._holder(other), self._holder(run), "B242", words, back=back)
                    break

    def _holder(self, run: _Run) -> _Holder:
        trace = self._traces[run.file]
        return _Holder(run.file, f"runs[{run.number}].curve", trace.signed, trace.day, trace.author)


def _points_as_in(found: CurveMatch, scale: float) -> str:
    """How much of a curve is in another one, with a place for the other one."""
    scaled = "" if scale == 1 else f", with times scaled by {scale:.4g}"
    return f"{found.agree} of {found.points} points as in {{0}}{scaled}"


def _precedence(holder: _Holder) -> tuple[bool, str]:
    """Sort key, most trusted first: signed before unsigned, then the earlier day (an ISO day, or any text)."""
    return not holder.signed, holder.day


def _curve(curves: Callable[[str], list[SubmittedCurve]], run: _Run) -> SubmittedCurve | None:
    # The file may have changed since its sketch was made.
    found = curves(run.file)
    return found[run.number] if run.number < len(found) and _goes_forward(found[run.number]) else None
