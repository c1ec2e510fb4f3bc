"""Images as PNG, written with nothing but the standard library's zlib: a sheet of small pictures side by side."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_pictures", "png", "sheet"]

Pictures = NDArray[np.uint8]
_GAP = 2
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def as_pictures(rows: NDArray[Any]) -> Pictures | None:
    """(n, h, w, 1 or 3) uint8 of images (n, c, h, w), or of flat squares (n, side * side); ``None`` for other data.

    What is no uint8 is stretched so that the smallest value of each image is black and the largest white.
    """
    if rows.dtype.kind not in "uif" or rows.size == 0:
        return None
    if rows.ndim == 2:
        side = math.isqrt(rows.shape[1])
        if side < 4 or side * side != rows.shape[1]:
            return None
        rows = rows.reshape(len(rows), 1, side, side)
    if rows.ndim == 3:
        rows = rows[:, None]
    if rows.ndim != 4 or rows.shape[1] not in (1, 3) or rows.dtype.kind == "i":
        return None
    if rows.dtype != np.uint8:
        values = np.nan_to_num(rows.astype(np.float64))
        low = values.min(axis=(1, 2, 3), keepdims=True)
        span = values.max(axis=(1, 2, 3), keepdims=True) - low
        rows = np.round((values - low) / np.where(span > 0, span, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1))


def sheet(pictures: Pictures, across: int) -> Pictures:
    """(h, w, 1 or 3): the pictures (n, h, w, c) row by row with grey gaps, each enlarged by whole pixels if small."""
    scale = max(1, -(-48 // max(pictures.shape[1:3])))
    large = pictures.repeat(scale, axis=1).repeat(scale, axis=2)
    count, height, width, channels = large.shape
    down = -(-count // across)
    image = np.full((down * (height + _GAP) + _GAP, across * (width + _GAP) + _GAP, channels), 128, np.uint8)
    for at, each in enumerate(large):
        row, column = divmod(at, across)
        top, left = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
        image[top : top + height, left : left + width] = each
    return image


def png(image: Pictures) -> bytes:
    """A PNG file of an image (h, w, 1 or 3) uint8 (W3C Portable Network Graphics, second edition)."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    # Each line begins with its filter: none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
