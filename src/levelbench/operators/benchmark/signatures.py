"""Shapes and element sizes of a problem's inputs and, by ONNX's own shape inference, of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from levelbench.checks.arrays import is_float
from levelbench.errors import UsageError
from levelbench.operators.cost import Signature
from levelbench.operators.suites.problems import dtype_of, node_of
from levelbench.records.benchmarks import Problem

__all__ = ["input_signatures", "output_signatures", "refuse_unfit", "signature"]


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


def _of_type(proto: Any) -> Signature | None:
    tensor = proto.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    sizes = [each.dim_value if each.HasField("dim_value") else None for each in tensor.shape.dim]
    if any(size is None for size in sizes):
        return None
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return Signature(tuple(int(size) for size in sizes if size is not None), dtype.itemsize, is_float(dtype))
