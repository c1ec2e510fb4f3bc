"""Why one side is faster: an exact decomposition of the difference in time to accuracy.

For each run, time to accuracy = samples to target x time per sample, so the ratios of their geometric means multiply
exactly to the ratio of times. The phases of a run sum to its time, so the differences of their arithmetic means sum
exactly to the difference of times. No profiling is needed, so the score is not affected.
"""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.measure.statistics import geometric_mean
from levelbench.records import RunGroup, RunSummary

__all__ = ["Attribution", "PhaseShare", "attribute"]

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
            f"times{of} {self.ratio:.3g} = samples to target x{self.samples_ratio:.3g} "
            f"· time per sample x{self.time_per_sample_ratio:.3g}"
        )
        scale, unit = (1e3, "ms") if max(self.mean_a_s, self.mean_b_s) < 1 else (1.0, "s")
        named = [(each.phase, each.difference_s * scale) for each in self._by_size() if each.difference_s]
        rest = named[_NAMED:] if len(named) > _NAMED + 1 else []
        if rest:
            named = [*named[:_NAMED], (f"{len(rest)} others", sum(size for _, size in rest))]
        parts = [f"{name} {size:+.3g}" for name, size in named]
        means = f"means {self.mean_a_s * scale:.4g} -> {self.mean_b_s * scale:.4g} {unit}"
        return [factors, f"{means}: {' · '.join(parts) or 'no phase differs'}"]

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
    means_a, means_b = _phase_means(runs_a), _phase_means(runs_b)
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


def _phase_means(runs: list[RunSummary]) -> dict[str, float]:
    """Mean seconds by phase, without what the clock policy leaves out."""
    totals: dict[str, float] = {}
    for run in runs:
        for name, seconds in run.phases_s.items():
            totals[name] = totals.get(name, 0.0) + seconds - run.excluded_s.get(name, 0.0)
    return {name: seconds / len(runs) for name, seconds in totals.items()}
