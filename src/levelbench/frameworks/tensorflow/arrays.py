"""TensorFlow's tensors with the Array API standard, which operators, update rules and qualities are written against.

A ``tf.Tensor`` has no namespace, and TensorFlow's own NumPy behaviour is a switch for the whole process, so a tensor is
held by a :class:`TensorArray`. Types are NumPy's (or those of ``ml_dtypes``), and are promoted as NumPy does. An array
traced by ``tf.function`` has the sizes of the trace; asking for a value or size that it does not know is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, reduce
from math import prod
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from onnx import TensorProto, helper

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Array, DType, Function

_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_SMALL = ("bfloat16", "int4", "uint4", "float8_e4m3fn", "float8_e5m2")
DTYPES = frozenset([np.dtype(name) for name in _PLAIN] + [np.dtype(getattr(ml_dtypes, name)) for name in _SMALL])
"""The types that TensorFlow has kernels for; of other small ones it can only keep the bytes."""

Axes = int | Sequence[int] | None
Raw = Any
"""A ``tf.Tensor``."""


def numpy_dtype(code: int) -> DType:
    """The dtype for a ``TensorProto.DataType``; ``UnsupportedError`` if TensorFlow does not compute with it."""
    found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(code))
    if found not in DTYPES:
        raise no_type(TensorProto.DataType.Name(code))
    return found


def no_type(name: object) -> UnsupportedError:
    """The error for a type that TensorFlow does not compute with."""
    return UnsupportedError(f"type {name} on tensorflow", "TensorFlow has no kernels for it", "use another framework")


def from_numpy(host: NDArray[Any]) -> TensorArray:
    """An array of the same type and values."""
    if host.dtype not in DTYPES:
        raise no_type(host.dtype)
    return TensorArray(tf.constant(host))


def needs_value(found: str) -> UnsupportedError:
    """The error for a trace that would have to know a value."""
    return UnsupportedError("a graph of tensorflow", f"{found} depends on values", "use mode eager")


class TensorArray:
    """An immutable array: ``tensor`` with the operators, indices and attributes of the Array API standard.

    TensorFlow's own functions take it like a tensor.
    """

    __slots__ = ("tensor",)
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: Raw) -> None:
        self.tensor = tensor

    def __array_namespace__(self, api_version: str | None = None) -> ModuleType:
        return xp

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Raw:
        return self.tensor if dtype is None else tf.cast(self.tensor, dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = np.array(_known(self.tensor), dtype)
        # Writing to it would not change the tensor; who asks for a copy knows that.
        found.flags.writeable = copy is True
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        sizes = self.tensor.shape
        if sizes.rank is None or None in (found := tuple(sizes)):
            raise needs_value("a shape")
        return found

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> DType:
        """The type of the elements, as NumPy's."""
        return np.dtype(self.tensor.dtype.as_numpy_dtype)

    @property
    def device(self) -> str:
        """TensorFlow's name of the device."""
        return str(self.tensor.device)

    @property
    def T(self) -> TensorArray:  # noqa: N802  # the standard's name
        """With the axes in reverse order."""
        return TensorArray(tf.transpose(self.tensor))

    mT = property(lambda self: self.swapaxes(-1, -2))  # noqa: N815  # the standard's name

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[TensorArray]:
        return (self[at] for at in range(len(self)))

    def __bool__(self) -> bool:
        return bool(_known(self.tensor))

    def __int__(self) -> int:
        return int(_known(self.tensor))

    def __float__(self) -> float:
        return float(_known(self.tensor))

    def __index__(self) -> int:
        return int(_known(self.tensor))

    def __repr__(self) -> str:
        return f"TensorArray({self.tensor!r})"

    def item(self) -> Any:
        """The only element as a Python number."""
        return _known(self.tensor).item()

    def reshape(self, *shape: Any) -> TensorArray:
        """With another shape, given as numbers or as one sequence; one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int | np.integer) else shape
        return TensorArray(tf.reshape(self.tensor, [int(each) for each in sizes]))

    def swapaxes(self, first: int, second: int) -> TensorArray:
        """With two axes exchanged."""
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        return TensorArray(tf.transpose(self.tensor, order))

    def astype(self, dtype: Any) -> TensorArray:
        """Converted by TensorFlow's rules."""
        return astype(self, dtype)

    def __getitem__(self, key: Any) -> TensorArray:
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(each, TensorArray | np.ndarray | list) or tf.is_tensor(each) for each in keys):
            return TensorArray(_gathered(self, keys))
        return TensorArray(self.tensor[tuple(int(each) if isinstance(each, np.integer) else each for each in keys)])


