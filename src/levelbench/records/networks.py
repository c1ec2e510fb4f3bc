"""What a benchmark of a network leaves behind: one file a process, with every raw time it took.

One process measures one case on one arm, so that start-up, compilation and peak memory belong to that
case alone. The file holds what was asked, the environment, the phases, raw latencies, raw times of each operator, and
what was found right or wrong; quantiles, shares and verdicts are computed by whoever reads. The files lie in the
store's folder ``networks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from levelbench.records import locks
from levelbench.records.digest import key_of
from levelbench.records.processes import (
    ProcessRecord,
    ProcessWriter,
    decoded_header,
    decoded_lines,
    find_records,
    open_record,
)
from levelbench.records.schema import Count, Measurement, Samples

__all__ = ["FOLDER", "NETWORK_SCHEMA", "PHASES", "NetworkArm", "NetworkCase", "NetworkEnd", "NetworkFacts"]
__all__ += ["NetworkHeader", "NetworkOutcome", "NetworkRecord", "NetworkSpecification", "NetworkWriter"]
__all__ += ["OperatorSamples", "ProfileShares", "find_network_records", "network_key", "read_network_record"]

NETWORK_SCHEMA = 2
FOLDER = "networks"
"""The folder in a store that holds benchmarks of networks."""
PHASES = ("open", "build", "prepare", "first")
"""In order: importing the framework and opening its device; building or loading the network and transforming it;
making the executor with its parameters; the first call, with whatever is compiled at it."""

Setting = int | float | str | bool


class NetworkCase(Struct, frozen=True, forbid_unknown_fields=True):
    """Which network, on how much: a row of the table.

    ``name`` is the zoo's name, or a title for the file. ``path`` is the ONNX file (``file``) or ``path.py:function``
    (``native``), and ``digest`` the SHA-256 of that file; both are empty for a network of the zoo. ``options`` are
    those of the zoo's build function, ``sizes`` bind symbolic sizes other than the batch.
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
        """What a table calls it: the name, its options, the batch and the sizes."""
        options = ",".join(f"{name}={value}" for name, value in self.options.items())
        sizes = "".join(f" {name}={size}" for name, size in self.sizes.items())
        return f"{self.name}{f'({options})' if options else ''} batch={self.batch}{sizes}"


class NetworkArm(Struct, frozen=True, forbid_unknown_fields=True):
    """On what it is measured: a column. An empty ``mode`` is the framework's default one.

    ``transforms`` are applied in order before anything is measured, each in the words of the command line:
    ``fold-batchnorm``, ``precision:bfloat16``, ``microbatch;memory=2147483648``.
    """

    framework: str
    mode: str = ""
    device: str = "cpu"
    transforms: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What a table calls it: ``torch:compiled on cuda + fold-batchnorm``."""
        mode = f":{self.mode}" if self.mode else ""
        device = f" on {self.device}" if self.device != "cpu" else ""
        return self.framework + mode + device + "".join(f" + {each}" for each in self.transforms)


class NetworkSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """What one process is to measure; its key is the digest of this alone.

    ``budget_s`` is for the latencies of one process; ``precision`` the half width, as a share, of the interval of its
    median, and ``samples`` the number of latencies, at both of which it ends before that.
    ``direction`` ``backward`` measures a training step: loss, gradients and running statistics, but no update; an
    empty ``loss`` is the network's own, or ``cross-entropy`` where it has none.
    """

    title: str
    case: NetworkCase
    arm: NetworkArm
    direction: Literal["forward", "backward"] = "forward"
    loss: Literal["", "cross-entropy", "mse"] = ""
    budget_s: float = 5.0
    precision: float = 0.05
    samples: int = 500


class NetworkHeader(Struct, frozen=True, tag="network", tag_field="kind"):
    """The first line. ``seed`` is the number of the process; ``ceilings`` as ``Ceilings.to_dict`` gives them.

    ``planned_effect`` and ``planned_runs`` as for runs.
    """

    schema: int
    id: str
    key: str
    seed: Count
    started: str
    specification: NetworkSpecification
    environment: dict[str, Any]
    ceilings: dict[str, Any]
    version: str
    planned_effect: float | None = None
    planned_runs: Count = 0


class NetworkFacts(Struct, frozen=True, tag="facts", tag_field="kind"):
    """What is known of the network once it is there; ``None`` is unknown. Of one call, with the case's batch.

    ``framework`` is what its backend says of itself, ``mode`` the mode that is measured, ``dtype`` the one in which
    most of the arithmetic is done, ``flops`` and ``bytes`` floating-point operations and compulsory bytes,
    ``activation_bytes`` those of all values between operators, ``unknown`` the operators whose cost is not known, by
    count. ``transforms`` says for each transform what it changed.
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


