"""ONNX Runtime on one device: single operators, whole models and networks, on its own values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import OrtValue

from levelbench.errors import UnsupportedError
from levelbench.frameworks.onnxruntime import OnnxRuntimeFramework
from levelbench.frameworks.onnxruntime.executor import OnnxRuntimeExecutor
from levelbench.frameworks.onnxruntime.model import OnnxRuntimeModel
from levelbench.frameworks.onnxruntime.opsets import newest_ir, newest_opset
from levelbench.frameworks.onnxruntime.profiling import profile
from levelbench.frameworks.onnxruntime.sessions import Device, spins, threads
from levelbench.frameworks.onnxruntime.single import OnnxRuntimeOperator, Seed
from levelbench.frameworks.onnxruntime.upstream import faults
from levelbench.frameworks.onnxruntime.values import from_numpy, to_numpy
from levelbench.networks.executor import Backend, Executor, checked_parameters
from levelbench.networks.network import Network
from levelbench.operators.contract import Operator
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["OnnxRuntimeBackend"]


class OnnxRuntimeBackend(Backend):
    """Arrays are ``onnxruntime.OrtValue``. A call returns when the device is done, so the host's clock is right.

    Mode ``optimised`` has all of ONNX Runtime's optimisations of graphs, ``unoptimised`` none. It does not train.
    """

    any_opset = True
    modes = OnnxRuntimeFramework.modes

    def __init__(self, device: str = "cpu") -> None:
        self._device = Device.parse(device)
        self._seed = Seed()
        self._gather = OnnxRuntimeOperator(OperatorNode("Gather", ("x", "i"), ("y",)), self._device, self._seed)
        self.known_faults: Mapping[str, str] = faults(onnxruntime.__version__)

    def executor(
        self,
        network: Network,
        parameters: Mapping[str, NDArray[Any]] | None = None,
        *,
        mode: str | None = None,
        trains: bool = True,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> Executor:
        """An executor for inference; its ``forward`` raises ``UnsupportedError`` whatever ``trains`` says."""
        self.refuse_other_numbers(precision, channels_last)
        values = network.initialise() if parameters is None else checked_parameters(network, parameters)
        return OnnxRuntimeExecutor(network, values, self._device, self._seed, mode=self.chosen_mode(mode))

    def profile(self, executor: Executor, inputs: Sequence[OrtValue], repeats: int) -> tuple[str, dict[str, float]]:
        """Our clock around sessions of single operators: the times of operators are the profiler's already."""
        return profile(self, executor, inputs, repeats)

    def take(self, array: OrtValue, indices: OrtValue) -> OrtValue:
        """Rows at ``indices``, by ONNX Runtime's own Gather."""
        found: OrtValue = self._gather.forward(array, indices)[0]
        return found

    def mean(self, scalars: Sequence[OrtValue]) -> float:
        """The mean, accumulated in float64 on the host."""
        return float(np.mean([np.asarray(to_numpy(each), np.float64) for each in scalars]))

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
