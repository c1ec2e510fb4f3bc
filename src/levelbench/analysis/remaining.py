"""How much longer a plan takes: a range that should contain the truth in 80 % of cases.

Runs vary, so the rest of a plan is a sum of unknown times. Each is drawn many times from what is known about it: the
logarithms of the times of its arm's finished runs (with Student's t, since they are few). Before a run has finished, it
is the pace of the current run times the epochs that runs of the other arms took, or any number up to the budget.
`benchmarks/eta.py` replays recorded runs and counts how often the range contains the truth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["RemainingTime"]

Draws = NDArray[np.float64]

_DRAWS = 400
_QUANTILES = (0.1, 0.9)
_ONE_RUN_SPREAD = 0.25
"""Standard deviation of the logarithm of a time that is known from only one run."""
_OTHER_ARM_SPREAD = 0.7
"""The same for a time that is known only from other arms."""
_LEAST_SPREAD, _FEW = 0.03, 30


@dataclass
class RemainingTime:
    """Times of finished runs by arm, in seconds from the start of a process to the start of the next one."""

    to_go: list[int]
    """The arms of the unfinished runs, the current one first."""
    times_s: dict[int, list[float]] = field(default_factory=dict)
    epochs: dict[int, list[float]] = field(default_factory=dict)

    def finished(self, arm: int, time_s: float, epochs: float | None = None, *, planned: bool = True) -> None:
        """Record a run that ended after ``time_s``; ``planned`` says that it was among the unfinished ones."""
        if planned and arm in self.to_go:
            self.to_go.remove(arm)
        if time_s > 0:
            self.times_s.setdefault(arm, []).append(time_s)
        if epochs:
            self.epochs.setdefault(arm, []).append(epochs)

    def range_s(
        self, arm: int, elapsed_s: float, epoch: float | None = None, most_epochs: float | None = None
    ) -> tuple[float, float] | None:
        """The 10 % and 90 % quantiles of the remaining seconds; ``None`` while nothing is known.

        ``arm`` is the arm of the current run, which has taken ``elapsed_s`` so far and is at ``epoch``; ``most_epochs``
        is its budget.
        """
        if not self.to_go:
            return None
        rng = np.random.default_rng(0)
        left = np.zeros(_DRAWS)
        for each, count in Counter(self.to_go).items():
            typical = self._times(each, rng, arm, elapsed_s, epoch, most_epochs)
            if typical is None:
                return None
            noise, later = self._noise(each), count
            if each == arm:
                later -= 1
                left += _rest(typical * np.exp(noise * rng.standard_normal(_DRAWS)), elapsed_s, rng)
            left += typical * _sum_of_runs(later, noise, rng)
        low, high = np.quantile(left, _QUANTILES)
        return float(low), float(high)

    def _noise(self, arm: int) -> float:
        """The run-to-run deviation of the logarithms of one arm's times."""
        deviations = [np.var(np.log(times), ddof=1) for times in self.times_s.values() if len(times) > 1]
        own = self.times_s.get(arm, [])
        if len(own) > 2:
            deviations = [np.var(np.log(own), ddof=1)]
        return max(math.sqrt(float(np.mean(deviations))), _LEAST_SPREAD) if deviations else _ONE_RUN_SPREAD

    def _times(
        self,
        arm: int,
        rng: np.random.Generator,
        current: int,
        elapsed_s: float,
        epoch: float | None,
        most_epochs: float | None,
    ) -> Draws | None:
        """Draws of an arm's typical time, whose uncertainty its runs share; ``None`` if nothing is known."""
        own = self.times_s.get(arm, [])
        if own:
            spread = self._noise(arm) / math.sqrt(len(own))
            return _typical(own) * np.exp(spread * rng.standard_t(max(len(own) - 1, 3), _DRAWS))
        if arm == current and epoch and elapsed_s > 0:
            pace_s = elapsed_s / epoch
            if known := [each for epochs in self.epochs.values() for each in epochs]:
                return pace_s * _typical(known) * np.exp(_ONE_RUN_SPREAD * rng.standard_t(3, _DRAWS))
            most = max(most_epochs or 2 * epoch, epoch)
            return pace_s * np.exp(rng.uniform(math.log(epoch), math.log(most), _DRAWS))
        if others := [each for times in self.times_s.values() for each in times]:
            return _typical(others) * np.exp(_OTHER_ARM_SPREAD * rng.standard_normal(_DRAWS))
        if current != arm:
            this = self._times(current, rng, current, elapsed_s, epoch, most_epochs)
            return None if this is None else this * np.exp(_OTHER_ARM_SPREAD * rng.standard_normal(_DRAWS))
        return None


def _typical(values: Sequence[float]) -> float:
    return math.exp(float(np.mean(np.log(values))))


def _rest(times_s: Draws, elapsed_s: float, rng: np.random.Generator) -> Draws:
    """The rest of the drawn times that exceed the elapsed time; if hardly any do, about a tenth of the elapsed time."""
    longer = times_s[times_s > elapsed_s]
    if len(longer) < _DRAWS // 20:
        return elapsed_s * rng.exponential(0.1, _DRAWS)
    return rng.choice(longer, _DRAWS) - elapsed_s


def _sum_of_runs(count: int, noise: float, rng: np.random.Generator) -> Draws:
    """The sum of the times of ``count`` runs relative to a typical one: log-normal each, a normal sum for many runs."""
    if count <= _FEW:
        whole: Draws = np.exp(noise * rng.standard_normal((count, _DRAWS))).sum(axis=0)
        return whole
    mean = math.exp(noise**2 / 2)
    deviation = mean * math.sqrt(math.expm1(noise**2) * count)
    drawn: Draws = mean * count + deviation * rng.standard_normal(_DRAWS)
    return np.maximum(drawn, 0.0)
