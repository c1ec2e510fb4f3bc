"""Memory that operators take while they run, beside their inputs and outputs: a model for each way to convolve.

The one idea: an upper bound, so that a plan made with it stays inside its limit. ``reorder`` is what oneDNN does under
PyTorch: inputs, weights and outputs of a convolution are copied into its blocked layout and back, and pooling writes
the places of its maxima. ``im2col`` writes each window out as a row, as the NumPy reference does. ``none`` counts none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from levelbench.errors import UnknownNameError
from levelbench.operators.cost import Signature
from levelbench.operators.node import OperatorNode

__all__ = ["WORKSPACES", "workspace_bytes"]

WORKSPACES = ("reorder", "im2col", "none")
_PLACE_BYTES = 8
_CONVOLUTIONS = ("Conv", "ConvTranspose")
# Normalising over channels squares, pads, sums and divides: each of these is a tensor as large as the input.
_TEMPORARIES = {"LRN": 4, "LayerNormalization": 2, "Softmax": 1, "LogSoftmax": 1, "Gelu": 2, "Attention": 2}


def workspace_bytes(
    node: OperatorNode, inputs: Sequence[Signature | None], outputs: Sequence[Signature | None], kind: str
) -> int:
    """Bytes beside inputs and outputs while the node runs; ``UnknownNameError`` for a kind that does not exist."""
    if kind not in WORKSPACES:
        raise UnknownNameError("workspace", kind, WORKSPACES)
    first, made = inputs[0] if inputs else None, outputs[0] if outputs else None
    if kind == "none" or node.domain or first is None or made is None:
        return 0
    if node.op_type in _CONVOLUTIONS:
        weight = inputs[1]
        if weight is None:
            return 0
        if kind == "reorder":
            return first.bytes + made.bytes + weight.bytes
        window = math.prod(weight.shape[1:]) * int(node.get("group", 1))
        # ConvTranspose writes its products out before it adds them up; Conv its windows before it multiplies.
        places = first if node.op_type == "ConvTranspose" else made
        return places.shape[0] * math.prod(places.shape[2:]) * window * first.itemsize + first.bytes
    if node.op_type == "MaxPool":
        return made.size * _PLACE_BYTES if kind == "reorder" else made.bytes * math.prod(node["kernel_shape"])
    return first.bytes * _TEMPORARIES.get(node.op_type, 0)
