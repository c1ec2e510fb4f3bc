"""Operators written once, over the Array API standard, for the frameworks that differentiate automatically.

An operator is a plain function of its inputs. Its keyword-only parameters are attributes of the node, or fields of
:class:`ArrayLibrary`; they are bound once, when the node's function is made, so a call looks nothing up. Where
attributes decide which function to call, a *maker* reads the node and returns the function. A framework registers its
own function in place of a shared one wherever its own is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import FunctionType, ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode
from levelbench.operators.program import Primitive, Scope, has_body

Entry = TypeVar("Entry")


def with_attributes(function: Function, node: OperatorNode, given: Mapping[str, object] | None = None) -> Function:
    """``function`` with its keyword-only parameters bound: to ``given`` where it has the name, else to attributes.

    The parameter ``node`` gets the node itself. A parameter's default applies where ONNX has no default for the
    attribute. The values become defaults of a copy of the function, which is as fast to call as the original.
    """
    if not isinstance(function, FunctionType) or not function.__code__.co_kwonlyargcount:
        return function
    code, defaults = function.__code__, function.__kwdefaults__ or {}
    known = {"node": node, **(given or {})}
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = {}
    for name in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        if name in known:
            made.__kwdefaults__[name] = known[name]
        else:
            made.__kwdefaults__[name] = node.get(name, defaults[name]) if name in defaults else node[name]
    return made


def expandable(function: Function, node: OperatorNode, scope: Scope) -> Function:
    """The function, with a single output bare; if it refuses a type, ONNX's defining body of the operator."""
    single = len(node.outputs) == 1
    expanded: list[Primitive] = []

    def call(*inputs: Array) -> Array:
        try:
            found = function(*inputs)
        except UnsupportedError:
            if not has_body(node):
                raise
            if not expanded:
                expanded.append(Primitive(node, scope, {}))
            found = expanded[0](*inputs)
        if single:
            return found[0] if isinstance(found, tuple | list) else found
        return found if isinstance(found, tuple | list) else (found,)

    return call


class Makers(Generic[Entry]):
    """A framework's entries for operators, by (domain, name)."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._entries: dict[tuple[str, str], Entry] = {}

    def add(self, domain: str, name: str, entry: Entry) -> None:
        """Add an entry; it replaces an earlier one of the same operator."""
        self._entries[domain, name] = entry

    def names(self) -> list[str]:
        """The registered operators, as ``Conv`` or ``domain::Name``."""
        return sorted(f"{domain}::{name}" if domain else name for domain, name in self._entries)

    def find(self, node: OperatorNode) -> Entry:
        """The entry of a node's operator; ``UnsupportedError`` where there is none."""
        found = self._entries.get((node.domain, node.op_type))
        if found is None:
            asked = f"operator {node.title} on {self._framework}"
            raise UnsupportedError(asked, "this adapter does not implement it", "use another framework")
        return found

    def refuse(self, node: OperatorNode, found: str, do: str = "use another framework") -> UnsupportedError:
        """The error for what the framework or its adapter cannot do with an operator."""
        return UnsupportedError(f"{node.title} on {self._framework}", found, do)


Host = NDArray[Any]
"""A structural input: a NumPy array on every framework."""
ToNative = Callable[[Host], Array]


class ArrayLibrary(NamedTuple):
    """What the shared operators need from a framework."""

    xp: ModuleType
    """Its namespace for the Array API standard."""
    array: ToNative
    """Converts a NumPy array to a native one, on the device that the operator runs on."""
    dtype_of: Callable[[int], Any]
    """The native dtype for ONNX's type number."""
    arange: Callable[[int], Array]
    """The integers from 0 on as int64, created on the device."""
    take: Callable[[Array, Array, int], Array]
    """(x, indices, axis) -> the slices at a vector of non-negative indices."""
    scan: Callable[[Function, Any, Any], tuple[Any, Any]]
    """(step, state, arrays) -> the last state and the stacked outputs, with (state, output) = step(state, slices)."""
    linear: Callable[[Array, Array, Array | None], Array]
    """(x, weight, bias) -> x times the transposed weight, plus the bias if there is one."""
    einsum: Function
    matmul: Function
    softmax: Function
    """Along the last axis."""


