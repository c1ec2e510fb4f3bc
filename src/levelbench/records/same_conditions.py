"""Whether two groups of runs were measured alike: machine, environment, budgets, and time that a clock leaves out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from levelbench.records.caveats import SHOWN, Caveat, Sides, Weight, distinct_texts, fact, listed
from levelbench.records.summary import RunSummary

__all__ = [
    "budgets",
    "counted_epochs",
    "environment",
    "excluded_time",
    "machine",
    "preparation_words",
    "preparations",
    "rounding",
    "start_of_processes",
    "start_up",
]


def machine(sides: Sides) -> Iterator[Caveat]:
    """Runs on different machines, or on unknown ones."""
    if not sides.one_machine:
        weight: Weight = "doubt" if sides.across_machines else "no verdict"
        do = "" if sides.across_machines else "; compare --across-machines gives one anyway"
        known = all(isinstance(run.environment.get("machine"), Mapping) for run in sides.runs)
        where = "they ran on different machines" if known else "some do not say which machine they ran on"
        yield Caveat("machine", weight, f"{where}{do}")


_SETTINGS: tuple[tuple[str, str, Weight], ...] = (
    ("framework.threads", "threads", "doubt"),
    ("framework.deterministic", "kernels", "doubt"),
    ("threads.niceness", "niceness", "doubt"),
    ("threads", "threads", "doubt"),
    ("malloc", "memory allocator", "doubt"),
    ("libraries.python.traced", "tracing", "doubt"),
    ("libraries", "versions", "note"),
    ("machine.cpu", "processor", "doubt"),
    ("machine.cores", "processor", "doubt"),
    ("machine.cgroup", "processor", "doubt"),
    ("machine.governor", "frequency", "doubt"),
    ("machine.turbo", "frequency", "doubt"),
    ("machine.frequency", "frequency", "doubt"),
    ("machine", "system", "note"),
    ("accelerators", "driver", "doubt"),
    ("git", "commit", "note"),
)
"""A path in the environment, its subject, and its weight. The machine itself and its load have checks of their own."""
_NICENESS = "threads.niceness"
"""Recorded unless it is 0."""
_ABSENCE_COUNTS = ("threads.settings", _NICENESS, "malloc")
"""A value that is missing here is a different setting; elsewhere the other framework just does not load the library."""
_PLURAL = ("threads", "kernels", "versions")


def environment(sides: Sides) -> Iterator[Caveat]:
    """Threads, versions, kernels and settings: one caveat for each, with the values of both sides."""
    found: dict[tuple[str, Weight], list[str]] = {}
    # Ranks communicate through another framework, so they load libraries that a single process does not.
    a, b = sides.a.specification, sides.b.specification
    same_framework = a.framework == b.framework
    same_software = same_framework and (a.distribution is None) == (b.distribution is None)
    for path in dict.fromkeys(each.path for each in sides.differences):
        rule = next((each for each in _SETTINGS if path == each[0] or path.startswith(f"{each[0]}.")), None)
        rule = rule or next((each for each in _SETTINGS if path.startswith(f"{each[0]}_")), None)
        if rule is None or path == "machine.id" or (rule[0].startswith("machine") and not sides.one_machine):
            continue
        values_a, values_b = (_values(runs, path) for _, runs in sides.each)
        if not same_software and not path.startswith(_ABSENCE_COUNTS) and "not there" in (*values_a, *values_b):
            continue
        weight = "doubt" if same_framework and _is_framework(path, sides) else rule[2]
        what = "" if path == _NICENESS else f"{path} "
        text = f"{what}{listed(values_a)} against {listed(values_b)}"
        if values_a == values_b:
            text = f"{what}both have {listed(values_a)}"
        found.setdefault((rule[1], weight), []).append(text)
    for (subject, weight), lines in found.items():
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        differ = f"{subject} differ{'' if subject in _PLURAL else 's'}"
        yield Caveat(subject, weight, f"{differ}: {'; '.join(lines[:SHOWN])}{more}")


def _is_framework(path: str, sides: Sides) -> bool:
    """Whether it is the version of the framework of both sides, or of what computes for it."""
    name = sides.a.specification.framework
    return path in (f"libraries.{name}", f"libraries.{name}lib") or path.startswith("libraries.blas")


def _values(runs: Sequence[RunSummary], path: str) -> list[str]:
    found = [fact(run.environment, *path.split(".")) for run in runs]
    absent = "0" if path == _NICENESS else "not there"
    return sorted({absent if value is None else str(value) for value in found})


def start_of_processes(sides: Sides) -> Iterator[Caveat]:
    """Whether processes were forked or new interpreters; older records do not say, and were always the latter."""
    ways = [distinct_texts(str(fact(run.environment, "started") or "spawn") for run in runs) for _, runs in sides.each]
    if len({*ways[0], *ways[1]}) > 1:
        words = [listed(sorted(each)) for each in ways]
        text = f"their processes were started in different ways ({words[0]} against {words[1]})"
        yield Caveat("start of processes", "doubt", f"{text}: run both sides with one command, or with --spawn")


def budgets(sides: Sides) -> Iterator[Caveat]:
    """Different budgets and intervals of evaluation."""
    names = {
        "budget_epochs": "epochs",
        "budget_s": "seconds",
        "budget_samples": "samples",
        "budget_j": "joules",
        "plateau": "evaluations without a better one",
    }
    a, b = sides.a.specification, sides.b.specification
    differing = [
        f"{_amount(getattr(a, name))} against {_amount(getattr(b, name))} {unit}"
        for name, unit in names.items()
        if getattr(a, name) != getattr(b, name)
    ]
    if differing:
        yield Caveat("budgets", "note", f"they were given up at different budgets: {'; '.join(differing)}")
    sooner = _seen_sooner(sides)
    if sooner:
        yield Caveat("evaluations", "doubt", f"{sooner}: evaluate both sides equally often")
    elif a.evaluate_every != b.evaluate_every:
        text = f"they were evaluated every {a.evaluate_every} and every {b.evaluate_every}"
        yield Caveat("evaluations", "note", f"{text}: more frequent evaluations see the target sooner")


def counted_epochs(sides: Sides) -> Iterator[Caveat]:
    """Programs of which one counts its first epoch as 0, the other as 1."""
    from_zero = [all(_from_zero(run) for run in runs if run.reached) for _, runs in sides.each]
    shown = [any(run.epochs_to_target for run in runs) for _, runs in sides.each]
    if all(shown) and from_zero[0] != from_zero[1]:
        label = (sides.a if from_zero[0] else sides.b).label
        text = f"{label} counts its epochs from 0, and the other side does not"
        yield Caveat("epochs", "note", f"{text}: its epochs to the target are one more than shown")


def _from_zero(run: RunSummary) -> bool:
    """Whether a program that tells an epoch with each evaluation begins with 0."""
    return run.scored_by is not None and run.evaluations > 1 and run.epochs_to_target == run.evaluations - 1


def _epochs(run: RunSummary) -> float:
    return (run.epochs_to_target or 0.0) + _from_zero(run)


def rounding(sides: Sides) -> Iterator[Caveat]:
    """Programs of which one reports fewer digits: 0.945 is at a target of 0.95 where it is printed as 0.95."""
    decimals = [_decimals(runs) for _, runs in sides.each]
    known = all(run.scored_by == "program" for run in sides.runs) and decimals[0] != decimals[1]
    if not known:
        return
    coarse = min((side for side in (0, 1) if decimals[side] is not None), key=lambda side: decimals[side] or 0)
    digits = decimals[coarse] or 0
    if sum(run.evaluations for run in sides.each[coarse][1]) < _ENOUGH_TO_COUNT_DIGITS:
        return

    def rounded_s(run: RunSummary) -> float:
        times = run.if_rounded_s
        return times[digits] if digits < len(times) else run.time_to_accuracy_s or math.inf

    fine = sides.each[1 - coarse][1]
    reached = [[run for run in runs if run.time_to_accuracy_s] for _, runs in sides.each]
    arrive = sum(not run.time_to_accuracy_s and rounded_s(run) < math.inf for run in fine)
    # A run that rounding takes away from its target says nothing: where it stops, the next evaluation is unknown.
    sooner_s = [[min(0.0, rounded_s(run) - (run.time_to_accuracy_s or 0.0)) for run in runs] for runs in reached]
    changed = (
        _explained_by(sides, reached, sooner_s, *_ROUNDING_RULE).removeprefix("with that, ") if all(reached) else ""
    )
    if not changed and arrive:
        changed = f"{arrive} more of {len(fine)} runs of {(sides.b, sides.a)[coarse].label} reach the target"
    if changed:
        labels = (sides.a.label, sides.b.label)
        text = f"{labels[coarse]} reports its quality to {digits} decimals, and {labels[1 - coarse]} to more"
        yield Caveat("digits", "doubt", f"{text}; if both did so, {changed}: let both report all digits")


def _decimals(runs: Sequence[RunSummary]) -> int | None:
    return None if any(run.decimals is None for run in runs) else max((run.decimals or 0 for run in runs), default=0)


def examples_scored(sides: Sides) -> Iterator[Caveat]:
    """Programs whose qualities are shares of different numbers of examples: one may be scored on easier ones."""
    found = []
    for _, runs in sides.each:
        known = [run.shares_of for run in runs if run.shares_of is not None]
        if not known or len(known) < len(runs):
            return
        found.append((math.lcm(*(examples for examples, _ in known)), sum(count for _, count in known)))
    # What is rounded to three decimals looks like shares of a thousand.
    if _decimals(sides.runs_a) != _decimals(sides.runs_b):
        return
    (small, different), (large, _) = sorted(found)
    # Shares of as many examples as the other side has would all be multiples by chance.
    by_chance = (math.lcm(small, large) / small) ** -float(different)
    if by_chance < _RARELY:
        labels = (sides.a.label, sides.b.label)
        text = " and ".join(f"those of {label} of {n:,}" for label, (n, _) in zip(labels, found, strict=True))
        do = "score both on the same ones"
        yield Caveat("examples", "doubt", f"qualities look like shares of different numbers of examples, {text}: {do}")


def best_so_far(sides: Sides) -> Iterator[Caveat]:
    """A program that reports the best quality so far: it never falls, and stays as it was where another's falls."""
    told = [[run.moves for run in runs if run.moves is not None] for _, runs in sides.each]
    if any(len(moves) < len(runs) for moves, (_, runs) in zip(told, sides.each, strict=True)) or not all(told):
        return
    falls, stays, steps = ([sum(each[at] for each in moves) for moves in told] for at in range(3))
    for own, other in ((0, 1), (1, 0)):
        # A slow or coarse curve repeats itself, too, but not in steps of many digits.
        coarse = statistics.median(each[3] for each in told[own]) < _MANY_DIGITS
        seldom = steps[other] and (1 - falls[other] / steps[other]) ** steps[own] < _SELDOM
        if falls[own] or stays[own] < _STAYS or coarse or not seldom:
            continue
        labels = (sides.a.label, sides.b.label)
        text = (
            f"the quality of {labels[own]} never falls and stays exactly the same {stays[own]} of {steps[own]} times, "
            f"and that of {labels[other]} falls {falls[other]} of {steps[other]} times"
        )
        yield Caveat("best so far", "doubt", f"{text}: look whether it reports the best so far, and let it report each")


