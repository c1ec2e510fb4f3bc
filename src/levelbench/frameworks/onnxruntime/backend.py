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
from levelbench.frameworks.onnxruntime.executor import OnnxRuntimeExecutor, OnnxRuntimeModel
from levelbench.frameworks.onnxruntime.profile import profile
from levelbench.frameworks.onnxruntime.sessions import (
    SessionDevice,
    from_numpy,
    newest_ir,
    newest_opset,
    spins,
    threads,
    to_numpy,
)
from levelbench.frameworks.onnxruntime.single import OnnxRuntimeOperator, Seed
from levelbench.networks.executor import Backend, Executor, checked_parameters
from levelbench.networks.network import Network
from levelbench.operators.contract import Operator, known_upstream
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["SEEN", "OnnxRuntimeBackend", "faults"]


SEEN = ("1.31.1", "1.32.0")
"""The versions of ONNX Runtime that all of these were seen in."""
_ROUNDING = "float32's rounding, below 1e-6 of the largest value, where the test allows 1e-7 near zero"
_LOWEST = "a masked score is the lowest float32 in place of -inf"
_ROUNDED_LENGTH = "aligns corners by the rounded output length, ONNX by scale times length"

_FAULTS = {
    "test_attention_4d_diff_heads_mask4d_padded_kv": "refuses a mask shorter than the keys, which opset 24 pads",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal": _LOWEST,
    "test_attention_4d_with_past_and_present_qk_matmul_bias_4d_mask_causal": _LOWEST,
    "test_convinteger_with_padding": "takes one zero point of the weight, not one a channel",
    "test_dft": _ROUNDING,
    "test_dft_axis": _ROUNDING,
    "test_dft_axis_opset19": _ROUNDING,
    "test_dft_inverse": _ROUNDING,
    "test_dft_inverse_opset19": _ROUNDING,
    "test_dft_irfft": _ROUNDING,
    "test_dft_irfft_opset19": _ROUNDING,
    "test_dft_opset19": _ROUNDING,
    "test_dft_rfft": _ROUNDING,
    "test_dft_rfft_opset19": _ROUNDING,
    "test_maxunpool_export_with_output_shape": "reads indices as positions in output_shape, not in the inferred shape",
    "test_reduce_max_empty_set_bool": "refuses the maximum of no booleans, which is false",
    "test_resize_downsample_scales_cubic_align_corners": _ROUNDED_LENGTH,
    "test_resize_downsample_scales_linear_align_corners": _ROUNDED_LENGTH,
    "test_stft": _ROUNDING,
    "test_stft_with_window": _ROUNDING,
}


def faults(version: str) -> Mapping[str, str]:
    """Reasons by the test's name, with the versions that they were seen in."""
    return known_upstream(_FAULTS, SEEN, version)


class OnnxRuntimeBackend(Backend):
    """Arrays are ``onnxruntime.OrtValue``. A call returns when the device is done, so the host's clock is right.

    Mode ``optimised`` has all of ONNX Runtime's optimisations of graphs, ``unoptimised`` none. It does not train.
    """

    any_opset = True
    modes = OnnxRuntimeFramework.modes

    def __init__(self, device: str = "cpu") -> None:
        self._device = SessionDevice.parse(device)
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
