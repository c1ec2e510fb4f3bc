"""Why one side is faster: an exact decomposition of the difference in time to accuracy.

For each run, time to accuracy = samples to target x time per sample, so the ratios of their geometric means multiply
exactly to the ratio of times. The phases of a run sum to its time, so the differences of their arithmetic means sum
exactly to the difference of times. No profiling is needed, so the score is not affected.

Frameworks compile in the first steps and evaluations, so what these took beyond the usual ones is set apart from the
phases in which it happened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from levelbench.measure.statistics import geometric_mean
from levelbench.records import RunGroup, RunSummary

__all__ = ["WARM_UP", "Attribution", "PhaseShare", "WarmUp", "attribute", "counted_phases"]

WARM_UP = "compilation and warm-up"
"""The phase ``compile``, with what the first steps and the first evaluation took beyond the usual ones."""
_COMPILE = "compile"
_NAMED = 4
"""Number of phases named in the text; a report draws all."""


@dataclass(frozen=True)
class PhaseShare:
    """Mean seconds of one phase on each side, up to the target, on the clock."""

    phase: str
    a_s: float
    b_s: float

    @property
    def difference_s(self) -> float:
        """Seconds that b spends in addition."""
        return self.b_s - self.a_s


@dataclass(frozen=True)
class Attribution:
    """``b`` over ``a``, for the runs that reached the target: ``ratio == samples_ratio * time_per_sample_ratio``."""

    ratio: float
    samples_ratio: float
    time_per_sample_ratio: float
    mean_a_s: float
    mean_b_s: float
    phases: tuple[PhaseShare, ...]
    missed: tuple[str, str] | None = None
    """The runs of each side that reached the target, as ``29/30``; ``None`` if all did."""

    def lines(self) -> list[str]:
        """Lines for a terminal: the factors, then the phases with the largest differences."""
        of = f" of the {' and '.join(self.missed)} runs that reached" if self.missed else ""
        factors = (
            f"times{of} {self.ratio:.3g} (geometric means) = samples to target x{self.samples_ratio:.3g} "
            f"· time per sample, fixed costs included, x{self.time_per_sample_ratio:.3g}"
        )
        scale, unit = (1e3, "ms") if max(self.mean_a_s, self.mean_b_s) < 1 else (1.0, "s")
        named = [(each.phase, each.difference_s * scale) for each in self._by_size() if each.difference_s]
        rest = named[_NAMED:] if len(named) > _NAMED + 1 else []
        if rest:
            named = [*named[:_NAMED], (f"{len(rest)} others", sum(size for _, size in rest))]
        parts = [f"{name} {size:+.3g}" for name, size in named]
        means = f"arithmetic means {self.mean_a_s * scale:.4g} -> {self.mean_b_s * scale:.4g} {unit}"
        return [factors, f"{means}: {' · '.join(parts) or 'no phase differs'}"]

    def brief(self) -> str:
        """The factors and the largest difference of a phase, in half a line."""
        scale, unit = (1e3, "ms") if max(self.mean_a_s, self.mean_b_s) < 1 else (1.0, "s")
        most = self._by_size()[0]
        phase = f" ({most.phase} {most.difference_s * scale:+.3g} {unit})" if most.difference_s else ""
        return f"samples to target x{self.samples_ratio:.3g} · time per sample x{self.time_per_sample_ratio:.3g}{phase}"

    def _by_size(self) -> list[PhaseShare]:
        return sorted(self.phases, key=lambda each: -abs(each.difference_s))


def attribute(a: RunGroup, b: RunGroup) -> Attribution | None:
    """Decompose the difference of two groups; ``None`` if no run of one of them reached the target."""
    runs_a, runs_b = _reached(a), _reached(b)
    if not runs_a or not runs_b:
        return None
    samples_a = geometric_mean([float(run.samples_to_target or 0) for run in runs_a])
    samples_b = geometric_mean([float(run.samples_to_target or 0) for run in runs_b])
    times_a = geometric_mean([run.time_to_accuracy_s or 0.0 for run in runs_a])
    times_b = geometric_mean([run.time_to_accuracy_s or 0.0 for run in runs_b])
    warm_up = WarmUp(runs_a, runs_b)
    means_a, means_b = (_means([warm_up.phases_apart(run) for run in runs]) for runs in (runs_a, runs_b))
    counts = f"{len(runs_a)}/{a.n}", f"{len(runs_b)}/{b.n}"
    names = [*means_a, *(name for name in means_b if name not in means_a)]
    return Attribution(
        ratio=times_b / times_a,
        samples_ratio=samples_b / samples_a,
        time_per_sample_ratio=(times_b / samples_b) / (times_a / samples_a),
        mean_a_s=sum(means_a.values()),
        mean_b_s=sum(means_b.values()),
        phases=tuple(PhaseShare(name, means_a.get(name, 0.0), means_b.get(name, 0.0)) for name in names),
        missed=counts if len(runs_a) + len(runs_b) < a.n + b.n else None,
    )


def _reached(group: RunGroup) -> list[RunSummary]:
    return [run for run in group.runs if run.reached and run.time_to_accuracy_s and run.samples_to_target]


class WarmUp:
    """What can be set apart as compilation and warm-up, which is the same on both sides.

    Were it known on one side only, only that one would lose it from its time per sample.
    """

    def __init__(self, runs_a: Sequence[RunSummary], runs_b: Sequence[RunSummary]) -> None:
        self._no_steps = [any(run.warm_up_s is None for run in runs) for runs in (runs_a, runs_b)]
        self._single = [any(run.warm_up_evaluation_s is None for run in runs) for runs in (runs_a, runs_b)]

    def lacks(self, *labels: str) -> list[str]:
        """Sentences about what is not known, and of which side; ``labels`` are the names of both."""
        found = []
        if any(self._no_steps):
            of = " and ".join(name for name, lacks in zip(labels, self._no_steps, strict=True) if lacks)
            found.append(
                f"first steps: runs of {of} do not time enough steps one by one, so what the first ones compile "
                "counts as time per sample"
            )
        if any(self._single):
            of = " and ".join(name for name, lacks in zip(labels, self._single, strict=True) if lacks)
            found.append(
                f"the first evaluation: runs of {of} have no second one up to the target to compare it with, so what "
                "it compiles counts as time per sample"
            )
        return found

    def phases_apart(self, run: RunSummary) -> dict[str, float]:
        """The counted seconds of ``run`` by phase, its warm-up taken out of the others and added to ``compile``."""
        phases_s = counted_phases(run)
        taken = {} if any(self._no_steps) else dict(run.warm_up_s or {})
        if not any(self._single):
            taken["evaluate"] = run.warm_up_evaluation_s or 0.0
        taken = {name: min(seconds, phases_s[name]) for name, seconds in taken.items() if name in phases_s}
        once = phases_s.get(_COMPILE, 0.0) + math.fsum(taken.values())
        found = {name: seconds - taken.get(name, 0.0) for name, seconds in phases_s.items()}
        return found | ({_COMPILE: once} if once > 0 else {})


def counted_phases(run: RunSummary) -> dict[str, float]:
    """Seconds by phase up to the target, without what the clock policy leaves out."""
    found = {name: seconds - run.excluded_s.get(name, 0.0) for name, seconds in run.phases_s.items()}
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _means(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in runs for name in each)
    found = {name: sum(each.get(name, 0.0) for each in runs) / len(runs) for name in names}
    return {WARM_UP if name == _COMPILE else name: mean for name, mean in found.items()}
