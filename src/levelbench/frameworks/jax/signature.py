"""What a node's compiled function depends on, as a key: operator, opset, attributes, and which values are there."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from levelbench.operators.node import OperatorNode

__all__ = ["array_key", "signature"]


def signature(node: OperatorNode) -> Hashable:
    """Equal for nodes that compute the same; names of values do not count, but whether they are left out does."""
    attributes = tuple((name, _key(value)) for name, value in sorted(node.attributes.items()))
    given = tuple(bool(name) for name in node.inputs)
    wanted = tuple(bool(name) for name in node.outputs)
    return node.domain, node.op_type, node.opset, attributes, given, wanted


def array_key(value: Any) -> Hashable:
    """A structural input's bytes, type and shape; ``None`` for one that is left out."""
    # The number of a type is found at once; hashing the type itself takes as long as all the rest.
    return None if value is None else (value.tobytes(), value.dtype.num, value.shape)


def _key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return array_key(value)
    if isinstance(value, list | tuple):
        return tuple(_key(each) for each in value)
    if hasattr(value, "SerializeToString"):
        return str(value.SerializeToString(deterministic=True))
    # 1 and 1.0 and True are equal keys, and different attributes.
    return type(value).__name__, value