class WeakNumber(TensorArray):
    """A number that becomes a part of a compiled program, but is promoted like Python's: a step, a learning rate."""

    __slots__ = ()


def _known(tensor: Raw) -> NDArray[Any]:
    if not hasattr(tensor, "numpy"):
        raise needs_value("a branch or a size")
    return np.asarray(tensor.numpy())


def raw(value: Any) -> Raw:
    """The tensor of an array, of a tensor itself, or made of NumPy's array or of a number."""
    if isinstance(value, TensorArray):
        return value.tensor
    return value if tf.is_tensor(value) else tf.constant(value)


def wrapped(value: Any) -> Any:
    """The array of a tensor; ``None`` and arrays as they are; NumPy's arrays as constants."""
    if value is None or isinstance(value, TensorArray):
        return value
    return TensorArray(value if tf.is_tensor(value) else tf.constant(value))


@cache
def _promoted(first: Any, second: Any) -> Any:
    return tf.as_dtype(np.promote_types(first.as_numpy_dtype, second.as_numpy_dtype))


def pair(a: Any, b: Any) -> tuple[Raw, Raw, type[TensorArray]]:
    """Two tensors of one type, and the class of what follows from them; a number takes the type of an array."""
    weak_a, weak_b = _is_weak(a), _is_weak(b)
    if weak_a and weak_b:
        return _double(a), _double(b), WeakNumber
    if weak_a:
        second = raw(b)
        return _like(a, second), second if _keeps(a, second) else tf.cast(second, tf.float64), TensorArray
    first = raw(a)
    if weak_b:
        return first if _keeps(b, first) else tf.cast(first, tf.float64), _like(b, first), TensorArray
    second = raw(b)
    if first.dtype != second.dtype:
        common = _promoted(first.dtype, second.dtype)
        first, second = tf.cast(first, common), tf.cast(second, common)
    return first, second, TensorArray


def _double(number: Any) -> Raw:
    return number.tensor if isinstance(number, WeakNumber) else tf.constant(number, tf.float64)


def _is_weak(value: Any) -> bool:
    return type(value) in (float, int, bool, WeakNumber)


def _keeps(number: Any, other: Raw) -> bool:
    """Whether the type of ``other`` holds the number: an integer array and a fraction make float64."""
    return bool(other.dtype.is_floating or other.dtype.is_complex or type(number) in (int, bool))


def _like(number: Any, other: Raw) -> Raw:
    kind = other.dtype if _keeps(number, other) else tf.float64
    if isinstance(number, WeakNumber):
        return tf.cast(number.tensor, kind)
    if kind == tf.bool and type(number) is not bool:
        return tf.constant(bool(number))
    return tf.constant(number, kind)


