"""Operators written once for the frameworks that differentiate by themselves, over the Array API standard.

A shared maker reads the node's attributes once, like a framework's own, and answers with a function of that framework's
arrays. Here stands what a framework has no function of its own for; whatever one does faster itself it registers
itself, in place of the shared one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode

__all__ = ["SHARED", "ArrayLibrary", "SharedMaker"]

Array = Any
"""An array of the framework's."""
Host = NDArray[Any]
"""A structural input: NumPy's on every framework."""
Function = Callable[..., Any]


class ArrayLibrary(NamedTuple):
    """What a framework lends to the shared operators."""

    xp: Any
    """Its namespace of the Array API standard."""
    array: Callable[[Host], Array]
    """NumPy's array as one of its own, on the device that the operator runs on."""


SharedMaker = Callable[[OperatorNode, ArrayLibrary], Function]
SHARED: dict[tuple[str, str], SharedMaker] = {}
"""The makers by (domain, name)."""

_LEARNING = "ai.onnx.ml"
_TRAINING = "ai.onnx.preview.training"


def _shared(*names: str, domain: str = "") -> Callable[[SharedMaker], SharedMaker]:
    def register(make: SharedMaker) -> SharedMaker:
        for name in names:
            SHARED[domain, name] = make
        return make

    return register


def _along(axis: int, rank: int) -> list[int]:
    """The shape that lays a vector along one of ``rank`` axes."""
    return [-1 if at == axis else 1 for at in range(rank)]


# Shapes and indices.


@_shared("Reshape")
def _reshape(node: OperatorNode, _: ArrayLibrary) -> Function:
    zero_is_zero = bool(node.get("allowzero", 0))

    def reshape(x: Array, shape: Host) -> Array:
        sizes = shape.tolist()
        if 0 in sizes and not zero_is_zero:
            sizes = [size or x.shape[axis] for axis, size in enumerate(sizes)]
        return x.reshape(sizes)

    return reshape


@_shared("Flatten")
def _flatten(node: OperatorNode, _: ArrayLibrary) -> Function:
    axis = int(node["axis"])

    def flatten(x: Array) -> Array:
        at = axis + x.ndim if axis < 0 else axis
        rows = 1
        for size in x.shape[:at]:
            rows *= size
        columns = 1
        for size in x.shape[at:]:
            columns *= size
        return x.reshape((rows, columns))

    return flatten


@_shared("GatherND")
def _gather_nd(node: OperatorNode, native: ArrayLibrary) -> Function:
    batched, xp = int(node.get("batch_dims", 0)), native.xp

    def gather_nd(x: Array, indices: Array) -> Array:
        # One index a batch axis, shaped so that it goes with the indices of that batch.
        rank = indices.ndim - 1
        batches = [native.array(np.arange(x.shape[axis]).reshape(_along(axis, rank))) for axis in range(batched)]
        chosen = xp.astype(indices, xp.int64)
        return x[(*batches, *(chosen[..., at] for at in range(indices.shape[-1])))]

    return gather_nd


@_shared("OneHot")
def _one_hot(node: OperatorNode, native: ArrayLibrary) -> Function:
    axis, xp = int(node["axis"]), native.xp

    def one_hot(indices: Array, depth: Host, values: Array) -> Array:
        count, rank = int(np.asarray(depth).item()), indices.ndim + 1
        # Anything outside of -depth to depth - 1 is nowhere hot.
        places = xp.astype(indices, xp.int64)
        places = xp.expand_dims(xp.where(places < 0, places + count, places), axis=axis % rank)
        classes = native.array(np.arange(count).reshape(_along(axis % rank, rank)))
        return xp.where(places == classes, values[1], values[0])

    return one_hot


@_shared("ReverseSequence")
def _reverse_sequence(node: OperatorNode, native: ArrayLibrary) -> Function:
    batch_axis, time_axis, xp = int(node["batch_axis"]), int(node["time_axis"]), native.xp

    def reverse_sequence(x: Array, lengths: Array) -> Array:
        steps = native.array(np.arange(x.shape[time_axis]))
        ends = lengths[:, None]
        # (batch, time): where the element that comes to stand at each time is taken from.
        source = xp.where(steps < ends, ends - 1 - steps, steps)
        source = source.T if time_axis < batch_axis else source
        shape = [1] * x.ndim
        shape[batch_axis], shape[time_axis] = x.shape[batch_axis], x.shape[time_axis]
        source = xp.broadcast_to(source.reshape(shape), x.shape)
        return xp.take_along_axis(x, source, axis=time_axis)

    return reverse_sequence