_MANY_DIGITS, _STAYS, _SELDOM = 5, 3, 0.01
_RARELY = 1e-6
_ENOUGH_TO_COUNT_DIGITS = 5
"""So many qualities do not all end in zeros by chance."""
_ROUNDING_RULE = (0.02, 0.75)
"""What rounding does is known exactly, so a quarter of the difference is enough to say so."""


def start_up(sides: Sides) -> Iterator[Caveat]:
    """Programs that spend most of their time before their first evaluation or, if they say so, preparing."""
    for group, runs in sides.each:
        several = [run for run in runs if run.scored_by and run.evaluations > _SEVERAL and run.time_to_accuracy_s]
        told = bool(several) and all("prepare" in run.phases_s for run in several)
        shares = [
            (run.phases_s["prepare"] - run.excluded_s.get("prepare", 0.0) if told else run.first_evaluation_s or 0.0)
            / (run.time_to_accuracy_s or math.inf)
            for run in several
        ]
        if shares and (share := statistics.median(shares)) > 0.5:
            text = f"{share:.0%} of the time of {group.label} passed before its first evaluation, start and imports too"
            do = "levelbench.autophase or track tells them from training"
            if told:
                text = f"{share:.0%} of the time of {group.label} is its phase prepare"
                do = "--clock mlperf leaves that out"
            yield Caveat("start of programs", "note", f"{text}: {do}")


