"""Reasons to doubt what was measured, as sentences: each is printed once, with the runs or processes it concerns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol

__all__ = ["AGAIN", "CUT_SHORT", "FIRST", "FIRST_SEED", "counted_doubts", "in_steps", "interrupted_processes"]
__all__ += ["made_again", "out_of_turn", "process_doubts", "removed", "seed_ranges", "without_figures"]

_FIGURE = re.compile(r"\d+(?:\.\d+)?")


def counted_doubts(
    names: Sequence[str], suspects: Sequence[Sequence[Sequence[str]]], noun: str = "processes"
) -> dict[str, str]:
    """Each reason to doubt what was measured once, with how many of which arm it concerns; by its kind.

    ``suspects`` holds the doubts of each process, or run, by arm. Sentences that differ only in their figures are one
    reason (a kind, see :func:`without_figures`), for which the one with the largest figures is shown, and a process
    counts once.
    """
    found: dict[str, dict[int, list[str]]] = {}
    for at, arm in enumerate(suspects):
        for own in arm:
            for kind, doubt in {without_figures(each): each for each in own}.items():
                found.setdefault(kind, {}).setdefault(at, []).append(doubt)
    lines = {}
    for kind, by_arm in found.items():
        alike: dict[str, list[str]] = {}
        for at, same in by_arm.items():
            alike.setdefault(f"{len(same)} of {len(suspects[at])} {noun}", []).append(names[at])
        counts = [f"{count} {_of_each(arms)}" for count, arms in alike.items()]
        # A comma, where "and" stands between the arms of one count already.
        apart = " and " if len(alike) == sum(map(len, alike.values())) else ", and "
        worst = max((each for same in by_arm.values() for each in same), key=_figures_in)
        lines[kind] = f"{apart.join(counts)}: {worst}"
    return lines


def _of_each(names: Sequence[str]) -> str:
    """``of a, of b and of c``; all but the first few are counted."""
    more = len(names) - _SHOWN if len(names) > _SHOWN + 1 else 0
    shown = [f"of {each}" for each in (names[:_SHOWN] if more else names)]
    *first, last = [*shown, f"of {more} others"] if more else shown
    return f"{', '.join(first)} and {last}" if first else last


def without_figures(doubt: str) -> str:
    """The sentence with ``#`` for each number: equal for two doubts that differ only in their figures."""
    return _FIGURE.sub("#", doubt)


def _figures_in(text: str) -> list[float]:
    return [float(each) for each in _FIGURE.findall(text)]


