"""When the runs of two arms took place: in turns or one arm after the other, and which comparisons that allows.

A machine drifts: minutes apart, the same run takes a different time, and runs that are close together share that drift.
Arms that take turns share it too, so it cancels. For arms that are measured one after the other it does not, and more
runs of each make it worse, not better: what varies then is the session, so sessions are the replicates (Kalibera &
Jones, ISMM 2013). One session of each arm says nothing about how sessions vary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

__all__ = ["Between", "Sessions", "between_sessions", "order_bias", "schedule_of", "sessions_of"]
__all__ += ["turns"]

Span = tuple[float, float]
"""When a run started and ended, in seconds on the same clock."""

PAUSE_S = 600.0
"""A pause after which a run shares less with the one before it."""

PAUSE_RUNS = 6.0
"""If runs are long, a pause is longer than this many of them: other arms may have had their turn meanwhile."""

UNBALANCED = 0.5
"""By how many places one arm may come after the other on average; arms that alternate who goes first stay below."""

APART_S = 6.0 * 3600.0
"""A pause after which a new session begins, when estimating how much sessions of one specification vary."""

_NEIGHBOURS = 2


@dataclass(frozen=True)
class Sessions:
    """The stretches in which one arm was measured alone, as indices into each arm, in order of time.

    ``pairs`` are stretches of different arms that followed each other, as (index of a's, index of b's).
    """

    a: tuple[tuple[int, ...], ...]
    b: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Between:
    """The variance of logarithms between sessions of one specification on one machine, and its degrees of freedom."""

    variance: float
    dof: int


def schedule_of(a: Sequence[Span], b: Sequence[Span], *, paired: bool = False) -> Sessions | None:
    """The stretches in which the runs with the spans ``a`` and ``b`` were measured; ``None`` if the arms took turns.

    ``paired`` arms took turns if the two runs of each pair (equal index) were next to each other, with at most one run
    of these arms between them; other arms if they alternated as often as turns of two do, with no long stretch of one.
    In either case, between two long pauses no arm may have had two runs without a run of the other.
    """
    runs = sorted([*((span, 0, at) for at, span in enumerate(a)), *((span, 1, at) for at, span in enumerate(b))])
    arms = [arm for _, arm, _ in runs]
    stretches: list[tuple[int, list[int]]] = []
    for _, arm, at in runs:
        if stretches and stretches[-1][0] == arm:
            stretches[-1][1].append(at)
        else:
            stretches.append((arm, [at]))
    if not _alone_between_pauses([span for span, _, _ in runs], arms):
        if paired and len(a) == len(b):
            places = {(arm, at): place for place, (_, arm, at) in enumerate(runs)}
            turns = all(abs(places[0, at] - places[1, at]) <= _NEIGHBOURS for at in range(len(a)))
        else:
            fewer, more = sorted((len(a), len(b)))
            longest = max(len(members) for _, members in stretches)
            turns = len(stretches) > fewer and longest <= math.ceil(more / max(1, fewer)) + 1
        if turns:
            return None
    sessions: tuple[list[tuple[int, ...]], list[tuple[int, ...]]] = ([], [])
    for arm, members in stretches:
        sessions[arm].append(tuple(members))
    # Stretches alternate, so the first and second, the third and fourth, ... are one of each arm.
    pairs = [(pair // 2, pair // 2) for pair in range(0, len(stretches) - 1, 2)]
    return Sessions(tuple(sessions[0]), tuple(sessions[1]), tuple(pairs))


def _alone_between_pauses(spans: Sequence[Span], arms: Sequence[int]) -> bool:
    """Whether one arm had several runs, and the other none, between two pauses: only that arm then shares the drift."""
    members: list[list[int]] = []
    ended = -math.inf
    pause_s = max(PAUSE_S, PAUSE_RUNS * max(end - start for start, end in spans))
    for (start, end), arm in zip(spans, arms, strict=True):
        if start - ended > pause_s or not members:
            members.append([])
        members[-1].append(arm)
        ended = max(ended, end)
    return any(len(each) > 1 and len(set(each)) == 1 for each in members)


def order_bias(
    times_a: Sequence[float],
    times_b: Sequence[float],
    spans_a: Sequence[Span],
    spans_b: Sequence[Span],
    sessions: Sessions | None = None,
) -> float:
    """The most that a steady drift may add to log(b / a) if one of the arms mostly went first.

    The lead is the average number of places over all runs, or within the pairs of stretches of ``sessions`` if those
    are compared: an order that is balanced as a whole may not be balanced within its pairs. ``A B A B`` puts every run
    of b one place after its partner, so that a drift of 1 % a run reads as 1 %. The drift is the slope of the
    logarithms over the order of all runs, with a separate level for each arm, by least squares; one standard error is
    added to it. 0 if who goes first is balanced, as in ``A B B A``, or if there are too few runs.
    """
    spans, n = [*spans_a, *spans_b], len(spans_a) + len(spans_b)
    place = np.empty(n)
    place[sorted(range(n), key=lambda at: spans[at])] = np.arange(n)
    arm = np.repeat([0.0, 1.0], [len(spans_a), len(spans_b)])
    if sessions is None or not sessions.pairs:
        late = float(place[arm == 1.0].mean() - place[arm == 0.0].mean())
    else:
        lags = [
            place[len(spans_a) :][list(sessions.b[of_b])].mean() - place[list(sessions.a[of_a])].mean()
            for of_a, of_b in sessions.pairs
        ]
        late = float(np.mean(lags))
    if abs(late) <= UNBALANCED or n < 5:
        return 0.0
    logs = np.log(np.asarray([*times_a, *times_b], dtype=np.float64))
    centred, level = place.copy(), logs.copy()
    for each in (0.0, 1.0):
        centred[arm == each] -= place[arm == each].mean()
        level[arm == each] -= logs[arm == each].mean()
    spread = float(centred @ centred)
    slope = float(centred @ level) / spread
    left = level - slope * centred
    error = math.sqrt(float(left @ left) / (n - 3) / spread)
    return (abs(slope) + error) * abs(late)


def turns(count: int, seed: str) -> list[bool]:
    """Who goes first in each of ``count`` turns of the arms: ``True`` if the order of the arms is reversed.

    Drawn by a fair coin for each turn, so that a periodic disturbance does not keep hitting the same arm, and effects
    that last from one run to the next do not make pairs look more alike than they are; both happen with an order that
    repeats, such as A B B A. The first three turns are never all alike, and the first five are three of one kind and
    two of the other: with few turns, an arm that mostly goes first would cost the verdict its power. Equal seeds give
    equal turns, whatever the count.
    """
    random = Random(seed)
    found = [False] * 5
    while sum(found) not in (2, 3) or len({*found[:3]}) < 2:
        found = [random.random() < 0.5 for _ in found]
    found += [random.random() < 0.5 for _ in range(count - len(found))]
    return found[:count]


def session_means(times: Sequence[float], sessions: Sequence[Sequence[int]]) -> list[float]:
    """The geometric mean of each session's times."""
    logs = np.log(np.asarray(times, dtype=np.float64))
    return [float(np.exp(logs[list(each)].mean())) for each in sessions]


def sessions_of(spans: Sequence[Span]) -> list[list[int]]:
    """The indices of the runs of each session, in order of time: a pause of more than ``APART_S`` begins a new one."""
    sessions: list[list[int]] = []
    ended = -math.inf
    for at in sorted(range(len(spans)), key=lambda at: spans[at]):
        if sessions and spans[at][0] - ended <= APART_S:
            sessions[-1].append(at)
        else:
            sessions.append([at])
        ended = max(ended, spans[at][1])
    return sessions


def between_sessions(groups: Sequence[tuple[Sequence[float], Sequence[Span]]]) -> Between | None:
    """How much sessions vary, from the times and spans of each specification's runs on one machine; or ``None``.

    The pooled variance of the sessions' mean logarithms within a specification. It also contains the variance between
    runs, divided by the runs of a session, so it is a little larger than the variance between sessions alone.
    """
    squares, dof = 0.0, 0
    for times, spans in groups:
        sessions = sessions_of(spans)
        if len(sessions) > 1:
            means = np.log(session_means(times, sessions))
            squares += float(((means - means.mean()) ** 2).sum())
            dof += len(sessions) - 1
    return Between(squares / dof, dof) if dof else None