def preparations(sides: Sides) -> Iterator[Caveat]:
    """Work before a program is started, off its clock."""
    for group, runs in sides.each:
        if words := preparation_words(group.label, runs):
            yield Caveat("preparation", "note", words)


def preparation_words(label: str, runs: Sequence[RunSummary]) -> str:
    """What ``--prepare`` may have done of the work of these ``runs``; empty if that was short and left no data."""
    known = [run for run in runs if run.prepared_s is not None]
    files = distinct_texts(name for run in known for name in run.prepared_files)
    took_s, wall_s = (
        statistics.median(each) if each else 0.0
        for each in ([run.prepared_s or 0.0 for run in known], [run.wall_s for run in known])
    )
    if not files and took_s <= wall_s:
        return ""
    text = f"--prepare took {took_s:.2g} s before a run of {label} of {wall_s:.2g} s, off the clock"
    if not files:
        return f"{text}: what it does of the work is in no time"
    return f"{text}, and left {listed(files)}, which the program read: if it trained there, that is in no time"


_SEVERAL = 3
_MORE_OFTEN = 1.25
_EVALUATIONS = {"confirmed": 2, "first": 1, "sustained": 1}
"""So many intervals before it counts as reached a run may have been at its target, by the rule of crossing."""


def _seen_sooner(sides: Sides) -> str:
    """Whether one side is quicker by being evaluated more often; empty if that cannot decide, or is not known."""
    reached = [[run for run in runs if run.time_to_accuracy_s and run.evaluations] for _, runs in sides.each]
    intervals = _EVALUATIONS.get(sides.runs[0].crossing)
    if intervals is None or not all(reached):
        return ""
    a, b = (statistics.median(_epochs(run) / run.evaluations for run in runs) for runs in reached)
    # Programs that report no epochs have none.
    if not a or not b:
        return _seen_sooner_by_clock(sides, reached, intervals)
    if max(a, b) < _MORE_OFTEN * min(a, b):
        return ""
    gaps_s = [[(run.time_to_accuracy_s or 0.0) / run.evaluations for run in runs] for runs in reached]
    # At the earliest for the side that is evaluated less often, at the latest for the other.
    counts = (intervals, intervals - 1) if a > b else (intervals - 1, intervals)
    early_s = [[-count * gap for gap in arm] for count, arm in zip(counts, gaps_s, strict=True)]
    return _explained_by_intervals(sides, reached, early_s, f"{a:.3g} epochs", f"{b:.3g}")


