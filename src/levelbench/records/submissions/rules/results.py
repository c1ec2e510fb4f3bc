"""Rules about what an entry claims: computed again from its curves, under the rules that it names."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from levelbench.measure.policies import policy
from levelbench.records.submissions.rules.entry import Entry, shown
from levelbench.records.submissions.rules.findings import Finding
from levelbench.records.submissions.schema import SubmittedRun

__all__ = ["claims", "numbers", "phases", "reached", "replicates"]

_CLOSE = 1e-6
_CLOSE_S = 1e-3
_CENTURY_S = 3.2e9
_PHASES = 0.01
"""The timeline's promise: phases sum to the time within 1 %."""


def claims(entry: Entry) -> Iterator[Finding]:
    """What each run says of itself is what its curve says, where it is known by which rules."""
    if entry.rules is None:
        return
    for at, (run, time_s) in enumerate(zip(entry.submission.runs, entry.times, strict=True)):
        if run.status == "failed":
            if run.reached or run.time_to_target_s is not None:
                do = "leave reached and time_to_target_s out of a run that failed"
                yield entry.error("B143", f"runs[{at}].reached", "a failed run reached nothing", do)
            continue
        if run.reached is not None and run.reached != (time_s is not None):
            found = f"stated {_words(run.reached)}, by its curve {_words(time_s is not None)} ({entry.crossing})"
            yield entry.error("B141", f"runs[{at}].reached", found, "leave it out: it is computed from the curve")
        elif run.time_to_target_s is not None and not _same_time(run.time_to_target_s, time_s):
            by_curve = "never" if time_s is None else f"{time_s:.10g} s"
            found = f"stated {run.time_to_target_s:.10g} s, by its curve {by_curve} ({entry.crossing})"
            yield entry.error("B142", f"runs[{at}].time_to_target_s", found, "leave it out: it is computed")


def _words(reached: bool) -> str:
    return "reached" if reached else "not reached"


def _same_time(stated: float, found: float | None) -> bool:
    return found is not None and math.isclose(stated, found, rel_tol=_CLOSE, abs_tol=_CLOSE_S)


def reached(entry: Entry) -> Iterator[Finding]:
    """Enough runs arrive for the ruleset's figure to exist; under the rule ``first``, whether a run fell back."""
    rules, runs = entry.rules, entry.submission.runs
    if rules is None or not runs:
        return
    n, k = len(runs), sum(time is not None for time in entry.times)
    missed = f"{k} of {n} runs reached {entry.submission.target.threshold:g} ({entry.crossing})"
    rule = rules.aggregation.rule
    if k == 0:
        yield entry.error("B140", "runs", missed, "submit an entry that reaches the target")
    elif rule == "olympic" and n - k > rules.aggregation.drop:
        found = f"{missed}; {rules.aggregation.drop} may miss it"
        yield entry.error("B140", "runs", found, "submit an entry that reaches the target more often")
    elif rule == "median" and 2 * k <= n:
        yield entry.warning("B140", "runs", missed, "nothing: the board shows it without a median")
    if entry.crossing == "first":
        yield from _fell_back(entry)


def _fell_back(entry: Entry) -> Iterator[Finding]:
    target = entry.submission.target
    sign = 1.0 if target.direction == "higher" else -1.0
    for at, (run, time_s) in enumerate(zip(entry.submission.runs, entry.times, strict=True)):
        if time_s is None:
            continue
        since = run.curve.quality[run.curve.time_s.index(time_s) :]
        below = sum(sign * quality < sign * target.threshold for quality in since)
        if below:
            found = f"{below} of {len(since) - 1} later evaluations lie below {target.threshold:g}"
            yield entry.note("B138", f"runs[{at}].curve.quality", found, "see what sustained and confirmed say")


