"""Compares an operator's outputs with a reference that computes in float64, and measures its repeatability."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.checks.arrays import (
    Errors,
    Host,
    Tolerance,
    compare,
    difference,
    errors,
    is_float,
    largest,
    sensitivity,
    tolerance_for,
    ulp_distance,
    unit_roundoff,
)
from levelbench.errors import CheckFailedError, LevelbenchError, UsageError
from levelbench.operators.contract import Array, DType, OperatorBackend
from levelbench.operators.node import OperatorNode
from levelbench.operators.probes.subject import Checkable, HostOperator, Values, attempt, subject_of, widened

_INTERMEDIATE = 8.0


@dataclass(frozen=True)
class Expected:
    """The reference's outputs: ``wide`` in float64, ``narrow`` in the inputs' own dtype (``None`` if it cannot).

    ``exact`` is whether ``wide`` really is float64: a reference may support only the inputs' own dtype.
    """

    wide: tuple[Host | None, ...]
    narrow: tuple[Host | None, ...] | None
    exact: bool = True


class Oracle:
    """A reference: a function on NumPy arrays, an operator on them, or the expected arrays themselves."""

    def __init__(self, given: Any, backend: OperatorBackend | None = None) -> None:
        self._given = given
        is_arrays = isinstance(given, tuple | list | np.ndarray)
        self.subject: HostOperator | None = None if is_arrays else subject_of(given, backend, name="the reference")

    def outputs(self, inputs: Sequence[Host | None], fixed: frozenset[int] = frozenset()) -> Expected:
        """The expected outputs for ``inputs``; ``UsageError`` if the reference accepts neither dtype."""
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
        raise UsageError(asked, wide.error, "give inputs that the reference accepts")

    def evaluate(self, inputs: Sequence[Host | None]) -> Sequence[Host | None] | None:
        """The outputs as a function of the inputs; ``None`` if the reference is a list of arrays, or raises."""
        if self.subject is None:
            return None
        found = attempt(self.subject.forward, inputs)
        return found.value if found.worked else None


def _shapes(inputs: Sequence[Host | None]) -> str:
    return ", ".join("none" if each is None else f"{each.dtype}{list(each.shape)}" for each in inputs)


def check_forward(
    operator: Checkable,
    inputs: Sequence[Array],
    reference: Checkable,
    *,
    tolerance: Tolerance | None = None,
    backend: OperatorBackend | None = None,
    name: str = "",
) -> tuple[Errors, ...]:
    """The errors of each output; raises ``CheckFailedError`` if one is wrong.

    ``operator`` is an :class:`Operator` of ``backend``, a custom operator or a function on NumPy arrays; ``reference``
    is a function, an operator on NumPy arrays, or the expected arrays. The message says what is wrong, where, by how
    much, and which tolerance was used and why. Number, dtype and shape of the outputs are checked before values.
    """
    subject = subject_of(operator, backend, name=name)
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    expected = Oracle(reference).outputs(arrays, subject.fixed)
    try:
        outputs = subject.forward(arrays)
    except LevelbenchError:
        raise
    except Exception as error:
        found = f"it raises {type(error).__name__}: {error}"
        raise CheckFailedError(f"forward of {subject.name} on {_shapes(arrays)}", found, "correct it") from error
    if fault := judge_outputs(subject, arrays, outputs, expected, Oracle(reference), tolerance):
        raise CheckFailedError(f"forward of {subject.name} on {_shapes(arrays)}", fault, "correct the operator")
    return tuple(
        errors(found, np.asarray(wanted))
        for found, wanted in zip(outputs, expected.wide, strict=True)
        if found is not None and wanted is not None
    )


def judge_outputs(
    subject: HostOperator,
    inputs: Sequence[Host | None],
    outputs: Sequence[Host | None],
    expected: Expected,
    reference: Oracle,
    tolerance: Tolerance | None = None,
) -> str | None:
    """``None`` if all outputs are right, else what is wrong with the first wrong one."""
    if len(outputs) != len(expected.wide):
        return f"it has {len(outputs)} outputs, expected {len(expected.wide)}"
    for at in range(len(outputs)):
        if fault := fault_of(subject, inputs, outputs[at], expected, at, reference, tolerance):
            return fault
    return None


def fault_of(
    subject: HostOperator,
    inputs: Sequence[Host | None],
    output: Host | None,
    expected: Expected,
    at: int,
    reference: Oracle,
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
            unknown = f"{tolerance.reason}; the length of its sums is unknown and bounded by the largest input"
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


def _scale(inputs: Sequence[Host | None], wanted: Host, fixed: frozenset[int]) -> float:
    """The size of the numbers that an output is computed from: the largest expected value or input.

    Inputs count up to 8 times the largest expected value: 1 + erf(x) may be computed from numbers as large as 1, but
    large inputs do not excuse errors in a far smaller result.
    """
    size = largest(wanted)
    free = [each for at, each in enumerate(inputs) if each is not None and at not in fixed]
    given = max((largest(each) for each in free if each.dtype.kind not in "iu"), default=0.0)
    return max(size, min(given, _INTERMEDIATE * size))


def _slack(
    reference: Oracle,
    wide: Sequence[Host | None],
    expected: Expected,
    at: int,
    dtype: DType,
    length: int,
    fixed: frozenset[int],
) -> Any:
    """By how much rounding the inputs moves output ``at``; zero where the reference itself makes no rounding error.

    From float32 on, the reference's own error in that dtype counts too: 1 - z loses digits in any implementation. In
    half precision it does not count, because a plainly written reference also accumulates in half precision.
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


