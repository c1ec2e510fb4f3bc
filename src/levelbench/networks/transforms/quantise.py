"""Dynamic int8: weights are quantised once and by output channel, what meets them at each call and by tensor.

The one idea: a product of quantised numbers is exact in int32, so the whole error is that of rounding the operands:
y = (x_q - x_zero) w_q * x_scale * w_scale, with w_scale one for each output channel (ONNX: DynamicQuantizeLinear,
MatMulInteger, ConvInteger; Jacob et al. 2018, section 2). Weights are symmetric: their zero is 0. They have 7 bits
unless asked for 8: processors without VNNI add pairs of products in int16, and ONNX Runtime lets these saturate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.networks.transforms.graph import Graph, is_standard
from levelbench.networks.transforms.shapes import known_values
from levelbench.networks.values import Value, element_type

__all__ = ["quantise_weight", "quantised"]


def quantise_weight(weight: NDArray[Any], axis: int, bits: int = 8) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The weight in steps of ``bits`` bits, and the size of a step for each index of ``axis``.

    A step is the largest magnitude over 127 (8 bits) or 63 (7 bits).
    """
    most = 2 ** (bits - 1) - 1
    others = tuple(each for each in range(weight.ndim) if each != axis % weight.ndim)
    largest = np.abs(weight).max(axis=others, keepdims=True, initial=0.0).astype(np.float32)
    scale = np.where(largest > 0, largest / most, 1.0).astype(np.float32)
    steps = np.clip(np.rint(weight / scale), -most, most).astype(np.int8)
    return steps, scale.reshape(-1)


def quantised(graph: Graph, bits: int) -> list[str]:
    """Replace MatMul, Gemm and Conv with stored weights; what was done, in words."""
    values = known_values(graph.network)
    done: list[str] = []
    left: list[str] = []
    activations: dict[str, tuple[str, str, str]] = {}
    saved = 0
    for node in list(graph.nodes):
        if not is_standard(node, "MatMul", "Gemm", "Conv"):
            continue
        why = _refusal(graph, node, values)
        if why:
            left.append(f"left {node.op_type} {node.name or node.output[0]!r}: {why}")
            continue
        new: list[onnx.NodeProto] = []
        x = activations.get(node.input[0])
        if x is None:
            x = activations[node.input[0]] = _quantise_input(graph, node.input[0], new)
        saved += _replace(graph, node, x, new, bits)
        graph.swap([node], new)
        done.append(node.op_type)
    changed = []
    if done:
        counts = ", ".join(f"{done.count(each)} {each}" for each in dict.fromkeys(done))
        changed.append(f"{counts} compute in int8, weights of {bits} bits; these take {saved:,} bytes less")
    return changed + left


def _refusal(graph: Graph, node: onnx.NodeProto, values: dict[str, Value]) -> str:
    shape = graph.shape_of(node.input[1])
    x = values.get(node.input[0])
    if shape is None:
        return f"its second operand {node.input[1]!r} is computed"
    if x is None or x.dtype != "float32" or x.shape is None:
        return "what it multiplies is not known to be float32"
    if node.op_type == "MatMul" and (len(shape) != 2 or len(x.shape) < 2):
        return f"its weight has {len(shape)} axes"
    operator = graph.operator(node)
    if node.op_type == "Gemm" and operator["transA"]:
        return "it transposes its first operand"
    return ""


def _quantise_input(graph: Graph, name: str, new: list[onnx.NodeProto]) -> tuple[str, str, str]:
    outputs = [graph.free(f"{name}.{each}") for each in ("steps", "scale", "zero")]
    new.append(onnx.helper.make_node("DynamicQuantizeLinear", [name], outputs, name=outputs[0]))
    return outputs[0], outputs[1], outputs[2]


def _replace(graph: Graph, node: onnx.NodeProto, x: tuple[str, str, str], new: list[onnx.NodeProto], bits: int) -> int:
    """Write the nodes that stand for this one; how many bytes of weights they save."""
    operator = graph.operator(node)
    weight = np.asarray(graph.array(node.input[1]), np.float32)
    bias = node.input[2] if len(node.input) > 2 else ""
    if node.op_type == "Gemm":
        weight = (weight.T if operator["transB"] else weight) * np.float32(operator["alpha"])
    steps, scale = quantise_weight(weight, 0 if node.op_type == "Conv" else 1, bits)
    # By channel: axis 1 of an image, the last axis of a matrix.
    channels = (-1, *(1 for _ in weight.shape[2:])) if node.op_type == "Conv" else (-1,)
    base = node.output[0]

    def write(op_type: str, inputs: list[str], what: str, **attributes: Any) -> str:
        output = graph.free(f"{base}.{what}")
        new.append(graph.make(op_type, inputs, output, **attributes))
        return output

    stored = graph.store(steps, f"{node.input[1]}.int8")
    attributes = dict(operator.attributes) if node.op_type == "Conv" else {}
    kind = "ConvInteger" if node.op_type == "Conv" else "MatMulInteger"
    product = write(kind, [x[0], stored, x[2]], "int32", **attributes)
    product = write("Cast", [product], "steps32", to=element_type("float32"))
    step = write("Mul", [x[1], graph.store(scale.reshape(channels), f"{node.input[1]}.scale")], "step")
    product = write("Mul", [product, step], "product")
    if bias and node.op_type == "Conv":
        shape = graph.store(np.array(channels, np.int64), f"{base}.channels")
        bias = write("Reshape", [bias, shape], "bias")
    elif bias and operator["beta"] != 1.0:
        bias = write("Mul", [bias, graph.store(np.array(operator["beta"], np.float32), f"{base}.beta")], "bias")
    if bias:
        product = write("Add", [product, bias], "sum")
    new[-1].output[0] = base
    return weight.nbytes - steps.nbytes - scale.nbytes
