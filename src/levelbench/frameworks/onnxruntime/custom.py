"""Custom operators on ONNX Runtime: a session of one node whose kernel calls Python, from ``onnxruntime-extensions``.

The kernel copies inputs to NumPy arrays, and outputs through Python lists. Both are part of a call, since no session
with an operator in Python can do without. The package keeps the operators in an array that it moves when it grows, so
sessions must not outlive the registration of another operator: they are made again. Its kernel ends the process if the
operator raises, or for a type that it lacks: both are caught before.
"""

from __future__ import annotations

import atexit
import gc
from itertools import count
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime import framework
from levelbench.frameworks.onnxruntime.sessions import Session, SessionDevice
from levelbench.operators.contract import Array, Operator
from levelbench.operators.custom import host
from levelbench.operators.custom.definition import Spec, create, infer_outputs
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION, OperatorNode

_DOMAIN = "ai.onnx.contrib"
_TYPES = {"float32", "float64", "bool", "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"}
"""Those that arrive unchanged: large values of uint64 do not."""
_SESSIONS: dict[str, Session] = {}
_NUMBERS = count()
# A session that is still there when the package's operators are gone crashes the process at its end.
atexit.register(_SESSIONS.clear)


class OnnxRuntimeCustom(Operator):
    """A custom operator, called by a session with NumPy arrays. It has no gradient there."""

    def __init__(self, node: OperatorNode, device: SessionDevice) -> None:
        """``UnsupportedError`` without the package, and on a device other than the CPU."""
        self.node = node
        if lacking := framework.lacks_custom():
            raise UnsupportedError(f"custom operator {node.op_type} on onnxruntime", *lacking)
        if device.kind != "cpu":
            found = f"it is called with NumPy arrays, and not on {device.kind}"
            raise UnsupportedError(
                f"custom operator {node.op_type} on onnxruntime", found, "use --device cpu, or torch"
            )
        self._operator, self._device = create(node), device
        self._models: dict[tuple[int, ...], tuple[str, onnx.ModelProto]] = {}
        self._error: Exception | None = None

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs; raises what the operator raises."""
        key = tuple([each.element_type() for each in inputs])
        name, model = self._models.get(key) or self._register(key, inputs)
        if name not in _SESSIONS:
            _SESSIONS[name] = Session(model, self._device, self.node.title, prepare=_prepare)
        try:
            outputs = _SESSIONS[name].run(inputs)
        except Exception as error:  # noqa: BLE001  # a traceback would keep the session
            raise error.with_traceback(None) from None
        if self._error is not None:
            raise self._error
        return outputs

    def _register(self, key: tuple[int, ...], inputs: tuple[Array, ...]) -> tuple[str, onnx.ModelProto]:
        """The name and the model of a node for inputs of these types."""
        from onnxruntime_extensions import Opdef

        dtypes = [np.dtype(helper.tensor_dtype_to_np_dtype(each)) for each in key]
        specs = [Spec(tuple(each.shape()), dtype) for each, dtype in zip(inputs, dtypes, strict=True)]
        host.count_inputs(self._operator, len(specs))
        outputs = [each.dtype for each in infer_outputs(self._operator, specs)]
        for dtype in (*dtypes, *outputs):
            if dtype.name not in _TYPES:
                asked = f"{self._operator.name} of {dtype} on onnxruntime"
                raise UnsupportedError(
                    asked, "onnxruntime-extensions does not pass this type on", "use another, or torch"
                )
        found = [int(helper.np_dtype_to_tensor_dtype(each)) for each in outputs]
        empty = tuple(np.empty(0, each) for each in outputs)

        def body(*arrays: NDArray[Any]) -> Any:
            self._error = None
            try:
                results = host.forward(self._operator, arrays)
            except Exception as error:  # noqa: BLE001  # in the kernel it would end the process
                self._error, results = error.with_traceback(None), empty
            return results if len(results) > 1 else results[0]

        name = f"{self._operator.name}_{next(_NUMBERS)}"
        _SESSIONS.clear()
        gc.collect()
        Opdef.create(body, op_type=name, inputs=list(key), outputs=found)
        self._models[key] = name, _model(name, key, found)
        return self._models[key]


def _prepare(options: Any) -> None:
    from onnxruntime_extensions import get_library_path

    options.register_custom_ops_library(get_library_path())


def _model(name: str, inputs: tuple[int, ...], outputs: list[int]) -> onnx.ModelProto:
    names, results = [f"x{at}" for at in range(len(inputs))], [f"y{at}" for at in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(name, names, results, domain=_DOMAIN)],
        name,
        [helper.make_tensor_value_info(each, kind, None) for each, kind in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info(each, kind, None) for each, kind in zip(results, outputs, strict=True)],
    )
    imports = [helper.make_opsetid(_DOMAIN, 1), helper.make_opsetid("", DEFAULT_OPSET)]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
