"""Whether the runs of a group are honest replicates: distinct, complete, independent, not picked by their results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from levelbench.records.caveats import (
    SHOWN,
    Caveat,
    Sides,
    Weight,
    ended,
    is_tracked,
    is_watched,
    listed,
    other_texts,
    read_by_few,
    versions_of,
)
from levelbench.records.doubts import (
    FIRST_SEED,
    counted_doubts,
    in_steps,
    made_again,
    out_of_turn,
    removed,
    seed_ranges,
)
from levelbench.records.reader import Record, read_record
from levelbench.records.schema import Specification, key_of
from levelbench.records.selection import Selector
from levelbench.records.summary import RunGroup, RunSummary, summarise

if TYPE_CHECKING:
    from levelbench.records.store import Store

__all__ = [
    "BEFORE_ENDED_AT",
    "BEGAN_AT",
    "after_others",
    "against",
    "copies",
    "doubts",
    "doubts_of",
    "doubts_together",
    "looks",
    "of_one_group",
    "pairing",
    "removed",
    "removed_runs",
    "shared_runs",
]
__all__ += ["trained_on", "uncounted_first", "unfinished"]

_FINE = 5
"""This many phases given to the nanosecond never agree by chance."""


def shared_runs(sides: Sides) -> Iterator[Caveat]:
    """Runs that are on both sides."""
    both = sorted({run.id for run in sides.runs_a} & {run.id for run in sides.runs_b})
    if both:
        count = f"{len(both)} run{'s' * (len(both) > 1)}"
        yield Caveat("shared runs", "refuse", f"{count} would be compared with themselves ({listed(both)})")


def copies(sides: Sides) -> Iterator[Caveat]:
    """Two runs never take the same time in each phase to the nanosecond: one is a renamed copy of the other."""
    first: dict[tuple[object, ...], RunSummary] = {}
    for run in sides.runs:
        if not run.phases_s:
            continue
        one = first.setdefault(_times_of(run), run)
        if one.id != run.id:
            text = f"the runs {one.id} and {run.id} are one run"
            yield Caveat("copies", "refuse", f"{text}: all their times are the same to the nanosecond")


def _times_of(run: RunSummary) -> tuple[object, ...]:
    """What two runs never share. Round numbers may coincide, so for them the start is included."""
    fine = [seconds for seconds in run.phases_s.values() if round(seconds * 1e9) % 1000]
    start = () if len(fine) >= _FINE else (run.started,)
    return (*start, run.wall_s, *sorted(run.phases_s.items()))


def pairing(sides: Sides) -> Iterator[Caveat]:
    """Whether runs are paired: pairing removes the luck of the seed from a ratio."""
    a, b = ([run.seed for run in runs] for _, runs in sides.each)
    for group in (sides.a, sides.b):
        if group.repeats:
            text = f"{group.label} has several runs of seed {seed_ranges(run.seed for run in group.repeats)}"
            yield Caveat("seeds", "note", f"{text}: the earliest of each counts, since the seed is the replicate")
    if set(a) != set(b):
        yield Caveat(
            "pairing", "note", f"not paired by seed: the seeds differ ({seed_ranges(a)} against {seed_ranges(b)})"
        )
    elif a != b:
        yield Caveat("pairing", "note", "not paired by seed: a seed has more runs on one side than on the other")


def looks(sides: Sides) -> Iterator[Caveat]:
    """Runs that were added after a look at the results, or repeated until the results pleased."""
    for group, runs in sides.each:
        for doubt in in_steps(group.label, "runs", runs):
            yield Caveat("looks", "doubt", doubt)
        for doubt in made_again(group.label, "runs", runs, _known_again(group, runs)):
            yield Caveat("looks", "doubt", doubt)
        again = [run.replaced for run in runs if run.replaced]
        if again:
            text = f"{len(again)} of {len(runs)} runs of {group.label} replace earlier ones"
            weight: Weight = "doubt" if max(again) > 1 else "note"
            times = f", one of them {max(again)}" if max(again) > 1 else ""
            yield Caveat(
                "fresh runs", weight, f"{text}{times}: levelbench list runs --all shows those that were not removed"
            )
    labels, arms = [group.label for group, _ in sides.each], [runs for _, runs in sides.each]
    known, walls_s = [_known_again(*each) for each in sides.each], [[run.wall_s for run in arm] for arm in arms]
    for doubt in out_of_turn(labels, "runs", arms, walls_s, known):
        yield Caveat("looks", "doubt", doubt)


def _known_again(group: RunGroup, runs: Sequence[RunSummary]) -> set[int]:
    """The seeds of runs of which an earlier one says why they were made again."""
    return {run.seed for run in (*group.unfinished, *group.repeats)} | {run.seed for run in runs if run.replaced}


def removed_runs(sides: Sides) -> Iterator[Caveat]:
    """Runs that are missing: removing the slow ones of an arm, or not naming them, selects its results."""
    for group in (sides.a, sides.b):
        every = [*group.runs, *group.unfinished, *group.repeats]
        if group.unselected and every:
            count = len({run.seed for run in every})
            chosen = f"{count} of {count + len(group.unselected)} runs of {group.label} {_was(count)} selected"
            yield Caveat(
                "missing runs", "doubt", f"{chosen}: select all of them, since choosing runs chooses the result"
            )
            continue
        found = removed(run for run in every if not run.whole)
        # Each look continues with the next seed, so its seeds have no gaps. Older records lack the first of them.
        looked = sorted(run.seed for run in every if run.planned_effect and FIRST_SEED not in run.environment)
        gone = set(range(looked[0], looked[-1])) - {run.seed for run in every} if looked else set()
        if gone and not found:
            found = f"--until-clear made seeds {looked[0]} to {looked[-1]}, and {seed_ranges(gone)} are missing"
        # A tracked program without a given seed takes the first free one, from 0 on.
        picked = [run.seed for run in every if run.environment.get("seed_picked")]
        gone = set(range(max(picked, default=0))) - {run.seed for run in every}
        if gone and not found:
            found = f"its program took seeds 0 to {max(picked)}, and {seed_ranges(gone)} are missing"
        if found:
            text = f"of {group.label} {found}"
            yield Caveat("missing runs", "doubt", f"{text}: {_how_to_make(every)} the missing ones")


def unfinished(sides: Sides) -> Iterator[Caveat]:
    """Runs that were interrupted: ending the slow ones of an arm selects its results."""
    for group in (sides.a, sides.b):
        made = {run.seed: run.wall_s for run in (*group.repeats, *group.runs)}
        # An interrupted run that was made again, and had not yet taken longer than that, was not a slow one.
        left = [
            run
            for run in group.unfinished
            if run.status == "interrupted" and (run.seed not in made or run.wall_s > made[run.seed])
        ]
        if left:
            text = f"{len(left)} run{'s' * (len(left) > 1)} of {group.label} {_was(len(left))}"
            yield Caveat("interrupted runs", "doubt", f"{text} interrupted and not counted: {_how_to_make(left)} them")


def _was(count: int) -> str:
    return "was" if count == 1 else "were"


def _how_to_make(runs: Sequence[RunSummary]) -> str:
    """What makes runs of this kind again; the object of the sentence follows."""
    started = runs[0].environment.get("started") if runs else None
    if started == "imported":
        return "import the complete logs of"
    if started == "in place":
        return "start its program again, which makes"
    return "levelbench time makes" if started == "from outside" else "levelbench run makes"


def _on_other_machines(sides: Sides) -> Iterator[Caveat]:
    """Runs that do not count because their seeds ran earlier on another machine: they repeat nothing of this one."""
    from levelbench.measure.environment import same_machine

    for group, runs in sides.each:
        counted = {run.seed: run for run in runs}
        apart = [
            run
            for run in group.repeats
            if run.seed in counted and not same_machine(counted[run.seed].environment, run.environment)
        ]
        if apart:
            runs_are = "run is" if len(apart) == 1 else "runs are"
            text = f"{len(apart)} {runs_are} not counted, since another machine ran the same seeds earlier"
            yield Caveat("machines", "doubt", f"of {group.label} {text}: select those of one machine, as by its store")


def of_one_group(group: RunGroup) -> list[Caveat]:
    """What speaks against the runs of a single group as replicates: copies, interrupted and missing runs, looks."""
    sides = Sides(group, replace(group, runs=(), unfinished=(), repeats=()))
    checks = (copies, unfinished, removed_runs, looks, _on_other_machines)
    return [each for check in checks for each in check(sides)]


def against(groups: Sequence[RunGroup]) -> list[Caveat]:
    """What speaks against the runs of groups that are shown and not compared: copies, missing runs, doubts."""
    alone = [Sides(each, replace(each, runs=(), unfinished=(), repeats=())) for each in groups]
    found = [
        each for sides in alone for check in (_few_copies, unfinished, removed_runs, looks) for each in check(sides)
    ]
    return [*found, *doubts_of(groups)]


def _few_copies(sides: Sides) -> Iterator[Caveat]:
    found = list(copies(sides))
    yield from found[:SHOWN]
    if more := len(found) - SHOWN if len(found) > SHOWN else 0:
        yield Caveat("copies", "refuse", f"{more} more run{'s are copies' if more > 1 else ' is a copy'}")


def doubts(sides: Sides) -> Iterator[Caveat]:
    """The doubts of the runs of both sides."""
    yield from doubts_of([sides.a, sides.b])


def doubts_of(groups: Sequence[RunGroup]) -> list[Caveat]:
    """Each reason to doubt the runs of ``groups`` once, with how many runs of which group it concerns."""
    shared = [
        caveat for group in groups for look in (_read_changed, _equal_results, _carried_over) for caveat in look(group)
    ]
    return [*(Caveat("doubts", "doubt", each) for each in _counted(groups).values()), *shared]


def doubts_together(
    pairs: Sequence[tuple[RunGroup, RunGroup]], caveats: Sequence[Sequence[Caveat]]
) -> list[tuple[Caveat, ...]]:
    """The ``caveats`` of each of several comparisons (``pairs``), with the doubts about runs counted over all of them.

    A doubt about several sides is then one sentence, the same wherever it is said.
    """
    every = _counted([*{id(group): group for pair in pairs for group in pair}.values()])
    found = []
    for pair, own in zip(pairs, caveats, strict=True):
        sentences = iter([every[kind] for kind in _counted(pair)])
        found.append(
            tuple(replace(each, sentence=next(sentences)) if each.subject == "doubts" else each for each in own)
        )
    return found


def _counted(groups: Sequence[RunGroup]) -> dict[str, str]:
    suspects = [[run.suspect for run in ended(group)] for group in groups]
    return counted_doubts([each.label for each in groups], suspects, "runs")


BEGAN_AT, FIRST_TOOK, FIRST_LEFT = "first_run_began_at", "first_run_took_s", "first_run_left"
"""In the environment of a run before which others were made that are not counted with it, since they were replaced or
had another target or budget: the quality with which the first of them began, the seconds of its parts by name, and the
doubt on what parts of its task have left when they were called before it.
"""
BEFORE_THE_RUNS = "called before the first run"
"""What that doubt is known by."""


def uncounted_first(
    store: Store, wanted: Specification, replaced: Container[Path], why_not: Callable[[Record], str]
) -> dict[str, Any]:
    """What the environment of new runs is to say of the first one, or of what that says of one before; or nothing.

    Nothing if that counts with them: it does not where it is to be ``replaced``, or had another target, crossing rule
    or budget than ``wanted``. Runs that something speaks against (``why_not``) are passed over.
    """
    aimless = _aimless(wanted)
    for row in store.rows(Selector("", filters=(("recipe", wanted.recipe),))):
        if row.status != "done" or _aimless(row.specification) != aimless:
            continue
        if why_not(record := read_record(Path(row.path))):
            continue
        if key_of(row.specification) == key_of(wanted) and Path(row.path) not in replaced:
            break
        run = summarise(record)
        own: dict[str, Any] = {
            BEGAN_AT: run.first_quality,
            FIRST_TOOK: {part: seconds(run) for part, seconds in _SET_UP.items()},
        }
        own[FIRST_LEFT] = next((each for each in run.suspect if BEFORE_THE_RUNS in each), None)
        said = {name: record.header.environment.get(name, value) for name, value in own.items()}
        return {name: value for name, value in said.items() if value is not None}
    return {}


_BUDGETS = ("budget_s", "budget_samples", "budget_j", "plateau")


def _aimless(wanted: Specification) -> Specification:
    """Without what only says when a run ends, and how it is read."""
    target, none = msgspec.structs.replace(wanted.target, threshold=0.0), dict.fromkeys(_BUDGETS)
    # A program's task is named after the first of those that are compared.
    task = "" if wanted.scored_by else wanted.task
    return msgspec.structs.replace(wanted, task=task, target=target, crossing="first", clock="", **none)


BEFORE_ENDED_AT = "run_before_ended_at"
"""In the environment of a tracked run: the last quality of the run before it in the same process, of the same task."""
_AS_GOOD, _NEVER_WORSE = 0.1, 0.5
"""Of the way to where the run before ended, so little is missing in most runs, and in each."""


def trained_on(sides: Sides) -> Iterator[Caveat]:
    """Runs of one side that begin where the run before in their process ended, which trains on with its network."""
    from levelbench.measure.crossing import sign_of

    sign = sign_of(sides.runs[0].target.direction)
    for (group, runs), (_, others) in (sides.each, sides.each[::-1]):
        cold = [run.first_quality for run in others if run.first_quality is not None]
        begun = [
            (float(ended_at), run.first_quality)
            for run in runs
            if isinstance(ended_at := run.environment.get(BEFORE_ENDED_AT), int | float)
            and run.first_quality is not None
        ]
        if len(begun) < max(_LEAST_RUNS, len(runs) - 1) or not cold:
            continue
        usual = statistics.median(cold)
        ways = [sign * (ended_at - usual) for ended_at, _ in begun]
        missing = [sign * (ended_at - first) for ended_at, first in begun]
        if min(ways) <= 0 or not all(map(math.isfinite, [*ways, *missing])):
            continue
        shares = [each / way for each, way in zip(missing, ways, strict=True)]
        if statistics.median(shares) <= _AS_GOOD and max(shares) <= _NEVER_WORSE:
            ended_at, first = (statistics.median(each) for each in zip(*begun, strict=True))
            text = (
                f"{group.label} began at {runs[0].target.metric} {first:.3g}, where the runs before in the same "
                f"process had ended ({ended_at:.3g}), and the other side at {usual:.3g}"
            )
            do = "check whether it trains on with their network, and make a new one for each run"
            yield Caveat("runs before", "doubt", f"{text}: {do}")


def after_others(sides: Sides) -> Iterator[Caveat]:
    """Runs of one side that come after others in their process, which have imported and cached what they need."""
    shares = [sum(BEFORE_ENDED_AT in run.environment for run in runs) / len(runs) for _, runs in sides.each]
    why = "what the first one imports, compiles or caches is on its clock alone"
    do = "start a process for each, or let both come first as often"
    if abs(shares[0] - shares[1]) > _MORE_OFTEN:
        (first, _), (later, _) = sides.each if shares[0] < shares[1] else sides.each[::-1]
        text = f"runs of {later.label} came after others in the same process, and those of {first.label} first"
        yield Caveat("runs before", "doubt", f"{text}: {why}; {do}")
        return
    for (first, runs), (later, others) in (sides.each, sides.each[::-1]):
        by_seed = {run.seed: run for run in others if BEFORE_ENDED_AT in run.environment}
        pairs = [(run, by_seed[run.seed]) for run in runs if run.seed in by_seed]
        if len(pairs) < _LEAST_RUNS or any(second.started < run.started for run, second in pairs):
            continue
        saved_s = sum(_prepared_s(run) - _prepared_s(second) for run, second in pairs)
        took_s, others_s = (sum(sum(run.phases_s.values()) for run in side) for side in zip(*pairs, strict=True))
        if saved_s > max(_MOST_OF_IT * (took_s - others_s), _SAVED * took_s):
            text = (
                f"runs of {later.label} came after those of {first.label} with their seeds in the same process, which"
            )
            yield Caveat(
                "runs before", "doubt", f"{text} took {saved_s / len(pairs):.2g} s more to prepare: {why}; {do}"
            )


def _prepared_s(run: RunSummary) -> float:
    return run.phases_s.get("prepare", 0.0) + run.phases_s.get("other", 0.0)


_MORE_OFTEN, _MOST_OF_IT = 0.5, 0.5


def _read_changed(group: RunGroup) -> Iterator[Caveat]:
    """Texts and data that have changed between runs of one program or recipe, unless something prepares them."""
    runs = ended(group)
    read = {"files read": [run.files_read for run in runs], "data files": [run.data_read for run in runs]}
    for subject, known in read.items() if runs and "prepare" not in runs[0].settings else ():
        few = read_by_few(known) if subject == "data files" and all(map(is_watched, runs)) else set[str]()
        if changed := [each for each in other_texts(known) if each not in few]:
            text = f"runs of {group.label} read {versions_of(changed)}: run all of them again"
            text += ", or pass what they set to track(settings=)" * (is_tracked(runs[0]) and subject == "files read")
            yield Caveat(subject, "doubt", text)
        if changed := [each for each in other_texts(known) if each in few]:
            text = f"some of the {len(runs)} runs of {group.label} read {versions_of(changed)}"
            yield Caveat(subject, "note", f"{text}, unless another program did")


_LEAST_RUNS = 3


def _equal_results(group: RunGroup) -> Iterator[Caveat]:
    """Runs of different seeds with equal losses: a seed that draws weights and batches changes the losses."""
    runs = ended(group)
    seeds: dict[str, set[int]] = {}
    for run in runs:
        if run.losses_digest:
            seeds.setdefault(run.losses_digest, set()).add(run.seed)
    if count := sum(len(each) for each in seeds.values() if len(each) > 1):
        text = f"{count} of {len(runs)} runs of {group.label} have other seeds and the same losses to the last digit"
        yield Caveat("copies", "doubt", f"{text}: the seed has no effect, or they are copies of one run")
    # Qualities are coarse: some runs may share theirs by chance, but not all of them.
    elif len(runs) >= _LEAST_RUNS and len({run.qualities_digest for run in runs}) == 1 and runs[0].qualities_digest:
        text = f"all {len(runs)} runs of {group.label} have the same qualities to the last digit"
        do = "give the program its seed ({seed} in the command, LEVELBENCH_SEED, run.seed)"
        yield Caveat("copies", "doubt", f"{text}, and show one draw of weights and batches: {do}")


_LEAST_LATER, _SURELY, _FAR_OFF = 3, 0.999, 8.0
"""First qualities may have a long tail, so even many of them have to differ by this many standard deviations."""
_ERRORS, _ASSUMED_EXAMPLES, _LITTLE = 5, 1000, 0.1
_TO_FIRST = "until its first evaluation"
_SET_UP: dict[str, Callable[[RunSummary], float]] = {
    "to prepare": lambda run: run.phases_s.get("prepare", 0.0),
    "to compile": lambda run: run.phases_s.get("compile", 0.0),
    "for its first step": lambda run: run.first_step_s or 0.0,
    # Before it, runs of levelbench's own tasks do nothing but the above and their training.
    _TO_FIRST: lambda run: run.first_evaluation_s or 0.0 if run.scored_by or _is_users(run) else 0.0,
}


def _is_users(run: RunSummary) -> bool:
    return bool(run.source_name) and not run.source_name.startswith("levelbench.")


_MUCH_LONGER, _MANY, _APART_FROM = (2.0, 1.5), 5, 3.0
_LEAST_SAVED_S, _SAVED = 0.5, 0.05


def _carried_over(group: RunGroup) -> Iterator[Caveat]:
    """Later runs may have started with what the first one left on disk: a checkpoint or a cache."""
    runs = sorted(ended(group), key=lambda run: run.started)
    if len(runs) < _LEAST_RUNS:
        return
    first, later, place = runs[0], runs[1:], ""
    own = first.first_quality
    # The run that filled a cache may be one that these have replaced, or had another target, and so be in no group.
    known = (run.environment.get(BEGAN_AT) for run in runs)
    if (quality := next((each for each in known if isinstance(each, int | float)), None)) is not None:
        own, later, place = float(quality), runs, " in its store"
    begun = [run.first_quality for run in later if run.first_quality is not None]
    if len(begun) == len(later) and own is not None and _began_ahead(first, own, begun):
        text = f"the first run of {group.label}{place} began at {first.target.metric} {own:.3g}, the others"
        do = "check whether they continue from something that it left on disk, such as a checkpoint"
        yield Caveat("runs before", "doubt", f"{text} at {min(begun):.3g} to {max(begun):.3g}: {do}")
    if left := next((each for run in runs if (each := run.environment.get(FIRST_LEFT))), None):
        yield Caveat("runs before", "doubt", f"in the store before these runs of {group.label}: {left}")
    told = next((each for run in runs if (each := run.environment.get(FIRST_TOOK))), None)
    later = runs[1:] if told is None else runs
    # On a busy machine an import may take a multiple of its time.
    busy = 1.5 if any("cores busy" in each for each in first.suspect) else 1.0
    for part, seconds in _SET_UP.items():
        others_s = [seconds(run) for run in later]
        took_s = seconds(first) if told is None else float(told.get(part, 0.0))
        saved_s = took_s - max(others_s)
        least_s = max(_LEAST_SAVED_S, _SAVED * min(run.wall_s for run in later))
        # They vary, with the machine too: the first has to differ more than the others do from each other.
        least_s = max(least_s, _APART_FROM * (max(others_s) - min(others_s)))
        factor = busy * (_MUCH_LONGER[len(runs) >= _MANY] if part == _TO_FIRST else 2.0)
        if took_s > factor * max(others_s) and saved_s > least_s:
            text = f"the first run of {group.label}{' in its store' * (told is not None)} took {took_s:.2g} s {part}"
            do = "if they use something that it left on disk, such as a cache, clear or fill it before each run"
            if first.environment.get("started") == "in place":
                do += "; if one process made them all, which imports and compiles once, start one for each"
            yield Caveat("runs before", "doubt", f"{text}, the others {max(others_s):.2g} s at most: {do}")
            return


def _began_ahead(first: RunSummary, own: float, begun: Sequence[float]) -> bool:
    """Whether all later runs began better than ``own``, the first, by more than chance and a small part of the way."""
    from levelbench.measure.crossing import sign_of
    from levelbench.measure.statistics import t_quantile

    target, count = first.target, len(begun)
    if count < _LEAST_LATER or not all(map(math.isfinite, (own, *begun))):
        return False
    sign = sign_of(target.direction)
    gap = min(sign * (each - own) for each in begun)
    way = max(sign * (target.threshold - own), 0.0)
    spread = max(_FAR_OFF, t_quantile(_SURELY, count - 1)) * statistics.stdev(begun)
    if target.low == 0 and target.high is not None:
        # A few runs may agree to the last example by chance, so the spread is at least that of drawing the examples.
        share = statistics.fmean(begun) / target.high
        examples = first.dataset.sizes.get(target.split, 0) if first.dataset else 0
        error = math.sqrt(max(share * (1 - share), 0.0) / (examples or _ASSUMED_EXAMPLES))
        spread = max(spread, _ERRORS * error * target.high)
    return gap > max(_LITTLE * way, spread * math.sqrt(1 + 1 / count), 0.0)
