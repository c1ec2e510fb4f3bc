"""A loss for networks that have none: the outputs against random directions, so that every one gets a gradient.

The one idea: with fixed random d the gradient of mean(d y) is the vector-Jacobian product with d, which a wrong
gradient of any operator on the way changes; nothing need be known of what the network is for.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from levelbench.networks.network import Network
from levelbench.networks.values import element_type
from levelbench.operators.validation.tolerances import is_float

__all__ = ["with_probe"]


def with_probe(
    network: Network, outputs: Mapping[str, Any], *, seed: int = 0
) -> tuple[Network, dict[str, np.ndarray[Any, Any]]]:
    """The network with the loss sum over outputs of mean(direction * output), and the directions as more inputs.

    ``outputs`` are values of outputs by name, whose shapes and dtypes the directions get; those that are no floats, or
    have no element, are left out. Where none is left, the network comes back without a loss. Of opset 13 or later.
    """
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    graph = model.graph
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    taken |= {each.name for each in (*graph.input, *graph.initializer, *graph.output)}
    prefix = "probe"
    while any(each.startswith(f"{prefix}.") for each in taken):
        prefix += "_"
    directions: dict[str, np.ndarray[Any, Any]] = {}
    terms = []
    for at, (name, value) in enumerate(outputs.items()):
        if not is_float(value.dtype) or not value.size:
            continue
        direction, product, term = f"{prefix}.direction{at}", f"{prefix}.product{at}", f"{prefix}.term{at}"
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        directions[direction] = random.standard_normal(value.shape).astype(value.dtype)
        graph.input.append(helper.make_tensor_value_info(direction, element_type(value.dtype.name), value.shape))
        graph.node.append(helper.make_node("Mul", [name, direction], [product]))
        graph.node.append(helper.make_node("ReduceMean", [product], [term], keepdims=0))
        terms.append(_as_float32(graph, term, value.dtype))
    if not terms:
        return network, {}
    loss = f"{prefix}.loss"
    graph.node.append(helper.make_node("Sum", terms, [loss]))
    graph.output.append(helper.make_tensor_value_info(loss, onnx.TensorProto.FLOAT, ()))
    return Network(model, network.parameters, fills=network.fills, sizes=network.sizes, loss=loss), directions


def _as_float32(graph: onnx.GraphProto, term: str, dtype: Any) -> str:
    if dtype == np.float32:
        return term
    name = f"{term}.float32"
    graph.node.append(helper.make_node("Cast", [term], [name], to=onnx.TensorProto.FLOAT))
    return name
