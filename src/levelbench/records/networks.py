"""Records of network benchmarks: one file per process, with all raw times.

A process measures one case on one arm, so that start-up, compilation and peak memory belong to that case alone. The
file holds the specification, the environment, the phases, raw latencies, raw times of each operator, and the outcome of
the check; quantiles, shares and verdicts are computed on reading. The files are in the store's folder ``networks``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from levelbench.records.processes import (
    FileLines,
    ProcessEnd,
    ProcessFormat,
    ProcessHeader,
    ProcessRecord,
    ProcessWriter,
)
from levelbench.records.schema import Measurement, Samples

__all__ = ["FOLDER", "PHASES", "NetworkArm", "NetworkCase", "NetworkFacts", "NetworkHeader", "NetworkOutcome"]
__all__ += ["NetworkRecord", "NetworkSpecification", "NetworkWriter", "OperatorSamples", "ProfileShares", "Setting"]

FOLDER = "networks"
"""The folder in a store that holds benchmarks of networks."""
PHASES = ("open", "build", "prepare", "first")
"""In order: importing the framework and opening its device; building or loading the network and transforming it;
making the executor with its parameters; the first call, including any compilation."""

Setting = int | float | str | bool


class NetworkCase(Struct, frozen=True, forbid_unknown_fields=True):
    """A network and its batch: a row of the table.

    ``name`` is the name in the zoo, or a title for the file. ``path`` is the ONNX file (``file``) or
    ``path.py:function`` (``native``), and ``digest`` the SHA-256 of that file; both are empty for a network of the zoo.
    ``options`` are those of the zoo's build function; ``sizes`` bind symbolic sizes other than the batch.
    """

    name: str
    kind: Literal["zoo", "file", "native"] = "zoo"
    batch: int = 1
    sizes: dict[str, int] = {}
    options: dict[str, Setting] = {}
    path: str = ""
    digest: str = ""

    @property
    def title(self) -> str:
        """Its name in tables, with options, batch and sizes."""
        options = ",".join(f"{name}={value}" for name, value in self.options.items())
        sizes = "".join(f" {name}={size}" for name, size in self.sizes.items())
        return f"{self.name}{f'({options})' if options else ''} batch={self.batch}{sizes}"


class NetworkArm(Struct, frozen=True, forbid_unknown_fields=True):
    """What it is measured on: a column of the table. An empty ``mode`` is the framework's default.

    ``transforms`` are applied in order before measuring, written as on the command line: ``fold-batchnorm``,
    ``precision:bfloat16``, ``microbatch;memory=2147483648``.
    """

    framework: str
    mode: str = ""
    device: str = "cpu"
    transforms: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in tables: ``torch:compiled on cuda + fold-batchnorm``."""
        mode = f":{self.mode}" if self.mode else ""
        device = f" on {self.device}" if self.device != "cpu" else ""
        return self.framework + mode + device + "".join(f" + {each}" for each in self.transforms)

    @property
    def memory_limit(self) -> int | None:
        """The memory limit in bytes of one of its transforms."""
        found = [match for each in self.transforms if (match := re.search(r"\bmemory=(\d+)", each))]
        return int(found[0][1]) if found else None


class NetworkSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """What one process measures; its key is the digest of this alone.

    ``budget_s`` is for the latencies of one process. It ends earlier once there are ``samples`` latencies and the
    interval of their median has the relative half width ``precision``. The ``direction`` ``backward`` measures a
    training step: loss, gradients and running statistics, but no update. An empty ``loss`` is the network's own, or
    ``cross-entropy`` if it has none.
    """

    title: str
    case: NetworkCase
    arm: NetworkArm
    direction: Literal["forward", "backward"] = "forward"
    loss: Literal["", "cross-entropy", "mse"] = ""
    budget_s: float = 5.0
    precision: float = 0.05
    samples: int = 500


class NetworkHeader(ProcessHeader[NetworkSpecification], frozen=True, tag="network"):
    """The first line."""


class MemoryRoom(Struct, frozen=True):
    """What a plan leaves of its memory limit, in bytes: ``spare`` as it is made, of which a trial took ``beside``."""

    spare: int = 0
    beside: int = 0


NO_ROOM = MemoryRoom()


NOISE, NOISE_BYTES = 0.01, 512 << 10
"""Peaks of equal processes differ by less than this share, or by so many bytes."""


def limit_held(peak_b: float) -> int:
    """The smallest memory limit, in bytes, that a plan with this peak holds in each process."""
    return math.ceil(max(peak_b / (1 - NOISE), peak_b + NOISE_BYTES))


