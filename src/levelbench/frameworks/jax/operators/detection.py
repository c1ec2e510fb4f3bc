"""NonMaxSuppression: the best boxes that do not overlap one another too much.

The one idea: the overlaps of all pairs are found at once; the choice, which is a chain, walks down the scores for all
batches and classes together. Only how many boxes remain is read from the device.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _corners(boxes: Any, centred: bool) -> tuple[Any, Any]:
    """Lower and upper corners, (boxes, 2) each; any two opposite corners may be given."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        return first - second / 2, first + second / 2
    return jnp.minimum(first, second), jnp.maximum(first, second)


def _overlaps(boxes: Any, centred: bool) -> Any:
    """Intersection over union of each pair."""
    low, high = _corners(boxes, centred)
    shared = jnp.maximum(jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low), 0).prod(-1)
    area = (high - low).prod(-1)
    union = area[:, None] + area - shared
    return jnp.where(shared > 0, shared / jnp.where(union > 0, union, 1), 0)


@maker("NonMaxSuppression", eager=True)
def _non_max_suppression(node: OperatorNode) -> Function:
    centred = bool(node["center_point_box"])

    @jax.jit
    def choose(boxes: Any, scores: Any, most: Any, overlap: Any, least: Any) -> Any:
        """For (batch, class): the boxes by falling score, and which of them remain."""
        pairs = jax.vmap(lambda each: _overlaps(each, centred))(boxes)
        order = jnp.argsort(-scores, axis=-1, stable=True)

        def walk(pair: Any, score: Any, ranked: Any) -> Any:
            ordered = pair[ranked][:, ranked] > overlap
            allowed = score[ranked] > least

            def step(at: Any, kept: Any) -> Any:
                free = allowed[at] & ~jnp.any(kept & ordered[at]) & (jnp.sum(kept) < most)
                return kept.at[at].set(free)

            return lax.fori_loop(0, ranked.shape[0], step, jnp.zeros(ranked.shape[0], bool))

        by_class = jax.vmap(walk, (None, 0, 0))
        return order, jax.vmap(by_class)(pairs, scores, order)

    def non_max_suppression(boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> Any:
        limit = 0 if most is None or not most.size else max(int(most.item()), 0)
        threshold = 0.0 if overlap is None or not overlap.size else float(overlap.item())
        lowest = -jnp.inf if least is None or not least.size else float(least.item())
        order, kept = choose(boxes, scores, limit, threshold, lowest)
        batch, label, rank = jnp.nonzero(kept)
        return jnp.stack([batch, label, order[batch, label, rank]], 1).astype(jnp.int64)

    return non_max_suppression
