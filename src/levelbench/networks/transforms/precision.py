"""Precision change: float32 becomes float16 or bfloat16, or products and convolutions are computed in int8.

The one idea: a value keeps its name as long as it is float32; its narrow twin has another one, and a Cast stands
between them where it is needed. So inputs, outputs, subgraphs and operators that must stay float32 see what they
always saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks.network import Network
from levelbench.networks.transforms.constants import FoldConstants
from levelbench.networks.transforms.graph import Graph
from levelbench.networks.transforms.quantise import quantised
from levelbench.networks.transforms.shapes import known_values
from levelbench.networks.transforms.transform import (
    Arrays,
    Tolerance,
    Transform,
    Transformed,
    whole_number,
    words,
)
from levelbench.networks.values import dtype_of, element_type
from levelbench.operators.node import OperatorNode

__all__ = ["SENSITIVE", "Precision"]

SENSITIVE = ("Exp", "LayerNormalization", "LogSoftmax", "Pow", "RMSNormalization", "ReduceMean", "ReduceSum", "Softmax")
"""Operators that lose more than others in few digits or a small range, and stay float32 unless asked."""

_TOLERANCES = {
    "float16": Tolerance(2e-2, None, "float16 has 11 binary digits, and errors add up over layers"),
    "bfloat16": Tolerance(1e-1, None, "bfloat16 has 8 binary digits, and errors add up over layers"),
    "int8": Tolerance(2.5e-1, None, "int8 has 255 steps for the range of a tensor, and errors add up over layers"),
}


class Precision(Transform):
    """Computes in ``dtype``: ``float16``, ``bfloat16`` or ``int8``. Inputs and outputs of the network stay float32.

    ``keep`` are operator types that stay float32, besides those for which ONNX does not define the dtype at the
    network's opset. ``int8`` is dynamic: weights of MatMul, Gemm and Conv are quantised once, by output channel, and
    what meets them at each call, by tensor: over the whole batch, so that a sample's result depends on the others.
    ``weight_bits`` is 7, which no processor saturates with, or 8 (:mod:`levelbench.networks.transforms.quantise`).
    """

    name = "precision"
    summary = "computes in float16, bfloat16 or (products, dynamically) int8"
    main = "dtype"

    def __init__(self, *, dtype: str, keep: str | Sequence[str] = SENSITIVE, weight_bits: str | int = 7) -> None:
        if dtype not in _TOLERANCES:
            raise UnknownNameError("precision", dtype, _TOLERANCES)
        bits = whole_number("weight_bits", weight_bits)
        if bits not in (7, 8):
            raise UsageError(f"int8 weights of {bits} bits", "there are two ways", "give 7 or 8")
        self._dtype, self._keep, self._bits = dtype, frozenset(words(keep)), bits

    def transform(self, network: Network, parameters: Arrays | None) -> Transformed:
        """The network in that precision; ``UsageError`` for one in training mode."""
        if network.updates:
            raise UsageError(
                f"{network.name} in {self._dtype}", "it is in training mode", "change the precision of inference only"
            )
        folded = FoldConstants().transform(network, parameters)
        graph = Graph(folded.network, folded.parameters)
        is_integer = self._dtype == "int8"
        changed = quantised(graph, self._bits) if is_integer else _Narrowing(graph, self._dtype, self._keep).narrow()
        graph.drop_unread()
        new, values = graph.finish()
        return Transformed(new, values, self.name, tuple(changed), False, _TOLERANCES[self._dtype])


class _Narrowing:
    """Gives values narrow twins, node by node."""

    def __init__(self, graph: Graph, dtype: str, keep: frozenset[str]) -> None:
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
        """Do it; what was done, in words."""
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
            changed.append(f"stayed float32: {counts}")
        if self._clipped:
            changed.append(f"{self._clipped} stored values beyond the range of {self._dtype.name} became its largest")
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
        """Arrays that only narrow nodes read are stored, or drawn, narrow."""
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
        limit = float(_largest(self._dtype))
        beyond = np.abs(array) > limit
        self._clipped += int(np.count_nonzero(beyond))
        return np.asarray(np.clip(array, -limit, limit) if beyond.any() else array).astype(self._dtype)

    def _write(self, proto: onnx.NodeProto, inputs: set[int], outputs: set[int]) -> None:
        node = onnx.NodeProto()
        node.CopyFrom(proto)
        for at in sorted(inputs):
            node.input[at] = self._twin(proto.input[at])
        for at in sorted(outputs):
            node.output[at] = self._narrow[proto.output[at]] = self._graph.free(
                f"{proto.output[at]}.{self._dtype.name}"
            )
        self._nodes.append(node)

    def _twin(self, name: str) -> str:
        if name in self._only_narrow:
            return name
        if name not in self._narrow:
            twin = self._graph.free(f"{name}.{self._dtype.name}")
            self._nodes.append(self._graph.make("Cast", [name], twin, to=self._element))
            self._narrow[name] = twin
        return self._narrow[name]

    def _widen(self, protos: Sequence[onnx.NodeProto], plans: Sequence[tuple[set[int], set[int]] | None]) -> None:
        """Make the float32 value of narrow ones that something reads under its own name."""
        graph = self._graph
        made = {proto.output[at] for proto, plan in zip(protos, plans, strict=True) if plan for at in plan[1]}
        graph.nodes = self._nodes
        read = set(graph.readers()) | graph.kept()
        wide = element_type("float32")
        for name in sorted(made & read):
            graph.nodes.append(graph.make("Cast", [self._narrow[name]], name, to=wide))


def _parameter_types(formal: Sequence[Any], count: int) -> list[str]:
    """The type of each of ``count`` inputs or outputs: a variable or a type; the last formal one may repeat."""
    names = [each.type_str for each in formal]
    return [names[min(at, len(names) - 1)] for at in range(count)] if names else []


def _largest(dtype: np.dtype[Any]) -> Any:
    if dtype == np.float16:
        return np.finfo(dtype).max
    import ml_dtypes

    return ml_dtypes.finfo(dtype).max
