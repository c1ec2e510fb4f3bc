"""Compares a network on several frameworks with a reference, tensor by tensor, and raises where one is wrong.

Same parameters, same inputs, the executors that a user would use; outputs first, gradients where those are right or
wrong alike, and where they diverge, the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from levelbench.checks.arrays import Host, is_float, unit_roundoff
from levelbench.errors import LevelbenchError
from levelbench.networks.inspect import random_values
from levelbench.networks.network import Network
from levelbench.networks.probes.agreement import (
    Agreement,
    BackendAgreement,
    Conditioning,
    DivergencePoint,
    Kind,
    TensorAgreement,
    coarsest_dtype,
    judge,
    limit_for,
    noise,
)
from levelbench.networks.probes.divergence import (
    BUDGET,
    Pairing,
    audit,
    first_divergence,
    first_wrong_gradient,
)
from levelbench.networks.probes.running import Arrays, Runner, with_probe
from levelbench.operators.contract import OperatorBackend

_NOT_ASKED = "they were not asked for"
_NOTHING: Mapping[str, str] = MappingProxyType({})


def check_network(
    network: Network,
    backends: Mapping[str, OperatorBackend],
    reference: OperatorBackend,
    inputs: Arrays | None = None,
    parameters: Arrays | None = None,
    **options: Any,
) -> Agreement:
    """As :func:`compare_network`; raises ``CheckFailedError`` with what is wrong, where and how much."""
    found = compare_network(network, backends, reference, inputs, parameters, **options)
    found.raise_for_findings()
    return found


def compare_network(
    network: Network,
    backends: Mapping[str, OperatorBackend],
    reference: OperatorBackend,
    inputs: Arrays | None = None,
    parameters: Arrays | None = None,
    *,
    gradients: bool = True,
    locate: bool = True,
    operators: bool = False,
    modes: Mapping[str, str] = _NOTHING,
    tolerance: float = 1.0,
    batch: int = 2,
    seed: int = 0,
    reference_name: str = "numpy",
    budget: int = BUDGET,
    tell: Callable[[str], None] = lambda _: None,
) -> Agreement:
    """The network on each of ``backends`` against ``reference``, on the same parameters and inputs.

    ``inputs`` and ``parameters`` are NumPy arrays by name; default: ``make_inputs(batch, seed)`` and
    ``initialise(seed)``. Gradients are those of the network's loss or, where it has none, of its outputs against random
    directions. ``tolerance`` multiplies all limits, ``modes`` are the executors' by name. ``locate`` looks for the
    operator at which a framework that is wrong parts, holding at most ``budget`` bytes of values of each at a time.
    ``operators`` runs every operator alone on the reference's values, and holds it to Level 0's tolerance: that finds
    what the outputs hide. A framework that raises something else than a refusal is wrong; the reference may not raise.
    """
    inputs = network.make_inputs(batch, seed) if inputs is None else inputs
    parameters = network.initialise(seed) if parameters is None else parameters
    setting = Pairing(network, parameters, inputs, Runner(reference_name, reference), Runner("", reference))
    tell(f"{network.name} on {reference_name}")
    expected = _expected(replace(setting, scale=tolerance, budget=budget), gradients)
    found = []
    for name, backend in backends.items():
        tell(f"{network.name} on {name}")
        found.append(_compared(expected, Runner(name, backend, modes.get(name, "")), locate, operators))
    given = {name: f"{each.dtype}{list(each.shape)}" for name, each in inputs.items()}
    return Agreement(network.name, reference_name, tuple(found), given)


@dataclass(frozen=True)
class _Expected:
    """What the reference says. ``training`` is the network with a loss, ``no_gradients`` why there are none."""

    setting: Pairing
    outputs: Mapping[str, Host]
    training: Pairing
    gradients: Mapping[str, Host]
    no_gradients: str
    conditioning: Conditioning
    sloping: Conditioning
    unsteady: frozenset[str]
    dtype: np.dtype[Any]


def _expected(setting: Pairing, gradients: bool) -> _Expected:
    network, reference = setting.network, setting.reference
    inference = getattr(network, "for_inference", network)
    plain = replace(setting, network=inference)
    outputs = reference.outputs(inference, setting.parameters, setting.inputs)
    dtype = coarsest_dtype(inference, [each.dtype.name for each in outputs.values() if is_float(each.dtype)])
    training, reason = setting, ""
    slopes: Mapping[str, Host] = {}
    unsteady = random_values(inference.model.graph)
    if not gradients:
        reason = _NOT_ASKED
    elif not network.loss:
        steady = {name: each for name, each in outputs.items() if name not in unsteady}
        probed, directions = with_probe(network, steady)
        training = replace(setting, network=probed, inputs={**setting.inputs, **directions})
        if not probed.loss:
            reason = "no output is a floating-point tensor"
    if not reason and training.network.loss in random_values(training.network.model.graph):
        reason = "the loss depends on random numbers, which no two frameworks draw alike"
    if not reason and not any(each.trainable for each in network.parameters):
        reason = "the network has no trainable parameters"
    if not reason:
        try:
            slopes = reference.gradients(training.network, training.parameters, training.inputs)
        except LevelbenchError as error:
            reason = f"the reference has none: {error.asked}: {error.found}"
    return _Expected(
        plain,
        outputs,
        training,
        slopes,
        reason,
        Conditioning(partial(reference.outputs, inference), setting.parameters, setting.inputs, dtype),
        Conditioning(partial(reference.gradients, training.network), training.parameters, training.inputs, dtype),
        frozenset(unsteady),
        dtype,
    )


def _compared(expected: _Expected, runner: Runner, locate: bool, operators: bool) -> BackendAgreement:
    """One framework: outputs, then gradients, then where it parts."""
    setting = replace(expected.setting, other=runner)
    mode = runner.mode or next(iter(getattr(runner.backend, "modes", ())), "")
    try:
        outputs, repeats = runner.twice(setting.network, setting.parameters, setting.inputs)
    except LevelbenchError as error:
        return BackendAgreement(runner.name, mode, lacks=f"{error.asked}: {error.found}")
    except Exception as error:  # noqa: BLE001  # the boundary to frameworks
        return BackendAgreement(runner.name, mode, raised=_line(error))
    tensors = [_output(expected, name, outputs.get(name)) for name in expected.outputs]
    try:
        slopes, reason = _slopes(expected, runner)
    except Exception as error:  # noqa: BLE001  # the boundary to frameworks
        return BackendAgreement(runner.name, mode, tuple(tensors), (), repeats, raised=f"{_line(error)}, for gradients")
    tensors += [_gradient(expected, name, slopes.get(name), reason) for name in _trained(expected)]
    divergences: list[DivergencePoint] = []
    if locate and any(each.status == "wrong" and each.kind == "output" for each in tensors):
        divergences.append(first_divergence(setting))
    elif locate and any(each.status == "wrong" for each in tensors):
        divergences.append(first_wrong_gradient(replace(expected.training, other=runner)))
    faults = _each_operator(setting) if operators else []
    return BackendAgreement(runner.name, mode, tuple(tensors), (*divergences, *faults), repeats)


def _line(error: Exception) -> str:
    text = next(iter(str(error).splitlines()), "no message")[:300]
    return f"{type(error).__name__}: {text}"


def _each_operator(setting: Pairing) -> list[DivergencePoint]:
    """Every operator that is wrong alone."""
    nodes = setting.network.nodes
    return [
        DivergencePoint(
            "forward", "operator", at, nodes[at].title, next(each for each in nodes[at].outputs if each), fault
        )
        for at, _, fault in audit(setting, [each.name for each in setting.network.outputs])
    ]


def _trained(expected: _Expected) -> list[str]:
    if expected.no_gradients == _NOT_ASKED:
        return []
    return [each.name for each in expected.setting.network.parameters if each.trainable]


def _limit(expected: _Expected, kind: Kind, value: Host) -> float:
    """By the value's dtype, or the coarser one in which the network computes on the way to it."""
    if not is_float(value.dtype):
        return 0.0
    coarse = max(value.dtype, expected.dtype, key=unit_roundoff)
    return expected.setting.scale * limit_for(kind, coarse)


