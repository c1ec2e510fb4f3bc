"""ONNX's control flow, If, Loop and Scan, for every framework: the conditions are read on the host, the rest is not.

The one idea: a subgraph sees the values around it, so these are called with all of them, and only they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.node import OperatorNode

if TYPE_CHECKING:
    from levelbench.operators.program import Graph

__all__ = ["make", "reads", "takes_values"]

_SCAN_WITHOUT_BATCH = 9

Compile = Callable[[onnx.GraphProto], "Graph"]
Call = Callable[..., Sequence[Any]]


def takes_values(node: OperatorNode) -> bool:
    """Whether the node has subgraphs, and so is called with the values around it first."""
    return not node.domain and node.op_type in {"If", "Loop", "Scan"}


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The names of all values that a node reads, in its subgraphs too (their own among them)."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                yield from reads(inner)
            yield from (each.name for each in attribute.g.output)


def make(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    """The node as a call of (values around it, its inputs)."""
    return {"If": _if, "Loop": _loop, "Scan": _scan}[node.op_type](node, backend, compile_graph)


def _known(backend: OperatorBackend, value: Any) -> np.ndarray[Any, Any]:
    """A condition or a count on the host, where it may be already."""
    return value if isinstance(value, np.ndarray) else backend.host(value)


def _if(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    branches = [compile_graph(node["else_branch"]), compile_graph(node["then_branch"])]

    def call(values: dict[str, Any], condition: Any) -> Sequence[Any]:
        return branches[bool(_known(backend, condition))](dict(values))

    return call


def _loop(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    body = compile_graph(node["body"])
    carried = len(body.inputs) - 2
    stack = Stack(backend)

    def call(values: dict[str, Any], trips: Any = None, condition: Any = None, *state: Any) -> Sequence[Any]:
        most = None if trips is None else int(_known(backend, trips).item())
        going = condition is None or bool(_known(backend, condition))
        collected: list[list[Any]] = [[] for _ in body.outputs[1 + carried :]]
        step = 0
        while going and (most is None or step < most):
            count = backend.array(np.array(step, np.int64))
            flag = backend.array(np.array(True))
            inner = dict(zip(body.inputs, (count, flag, *state), strict=True))
            found = body({**values, **inner})
            going = bool(backend.host(found[0]))
            state = tuple(found[1 : 1 + carried])
            for column, value in zip(collected, found[1 + carried :], strict=True):
                column.append(value)
            step += 1
        scans = [stack(column, 0, node, at) for at, column in enumerate(collected)]
        return [*state, *scans]

    return call


def _scan(node: OperatorNode, backend: OperatorBackend, compile_graph: Compile) -> Call:
    if node.opset < _SCAN_WITHOUT_BATCH:
        raise UnsupportedError("Scan of opset 8", "it scans a batch at a time, which opset 9 gave up", "convert it")
    body, count = compile_graph(node["body"]), node["num_scan_inputs"]
    carried = len(body.inputs) - count
    scanned = len(body.outputs) - carried
    axes, turns = node.get("scan_input_axes") or [0] * count, node.get("scan_input_directions") or [0] * count
    out_axes = node.get("scan_output_axes") or [0] * scanned
    out_turns = node.get("scan_output_directions") or [0] * scanned
    stack = Stack(backend)
    takes = [backend.operator(OperatorNode("Gather", ("x", "i"), ("y",), {"axis": axis})) for axis in axes]

    def call(values: dict[str, Any], *inputs: Any) -> Sequence[Any]:
        state, sequences = list(inputs[:carried]), inputs[carried:]
        length = sequences[0].shape[axes[0]]
        collected: list[list[Any]] = [[] for _ in range(scanned)]
        for step in range(length):
            at = [backend.array(np.array(length - 1 - step if turn else step, np.int64)) for turn in turns]
            parts = [take.forward(x, i)[0] for take, x, i in zip(takes, sequences, at, strict=True)]
            found = body({**values, **dict(zip(body.inputs, (*state, *parts), strict=True))})
            state = found[:carried]
            for column, value in zip(collected, found[carried:], strict=True):
                column.append(value)
        outputs = list(state)
        for at_output, (column, axis, turn) in enumerate(zip(collected, out_axes, out_turns, strict=True)):
            outputs.append(stack(column[::-1] if turn else column, axis, node, at_output))
        return outputs

    return call


class Stack:
    """Joins arrays along a new axis by the backend's own operators."""

    def __init__(self, backend: OperatorBackend) -> None:
        self._backend = backend
        self._unsqueeze = backend.operator(OperatorNode("Unsqueeze", ("x", "axes"), ("y",)))
        self._concat: dict[tuple[int, int], Any] = {}

    def __call__(self, arrays: Sequence[Any], axis: int, node: OperatorNode, at: int) -> Any:
        """The arrays along a new ``axis``; none at all make an array without elements, if its shape is declared."""
        if not arrays:
            return self._empty(node, at)
        key = (axis, len(arrays))
        if key not in self._concat:
            names = tuple(f"x{i}" for i in range(len(arrays)))
            self._concat[key] = self._backend.operator(OperatorNode("Concat", names, ("y",), {"axis": axis}))
        axes = np.array([axis], np.int64)
        return self._concat[key].forward(*(self._unsqueeze.forward(each, axes)[0] for each in arrays))[0]

    def _empty(self, node: OperatorNode, at: int) -> Any:
        graph = node["body"]
        first = len(graph.output) - (len(node.outputs) - _carried(node))
        declared = graph.output[first + at].type.tensor_type
        if not declared.HasField("shape") or any(not each.HasField("dim_value") for each in declared.shape.dim):
            raise UnsupportedError(
                f"{node.op_type} without a single step", "its body does not declare the output's shape", "declare it"
            )
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
        shape = (0, *(each.dim_value for each in declared.shape.dim))
        return self._backend.array(np.empty(shape, dtype))


def _carried(node: OperatorNode) -> int:
    """The number of loop-carried values: what the body takes beyond the counter and the condition."""
    return len(node["body"].input) - (2 if node.op_type == "Loop" else int(node["num_scan_inputs"]))
