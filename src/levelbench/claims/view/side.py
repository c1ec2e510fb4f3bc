"""One side of a claim: one configuration on one system, with its runs and all that is stated about it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from levelbench.claims.view.parts import (
    ClockView,
    DataView,
    HardwareView,
    Operations,
    QualityView,
    RunView,
    Setup,
    TimingView,
    TuningView,
    WorkloadView,
)

__all__ = ["Side"]


class Side(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``reported`` says which of the runs the figure is; ``runs_made`` how many there were, shown or not.

    ``performance`` and ``accuracy`` say what the speed and the quality were measured with, where that is known
    apart. ``reference`` says whether it is a known implementation that reaches what its source reports.
    """

    name: str
    time_s: float | None = None
    """The time that is claimed: to the target, or of a step or call."""
    time_of: Literal["target", "epoch", "step", "call", "run"] | None = None
    reported: Literal["single", "best", "median", "mean", "olympic", "all"] | None = None
    """Which of the runs the figure is."""
    runs_made: int | None = None
    """How many runs there were, shown or not."""
    runs_reached: int | None = None
    """How many of them reached the target."""
    interval: tuple[float, float] | None = None
    """Lower and upper bound of ``time_s``."""
    runs: list[RunView] = field(default_factory=list)
    framework: str | None = None
    """Framework and version."""
    year: int | None = None
    """When this side was first published."""
    source: str | None = None
    """Where this side's figures are from: a paper, a repository, an entry."""
    reference: bool | None = None
    """Whether it is a known implementation that reaches what its source reports."""
    baseline: bool | None = None
    """Whether others are held against it."""
    tuned: bool | None = None
    """Whether its settings were tuned for this task and machine."""
    cost_usd: float | None = None
    """Dollars until the target."""
    quality: QualityView = field(default_factory=QualityView)
    clock: ClockView = field(default_factory=ClockView)
    data: DataView = field(default_factory=DataView)
    timing: TimingView = field(default_factory=TimingView)
    hardware: HardwareView = field(default_factory=HardwareView)
    operations: Operations = field(default_factory=Operations)
    workload: WorkloadView = field(default_factory=WorkloadView)
    tuning: TuningView = field(default_factory=TuningView)
    performance: Setup = field(default_factory=Setup)
    accuracy: Setup = field(default_factory=Setup)
    where: str = ""
    """The file or place that it was read from."""
