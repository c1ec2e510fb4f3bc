"""What a case must give, computed once and kept in a file for all processes, and whether what was measured is that.

The reference is NumPy's executor on the network before any transform, in a process of its own, so what it costs in time
and memory is in no figure. Where a whole batch would take too long it computes the first rows, and of large tensors it
keeps evenly spaced elements: both are said beside the error.

An error is relative to the size of its tensor, since a sum's rounding is relative to its terms: the largest difference
of an output to its largest magnitude, the norm of a gradient's difference to its norm. What exceeds the tolerance is a
fault only if roundings of parameters and inputs (a ReLU at zero that turns over) do not move the reference as far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from levelbench.checks.arrays import Correctness, Host, difference, is_float, unit_roundoff
from levelbench.errors import LevelbenchError
from levelbench.networks.benchmark.cases import build_base, trained
from levelbench.networks.cost import network_cost
from levelbench.networks.executor import Array, Backend
from levelbench.networks.inspect import random_values
from levelbench.networks.network import Network, read_inputs
from levelbench.networks.values import batch_axis
from levelbench.operators.frameworks import open_framework
from levelbench.records.networks import NetworkSpecification

LIMIT_FLOPS = 1e10
"""Floating-point operations that the reference of one case may take, about, each time it is computed."""
_ELEMENTS = 2**16
_SHAKES = 2
_LEAST_TRAINED = 4
"""Rows that a training step is checked with: the variance of fewer is too often zero."""


@dataclass(frozen=True)
class KeptTensor:
    """A tensor's shape, its largest finite magnitude, and its elements, or some of them, evenly spaced.

    ``moved`` is how far roundings of parameters and inputs move it, as :func:`distance` has it: the most that was seen.
    """

    shape: tuple[int, ...]
    largest: float
    values: Host
    moved: float = 0.0


class ReferenceFacts(msgspec.Struct, frozen=True):
    """``rows`` of the batch were computed ``by`` a framework; ``reason`` says why there is no reference.

    ``evaluation`` tells that a training step was computed as in evaluation, as it would draw random numbers.
    ``tensors`` are shape, largest magnitude and movement by name.
    """

    rows: int = 0
    by: str = ""
    reason: str = ""
    evaluation: bool = False
    tensors: dict[str, tuple[tuple[int, ...], float, float]] = {}


@dataclass(frozen=True)
class Reference:
    """The wanted tensors: ``output 0``, ``output 1``, ..., or ``loss`` and ``gradient of NAME``."""

    facts: ReferenceFacts
    tensors: Mapping[str, KeptTensor]


def kept(array: Host) -> Host:
    """The elements that are compared: all up to 65,536, else as many, evenly spaced; float64 where they are floating.

    Shape (n,).
    """
    flat = np.asarray(array).reshape(-1)
    if flat.size > _ELEMENTS:
        flat = flat[np.linspace(0, flat.size - 1, _ELEMENTS).round().astype(np.intp)]
    return flat.astype(np.float64) if flat.dtype.kind not in "biu" else flat


def tensor_of(array: Host) -> KeptTensor:
    """What is kept of a tensor."""
    values = kept(array)
    finite = np.abs(array[np.isfinite(array)].astype(np.float64)) if array.dtype.kind not in "biu" else np.zeros(0)
    return KeptTensor(array.shape, float(finite.max(initial=0.0)), values)


def first_rows(network: Network, inputs: Mapping[str, Host], rows: int) -> dict[str, Host]:
    """The inputs, cut to the first ``rows`` along the axis that is the batch, where they have one."""
    axes = {each.name: batch_axis(each, network.sizes) for each in network.inputs}
    return {name: cut(each, axes[name], rows) for name, each in inputs.items()}


def cut(array: Host, axis: int | None, rows: int) -> Host:
    """The first ``rows`` along ``axis``; all of them for ``None``."""
    return array if axis is None else np.ascontiguousarray(array[(slice(None),) * axis + (slice(rows),)])


def to_be_checked(network: Network, specification: NetworkSpecification) -> tuple[Network, bool]:
    """What is compared of ``network``, which has no loss yet, and whether in evaluation though training is measured."""
    if specification.direction == "forward":
        return network, False
    found = trained(network, specification.loss)
    if random_values(found.model.graph):
        return trained(network, specification.loss, training=False), True
    return found, False


def make(specification: NetworkSpecification) -> Reference:
    """Compute the reference of a case: with NumPy, or, for an inference that it has not, with ONNX Runtime.

    Where neither can, its ``reason`` says what NumPy lacks.
    """
    case = specification.case
    if case.kind == "native":
        return Reference(ReferenceFacts(reason="a native model has no other to be compared with"), {})
    base = build_base(case)
    network, evaluation = to_be_checked(base, specification)
    rows = _rows(base, specification)
    inputs = first_rows(network, network.make_inputs(case.batch, 0, case.sizes), rows)
    reasons = []
    for name in ("numpy", "onnxruntime")[: 2 if specification.direction == "forward" else 1]:
        try:
            backend = open_framework(name)
            if not isinstance(backend, Backend):
                continue
            tensors = _tensors(backend, network, inputs, specification.direction)
        except (LevelbenchError, MemoryError) as error:
            reasons.append(error.found if isinstance(error, LevelbenchError) else "it ran out of memory")
            continue
        return Reference(ReferenceFacts(rows, name, "", evaluation), tensors)
    return Reference(ReferenceFacts(reason=f"the reference has none ({reasons[0] if reasons else 'no framework'})"), {})


def _tensors(backend: Backend, network: Network, inputs: Mapping[str, Host], direction: str) -> dict[str, KeptTensor]:
    """The wanted tensors, and how far roundings move each."""
    parameters = network.initialise(0)
    found = {name: tensor_of(each) for name, each in _computed(backend, network, parameters, inputs, direction).items()}
    for seed in range(_SHAKES):
        random = np.random.default_rng(seed)
        values, given = (
            {name: _shaken(each, random) for name, each in arrays.items()} for arrays in (parameters, inputs)
        )
        for name, array in _computed(backend, network, values, given, direction).items():
            moved = distance(name, found[name].values, kept(array))
            found[name] = replace(found[name], moved=max(found[name].moved, moved))
    return found


def _shaken(array: Host, random: np.random.Generator) -> Host:
    """Each floating element moved by a rounding, up or down."""
    if not is_float(array.dtype):
        return array
    moved = array.astype(np.float64) * (1 + unit_roundoff(array.dtype) * random.choice([-1.0, 1.0], array.shape))
    return np.asarray(moved.astype(array.dtype))


def distance(name: str, a: Host, b: Host) -> float:
    """Between two tensors' kept elements: of gradients the Euclidean one, else the largest difference.

    A ReLU at zero that turns over changes a few elements of a gradient by much, however small the rounding that does
    it; their norm hardly moves. Of integers it is the share that differs; infinite where only one of two is finite.
    """
    if a.dtype.kind in "biu":
        return float(np.mean(a != b)) if a.size else 0.0
    return size(name, difference(a, b))


def size(name: str, values: Host) -> float:
    """The Euclidean norm of a gradient's elements, the largest magnitude of any other tensor's; 0 of integers."""
    if values.dtype.kind in "biu":
        return 0.0
    return float(np.linalg.norm(values)) if name.startswith("gradient") else float(np.abs(values).max(initial=0.0))


def _computed(
    backend: Backend, network: Network, parameters: Mapping[str, Host], inputs: Mapping[str, Host], direction: str
) -> dict[str, Host]:
    trains = direction == "backward"
    native = [backend.array(inputs[name]) for name in (inputs if trains else read_inputs(network))]
    executor = backend.executor(network, parameters, trains=trains)
    found = executor.infer_and_backprop(*native) if trains else executor.infer(*native)
    return {name: np.asarray(backend.host(each)) for name, each in named(found, trains=trains).items()}


def named(found: Any, *, trains: bool) -> dict[str, Array]:
    """What an executor answers with, outputs or loss and gradients, by the names of a reference's tensors."""
    if not trains:
        return {f"output {at}": each for at, each in enumerate(found)}
    loss, gradients = found
    return {"loss": loss, **{f"gradient of {name}": each for name, each in gradients.items()}}