def _gathered(x: TensorArray, keys: tuple[Any, ...]) -> Raw:
    """NumPy's indexing with arrays: they are broadcast, and run over the axes that they index."""
    places = [at for at, each in enumerate(keys) if each is Ellipsis]
    if places:
        missing = x.ndim - sum(each is not None and each is not Ellipsis for each in keys)
        keys = (*keys[: places[0]], *[slice(None)] * missing, *keys[places[0] + 1 :])
    axes = [at for at, each in enumerate(keys) if not (each is None or isinstance(each, slice))]
    # Slices and new axes first; integers count as arrays.
    tensor = x.tensor[tuple(slice(None) if at in axes else each for at, each in enumerate(keys))]
    arrays = [tf.cast(raw(np.asarray(keys[at]) if isinstance(keys[at], list) else keys[at]), tf.int64) for at in axes]
    arrays = [tf.where(each < 0, each + tensor.shape[at], each) for at, each in zip(axes, arrays, strict=True)]
    shape = reduce(tf.broadcast_static_shape, (each.shape for each in arrays))
    index = tf.stack([tf.broadcast_to(each, shape) for each in arrays], -1)
    order = [*axes, *(at for at in range(tensor.shape.rank) if at not in axes)]
    found = tf.gather_nd(tensor if order == sorted(order) else tf.transpose(tensor, order), index)
    count, before = len(shape), axes[0]
    if before and axes == list(range(before, before + len(axes))):
        # Neighbouring arrays put their axes in the place of the first one.
        order = [*range(count, count + before), *range(count), *range(count + before, found.shape.rank)]
        found = tf.transpose(found, order)
    return found


# A graph keeps what it made with the channels last, so that no kernel transposes what another one has just transposed.


def channels_last(x: Raw) -> Raw:
    """(N, C, spatial...) as (N, spatial..., C), in which TensorFlow's kernels for the CPU compute."""
    kept = getattr(x, "_channels_last", None)
    return tf.transpose(x, [0, *range(2, len(x.shape)), 1]) if kept is None else kept


def channels_first(x: Raw) -> Raw:
    """The inverse."""
    found = tf.transpose(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])
    if not tf.executing_eagerly():
        found._channels_last = x
    return found


def in_either_order(function: Function) -> Function:
    """An element-wise function that follows the order of its arguments' channels."""

    def call(*given: Raw) -> Raw:
        if tf.executing_eagerly():
            return function(*given)
        ranks = {len(each.shape) for each in given if hasattr(each, "_channels_last")}
        known = ranks and all(each.shape.is_fully_defined() for each in given)
        if not known or ranks != {max(len(each.shape) for each in given)}:
            return function(*given)
        return channels_first(function(*[_beside(each, *ranks) for each in given]))

    return call


def _beside(x: Raw, rank: int) -> Raw:
    """What is broadcast to ``rank`` axes of which the second are channels, for those that have them last."""
    shape = [1] * (rank - len(x.shape)) + list(x.shape)
    if hasattr(x, "_channels_last") or prod(shape) == 1:
        return channels_last(x) if len(x.shape) == rank else x
    return tf.reshape(x, [-1]) if prod(shape) == shape[1] else channels_last(tf.reshape(x, shape))


def reduced_in_order(x: Raw, axes: Sequence[int]) -> tuple[Raw, Sequence[int]]:
    """A tensor and axes of it to reduce: with the channels last if it is kept so, and no spatial axis is left."""
    rank = len(x.shape)
    gone = {axis % rank for axis in axes} if hasattr(x, "_channels_last") else set()
    if not gone or not gone.issuperset(range(2, rank)):
        return x, axes
    return channels_last(x), [(axis - 1 if axis else 0) if axis != 1 else rank - 1 for axis in sorted(gone)]


# Element by element. An integer needs no rounding, an unsigned one no sign; TensorFlow has no kernels for these.


def unary(function: Function) -> Function:
    """A function of tensors as one of arrays that keeps the class of its argument."""
    follows = in_either_order(function)

    def call(x: Array) -> Array:
        return WeakNumber(function(_double(x))) if _is_weak(x) else TensorArray(follows(raw(x)))

    return call


def binary(function: Function) -> Function:
    """A function of two tensors as one of arrays and numbers, promoted to one type."""
    follows = in_either_order(function)

    def call(a: Array, b: Array) -> Array:
        first, second, kind = pair(a, b)
        return kind(follows(first, second))

    return call


def _signed(function: Function, unsigned: Function) -> Function:
    return lambda x: unsigned(x) if x.dtype.is_unsigned else function(x)


def _fraction(function: Function) -> Function:
    return lambda x: x if x.dtype.is_integer else function(x)


def _power(a: Raw, b: Raw) -> Raw:
    return tf.cast(tf.pow(tf.cast(a, tf.int64), tf.cast(b, tf.int64)), a.dtype) if a.dtype.is_unsigned else tf.pow(a, b)