@_shared("ArrayFeatureExtractor", domain=_LEARNING)
def _array_feature_extractor(_: OperatorNode, __: ArrayLibrary) -> Function:
    def extract(x: Array, indices: Array) -> Array:
        found = x[..., indices.reshape(-1)]
        return found[None] if x.ndim == 1 else found

    return extract


# Arrays that are made on the host.


def _type_of(node: OperatorNode) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(int(node["output_datatype"])))


_WINDOWS = {
    "BlackmanWindow": (0.42, -0.5, 0.08),
    "HammingWindow": (25 / 46, -21 / 46),
    "HannWindow": (0.5, -0.5),
}
"""Coefficients of the cosines of 0, 1 and 2 turns."""


@_shared(*_WINDOWS)
def _window(node: OperatorNode, native: ArrayLibrary) -> Function:
    coefficients, periodic, dtype = _WINDOWS[node.op_type], bool(node["periodic"]), _type_of(node)

    def window(size: Host) -> Array:
        count = int(np.asarray(size).item())
        turns = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = sum((weight * np.cos(order * turns) for order, weight in enumerate(coefficients)), np.zeros(count))
        return native.array(values.astype(dtype))

    return window


@_shared("MelWeightMatrix")
def _mel_weight_matrix(node: OperatorNode, native: ArrayLibrary) -> Function:
    """Triangles between centres at equal distances on the mel scale, 2595 log10(1 + f / 700) (ONNX's reference)."""
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
        # Of a triangle without a left side only the tip is left.
        up &= (centre != left) | (frequency == centre)
        return native.array(np.where(up, rising, np.where(down, falling, 0.0)).astype(dtype))

    return mel_weight_matrix


# Sequences and images.


@_shared("RotaryEmbedding")
def _rotary_embedding(node: OperatorNode, native: ArrayLibrary) -> Function:
    """Rotates pairs of components by the angle of their position (Su et al. 2021, RoFormer)."""
    interleaved, heads, xp = bool(node["interleaved"]), node.get("num_heads"), native.xp
    part = int(node.get("rotary_embedding_dim") or 0)

    def rotate(x: Array, cosines: Array, sines: Array, positions: Array | None = None) -> Array:
        flat = x.ndim == 3
        rows = x.reshape((*x.shape[:2], heads, -1)) if flat else xp.permute_dims(x, (0, 2, 1, 3))
        if positions is not None:
            cosines, sines = cosines[positions], sines[positions]
        # (batch, sequence, 1, half the rotated size), for all heads.
        cosines, sines = cosines[:, :, None], sines[:, :, None]
        turned = rows[..., :part] if part else rows
        half = turned.shape[-1] // 2
        a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else (turned[..., :half], turned[..., half:])
        pair = [a * cosines - b * sines, a * sines + b * cosines]
        found = xp.stack(pair, axis=-1).reshape(turned.shape) if interleaved else xp.concat(pair, axis=-1)
        if part:
            found = xp.concat([found, rows[..., part:]], axis=-1)
        return found.reshape(x.shape) if flat else xp.permute_dims(found, (0, 2, 1, 3))

    return rotate


