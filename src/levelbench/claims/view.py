"""A claim as rules see it, whatever its source: its sides, comparisons between them, and summaries.

``None`` means not stated, never "no"; a rule that needs the fact answers "not stated". The names here are also the
schema of ``claim.toml``, so an author can state whatever a rule can see. Times are in seconds, rates per second, shares
between 0 and 1.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

__all__ = ["Claim", "ClockView", "ComparisonView", "CompositionView", "CurveView", "DataView", "FigureView"]
__all__ += ["HardwareView", "Operations", "QualityView", "RunView", "ScalingPoint", "Setup", "Side", "StandardView"]
__all__ += ["Summarised", "TimingView", "TuningView", "Uncounted", "WorkloadView"]

Setting = int | float | str | bool
Split = Literal["train", "validation", "test"]


class QualityView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How good the result is, and on which data it was measured."""

    metric: str | None = None
    """The metric's name, such as top-1 accuracy."""
    value: float | None = None
    """The reported quality, on the scale of the target."""
    low: float | None = None
    """Lower bound of its interval."""
    high: float | None = None
    """Upper bound of its interval."""
    target: float | None = None
    """The quality to be reached."""
    direction: Literal["higher", "lower"] | None = None
    """Whether higher or lower is better."""
    split: Split | None = None
    """Where the reported quality was measured."""
    stopping_split: Split | None = None
    """Which data decided when to stop."""
    tuning_split: Split | None = None
    """Which data decided on the settings."""
    test_looks: int | None = None
    """How often the test data was evaluated in a run."""
    standard: float | None = None
    """What the task's usual solution reaches on the same metric and split."""
    signature: str | None = None
    """The signature of the metric's implementation, such as sacrebleu's."""


class ClockView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is on the clock; ``crossing`` is the rule by which a target counts as reached."""

    policy: str | None = None
    """The name of the clock's rule: wall, dawnbench, mlperf, algoperf, or another."""
    whole: bool | None = None
    """Whether the whole run or step is timed, not just parts (kernels, communication)."""
    initialisation: bool | None = None
    """Whether building the network is on the clock."""
    compilation: bool | None = None
    """Whether compiling is on the clock."""
    data: bool | None = None
    """Whether loading and preparing data is on the clock."""
    evaluation: bool | None = None
    """Whether evaluations are on the clock."""
    checkpoints: bool | None = None
    """Whether writing checkpoints is on the clock."""
    communication: bool | None = None
    """Whether communication is on the clock."""
    crossing: Literal["first", "confirmed", "sustained", "final", "interpolated", "none"] | None = None
    """The rule by which a target counts as reached."""
    fixed_time_s: float | None = None
    """A wall time after which every run was ended, whatever it had reached."""
    part_share: float | None = None
    """The share of the whole that is timed, if only a part is timed."""


class DataView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where samples came from while the clock was running."""

    name: str | None = None
    """The name of the dataset."""
    synthetic: bool | None = None
    """Whether the data was made up."""
    in_memory: bool | None = None
    """Whether the data was in memory, prepared, before the clock started."""
    cold: bool | None = None
    """Whether caches were cold at the start."""
    stall_share: float | None = None
    """The share of the time spent waiting for input."""
    checksums: bool | None = None
    """Whether the data is pinned by checksums."""


class TimingView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How times were taken."""

    method: str | None = None
    """The timer, and its start and end."""
    synchronised: bool | None = None
    """Whether the device was synchronised before each reading of the clock."""
    warmup: bool | None = None
    """Whether warm-up was left out."""
    deterministic: bool | None = None
    """Whether the measure is the same at every repetition."""
    interleaved: bool | None = None
    """Whether the sides took turns."""


class HardwareView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole system of a side. Figures that are not stated are looked up by ``description`` and ``accelerator``."""

    description: str | None = None
    """A description of the system in the usual words."""
    nodes: int | None = None
    accelerators: int | None = None
    """Of the whole system."""
    accelerator: str | None = None
    """The name of one accelerator."""
    processor: str | None = None
    """The name of the CPU."""
    cores: int | None = None
    """Of the whole system."""
    threads_used: int | None = None
    """The number of cores in use."""
    release_year: int | None = None
    """The release year of the accelerator, or of the processor if there is none."""
    peak_flops: dict[str, float] = field(default_factory=dict)
    """FLOP/s of the whole system by precision ("float32", "tf32", "float16", "bfloat16", "int8")."""
    bandwidth: float | None = None
    """Memory bandwidth of the whole system in bytes/s."""
    power_w: float | None = None
    """Power of the whole system in watts."""
    price_per_hour: float | None = None
    """Price of the whole system in US dollars per hour."""
    price_source: str | None = None
    """The source of the price."""


class Operations(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rate of operations, and what is behind it."""

    flops: float | None = None
    """FLOP/s as claimed."""
    counted_as: str | None = None
    """The counting convention: how many operations a multiply-add is, whether recomputation counts."""
    precisions: dict[str, float] = field(default_factory=dict)
    """Share of the operations at each precision."""
    mixed: bool | None = None
    """Whether several precisions were used."""
    share_of_peak: float | None = None
    """Share of the peak at the precision used."""
    to_target: float | None = None
    """Operations until the target was reached."""


