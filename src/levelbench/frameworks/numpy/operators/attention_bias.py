"""What Attention adds to its scores: the mask given, the causal frontier, the window, the padding of a cache.

The one idea: each forbids keys to queries by minus infinity, and all are summed in the smallest shape that broadcasts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.numeric import Array, lift
from levelbench.operators.node import OperatorNode

__all__ = ["make_bias"]


def make_bias(
    node: OperatorNode, mask: Any, sizes: tuple[int, int], past: int | None, lengths: Any, dtype: np.dtype[Any]
) -> Array | None:
    """The bias, broadcastable to (batch, heads, queries, keys); ``None`` where nothing is added.

    ``sizes`` are the numbers of queries and keys, ``past`` that of cached keys of an internal cache, ``lengths`` the
    valid keys of each sample (nonpad_kv_seqlen).
    """
    queries, keys = sizes
    allowed = _positions(node, queries, keys, past, lengths)
    if lengths is not None:
        held = (np.arange(keys) < np.reshape(lengths, (-1, 1)))[:, None, None, :]
        allowed = held if allowed is None else allowed & held
    if mask is not None and mask.dtype == np.bool_:
        given = _padded(mask, keys, False)
        allowed = given if allowed is None else allowed & given
        mask = None
    bias = None if allowed is None else np.where(allowed, dtype.type(0), dtype.type(-np.inf))
    if mask is not None:
        added = _padded(lift(mask).astype(dtype, copy=False), keys, -np.inf)
        bias = added if bias is None else bias + added
    return bias


def _positions(node: OperatorNode, queries: int, keys: int, past: int | None, lengths: Any) -> Any:
    """Whether a key is within the causal frontier and the window of a query; ``None`` where there is neither."""
    left, right = int(node.get("left_window_size", -1)), int(node.get("right_window_size", -1))
    causal = bool(node["is_causal"])
    if not causal and left < 0 and right < 0:
        return None
    # The position of a query counts the valid keys before it: the cached ones.
    offset: Any = past or 0
    if past is None and lengths is not None:
        offset = np.reshape(lengths, (-1, 1, 1, 1)) - queries
    distance = np.arange(queries)[:, None] + offset - np.arange(keys)[None, :]
    allowed = np.ones(distance.shape, bool)
    if causal:
        allowed &= distance >= 0
    if left >= 0:
        allowed &= distance <= left
    if right >= 0:
        allowed &= -distance <= right
    return allowed


def _padded(mask: Array, keys: int, value: Any) -> Array:
    """The mask for all keys: those behind its end are forbidden."""
    missing = keys - mask.shape[-1]
    if missing <= 0 or mask.ndim == 0:
        return mask
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=value)
