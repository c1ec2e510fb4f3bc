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

__all__ = ["frames", "images_of", "keep", "mirror", "parts"]

Images = NDArray[Any]
Lines = NDArray[np.uint8]

_PART_BYTES = 256 * 1024
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


def mirror(images: Images, rows: NDArray[np.int64]) -> None:
    """Exchange left and right of the images (n, c, h, w) at ``rows``, in place."""
    for some in parts(images):
        images[rows[some]] = _mirrored(images.take(rows[some], axis=0))


def _mirrored(images: Images) -> Images:
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


def parts(images: Images) -> list[slice]:
    """The images in parts to work on one after another, so that what is made on the way stays small.

    Memory that is handed back to the system and fetched again page by page would cost more than all the work on it.
    """
    most = _most(images)
    return [slice(at, at + most) for at in range(0, len(images), most)]


def _most(images: Images) -> int:
    """Images in a part."""
    return max(1, _PART_BYTES // max(1, prod(images.shape[1:]) * images.itemsize))
