"""Measures one case on one arm in this process: each phase once, then memory, correctness, latencies and operators.

Whatever happens (it does not fit, is refused, raises, is wrong) ends in an outcome that says so. What can
only be had once in a process (imports, compilation, a peak) is taken first, and what needs many calls comes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import structs
from numpy.typing import NDArray

from levelbench.errors import LevelbenchError, MissingError, UnsupportedError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.networks.benchmark.cases import make_case
from levelbench.networks.benchmark.checking import Correctness
from levelbench.networks.benchmark.facts import Known, known_of
from levelbench.networks.benchmark.latency import Latency, enough, sample_latency
from levelbench.networks.benchmark.memory import Footprint, meter_of
from levelbench.networks.benchmark.parts import record_operators
from levelbench.networks.benchmark.reference import Reference
from levelbench.networks.benchmark.trial import PreparedCase
from levelbench.networks.executor import Backend
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.records.networks import NetworkEvent, NetworkOutcome, NetworkSpecification
from levelbench.records.redaction import redact
from levelbench.records.schema import Measurement, Samples

STAGES = ("open", "build", "prepare", "first", "memory", "check", "latency", "operators")
"""What a process is at, in order; the first four are phases of the record."""

Record = Callable[[NetworkEvent], None]
Host = NDArray[Any]

_MEMORY_SHARE = 0.8
_COPIES = {"forward": 3, "backward": 5}
"""Of the parameters: as drawn, the executor's own, and one for a compiler; gradients, and what they are made with."""
# How PyTorch, JAX and ONNX Runtime say it.
_OUT_OF_MEMORY = ("OutOfMemoryError", "RESOURCE_EXHAUSTED", "Failed to allocate memory", "not enough memory")


class _Skipped(Exception):
    """The network does not fit; the message is the reason."""


def measure_network(
    specification: NetworkSpecification,
    reference: Reference,
    record: Record,
    on_stage: Callable[[str], None] = lambda stage: None,
    open_backend: Callable[[str, str], OperatorBackend] = open_framework,
) -> NetworkOutcome:
    """Measure what ``specification`` says, giving ``record`` each event as it is known; the outcome is not among them.

    ``on_stage`` gets each of ``STAGES`` as it begins. Raises ``MissingError`` for a framework that is not here.
    """
    try:
        return _measured(specification, reference, record, on_stage, open_backend)
    except _Skipped as reason:
        return NetworkOutcome("skipped", str(reason))
    except UnsupportedError as error:
        return NetworkOutcome("unsupported", error.found)
    except MissingError:
        raise
    except MemoryError:
        return NetworkOutcome("skipped", "it ran out of memory")
    except Exception as error:  # noqa: BLE001  # the boundary to a framework: one arm must not end the others
        said = redact(str(error) if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}")
        if any(sign in said for sign in _OUT_OF_MEMORY):
            return NetworkOutcome("skipped", "it ran out of the device's memory")
        return NetworkOutcome("failed", next(iter(said.splitlines()), "")[:300])


class _Phases:
    """Says which stage begins, and records how long a phase took."""

    def __init__(self, record: Record, on_stage: Callable[[str], None], clock: Clock = HOST) -> None:
        self._record, self._clock, self.begin = record, clock, on_stage

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A stretch that ends with its work done; nothing is recorded of one that raises."""
        self.begin(name)
        before_ns = self._clock.now_ns()
        yield
        seconds = (self._clock.now_ns() - before_ns) * 1e-9
        self._record(Measurement(f"phase/{name}", "s", seconds, "host clock"))


def _measured(
    specification: NetworkSpecification,
    reference: Reference,
    record: Record,
    on_stage: Callable[[str], None],
    open_backend: Callable[[str, str], OperatorBackend],
) -> NetworkOutcome:
    arm, phases = specification.arm, _Phases(record, on_stage)
    with phases.phase("open"):
        backend = open_backend(arm.framework, arm.device)
    if not isinstance(backend, Backend):
        asked = f"a network on {arm.framework}"
        raise UnsupportedError(asked, "it runs single operators only", "use another framework")
    mode = backend.chosen_mode(arm.mode or None)
    with phases.phase("build"):
        made = make_case(specification)
    known = known_of(made, specification, backend.describe(), mode)
    record(known.facts)
    _check_fit(known, specification)
    footprint = Footprint(meter_of(backend, arm.device))
    with phases.phase("prepare"):
        trial = PreparedCase(backend, made, specification, mode)
    if made.native is not None:
        # Only its executor knows them; a reader takes the last facts.
        record(structs.replace(known.facts, parameters=trial.parameter_count()))
    with phases.phase("first"):
        trial.first()
    trial.keep(reference)
    phases.begin("memory")
    record(footprint.of(trial.work))
    phases.begin("check")
    finding = trial.check(reference)
    phases.begin("latency")
    clock = HOST if arm.device == "cpu" else backend.clock()
    taken = sample_latency(trial.work, _until(specification), clock)
    record(Samples("warmup", "s", taken.warmup.tolist()))
    record(Samples("latency", "s", taken.values.tolist()))
    phases.begin("operators")
    reason = _operators(trial, known, taken, specification, record)
    return _outcome(finding, taken, reason)


def _until(specification: NetworkSpecification) -> Any:
    return enough(specification.samples, specification.precision, specification.budget_s)


def _operators(
    trial: PreparedCase, known: Known, taken: Latency, specification: NetworkSpecification, record: Record
) -> str:
    """Record times of operators and the profiler's shares; why there are none, where there are none."""
    if specification.direction == "backward":
        return "the operators of a training step are not timed one by one"
    try:
        record_operators(trial, known, float(sum(taken.values) / len(taken.values)), specification, record)
    except UnsupportedError as error:
        return f"{error.asked}: {error.found}"
    return ""


def _outcome(finding: Correctness, taken: Latency, operators_reason: str) -> NetworkOutcome:
    return NetworkOutcome(
        "wrong" if finding.wrong else "measured",
        finding.wrong,
        finding.errors,
        finding.checked,
        taken.stopped_by,
        taken.warmup_reason,
        operators_reason,
    )


def _check_fit(known: Known, specification: NetworkSpecification) -> None:
    """Refuse, before anything is drawn, parameters that cannot fit the memory."""
    held = (known.facts.parameter_bytes or 0) * _COPIES[specification.direction]
    left = memory_left_bytes()
    if left is not None and held > _MEMORY_SHARE * left:
        raise _Skipped(f"needs about {held / 2**30:.1f} GiB for parameters where {left / 2**30:.1f} GiB are left")
