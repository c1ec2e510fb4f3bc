"""Where the windows of a convolution or a pool lie: padding by ONNX's rules, and the sizes that follow from it.

The one idea: every rule (``auto_pad``, ``ceil_mode``) ends in one number of elements before and one behind each axis,
which may be negative; XLA takes exactly these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from levelbench.operators.node import OperatorNode

__all__ = ["Windows", "windows_of"]


class Windows(NamedTuple):
    """Windows over the spatial axes of an input, one entry an axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    """Elements before and behind, those that ``ceil_mode`` adds among them."""
    declared: tuple[tuple[int, int], ...]
    """Elements before and behind that the node asks for."""
    outputs: tuple[int, ...]

    def places(self, axis: int) -> NDArray[np.int64]:
        """(output, kernel element) -> position along ``axis``, negative or beyond the end in the padding."""
        starts = np.arange(self.outputs[axis]) * self.strides[axis] - self.pads[axis][0]
        return starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]


def windows_of(node: OperatorNode, spatial: Sequence[int], kernel: Sequence[int] | None = None) -> Windows:
    """The windows of ``node`` over an input whose spatial axes have the lengths ``spatial``."""
    count = len(spatial)
    sizes = tuple(int(each) for each in kernel or node["kernel_shape"])
    strides = tuple(node.get("strides") or [1] * count)
    dilations = tuple(node.get("dilations") or [1] * count)
    ceil, auto = bool(node.get("ceil_mode", 0)), str(node.get("auto_pad", "NOTSET"))
    given: Any = node.get("pads") or [0] * (2 * count)
    pads, declared, outputs = [], [], []
    for at, length in enumerate(spatial):
        reach, stride = (sizes[at] - 1) * dilations[at] + 1, strides[at]
        before, behind = (int(given[at]), int(given[at + count])) if auto == "NOTSET" else (0, 0)
        if auto.startswith("SAME"):
            total = max((-(-length // stride) - 1) * stride + reach - length, 0)
            before = total // 2 if auto == "SAME_UPPER" else total - total // 2
            behind = total - before
        free = length + before + behind - reach
        output = (-(-free // stride) if ceil else free // stride) + 1
        if ceil and (output - 1) * stride >= length + before:
            # A window that would start behind the input and its padding before is left out.
            output -= 1
        declared.append((before, behind))
        pads.append((before, behind + max((output - 1) * stride - free, 0)))
        outputs.append(output)
    return Windows(sizes, strides, dilations, tuple(pads), tuple(declared), tuple(outputs))
