"""Custom operators, right ones and ones with a single planted fault.

A family is a right operator with a reference in another spelling; what is derived from it has another right spelling,
or a fault that its docstring describes. ``claims`` names the ONNX operator that computes the same, where there is one.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.self_test import Planted
from levelbench.operators.custom import CustomOperator, Spec, namespace
from levelbench.planted.case import cases

Array = NDArray[Any]
Arrays = Sequence[Any]
Random = np.random.Generator

INT = np.dtype(np.int64)


def wide(x: Array) -> Array:
    """Floating-point numbers as float64, others as they are."""
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def like(value: Any, x: Array) -> Array:
    """A new array of the dtype of ``x``."""
    with np.errstate(all="ignore"):
        return np.array(value).astype(x.dtype)


def unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """The sum over the axes along which ``shape`` was repeated."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    stretched = tuple(at for at, size in enumerate(shape) if size == 1 and g.shape[at] != 1)
    return g.sum(axis=stretched, keepdims=True)


def without(shape: tuple[int, ...], axis: int, keep: int = 0) -> tuple[int, ...]:
    """The shape after a reduction."""
    axis = on_axis(shape, axis)
    return shape[:axis] + ((1,) if keep else ()) + shape[axis + 1 :]


def on_axis(shape: tuple[int, ...], axis: int) -> int:
    """The axis from 0; ``ValueError`` if there is none."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} of {len(shape)} axes")
    return axis % len(shape)


def softmax(x: Array, axis: int) -> Array:
    """Shares along an axis."""
    e = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=axis, keepdims=True)


def normal(random: Random, *shape: int, scale: float = 1.0) -> Array:
    """Normally distributed numbers, as an array even without axes."""
    return np.asarray(random.standard_normal(shape) * scale)


class Op(CustomOperator):
    """Backward by ``pull``, which computes in float64."""

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        """The gradients of the inputs, in their dtypes."""
        widened = [[None if each is None else wide(each) for each in group] for group in (gradients, inputs, outputs)]
        with np.errstate(all="ignore"):
            found = self.pull(*widened)
        return tuple(None if dx is None else like(dx, x) for dx, x in zip(found, inputs, strict=True))

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        """The gradients of the inputs, in float64."""
        raise NotImplementedError


class Unary(Op):
    """Element by element: ``value`` and ``slope``."""

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 9), (71,), (2, 3, 5), (1,), (), (0, 3)):
            yield (normal(random, *shape, scale=3.0),)

    def reference(self, x: Array) -> Array:
        return like(self.value(wide(x)), x)

    def value(self, x: Array) -> Array:
        """The function, in float64."""
        raise NotImplementedError

    def slope(self, x: Array, y: Array) -> Array:
        """Its derivative, in float64."""
        raise NotImplementedError

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (g[0] * self.slope(x[0], y[0]),)


# Activations.


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1.0) / (1 + e)


class SmoothRelu(Unary):
    """log(1 + exp(x)) by logaddexp."""

    claims = "Softplus"

    def value(self, x: Array) -> Array:
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))

    def slope(self, x: Array, y: Array) -> Array:
        return sigmoid(x)

    def forward(self, x: Array) -> Array:
        return like(np.logaddexp(wide(x), 0.0), x)


class SmoothReluTorch(SmoothRelu):
    """By PyTorch's logaddexp."""

    def forward(self, x: Array) -> Array:
        import torch

        wider = torch.from_numpy(np.ascontiguousarray(wide(x)).reshape(x.shape))
        return like(torch.logaddexp(wider, torch.zeros((), dtype=torch.float64)).numpy(), x)


class SmoothReluOverflows(SmoothRelu):
    """The exponential is taken of large numbers, so the result is infinite where it should be x."""

    def forward(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return like(np.log1p(np.exp(wide(x))), x)


class SmoothReluSlopeCut(SmoothRelu):
    """The gradient is rounded to 0 or 1 beyond 6 either side of zero."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x > 6, 1.0, np.where(x < -6, 0.0, sigmoid(x)))


class Squash(Unary):
    """The logistic function, by two branches."""

    claims = "Sigmoid"

    def value(self, x: Array) -> Array:
        return np.exp(-np.logaddexp(0.0, -x))

    def slope(self, x: Array, y: Array) -> Array:
        return sigmoid(x) * sigmoid(-x)

    def forward(self, x: Array) -> Array:
        return like(sigmoid(wide(x)), x)


class SquashFromOutput(Squash):
    """The gradient is computed from the output."""

    def slope(self, x: Array, y: Array) -> Array:
        return y - y * y


class SquashOverflows(Squash):
    """exp(x) / (1 + exp(x)) is infinity by infinity for large numbers."""

    def forward(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            e = np.exp(wide(x))
            return like(e / (1 + e), x)


class SquashSlopeOfInput(Squash):
    """The gradient uses the input where the output is meant."""

    def slope(self, x: Array, y: Array) -> Array:
        return x * (1 - x)


class SquashSaturates(Squash):
    """The gradient is zero beyond 6 either side of zero."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(np.abs(x) > 6, 0.0, y * (1 - y))


class Rectified(Unary):
    """max(x, 0) by clipping."""

    claims = "Relu"

    def value(self, x: Array) -> Array:
        return np.maximum(x, 0.0)

    def slope(self, x: Array, y: Array) -> Array:
        return (x > 0).astype(np.float64)

    def forward(self, x: Array) -> Array:
        return np.array(np.clip(x, x.dtype.type(0), None))


class RectifiedOneAtZero(Rectified):
    """The gradient at zero is 1, which is as good a choice as 0; the value by choosing."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x >= 0, 1.0, 0.0)

    def forward(self, x: Array) -> Array:
        return np.where(x < 0, np.zeros_like(x), x)


class RectifiedByMask(Rectified):
    """Minus infinity times zero makes NaN."""

    def forward(self, x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.array(x * (x > 0).astype(x.dtype))


class RectifiedBySum(Rectified):
    """Half of x + |x| is NaN for minus infinity."""

    def forward(self, x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return like((wide(x) + np.abs(wide(x))) / 2, x)


class RectifiedWithoutNaN(Rectified):
    """NaN becomes 0."""

    def forward(self, x: Array) -> Array:
        return np.array(np.fmax(x, x.dtype.type(0)))


class RectifiedPassesThrough(Rectified):
    """The input itself is returned if nothing is negative."""

    def forward(self, x: Array) -> Array:
        return x if x.size and (x >= 0).all() else np.array(np.maximum(x, x.dtype.type(0)))


class RectifiedOldMask(Rectified):
    """Backward uses a mask that the last forward left behind, whatever its inputs are."""

    kept: ClassVar[dict[tuple[int, ...], Array]] = {}

    def forward(self, x: Array) -> Array:
        self.kept[x.shape] = x > 0
        return np.array(np.maximum(x, x.dtype.type(0)))

    def slope(self, x: Array, y: Array) -> Array:
        return self.kept.get(x.shape, x > 0).astype(np.float64)


class Leaky(Unary):
    """x, or alpha x below zero."""

    claims = "LeakyRelu"

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha = alpha

    def value(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * x, x)

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x < 0, self.alpha, 1.0)

    def forward(self, x: Array) -> Array:
        return like(np.maximum(wide(x), 0) + self.alpha * np.minimum(wide(x), 0), x)


class LeakySelected(Leaky):
    """By writing into a copy, where negative."""

    def forward(self, x: Array) -> Array:
        y = wide(x).copy()
        np.multiply(y, self.alpha, out=y, where=y < 0)
        return like(y, x)


class LeakyFixed(Leaky):
    """The slope is 0.01 whatever alpha is."""

    def forward(self, x: Array) -> Array:
        return like(np.where(x < 0, 0.01 * wide(x), wide(x)), x)


class LeakyFixedGradient(Leaky):
    """The gradient assumes that alpha is 0.01."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x < 0, 0.01, 1.0)


class LeakyByMaximum(Leaky):
    """max(x, alpha x) is wrong for an alpha above 1."""

    def forward(self, x: Array) -> Array:
        return like(np.maximum(wide(x), self.alpha * wide(x)), x)


class LeakyInPlace(Leaky):
    """Negative numbers are replaced in the input, of which a copy is returned."""

    def forward(self, x: Array) -> Array:
        x[...] = like(self.value(wide(x)), x)
        return x.copy()


class ExponentialUnit(Unary):
    """x, or alpha (exp(x) - 1) below zero."""

    claims = "Elu"

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    def value(self, x: Array) -> Array:
        return np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0)))

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x > 0, 1.0, self.alpha * np.exp(np.minimum(x, 0)))

    def forward(self, x: Array) -> Array:
        wider = wide(x)
        return like(np.maximum(wider, 0) + self.alpha * np.expm1(np.minimum(wider, 0)), x)


class ExponentialUnitFromOutput(ExponentialUnit):
    """The gradient is computed from the output: y + alpha below zero."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x > 0, 1.0, y + self.alpha)


class ExponentialUnitPlusOne(ExponentialUnit):
    """The gradient is y + 1 below zero, which is right only if alpha is 1."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x > 0, 1.0, y + 1.0)


class ExponentialUnitCancels(ExponentialUnit):
    """exp(x) - 1 has no correct digits for tiny numbers."""

    def forward(self, x: Array) -> Array:
        wider = wide(x)
        return like(np.where(wider > 0, wider, self.alpha * (np.exp(np.minimum(wider, 0)) - 1)), x)


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _density(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


class GaussUnit(Unary):
    """x Φ(x), with the error function."""

    claims = "Gelu"

    def value(self, x: Array) -> Array:
        return x * 0.5 * _erfc(-x / math.sqrt(2)) if x.size else x

    def slope(self, x: Array, y: Array) -> Array:
        return (0.5 * _erfc(-x / math.sqrt(2)) if x.size else x) + x * _density(x)

    def forward(self, x: Array) -> Array:
        import torch

        wider = torch.from_numpy(np.ascontiguousarray(wide(x)).reshape(x.shape))
        return like((wider * torch.special.erfc(-wider / math.sqrt(2)) / 2).numpy(), x)


class GaussUnitByTanh(GaussUnit):
    """The value is the approximation by tanh."""

    def forward(self, x: Array) -> Array:
        z = wide(x)
        return like(0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z))), x)


class GaussUnitHalfSlope(GaussUnit):
    """The gradient lacks the term of the density."""

    def slope(self, x: Array, y: Array) -> Array:
        return 0.5 * _erfc(-x / math.sqrt(2)) if x.size else x


class GaussUnitWrongDensity(GaussUnit):
    """The density in the gradient is divided by the root of π instead of 2 π."""

    def slope(self, x: Array, y: Array) -> Array:
        return (0.5 * _erfc(-x / math.sqrt(2)) if x.size else x) + x * _density(x) * math.sqrt(2)


class HardGate(Unary):
    """x times its place between -3 and 3."""

    def value(self, x: Array) -> Array:
        return np.where(x <= -3, 0.0, np.where(x >= 3, x, x * (x + 3) / 6))

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x <= -3, 0.0, np.where(x >= 3, 1.0, x / 3 + 0.5))

    def forward(self, x: Array) -> Array:
        z = np.maximum(wide(x), -3)
        return like(z * (np.minimum(z, 3) + 3) / 6, x)


class HardGateUnclipped(HardGate):
    """The gradient goes on rising above 3."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.where(x <= -3, 0.0, x / 3 + 0.5)


class Unit(Unary):
    """x / sqrt(x² + epsilon)."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        self.epsilon = epsilon

    def value(self, x: Array) -> Array:
        return x / np.hypot(x, math.sqrt(self.epsilon))

    def slope(self, x: Array, y: Array) -> Array:
        return self.epsilon / np.hypot(x, math.sqrt(self.epsilon)) ** 3

    def forward(self, x: Array) -> Array:
        z = wide(x)
        return like(z / np.sqrt(z * z + self.epsilon), x)


class UnitEpsilonOutside(Unit):
    """Epsilon is added to the root."""

    def forward(self, x: Array) -> Array:
        return like(wide(x) / (np.abs(wide(x)) + self.epsilon), x)