class WorkloadView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The size of a step and of a sample."""

    global_batch: int | None = None
    """Samples of all ranks in a step."""
    ranks: int | None = None
    """Processes that train together."""
    input_size: int | None = None
    """Elements of one sample: for an image, pixels times channels."""
    flops_per_sample: float | None = None
    """Operations per sample."""
    iterations_measured: int | None = None
    """Steps that were timed."""
    iterations_to_target: int | None = None
    """Steps until the target."""
    samples_to_target: float | None = None
    """Samples until the target."""
    learning_rate: float | None = None
    """Its highest value."""
    learning_rate_rule: str | None = None
    """How the learning rate changes with the batch: none, linear, sqrt."""


class TuningView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What came before the shown runs."""

    trials: int | None = None
    """How many settings were tried."""
    hours: float | None = None
    """How many hours the tuning took."""
    usd: float | None = None
    """What the tuning cost, in US dollars."""
    budget_equal: bool | None = None
    """Whether both sides of a comparison were tuned with the same effort."""


class Setup(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a figure was measured with: enough to decide whether two figures belong together."""

    specification: str | None = None
    """A digest of what was run."""
    commit: str | None = None
    """The commit of the code."""
    dirty: bool | None = None
    """Whether there were uncommitted changes."""
    environment: str | None = None
    """A digest of machine and software."""
    seeds: list[int] | None = None
    options: dict[str, Setting] = field(default_factory=dict)
    """Settings by name."""


class CurveView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Evaluations in order: columns of one length."""

    time_s: list[float]
    quality: list[float]
    epoch: list[float] | None = None
    samples: list[int] | None = None


class RunView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One run, whether or not it reached the target."""

    time_s: float | None = None
    """Time to the target, or as long as the run tried."""
    reached: bool | None = None
    """Whether it reached the target."""
    quality: float | None = None
    """The last quality of the run."""
    seed: int | None = None
    failed: bool = False
    """Whether the run ended in an error."""
    curve: CurveView | None = None
    specification: str | None = None
    """A digest of what was run."""
    where: str = ""
    """The file or place that it was read from."""


class Side(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``reported`` says which of the runs the figure is; ``runs_made`` how many there were, shown or not.

    ``performance`` and ``accuracy`` say what the speed and the quality were measured with, if that is known separately.
    ``reference`` says whether it is a known implementation that reaches what its source reports.
    """

    name: str
    time_s: float | None = None
    """The claimed time: to the target, or of a step or call."""
    time_of: Literal["target", "epoch", "step", "call", "run"] | None = None
    reported: Literal["single", "best", "median", "mean", "olympic", "all"] | None = None
    """Which of the runs the figure is from."""
    runs_made: int | None = None
    """How many runs there were, shown or not."""
    runs_reached: int | None = None
    """How many of them reached the target."""
    interval: tuple[float, float] | None = None
    """Lower and upper bound of ``time_s``."""
    throughput: float | None = None
    """The claimed rate: samples, tokens, requests or steps per second."""
    runs: list[RunView] = field(default_factory=list)
    framework: str | None = None
    """Framework and version."""
    year: int | None = None
    """When this side was first published."""
    source: str | None = None
    """The source of this side's figures: a paper, a repository, an entry."""
    reference: bool | None = None
    """Whether it is a known implementation that reaches what its source reports."""
    baseline: bool | None = None
    """Whether other sides are compared with it."""
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


class ComparisonView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``new`` against ``base`` (names of sides): ``ratio`` is base over new, above 1 where new is faster.

    ``of`` says what is compared: time to a target, a whole run's, a step's, a kernel's, throughput, quality, cost.
    """

    new: str
    """The side that is claimed to be better."""
    base: str
    """The side that it is compared with."""
    of: (
        Literal["target", "run", "epoch", "step", "kernel", "throughput", "quality", "cost", "latency", "operations"]
        | None
    ) = None
    """What is compared."""
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    """The interval of the ratio."""
    part_share: float | None = None
    """The share of the base's whole time that the compared part takes."""
    claimed_for: Literal["part", "whole"] | None = None
    """Whether the ratio is claimed for the part or for the whole."""
    base_time_s: float | None = None
    """The absolute time behind the ratio."""
    base_kind: Literal["serial", "one-process", "same-scale", "other-system"] | None = None
    """What the base is: the best serial program, one process of the same, the same scale, another system."""
    p_value: float | None = None
    """The p-value of the test."""
    effect: float | None = None
    """The size of the difference in units of its spread."""
    test: str | None = None
    """The name of the test."""
    normality_checked: bool | None = None
    """Whether normality was checked before a test that assumes it."""
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
    """The time given for this point."""
    throughput: float | None = None
    """Samples per second."""
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
    """Whether the time is extrapolated from fewer steps."""
    fixed_time: bool | None = None
    """Whether training was ended after the same time at every point."""
    learning_rate: float | None = None
    """Its highest value."""
    where: str = ""


class Summarised(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One figure that summarises several values."""

    what: str
    """The name of the figure."""
    of: Literal["times", "rates", "ratios", "qualities", "costs"] | None = None
    """What was summarised."""
    by: Literal["arithmetic", "harmonic", "geometric", "median", "minimum", "maximum", "olympic"] | None = None
    """How."""
    n: int | None = None
    """The number of values."""
    value: float | None = None
    interval: tuple[float, float] | None = None
    interval_by: str | None = None
    """How the interval was computed ("t", "order statistics", "bootstrap", ...)."""
    normality_checked: bool | None = None
    """Whether normality was checked before it was assumed."""
    deterministic: bool | None = None
    """Whether the measure is the same at every repetition."""
    raw_available: bool | None = None
    """Whether the single values are available."""
    where: str = ""


class FigureView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A plot: its axes and what its lines join."""

    what: str
    """The name of the plot."""
    x: Literal["time", "epochs", "samples", "operations", "ranks", "category"] | None = None
    """The horizontal axis."""
    y: Literal["quality", "loss", "time", "speed-up", "throughput", "operations"] | None = None
    """The vertical axis."""
    joined: bool | None = None
    """Whether points are joined by lines."""
    interpolable: bool | None = None
    """Whether values between the points have a meaning."""
    curves_cut: bool | None = None
    """Whether curves end before the target, or earlier than others."""
    bound_shown: bool | None = None
    """Whether an upper limit is drawn."""
    where: str = ""


class CompositionView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Several optimisations together: their single ratios by name, the claimed joint ratio, the measured one."""

    parts: dict[str, float]
    """The ratio of each optimisation alone."""
    claimed: float | None = None
    """The claimed ratio of all together."""
    measured: float | None = None
    """The measured ratio of all together."""
    quality_kept: bool | None = None
    """Whether the target was reached with all together."""
    where: str = ""


class StandardView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A known entry for the same task that the claim can be compared with."""

    name: str
    time_s: float | None = None
    quality: float | None = None
    cost_usd: float | None = None
    year: int | None = None
    """When it was published."""
    source: str | None = None
    """The source of the entry."""
    input_size: int | None = None
    flops_per_sample: float | None = None
    global_batch: int | None = None


class Uncounted(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Runs of the same task that were found with the claim, but that it does not count."""

    what: str
    runs: int
    hours: float | None = None
    same_specification: bool = False
    where: str = ""


class Claim(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A claim, and what it was ``read_from`` ("records", "submission", "mlperf", "dawnbench", "claim").

    ``scaling_mode`` says what stays the same as ranks grow. ``bound`` is the upper limit given with the result (a roof,
    Amdahl's bound, linear scaling), in words; ``caveats`` is what a reader has to know about its comparisons.
    """

    title: str
    sides: list[Side]
    task: str | None = None
    read_from: str = "claim"
    comparisons: list[ComparisonView] = field(default_factory=list)
    scaling: list[ScalingPoint] = field(default_factory=list)
    scaling_mode: Literal["strong", "weak"] | None = None
    summaries: list[Summarised] = field(default_factory=list)
    figures: list[FigureView] = field(default_factory=list)
    compositions: list[CompositionView] = field(default_factory=list)
    standards: list[StandardView] = field(default_factory=list)
    uncounted: list[Uncounted] = field(default_factory=list)
    bound: str | None = None
    caveats: list[str] = field(default_factory=list)
    where: str = ""

    def side(self, name: str) -> Side | None:
        """The side of that name, if there is one."""
        return next((each for each in self.sides if each.name == name), None)
