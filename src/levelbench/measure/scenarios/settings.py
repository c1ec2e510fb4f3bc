"""The five scenarios as data: what is issued when, how long, and what makes a run valid.

A scenario is a frozen description, so a run, its repetition in an audit and the search for the peak rate
use the very same one. The defaults are those of LoadGen's library (10 s, 100 queries); MLPerf's rules ask for 600 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Final

from levelbench.errors import UsageError

RULES_DURATION_S: Final = 600.0
"""The least duration under MLPerf's rules; pass it as ``min_duration_s`` for a run of that length."""

Setting = int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What all scenarios share; abstract.

    A run goes on until ``min_duration_s`` and ``min_queries`` are both reached, and ends before that at
    ``max_duration_s`` or ``max_queries`` (``None``: no limit). ``warmup_queries`` come first and are not on the clock.
    A system from which nothing is heard for ``timeout_s`` while answers are due has lost them.
    """

    min_duration_s: float = 10.0
    min_queries: int = 100
    max_duration_s: float | None = None
    max_queries: int | None = None
    warmup_queries: int = 10
    timeout_s: float = 120.0

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))
        share = self.percentile
        if share is not None and not 0.0 < share < 1.0:
            found = f"{share} is not between 0 and 1"
            raise UsageError(f"{self.name}(quantile={share})", found, "give a share such as 0.99")

    @property
    def percentile(self) -> float | None:
        """The ``quantile`` of the latencies that the scenario reports or bounds; ``None`` where it has none."""
        return getattr(self, "quantile", None)

    @property
    def stride(self) -> int:
        """Samples a query."""
        return 1

    def settings(self) -> dict[str, Setting]:
        """All settings by name, as they go into a record."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _check(self, name: str, value: Setting) -> None:
        if value is None or isinstance(value, str):
            return
        low = 0 if name in {"min_duration_s", "warmup_queries"} else math.ulp(0.0)
        if not (math.isfinite(value) and value >= low):
            what = "zero or more" if low == 0 else "above zero"
            raise UsageError(f"{self.name}({name}={value})", f"{name} must be finite and {what}", f"change {name}")


@dataclass(frozen=True, kw_only=True)
class SingleStream(Scenario):
    """One sample at a time, the next when the last is answered. Result: the ``quantile`` of the latency."""

    quantile: float = 0.9
    name: ClassVar[str] = "single-stream"


@dataclass(frozen=True, kw_only=True)
class MultiStream(Scenario):
    """``samples_per_query`` samples at a time; a query's latency is that of its last sample. Result: its ``quantile``.

    ``min_queries`` is what early stopping needs for the 99th percentile.
    """

    samples_per_query: int = 8
    quantile: float = 0.99
    min_queries: int = 662
    name: ClassVar[str] = "multi-stream"

    @property
    def stride(self) -> int:
        """``samples_per_query``."""
        return self.samples_per_query


@dataclass(frozen=True, kw_only=True)
class Server(Scenario):
    """Poisson arrivals at ``qps`` a second, whatever is still open. Valid if ``quantile`` of latencies is in bound.

    A latency counts from the scheduled arrival, so a late issue counts as well. ``workers`` threads call a system that
    answers at once; a system with ``issue`` brings its own.
    """

    qps: float
    bound_s: float
    quantile: float = 0.99
    workers: int = 1
    name: ClassVar[str] = "server"


@dataclass(frozen=True, kw_only=True)
class Offline(Scenario):
    """All samples in one query. Result: samples a second, over the latency of the last.

    The query has ``min_samples`` at least (default: 24,576 or the set, whichever is less), and 10 % more than
    ``expected_per_s`` promises for ``min_duration_s``. Without it the rate is found first, off the clock, and once more
    from the run itself where that was too short. A system that answers at once is called with ``batch`` samples at a
    time (default: all), and the query is a multiple of them.
    """

    expected_per_s: float | None = None
    min_samples: int | None = None
    batch: int | None = None
    min_queries: int = 1
    warmup_queries: int = 1
    name: ClassVar[str] = "offline"


@dataclass(frozen=True, kw_only=True)
class DawnBench(Scenario):
    """Every sample of the set once, in order, one at a time. Result: the mean latency (DAWNBench, inference)."""

    min_duration_s: float = 0.0
    min_queries: int = 1
    name: ClassVar[str] = "dawnbench"
