"""Measures problems on a framework (does each fit, is it right, how long does it take) and writes them into a record.

Whatever happens to a problem (it does not fit, is refused, raises, is wrong), it ends in a case that says so, and the
next problem is measured. The measured call ends when its outputs are computed. A ceiling is what the machine actually
reached with a framework, so each framework measures its own, and the fastest counts. On an accelerator everything is
measured with the framework's operators, the only way to access it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from levelbench.checks.arrays import Correctness, is_float
from levelbench.checks.isolation import JsonLine
from levelbench.errors import DefinitionError, LevelbenchError, MissingError, UnsupportedError, UsageError
from levelbench.measure.caches import Flusher, StreamFlusher
from levelbench.measure.ceilings import (
    Ceilings,
    GemmMaker,
    best_gemm,
    measure_ceilings,
    measure_gemm,
    measure_largest_gemm,
    numpy_gemm,
)
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.measure.forking import how_started
from levelbench.measure.sampling import Sample, sample
from levelbench.measure.stopping import Budget, Precision
from levelbench.operators.benchmark.checking import Results, check
from levelbench.operators.benchmark.watching import SEAL, ChannelsLast, Contents, RefusedError, Watch, WrongError
from levelbench.operators.contract import Array, Framework, Operator, OperatorBackend
from levelbench.operators.cost import Cost, Signature, cost_of
from levelbench.operators.custom.definition import create, spec_of
from levelbench.operators.custom.host import plain_reference
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode, operator_node, structural
from levelbench.operators.suites.single import dtype_of, make_inputs, node_of
from levelbench.records.benchmarks import BenchmarkSpecification, BenchmarkWriter, Case, Problem
from levelbench.records.processes import Planned, ProcessEnd
from levelbench.records.schema import Samples, redact


def signature(array: NDArray[Any] | None) -> Signature | None:
    """The signature of an array; ``None`` for an omitted one."""
    return None if array is None else Signature(array.shape, array.dtype.itemsize, is_float(array.dtype))


def input_signatures(problem: Problem) -> list[Signature | None]:
    """One per input of the node, ``None`` for an omitted one."""
    known = {tensor.name: tensor for tensor in problem.tensors}
    found: list[Signature | None] = []
    for name in problem.inputs:
        if not name:
            found.append(None)
            continue
        dtype = dtype_of(known[name].dtype)
        found.append(Signature(known[name].shape, dtype.itemsize, is_float(dtype)))
    return found


def output_signatures(problem: Problem) -> Sequence[Signature | None]:
    """One per output, as far as ONNX can infer it before anything runs; empty if it cannot."""
    try:
        return _inferred(problem)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return ()


def refuse_unfit(problem: Problem) -> None:
    """Raise ``UsageError`` for inputs that, as ONNX infers, do not fit the operator or each other."""
    try:
        _inferred(problem)
    except shape_inference.InferenceError as error:
        reason = str(error).splitlines()[0].removeprefix("[ShapeInferenceError] ")
        raise UsageError(f"operator {problem.name}", reason, "give shapes and attributes that fit") from error
    except (onnx.checker.ValidationError, RuntimeError):
        # What ONNX cannot infer may still be valid.
        return


def _inferred(problem: Problem) -> Sequence[Signature | None]:
    node = node_of(problem)
    if node.schema is None:
        return ()
    types, data = {}, {}
    for tensor in problem.tensors:
        dtype = dtype_of(tensor.dtype)
        types[tensor.name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), tensor.shape)
        if tensor.values is not None:
            data[tensor.name] = numpy_helper.from_array(np.asarray(tensor.values, dtype).reshape(tensor.shape))
    opset = [helper.make_opsetid(node.domain, node.opset)]
    found = shape_inference.infer_node_outputs(
        node.schema, node.to_proto(), types, data, opset_imports=opset, ir_version=onnx.IR_VERSION
    )
    return [_of_type(found[name]) if name in found else None for name in node.outputs]


def _of_type(proto: onnx.TypeProto) -> Signature | None:
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    sizes = [each.dim_value if each.HasField("dim_value") else None for each in tensor.shape.dim]
    if any(size is None for size in sizes):
        return None
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return Signature(tuple(int(size) for size in sizes if size is not None), dtype.itemsize, is_float(dtype))


Host = NDArray[Any]
_MEMORY_SHARE = 0.8
_COPIES = 4
"""Copies of inputs and outputs: the framework's, the host's (now and at first), and a workspace and the reference."""
_TOO_SLOW = 4.0
"""A call that would take this many budgets at the framework's measured pace is not even tried."""
# How PyTorch, JAX and ONNX Runtime report it.
_OUT_OF_MEMORY = ("OutOfMemoryError", "RESOURCE_EXHAUSTED", "Failed to allocate memory", "not enough memory")
_FEW = 6
_OVERRUN = 3.0
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
_need_whole = SEAL.need_whole
_UNCHECKED = "not checked"
_SELDOM = 0.05
"""Where comparing with the reference takes more than this share of the budget, only one timed call is compared."""


