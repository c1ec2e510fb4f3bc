"""Executes a network in one session of ONNX Runtime, optimised by it or left as it is; inference only.

The one idea: parameters are constants of the session, for only then does ONNX Runtime fold, fuse and pack them as it
would for a deployed model. So a parameter that is replaced makes the session anew, at the next call and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import OrtValue
from onnxruntime.capi import onnxruntime_pybind11_state as native

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.frameworks.onnxruntime.graphs import Model, model_of
from levelbench.frameworks.onnxruntime.opsets import lowered, nodes_of
from levelbench.frameworks.onnxruntime.sequences import pack, unpack
from levelbench.frameworks.onnxruntime.sessions import Device, Preparation, Session
from levelbench.frameworks.onnxruntime.single import Seed, is_random
from levelbench.frameworks.onnxruntime.values import from_numpy, to_numpy
from levelbench.networks.executor import Executor, LiveMapping, OperatorTime, require_inputs
from levelbench.networks.network import Network

__all__ = ["OnnxRuntimeExecutor"]

_LEVELS = {
    "optimised": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "unoptimised": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
_HOST = Device("cpu")


class OnnxRuntimeExecutor(Executor):
    """A network in a session. Arrays are ``onnxruntime.OrtValue``; outputs stay on the device.

    ``parameters[name] = value`` (an OrtValue or a NumPy array) counts from the next call on, which makes a session anew
    and so takes as long as the first one. The session has copies: an OrtValue that is changed in place changes nothing.
    """

    network: Network

    def __init__(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], device: Device, seed: Seed, *, mode: str
    ) -> None:
        """Raises ``UnsupportedError`` with ONNX Runtime's own words where it refuses the network."""
        self.network, self.mode = network, mode
        self._inference, self._device, self._seed = network.for_inference, device, seed
        self._session: Session | None = None
        values = {each.name: from_numpy(np.array(parameters[each.name]), _HOST) for each in network.parameters}
        trained = [each.name for each in network.parameters if each.trainable]
        others = [name for name in values if name not in trained]
        self._values = values
        self.parameters: MutableMapping[str, Any] = _Live(values, trained, self._changed)
        self.buffers: MutableMapping[str, Any] = _Live(values, others, self._changed)
        self._random = any(is_random(each.op_type) for each in nodes_of(self._inference.model))
        graph = self._inference.model.graph
        kinds = {each.name: each.type for each in (*graph.input, *graph.output)}
        self._make()
        named = [*self._inputs, *(each.name for each in self._inference.outputs)]
        self._tensors_only = all(kinds[name].WhichOneof("value") in ("tensor_type", None) for name in named)
        self._elements = [_element(kinds[name]) for name in self._inputs]

    def infer(self, *inputs: Any) -> tuple[Any, ...]:
        """The network's outputs, computed when it returns."""
        session = self._session
        if session is None or (self._random and self._seeded != self._seed.count):
            session = self._make()
        try:
            return session.run(inputs, self._inputs) if self._tensors_only else self._infer_any(session, inputs)
        except (native.InvalidArgument, ValueError) as error:
            require_inputs(self._inputs, len(inputs), error)
            raise

    def forward(self, *inputs: Any) -> NoReturn:
        """``UnsupportedError``: ONNX Runtime's Python package does inference only."""
        raise self._untrainable()

    def backward(self) -> NoReturn:
        """``UnsupportedError``: ONNX Runtime's Python package does inference only."""
        raise self._untrainable()

    def operator_times(self, *inputs: Any, repeats: int = 1) -> list[OperatorTime]:
        """By ONNX Runtime's own profiler, in whole microseconds, in a session of its own.

        What it has fused has index -1 and a title that says of what. Raises ``UnsupportedError`` on a GPU, where its
        profiler takes the time of the launch.
        """
        if self._device.kind != "cpu":
            found = "its profiler takes the time of the launch, not of the work"
            raise UnsupportedError(
                f"the time of each operator of ONNX Runtime on {self._device.kind}", found, "use cpu"
            )
        from levelbench.frameworks.onnxruntime.profile import operator_times

        return operator_times(self._inference, self.session_with, lambda session: self._run(session, inputs), repeats)

    def session_with(self, prepare: Preparation) -> Session:
        """One more session of the network as it is now, with further options."""
        return self._made(self._model(), prepare)

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """ONNX Runtime's own session, for whoever wants to call it by hand; another one once a parameter changed."""
        return (self._session or self._make()).session

    def _run(self, session: Session, inputs: Sequence[Any]) -> object:
        return session.run(inputs, self._inputs) if self._tensors_only else self._infer_any(session, inputs)

    def _model(self) -> Model:
        return model_of(self._inference, self._values)

    def _make(self) -> Session:
        model = self._model()
        self._inputs, self._read = list(model.inputs), model.parameters
        self._seeded = self._seed.count
        self._session = self._made(model, lambda _: None)
        return self._session

    def _made(self, model: Model, prepare: Preparation) -> Session:
        def options(found: onnxruntime.SessionOptions) -> None:
            found.graph_optimization_level = _LEVELS[self.mode]
            if model.arrays:
                found.add_external_initializers(list(model.arrays), list(model.arrays.values()))
            prepare(found)

        proto, _ = lowered(model.proto)
        return Session(proto, self._device, f"network {self.network.name}", prepare=options)

    def _changed(self, name: str) -> None:
        if name in self._read:
            self._session = None

    def _infer_any(self, session: Session, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """With sequences as lists, and optional values that may be absent."""
        names, values = [], []
        for name, element, value in zip(self._inputs, self._elements, inputs, strict=True):
            # ONNX Runtime takes an optional input that is not fed as one without a value.
            if value is not None:
                names.append(name)
                values.append(pack(value, element, self._device) if isinstance(value, list) else value)
        return tuple(self._native(each) for each in session.run(values, names))

    def _native(self, value: OrtValue) -> Any:
        if not value.has_value():
            return None
        return unpack(value, self._device) if value.is_tensor_sequence() else value

    def _untrainable(self) -> UnsupportedError:
        return UnsupportedError(
            f"training {self.network.name} on ONNX Runtime",
            "its Python package does inference only",
            "use numpy, torch or jax",
        )


class _Live(LiveMapping):
    """Some of the values, by name; assigning one tells the executor."""

    def __init__(self, values: dict[str, OrtValue], names: Sequence[str], changed: Callable[[str], None]) -> None:
        self._values, self._names, self._tell = values, dict.fromkeys(names), changed

    def __getitem__(self, name: str) -> OrtValue:
        if name not in self._names:
            raise KeyError(name)
        return self._values[name]

    def __setitem__(self, name: str, value: OrtValue | NDArray[Any]) -> None:
        """Raises ``UnknownNameError`` for a name that is not there, ``UsageError`` for another shape or type."""
        if name not in self._names:
            raise UnknownNameError("parameter", name, self._names)
        # A copy: an array that the caller goes on to change would change the next session and not this one.
        given = from_numpy(to_numpy(value) if isinstance(value, OrtValue) else np.array(value), _HOST)
        held = self._values[name]
        for what, old, new in (
            ("shape", held.shape(), given.shape()),
            ("element type", held.element_type(), given.element_type()),
        ):
            if old != new:
                raise UsageError(f"assigning to parameter {name!r}", f"its {what} is {old}, not {new}", "give the same")
        self._values[name] = given
        self._tell(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _element(kind: Any) -> int:
    """ONNX's element type of a tensor, a sequence of tensors, or an optional one of these."""
    match kind.WhichOneof("value"):
        case "optional_type":
            return _element(kind.optional_type.elem_type)
        case "sequence_type":
            return _element(kind.sequence_type.elem_type)
    return int(kind.tensor_type.elem_type)
