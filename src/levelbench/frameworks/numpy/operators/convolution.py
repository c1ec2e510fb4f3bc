"""Conv and ConvTranspose of any number of spatial axes, forward and backward.

The one idea: each is the other's gradient by the input, so both are made of the same three products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.correlation import correlate, input_gradient, weight_gradient
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry, Wanted
from levelbench.frameworks.numpy.operators.numeric import Array, is_real, lift, lower, quiet, within
from levelbench.frameworks.numpy.operators.windows import Sliding, Windows
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


@OPERATORS.add("Conv")
def _conv(node: OperatorNode) -> Kernel:
    """y[n, m] = bias[m] + the sum over channels of the windows of x[n] times weight[m]."""
    sliding, group = Sliding.of(node), int(node["group"])

    def forward(x: Array, weight: Array, bias: Array | None = None, kept: list[Array] | None = None) -> Array:
        _need_real(node, x)
        with quiet():
            windows = sliding.over(x.shape[2:], weight.shape[2:])
            found = correlate(lift(x), lift(weight), windows, group, None if bias is None else lift(bias), kept)
            return lower(found, x.dtype)

    def vjp(*inputs: Any, wanted: Wanted = None) -> Any:
        want = wanted or (True,) * len(inputs)
        kept: list[Array] = []
        y = forward(inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None, kept)

        def pullback(gradient: Any) -> tuple[Any, ...]:
            if gradient is None:
                return (None,) * len(inputs)
            x, weight, g = lift(inputs[0]), lift(inputs[1]), lift(gradient)
            windows = sliding.over(x.shape[2:], weight.shape[2:])
            with quiet():
                by_x = input_gradient(g, weight, windows, group, x.shape[2:]) if want[0] else None
                by_weight = weight_gradient(x, g, windows, group, kept) if want[1] else None
                return _answer(inputs, (by_x, by_weight), g)

        return (y,), pullback

    return Kernel(forward, vjp=vjp, selective=True)


@OPERATORS.add("ConvTranspose")
def _conv_transpose(node: OperatorNode) -> Kernel:
    """Conv's gradient by its input as an operator; the weight is (C, M / group, kernel)."""
    group = int(node["group"])

    def forward(x: Array, weight: Array, bias: Array | None = None) -> Array:
        _need_real(node, x)
        windows, spatial = _transposed(node, x.shape[2:], weight.shape[2:])
        with quiet():
            found = input_gradient(lift(x), lift(weight), windows, group, spatial)
            if bias is not None:
                found = found + lift(bias).reshape(-1, *(1,) * len(spatial))
            return lower(found, x.dtype)

    def backward(
        gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], wanted: Wanted = None
    ) -> tuple[Any, ...]:
        if gradients[0] is None:
            return (None,) * len(inputs)
        x, weight, g = lift(inputs[0]), lift(inputs[1]), lift(gradients[0])
        windows, _ = _transposed(node, x.shape[2:], weight.shape[2:])
        want = wanted or (True,) * len(inputs)
        with quiet():
            by_x = correlate(g, weight, windows, group) if want[0] else None
            by_weight = weight_gradient(g, x, windows, group) if want[1] else None
            return _answer(inputs, (by_x, by_weight), g)

    return Kernel(forward, backward, selective=True)


def _answer(inputs: Sequence[Any], found: tuple[Array | None, ...], g: Array) -> tuple[Any, ...]:
    """The gradients by x and weight in the dtypes of these, and that by the bias, if there is one."""
    answer = [None if each is None else within(each, like) for each, like in zip(found, inputs, strict=False)]
    if len(inputs) > 2:
        bias = inputs[2]
        answer.append(None if bias is None else within(g.sum(axis=(0, *range(2, g.ndim))), bias))
    return tuple(answer)


def _need_real(node: OperatorNode, x: Array) -> None:
    if not is_real(x):
        raise UnsupportedError(f"{node.title} of {x.dtype} on numpy", "it multiplies floats only", "cast the input")


def _transposed(node: OperatorNode, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[Windows, tuple[int, ...]]:
    """The windows of the correlation that this is the gradient of, and the sizes of its input: our output.

    ONNX's formulas: total = stride (n - 1) + output_padding + reach - output, padding split by ``auto_pad``.
    """
    rank = len(spatial)
    strides = tuple(node.get("strides") or (1,) * rank)
    dilations = tuple(node.get("dilations") or (1,) * rank)
    extra = tuple(node.get("output_padding") or (0,) * rank)
    asked = node.get("output_shape")
    mode, pads = node.get("auto_pad", "NOTSET"), tuple(node.get("pads") or (0,) * 2 * rank)
    before, after, sizes = [], [], []
    for axis, n in enumerate(spatial):
        full = strides[axis] * (n - 1) + extra[axis] + dilations[axis] * (kernel[axis] - 1) + 1
        if asked or mode.startswith("SAME"):
            size = int(asked[-rank:][axis]) if asked else n * strides[axis]
            # ONNX's formula gives the odd one to the end for SAME_UPPER alone.
            total = full - size
            first = total // 2 if mode == "SAME_UPPER" else total - total // 2
            last = total - first
            if first < 0:
                reason = f"an output of {size} is longer than all its windows, at both ends"
                raise UnsupportedError(f"{node.title} on numpy", reason, "give output_padding instead")
        else:
            first, last = (pads[axis], pads[rank + axis]) if mode == "NOTSET" else (0, 0)
            size = full - first - last
        before.append(first)
        # What no window reaches needs no border either.
        after.append(max(last - extra[axis], 0))
        sizes.append(size)
    windows = Windows(tuple(kernel), strides, dilations, tuple(before), tuple(after), tuple(spatial))
    return windows, tuple(sizes)
