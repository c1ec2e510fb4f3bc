"""Convolutions of any number of spatial axes: Conv, ConvTranspose, the quantised ones, the causal one, Col2Im.

The one idea: all are XLA's one general convolution. A transposed one is that of an input spread by its strides with the
kernel turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from levelbench.frameworks.jax.operators.linear import PRECISION
from levelbench.frameworks.jax.operators.quantization import requantise, shifted
from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.frameworks.jax.operators.windows import windows_of
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _convolve(node: OperatorNode, x: Any, weight: Any) -> Any:
    """(N, C, spatial...) and (M, C / group, kernel...) to (N, M, spatial...)."""
    windows = windows_of(node, x.shape[2:], weight.shape[2:])
    return lax.conv_general_dilated(
        x,
        weight,
        windows.strides,
        windows.pads,
        rhs_dilation=windows.dilations,
        feature_group_count=int(node["group"]),
        precision=PRECISION,
    )


def _by_channel(bias: Any, rank: int) -> Any:
    return bias.reshape(1, -1, *[1] * (rank - 2))


@maker("Conv")
def _conv(node: OperatorNode) -> Function:
    def conv(x: Any, weight: Any, bias: Any = None) -> Any:
        y = _convolve(node, x, weight)
        return y if bias is None else y + _by_channel(bias, y.ndim)

    return conv


@maker("ConvInteger")
def _conv_integer(node: OperatorNode) -> Function:
    def conv_integer(x: Any, weight: Any, x_zero: Any = None, weight_zero: Any = None) -> Any:
        return _convolve(node, shifted(x, x_zero, 0), shifted(weight, weight_zero, 0))

    return conv_integer


@maker("QLinearConv")
def _qlinear_conv(node: OperatorNode) -> Function:
    def qlinear_conv(
        x: Any,
        x_scale: Any,
        x_zero: Any,
        weight: Any,
        weight_scale: Any,
        weight_zero: Any,
        y_scale: Any,
        y_zero: Any,
        bias: Any = None,
    ) -> Any:
        y = _convolve(node, shifted(x, x_zero, 0), shifted(weight, weight_zero, 0))
        y = y if bias is None else y + _by_channel(bias, y.ndim)
        scales = _by_channel(weight_scale, y.ndim) if weight_scale.size > 1 else weight_scale.reshape(())
        scale = x_scale.reshape(()) * scales / y_scale.reshape(())
        return requantise(y, scale, y_zero.reshape(()), y_zero.dtype)

    return qlinear_conv


def _transposed_pads(node: OperatorNode, spatial: Sequence[int], reach: Sequence[int]) -> list[tuple[int, int]]:
    """Elements that the full output loses before and behind, ``output_padding`` counted as negative ones."""
    count = len(spatial)
    strides = node.get("strides") or [1] * count
    more = node.get("output_padding") or [0] * count
    given: Any = node.get("pads") or [0] * (2 * count)
    wanted, auto = node.get("output_shape"), str(node["auto_pad"])
    if wanted is None and auto.startswith("SAME"):
        wanted = [length * stride for length, stride in zip(spatial, strides, strict=True)]
    pads = []
    for at in range(count):
        if wanted is None:
            before, behind = (0, 0) if auto == "VALID" else (given[at], given[at + count])
            pads.append((int(before), int(behind) - int(more[at])))
            continue
        full = (spatial[at] - 1) * strides[at] + reach[at]
        total = full + more[at] - wanted[-count:][at]
        before = total // 2 if auto == "SAME_UPPER" else total - total // 2
        pads.append((before, full - before - wanted[-count:][at]))
    return pads


@maker("ConvTranspose")
def _conv_transpose(node: OperatorNode) -> Function:
    group = int(node["group"])

    def conv_transpose(x: Any, weight: Any, bias: Any = None) -> Any:
        count = x.ndim - 2
        strides = tuple(node.get("strides") or [1] * count)
        dilations = tuple(node.get("dilations") or [1] * count)
        reach = [(size - 1) * each + 1 for size, each in zip(weight.shape[2:], dilations, strict=True)]
        lost = _transposed_pads(node, x.shape[2:], reach)
        grouped = weight.reshape(group, -1, *weight.shape[1:])
        turned = jnp.flip(jnp.swapaxes(grouped, 1, 2), range(3, grouped.ndim))
        y = lax.conv_general_dilated(
            x,
            turned.reshape(-1, *turned.shape[2:]),
            (1,) * count,
            [(size - 1 - before, size - 1 - behind) for size, (before, behind) in zip(reach, lost, strict=True)],
            lhs_dilation=strides,
            rhs_dilation=dilations,
            feature_group_count=group,
            precision=PRECISION,
        )
        return y if bias is None else y + _by_channel(bias, y.ndim)

    return conv_transpose


@maker("CausalConvWithState")
def _causal_conv(node: OperatorNode) -> Function:
    """A depthwise convolution along time that begins with the end of what came before."""
    gated = node.get("activation", "none") in {"silu", "swish"}

    def causal_conv(x: Any, weight: Any, bias: Any = None, past: Any = None) -> Any:
        channels, size = x.shape[1], weight.shape[2]
        before = jnp.zeros((*x.shape[:2], size - 1), x.dtype) if past is None else past
        padded = jnp.concatenate([before, x], 2)
        y = lax.conv_general_dilated(padded, weight, (1,), [(0, 0)], feature_group_count=channels, precision=PRECISION)
        y = y if bias is None else y + _by_channel(bias, 3)
        return jax.nn.silu(y) if gated else y, padded[:, :, padded.shape[2] - (size - 1) :]

    return causal_conv


@maker("Col2Im")
def _col2im(node: OperatorNode) -> Function:
    """Blocks added up where they overlap: the transpose of cutting an image into blocks."""

    def col2im(columns: Any, image: Any, block: Any) -> Any:
        spatial, sizes = [int(each) for each in image], [int(each) for each in block]
        windows = windows_of(node, spatial, sizes)
        count = len(sizes)
        n, channels = columns.shape[0], columns.shape[1] // int(np.prod(sizes))
        blocks = columns.reshape(n, channels, *sizes, *windows.outputs)
        where = []
        for axis in range(count):
            shape = [1] * (2 * count)
            shape[axis], shape[count + axis] = sizes[axis], windows.outputs[axis]
            where.append((windows.places(axis).T + windows.pads[axis][0]).reshape(shape))
        padded = [length + sum(pads) for length, pads in zip(spatial, windows.pads, strict=True)]
        full = jnp.zeros((n, channels, *padded), columns.dtype).at[(slice(None), slice(None), *where)].add(blocks)
        inner = [slice(pads[0], pads[0] + length) for pads, length in zip(windows.pads, spatial, strict=True)]
        return full[(slice(None), slice(None), *inner)]

    return col2im
