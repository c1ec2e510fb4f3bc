"""NumPy as a backend: the reference executor, with gradients from the operators' pullbacks, and NumPy's own arrays.

Nodes between the parameters and the loss record their pullback as they run; all other nodes are only computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.frameworks import Float32Backend, no_forward
from levelbench.frameworks.numpy.operator import NumpyOperator
from levelbench.frameworks.numpy.operators.kernel import QuietPass
from levelbench.frameworks.numpy.operators.layers import generator_state, restore_generator, seed_generator
from levelbench.measure.clocks import HOST
from levelbench.networks.codegen import Lowered, LoweredStep
from levelbench.networks.executor import (
    Executor,
    LiveArrays,
    OperatorTime,
    collected_times,
    require_inputs,
)
from levelbench.networks.network import Network
from levelbench.operators.contract import Operator, OperatorBackend, Pullback
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode
from levelbench.operators.program import takes_values

Host = NDArray[Any]


class NumpyExecutor(Executor):
    """The reference executor. It computes in the dtype of the parameters: float64 ones make a float64 oracle."""

    mode = "eager"
    parameters: LiveArrays
    buffers: LiveArrays

    def __init__(self, network: Network, parameters: Mapping[str, Host], backend: OperatorBackend) -> None:
        self.network = network
        trainable = {each.name for each in network.parameters if each.trainable}
        copies = {name: np.array(array) for name, array in parameters.items()}
        self.parameters = LiveArrays({name: array for name, array in copies.items() if name in trainable})
        self.buffers = LiveArrays({name: array for name, array in copies.items() if name not in trainable})
        self._lowered = Lowered(network.for_inference, backend)
        self._arrays = self._lowered.arrays
        self._function = self._lowered.function
        self._backend = backend
        self._made: _Differentiated | None = None

    def infer(self, *inputs: Host) -> tuple[Host, ...]:
        with QuietPass():
            try:
                return self._function(*inputs, *self._live(self._arrays))
            except (TypeError, IndexError) as error:
                require_inputs(self._lowered.inputs, len(inputs), error)
                raise

    def forward(self, *inputs: Host) -> Any:
        """The loss; each node between a parameter and the loss records its pullback on a tape."""
        with QuietPass():
            return self._training().forward(inputs)

    def backward(self) -> Mapping[str, Host]:
        """The gradients of the last forward pass; a value read by several nodes gets the sum of their gradients."""
        with QuietPass():
            return self._training().backward()

    def operator_times(self, *inputs: Host, repeats: int = 1) -> list[OperatorTime]:
        require_inputs(self._lowered.inputs, len(inputs))
        arrays = self._live(self._arrays)
        runs = [self._lowered.run_timed(inputs, arrays, HOST, lambda _: None) for _ in range(repeats)]
        return collected_times(self._lowered.steps, runs)

    def step_times(self, *inputs: Host, repeats: int = 1) -> tuple[list[OperatorTime], list[OperatorTime]]:
        with QuietPass():
            return self._training().step_times(inputs, repeats)

    def _live(self, names: Sequence[str]) -> list[Host]:
        parameters, buffers = self.parameters.arrays, self.buffers.arrays
        return [parameters[name] if name in parameters else buffers[name] for name in names]

    def _training(self) -> _Differentiated:
        # Created on first use: a network used for inference only need not have gradients.
        if self._made is None:
            self._made = _Differentiated(self, self._backend, self._live)
        return self._made


class _Differentiated:
    """Computes the loss of a network and its gradients."""

    def __init__(
        self, executor: NumpyExecutor, backend: OperatorBackend, live: Callable[[Sequence[str]], list[Host]]
    ) -> None:
        network = executor.network
        assert network is not None
        if not network.loss:
            raise DefinitionError(f"training {network.name}", "it has no loss", "add one with network.with_loss()")
        self._executor, self._live = executor, live
        self._updates = tuple(network.updates.items())
        names = (network.loss, *(value for _, value in self._updates))
        self._lowered = Lowered(network, backend, outputs=names)
        self._names, self._count = [each.name for each in network.inputs], len(network.inputs)
        self._taken = [at for at, each in enumerate(network.inputs) if each.name in self._lowered.inputs]
        self._tape: list[Pullback] = []
        self._computed = False
        slots: dict[str, int] = {}
        wanted = _wanted(self._lowered, set(executor.parameters))
        self._plan: list[tuple[list[int], list[int]]] = []
        self._taped: list[LoweredStep] = []
        """The steps on the tape, in its order."""
        steps: list[LoweredStep] = []
        for step in self._lowered.steps:
            asked = [name in wanted for name in step.inputs]
            captured = any(name in wanted for name in step.captures or ())
            if step.on_host or not (captured or any(asked)):
                steps.append(step)
                continue
            steps.append(self._recording(step, asked))
            self._taped.append(step)
            outputs = [slots.setdefault(name, len(slots)) if name else -1 for name in step.outputs]
            inputs = [
                slots.setdefault(name, len(slots)) if ask else -1 for name, ask in zip(step.inputs, asked, strict=True)
            ]
            self._plan.append((outputs, inputs))
        self._slots = len(slots)
        self._loss = slots.get(network.loss, -1)
        self._parameters = [(name, slots.get(name, -1)) for name in executor.parameters]
        self._steps = steps
        self._function = self._lowered.composed(steps)

    def _recording(self, step: LoweredStep, asked: Sequence[bool]) -> LoweredStep:
        """The step, recording its pullback on the tape."""
        operator = _operator(step, self._lowered.backend)
        vjp: Any = operator.vjp
        keywords: dict[str, Any] = {"wanted": tuple(asked)} if isinstance(operator, NumpyOperator) else {}
        tape = self._tape

        def call(*inputs: Any) -> tuple[Any, ...]:
            outputs, pullback = vjp(*inputs, **keywords)
            tape.append(pullback)
            found: tuple[Any, ...] = outputs
            return found

        return replace(step, call=call, bare=False)

    def forward(self, inputs: Sequence[Host]) -> Any:
        """The loss; updates the buffers."""
        self._tape.clear()
        self._computed = False
        if len(inputs) != self._count:
            require_inputs(self._names, len(inputs))
        given = [inputs[at] for at in self._taken]
        loss, *news = self._function(*given, *self._live(self._lowered.arrays))
        for (buffer, _), value in zip(self._updates, news, strict=True):
            # The new value is a separate array, or one that nothing writes to.
            self._executor.buffers.arrays[buffer] = value
        if np.shape(loss):
            found = f"its loss has the shape {np.shape(loss)}"
            raise DefinitionError(f"training {self._lowered.network.name}", found, "make it a scalar")
        self._computed = True
        return loss

    def backward(self) -> Mapping[str, Host]:
        """The gradients, none sharing memory, so that an optimizer may overwrite them."""
        if not self._computed:
            raise no_forward()
        self._computed = False
        gradients: list[Any] = [None] * self._slots
        if self._loss >= 0:
            gradients[self._loss] = np.float32(1.0)
        for pullback, (outputs, inputs) in zip(reversed(self._tape), reversed(self._plan), strict=True):
            given = [gradients[slot] if slot >= 0 else None for slot in outputs]
            for slot in outputs:
                if slot >= 0:
                    gradients[slot] = None
            if all(each is None for each in given):
                continue
            for slot, part in zip(inputs, pullback(*given), strict=False):
                if slot >= 0 and part is not None:
                    held = gradients[slot]
                    gradients[slot] = part if held is None else held + part
        self._tape.clear()
        return self._owned(gradients)

    def step_times(self, inputs: Sequence[Host], repeats: int) -> tuple[list[OperatorTime], list[OperatorTime]]:
        """The times of forward and backward of each operator; sums of gradients belong to no operator."""
        require_inputs(self._names, len(inputs))
        given, arrays = [inputs[at] for at in self._taken], self._live(self._lowered.arrays)
        forward, backward = [], []
        for _ in range(repeats):
            self._tape.clear()
            forward.append(self._lowered.run_timed(given, arrays, HOST, lambda _: None, self._steps))
            spent = [0] * len(self._tape)
            self._tape[:] = [_timed(each, spent, at) for at, each in enumerate(self._tape)]
            self._computed = True
            self.backward()
            backward.append([(step.index, ns) for step, ns in zip(self._taped, spent, strict=True)])
        return collected_times(self._steps, forward), collected_times(self._taped, backward)

    def _owned(self, gradients: Sequence[Any]) -> dict[str, Host]:
        found: dict[str, Host] = {}
        seen: set[int] = set()
        for name, slot in self._parameters:
            gradient = gradients[slot] if slot >= 0 else None
            if gradient is None:
                gradient = np.zeros_like(self._executor.parameters[name])
            owner = id(gradient if gradient.base is None else gradient.base)
            if owner in seen or not gradient.flags.writeable:
                gradient = gradient.copy()
            seen.add(owner)
            found[name] = gradient
        return found


def _timed(pullback: Pullback, spent: list[int], at: int) -> Pullback:
    """The pullback, noting in ``spent[at]`` how many nanoseconds it took."""

    def call(*gradients: Any) -> Any:
        before = HOST.now_ns()
        found = pullback(*gradients)
        spent[at] = HOST.now_ns() - before
        return found

    return call


def _wanted(lowered: Lowered, parameters: set[str]) -> set[str]:
    """The values that need a gradient: those that depend on a trainable parameter."""
    found = set(parameters)
    for step in lowered.steps:
        if not step.on_host and any(name in found for name in (*step.inputs, *(step.captures or ()))):
            found.update(name for name in step.outputs if name)
    return found


def _operator(step: LoweredStep, backend: OperatorBackend) -> Operator:
    if step.captures is not None or takes_values(step.node):
        reason = "gradients are implemented for operators on tensors only"
        raise UnsupportedError(f"the gradient of {step.node.title} on numpy", reason, "use torch")
    return backend.operator(step.node)


def make_operator(node: OperatorNode) -> Operator:
    """The operator of a node, including custom ones."""
    if node.domain == CUSTOM_DOMAIN:
        from levelbench.frameworks.numpy.custom import custom_operator

        return custom_operator(node)
    return NumpyOperator(node)


class NumpyBackend(Float32Backend):
    """NumPy on the CPU: every call is synchronous."""

    any_opset = True

    def executor_of(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], mode: str, trains: bool
    ) -> Executor:
        return NumpyExecutor(network, parameters, self)

    def operator(self, node: OperatorNode) -> Operator:
        """Our operator, ONNX's reference where we have none, or a custom one."""
        return make_operator(node)

    def array(self, host: NDArray[Any]) -> NDArray[Any]:
        """The array itself, of any dtype, including ``ml_dtypes`` and strings."""
        return host

    def host(self, array: NDArray[Any]) -> NDArray[Any]:
        return np.array(array)

    def memory(self, array: NDArray[Any]) -> NDArray[Any] | None:
        return array if isinstance(array, np.ndarray) else None

    def take(self, array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        return array.take(indices, axis=0)

    def packer(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        # Only several ranks need it.
        from levelbench.distributed.packing import NumpyPacker

        return NumpyPacker(arrays)

    def mean(self, scalars: Sequence[Any]) -> float:
        """The mean, accumulated in float64."""
        return float(np.mean(np.array(scalars, np.float64)))

    def seed(self, seed: int) -> None:
        """Seed the generator of random operators; nodes with a seed attribute keep theirs."""
        seed_generator(seed)

    def draws(self) -> NDArray[Any]:
        return generator_state()

    def restore_draws(self, state: NDArray[Any]) -> None:
        restore_generator(state)

    def describe(self) -> dict[str, Any]:
        """The version. The environment records the BLAS and its threads."""
        return {"name": "numpy", "version": np.__version__, "device": "cpu", "deterministic": True}
