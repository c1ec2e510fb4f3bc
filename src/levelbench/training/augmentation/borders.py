"""Moves images: they are written with a border around them, and read from where they have moved to.

The one idea: where rows lie as far apart as an image may move, a moved image is a run of memory that begins elsewhere,
and what comes into view is the border. So a move is one copy, whatever its distance, and looks at no pixel.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.pixels import parts

__all__ = ["Bordered", "move"]

Images = NDArray[Any]
Whole = NDArray[np.int64]


@final
class Bordered:
    """Places for images of one ``shape`` (c, h, w), which may move by up to ``most`` pixels each way.

    The border is zeros, which neighbours share, or with ``reflect`` the image mirrored at its outermost pixels, which
    are not doubled. Raises ``DefinitionError`` where an image has fewer pixels than that takes.
    """

    def __init__(self, places: int, shape: tuple[int, ...], dtype: DTypeLike, most: int, *, reflect: bool) -> None:
        c, height, width = shape
        if reflect and most >= min(height, width):
            raise DefinitionError(
                f"reflecting {most} pixels of images of {height} x {width}", "there are no more", "choose a smaller one"
            )
        self._shape, self._dtype, self._most, self._reflect = shape, np.dtype(dtype), most, reflect
        step, between = self._dtype.itemsize, _between(most, reflect)
        self._line = width + between
        self._channel = (height + between) * self._line
        self._size = c * self._channel
        # Of the first image's first pixel.
        self._first = most * (self._line + 1)
        begin = 0 if reflect else self._first
        # Pages of zeros are the system's until they are written to.
        memory = np.zeros(begin + places * self._size, dtype)
        own = (places, c, height + between, self._line)
        self._frames: Images = np.ndarray(own, dtype, memory, begin * step)
        self._items: Images = np.ndarray((places,), f"V{self._size * step}", memory, begin * step)
        # From the first pixel to the last, wherever an image has moved to.
        run = (c - 1) * self._channel + (height - 1) * self._line + width
        strides = (step, self._channel * step, self._line * step)
        views = (max(0, memory.size - run + 1), c, height)
        self._views: Images = np.ndarray(views, f"V{width * step}", memory, strides=strides)

    @staticmethod
    def bytes_of(places: int, shape: tuple[int, ...], dtype: DTypeLike, most: int, *, reflect: bool) -> int:
        """The memory that so many places take, but for a line or two."""
        c, height, width = (shape[0], *(each + _between(most, reflect) for each in shape[1:]))
        return places * c * height * width * np.dtype(dtype).itemsize

    def alike(self, places: int) -> Bordered:
        """As many places of the same kind."""
        return Bordered(places, self._shape, self._dtype, self._most, reflect=self._reflect)

    def write(self, images: Images) -> None:
        """Put images (n, c, h, w), contiguous, in the first n places."""
        frames, most = self._frames[: len(images)], self._most
        _, height, width = self._shape
        if not self._reflect:
            _lines(frames, self._shape)[...] = _lines(images, self._shape)
            return
        _lines(frames[:, :, most:, most:], self._shape)[...] = _lines(images, self._shape)
        for at in range(1, most + 1):
            frames[:, :, most:-most, most - at] = images[..., at]
            frames[:, :, most:-most, most + width - 1 + at] = images[..., width - 1 - at]
        for at in range(1, most + 1):
            frames[:, :, most - at] = frames[:, :, most + at]
            frames[:, :, most + height - 1 + at] = frames[:, :, most + height - 1 - at]

    def copy(self, places: Whole, others: Bordered) -> None:
        """Put the first of ``others``, which are of the same kind, in ``places`` (n,)."""
        self._items[places] = others._items[: len(places)]

    def read(self, places: Whole, down: Whole, right: Whole) -> Images:
        """The images at ``places``, up and left by so many pixels (n,): a new array (n, c, h, w)."""
        lines: Images = self._views[self._first + places * self._size + down * self._line + right]
        return lines.view(self._dtype).reshape(len(places), *self._shape)


def move(images: Images, down: Whole, right: Whole, most: int, *, reflect: bool) -> None:
    """Move images (n, c, h, w), contiguous, in place: up and left by so many pixels (n,), ``most`` each way."""
    pieces = parts(images)
    room = len(images[pieces[0]]) if pieces else 0
    bordered = Bordered(room, images.shape[1:], images.dtype, most, reflect=reflect)
    for some in pieces:
        piece = images[some]
        bordered.write(piece)
        piece[...] = bordered.read(np.arange(len(piece)), down[some], right[some])


def _between(most: int, reflect: bool) -> int:
    """Pixels between neighbours: zeros are the border of both."""
    return 2 * most if reflect else most


def _lines(images: Images, shape: tuple[int, ...]) -> Images:
    """The lines of images of this shape, at their place in larger ones, as single items (n, c, h)."""
    _, height, width = shape
    lines: Images = images[:, :, :height, :width]
    return lines.view(f"V{width * images.itemsize}")[..., 0]
