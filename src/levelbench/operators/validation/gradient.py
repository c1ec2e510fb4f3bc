"""Checks gradients: vector-Jacobian products along random directions against central differences of the forward.

The one idea: for random g and v the number <g, J v> is measured by moving the input along v, and the backward's answer
to g gives the same number as <J' g, v>; one wrong element changes it. So a large tensor costs as much as a small one,
and only when a direction fails is the place looked for, by halving the part of the input that is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from levelbench.errors import CheckFailedError, UnsupportedError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.validation.probe import GradientReport, InputGradient, Probe, Status, make_probe
from levelbench.operators.validation.products import check_input
from levelbench.operators.validation.subject import attempt, subject_of
from levelbench.operators.validation.tolerances import is_float

__all__ = ["GradientReport", "InputGradient", "check_gradient", "examine_gradient"]


def check_gradient(
    operator: Any,
    inputs: Sequence[Any],
    *,
    backend: OperatorBackend | None = None,
    backward: Callable[..., Any] | None = None,
    directions: int = 3,
    seed: int = 0,
    skip: Collection[int] = (),
    name: str = "",
) -> GradientReport:
    """What was found by input; raises ``CheckFailedError`` if any gradient is wrong.

    Arguments are those of :func:`examine_gradient`.
    """
    report = examine_gradient(
        operator,
        inputs,
        backend=backend,
        backward=backward,
        directions=directions,
        seed=seed,
        skip=skip,
        name=name,
    )
    wrong = [each.detail for each in report.inputs if each.status == "wrong"]
    if wrong:
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CheckFailedError(f"gradient of {report.name}", wrong[0] + more, "correct its backward")
    return report


def examine_gradient(
    operator: Any,
    inputs: Sequence[Any],
    *,
    backend: OperatorBackend | None = None,
    backward: Callable[..., Any] | None = None,
    directions: int = 3,
    seed: int = 0,
    skip: Collection[int] = (),
    name: str = "",
) -> GradientReport:
    """Every input's gradient, judged: right, wrong (and where), or not tried (and why).

    In float64 where the operator takes it, else in the dtypes of ``inputs``. ``backward(gradients, inputs, outputs)``
    goes with a plain function. ``skip`` are positions of inputs that are not differentiated by intention. Raises
    ``UnsupportedError`` if there is no backward, ``UsageError`` for inputs that the forward refuses.
    """
    subject = subject_of(operator, backend, name=name, backward=backward)
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    probe = make_probe(subject, arrays)
    random = np.random.default_rng(seed)
    fault = _first_call(probe, random)
    if fault:
        return GradientReport(subject.name, str(probe.dtype), (InputGradient("every input", "wrong", fault),))
    found = [_one(probe, at, directions, seed, at in set(skip)) for at in range(len(arrays))]
    found += _none_is_zero(probe, random)
    return GradientReport(subject.name, str(probe.dtype), tuple(found))


def _one(probe: Probe, at: int, directions: int, seed: int, skipped: bool) -> InputGradient:
    value = probe.inputs[at]
    title = probe.subject.input_name(at)
    if value is None:
        return InputGradient(title, "not tried", "it is left out")
    if at in probe.subject.fixed:
        return InputGradient(title, "not tried", "it decides shapes or axes")
    if skipped:
        return InputGradient(title, "not tried", "it is not differentiated by intention")
    random = np.random.default_rng((seed, at))
    if not is_float(value.dtype):
        return _no_gradient(probe, at, title, random)
    if not value.size:
        return _empty(probe, at, title, random)
    return check_input(probe, at, directions, random)


def _first_call(probe: Probe, random: np.random.Generator) -> str | None:
    """What is wrong with the backward as a whole, if anything; raises ``UnsupportedError`` if there is none."""
    found = attempt(probe.vjp, probe.random_gradients(random), probe.inputs)
    if found.worked:
        return None
    if found.refused:
        raise UnsupportedError(f"the gradient of {probe.subject.name}", found.error, "check the forward alone")
    return f"the backward fails: {found.error}"


def _no_gradient(probe: Probe, at: int, title: str, random: np.random.Generator) -> InputGradient:
    """Integers and booleans have none: ``None``, or zeros."""
    gradient = probe.vjp(probe.random_gradients(random), probe.inputs)[at]
    wrong = gradient is not None and gradient.dtype.kind in "biufc" and bool(np.any(gradient != 0))
    kind = probe.inputs[at].dtype  # type: ignore[union-attr]  # only those that are there get here
    if wrong:
        return InputGradient(title, "wrong", f"the gradient of {title} is not zero, and {kind} has none: return None")
    return InputGradient(title, "right", f"{kind} has no gradient")


def _empty(probe: Probe, at: int, title: str, random: np.random.Generator) -> InputGradient:
    gradient = probe.vjp(probe.random_gradients(random), probe.inputs)[at]
    if gradient is not None and (fault := probe.form_of(gradient, at)):
        return InputGradient(title, "wrong", fault)
    return InputGradient(title, "right", "it is empty")


def _none_is_zero(probe: Probe, random: np.random.Generator) -> list[InputGradient]:
    """For several outputs: ``None`` for the gradient of one must mean zero."""
    if len(probe.floats) < 2:
        return []
    status: Status = "right"
    detail = "None as an output's gradient means zero"
    for left_out in probe.floats:
        given = probe.random_gradients(random)
        without = [None if at == left_out else each for at, each in enumerate(given)]
        zeros = [np.zeros_like(each) if at == left_out and each is not None else each for at, each in enumerate(given)]
        first, second = attempt(probe.vjp, without, probe.inputs), attempt(probe.vjp, zeros, probe.inputs)
        output = probe.subject.output_name(left_out)
        if not first.worked:
            return [InputGradient("None gradients", "wrong", f"None for the gradient of {output} fails: {first.error}")]
        if second.worked and not all(_alike(a, b) for a, b in zip(first.value, second.value, strict=True)):
            detail = f"None for the gradient of {output} gives another result than zeros"
            return [InputGradient("None gradients", "wrong", detail)]
    return [InputGradient("None gradients", status, detail)]


def _alike(first: Any, second: Any) -> bool:
    if first is None or second is None:
        other = second if first is None else first
        return other is None or not np.any(other != 0)
    wide = [each.astype(np.float64) for each in (first, second)]
    size = float(np.abs(wide[1]).max(initial=0.0))
    return first.shape == second.shape and bool(
        np.allclose(wide[0], wide[1], rtol=1e-3, atol=1e-3 * size, equal_nan=True)
    )
