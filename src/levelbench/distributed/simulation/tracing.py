"""What all ranks did, and the same again with other times.

Where ranks talk by collectives alone, all do the same things in the same order, whatever their times are.
So one rank's list of what it did is enough to work out another draw of the times for all ranks at once, in NumPy and
without their code: the interval of a prediction for 4,096 ranks costs less than its value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["COME", "COMPUTE", "ENCODE", "SPEND", "WAIT", "Action", "ActionTrace", "Replayed", "replay"]

COMPUTE, SPEND, ENCODE, COME, WAIT = range(5)
"""A share of a step's passes; other seconds; those of the scheme itself; begin a collective; wait for its end."""


class Action(NamedTuple):
    """Something a rank did. ``number`` is the step of ``COMPUTE``, from 0, and the collective of the others."""

    kind: int
    number: int
    amount: float
    """A share, seconds, or bytes."""
    operation: str = ""


@final
class ActionTrace:
    """The actions of the first of ``ranks``, and whether all of them had the same."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.actions: list[Action] = []
        self._first = ranks[0]
        self._digests = dict.fromkeys(ranks, 0)
        self._closed = dict.fromkeys(ranks, True)
        self._regular = True

    def add(self, rank: int, action: Action) -> None:
        """One more of a rank."""
        if self._closed[rank]:
            return
        self._digests[rank] = hash((self._digests[rank], action))
        if rank == self._first:
            self.actions.append(action)

    def spoil(self, rank: int) -> None:
        """A rank did something that depends on times, or on who came first."""
        self._regular = self._regular and self._closed[rank]

    def open(self, rank: int) -> None:
        """From now on what a rank does counts; all must have met before."""
        self._closed[rank] = False

    def close(self, rank: int) -> None:
        """What a rank does counts no more."""
        self._closed[rank] = True

    @property
    def regular(self) -> bool:
        """Whether :func:`replay` holds for it."""
        return self._regular and len(set(self._digests.values())) == 1


class Replayed(NamedTuple):
    """By draw: seconds until the last rank was done, and the share of all ranks' time in which they only waited."""

    ended_s: NDArray[np.float64]
    communication_share: NDArray[np.float64]


def replay(
    actions: Sequence[Action], times_s: NDArray[np.float64], seconds: Sequence[Callable[[str, float], float]]
) -> Replayed:
    """The same actions with the passes' times ``times_s``, shape (draws, ranks, steps).

    ``seconds`` say for each draw what a collective of an operation and so many bytes takes.
    """
    draws, ranks, _ = times_s.shape
    now, waited, free = np.zeros((draws, ranks)), np.zeros(draws), np.zeros(draws)
    ends: dict[int, NDArray[np.float64]] = {}
    for kind, number, amount, operation in actions:
        if kind == COMPUTE:
            now += times_s[:, :, number] * amount
        elif kind == COME:
            took = np.array([each(operation, amount) for each in seconds])
            ends[number] = free = np.maximum(now.max(axis=1), free) + took
        elif kind == WAIT:
            if number not in ends:  # begun, and so over, before the trace was opened
                continue
            until = ends[number][:, None]
            waited += np.maximum(until - now, 0).sum(axis=1)
            now = np.maximum(now, until)
        else:
            now += amount
            waited += ranks * amount if kind == ENCODE else 0.0
    return Replayed(now.max(axis=1), waited / now.sum(axis=1))
