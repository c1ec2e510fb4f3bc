"""``--until-clear``: make a few of each, look, and go on until the verdicts are clear or the time is spent.

When to look, and how wide an interval must be for that, is in ``measure/sequential.py``. A record says which effect the
looks were planned for, so that whoever reads it later takes the same width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from levelbench.measure.clocks import HOST
from levelbench.measure.sequential import looks_at
from levelbench.measure.verdict import Verdict, VerdictKind

__all__ = ["CLEAR_WITHIN_S", "Looked", "UntilClear", "go_on"]

CLEAR_WITHIN_S = 600.0
"""What all takes at most, where nobody says it."""

T = TypeVar("T")


@dataclass(frozen=True)
class UntilClear:
    """Looks planned for a relative difference of ``effect``; no more is begun after ``limit_s`` seconds."""

    effect: float
    limit_s: float = CLEAR_WITHIN_S


@dataclass(frozen=True)
class Looked:
    """What a look shows after ``count`` of each arm: verdicts by the name of the arm, or why there are none."""

    count: int
    verdicts: Sequence[tuple[str, Verdict]]
    why_none: str
    left_s: float

    @property
    def clear(self) -> bool:
        """Whether no look is needed any more."""
        return all(verdict.kind != VerdictKind.UNCLEAR for _, verdict in self.verdicts)


Judge = Callable[[T], tuple[Sequence[tuple[str, Verdict]], str]]


def go_on(
    until: UntilClear | None, count: int, make: Callable[[int], T], judge: Judge[T], say: Callable[[Looked], None]
) -> T:
    """What ``make`` gives for ``count`` of each arm, or with ``until`` for as many as it takes; ``say`` gets each look.

    ``judge`` has the verdicts on what was made, and why there are none.
    """
    if until is None:
        return make(count)
    began_ns = HOST.now_ns()
    looks = looks_at()
    while True:
        count = next(looks)
        found = make(count)
        left_s = until.limit_s - (HOST.now_ns() - began_ns) * 1e-9
        looked = Looked(count, *judge(found), left_s)
        say(looked)
        if looked.clear or left_s <= 0:
            return found
