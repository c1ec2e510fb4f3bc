"""Reads CIFAR-10 and CIFAR-100 in both of their published forms: binary rows, and Python's pickles.

The one idea: both forms say the same, so there is one content: the binary rows, of label bytes and 3,072 bytes of
pixels (red, green, blue; 32x32 each). A pickle is turned into these rows, and they are what checksums are of. Formats:
https://www.cs.toronto.edu/~kriz/cifar.html .
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from levelbench.training.datasets.formats.pickles import read_pickle
from levelbench.training.datasets.formats.unpacking import bad

__all__ = ["PIXELS", "digest_of_rows", "images_and_labels", "rows_of_binary", "rows_of_pickle"]

PIXELS = 3 * 32 * 32
Rows = npt.NDArray[np.uint8]

_KIND = "CIFAR"
_FINE = {10: (b"labels",), 100: (b"coarse_labels", b"fine_labels")}
_CLASSES = {b"labels": 10, b"coarse_labels": 20, b"fine_labels": 100}


def rows_of_binary(content: bytes, classes: int, count: int, path: Path) -> Rows:
    """The rows of a binary file of ``count`` images, shape (count, 1 + 3,072), or (count, 2 + 3,072) of CIFAR-100.

    :raises DataError: when it has another size, or a label that is out of range.
    """
    width = len(_FINE[classes]) + PIXELS
    if len(content) != count * width:
        raise bad(path, _KIND, f"it has {len(content):,} bytes, and {count:,} images are {count * width:,}")
    return _with_labels_in_range(np.frombuffer(content, np.uint8).reshape(count, width), classes, path)


def rows_of_pickle(content: bytes, classes: int, count: int, path: Path) -> Rows:
    """The same rows, of a file of the Python version; nothing in it is executed.

    :raises DataError: when it is no pickle of plain data, or does not hold ``count`` images with their labels.
    """
    held = read_pickle(content, path)
    if not isinstance(held, dict):
        raise bad(path, _KIND, "its pickle holds no dictionary")
    # Python 2 wrote the keys as bytes; whoever saved it again with Python 3 has text.
    held = {key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key: value for key, value in held.items()}
    pixels = held.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (count, PIXELS):
        raise bad(path, _KIND, f"its pickle has no data of shape ({count}, {PIXELS}) and uint8")
    labels = [_labels(held, key, count, path) for key in _FINE[classes]]
    return _with_labels_in_range(np.concatenate([*labels, pixels], axis=1), classes, path)


def images_and_labels(files: Sequence[Rows], classes: int) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Images (n, 3, 32, 32) uint8 and labels (n,) of the rows of some files; of CIFAR-100 the 100 fine labels."""
    first = len(_FINE[classes])
    images = np.concatenate([rows[:, first:] for rows in files]).reshape(-1, 3, 32, 32)
    return images, np.concatenate([rows[:, first - 1] for rows in files]).astype(np.int64)


def digest_of_rows(rows: Rows) -> str:
    """SHA-256 in hexadecimal of the rows, which is that of the binary file."""
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()


def _labels(held: dict[Any, Any], key: bytes, count: int, path: Path) -> Rows:
    given = held.get(key)
    if isinstance(given, list) and len(given) == count and all(type(each) is int for each in given):
        if all(0 <= each < _CLASSES[key] for each in given):
            return np.array(given, np.uint8)[:, None]
        raise bad(path, _KIND, f"its {key.decode()} are not all of 0 to {_CLASSES[key] - 1}")
    raise bad(path, _KIND, f"its pickle has no {count} {key.decode()}")


def _with_labels_in_range(rows: Rows, classes: int, path: Path) -> Rows:
    for column, key in enumerate(_FINE[classes]):
        highest = int(rows[:, column].max(initial=0))
        if highest >= _CLASSES[key]:
            raise bad(path, _KIND, f"it has a label {highest} among its {key.decode()}, of 0 to {_CLASSES[key] - 1}")
    return rows
