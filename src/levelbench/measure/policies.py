"""Clock policies: which phases count towards the score.

All policies read the same timeline, so a score under another policy is a view and needs no new run, and what a policy
leaves out is known to the nanosecond and shown next to the score. ``docs/explanation/which-clock.md`` explains each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from levelbench.errors import UnknownNameError
from levelbench.measure.timeline import Phase

_NS = 1e-9


@dataclass(frozen=True)
class Score:
    """Seconds on a policy's clock, and the seconds of each phase that it left out."""

    seconds: float
    excluded_s: dict[str, float]


@dataclass(frozen=True)
class ClockPolicy:
    """A choice of phases. ``excluded`` never count; ``capped`` count only beyond ``cap_s`` seconds in total."""

    name: str
    excluded: frozenset[Phase]
    capped: frozenset[Phase] = frozenset()
    cap_s: float = 0.0
    source: str = ""

    def score(self, totals_ns: Mapping[str, int]) -> Score:
        """The score of phase totals (nanoseconds by phase name; an unknown name counts)."""
        out = {phase.label: totals_ns.get(phase.label, 0) * _NS for phase in self.excluded}
        free = self.cap_s
        for phase in sorted(self.capped):
            spent = totals_ns.get(phase.label, 0) * _NS
            out[phase.label] = min(spent, free)
            free -= out[phase.label]
        left_out = {name: seconds for name, seconds in out.items() if seconds > 0}
        return Score(sum(totals_ns.values()) * _NS - sum(left_out.values()), left_out)


POLICIES: dict[str, ClockPolicy] = {
    each.name: each
    for each in (
        ClockPolicy("wall", frozenset(), source="everything from the first touch of training data"),
        ClockPolicy(
            "dawnbench",
            frozenset({Phase.EVALUATE, Phase.CHECKPOINT}),
            source="DAWNBench v1.0: data loading, initialisation and training; validation and checkpoints out",
        ),
        ClockPolicy(
            "mlperf",
            frozenset(),
            frozenset({Phase.PREPARE, Phase.COMPILE}),
            cap_s=1800.0,
            source="MLPerf Training, closed division: initialisation out up to 30 minutes, evaluation in",
        ),
        ClockPolicy(
            "algoperf",
            frozenset({Phase.PREPARE, Phase.EVALUATE, Phase.CHECKPOINT, Phase.OTHER}),
            source="AlgoPerf: data selection and updates with compilation; initialisation, evaluation and logging out",
        ),
    )
}


def policy(name: str) -> ClockPolicy:
    """The policy with this name; ``UnknownNameError``, which names the nearest, if there is none."""
    try:
        return POLICIES[name]
    except KeyError:
        raise UnknownNameError("clock policy", name, POLICIES) from None
