"""Results of node tests, counted by operator."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["STATUSES", "Result", "Tally", "tally"]

STATUSES = ("passed", "wrong", "unsupported", "upstream")


@dataclass(frozen=True)
class Result:
    """How a test ended: ``passed``, ``wrong``, ``unsupported``, or ``upstream`` (by a known fault of the framework).

    ``detail`` says what was found, or what is not supported.
    """

    name: str
    operator: str
    status: str
    detail: str = ""


@dataclass(frozen=True)
class Tally:
    """Counts by status, of all tests and by operator, and the results behind them."""

    framework: str
    results: tuple[Result, ...]
    total: dict[str, int] = field(default_factory=dict)
    by_operator: dict[str, dict[str, int]] = field(default_factory=dict)

    def of(self, status: str) -> list[Result]:
        """The results that ended so."""
        return [each for each in self.results if each.status == status]

    def to_dict(self) -> dict[str, Any]:
        """JSON-serialisable."""
        return asdict(self)


def tally(framework: str, results: Iterable[Result]) -> Tally:
    """The counts of ``results``."""
    kept = tuple(results)
    by_operator = {name: dict.fromkeys(STATUSES, 0) for name in sorted({each.operator for each in kept}, key=str.lower)}
    total = dict.fromkeys(STATUSES, 0)
    for each in kept:
        by_operator[each.operator][each.status] += 1
        total[each.status] += 1
    return Tally(framework, kept, total, by_operator)
