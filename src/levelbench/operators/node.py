"""An operator as data: ONNX's node, with its attributes as Python values and the defaults of its schema.

A node holds neither shapes nor arrays, so its operator takes inputs of any shape that ONNX allows. Operators are
checked against ONNX's schema for their opset when they are created, not when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import onnx
from onnx import defs, helper, numpy_helper

from levelbench.errors import UnknownNameError, UsageError

DEFAULT_OPSET = 21
IR_VERSION = 10
OPSETS = range(13, 29)
"""The opsets of ONNX's own domain that adapters implement; older ones are accepted if the operator did not change."""

# Versions before opset 13 that compute the same as the next one and differ at most in the types they allow.
_SAME = {("Dropout", 7), ("Dropout", 10), ("If", 11), ("Loop", 11), ("Scan", 9), ("Scatter", 9), ("Upsample", 9)}

# ONNX loads all its schemas at the first access, which takes 10 ms: do it now, not when a network is created.
defs.has("Identity")

CUSTOM_DOMAIN = "levelbench.custom"
"""The domain of custom operators."""
CONTRIB_DOMAIN = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


AttributeValue = Any
"""An int, float, str, a list of these, or an ``ndarray`` for a tensor; graphs and types are ONNX's messages."""


@dataclass(frozen=True, eq=False)
class OperatorNode:
    """An ONNX node: ``inputs`` and ``outputs`` are value names, with the empty string for an omitted optional value.

    ``attributes`` are Python values: int, float, str, lists of these, ``numpy.ndarray`` for a tensor; graphs, types and
    sparse tensors stay ONNX's own messages. ``node["pads"]`` falls back to the schema's default.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = DEFAULT_OPSET

    @cached_property
    def schema(self) -> defs.OpSchema | None:
        """ONNX's schema at ``opset``; ``None`` for an operator that ONNX does not know."""
        try:
            return defs.get_schema(self.op_type, self.opset, self.domain)
        except defs.SchemaError:
            return None

    @cached_property
    def _defaults(self) -> dict[str, AttributeValue]:
        if self.schema is None:
            return {}
        known = self.schema.attributes
        return {name: _value(each.default_value) for name, each in known.items() if each.default_value.name}

    def __getitem__(self, name: str) -> AttributeValue:
        """The attribute, else the schema's default; ``KeyError`` if there is neither."""
        return self.attributes[name] if name in self.attributes else self._defaults[name]

    def get(self, name: str, default: AttributeValue | None = None) -> AttributeValue:
        """The attribute, else the schema's default, else ``default``."""
        return self.attributes.get(name, self._defaults.get(name, default))

    def __contains__(self, name: object) -> bool:
        return name in self.attributes or name in self._defaults

    @property
    def title(self) -> str:
        """``Conv`` or ``domain::Name``."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @classmethod
    def from_proto(cls, proto: onnx.NodeProto, opset: int) -> OperatorNode:
        """The node of a model that imports ``proto``'s domain at ``opset``."""
        attributes = {each.name: _value(each) for each in proto.attribute if not each.ref_attr_name}
        return cls(proto.op_type, tuple(proto.input), tuple(proto.output), attributes, proto.domain, opset)

    def to_proto(self) -> onnx.NodeProto:
        """The node as an ONNX message."""
        attributes = {name: _message(value) for name, value in self.attributes.items() if value is not None}
        return helper.make_node(self.op_type, self.inputs, self.outputs, domain=self.domain, **attributes)


def in_range(node: OperatorNode) -> bool:
    """Whether the operator's version at the node's opset is still the current one at some opset of ``OPSETS``."""
    if node.domain or node.opset in OPSETS:
        return True
    if node.opset > OPSETS[-1] or node.schema is None:
        return False
    since = node.schema.since_version
    return (node.op_type, since) in _SAME or defs.get_schema(node.op_type, OPSETS[0]).since_version == since


def operator_node(
    op_type: str,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    domain: str = "",
    opset: int = DEFAULT_OPSET,
    **attributes: Any,
) -> OperatorNode:
    """A node checked against ONNX's schema; by default with all required inputs and the first output of the schema.

    Raises ``UnknownNameError`` for an operator or attribute that ONNX does not know at ``opset``, and ``UsageError``
    for a missing attribute or a wrong number of inputs.
    """
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        known = sorted({each.name for each in defs.get_all_schemas() if each.domain == domain})
        raise UnknownNameError(f"operator of opset {opset}", op_type, known) from None
    for name in attributes:
        if name not in schema.attributes:
            raise UnknownNameError(f"attribute of {op_type}", name, list(schema.attributes))
    missing = [name for name, each in schema.attributes.items() if each.required and name not in attributes]
    if missing:
        raise UsageError(f"operator {op_type}", f"attribute {missing[0]!r} is missing", f"give {', '.join(missing)}")
    optional = defs.OpSchema.FormalParameterOption.Optional
    names = [each.name for each in schema.inputs if each.option != optional] if inputs is None else list(inputs)
    if not schema.min_input <= len(names) <= schema.max_input:
        takes = f"it takes {schema.min_input} to {schema.max_input}"
        raise UsageError(f"operator {op_type} with {len(names)} inputs", takes, "give that many")
    found = [schema.outputs[0].name] if outputs is None else list(outputs)
    return OperatorNode(op_type, tuple(names), tuple(found), attributes, domain, opset)


def _value(attribute: onnx.AttributeProto) -> AttributeValue:
    value = helper.get_attribute_value(attribute)
    match attribute.type:
        case onnx.AttributeProto.STRING:
            return value.decode(errors="replace")
        case onnx.AttributeProto.STRINGS:
            return [each.decode(errors="replace") for each in value]
        case onnx.AttributeProto.TENSOR:
            return numpy_helper.to_array(value)
        case onnx.AttributeProto.INTS | onnx.AttributeProto.FLOATS:
            return list(value)
    return value


def _message(value: AttributeValue) -> AttributeValue:
    # Arrays are the only values that ONNX's helper does not accept.
    return numpy_helper.from_array(value) if hasattr(value, "dtype") and hasattr(value, "shape") else value


# Structural inputs of ONNX operators determine shapes or axes, so they must be known on the host. In a network they
# come from constants, and reading them from a device would make every call wait. So every framework gets them as NumPy
# arrays, and a tracing compiler may treat them as constants.


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

_STRUCTURAL: dict[str, tuple[int, ...]] = {
    **{f"Reduce{each}": (1,) for each in _REDUCTIONS},
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "Compress": (1,),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


def structural(node: OperatorNode) -> tuple[int, ...]:
    """The positions of the structural inputs of ``node``; none for operators outside ONNX's own domain."""
    return () if node.domain else _STRUCTURAL.get(node.op_type, ())
