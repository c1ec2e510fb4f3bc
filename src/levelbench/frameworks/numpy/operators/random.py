"""Dropout, Bernoulli and the random tensors, from NumPy's generators.

A node with a seed draws from a generator of its own, made with the kernel, so the same calls give the same numbers; the
others share one that ``seed`` restarts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence

import numpy as np
from onnx import helper

from levelbench.errors import DataError, UnsupportedError
from levelbench.frameworks.numpy.operators.elementwise import no_gradient
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Differentiated,
    DType,
    Inputs,
    Kernel,
    is_real,
    lift,
    lower,
    register,
)
from levelbench.operators.node import OperatorNode

__all__ = ["restore", "seed", "state"]

_shared = [np.random.default_rng(0)]


def seed(value: int) -> None:
    """Restart the generator that nodes without a seed draw from."""
    _shared[0] = np.random.default_rng(value)


def state() -> Array:
    """Where that generator is, as bytes."""
    return np.frombuffer(json.dumps(_shared[0].bit_generator.state).encode(), np.uint8)


def restore(kept: Array) -> None:
    """Go on from what :func:`state` gave; ``DataError`` where it is none."""
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = json.loads(kept.tobytes())
    except (ValueError, TypeError, KeyError) as error:
        raise DataError("the state of NumPy's draws", f"it is none ({error})", "start the run anew") from error
    _shared[0] = generator


def _generator(node: OperatorNode) -> Callable[[], np.random.Generator]:
    given = node.get("seed")
    if given is None:
        return lambda: _shared[0]
    # ONNX's seeds are floats (Dropout's is an integer): their bits make the number that NumPy wants.
    own = np.random.default_rng(given if isinstance(given, int) else struct.unpack("<I", struct.pack("<f", given))[0])
    return lambda: own


@register("Dropout")
def _dropout(node: OperatorNode) -> Kernel:
    """In training, zeros with probability ``ratio`` and the rest over 1 - ratio; the mask says which were kept."""
    generator, masked = _generator(node), len(node.outputs) > 1
    if masked and node.opset < 10:
        raise UnsupportedError(f"Dropout of opset {node.opset}", "its mask was no bool yet", "use onnx.reference")

    def draw(
        x: Array, ratio: Array | None = None, training: Array | None = None
    ) -> tuple[tuple[Array, ...], Array | None, float]:
        """The outputs, the mask (``None`` where nothing is dropped) and the probability of being kept."""
        kept = _kept(ratio, training)
        mask = None if kept == 1 else generator().random(x.shape, np.float32) < kept
        y = x if mask is None else _scaled(x, mask, kept)
        return ((y, np.ones(x.shape, bool) if mask is None else mask) if masked else (y,)), mask, kept

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        kept, rest = _kept(*(*inputs, None, None)[1:3]), (None,) * (len(inputs) - 1)
        if gradients[0] is None or kept == 1:
            return gradients[0], *rest
        if len(outputs) > 1 and outputs[1] is not None:
            return _scaled(gradients[0], outputs[1], kept), *rest
        mask = outputs[0] != 0
        if not np.all(mask | (inputs[0] != 0)):
            found = "what was dropped cannot be read from an output of an input with zeros"
            raise UnsupportedError("the gradient of Dropout without its mask", found, "name the mask, or use vjp")
        return _scaled(gradients[0], mask, kept), *rest

    def vjp(*inputs: Array) -> Differentiated:
        outputs, mask, kept = draw(*inputs)
        rest = (None,) * (len(inputs) - 1)

        def pullback(*gradients: Array | None) -> Arrays:
            if gradients[0] is None or mask is None:
                return gradients[0], *rest
            return _scaled(gradients[0], mask, kept), *rest

        return outputs, pullback

    return Kernel(lambda *inputs: draw(*inputs)[0], backward, vjp)


def _kept(ratio: Array | None, training: Array | None) -> float:
    """The probability of being kept: 1 where it does not train."""
    if training is None or not np.asarray(training).item():
        return 1.0
    return 1 - (0.5 if ratio is None else float(np.asarray(ratio).reshape(())))


def _scaled(x: Array, mask: Array, kept: float) -> Array:
    """What is kept, over the probability of it; 0 elsewhere."""
    wide = lift(x)
    return lower(wide * (mask * wide.dtype.type(1 / kept if kept else 0)), x.dtype)


def _dtype(node: OperatorNode, like: Array | None = None) -> DType:
    """The dtype that is asked for, else that of the input, else float32."""
    given = node.get("dtype")
    if given is None:
        return np.dtype(np.float32) if like is None else like.dtype
    return np.dtype(helper.tensor_dtype_to_np_dtype(given))


def _drawn(node: OperatorNode) -> Callable[[Sequence[int], DType], Array]:
    generator, uniform = _generator(node), node.op_type.startswith("RandomUniform")
    first, second = (node["low"], node["high"]) if uniform else (node["mean"], node["scale"])

    def draw(shape: Sequence[int], dtype: DType) -> Array:
        wide = np.float64 if dtype == np.float64 else np.float32
        source = generator()
        values: Array = np.asarray(source.random(shape, wide) if uniform else source.standard_normal(shape, wide))
        values *= wide(second - first if uniform else second)
        values += wide(first)
        return lower(values, dtype)

    return draw


@register("RandomNormal", "RandomUniform")
def _random(node: OperatorNode) -> Kernel:
    draw, shape = _drawn(node), list(node["shape"])
    return Kernel(lambda: draw(shape, _dtype(node)), no_gradient)


@register("RandomNormalLike", "RandomUniformLike")
def _random_like(node: OperatorNode) -> Kernel:
    """The values of the input do not matter, so its gradient is zero."""
    draw = _drawn(node)
    return Kernel(lambda x: draw(x.shape, _dtype(node, x)), _zero)


@register("Bernoulli")
def _bernoulli(node: OperatorNode) -> Kernel:
    """1 with the probability that the input says, else 0; its gradient is zero, as PyTorch's."""
    generator = _generator(node)

    def forward(x: Array) -> Array:
        wide = np.float64 if x.dtype == np.float64 else np.float32
        return lower(generator().random(x.shape, wide) < lift(x), _dtype(node, x))

    return Kernel(forward, _zero)


def _zero(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
    return tuple(np.zeros_like(each) if is_real(each) else None for each in inputs)
