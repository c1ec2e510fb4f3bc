"""Executes networks on TensorFlow: as a graph of ``tf.function``, compiled by XLA, or operator by operator.

A lowered network is a pure function of arrays, so a compiled mode is ``tf.function`` of it. Loss and gradients are one
graph, too: :meth:`TensorFlowExecutor.forward` runs it, and :meth:`TensorFlowExecutor.backward` returns the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks import no_forward
from levelbench.frameworks.shared.operators import expandable
from levelbench.frameworks.tensorflow.arrays import TensorArray
from levelbench.frameworks.tensorflow.operator import gradients_of, refusals
from levelbench.frameworks.tensorflow.operators import find
from levelbench.measure.clocks import HOST
from levelbench.networks.codegen import Lowered
from levelbench.networks.executor import (
    CheckedArrays,
    Executor,
    OperatorTime,
    collected_times,
    require_inputs,
    require_shape,
)
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode
from levelbench.operators.program import Scope

if TYPE_CHECKING:
    from levelbench.frameworks.tensorflow.backend import TensorFlowBackend


class TensorArrays(CheckedArrays):
    """Immutable arrays: ``parameters["w"] -= step`` makes a new one, which is cast to the type of the old one."""

    def replaced(self, name: str, held: Array, value: Array) -> Array:
        array = value if isinstance(value, TensorArray) else TensorArray(tf.constant(np.asarray(value)))
        require_shape(name, held.shape, array.shape)
        return array if array.dtype == held.dtype else array.astype(held.dtype)


class TensorFlowExecutor(Executor):
    """A network on TensorFlow. ``parameters[name] = array`` takes effect at the next call.

    Each set of shapes is traced at its first call, or by :meth:`compile`. Mode ``xla`` compiles the graph by XLA.
    """

    network: Network

    def __init__(
        self,
        backend: TensorFlowBackend,
        network: Network,
        parameters: Mapping[str, NDArray[Any]],
        *,
        mode: str,
        trains: bool,
    ) -> None:
        """Raises ``UnsupportedError`` for an unsupported operator."""
        self.network, self.mode = network, mode
        self._backend, self._trains = backend, trains
        arrays = {each.name: backend.array(parameters[each.name]) for each in network.parameters}
        trained = {each.name for each in network.parameters if each.trainable}
        self.parameters = TensorArrays({name: each for name, each in arrays.items() if name in trained})
        self.buffers = TensorArrays({name: each for name, each in arrays.items() if name not in trained})
        inference = network.for_inference
        self._lowered = self.lower(inference, [each.name for each in inference.outputs])
        self._infer = self.compiled(self._lowered.function)
        self._training: _Training | None = None

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        if len(inputs) != len(self._lowered.inputs):
            require_inputs(self._lowered.inputs, len(inputs))
        with self.traced():
            found: tuple[Array, ...] = self._infer(*inputs, *self.read(self._lowered.arrays))
        return found

    def forward(self, *inputs: Array) -> Array:
        """The loss; in a compiled mode the same graph computes its gradients."""
        training = self._training or self._ready_to_train()
        with self.traced():
            return training.forward(inputs)

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        gradients = self._training.backward() if self._training else None
        if gradients is None:
            raise no_forward()
        return gradients

    def compile(self, *inputs: Array) -> None:
        """Make the graph of :meth:`infer` for inputs of these shapes and types; in mode ``eager`` there is none."""
        if self.mode != "eager":
            self.infer(*inputs)

    def operator_times(self, *inputs: Array, repeats: int = 1) -> list[OperatorTime]:
        """The time of each operator; mode ``eager`` only, because a graph is executed as a whole."""
        if self.mode != "eager":
            asked = f"the time of each operator in mode {self.mode!r}"
            raise UnsupportedError(asked, "the graph is executed as a whole", "use mode eager")
        require_inputs(self._lowered.inputs, len(inputs))
        arrays = self.read(self._lowered.arrays)
        runs = [self._lowered.run_timed(inputs, arrays, HOST, self._backend.finish) for _ in range(repeats + 1)]
        # The first one warms up.
        return collected_times(self._lowered.steps, runs[1:])

    def lower(self, network: Network, outputs: Sequence[str]) -> Lowered:
        """Values of the network as a function; bare operators leave the naming of outputs to the function."""
        return Lowered(network, self._backend, outputs=outputs, call=self._bare)

    def read(self, names: Sequence[str]) -> list[Array]:
        """The current arrays of these names."""
        held, buffers = self.parameters, self.buffers
        return [held[name] if name in held else buffers[name] for name in names]

    def compiled(self, function: Function) -> Function:
        """A function of arrays that returns nested sequences of them, as a graph if the mode says so."""
        if self.mode == "eager":
            return function
        graph = tf.function(
            lambda *tensors: _unwrapped(function(*[TensorArray(each) for each in tensors])),
            autograph=False,
            jit_compile=True if self.mode == "xla" else None,
        )
        return lambda *arrays: _wrapped(graph(*[each.tensor for each in arrays]))

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Inside, what a trace or XLA cannot do becomes ``UnsupportedError``."""
        try:
            with refusals(self.network.name):
                yield
        except (NotImplementedError, tf.errors.OperatorNotAllowedInGraphError) as error:
            raise self._untraceable(error) from error
        except tf.errors.InvalidArgumentError as error:
            if self.mode != "xla" or "compil" not in str(error).lower():
                raise
            raise self._untraceable(error) from error

    def _untraceable(self, error: Exception) -> UnsupportedError:
        found = str(error).splitlines()[0][:160]
        return UnsupportedError(f"{self.network.name} on tensorflow in mode {self.mode!r}", found, "use mode eager")

    def _ready_to_train(self) -> _Training:
        if not self.network.loss:
            raise UsageError(f"training {self.network.name}", "it has no loss", "add one with network.with_loss()")
        if not self._trains:
            raise UsageError(f"training {self.network.name}", "its executor is for inference", "use trains=True")
        self._training = _Training(self)
        return self._training

    def _bare(self, node: OperatorNode) -> Function | None:
        """A node's function without the operator around it."""
        if node.domain == CUSTOM_DOMAIN:
            return None
        try:
            entry = find(node)
        except UnsupportedError:
            return None
        return None if entry.random else expandable(entry.make(node), node, Scope(self._backend, self.network.opsets))


