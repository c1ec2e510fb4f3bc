"""What a clock policy leaves on the clock, in the words of the view.

The one idea: a policy of ours says it by its phases; only what a phase holds is stated, and where some work may lie in
a phase that is off the clock, nothing is said of it.
"""

from __future__ import annotations

from typing import Any

from levelbench.claims.view import ClockView
from levelbench.measure.policies import POLICIES, ClockPolicy
from levelbench.measure.timeline import Phase

__all__ = ["clock_of"]

_CROSSINGS = ("first", "confirmed", "sustained", "final", "interpolated")


def clock_of(
    name: str | None, crossing: str | None, *, initialised_s: float = 0.0, fixed_time_s: float | None = None
) -> ClockView:
    """The view of a policy and a crossing rule; of a clock that we do not know its name alone.

    ``initialised_s`` are seconds of preparation that the policy left out: data may have been read in them.
    """
    known: Any = crossing if crossing in _CROSSINGS else None
    chosen = POLICIES.get(name or "")
    if chosen is None:
        return ClockView(policy=name, crossing=known, fixed_time_s=fixed_time_s)
    return ClockView(
        policy=chosen.name,
        whole=True,
        initialisation=_counts(chosen, Phase.PREPARE),
        compilation=_counts(chosen, Phase.COMPILE),
        data=_counts(chosen, Phase.DATA) if initialised_s <= 0 else None,
        evaluation=_counts(chosen, Phase.EVALUATE),
        checkpoints=_counts(chosen, Phase.CHECKPOINT),
        communication=_counts(chosen, Phase.COMMUNICATE),
        crossing=known,
        fixed_time_s=fixed_time_s,
    )


def _counts(chosen: ClockPolicy, phase: Phase) -> bool:
    return phase not in chosen.excluded and phase not in chosen.capped