@dataclass(frozen=True)
class TrialSettings:
    """What a problem may take, and how it is measured.

    ``budget_s`` is for one problem in one process; ``pace_flop_s`` is the rate of the framework's matrix product in the
    problem's dtype (``None``: unknown); ``on_host`` is whether the host's clock suffices, as each call waits for its
    outputs; ``memory_bytes`` is the available memory (``None``: ask the system); ``channels_last`` is the layout of
    inputs with four or five axes.
    """

    budget_s: float = 5.0
    precision: float = 0.05
    cache: Literal["hot", "cold"] = "hot"
    direction: Literal["forward", "backward"] = "forward"
    pace_flop_s: float | None = None
    memory_bytes: int | None = None
    flusher: Flusher | None = None
    on_host: bool = False
    channels_last: bool = False


class Skipped(Exception):
    """The problem or network does not fit; the message is the reason."""


def failure(error: Exception) -> tuple[Literal["skipped", "unsupported", "failed"], str]:
    """The status and reason of a measurement that raised ``error``; ``MissingError`` is raised again."""
    if isinstance(error, MissingError):
        raise error
    if isinstance(error, Skipped):
        return "skipped", str(error)
    if isinstance(error, UnsupportedError):
        return "unsupported", error.found
    if isinstance(error, MemoryError):
        return "skipped", "it ran out of memory"
    text = redact(str(error) if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}")
    if any(sign in text for sign in _OUT_OF_MEMORY):
        return "skipped", "it ran out of the device's memory"
    return "failed", next(iter(text.splitlines()), "")[:300]


def measure_problem(
    backend: OperatorBackend,
    problem: Problem,
    index: int,
    seed: int,
    limits: TrialSettings,
    reference: Callable[[OperatorNode], Operator],
    examples: Path | None = None,
) -> tuple[Case, list[float]]:
    """The case of ``problem`` and its raw times in seconds per call (empty if there are none).

    ``reference`` creates operators on NumPy arrays; ``examples`` is the folder of a file's own inputs. Raises
    ``MissingError`` if the caches cannot be made cold, because that concerns all problems.
    """
    node = node_of(problem)
    cost = Cost(None, None)
    try:
        signatures = input_signatures(problem)
        cost = cost_of(node, signatures, output_signatures(problem), limits.direction)
        _check_fit(problem, cost, limits)
        inputs = make_inputs(problem, seed) if examples is None else read_inputs(problem, index, seed, examples)
        trial = _Trial(backend, node, inputs, limits, fixed_inputs(problem))
        found = [signature(each) for each in trial.outputs]
        cost, forward = (cost_of(node, signatures, found, each) for each in (limits.direction, "forward"))
        first_s = trial.first(limits.budget_s)
        if node.domain == CUSTOM_DOMAIN:
            reference = plain_reference
            cost = stated_cost(node, inputs) if limits.direction == "forward" else cost
        before_ns = HOST.now_ns()
        finding = check(node, trial.results(), forward.flops, reference)
        seldom = (HOST.now_ns() - before_ns) * 1e-9 > _SELDOM * limits.budget_s
        judge = partial(_fault, finding, partial(check, node, flops=forward.flops, make=reference))
        taken, watch = trial.sample(judge, seldom)
        if watch.is_view:
            cost = Cost(cost.flops, None)
    except (RefusedError, WrongError) as error:
        status: Literal["refused", "wrong"] = "refused" if isinstance(error, RefusedError) else "wrong"
        return Case(index, status, str(error), cost.flops, cost.bytes), []
    except Exception as error:  # noqa: BLE001  # the boundary to a framework: one problem must not end the others
        return Case(index, *failure(error), cost.flops, cost.bytes), []
    checked = f"not checked: {watch.unchanged}" if watch.unchanged else finding.checked
    unchecked = checked.startswith(_UNCHECKED)
    case = Case(
        index,
        "wrong" if finding.wrong else "unchecked" if unchecked else "measured",
        finding.wrong or (checked if unchecked else ""),
        cost.flops,
        cost.bytes,
        finding.errors,
        checked,
        taken.inner,
        taken.stopped_by,
        taken.warmup_reason,
        first_s,
        *trial.algorithm(),
    )
    return case, taken.values.tolist()