def _unwrapped(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple([_unwrapped(each) for each in found])
    return found.tensor if isinstance(found, TensorArray) else found


def _wrapped(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple([_wrapped(each) for each in found])
    return None if found is None else TensorArray(found)


class _Training:
    """Computes the loss of a network, its gradients, and the new values of its buffers."""

    def __init__(self, executor: TensorFlowExecutor) -> None:
        network = executor.network
        self._executor, self._buffers = executor, tuple(network.updates)
        self._lowered = executor.lower(network, [network.loss, *network.updates.values()])
        self._names = [each.name for each in network.inputs]
        self._taken = [self._names.index(name) for name in self._lowered.inputs]
        count = len(self._lowered.inputs)
        self._reached = [name for name in self._lowered.arrays if name in executor.parameters]
        self._places = [count + at for at, name in enumerate(self._lowered.arrays) if name in executor.parameters]
        self._eager = executor.mode == "eager"
        self._step = executor.compiled(self._whole)
        self._pull: Callable[[], Sequence[Array]] | None = None

    def forward(self, inputs: Sequence[Array]) -> Array:
        """The loss; also computes the gradients or, in mode ``eager``, keeps the tape."""
        if len(inputs) != len(self._names):
            require_inputs(self._names, len(inputs))
        arguments = [*(inputs[at] for at in self._taken), *self._executor.read(self._lowered.arrays)]
        if self._eager:
            loss, updates, self._pull = self._recorded(arguments)
        else:
            loss, updates, found = self._step(*arguments)
            self._pull = lambda: found
        for name, value in zip(self._buffers, updates, strict=True):
            self._executor.buffers[name] = value
        return loss

    def backward(self) -> dict[str, Array] | None:
        """The gradients by name, once; ``None`` without a forward pass before."""
        pull, self._pull = self._pull, None
        if pull is None:
            return None
        gradients = dict(zip(self._reached, pull(), strict=True))
        for name, array in self._executor.parameters.items():
            if name not in gradients:
                gradients[name] = TensorArray(tf.zeros_like(array.tensor))
        return gradients

    def _whole(self, *arguments: Array) -> tuple[Array, Sequence[Array], Sequence[Array]]:
        loss, updates, pull = self._recorded(arguments)
        return loss, updates, pull()

    def _recorded(self, arguments: Sequence[Array]) -> tuple[Array, Sequence[Array], Callable[[], Sequence[Array]]]:
        """The loss and the updates, and a function that makes the gradients."""
        trained = [arguments[at].tensor for at in self._places]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trained)
            loss, *updates = self._lowered.function(*arguments)
        return loss, updates, lambda: gradients_of(tape, loss.tensor, trained)
