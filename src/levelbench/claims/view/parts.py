"""The parts of one side of a claim: its quality, clock, data, timing, hardware, operations, tuning, runs.

The one idea: each field answers one question that a reviewer asks; ``claim.toml`` has the same names. Times are in
seconds, rates per second, shares between 0 and 1.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

__all__ = [
    "ClockView",
    "CurveView",
    "DataView",
    "HardwareView",
    "Operations",
    "QualityView",
    "RunView",
    "Setup",
    "TimingView",
    "TuningView",
    "WorkloadView",
]

Setting = int | float | str | bool
Split = Literal["train", "validation", "test"]


class QualityView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How good the result is, and on which data that was seen."""

    metric: str | None = None
    """Its name, such as top-1 accuracy."""
    value: float | None = None
    """The quality that is reported, on the scale of the target."""
    low: float | None = None
    """Lower bound of its interval."""
    high: float | None = None
    """Upper bound of its interval."""
    target: float | None = None
    """The quality that had to be reached."""
    direction: Literal["higher", "lower"] | None = None
    """Whether higher or lower is better."""
    split: Split | None = None
    """Where the reported quality was measured."""
    stopping_split: Split | None = None
    """Which data decided when to stop."""
    tuning_split: Split | None = None
    """Which data decided on settings."""
    test_looks: int | None = None
    """How often the test data was evaluated in a run."""
    standard: float | None = None
    """What the task's usual solution reaches on the same metric and split."""
    signature: str | None = None
    """Of the metric's implementation, such as sacrebleu's."""


class ClockView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is on the clock; ``crossing`` is the rule by which a target counts as reached."""

    policy: str | None = None
    """What the rule is called: wall, dawnbench, mlperf, algoperf, or one's own."""
    whole: bool | None = None
    """Whether the whole run or step is timed, and not parts (kernels, communication) alone."""
    initialisation: bool | None = None
    """Whether making the network is on the clock."""
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
    """A wall time after which every run was ended whatever it had reached."""
    part_share: float | None = None
    """The share of the whole that the timed part has, where a part is timed."""


class DataView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where samples came from while the clock ran."""

    name: str | None = None
    """The dataset."""
    synthetic: bool | None = None
    """Whether it was made up."""
    in_memory: bool | None = None
    """Whether it lay in memory, prepared, before the clock began."""
    cold: bool | None = None
    """Whether caches were cold at the beginning."""
    stall_share: float | None = None
    """The share of the time that waited for input."""
    checksums: bool | None = None
    """Whether the data is pinned by checksums."""


class TimingView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How times were taken."""

    method: str | None = None
    """Which timer, from where to where."""
    synchronised: bool | None = None
    """Whether the device was waited for before each reading."""
    warmup: bool | None = None
    """Whether warm-up was left out."""
    deterministic: bool | None = None
    """Whether the measure is the same at every repetition."""
    interleaved: bool | None = None
    """Whether the sides took turns."""


class HardwareView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The whole system of a side. Figures that are not stated are looked up by ``description`` and ``accelerator``."""

    description: str | None = None
    """The system as people write it."""
    nodes: int | None = None
    accelerators: int | None = None
    """Of the whole system."""
    accelerator: str | None = None
    """The name of one."""
    processor: str | None = None
    """The name of the CPU."""
    cores: int | None = None
    """Of the whole system."""
    threads_used: int | None = None
    """How many of them worked."""
    release_year: int | None = None
    """Of the accelerator, or of the processor where there is none."""
    peak_flops: dict[str, float] = field(default_factory=dict)
    """FLOP/s of the whole system by precision ("float32", "tf32", "float16", "bfloat16", "int8")."""
    bandwidth: float | None = None
    """Bytes/s of memory of the whole system."""
    power_w: float | None = None
    """Watts of the whole system."""
    price_per_hour: float | None = None
    """US dollars an hour of the whole system."""
    price_source: str | None = None
    """Where the price is from."""


class Operations(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rate of operations, and what is behind it."""

    flops: float | None = None
    """FLOP/s as claimed."""
    counted_as: str | None = None
    """The convention: how many operations a multiply-add is, whether recomputation counts."""
    precisions: dict[str, float] = field(default_factory=dict)
    """Share of the operations by precision."""
    mixed: bool | None = None
    """Whether several precisions were used."""
    share_of_peak: float | None = None
    """Of the peak at the precision used."""
    to_target: float | None = None
    """Operations until the target was reached."""


class WorkloadView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How big a step and a sample are."""

    global_batch: int | None = None
    """Samples of all ranks in a step."""
    ranks: int | None = None
    """Processes that train together."""
    input_size: int | None = None
    """Elements of one sample: for an image its pixels times channels."""
    flops_per_sample: float | None = None
    """Operations for one sample."""
    iterations_measured: int | None = None
    """Steps that were timed."""
    iterations_to_target: int | None = None
    """Steps until the target."""
    samples_to_target: float | None = None
    """Samples until the target."""
    learning_rate: float | None = None
    """Its highest value."""
    learning_rate_rule: str | None = None
    """How it changes with the batch: none, linear, sqrt."""


class TuningView(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What came before the runs that are shown."""

    trials: int | None = None
    """How many settings were tried."""
    hours: float | None = None
    """What that took."""
    usd: float | None = None
    """What that cost."""
    budget_equal: bool | None = None
    """Whether both sides of a comparison were tuned with the same effort."""


class Setup(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a figure was measured with: enough to tell whether two figures are of one thing."""

    specification: str | None = None
    """A digest of what was run."""
    commit: str | None = None
    """Of the code."""
    dirty: bool | None = None
    """Whether there were changes that nobody committed."""
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
    """Until the target, or as long as it tried."""
    reached: bool | None = None
    """Whether it reached the target."""
    quality: float | None = None
    """Its last quality."""
    seed: int | None = None
    failed: bool = False
    """Whether it ended in an error."""
    curve: CurveView | None = None
    specification: str | None = None
    """A digest of what was run."""
    where: str = ""
    """The file or place that it was read from."""
