"""What a version of rules fixes: tasks and thresholds, the clock, how many runs, how they become one figure, divisions.

The one idea: thresholds differ between a README and a test of the same competition, and between its years. So they
are data of a version, and an entry is always scored under a version that is named.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from levelbench.records.schema import Target

__all__ = ["Aggregation", "CostRules", "Division", "InferenceRules", "Ruleset", "TaskRules"]


class Aggregation(Struct, frozen=True, forbid_unknown_fields=True):
    """How runs become one figure.

    ``first-run``: the crossing of the only run (DAWNBench). ``olympic``: the fastest ``drop`` and slowest ``drop`` of
    ``runs`` are left out and the rest averaged; up to ``drop`` failures count as slowest (MLPerf). ``median``: the
    median over all runs, those that never arrived counted as never, with an interval (ours).
    """

    rule: Literal["first-run", "olympic", "median"]
    runs: int
    """How many runs an entry needs."""
    drop: int = 0
    exact_runs: bool = False
    """Whether more runs than ``runs`` are refused."""
    windows: Literal["lower", "upper", "mean"] | None = None
    """Olympic, with more runs than ``runs``: the median over all windows of ``runs`` runs in the order of their start.

    Which of the two in the middle counts where the number of windows is even: the ``lower`` score (the faster), the
    ``upper`` or their ``mean``. ``None``: there are no windows, and all runs are in the one mean.
    """
    best_of: int = 1
    """Median: of so many runs after another (the trials of one study) the fastest counts (AlgoPerf); 1: every run."""


class CostRules(Struct, frozen=True, forbid_unknown_fields=True):
    """What a price must be: on-demand only, with a source and a day; ``rounding`` is how the board prints seconds."""

    on_demand_only: bool = True
    source_required: bool = False
    rounding: Literal["ceil-seconds", "significant"] = "significant"


class Division(Struct, frozen=True, forbid_unknown_fields=True):
    """What a recipe of this division may change; an empty list says anything."""

    name: Literal["closed", "open"]
    may_change: list[str] = field(default_factory=list)


class InferenceRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Scenarios allowed, the quality an entry must keep, and least queries or seconds (0: no such rule)."""

    scenarios: list[Literal["single-stream", "multi-stream", "server", "offline", "dawnbench"]]
    threshold: float | None = None
    least_queries: int = 0
    least_duration_s: float = 0.0
    latency_bound_s: float | None = None
    queries: dict[Literal["single-stream", "multi-stream", "server", "offline", "dawnbench"], int] = field(
        default_factory=dict
    )
    """Least queries of a scenario (offline: samples), in place of ``least_queries``."""

    def least(self, scenario: str) -> int:
        """Least queries (offline: samples) of a measurement under ``scenario``."""
        return {str(name): count for name, count in self.queries.items()}.get(scenario, self.least_queries)


class TaskRules(Struct, frozen=True, forbid_unknown_fields=True):
    """One task under these rules: its target, its data and the mapping of other systems' names for it."""

    task: str
    target: Target
    inference: InferenceRules | None = None
    samples: int | None = None
    """How many samples are answered in inference (those of the test split), where that is fixed."""
    aliases: list[str] = field(default_factory=list)
    unit: str = ""
    """What the quality is called in print ("top-1 accuracy"); empty: the metric's own name."""


class Ruleset(Struct, frozen=True, forbid_unknown_fields=True):
    """One version of one competition's rules; ``id`` is ``name-version``."""

    id: str
    name: str
    version: str
    date: str
    source: str
    clock: str
    crossing: Literal["first", "confirmed", "sustained", "final"]
    aggregation: Aggregation
    tasks: list[TaskRules]
    cost: CostRules = field(default_factory=CostRules)
    divisions: list[Division] = field(default_factory=list)
    notes: str = ""