def _seen_sooner_by_clock(sides: Sides, reached: Sequence[Sequence[RunSummary]], intervals: int) -> str:
    """As :func:`_seen_sooner`, for programs of which only the times of their evaluations are known.

    A slower program that is evaluated as often by its epochs has longer intervals, but no fewer of them.
    """
    back_s = [[[*run.earlier_s, 0.0, 0.0][:intervals] for run in runs] for runs in reached]
    took_s = [[run.time_to_accuracy_s or 0.0 for run in runs] for runs in reached]
    every_s, counts = [], []
    for runs, times, backs in zip(reached, took_s, back_s, strict=True):
        every_s.append(statistics.median((t - back[-1]) / intervals for t, back in zip(times, backs, strict=True)))
        after_first = statistics.median(t - (run.first_evaluation_s or 0.0) for t, run in zip(times, runs, strict=True))
        counts.append(1.0 + max(0.0, after_first) / max(every_s[-1], 1e-9))
    seldom = int(every_s[1] > every_s[0])
    if every_s[seldom] < _MORE_OFTEN * every_s[1 - seldom] or counts[1 - seldom] < _MORE_OFTEN * counts[seldom]:
        return ""
    early_s = [
        [(back[-1] if side == seldom else [t, *back][intervals - 1]) - t for t, back in zip(times, backs, strict=True)]
        for side, (times, backs) in enumerate(zip(took_s, back_s, strict=True))
    ]
    return _explained_by_intervals(sides, reached, early_s, *(f"{each:.2g} s" for each in every_s))


