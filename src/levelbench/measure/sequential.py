"""Looking repeatedly until a verdict is clear, with the rate of false alarms kept at its level.

Looking at an ordinary 95 % interval after every few runs and stopping at the first clear one gives a false alarm in one
comparison out of five. Here the error is spent over the looks (Lan & DeMets 1983, Biometrika 70:659): at each look the
interval is so wide that all intervals together hold at their level (Jennison & Turnbull 1989, JRSS B 51:305), so that
FASTER, SLOWER and SAME can all be read from it.

The looks are planned for an effect. The first is at five runs an arm; their spread says how many runs would show that
effect with 90 % power, and most of the error is spent up to there, in proportion to the runs. A tenth is left for going
on beyond the plan, which smaller effects and SAME need. benchmarks/belief.py measures the error rates and the runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.statistics import normal_cdf, normal_quantile, t_quantile
from levelbench.measure.statistics.values import check_share
from levelbench.measure.verdict import Verdict

__all__ = ["FIRST_LOOK", "Looks", "deviation_of", "looks_at", "seen_at_looks"]

FIRST_LOOK = 5
"""Runs of each arm at the first look."""

_POWER = 0.9
_INFLATION = 1.1
"""Factor on the runs, at most, by which repeated looks match the power of one look at a fixed number of runs."""

_AT_FIRST, _BEYOND = 0.1, 0.1
"""Shares of the error for the first look, and for the looks beyond the plan."""

_SPENT = 0.78
"""Share of the error that is spent: with few runs, the t intervals of successive looks cross a little more often than
the Brownian motion from which their levels are computed. Found by simulation; a simulation in the tests checks it."""

_GRID = 401
_Grid = NDArray[np.float64]


def looks_at() -> Iterator[int]:
    """The numbers of runs of each arm at which to look: 5, 7, 9, 11, 13, 16, 20, 25, ..., each a quarter more."""
    n = FIRST_LOOK
    while True:
        yield n
        n += max(2, n // 4)


def deviation_of(found: Verdict) -> float | None:
    """The standard deviation of a pair's log ratio, from a verdict's interval; ``None`` if it has no interval."""
    if found.low is None or found.high is None or found.high <= found.low:
        return None
    n = min(found.n_a, found.n_b)
    return math.log(found.high / found.low) / (2.0 * t_quantile(0.5 + 0.5 * found.level, n - 1)) * math.sqrt(n)


class Looks:
    """The looks at one comparison, planned for a relative difference of ``effect`` at the error 1 - ``level``.

    ``deviation`` is the standard deviation of a pair's log ratio at the first look (:func:`deviation_of`); ``None``
    plans for 64 runs. ``ValueError`` for an effect that is not above zero or a level not between 0 and 1.
    """

    def __init__(self, effect: float, level: float = 0.95, deviation: float | None = None) -> None:
        check_share("the level", level)
        if not (math.isfinite(effect) and effect > 0.0):
            raise ValueError(f"the effect to plan for must be above zero, not {effect}")
        self.level = level
        self.planned = 64
        if deviation is not None:
            z = normal_quantile(0.5 + 0.5 * level) + normal_quantile(_POWER)
            runs = _INFLATION * (z * deviation / math.log1p(effect)) ** 2 + 2.0
            # Rounded up to an eighth of the next power of two, so that there are few plans.
            step = max(1, 2 ** (math.ceil(math.log2(max(runs, 8.0))) - 3))
            self.planned = int(min(max(FIRST_LOOK, math.ceil(runs / step) * step), 4096))

    @staticmethod
    def last_before(n: int) -> tuple[int, int]:
        """The runs and the number of the last look at ``n`` or fewer runs of each arm; at least the first look."""
        count, at = 1, FIRST_LOOK
        for count, at in enumerate(takewhile(lambda runs: runs <= max(n, FIRST_LOOK), looks_at()), 1):  # noqa: B007
            pass
        return at, count

    def level_at(self, n: int) -> float:
        """The level of the interval at the look after ``n`` runs of each arm, one of :func:`looks_at`."""
        levels, known = _plan(self.planned, round(1.0 - self.level, 12))
        while n not in known:
            at, level = next(levels)
            if at > n:
                raise ValueError(f"there is no look at {n} runs")
            known[at] = level
        return known[n]


def seen_at_looks(judge: Callable[[int | None, float], Verdict], n: int, effect: float, level: float) -> Verdict:
    """The verdict on ``n`` runs of each arm that were looked at repeatedly, planned for ``effect``.

    ``judge`` gives the verdict on the first so many runs (``None``: all) at a level. The interval is as wide as
    repeated looks require, for every reader of the record.
    """
    looks = Looks(effect, level, deviation_of(judge(FIRST_LOOK, level)))
    at, count = looks.last_before(n)
    found = judge(None, looks.level_at(at))
    said = f"look {count} of --until-clear: all looks together hold at {level:.3g}"
    return replace(found, runs_to_settle=None, reason=", ".join(filter(None, (found.reason, said))))


@lru_cache(maxsize=1024)
def _plan(planned: int, alpha: float) -> tuple[Iterator[tuple[int, float]], dict[int, float]]:
    return _levels(planned, alpha), {}


def _levels(planned: int, alpha: float) -> Iterator[tuple[int, float]]:
    """Each look and its level: what is spent there is the chance of stopping there and not before.

    Without a difference, the summed log ratios are a Brownian motion in the runs; its density over the paths that no
    look has stopped is carried from look to look on a grid (Armitage, McPherson & Rowe 1969, JRSS A 132:235).
    """
    spent, time, density = 0.0, 0, None
    for n in looks_at():
        if n <= planned:
            share = _AT_FIRST + (1.0 - _AT_FIRST - _BEYOND) * (n - FIRST_LOOK) / max(1, planned - FIRST_LOOK)
        else:
            share = 1.0 - _BEYOND * planned / n
        total = _SPENT * alpha * share
        spend, step = max(total - spent, 1e-9), math.sqrt(n - time)
        edge, density = _first_edge(spend, step) if density is None else _next_edge(density, spend, step)
        yield n, 1.0 - 2.0 * normal_cdf(-edge / math.sqrt(n))
        spent, time = max(spent, total), n


def _first_edge(spend: float, step: float) -> tuple[float, tuple[_Grid, _Grid]]:
    edge = -normal_quantile(spend / 2.0) * step
    grid = np.linspace(-edge, edge, _GRID)
    return edge, (grid, _normal(grid, step) * (grid[1] - grid[0]))


def _next_edge(density: tuple[_Grid, _Grid], spend: float, step: float) -> tuple[float, tuple[_Grid, _Grid]]:
    before, mass = density
    low, high = 0.0, 2.0 * float(before[-1]) + 12.0 * step
    for _ in range(36):
        edge = 0.5 * (low + high)
        tails = [normal_cdf((each - edge) / step) + normal_cdf((-each - edge) / step) for each in before]
        low, high = (edge, high) if float(mass @ np.array(tails)) > spend else (low, edge)
    grid = np.linspace(-high, high, _GRID)
    return high, (grid, (_normal(grid[:, None] - before, step) @ mass) * (grid[1] - grid[0]))


def _normal(x: _Grid, deviation: float) -> _Grid:
    density: _Grid = np.exp(-0.5 * (x / deviation) ** 2) / (deviation * math.sqrt(2.0 * math.pi))
    return density
