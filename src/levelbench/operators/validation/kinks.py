"""Judges gradients at kinks: any mixture of the slopes found close by is right, and nothing else is.

The one idea: at a kink a gradient is a choice (ReLU at 0, which of two equal maxima), but not any number: it lies in
the convex hull of the gradients at points close by (Clarke, "Optimization and Nonsmooth Analysis", 1983, theorem
2.5.1). A maximum that pays its gradient to both of two equal elements does not. Points close by are drawn at random,
and nobody is accused while some slope has been seen once only: there may be others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.operators.validation.probe import Probe
from levelbench.operators.validation.slopes import Line, line, precision_of
from levelbench.operators.validation.subject import attempt

__all__ = ["AT_A_KINK", "check_kinks"]

AT_A_KINK = "is wrong at a kink (a tie, or a change of branch)"

_OUTPUTS = 3
_DIRECTIONS = 6
_NEARBY = 24
_MARGIN = 0.02


def check_kinks(probe: Probe, at: int, found: Line, random: np.random.Generator) -> str | None:
    """What is wrong with the gradient of input ``at`` at kinks of single outputs, if anything."""
    places = np.flatnonzero(found.kinked)
    if not places.size:
        return None
    chosen = random.choice(places, min(_OUTPUTS, places.size), replace=False)
    for output in chosen:
        if fault := _at_output(probe, at, found, int(output), random):
            return fault
    return None


def _at_output(probe: Probe, at: int, found: Line, output: int, random: np.random.Generator) -> str | None:
    one = np.zeros(found.usable.size)
    one[output] = 1.0
    inputs = [*probe.inputs[:at], found.base, *probe.inputs[at + 1 :]]
    answer = attempt(probe.vjp, probe.split(one), inputs)
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
                f"along a random direction an output has slopes from {hull[0]:.6g} to {hull[1]:.6g} close by, and the "
                f"gradient says {said:.6g}, which lies outside"
            )
    return None


def _hull(
    probe: Probe, at: int, base: NDArray[Any], output: int, v: NDArray[np.float64], random: np.random.Generator
) -> tuple[float, float] | None:
    """The least and the largest slope of an output along ``v`` close to ``base``; ``None`` if there may be others."""
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
    # None seen only once: then those that were not seen are few (Good, "The Population Frequencies of Species", 1953).
    return (float(ordered[0]), float(ordered[-1])) if all(each.size > 1 for each in groups) else None
