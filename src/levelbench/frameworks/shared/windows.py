"""Sliding windows over the spatial axes of an input: ONNX's padding rules, and the positions of the windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from levelbench.operators.node import OperatorNode

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """The attributes of a node; an empty tuple for one that the node leaves out."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begins: Sizes
    ends: Sizes
    auto_pad: str
    ceil: bool

    @classmethod
    def of(cls, node: OperatorNode) -> Window:
        """Read from a node; all are filled in if one of them gives the number of axes."""
        kernel, strides, dilations, pads = (
            tuple(node.get(name) or ()) for name in ("kernel_shape", "strides", "dilations", "pads")
        )
        rank = len(kernel) or len(strides) or len(dilations) or len(pads) // 2
        pads = pads or (0,) * (2 * rank)
        ones = (1,) * rank
        auto_pad, ceil = node.get("auto_pad", "NOTSET"), bool(node.get("ceil_mode", 0))
        return cls(kernel, strides or ones, dilations or ones, pads[:rank], pads[rank:], auto_pad, ceil)

    @property
    def rank(self) -> int:
        """Number of spatial axes; 0 if no attribute says so."""
        return len(self.strides)

    @property
    def automatic(self) -> bool:
        """Whether the padding depends on the input's shape."""
        return self.auto_pad in ("SAME_UPPER", "SAME_LOWER")

    @property
    def even(self) -> bool:
        """Whether both ends of each axis get the same padding, for any input."""
        return not self.automatic and (self.auto_pad == "VALID" or self.begins == self.ends)

    def filled(self, rank: int, kernel: Sequence[int]) -> Window:
        """The same window with this kernel, and with ``rank`` axes if no attribute gave their number."""
        if self.rank:
            return self if self.kernel == tuple(kernel) else replace(self, kernel=tuple(kernel))
        zeros, ones = (0,) * rank, (1,) * rank
        return replace(self, kernel=tuple(kernel), strides=ones, dilations=ones, begins=zeros, ends=zeros)

    def extent(self, axis: int) -> int:
        """The extent of the dilated kernel along an axis."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def padding(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """The padding before and after each axis of an input of these sizes."""
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(sizes)
        if not self.automatic:
            return list(zip(self.begins, self.ends, strict=True))
        found = []
        for axis, size in enumerate(sizes):
            stride = self.strides[axis]
            total = max(0, (-(-size // stride) - 1) * stride + self.extent(axis) - size)
            small, large = total // 2, total - total // 2
            found.append((small, large) if self.auto_pad == "SAME_UPPER" else (large, small))
        return found

    def over(self, sizes: Sequence[int], kernel: Sequence[int] = ()) -> Windows:
        """The windows on an array of these spatial sizes (ONNX's formulas of Conv and MaxPool)."""
        window = self.filled(len(sizes), kernel or self.kernel)
        padding = window.padding(sizes)
        ceil = window.ceil and not window.automatic
        out = []
        for axis, (size, (begin, end)) in enumerate(zip(sizes, padding, strict=True)):
            stride = window.strides[axis]
            room = size + begin + end - window.extent(axis)
            count = (-(-room // stride) if ceil else room // stride) + 1
            # ONNX drops a window that would start after the input and its leading padding.
            out.append(max(count - 1 if ceil and (count - 1) * stride >= size + begin else count, 0))
        before, after = zip(*padding, strict=True)
        return Windows(window.kernel, window.strides, window.dilations, before, after, tuple(out))

    def lost(
        self, sizes: Sequence[int], extra: Sequence[int] | None, wanted: Sequence[int] | None
    ) -> list[tuple[int, int]]:
        """What a transposed convolution crops from its full result before and after each axis; negative: it pads.

        ``extra`` is the node's output_padding, ``wanted`` its output_shape; ``sizes`` are the input's.
        """
        extra = extra or [0] * len(sizes)
        if not wanted and self.automatic:
            wanted = [size * stride for size, stride in zip(sizes, self.strides, strict=True)]
        if not wanted:
            return [(begin, end - more) for (begin, end), more in zip(self.padding(sizes), extra, strict=True)]
        found = []
        # The last numbers of output_shape are the spatial ones.
        for axis, (size, more, target) in enumerate(zip(sizes, extra, wanted[-len(sizes) :], strict=True)):
            total = (size - 1) * self.strides[axis] + self.extent(axis) + more - target
            # ONNX: an odd element goes to the end for SAME_UPPER and to the start otherwise.
            begin = total // 2 if self.auto_pad == "SAME_UPPER" else total - total // 2
            found.append((begin, total - begin - more))
        return found

    def pooled(self, sizes: Sequence[int]) -> list[int]:
        """The input sizes of a pool whose output has these sizes."""
        return [
            (size - 1) * stride - begin - end + kernel
            for size, stride, begin, end, kernel in zip(
                sizes, self.strides, self.begins, self.ends, self.kernel, strict=True
            )
        ]


@dataclass(frozen=True)
class Windows:
    """Windows over an array's spatial axes, one entry per axis."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes
    out: Sizes

    @property
    def reach(self) -> Sizes:
        """Number of elements from a window's first to its last."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether the array is padded at all."""
        return any(self.before) or any(self.after)

    def needed(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """The padding before and after each axis that windows reach; negative where they leave elements out."""
        return [
            (before, (out - 1) * stride + reach - size - before)
            for before, out, stride, reach, size in zip(
                self.before, self.out, self.strides, self.reach, sizes, strict=True
            )
        ]

    def padding(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """The padding before and after each axis, including what the last window needs beyond it."""
        pairs = zip(self.needed(sizes), self.after, strict=True)
        return [(before, max(behind, given)) for (before, behind), given in pairs]

    def positions(self, shape: Sequence[int], column_major: bool) -> NDArray[np.int64]:
        """(outputs..., kernel elements): the index of each element within its channel, row-major or column-major."""
        count = len(self.kernel)
        total = np.zeros((), np.int64)
        for axis in range(count):
            spread = [1] * (2 * count)
            spread[axis], spread[count + axis] = self.out[axis], self.kernel[axis]
            step = prod(shape[:axis] if column_major else shape[axis + 1 :])
            total = total + (self.places(axis) * step).reshape(spread)
        return total.reshape(*self.out, -1)

    def places(self, axis: int) -> NDArray[np.int64]:
        """(out, kernel) -> position along an axis; negative or past the end in the padding."""
        starts = np.arange(self.out[axis]) * self.strides[axis] - self.before[axis]
        return starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]

    def taps(self) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
        """Each kernel position, with the slices of the padded array that it covers as the window moves."""
        for tap in product(*(range(size) for size in self.kernel)):
            starts = [at * d for at, d in zip(tap, self.dilations, strict=True)]
            steps = zip(starts, self.strides, self.out, strict=True)
            yield tap, tuple(slice(a, a + s * (n - 1) + 1, s) for a, s, n in steps)

    def along(self, axis: int, size: int) -> Iterator[tuple[slice, slice]]:
        """Each kernel position along an axis of ``size``: its windows inside the array, and the elements they cover.

        Positions that cover only padding are left out.
        """
        stride, out = self.strides[axis], self.out[axis]
        for at in range(self.kernel[axis]):
            start = at * self.dilations[axis] - self.before[axis]
            first = max(-(start // stride), 0)
            stop = min((size - 1 - start) // stride + 1, out)
            if first < stop:
                begin = first * stride + start
                yield slice(first, stop), slice(begin, begin + (stop - first - 1) * stride + 1, stride)

    def inside(self, sizes: Sequence[int]) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
        """Like :meth:`along`, for each kernel position over all axes, in row-major order."""
        for chosen in product(*(tuple(self.along(axis, size)) for axis, size in enumerate(sizes))):
            yield tuple(out for out, _ in chosen), tuple(seen for _, seen in chosen)


@lru_cache(maxsize=256)
def counts_of(windows: Windows, sizes: Sizes, with_border: bool) -> NDArray[np.int64]:
    """The number of elements that each window covers, over the spatial axes; ``with_border``: padding included.

    It is cached, so it must not be modified.
    """
    along = []
    for axis, size in enumerate(sizes):
        low, high = (-windows.before[axis], size + windows.after[axis]) if with_border else (0, size)
        seen = windows.places(axis)
        along.append(((seen >= low) & (seen < high)).sum(axis=1))
    return reduce(np.multiply.outer, along)
