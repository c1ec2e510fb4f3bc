"""An ONNX node on ONNX Runtime: a model of this one node, made ready for each combination of types it is called with.

No shape is written into the model, so one session serves all of them. Structural inputs become constants of the model,
as they are in networks, until so many have been seen that they must be thought to vary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime import InferenceSession, OrtValue

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime.sessions import Session, SessionDevice, WrongInputError, from_numpy, lowered
from levelbench.networks.inspect import RANDOM
from levelbench.operators.contract import Array, Operator
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION, OperatorNode, structural

__all__ = ["RANDOM_OPERATORS", "OnnxRuntimeOperator", "Seed"]

_MOST_CONSTANTS = 16
RANDOM_OPERATORS = RANDOM | {"Dropout"}
"""Those that draw random numbers: ONNX Runtime seeds them when a session is made."""


class Seed:
    """How often the backend was seeded: a session with random numbers is made anew when that has grown."""

    def __init__(self) -> None:
        self.count = 0


class _Ready(NamedTuple):
    session: Session
    fed: tuple[int, ...]
    """Positions of the inputs that are given at each call."""


class OnnxRuntimeOperator(Operator):
    """Values in and out stay ONNX Runtime's, on its device."""

    def __init__(self, node: OperatorNode, device: SessionDevice, seed: Seed) -> None:
        self.node = node
        self._device, self._seed, self._seeded = device, seed, seed.count
        self._random = node.op_type in RANDOM_OPERATORS
        self._ready: dict[tuple[Any, ...], _Ready] = {}
        self._last: Session | None = None
        self._with_constants = 0
        self._structural = frozenset(structural(node))
        self._skips = "" in node.outputs

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs; ``UnsupportedError`` where ONNX Runtime has no kernel for these types."""
        last = self._last
        if last is not None and len(inputs) == len(last.inputs):
            try:
                return last.run(inputs)
            except (AttributeError, WrongInputError):
                # No value, or one of another type than last time: ONNX Runtime looks at types anyway, so we need not.
                pass
        return self._forward(inputs)

    def session(self, *inputs: Array) -> InferenceSession:
        """ONNX Runtime's own session that serves inputs of such types, for whoever wants to call it by hand."""
        key = tuple([_signature(each) for each in inputs])
        return (self._ready.get(key) or self._prepare(key, inputs)).session.session

    def _forward(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        """As :meth:`forward`, with the session found by the inputs' types."""
        if self._random and self._seeded != self._seed.count:
            self._ready.clear()
            self._seeded = self._seed.count
        key = tuple([_signature(each) for each in inputs])
        ready = self._ready.get(key) or self._prepare(key, inputs)
        values = inputs if len(ready.fed) == len(inputs) else [inputs[at] for at in ready.fed]
        if self._structural:
            values = [from_numpy(each, self._device) if isinstance(each, np.ndarray) else each for each in values]
        elif not (self._random or self._skips) and len(ready.fed) == len(inputs):
            self._last = ready.session
        outputs = ready.session.run(values)
        return self._with_gaps(outputs) if self._skips else outputs

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """Refused: ONNX Runtime's Python package does inference only."""
        raise UnsupportedError(
            f"the gradient of {self.node.title} on ONNX Runtime",
            "its Python package does inference only",
            "use numpy, torch or jax",
        )

    def _with_gaps(self, outputs: Sequence[OrtValue]) -> tuple[OrtValue | None, ...]:
        found = iter(outputs)
        return tuple([next(found) if name else None for name in self.node.outputs])

    def _prepare(self, key: tuple[Any, ...], inputs: Sequence[Array]) -> _Ready:
        """A session for inputs of such types, with the structural ones as constants if they do not seem to vary."""
        given = [at for at, each in enumerate(inputs) if each is not None]
        constants = [at for at in given if isinstance(inputs[at], np.ndarray)]
        # An operator on nothing but constants would be computed when the session is made, and only copied at each call.
        if constants and len(constants) < len(given) and self._with_constants < _MOST_CONSTANTS:
            self._with_constants += 1
            fed = tuple(at for at in given if at not in constants)
            self._ready[key] = _Ready(self._session(inputs, {at: inputs[at] for at in constants}), fed)
            return self._ready[key]
        types = tuple([_element(each) for each in inputs])
        if types not in self._ready:
            self._ready[types] = _Ready(self._session(inputs, {}), tuple(given))
        return self._ready[types]

    def _session(self, inputs: Sequence[Array], constants: dict[int, NDArray[Any]]) -> Session:
        node = self.node
        proto = node.to_proto()
        names = ["" if each is None else f"x{at}" for at, each in enumerate(inputs)]
        outputs = [f"y{at}" if name else "" for at, name in enumerate(node.outputs)]
        del proto.input[:], proto.output[:]
        proto.input.extend(names)
        proto.output.extend(outputs)
        graph = helper.make_graph(
            [proto],
            node.op_type,
            [_declared(name, _element(each)) for name, each in zip(names, inputs, strict=True) if name],
            [onnx.ValueInfoProto(name=name) for name in outputs if name],
            [numpy_helper.from_array(value, names[at]) for at, value in constants.items()],
        )
        for at in constants:
            graph.input.remove(next(each for each in graph.input if each.name == names[at]))
        imports = [helper.make_opsetid(node.domain, node.opset)]
        if node.domain:
            imports.append(helper.make_opsetid("", DEFAULT_OPSET))
        model, _ = lowered(helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION))
        return Session(model, self._device, node.title, only_device=True)


def _signature(value: Array) -> Any:
    """What decides which session serves: the type of a value, and all of a constant."""
    if value.__class__ is OrtValue:
        return value._ortvalue.element_type()
    if isinstance(value, np.ndarray):
        return value.dtype.num, value.shape, value.tobytes()
    return _element(value)


def _element(value: Array) -> int:
    """ONNX's number of the element type, 0 for an input that is left out."""
    if value is None:
        return 0
    if isinstance(value, np.ndarray):
        return int(helper.np_dtype_to_tensor_dtype(value.dtype))
    if isinstance(value, list):
        raise UnsupportedError("a sequence as an operator's input", "it takes tensors alone", "run a whole model")
    return int(value.element_type())


def _declared(name: str, element: int) -> onnx.ValueInfoProto:
    """An input whose type is known and whose shape is not."""
    return helper.make_tensor_value_info(name, element, None)
