"""Reasons to doubt what was measured, as sentences: each is printed once, with the runs or processes it concerns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

__all__ = ["counted_doubts", "in_steps", "process_doubts", "without_figures"]

_FIGURE = re.compile(r"\d+(?:\.\d+)?")


def counted_doubts(
    names: Sequence[str], suspects: Sequence[Sequence[Sequence[str]]], noun: str = "processes"
) -> list[str]:
    """Each reason to doubt what was measured once, with how many of which arm it concerns.

    ``suspects`` holds the doubts of each process, or run, by arm. Sentences that differ only in their figures are one
    reason, for which the one with the largest figures is shown, and a process counts once.
    """
    found: dict[str, dict[int, list[str]]] = {}
    for at, arm in enumerate(suspects):
        for own in arm:
            for kind, doubt in {without_figures(each): each for each in own}.items():
                found.setdefault(kind, {}).setdefault(at, []).append(doubt)
    lines = []
    for by_arm in found.values():
        counts = [f"{len(same)} of {len(suspects[at])} {noun} of {names[at]}" for at, same in by_arm.items()]
        worst = max((each for same in by_arm.values() for each in same), key=_figures_in)
        lines.append(f"{' and '.join(counts)}: {worst}")
    return lines


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


def in_steps(name: str, several: str, made: Iterable[_Planned]) -> list[str]:
    """The doubt about runs (or processes: ``several``) that were added after a look at the results.

    Below ``LEAST_RUNS``, as in a first try with -n 1, there is no verdict to look at. Planned looks are not doubted:
    their intervals are wide enough.
    """
    from levelbench.measure.verdict import LEAST_RUNS

    runs = list(made)
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
    return [f"{text}: --until-clear allows for repeated looks"]


def process_doubts(names: Sequence[str], arms: Sequence[Sequence[Any]]) -> list[str]:
    """The doubts about the processes of each arm, given their records."""
    suspects = [[[] if each.end is None else each.end.suspect for each in arm] for arm in arms]
    found = counted_doubts(names, suspects)
    for name, arm in zip(names, arms, strict=True):
        found += in_steps(name, "processes", [each.header for each in arm])
    return found