class NetworkFacts(Struct, frozen=True, tag="facts", tag_field="kind"):
    """Facts about the network once it is built, for one call with the case's batch; ``None`` is unknown.

    ``framework`` is the backend's description of itself, ``mode`` the measured mode, ``dtype`` the type of most of the
    arithmetic. ``flops`` and ``bytes`` are floating-point operations and compulsory bytes, ``activation_bytes`` the
    bytes of all values between operators. ``unknown`` counts the operators of unknown cost. ``transforms`` says what
    each transform changed. Of a memory limit the plan left ``room``; ``planned_bytes`` are those of its tensors and
    what a trial of it took besides.
    """

    framework: dict[str, Any] = {}
    mode: str = ""
    dtype: str = "float32"
    parameters: int | None = None
    parameter_bytes: int | None = None
    nodes: int | None = None
    flops: float | None = None
    multiply_adds: float | None = None
    bytes: float | None = None
    activation_bytes: float | None = None
    unknown: dict[str, int] = {}
    transforms: tuple[str, ...] = ()
    room: MemoryRoom = MemoryRoom()
    planned_bytes: int | None = None


class OperatorSamples(Struct, frozen=True, tag="operator", tag_field="kind"):
    """Raw times of one operator in seconds, one per call of the network.

    ``index`` is its index among the network's nodes, or -1 for something that the framework added (a fused operator, a
    copy). ``output`` names its first output.
    """

    index: int
    title: str
    output: str
    times_s: Sequence[float]
    flops: float | None = None
    bytes: float | None = None


class ProfileShares(Struct, frozen=True, tag="profile", tag_field="kind"):
    """The share of each type of operator in the time of all operators, by the framework's own profiler.

    ``method`` names the profiler. If there are no shares, ``reason`` says why.
    """

    method: str = ""
    shares: dict[str, float] = {}
    reason: str = ""


class NetworkOutcome(Struct, frozen=True, tag="outcome", tag_field="kind"):
    """The outcome of a process.

    ``status`` is ``measured`` (with a correct result), ``wrong`` (measured, but the result differs from the
    reference's), ``refused`` (the time is not that of computing the result), ``skipped`` (does not fit),
    ``unsupported`` (refused by the framework) or ``failed`` (it raised, or its process crashed), all but the first with
    a ``reason``. ``errors`` are the largest errors, relative to the size of the tensor: ``output``, or ``loss`` and
    ``gradient``. A transformed network is compared with the original. ``checked`` says what was compared with what,
    within which tolerance. If operators were not timed, ``operators_reason`` says why.
    """

    status: Literal["measured", "wrong", "refused", "skipped", "unsupported", "failed"]
    reason: str = ""
    errors: dict[str, float | None] = {}
    checked: str = ""
    stopped_by: str = ""
    warmup_reason: str = ""
    operators_reason: str = ""


NetworkEvent = NetworkFacts | Measurement | Samples | OperatorSamples | ProfileShares | NetworkOutcome | ProcessEnd
_FORMAT = ProcessFormat[NetworkHeader, NetworkEvent]("network's record", FOLDER, NetworkHeader, NetworkEvent)


@dataclass(frozen=True)
class NetworkRecord(ProcessRecord[NetworkHeader]):
    """The record of one process.

    ``measurements`` are named ``phase/open`` and so on, for all ``PHASES`` (in s), and ``peak_memory`` (in B).
    ``samples`` are in seconds per call: ``latency``, and ``warmup`` for the calls before.
    """

    form = _FORMAT

    facts: NetworkFacts
    measurements: dict[str, Measurement]
    samples: dict[str, Sequence[float]]
    operators: tuple[OperatorSamples, ...]
    profile: ProfileShares | None
    outcome: NetworkOutcome | None

    @classmethod
    def _parts(cls, found: FileLines[NetworkHeader, NetworkEvent], asked: str) -> dict[str, Any]:
        return {
            "facts": found.last(NetworkFacts) or NetworkFacts(),
            "measurements": {each.name: each for each in found.all(Measurement)},
            "samples": {each.name: each.values for each in found.all(Samples)},
            "operators": found.all(OperatorSamples),
            "profile": found.last(ProfileShares),
            "outcome": found.last(NetworkOutcome),
        }


class NetworkWriter(ProcessWriter[NetworkHeader, NetworkEvent]):
    """Writes the record of a network benchmark."""

    form = _FORMAT
