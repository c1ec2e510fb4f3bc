"""The stale-synchronous parameter server: asynchronous, but nobody gets further ahead of the slowest than a bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from levelbench.distributed.schemes.asynchronous import ServedScheme
from levelbench.training.optimizers import checks

__all__ = ["StaleSynchronous"]


@final
@dataclass(frozen=True)
class StaleSynchronous(ServedScheme):
    """As ``async-parameter-server``, but a worker that has made c steps is answered once all have made c - ``stale``.

    So it trains on parameters that hold all workers' updates of their first c - ``stale`` steps; ``lag`` never exceeds
    ``stale``, and ``staleness`` never (workers - 1)(2 stale + 1). With ``stale=0`` all go in lockstep, and plain SGD is
    that of one process to rounding. Evaluated and noted is the same.
    """

    stale: int = 3

    name: ClassVar[str] = "stale-synchronous"
    aliases: ClassVar[tuple[str, ...]] = ("ssp",)
    source: ClassVar[str] = "Ho et al. 2013, More Effective Distributed ML via a Stale Synchronous Parallel Server"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.at_least(self, 0, "stale")

    @property
    def bound(self) -> int:
        """``stale``."""
        return self.stale
