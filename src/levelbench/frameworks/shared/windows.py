"""Windows that slide over the spatial axes of an input: ONNX's rules of padding, and how many windows there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from levelbench.operators.node import OperatorNode

__all__ = ["Window"]


@dataclass(frozen=True)
class Window:
    """The attributes of a node; an empty tuple where the node leaves one out."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    auto_pad: str

    @classmethod
    def of(cls, node: OperatorNode) -> Window:
        """Read from a node; all are filled in as soon as one of them tells the number of axes."""
        kernel, strides, dilations, pads = (
            tuple(node.get(name) or ()) for name in ("kernel_shape", "strides", "dilations", "pads")
        )
        rank = len(kernel) or len(strides) or len(dilations) or len(pads) // 2
        pads = pads or (0,) * (2 * rank)
        ones = (1,) * rank
        auto_pad = node.get("auto_pad", "NOTSET")
        return cls(kernel, strides or ones, dilations or ones, pads[:rank], pads[rank:], auto_pad)

    @property
    def rank(self) -> int:
        """Number of axes that are slid over; 0 where no attribute says."""
        return len(self.strides)

    @property
    def automatic(self) -> bool:
        """Whether the padding depends on the input's shape."""
        return self.auto_pad in ("SAME_UPPER", "SAME_LOWER")

    @property
    def even(self) -> bool:
        """Whether both ends of each axis are padded alike, whatever the input."""
        return not self.automatic and (self.auto_pad == "VALID" or self.begins == self.ends)

    def filled(self, rank: int, kernel: Sequence[int]) -> Window:
        """The same with a kernel, and of ``rank`` axes where no attribute said how many."""
        zeros, ones = (0,) * rank, (1,) * rank
        if self.rank:
            return Window(tuple(kernel), self.strides, self.dilations, self.begins, self.ends, self.auto_pad)
        return Window(tuple(kernel), ones, ones, zeros, zeros, self.auto_pad)

    def extent(self, axis: int) -> int:
        """How far the kernel reaches along an axis."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def padding(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """What to put before and behind each axis of an input of these sizes."""
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

    def outputs(self, sizes: Sequence[int], padding: Sequence[tuple[int, int]], ceil: bool) -> list[int]:
        """Number of windows along each axis; one that would start behind the input and its padding in front is none."""
        found = []
        for axis, (size, (begin, end)) in enumerate(zip(sizes, padding, strict=True)):
            stride = self.strides[axis]
            room = size + begin + end - self.extent(axis)
            count = (-(-room // stride) if ceil else room // stride) + 1
            found.append(count - 1 if ceil and (count - 1) * stride >= size + begin else count)
        return found
