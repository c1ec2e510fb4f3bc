"""What the ranks of a distributed run did, computed from what each of them observed.

No two ranks' clocks are compared. A step's computation is its time less the time spent in communication,
which each rank measures by itself; and of a collective that all leave together, what a rank spent in it beyond the one
that spent least was waiting for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.records.reader import Record
from levelbench.records.schema import Samples

__all__ = ["Teamwork", "teamwork"]

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Teamwork:
    """How ranks worked together in one run. Shares are of the step; ``None`` where nobody observed it.

    ``step_s`` is the median over steps of the slowest rank's time. ``communicate_share`` is the mean over ranks and
    steps of the time in communication; ``waiting_share`` what of it was waiting for slower ranks. ``imbalance`` is
    the mean over steps of the slowest rank's computation over the mean rank's: 1 is perfect balance. ``sent_bytes``
    and ``messages`` are those of a step and rank, on average, ``sent_most_bytes`` those of the rank that sends
    most; ``predicted_*`` are the scheme's closed form; what a framework sends by itself (DDP) is not counted.
    ``overlap`` is the share of communication that was hidden behind computation. ``staleness`` holds all noted
    delays in updates, ``divergence`` the largest of the ranks' relative distances from their mean at each
    evaluation.
    """

    ranks: int
    step_s: float | None
    communicate_share: float | None
    waiting_share: float | None
    imbalance: float | None
    sent_bytes: float | None
    sent_most_bytes: float | None
    messages: float | None
    predicted_bytes: float | None
    predicted_messages: float | None
    overlap: float | None
    staleness: tuple[float, ...]
    divergence: tuple[float, ...]


def teamwork(record: Record) -> Teamwork | None:
    """The view of a run of several ranks; ``None`` for one of a single process, or that left nothing of its ranks."""
    by_rank = record.ranks
    distribution = record.header.specification.distribution
    if distribution is None or not by_rank:
        return None
    steps = _matrix(by_rank, "step_time")
    talk = _matrix(by_rank, "communicate_time")
    sent, messages = _per_step(by_rank, "sent"), _per_step(by_rank, "messages")
    predicted = _per_step(by_rank, "sent_predicted")
    if not _is(by_rank, "counted"):
        sent, messages = [], []
    timed = steps.size > 0 and steps.shape == talk.shape
    work = steps - talk
    return Teamwork(
        ranks=distribution.ranks,
        step_s=float(np.median(steps.max(axis=0))) * 1e-9 if timed else None,
        communicate_share=_share(talk, steps) if timed else None,
        waiting_share=_share(talk - talk.min(axis=0), steps) if timed and _is(by_rank, "lockstep") else None,
        imbalance=float(np.mean(work.max(axis=0) / work.mean(axis=0))) if timed and work.min() > 0 else None,
        sent_bytes=_mean(sent),
        sent_most_bytes=max(sent, default=None),
        messages=_mean(messages),
        predicted_bytes=_mean(predicted),
        predicted_messages=_mean(_per_step(by_rank, "messages_predicted")),
        overlap=_mean(_all(by_rank, "overlap")),
        staleness=tuple(_all(by_rank, "staleness")),
        divergence=_largest(by_rank, "divergence"),
    )


def _is(by_rank: Mapping[int, Mapping[str, Samples]], promise: str) -> bool:
    """Whether the scheme promised it; each rank has written down what it did."""
    return all(each[promise].values[0] != 0 for each in by_rank.values() if promise in each)


def _matrix(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> Matrix:
    """A row a rank that trains, a column a step; of steps that all of them made."""
    rows = [np.asarray(each[name].values, np.float64) for each in by_rank.values() if name in each]
    length = min((len(row) for row in rows), default=0)
    return np.array([row[:length] for row in rows]).reshape(len(rows), length)


def _per_step(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> list[float]:
    """A step's mean by rank. A server notes a stretch of steps at once, of as many as the workers' are."""
    steps = max((len(each["step_time"].values) for each in by_rank.values() if "step_time" in each), default=0)
    found = []
    for each in by_rank.values():
        if name in each:
            found.append(float(np.mean(each[name].values)))
        elif steps and f"{name}_serving" in each:
            found.append(float(np.sum(each[f"{name}_serving"].values)) / steps)
    return found


def _all(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> list[float]:
    return [float(value) for each in by_rank.values() if name in each for value in each[name].values]


def _largest(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> tuple[float, ...]:
    rows = _matrix(by_rank, name)
    return tuple(rows.max(axis=0).tolist()) if rows.size else ()


def _share(part: Matrix, whole: Matrix) -> float:
    return float(part.sum() / whole.sum())


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
