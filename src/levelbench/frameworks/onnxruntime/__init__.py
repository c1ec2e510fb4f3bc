"""ONNX Runtime, inference only, on the CPU or CUDA; imported only when it is opened."""

from __future__ import annotations

import importlib.util

from levelbench.frameworks import PackagedFramework


class OnnxRuntimeFramework(PackagedFramework):
    """Devices: ``cpu``, and with the CUDA execution provider also ``cuda`` and ``cuda:N``."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    backend_class = "OnnxRuntimeBackend"
    modes = ("optimised", "unoptimised")
    trains = False

    def lacks_custom(self) -> tuple[str, str] | None:
        if importlib.util.find_spec("onnxruntime_extensions") is not None:
            return None
        return "onnxruntime-extensions is not installed", "pip install onnxruntime-extensions, or use torch or jax"


framework = OnnxRuntimeFramework()
