"""The slope of each output along a direction, by central differences, and the range of valid gradients at a kink.

Every output is judged separately. Where a function is smooth, halving the step quarters the disagreement of the
differences. At a kink, the slopes to the left and to the right keep disagreeing; then only that output is left out of
the comparison, not the whole point. Differences at h and h / 2 are extrapolated (Richardson 1911), so that the step can
be large enough to keep rounding small. They are taken in float64 if the operator supports it.

At a kink the gradient is a choice (ReLU at 0, which of two equal maxima) but not arbitrary: it lies in the convex hull
of the gradients at nearby points (Clarke, "Optimization and Nonsmooth Analysis", 1983, theorem 2.5.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.checks.arrays import Host, is_float, unit_roundoff
from levelbench.errors import UnsupportedError, UsageError
from levelbench.operators.probes.subject import HostOperator, attempt, replaced, widened

Flat = NDArray[np.float64]
Evaluate = Callable[[Host], Flat]
"""All floating-point outputs as one float64 vector, as a function of one input."""

_NOISE_POINTS = 10
# The variance of k-th differences of independent noise is (2k)! / (k!)² times that of the noise; here k = 4 (Moré and
# Wild, "Estimating Computational Noise", SIAM J. Sci. Comput. 33, 2011, section 3).
_FOURTH = 70.0
_ROUNDINGS = 4


@dataclass(frozen=True)
class Differencing:
    """For a dtype of inputs: the steps to try (relative to the input's size), and tolerances relative to a slope."""

    steps: tuple[float, ...]
    kink: float
    rtol: float


def precision_of(dtype: DTypeLike) -> Differencing:
    """float64 resolves one part in 10^6, float32 one in 500, half precisions one in 15."""
    bits = np.dtype(dtype).itemsize
    if bits >= 8:
        return Differencing((1e-4, 1e-6, 1e-3), 1e-8, 1e-6)
    if bits == 4:
        return Differencing((2e-2, 3e-3, 6e-2), 1e-3, 2e-3)
    return Differencing((0.12, 0.25), 3e-2, 6e-2)


@dataclass(frozen=True)
class Slopes:
    """The slope of each output along ``direction`` at ``base``, and which of them are usable.

    ``kinked`` outputs have one slope to the ``left`` and another to the ``right``; ``edge`` outputs are defined at the
    base but not on both sides of it. ``error`` is the disagreement of differences at two steps, ``rounding`` the
    largest effect of rounding on a slope.
    """

    base: Host
    direction: Flat
    slopes: Flat
    usable: NDArray[np.bool_]
    kinked: NDArray[np.bool_]
    edge: NDArray[np.bool_]
    left: Flat
    right: Flat
    error: Flat
    rounding: Flat
    step: float

    @property
    def share(self) -> float:
        """The usable share of the outputs defined at the base."""
        defined = int(np.isfinite(self.rounding).sum())
        return float(self.usable.sum()) / defined if defined else 0.0


def _grid(x: Host, move: Flat) -> tuple[Host, Flat]:
    """Base and move, rounded so that base + k move is exact in the dtype for k = -4 ... 4."""
    if x.dtype.itemsize >= 8:
        return x, move
    roundoff = 2 * unit_roundoff(x.dtype)
    wide = x.astype(np.float64)
    largest = np.abs(wide) + 4 * np.abs(move)
    exponent = np.floor(np.log2(np.where(largest > 0, largest, 1.0)))
    unit = roundoff * 2.0 ** (exponent + 1)
    base = (np.round(wide / unit) * unit).astype(x.dtype)
    return base, np.round(move / unit) * unit


def _rms(values: Flat) -> float:
    """The root mean square of the finite values, without intermediate overflow."""
    finite = values[np.isfinite(values)]
    largest = float(finite.max(initial=0.0))
    return largest * float(np.sqrt(np.mean(np.square(finite / largest)))) if largest > 0 else 0.0


def line(evaluate: Evaluate, x: Host, direction: Flat, step: float) -> Slopes:
    """The outputs' slopes along ``direction`` at ``x``, from steps h, h / 2 and h / 4 with h = ``step``."""
    limits = precision_of(x.dtype)
    base, move = _grid(x, direction * (step / 4))
    wide = base.astype(np.float64)
    values = {k: evaluate((wide + k * move).astype(x.dtype)) for k in (-4, -2, -1, 0, 1, 2, 4)}
    middle = values[0]
    defined = np.isfinite(middle)
    size = np.abs(np.where(defined, middle, 0.0))
    # If all outputs are zero (a product with zero factors), take their size at a point further away.
    typical = _rms(size) or _rms(np.abs(evaluate((wide + direction).astype(x.dtype))))
    noise_level = _ROUNDINGS * unit_roundoff(x.dtype) * (size + typical) + 1e-300
    h = step
    with np.errstate(all="ignore"):
        central = {k: (values[k] - values[-k]) / (2 * h * k / 4) for k in (4, 2, 1)}
        bend = {k: np.abs(values[k] - 2 * middle + values[-k]) / (h * k / 4) for k in (4, 1)}
        finite = defined & np.isfinite(central[4]) & np.isfinite(central[2]) & np.isfinite(central[1])
        first, second = (4 * central[2] - central[4]) / 3, (4 * central[1] - central[2]) / 3
        slopes = np.where(finite, second, 0.0)
        steep = np.abs(np.where(finite, central[2], 0.0))
        common = float(np.sqrt(np.mean(np.square(steep)))) if steep.size else 0.0
        rounding = np.where(defined, noise_level / h, np.inf)
        threshold = limits.kink * np.maximum(common, steep) + 16 * rounding
        far, near = np.abs(central[4] - central[2]), np.abs(central[2] - central[1])
        rough = (bend[1] > threshold) & (bend[1] > 0.4 * bend[4])
        rough |= (near > threshold) & (near > 0.5 * far) | (np.abs(first - second) > threshold)
        kinked = finite & rough & (np.abs(bend[1] - bend[4]) < 0.2 * bend[4])
        left, right = (middle - values[-1]) / (h / 4), (values[1] - middle) / (h / 4)
    return Slopes(
        base,
        move * (4 / step),
        slopes,
        finite & ~rough,
        kinked,
        defined & ~finite,
        left,
        right,
        np.where(finite, np.abs(first - second), 0.0),
        rounding,
        step,
    )


def best_line(evaluate: Evaluate, x: Host, direction: Flat) -> Slopes:
    """The slopes with the first step that leaves no output out, else with the one that leaves out fewest."""
    found: list[Slopes] = []
    for step in precision_of(x.dtype).steps[:2]:
        found.append(line(evaluate, x, direction, step))
        if found[-1].share >= 1:
            break
    return max(found, key=lambda each: each.share)


def noise(evaluate: Callable[[Host], float], x: Host, direction: Flat, spacing: float) -> float:
    """The standard deviation of a scalar function's computational noise along ``direction``, by fourth differences."""
    wide = x.astype(np.float64)
    values = np.array([evaluate((wide + k * spacing * direction).astype(x.dtype)) for k in range(_NOISE_POINTS)])
    return float(np.sqrt(np.mean(np.square(np.diff(values, 4))) / _FOURTH))


GradientStatus = Literal["right", "wrong", "not tried"]


@dataclass(frozen=True)
class InputGradient:
    """The result for one input's gradient. ``worst`` is the largest deviation as a share of what was allowed."""

    name: str
    status: GradientStatus
    detail: str
    worst: float = 0.0


@dataclass(frozen=True)
class GradientReport:
    """The results for all inputs of an operator, and the dtype in which they were checked."""

    name: str
    dtype: str
    inputs: tuple[InputGradient, ...]

    @property
    def notes(self) -> list[str]:
        """Which inputs were moved, left out or not tried."""
        return [f"{each.name}: {each.detail}" for each in self.inputs if each.detail]


@dataclass(frozen=True)
class Differentiable:
    """An operator at ``inputs``, where its gradient is checked; ``floats`` are the positions of float outputs."""

    subject: HostOperator
    inputs: tuple[Host | None, ...]
    outputs: tuple[Host | None, ...]
    floats: tuple[int, ...]
    dtype: np.dtype[Any]

    def evaluate(self, at: int) -> Evaluate:
        """The floating-point outputs as one float64 vector, as a function of input ``at``."""

        def call(value: Host) -> NDArray[np.float64]:
            return self.flat(self.subject.forward(replaced(self.inputs, at, value)))

        return call

    def flat(self, outputs: Sequence[Host | None]) -> NDArray[np.float64]:
        """The floating-point ones among ``outputs`` as one vector."""
        parts = [np.asarray(outputs[at]).astype(np.float64).ravel() for at in self.floats]
        return np.concatenate(parts) if parts else np.zeros(0)

    def split(self, flat: NDArray[np.float64]) -> list[Host | None]:
        """Gradients of the outputs with the values of ``flat``; ``None`` for outputs that are not floating-point."""
        found: list[Host | None] = [None] * len(self.outputs)
        start = 0
        for at in self.floats:
            output = np.asarray(self.outputs[at])
            found[at] = flat[start : start + output.size].reshape(output.shape).astype(output.dtype)
            start += output.size
        return found

    def random_gradients(self, random: np.random.Generator) -> list[Host | None]:
        """Normally distributed gradients of the outputs."""
        return self.split(random.standard_normal(sum(np.asarray(self.outputs[at]).size for at in self.floats)))

    def form_of(self, gradient: Host, at: int) -> str | None:
        """What is wrong with the shape or dtype of the gradient of input ``at``, if anything."""
        value = self.inputs[at]
        assert value is not None
        name = self.subject.input_name(at)
        if gradient.shape != value.shape:
            return f"the gradient of {name} has shape {gradient.shape}, but the input has {value.shape}"
        if gradient.dtype != value.dtype:
            return f"the gradient of {name} has dtype {gradient.dtype}, but the input has {value.dtype}"
        return None


def make_probe(subject: HostOperator, inputs: Sequence[Host | None]) -> Differentiable:
    """The operator at ``inputs``: in float64 if the forward accepts and returns it, else as given.

    Raises ``UsageError`` for inputs that the forward refuses, and ``UnsupportedError`` without a backward or without a
    floating-point output.
    """
    if subject.pull is None:
        raise UnsupportedError(f"the gradient of {subject.name}", "it has no backward", "check the forward alone")
    if any(each is not None and is_float(each.dtype) for each in inputs):
        wide = tuple(widened(inputs, keep=subject.fixed))
        found = attempt(subject.forward, wide)
        probe = _differentiable(subject, wide, found.value) if found.worked else None
        if probe is not None and probe.dtype == np.float64:
            zeros = probe.split(np.zeros(sum(np.asarray(probe.outputs[at]).size for at in probe.floats)))
            if not attempt(probe.subject.vjp, zeros, wide).refused:
                return probe
    given = tuple(inputs)
    found = attempt(subject.forward, given)
    if not found.worked:
        raise UsageError(f"the gradient of {subject.name}", f"its forward fails: {found.error}", "give other inputs")
    probe = _differentiable(subject, given, found.value)
    if probe is None:
        raise UnsupportedError(f"the gradient of {subject.name}", "no output is floating-point", "check the forward")
    return probe


def _differentiable(
    subject: HostOperator, inputs: tuple[Host | None, ...], outputs: tuple[Host | None, ...]
) -> Differentiable | None:
    floats = tuple(at for at, each in enumerate(outputs) if each is not None and is_float(each.dtype))
    if not floats:
        return None
    found = [np.asarray(outputs[at]).dtype for at in floats]
    free = [each for at, each in enumerate(inputs) if each is not None and at not in subject.fixed]
    found += [each.dtype for each in free if is_float(each.dtype)]
    return Differentiable(subject, inputs, outputs, floats, min(found, key=lambda each: each.itemsize))


AT_A_KINK = "is wrong at a kink (a tie, or a change of branch)"

_OUTPUTS = 3
_DIRECTIONS = 6
_NEARBY = 24
_MARGIN = 0.02


def check_kinks(probe: Differentiable, at: int, found: Slopes, random: np.random.Generator) -> str | None:
    """What is wrong with the gradient of input ``at`` at kinks of single outputs, if anything."""
    places = np.flatnonzero(found.kinked)
    if not places.size:
        return None
    chosen = random.choice(places, min(_OUTPUTS, places.size), replace=False)
    for output in chosen:
        if fault := _at_output(probe, at, found, int(output), random):
            return fault
    return None


def _at_output(probe: Differentiable, at: int, found: Slopes, output: int, random: np.random.Generator) -> str | None:
    one = np.zeros(found.usable.size)
    one[output] = 1.0
    answer = attempt(probe.subject.vjp, probe.split(one), replaced(probe.inputs, at, found.base))
    gradient = answer.value[at] if answer.worked else None
    if gradient is None or gradient.shape != found.base.shape:
        return None
    wide = gradient.astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(found.direction)))) or 1.0
    for _ in range(_DIRECTIONS):
        v: NDArray[np.float64] = random.standard_normal(found.base.shape) * size
        along = line(probe.evaluate(at), found.base, v, found.step)
        if not (along.kinked[output] or along.usable[output]) or not np.array_equal(along.base, found.base):
            return None
        left, right = float(along.left[output]), float(along.right[output])
        said = float((wide * along.direction).sum())
        steep = max(abs(left), abs(right), float(np.linalg.norm(wide * along.direction)))
        slack = 1e3 * precision_of(probe.dtype).kink * steep + found.step * steep + 16 * float(along.rounding[output])
        if min(left, right) - slack <= said <= max(left, right) + slack:
            continue
        hull = _hull(probe, at, found.base, output, along.direction, random)
        if hull is not None and not hull[0] - _MARGIN * steep <= said <= hull[1] + _MARGIN * steep:
            return (
                f"the gradient of {probe.subject.input_name(at)} {AT_A_KINK}: "
                f"along a random direction an output has slopes from {hull[0]:.6g} to {hull[1]:.6g} nearby, but the "
                f"gradient says {said:.6g}, which is outside that range"
            )
    return None