def _output(expected: _Expected, name: str, actual: Host | None) -> TensorAgreement:
    wanted = expected.outputs[name]
    if name in expected.unsteady:
        detail = "it depends on random numbers, which no two frameworks draw alike"
        return TensorAgreement(name, "output", "not compared", detail=detail)
    if actual is None:
        return TensorAgreement(name, "output", "wrong", detail=f"{name!r} is missing, or no tensor")
    slack = partial(expected.conditioning.of, name, wanted)
    return judge(name, "output", actual, wanted, _limit(expected, "output", wanted), slack=slack)


def _slopes(expected: _Expected, runner: Runner) -> tuple[Mapping[str, Host], str]:
    """Gradients by name, and why there are none."""
    if expected.no_gradients:
        return {}, expected.no_gradients
    training = expected.training
    try:
        return runner.gradients(training.network, training.parameters, training.inputs), ""
    except LevelbenchError as error:
        return {}, f"{error.asked}: {error.found}"


def _gradient(expected: _Expected, name: str, actual: Host | None, reason: str) -> TensorAgreement:
    if reason:
        return TensorAgreement(name, "gradient", "not compared", detail=reason)
    wanted = expected.gradients[name]
    if actual is None:
        return TensorAgreement(name, "gradient", "wrong", detail=f"the gradient of {name!r} is missing")
    slack = partial(expected.sloping.of, name, wanted)
    floor = noise(wanted, expected.gradients.values())
    limit = _limit(expected, "gradient", wanted)
    found = judge(name, "gradient", actual, wanted, limit, slack=slack, floor=floor)
    return replace(found, detail=f"the gradient of {found.detail}") if found.detail else found