SharedMaker = Callable[[OperatorNode, ArrayLibrary], Function]
Make = TypeVar("Make", bound=SharedMaker)
SHARED: dict[tuple[str, str], SharedMaker] = {}
"""The makers by (domain, name)."""

POINTWISE = {
    **{
        name: name.lower()
        for name in (
            *("Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Equal", "Exp"),
            *("Floor", "Greater", "IsNaN", "Less", "Log", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan"),
            *("Tanh", "Where"),
        )
    },
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_invert",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Neg": "negative",
    "Not": "logical_not",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
"""Operators without attributes, and the function of the Array API that each one is."""

_LEARNING = "ai.onnx.ml"
_TRAINING = "ai.onnx.preview.training"


def shared_maker(*names: str, domain: str = "") -> Callable[[Make], Make]:
    """Register a maker: it returns the function of a node on a framework's arrays."""

    def register(make: Make) -> Make:
        for name in names:
            SHARED[domain, name] = make
        return make

    return register


def _shared(*names: str, domain: str = "") -> Callable[[Function], Function]:
    """Register a function of arrays."""

    def register(function: Function) -> Function:
        shared_maker(*names, domain=domain)(lambda node, library: with_attributes(function, node, library._asdict()))
        return function

    return register


def _along(axis: int, rank: int) -> list[int]:
    """The shape that places a vector along one of ``rank`` axes."""
    return [-1 if at == axis else 1 for at in range(rank)]


# Shapes and indices.


@_shared("Reshape")
def reshape(x: Array, shape: Host, *, allowzero: int = 0) -> Array:
    """A size of 0 means the input's size on that axis, unless ``allowzero`` is set."""
    sizes = shape.tolist()
    if 0 in sizes and not allowzero:
        sizes = [size or x.shape[axis] for axis, size in enumerate(sizes)]
    return x.reshape(sizes)


@_shared("Flatten")
def flatten(x: Array, *, axis: int) -> Array:
    """A matrix whose rows run over the axes before ``axis``."""
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape((prod(x.shape[:at]), prod(x.shape[at:])))


@_shared("GatherND")
def _gather_nd(x: Array, indices: Array, *, array: ToNative, batch_dims: int = 0, xp: ModuleType) -> Array:
    # One index per batch axis, shaped to broadcast against the indices of that batch.
    rank = indices.ndim - 1
    batches = [array(np.arange(x.shape[axis]).reshape(_along(axis, rank))) for axis in range(batch_dims)]
    chosen = xp.astype(indices, xp.int64)
    return x[(*batches, *(chosen[..., at] for at in range(indices.shape[-1])))]


@_shared("OneHot")
def _one_hot(indices: Array, depth: Host, values: Array, *, array: ToNative, axis: int, xp: ModuleType) -> Array:
    count, rank = int(np.asarray(depth).item()), indices.ndim + 1
    # An index outside [-depth, depth) gives no hot element.
    places = xp.astype(indices, xp.int64)
    places = xp.expand_dims(xp.where(places < 0, places + count, places), axis=axis % rank)
    classes = array(np.arange(count).reshape(_along(axis % rank, rank)))
    return xp.where(places == classes, values[1], values[0])


@_shared("ReverseSequence")
def _reverse_sequence(
    x: Array, lengths: Array, *, array: ToNative, batch_axis: int, time_axis: int, xp: ModuleType
) -> Array:
    steps = array(np.arange(x.shape[time_axis]))
    ends = lengths[:, None]
    # (batch, time): the source position of the element at each time.
    source = xp.where(steps < ends, ends - 1 - steps, steps)
    source = source.T if time_axis < batch_axis else source
    shape = [1] * x.ndim
    shape[batch_axis], shape[time_axis] = x.shape[batch_axis], x.shape[time_axis]
    source = xp.broadcast_to(source.reshape(shape), x.shape)
    return xp.take_along_axis(x, source, axis=time_axis)


@_shared("ArrayFeatureExtractor", domain=_LEARNING)
def _array_feature_extractor(x: Array, indices: Array) -> Array:
    found = x[..., indices.reshape(-1)]
    return found[None] if x.ndim == 1 else found


@_shared("Expand")
def expand(x: Array, shape: Host, *, xp: ModuleType) -> Array:
    """Broadcasts in both directions: a size of 1 in the shape keeps the input's size."""
    return xp.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(shape.tolist())))


