"""Rules about measurements: curves, claims, replicates, phases, other numbers, and what a machine can do."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice, pairwise
from operator import le, lt
from typing import Literal

from levelbench.competition.checks import (
    CEILING,
    FLOPS,
    CheckedEntry,
    EntryFinding,
    MachineLimits,
    instant_of,
    nodes_used,
    shown,
    unlike_scale,
)
from levelbench.competition.entries import Inference, Submission, SubmittedCurve, SubmittedRun, curve_digest
from levelbench.competition.figures import LATENCY_S, RUN_S, aggregate, is_within
from levelbench.competition.scoring import ONE_BY_ONE, judged_mean, score
from levelbench.measure.crossing import sign_of
from levelbench.measure.policies import policy
from levelbench.records.integrity import is_share
from levelbench.report.numbers import plural

_LEAST_SHARE = 0.9
"""Fewer samples or steps than this share of what follows from epochs or batches need an explanation."""
_DRIFT = 0.05
"""The relative variation of samples per epoch over a curve that is not yet a contradiction."""


def curves(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Every curve by every rule about a single curve, and its digest."""
    for number, run in enumerate(entry.submission.runs):
        yield from _columns(entry, run, f"runs[{number}].curve")
        at = f"runs[{number}].curve_digest"
        if run.curve_digest is None:
            if run.curve.time_s and not entry.imported:
                yield entry.warning("B136", at, "it is not stated")
        elif run.curve_digest != curve_digest(run.curve):
            yield entry.error("B135", at, "the curve has another digest")


def _columns(entry: CheckedEntry, run: SubmittedRun, at: str) -> Iterator[EntryFinding]:
    curve = run.curve
    columns: dict[str, Sequence[float] | None] = {
        "time_s": curve.time_s,
        "quality": curve.quality,
        "epoch": curve.epoch,
        "samples": curve.samples,
        "steps": curve.steps,
        **{f"others.{shown(name, 40)[1:-1]}": values for name, values in curve.others.items()},
    }
    stated = {name: values for name, values in columns.items() if values is not None}
    lengths = {name: len(values) for name, values in stated.items()}
    if len(set(lengths.values())) > 1:
        yield entry.error("B130", at, f"values: {', '.join(f'{name} {length}' for name, length in lengths.items())}")
        return
    if not curve.time_s:
        if run.status == "done":
            yield entry.error("B134", at, "the run is done but has no evaluation")
        return
    # A finite sum proves that all are finite; since it may overflow, each is then checked.
    infinite = [
        name for name, values in stated.items() if not (math.isfinite(sum(values)) or all(map(math.isfinite, values)))
    ]
    for name in infinite:
        yield entry.error("B137", f"{at}.{name}", "a value is not finite")
    if infinite:
        return
    yield from _forward(entry, curve, at)
    counts = {"epoch": curve.epoch, "samples": curve.samples, "steps": curve.steps}
    data = entry.submission.provenance
    if (curve.samples or curve.steps) and not (data.split_sizes or data.checksums):
        # Epochs of data that nobody knows: a program that is timed need not print any.
        del counts["epoch"]
    untrained = [name for name, values in counts.items() if values and values[-1] == 0]
    if untrained and run.status == "done" and run.reached is not False:
        found = f"it ends after 0 {' and 0 '.join(untrained)}"
        yield entry.warning("B139", at, found, "check how the model was made: nothing was trained here")
    target, least, most = entry.submission.target, min(curve.quality), max(curve.quality)
    outside = most if target.high is not None and most > target.high else least
    if found := unlike_scale(target, outside):
        percent = target.high == 1 and 2 < most <= 100 and least >= 0
        do = "divide by 100: the scale ends at 1" if percent else f"give {target.metric} on the scale of the target"
        yield entry.error("B133", f"{at}.quality[{curve.quality.index(outside)}]", found, do)
    elif found := _no_share(entry, curve):
        yield entry.warning("B133", f"{at}.quality", found)


def _no_share(entry: CheckedEntry, curve: SubmittedCurve) -> str:
    """The first quality that no number of right answers gives, in words; empty if there is none or nobody knows."""
    target, data = entry.submission.target, entry.submission.provenance
    examples = data.split_sizes.get(target.split)
    if not examples or not re.fullmatch(r"top\d+", target.metric):
        return ""
    wrong = next((each for each in curve.quality if not is_share(each, examples)), None)
    return "" if wrong is None else f"{wrong:.10g} is not a share of {examples} examples"


