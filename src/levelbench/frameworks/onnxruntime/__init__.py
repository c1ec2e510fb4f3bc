"""ONNX Runtime, inference only, on the CPU or CUDA; imported only when it is opened."""

from __future__ import annotations

from levelbench.frameworks import PackagedFramework


class OnnxRuntimeFramework(PackagedFramework):
    """Devices: ``cpu``, and with the CUDA execution provider also ``cuda`` and ``cuda:N``."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    backend_class = "OnnxRuntimeBackend"
    modes = ("optimised", "unoptimised")
    trains = False


framework = OnnxRuntimeFramework()
