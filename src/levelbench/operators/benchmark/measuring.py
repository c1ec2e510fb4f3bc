"""Measures one problem on one framework: does it fit, is it right, how long does it take.

Whatever a problem does (it does not fit, is refused, raises, is wrong), it ends in a case that says so, and the next
problem is measured. The measured call ends when its outputs are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from levelbench.checks.arrays import Correctness, is_float
from levelbench.errors import LevelbenchError, MissingError, UnsupportedError, UsageError
from levelbench.measure.caches import Flusher
from levelbench.measure.clocks import HOST
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.measure.sampling import Sample, sample
from levelbench.measure.stopping import Budget, Precision
from levelbench.operators.benchmark.checking import Results, check
from levelbench.operators.contract import Array, Operator, OperatorBackend
from levelbench.operators.cost import Cost, Signature, cost_of
from levelbench.operators.node import OperatorNode, structural
from levelbench.operators.suites.single import dtype_of, make_inputs, node_of
from levelbench.records.benchmarks import Case, Problem
from levelbench.records.schema import redact

__all__ = ["TrialSettings", "input_signatures", "measure_problem", "output_signatures", "refuse_unfit", "signature"]


def signature(array: NDArray[Any] | None) -> Signature | None:
    """The signature of an array."""
    return None if array is None else Signature(array.shape, array.dtype.itemsize, is_float(array.dtype))


def input_signatures(problem: Problem) -> list[Signature | None]:
    """One an input of the node, ``None`` for one that is left out."""
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
    """One an output, as far as ONNX can infer it before anything is run; none at all where it cannot."""
    try:
        return _inferred(problem)
    except (shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError):
        return ()


def refuse_unfit(problem: Problem) -> None:
    """``UsageError`` for inputs that, as ONNX infers, do not fit the operator or each other."""
    try:
        _inferred(problem)
    except shape_inference.InferenceError as error:
        reason = str(error).splitlines()[0].removeprefix("[ShapeInferenceError] ")
        raise UsageError(f"operator {problem.name}", reason, "give shapes and attributes that fit") from error
    except (onnx.checker.ValidationError, RuntimeError):
        # What ONNX cannot infer may still be right.
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
_COPIES = 3
"""Of inputs and outputs: the framework's, the host's, and as much again for a workspace and the reference."""
_SURELY = 4.0
"""How many budgets a call must take at the framework's measured pace before it is not even tried."""
# How PyTorch, JAX and ONNX Runtime say it.
_OUT_OF_MEMORY = ("OutOfMemoryError", "RESOURCE_EXHAUSTED", "Failed to allocate memory")
_FEW = 6
_OVERRUN = 3.0


@dataclass(frozen=True)
class TrialSettings:
    """What a problem may take, and how it is measured.

    ``budget_s`` is for one problem in one process; ``pace_flop_s`` the rate of the framework's matrix product in the
    problem's dtype (``None``: not known); ``on_host`` whether the host's clock will do, as each
    call waits for its outputs;
    ``memory_bytes`` what is left (``None``: asked of the system).
    """

    budget_s: float = 5.0
    precision: float = 0.05
    cache: Literal["hot", "cold"] = "hot"
    direction: Literal["forward", "backward"] = "forward"
    pace_flop_s: float | None = None
    memory_bytes: int | None = None
    flusher: Flusher | None = None
    on_host: bool = False


class _Skipped(Exception):
    """The problem does not fit; the message is the reason."""


def measure_problem(
    backend: OperatorBackend,
    problem: Problem,
    index: int,
    seed: int,
    limits: TrialSettings,
    reference: Callable[[OperatorNode], Operator],
) -> tuple[Case, list[float]]:
    """The case of ``problem`` and its raw times in seconds a call (empty where there are none).

    ``reference`` makes operators on NumPy arrays. Raises ``MissingError`` where the caches cannot be made cold:
    that concerns all problems.
    """
    node = node_of(problem)
    cost = Cost(None, None)
    try:
        signatures = input_signatures(problem)
        cost = cost_of(node, signatures, output_signatures(problem), limits.direction)
        _check_fit(problem, cost, limits)
        trial = _Trial(backend, node, make_inputs(problem, seed), limits)
        found = [signature(each) for each in trial.outputs]
        cost, forward = (cost_of(node, signatures, found, each) for each in (limits.direction, "forward"))
        first_s = trial.first(limits.budget_s)
        finding = check(node, trial.results(), forward.flops, reference)
        taken = trial.sample()
    except _Skipped as reason:
        return Case(index, "skipped", str(reason), cost.flops, cost.bytes), []
    except UnsupportedError as error:
        return Case(index, "unsupported", error.found, cost.flops, cost.bytes), []
    except MissingError:
        raise
    except MemoryError:
        return Case(index, "skipped", "it ran out of memory", cost.flops, cost.bytes), []
    except Exception as error:  # noqa: BLE001  # the boundary to a framework: one problem must not end the others
        said = redact(str(error) if isinstance(error, LevelbenchError) else f"{type(error).__name__}: {error}")
        if any(sign in said for sign in _OUT_OF_MEMORY):
            return Case(index, "skipped", "it ran out of the device's memory", cost.flops, cost.bytes), []
        return Case(index, "failed", said.splitlines()[0][:300], cost.flops, cost.bytes), []
    return _case(index, cost, finding, taken, first_s), taken.values.tolist()


