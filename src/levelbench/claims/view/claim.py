"""A claim: its sides, what is said of them together, how it was summarised and drawn.

The one idea: it is the schema of ``claim.toml`` too, so whatever a rule can see, an author can state.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from levelbench.claims.view.side import Side

__all__ = ["Claim", "Comparison", "Composition", "Figure", "ScalingPoint", "Standard", "Summarised", "Uncounted"]


class Comparison(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``new`` against ``base`` (names of sides): ``ratio`` is base over new, above 1 where new is faster.

    ``of`` says what is compared: time to a target, a step's time, a kernel's, throughput, quality, cost.
    """

    new: str
    """The side that is said to be better."""
    base: str
    """The side it is held against."""
    of: (
        Literal["target", "epoch", "step", "kernel", "throughput", "quality", "cost", "latency", "operations"] | None
    ) = None
    """What is compared."""
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    """Of the ratio."""
    part_share: float | None = None
    """The share of the base's whole time that the compared part has."""
    claimed_for: Literal["part", "whole"] | None = None
    """Whether the ratio is said to be of the part or of the whole."""
    base_time_s: float | None = None
    """The absolute time behind the ratio."""
    base_kind: Literal["serial", "one-process", "same-scale", "other-system"] | None = None
    """What the base is: the best serial program, one process of the same, the same scale, another system."""
    p_value: float | None = None
    """Of the test."""
    effect: float | None = None
    """The size of the difference beside its spread."""
    test: str | None = None
    """The name of the test."""
    normality_checked: bool | None = None
    """Whether that was looked at before a test that assumes it."""
    quality_compared: bool | None = None
    """Whether both sides' quality is given."""
    performance_compared: bool | None = None
    """Whether both sides' speed is given."""
    where: str = ""


class ScalingPoint(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One point of a scaling study of ``side``."""

    side: str
    """The side that is scaled."""
    ranks: int
    time_s: float | None = None
    """The time that is given for this point."""
    throughput: float | None = None
    """Samples a second."""
    global_batch: int | None = None
    """Samples of all ranks in a step."""
    reached: bool | None = None
    """Whether the target was reached."""
    quality: float | None = None
    """The quality that was reached."""
    quality_low: float | None = None
    quality_high: float | None = None
    iterations_measured: int | None = None
    """Steps that were timed."""
    iterations_to_target: int | None = None
    """Steps until the target."""
    extrapolated: bool | None = None
    """Whether the time is worked out from fewer steps."""
    fixed_time: bool | None = None
    """Whether training was ended after the same time at every point."""
    learning_rate: float | None = None
    """Its highest value."""
    where: str = ""


class Summarised(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One figure that was made of several values."""

    what: str
    """What the figure is called."""
    of: Literal["times", "rates", "ratios", "qualities", "costs"] | None = None
    """What was summarised."""
    by: Literal["arithmetic", "harmonic", "geometric", "median", "minimum", "maximum", "olympic"] | None = None
    """How."""
    n: int | None = None
    """Of how many values."""
    value: float | None = None
    interval: tuple[float, float] | None = None
    interval_by: str | None = None
    """How the interval was made ("t", "order statistics", "bootstrap", ...)."""
    normality_checked: bool | None = None
    """Whether that was looked at before it was assumed."""
    deterministic: bool | None = None
    """Whether the measure is the same at every repetition."""
    raw_available: bool | None = None
    """Whether the single values can be had."""
    where: str = ""


class Figure(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A plot: what its axes are and what its lines join."""

    what: str
    """What the plot is called."""
    x: Literal["time", "epochs", "samples", "operations", "ranks", "category"] | None = None
    """Its axis to the right."""
    y: Literal["quality", "loss", "time", "speed-up", "throughput", "operations"] | None = None
    """Its axis upwards."""
    joined: bool | None = None
    """Whether points are joined by lines."""
    interpolable: bool | None = None
    """Whether values between the points have a meaning."""
    curves_cut: bool | None = None
    """Whether curves end before the target or where others go on."""
    bound_shown: bool | None = None
    """Whether an upper limit is drawn."""
    where: str = ""


class Composition(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Several optimisations together: their single ratios by name, what is claimed of all, what was measured."""

    parts: dict[str, float]
    """The ratio of each optimisation alone."""
    claimed: float | None = None
    """The ratio that is claimed of all together."""
    measured: float | None = None
    """The ratio of all together."""
    quality_kept: bool | None = None
    """Whether the target was reached with all together."""
    where: str = ""


class Standard(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A known entry of the same task that the claim can be held against."""

    name: str
    time_s: float | None = None
    quality: float | None = None
    cost_usd: float | None = None
    year: int | None = None
    """When it was published."""
    source: str | None = None
    """Where it is from."""
    input_size: int | None = None
    flops_per_sample: float | None = None
    global_batch: int | None = None


class Uncounted(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Runs of the same task that were found beside the claim and that it does not count."""

    what: str
    runs: int
    hours: float | None = None
    same_specification: bool = False
    where: str = ""


class Claim(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that is claimed, and what it was ``read_from`` ("records", "submission", "mlperf", "dawnbench", "claim").

    ``scaling_mode`` says what stays the same as ranks grow. ``bound`` is the upper limit that is given with the
    result (a roof, Amdahl's bound, linear scaling), in words; ``caveats`` what a reader has to know of its comparisons.
    """

    title: str
    sides: list[Side]
    task: str | None = None
    read_from: str = "claim"
    comparisons: list[Comparison] = field(default_factory=list)
    scaling: list[ScalingPoint] = field(default_factory=list)
    scaling_mode: Literal["strong", "weak"] | None = None
    summaries: list[Summarised] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    compositions: list[Composition] = field(default_factory=list)
    standards: list[Standard] = field(default_factory=list)
    uncounted: list[Uncounted] = field(default_factory=list)
    bound: str | None = None
    caveats: list[str] = field(default_factory=list)
    where: str = ""

    def side(self, name: str) -> Side | None:
        """The side of that name, if there is one."""
        return next((each for each in self.sides if each.name == name), None)
