"""Executes networks on TensorFlow: as a graph of ``tf.function``, compiled by XLA, or operator by operator.

A lowered network is a pure function of arrays, so a compiled mode is ``tf.function`` of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.executor import FunctionalExecutor, Reader, Recorded
from levelbench.frameworks.tensorflow.arrays import TensorArray, traced_for_xla
from levelbench.frameworks.tensorflow.operator import gradients_of, refusal
from levelbench.frameworks.tensorflow.operators import find
from levelbench.networks.executor import CheckedArrays, require_shape
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
        if self.mode == "eager":
            return function
        xla = self.mode == "xla"

        def traced(*tensors: Any) -> Any:
            with traced_for_xla(xla):
                return _unwrapped(function(*[TensorArray(each) for each in tensors]))

        graph = tf.function(traced, autograph=False, jit_compile=xla or None)
        return lambda *arrays: _wrapped(graph(*[each.tensor for each in arrays]))

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


def _unwrapped(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple([_unwrapped(each) for each in found])
    return found.tensor if isinstance(found, TensorArray) else found


def _wrapped(found: Any) -> Any:
    if isinstance(found, tuple | list):
        return tuple([_wrapped(each) for each in found])
    return None if found is None else TensorArray(found)