def _fault(first: Correctness, compare: Callable[[Results], Correctness], results: Results) -> str:
    """What is wrong with results of a timed call, unless the first ones were wrong already."""
    if first.wrong:
        return ""
    found = compare(results)
    if found.checked.startswith(_UNCHECKED) and not first.checked.startswith(_UNCHECKED):
        raise RefusedError(f"a timed call is {found.checked}, and the first one was compared")
    return found.wrong


def stated_cost(node: OperatorNode, inputs: Sequence[NDArray[Any] | None]) -> Cost:
    """The cost that a custom operator states for these inputs."""
    return create(node).cost(*(spec_of(each) for each in inputs if each is not None)) or Cost(None, None)


def read_inputs(problem: Problem, index: int, seed: int, folder: Path) -> list[Host | None]:
    """The inputs of the problem at ``index``: those that are examples from ``folder``, others made as usual."""
    known = {tensor.name: tensor for tensor in problem.tensors}
    made = make_inputs(problem, seed)
    for at, name in enumerate(problem.inputs):
        if name and known[name].fill == "example":
            made[at] = np.fromfile(folder / f"{index}-{at}", dtype_of(known[name].dtype)).reshape(known[name].shape)
    return made


def _check_fit(problem: Problem, cost: Cost, limits: TrialSettings) -> None:
    """Skip, before anything is allocated, what cannot fit into memory or cannot finish in time."""
    known = [*input_signatures(problem), *output_signatures(problem)]
    wanted = _COPIES * sum(each.bytes for each in known if each is not None)
    left = memory_left_bytes() if limits.memory_bytes is None else limits.memory_bytes
    if left is not None and wanted > _MEMORY_SHARE * left:
        raise Skipped(f"needs about {wanted / 2**30:.1f} GiB, but {left / 2**30:.1f} GiB are left")
    if cost.flops and limits.pace_flop_s:
        least_s = cost.flops / limits.pace_flop_s
        if least_s > _TOO_SLOW * limits.budget_s:
            rate = f"{limits.pace_flop_s / 1e9:.3g} GFLOP/s of its matrix product"
            raise Skipped(f"a call would take about {least_s:.2g} s at the {rate}; budget {limits.budget_s:g} s")


def fixed_inputs(problem: Problem) -> frozenset[int]:
    """Positions of the inputs whose values are given."""
    given = {tensor.name for tensor in problem.tensors if tensor.values is not None}
    return frozenset(at for at, name in enumerate(problem.inputs) if name in given)