class UnitNarrowSquare(Unit):
    """The square is taken in the dtype of the input, where it overflows in half precision."""

    def forward(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return like(wide(x) / np.sqrt(wide(np.asarray(x * x)) + self.epsilon), x)


class UnitSlopePower(Unit):
    """The gradient has the power 1/2 instead of 3/2."""

    def slope(self, x: Array, y: Array) -> Array:
        return self.epsilon / np.hypot(x, math.sqrt(self.epsilon))


class Limited(Unary):
    """Between low and high."""

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        self.low, self.high = low, high

    def value(self, x: Array) -> Array:
        return np.minimum(np.maximum(x, self.low), self.high)

    def slope(self, x: Array, y: Array) -> Array:
        return ((x > self.low) & (x < self.high)).astype(np.float64)

    def forward(self, x: Array) -> Array:
        return like(np.clip(wide(x), self.low, self.high), x)


class LimitedPassesGradient(Limited):
    """The gradient passes beyond the limits."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.ones_like(x)


class Nearest(Unary):
    """The nearest whole number, halves to even."""

    claims = "Round"

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        yield from super().examples(random)
        yield (np.arange(-7, 8) / 2,)

    def value(self, x: Array) -> Array:
        return np.rint(x)

    def slope(self, x: Array, y: Array) -> Array:
        return np.zeros_like(x)

    def forward(self, x: Array) -> Array:
        return like(np.round(wide(x)), x)


class NearestAway(Nearest):
    """Halves are rounded up."""

    def forward(self, x: Array) -> Array:
        return like(np.floor(wide(x) + 0.5), x)


class Wave(Unary):
    """sin(frequency x)."""

    def __init__(self, frequency: float = 1.0) -> None:
        self.frequency = frequency

    def value(self, x: Array) -> Array:
        return np.sin(self.frequency * x)

    def slope(self, x: Array, y: Array) -> Array:
        return self.frequency * np.cos(self.frequency * x)

    def forward(self, x: Array) -> Array:
        return like(np.imag(np.exp(1j * self.frequency * wide(x))), x)


class WaveSign(Wave):
    """The gradient has the wrong sign."""

    def slope(self, x: Array, y: Array) -> Array:
        return -super().slope(x, y)


class WaveInnerSlope(Wave):
    """The gradient lacks the factor of the frequency, which shows if that is not 1."""

    def slope(self, x: Array, y: Array) -> Array:
        return np.cos(self.frequency * x)


# How an operator behaves, shown with 2 x.


class Double(Unary):
    """x + x."""

    def value(self, x: Array) -> Array:
        return 2 * x

    def slope(self, x: Array, y: Array) -> Array:
        return np.full_like(x, 2.0)

    def forward(self, x: Array) -> Array:
        return np.array(x + x)


class DoubleStandard(Double):
    """With the Array API only."""

    array_api = True

    def forward(self, x: Any) -> Any:
        return namespace(x).add(x, x)

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        return (gradients[0] + gradients[0],)


class DoubleLooped(Double):
    """Element by element, in Python."""

    def forward(self, x: Array) -> Array:
        y = np.empty(x.shape, x.dtype)
        for at in np.ndindex(*x.shape):
            y[at] = x[at] + x[at]
        return y


class DoubleInThreads(Double):
    """By two threads that are waited for, each with its own half."""

    def forward(self, x: Array) -> Array:
        import threading

        flat, y = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, x.dtype)

        def work(part: slice) -> None:
            y[part] = flat[part] + flat[part]

        cut = x.size // 2
        threads = [threading.Thread(target=work, args=(part,)) for part in (slice(0, cut), slice(cut, None))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return y.reshape(x.shape)


class DoubleFortran(Double):
    """The result lies in Fortran's order."""

    def forward(self, x: Array) -> Array:
        return np.asfortranarray(np.array(x + x)).reshape(x.shape, order="F")


class DoubleCountsCalls(Double):
    """Counts its calls, which changes nothing else."""

    calls: ClassVar[int] = 0

    def forward(self, x: Array) -> Array:
        type(self).calls += 1
        return np.array(x + x)


class DoubleWithWorkspace(Double):
    """Reuses a workspace of which only a copy is returned."""

    space: ClassVar[dict[Any, Array]] = {}

    def forward(self, x: Array) -> Array:
        space = self.space.setdefault("space", np.empty(0, np.float64))
        if space.size < x.size:
            space = self.space["space"] = np.empty(x.size, np.float64)
        held = space[: x.size].reshape(x.shape)
        held[...] = x
        return like(held * 2, x)


class DoubleFlushes(Double):
    """Denormal numbers become zero."""

    def forward(self, x: Array) -> Array:
        if x.dtype.kind != "f":
            return np.array(x + x)
        return np.array(np.where(np.abs(x) < np.finfo(x.dtype).tiny, x.dtype.type(0), x + x))


class DoublePositiveZero(Double):
    """Minus zero becomes zero."""

    def forward(self, x: Array) -> Array:
        return np.array(x + x + x.dtype.type(0))


class DoubleSaturates(Double):
    """Infinity becomes the largest finite number."""

    def forward(self, x: Array) -> Array:
        return np.array(np.nan_to_num(x + x, nan=np.nan)) if x.dtype.kind == "f" else np.array(x + x)


class DoubleNaNToZero(Double):
    """NaN becomes zero in the gradient."""

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        g = gradients[0]
        return (np.where(g == g, g + g, g.dtype.type(0)),)


class DoubleWidens(Double):
    """Single precision comes back as float64."""

    def forward(self, x: Array) -> Array:
        return wide(x) * 2


class DoubleNarrows(Double):
    """Everything passes through single precision."""

    def forward(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return like(x.astype(np.float32) * 2, x)


class DoubleSharedBuffer(Double):
    """The result lies in a buffer that the next call of the same shape overwrites."""

    kept: ClassVar[dict[Any, Array]] = {}

    def forward(self, x: Array) -> Array:
        y = self.kept.setdefault((x.shape, x.dtype), np.empty(x.shape, x.dtype))
        y[...] = x + x
        return y


class DoubleSharedGradient(Double):
    """The gradient lies in a buffer that the next call of the same shape overwrites."""

    kept: ClassVar[dict[Any, Array]] = {}

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        g = gradients[0]
        dx = self.kept.setdefault((g.shape, g.dtype), np.empty(g.shape, g.dtype))
        dx[...] = g + g
        return (dx,)


class DoubleLeaks(Double):
    """Every call keeps a copy of its input for ever."""

    kept: ClassVar[list[Array]] = []

    def forward(self, x: Array) -> Array:
        self.kept.append(np.repeat(x.reshape(-1), 1000))
        return np.array(x + x)


class DoubleChangesGradient(Double):
    """The incoming gradient is doubled in place."""

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        g = gradients[0]
        g[...] = g + g
        return (g.copy(),)


class DoubleChangesOutput(Double):
    """Backward writes into the output of forward."""

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        outputs[0][...] = gradients[0]
        outputs[0][...] += gradients[0]
        return (outputs[0].copy(),)


class DoubleSecondCall(Double):
    """The first result for a shape is returned for every later input of that shape."""

    kept: ClassVar[dict[Any, Array]] = {}

    def forward(self, x: Array) -> Array:
        return self.kept.setdefault((x.shape, x.dtype), np.array(x + x)).copy()


class DoubleHundredthCall(Double):
    """A thousandth is added from the 100th call on."""

    calls: ClassVar[int] = 0
    good: ClassVar[int] = 99

    def forward(self, x: Array) -> Array:
        type(self).calls += 1
        return np.array(x + x) if self.calls <= self.good else like(wide(x) * 2.001, x)


class DoubleFiveHundredthCall(DoubleHundredthCall):
    """A thousandth is added from the 500th call on."""

    good = 499


class DoubleRace(Double):
    """In 4 % of calls the last element is read before it is written."""

    def forward(self, x: Array) -> Array:
        y = np.array(x + x)
        if y.size and os.urandom(1)[0] < 10:
            y.reshape(-1)[-1] = 0
        return y


class DoubleMemoryOrder(Double):
    """Elements are taken in the order in which they lie in memory."""

    def forward(self, x: Array) -> Array:
        return np.array((x.ravel(order="K") * x.dtype.type(2)).reshape(x.shape))


class DoubleIgnoresGaps(Double):
    """An input with gaps between its elements is read as if it had none."""

    def forward(self, x: Array) -> Array:
        base = x.base
        if isinstance(base, np.ndarray) and base.dtype == x.dtype and base.flags.c_contiguous and not x.flags.forc:
            x = base.reshape(-1)[: x.size].reshape(x.shape) if base.size >= x.size else x
        return np.array(x + x)


class DoubleDropsLast(Double):
    """The last element of an array of odd length above 64 stays zero."""

    def forward(self, x: Array) -> Array:
        y = np.array(x + x)
        if x.size > 64 and x.size % 2:
            y.reshape(-1)[-1] = 0
        return y


class DoubleUnwrittenTail(Double):
    """Beyond 64 elements, the rest after blocks of eight is never written."""

    def forward(self, x: Array) -> Array:
        if x.size <= 64:
            return np.array(x + x)
        flat, y = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, x.dtype)
        whole = x.size // 8 * 8
        y[:whole] = flat[:whole] + flat[:whole]
        return y.reshape(x.shape)


class DoubleNeedsAxes(Double):
    """An array without axes raises an error."""

    def forward(self, x: Array) -> Array:
        return np.stack([row + row for row in x]).astype(x.dtype) if len(x) else x.copy()


class DoubleNeedsElements(Double):
    """An empty array raises an error."""

    def forward(self, x: Array) -> Array:
        scale = float(np.max(np.abs(wide(x))))
        return np.array(x + x) if scale == scale else np.array(x * x.dtype.type(2))


class DoubleAddsAxis(Double):
    """An array without axes comes back with one."""

    def forward(self, x: Array) -> Array:
        return np.atleast_1d(x + x)


class DoubleNeverEnds(Double):
    """Blocks of four are counted until they meet the length exactly, which they miss for some lengths above 64."""

    def forward(self, x: Array) -> Array:
        flat, y = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, x.dtype)
        at = x.size % 4 if x.size <= 64 else 0
        y[:at] = flat[:at] + flat[:at]
        while at != x.size:
            y[at : at + 4] = flat[at : at + 4] + flat[at : at + 4]
            at += 4
        return y.reshape(x.shape)


# Two inputs, with broadcasting.


