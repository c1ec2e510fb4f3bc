"""ONNX Runtime, inference only, on the CPU or CUDA; imported only when it is opened."""

from __future__ import annotations

import importlib.util

from levelbench.errors import MissingError
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework

__all__ = ["OnnxRuntimeFramework", "framework"]

_INSTALL = 'pip install "levelbench[onnxruntime]"'


class OnnxRuntimeFramework(Framework):
    """Devices: ``cpu``, and ``cuda``, ``cuda:N`` where its build has the CUDA execution provider."""

    name = "onnxruntime"
    modes = ("optimised", "unoptimised")
    trains = False

    def lacks(self, device: str = "cpu") -> str | None:
        """The package, or the device."""
        if importlib.util.find_spec("onnxruntime") is None:
            return f"ONNX Runtime is not installed: {_INSTALL}"
        if device == "cpu":
            return None
        from levelbench.frameworks.onnxruntime.sessions import lacking_device

        return lacking_device(device)

    def open(self, device: str = "cpu") -> Backend:
        """Import onnxruntime and take the device."""
        if lacking := self.lacks(device):
            remedy = _INSTALL if "not installed" in lacking else "choose a device that is there (--device cpu)"
            raise MissingError(f"framework 'onnxruntime' on device {device!r}", lacking, remedy)
        from levelbench.frameworks.onnxruntime.backend import OnnxRuntimeBackend

        return OnnxRuntimeBackend(device)


framework = OnnxRuntimeFramework()