def _explained_by_intervals(
    sides: Sides, reached: Sequence[Sequence[RunSummary]], early_s: Sequence[Sequence[float]], a: str, b: str
) -> str:
    # A run that is at its target from the start still takes some time.
    least_s = [
        [max(each, -0.99 * (run.time_to_accuracy_s or 0.0)) for each, run in zip(arm, runs, strict=True)]
        for arm, runs in zip(early_s, reached, strict=True)
    ]
    changed = _explained_by(sides, reached, least_s)
    if not changed:
        return ""
    text = f"{sides.a.label} was evaluated every {a} and {sides.b.label} every {b}"
    return f"{text}; if they were at their targets an interval before, {changed.removeprefix('with that, ')}"


def _amount(value: float | None) -> str:
    return "no limit of" if value is None else f"{value:g}"


_LEAST_APART_S, _APART = 0.5, 0.2
"""Imports vary by less than both: these seconds, and this share of their time."""
_OF_ONE_PROGRAM_S = 0.1
"""Those of one program take the same processor time, so if that is apart, these seconds are enough."""
_PREDICTING_APART_S, _PREDICTING_RULE = 0.05, (0.02, 0.5)
"""Predictions for equal inputs differ by less than this between the sides, so a smaller difference is reported."""


def excluded_time(sides: Sides) -> Iterator[Caveat]:
    """Whether a difference disappears with the time that the clock leaves out: work may have been moved there."""
    reached = [[run for run in runs if run.time_to_accuracy_s] for _, runs in sides.each]
    if not all(reached):
        return
    out_s = [[sum(run.excluded_s.values()) for run in runs] for runs in reached]
    if changed := _explained_by(sides, reached, out_s):
        a, b = (f"{math.fsum(each) / len(each):.3g} s" for each in out_s)
        text = f"the clock {sides.runs[0].clock} leaves out {a} of {sides.a.label} and {b} of {sides.b.label}"
        yield Caveat("clock", "doubt", f"{text}; {changed}: see --clock wall")
    if all("after training" in (run.held_out or "") for runs in reached for run in runs):
        yield from _after_the_clock(sides, reached)
    in_place = all(run.environment.get("started") == "in place" for runs in reached for run in runs)
    if in_place:
        yield from _before_the_clock(sides, reached)


def _after_the_clock(sides: Sides, reached: Sequence[Sequence[RunSummary]]) -> Iterator[Caveat]:
    """Once a program has reported the end of training it should only predict, but it might still train."""
    after_s = [[run.wall_s - (run.time_to_accuracy_s or 0.0) for run in runs] for runs in reached]
    a_s, b_s = (math.fsum(each) / len(each) for each in after_s)
    least_s = min(map(min, after_s))
    more_s = [[each - least_s for each in arm] for arm in after_s]
    apart = abs(a_s - b_s) > _PREDICTING_APART_S and _set_apart(after_s)
    if apart and (changed := _explained_by(sides, reached, more_s, *_PREDICTING_RULE)):
        text = f"after their clocks {sides.a.label} went on for {a_s:.2g} s and {sides.b.label} for {b_s:.2g} s"
        do = "report the end of training when it ends, or give the inputs before training (--reveal-inputs before)"
        yield Caveat("clock", "doubt", f"{text}; {changed}: {do}")