def _forward(entry: CheckedEntry, curve: SubmittedCurve, at: str) -> Iterator[EntryFinding]:
    time_s = curve.time_s
    if not all(map(lt, time_s, time_s[1:])):
        number, (before, after) = next((i, pair) for i, pair in enumerate(pairwise(time_s), 1) if pair[1] <= pair[0])
        found = f"{before:.10g} s, then {after:.10g} s"
        yield entry.error("B131", f"{at}.time_s[{number}]", found, "give the seconds since the start, in order")
    if time_s[0] < 0:
        yield entry.error("B131", f"{at}.time_s[0]", f"{time_s[0]:.10g} s", "give the seconds since the start")
    back = False
    for name, values in (("epoch", curve.epoch), ("samples", curve.samples), ("steps", curve.steps)):
        if values is None or (all(map(le, values, values[1:])) and values[0] >= 0):
            continue
        back = True
        number = next((i for i, (a, b) in enumerate(pairwise(values), 1) if b < a), 0)
        yield entry.error("B132", f"{at}.{name}[{number}]", f"{name} {values[number]:.10g}")
    if not back and curve.epoch is not None and curve.samples is not None:
        sizes = [count / epoch for epoch, count in zip(curve.epoch, curve.samples, strict=True) if epoch >= 1]
        if sizes and max(sizes) > (1 + _DRIFT) * min(sizes):
            found = f"an epoch has between {min(sizes):.6g} and {max(sizes):.6g} samples"
            yield entry.warning("B139", f"{at}.samples", found)


_CLOSE = 1e-6
_CLOSE_S = 1e-3
_CENTURY_S = 3.2e9
_LEAST_S, _MOST_S = RUN_S
_MOST_W = 1e9
"""A gigawatt, the output of a power station."""
_NO_CHANCE = 4
"""This many evaluations of runs with different seeds do not repeat those of another run by chance."""
_LEAST_W, _IDLE_W = 1e-6, 0.1
"""A watch draws a microwatt; the smallest computer that trains anything draws several times the second without work."""
_LEAST_BYTES, _MOST_BYTES = 1e3, 1e18
_PHASES = 0.01
"""The timeline guarantees that phases sum to the time within 1 %."""


def _has_no_target(entry: CheckedEntry) -> bool:
    """Whether an import is of a task that its rules lack: then only the other system knows when a run arrived."""
    return entry.imported and entry.task is None


