"""Is what was measured right: against the reference's outputs, or its loss and gradients.

An error is relative to the size of its tensor, since a sum's rounding is relative to its terms: the
largest difference of an output to its largest magnitude, the norm of a gradient's difference to its norm. What exceeds
the tolerance is a fault only if roundings of parameters and inputs do not move the reference about as far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from levelbench.networks.benchmark.reference import KeptTensor, Reference, distance, size

_LEAST_GRADIENT = 1e-3
"""A gradient that is zero but for rounding (of a bias before a norm) is held against this share of the largest."""
_FACTOR = 4.0
"""Roundings happen at each operator, and not at parameters and inputs alone."""


@dataclass(frozen=True)
class Correctness:
    """``wrong`` is empty where nothing is; ``errors`` are the largest of ``output``, ``loss`` and ``gradient``."""

    wrong: str = ""
    checked: str = ""
    errors: dict[str, float | None] = field(default_factory=dict)


def compare(reference: Reference, found: Mapping[str, KeptTensor], allowed: tuple[float, float | None]) -> Correctness:
    """``found`` has the reference's names, and of outputs its rows.

    ``allowed`` are the relative errors of outputs (and the loss) and of gradients; without the second, gradients are
    not compared. Nor is that of a parameter that a transform removed.
    """
    wrong: list[str] = []
    errors: dict[str, float | None] = {}
    beyond: dict[str, float] = {}
    scales = _scales(reference)
    slack = _slack(reference, scales)
    for name, wanted in reference.tensors.items():
        kind = name.split()[0]
        tolerance = allowed[1] if kind == "gradient" else allowed[0]
        if tolerance is None or (name not in found and kind == "gradient"):
            continue
        error, said = _error(name, wanted, found.get(name), scales[name])
        before = errors.get(kind)
        errors[kind] = error if before is None or (error is not None and error > before) else before
        if error is not None and tolerance < error <= tolerance + slack[name]:
            beyond[kind] = max(beyond.get(kind, 0.0), error)
        elif error is None or not error <= tolerance:
            wrong.append(said or f"{name} is off by {error:.2g} of its size, {tolerance:.2g} allowed")
    facts = reference.facts
    used = allowed if "gradient" in errors else allowed[:1]
    within = " and ".join(f"{each:.2g}" for each in dict.fromkeys(used) if each is not None)
    mode = ", in evaluation: training draws random numbers" if facts.evaluation else ""
    checked = f"against {facts.by} on {facts.rows} rows{mode}, within {within} of each tensor's size"
    checked += "".join(f"; {kind} off by {most:.2g}, as roundings alone do" for kind, most in beyond.items())
    shown = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    return Correctness(shown, checked, errors)


def _scales(reference: Reference) -> dict[str, float]:
    """What each error is relative to."""
    found = {
        name: size(name, each.values) if name.startswith("gradient") else each.largest
        for name, each in reference.tensors.items()
    }
    least = _LEAST_GRADIENT * max((each for name, each in found.items() if name.startswith("gradient")), default=0.0)
    return {name: max(each, least) if name.startswith("gradient") else each for name, each in found.items()}


def _slack(reference: Reference, scales: Mapping[str, float]) -> dict[str, float]:
    """How far roundings move each tensor, relative.

    Of gradients the most that they move any: which ReLU turns over is chance, and it changes all that come before it.
    """
    moved = {
        name: _FACTOR * (each.moved / scales[name] if scales[name] > 0 else each.moved)
        for name, each in reference.tensors.items()
    }
    most = max((each for name, each in moved.items() if name.startswith("gradient")), default=0.0)
    return {name: most if name.startswith("gradient") else each for name, each in moved.items()}


def _error(name: str, wanted: KeptTensor, found: KeptTensor | None, scale: float) -> tuple[float | None, str]:
    """The relative error, or ``None`` and what is the matter."""
    if found is None:
        return None, "an output is missing"
    if tuple(found.shape) != tuple(wanted.shape):
        return None, f"a result has the shape {tuple(found.shape)}, {tuple(wanted.shape)} expected"
    apart = distance(name, found.values, wanted.values)
    if wanted.values.dtype.kind in "biu":
        return apart, f"{apart:.2%} of an integer result differ" if apart else ""
    if not np.array_equal(np.isnan(found.values), np.isnan(wanted.values)):
        return None, "a result has NaN where the reference has none, or none where it has"
    return (apart / scale if scale > 0 else apart), ""
