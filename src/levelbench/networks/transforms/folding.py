"""Folding: computes constants in advance, folds batch normalisation into weights, and removes dead nodes.

Parameters are not constants, because they are trained; what is folded is shape arithmetic, masks and tables of
positions. Batch normalisation y = (x - mean) / sqrt(variance + epsilon) * scale + shift, with x = W * input + b, equals
the layer with W' = W * factor and b' = (b - mean) * factor + shift, where factor = scale / sqrt(variance + epsilon)
(Jacob et al. 2018, section 3.2), if nothing else reads x and running statistics are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from levelbench.errors import UnsupportedError
from levelbench.networks.inspect import RANDOM, is_standard, needed_nodes
from levelbench.networks.network import Network
from levelbench.networks.transforms.graph import EditableGraph, bind, known_values
from levelbench.networks.transforms.transform import (
    ROUNDING,
    Allowance,
    Arrays,
    Transform,
    Transformed,
    whole_number,
)
from levelbench.networks.values import Shape
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode

_NEVER = frozenset([*RANDOM, "Dropout", "If", "Loop", "Scan", "SequenceMap", "SequenceEmpty", "SequenceConstruct"])
_PARTIAL = {"Gather": 2, "Slice": 5, "Squeeze": 2, "Unsqueeze": 2, "Identity": 1}
Partial = NDArray[Any]


class FoldConstants(Transform):
    """Replaces nodes whose values are known before the network runs by these values.

    ``batch`` and ``sizes`` bind the network's open sizes first; without ``batch`` none are bound. A value of more than
    ``most_bytes`` is not stored, unless one of its inputs is at least as large.
    """

    name = "fold-constants"
    summary = "computes what depends only on constants and known shapes in advance"

    def __init__(
        self,
        *,
        batch: str | int | None = None,
        sizes: Mapping[str, int] = MappingProxyType({}),
        most_bytes: str | int = 1 << 20,
    ) -> None:
        self._batch = None if batch is None else whole_number("batch", batch)
        self._sizes, self._most = dict(sizes), whole_number("most_bytes", most_bytes, 0)

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network with constants in place of these nodes."""
        if self._batch is not None:
            network = bind(network, self._batch, self._sizes)
        graph = EditableGraph(network, parameters)
        shapes = {name: each.shape for name, each in known_values(network).items()}
        folder = _Folder(graph, shapes, self._most)
        folded = [node for node in graph.nodes if folder.fold(node)]
        changed = []
        if folded:
            graph.remove(folded)
            folder.store(graph)
            folded += folder.drop_shapes(graph)
            changed.append(f"computed {len(folded)} of {len(network.model.graph.node)} nodes in advance")
        if folder.too_large:
            changed.append(f"left {len(folder.too_large)} nodes whose values take over {self._most:,} bytes each")
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed))


def lifted(network: Network) -> Network:
    """The network with Constant nodes as initialisers, where patterns and rules look for constants."""
    if not any(is_standard(each, "Constant") for each in network.model.graph.node):
        return network
    graph = EditableGraph(network)
    folder = _Folder(graph, {}, 0)
    found = [node for node in graph.nodes if is_standard(node, "Constant") and folder.fold(node)]
    graph.remove(found)
    folder.store(graph)
    return graph.finish()[0]