def _rows(network: Network, specification: NetworkSpecification) -> int:
    """How many rows of the batch the reference computes: as many as it can afford."""
    case, backward = specification.case, specification.direction == "backward"
    if all(batch_axis(each, network.sizes) is None for each in network.inputs):
        return case.batch
    flops = network_cost(network, 1, case.sizes).flops * (3 if backward else 1)
    affordable = int(LIMIT_FLOPS / flops) if flops else case.batch
    return min(case.batch, max(affordable, _LEAST_TRAINED if backward else 1))


def save(reference: Reference, path: Path) -> None:
    """Write a reference to ``path``, an ``.npz`` file without pickled objects."""
    kept = {name: (each.shape, each.largest, each.moved) for name, each in reference.tensors.items()}
    facts = msgspec.structs.replace(reference.facts, tensors=kept)
    arrays = {f"tensor{at}": each.values for at, each in enumerate(reference.tensors.values())}
    text = np.frombuffer(msgspec.json.encode(facts), np.uint8)
    np.savez(path, allow_pickle=False, facts=text, **arrays)


def load(path: Path) -> Reference:
    """The reference that :func:`save` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        facts = msgspec.json.decode(stored["facts"].tobytes(), type=ReferenceFacts)
        tensors = {
            name: KeptTensor(shape, largest, stored[f"tensor{at}"], moved)
            for at, (name, (shape, largest, moved)) in enumerate(facts.tensors.items())
        }
    return Reference(facts, tensors)


_LEAST_GRADIENT = 1e-3
"""A gradient that is zero but for rounding (of a bias before a norm) is held against this share of the largest."""
_FACTOR = 4.0
"""Roundings happen at each operator, and not at parameters and inputs alone."""


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
