"""Where the windows of convolutions and pools lie: padding, strides, dilations, sizes of outputs.

The one idea: a stack of all windows is a view of the padded array, so nothing is copied before it has to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from levelbench.frameworks.numpy.operators.numeric import Array
from levelbench.operators.node import OperatorNode

__all__ = ["Sliding", "Windows", "crop", "pad"]

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Windows over an array's spatial axes, one entry an axis."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes
    out: Sizes

    @property
    def reach(self) -> Sizes:
        """Elements from a window's first to its last, both included."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether there is a border around the array."""
        return any(self.before) or any(self.after)

    def taps(self) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
        """Each position in the kernel, with the slices of the padded array that it sees as the window moves."""
        for tap in product(*(range(size) for size in self.kernel)):
            starts = [at * d for at, d in zip(tap, self.dilations, strict=True)]
            steps = zip(starts, self.strides, self.out, strict=True)
            yield tap, tuple(slice(a, a + s * (n - 1) + 1, s) for a, s, n in steps)

    def along(self, axis: int, size: int) -> Iterator[tuple[slice, slice]]:
        """Each position in the kernel along an axis of ``size``: its windows inside the array, the elements they see.

        Positions that only see the border are left out.
        """
        stride, out = self.strides[axis], self.out[axis]
        for at in range(self.kernel[axis]):
            start = at * self.dilations[axis] - self.before[axis]
            first = max(-(start // stride), 0)
            stop = min((size - 1 - start) // stride + 1, out)
            if first < stop:
                begin = first * stride + start
                yield slice(first, stop), slice(begin, begin + (stop - first - 1) * stride + 1, stride)

    def inside(self, spatial: Sequence[int]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        """As :meth:`along`, for each position in the kernel of all axes, in row-major order."""
        for chosen in product(*(tuple(self.along(axis, size)) for axis, size in enumerate(spatial))):
            yield tuple(out for out, _ in chosen), tuple(seen for _, seen in chosen)

    def view(self, padded: Array) -> Array:
        """All windows of ``padded`` (batch, channels, spatial axes) as (batch, channels, kernel axes, out axes)."""
        steps = padded.strides[2:]
        inner = tuple(step * d for step, d in zip(steps, self.dilations, strict=True))
        outer = tuple(step * s for step, s in zip(steps, self.strides, strict=True))
        shape = (*padded.shape[:2], *self.kernel, *self.out)
        return as_strided(padded, shape, (*padded.strides[:2], *inner, *outer), writeable=False)


@dataclass(frozen=True)
class Sliding:
    """A node's attributes about windows; :meth:`over` tells where they lie on an array."""

    strides: Sequence[int] | None
    dilations: Sequence[int] | None
    pads: Sequence[int] | None
    auto_pad: str
    ceil: bool

    @classmethod
    def of(cls, node: OperatorNode) -> Sliding:
        """Those of a Conv or a pool."""
        ceil = bool(node.get("ceil_mode", 0))
        return cls(node.get("strides"), node.get("dilations"), node.get("pads"), node.get("auto_pad", "NOTSET"), ceil)

    def over(self, spatial: Sizes, kernel: Sequence[int]) -> Windows:
        """The windows on an array of these spatial sizes (ONNX's formulas of Conv and MaxPool)."""
        rank = len(spatial)
        strides = tuple(self.strides or (1,) * rank)
        dilations = tuple(self.dilations or (1,) * rank)
        pads = tuple(self.pads or (0,) * 2 * rank) if self.auto_pad == "NOTSET" else (0,) * 2 * rank
        sizes = []
        for axis in range(rank):
            reach = dilations[axis] * (kernel[axis] - 1) + 1
            ends = (pads[axis], pads[rank + axis])
            sizes.append(self._along(spatial[axis], reach, strides[axis], ends))
        before, after, out = zip(*sizes, strict=True)
        return Windows(tuple(kernel), strides, dilations, before, after, out)

    def _along(self, size: int, reach: int, stride: int, ends: tuple[int, int]) -> tuple[int, int, int]:
        """Padding before, after, and the number of windows along one axis."""
        if self.auto_pad.startswith("SAME"):
            out = -(-size // stride)
            total = max((out - 1) * stride + reach - size, 0)
            small, large = total // 2, total - total // 2
            return (small, large, out) if self.auto_pad == "SAME_UPPER" else (large, small, out)
        before, after = ends
        room = size + before + after - reach
        out = (-(-room // stride) if self.ceil else room // stride) + 1
        if self.ceil and (out - 1) * stride >= size + before:
            # A window that would start in the padding behind the array is none.
            out -= 1
        return before, after, max(out, 0)


def pad(x: Array, before: Sequence[int], after: Sequence[int], value: Any = 0) -> Array:
    """``x`` (batch, channels, spatial axes) with a border of ``value``; itself, contiguous, where there is none."""
    if not any(before) and not any(after):
        return np.ascontiguousarray(x)
    sizes = tuple(b + n + a for b, n, a in zip(before, x.shape[2:], after, strict=True))
    shape = (*x.shape[:2], *sizes)
    padded = np.zeros(shape, x.dtype) if value == 0 else np.full(shape, value, x.dtype)
    crop(padded, before, x.shape[2:])[...] = x
    return padded


def crop(padded: Array, before: Sequence[int], spatial: Sequence[int]) -> Array:
    """The array inside the border: the reverse of :func:`pad`."""
    inside: Any = (..., *(slice(b, b + n) for b, n in zip(before, spatial, strict=True)))
    found: Array = padded[inside]
    return found
