"""Changes the precision: float32 becomes float16 or bfloat16, or products and convolutions are computed in int8.

A float32 value keeps its name; its narrow copy gets another one, with a Cast between them if needed. Dynamic int8
quantises weights once, by output channel, and activations at each call, by tensor. A product of quantised numbers is
exact in int32, so the only error is from rounding the operands: y = (x_q - x_zero) w_q * x_scale * w_scale, with one
w_scale per output channel (ONNX: DynamicQuantizeLinear, MatMulInteger, ConvInteger; Jacob et al. 2018, section 2).
Weights are symmetric: their zero point is 0. They have 7 bits by default, because processors without VNNI add pairs of
products in int16, which may saturate with 8 bits in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks.inspect import is_standard
from levelbench.networks.network import Network
from levelbench.networks.transforms.folding import FoldConstants
from levelbench.networks.transforms.graph import EditableGraph, known_values
from levelbench.networks.transforms.transform import (
    Allowance,
    Arrays,
    Transform,
    Transformed,
    whole_number,
    words,
)
from levelbench.networks.values import Value, dtype_of, element_type
from levelbench.operators.node import OperatorNode


def quantise_weight(weight: NDArray[Any], axis: int, bits: int = 8) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The weight as integer steps of ``bits`` bits, and the step size for each index of ``axis``.

    A step is the largest magnitude over 127 (8 bits) or 63 (7 bits).
    """
    most = 2 ** (bits - 1) - 1
    others = tuple(each for each in range(weight.ndim) if each != axis % weight.ndim)
    largest = np.abs(weight).max(axis=others, keepdims=True, initial=0.0).astype(np.float32)
    scale = np.where(largest > 0, largest / most, 1.0).astype(np.float32)
    steps = np.clip(np.rint(weight / scale), -most, most).astype(np.int8)
    return steps, scale.reshape(-1)


def quantised(graph: EditableGraph, bits: int) -> list[str]:
    """Quantise MatMul, Gemm and Conv with stored weights; returns a description of the changes."""
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
        changed.append(f"{counts} compute in int8, with weights of {bits} bits, which take {saved:,} bytes less")
    return changed + left


def _refusal(graph: EditableGraph, node: onnx.NodeProto, values: dict[str, Value]) -> str:
    shape = graph.shape_of(node.input[1])
    x = values.get(node.input[0])
    if shape is None:
        return f"its second operand {node.input[1]!r} is computed"
    if x is None or x.dtype != "float32" or x.shape is None:
        return "its first operand is not known to be float32"
    if node.op_type == "MatMul" and (len(shape) != 2 or len(x.shape) < 2):
        return f"its weight has {len(shape)} axes"
    operator = graph.operator(node)
    if node.op_type == "Gemm" and operator["transA"]:
        return "it transposes its first operand"
    return ""


def _quantise_input(graph: EditableGraph, name: str, new: list[onnx.NodeProto]) -> tuple[str, str, str]:
    outputs = [graph.free(f"{name}.{each}") for each in ("steps", "scale", "zero")]
    new.append(onnx.helper.make_node("DynamicQuantizeLinear", [name], outputs, name=outputs[0]))
    return outputs[0], outputs[1], outputs[2]


def _replace(
    graph: EditableGraph, node: onnx.NodeProto, x: tuple[str, str, str], new: list[onnx.NodeProto], bits: int
) -> int:
    """Write the nodes that replace this one; returns how many bytes of weights they save."""
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


SENSITIVE = ("Exp", "LayerNormalization", "LogSoftmax", "Pow", "RMSNormalization", "ReduceMean", "ReduceSum", "Softmax")
"""Operators that suffer more than others from few digits or a small range, and stay float32 by default."""

_TOLERANCES = {
    "float16": Allowance(2e-2, None, "float16 has 11 binary digits, and errors add up over layers"),
    "bfloat16": Allowance(1e-1, None, "bfloat16 has 8 binary digits, and errors add up over layers"),
    "int8": Allowance(2.5e-1, None, "int8 has 255 steps for the range of a tensor, and errors add up over layers"),
}


