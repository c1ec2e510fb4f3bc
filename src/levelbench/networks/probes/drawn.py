"""Judges how weights were drawn: their spread, mean and law against the reference's, layer by layer.

The laws have names that people use (He, Xavier, PyTorch's default), with the layer's own fan-in and fan-out, so that a
wider layer is compared with what its reference would draw there. Spreads must agree within five standard errors of the
variance of a sample, (kurtosis - 1) / n relative to the variance; a constant must be one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.layers import Layer
from levelbench.networks.values import Draw

_ERRORS = 5.0
_KURTOSIS = {"normal": 3.0, "uniform": 1.8}
_FEWEST = 200
"""With fewer numbers a normal and a uniform law are not told apart."""


@dataclass(frozen=True)
class DrawnWeight:
    """One array of a model beside the reference's: what it is, its layer, its values in several draws, its law."""

    place: str
    role: str
    layer: Layer
    values: Sequence[NDArray[Any]]
    draw: Draw
    reference_layer: Layer


def fans(layer: Layer) -> tuple[int, int, int]:
    """Fan-in and fan-out (of all groups) of a convolution or linear layer as PyTorch counts them, and groups."""
    s = layer.settings
    area, groups = math.prod(s.get("kernel", ())), s.get("groups", 1)
    return s["inputs"] // groups * area, s["channels"] * area, groups


_Law = tuple[str, Literal["normal", "uniform"], Callable[[int, int, int], float]]
_LAWS: tuple[_Law, ...] = (
    ("He, fan-out: normal, std sqrt(2 / fan-out)", "normal", lambda i, o, g: math.sqrt(2 / o)),
    ("He, fan-in: normal, std sqrt(2 / fan-in)", "normal", lambda i, o, g: math.sqrt(2 / i)),
    ("He, fan-out of a group: normal, std sqrt(2 / fan-out)", "normal", lambda i, o, g: math.sqrt(2 * g / o)),
    ("Xavier: normal, std sqrt(2 / (fan-in + fan-out))", "normal", lambda i, o, g: math.sqrt(2 / (i + o))),
    ("LeCun: normal, std sqrt(1 / fan-in)", "normal", lambda i, o, g: math.sqrt(1 / i)),
    ("PyTorch's default: uniform in ±1 / sqrt(fan-in)", "uniform", lambda i, o, g: 1 / math.sqrt(i)),
    ("Xavier: uniform in ±sqrt(6 / (fan-in + fan-out))", "uniform", lambda i, o, g: math.sqrt(6 / (i + o))),
    ("He, fan-in: uniform in ±sqrt(6 / fan-in)", "uniform", lambda i, o, g: math.sqrt(6 / i)),
    ("He, fan-out: uniform in ±sqrt(6 / fan-out)", "uniform", lambda i, o, g: math.sqrt(6 / o)),
    ("Caffe's Xavier: uniform in ±sqrt(3 / fan-in)", "uniform", lambda i, o, g: math.sqrt(3 / i)),
)
_FIXED = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1)


def differing(weights: Sequence[DrawnWeight]) -> list[tuple[str, list[DrawnWeight]]]:
    """What differs, in words, each with the weights that it is true of."""
    wrong = [(each, expected) for each in weights if not fits(each.values, expected := _expected(each))]
    groups: dict[tuple[str, str], list[DrawnWeight]] = {}
    for each, expected in wrong:
        groups.setdefault((each.role, _named(each.reference_layer, each.draw) or _words(expected)), []).append(each)
    found = []
    for (role, expected_words), members in groups.items():
        for seen, those in _seen(members):
            found.append((f"{role}: {seen} instead of {expected_words}", those))
    return found


def _expected(weight: DrawnWeight) -> Draw:
    """The reference's law at the fans of the model's own layer."""
    theirs, mine = weight.reference_layer, weight.layer
    if weight.draw.kind == "constant" or "inputs" not in mine.settings or "inputs" not in theirs.settings:
        return weight.draw
    if fans(theirs) != fans(mine):
        for _, kind, scale in _LAWS:
            if kind == weight.draw.kind and math.isclose(scale(*fans(theirs)), weight.draw.scale, rel_tol=1e-5):
                return Draw(weight.draw.kind, scale(*fans(mine)), weight.draw.mean)
    return weight.draw


