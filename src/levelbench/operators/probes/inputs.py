"""More inputs to check an operator with, derived from given ones: other values, sizes, ranks and integer types.

Equal sizes in an example are assumed to belong together, so a size is replaced wherever it occurs; the reference
decides whether the result is a valid input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from levelbench.checks.arrays import Host, is_float
from levelbench.operators.contract import DType, Function
from levelbench.operators.probes.subject import Inputs, replaced

_PRIMES = (7, 13, 17, 19)
# A prime beyond 4096, the most that a block or a buffer for a row usually holds.
_LONG = 5003
_MOST_ELEMENTS = 2**17
# A float16 sum of 5003 such values (275) gets stuck at 128: half its spacing there, 0.0625, exceeds each of them.
_SHORT_OF_STUCK = (0.05, 0.06)


def describe(inputs: Sequence[Host | None]) -> str:
    """``float32[8,16], int64[4]``."""
    return ", ".join(
        "none" if each is None else f"{each.dtype}[{','.join(str(size) for size in each.shape)}]" for each in inputs
    )


def _mapped(inputs: Sequence[Host | None], fixed: frozenset[int], function: Function) -> Inputs:
    return [
        value
        if value is None or at in fixed or not is_float(value.dtype)
        else np.asarray(function(value.astype(np.float64))).astype(value.dtype)
        for at, value in enumerate(inputs)
    ]


def scaled(inputs: Sequence[Host | None], fixed: frozenset[int], factor: float) -> Inputs:
    """The floating-point inputs times a factor."""
    return _mapped(inputs, fixed, lambda x: factor * x)


def other_values(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """The same shapes with other values: fresh, negative, large, small, shifted, with zeros and ties, all equal."""
    yield "fresh values", _mapped(inputs, fixed, lambda x: np.flip(x) * random.uniform(0.5, 1.5, x.shape))
    yield "negative values", _mapped(inputs, fixed, lambda x: -np.abs(x))
    yield "values times 100", _mapped(inputs, fixed, lambda x: 100 * x)
    yield "values times 0.001", _mapped(inputs, fixed, lambda x: 0.001 * x)
    yield "values plus 1000", _mapped(inputs, fixed, lambda x: x + 1000)
    yield "zeros and ties", _mapped(inputs, fixed, lambda x: np.round(2 * x) / 2)
    yield "all equal", _mapped(inputs, fixed, lambda x: np.full_like(x, 0.5))


_PLACES = 24


def special_values(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, int, int, Inputs]]:
    """(value, input, place, inputs with that value there) for NaN, infinities and -0.0 at 24 places or all.

    At the first and the last in any case. And (as the place -1) subnormal numbers everywhere.
    """
    for at, value in enumerate(inputs):
        if value is None or at in fixed or not is_float(value.dtype) or not value.size:
            continue
        places = dict.fromkeys((*random.permutation(value.size)[:_PLACES].tolist(), 0, value.size - 1))
        for name, special in (("NaN", np.nan), ("infinity", np.inf), ("-infinity", -np.inf), ("-0.0", -0.0)):
            for place in places:
                changed = value.copy(order="C")
                changed.reshape(-1)[place] = special
                yield name, at, place, replaced(inputs, at, changed)
        if value.dtype.kind == "f":
            tiny = float(np.finfo(value.dtype).tiny) * random.uniform(0.1, 0.9, value.shape)
            yield "subnormal numbers", at, -1, replaced(inputs, at, np.copysign(tiny, value).astype(value.dtype))


def _resized(
    inputs: Sequence[Host | None],
    fixed: frozenset[int],
    old: int,
    new: int,
    random: np.random.Generator,
    positive: bool = False,
) -> Inputs:
    """The inputs with each size ``old`` changed to ``new``; integers and booleans keep their values, repeated."""
    found: Inputs = []
    for at, value in enumerate(inputs):
        if value is None or at in fixed or (old not in value.shape and not positive):
            found.append(value)
            continue
        shape = tuple(new if size == old else size for size in value.shape)
        if not is_float(value.dtype):
            found.append(np.resize(value, shape).astype(value.dtype))
        elif positive:
            found.append(random.uniform(*_SHORT_OF_STUCK, shape).astype(value.dtype))
        else:
            found.append(_drawn_like(value, shape, random))
    return found


def _sizes(inputs: Sequence[Host | None], fixed: frozenset[int]) -> list[int]:
    found = [each.shape for at, each in enumerate(inputs) if each is not None and at not in fixed]
    return list(dict.fromkeys(size for shape in found for size in shape))


def other_shapes(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator, first_only: bool = False
) -> Iterator[tuple[str, Inputs]]:
    """Inputs with each size in turn changed, wherever it occurs, to 1, a prime, the next size (a square), and 0.

    ``first_only``: only the sizes of the first input.
    """
    sizes = _sizes(inputs[:1] if first_only else inputs, fixed)
    for old, following in zip(sizes, [*sizes[1:], *sizes[:1]], strict=True):
        prime = next(each for each in _PRIMES if each not in sizes)
        for new in dict.fromkeys((1, prime, following, 0)):
            if new != old:
                yield f"size {old} as {new}", _resized(inputs, fixed, old, new, random)


def long_inputs(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator, part: int = 1
) -> Iterator[tuple[str, Inputs]]:
    """Inputs with each size in turn 5003, and small positive values: long sums in which a narrow accumulator sticks.

    ``part``: with the same titles, inputs of that part of the length.
    """
    for old in _sizes(inputs, fixed):
        grown = [
            math.prod(_LONG if size == old else size for size in each.shape)
            for at, each in enumerate(inputs)
            if each is not None and at not in fixed
        ]
        if max(grown, default=0) <= _MOST_ELEMENTS:
            yield f"size {old} as {_LONG}", _resized(inputs, fixed, old, _LONG // part, random, positive=True)


_BATCHES = (2, 3, 5)
_PAST_BLOCKS = (67, 256, 257)
_SMALL_ODD = (5, 7, 3, 9, 11, 13)
# More than 16-bit indices count.
_HUGE = 66_000


def more_sizes(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Batches of 2, 3 and 5, and sizes past those of the blocks and vectors that kernels are written with.

    256 is a multiple of all usual blocks, 257 leaves one element over, and 67 three. Then all sizes are odd, and large.
    """
    free = [each for at, each in enumerate(inputs) if each is not None and at not in fixed]
    sizes = _sizes(inputs, fixed)
    if not free or not sizes:
        return
    if free[0].ndim > 1:
        yield from ((f"batch {new}", _resized(inputs, fixed, sizes[0], new, random)) for new in _BATCHES)
    ends = (free[0].shape[-1], sizes[0]) if free[0].ndim else ()
    for old in dict.fromkeys((*ends, *sizes)):
        for new in _PAST_BLOCKS if old in ends else _PAST_BLOCKS[-1:]:
            if new != old and _count(inputs, fixed, old, new) <= _MOST_ELEMENTS:
                yield f"size {old} as {new}", _resized(inputs, fixed, old, new, random)
    if small := _all_resized(inputs, fixed, _SMALL_ODD, random):
        yield "every size odd", small
    yield from large_inputs(inputs, fixed, random)