def _coarsest(inputs: Sequence[Host | None], default: DTypeLike = np.float32) -> DType:
    """The floating-point dtype of the inputs with the fewest digits; ``default`` if there is none."""
    floats = [each.dtype for each in inputs if each is not None and is_float(each.dtype)]
    return max(floats, key=unit_roundoff, default=np.dtype(default))


def _dtypes(inputs: Sequence[Host | None], expected: Expected, at: int) -> tuple[DType, ...]:
    """The dtypes that an output may have.

    A NumPy reference easily returns float64 for float32 inputs (a float64 constant is enough); then float32 is right
    too. So is bfloat16 where it returns float32, as NumPy does for a product of matrices in bfloat16.
    """
    wide = expected.wide[at]
    narrow = expected.narrow[at] if expected.narrow is not None else None
    coarse = _coarsest(inputs)
    if narrow is not None:
        wider = is_float(narrow.dtype) and narrow.dtype.itemsize > coarse.itemsize
        promoted = wider and (narrow.dtype == np.float64 or coarse == ml_dtypes.bfloat16)
        return (coarse, narrow.dtype) if promoted else (narrow.dtype,)
    assert wide is not None
    return (coarse,) if is_float(wide.dtype) else (wide.dtype,)


Shapes = Sequence[tuple[int, ...] | None]

_ELEMENTWISE = """
Abs Acos Acosh Add Asin Asinh Atan Atanh BitShift Cast Ceil Celu Clip Concat Cos Cosh Div Dropout Elu Erf Exp Expand
Flatten Floor Gather GatherElements GatherND Gelu HardSigmoid HardSwish Identity LeakyRelu Log Max Min Mish Mod Mul Neg
PRelu Pad Pow Reciprocal Relu Reshape Round Selu Shrink Sigmoid Sign Sin Sinh Slice Softplus Softsign Split Sqrt Squeeze
Sub Swish Tan Tanh ThresholdedRelu Tile Transpose Unsqueeze Where
"""


def sum_length(node: OperatorNode | None, shapes: Shapes) -> tuple[int, bool]:
    """The number of terms of the longest sum, and whether it is known.

    If unknown, it is the number of elements of the largest input, which no sum exceeds by much. ``shapes`` are those of
    the inputs, ``None`` for one that is left out.
    """
    most = max((math.prod(shape) for shape in shapes if shape is not None), default=1)
    if node is None or node.domain:
        return max(1, most), False
    if node.op_type in _ELEMENTWISE.split():
        return 1, True
    rule = _RULES.get(node.op_type)
    if rule is None or not shapes or shapes[0] is None:
        return max(1, most), False
    return max(1, rule(node, shapes)), True


