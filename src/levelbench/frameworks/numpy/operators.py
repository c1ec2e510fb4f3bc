"""Operators in NumPy, forward and backward, with ONNX's names and meaning.

The one idea: ``forward(attributes, *inputs)`` returns the output and what its backward needs; ``backward(saved,
gradient, wanted)`` returns a gradient for each input that is wanted and ``None`` for the others. Images are (batch,
channels, height, width).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

__all__ = ["OPERATORS", "Operator", "softmax_cross_entropy", "softmax_cross_entropy_gradient"]

FloatArray = NDArray[np.floating[Any]]
Attributes = Mapping[str, Any]
Gradients = tuple[FloatArray | None, ...]


class Operator(NamedTuple):
    """A pair of functions."""

    forward: Callable[..., tuple[FloatArray, Any]]
    backward: Callable[[Any, FloatArray, tuple[bool, ...]], Gradients]


def _gemm(_: Attributes, x: FloatArray, weight: FloatArray, bias: FloatArray) -> tuple[FloatArray, Any]:
    output = x @ weight.T
    output += bias
    return output, (x, weight)


def _gemm_backward(saved: Any, gradient: FloatArray, wanted: tuple[bool, ...]) -> Gradients:
    x, weight = saved
    return (gradient @ weight if wanted[0] else None, gradient.T @ x, gradient.sum(axis=0))


def _relu(_: Attributes, x: FloatArray) -> tuple[FloatArray, Any]:
    output = np.maximum(x, 0)
    return output, output


def _relu_backward(output: Any, gradient: FloatArray, _: tuple[bool, ...]) -> Gradients:
    return (gradient * (output > 0),)


def _flatten(_: Attributes, x: FloatArray) -> tuple[FloatArray, Any]:
    return x.reshape(len(x), -1), x.shape


def _flatten_backward(shape: Any, gradient: FloatArray, _: tuple[bool, ...]) -> Gradients:
    return (gradient.reshape(shape),)


def _conv(attributes: Attributes, x: FloatArray, weight: FloatArray, bias: FloatArray) -> tuple[FloatArray, Any]:
    top, left, bottom, right = attributes["pads"]
    stride = attributes["strides"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    columns = _columns(padded, weight.shape[2:], stride)
    batch, height, width = columns.shape[:3]
    columns = columns.reshape(batch * height * width, -1)
    output = columns @ weight.reshape(len(weight), -1).T
    output += bias
    output = np.ascontiguousarray(output.reshape(batch, height, width, -1).transpose(0, 3, 1, 2))
    return output, (columns, weight, padded.shape, stride, (top, left), x.shape)


def _columns(padded: FloatArray, kernel: tuple[int, ...], stride: tuple[int, int]) -> FloatArray:
    """All windows, as (batch, height, width, channels, kernel height, kernel width), contiguous."""
    windows = sliding_window_view(padded, kernel, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]
    return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5))


def _conv_backward(saved: Any, gradient: FloatArray, wanted: tuple[bool, ...]) -> Gradients:
    columns, weight, padded_shape, (down, across), (top, left), shape = saved
    channels_out, channels_in, kernel_height, kernel_width = weight.shape
    batch, _, height, width = gradient.shape
    rows = gradient.transpose(0, 2, 3, 1).reshape(-1, channels_out)
    weight_gradient = (rows.T @ columns).reshape(weight.shape)
    bias_gradient = rows.sum(axis=0)
    if not wanted[0]:
        return None, weight_gradient, bias_gradient
    spread = (rows @ weight.reshape(channels_out, -1)).reshape(
        batch, height, width, channels_in, kernel_height, kernel_width
    )
    padded = np.zeros(padded_shape, gradient.dtype)
    for i in range(kernel_height):
        for j in range(kernel_width):
            window = padded[:, :, i : i + down * height : down, j : j + across * width : across]
            window += spread[..., i, j].transpose(0, 3, 1, 2)
    return padded[:, :, top : top + shape[2], left : left + shape[3]], weight_gradient, bias_gradient


def _max_pool(attributes: Attributes, x: FloatArray) -> tuple[FloatArray, Any]:
    (kernel_height, kernel_width), stride = attributes["kernel_shape"], tuple(attributes["strides"])
    if stride != (kernel_height, kernel_width):
        raise NotImplementedError(f"MaxPool with overlapping windows: kernel {kernel_height, kernel_width}, {stride=}")
    height, width = x.shape[2] // kernel_height, x.shape[3] // kernel_width
    corners = [
        x[:, :, i : kernel_height * height : kernel_height, j : kernel_width * width : kernel_width]
        for i in range(kernel_height)
        for j in range(kernel_width)
    ]
    output = corners[0]
    for corner in corners[1:]:
        output = np.maximum(output, corner)
    return output, (x, output, (kernel_height, kernel_width))


def _max_pool_backward(saved: Any, gradient: FloatArray, _: tuple[bool, ...]) -> Gradients:
    """The gradient goes to the first maximum of each window in row order, as PyTorch and ONNX have it."""
    x, output, (kernel_height, kernel_width) = saved
    height, width = output.shape[2:]
    result = np.zeros(x.shape, gradient.dtype)
    free = np.ones(output.shape, bool)
    for i in range(kernel_height):
        for j in range(kernel_width):
            where = np.s_[:, :, i : kernel_height * height : kernel_height, j : kernel_width * width : kernel_width]
            hit = (x[where] == output) & free
            result[where] = gradient * hit
            free &= ~hit
    return (result,)


OPERATORS: dict[str, Operator] = {
    "Conv": Operator(_conv, _conv_backward),
    "Flatten": Operator(_flatten, _flatten_backward),
    "Gemm": Operator(_gemm, _gemm_backward),
    "MaxPool": Operator(_max_pool, _max_pool_backward),
    "Relu": Operator(_relu, _relu_backward),
}


def softmax_cross_entropy(logits: FloatArray, labels: NDArray[np.int64]) -> tuple[FloatArray, Any]:
    """The mean over the batch of -log softmax(logits)[label]; logits (batch, classes), labels (batch,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = (np.log(sums[:, 0]) - shifted[rows, labels]).mean()
    return loss, (exponentials, sums, rows, labels)


def softmax_cross_entropy_gradient(saved: Any) -> FloatArray:
    """(softmax - one-hot) / batch, of shape (batch, classes)."""
    exponentials, sums, rows, labels = saved
    gradient: FloatArray = exponentials / sums
    gradient[rows, labels] -= 1
    gradient /= len(labels)
    return gradient
