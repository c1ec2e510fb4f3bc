"""Checks an operator's outputs against a reference that computes in float64, and raises where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelbench.errors import CheckFailedError, LevelbenchError, UsageError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.validation.comparing import compare, sensitivity
from levelbench.operators.validation.metrics import Errors, difference, errors
from levelbench.operators.validation.reductions import sum_length
from levelbench.operators.validation.subject import Host, Subject, attempt, subject_of, widened
from levelbench.operators.validation.tolerances import Tolerance, is_float, tolerance_for, unit_roundoff

__all__ = ["Expected", "Reference", "check_forward", "fault_of", "judge_outputs"]

_INTERMEDIATE = 8.0


@dataclass(frozen=True)
class Expected:
    """What the reference says: its outputs in float64, and in the inputs' own dtype, ``None`` if it cannot.

    ``exact`` is whether ``wide`` are in float64: a reference may know the inputs' own dtype only.
    """

    wide: tuple[Host | None, ...]
    narrow: tuple[Host | None, ...] | None
    exact: bool = True


class Reference:
    """A reference: a function on NumPy arrays, an operator on them, or the expected arrays themselves."""

    def __init__(self, given: Any, backend: OperatorBackend | None = None) -> None:
        self._given = given
        is_arrays = isinstance(given, tuple | list | np.ndarray)
        self.subject: Subject | None = None if is_arrays else subject_of(given, backend, name="the reference")

    def outputs(self, inputs: Sequence[Host | None], fixed: frozenset[int] = frozenset()) -> Expected:
        """What is expected for ``inputs``; raises what the reference raises if it takes neither form of them."""
        if self.subject is None:
            arrays = self._given if isinstance(self._given, tuple | list) else (self._given,)
            found = tuple(None if each is None else np.asarray(each) for each in arrays)
            return Expected(found, found)
        narrow = attempt(self.subject.forward, inputs)
        wide = attempt(self.subject.forward, widened(inputs, keep=fixed))
        if wide.worked:
            return Expected(wide.value, narrow.value if narrow.worked else None)
        if narrow.worked:
            return Expected(narrow.value, narrow.value, exact=False)
        asked = f"the reference on {_shapes(inputs)}"
        raise UsageError(asked, wide.error, "give inputs that the reference takes")

    def evaluate(self, inputs: Sequence[Host | None]) -> Sequence[Host | None] | None:
        """Its outputs, ``None`` where there are none: it is a list of arrays, or it raises."""
        if self.subject is None:
            return None
        found = attempt(self.subject.forward, inputs)
        return found.value if found.worked else None


def _shapes(inputs: Sequence[Host | None]) -> str:
    return ", ".join("none" if each is None else f"{each.dtype}{list(each.shape)}" for each in inputs)


def check_forward(
    operator: Any,
    inputs: Sequence[Any],
    reference: Any,
    *,
    tolerance: Tolerance | None = None,
    backend: OperatorBackend | None = None,
    name: str = "",
) -> tuple[Errors, ...]:
    """The errors of each output; raises ``CheckFailedError`` for one that is wrong.

    ``operator`` is an :class:`Operator` of ``backend``, a custom operator or a function on NumPy arrays; ``reference``
    a function, an operator on NumPy arrays, or the expected arrays. The message says what is wrong, where, how much,
    against which tolerance and why that one. Number, dtype and shape of outputs are judged before values.
    """
    subject = subject_of(operator, backend, name=name)
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    expected = Reference(reference).outputs(arrays, subject.fixed)
    try:
        outputs = subject.forward(arrays)
    except LevelbenchError:
        raise
    except Exception as error:
        found = f"it raises {type(error).__name__}: {error}"
        raise CheckFailedError(f"forward of {subject.name} on {_shapes(arrays)}", found, "correct it") from error
    if fault := judge_outputs(subject, arrays, outputs, expected, Reference(reference), tolerance):
        raise CheckFailedError(f"forward of {subject.name} on {_shapes(arrays)}", fault, "correct the operator")
    return tuple(
        errors(found, np.asarray(wanted))
        for found, wanted in zip(outputs, expected.wide, strict=True)
        if found is not None and wanted is not None
    )


def judge_outputs(
    subject: Subject,
    inputs: Sequence[Host | None],
    outputs: Sequence[Host | None],
    expected: Expected,
    reference: Reference,
    tolerance: Tolerance | None = None,
) -> str | None:
    """``None`` if all outputs are right, else what is wrong with the first that is not."""
    if len(outputs) != len(expected.wide):
        return f"it has {len(outputs)} outputs, {len(expected.wide)} are expected"
    for at in range(len(outputs)):
        if fault := fault_of(subject, inputs, outputs[at], expected, at, reference, tolerance):
            return fault
    return None


def fault_of(
    subject: Subject,
    inputs: Sequence[Host | None],
    output: Host | None,
    expected: Expected,
    at: int,
    reference: Reference,
    tolerance: Tolerance | None = None,
) -> str | None:
    """What is wrong with output ``at``, if anything."""
    wanted = expected.wide[at]
    what = subject.output_name(at)
    if output is None or wanted is None:
        return compare(what, output, wanted, Tolerance(0.0, 0.0, ""))
    shapes = [None if each is None else each.shape for each in inputs]
    length, known = sum_length(subject.node, shapes)
    fixed = subject.fixed
    if tolerance is None:
        scale = _scale(inputs, wanted, fixed)
        coarse = output.dtype
        if is_float(coarse):
            coarse = max(output.dtype, _coarsest(inputs, output.dtype), key=unit_roundoff)
        tolerance = tolerance_for(coarse, length=length, scale=scale, results=output.size)
        if not known and length > 1 and tolerance.rtol:
            unknown = f"{tolerance.reason}; no rule gives the length of its sums, the largest input bounds it"
            tolerance = Tolerance(tolerance.rtol, tolerance.atol, unknown)
    wide = widened(inputs, keep=fixed) if expected.exact else list(inputs)
    return compare(
        what,
        output,
        wanted,
        tolerance,
        dtypes=_dtypes(inputs, expected, at),
        slack=lambda: _slack(reference, wide, expected, at, _coarsest(inputs), length, fixed),
    )


def _largest(value: Host) -> float:
    """The largest finite magnitude; 0 for what is no number."""
    if not is_float(value.dtype) and value.dtype.kind not in "c":
        return 0.0
    size = np.abs(value.astype(np.complex128 if value.dtype.kind == "c" else np.float64))
    return float(np.where(np.isfinite(size), size, 0.0).max(initial=0.0))


def _scale(inputs: Sequence[Host | None], wanted: Host, fixed: frozenset[int]) -> float:
    """The size of what an output is computed of: the largest expected value, or that of the inputs where it is larger.

    At most 8 times the largest expected value: 1 + erf(x) may be computed of numbers as large as 1, but a result that
    is far smaller than its inputs is not excused by them.
    """
    largest = _largest(wanted)
    given = max((_largest(each) for at, each in enumerate(inputs) if each is not None and at not in fixed), default=0.0)
    return max(largest, min(given, _INTERMEDIATE * largest))


def _slack(
    reference: Reference,
    wide: Sequence[Host | None],
    expected: Expected,
    at: int,
    dtype: np.dtype[Any],
    length: int,
    fixed: frozenset[int],
) -> Any:
    """What roundings of the inputs do to output ``at``; nothing where the reference itself met no rounding.

    From float32 on, the reference's own error in that dtype counts too: 1 - z loses its digits for anybody. In half
    precision it does not, since a reference written plainly adds up in half precision.
    """
    wanted = np.asarray(expected.wide[at])
    moved = sensitivity(reference.evaluate, wide, wanted, at, dtype, length, fixed)
    narrow = expected.narrow[at] if expected.narrow is not None and expected.exact else None
    if moved is None or narrow is None or narrow.shape != wanted.shape or dtype == np.float64:
        return moved
    own = difference(narrow, wanted)
    if np.dtype(dtype).itemsize >= 4:
        moved = moved + 4 * own[np.isfinite(own)].max(initial=0.0) + np.where(np.isfinite(own), 0.0, np.inf)
    return np.where(own > 0, moved, 0.0)


def _coarsest(inputs: Sequence[Host | None], default: Any = np.float32) -> np.dtype[Any]:
    """The floating-point dtype of the inputs with the fewest digits; ``default`` where there is none."""
    floats = [each.dtype for each in inputs if each is not None and is_float(each.dtype)]
    return max(floats, key=unit_roundoff, default=np.dtype(default))


def _dtypes(inputs: Sequence[Host | None], expected: Expected, at: int) -> tuple[np.dtype[Any], ...]:
    """The dtypes that an output may have.

    A reference in NumPy easily answers in float64 for float32 (a float64 constant is enough); then float32 is right.
    """
    wide = expected.wide[at]
    narrow = expected.narrow[at] if expected.narrow is not None else None
    coarse = _coarsest(inputs)
    if narrow is not None:
        wider = is_float(narrow.dtype) and narrow.dtype.itemsize > coarse.itemsize
        return (coarse, narrow.dtype) if wider and narrow.dtype == np.float64 else (narrow.dtype,)
    assert wide is not None
    return (coarse,) if is_float(wide.dtype) else (wide.dtype,)
