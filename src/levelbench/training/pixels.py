"""Random numbers for many images at once, and fast operations on their pixels in place.

An image's random numbers depend only on its own seed, which is made of the run's seed, the epoch and the example's
index. NumPy copies an item of any size in one go: if a row of an image is one item, a crop is a single indexed copy of
rows.
"""

from __future__ import annotations

from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.errors import DefinitionError

Seeds = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_WORD = 2**64


def _splitmix64(words: Seeds) -> Seeds:
    """splitmix64's output for these states, shape (n,)."""
    z = words + _GOLDEN
    z ^= z >> np.uint64(30)
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    z ^= z >> np.uint64(31)
    return z


def _word(number: int) -> Seeds:
    """An integer as an array of one word: arrays wrap around silently, scalars warn."""
    return np.array([number % _WORD], np.uint64)


def example_seeds(seed: int, epoch: int, indices: NDArray[np.int64]) -> Seeds:
    """A seed for each example of an epoch, shape (n,), which depends on these three values alone."""
    stream = _splitmix64(_splitmix64(_word(seed)) ^ _word(epoch))
    return _splitmix64(stream + indices.astype(np.uint64) * _GOLDEN)


def words(seeds: Seeds, salt: int) -> Seeds:
    """64 random bits per example, shape (n,)."""
    return _splitmix64(seeds ^ _splitmix64(_word(salt)))


def uniform(seeds: Seeds, salt: int, low: int, high: int) -> NDArray[np.int64]:
    """Integers from ``low`` to ``high`` (both included), shape (n,).

    The upper half of the word is scaled, so the probabilities are equal to within (high - low + 1) / 2^32.
    """
    span = np.uint64(high - low + 1)
    return ((words(seeds, salt) >> np.uint64(32)) * span >> np.uint64(32)).astype(np.int64) + low