def claims(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Each run's claims agree with its curve, if the rules are known."""
    if entry.rules is None or _has_no_target(entry):
        return
    for at, (run, time_s) in enumerate(zip(entry.submission.runs, entry.times, strict=True)):
        if run.status == "failed":
            if run.reached or run.time_to_target_s is not None:
                yield entry.error("B143", f"runs[{at}].reached", "a failed run reached nothing")
            continue
        last = run.curve.time_s[-1] if run.curve.time_s else 0.0
        if (time_s is not None and time_s < _LEAST_S) or last > _MOST_S:
            found = f"{time_s:g} s to the target" if time_s is not None and time_s < _LEAST_S else f"{last:g} s"
            yield entry.error("B147", f"runs[{at}].curve.time_s", found)
        if run.reached is not None and run.reached != (time_s is not None):
            words = ("not reached", "reached")
            found = f"stated {words[run.reached]}, by its curve {words[time_s is not None]} ({entry.crossing})"
            yield entry.error("B141", f"runs[{at}].reached", found)
        elif run.time_to_target_s is not None and (
            time_s is None or not math.isclose(run.time_to_target_s, time_s, rel_tol=_CLOSE, abs_tol=_CLOSE_S)
        ):
            by_curve = "never" if time_s is None else f"{time_s:.10g} s"
            found = f"stated {run.time_to_target_s:.10g} s, by its curve {by_curve} ({entry.crossing})"
            yield entry.error("B142", f"runs[{at}].time_to_target_s", found)


def reached(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Enough runs arrive for the ruleset's figure to exist; under the rule ``first``, whether a run fell back.

    Under ``confirmed`` and ``sustained``, also whether the network was trained between the evaluations that confirm.
    """
    rules, runs = entry.rules, entry.submission.runs
    if rules is None or not runs or _has_no_target(entry):
        return
    n, k = len(runs), sum(time is not None for time in entry.times)
    missed = f"{k} of {plural(n, 'run')} reached {entry.submission.target.threshold:g} ({entry.crossing})"
    if rules.aggregation.rule == "mean-test":
        if fault := judged_mean(entry.submission, rules, entry.submission.target)[0]:
            yield entry.error("B140", "runs", fault, "submit an entry whose mean is at the target")
        ends = {run.curve.quality[-1] for run in runs if run.curve.quality}
        if len(runs) > 1 and len(ends) == 1:
            found = f"all final qualities are {ends.pop():.6g}, so the test has no spread to compare with"
            yield entry.warning("B154", "runs.curve.quality", found, "check whether the seed has any effect")
        yield from _at_one_end(entry)
        return
    rule, scored = rules.aggregation.rule, aggregate(entry.times, rules.aggregation)
    # With windows, the number of misses in the middle window counts.
    plain = rules.aggregation.windows is None or n <= rules.aggregation.runs
    if k == 0:
        yield entry.error("B140", "runs", missed, "submit an entry that reaches the target")
    elif rule == "olympic" and (n - k > rules.aggregation.drop if plain else scored.value is None):
        found = f"{missed}; {rules.aggregation.drop} may miss it"
        yield entry.error("B140", "runs", found, "submit an entry that reaches the target more often")
    elif rule == "median" and scored.value is None:
        yield entry.warning("B140", "runs", missed, "nothing: the board shows it without a median")
    if entry.crossing == "final":
        yield from _at_one_end(entry)
    else:
        yield from _after_and_before(entry)
    if entry.crossing in ("confirmed", "sustained"):
        yield from _confirmed_by_itself(entry)


_BUDGETS = ("budget_s", "budget_samples", "budget_j", "plateau")


def _confirmed_by_itself(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Whether a run is confirmed by evaluating one network twice, or before its settings say: luck is no second try."""
    settings = entry.submission.settings
    every, epochs = _EVERY.fullmatch(str(settings.get("evaluate_every", ""))), settings.get("budget_epochs")
    for at, (run, time_s) in enumerate(zip(entry.submission.runs, entry.times, strict=True)):
        curve = run.curve
        number = curve.time_s.index(time_s) if time_s is not None else 0
        apart = {
            name: column[number] - column[number - 1]
            for name, column in (("steps", curve.steps), ("samples", curve.samples), ("epochs", curve.epoch))
            if number > 0 and column and len(column) == len(curve.time_s)
        }
        # A run is evaluated where its budget ends, wherever that is.
        spent = isinstance(epochs, int | float) and _ended_at(curve, epochs)
        cut = number == len(curve.time_s) - 1 and (spent or any(name in settings for name in _BUDGETS))
        # Epochs may be whole numbers, of which several evaluations have the same.
        if 0 in (apart.get("steps"), apart.get("samples")):
            found = "the evaluation that confirms the target is of the network of the evaluation before"
            yield entry.warning("B139", f"runs[{at}].curve", found, "train between the two evaluations")
        elif every and not cut and apart.get("epochs", math.inf) < _LEAST_SHARE * float(every[1]):
            found = f"confirmed {apart['epochs']:.3g} epochs later, where the settings evaluate every {every[0]}"
            yield entry.warning("B139", f"runs[{at}].curve.epoch", found, "evaluate as often as the settings say")


def _ended_at(curve: SubmittedCurve, epochs: float) -> bool:
    """Whether a run ended where its budget of epochs does, which is rounded to whole steps."""
    end = (curve.epoch or [0.0])[-1]
    step = end / curve.steps[-1] if curve.steps and curve.steps[-1] > 0 else 0.0
    return end >= epochs - 0.51 * step


def _is_of_records(entry: CheckedEntry) -> bool:
    """Whether an entry is made from records of an installed task, which have samples and epochs of each evaluation."""
    return entry.known_facts is not None and entry.known_facts.recipes is not None and entry.submission.origin is None


def ranked(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """An entry of training has what its ruleset ranks by, and does not understate how much it trained."""
    rules, submission = entry.rules, entry.submission
    if rules is None or submission.mode != "training" or entry.task is None:
        return
    if rules.ranked_by != "time":
        found = score(submission, rules)
        figure = found.figure(rules.ranked_by)
        if figure.value is None and found.time.value is not None:
            yield entry.warning("B263", "runs", f"{rules.id} ranks by {rules.ranked_by}; {figure.how}")
    if rules.ranked_by in ("samples", "steps") or _is_of_records(entry):
        # Steps, and the operations that times are checked with, follow from samples, so these have to be right as well.
        yield from _understated(entry, "samples")
        yield from _as_often_as_stated(entry)
    if rules.ranked_by == "steps":
        yield from _understated(entry, "steps")


_EVERY = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) epochs?")
_APART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) (epoch|step)s?")


def _as_often_as_stated(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Whether evaluations follow each other as its settings say: epochs may be halved, and evaluations left out."""
    every = entry.submission.settings.get("evaluate_every")
    if every is None and _is_of_records(entry):
        found = "it is not stated, so nothing says how far evaluations are apart"
        yield entry.warning("B139", "settings.evaluate_every", found, "make the entry with levelbench board submit")
    stated = _APART.fullmatch(str(every))
    if stated is None:
        return
    for at, run in enumerate(entry.submission.runs):
        name = "steps" if stated[2] == "step" else "epoch"
        column, wanted = getattr(run.curve, name) or [], float(stated[1])
        # The last evaluation is where the run ended.
        apart = min((after - before for before, after in pairwise(column[:-1])), default=math.inf)
        # One that is left out, such as a fall between two that reach the target, leaves a gap.
        widest = max((after - before for before, after in pairwise([0, *column])), default=0)
        wrong = apart if apart < _LEAST_SHARE * wanted else widest if widest > wanted / _LEAST_SHARE else None
        if wrong is not None:
            found = f"evaluations {wrong:.3g} {stated[2]}s apart, where the settings say {stated[1]}"
            yield entry.warning("B139", f"runs[{at}].curve.{name}", found)


def _understated(entry: CheckedEntry, what: Literal["samples", "steps"]) -> Iterator[EntryFinding]:
    """Whether a run states fewer samples than its epochs have, or fewer steps than its batches make of the samples.

    What every record has and the entry leaves out, so that nobody can tell, is reported as well.
    """
    submission = entry.submission
    # In reinforcement learning an epoch is what all environments play between two updates. Which tasks are of that kind
    # is known of installed ones, and there no setting that an entry states makes it one.
    known = entry.known_facts
    plays = known is None or known.recipes is None or known.rollouts
    size = _product(submission, ("environments", 0), ("length", 0)) if plays else 0
    size = size or submission.provenance.split_sizes.get("train", 0)
    batch = _product(submission, ("batch", 0), ("accumulate", 1))
    of, unknown = "samples and batch" if what == "steps" else "epochs and training data", 0
    for at, run in enumerate(submission.runs):
        curve = run.curve
        if what == "steps":
            stated, least = curve.steps, [count / batch for count in curve.samples or ()] if batch > 0 else []
        else:
            stated, least = curve.samples, [epoch * size for epoch in curve.epoch or ()] if size else []
        unknown += bool(stated and not least)
        if not stated or len(stated) != len(least):
            continue
        both = zip(stated, least, strict=True)
        if too_few := next(((has, needs) for has, needs in both if has < _LEAST_SHARE * needs), None):
            found = f"{too_few[0]} {what}, where {too_few[1]:.6g} follow from {of}"
            yield entry.warning("B139", f"runs[{at}].curve.{what}", found)
    if unknown and not entry.imported:
        found = f"{unknown} of {plural(len(submission.runs), 'run')} state no {of} to compare them with"
        yield entry.warning("B139", f"runs.curve.{what}", found, "make the entry with levelbench board submit")


def _product(submission: Submission, *settings: tuple[str, int]) -> int:
    """The product of settings, each with its default; 0 if one is no whole number."""
    values = (submission.settings.get(name, default) for name, default in settings)
    return math.prod([value if isinstance(value, int) else 0 for value in values])


def _effort(curve: SubmittedCurve, time_s: float) -> float | None:
    """Samples, or epochs, up to a time of a run; ``None`` if they are not stated."""
    column = curve.samples or curve.epoch or ()
    at = bisect_right(curve.time_s, time_s) - 1
    return column[at] if len(column) == len(curve.time_s) and at >= 0 else None


def _after_and_before(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """A run that missed must have tried as long as the slowest that arrived; otherwise it may have been stopped.

    As many samples (or epochs) are as long: another run may have taken more time for them. Under the rule ``first``,
    also reports whether a run that arrived fell back.
    """
    target, slowest = entry.submission.target, max((time for time in entry.times if time is not None), default=0.0)
    sign = sign_of(target.direction)
    timed = list(zip(entry.submission.runs, entry.times, strict=True))
    needed = [_effort(run.curve, time_s) for run, time_s in timed if time_s is not None]
    for at, (run, time_s) in enumerate(timed):
        tried = run.curve.time_s[-1] if run.curve.time_s else slowest
        whole = _effort(run.curve, tried)
        as_much = whole is not None and all(each is not None and whole >= each for each in needed)
        if time_s is None and run.status == "done" and tried < slowest and not as_much:
            found = f"it missed the target and ends at {tried:.6g} s; the slowest run that arrived took {slowest:.6g} s"
            yield entry.warning("B144", f"runs[{at}].curve.time_s", found)
        if time_s is not None and entry.crossing == "first":
            since = run.curve.quality[run.curve.time_s.index(time_s) :]
            below = sum(sign * quality < sign * target.threshold for quality in since)
            if below:
                found = f"{below} of {len(since) - 1} later evaluations miss {target.threshold:g} again"
                yield entry.note("B138", f"runs[{at}].curve.quality", found)


def _at_one_end(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Runs that are judged only at their end stop where their schedule does, which is the same place for all."""
    known = entry.known_facts
    fixed = known is not None and known.certain and known.fixed_length
    if entry.rules is not None and entry.rules.crossing != "final" and not fixed:
        found = f"judged at its last evaluation; otherwise {entry.rules.id} requires two evaluations in a row"
        yield entry.warning("B145", "crossing", found)
    for name in ("epoch", "samples", "steps"):
        columns = [getattr(run.curve, name) for run in entry.submission.runs if run.status == "done"]
        ends = {column[-1] for column in columns if column}
        if len(ends) > 1:
            what = f"{len(ends)} different ends, from {name} {min(ends):.10g} to {max(ends):.10g}"
            do = "submit runs of one length"
            if entry.rules is not None and entry.rules.crossing != "final":
                do = "submit under the crossing rule confirmed, or submit runs of one length"
            yield entry.error("B146", f"runs.curve.{name}", what, do)
            return
    if not any(run.curve.epoch or run.curve.samples or run.curve.steps for run in entry.submission.runs):
        found = "neither epochs, samples nor steps say where the schedule ends"
        do = entry.advice("make the entry with levelbench board submit", "see what its logs say")
        yield entry.warning("B146", "runs.curve", found, do)


_SEEDS = 6
"""The most seeds that a finding lists."""


def replicates(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """As many runs as the rules require, each with its own seed, none twice."""
    rules, runs = entry.rules, entry.submission.runs
    # How many runs a benchmark needs is not known under rules that lack it.
    if rules is not None and entry.task is not None and runs:
        wanted = rules.aggregation
        if len(runs) < wanted.runs:
            found = f"{plural(len(runs), 'run')}; {rules.id} requires {wanted.runs}"
            yield entry.error("B150", "runs", found)
        elif len(runs) > wanted.runs and wanted.exact_runs:
            yield entry.error("B151", "runs", f"{len(runs)} runs; {rules.id} requires {wanted.runs}")
        elif len(runs) > wanted.runs and (wanted.windows or wanted.rule == "first-run"):
            yield from _in_order(entry)
        # The fastest run of a study counts, so its trials must be adjacent and named STUDY/TRIAL, and a study may
        # neither have two blocks nor lack a name: otherwise the submitter could choose what is a study.
        studies = [(run.record_id or "").rpartition("/")[0] for run in runs] if wanted.best_of > 1 else []
        blocks = [studies[first : first + wanted.best_of] for first in range(0, len(studies), wanted.best_of)]
        seen = {""}
        for at, block in enumerate(blocks):
            if block[0] in seen or block != [block[0]] * wanted.best_of:
                found = f"{entry.submission.ruleset} takes the fastest of each {wanted.best_of} runs of a study"
                do = f"list {wanted.best_of} runs of each study in a row, with record_id STUDY/TRIAL"
                yield entry.error("B149", f"runs[{at * wanted.best_of}].record_id", found, do)
                break
            seen.add(block[0])
    seeds = Counter(run.seed for run in runs if run.seed is not None)
    for seed, times in seeds.items():
        if times > 1:
            yield entry.error("B152", "runs", f"{times} runs have seed {seed}")
    if len(runs) > 1 and not entry.imported:
        for at, run in enumerate(runs):
            if run.seed is None:
                yield entry.warning("B153", f"runs[{at}].seed", "it is not stated")
    each_once = len(seeds) == len(runs) > 1
    if each_once and not entry.imported and max(seeds) - min(seeds) >= len(seeds):
        found = f"they are {', '.join(map(str, sorted(seeds)[:_SEEDS]))}{', ...' if len(seeds) > _SEEDS else ''}"
        yield entry.warning("B186", "runs.seed", f"{found}: the entry lacks runs with seeds between")
    elif each_once and not entry.imported and min(seeds) > 0:
        yield entry.note("B186", "runs.seed", f"they begin at {min(seeds)}", "ask for the runs with the seeds before")
    before: dict[tuple[str, object], int] = {}
    copies = Counter(tuple(run.curve.quality) for run in runs)
    for at, run in enumerate(runs):
        curve = (tuple(run.curve.time_s), tuple(run.curve.quality)) if run.curve.time_s else None
        parts = {"record_digest": run.record_digest, "record_id": run.record_id, "curve": curve}
        if (same := _first_like(parts, at, before)) is not None:
            yield entry.error("B154", f"runs[{at}].{same[0]}", f"the same as runs[{same[1]}]", "submit each run once")
        elif not entry.imported and _repeated(entry, run.curve.quality, copies):
            first = before.setdefault(("quality", tuple(run.curve.quality)), at)
            if first != at:
                found = f"the same qualities as runs[{first}], at different times"
                yield entry.warning("B154", f"runs[{at}].curve.quality", found, "check whether its seed has any effect")
    doubts = [run.suspect[0] for run in runs if run.suspect]
    if doubts:
        yield entry.note("B155", "runs", f"{len(doubts)} of {len(runs)}, the first: {shown(doubts[0], 200)}")


def _repeated(entry: CheckedEntry, quality: Sequence[float], copies: Mapping[tuple[float, ...], int]) -> bool:
    """Whether other runs have these qualities and not by chance, as several runs have that end at a perfect score."""
    perfect = {entry.submission.target.low, entry.submission.target.high}
    again = len(quality) * (copies[tuple(quality)] - 1)
    return again >= _NO_CHANCE and (len(quality) >= _NO_CHANCE or not perfect.issuperset(quality))


def _in_order(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Whoever could choose the order of the runs could choose the first of them, or the middle window."""
    starts = [run.started for run in entry.submission.runs]
    if None in starts:
        found = f"{starts.count(None)} of {len(starts)} runs do not state it, but their order decides the score"
        yield entry.error("B149", "runs.started", found)
        return
    instants = [instant_of(start) for start in starts if start is not None]
    known = [each for each in instants if each is not None]
    late = next((at for at, (one, other) in enumerate(pairwise(known), 1) if other <= one), None)
    if late is not None and len(known) == len(instants):
        same = known[late] == known[late - 1]
        found = "it started at the same time as the previous run" if same else "it started before the previous run"
        yield entry.error("B149", f"runs[{late}].started", found)


def _first_like(parts: Mapping[str, object], at: int, seen: dict[tuple[str, object], int]) -> tuple[str, int] | None:
    """The first of ``parts`` that an earlier one has as well, and where; adds them all to ``seen``."""
    before = {name: seen.setdefault((name, part), at) for name, part in parts.items() if part is not None}
    return next(((name, first) for name, first in before.items() if first != at), None)


def measurements(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """No inference measurement occurs twice, whatever its records are called."""
    seen: dict[tuple[str, object], int] = {}
    for at, each in enumerate(entry.submission.inference):
        figures = (each.scenario, each.queries, each.duration_s, each.mean_latency_s, each.estimate_s)
        parts = {"record_digest": each.record_digest, "record_id": each.record_id, "duration_s": figures}
        if (same := _first_like(parts, at, seen)) is not None:
            found = f"the same as inference[{same[1]}]"
            yield entry.error("B154", f"inference[{at}].{same[0]}", found, "submit each measurement once")


def phases(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """The phases of a run sum to its time plus what the clock left out, and the clock may leave that out."""
    if entry.rules is not None and entry.rules.clock == "wall" and not entry.imported:
        without = [at for at, run in enumerate(entry.submission.runs) if run.curve.time_s and not run.phases_s]
        if without:
            found = f"{len(without)} of {len(entry.submission.runs)} runs do not state them"
            yield entry.warning("B159", "runs.phases_s", found)
    for at, run in enumerate(entry.submission.runs):
        possible = all(0 <= value < _CENTURY_S for value in (*run.phases_s.values(), *run.excluded_s.values()))
        if not run.phases_s and not possible:
            yield entry.error("B156", f"runs[{at}].excluded_s", "a phase is negative or infinite")
        if not run.phases_s or not run.curve.time_s or len(run.curve.time_s) != len(run.curve.quality):
            continue
        whole, clocked = sum(run.phases_s.values()), run.curve.time_s[-1] + sum(run.excluded_s.values())
        if not possible:
            yield entry.error("B156", f"runs[{at}].phases_s", "a phase is negative or infinite")
        elif abs(whole - clocked) > _PHASES * max(whole, clocked) + _CLOSE_S:
            found = f"phases sum to {whole:.6g} s; the time plus what is left out to {clocked:.6g} s"
            yield entry.error("B156", f"runs[{at}].phases_s", found, "submit the run as it was recorded")
        elif entry.rules is not None:
            yield from _left_out(entry, run, at)


def _left_out(entry: CheckedEntry, run: SubmittedRun, at: int) -> Iterator[EntryFinding]:
    assert entry.rules is not None
    clock = policy(entry.rules.clock)
    may = clock.score({name: round(seconds * 1e9) for name, seconds in run.phases_s.items()}).excluded_s
    for name, seconds in run.excluded_s.items():
        allowed = may.get(name, 0.0)
        if seconds > allowed * (1 + _PHASES) + _CLOSE_S:
            found = f"{shown(name)} {seconds:.6g} s; the clock {clock.name} leaves out {allowed:.6g} s of it"
            yield entry.error("B157", f"runs[{at}].excluded_s", found, f"submit times on the clock {clock.name}")


def numbers(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Energy, memory and qualities apart from the curve are possible, and energy states how it was measured."""
    target, machine, nodes = entry.submission.target, entry.submission.hardware, nodes_used(entry.submission)
    for at, run in enumerate(entry.submission.runs):
        memory = run.peak_memory_bytes
        if memory is not None and not _LEAST_BYTES < memory < _MOST_BYTES:
            yield entry.error("B148", f"runs[{at}].peak_memory_bytes", f"{memory:g} bytes")
        elif memory and machine.memory_bytes and not machine.accelerators and memory > nodes * machine.memory_bytes:
            found = f"{memory:.3g} bytes, where the machine has {machine.memory_bytes:.3g}"
            yield entry.error("B148", f"runs[{at}].peak_memory_bytes", found)
        for name, value in run.test_quality.items():
            # A name with a dot is another metric, whose scale is unknown.
            found = unlike_scale(target, value)
            if found and ("." not in name or not math.isfinite(value)):
                field = f"runs[{at}].test_quality.{shown(name)[1:-1]}"
                yield entry.error("B133", field, found, f"give {target.metric} on the scale of the target")
        if run.energy_j is None:
            continue
        longest = run.curve.time_s[-1] + sum(run.excluded_s.values()) if run.curve.time_s else 0.0
        found = f"{run.energy_j:g} J in {longest:g} s"
        if not (run.energy_j > 0 and _LEAST_W * longest <= run.energy_j <= _MOST_W * max(longest, 1.0)):
            yield entry.error("B158", f"runs[{at}].energy_j", found, "leave it out if it was not measured")
        elif run.energy_j < _IDLE_W * longest:
            do = "check what was measured: a processor draws more without any work"
            yield entry.warning("B158", f"runs[{at}].energy_j", f"{found}: {run.energy_j / longest:.2g} W", do)
        elif not (run.energy_method or "").strip():
            yield entry.warning("B158", f"runs[{at}].energy_method", "it is not stated", "say how energy was measured")


_LEAST_STEP_S = 1e-6
"""The update of a few thousand parameters takes longer, and so does a single call of a framework."""
_OVER = 0.1
"""A measured ceiling is not exact: it may be exceeded by this share."""


def ceiling(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """No run or measurement needs more operations per second than the machine's ceiling."""
    submission, known = entry.submission, entry.known_facts or MachineLimits()
    # The lower of the stated and the known limit, since nobody exceeds either.
    stated = _number(submission.provenance.environment.get(CEILING))
    limits = [] if stated is None else [(stated, "the machine's ceiling")]
    limits += [] if known.flop_s is None else [(known.flop_s, f"the peak of {known.machine}")]
    # An entry that states a lower cost than the network is known to have is checked with both; with the known cost the
    # result is at most a warning.
    flops_stated = _number(submission.settings.get(FLOPS))
    works = [] if flops_stated is None else [(flops_stated, "")]
    if known.flops_per_sample is not None and (flops_stated is None or known.flops_per_sample > flops_stated):
        works.append((known.flops_per_sample, known.network))
    rates = {
        f"runs[{at}].curve.time_s": _samples_a_second(run.curve, known.samples_per_epoch)
        for at, run in enumerate(submission.runs)
    }
    for at, each in enumerate(submission.inference):
        rates |= _of_answers(each, f"inference[{at}]")
    yield from _steps_in_no_time(entry)
    if known.recipes is not None and submission.origin is None:
        yield from _of_no_known_cost(entry, known.recipes, stated=bool(works))
    judged = entry.known_facts is not None and not entry.imported
    if judged and (lacks := _lacks_samples(entry)):
        do = entry.advice("make the entry with levelbench board submit", "see what its logs say")
        yield entry.warning("B191", "runs.curve", lacks, do)
    elif judged and not (limits and works and any(rates.values())):
        yield from _unchecked(entry, bool(limits), bool(works))
    if not limits or not works:
        return
    for field, samples_s in rates.items():
        found = (_over(entry, field, flops * samples_s, min(limits), network, known) for flops, network in works)
        yield from islice(filter(None, found), 1)
    if submission.origin is None:
        yield from _intervals(entry, max(works)[0], min(limits), known)


def _intervals(
    entry: CheckedEntry, flops: float, limit: tuple[float, str], known: MachineLimits
) -> Iterator[EntryFinding]:
    """Evaluations that follow each other faster than the machine can train, though the time from the start may do."""
    most = limit[0] * known.fast * (1 + _OVER)
    for at, run in enumerate(entry.submission.runs):
        samples = _samples_of(run.curve, known.samples_per_epoch)
        pairs = list(pairwise(zip(run.curve.time_s, samples, strict=False)))
        rates = [(done - before) / (end - start) for (start, before), (end, done) in pairs if end > start]
        rate = flops * max(rates, default=0.0)
        if rate > most >= flops * _samples_a_second(run.curve, known.samples_per_epoch):
            found = f"{rate:.3g} operations a second between two evaluations; {limit[1]} is {limit[0]:.3g}"
            yield entry.warning("B190", f"runs[{at}].curve.time_s", found, "correct the times or the samples")


def _steps_in_no_time(entry: CheckedEntry) -> Iterator[EntryFinding]:
    """Updates of the parameters that follow each other faster than a program can ask for them."""
    for at, run in enumerate(entry.submission.runs):
        both = pairwise([(0.0, 0), *zip(run.curve.time_s, run.curve.steps or (), strict=False)])
        each = ((after - before, steps - earlier) for (before, earlier), (after, steps) in both)
        if soon := next(((time_s, steps) for time_s, steps in each if time_s < _LEAST_STEP_S * steps), None):
            found = f"{plural(soon[1], 'step')} in {soon[0]:.3g} s"
            yield entry.warning("B190", f"runs[{at}].curve.time_s", found, "correct the times or the steps")


def _of_no_known_cost(entry: CheckedEntry, recipes: Set[str], *, stated: bool) -> Iterator[EntryFinding]:
    """An entry of an installed task that names none of its recipes: nothing but its author says what a sample costs.

    Every record of training names its recipe, and the cost of one of the author's own may be stated.
    """
    name = str(entry.submission.settings.get("recipe", ""))
    if name in recipes:
        return
    lacks, do = "neither the cost of a sample nor a recipe of the task is stated", "give --flops-per-sample"
    if stated and not name.strip() and entry.submission.mode == "training":
        lacks, do = "the recipe is not stated", "make the entry with levelbench board submit"
    elif stated:
        lacks, do = "the operations of a sample are the author's own figure", "count them from the author's code"
    elif name.strip():
        lacks = "the cost of a sample is not stated"
    lacks += f": the task has no recipe {shown(name, 40)}" if name.strip() else ""
    yield entry.warning("B191", "settings", lacks, do)


def _lacks_samples(entry: CheckedEntry) -> str:
    """What a run lacks that says how much it trained. Other systems' logs may state epochs of data of a known size."""
    ours = _is_of_records(entry)
    runs = [run.curve for run in entry.submission.runs if run.curve.time_s and not run.curve.samples]
    if ours and runs:
        return "the samples are not stated"
    return "" if all(curve.epoch for curve in runs) else "neither samples nor epochs are stated"


def _unchecked(entry: CheckedEntry, limits: bool, works: bool) -> Iterator[EntryFinding]:
    """Why the speed of an entry cannot be checked. What every record has is missed; the rest is information."""
    hardware = entry.submission.hardware
    if not limits and entry.submission.origin is None and not (hardware.cores or hardware.accelerators):
        do = "make the entry with levelbench board submit"
        yield entry.warning("B191", "hardware", "neither cores nor accelerators are stated", do)
        return
    lacks = [*(["the machine's ceiling"] if not limits else []), *(["the cost of a sample"] if not works else [])]
    if lacks:
        do = "measure with levelbench network in the same store, or give --flops-per-sample"
        yield entry.note("B191", "settings", f"unknown: {' and '.join(lacks)}", do)


def _over(
    entry: CheckedEntry, field: str, rate: float, limit: tuple[float, str], network: str, known: MachineLimits
) -> EntryFinding | None:
    """``network``: the source of the known cost; empty if the cost is stated."""
    flop_s, machine = limit
    if rate <= flop_s * (1 + _OVER):
        return None
    of = f" of {network}" if network else ""
    found = f"{rate:.3g} operations a second{of}; {machine} is {flop_s:.3g}"
    if rate <= flop_s * known.fast * (1 + _OVER):
        return entry.warning("B190", field, found, "check whether a fast convolution explains it")
    if network and not known.certain:
        return entry.warning("B190", field, found, f"check whether its network is {network}, or correct the times")
    return entry.error("B190", field, found, f"correct the times, the samples, or {FLOPS}")


def _of_answers(each: Inference, at: str) -> dict[str, float]:
    """Samples per second over the whole time, and in the fastest query if queries have the system to themselves."""
    rates = {f"{at}.duration_s": each.samples / each.duration_s} if each.duration_s > 0 else {}
    stated = {
        "quantiles_s": min(each.quantiles_s.values(), default=None),
        "estimate_s": each.estimate_s,
        "mean_latency_s": each.mean_latency_s,
    }
    if each.scenario in ONE_BY_ONE:
        # A query has at least one sample, whatever number is stated.
        samples = max(1.0, each.samples / each.queries) if each.queries else 1.0
        rates |= {
            f"{at}.{name}": samples / time_s
            for name, time_s in stated.items()
            if time_s and is_within(time_s, LATENCY_S)
        }
    return rates


def _samples_of(curve: SubmittedCurve, per_epoch: int | None) -> list[int] | list[float]:
    """The examples before each evaluation, if need be from the epochs; empty if unknown."""
    if not curve.samples and per_epoch is not None:
        return [epoch * per_epoch for epoch in curve.epoch or ()]
    return curve.samples or []


def _samples_a_second(curve: SubmittedCurve, per_epoch: int | None) -> float:
    """The highest mean rate from the start to any evaluation; 0 if unknown."""
    samples = _samples_of(curve, per_epoch)
    if len(samples) != len(curve.time_s):
        return 0.0
    rates = (count / time_s for count, time_s in zip(samples, curve.time_s, strict=True) if time_s > 0)
    return max((rate for rate in rates if not math.isnan(rate)), default=0.0)


def _number(value: object) -> float | None:
    """A positive, finite number, possibly written as text; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if number > 0 and math.isfinite(number) else None
