"""Reasons to doubt what was measured, as sentences: each is told once, with how much of what it concerns."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["told_doubts", "without_figures"]

_FIGURE = re.compile(r"\d+(?:\.\d+)?")


def told_doubts(
    names: Sequence[str], suspects: Sequence[Sequence[Sequence[str]]], noun: str = "processes"
) -> list[str]:
    """Each reason to doubt what was measured, once, with how many of which arm it concerns.

    ``suspects`` holds those of each process, or run, by arm. Sentences that differ in their figures only are one
    reason, of which the one with the largest is shown; a process counts once for it.
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
    """The sentence with ``#`` for each number: two that differ in nothing else are one."""
    return _FIGURE.sub("#", doubt)


def _figures_in(text: str) -> list[float]:
    return [float(each) for each in _FIGURE.findall(text)]