def _hull(
    probe: Differentiable, at: int, base: Host, output: int, v: NDArray[np.float64], random: np.random.Generator
) -> tuple[float, float] | None:
    """The smallest and largest slope of an output along ``v`` near ``base``; ``None`` if some may have been missed."""
    evaluate, wide = probe.evaluate(at), base.astype(np.float64)
    step = precision_of(probe.dtype).steps[1]
    away = 1e3 * step if probe.dtype == np.float64 else 30 * step
    size = float(np.sqrt(np.mean(np.square(v)))) or 1.0
    slopes = []
    for _ in range(_NEARBY):
        near = wide + away * size * random.standard_normal(base.shape)
        ends = [evaluate((near + sign * step * v).astype(base.dtype))[output] for sign in (1, -1)]
        slopes.append((ends[0] - ends[1]) / (2 * step))
    ordered = np.sort(np.asarray(slopes))
    if not np.isfinite(ordered).all():
        return None
    steep = float(np.abs(ordered).max())
    groups = np.split(ordered, np.flatnonzero(np.diff(ordered) > _MARGIN * steep) + 1)
    # If no slope was seen only once, few were missed (Good, "The Population Frequencies of Species", 1953).
    return (float(ordered[0]), float(ordered[-1])) if all(each.size > 1 for each in groups) else None
