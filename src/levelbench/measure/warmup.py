"""Finds where warm-up ends, from the values themselves.

A longer cut removes bias and a shorter one keeps data; the marginal standard error rule (MSER-5) takes the cut after
which the mean of the rest is known best. We apply it to values clipped to a robust range, so that one interruption late
in a sample is not mistaken for a change, and accept the cut only if the head really differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError

Values = NDArray[np.float64]

_BATCH: Final = 5
_BATCHED_FROM: Final = 50
_MSER_FROM: Final = 20
_CLIP: Final = 6.0
_STANDARD_ERRORS: Final = 4.0
_LEAST_SHARE: Final = 0.005
_MAD_TO_SD: Final = 1.4826
_MEDIAN_ERROR: Final = 1.2533
_DRIFT_ERRORS: Final = 2.0


@dataclass(frozen=True)
class WarmupCut:
    """How many values to cut from the front, and why in words. ``settled`` is false where no steady state was found."""

    cut: int
    reason: str
    settled: bool = True


@dataclass(frozen=True)
class WarmupRule:
    """How many of the first values are warm-up: the caller's ``cut``, or what :func:`find_warmup` finds."""

    cut: int | None = None

    @property
    def least(self) -> int:
        """How many values there must be before it is worth asking: one always stays."""
        return 0 if self.cut is None else self.cut + 1

    def find(self, values: Values) -> WarmupCut:
        """The cut for ``values``, shape (n,), seconds in order of measurement."""
        if self.cut is None:
            return find_warmup(values)
        cut = min(self.cut, max(len(values) - 1, 0))
        asked = "as asked" if cut == self.cut else f"of {self.cut} asked for: there are only {len(values)}"
        return WarmupCut(cut, f"{cut} value{'s' * (cut != 1)} cut {asked}")


def warmup_rule(wanted: str | int) -> WarmupRule:
    """The rule for ``"auto"`` or for a number of values; ``UsageError`` for anything else."""
    if wanted == "auto":
        return WarmupRule()
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0:
        return WarmupRule(wanted)
    raise UsageError("a warm-up", f"{wanted!r} is neither 'auto' nor a number of values", "give 'auto' or 0, 1, 2, ...")


def find_warmup(values: Values) -> WarmupCut:
    """How many of the first ``values``, shape (n,), are warm-up: at most half of them, never all.

    Two rules, on values clipped to median +- 6 robust standard deviations of the second half. First, the leading values
    beyond these limits are cut, for example a slow first call. From the rest, MSER-5 (White 1997, Simulation 69(6);
    White, Cobb & Spratt 2000, WSC) cuts more, on batch means of five from fifty values on and on single values from
    twenty on, if the mean of what it cuts differs from the rest's median by four standard errors and by 0.5 %. If the
    minimum is at the last possible cut and the second half is still moving, the values drift, which no cut cures: then
    nothing is cut and ``settled`` is false.
    """
    n = len(values)
    if n < 4:
        return WarmupCut(0, "too few values to tell warm-up from noise")
    later = values[n // 2 :]
    centre = float(np.median(later))
    deviation = _MAD_TO_SD * float(np.median(np.abs(later - centre)))
    # The deviation of few values is often far too small by chance: three may agree within a third of it.
    spread = max(deviation * (1.0 + 3.0 / len(later)), _LEAST_SHARE * abs(centre) / _CLIP)
    clipped = np.clip(values, centre - _CLIP * spread, centre + _CLIP * spread)
    run = min(_leading_run(np.abs(values - centre) > _CLIP * spread), n // 2)
    tail, at_bound = _mser(clipped[run:], spread, n // 2 - run)
    if (at_bound or run == n // 2) and _still_moving(clipped[n // 2 :], spread):
        change = float(np.median(values[: n // 2])) / centre - 1.0
        return WarmupCut(
            0, f"nothing cut: the values drift, the first half is {change:+.1%} off the second", settled=False
        )
    head = run + tail
    if head == 0:
        return WarmupCut(0, "none found: the first values agree with the later ones")
    change = float(np.median(values[:head])) / centre - 1.0
    rule = "MSER-5" if tail else f"beyond {_CLIP:g} robust standard deviations"
    return WarmupCut(head, f"the first {head} of {n} values are {change:+.1%} off the rest ({rule})")


def _mser(values: Values, spread: float, most: int) -> tuple[int, bool]:
    """MSER's cut of at most ``most`` values (0 if it makes no difference), and whether its minimum is the last one."""
    n = len(values)
    if n < _MSER_FROM or most <= 0:
        return 0, False
    batch = _BATCH if n >= _BATCHED_FROM else 1
    batches = values[: n - n % batch].reshape(-1, batch).mean(axis=1)
    last = most // batch
    best = int(np.argmin(_marginal_standard_error(batches)[: last + 1]))
    cut = best * batch
    accepted = cut > 0 and _differs(values[:cut], values[cut:], spread)
    return (cut if accepted else 0), last > 0 and best == last


def _leading_run(outside: NDArray[np.bool_]) -> int:
    """How many of the first entries are true without a break."""
    return len(outside) if outside.all() else int(np.argmin(outside))


def _marginal_standard_error(batches: Values) -> Values:
    """MSER statistic of each cut d < k: sum of squares about the mean of the k - d later batches over (k - d)^2."""
    left = np.arange(len(batches), 0, -1)
    centred = batches - batches.mean()
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum(centred[::-1] ** 2)[::-1]
    statistic: Values = np.maximum(squares - sums**2 / left, 0.0) / left**2
    return statistic


def _differs(head: Values, rest: Values, spread: float) -> bool:
    """Whether the head differs from the rest by more than chance and by more than is negligible."""
    centre = float(np.median(rest))
    off = abs(float(head.mean()) - centre)
    return bool(off > _STANDARD_ERRORS * spread / np.sqrt(len(head)) and off > _LEAST_SHARE * abs(centre))


def _still_moving(later: Values, spread: float) -> bool:
    """Whether the two halves of ``later`` differ as well, so that the change had not ended before it."""
    middle = len(later) // 2
    if middle == 0:
        return False
    off = abs(float(np.median(later[:middle])) - float(np.median(later[middle:])))
    error = _MEDIAN_ERROR * spread * np.sqrt(1.0 / middle + 1.0 / (len(later) - middle))
    return bool(off > _DRIFT_ERRORS * error)
