"""Brings a model of an old opset to one that every adapter implements, by ONNX's own converter.

The one idea: what an operator meant ten opsets ago is ONNX's to say. Its converter rewrites each node, and whether the
result computes the same is checked by running both, not trusted.
"""

from __future__ import annotations

import onnx
from onnx import version_converter

from levelbench.errors import UnsupportedError
from levelbench.networks.network import Network
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION, OPSETS

__all__ = ["modernised"]


def modernised(network: Network, opset: int = DEFAULT_OPSET) -> Network:
    """The network at ``opset`` if its own is older than all that adapters implement, else the network itself.

    Parameters keep their names and roles. ``UnsupportedError`` where ONNX's converter has no rule for a node.
    """
    if network.opsets.get("", opset) >= OPSETS[0]:
        return network
    model = network.copied()
    # From this version on an initialiser need not be an input, and the converter adds some.
    model.ir_version = max(model.ir_version, IR_VERSION)
    try:
        converted = version_converter.convert_version(model, opset)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        said = next(iter(str(error).strip().splitlines()), "no reason given")
        asked = f"{network.name} of opset {network.opsets['']} at opset {opset}"
        do = "export it anew, or use numpy or onnxruntime, which take every opset"
        raise UnsupportedError(asked, f"onnx.version_converter cannot convert it: {said}", do) from error
    for name in (each.name for each in converted.graph.output):
        if not any(name in node.output for node in converted.graph.node):
            found = f"after onnx.version_converter nothing makes its output {name!r}"
            raise UnsupportedError(f"{network.name} at opset {opset}", found, "export it anew")
    return network.replace(model=converted)
