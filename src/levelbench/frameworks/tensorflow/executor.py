"""Executes networks on TensorFlow: as a graph of ``tf.function``, compiled by XLA, or operator by operator.

A lowered network is a pure function of arrays, so a compiled mode is ``tf.function`` of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.frameworks import no_forward
from levelbench.frameworks.shared.executor import FunctionalExecutor, Reader, Recorded, cross_entropy
from levelbench.frameworks.tensorflow.arrays import TensorArray, assuming, traced_for_xla, xp
from levelbench.frameworks.tensorflow.operator import gradients_of, refusal
from levelbench.frameworks.tensorflow.operators import find
from levelbench.frameworks.tensorflow.operators.registry import on_tensors
from levelbench.networks.executor import Backend, CheckedArrays, Executor, require_shape
from levelbench.networks.inspect import random_values
from levelbench.networks.native import KerasFunction, NativeModel, leaves_in_order
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode

UNTRACEABLE = (NotImplementedError, tf.errors.OperatorNotAllowedInGraphError)


class TensorArrays(CheckedArrays):
    """Immutable arrays: ``parameters["w"] -= step`` makes a new one, which is cast to the type of the old one."""

    def replaced(self, name: str, held: Array, value: Array) -> Array:
        array = value if isinstance(value, TensorArray) else TensorArray(tf.constant(np.asarray(value)))
        require_shape(name, held.shape, array.shape)
        return array if array.dtype == held.dtype else array.astype(held.dtype)


class TensorFlowExecutor(FunctionalExecutor):
    """A network on TensorFlow. Mode ``xla`` compiles the graph by XLA."""

    failures = (NotImplementedError, LookupError, TypeError, tf.errors.OpError, *UNTRACEABLE)

    def held(self, arrays: dict[str, Array], trained: set[str]) -> tuple[TensorArrays, TensorArrays]:
        parameters = TensorArrays({name: each for name, each in arrays.items() if name in trained})
        return parameters, TensorArrays({name: each for name, each in arrays.items() if name not in trained})

    def reader(self, names: Sequence[str]) -> Reader:
        places = [(self.parameters if name in self.parameters else self.buffers, name) for name in names]
        return lambda: [held[name] for held, name in places]

    def bare(self, node: OperatorNode) -> Function | None:
        entry = find(node)
        return None if entry.random else entry.make(node)

    def compiled(self, function: Function, network: Network) -> Function:
        draws = bool(random_values(network.model.graph))
        return _compiled(function, self.mode, self._backend if draws else None)

    def recorded(self, objective: Function, places: Sequence[int], arguments: Sequence[Array]) -> Recorded:
        trained = [arguments[at].tensor for at in places]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trained)
            loss, updates = objective(*arguments)
        return loss, updates, lambda: gradients_of(tape, loss.tensor, trained)

    def zeros(self, array: Array) -> Array:
        return TensorArray(tf.zeros_like(array.tensor))

    def compile(self, *inputs: Array) -> None:
        """Make the graph of :meth:`infer` for inputs of these shapes and types; in mode ``eager`` there is none."""
        if self.mode != "eager":
            self.infer(*inputs)

    def refused(self, error: Exception) -> UnsupportedError | None:
        by_xla = self.mode == "xla" and isinstance(error, tf.errors.InvalidArgumentError)
        if isinstance(error, UNTRACEABLE) or (by_xla and "compil" in str(error).lower()):
            found = str(error).splitlines()[0][:160]
            return UnsupportedError(f"{self.network.name} on tensorflow in mode {self.mode!r}", found, "use mode eager")
        return refusal(self.network.name, error)


def _compiled(function: Function, mode: str, drawing: Backend | None = None) -> Function:
    """A function of arrays as one graph for each set of shapes; ``drawing`` is the backend that it draws from."""
    if mode == "eager":
        return function
    xla = mode == "xla"

    def traced(*tensors: Any) -> Any:
        with traced_for_xla(xla):
            return _unwrapped(function(*[TensorArray(each) for each in tensors]))

    def assumed(*tensors: Any) -> Any:
        with assuming() as taken:
            found = traced(*tensors)
            return found, taken.holds()

    graph = _by_shapes(tf.function(traced, autograph=False, jit_compile=xla or None))
    if xla or tf.config.get_visible_devices("GPU"):
        return lambda *arrays: _wrapped(graph(*[each.tensor for each in arrays]))
    # A branch in a graph costs 1 % of a small network; the graph with branches is made where the quick one is wrong.
    quick = _by_shapes(tf.function(assumed, autograph=False))

    def call(*arrays: Array) -> Any:
        tensors = [each.tensor for each in arrays]
        before = None if drawing is None else drawing.draws()
        found, holds = quick(*tensors)
        if holds is None or holds:
            return _wrapped(found)
        if drawing is not None and before is not None:
            drawing.restore_draws(before)  # a call draws once
        return _wrapped(graph(*tensors))

    return call


def _by_shapes(function: Any) -> Function:
    """A ``tf.function`` of tensors whose graph is found by shapes and types alone.

    What it does itself to find one takes longer than a small network.
    """
    graphs: dict[Any, Any] = {}

    def call(*tensors: Any) -> Any:
        kinds = tuple([(tuple(each.shape), each.dtype) for each in tensors])
        graph = graphs.get(kinds)
        if graph is None:
            graph = graphs[kinds] = function.get_concrete_function(*tensors)
        return graph(*tensors)

    return call


class TensorFlowModel(Executor):
    """A Keras model as a function of its variables' values: the trainable ones are parameters, the others buffers."""

    network = None

    def __init__(self, model: NativeModel, *, mode: str) -> None:
        """``DefinitionError`` if it is no Keras model."""
        if not isinstance(model.model, KerasFunction):
            found = f"it is a {type(model.model).__name__}"
            raise DefinitionError(f"the model {model.name!r} on tensorflow", found, "return a Keras model")
        self.mode, self._model = mode, model
        arrays = [{name: TensorArray(tf.identity(each)) for name, each in some.items()} for some in _kept(model)]
        self.parameters = TensorArrays(arrays[0])
        self.buffers = TensorArrays({f"state.{name}": each for name, each in arrays[1].items()})
        self._counts = len(arrays[0]), len(arrays[0]) + len(arrays[1])
        self._infer = _compiled(self._outputs, mode)
        self._step = _compiled(self._loss_and_gradients, mode)
        self._gradients: Sequence[Array] | None = None

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        """The tensors that the model returns, in the order of its tuples and dictionaries."""
        found: tuple[Array, ...] = self._call(self._infer, inputs)
        return found

    def forward(self, *inputs: Array) -> Array:
        """The loss. Takes the model's inputs, then the loss's further arguments, such as labels."""
        loss, fresh, self._gradients = self._call(self._step, inputs)
        for name, each in zip(self.buffers, fresh, strict=True):
            self.buffers[name] = each
        return loss

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the last forward pass; zero for a parameter that the loss does not depend on."""
        gradients, self._gradients = self._gradients, None
        if gradients is None:
            raise no_forward()
        return dict(zip(self.parameters, gradients, strict=True))

    def compile(self, *inputs: Array) -> None:
        """Make the graph of :meth:`infer` for inputs of these shapes and types; in mode ``eager`` there is none."""
        if self.mode != "eager":
            self.infer(*inputs)

    def _call(self, function: Function, inputs: Sequence[Array]) -> Any:
        try:
            return function(*self.parameters.values(), *self.buffers.values(), *inputs)
        except tf.errors.OpError as error:
            if found := refusal(f"the model {self._model.name!r} in mode {self.mode!r}", error):
                raise found from error
            raise

    def _answer(self, tensors: Sequence[Any], inputs: Sequence[Any], *, training: bool) -> tuple[Any, list[Any]]:
        first, second = self._counts
        parts = zip(_kept(self._model), (tensors[:first], tensors[first:second]), strict=True)
        values = [dict(zip(names, part, strict=True)) for names, part in parts]
        found, fresh = self._model.model(*values, *inputs, training=training)
        return found, list(fresh.values())

    def _outputs(self, *arrays: Array) -> tuple[Array, ...]:
        tensors = [each.tensor for each in arrays]
        found, _ = self._answer(tensors, tensors[self._counts[1] :], training=False)
        return tuple(TensorArray(each) for each in leaves_in_order(found, tf.nest.flatten))

    def _loss_and_gradients(self, *arrays: Array) -> tuple[Array, Sequence[Array], Sequence[Array]]:
        tensors, (first, second) = [each.tensor for each in arrays], self._counts
        # A model that draws its own inputs does not declare their number: all but the labels.
        given = second + (len(self._model.inputs) or len(tensors) - second - 1)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tensors[:first])
            found, fresh = self._answer(tensors, tensors[second:given], training=True)
            loss = self._loss(found, tensors[given:])
        return TensorArray(loss), [TensorArray(each) for each in fresh], gradients_of(tape, loss, tensors[:first])

    def _loss(self, found: Any, rest: Sequence[Any]) -> Any:
        if callable(self._model.loss):
            loss = self._model.loss(found, *rest)
        else:
            logits, *labels = [TensorArray(each) for each in (leaves_in_order(found, tf.nest.flatten)[0], *rest)]
            loss = cross_entropy(xp, on_tensors(tf.nn.log_softmax), logits, self._model.smoothing, *labels).tensor
        if not tf.is_tensor(loss) or loss.shape.rank != 0:
            raise DefinitionError(f"the loss of {self._model.name!r}", "it is not a scalar tensor", "return the mean")
        return loss


def _kept(model: NativeModel) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return model.parameters or {}, model.state or {}


def _unwrapped(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple([_unwrapped(each) for each in found])
    return found.tensor if isinstance(found, TensorArray) else found


def _wrapped(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple([_wrapped(each) for each in found])
    return None if found is None else TensorArray(found)