@_shared("Compress")
def _compress(x: Array, condition: Host, *, axis: int | None = None, take: Function, array: ToNative) -> Array:
    chosen = array(np.flatnonzero(condition))
    return take(x.reshape(-1), chosen, 0) if axis is None else take(x, chosen, axis)


@_shared("Trilu")
def _trilu(x: Array, diagonal: Host | None = None, *, upper: int, xp: ModuleType) -> Array:
    return (xp.triu if upper else xp.tril)(x, k=0 if diagonal is None else int(np.asarray(diagonal).item()))


@_shared("Shape")
def shape(x: Array, *, start: int = 0, end: int | None = None, array: ToNative) -> Array:
    """The sizes of the axes from ``start`` to ``end``."""
    return array(np.array(x.shape[start:end], np.int64))


@_shared("Size")
def size(x: Array, *, array: ToNative) -> Array:
    """The number of elements."""
    return array(np.array(prod(x.shape), np.int64))


@_shared("DepthToSpace")
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR", xp: ModuleType) -> Array:
    """The depth axis is (block, block, channels) in mode DCR, (channels, block, block) in mode CRD."""
    batch, depth, height, width = x.shape
    channels, sizes = depth // blocksize**2, (blocksize, blocksize)
    by_column = mode == "CRD"
    parts = x.reshape(
        (batch, channels, *sizes, height, width) if by_column else (batch, *sizes, channels, height, width)
    )
    parts = xp.permute_dims(parts, (0, 1, 4, 2, 5, 3) if by_column else (0, 3, 4, 1, 5, 2))
    return parts.reshape((batch, channels, height * blocksize, width * blocksize))


