"""An ONNX operator on TensorFlow: a node's function of arrays, executed eagerly, with the gradients of a tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.functional import dropout_gradient
from levelbench.frameworks.tensorflow.arrays import TensorArray, xp
from levelbench.frameworks.tensorflow.operators.registry import TensorFlowEntry
from levelbench.operators.contract import Array, Function, Operator, Pullback, as_tuple
from levelbench.operators.node import OperatorNode

Arrays = tuple[Array | None, ...]
_REFUSED = (
    *("is not in the list of allowed values", "Could not find device for node", "No OpKernel was registered"),
    "Input is not invertible",
)


@contextmanager
def refusals(title: str) -> Iterator[None]:
    """Inside, TensorFlow's refusals of a type or shape become ``UnsupportedError``."""
    try:
        yield
    except (tf.errors.OpError, LookupError, TypeError) as error:
        if found := refusal(title, error):
            raise found from error
        raise


def refusal(title: str, error: Exception) -> UnsupportedError | None:
    """What to raise where TensorFlow refuses a type or shape; ``None`` for another error."""
    named = isinstance(error, tf.errors.NotFoundError | tf.errors.UnimplementedError | LookupError)
    if not named and not any(each in str(error) for each in _REFUSED):
        return None
    found = str(error).split("}} ")[-1].splitlines()[0][:160]
    return UnsupportedError(f"{title} on tensorflow", found, "use another framework")


def is_differentiable(array: object) -> bool:
    """Whether a value is an array of a type that TensorFlow differentiates."""
    return isinstance(array, TensorArray) and (array.tensor.dtype.is_floating or array.tensor.dtype.is_complex)


def seed_of(node: OperatorNode, draw: Callable[[], Any]) -> Any:
    """The seed of a node's draw; a node with a seed draws the same each time, as in ONNX's reference."""
    given = node.get("seed")
    return draw() if given is None else tf.constant([int(np.float32(given).view(np.int32)), 0], tf.int64)


class TensorFlowOperator(Operator):
    """An ONNX node; every call runs its kernels one after the other."""

    def __init__(self, node: OperatorNode, entry: TensorFlowEntry, draw: Callable[[], Any]) -> None:
        self.node = node
        self._function: Function = entry.make(node)
        self._draw, self._random = draw, entry.random
        self._wanted = [bool(name) for name in node.outputs]

    def forward(self, *inputs: Array) -> Arrays:
        with refusals(self.node.title):
            return self._named(self._call(inputs))

    def vjp(self, *inputs: Array) -> tuple[Arrays, Pullback]:
        """The outputs and the pullback, which keeps the tape."""
        # Copies, because an array that is given twice has a gradient for each place.
        given = [TensorArray(tf.identity(each.tensor)) if is_differentiable(each) else each for each in inputs]
        at = [place for place, each in enumerate(given) if is_differentiable(each)]
        sources = [given[place].tensor for place in at]
        with refusals(self.node.title), tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs = self._named(self._call(given))
        targets = [
            (place, each.tensor) for place, each in enumerate(outputs) if each is not None and is_differentiable(each)
        ]

        def pull(*gradients: Array | None) -> Arrays:
            slopes = [(gradients[place], tensor) for place, tensor in targets]
            given_slopes = [tf.zeros_like(tensor) if each is None else each.tensor for each, tensor in slopes]
            found: dict[int, Any] = {}
            if targets and at:
                with refusals(f"the gradient of {self.node.title}"):
                    results = gradients_of(tape, [tensor for _, tensor in targets], sources, given_slopes)
                found = dict(zip(at, results, strict=True))
            return tuple(found.get(place) for place in range(len(inputs)))

        return outputs, pull

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> Arrays:
        """The gradients of inputs; recomputes the forward, but not a draw."""
        if not self._random:
            return self.vjp(*inputs)[1](*gradients)
        if self.node.op_type != "Dropout":
            raise UnsupportedError(f"the gradient of {self.node.title}", "its draw is not kept", "use vjp instead")
        return dropout_gradient(xp, self.node, gradients, inputs, outputs)

    def _call(self, inputs: Sequence[Array | None]) -> Arrays:
        if not self._random:
            return as_tuple(self._function(*inputs))
        # Dropout draws only in training mode (its third input); a draw in inference would change all later draws.
        idle = self.node.op_type == "Dropout" and not any(self.node.inputs[2:])
        seed = tf.zeros([2], tf.int64) if idle else seed_of(self.node, self._draw)
        return as_tuple(self._function(seed, *inputs))

    def _named(self, found: Arrays) -> Arrays:
        return tuple([each if name else None for each, name in zip(found, self._wanted, strict=False)])


def gradients_of(
    tape: Any, targets: list[Any], sources: list[Any], given: list[Any] | None = None
) -> list[TensorArray]:
    """The gradients of sources as arrays: zeros where the targets do not depend on one; dense where few rows are."""
    found = tape.gradient(targets, sources, given, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [TensorArray(tf.convert_to_tensor(each)) for each in found]
