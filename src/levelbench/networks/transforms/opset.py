"""Raises the opset of a network, for operators that its own does not have yet."""

from __future__ import annotations

import onnx
from onnx import version_converter

from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks.network import Network
from levelbench.operators.node import OPSETS

__all__ = ["raised"]


def raised(network: Network, opset: int) -> Network:
    """The network at ``opset`` of ONNX's own domain, converted by ONNX; itself where it has it already.

    ``UsageError`` for one that is lower or not implemented, ``UnsupportedError`` where ONNX cannot convert it.
    """
    old = network.opsets.get("", 1)
    asked = f"opset {opset} for {network.name}"
    if opset == old:
        return network
    if opset < old or opset not in OPSETS:
        raise UsageError(asked, f"it has {old}, and {OPSETS[-1]} is the highest implemented", "give one in between")
    try:
        model = version_converter.convert_version(network.model, opset)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        found = str(error).strip().splitlines()[0]
        raise UnsupportedError(asked, f"ONNX does not convert it ({found})", "leave the opset as it is") from None
    return network.replace(model=model)
