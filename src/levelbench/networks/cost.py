"""The cost of a network: floating-point operations, multiply-adds as papers count them, and bytes, per node and total.

A total is the sum of what is known. What is unknown is listed next to it and not silently counted as zero.

- Costs of nodes are those of Level 0 (:mod:`levelbench.operators.cost`). Shape arithmetic on the host costs nothing.
- Multiply-adds are those of convolutions, matrix products, recurrent layers and attention: half of their operations.
- An activation is a value that a node makes on the device. A view (Reshape, Flatten, Dropout outside of training)
  counts as the value it is a view of. A value whose size ONNX cannot infer counts 0 bytes, and its node is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from levelbench.networks.codegen import host_nodes
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import Value, dtype_of
from levelbench.operators.cost import Cost, Signature, cost_of
from levelbench.operators.node import OperatorNode
from levelbench.operators.program import constants_of, reads

_PRODUCTS = frozenset({"Attention", "Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
_CELLS = frozenset({"GRU", "LSTM", "RNN"})
_OF_TWO = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# Operators whose derivative does not read both inputs and outputs.
_NOTHING = (
    "Add AveragePool Cast Concat ConstantOfShape Dropout Expand Gather GlobalAveragePool Neg Pad ReduceMean ReduceSum "
    "Resize Slice Split Sub Sum Tile Transpose"
)
_OUTPUTS = "Exp LogSoftmax Relu Sigmoid Softmax Sqrt Tanh"
_INPUTS = (
    "BatchNormalization Clip Conv ConvTranspose Elu Erf Gelu Gemm HardSigmoid HardSwish InstanceNormalization "
    "LayerNormalization LeakyRelu Log MatMul MaxPool Mul PRelu Pow ReduceMax Softplus SoftmaxCrossEntropyLoss Swish "
    "Where"
)
_READS_NOTHING, _READS_OUTPUTS, _READS_INPUTS = (frozenset(each.split()) for each in (_NOTHING, _OUTPUTS, _INPUTS))


@dataclass(frozen=True)
class NodeCost:
    """The cost of the node at ``index`` of ``network.nodes``; ``None`` is unknown, also in ``cost``."""

    index: int
    title: str
    output: str
    cost: Cost
    multiply_adds: float | None


@dataclass(frozen=True)
class NetworkCost:
    """The cost of one inference. ``unknown`` counts the nodes, by operator, whose operations the totals lack.

    ``activation_bytes`` are those of all activations. ``peak_activation_bytes`` are the most that are alive at once if
    nodes run in order and values are freed after their last use (inputs live throughout, nothing is written in place).
    ``training_activation_bytes`` are those that derivatives read, which a training step must keep, without what
    operators keep internally (gates, masks, indices).
    """

    nodes: tuple[NodeCost, ...]
    flops: float
    multiply_adds: float
    bytes: float
    unknown: Mapping[str, int]
    parameter_bytes: int
    activation_bytes: int
    peak_activation_bytes: int
    training_activation_bytes: int


def backward_costs(network: Network, batch: int = 1, sizes: Mapping[str, int] = MappingProxyType({})) -> list[Cost]:
    """The cost of the backward pass by node, in the order of ``network.nodes``; errors as of ``network_cost``.

    Only for the gradients that training needs, as for :func:`training_operations`.
    """
    values = infer_shapes(network, {**sizes, "batch": batch})
    host = host_nodes(network.nodes, constants_of(network.model.graph))
    return [
        _backward_cost(_node_cost(at, node, values, at in host, "backward").cost, node, needed, values)
        for at, (node, needed) in enumerate(_needed_gradients(network))
    ]


def _backward_cost(of_all: Cost, node: OperatorNode, needed: set[str], values: Mapping[str, Value]) -> Cost:
    """The cost of the gradients that are ``needed``, given that of the gradients of all inputs."""
    if not needed:
        return Cost(0.0, 0.0)
    flops, moved = of_all.flops, of_all.bytes
    sizes = [signature_of(values.get(name)) if name else None for name in node.inputs]
    sizes = [each if each is not None and each.floating else None for each in sizes]
    unneeded = [at for at, name in enumerate(node.inputs) if name not in needed]
    if moved is not None:
        moved -= sum(each.bytes for at in unneeded if (each := sizes[at]) is not None)
    if node.op_type in _OF_TWO and not node.domain:
        flops = None if flops is None else flops * _products(node, needed) / 2
        # The gradient of one operand reads the other.
        if moved is not None:
            moved -= sum(each.bytes for at in unneeded if at < 2 and (each := sizes[1 - at]) is not None)
    return Cost(flops, moved)


def network_cost(network: Network, batch: int = 1, sizes: Mapping[str, int] = MappingProxyType({})) -> NetworkCost:
    """The cost with ``batch`` and ``sizes`` for symbolic sizes. Raises the errors of ``infer_shapes``."""
    values = infer_shapes(network, {**sizes, "batch": batch})
    constants = constants_of(network.model.graph)
    host = host_nodes(network.nodes, constants) | {at for at, each in enumerate(network.nodes) if not each.inputs}
    nodes = tuple(_node_cost(at, node, values, at in host) for at, node in enumerate(network.nodes))
    unknown = Counter(each.title for each in nodes if each.cost.flops is None)
    memory = _Memory(network, values, host)
    return NetworkCost(
        nodes=nodes,
        flops=sum(each.cost.flops or 0.0 for each in nodes),
        multiply_adds=sum(each.multiply_adds or 0.0 for each in nodes),
        bytes=sum(each.cost.bytes or 0.0 for each in nodes),
        unknown=dict(unknown),
        parameter_bytes=sum(each.size * dtype_of(each.dtype).itemsize for each in network.parameters),
        activation_bytes=sum(memory.sizes.values()),
        peak_activation_bytes=memory.peak(),
        training_activation_bytes=memory.kept({each.name for each in network.parameters if each.trainable}),
    )


@dataclass(frozen=True)
class TrainingOperations:
    """The operations of products that one training example costs, forward and for the gradients that are needed.

    Products are convolutions, matrix products, recurrent layers and attention; nothing else is counted, in training
    least of all a recomputation. ``unknown`` counts the products, by operator, whose operations are not known.
    """

    forward: float
    gradients: float
    unknown: Mapping[str, int]


def training_operations(network: Network, sizes: Mapping[str, int] = MappingProxyType({})) -> TrainingOperations:
    """Of ``network`` with ``sizes`` for symbolic sizes; raises the errors of ``infer_shapes``.

    A gradient is needed for an operand that is a trainable parameter or was computed from one, and costs one forward:
    none flows into the examples, or into layers before the first one that trains.
    """
    cost = network_cost(network, 1, sizes)
    forward = gradients = 0.0
    unknown: Counter[str] = Counter()
    for (node, needed), each in zip(_needed_gradients(network), cost.nodes, strict=True):
        flops = each.cost.flops
        if node.op_type in _PRODUCTS and not node.domain:
            if flops is None:
                unknown[each.title] += 1
            else:
                forward += flops
                gradients += flops * _products(node, needed)
    return TrainingOperations(forward, gradients, dict(unknown))


def _needed_gradients(network: Network) -> Iterator[tuple[OperatorNode, set[str]]]:
    """Each node with those of its inputs for which training needs a gradient."""
    needs = {each.name for each in network.parameters if each.trainable}
    for node in network.nodes:
        needed = needs.intersection(node.inputs)
        if needed:
            needs.update(name for name in node.outputs if name)
        yield node, needed


def _products(node: OperatorNode, needed: set[str]) -> int:
    """How many times the operations of its forward pass the gradients of a product cost."""
    # Attention multiplies queries by keys and the result by values; a cell its state by its own weights.
    if node.op_type in _CELLS and node.inputs[1] in needed:
        return 2
    return min(sum(name in needed for name in node.inputs[: 3 if node.op_type == "Attention" else 2]), 2)


def _node_cost(
    at: int, node: OperatorNode, values: Mapping[str, Value], on_host: bool, direction: str = "forward"
) -> NodeCost:
    output = next((name for name in node.outputs if name), "")
    if on_host or is_view(node):
        return NodeCost(at, node.title, output, Cost(0.0, 0.0), 0.0)
    inputs = [signature_of(values.get(name)) if name else None for name in node.inputs]
    outputs = [signature_of(values.get(name)) if name else None for name in node.outputs]
    named = (*zip(node.inputs, inputs, strict=True), *zip(node.outputs, outputs, strict=True))
    open_sizes = any(name and found is None for name, found in named)
    cost = Cost(None, None) if open_sizes else cost_of(node, inputs, outputs, direction)
    products = None if cost.flops is None else cost.flops / 2 if node.op_type in _PRODUCTS and not node.domain else 0.0
    return NodeCost(at, node.title, output, cost, products)


def is_view(node: OperatorNode) -> bool:
    """Whether its output is its first input, possibly with another shape."""
    if node.domain:
        return False
    trains = node.op_type == "Dropout" and len(node.inputs) > 2 and bool(node.inputs[2])
    return node.op_type in VIEWS or (node.op_type == "Dropout" and not trains)


def signature_of(value: Value | None) -> Signature | None:
    """The shape and type of a value for :func:`cost_of`; ``None`` if either is unknown, or for non-numeric types."""
    if value is None or value.sizes is None or value.dtype in ("", "str", "object"):
        return None
    floating = value.dtype.startswith(("float", "bfloat"))
    return Signature(value.sizes, dtype_of(value.dtype).itemsize, floating)


class _Memory:
    """The activations of a network: their sizes and how long they live."""

    def __init__(self, network: Network, values: Mapping[str, Value], host: set[int]) -> None:
        self._network, self._host = network, host
        self._protos = network.model.graph.node
        self._root: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self._inputs = sum(_bytes(values.get(each.name)) for each in network.inputs)
        for at, node in enumerate(network.nodes):
            if at in host:
                continue
            if is_view(node):
                self._root[node.outputs[0]] = self._of(node.inputs[0])
            else:
                self.sizes.update((name, _bytes(values.get(name))) for name in node.outputs if name)

    def _of(self, name: str) -> str:
        return self._root.get(name, name)

    def _read(self, at: int) -> list[str]:
        return [self._of(name) for name in reads(self._protos[at])]

    def peak(self) -> int:
        """The most bytes that are alive at once."""
        last = {self._of(name): at for at in range(len(self._protos)) for name in (*self._read(at), *self._made(at))}
        last.update((self._of(each.name), len(self._protos)) for each in self._network.model.graph.output)
        ends: dict[int, list[str]] = {}
        for name, at in last.items():
            ends.setdefault(at, []).append(name)
        alive = most = self._inputs
        for at in range(len(self._protos)):
            alive += sum(self.sizes.get(name, 0) for name in self._made(at))
            most = max(most, alive)
            alive -= sum(self.sizes.get(name, 0) for name in ends.get(at, ()))
        return most

    def _made(self, at: int) -> Sequence[str]:
        return [name for name in self._network.nodes[at].outputs if name]

    def kept(self, trainable: set[str]) -> int:
        """The bytes of the activations that derivatives read."""
        needs = set(trainable)
        found: set[str] = set()
        for at, node in enumerate(self._network.nodes):
            if at in self._host or not needs.intersection(reads(self._protos[at])):
                continue
            needs.update(self._made(at))
            if is_view(node) or (not node.domain and node.op_type in _READS_NOTHING):
                continue
            known = "" if node.domain else node.op_type
            if known not in _READS_OUTPUTS:
                found.update(self._read(at))
            if known not in _READS_INPUTS:
                found.update(self._of(name) for name in self._made(at))
        return sum(self.sizes.get(name, 0) for name in found)


def _bytes(value: Value | None) -> int:
    signature = signature_of(value)
    return 0 if signature is None else signature.bytes
