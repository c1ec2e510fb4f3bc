"""The expected results of a case, computed once and kept in a file for all processes, and the comparison with them.

The reference is NumPy's executor on the network before any transform, in its own process, so that its time and memory
appear in no measurement. If a whole batch would take too long, it computes the first rows. Of large tensors it keeps
evenly spaced elements. Both are stated next to the error.

Errors are relative to the size of the tensor, because the rounding of a sum is relative to its terms: for outputs the
largest difference relative to the largest magnitude, for gradients the norm of the difference relative to the norm. An
error beyond the tolerance is a fault only if rounding parameters and inputs (which may switch a ReLU at zero) does not
move the reference as far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from levelbench.checks.arrays import Correctness, Host, difference, is_float, largest, unit_roundoff
from levelbench.errors import LevelbenchError, UsageError
from levelbench.networks.benchmark.cases import build_base, trained
from levelbench.networks.cost import network_cost
from levelbench.networks.executor import Array, Backend
from levelbench.networks.inspect import random_values
from levelbench.networks.network import Network, read_inputs
from levelbench.networks.shapes import other_sizes_or
from levelbench.networks.values import batch_axis
from levelbench.operators.frameworks import open_framework
from levelbench.records.networks import NetworkSpecification

LIMIT_FLOPS = 1e10
"""About how many floating-point operations the reference of one case may take each time it is computed."""
_ELEMENTS = 2**16
_SHAKES = 2
_LEAST_TRAINED = 4
"""The fewest rows to check a training step with: with fewer, a variance is too often zero."""


@dataclass(frozen=True)
class KeptTensor:
    """A tensor's shape, its largest finite magnitude, and all or some evenly spaced elements.

    ``moved`` is the largest observed :func:`distance` by which rounding parameters and inputs moves it.
    """

    shape: tuple[int, ...]
    largest: float
    values: Host
    moved: float = 0.0


class ReferenceFacts(msgspec.Struct, frozen=True):
    """``rows`` of the batch were computed ``by`` a framework; ``reason`` says why there is no reference.

    ``evaluation``: a training step was computed in evaluation mode, because training would draw random numbers.
    ``tensors`` holds shape, largest magnitude and movement by name.
    """

    rows: int = 0
    by: str = ""
    reason: str = ""
    evaluation: bool = False
    tensors: dict[str, tuple[tuple[int, ...], float, float]] = {}


@dataclass(frozen=True)
class Reference:
    """The expected tensors: ``output 0``, ``output 1``, ..., or ``loss`` and ``gradient of NAME``."""

    facts: ReferenceFacts
    tensors: Mapping[str, KeptTensor]


def kept(array: Host) -> Host:
    """The elements to compare, shape (n,): all, or 65,536 evenly spaced ones; floating-point ones as float64."""
    flat = np.asarray(array).reshape(-1)
    if flat.size > _ELEMENTS:
        flat = flat[np.linspace(0, flat.size - 1, _ELEMENTS).round().astype(np.intp)]
    return flat.astype(np.float64) if flat.dtype.kind not in "biu" else flat


def tensor_of(array: Host) -> KeptTensor:
    """The part of a tensor that is kept."""
    return KeptTensor(array.shape, 0.0 if array.dtype.kind in "biu" else largest(array), kept(array))


def first_rows(network: Network, inputs: Mapping[str, Host], rows: int) -> dict[str, Host]:
    """The inputs, cut to the first ``rows`` along the batch axis, if they have one."""
    axes = {each.name: batch_axis(each, network.sizes) for each in network.inputs}
    return {name: cut(each, axes[name], rows) for name, each in inputs.items()}


def cut(array: Host, axis: int | None, rows: int) -> Host:
    """The first ``rows`` along ``axis``; all of them for ``None``."""
    return array if axis is None else np.ascontiguousarray(array[(slice(None),) * axis + (slice(rows),)])


def to_be_checked(network: Network, specification: NetworkSpecification) -> tuple[Network, bool]:
    """The network to compare, made from one without a loss; and whether it is in evaluation mode despite training."""
    if specification.direction == "forward":
        return network, False
    found = trained(network, specification.loss)
    if random_values(found.model.graph):
        return trained(network, specification.loss, training=False), True
    return found, False


def make(specification: NetworkSpecification) -> Reference:
    """Compute the reference of a case: with NumPy or, for an inference that NumPy cannot run, with ONNX Runtime.

    If neither can, its ``reason`` says what NumPy lacks. ``UsageError`` if it raises anything else on drawn inputs.
    """
    case = specification.case
    if case.kind == "native":
        return Reference(ReferenceFacts(reason="there is nothing to compare a native model with"), {})
    base = build_base(case)
    network, evaluation = to_be_checked(base, specification)
    rows = _rows(base, specification)
    inputs = first_rows(network, network.make_inputs(case.batch, 0, case.sizes), rows)
    return expected(network, inputs, rows, specification.direction, evaluation=evaluation)


def expected(
    network: Network, inputs: Mapping[str, Host], rows: int, direction: str = "forward", *, evaluation: bool = False
) -> Reference:
    """The reference for these inputs of ``rows`` rows; the rest as for :func:`make`."""
    reasons = []
    for name in ("numpy", "onnxruntime")[: 2 if direction == "forward" else 1]:
        try:
            backend = open_framework(name)
            if not isinstance(backend, Backend):
                continue
            tensors = _tensors(backend, network, inputs, direction)
        except (LevelbenchError, MemoryError) as error:
            reasons.append(error.found if isinstance(error, LevelbenchError) else "it ran out of memory")
            continue
        except Exception as error:  # inputs that are drawn need not be shapes or places that the network accepts
            asked, found = (
                f"network {network.name} on {name}",
                f"with drawn inputs it raises {type(error).__name__}: {error}",
            )
            do = "levelbench check FILE --inputs VALUES.npz runs it on given ones"
            raise UsageError(asked, found, other_sizes_or(do, network)) from error
        return Reference(ReferenceFacts(rows, name, "", evaluation), tensors)
    reason = f"the reference cannot run it ({reasons[0] if reasons else 'no framework'})"
    return Reference(ReferenceFacts(reason=reason), {})


def _tensors(backend: Backend, network: Network, inputs: Mapping[str, Host], direction: str) -> dict[str, KeptTensor]:
    """The expected tensors, and how far rounding moves each."""
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
    """The array with each floating-point element moved by one rounding, up or down."""
    if not is_float(array.dtype):
        return array
    moved = array.astype(np.float64) * (1 + unit_roundoff(array.dtype) * random.choice([-1.0, 1.0], array.shape))
    return np.asarray(moved.astype(array.dtype))


def distance(name: str, a: Host, b: Host) -> float:
    """The distance between two tensors' kept elements: Euclidean for gradients, else the largest difference.

    A ReLU at zero that switches changes a few elements of a gradient a lot, even if a tiny rounding causes it, but
    hardly the norm. For integers it is the share that differs. It is infinite if only one of a pair is finite.
    """
    if a.dtype.kind in "biu":
        return float(np.mean(a != b)) if a.size else 0.0
    return size(name, difference(a, b))


def size(name: str, values: Host) -> float:
    """The Euclidean norm of a gradient's elements, the largest magnitude of any other tensor; 0 for integers."""
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
    """An executor's results, outputs or loss and gradients, by the names of a reference's tensors."""
    if not trains:
        return {f"output {at}": each for at, each in enumerate(found)}
    loss, gradients = found
    return {"loss": loss, **{f"gradient of {name}": each for name, each in gradients.items()}}


