"""What a stopping rule is, and how rules join: ``|`` is any of them, ``&`` all.

A rule is a pure function of the values so far and the time spent, so the same rules govern calls inside a
process and processes, and are tested without waiting. The rules themselves are in ``stopping``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["AllOf", "AnyOf", "Check", "Progress", "StoppingRule"]

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Progress:
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
    def check(self, progress: Progress) -> Check:
        """Whether to stop now."""

    @abstractmethod
    def more(self, progress: Progress) -> int:
        """How many more values (at least 1) before it is worth checking again."""

    @property
    def bounded(self) -> bool:
        """Whether the rule is sure to be met some day."""
        return self.ends_surely

    def __or__(self, other: StoppingRule) -> StoppingRule:
        return AnyOf((*_parts(AnyOf, self), *_parts(AnyOf, other)))

    def __and__(self, other: StoppingRule) -> StoppingRule:
        return AllOf((*_parts(AllOf, self), *_parts(AllOf, other)))


@dataclass(frozen=True)
class AnyOf(StoppingRule):
    """Met when any of ``rules`` is. If all that is met is a budget, the text says what stayed unmet."""

    rules: tuple[StoppingRule, ...]

    def check(self, progress: Progress) -> Check:
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

    def more(self, progress: Progress) -> int:
        """The soonest of the parts."""
        return min(rule.more(progress) for rule in self.rules)

    @property
    def bounded(self) -> bool:
        """Whether any part is."""
        return any(rule.bounded for rule in self.rules)


@dataclass(frozen=True)
class AllOf(StoppingRule):
    """Met when all of ``rules`` are."""

    rules: tuple[StoppingRule, ...]

    def check(self, progress: Progress) -> Check:
        """Met when every part is; the text is of the parts that decide."""
        found = [rule.check(progress) for rule in self.rules]
        unmet = [check.text for check in found if not check.met]
        return Check(not unmet, " and ".join(unmet or [check.text for check in found]))

    def more(self, progress: Progress) -> int:
        """The latest of the parts that are not yet met."""
        return max((rule.more(progress) for rule in self.rules if not rule.check(progress).met), default=1)

    @property
    def bounded(self) -> bool:
        """Whether all parts are."""
        return all(rule.bounded for rule in self.rules)


def _parts(kind: type[AnyOf] | type[AllOf], rule: StoppingRule) -> tuple[StoppingRule, ...]:
    return rule.rules if isinstance(rule, kind) else (rule,)