class Binary(Op):
    """Two inputs that are broadcast; ``value`` and ``slopes``."""

    def infer(self, x: Spec, y: Spec) -> Spec:
        return Spec(np.broadcast_shapes(x.shape, y.shape), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for one, other in (((4, 5), (4, 5)), ((3, 4), (4,)), ((2, 1, 5), (3, 1)), ((), (3,)), ((1,), (0, 1))):
            yield normal(random, *one, scale=2.0), normal(random, *other, scale=2.0)

    @abstractmethod
    def value(self, x: Array, y: Array) -> Array:
        """The function, in float64."""
        raise NotImplementedError

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        """Its derivatives."""
        raise NotImplementedError

    def reference(self, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(self.value(wide(x), wide(y)), x)

    def forward(self, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(self.value(wide(x), wide(y)), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        slopes = self.slopes(x[0], x[1], y[0])
        return tuple(unbroadcast(np.asarray(g[0] * slope), each.shape) for slope, each in zip(slopes, x, strict=True))


class Plus(Binary):
    """x + y."""

    claims = "Add"

    def value(self, x: Array, y: Array) -> Array:
        return x + y

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return np.asarray(1.0), np.asarray(1.0)


class PlusStandard(Plus):
    """With the Array API only."""

    array_api = True

    def forward(self, x: Any, y: Any) -> Any:
        return x + y

    def backward(self, gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
        xp, g = namespace(gradients[0]), gradients[0]
        made = []
        for each in inputs:
            extra = g.ndim - each.ndim
            axes = [at for at in range(g.ndim) if at < extra or (each.shape[at - extra] == 1 and g.shape[at] != 1)]
            total = xp.sum(g, axis=tuple(axes)) if axes else xp.asarray(g, copy=True)
            made.append(xp.reshape(total, each.shape))
        return tuple(made)


class PlusUnreduced(Plus):
    """The gradient of a broadcast input has the shape of the output."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return g[0], g[0]


class PlusKeepsStretched(Plus):
    """Along an axis of length 1 the gradient is the mean instead of the sum."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        made = []
        for each in x:
            total = g[0].sum(axis=tuple(range(g[0].ndim - each.ndim)))
            axes = tuple(at for at, size in enumerate(each.shape) if size == 1 and total.shape[at] > 1)
            made.append(total.mean(axis=axes, keepdims=True) if axes else total)
        return tuple(made)


class Product(Binary):
    """x y."""

    claims = "Mul"

    def value(self, x: Array, y: Array) -> Array:
        return x * y

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return y, x


class ProductSwapped(Product):
    """The gradients of the two inputs are swapped."""

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return x, y


class Quotient(Binary):
    """x / y."""

    claims = "Div"

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for x, y in super().examples(random):
            yield x, np.asarray(np.sign(y) * (np.abs(y) + 0.5))

    def value(self, x: Array, y: Array) -> Array:
        return x / y

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return 1 / y, -x / y**2


class QuotientFromOutput(Quotient):
    """The gradient is computed from the output."""

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return 1 / y, -(x / y) / y


class QuotientGuarded(Quotient):
    """A small number is added to the divisor, so that nothing is infinite."""

    def forward(self, x: Array, y: Array) -> Array:
        return like(wide(x) / (wide(y) + 1e-8), x)


class QuotientSign(Quotient):
    """The gradient of the divisor lacks its minus."""

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return 1 / y, x / y**2


class Larger(Binary):
    """The larger of x and y; the first at a tie."""

    claims = "Max"

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        yield from super().examples(random)
        yield np.round(normal(random, 6, 7)), np.round(normal(random, 6, 7))

    def value(self, x: Array, y: Array) -> Array:
        return np.maximum(x, y)

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return np.where(x >= y, 1.0, 0.0), np.where(x < y, 1.0, 0.0)


class LargerShared(Larger):
    """Each has half of the gradient at a tie."""

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        first = np.where(x > y, 1.0, np.where(x == y, 0.5, 0.0))
        return first, 1 - first


class LargerBoth(Larger):
    """Both have the whole gradient at a tie."""

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return np.where(x >= y, 1.0, 0.0), np.where(y >= x, 1.0, 0.0)


class LargerWithoutNaN(Larger):
    """A NaN loses against a number."""

    def forward(self, x: Array, y: Array) -> Array:
        return like(np.fmax(wide(x), wide(y)), x)


class Diagonal(Binary):
    """sqrt(x² + y²), with a gradient of zero where both are zero."""

    def value(self, x: Array, y: Array) -> Array:
        return np.hypot(x, y)

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        length = np.hypot(x, y)
        safe = np.where(length == 0, 1.0, length)
        return x / safe, y / safe


class DiagonalNaNAtZero(Diagonal):
    """The gradient is NaN where both are zero."""

    def slopes(self, x: Array, y: Array, out: Array) -> tuple[Array, Array]:
        return x / np.hypot(x, y), y / np.hypot(x, y)


class DiagonalOverflows(Diagonal):
    """The squares overflow in the dtype of the input."""

    def forward(self, x: Array, y: Array) -> Array:
        with np.errstate(over="ignore"):
            return like(np.sqrt(np.asarray(x * x + y * y)), x)


class Choice(Op):
    """x where the condition holds, else y."""

    claims = "Where"

    def infer(self, condition: Spec, x: Spec, y: Spec) -> Spec:
        return Spec(np.broadcast_shapes(condition.shape, x.shape, y.shape), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape, other in (((4, 5), (5,)), ((3,), (3,)), ((0, 2), (2,))):
            yield random.random(shape) < 0.5, normal(random, *shape), normal(random, *other)

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    def forward(self, condition: Array, x: Array, y: Array) -> Array:
        out = np.array(np.broadcast_to(y, np.broadcast_shapes(condition.shape, x.shape, y.shape)))
        np.copyto(out, x, where=condition)
        return out

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        zero = np.zeros_like(g[0])
        return (
            None,
            unbroadcast(np.where(x[0], g[0], zero), x[1].shape),
            unbroadcast(np.where(x[0], zero, g[0]), x[2].shape),
        )


class ChoiceByArithmetic(Choice):
    """A NaN or infinity that is not chosen makes the result NaN."""

    def forward(self, condition: Array, x: Array, y: Array) -> Array:
        with np.errstate(invalid="ignore"):
            chosen = condition.astype(np.float64)
            return like(chosen * wide(x) + (1 - chosen) * wide(y), x)


class ChoiceLeaksGradient(Choice):
    """y has the gradient everywhere, chosen or not."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return None, super().pull(g, x, y)[1], unbroadcast(g[0], x[2].shape)


# Reductions.


class Along(Op):
    """A reduction along one axis."""

    axis: int
    keepdims: int

    def __init__(self, axis: int = -1, keepdims: int = 0) -> None:
        self.axis, self.keepdims = axis, keepdims

    def infer(self, x: Spec) -> Spec:
        return Spec(without(x.shape, self.axis, self.keepdims), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 7), (5, 5), (3, 2, 67), (1, 1), (6,)):
            yield (normal(random, *shape),)

    @abstractmethod
    def value(self, x: Array) -> Array:
        """The reduction, in float64, with the axis kept."""
        raise NotImplementedError

    def slope(self, x: Array) -> Array:
        """Its derivative by each element."""
        raise NotImplementedError

    def reduced(self, x: Array, value: Array) -> Array:
        """Without the axis, if it is not kept."""
        return like(value if self.keepdims else np.squeeze(value, axis=self.axis), x)

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.reduced(x, self.value(wide(x)))

    def forward(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.reduced(x, self.value(wide(x)))

    def expanded(self, g: Array) -> Array:
        """The gradient with the axis."""
        return g if self.keepdims else np.expand_dims(g, self.axis)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (self.expanded(g[0]) * self.slope(x[0]),)


class Total(Along):
    """The sum."""

    claims = "ReduceSum"

    def value(self, x: Array) -> Array:
        return x.sum(axis=self.axis, keepdims=True)

    def slope(self, x: Array) -> Array:
        return np.ones_like(x)


class TotalByProduct(Total):
    """As a product with ones."""

    def forward(self, x: Array) -> Array:
        moved = np.moveaxis(wide(x), self.axis, -1)
        return self.reduced(x, np.expand_dims(np.einsum("...i->...", moved), self.axis))


class TotalInHalves(Total):
    """Pairwise: odd and even places are added until one is left."""

    def forward(self, x: Array) -> Array:
        rows = np.moveaxis(wide(x), self.axis, -1)
        if not rows.shape[-1]:
            rows = np.zeros((*rows.shape[:-1], 1))
        while rows.shape[-1] > 1:
            if rows.shape[-1] % 2:
                rows = np.concatenate([rows, np.zeros_like(rows[..., :1])], axis=-1)
            rows = rows[..., ::2] + rows[..., 1::2]
        return self.reduced(x, np.moveaxis(rows, -1, self.axis))


class TotalNarrow(Total):
    """The sum is rounded to the dtype of the input after every term."""

    def forward(self, x: Array) -> Array:
        total = np.zeros(without(x.shape, self.axis), x.dtype)
        for row in np.moveaxis(x, self.axis, 0):
            total = (total + row).astype(x.dtype)
        return self.reduced(x, np.expand_dims(total, self.axis))


class TotalLastAxis(Total):
    """The last axis is summed if all axes are equally long, whatever the attribute says."""

    def forward(self, x: Array) -> Array:
        if len(set(x.shape)) > 1:
            return super().forward(x)
        total = wide(x).sum(axis=-1)
        return like(np.expand_dims(total, self.axis) if self.keepdims else total, x)


class TotalDropsRest(Total):
    """Beyond 64 terms, those after the last whole block of 64 are left out."""

    def forward(self, x: Array) -> Array:
        length = x.shape[self.axis]
        if length > 64:
            x = np.take(x, np.arange(length // 64 * 64), axis=self.axis)
        return super().forward(x)


class TotalGradientAxis(Total):
    """The gradient is repeated along the first axis instead of the one that was summed, where the shape allows it."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        if not self.keepdims and len(set(x[0].shape)) == 1:
            return (np.broadcast_to(g[0], x[0].shape),)
        return super().pull(g, x, y)


class Mean(Along):
    """The mean."""

    claims = "ReduceMean"

    def value(self, x: Array) -> Array:
        return x.sum(axis=self.axis, keepdims=True) / x.shape[self.axis]

    def slope(self, x: Array) -> Array:
        return np.full_like(x, 1.0 / max(1, x.shape[self.axis]))


class MeanRunning(Mean):
    """By the running update of the mean."""

    def forward(self, x: Array) -> Array:
        mean = (
            np.zeros(without(x.shape, self.axis))
            if x.shape[self.axis]
            else np.full(without(x.shape, self.axis), np.nan)
        )
        for at, row in enumerate(np.moveaxis(wide(x), self.axis, 0), start=1):
            mean = mean * ((at - 1) / at) + row / at
        return self.reduced(x, np.expand_dims(mean, self.axis))


class MeanOfAll(Mean):
    """The sum is divided by the number of all elements."""

    def forward(self, x: Array) -> Array:
        return self.reduced(x, wide(x).sum(axis=self.axis, keepdims=True) / max(1, x.size))


class MeanGradientOfSum(Mean):
    """The gradient is that of the sum."""

    def slope(self, x: Array) -> Array:
        return np.ones_like(x)


class Variance(Along):
    """The variance, with n - ddof degrees of freedom."""

    def __init__(self, axis: int = -1, keepdims: int = 0, ddof: int = 0) -> None:
        super().__init__(axis, keepdims)
        self.ddof = ddof

    def centred(self, x: Array) -> Array:
        """Deviations from the mean."""
        return x - x.mean(axis=self.axis, keepdims=True)

    def value(self, x: Array) -> Array:
        return (self.centred(x) ** 2).sum(axis=self.axis, keepdims=True) / (x.shape[self.axis] - self.ddof)

    def slope(self, x: Array) -> Array:
        return 2 * self.centred(x) / (x.shape[self.axis] - self.ddof)


class VarianceNumPy(Variance):
    """By NumPy's own."""

    def forward(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.reduced(x, np.var(wide(x), axis=self.axis, keepdims=True, ddof=self.ddof))


class VarianceOfSquares(Variance):
    """The mean square less the square of the mean, whose digits cancel far from zero."""

    def forward(self, x: Array) -> Array:
        z, n = wide(x), x.shape[self.axis]
        apart = (z * z).mean(axis=self.axis, keepdims=True) - z.mean(axis=self.axis, keepdims=True) ** 2
        return self.reduced(x, apart * n / (n - self.ddof))


class VarianceFreedom(Variance):
    """The attribute ddof is ignored."""

    def forward(self, x: Array) -> Array:
        return self.reduced(x, np.var(wide(x), axis=self.axis, keepdims=True))


class VarianceHalfGradient(Variance):
    """The gradient lacks the factor 2."""

    def slope(self, x: Array) -> Array:
        return super().slope(x) / 2


class LogTotal(Along):
    """log Σ exp(x)."""

    claims = "ReduceLogSumExp"

    def value(self, x: Array) -> Array:
        return np.logaddexp.reduce(x, axis=self.axis, keepdims=True)

    def slope(self, x: Array) -> Array:
        return np.exp(x - self.value(x))

    def forward(self, x: Array) -> Array:
        z = wide(x)
        most = z.max(axis=self.axis, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(most), most, 0.0)
        with np.errstate(all="ignore"):
            return self.reduced(x, np.log(np.exp(z - shift).sum(axis=self.axis, keepdims=True)) + shift)


class LogTotalUnshifted(LogTotal):
    """Exponentials are taken of the numbers themselves, which overflow."""

    def forward(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.reduced(x, np.log(np.exp(wide(x)).sum(axis=self.axis, keepdims=True)))


class LogTotalOfNothing(LogTotal):
    """A row of minus infinities gives NaN instead of minus infinity."""

    def forward(self, x: Array) -> Array:
        z = wide(x)
        most = z.max(axis=self.axis, keepdims=True, initial=-np.inf)
        with np.errstate(all="ignore"):
            return self.reduced(x, np.log(np.exp(z - most).sum(axis=self.axis, keepdims=True)) + most)


class Largest(Along):
    """The largest; the first of several has the gradient."""

    claims = "ReduceMax"

    def infer(self, x: Spec) -> Spec:
        if not x.shape or not x.shape[on_axis(x.shape, self.axis)]:
            raise ValueError("there is no largest of no numbers")
        return super().infer(x)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        yield from super().examples(random)
        yield (np.round(normal(random, 5, 6)),)

    def value(self, x: Array) -> Array:
        return x.max(axis=self.axis, keepdims=True)

    def slope(self, x: Array) -> Array:
        made = np.zeros_like(x)
        np.put_along_axis(made, np.expand_dims(x.argmax(axis=self.axis), self.axis), 1.0, axis=self.axis)
        return made


class LargestSplit(Largest):
    """Equal ones share the gradient."""

    def slope(self, x: Array) -> Array:
        equal = (x == self.value(x)).astype(np.float64)
        return equal / np.maximum(1, equal.sum(axis=self.axis, keepdims=True))


class LargestEach(Largest):
    """Each of several equal ones has the whole gradient."""

    def slope(self, x: Array) -> Array:
        return (x == self.value(x)).astype(np.float64)


class LargestFromZero(Largest):
    """The search starts at 0, so negative rows give 0."""

    def forward(self, x: Array) -> Array:
        return self.reduced(x, wide(x).max(axis=self.axis, keepdims=True, initial=0.0))


class LargestWithoutNaN(Largest):
    """NaN is left out of the search."""

    def forward(self, x: Array) -> Array:
        return self.reduced(x, np.fmax.reduce(wide(x), axis=self.axis, keepdims=True))


class Length(Along):
    """The Euclidean norm, with a gradient of zero at zero."""

    claims = "ReduceL2"

    def value(self, x: Array) -> Array:
        return np.sqrt((x * x).sum(axis=self.axis, keepdims=True))

    def slope(self, x: Array) -> Array:
        length = self.value(x)
        return x / np.where(length == 0, 1.0, length)


class LengthNaNAtZero(Length):
    """The gradient is NaN for a row of zeros."""

    def slope(self, x: Array) -> Array:
        return x / self.value(x)


class LengthWithEpsilon(Length):
    """1e-6 is added inside the root."""

    def forward(self, x: Array) -> Array:
        return self.reduced(x, np.sqrt((wide(x) ** 2).sum(axis=self.axis, keepdims=True) + 1e-6))


class Factor(Along):
    """The product; the gradient is the product of the others."""

    claims = "ReduceProd"

    def value(self, x: Array) -> Array:
        return x.prod(axis=self.axis, keepdims=True)

    def slope(self, x: Array) -> Array:
        rows = np.moveaxis(x, self.axis, -1)
        others = np.stack([np.delete(rows, at, -1).prod(axis=-1) for at in range(rows.shape[-1])] or [rows.sum(-1)], -1)
        return np.moveaxis(others, -1, self.axis) if x.shape[self.axis] else x


class FactorByDivision(Factor):
    """The gradient divides the product by each factor, which may be zero."""

    def slope(self, x: Array) -> Array:
        return self.value(x) / x


class Running(Op):
    """Running sums along an axis."""

    claims = "CumSum"

    def __init__(self, axis: int = -1, exclusive: int = 0, reverse: int = 0) -> None:
        self.axis, self.exclusive, self.reverse = axis, exclusive, reverse

    def infer(self, x: Spec) -> Spec:
        on_axis(x.shape, self.axis)
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 5), (4, 4), (70,), (1, 1), (0, 2)):
            yield (normal(random, *shape),)

    def summed(self, x: Array, reverse: int, exclusive: int) -> Array:
        """The sums, in float64."""
        z = np.flip(x, self.axis) if reverse else x
        total = np.cumsum(z, axis=self.axis)
        total = total - z if exclusive else total
        return np.flip(total, self.axis) if reverse else total

    def reference(self, x: Array) -> Array:
        length = x.shape[self.axis]
        taken = np.tri(length, k=-1 if self.exclusive else 0)
        taken = taken.T if self.reverse else taken
        rows = np.moveaxis(wide(x), self.axis, -1)
        picked = np.where(taken > 0, rows[..., None, :], 0.0).sum(axis=-1)
        return like(np.moveaxis(picked, -1, self.axis), x)

    def forward(self, x: Array) -> Array:
        rows = np.moveaxis(wide(x), self.axis, 0)
        order = range(len(rows) - 1, -1, -1) if self.reverse else range(len(rows))
        total, made = np.zeros(rows.shape[1:]), np.empty_like(rows)
        for at in order:
            if self.exclusive:
                made[at] = total
            total = total + rows[at]
            if not self.exclusive:
                made[at] = total
        return like(np.moveaxis(made, 0, self.axis), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (self.summed(g[0], not self.reverse, self.exclusive),)


class RunningInclusive(Running):
    """The attribute exclusive is ignored."""

    def forward(self, x: Array) -> Array:
        return like(self.summed(wide(x), self.reverse, 0), x)


class RunningGradientForward(Running):
    """The gradient runs in the direction of forward."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (self.summed(g[0], self.reverse, self.exclusive),)


class Place(Along):
    """The place of the largest, the first of several."""

    claims = "ArgMax"

    def infer(self, x: Spec) -> Spec:
        if not x.shape or not x.shape[on_axis(x.shape, self.axis)]:
            raise ValueError("there is no largest of no numbers")
        return Spec(without(x.shape, self.axis, self.keepdims), INT)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        yield from super().examples(random)
        yield (np.round(normal(random, 5, 6)),)

    def value(self, x: Array) -> Array:
        return np.array(np.argmax(x, axis=self.axis, keepdims=True), INT)

    def reduced(self, x: Array, value: Array) -> Array:
        return np.array(value if self.keepdims else np.squeeze(value, axis=self.axis), INT)

    def reference(self, x: Array) -> Array:
        rows = np.moveaxis(wide(x), self.axis, -1)
        equal = np.isnan(rows) | (rows == rows.max(axis=-1, keepdims=True))
        equal = np.where(np.isnan(rows).any(axis=-1, keepdims=True), np.isnan(rows), equal)
        place = np.where(equal, np.arange(rows.shape[-1]), rows.shape[-1]).min(axis=-1)
        return self.reduced(x, np.expand_dims(place, self.axis))

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.zeros_like(x[0]),)


class PlaceOfLast(Place):
    """The last of several equal ones."""

    def forward(self, x: Array) -> Array:
        length = x.shape[self.axis]
        return np.array(length - 1 - self.reference(np.flip(x, self.axis)), INT)


class PlaceNarrow(Place):
    """Places are 32-bit numbers."""

    def forward(self, x: Array) -> Array:
        return self.reference(x).astype(np.int32)


# Shares and losses.


class Shares(Op):
    """Softmax along an axis."""

    claims = "Softmax"

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def infer(self, x: Spec) -> Spec:
        on_axis(x.shape, self.axis)
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 7), (3, 3), (2, 3, 66), (1, 1), (5,), (0, 3)):
            yield (normal(random, *shape, scale=2.0),)

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(softmax(wide(x), self.axis), x)

    def forward(self, x: Array) -> Array:
        z = wide(x)
        with np.errstate(all="ignore"):
            return like(np.exp(z - np.logaddexp.reduce(z, axis=self.axis, keepdims=True)), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        p = softmax(x[0], self.axis)
        return (p * (g[0] - (p * g[0]).sum(axis=self.axis, keepdims=True)),)


class SharesTorch(Shares):
    """By PyTorch, backward by its autograd."""

    def forward(self, x: Array) -> Array:
        import torch

        return like(torch.softmax(torch.tensor(wide(x)), self.axis).numpy(), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        import torch

        leaf = torch.tensor(x[0], requires_grad=True)
        torch.softmax(leaf, self.axis).backward(torch.tensor(g[0]))
        return (leaf.grad.numpy(),)  # type: ignore[union-attr]


class SharesOnline(Shares):
    """In one pass over blocks, with a running maximum."""

    def forward(self, x: Array) -> Array:
        rows = np.moveaxis(wide(x), self.axis, -1)
        most, total = np.full(rows.shape[:-1], -np.inf), np.zeros(rows.shape[:-1])
        with np.errstate(all="ignore"):
            for at in range(0, rows.shape[-1], 16):
                block = rows[..., at : at + 16]
                new = np.maximum(most, block.max(axis=-1))
                total = total * np.exp(np.where(most == new, 0.0, most - new)) + np.exp(block - new[..., None]).sum(-1)
                most = new
            made = np.exp(rows - most[..., None]) / total[..., None]
        return like(np.moveaxis(made, -1, self.axis), x)


class SharesOverflow(Shares):
    """Exponentials are taken without subtracting the largest, so large numbers give NaN."""

    def forward(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            e = np.exp(wide(x))
            return like(e / e.sum(axis=self.axis, keepdims=True), x)


class SharesLastAxis(Shares):
    """The last axis is used, whatever the attribute says."""

    def forward(self, x: Array) -> Array:
        return like(softmax(wide(x), -1), x)


class SharesDiagonal(Shares):
    """The gradient is p (1 - p), without the other elements of the row."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (g[0] * y[0] * (1 - y[0]),)


class SharesGradientAxis(Shares):
    """The sum in the gradient is over the last axis, whatever the attribute says."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (y[0] * (g[0] - (y[0] * g[0]).sum(axis=-1, keepdims=True)),)


class SharesShiftInput(Shares):
    """The largest is subtracted from the input in place."""

    def forward(self, x: Array) -> Array:
        if x.size:
            x -= x.max(axis=self.axis, keepdims=True)
        return like(softmax(wide(x), self.axis), x)


class SharesOfBlock(Shares):
    """Beyond 64 elements, only the first 64 of a row are summed in the divisor."""

    def forward(self, x: Array) -> Array:
        z = wide(x)
        with np.errstate(all="ignore"):
            e = np.exp(z - z.max(axis=self.axis, keepdims=True, initial=-np.inf))
            some = np.take(e, np.arange(min(64, e.shape[self.axis])), axis=self.axis)
            return like(e / some.sum(axis=self.axis, keepdims=True), x)


class LogShares(Shares):
    """The logarithm of softmax."""

    claims = "LogSoftmax"

    def reference(self, x: Array) -> Array:
        z = wide(x)
        with np.errstate(all="ignore"):
            z = z - z.max(axis=self.axis, keepdims=True, initial=-np.inf)
            return like(z - np.log(np.exp(z).sum(axis=self.axis, keepdims=True)), x)

    def forward(self, x: Array) -> Array:
        z = wide(x)
        with np.errstate(all="ignore"):
            return like(z - np.logaddexp.reduce(z, axis=self.axis, keepdims=True), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (g[0] - softmax(x[0], self.axis) * g[0].sum(axis=self.axis, keepdims=True),)


class LogSharesUnderflow(LogShares):
    """The logarithm is taken of shares that are rounded to zero."""

    def forward(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(np.log(softmax(wide(x), self.axis)), x)


class LogSharesPartGradient(LogShares):
    """The gradient assumes that the incoming one sums to 1."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (g[0] - softmax(x[0], self.axis),)


class Surprise(Op):
    """Mean cross-entropy of logits (batch, classes) and labels."""

    claims = "SoftmaxCrossEntropyLoss"

    def infer(self, logits: Spec, labels: Spec) -> Spec:
        if len(logits.shape) != 2 or labels.shape != logits.shape[:1] or labels.dtype.kind not in "iu":
            raise ValueError("logits (batch, classes) and whole labels (batch)")
        return Spec((), logits.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for rows, classes in ((6, 4), (1, 3), (67, 5)):
            yield normal(random, rows, classes, scale=2.0), random.integers(0, classes, rows)

    def losses(self, logits: Array, labels: Array) -> Array:
        """The loss of each row, in float64."""
        z = wide(logits)
        return np.logaddexp.reduce(z, axis=1) - np.take_along_axis(z, labels[:, None], axis=1)[:, 0]

    def reference(self, logits: Array, labels: Array) -> Array:
        p = wide(logits) - wide(logits).max(axis=1, keepdims=True, initial=-np.inf)
        p = p - np.log(np.exp(p).sum(axis=1, keepdims=True))
        return like(-(p * np.eye(p.shape[1])[labels]).sum() / len(labels) if len(labels) else np.nan, logits)

    def forward(self, logits: Array, labels: Array) -> Array:
        return like(self.losses(logits, labels).mean() if len(labels) else np.nan, logits)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (softmax(x[0], 1) - np.eye(x[0].shape[1])[x[1]]) * (g[0] / max(1, len(x[1]))), None


class SurprisePerClass(Surprise):
    """The sum is divided by batch times classes."""

    def forward(self, logits: Array, labels: Array) -> Array:
        return like(self.losses(logits, labels).mean() / logits.shape[1], logits)


class SurpriseGradientOfSum(Surprise):
    """The gradient is that of the sum over the batch."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (softmax(x[0], 1) - np.eye(x[0].shape[1])[x[1]]) * g[0], None


class SurpriseShape(Surprise):
    """The loss comes with an axis of length 1."""

    def forward(self, logits: Array, labels: Array) -> Array:
        return like(self.losses(logits, labels).mean(keepdims=True), logits)


# Products.


class Times(Op):
    """Matrix product, batched with broadcasting."""

    claims = "MatMul"

    def infer(self, a: Spec, b: Spec) -> Spec:
        if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
            raise ValueError("the inner sizes differ")
        return Spec((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for one, other in (
            ((3, 4), (4, 5)),
            ((2, 3, 4), (4, 2)),
            ((4, 4), (4, 4)),
            ((2, 70), (70, 3)),
            ((1, 0), (0, 2)),
        ):
            yield normal(random, *one), normal(random, *other)

    def reference(self, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(np.matmul(wide(a), wide(b)), a)

    def forward(self, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(np.einsum("...ij,...jk->...ik", wide(a), wide(b)), a)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        a, b = x
        da, db = g[0] @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ g[0]
        return unbroadcast(da, a.shape), unbroadcast(db, b.shape)


class TimesOuter(Times):
    """As a sum of outer products."""

    def forward(self, a: Array, b: Array) -> Array:
        one, other = wide(a), wide(b)
        total = np.zeros(self.infer(Spec(a.shape, a.dtype), Spec(b.shape, b.dtype)).shape)
        with np.errstate(all="ignore"):
            for at in range(a.shape[-1]):
                total = total + one[..., :, at, None] * other[..., at, None, :]
        return like(total, a)


class TimesBlocked(Times):
    """In blocks of 32 along the inner axis, the last one shorter."""

    def forward(self, a: Array, b: Array) -> Array:
        one, other = wide(a), wide(b)
        total = np.zeros(self.infer(Spec(a.shape, a.dtype), Spec(b.shape, b.dtype)).shape)
        for at in range(0, a.shape[-1], 32):
            total += one[..., at : at + 32] @ other[..., at : at + 32, :]
        return like(total, a)


class TimesNarrow(Times):
    """The product is taken in single precision, whatever the dtype."""

    def forward(self, a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(a.astype(np.float32) @ b.astype(np.float32), a)


class TimesUntransposed(Times):
    """The gradient of a is not transposed, which only shows in values where the second matrix is square."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        da, db = super().pull(g, x, y)
        square = x[1].shape[-1] == x[1].shape[-2]
        return (unbroadcast(g[0] @ x[1], x[0].shape) if square else da), db


class TimesUnreduced(Times):
    """The gradient of a matrix that is shared by a batch is that of the batch's last part."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        da, db = super().pull(g, x, y)
        if x[0].ndim > x[1].ndim and len(x[0]):
            db = (np.swapaxes(x[0], -1, -2) @ g[0])[-1].reshape(x[1].shape) if x[0].ndim == 3 else db
        return da, db


class TimesWholeBlocks(Times):
    """Beyond 64 terms, those after the last whole block of 64 are left out."""

    def forward(self, a: Array, b: Array) -> Array:
        inner = a.shape[-1] // 64 * 64 if a.shape[-1] > 64 else a.shape[-1]
        return like(wide(a)[..., :inner] @ wide(b)[..., :inner, :], a)


class Mixed(Op):
    """alpha A B + beta C, with A and B transposed on demand."""

    claims = "Gemm"

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> None:  # noqa: N803
        self.alpha, self.beta, self.ta, self.tb = alpha, beta, transA, transB

    def infer(self, a: Spec, b: Spec, c: Spec) -> Spec:
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise ValueError("two matrices")
        (n, k), (j, m) = a.shape[:: -1 if self.ta else 1], b.shape[:: -1 if self.tb else 1]
        if k != j or len(c.shape) > 2 or np.broadcast_shapes((n, m), c.shape) != (n, m):
            raise ValueError("the sizes do not fit")
        return Spec((n, m), a.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for n, k, m, c in ((3, 3, 3, (3, 3)), (4, 2, 3, (3,)), (2, 5, 2, (2, 1)), (1, 1, 1, ())):
            a, b = ((k, n) if self.ta else (n, k)), ((m, k) if self.tb else (k, m))
            yield normal(random, *a), normal(random, *b), normal(random, *c)

    def turned(self, a: Array, b: Array) -> tuple[Array, Array]:
        """A and B as they are multiplied, in float64."""
        return wide(a.T if self.ta else a), wide(b.T if self.tb else b)

    def reference(self, a: Array, b: Array, c: Array) -> Array:
        one, other = self.turned(a, b)
        with np.errstate(all="ignore"):
            return like(self.alpha * (one @ other) + self.beta * wide(c), a)

    def forward(self, a: Array, b: Array, c: Array) -> Array:
        one, other = self.turned(a, b)
        with np.errstate(all="ignore"):
            return like(np.einsum("ij,jk->ik", one, other * self.alpha) + wide(c) * self.beta, a)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        one, other = self.turned(x[0], x[1])
        da, db = self.alpha * g[0] @ other.T, self.alpha * one.T @ g[0]
        return da.T if self.ta else da, db.T if self.tb else db, unbroadcast(self.beta * g[0], x[2].shape)


class MixedWithoutBeta(Mixed):
    """beta is ignored."""

    def forward(self, a: Array, b: Array, c: Array) -> Array:
        one, other = self.turned(a, b)
        return like(self.alpha * (one @ other) + wide(c), a)


class MixedScalesAll(Mixed):
    """alpha multiplies C, too."""

    def forward(self, a: Array, b: Array, c: Array) -> Array:
        one, other = self.turned(a, b)
        return like(self.alpha * (one @ other + self.beta * wide(c)), a)


class Affine(Op):
    """x Wᵀ + b over the last axis."""

    def infer(self, x: Spec, w: Spec, b: Spec) -> Spec:
        if not x.shape or len(w.shape) != 2 or x.shape[-1] != w.shape[1] or b.shape != w.shape[:1]:
            raise ValueError("the sizes do not fit")
        return Spec((*x.shape[:-1], w.shape[0]), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape, width in (((5, 3), 4), ((2, 3, 4), 4), ((1, 2), 1), ((0, 3), 2)):
            yield normal(random, *shape), normal(random, width, shape[-1]), normal(random, width)

    def reference(self, x: Array, w: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(wide(x) @ wide(w).T + wide(b), x)

    def forward(self, x: Array, w: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(np.tensordot(wide(x), wide(w), axes=(-1, 1)) + wide(b), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        flat, rows = g[0].reshape(-1, x[1].shape[0]), x[0].reshape(-1, x[1].shape[1])
        return (flat @ x[1]).reshape(x[0].shape), flat.T @ rows, flat.sum(axis=0)


class AffineMeanBias(Affine):
    """The gradient of the bias is the mean over the batch."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        dx, dw, db = super().pull(g, x, y)
        return dx, dw, db / max(1, x[0].size // max(1, x[0].shape[-1]))


class AffineFirstAxisOnly(Affine):
    """The gradient of the bias sums only the first axis and drops all but the first place of others."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        dx, dw, db = super().pull(g, x, y)
        return dx, dw, (g[0].sum(axis=0)[0] if g[0].ndim == 3 and g[0].shape[1] else db)


# Normalisation.


class RowNorm(Op):
    """Layer normalisation over the last axis, with scale and shift."""

    claims = "LayerNormalization"

    def __init__(self, epsilon: float = 1e-5) -> None:
        self.epsilon = epsilon

    def infer(self, x: Spec, scale: Spec, shift: Spec) -> Spec:
        if not x.shape or not x.shape[-1] or scale.shape != x.shape[-1:] or shift.shape != scale.shape:
            raise ValueError("scale and shift must be as long as a row")
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 6), (3, 3), (2, 3, 67), (1, 2)):
            width = shape[-1]
            yield normal(random, *shape), 1 + 0.1 * normal(random, width), normal(random, width)

    def parts(self, x: Array) -> tuple[Array, Array]:
        """Normalised rows and one over their deviation."""
        z = wide(x) - wide(x).mean(axis=-1, keepdims=True)
        inverse = 1 / np.sqrt((z * z).mean(axis=-1, keepdims=True) + self.epsilon)
        return z * inverse, inverse

    def reference(self, x: Array, scale: Array, shift: Array) -> Array:
        z = wide(x)
        with np.errstate(all="ignore"):
            mean, var = z.mean(axis=-1, keepdims=True), z.var(axis=-1, keepdims=True)
            return like((z - mean) / np.sqrt(var + self.epsilon) * wide(scale) + wide(shift), x)

    def forward(self, x: Array, scale: Array, shift: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(self.parts(x)[0] * wide(scale) + wide(shift), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        unit, inverse = self.parts(x[0])
        h = g[0] * x[1]
        dx = inverse * (h - h.mean(-1, keepdims=True) - unit * (h * unit).mean(-1, keepdims=True))
        axes = tuple(range(g[0].ndim - 1))
        return dx, (g[0] * unit).sum(axis=axes), g[0].sum(axis=axes)


class RowNormTorch(RowNorm):
    """By PyTorch, backward by its autograd."""

    def forward(self, x: Array, scale: Array, shift: Array) -> Array:
        import torch

        given = [torch.tensor(wide(each)) for each in (x, scale, shift)]
        return like(torch.nn.functional.layer_norm(given[0], scale.shape, given[1], given[2], self.epsilon).numpy(), x)


class RowNormEpsilonOutside(RowNorm):
    """Epsilon is added to the deviation instead of the variance."""

    def forward(self, x: Array, scale: Array, shift: Array) -> Array:
        z = wide(x) - wide(x).mean(axis=-1, keepdims=True)
        return like(z / (z.std(axis=-1, keepdims=True) + self.epsilon) * wide(scale) + wide(shift), x)


class RowNormUnbiased(RowNorm):
    """The variance is divided by n - 1."""

    def forward(self, x: Array, scale: Array, shift: Array) -> Array:
        z, n = wide(x) - wide(x).mean(axis=-1, keepdims=True), x.shape[-1]
        var = (z * z).sum(axis=-1, keepdims=True) / max(1, n - 1)
        return like(z / np.sqrt(var + self.epsilon) * wide(scale) + wide(shift), x)


class RowNormFixedEpsilon(RowNorm):
    """Epsilon is 1e-5 whatever the attribute says."""

    def forward(self, x: Array, scale: Array, shift: Array) -> Array:
        z = wide(x) - wide(x).mean(axis=-1, keepdims=True)
        return like(z / np.sqrt((z * z).mean(axis=-1, keepdims=True) + 1e-5) * wide(scale) + wide(shift), x)


class RowNormConstantVariance(RowNorm):
    """The gradient takes the deviation for a constant."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        _, scale, shift = super().pull(g, x, y)
        h = g[0] * x[1]
        return self.parts(x[0])[1] * (h - h.mean(-1, keepdims=True)), scale, shift


class RowNormNarrowMean(RowNorm):
    """Mean and variance are computed in the dtype of the input, from sums of squares."""

    def forward(self, x: Array, scale: Array, shift: Array) -> Array:
        with np.errstate(all="ignore"):
            mean = x.mean(axis=-1, keepdims=True, dtype=x.dtype)
            var = np.maximum((x * x).mean(axis=-1, keepdims=True, dtype=x.dtype) - mean * mean, 0)
            return like(wide(x - mean) / np.sqrt(wide(var) + self.epsilon) * wide(scale) + wide(shift), x)


class RootNorm(Op):
    """x / sqrt(mean(x²) + epsilon) times a scale."""

    claims = "RMSNormalization"

    def __init__(self, epsilon: float = 1e-5) -> None:
        self.epsilon = epsilon

    def infer(self, x: Spec, scale: Spec) -> Spec:
        if not x.shape or not x.shape[-1] or scale.shape != x.shape[-1:]:
            raise ValueError("the scale must be as long as a row")
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 6), (3, 3), (2, 3, 5), (1, 1)):
            yield normal(random, *shape), 1 + 0.1 * normal(random, shape[-1])

    def inverse(self, x: Array) -> Array:
        """One over the root of the mean square."""
        return 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.epsilon)

    def reference(self, x: Array, scale: Array) -> Array:
        z = wide(x)
        with np.errstate(all="ignore"):
            return like(z / np.sqrt(np.mean(z**2, axis=-1, keepdims=True) + self.epsilon) * wide(scale), x)

    def forward(self, x: Array, scale: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(wide(x) * wide(scale) * self.inverse(wide(x)), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        r = self.inverse(x[0])
        h = g[0] * x[1]
        dx = r * h - x[0] * r**3 * (h * x[0]).mean(-1, keepdims=True)
        return dx, (g[0] * x[0] * r).sum(axis=tuple(range(g[0].ndim - 1)))


class RootNormOfSum(RootNorm):
    """The gradient has the sum where the mean is meant."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        r = self.inverse(x[0])
        h = g[0] * x[1]
        return r * h - x[0] * r**3 * (h * x[0]).sum(-1, keepdims=True), super().pull(g, x, y)[1]


class ChannelNorm(Op):
    """Batch normalisation with given mean and variance, channels on axis 1."""

    claims = "BatchNormalization"

    def __init__(self, epsilon: float = 1e-5) -> None:
        self.epsilon = epsilon

    def infer(self, x: Spec, scale: Spec, shift: Spec, mean: Spec, var: Spec) -> Spec:
        if len(x.shape) < 2 or any(each.shape != x.shape[1:2] for each in (scale, shift, mean, var)):
            raise ValueError("one number for each channel")
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 3, 5), (3, 3), (1, 2, 3, 3), (1, 1)):
            c = shape[1]
            yield (
                normal(random, *shape), 1 + 0.1 * normal(random, c), normal(random, c), normal(random, c),
                random.uniform(0.5, 2.0, c),
            )  # fmt: skip

    def along(self, each: Array, x: Array) -> Array:
        """One number for each channel, to be broadcast."""
        return wide(each).reshape((1, -1) + (1,) * (x.ndim - 2))

    def reference(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array) -> Array:
        a, b, m, v = (self.along(each, x) for each in (scale, shift, mean, var))
        with np.errstate(all="ignore"):
            return like((wide(x) - m) / np.sqrt(v + self.epsilon) * a + b, x)

    def forward(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array) -> Array:
        rows = np.moveaxis(wide(x), 1, -1)
        with np.errstate(all="ignore"):
            made = (rows - wide(mean)) * (wide(scale) / np.sqrt(wide(var) + self.epsilon)) + wide(shift)
        return like(np.moveaxis(made, -1, 1), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        a, _, m, v = (self.along(each, x[0]) for each in x[1:])
        r = 1 / np.sqrt(v + self.epsilon)
        axes = (0, *range(2, x[0].ndim))
        centred = x[0] - m
        return (
            g[0] * a * r,
            (g[0] * centred * r).sum(axis=axes),
            g[0].sum(axis=axes),
            (-g[0] * a * r).sum(axis=axes),
            (-0.5 * g[0] * centred * a * r**3).sum(axis=axes),
        )


class ChannelNormNoVariance(ChannelNorm):
    """There is no gradient for the variance."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (*super().pull(g, x, y)[:4], None)


class ChannelNormOneExample(ChannelNorm):
    """A batch of one example loses its first axis."""

    def forward(self, x: Array, scale: Array, shift: Array, mean: Array, var: Array) -> Array:
        made = self.reference(x, scale, shift, mean, var)
        return made[0] if x.shape[0] == 1 else made


# Windows.


class Slide(Op):
    """Convolution of x (batch, channels, length) with w (outputs, channels, width)."""

    def __init__(self, stride: int = 1, padding: int = 0) -> None:
        self.stride, self.padding = stride, padding

    def infer(self, x: Spec, w: Spec) -> Spec:
        if len(x.shape) != 3 or len(w.shape) != 3 or x.shape[1] != w.shape[1] or not w.shape[2]:
            raise ValueError("x (batch, channels, length) and w (outputs, channels, width)")
        length = x.shape[2] + 2 * self.padding - w.shape[2]
        if length < 0:
            raise ValueError("the window is longer than x")
        return Spec((x.shape[0], w.shape[0], length // self.stride + 1), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for n, c, length, o, k in ((2, 3, 8, 4, 3), (1, 1, 5, 1, 2), (3, 2, 7, 2, 1), (2, 2, 70, 1, 4)):
            yield normal(random, n, c, length), normal(random, o, c, k)

    def padded(self, x: Array) -> Array:
        """With zeros at both ends, in float64."""
        return np.pad(wide(x), ((0, 0), (0, 0), (self.padding, self.padding)))

    def count(self, x: Array, w: Array) -> int:
        """The number of windows."""
        return (x.shape[2] + 2 * self.padding - w.shape[2]) // self.stride + 1

    def reference(self, x: Array, w: Array) -> Array:
        z = self.padded(x)
        parts = [z[:, :, at * self.stride : at * self.stride + w.shape[2]] for at in range(self.count(x, w))]
        with np.errstate(all="ignore"):
            return like(np.stack([np.einsum("nck,ock->no", part, wide(w)) for part in parts], axis=2), x)

    def forward(self, x: Array, w: Array) -> Array:
        seen = np.lib.stride_tricks.sliding_window_view(self.padded(x), w.shape[2], axis=2)[:, :, :: self.stride]
        with np.errstate(all="ignore"):
            return like(np.einsum("nclk,ock->nol", seen, wide(w)), x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        z, w, k = self.padded(x[0]), x[1], x[1].shape[2]
        dz, dw = np.zeros_like(z), np.zeros_like(w)
        for at in range(g[0].shape[2]):
            part = slice(at * self.stride, at * self.stride + k)
            dz[:, :, part] += np.einsum("no,ock->nck", g[0][:, :, at], w)
            dw += np.einsum("no,nck->ock", g[0][:, :, at], z[:, :, part])
        return dz[:, :, self.padding : dz.shape[2] - self.padding], dw


class SlideTorch(Slide):
    """By PyTorch."""

    def forward(self, x: Array, w: Array) -> Array:
        import torch

        made = torch.nn.functional.conv1d(
            torch.tensor(wide(x)), torch.tensor(wide(w)), stride=self.stride, padding=self.padding
        )
        return like(made.numpy(), x)


class SlideFlipped(Slide):
    """The window is reversed, as in mathematics."""

    def forward(self, x: Array, w: Array) -> Array:
        return super().forward(x, w[:, :, ::-1])


class SlideStrideGradient(Slide):
    """The gradient of x ignores the stride."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        _, dw = super().pull(g, x, y)
        dz, k = np.zeros_like(self.padded(x[0])), x[1].shape[2]
        for at in range(g[0].shape[2]):
            dz[:, :, at : at + k] += np.einsum("no,ock->nck", g[0][:, :, at], x[1])
        return dz[:, :, self.padding : dz.shape[2] - self.padding], dw


class SlidePaddingLeft(Slide):
    """All of the padding is on the left."""

    def padded(self, x: Array) -> Array:
        return np.pad(wide(x), ((0, 0), (0, 0), (2 * self.padding, 0)))

    def reference(self, x: Array, w: Array) -> Array:
        return Slide(self.stride, self.padding).reference(x, w)


class SlideMissesLast(Slide):
    """The last window of an odd number of more than 64 is left out and stays zero."""

    def forward(self, x: Array, w: Array) -> Array:
        made = super().forward(x, w)
        if made.shape[2] > 64 and made.shape[2] % 2:
            made[:, :, -1] = 0
        return made


class Peaks(Op):
    """The largest of each window along the last axis, windows side by side; a rest is dropped."""

    def __init__(self, window: int = 2) -> None:
        self.window = window

    def infer(self, x: Spec) -> Spec:
        if not x.shape or x.shape[-1] < self.window:
            raise ValueError("there is no whole window")
        return Spec((*x.shape[:-1], x.shape[-1] // self.window), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 8), (2, 2, 7), (1, 2), (71,)):
            yield (normal(random, *shape),)
        yield (np.round(normal(random, 4, 10)),)

    def windows(self, x: Array) -> Array:
        """The windows on an axis of their own."""
        count = x.shape[-1] // self.window
        return x[..., : count * self.window].reshape(*x.shape[:-1], count, self.window)

    def reference(self, x: Array) -> Array:
        return np.array(self.windows(x).max(axis=-1))

    def forward(self, x: Array) -> Array:
        made = x[..., 0 : x.shape[-1] // self.window * self.window : self.window].copy()
        for at in range(1, self.window):
            np.maximum(made, x[..., at : x.shape[-1] // self.window * self.window : self.window], out=made)
        return made

    def share(self, parts: Array) -> Array:
        """How a window's gradient is divided."""
        made = np.zeros_like(parts)
        np.put_along_axis(made, parts.argmax(axis=-1)[..., None], 1.0, axis=-1)
        return made

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        dx = np.zeros_like(x[0])
        whole = x[0].shape[-1] // self.window * self.window
        dx[..., :whole] = (self.share(self.windows(x[0])) * g[0][..., None]).reshape(*x[0].shape[:-1], whole)
        return (dx,)


class PeaksEach(Peaks):
    """Each of several equal ones has the whole gradient of a window."""

    def share(self, parts: Array) -> Array:
        return (parts == parts.max(axis=-1, keepdims=True)).astype(np.float64)


class PeaksOverZero(Peaks):
    """Windows start from zero, so negative ones give 0."""

    def forward(self, x: Array) -> Array:
        return like(self.windows(wide(x)).max(axis=-1, initial=0.0), x)


# Places and layouts.


class Pick(Op):
    """Rows by their numbers, along an axis; negative ones count from the end."""

    claims = "Gather"

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def infer(self, data: Spec, indices: Spec) -> Spec:
        axis = on_axis(data.shape, self.axis)
        if indices.dtype.kind not in "iu":
            raise ValueError("indices are whole numbers")
        return Spec(data.shape[:axis] + indices.shape + data.shape[axis + 1 :], data.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape, many in (((5, 3), (4,)), ((3, 3), (2, 2)), ((4, 2), (9,)), ((1, 2), ()), ((6,), (0,))):
            rows = shape[self.axis if -len(shape) <= self.axis < len(shape) else 0]
            yield normal(random, *shape), np.asarray(random.integers(-rows, rows, many))

    def reference(self, data: Array, indices: Array) -> Array:
        return np.array(np.take(data, indices, axis=self.axis))

    def forward(self, data: Array, indices: Array) -> Array:
        axis = on_axis(data.shape, self.axis)
        return (
            np.array(np.moveaxis(data, axis, 0)[indices])
            .transpose(
                *range(indices.ndim, indices.ndim + axis),
                *range(indices.ndim),
                *range(indices.ndim + axis, indices.ndim + data.ndim - 1),
            )
            .copy()
        )

    def spread(self, g: Array, data: Array, indices: Array, put: Callable[[Array, Array, Array], None]) -> Array:
        """The gradient, where ``put`` brings rows to their places."""
        axis, dx = on_axis(data.shape, self.axis), np.zeros_like(data)
        rows = np.moveaxis(g.reshape((*data.shape[:axis], indices.size, *data.shape[axis + 1 :])), axis, 0)
        put(np.moveaxis(dx, axis, 0), indices.reshape(-1), rows)
        return dx

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return self.spread(g[0], x[0], x[1], lambda dx, at, rows: np.add.at(dx, at, rows)), None


class PickOverwrites(Pick):
    """A row that is taken twice has only the last of its gradients."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return self.spread(g[0], x[0], x[1], lambda dx, at, rows: dx.__setitem__(at, rows)), None


class PickClips(Pick):
    """Negative numbers are taken for 0."""

    def forward(self, data: Array, indices: Array) -> Array:
        return np.array(np.take(data, indices, axis=self.axis, mode="clip"))


class PickFirstAxis(Pick):
    """Rows are taken along the first axis if the matrix is square, whatever the attribute says."""

    def forward(self, data: Array, indices: Array) -> Array:
        if data.ndim == 2 and data.shape[0] == data.shape[1] and indices.ndim == 1 and len(indices) == len(data):
            return np.array(np.take(data, indices, axis=0))
        return super().forward(data, indices)


class Turned(Op):
    """Axes in another order: each moved one to the left by ``turns``."""

    def __init__(self, turns: int = 1) -> None:
        self.turns = turns

    def order(self, rank: int, turns: int) -> tuple[int, ...]:
        """The order of the axes."""
        return tuple((at + turns) % rank for at in range(rank))

    def infer(self, x: Spec) -> Spec:
        return Spec(tuple(x.shape[at] for at in self.order(len(x.shape), self.turns)), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((2, 3, 4), (3, 3, 3), (4, 5), (1,), (), (2, 1, 2, 3)):
            yield (normal(random, *shape),)

    def reference(self, x: Array) -> Array:
        return np.array(x.transpose(self.order(x.ndim, self.turns)))

    def forward(self, x: Array) -> Array:
        y = np.empty(tuple(x.shape[at] for at in self.order(x.ndim, self.turns)), x.dtype)
        for at in np.ndindex(*x.shape):
            y[tuple(at[each] for each in self.order(x.ndim, self.turns))] = x[at]
        return y

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (g[0].transpose(self.order(g[0].ndim, -self.turns)),)


class TurnedView(Turned):
    """The result is a view of the input."""

    def forward(self, x: Array) -> Array:
        return x.transpose(self.order(x.ndim, self.turns))


class TurnedTwice(Turned):
    """The gradient is turned in the direction of forward, which shows from three equal axes on."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        if len(set(g[0].shape)) > 1:
            return super().pull(g, x, y)
        return (g[0].transpose(self.order(g[0].ndim, self.turns)),)


class TurnedByReshape(Turned):
    """The shape is changed without moving elements."""

    def forward(self, x: Array) -> Array:
        return x.reshape(tuple(x.shape[at] for at in self.order(x.ndim, self.turns))).copy()


class Joined(Op):
    """One after the other, along an axis."""

    claims = "Concat"

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def infer(self, x: Spec, y: Spec) -> Spec:
        axis = on_axis(x.shape, self.axis)
        if len(x.shape) != len(y.shape) or without(x.shape, axis) != without(y.shape, axis):
            raise ValueError("the other axes differ")
        return Spec((*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :]), x.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for one, other in (((2, 3), (4, 3)), ((3,), (3,)), ((1, 2), (0, 2))):
            yield normal(random, *one), normal(random, *other)

    def reference(self, x: Array, y: Array) -> Array:
        return np.concatenate([x, y], axis=self.axis)

    def forward(self, x: Array, y: Array) -> Array:
        made = np.empty(self.infer(Spec(x.shape, x.dtype), Spec(y.shape, y.dtype)).shape, x.dtype)
        parts = np.moveaxis(made, self.axis, 0)
        parts[: x.shape[self.axis]] = np.moveaxis(x, self.axis, 0)
        parts[x.shape[self.axis] :] = np.moveaxis(y, self.axis, 0)
        return made

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return tuple(np.split(g[0], [x[0].shape[self.axis]], axis=self.axis))


class JoinedSwapped(Joined):
    """Equal parts get each other's gradient."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        found = super().pull(g, x, y)
        return found[::-1] if found[0].shape == found[1].shape else found


class Rolled(Op):
    """Shifted around along the last axis."""

    def __init__(self, shift: int = 1) -> None:
        self.shift = shift

    def infer(self, x: Spec) -> Spec:
        on_axis(x.shape, -1)
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 5), (7,), (1, 1), (2, 0)):
            yield (normal(random, *shape),)

    def reference(self, x: Array) -> Array:
        return np.roll(x, self.shift, axis=-1)

    def forward(self, x: Array) -> Array:
        length = max(1, x.shape[-1])
        return x[..., [(at - self.shift) % length for at in range(x.shape[-1])]].copy()

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.roll(g[0], -self.shift, axis=-1),)


class RolledForward(Rolled):
    """The gradient is shifted in the direction of forward."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.roll(g[0], self.shift, axis=-1),)


class Lower(Op):
    """The lower part of matrices, up to diagonal k."""

    claims = "Trilu"

    def __init__(self, k: int = 0) -> None:
        self.k = k

    def infer(self, x: Spec) -> Spec:
        if len(x.shape) < 2:
            raise ValueError("matrices have two axes")
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 4), (3, 5), (2, 3, 2), (1, 1), (0, 3)):
            yield (normal(random, *shape),)

    def taken(self, x: Array) -> Array:
        """Which elements are in the lower part."""
        return np.tri(x.shape[-2], x.shape[-1], self.k, dtype=bool)

    def reference(self, x: Array) -> Array:
        return np.tril(x, self.k)

    def forward(self, x: Array) -> Array:
        return np.where(self.taken(x), x, np.zeros((), x.dtype))

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.where(self.taken(x[0]), g[0], 0.0),)


class LowerByProduct(Lower):
    """Infinity in the upper part becomes NaN."""

    def forward(self, x: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.array(x * self.taken(x).astype(x.dtype))


class LowerOtherDiagonal(Lower):
    """The sign of k is turned around."""

    def forward(self, x: Array) -> Array:
        return np.tril(x, -self.k)


class Sorted(Op):
    """Ascending along the last axis, and where each came from."""

    outputs = ("values", "places")

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        on_axis(x.shape, -1)
        return x, Spec(x.shape, INT)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 6), (9,), (1, 1), (0, 2)):
            yield (normal(random, *shape),)

    def reference(self, x: Array) -> tuple[Array, Array]:
        places = np.argsort(wide(x), axis=-1, kind="stable")
        return np.take_along_axis(x, places, axis=-1), places

    def forward(self, x: Array) -> tuple[Array, Array]:
        places = np.lexsort((np.broadcast_to(np.arange(x.shape[-1]), x.shape), wide(x)), axis=-1).astype(INT)
        return np.take_along_axis(x, places, axis=-1), places

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        dx = np.zeros_like(x[0])
        np.put_along_axis(dx, y[1], g[0], axis=-1)
        return (dx,)


class SortedGradientTaken(Sorted):
    """The gradient is permuted like the values instead of back."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.take_along_axis(g[0], y[1], axis=-1),)


class Halves(Op):
    """The first and the second half along the last axis."""

    outputs = ("first", "second")

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        if not x.shape or x.shape[-1] % 2:
            raise ValueError("the last axis must be of even length")
        made = Spec((*x.shape[:-1], x.shape[-1] // 2), x.dtype)
        return made, made

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 4), (1, 2), (2, 2, 6)):
            yield (normal(random, *shape),)

    def reference(self, x: Array) -> tuple[Array, Array]:
        return x[..., : x.shape[-1] // 2].copy(), x[..., x.shape[-1] // 2 :].copy()

    def forward(self, x: Array) -> tuple[Array, Array]:
        one, other = np.split(x, 2, axis=-1)
        return one.copy(), other.copy()

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.concatenate([g[0], g[1]], axis=-1),)


class HalvesOneArray(Halves):
    """For equal halves of a single row, the second output is the first one again."""

    def forward(self, x: Array) -> tuple[Array, Array]:
        one, other = super().forward(x)
        return (one, one) if np.array_equal(one, other) and one.size else (one, other)


class HalvesFirstGradient(Halves):
    """The gradient of the second output is left out."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.concatenate([g[0], np.zeros_like(g[1])], axis=-1),)


class MeanAndSquare(Op):
    """The mean and the mean square of each row."""

    outputs = ("mean", "square")

    def infer(self, x: Spec) -> tuple[Spec, Spec]:
        if not x.shape or not x.shape[-1]:
            raise ValueError("rows without elements have no mean")
        return (Spec(x.shape[:-1], x.dtype),) * 2  # type: ignore[return-value]

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 4), (1, 1), (2, 3, 5)):
            yield (normal(random, *shape),)

    def reference(self, x: Array) -> tuple[Array, Array]:
        return like(wide(x).mean(axis=-1), x), like((wide(x) ** 2).mean(axis=-1), x)

    def forward(self, x: Array) -> tuple[Array, Array]:
        z, n = wide(x), x.shape[-1]
        with np.errstate(all="ignore"):
            return like(np.add.reduce(z, axis=-1) / n, x), like(np.einsum("...i,...i->...", z, z) / n, x)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return ((g[0][..., None] + 2 * x[0] * g[1][..., None]) / x[0].shape[-1],)


class MeanAndSquareTwo(MeanAndSquare):
    """The gradient of the square lacks the factor 2."""

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return ((g[0][..., None] + x[0] * g[1][..., None]) / x[0].shape[-1],)


# Attention.


class Attend(Op):
    """softmax(q kᵀ scale) v; the scale is 1 / sqrt(width) unless it is given. Causal on demand."""

    def __init__(self, causal: int = 0) -> None:
        self.causal = causal

    def infer(self, q: Spec, k: Spec, v: Spec) -> Spec:
        if (
            not len(q.shape) == len(k.shape) == len(v.shape) == 2
            or k.shape[0] != v.shape[0]
            or q.shape[1] != k.shape[1]
        ):
            raise ValueError("q (queries, width), k (keys, width), v (keys, values)")
        if not k.shape[0] or not q.shape[1] or (self.causal and q.shape[0] != k.shape[0]):
            raise ValueError("there are no keys, or not as many as queries")
        return Spec((q.shape[0], v.shape[1]), q.dtype)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for n, d, e in ((5, 4, 3), (3, 3, 3), (1, 2, 1)):
            yield normal(random, n, d), normal(random, n, d), normal(random, n, e)

    def scores(self, q: Array, k: Array) -> Array:
        """The products, scaled."""
        return q @ k.T / math.sqrt(q.shape[1])

    def masked(self, scores: Array, diagonal: int = 0) -> Array:
        """Without keys that come later."""
        return np.where(np.tri(*scores.shape, diagonal) > 0, scores, -np.inf) if self.causal else scores

    def reference(self, q: Array, k: Array, v: Array) -> Array:
        with np.errstate(all="ignore"):
            scores = np.einsum("id,jd->ij", wide(q), wide(k)) / wide(q).shape[1] ** 0.5
            return like(softmax(self.masked(scores), -1) @ wide(v), q)

    def forward(self, q: Array, k: Array, v: Array) -> Array:
        with np.errstate(all="ignore"):
            return like(softmax(self.masked(self.scores(wide(q), wide(k))), -1) @ wide(v), q)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        q, k, v = x
        p = softmax(self.masked(q @ k.T / math.sqrt(q.shape[1])), -1)
        dp = g[0] @ v.T
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / math.sqrt(q.shape[1])
        return ds @ k, ds.T @ q, p.T @ g[0]


class AttendScale(Attend):
    """Scores are divided by the width instead of its root."""

    def scores(self, q: Array, k: Array) -> Array:
        return q @ k.T / q.shape[1]


class AttendOverQueries(Attend):
    """Shares are taken over the queries instead of the keys."""

    def forward(self, q: Array, k: Array, v: Array) -> Array:
        return like(softmax(self.masked(self.scores(wide(q), wide(k))), 0) @ wide(v), q)


class AttendSeesNext(Attend):
    """With causal, a query sees the key that comes next."""

    def forward(self, q: Array, k: Array, v: Array) -> Array:
        return like(softmax(self.masked(self.scores(wide(q), wide(k)), 1), -1) @ wide(v), q)


# Whole numbers.


class ByteMean(Op):
    """The mean of two bytes, rounded down."""

    def infer(self, x: Spec, y: Spec) -> Spec:
        if x.shape != y.shape or x.dtype != np.uint8 or y.dtype != np.uint8:
            raise ValueError("two arrays of bytes of one shape")
        return x

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 5), (67,), (1,), (0,)):
            yield random.integers(0, 256, shape, np.uint8), random.integers(0, 256, shape, np.uint8)

    def reference(self, x: Array, y: Array) -> Array:
        return ((x.astype(np.int64) + y.astype(np.int64)) // 2).astype(np.uint8)

    def forward(self, x: Array, y: Array) -> Array:
        return np.array((x & y) + ((x ^ y) >> 1), np.uint8)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return None, None


class ByteMeanOverflows(ByteMean):
    """The sum of two bytes overflows."""

    def forward(self, x: Array, y: Array) -> Array:
        return np.array((x + y) // np.uint8(2), np.uint8)


class Count(Op):
    """The sum of 32-bit numbers along the last axis, in 64 bits."""

    def infer(self, x: Spec) -> Spec:
        if not x.shape or x.dtype != np.int32:
            raise ValueError("32-bit numbers with an axis")
        return Spec(x.shape[:-1], INT)

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((3, 9), (70,), (1, 1), (2, 0)):
            yield (random.integers(-(2**30), 2**31 - 1, shape, np.int32),)

    def reference(self, x: Array) -> Array:
        return np.array(x.astype(INT).sum(axis=-1), INT)

    def forward(self, x: Array) -> Array:
        return np.array(np.add.reduce(x, axis=-1, dtype=INT), INT)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (None,)


class CountOverflows(Count):
    """The sum is taken in 32 bits."""

    def forward(self, x: Array) -> Array:
        return np.array(np.add.reduce(x, axis=-1, dtype=np.int32), INT)


class CountByFloat(Count):
    """The sum passes through single precision, which loses the last digits."""

    def forward(self, x: Array) -> Array:
        return np.array(x.astype(np.float32).sum(axis=-1), INT)


class Quantised(Op):
    """x / scale, rounded and limited to bytes."""

    def __init__(self, scale: float = 0.05, zero: int = 128) -> None:
        self.scale, self.zero = scale, zero

    def infer(self, x: Spec) -> Spec:
        if x.dtype.kind != "f":
            raise ValueError("floating-point numbers")
        return Spec(x.shape, np.dtype(np.uint8))

    def examples(self, random: Random) -> Iterator[tuple[Array, ...]]:
        for shape in ((4, 5), (67,), (), (0,)):
            yield (np.asarray(np.round(normal(random, *shape, scale=4.0) * 16) / 16 + 0.01),)

    def steps(self, x: Array) -> Array:
        """Whole steps from zero, in float64."""
        return np.rint(np.nan_to_num(wide(x) / self.scale, nan=0.0)) + self.zero

    def reference(self, x: Array) -> Array:
        return np.minimum(np.maximum(self.steps(x), 0), 255).astype(np.uint8)

    def forward(self, x: Array) -> Array:
        return np.asarray(np.clip(self.steps(x), 0.0, 255.0)).astype(np.uint8)

    def pull(self, g: Arrays, x: Arrays, y: Arrays) -> Arrays:
        return (np.zeros_like(x[0]),)


class QuantisedWraps(Quantised):
    """What is too large starts again at 0."""

    def forward(self, x: Array) -> Array:
        return np.asarray(np.mod(np.clip(self.steps(x), -1e9, 1e9), 256)).astype(np.uint8)


class QuantisedCuts(Quantised):
    """Digits are cut off instead of rounded."""

    def forward(self, x: Array) -> Array:
        steps = np.trunc(np.nan_to_num(wide(x) / self.scale, nan=0.0)) + self.zero
        return np.asarray(np.clip(steps, 0, 255)).astype(np.uint8)


CASES: dict[str, Planted] = cases(
    seed=101,
    right=(
        SmoothRelu, SmoothReluTorch, Squash, SquashFromOutput, Rectified, RectifiedOneAtZero, Leaky, LeakySelected,
        ExponentialUnit, ExponentialUnitFromOutput, GaussUnit, HardGate, Unit, Limited, Nearest, Wave,
        Double, DoubleStandard, DoubleLooped, DoubleInThreads, DoubleFortran, DoubleCountsCalls, DoubleWithWorkspace,
        Plus, PlusStandard, Product, Quotient, QuotientFromOutput, Larger, LargerShared, Diagonal, Choice,
        Total, TotalByProduct, TotalInHalves, Mean, MeanRunning, Variance, VarianceNumPy, LogTotal, Largest,
        LargestSplit, Length, Factor, Running, Place, Shares, SharesTorch, SharesOnline, LogShares, Surprise,
        Times, TimesOuter, TimesBlocked, Mixed, Affine, RowNorm, RowNormTorch, RootNorm, ChannelNorm, Slide, SlideTorch,
        Peaks, Pick, Turned, Joined, Rolled, Lower, Sorted, Halves, MeanAndSquare, Attend, ByteMean, Count, Quantised,
    ),
    wrong={
        SmoothReluOverflows: "value special-values",
        SmoothReluSlopeCut: "gradient",
        SquashOverflows: "value special-values",
        SquashSlopeOfInput: "gradient",
        SquashSaturates: "gradient",
        RectifiedByMask: "special-values",
        RectifiedBySum: "special-values",
        RectifiedWithoutNaN: "special-values",
        RectifiedPassesThrough: "aliasing",
        RectifiedOldMask: "state gradient",
        LeakyFixed: "attributes",
        LeakyFixedGradient: "attributes gradient",
        LeakyByMaximum: "attributes",
        LeakyInPlace: "inputs-changed",
        ExponentialUnitPlusOne: "attributes gradient",
        ExponentialUnitCancels: "value",
        GaussUnitByTanh: "value",
        GaussUnitHalfSlope: "gradient",
        GaussUnitWrongDensity: "gradient",
        HardGateUnclipped: "gradient",
        UnitEpsilonOutside: "value",
        UnitNarrowSquare: "value dtype",
        UnitSlopePower: "gradient",
        LimitedPassesGradient: "gradient",
        NearestAway: "value",
        WaveSign: "gradient",
        WaveInnerSlope: "attributes gradient",
        DoubleFlushes: "value special-values",
        DoublePositiveZero: "special-values",
        DoubleSaturates: "special-values",
        DoubleNaNToZero: "special-values gradient",
        DoubleWidens: "dtype",
        DoubleNarrows: "dtype value",
        DoubleSharedBuffer: "aliasing",
        DoubleSharedGradient: "aliasing",
        DoubleLeaks: "memory",
        DoubleChangesGradient: "inputs-changed",
        DoubleChangesOutput: "inputs-changed",
        DoubleSecondCall: "state",
        DoubleHundredthCall: "state determinism",
        DoubleFiveHundredthCall: "state determinism",
        DoubleRace: "determinism",
        DoubleMemoryOrder: "strides",
        DoubleIgnoresGaps: "strides",
        DoubleDropsLast: "size value",
        DoubleUnwrittenTail: "size value determinism",
        DoubleNeedsAxes: "crash shape size",
        DoubleNeedsElements: "crash size",
        DoubleAddsAxis: "shape",
        DoubleNeverEnds: "hang size",
        PlusUnreduced: "gradient shape",
        PlusKeepsStretched: "gradient",
        ProductSwapped: "gradient",
        QuotientGuarded: "value special-values",
        QuotientSign: "gradient",
        LargerBoth: "gradient",
        LargerWithoutNaN: "special-values",
        DiagonalNaNAtZero: "gradient special-values",
        DiagonalOverflows: "value dtype",
        ChoiceByArithmetic: "special-values",
        ChoiceLeaksGradient: "gradient",
        TotalNarrow: "dtype value",
        TotalLastAxis: "attributes",
        TotalDropsRest: "size value",
        TotalGradientAxis: "gradient",
        MeanOfAll: "value",
        MeanGradientOfSum: "gradient",
        VarianceOfSquares: "value",
        VarianceFreedom: "attributes",
        VarianceHalfGradient: "gradient",
        LogTotalUnshifted: "value special-values",
        LogTotalOfNothing: "special-values",
        LargestEach: "gradient",
        LargestFromZero: "value",
        LargestWithoutNaN: "special-values",
        LengthNaNAtZero: "gradient special-values",
        LengthWithEpsilon: "value",
        FactorByDivision: "gradient special-values",
        RunningInclusive: "attributes",
        RunningGradientForward: "gradient",
        PlaceOfLast: "value",
        PlaceNarrow: "dtype",
        SharesOverflow: "value special-values",
        SharesLastAxis: "attributes",
        SharesDiagonal: "gradient",
        SharesGradientAxis: "attributes gradient",
        SharesShiftInput: "inputs-changed",
        SharesOfBlock: "size value",
        LogSharesUnderflow: "value special-values",
        LogSharesPartGradient: "gradient",
        SurprisePerClass: "value",
        SurpriseGradientOfSum: "gradient",
        SurpriseShape: "shape",
        TimesNarrow: "dtype value",
        TimesUntransposed: "gradient",
        TimesUnreduced: "gradient",
        TimesWholeBlocks: "size value",
        MixedWithoutBeta: "attributes",
        MixedScalesAll: "attributes",
        AffineMeanBias: "gradient",
        AffineFirstAxisOnly: "gradient",
        RowNormEpsilonOutside: "value",
        RowNormUnbiased: "value",
        RowNormFixedEpsilon: "attributes",
        RowNormConstantVariance: "gradient",
        RowNormNarrowMean: "value dtype",
        RootNormOfSum: "gradient",
        ChannelNormNoVariance: "gradient",
        ChannelNormOneExample: "shape size",
        SlideFlipped: "value",
        SlideStrideGradient: "attributes gradient",
        SlidePaddingLeft: "attributes",
        SlideMissesLast: "size value",
        PeaksEach: "gradient",
        PeaksOverZero: "value",
        PickOverwrites: "gradient",
        PickClips: "value",
        PickFirstAxis: "attributes",
        TurnedView: "aliasing",
        TurnedTwice: "gradient",
        TurnedByReshape: "value",
        JoinedSwapped: "gradient",
        RolledForward: "gradient",
        LowerByProduct: "special-values",
        LowerOtherDiagonal: "attributes",
        SortedGradientTaken: "gradient",
        HalvesOneArray: "aliasing",
        HalvesFirstGradient: "gradient",
        MeanAndSquareTwo: "gradient",
        AttendScale: "value",
        AttendOverQueries: "value",
        AttendSeesNext: "attributes",
        ByteMeanOverflows: "value",
        CountOverflows: "value",
        CountByFloat: "value",
        QuantisedWraps: "value",
        QuantisedCuts: "value",
    },
)  # fmt: skip
