"""What summaries of benchmarks share: comparing times by process, ceilings of several records, and their doubts.

The replicate is the process, so what is compared is one value a process; over several comparisons FASTER
and SLOWER must survive Holm's correction for their number. Processes that were looked at again and again
(``--until-clear``) have intervals as wide as that asks for, and their correction is Bonferroni's, which holds at every
look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from levelbench.measure.sequential import seen_at_looks
from levelbench.measure.statistics import holm, paired_log_ratio, welch_log_ratio
from levelbench.measure.verdict import CLOCK_STEP_S, LEAST_RUNS, Verdict, VerdictKind, verdict

__all__ = [
    "PAIRS_NEED",
    "Pair",
    "Share",
    "largest_ceilings",
    "pair",
    "planned_effect",
    "share_of",
    "told_doubts",
    "verdicts",
]

PAIRS_NEED = 5
"""Processes from which pairs are compared: with fewer, t of so few pairs costs more than pairing gains."""


class _PlannedHeader(Protocol):
    @property
    def planned_effect(self) -> float | None: ...


class _Planned(Protocol):
    @property
    def header(self) -> _PlannedHeader: ...


@dataclass(frozen=True)
class Share:
    """The time that the ceilings allow as a share of that taken; ``bound`` is the ceiling that is nearer."""

    value: float
    bound: Literal["compute", "memory"]


@dataclass(frozen=True)
class Pair:
    """Times of two arms, one a process; paired where the processes of equal number are compared.

    ``effect`` is what looks at them were planned for, if there was more than one.
    """

    a: list[float]
    b: list[float]
    paired: bool
    effect: float | None = None

    @property
    def p_value(self) -> float:
        """Of the hypothesis that both take the same time; 1 where there are too few values for a test."""
        if min(len(self.a), len(self.b)) < LEAST_RUNS:
            return 1.0
        return (paired_log_ratio if self.paired else welch_log_ratio)(self.a, self.b, resolution=CLOCK_STEP_S).p_value

    def verdict(self, margin: float, level: float) -> Verdict:
        """Of the second against the first."""

        def judge(count: int | None, at: float) -> Verdict:
            a, b = self.a[:count], self.b[:count]
            return verdict(a, b, margin=margin, level=at, paired=self.paired, resolution=CLOCK_STEP_S)

        if self.effect is None:
            return judge(None, level)
        return seen_at_looks(judge, min(len(self.a), len(self.b)), self.effect, level)


def pair(a: Mapping[int, float], b: Mapping[int, float], effect: float | None = None) -> Pair:
    """Both mappings, times by the number of the process, are in the order of their keys; ``effect`` as in ``Pair``."""
    return Pair(list(a.values()), list(b.values()), a.keys() == b.keys() and len(a) >= PAIRS_NEED, effect)


def planned_effect(records: Iterable[_Planned]) -> float | None:
    """The smallest effect that looks at any of these were planned for; ``None`` where there was one look."""
    return min((effect for each in records if (effect := each.header.planned_effect)), default=None)


def verdicts(pairs: Mapping[int, Pair], level: float, margin: float, what: str = "problems") -> dict[int, Verdict]:
    """The verdict of each pair, corrected for how many there are; ``what`` names them in the reason."""
    adjusted = dict(zip(pairs, holm([each.p_value for each in pairs.values()]), strict=True))
    found = {}
    for at, each in pairs.items():
        judged = each.verdict(margin, level)
        if judged.kind not in (VerdictKind.FASTER, VerdictKind.SLOWER):
            survives = True
        elif each.effect is None:
            survives = adjusted[at] <= 1 - level
        else:
            survives = each.verdict(margin, 1 - (1 - level) / len(pairs)).kind == judged.kind
        if not survives:
            method = "Holm" if each.effect is None else "Bonferroni"
            reason = f"{judged.kind} alone, but not among {len(pairs)} {what} ({method})"
            judged = replace(judged, kind=VerdictKind.UNCLEAR, reason=reason)
        found[at] = judged
    return found


def largest_ceilings(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The largest of each kind: a ceiling that was reached once is one."""
    best: dict[str, Any] = {"flop_s": {}, "bandwidth_b_s": {}}
    for each in found:
        for kind, limits in best.items():
            for name, limit in each.get(kind, {}).items():
                if name not in limits or limit["value"] > limits[name]["value"]:
                    limits[name] = limit
    return best


def told_doubts(name: str, suspects: Sequence[Sequence[str]]) -> list[str]:
    """The first process's doubts, and in how many of them there were any: their figures differ, not their sense."""
    doubtful = [each for each in suspects if each]
    shown = doubtful[0] if doubtful else []
    return [f"{name}, {len(doubtful)} of {len(suspects)} processes: {doubt}" for doubt in shown]


def share_of(
    flops: float | None, moved: float | None, time_s: float, dtype: str, ceilings: Mapping[str, Any]
) -> Share | None:
    """The least time that the ceilings allow as a share of ``time_s``; ``None`` where something is unknown."""
    if flops is None or moved is None or time_s <= 0:
        return None
    limits = {
        "compute": (flops, ceilings.get("flop_s", {}).get(dtype)),
        "memory": (moved, ceilings.get("bandwidth_b_s", {}).get("triad")),
    }
    if any(amount and limit is None for amount, limit in limits.values()):
        return None
    least = {name: amount / limit["value"] if amount and limit else 0.0 for name, (amount, limit) in limits.items()}
    bound: Literal["compute", "memory"] = "compute" if least["compute"] >= least["memory"] else "memory"
    return Share(least[bound] / time_s, bound) if least[bound] > 0 else None