def replicates(entry: Entry) -> Iterator[Finding]:
    """As many runs as the rules want, each with a seed of its own, none of them twice."""
    rules, runs = entry.rules, entry.submission.runs
    if rules is not None and runs:
        wanted = rules.aggregation
        if len(runs) < wanted.runs:
            found = f"{len(runs)} runs; {rules.id} asks for {wanted.runs}"
            yield entry.error("B150", "runs", found, "make the missing runs: levelbench run TASK -n COUNT")
        elif len(runs) > wanted.runs and wanted.exact_runs:
            found = f"{len(runs)} runs; {rules.id} wants {wanted.runs}"
            yield entry.error("B151", "runs", found, "submit under rules that take all runs")
    seeds = Counter(run.seed for run in runs if run.seed is not None)
    for seed, times in seeds.items():
        if times > 1:
            yield entry.error("B152", "runs", f"seed {seed} is there {times} times", "run each with its own seed")
    if len(runs) > 1 and not entry.imported:
        for at, run in enumerate(runs):
            if run.seed is None:
                yield entry.warning("B153", f"runs[{at}].seed", "it is not stated", "state it")
    yield from _twice(entry)
    doubtful = [run.suspect[0] for run in runs if run.suspect]
    if doubtful:
        found = f"{len(doubtful)} of {len(runs)}, the first: {shown(doubtful[0], 200)}"
        yield entry.note("B155", "runs", found, "look at it, or run again")


def _twice(entry: Entry) -> Iterator[Finding]:
    seen: dict[tuple[str, object], int] = {}
    for at, run in enumerate(entry.submission.runs):
        curve = (tuple(run.curve.time_s), tuple(run.curve.quality)) if run.curve.time_s else None
        parts = {"record_digest": run.record_digest, "record_id": run.record_id, "curve": curve}
        before = {name: seen.setdefault((name, part), at) for name, part in parts.items() if part is not None}
        same = {name: first for name, first in before.items() if first != at}
        if same:
            name, first = next(iter(same.items()))
            yield entry.error("B154", f"runs[{at}].{name}", f"the same as runs[{first}]", "submit each run once")


def phases(entry: Entry) -> Iterator[Finding]:
    """The phases of a run sum to its time and to what the clock left out, which is what the clock may leave out."""
    for at, run in enumerate(entry.submission.runs):
        if not run.phases_s or not run.curve.time_s or len(run.curve.time_s) != len(run.curve.quality):
            continue
        whole, counted = sum(run.phases_s.values()), run.curve.time_s[-1]
        clocked = counted + sum(run.excluded_s.values())
        if not all(0 <= value < _CENTURY_S for value in (*run.phases_s.values(), *run.excluded_s.values())):
            yield entry.error("B156", f"runs[{at}].phases_s", "a phase is negative or endless", "give seconds by phase")
        elif abs(whole - clocked) > _PHASES * max(whole, clocked) + _CLOSE_S:
            found = f"phases sum to {whole:.6g} s; the time and what is left out of it to {clocked:.6g} s"
            yield entry.error("B156", f"runs[{at}].phases_s", found, "submit the run as it was recorded")
        elif entry.rules is not None:
            yield from _left_out(entry, run, at)


def _left_out(entry: Entry, run: SubmittedRun, at: int) -> Iterator[Finding]:
    assert entry.rules is not None
    clock = policy(entry.rules.clock)
    may = clock.score({name: round(seconds * 1e9) for name, seconds in run.phases_s.items()}).excluded_s
    for name, seconds in run.excluded_s.items():
        allowed = may.get(name, 0.0)
        if seconds > allowed * (1 + _PHASES) + _CLOSE_S:
            found = f"{shown(name)} {seconds:.6g} s; the clock {clock.name} leaves out {allowed:.6g} s of it"
            yield entry.error("B157", f"runs[{at}].excluded_s", found, f"submit times on the clock {clock.name}")


def numbers(entry: Entry) -> Iterator[Finding]:
    """Energy is positive and says how it was measured."""
    for at, run in enumerate(entry.submission.runs):
        if run.energy_j is None:
            continue
        if not run.energy_j > 0:
            yield entry.error("B158", f"runs[{at}].energy_j", f"{run.energy_j:g} J", "leave it out if not measured")
        elif not run.energy_method:
            yield entry.warning("B158", f"runs[{at}].energy_method", "it is not stated", "say how energy was measured")