def many_rows(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs, Inputs]]:
    """More rows, so that there are more than 66,000 elements; and, third, only the first of the given rows.

    The last shows whether rows are independent: where they are not, so many may take the square of their number.
    """
    free = [each for at, each in enumerate(inputs) if each is not None and at not in fixed]
    if not free or not free[0].ndim or free[0].shape[0] < 2:
        return
    old = free[0].shape[0]
    rest = _count(inputs, fixed, old, 1)
    new = -(-_HUGE // max(1, rest)) | 1
    if rest > (free[0].ndim > 1) and _count(inputs, fixed, old, new) <= _MOST_ELEMENTS:
        first = [
            value if value is None or at in fixed or value.shape[:1] != (old,) else value[:1]
            for at, value in enumerate(inputs)
        ]
        yield f"size {old} as {new}", _resized(inputs, fixed, old, new, random), first


def large_inputs(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Every size odd, and every size a multiple of 8; in arrays of up to two axes, more than 5,000 elements."""
    most = max((each.ndim for at, each in enumerate(inputs) if each is not None and at not in fixed), default=0)
    odd = (5101,) if most < 2 else (101, 67, 37, 43, 47) if most == 2 else (11, 13, 37, 17, 19)
    even = (5120,) if most < 2 else (192, 128, 64, 96, 160) if most == 2 else (16, 8, 64, 24, 32)
    for title, sizes in (("odd and large", odd), ("even and large", even)):
        changed = _all_resized(inputs, fixed, sizes, random)
        if changed and max((each.size for each in changed if each is not None), default=0) <= _MOST_ELEMENTS:
            yield f"every size {title}", changed


def _all_resized(
    inputs: Sequence[Host | None], fixed: frozenset[int], new: Sequence[int], random: np.random.Generator
) -> Inputs | None:
    """Every size above 1 replaced, equal ones by equal ones; ``None`` if there is none, or ``new`` has too few."""
    old = [each for each in _sizes(inputs, fixed) if each > 1]
    if not 0 < len(old) <= len(new):
        return None
    sizes: dict[int, int] = dict(zip(old, new, strict=False))
    return [
        value
        if value is None or at in fixed
        else _drawn_like(value, tuple(sizes[size] if size > 1 else size for size in value.shape), random)
        for at, value in enumerate(inputs)
    ]


def equal_sizes(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Every size above 1 the same, so that no axis is told from another by its size.

    It is the smallest of them, or with integers the largest, so that indices stay valid.
    """
    sizes = [each for each in _sizes(inputs, fixed) if each > 1]
    whole = any(each is not None and each.dtype.kind in "iu" for each in inputs)
    changed = _all_resized(inputs, fixed, [(max if whole else min)(sizes, default=0)] * len(sizes), random)
    if len(sizes) > 1 and changed and max(each.size for each in changed if each is not None) <= _MOST_ELEMENTS:
        yield "every size equal", changed


def with_zeros(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Zeros among numbers of both signs: one in each row, and nothing else. Other numbers may have to be positive."""
    signed = [
        at
        for at, each in enumerate(inputs)
        if each is not None and at not in fixed and is_float(each.dtype) and (each > 0).any() and (each < 0).any()
    ]
    if not signed:
        return
    rows, zeros = list(inputs), list(inputs)
    for at in signed:
        value = np.asarray(inputs[at])
        rows[at], zeros[at] = value.copy(order="C"), np.zeros_like(value)
        if value.ndim:
            lines = rows[at].reshape(-1, value.shape[-1])  # type: ignore[union-attr]
            lines[np.arange(len(lines)), random.integers(value.shape[-1], size=len(lines))] = 0
    yield "a zero in each row", rows
    yield "only zeros", zeros


def _count(inputs: Sequence[Host | None], fixed: frozenset[int], old: int, new: int) -> int:
    """The elements of the largest input with a size replaced."""
    shapes = [each.shape for at, each in enumerate(inputs) if each is not None and at not in fixed]
    return max((math.prod(new if size == old else size for size in shape) for shape in shapes), default=0)


def _drawn_like(value: Host, shape: tuple[int, ...], random: np.random.Generator) -> Host:
    """An array of another shape. Integers and booleans are repeated; other values are drawn from the existing ones.

    So variances stay positive and probabilities below one.
    """
    if not is_float(value.dtype):
        return np.resize(value, shape).astype(value.dtype)
    pool = value.astype(np.float64).ravel() if value.size else np.ones(1)
    return np.asarray(random.choice(pool, shape) * random.uniform(0.9, 1.0, shape)).astype(value.dtype)


_RANKS = range(6)


def other_ranks(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """The first input, and those of its shape, with 0 to 5 axes: leading axes are left out or added.

    Nothing is tried with integers beside floating-point numbers, which may be indices or labels.
    """
    free = [at for at, each in enumerate(inputs) if each is not None and at not in fixed]
    first = inputs[free[0]] if free else None
    if first is None or len({is_float(np.asarray(inputs[at]).dtype) for at in free}) > 1:
        return
    for rank in _RANKS:
        if rank == first.ndim:
            continue
        shape = (
            first.shape[first.ndim - rank :] if rank < first.ndim else ((2, 3) * 3)[: rank - first.ndim] + first.shape
        )
        changed = list(inputs)
        for at in free:
            value = np.asarray(inputs[at])
            if value.shape == first.shape:
                changed[at] = _drawn_like(value, shape, random)
        yield f"rank {rank}", changed


_RANGES = ((6.0, 12.0), (20.0, 60.0), (200.0, 900.0), (1e-4, 1e-3))


def other_magnitudes(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, int, Inputs]]:
    """(title, input, inputs with that input's numbers between two magnitudes): signs are kept."""
    for at, value in enumerate(inputs):
        if value is None or at in fixed or not is_float(value.dtype) or not value.size:
            continue
        for low, high in _RANGES:
            sizes = random.uniform(low, high, value.shape)
            drawn = np.copysign(sizes, value.astype(np.float64)).astype(value.dtype)
            yield f"magnitudes from {low:g} to {high:g}", at, replaced(inputs, at, drawn)


def with_integers(
    inputs: Sequence[Host | None], fixed: frozenset[int], numbers: Iterable[object]
) -> Iterator[tuple[str, Inputs]]:
    """Integers of which every third is one of the numbers, such as a label to ignore, if it is among their range."""
    for at, value in enumerate(inputs):
        if value is None or at in fixed or value.dtype.kind not in "iu" or not value.size:
            continue
        for number in dict.fromkeys(each for each in numbers if type(each) is int):
            if min(0, int(value.min())) <= number <= int(value.max()):
                changed = value.copy(order="C")
                changed.reshape(-1)[::3] = number
                yield f"{number} among the integers", replaced(inputs, at, changed)


INTEGERS = tuple(np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8))


def integer_types(inputs: Sequence[Host | None], fixed: frozenset[int]) -> Iterator[tuple[str, Inputs]]:
    """The same integers in every type that holds them."""
    free = [at for at, each in enumerate(inputs) if each is not None and at not in fixed and each.dtype.kind in "iu"]
    for dtype in INTEGERS if free else ():
        limits = np.iinfo(dtype)
        held = [np.asarray(inputs[at]) for at in free]
        if all(not each.size or (limits.min <= int(each.min()) and int(each.max()) <= limits.max) for each in held):
            yield (
                str(dtype),
                [each.astype(dtype) if at in free and each is not None else each for at, each in enumerate(inputs)],
            )


def at_limits(
    inputs: Sequence[Host | None], places: Sequence[int], dtype: DType, random: np.random.Generator
) -> Inputs:
    """The inputs at these places filled with the smallest and the largest integer of a type."""
    ends = np.array((np.iinfo(dtype).min, np.iinfo(dtype).max), dtype)
    return [
        random.choice(ends, each.shape) if at in places and each is not None else each for at, each in enumerate(inputs)
    ]


def large_integers(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Integers over the range of each type, and long inputs with sums beyond it or beyond 2^31 and 2^53."""
    free = [at for at, each in enumerate(inputs) if each is not None and at not in fixed and each.dtype.kind in "iu"]
    if not free:
        return
    for dtype in INTEGERS:
        limits = np.iinfo(dtype)

        def drawn(shape: tuple[int, ...], low: int, high: int, dtype: np.dtype = dtype) -> Host:
            return random.integers(low, high, shape, dtype, endpoint=True)

        yield (
            f"{dtype} over its range",
            [
                drawn(each.shape, limits.min, limits.max) if at in free and each is not None else each
                for at, each in enumerate(inputs)
            ],
        )
        yield f"{dtype} at its limits", at_limits(inputs, free, dtype, random)
        most = min(limits.max, 2**20 if dtype.itemsize < 8 else 2**50)
        for old in _sizes(inputs, fixed):
            if _count(inputs, fixed, old, _LONG) > _MOST_ELEMENTS:
                continue
            grown = _resized(inputs, fixed, old, _LONG, random)
            filled = [
                drawn(each.shape, most // 2, most) if at in free and each is not None else each
                for at, each in enumerate(grown)
            ]
            yield f"{dtype} in sums of {_LONG}", filled
