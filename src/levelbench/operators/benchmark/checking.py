"""Is the measured result right: against the reference in float64, on the same inputs.

The one idea: the reference is NumPy's operator on inputs widened to float64, so what is left is the framework's own
rounding, and the tolerance is what the dtype and the length of the sums explain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Tolerance, compare_values, errors, is_float, tolerance_for
from levelbench.errors import UnsupportedError
from levelbench.operators.benchmark.parts import Part, parts_of, select
from levelbench.operators.contract import Operator
from levelbench.operators.node import OperatorNode
from levelbench.operators.probes.forward import sum_length
from levelbench.operators.structure import structural

__all__ = ["Finding", "check"]

Host = NDArray[Any]
Hosts = Sequence[Host | None]
_RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"})


@dataclass(frozen=True)
class Finding:
    """``wrong`` is empty where nothing is; ``errors`` are the largest over what was compared."""

    wrong: str = ""
    checked: str = ""
    errors: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """What a framework gave, on the host: outputs of a forward, or gradients of inputs for those of outputs."""

    inputs: Hosts
    outputs: Hosts
    gradients: Hosts | None = None
    given: Hosts = ()


def check(
    node: OperatorNode, results: Results, flops: float | None, make: Callable[[OperatorNode], Operator]
) -> Finding:
    """Compare with the reference that ``make`` makes of a node (float64, NumPy arrays)."""
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.inputs) > 2):
        return Finding(checked="not checked: its result is random")
    first = results.outputs[0]
    if first is None:
        return Finding(checked="not checked: its first output is left out")
    direction = "forward" if results.gradients is None else "backward"
    shapes = [None if each is None else each.shape for each in results.inputs]
    found: list[Finding] = []
    for part in parts_of(node, shapes, first.shape, flops, direction):
        try:
            pairs = _pairs(node, results, part, make(node))
        except UnsupportedError as error:
            return Finding(checked=f"not checked: the reference has none ({error.found})")
        found += [_judge(node, what, actual, wanted, shapes, direction) for what, actual, wanted in pairs]
        found.append(Finding(checked=part.said))
    wrong = "; ".join(each.wrong for each in found if each.wrong)
    said = ", ".join(dict.fromkeys(each.checked for each in found if each.checked and not each.errors))
    tolerances = list(dict.fromkeys(each.checked for each in found if each.errors))
    return Finding(wrong, f"{said}; {' / '.join(tolerances)}" if tolerances else said, _largest(found))


def _pairs(node: OperatorNode, results: Results, part: Part, reference: Operator) -> list[tuple[str, Host, Host]]:
    """What was compared, the framework's value and the reference's."""
    fixed = structural(node)
    inputs = [
        each.astype(np.float64) if each is not None and at not in fixed and is_float(each.dtype) else each
        for at, each in enumerate(part.of_inputs(results.inputs))
    ]
    with np.errstate(all="ignore"):
        if results.gradients is None:
            wanted = reference.forward(*inputs)
            named = zip(node.outputs, results.outputs, wanted, strict=False)
            pairs = [(name, a, b) for name, a, b in named if a is not None and b is not None]
            # Only of the first output a part is known.
            pairs = pairs if part.whole else pairs[:1]
            return [(f"output {name!r}", select(a, part.output), np.asarray(b)) for name, a, b in pairs]
        given = [
            None if each is None else select(each, part.output).astype(np.float64) if is_float(each.dtype) else each
            for each in results.given
        ]
        _, pullback = reference.vjp(*inputs)
        gradients = pullback(*given)
    found = []
    for at in part.gradients:
        actual, expected = results.gradients[at], gradients[at]
        if actual is not None and expected is not None:
            name = f"gradient of {node.inputs[at]!r}"
            found.append((name, select(actual, part.inputs[at]), np.asarray(expected)))
    return found


def _judge(
    node: OperatorNode, what: str, actual: Host, expected: Host, shapes: Sequence[Any], direction: str
) -> Finding:
    if actual.shape != expected.shape:
        return Finding(f"{what} has the shape {actual.shape}, {expected.shape} expected")
    finite = np.abs(expected[np.isfinite(expected)]) if is_float(expected.dtype) else np.zeros(0)
    tolerance = Tolerance(0.0, 0.0, f"{actual.dtype} is exact")
    if is_float(actual.dtype):
        length = sum_length(node if direction == "forward" else None, shapes)[0]
        scale = float(finite.max(initial=0.0))
        tolerance = tolerance_for(actual.dtype, length=length, scale=scale, results=actual.size)
    wrong = compare_values(what, actual, expected, tolerance)
    if actual.dtype.kind not in "biufc" and not is_float(actual.dtype):
        return Finding(wrong or "", str(tolerance))
    measured = errors(actual, expected).to_dict()
    measured.pop("where")
    return Finding(wrong or "", str(tolerance), measured)


def _largest(found: Sequence[Finding]) -> dict[str, float | None]:
    """The largest of each error over all that was compared."""
    largest: dict[str, float | None] = {}
    for each in found:
        for name, value in each.errors.items():
            before = largest.get(name)
            largest[name] = value if before is None else before if value is None else max(before, value)
    return largest
