"""When the runs of two arms took place: in turns, or one arm after the other, and what that allows to be compared.

A machine drifts: minutes apart, the same run takes another time, and runs that are close together share that. Arms that
take turns share it too, and it cancels. Arms that are measured one after the other do not, and more runs of each make
it worse, not better: what varies then is the session, so sessions are the replicates (Kalibera & Jones, ISMM 2013). One
session of each arm says nothing about how sessions vary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Between", "Schedule", "Sessions", "between_sessions", "schedule_of"]

Span = tuple[float, float]
"""When a run started and ended, in seconds on one clock."""

PAUSE_S = 600.0
"""A pause between two runs of one arm after which the next one is of another session."""

_NEIGHBOURS = 2


@dataclass(frozen=True)
class Sessions:
    """The runs of two arms by session, as indices into each arm, in the order of time.

    ``pairs`` are sessions of different arms that followed each other, as (index of a's, index of b's).
    """

    a: tuple[tuple[int, ...], ...]
    b: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Schedule:
    """How two arms were measured. ``sessions`` is ``None`` where they took turns."""

    sessions: Sessions | None

    @property
    def interleaved(self) -> bool:
        """Whether the arms took turns, run by run."""
        return self.sessions is None


@dataclass(frozen=True)
class Between:
    """The variance of logarithms between sessions of one thing on one machine, and its degrees of freedom."""

    variance: float
    dof: int


def schedule_of(a: Sequence[Span], b: Sequence[Span], *, paired: bool = False) -> Schedule:
    """How the runs with the spans ``a`` and ``b`` lie to each other.

    ``paired`` arms took turns if the two runs of each pair (equal index) were next to each other, with at most one run
    of these arms between them; others if no arm had more than two runs at a stretch (more, where one arm has more).
    """
    runs = sorted([*((span, 0, at) for at, span in enumerate(a)), *((span, 1, at) for at, span in enumerate(b))])
    if _took_turns([arm for _, arm, _ in runs], [at for _, _, at in runs], len(a), len(b), paired):
        return Schedule(None)
    blocks: list[tuple[int, list[int]]] = []
    ended = -math.inf
    for (start, end), arm, at in runs:
        if blocks and blocks[-1][0] == arm and start - ended <= PAUSE_S:
            blocks[-1][1].append(at)
        else:
            blocks.append((arm, [at]))
        ended = max(ended, end)
    sessions: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
    pairs: list[tuple[int, int]] = []
    waiting: int | None = None
    for arm, members in blocks:
        sessions[arm].append(tuple(members))
        if waiting == 1 - arm:
            pairs.append((len(sessions[0]) - 1, len(sessions[1]) - 1))
            waiting = None
        else:
            waiting = arm
    return Schedule(Sessions(tuple(sessions[0]), tuple(sessions[1]), tuple(pairs)))


def _took_turns(arms: list[int], indices: list[int], n_a: int, n_b: int, paired: bool) -> bool:
    if paired and n_a == n_b:
        places = {(arm, at): place for place, (arm, at) in enumerate(zip(arms, indices, strict=True))}
        return all(abs(places[0, at] - places[1, at]) <= _NEIGHBOURS for at in range(n_a))
    longest = stretch = 0
    for place, arm in enumerate(arms):
        stretch = stretch + 1 if place and arms[place - 1] == arm else 1
        longest = max(longest, stretch)
    return longest <= 2 * math.ceil(max(n_a, n_b) / max(1, min(n_a, n_b)))


def session_means(times: Sequence[float], sessions: Sequence[Sequence[int]]) -> list[float]:
    """The geometric mean of each session's times."""
    logs = np.log(np.asarray(times, dtype=np.float64))
    return [float(np.exp(logs[list(each)].mean())) for each in sessions]


def between_sessions(groups: Sequence[tuple[Sequence[float], Sequence[Span]]]) -> Between | None:
    """How much sessions vary, from times and spans of the runs of each specification on one machine; or ``None``.

    The variance of the sessions' mean logarithms within a specification, pooled. It holds the variance between runs,
    too, divided by the runs of a session, which makes it a little larger than that between sessions alone.
    """
    squares, dof = 0.0, 0
    for times, spans in groups:
        order = sorted(range(len(spans)), key=lambda at: spans[at])
        sessions: list[list[int]] = []
        ended = -math.inf
        for at in order:
            if sessions and spans[at][0] - ended <= PAUSE_S:
                sessions[-1].append(at)
            else:
                sessions.append([at])
            ended = max(ended, spans[at][1])
        if len(sessions) > 1:
            means = np.log(session_means(times, sessions))
            squares += float(((means - means.mean()) ** 2).sum())
            dof += len(sessions) - 1
    return Between(squares / dof, dof) if dof else None
