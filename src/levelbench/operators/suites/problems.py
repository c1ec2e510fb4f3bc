"""Problems as nodes and arrays: the node that one describes, and its inputs made from a seed."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError
from levelbench.operators.node import OperatorNode
from levelbench.records.benchmarks import Problem, Tensor

__all__ = ["FLOATS", "dtype_of", "make_inputs", "node_of", "tensor_bytes"]

FLOATS = ("float32", "float64", "bfloat16", "float16")
"""The dtypes that a suite can be measured in."""


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of that name, ``ml_dtypes``' bfloat16 among them."""
    if name == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    try:
        return np.dtype(name)
    except TypeError:
        raise UnknownNameError("dtype", name, (*FLOATS, "int64", "int32", "int8", "uint8", "bool")) from None


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of an input."""
    return math.prod(tensor.shape) * dtype_of(tensor.dtype).itemsize


def node_of(problem: Problem) -> OperatorNode:
    """The node of a problem."""
    return OperatorNode(
        problem.operator, problem.inputs, problem.outputs, problem.attributes, problem.domain, problem.opset
    )


def make_inputs(problem: Problem, seed: int) -> list[NDArray[Any] | None]:
    """One host array an input of the node, ``None`` for one that is left out; equal for equal seeds."""
    known = {tensor.name: tensor for tensor in problem.tensors}
    children = np.random.SeedSequence(seed).spawn(len(problem.inputs))
    return [
        _make(known[name], np.random.default_rng(child)) if name else None
        for name, child in zip(problem.inputs, children, strict=True)
    ]


def _make(tensor: Tensor, random: np.random.Generator) -> NDArray[Any]:
    dtype = dtype_of(tensor.dtype)
    # Drawn in float32 where that is precise enough: half the time and memory.
    wide: Any = np.float64 if dtype == np.float64 else np.float32
    match tensor.fill:
        case "given":
            values: NDArray[Any] = np.asarray(tensor.values).reshape(tensor.shape)
        case "index":
            values = random.integers(0, max(1, int(tensor.scale)), tensor.shape)
        case "boolean":
            values = random.integers(0, 2, tensor.shape)
        case "positive":
            values = random.random(tensor.shape, wide) + wide(0.5)
        case "unit":
            values = random.random(tensor.shape, wide) * wide(1.8) - wide(0.9)
        case "sparse":
            values = random.standard_normal(tensor.shape, wide)
            values *= random.random(tensor.shape, np.float32) < tensor.density
            values *= wide(tensor.scale)
        case _:
            values = random.standard_normal(tensor.shape, wide)
            values *= wide(tensor.scale)
    return values.astype(dtype, copy=False)
