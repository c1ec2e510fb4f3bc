"""When to stop sampling: small rules that say why they are met or not, joined by ``|`` (any of them) and ``&`` (all).

Stop when the answer is good enough or no longer gets better, and always set a limit.
``Precision(0.02) | Plateau() | Budget(10)`` reads: until the interval of the median is within +-2 % or no longer
narrows, but no longer than ten seconds. A rule is a pure function of the values so far and the time spent, so the same
rules apply to calls inside a process and to processes, and can be tested without waiting.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.measure.statistics import median_interval

DEFAULT_BUDGET_S: Final = 10.0
INTERVAL_NEEDS: Final = 6

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SampleSoFar:
    """What a rule sees: ``values``, shape (n,), seconds after warm-up, and ``elapsed_s`` since sampling began."""

    values: Values
    elapsed_s: float


@dataclass(frozen=True)
class Check:
    """Whether a rule is met, and in words what it found."""

    met: bool
    text: str


class StoppingRule(ABC):
    """Decides whether there are enough values."""

    ends_surely: ClassVar[bool] = False
    gives_up: ClassVar[bool] = False

    @abstractmethod
    def check(self, progress: SampleSoFar) -> Check:
        """Whether to stop now."""

    @abstractmethod
    def more(self, progress: SampleSoFar) -> int:
        """How many more values (at least 1) before it is worth checking again."""

    @property
    def bounded(self) -> bool:
        """Whether the rule is sure to be met eventually."""
        return self.ends_surely

    def __or__(self, other: StoppingRule) -> StoppingRule:
        return AnyOf((*_parts(AnyOf, self), *_parts(AnyOf, other)))

    def __and__(self, other: StoppingRule) -> StoppingRule:
        return AllOf((*_parts(AllOf, self), *_parts(AllOf, other)))


@dataclass(frozen=True)
class AnyOf(StoppingRule):
    """Met when any of ``rules`` is. If only a budget is met, the text says which rules were not."""

    rules: tuple[StoppingRule, ...]

    def check(self, progress: SampleSoFar) -> Check:
        """Met when any part is."""
        found = [(rule, rule.check(progress)) for rule in self.rules]
        met = [each for each in found if each[1].met]
        if not met:
            return Check(False, " and ".join(check.text for _, check in found))
        text = " and ".join(check.text for _, check in met)
        unmet = [check.text for _, check in found if not check.met]
        if unmet and all(rule.gives_up for rule, _ in met):
            text += f"; unmet: {' and '.join(unmet)}"
        return Check(True, text)

    def more(self, progress: SampleSoFar) -> int:
        """The smallest number of the parts."""
        return min(rule.more(progress) for rule in self.rules)

    @property
    def bounded(self) -> bool:
        """Whether any part is."""
        return any(rule.bounded for rule in self.rules)


@dataclass(frozen=True)
class AllOf(StoppingRule):
    """Met when all of ``rules`` are."""

    rules: tuple[StoppingRule, ...]

    def check(self, progress: SampleSoFar) -> Check:
        """Met when every part is; the text comes from the parts that decide."""
        found = [rule.check(progress) for rule in self.rules]
        unmet = [check.text for check in found if not check.met]
        return Check(not unmet, " and ".join(unmet or [check.text for check in found]))

    def more(self, progress: SampleSoFar) -> int:
        """The largest number of the parts that are not yet met."""
        return max((rule.more(progress) for rule in self.rules if not rule.check(progress).met), default=1)

    @property
    def bounded(self) -> bool:
        """Whether all parts are."""
        return all(rule.bounded for rule in self.rules)


def _parts(kind: type[AnyOf] | type[AllOf], rule: StoppingRule) -> tuple[StoppingRule, ...]:
    return rule.rules if isinstance(rule, kind) else (rule,)


@dataclass(frozen=True)
class FixedCount(StoppingRule):
    """``n`` values."""

    n: int
    ends_surely: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n < 1:
            raise UsageError(
                f"FixedCount({self.n})", "a sample has at least one value", "give a positive number of values"
            )

    def check(self, progress: SampleSoFar) -> Check:
        """Met from ``n`` values on."""
        n = len(progress.values)
        return Check(n >= self.n, f"{n} of {self.n} values")

    def more(self, progress: SampleSoFar) -> int:
        """The number of missing values."""
        return max(1, self.n - len(progress.values))


@dataclass(frozen=True)
class Precision(StoppingRule):
    """The interval of the median lies within +- ``relative`` of the median (Hoefler & Belli, SC15, 4.2.2).

    At least ``least_s`` seconds must have passed as well: values from within one scheduler tick see a single state of
    the machine and agree better than they should.
    """

    relative: float = 0.02
    level: float = 0.95
    least_s: float = 0.05

    def __post_init__(self) -> None:
        _require_positive("Precision", "relative", self.relative)
        _require_level("Precision", self.level)
        if not self.least_s >= 0:
            raise UsageError(
                f"Precision(least_s={self.least_s})", "a time cannot be negative", "give 0 or more seconds"
            )

    def check(self, progress: SampleSoFar) -> Check:
        """Met if the interval exists and is narrow enough."""
        width = half_width(progress.values, self.level)
        if width is None:
            return Check(False, f"no interval yet from {len(progress.values)} values")
        met = width <= self.relative and progress.elapsed_s >= self.least_s
        return Check(met, f"interval of the median +-{width:.2%}, wanted +-{self.relative:.2%}")

    def more(self, progress: SampleSoFar) -> int:
        """As predicted from an interval that narrows with the square root of n."""
        n = len(progress.values)
        width = half_width(progress.values, self.level)
        if width is None:
            return max(1, INTERVAL_NEEDS - n)
        by_width = n * ((width / self.relative) ** 2 - 1.0)
        by_time = n * (self.least_s / progress.elapsed_s - 1.0) if progress.elapsed_s > 0 else 1.0
        return max(1, math.ceil(min(max(by_width, by_time), 1e9)))


@dataclass(frozen=True)
class Plateau(StoppingRule):
    """The interval of the median has stopped narrowing: more values of this kind would not help.

    Four times the values should halve the interval. Met if its width is still at least the share ``stays`` of the width
    from a quarter of the values and of that from half of them, from ``least`` values and ``least_s`` seconds on (before
    that, noise in the width hides it). The usual causes are drift and other programs. After nvbench's rule
    (``stdrel_criterion``), applied to the interval of the median.
    """

    stays: float = 0.85
    least: int = 200
    level: float = 0.95
    least_s: float = 0.1

    def __post_init__(self) -> None:
        if not 0.5 < self.stays <= 1.0:
            found = f"{self.stays} is not in (0.5, 1]: four times the values halve the interval by chance alone"
            raise UsageError(f"Plateau({self.stays})", found, "give a share such as 0.85")
        if self.least < 4 * INTERVAL_NEEDS:
            found = f"a quarter of {self.least} values has no interval"
            raise UsageError(f"Plateau(least={self.least})", found, f"give at least {4 * INTERVAL_NEEDS}")
        _require_level("Plateau", self.level)

    def check(self, progress: SampleSoFar) -> Check:
        """Met if the interval has not narrowed as it should."""
        n = len(progress.values)
        if n < self.least:
            return Check(False, f"{n} values; a plateau is judged from {self.least} on")
        whole, half, quarter = (_width(progress.values[: n // part], self.level) for part in (1, 2, 4))
        stays = whole >= self.stays * quarter and whole >= self.stays * half
        met = stays and progress.elapsed_s >= self.least_s
        said = "stays" if stays else "narrows"
        return Check(met, f"the interval {said}: +-{quarter:.2%} from {n // 4} values, +-{whole:.2%} from {n}")

    def more(self, progress: SampleSoFar) -> int:
        """Up to ``least``, then half as many again."""
        n = len(progress.values)
        return max(1, self.least - n, n // 2)


@dataclass(frozen=True)
class Budget(StoppingRule):
    """At most ``seconds``, but not without an interval if one is affordable.

    Continues until there are ``floor`` values (what an exact interval of a median needs), for up to ``overrun`` times
    the budget: 0.5 s for a call of 200 ms would end with two values and tell nothing.
    """

    seconds: float = DEFAULT_BUDGET_S
    floor: int = INTERVAL_NEEDS
    overrun: float = 10.0
    ends_surely: ClassVar[bool] = True
    gives_up: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_positive("Budget", "seconds", self.seconds)
        if self.floor < 1:
            raise UsageError(f"Budget(floor={self.floor})", "a sample has at least one value", "give 1 or more")
        if not self.overrun >= 1:
            raise UsageError(
                f"Budget(overrun={self.overrun})", "it multiplies the budget", "give a factor of 1 or more"
            )

    def check(self, progress: SampleSoFar) -> Check:
        """Met when the time is spent and the floor is reached or not affordable."""
        spent = progress.elapsed_s >= self.seconds
        enough = len(progress.values) >= self.floor or progress.elapsed_s >= self.overrun * self.seconds
        text = (
            f"budget of {self.seconds:g} s spent" if spent else f"{progress.elapsed_s:.3g} of {self.seconds:g} s spent"
        )
        return Check(spent and enough and len(progress.values) > 0, text)

    def more(self, progress: SampleSoFar) -> int:
        """What the rest of the budget allows at the pace so far."""
        n = len(progress.values)
        if progress.elapsed_s <= 0 or n < self.floor:
            return 1
        return max(1, int(min(n * (self.seconds / progress.elapsed_s - 1.0), 1e9)))


def bounded(rule: StoppingRule, seconds: float = DEFAULT_BUDGET_S) -> StoppingRule:
    """``rule`` itself if it is sure to end, else ``rule | Budget(seconds)``, so that no sampling runs forever."""
    return rule if rule.bounded else rule | Budget(seconds)


def half_width(values: Values, level: float = 0.95) -> float | None:
    """Half the width of the median's exact interval as a share of the median; ``None`` without an interval."""
    if len(values) == 0:
        return None
    interval = median_interval(values.tolist(), level)
    centre = float(np.median(values))
    if interval is None or centre <= 0:
        return None
    return max(interval.high - centre, centre - interval.low) / centre


def _width(values: Values, level: float) -> float:
    width = half_width(values, level)
    return math.inf if width is None else width


def _require_positive(what: str, name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"{what}({name}={value})", f"{name} must be positive and finite", f"give a positive {name}")


def _require_level(what: str, level: float) -> None:
    if not 0 < level < 1:
        raise UsageError(f"{what}(level={level})", "a level is a probability", "give a level such as 0.95")
