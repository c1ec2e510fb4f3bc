"""ONNX Runtime on the CPU or CUDA, and with its package for training also that; imported only when it is opened."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from levelbench.errors import MissingError
from levelbench.frameworks import PackagedFramework
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework


class OnnxRuntimeFramework(PackagedFramework):
    """It infers. Devices: ``cpu``, and with the CUDA execution provider also ``cuda`` and ``cuda:N``."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    backend_class = "OnnxRuntimeBackend"
    modes = ("optimised", "unoptimised")
    trains = False

    def lacks_custom(self) -> tuple[str, str] | None:
        if importlib.util.find_spec("onnxruntime_extensions") is not None:
            return None
        return "onnxruntime-extensions is not installed", "pip install onnxruntime-extensions, or use torch or jax"


class OnnxRuntimeTraining(Framework):
    """Trains on the CPU with onnxruntime-training, whose last version is 1.19.2, up to Python 3.11."""

    name = "onnxruntime-training"
    operators = False
    modes = ("optimised",)
    imports = ("levelbench.frameworks.onnxruntime.training",)

    def lacks(self, device: str = "cpu") -> str | None:
        if device != "cpu":
            return f"onnxruntime-training runs on cpu only here, not on {device}"
        found = importlib.util.find_spec("onnxruntime")
        if found is None or not found.submodule_search_locations:
            return f"onnxruntime-training is not installed: {_INSTALL}"
        # The search for a part of a package would import the package.
        if not any(Path(each, "training", "onnxblock").is_dir() for each in found.submodule_search_locations):
            return f"the onnxruntime that is installed only infers: {_INSTALL}"
        return None

    def open(self, device: str = "cpu") -> Backend:
        if lacking := self.lacks(device):
            raise MissingError(f"framework {self.name!r} on device {device!r}", lacking, _INSTALL)
        from levelbench.frameworks.onnxruntime.training import TrainingBackend

        return TrainingBackend()


_INSTALL = "pip uninstall onnxruntime; pip install onnxruntime-training==1.19.2"

framework = OnnxRuntimeFramework()
training_framework = OnnxRuntimeTraining()
