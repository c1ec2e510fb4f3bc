"""Records of inference: one file per process, with its specification, facts, raw latencies and audits.

A record holds the latency of every query; quantiles, estimates, costs and verdicts are computed on reading. NumPy is
imported only to read values, because processes import this module before they measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Struct

from levelbench.errors import RecordError
from levelbench.records.lines import RESTORE
from levelbench.records.processes import (
    FileLines,
    ProcessEnd,
    ProcessFormat,
    ProcessHeader,
    ProcessRecord,
    ProcessWriter,
)
from levelbench.records.schema import Count, Measurement, Samples, key_of
from levelbench.records.selection import Value
from levelbench.records.writer import path_part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FOLDER", "MODELS", "MOST_LATENCIES", "PHASES", "WRONG_ANSWERS", "Accuracy", "Audit", "Data"]
__all__ += ["Driven", "Generation", "InferenceArm"]
__all__ += ["InferenceFacts", "InferenceHeader", "InferenceOutcome", "InferenceRecord", "InferenceSpecification"]
__all__ += ["InferenceWriter", "Model", "PeakTrial", "ScenarioName", "ScenarioSettings", "other_seeds"]
__all__ += ["runs_for_inference"]

FOLDER = "inference"
"""The folder in a store that holds records of inference."""
PHASES = ("open", "build", "prepare", "first")
"""In order: importing the framework and opening its device; loading the network and the data; making the executors;
the first answer, including any compilation."""
MODELS = "models"
"""The folder in a store that holds trained networks."""
MOST_LATENCIES = 1_000_000
"""The most raw values of one kind in a record; of more, every k-th in order of size is kept, and k is recorded."""

_BLOCK = 100_000
_LARGEST_BYTES = 1 << 20

Setting = int | float | str | bool
ScenarioName = Literal["single-stream", "multi-stream", "server", "offline", "dawnbench"]


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """A network with its parameters. ``digest`` is the SHA-256 of the ONNX file; empty for one from the zoo.

    For the network of a task, ``run`` is the id of the run that trained it, ``run_digest`` the SHA-256 of that run's
    record, and ``quality`` its quality on the test split after training: the reference of the closed rule.
    """

    name: str
    kind: Literal["task", "file", "zoo"]
    path: str = ""
    digest: str = ""
    task: str = ""
    reference: str = ""
    """The task's name, or the Python file that defines it."""
    recipe: str = ""
    settings: dict[str, Setting] = {}
    run: str = ""
    run_digest: str = ""
    quality: float | None = None


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """The inputs: a task's test split, the user's files (digests are SHA-256), or synthetic ones."""

    kind: Literal["task", "file", "synthetic"]
    name: str
    path: str = ""
    digest: str = ""
    labels: str = ""
    labels_digest: str = ""
    sizes: dict[str, int] = {}
    checksums: dict[str, str] = {}
    """For a task's data: SHA-256 by file, so that figures of one copy are never used for another."""


class ScenarioSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The scenario with its settings; ``None`` for a setting that it does not have.

    ``quantile`` is the latency quantile that it is judged by. ``batch`` is the most samples that the network gets at
    once, ``samples`` how many samples the queries are drawn from (``None``: all). A run goes on until ``duration_s``
    and ``queries`` are both reached, but no longer than ``most_s``. In offline, ``queries`` counts samples, and 0
    stands for the whole set, or 24,576 samples of a larger one.
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
    """What it is measured on. An empty ``mode`` is the framework's default; ``threads=None`` does not set them."""

    framework: str
    mode: str = ""
    device: str = "cpu"
    threads: int | None = None

    @property
    def title(self) -> str:
        """Its name in tables: ``torch:compiled on cuda``."""
        mode = f":{self.mode}" if self.mode else ""
        device = f" on {self.device}" if self.device != "cpu" else ""
        threads = f" with {self.threads} thread{'s' * (self.threads > 1)}" if self.threads is not None else ""
        return self.framework + mode + device + threads