def _along_axis(node: OperatorNode, shapes: Shapes) -> int:
    first = shapes[0] or (1,)
    return first[int(node.get("axis", -1)) % len(first)]


def _conv_transpose(node: OperatorNode, shapes: Shapes) -> int:
    weight = shapes[1] or (1,)
    return weight[0] // max(1, int(node["group"])) * math.prod(weight[2:])


_RULES: dict[str, Callable[[OperatorNode, Shapes], int]] = {
    "Conv": lambda _, shapes: math.prod(shapes[1][1:]) if shapes[1] else 1,
    "ConvTranspose": _conv_transpose,
    "Gemm": lambda node, shapes: (shapes[0] or (1, 1))[0 if node["transA"] else -1],
    "LogSoftmax": _along_axis,
    "MatMul": lambda _, shapes: shapes[0][-1] if shapes[0] else 1,
    "Softmax": _along_axis,
}


@dataclass(frozen=True)
class Repeatability:
    """``identical`` of ``runs`` runs equal the first bit for bit.

    ``variance`` has one array per output, of its shape: the variance over the runs (ddof 1, float64; NaN where a run
    was not finite), ``None`` for an omitted output. ``ulp`` is the largest distance of any run from the first.
    """

    runs: int
    identical: int
    variance: tuple[NDArray[np.float64] | None, ...]
    ulp: float

    @property
    def bitwise(self) -> bool:
        """Whether all runs are equal."""
        return self.identical == self.runs

    def worst(self) -> tuple[float, str]:
        """The largest variance, and its output and index."""
        most, where = 0.0, "nowhere"
        for at, each in enumerate(self.variance):
            if each is not None and each.size and (found := float(np.nan_to_num(each, nan=np.inf).max())) > most:
                index = np.unravel_index(int(np.argmax(np.nan_to_num(each, nan=np.inf))), each.shape)
                most, where = found, f"output {at}, index {tuple(int(i) for i in index)}"
        return most, where

    def to_dict(self) -> dict[str, Any]:
        """The measurement as JSON types, with only the largest variance of each output."""
        most = [None if each is None else float(each.max(initial=0.0)) for each in self.variance]
        return {"runs": self.runs, "identical": self.identical, "ulp": self.ulp, "largest_variance": most}


def repeatability(
    operator: Checkable,
    inputs: Sequence[Array],
    *,
    runs: int = 100,
    backend: OperatorBackend | None = None,
    name: str = "",
    watch: Callable[[int, Values, Values], None] = lambda _call, _outputs, _first: None,
) -> Repeatability:
    """Run the operator on the same inputs ``runs`` times (at least 2); ``watch`` hears of calls that differ.

    It gets the number of such a call, its outputs, and those of the first.
    """
    if runs < 2:
        raise UsageError(f"repeatability over {runs} runs", "it takes two runs to compare", "give at least 2")
    subject = subject_of(operator, backend, name=name)
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    first = subject.forward(arrays)
    # Sum the deviations from the first run instead of the values, so that equal runs have a variance of exactly zero.
    sums = [None if each is None else np.zeros((2, *each.shape)) for each in first]
    identical, ulp = 1, 0.0
    for call in range(1, runs):
        same = True
        outputs = subject.forward(arrays)
        for total, base, found in zip(sums, first, outputs, strict=True):
            if base is None or found is None or total is None:
                continue
            if base.shape != found.shape:
                what = f"one run returns shape {found.shape}, the first returned {base.shape}"
                raise UsageError(f"repeatability of {subject.name}", what, "check its determinism first")
            if base.tobytes() == found.tobytes():
                continue
            same = False
            with np.errstate(all="ignore"):
                apart = found.astype(np.float64) - base.astype(np.float64)
            total[0] += apart
            total[1] += apart**2
            distance = ulp_distance(found, base)
            ulp = max(ulp, float(distance.max(initial=0.0)) if distance is not None else np.inf)
        identical += same
        if not same:
            watch(call, outputs, first)
    variance = tuple(
        None if each is None else np.maximum(0.0, (each[1] - each[0] ** 2 / runs) / (runs - 1)) for each in sums
    )
    return Repeatability(runs, identical, variance, ulp)
