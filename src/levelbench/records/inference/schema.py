"""What one line of a record of inference may be: what was asked, facts, raw latencies, the answers' quality, audits.

One file is what one process left behind. It holds the latency of every query as it was taken; quantiles,
estimates, costs and verdicts are computed by whoever reads.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from levelbench.records.schema import Count, Measurement, Samples

__all__ = [
    "FOLDER",
    "INFERENCE_SCHEMA",
    "MOST_LATENCIES",
    "PHASES",
    "Accuracy",
    "Audit",
    "Data",
    "Driven",
    "InferenceArm",
    "InferenceEnd",
    "InferenceEvent",
    "InferenceFacts",
    "InferenceHeader",
    "InferenceOutcome",
    "InferenceSpecification",
    "Model",
    "PeakTrial",
    "ScenarioName",
    "ScenarioSettings",
]

INFERENCE_SCHEMA = 2
FOLDER = "inference"
"""The folder in a store that holds records of inference."""
PHASES = ("open", "build", "prepare", "first")
"""In order: importing the framework and opening its device; loading the network and the data; making the executors;
the first answer, with whatever is compiled at it."""
MOST_LATENCIES = 1_000_000
"""Raw values of one kind that a record holds; of more, every k-th in order of size is kept, and k is stated."""

Setting = int | float | str | bool
ScenarioName = Literal["single-stream", "multi-stream", "server", "offline", "dawnbench"]


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """Which network with which parameters. ``digest`` is the SHA-256 of the ONNX file; empty for one of the zoo.

    Of a task, ``run`` is the id of the run that trained it, ``run_digest`` the SHA-256 of that run's record, and
    ``quality`` what it had on the test split when training ended: the reference of the closed rule.
    """

    name: str
    kind: Literal["task", "file", "zoo"]
    path: str = ""
    digest: str = ""
    task: str = ""
    reference: str = ""
    """How the task is found: its name, or the Python file that defines it."""
    recipe: str = ""
    settings: dict[str, Setting] = {}
    run: str = ""
    run_digest: str = ""
    quality: float | None = None


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked about: a task's test split, the user's files (digests: SHA-256), or made-up inputs."""

    kind: Literal["task", "file", "synthetic"]
    name: str
    path: str = ""
    digest: str = ""
    labels: str = ""
    labels_digest: str = ""
    sizes: dict[str, int] = {}
    checksums: dict[str, str] = {}
    """Of a task's data: SHA-256 by file, so that figures of one copy are never given out for another."""


class ScenarioSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The scenario with its settings; ``None`` where it has no such thing.

    ``quantile`` is the one that it is judged by. ``batch`` is how many samples the network gets at once at most,
    ``samples`` how many of the data the queries are drawn from (``None``: all). A run goes on until ``duration_s`` and
    ``queries`` are both reached, but not longer than ``most_s``. Offline ``queries`` counts samples, and 0 stands for
    the whole set, or 24,576 where it has more.
    """

    name: ScenarioName
    quantile: float
    duration_s: float
    queries: int
    batch: int
    most_s: float | None = None
    samples_per_query: int = 1
    samples: int | None = None
    qps: float | None = None
    bound_s: float | None = None
    workers: int = 1
    find_peak: bool = False


class InferenceArm(Struct, frozen=True, forbid_unknown_fields=True):
    """On what it is measured. An empty ``mode`` is the framework's default one; ``threads=None`` leaves them alone."""

    framework: str
    mode: str = ""
    device: str = "cpu"
    threads: int | None = None

    @property
    def title(self) -> str:
        """What a table calls it: ``torch:compiled on cuda``."""
        mode = f":{self.mode}" if self.mode else ""
        device = f" on {self.device}" if self.device != "cpu" else ""
        threads = f" with {self.threads} thread{'s' * (self.threads > 1)}" if self.threads is not None else ""
        return self.framework + mode + device + threads


class InferenceSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """What one process is to measure; its key is the digest of this alone.

    ``preprocessing`` says whether the work from raw examples to the network's inputs is on the clock. ``seed`` draws
    the queries and their arrival times; each process adds its own number to it.
    """

    title: str
    model: Model
    data: Data
    scenario: ScenarioSettings
    arm: InferenceArm
    preprocessing: Literal["in", "out"] = "out"
    seed: int = 0
    audit: bool = False


class InferenceHeader(Struct, frozen=True, tag="inference", tag_field="kind"):
    """The first line. ``seed`` is the number of the process; ``planned_effect`` and ``planned_runs`` as for runs."""

    schema: int
    id: str
    key: str
    seed: Count
    started: str
    specification: InferenceSpecification
    environment: dict[str, Any]
    version: str
    planned_effect: float | None = None
    planned_runs: Count = 0


class InferenceFacts(Struct, frozen=True, tag="facts", tag_field="kind"):
    """What is known before the queries begin.

    ``includes`` says what a latency has in it beside the network, ``clock`` the same in a sentence. ``samples`` is how
    many examples the queries are drawn from, ``examples`` how many there are.
    """

    framework: dict[str, Any] = {}
    mode: str = ""
    parameters: int | None = None
    includes: list[str] = []
    clock: str = ""
    samples: int = 0
    examples: int = 0
    synthetic: bool = False
    checksums: dict[str, str] = {}
    warmup: str = ""


class PeakTrial(Struct, frozen=True, tag="peak", tag_field="kind"):
    """One rate that was tried on the way to the highest one that passes."""

    qps: float
    valid: bool


class Driven(Struct, frozen=True, tag="driven", tag_field="kind"):
    """What the driver of the scenario saw, beside the raw values.

    ``valid`` says whether the scenario's own rules were kept, and ``reasons`` which were not and what to do.
    ``latencies`` is how many there were: one a query, offline one a sample. ``thinned`` is k where only every k-th in
    order of size was kept, 1 where all were.
    """

    queries: Count
    samples: Count
    duration_s: float
    latencies: Count
    valid: bool
    reasons: list[str] = []
    ended_by: str = ""
    throughput_per_s: float | None = None
    target_per_s: float | None = None
    thinned: int = 1


class Accuracy(Struct, frozen=True, tag="accuracy", tag_field="kind"):
    """The quality of the answers, given by the path that was measured.

    ``examples`` is how many were looked at. Without a ``value``, ``reason`` says why.
    """

    metric: str = ""
    value: float | None = None
    direction: Literal["higher", "lower"] = "higher"
    examples: int = 0
    split: str = ""
    reason: str = ""


class Audit(Struct, frozen=True, tag="audit", tag_field="kind"):
    """What an audit found; ``passed=None`` is "cannot tell"."""

    name: str
    passed: bool | None
    said: str
    figures: dict[str, float] = {}


class InferenceOutcome(Struct, frozen=True, tag="outcome", tag_field="kind"):
    """What came of it; ``unsupported`` was refused by the framework, ``failed`` raised or crashed."""

    status: Literal["measured", "unsupported", "failed"]
    reason: str = ""


class InferenceEnd(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line. ``suspect`` lists reasons to doubt the times."""

    suspect: list[str] = field(default_factory=list)
    environment_after: dict[str, Any] = field(default_factory=dict)


InferenceEvent = (
    InferenceFacts | Measurement | Samples | PeakTrial | Driven | Accuracy | Audit | InferenceOutcome | InferenceEnd
)