class _Planned(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def planned_runs(self) -> int: ...
    @property
    def planned_effect(self) -> float | None: ...
    @property
    def started(self) -> str: ...
    @property
    def environment(self) -> Mapping[str, object]: ...


def in_steps(name: str, several: str, made: Iterable[_Planned]) -> list[str]:
    """The doubt about runs (or processes: ``several``) that were added after a look at the results.

    Planned looks are not doubted, if one command made them: their intervals are wide enough.
    """
    runs = list(made)
    return [*_in_steps(name, several, runs), *_by_several_commands(name, several, runs)]


def _in_steps(name: str, several: str, runs: Sequence[_Planned]) -> list[str]:
    """Below ``LEAST_RUNS``, as in a first try with -n 1, there is no verdict to look at."""
    from levelbench.measure.verdict import LEAST_RUNS

    if any(run.planned_effect for run in runs):
        return []
    planned = sorted({run.planned_runs for run in runs if run.planned_runs >= LEAST_RUNS})
    if sum(0 < run.planned_runs < LEAST_RUNS for run in runs) > LEAST_RUNS:
        planned = [*sorted({run.planned_runs for run in runs if 0 < run.planned_runs < LEAST_RUNS}), *planned]
    if len(planned) < 2 and not (planned and len({run.seed for run in runs}) > planned[-1]):
        return []
    asked = "one was" if planned == [1] else f"{', then '.join(map(str, planned))} {several} were"
    steps = f"{asked} asked for{' at a time' * (planned == [1])}, and there are {len(runs)}"
    text = f"the {several} of {name} were made in several steps ({steps}), and the interval is that of one look"
    return [f"{text}: ask for all of them at once, or use --until-clear, which allows for repeated looks"]


def _by_several_commands(name: str, several: str, runs: Sequence[_Planned]) -> list[str]:
    """Looks that began anew from other seeds: whoever chooses which of these commands to keep chooses the result.

    A command that continues, with the seeds and the time after all of those before it, only goes on looking.
    """
    looked_at = _asked_for(run for run in runs if run.planned_effect)
    if not looked_at:
        return []
    begun: dict[int, str] = {}
    for run in runs:
        if (first := _first_seed(run)) is not None:
            begun[first] = min(begun.get(first, run.started), run.started)
    seeds = {run.seed for run in runs}
    firsts = [
        first
        for first, start in sorted(begun.items())
        if first - 1 not in seeds or any(run.seed < first and run.started >= start for run in runs)
    ]
    # Looks use runs that one command made before them of their own seeds.
    own = {_first_seed(run) for run in runs if run.planned_effect or run.seed not in looked_at}
    if len(used := [first for first in firsts if first not in own]) == 1:
        firsts.remove(used[0])
    if len(firsts) < 2:
        return []
    with_looks = " with --until-clear" if all(run.planned_effect for run in runs) else ", not all with --until-clear"
    shown = f"{', '.join(map(str, firsts[:_SHOWN]))}{', ...' * (len(firsts) > _SHOWN)}"
    text = f"the {several} of {name} were made by {len(firsts)} commands{with_looks} (seeds from {shown})"
    do = "make all of them with one --seed, from which each repeat continues"
    return [f"{text}, and the interval allows for the looks of one: {do}"]


def _asked_for(runs: Iterable[_Planned]) -> set[int]:
    """The seeds that the commands of these runs asked for, as far as that is recorded; each look asks for more."""
    firsts = {(first, run.planned_runs) for run in runs if (first := _first_seed(run)) is not None}
    return {seed for first, count in firsts for seed in range(first, first + count)}


def _first_seed(run: _Planned) -> int | None:
    """The first seed of the command that made it, where that is recorded."""
    first = run.environment.get(FIRST_SEED)
    return first if isinstance(first, int) else None


def made_again(name: str, several: str, made: Iterable[_Planned], known: Collection[int] = ()) -> list[str]:
    """The doubt about runs (or processes) that began after those which their command makes after them.

    So do runs that were removed, as slow ones may be, and made again: whoever repeats until the times please chooses
    the result. ``known`` are the seeds of which an earlier run says why it was made again, as one that failed does.
    Seeds below the first of a command (``FIRST_SEED``), such as that of the trials of a search, are not made before it.
    """
    ordered = sorted(made, key=lambda run: run.seed)
    again, later, first = list[int](), list[tuple[_Planned, int]](), ""
    for run in reversed(ordered):
        if first < run.started and any(each.started < run.started and run.seed > before for each, before in later):
            again.append(run.seed)
        # A tracked program without a given seed takes the first free one.
        elif run.planned_runs or run.environment.get("seed_picked"):
            before = run.seed - run.planned_runs if run.planned_runs else -1
            first_seed = _first_seed(run)
            later.append((run, before if first_seed is None else max(before, first_seed - 1)))
            first = min(first or run.started, run.started)
    again = sorted({*again} - {*known})
    # Where several commands shared the seeds, that is what is said.
    if not again or _in_steps(name, several, ordered):
        return []
    return [
        f"{_which(again, several)} of {name} began after later ones, as where some were removed and made again{_AGAIN}"
    ]


def removed(runs: Iterable[_Planned]) -> str:
    """A sentence if commands asked for more runs of an arm, or for other seeds, than there are; else empty."""
    every = list(runs)
    seeds = {run.seed for run in every}
    most, found = max((run.planned_runs for run in every if not run.planned_effect), default=0), len(seeds)
    if found < most:
        left = "1 is" if found == 1 else f"{found} are"
        return f"{most} runs were asked for by one command, and {left} left"
    asked = _asked_for(every)
    gone = asked - seeds
    missing = f"{seed_ranges(gone)} {'is' if len(gone) == 1 else 'are'} missing"
    return f"seeds {seed_ranges(asked)} were asked for, and {missing}" if gone else ""


def seed_ranges(seeds: Iterable[int]) -> str:
    """``0-4, 7`` for 0, 1, 2, 3, 4 and 7."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(each[0]) if len(each) == 1 else f"{each[0]}-{each[-1]}" for each in parts)


def out_of_turn(
    names: Sequence[str],
    several: str,
    arms: Sequence[Sequence[_Planned]],
    walls_s: Sequence[Sequence[float]],
    known: Sequence[Collection[int]],
) -> list[str]:
    """The doubts about the last runs (or processes) of arms that no longer took turns, as those before them did.

    So do slow ones at the end that were removed and made again, which :func:`made_again` cannot see. Those of several
    commands at once, which overlap (``walls_s`` says how long each took), and of different plans are left out.
    """
    every = [run for arm in arms for run in arm]
    if len({run.planned_runs for run in every}) != 1 or not every[0].planned_runs:
        return []
    starts = [datetime.fromisoformat(run.started).timestamp() for run in every]
    spans = sorted(zip(starts, (each for walls in walls_s for each in walls), strict=True))
    if any(later < began + wall_s - _ROUNDED_S for (began, wall_s), (later, _) in pairwise(spans)):
        return []
    found = []
    for name, arm, apart in zip(names, arms, known, strict=True):
        others = sorted((run for other in arms if other is not arm for run in other), key=lambda run: run.seed)
        late, first = set[int](), ""
        for run in sorted(arm, key=lambda run: -run.seed):
            while others and others[-1].seed > run.seed:
                first = min(first or others[-1].started, others.pop().started)
            if first and first < run.started:
                late.add(run.seed)
        again = sorted(late - {*apart})
        in_turn = [run.seed for run in arm if run.seed not in late]
        # An arm that was begun later took no turns at all, and the first that were removed began after later ones.
        if not again or not in_turn or min(in_turn) > again[0] or made_again(name, several, arm, apart):
            continue
        if not in_steps(name, several, arm):
            text = f"{_which(again, several)} of {name} began after later ones of the others, though earlier ones took"
            found.append(f"{text} turns, as where some were removed and made again{_AGAIN}")
    return found


def _which(seeds: Sequence[int], several: str) -> str:
    noun = several if len(seeds) > 1 else {"runs": "run", "processes": "process"}[several]
    more = f" and {len(seeds) - _SHOWN} more" * (len(seeds) > _SHOWN)
    return f"{noun} {', '.join(map(str, seeds[:_SHOWN]))}{more}"


_AGAIN = ": choosing which to repeat chooses the result, so measure all of them again"
_ROUNDED_S = 0.01
"""Starts are recorded to the millisecond."""
_SHOWN = 5


FIRST_SEED = "first_seed"
"""In the environment of a run: the first seed of those that its command asked for."""
AGAIN = "made_again"
"""In the environment of a process whose seed has an earlier one that does not count: why."""
CUT_SHORT = "interrupted_after_s"
"""In the environment of a process whose seed has interrupted ones: how long the longest ran; ``None``: unknown."""
FIRST = "first_process_s"
"""In the environment of a process: how long the first of its command took in the store, where that was before these."""
_OFTEN = 2


def _measured_before(names: Sequence[str], counts: Sequence[int]) -> list[str]:
    """The doubt about arms that were measured several times before: somebody may have waited for what pleases."""
    often = [name for name, count in zip(names, counts, strict=True) if count >= _OFTEN]
    if not often:
        return []
    times = f"{max(counts)} times in this store, under the same conditions, before this"
    do = "to measure again until the verdict pleases chooses it"
    return [f"{' and '.join(often)} had been measured {times}: {do}"]


def interrupted_processes(name: str, environments: Sequence[Mapping[str, Any]], walls_s: Sequence[float]) -> list[str]:
    """The doubts about processes of an arm in whose place slower ones were interrupted, or may have been."""
    found = []
    cut = [(each[CUT_SHORT], wall_s) for each, wall_s in zip(environments, walls_s, strict=True) if CUT_SHORT in each]
    # One that had not yet taken longer than that which was made in its place was not a slow one.
    slow = [(after_s, wall_s) for after_s, wall_s in cut if after_s is not None and after_s > wall_s]
    if slow:
        after_s, wall_s = max(slow)
        text = f"a process of {name} was interrupted after {after_s:.3g} s, and one of {wall_s:.3g} s was made in its"
        found.append(f"{text} place{_AGAIN}")
    unknown = sum(1 for after_s, _ in cut if after_s is None)
    if unknown >= _OFTEN:
        found.append(f"{unknown} processes of {name} were killed while they ran, and made again{_AGAIN}")
    return found


def _missing(name: str, headers: Sequence[Any], do: str) -> list[str]:
    """A doubt if processes that were asked for are not among these: leaving out the slow ones chooses the result."""
    most = max((each.planned_runs for each in headers if not each.planned_effect), default=0)
    # With --until-clear only the maximum is planned, but there are no gaps.
    seeds = {each.seed for each in headers}
    most = max(most, max(seeds) + 1 if any(each.planned_effect for each in headers) else 0)
    if len(seeds) >= most:
        return []
    text = f"{most} processes of {name} were asked for, and {len(seeds)} of them count"
    return [f"{text}: choosing processes chooses the result, and {do or f'-n {most} takes all of them'}"]


def process_doubts(names: Sequence[str], arms: Sequence[Sequence[Any]], do: str = "") -> list[str]:
    """The doubts about the processes of each arm, given their records; ``do`` makes those that are missing."""
    suspects = [[[] if each.end is None else each.end.suspect for each in arm] for arm in arms]
    found = [*counted_doubts(names, suspects).values()]
    headers = [[each.header for each in arm] for arm in arms]
    known = [{each.seed for each in arm if each.environment.get(AGAIN)} for arm in headers]
    for name, arm, apart in zip(names, headers, known, strict=True):
        found += [*in_steps(name, "processes", arm), *made_again(name, "processes", arm, apart)]
        found += _missing(name, arm, do)
    before = [max((each.measured_before for each in arm), default=0) for arm in headers]
    return [*found, *_measured_before(names, before)]
