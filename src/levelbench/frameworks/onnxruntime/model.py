"""A whole ONNX model as one session of ONNX Runtime, with sequences as Python lists and empty optionals as ``None``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnxruntime import OrtValue

from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks.onnxruntime.opsets import lowered, nodes_of
from levelbench.frameworks.onnxruntime.sequences import pack, unpack
from levelbench.frameworks.onnxruntime.sessions import Device, Session
from levelbench.frameworks.onnxruntime.single import Seed, is_random

__all__ = ["OnnxRuntimeModel"]


class OnnxRuntimeModel:
    """A function of one native value an input of the graph; ``changes`` says what of the model's versions was lowered.

    Raises ``UnsupportedError`` where ONNX Runtime refuses the model, ``UsageError`` where ONNX itself finds it invalid.
    """

    def __init__(self, model: onnx.ModelProto, device: Device, seed: Seed) -> None:
        self._device, self._seed, self._seeded = device, seed, seed.count
        self._model, self.changes = lowered(model)
        self._random = any(is_random(each.op_type) for each in nodes_of(model))
        self._session = self._ready()
        given = {each.name for each in model.graph.initializer}
        self._inputs = [(each.name, _element(each.type)) for each in model.graph.input if each.name not in given]
        self._tensors_only = all(
            each.type.WhichOneof("value") == "tensor_type" for each in (*model.graph.input, *model.graph.output)
        )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the graph."""
        if self._random and self._seeded != self._seed.count:
            self._session, self._seeded = self._ready(), self._seed.count
        if self._tensors_only:
            return list(self._session.run(inputs))
        names, values = [], []
        for (name, element), value in zip(self._inputs, inputs, strict=True):
            # ONNX Runtime takes an optional input that is not fed as one without a value.
            if value is not None:
                names.append(name)
                values.append(pack(value, element, self._device) if isinstance(value, list) else value)
        return [self._native(each) for each in self._session.run(values, names)]

    def _ready(self) -> Session:
        try:
            return Session(self._model, self._device, "the model")
        except UnsupportedError:
            try:
                onnx.checker.check_model(self._model)
            except onnx.checker.ValidationError as error:
                said = str(error).strip().splitlines()[0]
                raise UsageError("the model", f"ONNX finds it invalid: {said}", "correct it") from error
            raise

    def _native(self, value: OrtValue) -> Any:
        if not value.has_value():
            return None
        return unpack(value, self._device) if value.is_tensor_sequence() else value


def _element(kind: onnx.TypeProto) -> int:
    """ONNX's element type of a tensor, a sequence of tensors, or an optional one of these."""
    match kind.WhichOneof("value"):
        case "optional_type":
            return _element(kind.optional_type.elem_type)
        case "sequence_type":
            return _element(kind.sequence_type.elem_type)
    return int(kind.tensor_type.elem_type)
