"""Arrays out of nothing but their shape: Constant, ConstantOfShape, EyeLike, Range, OneHot, windows, mel filters."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@maker("Constant")
def _constant(node: OperatorNode) -> Function:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, dtype in kinds.items():
        if name in node.attributes:
            array = np.asarray(node[name], dtype)
            return lambda: jnp.asarray(array)
    if "value" not in node.attributes:
        raise refuse(node, "strings and sparse tensors are not there")
    value = np.asarray(node["value"])
    if value.dtype.kind in "OSUT":
        raise refuse(node, "JAX has no strings")
    return lambda: jnp.asarray(value)


@maker("ConstantOfShape")
def _constant_of_shape(node: OperatorNode) -> Function:
    value = np.asarray(node.get("value", np.zeros(1, np.float32))).reshape(-1)[0]
    return lambda shape: jnp.full(tuple(int(each) for each in shape), value, value.dtype)


@maker("EyeLike")
def _eye_like(node: OperatorNode) -> Function:
    k, code = int(node["k"]), node.get("dtype")

    def eye_like(x: Any) -> Any:
        rows, columns = x.shape
        return jnp.eye(rows, columns, k=k, dtype=x.dtype if code is None else numpy_dtype(code))

    return eye_like


@maker("Range")
def _range(_: OperatorNode) -> Function:
    def stretch(start: Any, limit: Any, delta: Any) -> Any:
        kind = np.int64 if start.dtype.kind in "iu" else np.float64
        first, end, step = (each.astype(kind).item() for each in (start, limit, delta))
        count = max(int(np.ceil((end - first) / step)), 0)
        return jnp.asarray((first + step * np.arange(count, dtype=kind)).astype(start.dtype))

    return stretch


@maker("OneHot")
def _one_hot(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def one_hot(indices: Any, depth: Any, values: Any) -> Any:
        count = int(np.asarray(depth).item())
        # An index outside [-depth, depth) is nowhere hot.
        index = jnp.expand_dims(indices.astype(jnp.int64), axis)
        index = jnp.where(index < 0, index + count, index)
        place = jnp.arange(count).reshape([-1 if at == axis % index.ndim else 1 for at in range(index.ndim)])
        return jnp.where(index == place, values[1], values[0])

    return one_hot


_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}
"""Coefficients of the cosines of 0, 1 and 2 turns."""


@maker(*_WINDOWS)
def _window(node: OperatorNode) -> Function:
    coefficients, periodic, code = _WINDOWS[node.op_type], bool(node["periodic"]), int(node["output_datatype"])

    def window(size: Any) -> Any:
        count = int(size.item())
        turns = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = sum(weight * np.cos(order * turns) for order, weight in enumerate(coefficients))
        return jnp.asarray(np.asarray(values).astype(numpy_dtype(code)))

    return window


@maker("MelWeightMatrix")
def _mel_weight_matrix(node: OperatorNode) -> Function:
    """Triangles between centres at equal distances on the mel scale, 2595 log10(1 + f / 700) (ONNX's reference)."""
    code = int(node["output_datatype"])

    def mel_weight_matrix(bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
        count, dft = int(bins.item()), int(length.item())
        mels = 2595 * np.log10(1 + np.array([low.item(), high.item()]) / 700)
        step = (mels[1] - mels[0]) / (count + 2)
        hertz = 700 * (10 ** ((mels[0] + step * np.arange(count + 2)) / 2595) - 1)
        places = ((dft + 1) * hertz // rate.item()).astype(np.int64)
        frequency = np.arange(dft // 2 + 1)[:, None]
        left, centre, right = places[:-2], places[1:-1], places[2:]
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = np.where(centre == left, 1.0, (frequency - left) / (centre - left))
            falling = (right - frequency) / (right - centre)
        up = (frequency >= left) & (frequency <= centre)
        down = (frequency > centre) & (frequency < right)
        # Of a triangle without a left side only the tip is left.
        up &= (centre != left) | (frequency == centre)
        matrix = np.where(up, rising, np.where(down, falling, 0.0))
        return jnp.asarray(matrix.astype(numpy_dtype(code)))

    return mel_weight_matrix
