"""Sequences as lists of ONNX Runtime's values: its own operators pack and unpack them, so they stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnxruntime import OrtValue

from levelbench.frameworks.onnxruntime.sessions import Device, Session
from levelbench.frameworks.onnxruntime.values import from_numpy, to_numpy
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION

__all__ = ["pack", "unpack"]


def pack(values: Sequence[OrtValue], element: int, device: Device) -> OrtValue:
    """The sequence of ``values``, whose elements have ONNX's type ``element``."""
    if not values:
        return _session("SequenceEmpty", (), element, device).run(())[0]
    return _session("SequenceConstruct", ("tensor",) * len(values), element, device).run(values)[0]


def unpack(sequence: OrtValue, device: Device) -> list[OrtValue]:
    """The elements of a sequence."""
    element = sequence.element_type()
    length = int(to_numpy(_session("SequenceLength", ("sequence",), element, device).run([sequence])[0]))
    at = _session("SequenceAt", ("sequence", "position"), element, device)
    positions = [from_numpy(np.array(each, np.int64), device) for each in range(length)]
    return [at.run([sequence, each])[0] for each in positions]


@cache
def _session(op_type: str, inputs: tuple[str, ...], element: int, device: Device) -> Session:
    names = [f"x{at}" for at in range(len(inputs))]
    tensor = helper.make_tensor_type_proto(element, None)
    types = {
        "tensor": tensor,
        "sequence": helper.make_sequence_type_proto(tensor),
        "position": helper.make_tensor_type_proto(onnx.TensorProto.INT64, []),
    }
    attributes: dict[str, Any] = {"dtype": element} if op_type == "SequenceEmpty" else {}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], **attributes)],
        op_type,
        [helper.make_value_info(name, types[kind]) for name, kind in zip(names, inputs, strict=True)],
        [onnx.ValueInfoProto(name="y")],
    )
    opset = helper.make_opsetid("", DEFAULT_OPSET)
    return Session(helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION), device, op_type)