def _deviation(draw: Draw) -> float:
    return draw.scale / math.sqrt(3) if draw.kind == "uniform" else draw.scale


def fits(values: Sequence[NDArray[Any]], draw: Draw) -> bool:
    """Whether the draws of one array are compatible with the law."""
    flat = np.concatenate([np.ravel(each).astype(np.float64) for each in values])
    if draw.kind == "constant":
        return bool(np.allclose(flat, draw.scale, rtol=1e-6, atol=1e-7))
    count, expected = flat.size, _deviation(draw)
    spread = math.sqrt(float(np.mean((flat - draw.mean) ** 2)))
    if count < 2 or expected == 0:
        return count < 2 or spread == expected
    if np.ptp(flat) == 0:
        return False
    error = math.sqrt((_KURTOSIS[draw.kind] - 1) / count)
    if abs(spread**2 / expected**2 - 1) > _ERRORS * error + 0.01:
        return False
    if abs(float(np.mean(flat)) - draw.mean) > _ERRORS * expected / math.sqrt(count):
        return False
    if draw.kind == "uniform" and np.max(np.abs(flat - draw.mean)) > draw.scale * (1 + 1e-5):
        return False
    if count < _FEWEST or draw.kind == "uniform":
        return draw.kind != "uniform" or count < _FEWEST or _kurtosis(flat) < 2.4
    return _kurtosis(flat) > 2.4


def _kurtosis(flat: NDArray[Any]) -> float:
    centred = flat - flat.mean()
    return float(np.mean(centred**4) / max(float(np.mean(centred**2)) ** 2, 1e-300))


def _named(layer: Layer, draw: Draw) -> str:
    """The name of a law, if it has one."""
    if draw.kind == "constant":
        return f"constant {draw.scale:g}"
    if "inputs" in layer.settings and not draw.mean:
        for name, kind, scale in _LAWS:
            if kind == draw.kind and math.isclose(scale(*fans(layer)), draw.scale, rel_tol=1e-5):
                return name
    return ""


def _words(draw: Draw) -> str:
    if draw.kind == "normal":
        return f"normal with std {draw.scale:.3g}"
    return f"uniform in ±{draw.scale:.3g}"


def _seen(members: Sequence[DrawnWeight]) -> list[tuple[str, list[DrawnWeight]]]:
    """How the weights were drawn, in words: the law that fits most, again for the rest, else the measured spread."""
    left, found = list(members), []
    while left:
        best: tuple[str, list[DrawnWeight]] = ("", [])
        for name, fitting in _candidates(left):
            if len(fitting) > len(best[1]):
                best = (name, fitting)
        if not best[1]:
            break
        found.append(best)
        left = [each for each in left if each not in best[1]]
    if left:
        spread = [float(np.std(np.concatenate([np.ravel(value) for value in each.values]))) for each in left]
        low, high = min(spread), max(spread)
        numbers = f"{low:.3g}" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.3g} to {high:.3g}"
        found.append((f"std {numbers}", left))
    return found


def _candidates(members: Sequence[DrawnWeight]) -> list[tuple[str, list[DrawnWeight]]]:
    found = []
    # Adding zero makes -0 a plain 0.
    constants = {float(np.ravel(each.values[0])[0]) + 0.0 for each in members if each.values[0].size}
    for constant in sorted(constants)[:20]:
        draw = Draw("constant", constant)
        found.append((f"constant {constant:g}", [each for each in members if fits(each.values, draw)]))
    for name, kind, scale in _LAWS:
        fitting = [
            each
            for each in members
            if "inputs" in each.layer.settings and fits(each.values, Draw(kind, scale(*fans(each.layer))))
        ]
        found.append((name, fitting))
    for number in _FIXED:
        draw = Draw("normal", number)
        found.append((f"normal with std {number:g}", [each for each in members if fits(each.values, draw)]))
    return found


def trained(statistics: Mapping[str, NDArray[Any]]) -> bool:
    """Whether running statistics (arrays by ``mean`` or ``variance`` and a name) have left 0 and 1."""
    return any(
        not np.allclose(value, 0.0 if role.startswith("mean") else 1.0, atol=1e-6) for role, value in statistics.items()
    )