class _Trial:
    """The operator with its native inputs, the measured call, and the results of the first call.

    What changes between calls is the inputs or, in a backward, the gradients of the outputs.
    """

    def __init__(
        self,
        backend: OperatorBackend,
        node: OperatorNode,
        inputs: list[Host | None],
        limits: TrialSettings,
        fixed: frozenset[int],
    ) -> None:
        self._backend, self._limits, self._inputs = backend, limits, inputs
        reader = ChannelsLast(backend) if limits.channels_last else backend
        self._clock = HOST if limits.on_host else backend.clock()
        self._ours = node.domain == CUSTOM_DOMAIN
        operator, kept = backend.operator(node), frozenset(structural(node))
        self._operator = operator
        self._call: Callable[..., tuple[Any, ...]] = operator.forward
        if limits.direction == "backward":
            native = [each if each is None or at in kept else reader.array(each) for at, each in enumerate(inputs)]
            outputs, self._call = operator.vjp(*native)
            self.outputs = self._hosted(outputs)
            self._contents = Contents(_gradients(self.outputs), reader)
        else:
            weights = frozenset(range(1, len(inputs)) if node.op_type in _RECURRENT else ())
            self._contents = Contents(
                inputs, reader, fixed=fixed, structural=kept, weights=weights, only_floats=self._ours
            )
            self._inputs = self._contents.hosts
        before_ns = self._clock.now_ns()
        found = self._finished()
        self._first_s = (self._clock.now_ns() - before_ns) * 1e-9
        self._gaps = any(each is None for each in found)
        self._found = self._hosted(found)
        if limits.direction == "forward":
            self.outputs = self._found

    def _finished(self) -> tuple[Array | None, ...]:
        found = self._call(*self._contents.native)
        self._backend.finish([each for each in found if each is not None])
        return found

    def _hosted(self, arrays: Sequence[Array | None]) -> list[Host | None]:
        return [None if each is None else np.asarray(self._backend.host(each)) for each in arrays]

    def first(self, budget_s: float) -> float:
        """Seconds of the first call; if it takes longer than the budget, and so does a second, the trial is skipped."""
        if self._first_s > budget_s:
            before_ns = self._clock.now_ns()
            self._finished()
            again_s = (self._clock.now_ns() - before_ns) * 1e-9
            if again_s > budget_s:
                raise Skipped(f"a call takes {again_s:.2g} s, more than the budget of {budget_s:g} s")
        return self._first_s

    def results(self) -> Results:
        """The results of the first call, to compare with the reference; they are released, as memory may be short."""
        found, self._found = self._found, []
        results = self._results(self._contents.hosts, found)
        if self._limits.direction == "forward":
            self.outputs = []
        return results

    def _results(self, given: Sequence[Host | None], found: Sequence[Host | None]) -> Results:
        if self._limits.direction == "forward":
            return Results(given, found)
        return Results(self._inputs, self.outputs, found, given)

    def algorithm(self) -> tuple[str | None, str]:
        """The algorithm that the framework says it chose, asked when all has been timed; else ``None`` and why."""
        try:
            return self._backend.algorithm(self._operator, self._finished)
        except Exception as error:  # noqa: BLE001  # the boundary to a framework: what was measured stands
            return None, redact(f"asking failed: {type(error).__name__}: {error}")[:200]

    def sample(self, judge: Callable[[Results], str], seldom: bool) -> tuple[Sample, Watch]:
        """Raw times of the measured call, which ends when its outputs are computed, and what the watch saw.

        ``judge`` says what is wrong with results; ``seldom`` makes it be asked once only.
        """
        limits, contents = self._limits, self._contents

        def judged(given: Sequence[Host | None], found: Sequence[Host | None]) -> str:
            return judge(self._results(given, found))

        watch = Watch(
            self._call,
            contents,
            self._backend,
            judged,
            ours=self._ours,
            gaps=self._gaps,
            seldom=seldom,
        )
        watch.rehearse(4 if self._first_s < limits.budget_s / 50 else 2)
        until = Precision(limits.precision) | Budget(limits.budget_s, _FEW, _OVERRUN)
        taken = sample(watch.work, until, clock=self._clock, cache=limits.cache, flusher=limits.flusher, between=watch)
        _need_whole()
        watch.conclude(self._clock)
        _need_whole()
        if not watch.consists_of(contents, judged):
            raise RefusedError("it changed the watch that measures")
        return taken, watch


def _gradients(outputs: Sequence[Host | None]) -> list[Host | None]:
    """Random gradients of size 1 for the outputs; ``None`` for outputs that have none."""
    random = np.random.default_rng(1)
    return [
        random.standard_normal(each.shape, np.float32).astype(each.dtype)
        if each is not None and is_float(each.dtype)
        else None
        for each in outputs
    ]