@_shared("RoiAlign")
def _roi_align(node: OperatorNode, native: ArrayLibrary) -> Function:
    """Bins of a region, each the mean or the largest of its samples; how many, a region's size may say."""
    half = node.get("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    height, width, ratio = int(node["output_height"]), int(node["output_width"]), int(node["sampling_ratio"])
    scale, largest, xp = float(node["spatial_scale"]), node["mode"] == "max", native.xp

    def roi_align(x: Array, rois: Array, batches: Array) -> Array:
        corners = rois * scale - (0.5 if half else 0.0)
        rows = _samples(native, corners[:, 1], corners[:, 3], height, ratio, x.shape[2], half)
        columns = _samples(native, corners[:, 0], corners[:, 2], width, ratio, x.shape[3], half)
        (y, y_weights, y_real), (x_at, x_weights, x_real) = rows, columns
        # (regions, channels, height, samples, corners, width, samples, corners)
        y, y_weights = y[:, :, :, :, None, None, None], y_weights[:, None, :, :, :, None, None, None]
        x_at, x_weights = x_at[:, None, None, None], x_weights[:, None, None, None, None]
        values = xp.moveaxis(x[batches.reshape((-1, 1, 1, 1, 1, 1, 1)), :, y, x_at], -1, 1)
        weighted = values * y_weights * x_weights
        real = y_real[:, None, None, :, None, None] & x_real[:, None, None, None, None, :]
        if largest:
            # The largest of the weighted corners, as ONNX and ONNX Runtime define it.
            best = xp.max(weighted, axis=(4, 7))
            return xp.astype(xp.max(xp.where(real, best, -xp.inf), axis=(3, 5)), x.dtype)
        counts = xp.clip(xp.sum(y_real, axis=1) * xp.sum(x_real, axis=1), min=1).reshape((-1, 1, 1, 1))
        total = xp.sum(xp.where(real, xp.sum(weighted, axis=(4, 7)), 0), axis=(3, 5))
        return xp.astype(total / counts, x.dtype)

    return roi_align


def _samples(
    native: ArrayLibrary, start: Array, end: Array, bins: int, ratio: int, size: int, half: bool
) -> tuple[Array, Array, Array]:
    """Along one axis: places (regions, bins, samples, 2), their weights, and which samples a region has."""
    xp = native.xp
    extent = end - start if half else xp.clip(end - start, min=1.0)
    bin_size = extent / bins
    if ratio > 0:
        counts, most = xp.full_like(start, ratio), ratio
    else:
        counts = xp.ceil(bin_size)
        most = max(1, int(xp.max(counts))) if start.shape[0] else 1
    steps = xp.astype(native.array(np.arange(most)), start.dtype)
    real = steps < counts[:, None]
    within = (steps + 0.5) * (bin_size / counts)[:, None]
    bases = start[:, None] + xp.astype(native.array(np.arange(bins)), start.dtype) * bin_size[:, None]
    at = bases[:, :, None] + within[:, None]
    seen = (at >= -1.0) & (at <= size)
    at = xp.clip(at, min=0, max=size - 1)
    low = xp.floor(at)
    places = xp.astype(xp.stack([low, xp.clip(low + 1, max=size - 1)], axis=-1), xp.int64)
    weights = xp.stack([1 - (at - low), at - low], axis=-1) * seen[..., None]
    return places, weights, real


# Counts of n-grams, and optimizers as operators.


@_shared("TfIdfVectorizer")
def _tfidf(node: OperatorNode, native: ArrayLibrary) -> Function:
    """How often each known sequence occurs in a row, its elements up to ``max_skip_count`` apart."""
    if node.get("pool_int64s") is None:
        raise UnsupportedError(node.title, "only ONNX's reference has strings here", "use numpy")
    xp, mode, weights, most = native.xp, node["mode"], node.get("weights"), int(node["max_skip_count"])
    grams, columns = _grams(node)
    size = int(np.max(node["ngram_indexes"])) + 1
    # For each column the sequences that count there, filled up with the last place, where zeros stand.
    there = [np.flatnonzero(columns == at) for at in range(size)]
    sources = np.full((size, max(len(each) for each in there)), len(columns))
    for at, each in enumerate(there):
        sources[at, : len(each)] = each
    # A weight belongs to the sequence at its place in the list, and so to that one's column.
    scales = np.ones(size, np.float32)
    if mode != "TF" and weights is not None:
        scales[np.asarray(node["ngram_indexes"], np.int64)] = weights

    def tfidf(x: Array) -> Array:
        rows = x.reshape((1, -1)) if x.ndim < 2 else x
        counts = [_occurrences(native, rows, each, most) for each in grams]
        counts.append(native.array(np.zeros((rows.shape[0], 1), np.float32)))
        joined = xp.concat(counts, axis=1)
        taken = xp.take(joined, native.array(sources.reshape(-1)), axis=1)
        found = xp.sum(taken.reshape((rows.shape[0], *sources.shape)), axis=-1)
        if mode == "IDF":
            found = xp.astype(found > 0, xp.float32)
        found = found * native.array(scales)
        return found if x.ndim == 2 else found[0]

    return tfidf


def _grams(node: OperatorNode) -> tuple[list[Host], Host]:
    """The sequences whose lengths are wanted, (count, length) each, and the column of the output of each sequence."""
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


def _occurrences(native: ArrayLibrary, rows: Array, sequences: Host, most: int) -> Array:
    """How often each sequence occurs in each row, with every distance that is allowed: (rows, sequences)."""
    xp, length = native.xp, sequences.shape[1]
    wanted = native.array(sequences)
    total = native.array(np.zeros((rows.shape[0], len(sequences)), np.float32))
    # Single elements have no distance, and count once.
    for skip in range(1, 2 if length == 1 else most + 2):
        windows = rows.shape[1] - skip * (length - 1)
        if windows > 0:
            parts = xp.stack([rows[:, at * skip : at * skip + windows] for at in range(length)], axis=-1)
            same = xp.all(parts[:, :, None] == wanted, axis=-1)
            total = total + xp.astype(xp.sum(same, axis=1), xp.float32)
    return total


def _each(rule: Callable[..., tuple[Array, ...]], kinds: int) -> Function:
    """``rule(rate, step, parameter, gradient, state...)`` for every parameter; inputs and outputs lie kind by kind."""

    def update(rate: Array, step: Array, *values: Array) -> tuple[Array, ...]:
        count = len(values) // kinds
        found: Sequence[tuple[Array, ...]] = [rule(rate, step, *values[at::count]) for at in range(count)]
        return tuple(each for kind in zip(*found, strict=True) for each in kind)

    return update


@_shared("Adagrad", domain=_TRAINING)
def _adagrad(node: OperatorNode, native: ArrayLibrary) -> Function:
    """Duchi et al. 2011, with ONNX's decay of the rate and regularisation."""
    decay, epsilon, norm = float(node["decay_factor"]), float(node["epsilon"]), float(node["norm_coefficient"])
    xp = native.xp

    def adagrad(rate: Array, step: Array, x: Array, gradient: Array, squares: Array) -> tuple[Array, ...]:
        whole = norm * x + gradient
        total = squares + whole * whole
        adjusted = xp.astype(rate / (1 + step * decay), x.dtype)
        return x - adjusted * whole / (xp.sqrt(total) + epsilon), total

    return _each(adagrad, 3)


@_shared("Adam", domain=_TRAINING)
def _adam(node: OperatorNode, native: ArrayLibrary) -> Function:
    """Kingma and Ba 2015, with ONNX's regularisation before and after."""
    alpha, beta, epsilon = float(node["alpha"]), float(node["beta"]), float(node["epsilon"])
    norm, after, xp = float(node["norm_coefficient"]), float(node["norm_coefficient_post"]), native.xp

    def adam(rate: Array, step: Array, x: Array, gradient: Array, mean: Array, square: Array) -> tuple[Array, ...]:
        whole = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * whole
        square = beta * square + (1 - beta) * whole * whole
        # The first call has step 0, for which nothing is corrected, and the divisor would be zero.
        time = xp.astype(xp.where(step > 0, step, 1), x.dtype)
        corrected = rate * xp.sqrt(1 - beta**time) / (1 - alpha**time)
        adjusted = xp.astype(xp.where(step > 0, corrected, rate), x.dtype)
        return (1 - after) * (x - adjusted * mean / (xp.sqrt(square) + epsilon)), mean, square

    return _each(adam, 4)


@_shared("Momentum", domain=_TRAINING)
def _momentum(node: OperatorNode, native: ArrayLibrary) -> Function:
    alpha, beta, norm = float(node["alpha"]), float(node["beta"]), float(node["norm_coefficient"])
    nesterov, xp = node["mode"] == "nesterov", native.xp

    def momentum(rate: Array, step: Array, x: Array, gradient: Array, velocity: Array) -> tuple[Array, ...]:
        whole = norm * x + gradient
        # Undamped at first: there is no velocity yet.
        share = xp.astype(xp.where(step > 0, beta, 1.0), x.dtype)
        velocity = alpha * velocity + share * whole
        move = whole + alpha * velocity if nesterov else velocity
        return x - xp.astype(rate, x.dtype) * move, velocity

    return _each(momentum, 3)