def _case(index: int, cost: Cost, finding: Correctness, taken: Sample, first_s: float) -> Case:
    return Case(
        index,
        "wrong" if finding.wrong else "measured",
        finding.wrong,
        cost.flops,
        cost.bytes,
        finding.errors,
        finding.checked,
        taken.inner,
        taken.stopped_by,
        taken.warmup_reason,
        first_s,
    )


def _check_fit(problem: Problem, cost: Cost, limits: TrialSettings) -> None:
    """Refuse, before anything is made, what cannot fit the memory or cannot end in time."""
    known = [*input_signatures(problem), *output_signatures(problem)]
    wanted = _COPIES * sum(each.bytes for each in known if each is not None)
    left = memory_left_bytes() if limits.memory_bytes is None else limits.memory_bytes
    if left is not None and wanted > _MEMORY_SHARE * left:
        raise _Skipped(f"needs about {wanted / 2**30:.1f} GiB where {left / 2**30:.1f} GiB are left")
    if cost.flops and limits.pace_flop_s:
        least_s = cost.flops / limits.pace_flop_s
        if least_s > _SURELY * limits.budget_s:
            pace = f"{limits.pace_flop_s / 1e9:.3g} GFLOP/s of its matrix product"
            raise _Skipped(f"a call would take about {least_s:.2g} s at the {pace}; budget {limits.budget_s:g} s")


class _Trial:
    """The operator with its native inputs, the measured call, and what its first turn gave."""

    def __init__(
        self, backend: OperatorBackend, node: OperatorNode, inputs: list[Host | None], limits: TrialSettings
    ) -> None:
        self._backend, self._limits, self._inputs = backend, limits, inputs
        self._clock = HOST if limits.on_host else backend.clock()
        fixed = structural(node)
        native = [each if each is None or at in fixed else backend.array(each) for at, each in enumerate(inputs)]
        operator = backend.operator(node)
        self._given: list[Host | None] = []
        self._call: Callable[[], tuple[Any, ...]] = lambda: operator.forward(*native)
        if limits.direction == "backward":
            outputs, pullback = operator.vjp(*native)
            self.outputs = self._hosted(outputs)
            self._given = _gradients(self.outputs)
            given = [None if each is None else backend.array(each) for each in self._given]
            self._call = lambda: pullback(*given)
        before_ns = self._clock.now_ns()
        found = self._finished()
        self._first_s = (self._clock.now_ns() - before_ns) * 1e-9
        self._whole = all(each is not None for each in found)
        self._found = self._hosted(found)
        if limits.direction == "forward":
            self.outputs = self._found

    def _finished(self) -> tuple[Array | None, ...]:
        found = self._call()
        self._backend.finish([each for each in found if each is not None])
        return found

    def _hosted(self, arrays: Sequence[Array | None]) -> list[Host | None]:
        return [None if each is None else np.asarray(self._backend.host(each)) for each in arrays]

    def first(self, budget_s: float) -> float:
        """Seconds of the first call. Where it takes more than the budget, and so does a second, it does not fit."""
        if self._first_s > budget_s:
            before_ns = self._clock.now_ns()
            self._finished()
            again_s = (self._clock.now_ns() - before_ns) * 1e-9
            if again_s > budget_s:
                raise _Skipped(f"a call takes {again_s:.2g} s, more than the budget of {budget_s:g} s")
        return self._first_s

    def results(self) -> Results:
        """What is compared with the reference; it is let go of here, as memory may be short."""
        outputs, found, given = self.outputs, self._found, self._given
        self.outputs, self._found, self._given = [], [], []
        if self._limits.direction == "forward":
            return Results(self._inputs, outputs)
        return Results(self._inputs, outputs, found, given)

    def sample(self) -> Sample:
        """Raw times of the measured call, which ends when its outputs are computed."""
        limits, call, finish = self._limits, self._call, self._backend.finish

        def work() -> object:
            return finish(call())

        def work_with_gaps() -> object:
            return finish([each for each in call() if each is not None])

        until = Precision(limits.precision) | Budget(limits.budget_s, _FEW, _OVERRUN)
        chosen = work if self._whole else work_with_gaps
        return sample(chosen, until, clock=self._clock, cache=limits.cache, flusher=limits.flusher)


def _gradients(outputs: Sequence[Host | None]) -> list[Host | None]:
    """Gradients of the outputs, random and of size 1; ``None`` for outputs that have none."""
    random = np.random.default_rng(1)
    return [
        random.standard_normal(each.shape, np.float32).astype(each.dtype)
        if each is not None and is_float(each.dtype)
        else None
        for each in outputs
    ]
