"""Makes the fixed splits: which rows are held out depends on the rows alone.

The one idea: order the rows of each class by the SHA-256 of their bytes and hold out the first. That order looks
random, needs no generator and no seed, and is the same for every version of every library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["standardise", "stratified_split"]

Indices = npt.NDArray[np.int64]


def stratified_split(
    rows: npt.NDArray[np.uint8], labels: npt.NDArray[Any], held_out: Callable[[int], tuple[int, ...]]
) -> tuple[Indices, ...]:
    """Row numbers of what remains, then of each held-out part; each ascending, so that file order is kept.

    ``rows`` is (n, ...) raw bytes, ``labels`` (n,). ``held_out`` says for a class of so many rows how many go to each
    part: the first in SHA-256 order to the first part, the next to the second. Equal rows keep their file order.
    """
    digests = b"".join(hashlib.sha256(row).digest() for row in np.ascontiguousarray(rows))
    order = np.argsort(np.frombuffer(digests, dtype="S32"), kind="stable")
    ordered_labels = labels[order]
    parts: list[list[Indices]] = []
    # Not np.unique: it imports numpy.ma, and this is on a run's clock.
    for label in sorted(set(labels.tolist())):
        members = order[ordered_labels == label]
        *held, rest = np.split(members, np.cumsum(held_out(len(members))))
        parts.append([rest, *held])
    return tuple(np.sort(np.concatenate(part)) for part in zip(*parts, strict=True))


def standardise(rows: npt.NDArray[np.uint8], highest: int, mean: float, std: float) -> npt.NDArray[np.float32]:
    """``(rows / highest - mean) / std`` in float32, the shape kept; to two roundings, in two passes over the memory."""
    inputs = np.subtract(rows, np.float32(mean * highest), dtype=np.float32)
    inputs /= np.float32(std * highest)
    return inputs
