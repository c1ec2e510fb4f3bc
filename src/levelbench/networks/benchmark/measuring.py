"""Measures one case on one arm in this process: each phase once, then memory, correctness, latencies and operators.

Whatever happens (it does not fit, is refused, raises, is wrong) ends in an outcome that says so. What can be measured
only once in a process (imports, compilation, a peak) comes first, followed by what needs many calls.

- A mean over several calls has no tail, so each latency is one call, however short.
- The peak memory of a call is measured relative to what the process held before the executor was created. On the CPU
  the kernel counts resident memory, independent of the framework's allocator, and its high-water mark can be reset
  before the calls: a few, as what an allocator keeps may grow. So the difference includes parameters, inputs,
  activations, workspaces and library code that runs for the first time, but not the compiler's own peak. Under a
  memory limit it is at least what making the executor and its inputs and, without a compiler, the first call take.
  Freed memory that an allocator keeps counts, as no other process can use it; what the C library keeps is returned
  first, and under a memory limit as soon as it is freed. On an accelerator the framework's own counter is read.
- Our clock runs around each operator. If the framework has a profiler, its shares are recorded too, for comparison.
"""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from msgspec import structs
from numpy.typing import NDArray

from levelbench.checks.arrays import Correctness, Host
from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST, Clock, Work, time_ns, timed
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.measure.meters.base import Meter, NullMeter, Reading
from levelbench.measure.meters.resources import LifetimePeakMemoryMeter, memory_meter
from levelbench.measure.stopping import Budget, FixedCount, Precision, SampleSoFar, StoppingRule
from levelbench.measure.warmup import find_warmup
from levelbench.networks.benchmark.cases import Known, Made, known_of, make_case, times_of
from levelbench.networks.benchmark.reference import (
    KeptTensor,
    Reference,
    ReferenceFacts,
    compare,
    cut,
    first_rows,
    load,
    named,
    tensor_of,
    to_be_checked,
)
from levelbench.networks.benchmark.watching import AnswerWatch, second_models, seeded
from levelbench.networks.executor import Array, Backend, Executor, OperatorTime
from levelbench.networks.network import Network, read_inputs
from levelbench.networks.values import dtype_of
from levelbench.operators.benchmark.checking import other_type
from levelbench.operators.benchmark.measuring import Skipped, failure
from levelbench.operators.benchmark.watching import Contents, RefusedError, WrongError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.cost import Cost
from levelbench.operators.frameworks import open_framework
from levelbench.records.networks import (
    NO_ROOM,
    MemoryRoom,
    NetworkEvent,
    NetworkOutcome,
    NetworkSpecification,
    NetworkWriter,
    OperatorSamples,
    ProfileShares,
)
from levelbench.records.processes import Planned, ProcessEnd
from levelbench.records.schema import Measurement, Samples

_MOST = 50_000
_FEW = 6
_OVERRUN = 3.0


@dataclass(frozen=True, eq=False)
class Latency:
    """Raw latencies in seconds, shape (n,), after warm-up; ``warmup`` holds those before.

    Each value includes the cost of reading the clock.
    """

    values: NDArray[np.float64]
    warmup: NDArray[np.float64]
    warmup_reason: str
    stopped_by: str


def enough(samples: int, precision: float, budget_s: float) -> StoppingRule:
    """Stop at ``samples`` values with a median known to ``precision``, or if the budget is spent, or at 50,000 values.

    For a slow call the budget may be exceeded up to three times to get six values, the fewest that give a median an
    interval.
    """
    return (FixedCount(samples) & Precision(precision)) | FixedCount(_MOST) | Budget(budget_s, _FEW, _OVERRUN)


