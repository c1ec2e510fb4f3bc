"""How far the tensors of a whole network may lie from the reference's, by dtype, and why.

The one idea: a network has no single longest sum from which a tolerance could be derived, so a share of the tensor's
largest value is allowed that right implementations stay well inside and wrong ones do not; what exceeds it is accused
only if roundings of the inputs do not move the reference as far (:mod:`levelbench.networks.validation.conditioning`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper

from levelbench.networks.network import Network
from levelbench.networks.values import dtype_of
from levelbench.operators.validation.tolerances import is_float, unit_roundoff

__all__ = ["GRADIENTS", "OUTPUTS", "Kind", "coarsest_dtype", "limit_for"]

Kind = Literal["output", "gradient"]

OUTPUTS: Mapping[str, float] = MappingProxyType(
    {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1},
)
"""Share of an output's largest magnitude: 1e-4 of float32 is 1,700 roundings; half precisions get 40 and 25."""

GRADIENTS: Mapping[str, float] = MappingProxyType(
    {"float64": 1e-9, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2e-1},
)
"""Share of a gradient's largest magnitude: a gradient passes through each operator twice and sums over the batch."""

_MOVES = ("Cast", "CastLike", "Constant", "ConstantOfShape", "DequantizeLinear", "Identity")


def limit_for(kind: Kind, dtype: Any) -> float:
    """The share of a tensor's largest magnitude by which its values may be off; 0 for integers and booleans."""
    found = np.dtype(dtype)
    if not is_float(found) and found.kind != "c":
        return 0.0
    table = OUTPUTS if kind == "output" else GRADIENTS
    if found.name in table:
        return table[found.name]
    # What is narrower still (float8): as many roundings as bfloat16 gets.
    return 25 * unit_roundoff(found)


def coarsest_dtype(network: Network, known: Iterable[str] = ()) -> np.dtype[Any]:
    """The floating-point dtype with the fewest digits in which the network computes; float32 where none is known.

    Weights that are stored in half precision and cast before they are used do not count. ``known`` are further names of
    dtypes to count.
    """
    types = _types(network.model)
    made = {name for node in network.model.graph.node if node.op_type not in _MOVES for name in node.output}
    found = {types[name] for name in made if name in types} | set(known)
    floats = [dtype_of(each) for each in found]
    return max((each for each in floats if is_float(each)), key=unit_roundoff, default=np.dtype(np.float32))


def _types(model: onnx.ModelProto) -> dict[str, str]:
    """The dtype's name of each tensor that is declared or that ONNX infers."""
    graph = model.graph
    infos = [*graph.value_info, *graph.output]
    if len(graph.value_info) < len(graph.node):
        # A wrong declaration, or a model beyond 2 GiB, is not this function's to judge.
        with suppress(onnx.shape_inference.InferenceError, ValueError):
            infos = [*infos, *onnx.shape_inference.infer_shapes(model).graph.value_info]
    return {
        each.name: helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type).name
        for each in infos
        if each.type.tensor_type.elem_type and each.type.tensor_type.elem_type != onnx.TensorProto.STRING
    }