class OperatorSamples(Struct, frozen=True, tag="operator", tag_field="kind"):
    """Raw times in seconds of one operator, one a call of the network.

    ``index`` is its place among the network's nodes, -1 for something that the framework made itself (a fused
    operator, a copy). ``output`` names its first output.
    """

    index: int
    title: str
    output: str
    times_s: Sequence[float]
    flops: float | None = None
    bytes: float | None = None


class ProfileShares(Struct, frozen=True, tag="profile", tag_field="kind"):
    """What the framework's own profiler says: each type of operator's share of the time of all of them.

    ``method`` names the profiler; ``reason`` says why there are no shares, where there are none.
    """

    method: str = ""
    shares: dict[str, float] = {}
    reason: str = ""


class NetworkOutcome(Struct, frozen=True, tag="outcome", tag_field="kind"):
    """What came of it.

    ``status``: ``measured`` (and found right); ``wrong`` (measured, but its result is not the reference's), ``skipped``
    (does not fit), ``unsupported`` (refused by the framework) and ``failed`` (it raised, or its process crashed), each
    with a ``reason``. ``errors`` are the largest over what was compared, each relative to its tensor's size:
    ``output``, or ``loss`` and ``gradient``; of a transformed network they are against the one before. ``checked`` says
    against what, on which part and within which tolerance. ``operators_reason`` says why there are no times of
    operators, where there are none.
    """

    status: Literal["measured", "wrong", "skipped", "unsupported", "failed"]
    reason: str = ""
    errors: dict[str, float | None] = {}
    checked: str = ""
    stopped_by: str = ""
    warmup_reason: str = ""
    operators_reason: str = ""


class NetworkEnd(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line. ``suspect`` lists reasons to doubt the times."""

    suspect: list[str] = field(default_factory=list)
    environment_after: dict[str, Any] = field(default_factory=dict)


NetworkEvent = NetworkFacts | Measurement | Samples | OperatorSamples | ProfileShares | NetworkOutcome | NetworkEnd

_HEADER = msgspec.json.Decoder(NetworkHeader)
# Lax, so that "nan" and "inf", which stand for what JSON has not, are figures again.
_EVENT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(NetworkEvent, strict=False)


@dataclass(frozen=True)
class NetworkRecord(ProcessRecord):
    """What one process left behind.

    ``measurements`` by name: ``phase/open`` and the others of ``PHASES`` in s, ``peak_memory`` in B. ``samples`` by
    name, in seconds a call: ``latency``, and ``warmup`` for what came before.
    """

    path: Path
    header: NetworkHeader
    facts: NetworkFacts
    measurements: dict[str, Measurement]
    samples: dict[str, Sequence[float]]
    operators: tuple[OperatorSamples, ...]
    profile: ProfileShares | None
    outcome: NetworkOutcome | None
    end: NetworkEnd | None
    running: bool = False


def network_key(specification: NetworkSpecification) -> str:
    """The digest of a specification, as for runs: 64 hexadecimal digits of the canonical JSON's SHA-256."""
    return key_of(specification)


class NetworkWriter(ProcessWriter[NetworkHeader, NetworkEvent]):
    """An open record of a network's benchmark."""

    folder = FOLDER
    kind = "network's record"


def read_network_record(path: Path) -> NetworkRecord:
    """The record at ``path``; a torn last line is passed over. ``RecordError`` for what is none, or is damaged."""
    asked = f"reading the network's record {path}"
    with open_record(path, asked) as file:
        running = locks.is_held(file.fileno())
        header, chain = decoded_header(file, _HEADER, NETWORK_SCHEMA, "network's benchmark", asked)
        events = list(decoded_lines(file, _EVENT, chain, asked))

    def last(kind: type[Any]) -> Any:
        return next((event for event in reversed(events) if isinstance(event, kind)), None)

    return NetworkRecord(
        path,
        header,
        last(NetworkFacts) or NetworkFacts(),
        {event.name: event for event in events if isinstance(event, Measurement)},
        {event.name: event.values for event in events if isinstance(event, Samples)},
        tuple(event for event in events if isinstance(event, OperatorSamples)),
        last(ProfileShares),
        last(NetworkOutcome),
        last(NetworkEnd),
        running,
    )


def find_network_records(store: Path, key: str) -> list[NetworkRecord]:
    """The records in ``store`` of the specification with that key, oldest first; those damaged are passed over."""
    return find_records(store, FOLDER, key, read_network_record)
