"""Steps by worker, as a server counts them.

The one idea: the slowest is looked for only when the last of the slowest has gone on, as a look at thousands of workers
for each push would take longer than the push.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

__all__ = ["StepCounts"]


@final
class StepCounts:
    """The steps that each worker has ``made``, and those of the ``slowest``."""

    def __init__(self, made: Iterable[int]) -> None:
        self.made = list(made)
        self._find_slowest()

    def count(self, worker: int) -> int:
        """One more of a worker; how many that makes."""
        before = self.made[worker]
        self.made[worker] = before + 1
        if before == self.slowest:
            self._behind -= 1
            if not self._behind:
                self._find_slowest()
        return before + 1

    def _find_slowest(self) -> None:
        self.slowest = min(self.made)
        self._behind = self.made.count(self.slowest)