class ChangePrecision(Transform):
    """Computes in ``dtype``: ``float16``, ``bfloat16`` or ``int8``. Inputs and outputs of the network stay float32.

    ``keep`` are operator types that stay float32, besides those for which ONNX does not define the dtype at the
    network's opset. ``int8`` is dynamic: weights of MatMul, Gemm and Conv are quantised once, by output channel, and
    activations at each call, by tensor over the whole batch, so that a sample's result depends on the others.
    ``weight_bits`` is 7, with which no processor saturates, or 8 (:mod:`levelbench.networks.transforms.precision`).
    """

    name = "precision"
    summary = "computes in float16, bfloat16 or (products, dynamically) int8"
    main = "dtype"

    def __init__(self, *, dtype: str, keep: str | Sequence[str] = SENSITIVE, weight_bits: str | int = 7) -> None:
        if dtype not in _TOLERANCES:
            raise UnknownNameError("precision", dtype, _TOLERANCES)
        bits = whole_number("weight_bits", weight_bits)
        if bits not in (7, 8):
            raise UsageError(f"int8 weights of {bits} bits", "unsupported number of bits", "give 7 or 8")
        self._dtype, self._keep, self._bits = dtype, frozenset(words(keep)), bits

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network in that precision; ``UsageError`` for one in training mode."""
        if network.updates:
            raise UsageError(
                f"{network.name} in {self._dtype}", "it is in training mode", "change the precision of inference only"
            )
        folded = FoldConstants().apply(network, parameters)
        graph = EditableGraph(folded.network, folded.parameters)
        is_integer = self._dtype == "int8"
        changed = quantised(graph, self._bits) if is_integer else _Narrowing(graph, self._dtype, self._keep).narrow()
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed), False, _TOLERANCES[self._dtype])


class _Narrowing:
    """Creates narrow copies of values, node by node."""

    def __init__(self, graph: EditableGraph, dtype: str, keep: frozenset[str]) -> None:
        self._graph, self._keep = graph, keep
        self._dtype = dtype_of(dtype)
        self._element = element_type(dtype)
        self._type = f"tensor({dtype})"
        self._wide = {name for name, each in known_values(graph.network).items() if each.dtype == "float32"}
        self._narrow: dict[str, str] = {}
        self._only_narrow: set[str] = set()
        self._nodes: list[onnx.NodeProto] = []
        self._clipped = 0

    def narrow(self) -> list[str]:
        """Narrow the graph; returns a description of the changes."""
        graph = self._graph
        plans = [self._plan(graph.operator(proto)) for proto in graph.nodes]
        self._retype_arrays(plans)
        protos, stayed = list(graph.nodes), []
        count = 0
        for proto, plan in zip(protos, plans, strict=True):
            if plan is None:
                if any(name in self._wide for name in (*proto.input, *proto.output)):
                    stayed.append(proto.op_type)
                self._nodes.append(proto)
                continue
            count += 1
            self._write(proto, *plan)
        self._widen(protos, plans)
        changed = [f"{count} of {len(protos)} nodes compute in {self._dtype.name}"]
        if stayed:
            counts = ", ".join(f"{stayed.count(each)} {each}" for each in sorted(set(stayed)))
            changed.append(f"still in float32: {counts}")
        if self._clipped:
            changed.append(f"clipped {self._clipped} stored values to the range of {self._dtype.name}")
        return changed

    def _plan(self, node: OperatorNode) -> tuple[set[int], set[int]] | None:
        """The inputs and outputs that become narrow; ``None`` for a node that stays float32."""
        schema = node.schema
        if node.domain or schema is None or node.op_type in self._keep or node.op_type == "Cast":
            return None
        if any(isinstance(each, onnx.GraphProto) for each in node.attributes.values()):
            return None
        allowed = {each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints}
        ins = _parameter_types(schema.inputs, len(node.inputs))
        outs = _parameter_types(schema.outputs, len(node.outputs))
        if any(kind not in allowed and "tensor" not in kind for kind in (*ins, *outs)):
            return None
        wide = [at for at, name in enumerate(node.inputs) if name in self._wide]
        variables = {ins[at] for at in wide if ins[at] in allowed}
        if not variables or any(self._type not in allowed[each] for each in variables):
            return None
        return (
            {at for at in wide if ins[at] in variables},
            {at for at, name in enumerate(node.outputs) if name in self._wide and outs[at] in variables},
        )

    def _retype_arrays(self, plans: Iterable[tuple[set[int], set[int]] | None]) -> None:
        """Store or draw arrays that only narrow nodes read in the narrow dtype."""
        graph = self._graph
        narrow: set[str] = set()
        wide = set(graph.kept())
        for proto, plan in zip(graph.nodes, plans, strict=True):
            chosen = plan[0] if plan is not None else set()
            narrow.update(name for at, name in enumerate(proto.input) if at in chosen)
            wide.update(name for at, name in enumerate(proto.input) if at not in chosen)
        wide.update(name for name, nodes in graph.readers().items() for node in nodes if name not in node.input)
        for name in sorted(narrow - wide):
            if name in graph.roles or name in graph.initialisers:
                graph.retype(name, self._dtype, self._cast)
                self._only_narrow.add(name)

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        limit = float(ml_dtypes.finfo(self._dtype).max)
        beyond = np.abs(array) > limit
        self._clipped += int(np.count_nonzero(beyond))
        return np.asarray(np.clip(array, -limit, limit) if beyond.any() else array).astype(self._dtype)

    def _write(self, proto: onnx.NodeProto, inputs: set[int], outputs: set[int]) -> None:
        node = onnx.NodeProto()
        node.CopyFrom(proto)
        for at in sorted(inputs):
            node.input[at] = self._narrow_copy(proto.input[at])
        for at in sorted(outputs):
            node.output[at] = self._narrow[proto.output[at]] = self._graph.free(
                f"{proto.output[at]}.{self._dtype.name}"
            )
        self._nodes.append(node)

    def _narrow_copy(self, name: str) -> str:
        if name in self._only_narrow:
            return name
        if name not in self._narrow:
            narrow = self._graph.free(f"{name}.{self._dtype.name}")
            self._nodes.append(self._graph.make("Cast", [name], narrow, to=self._element))
            self._narrow[name] = narrow
        return self._narrow[name]

    def _widen(self, protos: Sequence[onnx.NodeProto], plans: Sequence[tuple[set[int], set[int]] | None]) -> None:
        """Cast narrow values back to float32 if something reads them under their original name."""
        graph = self._graph
        made = {proto.output[at] for proto, plan in zip(protos, plans, strict=True) if plan for at in plan[1]}
        graph.nodes = self._nodes
        read = set(graph.readers()) | graph.kept()
        wide = element_type("float32")
        for name in sorted(made & read):
            graph.nodes.append(graph.make("Cast", [self._narrow[name]], name, to=wide))


def _parameter_types(formal: Sequence[Any], count: int) -> list[str]:
    """The type (or type variable) of each of ``count`` inputs or outputs; the last formal one may repeat."""
    names = [each.type_str for each in formal]
    return [names[min(at, len(names) - 1)] for at in range(count)] if names else []