def sample_latency(work: Work, until: StoppingRule, clock: Clock = HOST, watch: AnswerWatch | None = None) -> Latency:
    """Call ``work``, or that of ``watch``, which returns once its result is computed, until ``until`` is met."""

    def value_ns() -> int:
        if watch is None:
            return time_ns(work, clock)
        watch.before(1)
        claimed_ns, real_ns, found = timed(watch.work, clock, 1)
        watch.after(found, claimed_ns, real_ns)
        return claimed_ns

    started_ns = clock.now_ns()
    values_ns: list[int] = [value_ns()]
    while True:
        values = np.asarray(values_ns, np.float64) * 1e-9
        found = find_warmup(values)
        progress = SampleSoFar(values[found.cut :], (clock.now_ns() - started_ns) * 1e-9)
        check = until.check(progress)
        if check.met:
            return Latency(values[found.cut :], values[: found.cut], found.reason, check.text)
        # Wait for up to a third more values before the next check: each check may stop on a lucky agreement.
        block = min(until.more(progress), max(2, len(values) // 3))
        values_ns += [value_ns() for _ in range(block)]


PEAK = "peak_memory"


def meter_of(backend: Backend, device: str) -> Meter:
    """The meter whose high-water mark ``start`` resets: the kernel's on the CPU, else the framework's.

    If there is none, a null meter says why.
    """
    if device == "cpu":
        found = memory_meter()
        if isinstance(found, LifetimePeakMemoryMeter):
            return NullMeter(PEAK, "B", "this system cannot reset the peak of a process")
        return found
    return backend.memory_meter()


class Footprint:
    """Measures the peak memory of calls above what was held when this was created: create it before the executor."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._before = self._peak(lambda: None)
        self._least = 0.0

    def count_until_now(self) -> None:
        """Let peaks be at least what was taken since this was created; to be called before any other is measured."""
        self._least = self._meter.stop().value or 0.0

    def of(self, work: Callable[[], object]) -> Measurement:
        """The peak during one call of ``work`` above the start, in bytes."""
        peak = self._peak(work)
        if peak.value is None or self._before.value is None:
            reason = peak.reason or self._before.reason
            return Measurement(PEAK, "B", None, None, reason)
        taken = max(self._least, peak.value) - self._before.value
        return Measurement(PEAK, "B", max(0.0, taken), f"{peak.method}, above the start")

    def _peak(self, work: Callable[[], object]) -> Reading:
        _give_back()
        self._meter.start()
        work()
        return self._meter.stop()


def _give_back() -> None:
    """Collect garbage, and make the C library return the memory it keeps (glibc; others have no such call)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_MMAP_THRESHOLD, _TRIM_THRESHOLD, _LEAST_RETURNED = -3, -1, 64 << 10


def _return_when_freed(made: Made) -> None:
    """Return memory as it is freed if there is a limit: a heap with holes takes more, and not always as much.

    Equal processes differed by a third without this (49 to 69 MiB for BERT-tiny at batch 16).
    """
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if made.memory is not None and change is not None:
        for threshold in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            change(threshold, _LEAST_RETURNED)


_PEAK_CALLS, _PEAK_S = 8, 1.0


def _few(work: Work) -> None:
    """Up to eight calls within a second, but at least one: what an allocator keeps may grow with each."""
    started_ns = HOST.now_ns()
    for _ in range(_PEAK_CALLS):
        work()
        if (HOST.now_ns() - started_ns) * 1e-9 > _PEAK_S:
            return


class PreparedCase:
    """Makes the executor and its inputs; the host copies of both are released, so that no peak includes them."""

    def __init__(self, backend: Backend, made: Made, specification: NetworkSpecification, mode: str) -> None:
        self.backend, self.made, self.specification, self.mode = backend, made, specification, mode
        self._trains = specification.direction == "backward"
        self.executor = self._executor(made.network, self._trains)
        self.inputs = self._native(self._hosted_inputs())
        self._found: Any = None
        self._kept: dict[str, KeptTensor] = {}

    def work(self) -> None:
        """The measured call: it returns once its results are computed, and releases them."""
        self._finished()

    def first(self) -> None:
        """The first call; its results are held until :meth:`keep`."""
        self._found = self._finished()

    def _finished(self) -> Any:
        if not self._trains:
            outputs = self.executor.infer(*self.inputs)
            self.backend.finish(outputs)
            return outputs
        loss, gradients = self.executor.infer_and_backprop(*self.inputs)
        self.backend.finish([loss, *gradients.values()])
        return loss, gradients

    def parameter_count(self) -> int:
        """The number of trainable scalars in the executor."""
        return sum(math.prod(each.shape) for each in self.executor.parameters.values())

    def keep(self, reference: Reference) -> None:
        """Keep what is compared of the first call's results and release the rest, so that no peak includes it."""
        found, self._found = self._found, None
        wanted = reference.tensors
        for name, each in named(found, trains=self._trains).items():
            if name in wanted:
                self._kept[name] = tensor_of(_like(self._host(each), wanted[name].shape, reference.facts.rows))

    def check(self, reference: Reference) -> Correctness:
        """Compare the kept results of the first call with the reference."""
        facts, kept, case = reference.facts, self._kept, self.specification.case
        if facts.reason or self.made.transformed is None:
            return Correctness(checked=f"not checked: {facts.reason}")
        allowed = self.made.output_tolerance, self.made.gradient_tolerance
        if self._trains and (facts.rows != case.batch or facts.evaluation):
            kept = self._step_of(facts.rows)
        finding = compare(reference, kept, allowed)
        # First compare the rows of the whole batch, which is what is measured. In the zoo rows are independent; a
        # foreign model whose rows affect each other is run again with only these rows.
        if not finding.wrong or self._trains or facts.rows == case.batch or case.kind == "zoo":
            return finding
        alone = compare(reference, self._alone(facts.rows), allowed)
        checked = f"{alone.checked}, run separately: within a batch of {case.batch} the rows affect each other"
        return finding if alone.wrong else Correctness("", checked, alone.errors)

    def misconduct(self) -> str:
        """What is wrong with calls, whatever they compute: they write to inputs, answer in other types, or remember.

        A network remembers if it answers other inputs with the same outputs, where NumPy does not.
        """
        network, case = self.made.network, self.specification.case
        if network is None or self._trains:
            return ""
        other = network.make_inputs(case.batch, 1, case.sizes)
        inputs = [self._hosted_inputs(), {name: other[name] for name in read_inputs(network)}]
        answers = []
        for hosted in inputs:
            contents = Contents(list(hosted.values()), self.backend)
            found = [self._host(each) for each in self.executor.infer(*contents.native)]
            if (at := contents.touched()) is not None:
                return f"it changes its input {list(hosted)[at]!r} in place"
            for at, (each, declared) in enumerate(zip(found, network.outputs, strict=False)):
                if declared.dtype and (wrong := other_type(f"output {at}", each.dtype, dtype_of(declared.dtype))):
                    return wrong
            answers.append(found)
        if not _alike(*answers):
            return ""
        try:
            numpy = _running_networks(open_framework("numpy", "cpu"), "numpy")
            reference = numpy.executor(network, self.made.parameters, trains=False)
            wanted = [reference.infer(*given.values()) for given in inputs]
        except UnsupportedError:
            return ""
        return "" if _alike(*wanted) else "it gives the same outputs for other inputs: it remembers results"

    def watched(self) -> AnswerWatch | None:
        """The measured call with changing inputs, of a framework's own model: it may remember."""
        case = self.specification.case
        if self.made.native is None:
            return None
        seconds = second_models(case.path, case.options, self.executor, self.backend)
        return AnswerWatch(
            self.executor, seconds, self.backend, list(self._hosted_inputs().values()), trains=self._trains
        )

    def _host(self, array: Array) -> Host:
        return np.asarray(self.backend.host(array))

    def _alone(self, rows: int) -> dict[str, KeptTensor]:
        network = self.made.network
        assert network is not None
        found = self.executor.infer(*self._native(first_rows(network, self._hosted_inputs(), rows)))
        return {name: tensor_of(self._host(each)) for name, each in named(found, trains=False).items()}

    def _step_of(self, rows: int) -> dict[str, KeptTensor]:
        """A training step with the first rows, as for the reference."""
        base = self.made.transformed
        assert base is not None
        network, _ = to_be_checked(base, self.specification)
        case = self.specification.case
        inputs = first_rows(network, network.make_inputs(case.batch, 0, case.sizes), rows)
        found = self._executor(network, trains=True).infer_and_backprop(*self._native(inputs))
        return {name: tensor_of(self._host(each)) for name, each in named(found, trains=True).items()}

    def _executor(self, network: Network | None, trains: bool) -> Executor:
        if network is None:
            assert self.made.native is not None
            return self.backend.native(self.made.native, self.mode)
        values = network.initialise(0) if self.made.parameters is None else self.made.parameters
        return self.backend.executor(network, values, mode=self.mode, trains=trains)

    def _hosted_inputs(self) -> dict[str, Host]:
        """The inputs of the measured call, in order."""
        case, network, native = self.specification.case, self.made.network, self.made.native
        if network is not None:
            made = network.make_inputs(case.batch, 0, case.sizes)
            return made if self._trains else {name: made[name] for name in read_inputs(network)}
        assert native is not None
        found = native.make_inputs(case.batch, 0, case.sizes)
        if self._trains:
            outputs = self.executor.infer(*self._native(found))
            found["labels"] = native.make_labels(np.shape(self._host(outputs[0])))
        return found

    def _native(self, inputs: Mapping[str, Host]) -> list[Array]:
        return [self.backend.array(each) for each in inputs.values()]


def _like(array: Host, shape: tuple[int, ...], rows: int) -> Host:
    """The first rows along the one axis on which ``array`` differs from ``shape``; unchanged if there is none."""
    if array.ndim != len(shape):
        return array
    longer = [axis for axis, (a, b) in enumerate(zip(array.shape, shape, strict=True)) if a != b]
    return cut(array, longer[0], rows) if len(longer) == 1 else array


_FEWEST_REPEATS, _MOST_REPEATS = 5, 50
_BUDGET_SHARE = 0.5


def repeats_for(call_s: float, budget_s: float) -> int:
    """How many instrumented calls fit into half the budget, from 5 to 50."""
    return min(_MOST_REPEATS, max(_FEWEST_REPEATS, int(_BUDGET_SHARE * budget_s / max(call_s, 1e-9))))


def _record_operators(
    trial: PreparedCase,
    known: Known,
    call_s: float,
    specification: NetworkSpecification,
    record: Callable[[NetworkEvent], None],
) -> str:
    """Record the times of all operators and the profiler's shares; returns why there are none, or an empty string.

    ``call_s`` is the time of a whole call, which determines the number of repetitions.
    """
    if specification.direction == "backward":
        return "the operators of a training step are not timed one by one"
    repeats = repeats_for(call_s, specification.budget_s)
    try:
        found = trial.executor.operator_times(*trial.inputs, repeats=repeats)
    except UnsupportedError as error:
        return f"{error.asked}: {error.found}"
    for each, cost in zip(found, costs_of(found, trial.made.network, known), strict=True):
        record(OperatorSamples(each.index, each.title, each.output, each.times_s, cost.flops, cost.bytes))
    record(_profiled(trial, repeats))
    return ""


def costs_of(found: Sequence[OperatorTime], network: Network | None, known: Known) -> list[Cost]:
    """The cost of each operator: of its node or, if the framework fused nodes, of all nodes leading to its output.

    A fused operator has the operations of its nodes, and their bytes without the values passed between them.
    """
    covered = {each.index for each in found if each.index >= 0}
    nodes = () if network is None else network.model.graph.node
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    answer = []
    for each in found:
        if each.index >= 0:
            answer.append(known.nodes.get(each.index, Cost(None, None)))
            continue
        mine = _leading_to(each.output, nodes, makers, covered)
        covered |= mine
        answer.append(_fused(mine, each.output, nodes, known))
    return answer


def _fused(mine: set[int], output: str, nodes: Sequence[onnx.NodeProto], known: Known) -> Cost:
    costs = [known.nodes.get(at, Cost(None, None)) for at in mine]
    made = {name for at in mine for name in nodes[at].output if name} - {output}
    # Values written by one of them and read by another, which the fused operator does neither.
    passed = [name for at in mine for name in (*nodes[at].output, *nodes[at].input) if name in made]
    flops, moved = [each.flops for each in costs], [each.bytes for each in costs]
    if not mine or None in flops:
        return Cost(None, None)
    whole = sum(each for each in flops if each is not None)
    if None in moved or any(name not in known.value_bytes for name in passed):
        return Cost(whole, None)
    return Cost(
        whole, sum(each for each in moved if each is not None) - sum(known.value_bytes[name] for name in passed)
    )


def _leading_to(output: str, nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int], covered: set[int]) -> set[int]:
    """The nodes that compute ``output`` and are not covered by another operator."""
    found: set[int] = set()
    waiting = [output]
    while waiting:
        at = makers.get(waiting.pop(), -1)
        if at >= 0 and at not in covered and at not in found:
            found.add(at)
            waiting.extend(nodes[at].input)
    return found


def _profiled(trial: PreparedCase, repeats: int) -> ProfileShares:
    backend = trial.backend
    try:
        method, seconds = backend.profile(trial.executor, trial.inputs, repeats)
    except UnsupportedError as error:
        return ProfileShares(reason=error.found)
    whole = sum(seconds.values())
    if whole <= 0:
        return ProfileShares(method, reason="the profiler saw no operator")
    return ProfileShares(method, {name: value / whole for name, value in seconds.items()})


STAGES = ("open", "build", "prepare", "first", "memory", "check", "latency", "operators")
"""The stages of a process, in order; the first four are phases of the record."""

Record = Callable[[NetworkEvent], None]

_MEMORY_SHARE = 0.8
_COPIES = {"forward": 3, "backward": 5}
"""Copies of the parameters: as drawn, the executor's, and a compiler's; for training also gradients and temporaries."""


def measure_network(
    specification: NetworkSpecification,
    reference: Reference,
    record: Record,
    on_stage: Callable[[str], None] = lambda stage: None,
    open_backend: Callable[[str, str], OperatorBackend] = open_framework,
    room: MemoryRoom = NO_ROOM,
) -> NetworkOutcome:
    """Measure ``specification``, passing each event except the outcome to ``record`` as soon as it is known.

    ``on_stage`` gets each of ``STAGES`` as it begins; ``room`` is for the plan of a memory limit. Raises
    ``MissingError`` for a framework that is not installed.
    """
    try:
        return _measured(specification, reference, record, on_stage, open_backend, room)
    except (RefusedError, WrongError) as error:
        return NetworkOutcome("refused" if isinstance(error, RefusedError) else "wrong", str(error))
    except Exception as error:  # noqa: BLE001  # the boundary to a framework: one arm must not end the others
        return NetworkOutcome(*failure(error))


def _measured(
    specification: NetworkSpecification,
    reference: Reference,
    record: Record,
    on_stage: Callable[[str], None],
    open_backend: Callable[[str, str], OperatorBackend],
    room: MemoryRoom,
) -> NetworkOutcome:
    arm = specification.arm

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        """A phase that ends when its work is done; not recorded if it raises."""
        on_stage(name)
        before_ns = HOST.now_ns()
        yield
        record(Measurement(f"phase/{name}", "s", (HOST.now_ns() - before_ns) * 1e-9, "host clock"))

    with phase("open"):
        opened = open_backend(arm.framework, arm.device)
    backend = _running_networks(opened, arm.framework)
    mode = backend.chosen_mode(arm.mode or None)
    with phase("build"), seeded(backend):
        made = make_case(specification, room.spare)
    known = known_of(made, specification, backend.describe(), mode)
    if made.memory is not None:
        planned = made.memory.memory + room.beside
        known = replace(known, facts=structs.replace(known.facts, room=room, planned_bytes=planned))
    record(known.facts)
    _check_fit(known, specification)
    _return_when_freed(made)
    footprint = Footprint(meter_of(backend, arm.device))
    with phase("prepare"):
        trial = PreparedCase(backend, made, specification, mode)
    if made.native is not None:
        # Only its executor knows the parameters; readers take the last facts.
        known = replace(known, facts=structs.replace(known.facts, parameters=trial.parameter_count()))
        record(known.facts)
    with phase("first"):
        trial.first()
    if made.memory is not None and mode == "eager":
        footprint.count_until_now()
    trial.keep(reference)
    on_stage("memory")
    record(footprint.of(lambda: _few(trial.work)))
    on_stage("check")
    finding = trial.check(reference)
    watch = trial.watched()
    if watch is not None and watch.flops is not None:
        flops = watch.flops * times_of(specification.direction)
        record(structs.replace(known.facts, flops=flops, dtype=watch.dtype))
    on_stage("latency")
    clock = HOST if arm.device == "cpu" else backend.clock()
    until = enough(specification.samples, specification.precision, specification.budget_s)
    taken = sample_latency(trial.work, until, clock, watch)
    if watch is not None:
        finding = watch.conclude(clock)
    elif not finding.wrong and (wrong := trial.misconduct()):
        finding = replace(finding, wrong=wrong)
    record(Samples("warmup", "s", taken.warmup.tolist()))
    record(Samples("latency", "s", taken.values.tolist()))
    on_stage("operators")
    reason = _record_operators(trial, known, float(taken.values.mean()), specification, record)
    return NetworkOutcome(
        "wrong" if finding.wrong else "measured",
        finding.wrong,
        finding.errors,
        finding.checked,
        taken.stopped_by,
        taken.warmup_reason,
        reason,
    )


def _alike(first: Sequence[Host], second: Sequence[Host]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _running_networks(opened: OperatorBackend, framework: str) -> Backend:
    """The backend; ``UnsupportedError`` if it runs single operators only."""
    if not isinstance(opened, Backend):
        asked = f"a network on {framework}"
        raise UnsupportedError(asked, "it runs single operators only", "use another framework")
    return opened


def peak_of(
    specification: NetworkSpecification, spare: int, on_stage: Callable[[str], None] = lambda stage: None
) -> tuple[Measurement, int]:
    """The peak memory, as a process that measures the specification has it, and the bytes of tensors that its plan has.

    To be called once in a process.
    """
    arm = specification.arm
    backend = _running_networks(open_framework(arm.framework, arm.device), arm.framework)
    made = make_case(specification, spare)
    gc.collect()
    gc.freeze()
    _return_when_freed(made)
    footprint = Footprint(meter_of(backend, arm.device))
    on_stage("prepare")
    mode = backend.chosen_mode(arm.mode or None)
    trial = PreparedCase(backend, made, specification, mode)
    trial.work()
    if mode == "eager":
        footprint.count_until_now()
    on_stage("memory")
    found = footprint.of(lambda: _few(trial.work))
    return found, 0 if made.memory is None else made.memory.memory


def _check_fit(known: Known, specification: NetworkSpecification) -> None:
    """Skip, before anything is drawn, a network whose parameters cannot fit into memory."""
    held = (known.facts.parameter_bytes or 0) * _COPIES[specification.direction]
    left = memory_left_bytes()
    if left is not None and held > _MEMORY_SHARE * left:
        raise Skipped(f"needs about {held / 2**30:.1f} GiB for parameters, but {left / 2**30:.1f} GiB are left")


OnStage = Callable[[Path, str, NetworkOutcome | None], None]


def make_record(
    specification: NetworkSpecification,
    seed: int,
    identity: str,
    store: Path,
    ceilings: dict[str, Any],
    reference: Path | str,
    on_stage: OnStage,
    crashed: str = "",
    planned: Planned | None = None,
    room: MemoryRoom = NO_ROOM,
) -> Path:
    """Measure the case, write the record and return its path.

    ``seed`` is the number of the replicate; parameters and inputs are the same in all. ``reference`` is the file with
    the expected results, or a text that says why there is none. ``on_stage`` gets the record's path with each stage as
    it begins, and the outcome with an empty stage. ``crashed`` says how an earlier process crashed: this is recorded,
    and the case is not tried again. ``planned`` is for the header, ``room`` as for :func:`measure_network`.
    """
    environment = capture()
    wanted = load(reference) if isinstance(reference, Path) else Reference(ReferenceFacts(reason=reference), {})
    gc.collect()
    gc.freeze()
    with NetworkWriter.start(
        store, specification, seed=seed, identity=identity, environment=environment, ceilings=ceilings, planned=planned
    ) as writer:

        def begin(stage: str) -> None:
            on_stage(writer.path, stage, None)

        begin("")
        if crashed:
            outcome = NetworkOutcome("failed", crashed)
        else:
            outcome = measure_network(specification, wanted, writer.add, begin, room=room)
        writer.add(outcome)
        on_stage(writer.path, "", outcome)
        after = capture_after()
        writer.add(ProcessEnd(list(doubts(environment, after)), after))
        return writer.path