class Generation(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer is a continuation: the ``tokens`` likeliest ones, one by one, after the first ``prompt`` of a row."""

    prompt: Annotated[int, msgspec.Meta(ge=1)]
    tokens: Annotated[int, msgspec.Meta(ge=2)]


class InferenceSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """What one process measures; its key is the digest of this alone.

    ``preprocessing`` says whether turning raw examples into the network's inputs is on the clock. ``seed`` draws the
    queries and their arrival times; each process adds its number to it.
    """

    title: str
    model: Model
    data: Data
    scenario: ScenarioSettings
    arm: InferenceArm
    preprocessing: Literal["in", "out"] = "out"
    seed: int = 0
    audit: bool = False
    generation: Generation | None = None


class InferenceHeader(ProcessHeader[InferenceSpecification], frozen=True, tag="inference"):
    """The first line."""


class InferenceFacts(Struct, frozen=True, tag="facts", tag_field="kind"):
    """What is known before the first query.

    ``includes`` says what a latency includes in addition to the network, ``clock`` the same in a sentence. ``samples``
    is how many of the ``examples`` the queries are drawn from.
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
    """One rate that was tried while searching for the highest valid one."""

    qps: float
    valid: bool


WRONG_ANSWERS = "its answers are wrong"
"""How the reason begins of a process whose answers were compared with the reference's and are not those."""


class Driven(Struct, frozen=True, tag="driven", tag_field="kind"):
    """What the scenario's driver observed, apart from the raw values.

    ``valid`` says whether the scenario's own rules were kept; ``reasons`` says which were not, and what to do.
    ``latencies`` is their number: one per query, or one per sample in offline. ``thinned`` is k if only every k-th
    latency in order of size was kept, 1 if all were.
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
    """The quality of the answers of the measured program path, over ``examples`` examples.

    If there is no ``value``, ``reason`` says why.
    """

    metric: str = ""
    value: float | None = None
    direction: Literal["higher", "lower"] = "higher"
    examples: int = 0
    split: str = ""
    reason: str = ""


class Audit(Struct, frozen=True, tag="audit", tag_field="kind"):
    """What an audit found; ``passed=None`` means that it could not decide."""

    name: str
    passed: bool | None
    said: str
    figures: dict[str, float] = {}


class InferenceOutcome(Struct, frozen=True, tag="outcome", tag_field="kind"):
    """The outcome of a process: ``unsupported`` if the framework refused, ``failed`` if it raised or crashed."""

    status: Literal["measured", "unsupported", "failed"]
    reason: str = ""


InferenceEvent = (
    InferenceFacts | Measurement | Samples | PeakTrial | Driven | Accuracy | Audit | InferenceOutcome | ProcessEnd
)
_FORMAT = ProcessFormat[InferenceHeader, InferenceEvent]("record of inference", FOLDER, InferenceHeader, InferenceEvent)


@dataclass(frozen=True)
class InferenceRecord(ProcessRecord[InferenceHeader]):
    """The record of one process.

    ``samples`` are in nanoseconds: ``latency``, one per query, ``lateness`` of its issue if the scenario has a
    schedule, and of a generation ``first_token`` and ``per_token`` (after the first), one for each latency.
    ``measurements`` are named ``phase/open`` and so on (in s) and ``peak_memory`` (in B).
    """

    form = _FORMAT

    facts: InferenceFacts
    measurements: dict[str, Measurement]
    samples: dict[str, NDArray[np.int64]]
    peaks: tuple[PeakTrial, ...]
    driven: Driven | None
    accuracy: Accuracy | None
    audits: tuple[Audit, ...]
    outcome: InferenceOutcome | None

    @classmethod
    def _parts(cls, found: FileLines[InferenceHeader, InferenceEvent], asked: str) -> dict[str, Any]:
        return {
            "facts": found.last(InferenceFacts) or InferenceFacts(),
            "measurements": {each.name: each for each in found.all(Measurement)},
            "samples": _joined(found.all(Samples), asked),
            "peaks": found.all(PeakTrial),
            "driven": found.last(Driven),
            "accuracy": found.last(Accuracy),
            "audits": found.all(Audit),
            "outcome": found.last(InferenceOutcome),
        }

    @classmethod
    def names(cls, header: InferenceHeader) -> tuple[str, ...]:
        """The task and the model."""
        return header.specification.model.task, header.specification.model.name

    @classmethod
    def words(cls, header: InferenceHeader) -> dict[str, Value]:
        """Also the settings of the model."""
        specification = header.specification
        arm = specification.arm
        return {
            **specification.model.settings,
            "scenario": specification.scenario.name,
            "framework": arm.framework,
            "mode": arm.mode,
            "device": arm.device,
            "recipe": specification.model.recipe,
            "preprocessing": specification.preprocessing,
        }

    @classmethod
    def measurement(cls, header: InferenceHeader) -> str:
        """The key of its specification without the arm."""
        return key_of(msgspec.structs.replace(header.specification, arm=InferenceArm("")))

    def seconds(self, name: str) -> NDArray[np.float64]:
        """The raw values of that name in seconds; empty if there are none."""
        import numpy as np

        return np.asarray(self.samples.get(name, ()), np.float64) * np.float64(1e-9)

    @property
    def latencies_s(self) -> NDArray[np.float64]:
        """Latencies in seconds, one per query (offline: per sample); thinned ones are repeated to stand for all."""
        import numpy as np

        kept = self.seconds("latency")
        thinned = self.driven.thinned if self.driven is not None else 1
        if self.driven is None or thinned == 1:
            return kept
        return np.repeat(kept, thinned)[: self.driven.latencies]


class InferenceWriter(ProcessWriter[InferenceHeader, InferenceEvent]):
    """Writes a record of inference."""

    form = _FORMAT

    def add_ns(self, name: str, values: NDArray[np.int64]) -> None:
        """Write raw values in nanoseconds, in several lines if there are many."""
        for start in range(0, len(values), _BLOCK):
            self.add(Samples(name, "ns", values[start : start + _BLOCK].tolist()))


def _joined(blocks: Sequence[Samples], asked: str) -> dict[str, NDArray[np.int64]]:
    import numpy as np

    found: dict[str, list[NDArray[np.int64]]] = {}
    for block in blocks:
        values = np.asarray(block.values)
        if block.unit != "ns" or (values.size and values.dtype.kind != "i"):
            wrong = f"samples of {block.name!r} are not whole nanoseconds"
            raise RecordError(asked, wrong, RESTORE)
        found.setdefault(block.name, []).append(values.astype(np.int64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def other_seeds(store: Path, specification: InferenceSpecification) -> dict[int, int]:
    """How many processes measured the same with another seed of the queries, by that seed."""
    own = key_of(specification)
    found: dict[int, int] = {}
    for _, header in InferenceRecord.headers(store / FOLDER / path_part(specification.title)):
        theirs = header.specification
        alike = msgspec.structs.replace(theirs, seed=specification.seed)
        if theirs.seed != specification.seed and key_of(alike) == own:
            found[theirs.seed] = found.get(theirs.seed, 0) + 1
    return found


class _Sidecar(msgspec.Struct):
    run: str
    for_inference: bool = True
    earlier: list[str] = []


def runs_for_inference(store: Path) -> frozenset[str]:
    """The ids of the runs in ``store`` that were made only to have a trained network for inference.

    They do not test a recipe, so they are not counted or submitted unless the user selects them. The sidecar file of
    each network in the store names its run, and the runs of networks that it replaced. Runs of ``levelbench run
    --keep-model`` are not included, nor are those of damaged sidecars.
    """
    found: set[str] = set()
    for path in sorted((store / MODELS).glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
            if path.stat().st_size <= _LARGEST_BYTES:
                facts = msgspec.json.decode(path.read_bytes(), type=_Sidecar)
                found |= {*facts.earlier, *([facts.run] if facts.for_inference else [])}
    return frozenset(found)
