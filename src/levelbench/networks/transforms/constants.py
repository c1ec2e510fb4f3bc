"""Constant folding: computes what follows from constants and from known shapes once and for all.

The one idea: parameters are not constants (they are trained), so what is folded is shape arithmetic, masks, and tables
of positions. With the batch and other sizes bound, most Reshapes of an exported model become plain ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError
from levelbench.networks.network import Network
from levelbench.networks.transforms.graph import Graph, is_standard
from levelbench.networks.transforms.shapes import bind, known_values
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed, whole_number
from levelbench.networks.values import Shape
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode

__all__ = ["FoldConstants", "lifted"]

_RANDOM = "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike Dropout"
_NEVER = frozenset([*_RANDOM.split(), "If", "Loop", "Scan", "SequenceMap", "SequenceEmpty", "SequenceConstruct"])
_PARTIAL = {"Gather": 2, "Slice": 5, "Squeeze": 2, "Unsqueeze": 2, "Identity": 1}
Partial = NDArray[Any]


class FoldConstants(Transform):
    """Replaces nodes whose values are known before the network runs by these values.

    ``batch`` and ``sizes`` bind the network's open sizes first; without ``batch`` none are. A value of more than
    ``most_bytes`` is left to be computed, unless what it is made of is no smaller.
    """

    name = "fold-constants"
    summary = "computes what follows from constants and known shapes in advance"

    def __init__(
        self,
        *,
        batch: str | int | None = None,
        sizes: Mapping[str, int] = MappingProxyType({}),
        most_bytes: str | int = 1 << 20,
    ) -> None:
        self._batch = None if batch is None else whole_number("batch", batch)
        self._sizes, self._most = dict(sizes), whole_number("most_bytes", most_bytes, 0)

    def transform(self, network: Network, parameters: Arrays | None) -> Transformed:
        """The network with constants in their places."""
        if self._batch is not None:
            network = bind(network, self._batch, self._sizes)
        graph = Graph(network, parameters)
        shapes = {name: each.shape for name, each in known_values(network).items()}
        folder = _Folder(graph, shapes, self._most)
        folded = [node for node in graph.nodes if folder.fold(node)]
        changed = []
        if folded:
            gone = {id(each) for each in folded}
            graph.nodes = [each for each in graph.nodes if id(each) not in gone]
            folder.store(graph)
            folded += folder.drop_shapes(graph)
            changed.append(f"computed {len(folded)} of {len(network.model.graph.node)} nodes in advance")
        if folder.too_large:
            changed.append(f"left {len(folder.too_large)} to compute: their values take over {self._most:,} bytes each")
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed))


def lifted(network: Network) -> Network:
    """The network with nodes of type Constant as initialisers, where patterns and rules look for constants."""
    if not any(is_standard(each, "Constant") for each in network.model.graph.node):
        return network
    graph = Graph(network)
    folder = _Folder(graph, {}, 0)
    found = [node for node in graph.nodes if is_standard(node, "Constant") and folder.fold(node)]
    gone = {id(each) for each in found}
    graph.nodes = [each for each in graph.nodes if id(each) not in gone]
    folder.store(graph)
    return graph.finish()[0]


class _Folder:
    """What is known so far: arrays, and one-dimensional integer values of which some entries are."""

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape | None], most: int) -> None:
        self._graph, self._shapes, self._most = graph, shapes, most
        self._made: dict[str, NDArray[Any]] = {}
        self._partial: dict[str, Partial] = {}
        self._numpy: OperatorBackend | None = None
        self._kept = graph.kept()
        self.too_large: list[str] = []

    def fold(self, proto: onnx.NodeProto) -> bool:
        """Whether the node's outputs are known now, so that it is not needed any more."""
        node = self._graph.operator(proto)
        if node.domain or node.op_type in _NEVER or any(name in self._kept for name in node.outputs):
            return False
        if node.op_type in ("Shape", "Size"):
            return self._fold_shape(node)
        inputs = [self._known(name) if name else None for name in node.inputs]
        if any(value is None and name for value, name in zip(inputs, node.inputs, strict=True)):
            return self._fold_partial(node)
        try:
            outputs = self._backend().operator(node).forward(*inputs)
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

    def store(self, graph: Graph) -> None:
        """Put those values into the graph that something still reads."""
        from onnx import numpy_helper

        read = graph.readers()
        for name, value in self._made.items():
            if name in read:
                array = np.ascontiguousarray(value).reshape(value.shape)
                graph.initialisers[name] = numpy_helper.from_array(array, name)

    def drop_shapes(self, graph: Graph) -> list[onnx.NodeProto]:
        """Take out the nodes of shapes of which only what was known was read; they are the answer."""
        gone: list[onnx.NodeProto] = []
        read = graph.readers()
        for node in reversed(graph.nodes):
            if node.output[0] in self._partial and not read.get(node.output[0]) and node.output[0] not in self._kept:
                gone.append(node)
                for name in node.input:
                    if name in read:
                        read[name].remove(node)
        graph.nodes = [each for each in graph.nodes if all(each is not other for other in gone)]
        return gone

    def _known(self, name: str) -> NDArray[Any] | None:
        return self._made[name] if name in self._made else self._graph.constant(name)

    def _backend(self) -> OperatorBackend:
        if self._numpy is None:
            self._numpy = open_framework("numpy", "cpu")
        return self._numpy

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
        """Remember a value; whether all of it is known."""
        if all(each is not None for each in np.ravel(sizes)):
            self._made[name] = np.array(sizes.tolist(), np.int64).reshape(sizes.shape)
            return True
        self._partial[name] = sizes
        return False

    def _fold_partial(self, node: OperatorNode) -> bool:
        """Follow a shape of which some sizes are known to where only these are read."""
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
        # The operator moves entries and looks at none, so it may move their places instead.
        at = np.arange(places.size, dtype=np.int64).reshape(places.shape)
        (moved,) = self._backend().operator(node).forward(at, *others)
        moved = np.asarray(moved)
        found = np.empty(moved.shape, object)
        found[...] = np.asarray([places.ravel()[each] for each in moved.ravel()], object).reshape(moved.shape)
        return self._keep(node.outputs[0], found)
