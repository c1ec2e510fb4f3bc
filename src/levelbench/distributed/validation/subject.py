"""What is checked: a scheme on a bench, and the numbers of ranks that it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.scheme import Scheme
from levelbench.distributed.validation.runs import Bench, Case, Outcome, Trace
from levelbench.training.validation.probes import Finding, failed

__all__ = ["Floats", "Subject", "alike", "apart", "evaluated", "place", "stopped", "unlike"]

Floats = NDArray[Any]


@final
@dataclass(frozen=True)
class Subject:
    """``ranks`` are the numbers of ranks to look at, ascending; ``steps`` those of a run with real gradients."""

    bench: Bench
    ranks: tuple[int, ...]
    steps: int

    @property
    def scheme(self) -> Scheme:
        """The scheme."""
        return self.bench.scheme

    @property
    def most(self) -> int:
        """The largest number of ranks."""
        return max(self.ranks)

    def run(self, case: Case) -> Outcome:
        """The outcome of a case."""
        return self.bench.run(case)


def place(ranks: int, rank: int | None = None, step: int | None = None, name: str = "") -> str:
    """Where something was seen: ``3 ranks, rank 1, step 7, 'gain'``."""
    parts = [f"{ranks} ranks"]
    if rank is not None:
        parts.append(f"rank {rank}")
    if step is not None:
        parts.append(f"step {step}")
    if name:
        parts.append(repr(name))
    return ", ".join(parts)


def stopped(probe: str, outcome: Outcome, what: str = "", do: str = "") -> Finding:
    """The finding that a run did not come to its end."""
    number = outcome.case.ranks
    advice = do or "see that all ranks make the same calls in the same order, and that each message has a receiver"
    return failed(probe, f"{place(number)}: {what}{outcome.why()}", advice)


def unlike(one: dict[str, Floats], other: dict[str, Floats]) -> str:
    """The first parameter of which two ranks hold other bits; empty if there is none."""
    if one.keys() != other.keys():
        return next(iter(one.keys() ^ other.keys()))
    return next((name for name in one if one[name].tobytes() != other[name].tobytes()), "")


def apart(one: dict[str, Floats], other: dict[str, Floats]) -> tuple[float, str]:
    """The largest difference, relative to the largest magnitude in the parameter of ``other``, and in which it is."""
    worst, where = 0.0, ""
    for name, value in other.items():
        scale = float(np.abs(value).max(initial=0.0)) or 1.0
        distance = float(np.abs(one[name].astype(np.float64) - value).max(initial=0.0)) / scale
        # What is no number is as far away as can be.
        if not distance <= worst:
            worst, where = distance if distance == distance else float("inf"), name
    return worst, where


def evaluated(trace: Trace) -> dict[str, Floats]:
    """What is evaluated on a rank."""
    return trace.final if trace.averaged is None else trace.averaged


def alike(probe: str, first: Outcome, second: Outcome, what: str, do: str = "") -> Finding | None:
    """The finding that two runs end with other bits; ``None`` where they do not."""
    for outcome in (first, second):
        if outcome.error is not None:
            return stopped(probe, outcome)
    for one, other in zip(first.workers, second.workers, strict=True):
        name = unlike(one.final, other.final) or unlike(evaluated(one), evaluated(other))
        if name:
            where = place(first.case.ranks, one.rank, None, name)
            found = f"{where}: {what} ends with other bits"
            return failed(probe, found, do or "let nothing but seed, step and rank decide what is computed")
    return None
