"""Says whether outputs are those that a node test expects: number, type, shape, then values within its tolerances.

The one idea: an output that ONNX leaves to chance cannot be compared with one draw of it. Bernoulli and Dropout in
training are judged by what they promise: which values may appear, which must, and how often, within five standard
deviations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from levelbench.operators.conformance.cases import Case

__all__ = ["judge", "tolerances"]

_SIGMAS = 5.0
_RANDOM = {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform"}
# A test's own tolerance of 1e-3 is about one rounding of float16 and far below one of bfloat16: eight and two are
# allowed, and near zero as many of the largest expected value.
_LOW = {np.dtype(np.float16): 8 * 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2 * 2.0**-7}


def tolerances(case: Case, dtype: np.dtype[Any]) -> tuple[float, float]:
    """(relative, absolute as a share of the largest expected value) on top of the test's own, for half precisions."""
    low = _LOW.get(dtype, 0.0)
    return max(case.rtol, low), low / 2


def judge(case: Case, inputs: Sequence[Any], outputs: Sequence[Any], expected: Sequence[Any]) -> str | None:
    """``None`` if the outputs are right, else what is wrong, with where and how much for values."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, {len(expected)} expected"
    chance = _by_chance(case, inputs)
    for at, (found, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if fault := _compare(case, found, wanted, values=not chance):
            return f"output {at}: {fault}"
    return _distribution(case, inputs, outputs) if chance else None


def _compare(case: Case, found: Any, wanted: Any, values: bool = True) -> str | None:
    if wanted is None:
        return None if found is None else "a value where an empty optional is expected"
    if isinstance(wanted, list):
        return _compare_lists(case, found, wanted)
    if not isinstance(found, np.ndarray):
        return f"a {type(found).__name__} where a tensor is expected"
    wanted = np.asarray(wanted)
    text = wanted.dtype.kind in "OSUT"
    if found.dtype != wanted.dtype and not (text and found.dtype.kind in "OSUT"):
        return f"type {found.dtype}, {wanted.dtype} expected"
    if found.shape != wanted.shape:
        return f"shape {found.shape}, {wanted.shape} expected"
    return _compare_values(case, found, wanted) if values else None


def _compare_lists(case: Case, found: Any, wanted: list[Any]) -> str | None:
    if not isinstance(found, list):
        return f"a {type(found).__name__} where a sequence is expected"
    if len(found) != len(wanted):
        return f"a sequence of {len(found)}, one of {len(wanted)} expected"
    for at, (each, other) in enumerate(zip(found, wanted, strict=True)):
        if fault := _compare(case, each, other):
            return f"element {at}: {fault}"
    return None


def _compare_values(case: Case, found: Any, wanted: Any) -> str | None:
    if wanted.dtype.kind in "OSUT":
        bad = np.asarray([_text(a) != _text(b) for a, b in zip(found.ravel(), wanted.ravel(), strict=True)], bool)
        bad = bad.reshape(wanted.shape)
    elif wanted.dtype.kind in "biu":
        # An integer that is off by one is wrong, unless a rounding of 1e-3 explains it: then it is large.
        rtol, _ = tolerances(case, wanted.dtype)
        difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        bad = difference > case.atol + rtol * np.abs(wanted.astype(np.float64))
    else:
        bad = ~_close(case, found, wanted)
    if not bad.any():
        return None
    where = tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), bad.shape))
    share = f"{int(bad.sum())} of {bad.size} values differ"
    return f"{share}, first at {where}: {found[where]}, {wanted[where]} expected"


def _close(case: Case, found: Any, wanted: Any) -> Any:
    rtol, share = tolerances(case, wanted.dtype)
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = found.astype(kind), wanted.astype(kind)
    finite = np.abs(b[np.isfinite(b)])
    atol = case.atol + share * float(finite.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        return np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _by_chance(case: Case, inputs: Sequence[Any]) -> bool:
    if case.operator == "Dropout":
        return len(inputs) > 2 and bool(np.asarray(inputs[2]))
    return case.operator in _RANDOM or any(node.op_type in _RANDOM - {"Dropout"} for node in case.model.graph.node)


def _distribution(case: Case, inputs: Sequence[Any], outputs: Sequence[Any]) -> str | None:
    if case.operator == "Bernoulli":
        return _bernoulli(np.asarray(inputs[0], np.float64), np.asarray(outputs[0], np.float64))
    if case.operator == "Dropout":
        mask = outputs[1] if len(outputs) > 1 else None
        return _dropout(
            np.asarray(inputs[0], np.float64),
            float(np.asarray(inputs[1])) if inputs[1] is not None else 0.5,
            np.asarray(outputs[0], np.float64),
            mask,
        )
    return f"no rule judges the random operator {case.operator}"


def _bernoulli(probability: Any, drawn: Any) -> str | None:
    if not np.isin(drawn, (0.0, 1.0)).all():
        return "values other than 0 and 1"
    if (drawn[probability == 0] != 0).any() or (drawn[probability == 1] != 1).any():
        return "a draw that has probability 0"
    return _count(drawn.sum(), probability.sum(), float((probability * (1 - probability)).sum()))


def _dropout(x: Any, ratio: float, y: Any, mask: Any) -> str | None:
    kept = y != 0 if mask is None else np.asarray(mask, bool)
    scaled = np.where(kept, x / (1 - ratio) if ratio < 1 else 0.0, 0.0)
    if not np.allclose(y, scaled, rtol=1e-3, atol=1e-6):
        return "values that are neither 0 nor the input over (1 - ratio)"
    return _count(float(kept.sum()), x.size * (1 - ratio), x.size * ratio * (1 - ratio))


def _count(found: float, mean: float, variance: float) -> str | None:
    if abs(found - mean) <= _SIGMAS * np.sqrt(variance) + 1e-9:
        return None
    return f"{found:g} ones where {mean:g} +- {np.sqrt(variance):.2g} are expected"
