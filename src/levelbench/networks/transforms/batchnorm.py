"""Batch-normalisation folding: at inference it is a scale and a shift, which the layer before it can do.

The one idea: y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with x = W * input + b, is the same layer with
W' = W * factor and b' = (b - mean) * factor + shift, where factor = scale / sqrt(variance + epsilon) (Jacob et al.
2018, section 3.2). Valid only where nothing else reads x, and only with running statistics.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.networks.network import Network
from levelbench.networks.transforms.constants import lifted
from levelbench.networks.transforms.graph import Graph, is_standard
from levelbench.networks.transforms.transform import ROUNDING, Arrays, Tolerance, Transform, Transformed

__all__ = ["FoldBatchNorm"]

_TOLERANCE = Tolerance(ROUNDING.outputs, None, "float32 rounding of the folded weights; the parameters are other ones")


class FoldBatchNorm(Transform):
    """Folds BatchNormalization in inference mode into the Conv, ConvTranspose or Gemm before it."""

    name = "fold-batchnorm"
    summary = "folds BatchNormalization into the convolution or product before it, for inference"

    def transform(self, network: Network, parameters: Arrays | None) -> Transformed:
        """The network with folded weights, which are stored in the model."""
        graph = Graph(lifted(network), parameters)
        makers, readers, kept = graph.makers(), graph.readers(), graph.kept()
        folded: list[str] = []
        left: list[str] = []
        for norm in [each for each in graph.nodes if is_standard(each, "BatchNormalization")]:
            layer = makers.get(norm.input[0])
            why = _refusal(graph, norm, layer, readers, kept)
            if why or layer is None:
                left.append(f"left BatchNormalization {norm.name or norm.output[0]!r}: {why}")
                continue
            graph.swap([layer, norm], [_fold(graph, layer, norm, readers)])
            folded.append(layer.op_type)
        changed = []
        if folded:
            counts = ", ".join(f"{folded.count(each)} {each}" for each in dict.fromkeys(folded))
            changed.append(f"folded {len(folded)} BatchNormalization into {counts}")
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, (*changed, *left), tolerance=_TOLERANCE)


def _refusal(
    graph: Graph,
    norm: onnx.NodeProto,
    layer: onnx.NodeProto | None,
    readers: dict[str, list[onnx.NodeProto]],
    kept: set[str],
) -> str:
    """Why the pair cannot be folded; empty where it can."""
    if graph.operator(norm).get("training_mode", 0) or any(norm.output[1:]):
        return "it is in training mode"
    if layer is None or not is_standard(layer, "Conv", "ConvTranspose", "Gemm"):
        return "no Conv, ConvTranspose or Gemm comes before it"
    if len(readers[norm.input[0]]) > 1 or norm.input[0] in kept:
        return f"{norm.input[0]!r} is also read elsewhere"
    wanted = [*norm.input[1:5], layer.input[1], *layer.input[2:3]]
    unknown = [name for name in wanted if name and graph.shape_of(name) is None]
    if unknown:
        return f"the values of {unknown[0]!r} are computed"
    if layer.op_type == "Gemm" and len(layer.input) > 2 and layer.input[2]:
        shape = graph.shape_of(layer.input[2]) or ()
        if int(np.prod(shape[:-1], dtype=int)) != 1:
            return "the bias of Gemm differs from row to row"
    return ""


def _fold(
    graph: Graph, layer: onnx.NodeProto, norm: onnx.NodeProto, readers: dict[str, list[onnx.NodeProto]]
) -> onnx.NodeProto:
    """The layer that does both."""
    scale, shift, mean, variance = (_double(graph, name) for name in norm.input[1:5])
    operator = graph.operator(layer)
    factor = scale / np.sqrt(variance + float(graph.operator(norm)["epsilon"]))
    weight = _double(graph, layer.input[1])
    dtype = _array(graph, layer.input[1]).dtype
    has_bias = len(layer.input) > 2 and bool(layer.input[2])
    bias = _double(graph, layer.input[2]).reshape(-1) if has_bias else np.zeros(1)
    attributes: dict[str, Any] = dict(operator.attributes)
    if layer.op_type == "Gemm":
        # alpha and beta go into the arrays, so that the factor multiplies what the layer puts out.
        weight = weight * operator["alpha"] * (factor[:, None] if operator["transB"] else factor)
        bias = bias * operator["beta"]
        attributes["alpha"] = attributes["beta"] = 1.0
    elif layer.op_type == "Conv":
        weight = weight * factor.reshape(-1, *(1 for _ in weight.shape[1:]))
    else:
        weight = _scale_transposed(weight, factor, int(operator["group"]))
    trained = {each.name for each in graph.roles.values() if each.trainable}
    names = [layer.input[1], layer.input[2] if has_bias else norm.input[2]]
    arrays = [weight.astype(dtype), ((bias - mean) * factor + shift).astype(dtype)]
    stored = []
    for name, array, kind in zip(names, arrays, ("weight", "bias"), strict=True):
        base = name if kind == "weight" or has_bias else f"{layer.input[1]}.{kind}"
        stored.append(graph.store_parameter(array, f"{base}.folded", trainable=name in trained))
    folded = graph.make(layer.op_type, [layer.input[0], *stored], norm.output[0], **attributes)
    folded.name = layer.name or norm.output[0]
    return folded


def _scale_transposed(weight: NDArray[Any], factor: NDArray[Any], groups: int) -> NDArray[Any]:
    """ConvTranspose has its output channels on axis 1, those of one group; its groups lie on axis 0."""
    grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    by_group = factor.reshape(groups, 1, weight.shape[1], *(1 for _ in weight.shape[2:]))
    return np.asarray((grouped * by_group).reshape(weight.shape))


def _array(graph: Graph, name: str) -> NDArray[Any]:
    found = graph.array(name)
    assert found is not None, name
    return found


def _double(graph: Graph, name: str) -> NDArray[Any]:
    return np.asarray(_array(graph, name), np.float64)