_ADD_BYTES = 256 * 2**20


def backend_gemm(backend: OperatorBackend, dtype: str) -> GemmMaker:
    """Makes products of square matrices with the framework's MatMul."""
    operator = backend.operator(operator_node("MatMul", ["A", "B"]))

    def make(n: int) -> tuple[Callable[[], object], float]:
        random = np.random.default_rng(0)
        a, b = (backend.array(random.standard_normal((n, n), np.float32).astype(dtype_of(dtype))) for _ in range(2))
        return lambda: backend.finish(operator.forward(a, b)), 2.0 * n**3

    return make


def backend_ceilings(
    framework: Framework, backend: OperatorBackend, device: str, dtype: str, seconds: float = 2.0
) -> Ceilings:
    """On ``cpu`` the limits of NumPy, of memory, and of the framework in ``dtype``; elsewhere only the framework's."""
    makers = _makers(framework, backend, device, dtype)
    if device == "cpu":
        return measure_ceilings(seconds, gemms=list(makers.items()))
    found = {name: measure_largest_gemm(maker, seconds / 2, HOST) for name, maker in makers.items()}
    details = {"gemm_sizes": {name: size for name, (_, size) in found.items()}, "array_bytes": _ADD_BYTES}
    bandwidth = {"triad": measure_gemm(*_addition(backend), seconds=seconds / 2)}
    return Ceilings({name: limit for name, (limit, _) in found.items()}, bandwidth, details)


def best_ceilings(
    framework: Framework, backend: OperatorBackend, device: str, dtype: str, flops: float, seconds: float = 0.5
) -> Ceilings:
    """What the framework's products, and NumPy's on ``cpu``, reach in their best calls of ``flops`` operations."""
    makers = list(_makers(framework, backend, device, dtype).values())
    if device == "cpu" and dtype in ("float32", "float64"):
        makers.append(numpy_gemm(dtype))
    found = [best_gemm(maker, flops, seconds=seconds) for maker in makers]
    return Ceilings({dtype: max(found, key=lambda each: each.value)} if found else {}, {})


def _makers(framework: Framework, backend: OperatorBackend, device: str, dtype: str) -> dict[str, GemmMaker]:
    """The framework's matrix products in ``dtype``; empty if it has none."""
    own = dict(framework.gemms()) if device == "cpu" else {}
    if dtype in own:
        return {dtype: own[dtype]}
    try:
        right = _multiplies(backend, dtype)
    except (DefinitionError, UnsupportedError):  # what is measured then says so of each problem
        return {}
    return {dtype: backend_gemm(backend, dtype)} if right else {}


def _multiplies(backend: OperatorBackend, dtype: str) -> bool:
    """Whether several products of new matrices are NumPy's: one that only looks fast is nobody's ceiling."""
    operator, random = backend.operator(operator_node("MatMul", ["A", "B"])), np.random.default_rng(1)
    for _ in range(4):
        a, b = (random.standard_normal((8, 8), np.float32).astype(dtype_of(dtype)) for _ in range(2))
        (made,) = operator.forward(backend.array(a), backend.array(b))
        found, wanted = np.asarray(backend.host(made), np.float64), a.astype(np.float64) @ b.astype(np.float64)
        # A quarter, since products of 8-bit types are coarse.
        if found.shape != wanted.shape or not np.linalg.norm(found - wanted) <= 0.25 * np.linalg.norm(wanted):
            return False
    return True