@_shared("SpaceToDepth")
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR", xp: ModuleType) -> Array:
    """The inverse of :func:`depth_to_space`."""
    batch, channels, height, width = x.shape
    parts = x.reshape((batch, channels, height // blocksize, blocksize, width // blocksize, blocksize))
    parts = xp.permute_dims(parts, (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4))
    return parts.reshape((batch, channels * blocksize**2, height // blocksize, width // blocksize))


@_shared("Binarizer", domain=_LEARNING)
def _binarizer(x: Array, *, threshold: float, xp: ModuleType) -> Array:
    return xp.astype(x > threshold, x.dtype)


@_shared("IsInf")
def is_inf(x: Array, *, detect_negative: int, detect_positive: int, xp: ModuleType) -> Array:
    """Which elements are infinite with one of the requested signs."""
    if detect_negative and detect_positive:
        return xp.isinf(x)
    if not (detect_negative or detect_positive):
        return xp.zeros_like(x, dtype=xp.bool)
    return xp.isneginf(x) if detect_negative else xp.isposinf(x)


@_shared("Shrink")
def _shrink(x: Array, *, bias: float, lambd: float, xp: ModuleType) -> Array:
    return xp.astype(xp.where(x < -lambd, x + bias, xp.where(x > lambd, x - bias, 0)), x.dtype)


@_shared("MeanVarianceNormalization")
def _mean_variance_normalization(x: Array, *, axes: Sequence[int] = (0, 2, 3), xp: ModuleType) -> Array:
    # ONNX's definition adds 1e-9 to the standard deviation, not the variance; half precision cannot represent it.
    wide = xp.astype(x, xp.float32) if x.dtype.itemsize < 4 else x
    centred = wide - xp.mean(wide, axis=tuple(axes), keepdims=True)
    deviation = xp.sqrt(xp.mean(centred * centred, axis=tuple(axes), keepdims=True))
    return xp.astype(centred / (deviation + 1e-9), x.dtype)


def reduction_axes(axes: Sequence[int] | None, rank: int, nothing: bool) -> tuple[int, ...]:
    """The axes to reduce; an empty list means all of them, or none where the node says so (``nothing``)."""
    if not axes:
        return () if nothing else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in axes))


# Arrays created on the host.


def constant_of(node: OperatorNode) -> Host | None:
    """The numbers of a Constant; ``None`` for a string attribute or a sparse tensor."""
    for name, dtype in (("int", np.int64), ("ints", np.int64), ("float", np.float32), ("floats", np.float32)):
        if f"value_{name}" in node.attributes:
            return np.asarray(node[f"value_{name}"], dtype)
    return np.asarray(node["value"]) if "value" in node.attributes else None


@_shared("Range")
def _range(start: Host, limit: Host, delta: Host, *, array: ToNative) -> Array:
    kind = np.int64 if start.dtype.kind in "iu" else np.float64
    first, end, step = (each.astype(kind).item() for each in (start, limit, delta))
    places: Host = np.arange(max(int(np.ceil((end - first) / step)), 0), dtype=kind)
    return array((first + step * places).astype(start.dtype))


@_shared("EyeLike")
def _eye_like(
    x: Array, *, k: int, dtype: int | None = None, dtype_of: Callable[[int], Any], xp: ModuleType, array: ToNative
) -> Array:
    rows, columns = x.shape
    return xp.astype(array(np.eye(rows, columns, k, bool)), x.dtype if dtype is None else dtype_of(dtype))


def _type_of(node: OperatorNode) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(int(node["output_datatype"])))


_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}
"""Coefficients of the cosines with 0, 1 and 2 periods."""


@shared_maker(*_WINDOWS)
def _window(node: OperatorNode, library: ArrayLibrary) -> Function:
    coefficients, periodic, dtype = _WINDOWS[node.op_type], bool(node["periodic"]), _type_of(node)

    def window(size: Host) -> Array:
        count = int(np.asarray(size).item())
        turns = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = sum((weight * np.cos(order * turns) for order, weight in enumerate(coefficients)), np.zeros(count))
        return library.array(values.astype(dtype))

    return window


