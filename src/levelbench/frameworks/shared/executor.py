"""Networks as pure functions of arrays, for frameworks that compile such functions whole: JAX and TensorFlow.

Loss and gradients are one function, too: ``forward`` calls it, and ``backward`` returns the gradients. The adapters
say how a function is compiled, how gradients are recorded, and how arrays are held.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from types import ModuleType
from typing import Any, ClassVar

from numpy.typing import NDArray

from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks import no_forward
from levelbench.frameworks.shared.operators import expandable
from levelbench.measure.clocks import HOST
from levelbench.networks.codegen import Lowered
from levelbench.networks.executor import Backend, Executor, OperatorTime, collected_times, require_inputs
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode
from levelbench.operators.program import Scope

Reader = Callable[[], list[Array]]
Recorded = tuple[Array, Sequence[Array], Callable[[], Sequence[Array]]]
"""The loss, the new values of buffers, and a function that makes the gradients."""


class FunctionalExecutor(Executor):
    """A network as a function. ``parameters[name] = array`` takes effect at the next call.

    Each set of shapes is compiled at its first call, or by :meth:`compile`. Mode ``eager`` compiles nothing.
    """

    network: Network
    failures: ClassVar[tuple[type[Exception], ...]]
    """What the framework raises where it cannot trace or run a network; ``TypeError`` for a wrong number of inputs."""

    def __init__(
        self, backend: Backend, network: Network, parameters: Mapping[str, NDArray[Any]], *, mode: str, trains: bool
    ) -> None:
        """Raises ``UnsupportedError`` for an unsupported operator."""
        self.network, self.mode = network, mode
        self._backend, self._trains = backend, trains
        arrays = {each.name: backend.array(parameters[each.name]) for each in network.parameters}
        self.parameters, self.buffers = self.held(arrays, {each.name for each in network.parameters if each.trainable})
        inference = network.for_inference
        self._lowered = self.lower(inference, [each.name for each in inference.outputs])
        self._read = self.reader(self._lowered.arrays)
        self._infer = self.compiled(self._lowered.function, inference)
        self._training: _Training | None = None

    @abstractmethod
    def held(
        self, arrays: dict[str, Array], trained: set[str]
    ) -> tuple[MutableMapping[str, Array], MutableMapping[str, Array]]:
        """Parameters and buffers."""

    @abstractmethod
    def reader(self, names: Sequence[str]) -> Reader:
        """A function that returns the current arrays of these names."""

    @abstractmethod
    def bare(self, node: OperatorNode) -> Function | None:
        """The function of a node without the operator around it; ``None`` if it needs that, because it draws."""

    @abstractmethod
    def compiled(self, function: Function, network: Network) -> Function:
        """A function of arrays that returns nested sequences of them, compiled if the mode says so."""

    @abstractmethod
    def recorded(self, objective: Function, places: Sequence[int], arguments: Sequence[Array]) -> Recorded:
        """What ``objective(*arguments)`` returns, a loss and updates, and the gradients of the arguments at places."""

    @abstractmethod
    def zeros(self, array: Array) -> Array:
        """Zeros of the same shape and type."""

    @abstractmethod
    def refused(self, error: Exception) -> UnsupportedError | None:
        """What to raise for one of ``failures``; ``None`` for a mistake, which stays as it is."""

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        try:
            outputs: tuple[Array, ...] = self._infer(*inputs, *self._read())
        except self.failures as error:
            require_inputs(self._lowered.inputs, len(inputs), error)
            if found := self.refused(error):
                raise found from error
            raise
        return outputs

    def forward(self, *inputs: Array) -> Array:
        """The loss; in a compiled mode the same program computes its gradients."""
        training = self._training or self._ready_to_train()
        try:
            return training.forward(inputs)
        except self.failures as error:
            if found := self.refused(error):
                raise found from error
            raise

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        gradients = self._training.backward() if self._training else None
        if gradients is None:
            raise no_forward()
        return gradients

    def operator_times(self, *inputs: Array, repeats: int = 1) -> list[OperatorTime]:
        """The time of each operator, waiting for each; mode ``eager`` only, because compiled ones are fused."""
        if self.mode != "eager":
            asked = f"the time of each operator in mode {self.mode!r}"
            raise UnsupportedError(asked, "they are compiled to one program", "use mode eager")
        require_inputs(self._lowered.inputs, len(inputs))
        arrays = self._read()
        runs = [self._lowered.run_timed(inputs, arrays, HOST, self._backend.finish) for _ in range(repeats + 1)]
        # The first one warms up, or compiles each operator.
        return collected_times(self._lowered.steps, runs[1:])

    def lower(self, network: Network, outputs: Sequence[str]) -> Lowered:
        """Values of the network as a function."""
        return Lowered(network, self._backend, outputs=outputs, call=self._bare)

    def _bare(self, node: OperatorNode) -> Function | None:
        if node.domain == CUSTOM_DOMAIN:
            return None
        try:
            function = self.bare(node)
        except UnsupportedError:
            return None
        return function and expandable(function, node, Scope(self._backend, self.network.opsets))

    def _ready_to_train(self) -> _Training:
        if not self.network.loss:
            raise UsageError(f"training {self.network.name}", "it has no loss", "add one with network.with_loss()")
        if not self._trains:
            raise UsageError(f"training {self.network.name}", "its executor is for inference", "use trains=True")
        self._training = _Training(self)
        return self._training


class _Training:
    """Computes the loss of a network, its gradients, and the new values of its buffers."""

    def __init__(self, executor: FunctionalExecutor) -> None:
        network = executor.network
        self._executor, self._buffers = executor, tuple(network.updates)
        lowered = executor.lower(network, [network.loss, *network.updates.values()])
        self._names = [each.name for each in network.inputs]
        self._taken = [self._names.index(name) for name in lowered.inputs]
        self._in_order = self._taken == list(range(len(self._names)))
        self._read = executor.reader(lowered.arrays)
        count = len(lowered.inputs)
        self._places = [count + at for at, name in enumerate(lowered.arrays) if name in executor.parameters]
        self._reached = [name for name in lowered.arrays if name in executor.parameters]
        self._unreached = [name for name in executor.parameters if name not in self._reached]
        self._function = lowered.function
        self._eager = executor.mode == "eager"
        self._step = executor.compiled(self._whole, network)
        self._found: Sequence[Array] | None = None
        self._pull: Callable[[], Sequence[Array]] | None = None

    def forward(self, inputs: Sequence[Array]) -> Array:
        """The loss; also computes the gradients or, in mode ``eager``, prepares them."""
        if len(inputs) != len(self._names):
            require_inputs(self._names, len(inputs))
        if not self._in_order:
            inputs = [inputs[at] for at in self._taken]
        if self._eager:
            loss, updates, self._pull = self._recorded([*inputs, *self._read()])
        else:
            loss, updates, self._found = self._step(*inputs, *self._read())
        if updates:
            buffers = self._executor.buffers
            for name, value in zip(self._buffers, updates, strict=True):
                buffers[name] = value
        return loss

    def backward(self) -> dict[str, Array] | None:
        """The gradients by name, once; ``None`` without a forward pass before."""
        if self._pull is not None:
            pull, self._pull = self._pull, None
            self._found = pull()
        found, self._found = self._found, None
        if found is None:
            return None
        gradients = dict(zip(self._reached, found, strict=True))
        if self._unreached:
            zeros, parameters = self._executor.zeros, self._executor.parameters
            gradients |= {name: zeros(parameters[name]) for name in self._unreached}
        return gradients

    def _whole(self, *arguments: Array) -> tuple[Array, Sequence[Array], Sequence[Array]]:
        loss, updates, pull = self._recorded(arguments)
        return loss, updates, pull()

    def _recorded(self, arguments: Sequence[Array]) -> Recorded:
        def objective(*arguments: Array) -> tuple[Array, Sequence[Array]]:
            loss, *updates = self._function(*arguments)
            return loss, updates

        if not self._places:
            return *objective(*arguments), lambda: ()
        return self._executor.recorded(objective, self._places, arguments)


def cross_entropy(xp: ModuleType, log_softmax: Function, logits: Array, smoothing: float, labels: Array) -> Array:
    """The mean of -log softmax(logits)[label]: classes on the last axis up to rank 3, on axis 1 for images."""
    axis = logits.ndim - 1 if logits.ndim <= 3 else 1
    scores = log_softmax(logits, axis)
    if labels.ndim == logits.ndim:
        own = xp.sum(labels * scores, axis=axis)
    else:
        own = xp.squeeze(xp.take_along_axis(scores, xp.expand_dims(labels, axis=axis), axis=axis), axis=axis)
    return -xp.mean((1 - smoothing) * own + smoothing * xp.mean(scores, axis=axis))