def _rows(network: Network, specification: NetworkSpecification) -> int:
    """How many rows of the batch the reference computes: as many as the limit allows."""
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
"""A gradient that is zero except for rounding (of a bias before a norm) is compared with this share of the largest."""
_FACTOR = 4.0
"""Rounding happens in every operator, not only in parameters and inputs."""


def compare(reference: Reference, found: Mapping[str, KeptTensor], allowed: tuple[float, float | None]) -> Correctness:
    """Compare ``found``, which has the names of the reference and, for outputs, its rows.

    ``allowed`` are the relative errors of outputs (and the loss) and of gradients; if the second is ``None``, gradients
    are not compared. Gradients of parameters that a transform removed are not compared either.
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
        error, fault = _error(name, wanted, found.get(name), scales[name])
        before = errors.get(kind)
        errors[kind] = error if before is None or (error is not None and error > before) else before
        if error is not None and tolerance < error <= tolerance + slack[name]:
            beyond[kind] = max(beyond.get(kind, 0.0), error)
        elif error is None or not error <= tolerance:
            wrong.append(fault or f"{name} is off by {error:.2g} of its size, {tolerance:.2g} allowed")
    facts = reference.facts
    used = allowed if "gradient" in errors else allowed[:1]
    within = " and ".join(f"{each:.2g}" for each in dict.fromkeys(used) if each is not None)
    mode = ", in evaluation: training draws random numbers" if facts.evaluation else ""
    checked = f"against {facts.by} on {facts.rows} rows{mode}, within {within} of each tensor's size"
    checked += "".join(f"; {kind} off by {most:.2g}, as rounding alone explains" for kind, most in beyond.items())
    shown = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    return Correctness(shown, checked, errors)


def _scales(reference: Reference) -> dict[str, float]:
    """The size that each error is relative to."""
    found = {
        name: size(name, each.values) if name.startswith("gradient") else each.largest
        for name, each in reference.tensors.items()
    }
    least = _LEAST_GRADIENT * max((each for name, each in found.items() if name.startswith("gradient")), default=0.0)
    return {name: max(each, least) if name.startswith("gradient") else each for name, each in found.items()}


def _slack(reference: Reference, scales: Mapping[str, float]) -> dict[str, float]:
    """How far rounding moves each tensor, relative to its size.

    For all gradients this is the largest of any: which ReLU switches is chance, and affects all gradients before it.
    """
    moved = {
        name: _FACTOR * (each.moved / scales[name] if scales[name] > 0 else each.moved)
        for name, each in reference.tensors.items()
    }
    most = max((each for name, each in moved.items() if name.startswith("gradient")), default=0.0)
    return {name: most if name.startswith("gradient") else each for name, each in moved.items()}


def _error(name: str, wanted: KeptTensor, found: KeptTensor | None, scale: float) -> tuple[float | None, str]:
    """The relative error, or ``None`` and what is wrong."""
    if found is None:
        return None, "an output is missing"
    if tuple(found.shape) != tuple(wanted.shape):
        return None, f"a result has shape {tuple(found.shape)}, expected {tuple(wanted.shape)}"
    apart = distance(name, found.values, wanted.values)
    if wanted.values.dtype.kind in "biu":
        return apart, f"{apart:.2%} of an integer result differ" if apart else ""
    if not np.array_equal(np.isnan(found.values), np.isnan(wanted.values)):
        return None, "a result has NaN where the reference does not, or vice versa"
    return (apart / scale if scale > 0 else apart), ""