def _either(logical: Function, bitwise: Function) -> Function:
    return lambda *given: logical(*given) if given[0].dtype == tf.bool else bitwise(*given)


def _numbers(function: Function) -> Function:
    """For booleans, count."""
    return lambda a, b: function(tf.cast(a, tf.int64), tf.cast(b, tf.int64)) if a.dtype == tf.bool else function(a, b)


_UNARY: dict[str, Function] = {
    **{name: getattr(tf.math, name) for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh")},
    **{name: getattr(tf.math, name) for name in ("exp", "expm1", "log", "log1p", "reciprocal", "sin", "sinh", "sqrt")},
    **{name: getattr(tf.math, name) for name in ("square", "tan", "tanh", "real", "imag", "conj")},
    **{name: _fraction(getattr(tf.math, name)) for name in ("ceil", "floor", "round")},
    "abs": _signed(tf.math.abs, tf.identity),
    "bitwise_invert": _either(tf.logical_not, tf.bitwise.invert),
    "isfinite": tf.math.is_finite,
    "isinf": tf.math.is_inf,
    "isnan": tf.math.is_nan,
    "isneginf": lambda x: tf.math.is_inf(x) & (x < 0),
    "isposinf": lambda x: tf.math.is_inf(x) & (x > 0),
    "logical_not": lambda x: tf.logical_not(tf.cast(x, tf.bool)),
    "negative": _signed(tf.math.negative, lambda x: tf.zeros_like(x) - x),
    "positive": tf.identity,
    "sign": _signed(tf.math.sign, lambda x: tf.cast(x > 0, x.dtype)),
}

_BINARY: dict[str, Function] = {
    "add": _numbers(tf.math.add),
    "atan2": tf.math.atan2,
    "bitwise_and": _either(tf.logical_and, tf.bitwise.bitwise_and),
    "bitwise_left_shift": tf.bitwise.left_shift,
    "bitwise_or": _either(tf.logical_or, tf.bitwise.bitwise_or),
    "bitwise_right_shift": tf.bitwise.right_shift,
    "bitwise_xor": _either(tf.math.logical_xor, tf.bitwise.bitwise_xor),
    "divide": tf.math.divide,
    "equal": tf.equal,
    "floor_divide": tf.math.floordiv,
    "greater": tf.greater,
    "greater_equal": tf.greater_equal,
    "less": tf.less,
    "less_equal": tf.less_equal,
    "logical_and": tf.logical_and,
    "logical_or": tf.logical_or,
    "logical_xor": tf.math.logical_xor,
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "multiply": tf.multiply,
    "not_equal": tf.not_equal,
    "pow": _power,
    "remainder": tf.math.floormod,
    "subtract": _numbers(tf.math.subtract),
}

_OPERATORS = {
    **{"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide"},
    **{"mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor"},
    **{"lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift"},
}
_COMPARISONS = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal"} | {
    "gt": "greater",
    "ge": "greater_equal",
}


def _swapped(function: Function) -> Function:
    return lambda a, b: function(b, a)


for _word, _name in {**_OPERATORS, **_COMPARISONS}.items():
    setattr(TensorArray, f"__{_word}__", binary(_BINARY[_name]))
    if _word in _OPERATORS:
        setattr(TensorArray, f"__r{_word}__", _swapped(binary(_BINARY[_name])))
for _word, _name in {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}.items():
    setattr(TensorArray, f"__{_word}__", unary(_UNARY[_name]))


def astype(x: Array, dtype: Any, copy: bool = True) -> Array:
    """``x`` as ``dtype``, by TensorFlow's rules."""
    wanted = np.dtype(dtype)
    if wanted not in DTYPES:
        raise no_type(wanted)
    return TensorArray(tf.cast(x.tensor, tf.as_dtype(wanted)))


# XLA's maximum of two values is the second one where the first is NaN or, as a reduction, any.
_BY_XLA: ContextVar[bool] = ContextVar("by XLA", default=False)
by_xla = _BY_XLA.get


