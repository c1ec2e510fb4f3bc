"""Checks gradients: vector-Jacobian products along random directions against central differences of the forward.

For random g and v, <g, J v> is measured by moving the input along v. The backward of g gives the same number as
<J' g, v>, and a single wrong element changes it. So a large tensor takes no more calls than a small one. Only if a
direction fails is the wrong element searched for, by repeatedly halving the part of the input that is moved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import Host, is_float, largest, unit_roundoff
from levelbench.errors import CheckFailedError, UnsupportedError
from levelbench.operators.contract import Array, Function, OperatorBackend
from levelbench.operators.probes.slopes import (
    Differentiable,
    GradientReport,
    InputGradient,
    Slopes,
    best_line,
    check_kinks,
    line,
    make_probe,
    noise,
    precision_of,
)
from levelbench.operators.probes.subject import Checkable, HostOperator, attempt, replaced, subject_of


def check_gradient(
    operator: Checkable,
    inputs: Sequence[Array],
    *,
    backend: OperatorBackend | None = None,
    backward: Function | None = None,
    directions: int = 3,
    seed: int = 0,
    skip: Collection[int] = (),
    name: str = "",
) -> GradientReport:
    """The report by input; raises ``CheckFailedError`` if any gradient is wrong.

    Gradients are checked in float64 if the operator accepts it, else in the dtypes of ``inputs``.
    ``backward(gradients, inputs, outputs)`` goes with a plain function. ``skip`` holds positions of inputs that are
    deliberately not differentiated. Raises ``UnsupportedError`` if there is no backward, and ``UsageError`` for inputs
    that the forward refuses.
    """
    subject = subject_of(operator, backend, name=name, backward=backward)
    report = examine_gradient(subject, inputs, directions=directions, seed=seed, skip=skip)
    wrong = [each.detail for each in report.inputs if each.status == "wrong"]
    if wrong:
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CheckFailedError(f"gradient of {report.name}", wrong[0] + more, "correct its backward")
    return report


def examine_gradient(
    subject: HostOperator,
    inputs: Sequence[Array],
    *,
    directions: int = 3,
    seed: int = 0,
    skip: Collection[int] = (),
) -> GradientReport:
    """The gradient of every input, judged right, wrong (and where), or not tried (and why); see `check_gradient`."""
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    probe = make_probe(subject, arrays)
    random = np.random.default_rng(seed)
    fault = _first_call(probe, random)
    if fault:
        return GradientReport(subject.name, str(probe.dtype), (InputGradient("every input", "wrong", fault),))
    found = [_one(probe, at, directions, seed, at in set(skip)) for at in range(len(arrays))]
    found += _none_is_zero(probe, random)
    return GradientReport(subject.name, str(probe.dtype), tuple(found))


def _one(probe: Differentiable, at: int, directions: int, seed: int, skipped: bool) -> InputGradient:
    value = probe.inputs[at]
    title = probe.subject.input_name(at)
    if value is None:
        return InputGradient(title, "not tried", "it is left out")
    if at in probe.subject.fixed:
        return InputGradient(title, "not tried", "it determines shapes or axes")
    if skipped:
        return InputGradient(title, "not tried", "it is deliberately not differentiated")
    random = np.random.default_rng((seed, at))
    if not is_float(value.dtype):
        return _no_gradient(probe, at, title, random)
    if not value.size:
        return _empty(probe, at, title, random)
    return check_input(probe, at, directions, random)


def _first_call(probe: Differentiable, random: np.random.Generator) -> str | None:
    """What is wrong with the backward as a whole, if anything; raises ``UnsupportedError`` if there is none."""
    found = attempt(probe.subject.vjp, probe.random_gradients(random), probe.inputs)
    if found.worked:
        return None
    if found.refused:
        raise UnsupportedError(f"the gradient of {probe.subject.name}", found.error, "check the forward alone")
    return f"the backward fails: {found.error}"


def _no_gradient(probe: Differentiable, at: int, title: str, random: np.random.Generator) -> InputGradient:
    """Integers and booleans have no gradient: the backward must return ``None`` or zeros."""
    gradient = probe.subject.vjp(probe.random_gradients(random), probe.inputs)[at]
    wrong = gradient is not None and gradient.dtype.kind in "biufc" and bool(np.any(gradient != 0))
    kind = probe.inputs[at].dtype  # type: ignore[union-attr]  # omitted inputs do not get here
    if wrong:
        return InputGradient(title, "wrong", f"the gradient of {title} is not zero, but {kind} has none: return None")
    return InputGradient(title, "right", f"{kind} has no gradient")


def _empty(probe: Differentiable, at: int, title: str, random: np.random.Generator) -> InputGradient:
    gradient = probe.subject.vjp(probe.random_gradients(random), probe.inputs)[at]
    if gradient is not None and (fault := probe.form_of(gradient, at)):
        return InputGradient(title, "wrong", fault)
    return InputGradient(title, "right", "it is empty")


def _none_is_zero(probe: Differentiable, random: np.random.Generator) -> list[InputGradient]:
    """With several outputs, ``None`` as the gradient of one must mean zero."""
    if len(probe.floats) < 2:
        return []
    for left_out in probe.floats:
        given = probe.random_gradients(random)
        without = [None if at == left_out else each for at, each in enumerate(given)]
        zeros = [np.zeros_like(each) if at == left_out and each is not None else each for at, each in enumerate(given)]
        first, second = (
            attempt(probe.subject.vjp, without, probe.inputs),
            attempt(probe.subject.vjp, zeros, probe.inputs),
        )
        output = probe.subject.output_name(left_out)
        if not first.worked:
            return [InputGradient("None gradients", "wrong", f"None for the gradient of {output} fails: {first.error}")]
        if second.worked and not all(_alike(a, b) for a, b in zip(first.value, second.value, strict=True)):
            detail = f"None for the gradient of {output} gives a different result from zeros"
            return [InputGradient("None gradients", "wrong", detail)]
    return [InputGradient("None gradients", "right", "None as an output's gradient means zero")]


def _alike(first: Host | None, second: Host | None) -> bool:
    if first is None or second is None:
        other = second if first is None else first
        return other is None or not np.any(other != 0)
    wide = [each.astype(np.float64) for each in (first, second)]
    size = float(np.abs(wide[1]).max(initial=0.0))
    return first.shape == second.shape and bool(
        np.allclose(wide[0], wide[1], rtol=1e-3, atol=1e-3 * size, equal_nan=True)
    )


_ENOUGH = 0.5
_MOVE = 1e-2
_ROUNDING_SIGMAS = 6.0
_NOISY = 1e3
_SPLITS = 3
_CANCELLED = 1024


@dataclass(frozen=True)
class _Product:
    """<g, J v> as measured and as the backward says, and how far they may differ."""

    measured: float
    said: float
    allowed: float

    @property
    def excess(self) -> float:
        """The deviation as a share of what is allowed."""
        apart = abs(self.measured - self.said)
        return apart / self.allowed if self.allowed > 0 else (np.inf if apart else 0.0)


def check_input(probe: Differentiable, at: int, directions: int, random: np.random.Generator) -> InputGradient:
    """Judge the gradient of input ``at`` (floating-point, not empty) along ``directions`` random directions.

    Each direction judges all outputs at once; if there are several outputs, each is also judged alone.
    """
    title = probe.subject.input_name(at)
    if not probe.flat(probe.outputs).size:
        gradient = probe.subject.vjp(probe.random_gradients(random), probe.inputs)[at]
        wrong = gradient is not None and (probe.form_of(gradient, at) or bool(np.any(gradient != 0)))
        fault = f"the gradient of {title} is not zero, but there are no outputs"
        return InputGradient(title, "wrong" if wrong else "right", fault if wrong else "there are no outputs")
    patterns: list[int | None] = [None] * directions
    if len(probe.floats) > 1:
        patterns += list(probe.floats)
    notes: list[str] = []
    worst, tried = 0.0, 0
    for only in patterns:
        found = _direction(probe, at, only, random)
        if isinstance(found, str):
            return InputGradient(title, "wrong", found, np.inf)
        worst, tried = max(worst, found.excess), tried + found.tried
        notes += [each for each in found.notes if each not in notes]
    if not tried:
        return InputGradient(title, "not tried", "; ".join(notes) or "no output is smooth there")
    return InputGradient(title, "right", "; ".join(notes), worst)


@dataclass(frozen=True)
class _Found:
    """A direction along which nothing is wrong."""

    excess: float = 0.0
    tried: bool = False
    notes: tuple[str, ...] = ()


def _direction(probe: Differentiable, at: int, only: int | None, random: np.random.Generator) -> _Found | str:
    """Judge one direction: what was found, or the text of what is wrong."""
    value = probe.inputs[at]
    assert value is not None
    wide = value.astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(np.where(np.isfinite(wide), wide, 0))))) or 1.0
    v = random.standard_normal(value.shape) * size
    notes: list[str] = []
    found = best_line(probe.evaluate(at), value, v)
    if fault := check_kinks(probe, at, found, random):
        return fault
    if found.share < _ENOUGH or found.edge.any():
        if not found.edge.any() and (rough := _roughness(probe, at, v)):
            return rough
        moved = _moved(probe, random)
        again = best_line(moved.evaluate(at), np.asarray(moved.inputs[at]), v) if moved else found
        if moved is not None and again.share > found.share:
            notes.append(f"moved by {_MOVE:.0%} away from a kink or an edge of its domain")
            probe, found = moved, again
    if not found.usable.any():
        return _Found(notes=(*notes, "no output is smooth there"))
    left_out = int(np.isfinite(found.rounding).sum() - found.usable.sum())
    if left_out:
        notes.append(f"up to {left_out} of {found.usable.size} outputs left out at a kink")
    weights = random.standard_normal(found.usable.size)
    return _judge(probe, at, only, found, weights, tuple(notes))


def _weights(probe: Differentiable, only: int | None, found: Slopes, weights: Host) -> list[Host | None]:
    """Gradients of the outputs: random where an output is usable, zero elsewhere."""
    parts = probe.split(np.where(found.usable, weights, 0.0))
    if only is None:
        return parts
    return [each if each is None or at == only else np.zeros_like(each) for at, each in enumerate(parts)]


def _judge(
    probe: Differentiable, at: int, only: int | None, found: Slopes, weights: Host, notes: tuple[str, ...]
) -> _Found | str:
    given = _weights(probe, only, found, weights)
    title = probe.subject.input_name(at)
    answer = attempt(probe.subject.vjp, given, replaced(probe.inputs, at, found.base))
    if not answer.worked:
        return f"the backward fails: {answer.error}"
    gradient: Host | None = answer.value[at]
    if gradient is None and probe.subject.may_lack_gradient(at):
        return _Found(notes=("ONNX says that it is not differentiable",))
    nothing = gradient is None
    if gradient is None:
        gradient = np.zeros(found.base.shape, found.base.dtype)
    elif fault := probe.form_of(gradient, at):
        return fault
    wide = gradient.astype(np.float64)
    if not np.isfinite(wide).all():
        if not found.usable.all():
            return _Found(notes=(*notes, "its gradient is not finite because of outputs at an edge of the domain"))
        where = np.unravel_index(int(np.argmin(np.isfinite(wide))), wide.shape)
        index = tuple(int(each) for each in where)
        return f"the gradient of {title} is {wide[index]} at {index}, where the forward is smooth"
    g = probe.flat(given)
    product = _product(probe, g, found, wide)
    if product.excess <= 1:
        return _Found(product.excess, True, notes)
    bent = _not_linear(probe, at, found)
    if bent.any() and (found.usable & ~bent).sum() < found.usable.sum():
        notes = (*notes, f"{int((bent & found.usable).sum())} outputs left out whose slopes do not add up: a tie")
        fewer = replace(found, usable=found.usable & ~bent)
        return _judge(probe, at, only, fewer, weights, notes) if fewer.usable.any() else _Found(notes=notes)
    if rough := _roughness(probe, at, found.direction):
        return rough
    if _is_noise(probe, at, found, g, product):
        return _Found(tried=True, notes=(*notes, "as far as the forward's own rounding errors permit"))
    return _accuse(probe, at, only, found, g, wide, product, nothing)


def _not_linear(probe: Differentiable, at: int, found: Slopes) -> NDArray[np.bool_]:
    """The outputs whose slope along v is not the sum of those along w and v - w, which no gradient can satisfy.

    Differences alone do not show all kinks: the middle of three equal elements, when sorted, has the same slope to the
    left and to the right.
    """
    random = np.random.default_rng(0)
    bent = np.zeros(found.usable.shape, bool)
    common = float(np.sqrt(np.mean(np.square(found.slopes)))) if found.slopes.size else 0.0
    for _ in range(_SPLITS):
        aside = random.standard_normal(found.base.shape) * np.sqrt(np.mean(np.square(found.direction)))
        lines = [
            line(probe.evaluate(at), found.base, found.direction / 2 + sign * aside, found.step) for sign in (1, -1)
        ]
        apart = np.abs(found.slopes - lines[0].slopes - lines[1].slopes)
        rounding = np.where(np.isfinite(found.rounding), found.rounding, 0.0)
        limit = precision_of(probe.dtype).kink * np.maximum(common, np.abs(found.slopes)) + 64 * rounding
        # An output may be at a kink along w although it is not along v.
        bent |= (apart > limit) | ~(lines[0].usable & lines[1].usable)
    return bent


def _product(probe: Differentiable, g: Host, found: Slopes, gradient: Host) -> _Product:
    v = found.direction
    parts = np.where(g != 0, g * found.slopes, 0.0)
    elements = gradient * v
    size = max(float(np.linalg.norm(parts)), float(np.linalg.norm(elements)))
    used = g != 0
    rounding = _ROUNDING_SIGMAS * float(np.linalg.norm(np.where(used, g * np.where(used, found.rounding, 0.0), 0.0)))
    error = 3 * float(np.abs(np.where(used, g * found.error, 0.0)).sum())
    allowed = precision_of(probe.dtype).rtol * size + rounding + min(error, 0.1 * size)
    if probe.dtype == np.float64:
        # Where terms cancel, as in the mean of one number, the backward leaves roundings of what they were.
        wide = [largest(each) for each in probe.inputs if each is not None and each.dtype == np.float64]
        cancelled = float(np.linalg.norm(g)) * float(np.linalg.norm(v)) * max(1.0, *wide)
        allowed += _CANCELLED * unit_roundoff(np.float64) * cancelled
    return _Product(float(parts.sum()), float(elements.sum()), allowed)


def _moved(probe: Differentiable, random: np.random.Generator) -> Differentiable | None:
    """The same with every floating-point input moved a little; ``None`` if the forward refuses the moved inputs."""
    inputs: list[Host | None] = []
    for at, value in enumerate(probe.inputs):
        if value is None or at in probe.subject.fixed or value.dtype.kind in "biu":
            inputs.append(value)
            continue
        wide = value.astype(np.float64)
        size = np.abs(wide) + ((float(np.sqrt(np.mean(np.square(wide)))) if wide.size else 0.0) or 1.0)
        inputs.append((wide + _MOVE * random.uniform(-1, 1, wide.shape) * size).astype(value.dtype))
    outputs = attempt(probe.subject.forward, inputs)
    return replace(probe, inputs=tuple(inputs), outputs=outputs.value) if outputs.worked else None


def _roughness(probe: Differentiable, at: int, v: Host) -> str | None:
    """A fault if the float64 forward is far less accurate than float64: then differences are meaningless."""
    value = np.asarray(probe.inputs[at])
    if probe.dtype != np.float64 or value.dtype != np.float64:
        return None
    evaluate = probe.evaluate(at)
    base = evaluate(value)
    defined = np.isfinite(base)
    weights = np.random.default_rng(0).standard_normal(base.size)
    size = float(np.linalg.norm(np.where(defined, weights * base, 0.0)))
    if size == 0:
        return None

    def scalar(x: Host) -> float:
        found = evaluate(x)
        return float(np.where(defined & np.isfinite(found), weights * found, 0.0).sum())

    fine, coarse = (noise(scalar, value, v, spacing) for spacing in (1e-7, 8e-7))
    # Kinks and jumps are not noise: the contribution of a kink grows with the spacing, and a jump is rarely met.
    level = unit_roundoff(np.float64) * size
    noisy = fine > _NOISY * level and coarse > _NOISY * level and coarse < 3 * fine and fine < 1e-4 * size
    return _noisy(probe.subject.input_name(at), probe) if noisy else None


def _is_noise(probe: Differentiable, at: int, found: Slopes, g: Host, product: _Product) -> bool:
    """Whether the forward's own noise explains the deviation."""
    if probe.dtype != np.float64:
        return False
    evaluate = probe.evaluate(at)

    def scalar(x: Host) -> float:
        return float(np.where(g != 0, g * evaluate(x), 0.0).sum())

    level = noise(scalar, found.base, found.direction, 1e-7)
    return abs(product.measured - product.said) <= 20 * level / found.step


