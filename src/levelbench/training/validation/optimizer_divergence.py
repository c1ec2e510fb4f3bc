"""How far two optimizers part, step by step: the trajectory divergence of the Deep500 paper's study of Adam.

The one idea: in float64 two ways to write the same update differ by 1e-15 a step, and two updates that are not the same
by far more, so the tolerance need not be guessed. In float32 each rounds differently, and the reference's own distance
from its float64 self says how much that may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.training.validation.optimizer_runs import Run

__all__ = ["NATIVE_TOLERANCE", "TOLERANCE", "Divergence", "divergence"]

TOLERANCE = 1e-9
"""Of float64, relative to the largest magnitude that the parameter has on its way."""

NATIVE_TOLERANCE = 1e-7
"""Beside a framework's own optimizer, which may keep a number in float32 (the momentum of ``torch.optim.NAdam``)."""


@dataclass(frozen=True, eq=False)
class Divergence:
    """L2 and L∞ of the difference after each step, from the first.

    L2 is relative to the norm of all parameters of the reference at that step; L∞ to the largest magnitude that the
    parameter in question has anywhere on the reference's way. ``first`` is the first step at which L∞ is above
    ``tolerance``, and ``where`` the parameter.
    """

    problem: str
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    tolerance: float
    first: int | None
    where: str

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "problem": self.problem,
            "tolerance": self.tolerance,
            "first": self.first,
            "where": self.where,
            "l2": self.l2.tolist(),
            "linf": self.linf.tolist(),
        }


def divergence(problem: str, ours: Run, theirs: Run, tolerance: float = TOLERANCE) -> Divergence:
    """The difference of two runs of the same steps; NaN in both is agreement, in one an infinite difference."""
    names = [name for name, each in theirs.values[0].items() if each.size]
    sizes = {name: _largest(theirs, name) for name in names}
    l2, linf, where = [], [], []
    for left, right in zip(ours.values[1:], theirs.values[1:], strict=True):
        apart = {name: _apart(left[name], right[name]) for name in names}
        relative = {name: float(apart[name].max()) / sizes[name] for name in names}
        worst = max(relative, key=lambda name: relative[name], default="")
        linf.append(relative.get(worst, 0.0))
        where.append(worst)
        norm = _norm([right[name] for name in names])
        length = _norm(list(apart.values()))
        l2.append(length / norm if norm else length)
    above = np.flatnonzero(np.array(linf) > tolerance)
    first = int(above[0]) if above.size else None
    return Divergence(
        problem,
        np.array(l2),
        np.array(linf),
        tolerance,
        None if first is None else first + 1,
        "" if first is None else where[first],
    )


def _largest(run: Run, name: str) -> float:
    finite = [np.abs(each[name][np.isfinite(each[name])]).max(initial=0) for each in run.values]
    return float(max(finite)) or 1.0


def _apart(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.float64]:
    a, b = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    # The difference of two equal infinities is NaN, too.
    same = (np.isnan(a) & np.isnan(b)) | (a == b)
    return np.asarray(np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference)))


def _norm(arrays: list[NDArray[Any]]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum(float(np.sum(each.astype(np.float64) ** 2)) for each in arrays)))