def random(seeds: Seeds, salt: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) of 53 bits each, shape (n,)."""
    return (words(seeds, salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53


Images = NDArray[Any]
Lines = NDArray[np.uint8]

_PART_BYTES = 256 * 1024
_WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)


def images_of(images: Images, what: str) -> Images:
    """``images`` (n, c, h, w) as contiguous memory; ``DefinitionError`` for other shapes or dtypes."""
    if images.ndim != 4 or images.dtype not in (np.uint8, np.float32):
        raise DefinitionError(
            f"{what} of an array of {images.dtype} of shape {images.shape}",
            "it needs images, (n, channels, height, width) of uint8 or float32",
            "leave it out, or give the dataset that shape",
        )
    return np.ascontiguousarray(images)


def mirror(images: Images, rows: NDArray[np.int64]) -> None:
    """Mirror the images (n, c, h, w) at ``rows`` left to right, in place."""
    for some in parts(images):
        images[rows[some]] = _mirrored(images.take(rows[some], axis=0))


def _mirrored(images: Images) -> Images:
    if images.dtype == np.uint8:
        for word in _WORDS[:2]:
            if images.shape[3] % np.dtype(word).itemsize == 0:
                # Reverse the words of a row, then the bytes of each word.
                turned: NDArray[Any] = np.ascontiguousarray(images.view(word)[..., ::-1])
                return turned.byteswap(inplace=True).view(np.uint8)
    return np.ascontiguousarray(images[..., ::-1])


def frames(rows: Lines, columns: Lines, itemsize: int, combine: np.ufunc) -> Lines:
    """Byte masks (n, h, w * itemsize) from lines (n, h) and (n, w), which ``combine`` combines."""
    wide = np.repeat(columns, itemsize, axis=1) if itemsize > 1 else columns
    result: Lines = combine(rows[:, :, None], wide[:, None, :])
    return result


def keep(images: Images, mask: Lines, fill: float = 0.0) -> None:
    """Keep the pixels whose bytes in ``mask`` (see :func:`frames`) are 255, and set those with 0 to ``fill``.

    In place, on contiguous images.
    """
    n, c, height, width = images.shape
    row_bytes = mask.shape[1] * mask.shape[2]
    word = next(each for each in _WORDS if row_bytes % np.dtype(each).itemsize == 0)
    kept: NDArray[Any] = mask.reshape(n, 1, row_bytes).view(word)
    pixels: NDArray[Any] = images.reshape(n, c, height * width).view(word)
    pixels &= kept
    if fill:
        pattern: NDArray[Any] = np.full(height * width, fill, images.dtype).view(word)
        pixels |= ~kept & pattern


def parts(images: Images) -> list[slice]:
    """Slices to process one after another, so that temporary arrays stay small.

    Returning memory to the system and fetching it again page by page would cost more than all the work on it.
    """
    most = _images_per_part(images)
    return [slice(at, at + most) for at in range(0, len(images), most)]


def _images_per_part(images: Images) -> int:
    return max(1, _PART_BYTES // max(1, prod(images.shape[1:]) * images.itemsize))


Whole = NDArray[np.int64]


@final
class Bordered:
    """Slots for images of one ``shape`` (c, h, w), which can be read shifted by up to ``most`` pixels each way.

    The border is zeros, shared between neighbours, or with ``reflect`` the image mirrored at its outermost pixels,
    which are not doubled. Raises ``DefinitionError`` if an image has too few pixels for that.
    """

    def __init__(self, places: int, shape: tuple[int, ...], dtype: DTypeLike, most: int, *, reflect: bool) -> None:
        c, height, width = shape
        if reflect and most >= min(height, width):
            raise DefinitionError(
                f"reflecting {most} pixels of images of {height} x {width}",
                "the images are too small",
                "choose fewer pixels",
            )
        self._shape, self._dtype, self._most, self._reflect = shape, np.dtype(dtype), most, reflect
        step, between = self._dtype.itemsize, _gap(most, reflect)
        self._line = width + between
        self._channel = (height + between) * self._line
        self._size = c * self._channel
        # The index of the first image's first pixel.
        self._first = most * (self._line + 1)
        begin = 0 if reflect else self._first
        # The system provides pages of zeros lazily, at the first write.
        memory = np.zeros(begin + places * self._size, dtype)
        own = (places, c, height + between, self._line)
        self._frames: Images = np.ndarray(own, dtype, memory, begin * step)
        self._items: Images = np.ndarray((places,), f"V{self._size * step}", memory, begin * step)
        # From an image's first pixel to its last.
        run = (c - 1) * self._channel + (height - 1) * self._line + width
        strides = (step, self._channel * step, self._line * step)
        views = (max(0, memory.size - run + 1), c, height)
        self._views: Images = np.ndarray(views, f"V{width * step}", memory, strides=strides)

    @staticmethod
    def bytes_of(places: int, shape: tuple[int, ...], dtype: DTypeLike, most: int, *, reflect: bool) -> int:
        """The memory that this many slots take, give or take a line or two."""
        c, height, width = (shape[0], *(each + _gap(most, reflect) for each in shape[1:]))
        return places * c * height * width * np.dtype(dtype).itemsize

    def alike(self, places: int) -> Bordered:
        """A new store of the same kind with ``places`` slots."""
        return Bordered(places, self._shape, self._dtype, self._most, reflect=self._reflect)

    def write(self, images: Images) -> None:
        """Store contiguous images (n, c, h, w) in the first n slots."""
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
        """Copy the first n slots of ``others``, a store of the same kind, to ``places`` (n,)."""
        self._items[places] = others._items[: len(places)]

    def read(self, places: Whole, down: Whole, right: Whole) -> Images:
        """The images at ``places``, shifted up and left by these numbers of pixels (n,): a new array (n, c, h, w)."""
        lines: Images = self._views[self._first + places * self._size + down * self._line + right]
        return lines.view(self._dtype).reshape(len(places), *self._shape)


def move(images: Images, down: Whole, right: Whole, most: int, *, reflect: bool) -> None:
    """Shift contiguous images (n, c, h, w) in place, up and left by these pixels (n,), at most ``most`` each way."""
    pieces = parts(images)
    room = len(images[pieces[0]]) if pieces else 0
    bordered = Bordered(room, images.shape[1:], images.dtype, most, reflect=reflect)
    for some in pieces:
        piece = images[some]
        bordered.write(piece)
        piece[...] = bordered.read(np.arange(len(piece)), down[some], right[some])


def _gap(most: int, reflect: bool) -> int:
    """Pixels between neighbours; a border of zeros is shared by both."""
    return 2 * most if reflect else most


def _lines(images: Images, shape: tuple[int, ...]) -> Images:
    """The lines of images of this shape within larger ones, as single items (n, c, h)."""
    _, height, width = shape
    lines: Images = images[:, :, :height, :width]
    return lines.view(f"V{width * images.itemsize}")[..., 0]