def _addition(backend: OperatorBackend) -> tuple[Callable[[], object], float]:
    """An addition of large arrays: like triad it moves three words per element."""
    operator = backend.operator(operator_node("Add", ["A", "B"]))
    a, b = (backend.array(np.ones(_ADD_BYTES // 4, np.float32)) for _ in range(2))
    return lambda: backend.finish(operator.forward(a, b)), 3.0 * _ADD_BYTES


def pace(ceilings: JsonLine, dtype: str) -> float | None:
    """The best operations per second in ``dtype`` of ceilings as from ``Ceilings.to_dict``; ``None`` if unknown."""
    found = ceilings.get("flop_s", {}).get(dtype)
    if found is None:
        return None
    # Use the upper end, so that no problem is skipped as too slow because another process disturbed the ceiling.
    return float(found["interval"]["high"] if found["interval"] else found["value"])


def merged(found: Sequence[JsonLine]) -> JsonLine:
    """The largest of each kind of several ceilings; the details name the framework that reached it."""
    best: dict[str, Any] = {"flop_s": {}, "bandwidth_b_s": {}, "details": {"measured_by": {}}}
    for each in found:
        for kind in ("flop_s", "bandwidth_b_s"):
            for name, limit in each.get(kind, {}).items():
                if name not in best[kind] or limit["value"] > best[kind][name]["value"]:
                    best[kind][name] = limit
                    best["details"]["measured_by"][name] = each.get("framework", "")
    return best


OnCase = Callable[[Path, Case | None], None]
Measure = Callable[
    [OperatorBackend, Problem, int, int, TrialSettings, Callable[[OperatorNode], Operator]], tuple[Case, list[float]]
]


def make_record(
    specification: BenchmarkSpecification,
    seed: int,
    identity: str,
    store: Path,
    ceilings: JsonLine,
    own: JsonLine,
    on_case: OnCase,
    backend: OperatorBackend | None = None,
    crashed: Mapping[int, str] | None = None,
    planned: Planned | None = None,
    warm: Callable[[OperatorBackend], object] | None = None,
    load: Callable[[], object] | None = None,
    measure: Measure | None = None,
) -> Path:
    """Measure every problem, write the record and return its path.

    ``seed`` is the number of the replicate; all have the same inputs. ``ceilings`` go into the record; ``own`` are
    those that this framework reached, which decide what would take too long. ``on_case`` gets each case, and ``None``
    before the first. ``backend`` defaults to the specification's framework, opened. ``crashed`` problems crashed an
    earlier process: they fail with that reason without being tried again. ``planned`` are the effect and the number of
    records in the header. ``warm`` makes the framework import what it does late, before its functions
    are sealed. ``load`` loads the user's own operators, if those are measured. ``measure`` is
    ``measure_problem``, or what measures problems of another kind.
    """
    opened = open_framework(specification.framework, specification.device) if backend is None else backend
    reference = opened if specification.framework == "numpy" else open_framework("numpy")
    environment = capture()
    environment["framework"] = opened.describe()
    if warm is not None:
        warm(opened)
    SEAL.add_framework(opened)
    if load is not None:
        # Only now: foreign code may replace what measuring consists of.
        load()
    environment["started"] = how_started()
    flusher = StreamFlusher() if specification.cache == "cold" and specification.device == "cpu" else None
    gc.collect()
    gc.freeze()
    with BenchmarkWriter.start(
        store, specification, seed=seed, identity=identity, environment=environment, ceilings=ceilings, planned=planned
    ) as writer:
        on_case(writer.path, None)
        for index, problem in enumerate(specification.problems):
            limits = TrialSettings(
                budget_s=specification.budget_s,
                precision=specification.precision,
                cache=specification.cache,
                direction=specification.direction,
                pace_flop_s=_pace(problem, own, ceilings),
                flusher=flusher,
                on_host=specification.device == "cpu",
                channels_last=specification.layout is not None,
            )
            times_s: list[float] = []
            if crashed and index in crashed:
                case = Case(index, "failed", crashed[index])
            else:
                case, times_s = (measure or measure_problem)(opened, problem, index, 0, limits, reference.operator)
            if times_s:
                writer.add(Samples(str(index), "s", times_s))
            writer.add(case)
            on_case(writer.path, case)
        after = capture_after()
        writer.add(ProcessEnd(list(doubts(environment, after)), after))
        return writer.path


def _pace(problem: Problem, own: JsonLine, ceilings: JsonLine) -> float | None:
    """The best known pace; in half precisions only the framework's own, where frameworks differ a thousandfold."""
    dtype = problem.tensors[0].dtype if problem.tensors else ""
    known = [pace(own, dtype), *([pace(ceilings, dtype)] if dtype in ("float32", "float64") else [])]
    return max((each for each in known if each is not None), default=None)


SEAL.add(sys.modules[__name__])
