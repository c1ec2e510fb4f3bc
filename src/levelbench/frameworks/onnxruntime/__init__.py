"""ONNX Runtime, inference only, on the CPU or CUDA; imported only when it is opened."""

from __future__ import annotations

from levelbench.frameworks import PackagedFramework
from levelbench.networks.executor import Backend


class OnnxRuntimeFramework(PackagedFramework):
    """Devices: ``cpu``, and with the CUDA execution provider also ``cuda`` and ``cuda:N``."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    modes = ("optimised", "unoptimised")
    trains = False

    def lacking_device(self, device: str) -> str | None:
        from levelbench.frameworks.onnxruntime.sessions import lacking_device

        return lacking_device(device)

    def backend(self, device: str) -> Backend:
        from levelbench.frameworks.onnxruntime.backend import OnnxRuntimeBackend

        return OnnxRuntimeBackend(device)


framework = OnnxRuntimeFramework()