@contextmanager
def traced_for_xla(xla: bool) -> Iterator[None]:
    """Inside, maxima and minima keep NaN in what XLA makes of them."""
    before = _BY_XLA.set(xla)
    try:
        yield
    finally:
        _BY_XLA.reset(before)


class Assumed:
    """What a graph takes for granted: conditions, and arrays of which :func:`all_small` holds.

    These make one condition for the whole graph: an operation costs more than the numbers of a small network.
    """

    def __init__(self) -> None:
        self.graph: Any = tf.compat.v1.get_default_graph()
        self._conditions: list[Raw] = []
        self._small: dict[Any, Raw] = {}

    def add(self, condition: Raw | list[Raw]) -> None:
        """Take one for granted, or that some arrays are small."""
        if isinstance(condition, list):
            self._small.update({each.ref(): each for each in condition})
        else:
            self._conditions.append(condition)

    def holds(self) -> Raw | None:
        """Whether all of it is true, if there is any."""
        found = [*self._conditions, *([all_small(self._small.values())] if self._small else [])]
        return tf.reduce_all(tf.stack(found)) if len(found) > 1 else found[0] if found else None


_ASSUMED: ContextVar[Assumed | None] = ContextVar("what the graph being traced takes for granted", default=None)


@contextmanager
def assuming() -> Iterator[Assumed]:
    """Inside, the graph being traced only has the quick ways of :func:`quick_if`."""
    assumed = Assumed()
    before = _ASSUMED.set(assumed)
    try:
        yield assumed
    finally:
        _ASSUMED.reset(before)


def all_small(arrays: Iterable[Raw]) -> Raw:
    """Whether the squares of all elements have a sum below 2e15: there is no NaN, and no product overflows."""
    return tf.add_n([tf.cast(tf.nn.l2_loss(each), tf.float32) for each in arrays]) < 1e15


def quick_if(condition: Raw | list[Raw], quick: Raw, exact: Function) -> Raw:
    """``quick`` where the condition holds, else ``exact()``, in a branch unless the graph takes it for granted.

    A list of arrays is the condition that :func:`all_small` holds for them.
    """
    assumed = _ASSUMED.get()
    # What is inside a loop's body cannot be looked at from outside.
    if assumed is None or tf.executing_eagerly() or quick.graph is not assumed.graph:
        holds = all_small(condition) if isinstance(condition, list) else condition
        return tf.cond(holds, lambda: quick, exact)
    assumed.add(condition)
    return quick


def _chosen(compare: Function, function: Function) -> Function:
    """A maximum or minimum that keeps NaN and halves the gradient of equal values, as PyTorch and JAX do."""

    @tf.custom_gradient
    def chosen(a: Raw, b: Raw) -> tuple[Raw, Function]:
        first = compare(a, b) | tf.math.is_nan(a)

        def slopes(upstream: Raw) -> tuple[Raw, Raw]:
            nothing, half = tf.zeros_like(upstream), upstream / 2
            equal = a == b
            of_a = tf.where(equal, half, tf.where(first, upstream, nothing))
            return of_a, tf.where(equal, half, tf.where(first, nothing, upstream))

        return tf.where(first, a, b) if by_xla() else function(a, b), slopes

    def call(a: Raw, b: Raw) -> Raw:
        if not a.dtype.is_floating:
            return function(a, b)
        shape = tf.broadcast_static_shape(a.shape, b.shape)
        return chosen(tf.broadcast_to(a, shape), tf.broadcast_to(b, shape))

    return call


larger, smaller = _chosen(tf.greater_equal, tf.maximum), _chosen(tf.less_equal, tf.minimum)


def _where(condition: Array, yes: Array, no: Array) -> Array:
    first, second, kind = pair(yes, no)
    return kind(tf.where(raw(condition), first, second))


def _clip(x: Array, min: Array = None, max: Array = None) -> Array:
    raised = x if min is None else xp.maximum(x, min)
    return raised if max is None else xp.minimum(raised, max)


# Reductions.


