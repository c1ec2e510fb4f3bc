"""The kernels of convolutions and pools (XLA's, which takes any padding), MaxUnpool, NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.elementwise import NATIVES
from levelbench.frameworks.jax.operators.registry import PRECISION, maker, operator
from levelbench.frameworks.shared.convolution import WINDOWED, Kernels, lowest, windowed
from levelbench.frameworks.shared.functional import Widths, by_channel
from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.windows import Window, Windows
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode


def _convolve(
    x: Array,
    weight: Array,
    bias: Array | None,
    strides: Sequence[int],
    pads: Widths,
    dilations: Sequence[int],
    group: int,
    spread: Sequence[int] | None = None,
) -> Array:
    y = lax.conv_general_dilated(
        x, weight, strides, pads, spread, dilations, feature_group_count=group, precision=PRECISION
    )
    return y if bias is None else y + by_channel(bias, y.ndim)


@operator("CausalConvWithState")
def _causal_conv(
    x: Array, weight: Array, bias: Array | None = None, past: Array | None = None, *, activation: str = "none"
) -> tuple[Array, ...]:
    """A depthwise convolution along time that is padded with the end of the previous chunk."""
    gated = activation in {"silu", "swish"}
    channels, size = x.shape[1], weight.shape[2]
    before = jnp.zeros((*x.shape[:2], size - 1), x.dtype) if past is None else past
    padded = jnp.concatenate([before, x], 2)
    y = _convolve(padded, weight, bias, (1,), [(0, 0)], (1,), channels)
    return jax.nn.silu(y) if gated else y, padded[:, :, padded.shape[2] - (size - 1) :]


def _reduce(x: Array, start: Host, function: Function, windows: Windows) -> Array:
    return lax.reduce_window(
        x,
        start,
        function,
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        ((0, 0), (0, 0), *windows.padding(x.shape[2:])),
        window_dilation=(1, 1, *windows.dilations),
    )


def _mean_pool(x: Array, windows: Windows) -> Array:
    return _reduce(x, np.array(0, x.dtype), lax.add, windows) / np.array(prod(windows.kernel), x.dtype)


_KERNELS = Kernels(
    NATIVES,
    convolve=_convolve,
    max_pool=lambda x, windows: _reduce(x, lowest(x.dtype), lax.max, windows),
    mean_pool=_mean_pool,
    add_rows=lambda rows, places, count: jnp.zeros((count, *rows.shape[1:]), rows.dtype).at[places].add(rows),
)
for _name in WINDOWED:
    maker(_name)(windowed(_name, _KERNELS))


@operator("MaxUnpool")
def _max_unpool(x: Array, indices: Array, shape: Host | None = None, *, node: OperatorNode) -> Array:
    """Values written to their positions in the pool's input; a larger requested shape is zero-padded at the end."""
    inner = Window.of(node).pooled(x.shape[2:])
    size = prod(x.shape[:2]) * prod(inner)
    flat = jnp.zeros(size, x.dtype).at[indices.reshape(-1)].set(x.reshape(-1))
    full = flat.reshape(*x.shape[:2], *inner)
    if shape is None:
        return full
    wanted = [int(each) for each in shape]
    zero = jnp.zeros((), x.dtype)
    return lax.pad(full, zero, [(0, want - have, 0) for want, have in zip(wanted, full.shape, strict=True)])


# NonMaxSuppression: the best boxes that do not overlap too much.
# Overlaps of all pairs are computed at once. The selection is sequential, for all batches and classes together. Only
# the number of remaining boxes is read from the device.


def _corners(boxes: Array, centred: bool) -> tuple[Array, Array]:
    """Lower and upper corners, (boxes, 2) each, from any two opposite corners or centre and size."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        return first - second / 2, first + second / 2
    return jnp.minimum(first, second), jnp.maximum(first, second)


def _overlaps(boxes: Array, centred: bool) -> Array:
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
    def choose(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> tuple[Array, ...]:
        """Per batch and class: the boxes by decreasing score, and which of them remain."""
        pairs = jax.vmap(lambda each: _overlaps(each, centred))(boxes)
        order = jnp.argsort(-scores, axis=-1, stable=True)

        def walk(pair: Array, score: Array, ranked: Array) -> Array:
            ordered = pair[ranked][:, ranked] > overlap
            allowed = score[ranked] > least

            def step(at: Array, kept: Array) -> Array:
                free = allowed[at] & ~jnp.any(kept & ordered[at]) & (jnp.sum(kept) < most)
                return kept.at[at].set(free)

            return lax.fori_loop(0, ranked.shape[0], step, jnp.zeros(ranked.shape[0], bool))

        by_class = jax.vmap(walk, (None, 0, 0))
        return order, jax.vmap(by_class)(pairs, scores, order)

    def non_max_suppression(
        boxes: Array, scores: Array, most: Host | None = None, overlap: Host | None = None, least: Host | None = None
    ) -> Array:
        limit = 0 if most is None or not most.size else max(int(most.item()), 0)
        threshold = 0.0 if overlap is None or not overlap.size else float(overlap.item())
        lowest = -jnp.inf if least is None or not least.size else float(least.item())
        order, kept = choose(boxes, scores, limit, threshold, lowest)
        batch, label, rank = jnp.nonzero(kept)
        return jnp.stack([batch, label, order[batch, label, rank]], 1).astype(jnp.int64)

    return non_max_suppression
