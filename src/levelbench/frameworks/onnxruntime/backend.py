"""ONNX Runtime on one device: single operators and whole models, on its own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import OrtValue

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime.model import OnnxRuntimeModel
from levelbench.frameworks.onnxruntime.opsets import newest_ir, newest_opset
from levelbench.frameworks.onnxruntime.sessions import Device, spins, threads
from levelbench.frameworks.onnxruntime.single import OnnxRuntimeOperator, Seed
from levelbench.frameworks.onnxruntime.upstream import faults
from levelbench.frameworks.onnxruntime.values import from_numpy, to_numpy
from levelbench.operators.contract import Operator, OperatorBackend
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["OnnxRuntimeBackend"]


class OnnxRuntimeBackend(OperatorBackend):
    """Arrays are ``onnxruntime.OrtValue``. A call returns when the device is done, so the host's clock is right."""

    any_opset = True

    def __init__(self, device: str = "cpu") -> None:
        self._device = Device.parse(device)
        self._seed = Seed()
        self.known_faults: Mapping[str, str] = faults(onnxruntime.__version__)

    def operator(self, node: OperatorNode) -> Operator:
        """The operator; which types it has kernels for shows at the first call. A custom operator is refused."""
        if node.domain == CUSTOM_DOMAIN:
            raise UnsupportedError(
                f"custom operator {node.op_type} on onnxruntime",
                "ONNX Runtime's Python package takes none that is not compiled against it",
                "use numpy, torch or jax",
            )
        return OnnxRuntimeOperator(node, self._device, self._seed)

    def array(self, host: NDArray[Any]) -> OrtValue:
        """A value on the device (on the CPU it shares the host's memory)."""
        return from_numpy(host, self._device)

    def host(self, array: OrtValue) -> NDArray[Any]:
        """A copy on the host."""
        return to_numpy(array)

    def model(self, model: onnx.ModelProto) -> Callable[[Sequence[Any]], list[Any]]:
        """The whole model as one session, so with ONNX Runtime's own optimisation of graphs."""
        return OnnxRuntimeModel(model, self._device, self._seed)

    def seed(self, seed: int) -> None:
        """Seed the random operators, of sessions that exist too: those are made anew."""
        onnxruntime.set_seed(seed)
        self._seed.count += 1

    def describe(self) -> dict[str, Any]:
        """Version, device, threads, the newest versions of ONNX it takes, and whether idle threads spin."""
        return {
            "name": "onnxruntime",
            "version": str(onnxruntime.__version__),
            "device": self._device.kind if self._device.kind == "cpu" else f"cuda:{self._device.index}",
            "threads": threads(),
            "deterministic": self._device.kind == "cpu",
            "newest_opset": newest_opset(),
            "newest_ir": newest_ir(),
            "spins": spins(),
        }
