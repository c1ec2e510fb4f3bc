"""Cast and CastLike between the types that NumPy converts as ONNX asks; the rest is left to ONNX's own reference.

The one idea: strings and types of eight bits and fewer have rules of their own (saturation, rounding modes, text), and
no speed to gain, so a call with one of them raises ``UnsupportedError``, which means: take the reference. NumPy
converts float16 one element at a time, so that takes up to 20 times the time of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnx import helper

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, is_real, lower, quiet
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

_PLAIN = frozenset(np.dtype(each) for each in (*"?bBhHiIqQefd", ml_dtypes.bfloat16))


def _convert(node: OperatorNode, dtype: Callable[..., np.dtype[Any]]) -> Kernel:
    def forward(x: Array, *like: Array) -> Array:
        target = dtype(*like)
        if target not in _PLAIN or x.dtype not in _PLAIN:
            asked = f"{node.op_type} from {x.dtype} to {target}"
            raise UnsupportedError(asked, "numpy's own is for plain numbers", "use onnx.reference")
        with quiet():
            return x if x.dtype == target else np.asarray(x.astype(target))

    def backward(gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        rest = (None,) * (len(inputs) - 1)
        if gradients[0] is None or not (is_real(inputs[0]) and is_real(outputs[0])):
            return None, *rest
        return lower(gradients[0], inputs[0].dtype), *rest

    return Kernel(forward, backward)


@OPERATORS.add("Cast")
def _cast(node: OperatorNode) -> Kernel:
    target = np.dtype(helper.tensor_dtype_to_np_dtype(node["to"]))
    if target not in _PLAIN:
        raise UnsupportedError(f"Cast to {target}", "numpy's own is for plain numbers", "use onnx.reference")
    return _convert(node, lambda: target)


@OPERATORS.add("CastLike")
def _cast_like(node: OperatorNode) -> Kernel:
    return _convert(node, lambda like: like.dtype)