@shared_maker("MelWeightMatrix")
def _mel_weight_matrix(node: OperatorNode, library: ArrayLibrary) -> Function:
    """Triangles with centres equally spaced on the mel scale, 2595 log10(1 + f / 700) (ONNX's reference)."""
    dtype = _type_of(node)

    def mel_weight_matrix(bins: Host, length: Host, rate: Host, low: Host, high: Host) -> Array:
        count, dft = int(bins.item()), int(length.item())
        mels = 2595 * np.log10(1 + np.array([low.item(), high.item()]) / 700)
        step = (mels[1] - mels[0]) / (count + 2)
        hertz = 700 * (10 ** ((mels[0] + step * np.arange(count + 2)) / 2595) - 1)
        places = ((dft + 1) * hertz // rate.item()).astype(np.int64)
        frequency = np.arange(dft // 2 + 1)[:, None]
        left, centre, right = places[:-2], places[1:-1], places[2:]
        with np.errstate(divide="ignore", invalid="ignore"):
            rising = np.where(centre == left, 1.0, (frequency - left) / (centre - left))
            falling = (right - frequency) / (right - centre)
        up = (frequency >= left) & (frequency <= centre)
        down = (frequency > centre) & (frequency < right)
        # A triangle without a left side has only its peak.
        up &= (centre != left) | (frequency == centre)
        return library.array(np.where(up, rising, np.where(down, falling, 0.0)).astype(dtype))

    return mel_weight_matrix


# Sequences and images.


@_shared("RotaryEmbedding")
def _rotary_embedding(
    x: Array,
    cosines: Array,
    sines: Array,
    positions: Array | None = None,
    *,
    interleaved: int,
    num_heads: int | None = None,
    xp: ModuleType,
    rotary_embedding_dim: int | None = None,
) -> Array:
    """Rotates pairs of components by an angle that depends on the position (Su et al. 2021, RoFormer)."""
    part = int(rotary_embedding_dim or 0)
    flat = x.ndim == 3
    rows = x.reshape((*x.shape[:2], num_heads, -1)) if flat else xp.permute_dims(x, (0, 2, 1, 3))
    if positions is not None:
        cosines, sines = cosines[positions], sines[positions]
    # (batch, sequence, 1, half the rotated size), shared by all heads.
    cosines, sines = cosines[:, :, None], sines[:, :, None]
    turned = rows[..., :part] if part else rows
    half = turned.shape[-1] // 2
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
    pair = [a * cosines - b * sines, a * sines + b * cosines]
    found = xp.stack(pair, axis=-1).reshape(turned.shape) if interleaved else xp.concat(pair, axis=-1)
    if part:
        found = xp.concat([found, rows[..., part:]], axis=-1)
    return found.reshape(x.shape) if flat else xp.permute_dims(found, (0, 2, 1, 3))


@_shared("RoiAlign")
def _roi_align(
    x: Array,
    rois: Array,
    batches: Array,
    *,
    array: ToNative,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
    xp: ModuleType,
    coordinate_transformation_mode: str = "output_half_pixel",
    mode: str,
) -> Array:
    """Each bin of a region is the mean or maximum of its samples; their number may depend on the region's size."""
    half = coordinate_transformation_mode == "half_pixel"
    largest = mode == "max"
    corners = rois * spatial_scale - (0.5 if half else 0.0)
    rows = _samples(xp, array, corners[:, 1], corners[:, 3], output_height, sampling_ratio, x.shape[2], half)
    columns = _samples(xp, array, corners[:, 0], corners[:, 2], output_width, sampling_ratio, x.shape[3], half)
    (y, y_weights, y_real), (x_at, x_weights, x_real) = rows, columns
    # (regions, channels, height, samples, corners, width, samples, corners)
    y, y_weights = y[:, :, :, :, None, None, None], y_weights[:, None, :, :, :, None, None, None]
    x_at, x_weights = x_at[:, None, None, None], x_weights[:, None, None, None, None]
    values = xp.moveaxis(x[batches.reshape((-1, 1, 1, 1, 1, 1, 1)), :, y, x_at], -1, 1)
    weighted = values * y_weights * x_weights
    real = y_real[:, None, None, :, None, None] & x_real[:, None, None, None, None, :]
    if largest:
        # The maximum of the weighted corners, as ONNX and ONNX Runtime define it.
        best = xp.max(weighted, axis=(4, 7))
        return xp.astype(xp.max(xp.where(real, best, -xp.inf), axis=(3, 5)), x.dtype)
    counts = xp.clip(xp.sum(y_real, axis=1) * xp.sum(x_real, axis=1), min=1).reshape((-1, 1, 1, 1))
    total = xp.sum(xp.where(real, xp.sum(weighted, axis=(4, 7)), 0), axis=(3, 5))
    return xp.astype(total / counts, x.dtype)


def _samples(
    xp: ModuleType, array: ToNative, start: Array, end: Array, bins: int, ratio: int, size: int, half: bool
) -> tuple[Array, Array, Array]:
    """Along one axis: positions (regions, bins, samples, 2), their weights, and which samples each region has."""
    extent = end - start if half else xp.clip(end - start, min=1.0)
    bin_size = extent / bins
    if ratio > 0:
        counts, most = xp.full_like(start, ratio), ratio
    else:
        counts = xp.ceil(bin_size)
        most = max(1, int(xp.max(counts))) if start.shape[0] else 1
    steps = xp.astype(array(np.arange(most)), start.dtype)
    real = steps < counts[:, None]
    within = (steps + 0.5) * (bin_size / counts)[:, None]
    bases = start[:, None] + xp.astype(array(np.arange(bins)), start.dtype) * bin_size[:, None]
    at = bases[:, :, None] + within[:, None]
    seen = (at >= -1.0) & (at <= size)
    at = xp.clip(at, min=0, max=size - 1)
    low = xp.floor(at)
    places = xp.astype(xp.stack([low, xp.clip(low + 1, max=size - 1)], axis=-1), xp.int64)
    weights = xp.stack([1 - (at - low), at - low], axis=-1) * seen[..., None]
    return places, weights, real


def class_loss(xp: ModuleType, node: OperatorNode, log_probability: Array, target: Array, weight: Array) -> Array:
    """The loss for log-probabilities of shape (N, C, d...) and targets of shape (N, d...), with weights of classes."""
    ignored = node.get("ignore_index")
    kept = xp.ones_like(target, dtype=xp.bool) if ignored is None else target != ignored
    # The ignored index need not be a valid class.
    index = xp.where(kept, target, 0)
    chosen = xp.take_along_axis(log_probability, xp.expand_dims(index, axis=1), axis=1)[:, 0]
    weights = xp.where(kept, xp.ones_like(chosen) if weight is None else weight[index], 0)
    losses = -chosen * weights
    match node["reduction"]:
        case "none":
            return losses
        case "sum":
            return xp.sum(losses)
    if weight is None and ignored is None:
        return xp.mean(losses)
    return xp.sum(losses) / xp.sum(weights)


# N-gram counts, and optimizers as operators.


@shared_maker("TfIdfVectorizer")
def _tfidf(node: OperatorNode, library: ArrayLibrary) -> Function:
    """How often each listed sequence occurs in a row, with up to ``max_skip_count`` elements skipped in between."""
    if node.get("pool_int64s") is None:
        raise UnsupportedError(node.title, "strings are implemented in ONNX's reference only", "use numpy")
    xp, mode, weights, most = library.xp, node["mode"], node.get("weights"), int(node["max_skip_count"])
    grams, columns = _grams(node)
    size = int(np.max(node["ngram_indexes"])) + 1
    # For each column, the sequences counted there, padded with the index of a column of zeros.
    there = [np.flatnonzero(columns == at) for at in range(size)]
    sources = np.full((size, max(len(each) for each in there)), len(columns))
    for at, each in enumerate(there):
        sources[at, : len(each)] = each
    # Weights are listed by sequence; each applies to the column of its sequence.
    scales = np.ones(size, np.float32)
    if mode != "TF" and weights is not None:
        scales[np.asarray(node["ngram_indexes"], np.int64)] = weights

    def tfidf(x: Array) -> Array:
        rows = x.reshape((1, -1)) if x.ndim < 2 else x
        counts = [_occurrences(library, rows, each, most) for each in grams]
        counts.append(library.array(np.zeros((rows.shape[0], 1), np.float32)))
        joined = xp.concat(counts, axis=1)
        taken = library.take(joined, library.array(sources.reshape(-1)), 1)
        found = xp.sum(taken.reshape((rows.shape[0], *sources.shape)), axis=-1)
        if mode == "IDF":
            found = xp.astype(found > 0, xp.float32)
        found = found * library.array(scales)
        return found if x.ndim == 2 else found[0]

    return tfidf


def _grams(node: OperatorNode) -> tuple[list[Host], Host]:
    """The sequences of the requested lengths, (count, length) each, and the output column of each sequence."""
    pool, starts = np.asarray(node["pool_int64s"], np.int64), list(node["ngram_counts"])
    columns = np.asarray(node["ngram_indexes"], np.int64)
    wanted = range(int(node["min_gram_length"]), int(node["max_gram_length"]) + 1)
    found: list[Host] = []
    chosen: list[Host] = [np.zeros(0, np.int64)]
    first = 0
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        sequences = pool[start:end].reshape(-1, length)
        if len(sequences) and length in wanted:
            found.append(sequences)
            chosen.append(columns[first : first + len(sequences)])
        first += len(sequences)
    return found, np.concatenate(chosen)


def _occurrences(library: ArrayLibrary, rows: Array, sequences: Host, most: int) -> Array:
    """How often each sequence occurs in each row, at every allowed distance: (rows, sequences)."""
    xp, length = library.xp, sequences.shape[1]
    wanted = library.array(sequences)
    total = library.array(np.zeros((rows.shape[0], len(sequences)), np.float32))
    # Single elements have no distance, so they are counted once.
    for skip in range(1, 2 if length == 1 else most + 2):
        windows = rows.shape[1] - skip * (length - 1)
        if windows > 0:
            parts = xp.stack([rows[:, at * skip : at * skip + windows] for at in range(length)], axis=-1)
            same = xp.all(parts[:, :, None] == wanted, axis=-1)
            total = total + xp.astype(xp.sum(same, axis=1), xp.float32)
    return total


def _each(rule: Callable[..., tuple[Array, ...]], kinds: int) -> Function:
    """Applies ``rule(rate, step, parameter, gradient, state...)`` to each parameter; values are grouped by kind."""

    def update(rate: Array, step: Array, *values: Array) -> tuple[Array, ...]:
        count = len(values) // kinds
        found: Sequence[tuple[Array, ...]] = [rule(rate, step, *values[at::count]) for at in range(count)]
        return tuple(each for kind in zip(*found, strict=True) for each in kind)

    return update


@shared_maker("Adagrad", domain=_TRAINING)
def _adagrad(node: OperatorNode, library: ArrayLibrary) -> Function:
    """Duchi et al. 2011, with ONNX's decay of the rate and regularisation."""
    decay, epsilon, norm = float(node["decay_factor"]), float(node["epsilon"]), float(node["norm_coefficient"])
    xp = library.xp

    def adagrad(rate: Array, step: Array, x: Array, gradient: Array, squares: Array) -> tuple[Array, ...]:
        whole = norm * x + gradient
        total = squares + whole * whole
        adjusted = xp.astype(rate / (1 + step * decay), x.dtype)
        return x - adjusted * whole / (xp.sqrt(total) + epsilon), total

    return _each(adagrad, 3)


@shared_maker("Adam", domain=_TRAINING)
def _adam(node: OperatorNode, library: ArrayLibrary) -> Function:
    """Kingma and Ba 2015, with ONNX's regularisation before and after."""
    alpha, beta, epsilon = float(node["alpha"]), float(node["beta"]), float(node["epsilon"])
    norm, after, xp = float(node["norm_coefficient"]), float(node["norm_coefficient_post"]), library.xp

    def adam(rate: Array, step: Array, x: Array, gradient: Array, mean: Array, square: Array) -> tuple[Array, ...]:
        whole = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * whole
        square = beta * square + (1 - beta) * whole * whole
        # Step 0, the first call, has no bias correction: the divisor would be zero.
        time = xp.astype(xp.where(step > 0, step, 1), x.dtype)
        corrected = rate * xp.sqrt(1 - beta**time) / (1 - alpha**time)
        adjusted = xp.astype(xp.where(step > 0, corrected, rate), x.dtype)
        return (1 - after) * (x - adjusted * mean / (xp.sqrt(square) + epsilon)), mean, square

    return _each(adam, 4)


@shared_maker("Momentum", domain=_TRAINING)
def _momentum(node: OperatorNode, library: ArrayLibrary) -> Function:
    alpha, beta, norm = float(node["alpha"]), float(node["beta"]), float(node["norm_coefficient"])
    nesterov, xp = node["mode"] == "nesterov", library.xp

    def momentum(rate: Array, step: Array, x: Array, gradient: Array, velocity: Array) -> tuple[Array, ...]:
        whole = norm * x + gradient
        # No dampening in the first step: there is no velocity yet.
        share = xp.astype(xp.where(step > 0, beta, 1.0), x.dtype)
        velocity = alpha * velocity + share * whole
        move = whole + alpha * velocity if nesterov else velocity
        return x - xp.astype(rate, x.dtype) * move, velocity

    return _each(momentum, 3)