def wide(x: Raw) -> Raw:
    """Half precisions as float32, in which they are summed."""
    return tf.cast(x, tf.float32) if x.dtype.is_floating and x.dtype.size < 4 else x


def _mean(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    tensor = x.tensor if x.tensor.dtype.is_floating else tf.cast(x.tensor, tf.float64)
    given, axes = reduced_in_order(tensor, axis) if isinstance(axis, tuple | list) else (tensor, axis)
    found = tf.cast(tf.reduce_mean(wide(given), axes, keepdims), tensor.dtype)
    return TensorArray(channels_first(found) if keepdims and given is not tensor else found)


def _argmax(x: Array, axis: int | None = None, keepdims: bool = False, function: Function = tf.argmax) -> Array:
    tensor = tf.reshape(x.tensor, [-1]) if axis is None else x.tensor
    found = function(tensor, axis or 0, output_type=tf.int64)
    if tensor.dtype.is_floating:
        # TensorFlow's kernels pass over NaN; the first one is the result.
        bad = tf.math.is_nan(tensor)
        first = tf.argmax(tf.cast(bad, tf.int32), axis or 0, output_type=tf.int64)
        found = tf.where(tf.reduce_any(bad, axis or 0), first, found)
    return TensorArray(tf.expand_dims(found, axis) if keepdims and axis is not None else found)


def _accumulated(function: Function) -> Function:
    """A sum or product: of integers, and of booleans as numbers, in 64 bits."""

    def call(x: Array, axis: Axes = None, keepdims: bool = False, dtype: Any = None) -> Array:
        tensor = tf.cast(x.tensor, tf.int64) if x.tensor.dtype == tf.bool else x.tensor
        if tensor.dtype.is_integer and tensor.dtype.size < 8:
            tensor = tf.cast(tensor, tf.uint64 if tensor.dtype.is_unsigned else tf.int64)
        found = TensorArray(tf.cast(function(wide(tensor), axis, keepdims), tensor.dtype))
        return found if dtype is None else astype(found, dtype)

    return call


def _extreme(function: Function, logical: Function) -> Function:
    def call(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
        tensor = x.tensor
        if tensor.dtype == tf.bool:
            return TensorArray(logical(tensor, axis, keepdims))
        found = function(tensor, axis, keepdims)
        if tensor.dtype.is_floating and by_xla():
            bad = tf.reduce_any(tf.math.is_nan(tensor), axis, keepdims)
            found = tf.where(bad, tf.constant(np.nan, tensor.dtype), found)
        return TensorArray(found)

    return call


def _norm(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
    return TensorArray(tf.sqrt(tf.reduce_sum(tf.square(x.tensor), axis, keepdims)))


def _reduced(function: Function, kind: Any = None) -> Function:
    def call(x: Array, axis: Axes = None, keepdims: bool = False) -> Array:
        return TensorArray(function(x.tensor if kind is None else tf.cast(x.tensor, kind), axis, keepdims))

    return call


_METHODS: dict[str, Function] = {
    "all": _reduced(tf.reduce_all, tf.bool),
    "any": _reduced(tf.reduce_any, tf.bool),
    "argmax": _argmax,
    "max": _extreme(tf.reduce_max, tf.reduce_any),
    "mean": _mean,
    "min": _extreme(tf.reduce_min, tf.reduce_all),
    "prod": _accumulated(tf.reduce_prod),
    "sum": _accumulated(tf.reduce_sum),
}
"""Reductions, which arrays have as methods, too."""
for _name, _function in _METHODS.items():
    setattr(TensorArray, _name, _function)


# Shapes and indices: TensorFlow's own NumPy functions, where they add nothing to a call.


def _of_numpy(name: str) -> Function:
    function = getattr(tf.experimental.numpy, name)
    return lambda x, *given, **named: TensorArray(function(raw(x), *[_plain(each) for each in given], **named))


def _plain(value: Any) -> Any:
    return value.tensor if isinstance(value, TensorArray) else value


def _ordered(x: Raw) -> Raw:
    """Integers in the order of floating-point numbers, NaN last, which TensorFlow sorts anywhere."""
    kind = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    # Both zeros are equal.
    bits = tf.bitcast(tf.where(x == 0, tf.zeros_like(x), x), kind)
    keys = tf.where(bits < 0, bits ^ tf.constant(kind.max, kind), bits)
    return tf.where(tf.math.is_nan(x), tf.constant(kind.max, kind), keys)


def _argsort(x: Array, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    keys = _ordered(x.tensor) if x.tensor.dtype.is_floating else x.tensor
    # Inverted bits reverse the order of integers without overflow, and keep that of equal ones.
    order = tf.argsort(tf.bitwise.invert(keys) if descending else keys, axis, stable=stable)
    return TensorArray(tf.cast(order, tf.int64))


def _flip(x: Array, axis: int | Sequence[int] | None = None) -> Array:
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return TensorArray(tf.reverse(x.tensor, [each % x.ndim for each in axes]))


def _permute(x: Array, axes: Sequence[int]) -> Array:
    return TensorArray(tf.transpose(x.tensor, list(axes)))


def _expand(x: Array, axis: int | Sequence[int] = 0) -> Array:
    given = [axis] if isinstance(axis, int) else axis
    rank = x.ndim + len(given)
    tensor = x.tensor
    for at in sorted(each % rank for each in given):
        tensor = tf.expand_dims(tensor, at)
    return TensorArray(tensor)


def _joined(function: Function) -> Function:
    def call(arrays: Sequence[Array], axis: int = 0) -> Array:
        tensors = [raw(each) for each in arrays]
        common = reduce(_promoted, (each.dtype for each in tensors))
        return TensorArray(function([tf.cast(each, common) for each in tensors], axis))

    return call


def take(x: Array, indices: Array, axis: int = 0) -> Array:
    """The slices at ``indices``, which must not be negative."""
    return TensorArray(tf.gather(raw(x), raw(indices), axis=axis))


def _take_along(x: Array, indices: Array, axis: int = -1) -> Array:
    """TensorFlow's own has branches, which XLA cannot differentiate."""
    tensor, places, at = x.tensor, raw(indices), axis % x.ndim
    places = tf.where(places < 0, places + tf.constant(x.shape[at], places.dtype), places)
    order = [*(each for each in range(x.ndim) if each != at), at]
    turns = order != sorted(order)
    tensor, places = (tf.transpose(each, order) if turns else each for each in (tensor, places))
    outer = tf.broadcast_static_shape(tensor.shape[:-1], places.shape[:-1])
    tensor, places = (tf.broadcast_to(each, [*outer, each.shape[-1]]) for each in (tensor, places))
    found = tf.gather(tensor, places, batch_dims=x.ndim - 1)
    return TensorArray(tf.transpose(found, np.argsort(order).tolist()) if turns else found)


def _full(shape: Any, value: Any, dtype: Any = None) -> Array:
    sizes = [int(each) for each in np.atleast_1d(np.asarray(shape, np.int64))]
    fill = tf.constant(value) if dtype is None else tf.cast(tf.constant(value), tf.as_dtype(np.dtype(dtype)))
    return TensorArray(tf.fill(sizes, fill))


def _full_like(x: Array, value: Any, dtype: Any = None) -> Array:
    kind = x.tensor.dtype if dtype is None else tf.as_dtype(np.dtype(dtype))
    return TensorArray(tf.fill(tf.shape(x.tensor), tf.cast(raw(value), kind)))


def _like_of(value: float) -> Function:
    return lambda x, dtype=None: _full_like(x, value, dtype)


def _asarray(x: Any, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Array:
    found = TensorArray(raw(x))
    return found if dtype is None else astype(found, dtype)


def _arange(start: int, stop: int | None = None, step: int = 1, dtype: Any = None) -> Array:
    first, last = (0, start) if stop is None else (start, stop)
    return TensorArray(tf.constant(np.arange(first, last, step).astype(dtype or np.int64)))


def _isdtype(dtype: Any, kind: str) -> bool:
    found = tf.as_dtype(np.dtype(dtype))
    return {
        "bool": found == tf.bool,
        "integral": found.is_integer,
        "real floating": found.is_floating,
        "complex floating": found.is_complex,
        "signed integer": found.is_integer and not found.is_unsigned,
        "unsigned integer": found.is_integer and found.is_unsigned,
        "numeric": found != tf.bool,
    }[kind]


# Products. Small integers are multiplied in 32 bits.


def _multiplied(a: Raw) -> Raw:
    return tf.cast(a, tf.int64 if a.dtype.size >= 4 else tf.int32) if a.dtype.is_integer and a.dtype != tf.int32 else a


def matmul(a: Array, b: Array) -> Array:
    """Products of matrices, with NumPy's rules for vectors and further axes."""
    first, second, _ = pair(a, b)
    kind = first.dtype
    first, second = _multiplied(first), _multiplied(second)
    row, column = first.shape.rank == 1, second.shape.rank == 1
    found = tf.matmul(first[None] if row else first, second[:, None] if column else second)
    found = tf.squeeze(found, -1) if column else found
    return TensorArray(tf.cast(tf.squeeze(found, -1 if column else -2) if row else found, kind))


def einsum(equation: str, *arrays: Array) -> Array:
    """Einstein's sums."""
    kind = arrays[0].tensor.dtype
    return TensorArray(tf.cast(tf.einsum(equation, *(_multiplied(each.tensor) for each in arrays)), kind))


def softmax(x: Raw, axis: int = -1) -> Raw:
    """TensorFlow's, whose kernel gives numbers to the others where one element is NaN."""
    found = tf.nn.softmax(x, axis)
    if by_xla():
        return found
    whole = ~tf.math.is_nan(tf.reduce_sum(found))
    return quick_if(whole, found, lambda: found + 0 * tf.reduce_sum(found, axis, keepdims=True))


xp = ModuleType("levelbench_tensorflow", "TensorFlow's functions by the names of the Array API standard.")
xp.__dict__.update(
    {
        **{name: unary(function) for name, function in _UNARY.items()},
        **{name: binary(function) for name, function in _BINARY.items()},
        **{name: np.dtype(name) for name in _PLAIN},
        **{name: np.dtype(getattr(ml_dtypes, name)) for name in _SMALL},
        **{name: _of_numpy(name) for name in ("moveaxis", "repeat", "squeeze")},
        **{name: _of_numpy(name) for name in ("tril", "triu")},
        **_METHODS,
        "reshape": TensorArray.reshape,
        "arange": _arange,
        "argmin": lambda x, axis=None, keepdims=False: _argmax(x, axis, keepdims, tf.argmin),
        "argsort": _argsort,
        "asarray": _asarray,
        "astype": astype,
        "broadcast_to": lambda x, shape: TensorArray(tf.broadcast_to(x.tensor, shape)),
        "clip": _clip,
        "concat": _joined(tf.concat),
        "expand_dims": _expand,
        "eye": lambda n, m=None, dtype=None: TensorArray(tf.constant(np.eye(n, m, dtype=dtype or np.float32))),
        "finfo": ml_dtypes.finfo,
        "flip": _flip,
        "full": _full,
        "full_like": _full_like,
        "iinfo": ml_dtypes.iinfo,
        "inf": float("inf"),
        "isdtype": _isdtype,
        "matmul": matmul,
        "nan": float("nan"),
        "ones": lambda shape, dtype=None: _full(shape, 1, dtype or np.float32),
        "ones_like": _like_of(1),
        "permute_dims": _permute,
        "stack": _joined(tf.stack),
        "take": take,
        "take_along_axis": _take_along,
        "tile": lambda x, repeats: TensorArray(tf.tile(x.tensor, list(repeats))),
        "where": _where,
        "zeros": lambda shape, dtype=None: _full(shape, 0, dtype or np.float32),
        "zeros_like": _like_of(0),
    }
)
xp.__dict__["linalg"] = ModuleType("linalg")
xp.__dict__["linalg"].__dict__.update(
    matmul=matmul, vector_norm=_norm, eigh=lambda x: tuple(TensorArray(each) for each in tf.linalg.eigh(x.tensor))
)