def _noisy(title: str, probe: Differentiable) -> str:
    return (
        f"{probe.subject.name} returns float64 but is far less accurate: along {title} its output jumps by more than "
        "1000 roundings, as if it computed in a narrower dtype internally"
    )


def _accuse(
    probe: Differentiable,
    at: int,
    only: int | None,
    found: Slopes,
    g: Host,
    gradient: Host,
    product: _Product,
    nothing: bool,
) -> str:
    title = probe.subject.input_name(at)
    if nothing:
        return (
            f"{title} has no gradient (None), but moving it along a random v moves the output by {product.measured:.6g}"
        )
    where, element = _worst(probe, at, found, g, gradient)
    says = (
        f"the gradient of {title} is wrong: along a random direction the output moves by {product.measured:.6g}, but "
        f"the gradient says {product.said:.6g}; a deviation of {product.allowed:.2g} is allowed "
        f"({probe.dtype}, central differences, step {found.step:.0e})"
    )
    ratio = f", {element.said / element.measured:.4g} times as much" if element.measured else ""
    says += f"; at {where} it is {element.said:.6g}, expected {element.measured:.6g}{ratio}"
    return says if only is None else f"{says}; seen only in {probe.subject.output_name(only)}"


def _worst(probe: Differentiable, at: int, found: Slopes, g: Host, gradient: Host) -> tuple[tuple[int, ...], _Product]:
    """The element to report, found by halving the moved part and going on in the half with the larger deviation."""
    evaluate = probe.evaluate(at)

    def look(part: NDArray[np.intp]) -> _Product:
        flat = np.zeros(found.base.size)
        flat[part] = found.direction.ravel()[part]
        other = line(evaluate, found.base, flat.reshape(found.base.shape), found.step)
        return _product(probe, np.where(other.usable, g, 0.0), other, gradient)

    part = np.arange(found.base.size)
    while part.size > 1:
        halves = np.array_split(part, 2)
        part = max(halves, key=lambda each: abs((one := look(each)).measured - one.said))
    scale = float(found.direction.ravel()[part[0]]) or 1.0
    final = look(part)
    where = tuple(int(each) for each in np.unravel_index(int(part[0]), found.base.shape))
    return where, _Product(final.measured / scale, final.said / scale, abs(final.allowed / scale))