def _before_the_clock(sides: Sides, reached: Sequence[Sequence[RunSummary]]) -> Iterator[Caveat]:
    """Work before the clock takes processor time, or time in which the program waits for whoever does the work."""
    before_s, every_s, worked_s = [], [], []
    for runs in reached:
        cpu_s, wall_s = (
            [_number(fact(run.environment, "before_clock", name)) for run in runs] for name in ("cpu_s", "wall_s")
        )
        # A first import from a cold disk is not work: one slow start does not count, those of most runs do.
        usual_s = statistics.median(wall_s)
        before_s.append([max(each, usual_s) for each in cpu_s])
        every_s.append([max(pair) for pair in zip(cpu_s, wall_s, strict=True)])
        worked_s.append(cpu_s)
    a_s, b_s = (math.fsum(each) / len(each) for each in before_s)
    text = f"before their clocks started {sides.a.label} took {a_s:.2g} s and {sides.b.label} {b_s:.2g} s"
    if sides.a.specification.framework == sides.b.specification.framework:
        changed = _made_up_for(sides, reached, before_s, every_s)
        if not changed and len({run.source_digest for run in sides.runs}) == 1:
            changed = _made_up_for(sides, reached, before_s, worked_s, _OF_ONE_PROGRAM_S)
        if changed:
            yield Caveat("clock", "doubt", f"{text}; {changed}: start tracking before any training")
        return
    # Frameworks take long to be imported, which is not on the clock of a block and looks like training before it.
    text += ", imports of different frameworks among it"
    if changed := _made_up_for(sides, reached, worked_s, worked_s):
        do = "import them within the blocks, or time the programs with levelbench time, to have all of it on the clock"
        yield Caveat(
            "clock", "doubt", f"{text}; with their processor time, {changed.removeprefix('with that, ')}: {do}"
        )
    elif changed := _made_up_for(sides, reached, before_s, every_s):
        yield Caveat("clock", "note", f"{text}; {changed}")


def _made_up_for(
    sides: Sides,
    reached: Sequence[Sequence[RunSummary]],
    before_s: Sequence[Sequence[float]],
    every_s: Sequence[Sequence[float]],
    least_apart_s: float = _LEAST_APART_S,
) -> str:
    """What the ratio becomes with the times before the clock, if all of ``every_s`` lie apart and that decides it."""
    # The imports take what all of them spend.
    least_s = min(map(min, before_s))
    more_s = [[each - least_s for each in arm] for arm in before_s]
    a_s, b_s = (math.fsum(each) / len(each) for each in before_s)
    apart = abs(a_s - b_s) > max(least_apart_s, _APART * min(a_s, b_s)) and _set_apart(every_s)
    return _explained_by(sides, reached, more_s) if apart else ""


def _set_apart(times_s: Sequence[Sequence[float]]) -> bool:
    """Whether all times of one side are longer than those of the other; work takes time in every run.

    On a busy machine all times vary, so that the means of equal sides lie apart by chance. One of five runs of the
    quicker side may have had a slow start.
    """
    quick, slow = sorted(map(sorted, times_s), key=statistics.median)
    return slow[0] > quick[-1 - len(quick) // 5]


def _explained_by(
    sides: Sides,
    reached: Sequence[Sequence[RunSummary]],
    out_s: Sequence[Sequence[float]],
    least: float = 0.05,
    remains: float = 0.25,
) -> str:
    """What the ratio becomes with the times that were left out, if that removes most of the difference; else empty.

    A log ratio within ``least`` is no difference; most of one is gone if no more than the share ``remains`` is left.
    """
    if not any(map(any, out_s)):
        return ""
    times_s = [[run.time_to_accuracy_s or 0.0 for run in runs] for runs in reached]
    alone = _log_ratio(*times_s)
    together = _log_ratio(*([t + x for t, x in zip(*each, strict=True)] for each in zip(times_s, out_s, strict=True)))
    if abs(alone) <= least or together * math.copysign(1.0, alone) >= remains * abs(alone):
        return ""
    return f"with that, {sides.b.label} takes {math.exp(together):.3g} times as long instead of {math.exp(alone):.3g}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _log_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(map(math.log, b)) / len(b) - math.fsum(map(math.log, a)) / len(a)
