"""How well an operator repeats itself: bit for bit over many runs, and where not, by how much and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.validation.metrics import ulp_distance
from levelbench.operators.validation.subject import subject_of

__all__ = ["Repeatability", "repeatability"]


@dataclass(frozen=True)
class Repeatability:
    """``identical`` of ``runs`` equal the first bit for bit.

    ``variance`` has an array an output, of its shape: the variance over the runs (ddof 1, float64; NaN where a run was
    not finite), ``None`` for an output that is left out. ``ulp`` is the most that any run lies from the first.
    """

    runs: int
    identical: int
    variance: tuple[NDArray[np.float64] | None, ...]
    ulp: float

    @property
    def bitwise(self) -> bool:
        """Whether all runs are equal."""
        return self.identical == self.runs

    def worst(self) -> tuple[float, str]:
        """The largest variance, and where it is: the output and the index."""
        most, where = 0.0, "nowhere"
        for at, each in enumerate(self.variance):
            if each is not None and each.size and (largest := float(np.nan_to_num(each, nan=np.inf).max())) > most:
                index = np.unravel_index(int(np.argmax(np.nan_to_num(each, nan=np.inf))), each.shape)
                most, where = largest, f"output {at}, index {tuple(int(i) for i in index)}"
        return most, where

    def to_dict(self) -> dict[str, Any]:
        """JSON types only: of the variances, the largest."""
        largest = [None if each is None else float(each.max(initial=0.0)) for each in self.variance]
        return {"runs": self.runs, "identical": self.identical, "ulp": self.ulp, "largest_variance": largest}


def repeatability(
    operator: Any, inputs: Sequence[Any], *, runs: int = 100, backend: OperatorBackend | None = None, name: str = ""
) -> Repeatability:
    """The operator on the same inputs, ``runs`` times (at least 2)."""
    if runs < 2:
        raise UsageError(f"repeatability over {runs} runs", "one run repeats nothing", "give at least 2")
    subject = subject_of(operator, backend, name=name)
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    first = subject.forward(arrays)
    # Deviations from the first run are summed, not values: runs that agree have a variance of exactly zero.
    sums = [None if each is None else np.zeros((2, *each.shape)) for each in first]
    identical, ulp = 1, 0.0
    for _ in range(runs - 1):
        same = True
        for total, base, found in zip(sums, first, subject.forward(arrays), strict=True):
            if base is None or found is None or total is None:
                continue
            if base.shape != found.shape:
                what = f"a run answers with the shape {found.shape}, the first with {base.shape}"
                raise UsageError(f"repeatability of {subject.name}", what, "check its determinism first")
            if base.tobytes() == found.tobytes():
                continue
            same = False
            with np.errstate(all="ignore"):
                apart = found.astype(np.float64) - base.astype(np.float64)
            total[0] += apart
            total[1] += apart**2
            distance = ulp_distance(found, base)
            ulp = max(ulp, float(distance.max(initial=0.0)) if distance is not None else np.inf)
        identical += same
    variance = tuple(
        None if each is None else np.maximum(0.0, (each[1] - each[0] ** 2 / runs) / (runs - 1)) for each in sums
    )
    return Repeatability(runs, identical, variance, ulp)
