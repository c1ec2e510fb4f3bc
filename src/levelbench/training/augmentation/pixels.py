"""Moves many pixels at once: rows of pixels as single items, and rows of bytes as machine words.

The one idea: NumPy copies an item of any size in one go. A row of an image seen as one item makes a crop of a block of
images one indexed copy of rows, instead of one of pixels.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError

__all__ = ["frames", "images_of", "keep", "mirrored", "parts", "shift", "shift_reflected"]

Images = NDArray[Any]
Offsets = NDArray[np.int64]
Lines = NDArray[np.uint8]

_PART_BYTES = 96 * 1024
_WORDS = (np.uint64, np.uint32, np.uint16, np.uint8)


def images_of(images: Images, what: str) -> Images:
    """``images`` (n, c, h, w) in one piece of memory; ``DefinitionError`` where they are none, or of other numbers."""
    if images.ndim != 4 or images.dtype not in (np.uint8, np.float32):
        raise DefinitionError(
            f"{what} of an array of {images.dtype} of shape {images.shape}",
            "it changes images, (n, channels, height, width) of uint8 or float32",
            "leave it out, or give the dataset that shape",
        )
    return np.ascontiguousarray(images)


def mirrored(images: Images) -> Images:
    """Left and right exchanged."""
    if images.dtype == np.uint8:
        for word in _WORDS[:2]:
            if images.shape[3] % np.dtype(word).itemsize == 0:
                # The words of a row backwards, and the bytes of each word.
                turned: NDArray[Any] = np.ascontiguousarray(images.view(word)[..., ::-1])
                return turned.byteswap(inplace=True).view(np.uint8)
    return np.ascontiguousarray(images[..., ::-1])


def frames(rows: Lines, columns: Lines, itemsize: int, combine: np.ufunc) -> Lines:
    """Masks (n, h, w * itemsize) of bytes from lines (n, h) and (n, w): ``combine`` says how a row meets a column."""
    wide = np.repeat(columns, itemsize, axis=1) if itemsize > 1 else columns
    result: Lines = combine(rows[:, :, None], wide[:, None, :])
    return result


def keep(images: Images, mask: Lines, fill: float = 0.0) -> None:
    """Leave the pixels whose bytes in ``mask`` (see :func:`frames`) are 255, and put ``fill`` where they are 0.

    In place, of contiguous images.
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


def shift(images: Images, down: Offsets, right: Offsets, most: int) -> None:
    """Move each image (n, c, h, w) up by ``down`` and left by ``right`` (n,), -``most`` to ``most``; zeros follow.

    In memory, a shift of a whole image is one of a run of bytes; what that brings in from the next row, channel or
    image is then masked. In place, of contiguous images.
    """
    n, c, height, width = images.shape
    size, margin, step = c * height * width, most * (width + 1), images.itemsize
    part = _most(images)
    buffer = np.zeros(part * size + 2 * margin, images.dtype)
    runs: NDArray[Any] = np.ndarray((2 * margin + (part - 1) * size + 1,), f"V{size * step}", buffer, strides=(step,))
    starts = margin + np.arange(n) % part * size + down * width + right
    rows, columns = (_inside(length, most) for length in (height, width))
    down, right, places = down + most, right + most, 2 * most + 1
    # All masks that there are, made once, where they are fewer than the images.
    table = None
    if places**2 < n:
        table = frames(np.repeat(rows, places, axis=0), np.tile(columns, (places, 1)), step, np.bitwise_and)
    for some in parts(images):
        piece = images[some]
        buffer[margin : margin + piece.size] = piece.ravel()
        piece.reshape(len(piece), -1).view(runs.dtype)[:, 0] = runs[starts[some]]
        if table is None:
            keep(piece, frames(rows[down[some]], columns[right[some]], step, np.bitwise_and))
        else:
            keep(piece, table.take(down[some] * places + right[some], axis=0))


def shift_reflected(images: Images, down: Offsets, right: Offsets, most: int) -> None:
    """As :func:`shift`, but what follows is the image mirrored at its border, whose own pixels are not doubled.

    Raises ``DefinitionError`` where the image has no ``most`` pixels beside its border.
    """
    c, height, width = images.shape[1:]
    if most >= min(height, width):
        raise DefinitionError(
            f"reflecting {most} pixels of images of {height} x {width}", "there are no more", "choose a smaller one"
        )
    item = np.dtype(f"V{width * images.itemsize}")
    rows = np.arange(height) + down[:, None]
    rows = (height - 1) - np.abs((height - 1) - np.abs(rows))
    for some in parts(images):
        lines = images[some].reshape(-1, width)
        wide = np.empty((len(lines), width + 2 * most), images.dtype)
        wide[:, most : most + width] = lines
        for at in range(most):
            wide[:, at] = lines[:, most - at]
            wide[:, width + 2 * most - 1 - at] = lines[:, width - 1 - most + at]
        # Each row of the answer is a run of one of these.
        runs: NDArray[Any] = np.ndarray((wide.size - width + 1,), item, wide, strides=(images.itemsize,))
        line = (np.arange(len(lines) // height) * height).reshape(-1, c, 1) + rows[some, None]
        starts = line * wide.shape[1] + right[some, None, None] + most
        images[some] = runs[starts].view(images.dtype).reshape(-1, c, height, width)


def _inside(length: int, most: int) -> Lines:
    """255 where a line moved by -most, ..., most still has pixels of its own, shape (2 most + 1, length)."""
    source = np.arange(length) + np.arange(-most, most + 1)[:, None]
    return np.where((source >= 0) & (source < length), 255, 0).astype(np.uint8)


def parts(images: Images) -> list[slice]:
    """The images in parts to work on one after another, so that what is made on the way stays small.

    Memory that is handed back to the system and fetched again page by page would cost more than all the work on it.
    """
    most = _most(images)
    return [slice(at, at + most) for at in range(0, len(images), most)]


def _most(images: Images) -> int:
    """Images in a part."""
    return max(1, _PART_BYTES // max(1, prod(images.shape[1:]) * images.itemsize))