class _Folder:
    """What is known so far: arrays, and one-dimensional integer values with some known entries."""

    def __init__(self, graph: EditableGraph, shapes: Mapping[str, Shape | None], most: int) -> None:
        self._graph, self._shapes, self._most = graph, shapes, most
        self._made: dict[str, NDArray[Any]] = {}
        self._partial: dict[str, Partial] = {}
        self._numpy = open_framework("numpy", "cpu")
        self._kept = graph.kept()
        self.too_large: list[str] = []

    def fold(self, proto: onnx.NodeProto) -> bool:
        """Whether the node's outputs are now known, so that it is no longer needed."""
        node = self._graph.operator(proto)
        if node.domain or node.op_type in _NEVER or any(name in self._kept for name in node.outputs):
            return False
        if node.op_type in ("Shape", "Size"):
            return self._fold_shape(node)
        inputs = [self._known(name) if name else None for name in node.inputs]
        if any(value is None and name for value, name in zip(inputs, node.inputs, strict=True)):
            return self._fold_partial(node)
        try:
            outputs = self._numpy.operator(node).forward(*inputs)
        except UnsupportedError:
            return False
        made = dict(zip(node.outputs, outputs, strict=False))
        if any(not isinstance(value, np.ndarray | np.generic) for name, value in made.items() if name):
            return False
        size = sum(np.asarray(value).nbytes for name, value in made.items() if name)
        if node.op_type != "Constant" and size > max(
            self._most, *(0 if each is None else each.nbytes for each in inputs), 0
        ):
            self.too_large.append(node.outputs[0])
            return False
        self._made.update((name, np.asarray(value)) for name, value in made.items() if name)
        return True

    def store(self, graph: EditableGraph) -> None:
        """Store the values that are still read in the graph."""
        read = graph.readers()
        for name, value in self._made.items():
            if name in read:
                array = np.ascontiguousarray(value).reshape(value.shape)
                graph.initialisers[name] = numpy_helper.from_array(array, name)

    def drop_shapes(self, graph: EditableGraph) -> list[onnx.NodeProto]:
        """Remove and return shape nodes of which only known entries were read."""
        gone: list[onnx.NodeProto] = []
        read = graph.readers()
        for node in reversed(graph.nodes):
            if node.output[0] in self._partial and not read.get(node.output[0]) and node.output[0] not in self._kept:
                gone.append(node)
                for name in node.input:
                    if name in read:
                        read[name].remove(node)
        graph.remove(gone)
        return gone

    def _known(self, name: str) -> NDArray[Any] | None:
        return self._made[name] if name in self._made else self._graph.constant(name)

    def _fold_shape(self, node: OperatorNode) -> bool:
        shape = self._shapes.get(node.inputs[0])
        if shape is None:
            return False
        sizes = np.array([size if isinstance(size, int) else None for size in shape], object)
        if node.op_type == "Size":
            if any(each is None for each in sizes):
                return False
            self._made[node.outputs[0]] = np.array(np.prod([int(each) for each in sizes], dtype=np.int64))
            return True
        return self._keep(node.outputs[0], sizes[slice(node.get("start", 0), node.get("end"))])

    def _keep(self, name: str, sizes: Partial) -> bool:
        """Remember a value; returns whether all of it is known."""
        if all(each is not None for each in np.ravel(sizes)):
            self._made[name] = np.array(sizes.tolist(), np.int64).reshape(sizes.shape)
            return True
        self._partial[name] = sizes
        return False

    def _fold_partial(self, node: OperatorNode) -> bool:
        """Follow a partially known shape to where only its known sizes are read."""
        if node.op_type == "Concat" and node["axis"] in (0, -1):
            parts = [self._partial.get(name, self._known(name)) for name in node.inputs]
            if any(each is None or each.ndim != 1 for each in parts):
                return False
            return self._keep(node.outputs[0], np.concatenate([np.asarray(each, object) for each in parts]))
        if node.op_type not in _PARTIAL or node.inputs[0] not in self._partial:
            return False
        places = self._partial[node.inputs[0]]
        others = [self._known(name) if name else None for name in node.inputs[1:]]
        if any(value is None and name for value, name in zip(others, node.inputs[1:], strict=True)):
            return False
        # The operator only moves entries, so apply it to their indices instead.
        at = np.arange(places.size, dtype=np.int64).reshape(places.shape)
        (moved,) = self._numpy.operator(node).forward(at, *others)
        moved = np.asarray(moved)
        found = np.empty(moved.shape, object)
        found[...] = np.asarray([places.ravel()[each] for each in moved.ravel()], object).reshape(moved.shape)
        return self._keep(node.outputs[0], found)


_TOLERANCE = Allowance(ROUNDING.outputs, None, "float32 rounding of the folded weights; the parameters differ")


class FoldBatchNorm(Transform):
    """Folds BatchNormalization in inference mode into the Conv, ConvTranspose or Gemm before it."""

    name = "fold-batchnorm"
    summary = "folds BatchNormalization into the convolution or product before it, for inference"

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network with folded weights, which are stored in the model."""
        graph = EditableGraph(lifted(network), parameters)
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
    graph: EditableGraph,
    norm: onnx.NodeProto,
    layer: onnx.NodeProto | None,
    readers: dict[str, list[onnx.NodeProto]],
    kept: set[str],
) -> str:
    """Why the pair cannot be folded; empty if it can."""
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
    graph: EditableGraph, layer: onnx.NodeProto, norm: onnx.NodeProto, readers: dict[str, list[onnx.NodeProto]]
) -> onnx.NodeProto:
    """The combined layer."""
    scale, shift, mean, variance = (_double(graph, name) for name in norm.input[1:5])
    operator = graph.operator(layer)
    factor = scale / np.sqrt(variance + float(graph.operator(norm)["epsilon"]))
    weight = _double(graph, layer.input[1])
    dtype = _array(graph, layer.input[1]).dtype
    has_bias = len(layer.input) > 2 and bool(layer.input[2])
    bias = _double(graph, layer.input[2]).reshape(-1) if has_bias else np.zeros(1)
    attributes: dict[str, Any] = dict(operator.attributes)
    if layer.op_type == "Gemm":
        # Fold alpha and beta into the arrays first, because the factor applies to the layer's output.
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
    """Scale the output channels of ConvTranspose, which are on axis 1 (per group); the groups are on axis 0."""
    grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    by_group = factor.reshape(groups, 1, weight.shape[1], *(1 for _ in weight.shape[2:]))
    return np.asarray((grouped * by_group).reshape(weight.shape))


def _array(graph: EditableGraph, name: str) -> NDArray[Any]:
    found = graph.array(name)
    assert found is not None, name
    return found


def _double(graph: EditableGraph, name: str) -> NDArray[Any]:
    return np.asarray(_array(graph, name), np.float64)


class DeadNodes(Transform):
    """Removes nodes, parameters and constants that no output needs. Inputs of the network stay, read or not."""

    name = "dead-nodes"
    summary = "removes nodes and arrays that no output needs"

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network without them."""
        graph = EditableGraph(network, parameters)
        alive, _ = needed_nodes(graph.model.graph, graph.kept())
        dead = len(graph.nodes) - len(alive)
        graph.nodes = [graph.nodes[at] for at in alive]
        gone = graph.drop_unread()
        changed = []
        if dead:
            changed.append(f"removed {dead} of {len(network.model.graph.node)} nodes")
        if gone:
            changed.append(f"removed {len(gone)} arrays that nothing reads: {', '.join(gone[:5])}")
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed))
