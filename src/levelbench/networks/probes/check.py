"""Compares a network on several frameworks with a reference, tensor by tensor.

All use the same parameters and inputs, and the executors that a user would use. Outputs come first, then gradients, and
then the operator at which they diverge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from levelbench.checks.arrays import Host, is_float, unit_roundoff
from levelbench.errors import LevelbenchError, UsageError
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
from levelbench.networks.probes.running import Arrays, Runner, noisy_outputs, with_probe
from levelbench.networks.shapes import other_sizes_or
from levelbench.operators.contract import OperatorBackend

_NOTHING: Mapping[str, str] = MappingProxyType({})
_GIVE = "give inputs that it accepts: --inputs VALUES.npz"


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
    """Compare the network on each of ``backends`` with ``reference``, with the same parameters and inputs.

    ``inputs`` and ``parameters`` are NumPy arrays by name; default: ``make_inputs(batch, seed)`` and
    ``initialise(seed)``. Gradients are those of the network's loss or, if it has none, of its outputs along random
    directions. ``tolerance`` multiplies all limits; ``modes`` are executor modes by framework. ``locate`` searches for
    the operator at which a wrong framework diverges, keeping at most ``budget`` bytes of values of each at a time.
    ``operators`` runs every operator alone on the reference's values with Level 0's tolerance, which finds faults that
    the outputs hide. A framework that raises anything but a refusal is wrong. Raises ``UsageError`` if the reference
    does.
    """
    inputs = network.make_inputs(batch, seed) if inputs is None else inputs
    parameters = network.initialise(seed) if parameters is None else parameters
    setting = Pairing(network, parameters, inputs, Runner(reference_name, reference), Runner("", reference))
    tell(f"{network.name} on {reference_name}")
    comparison = _Comparison(replace(setting, scale=tolerance, budget=budget), gradients)
    found = []
    for name, backend in backends.items():
        tell(f"{network.name} on {name}")
        found.append(comparison.of(Runner(name, backend, modes.get(name, "")), locate, operators))
    given = {name: f"{each.dtype}{list(each.shape)}" for name, each in inputs.items()}
    return Agreement(network.name, reference_name, tuple(found), given)


class _Comparison:
    """The reference's results for a network, and the comparison of each framework with them."""

    def __init__(self, setting: Pairing, gradients: bool) -> None:
        network, reference = setting.network.for_inference, setting.reference
        self._setting = replace(setting, network=network)
        try:
            self._outputs = reference.outputs(network, setting.parameters, setting.inputs)
        except (LevelbenchError, MemoryError):
            raise
        except Exception as error:  # drawn inputs need not be shapes or places that the network accepts
            asked, found = f"network {network.name} on the reference", f"with these inputs it raises {_line(error)}"
            raise UsageError(asked, found, other_sizes_or(_GIVE, network)) from error
        dtypes = [each.dtype.name for each in self._outputs.values() if is_float(each.dtype)]
        self._dtype = dtype = coarsest_dtype(network, dtypes)
        self._unsteady = random_values(network.model.graph)
        self._conditioning = Conditioning(
            partial(reference.outputs, network),
            setting.parameters,
            setting.inputs,
            dtype,
            partial(noisy_outputs, network),
        )
        self._training, self._no_gradients = self._with_loss(setting) if gradients else (setting, "not requested")
        self._trained = [each.name for each in network.parameters if each.trainable] if gradients else []
        run = partial(reference.gradients, self._training.network)
        self._sloping = Conditioning(run, self._training.parameters, self._training.inputs, dtype)
        self._gradients: Mapping[str, Host] = {}
        if not self._no_gradients:
            try:
                self._gradients = run(self._training.parameters, self._training.inputs)
            except LevelbenchError as error:
                self._no_gradients = f"the reference has no gradients: {error.asked}: {error.found}"

    def _with_loss(self, setting: Pairing) -> tuple[Pairing, str]:
        """The network with a loss, and the reason if it has no gradients to compare."""
        if not setting.network.loss:
            steady = {name: each for name, each in self._outputs.items() if name not in self._unsteady}
            probed, directions = with_probe(setting.network, steady)
            setting = replace(setting, network=probed, inputs={**setting.inputs, **directions})
        network = setting.network
        if not network.loss:
            said = "the outputs depend on random numbers" if self._unsteady else "no output is a floating-point tensor"
            return setting, said
        if network.loss in random_values(network.model.graph):
            return setting, "the loss depends on random numbers, which differ between frameworks"
        if not any(each.trainable for each in network.parameters):
            return setting, "the network has no trainable parameters"
        return setting, ""

    def of(self, runner: Runner, locate: bool, operators: bool) -> BackendAgreement:
        """Compare one framework: outputs, then gradients, then where it diverges."""
        setting = replace(self._setting, other=runner)
        mode = runner.mode or next(iter(getattr(runner.backend, "modes", ())), "")
        try:
            outputs, repeats = runner.twice(setting.network, setting.parameters, setting.inputs)
        except LevelbenchError as error:
            return BackendAgreement(runner.name, mode, lacks=f"{error.asked}: {error.found}")
        except Exception as error:  # the boundary to frameworks
            if "ZeroDivisionError" in _line(error):
                # Of whole numbers ONNX does not define it, and each framework does something else.
                asked = f"network {setting.network.name} on {runner.name}"
                found = "with these inputs it divides a whole number by zero"
                raise UsageError(asked, found, other_sizes_or(_GIVE, setting.network)) from error
            return BackendAgreement(runner.name, mode, raised=_line(error))
        tensors = [self._output(name, outputs.get(name)) for name in self._outputs]
        try:
            slopes, reason = self._slopes(runner)
        except Exception as error:  # noqa: BLE001  # the boundary to frameworks
            raised = f"{_line(error)}, for gradients"
            return BackendAgreement(runner.name, mode, tuple(tensors), (), repeats, raised=raised)
        tensors += [self._gradient(name, slopes.get(name), reason) for name in self._trained]
        divergences: list[DivergencePoint] = []
        if locate and any(each.status == "wrong" and each.kind == "output" for each in tensors):
            divergences.append(first_divergence(setting))
        elif locate and any(each.status == "wrong" for each in tensors):
            divergences.append(first_wrong_gradient(replace(self._training, other=runner)))
        faults = _each_operator(setting) if operators else []
        return BackendAgreement(runner.name, mode, tuple(tensors), (*divergences, *faults), repeats)

    def _limit(self, kind: Kind, value: Host) -> float:
        """The limit for the value's dtype, or for the coarser one in which the network computes."""
        if not is_float(value.dtype):
            return 0.0
        return self._setting.scale * limit_for(kind, max(value.dtype, self._dtype, key=unit_roundoff))

    def _output(self, name: str, actual: Host | None) -> TensorAgreement:
        wanted = self._outputs[name]
        if name in self._unsteady:
            detail = "it depends on random numbers, which differ between frameworks"
            return TensorAgreement(name, "output", "not compared", detail=detail)
        if actual is None:
            return TensorAgreement(name, "output", "wrong", detail=f"{name!r} is missing or not a tensor")
        slack = partial(self._conditioning.of, name, wanted)
        return judge(name, "output", actual, wanted, self._limit("output", wanted), slack=slack)

    def _slopes(self, runner: Runner) -> tuple[Mapping[str, Host], str]:
        """Gradients by name, and the reason if there are none."""
        if self._no_gradients:
            return {}, self._no_gradients
        training = self._training
        try:
            return runner.gradients(training.network, training.parameters, training.inputs), ""
        except LevelbenchError as error:
            return {}, f"{error.asked}: {error.found}"

    def _gradient(self, name: str, actual: Host | None, reason: str) -> TensorAgreement:
        if reason:
            return TensorAgreement(name, "gradient", "not compared", detail=reason)
        wanted = self._gradients[name]
        if actual is None:
            return TensorAgreement(name, "gradient", "wrong", detail=f"the gradient of {name!r} is missing")
        slack = partial(self._sloping.of, name, wanted)
        floor, limit = noise(wanted, self._gradients.values()), self._limit("gradient", wanted)
        found = judge(name, "gradient", actual, wanted, limit, slack=slack, floor=floor)
        return replace(found, detail=f"the gradient of {found.detail}") if found.detail else found


def _line(error: Exception) -> str:
    text = next(iter(str(error).splitlines()), "no message")[:300]
    return f"{type(error).__name__}: {text}"


def _each_operator(setting: Pairing) -> list[DivergencePoint]:
    """Every operator that is wrong on its own."""
    nodes = setting.network.nodes
    return [
        DivergencePoint(
            "forward", "operator", at, nodes[at].title, next(each for each in nodes[at].outputs if each), fault
        )
        for at, _, fault in audit(setting, [each.name for each in setting.network.outputs])
    ]
