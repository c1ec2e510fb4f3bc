"""Plans the processes of a benchmark: which replicates are done, which are to go, and in which order.

The same command resumes. A replicate counts as done if its record came to its end, on this machine with
these libraries. Arms take turns at each case, A B, B A, so that what drifts meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from levelbench.errors import MissingError, UsageError
from levelbench.operators.frameworks import load_framework

__all__ = ["Place", "Plan", "Replicate", "need_frameworks", "plan_replicates"]

Place = tuple[int, int, int]
"""The place of a case, that of an arm, and the number of a process."""


class _Header(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def started(self) -> str: ...


class _Record(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def header(self) -> _Header: ...
    @property
    def status(self) -> str: ...


S = TypeVar("S")
R = TypeVar("R", bound=_Record)


@dataclass(frozen=True)
class Replicate:
    """One process to make: places of the case and of the arm, its number, and why it is made again, if it is."""

    case: int
    arm: int
    seed: int
    why: str = ""

    @property
    def place(self) -> Place:
        """What it is known by."""
        return self.case, self.arm, self.seed


@dataclass(frozen=True)
class Plan(Generic[S, R]):
    """``grid[case][arm]`` are the specifications; ``done`` the records that count, by place."""

    grid: tuple[tuple[S, ...], ...]
    count: int
    done: Mapping[Place, R]
    steps: tuple[Replicate, ...]

    def specification(self, step: Replicate) -> S:
        """What a step measures."""
        return self.grid[step.case][step.arm]

    def arranged(self, records: Mapping[Place, R]) -> list[list[list[R]]]:
        """The records by case, arm and number, as summaries take them."""
        return [
            [[records[case, arm, seed] for seed in range(self.count)] for arm in range(len(row))]
            for case, row in enumerate(self.grid)
        ]

    def lines(self) -> list[str]:
        """The plan in words: the counts, then each reason that something is made again."""
        wanted = sum(map(len, self.grid)) * self.count
        reasons: dict[str, int] = {}
        for step in self.steps:
            if step.why:
                reasons[step.why] = reasons.get(step.why, 0) + 1
        named = f"{wanted} process{'es' if wanted != 1 else ''} wanted"
        counts = f"{named} · {len(self.done)} done · {len(self.steps)} to go"
        return [counts, *(f"  again: {number}: {why}" for why, number in reasons.items())]


def plan_replicates(
    grid: Sequence[Sequence[S]],
    count: int,
    *,
    find: Callable[[S], Iterable[R]],
    why_not: Callable[[R], str],
    title: Callable[[S], str],
    fresh: bool,
    since: str = "",
) -> Plan[S, R]:
    """Look for what is done and interleave what is to go; each case of ``grid`` has the same arms.

    ``find`` has the records of a specification, ``why_not`` says why one that came to its end does not count (empty: it
    does), ``title`` what messages call an arm. With ``fresh`` only those started ``since`` count (ISO 8601; none
    without it). Raises ``UsageError`` for a replicate that another process is at right now.
    """
    done: dict[Place, R] = {}
    whys: dict[Place, str] = {}
    for case, row in enumerate(grid):
        for arm, specification in enumerate(row):
            for record in find(specification):
                place = (case, arm, record.header.seed)
                if record.header.seed >= count:
                    continue
                if record.status == "running":
                    found = f"another process is at it right now ({record.path.name})"
                    raise UsageError(f"process {record.header.seed} of {title(specification)}", found, "wait for it")
                if fresh and (not since or record.header.started < since):
                    continue
                why = why_not(record) if record.status == "done" else "the process before was interrupted"
                if why:
                    whys[place] = why
                else:
                    done[place] = record
    steps = [
        Replicate(*place, whys.get(place, ""))
        for place in _interleaved(len(grid), len(grid[0]), count)
        if place not in done
    ]
    return Plan(tuple(tuple(row) for row in grid), count, done, tuple(steps))


def _interleaved(cases: int, arms: int, count: int) -> list[Place]:
    """All places: the processes one after the other, in each the cases, in each the arms in turn or in return."""
    places = []
    for seed in range(count):
        order = range(arms) if seed % 2 == 0 else range(arms - 1, -1, -1)
        places += [(case, arm, seed) for case in range(cases) for arm in order]
    return places


def need_frameworks(wanted: Iterable[tuple[str, str]]) -> None:
    """``MissingError`` for a (framework, device) that is not here."""
    for framework, device in dict.fromkeys(wanted):
        if lacking := load_framework(framework).lacks(device):
            asked = f"framework {framework!r} on device {device!r}"
            raise MissingError(asked, lacking, "levelbench list shows what runs")
