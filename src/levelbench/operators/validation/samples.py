"""Inputs to check with, made of given ones: other values and other shapes, as an operator will meet them.

The one idea: an example shows which dimensions belong together, since those that must be equal are; so a size is
replaced wherever it occurs, and the reference decides whether the result is an input at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from levelbench.operators.validation.subject import Host
from levelbench.operators.validation.tolerances import is_float

__all__ = ["Inputs", "describe", "long_inputs", "other_shapes", "other_values", "random_inputs", "special_values"]

Inputs = list[Host | None]

_PRIMES = (7, 13, 17, 19)
_LONG = 4096
_MOST_ELEMENTS = 2**17
# A float16 sum of such values stands still at 128 of 225: half its spacing there, 0.0625, is more than any of them.
_SHORT_OF_STUCK = (0.05, 0.06)


def describe(inputs: Sequence[Host | None]) -> str:
    """``float32[8,16], int64[4]``."""
    return ", ".join(
        "none" if each is None else f"{each.dtype}[{','.join(str(size) for size in each.shape)}]" for each in inputs
    )


def random_inputs(shapes: Sequence[tuple[int, ...]], dtype: Any = np.float32, seed: int = 0) -> Inputs:
    """Normal inputs of these shapes."""
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def _mapped(inputs: Sequence[Host | None], fixed: frozenset[int], function: Any) -> Inputs:
    return [
        value
        if value is None or at in fixed or not is_float(value.dtype)
        else np.asarray(function(value.astype(np.float64))).astype(value.dtype)
        for at, value in enumerate(inputs)
    ]


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


def special_values(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, int, Inputs]]:
    """(value, input, inputs with it at one place), for NaN and both infinities and each floating-point input."""
    for at, value in enumerate(inputs):
        if value is None or at in fixed or not is_float(value.dtype) or not value.size:
            continue
        place = int(random.integers(value.size))
        for name, special in (("NaN", np.nan), ("infinity", np.inf), ("-infinity", -np.inf)):
            changed = value.copy(order="C")
            changed.reshape(-1)[place] = special
            yield name, at, [*inputs[:at], changed, *inputs[at + 1 :]]


def _resized(
    inputs: Sequence[Host | None],
    fixed: frozenset[int],
    old: int,
    new: int,
    random: np.random.Generator,
    positive: bool = False,
) -> Inputs:
    """Inputs in which each size ``old`` is ``new``; integers and booleans keep the values they had."""
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
            # Drawn from the values that are there: a variance stays positive, a probability below one.
            pool = value.astype(np.float64).ravel() if value.size else np.ones(1)
            found.append((random.choice(pool, shape) * random.uniform(0.9, 1.0, shape)).astype(value.dtype))
    return found


def _sizes(inputs: Sequence[Host | None], fixed: frozenset[int]) -> list[int]:
    found = [each.shape for at, each in enumerate(inputs) if each is not None and at not in fixed]
    return list(dict.fromkeys(size for shape in found for size in shape))


def other_shapes(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator, first_only: bool = False
) -> Iterator[tuple[str, Inputs]]:
    """Each size in turn as 1, as a prime, as the next size (a square), and as 0, wherever it occurs.

    ``first_only``: only the sizes that the first input has.
    """
    sizes = _sizes(inputs[:1] if first_only else inputs, fixed)
    for old, following in zip(sizes, [*sizes[1:], *sizes[:1]], strict=True):
        prime = next(each for each in _PRIMES if each not in sizes)
        for new in dict.fromkeys((1, prime, following, 0)):
            if new != old:
                yield f"size {old} as {new}", _resized(inputs, fixed, old, new, random)


def long_inputs(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Each size in turn as 4096, with small positive values: long sums, in which a narrow accumulator gets stuck."""
    for old in _sizes(inputs, fixed):
        grown = [
            math.prod(_LONG if size == old else size for size in each.shape)
            for at, each in enumerate(inputs)
            if each is not None and at not in fixed
        ]
        if max(grown, default=0) <= _MOST_ELEMENTS:
            yield f"size {old} as {_LONG}", _resized(inputs, fixed, old, _LONG, random, positive=True)
