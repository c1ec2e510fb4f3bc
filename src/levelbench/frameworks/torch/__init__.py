"""PyTorch, eager, on the CPU or an accelerator; imported only when it is opened."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

from levelbench.errors import MissingError
from levelbench.measure.ceilings import GemmMaker
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework

__all__ = ["TorchFramework", "framework"]

_INSTALL = 'pip install "levelbench[torch]"'


class TorchFramework(Framework):
    """Devices: ``cpu``, ``cuda``, ``cuda:N``."""

    name = "torch"
    imports = (
        "levelbench.frameworks.torch.backend",
        "levelbench.frameworks.torch.optimizers",
        "array_api_compat.torch",
    )
    modes = ("eager", "compiled")
    communicators = ("gloo", "nccl")

    def lacks(self, device: str = "cpu") -> str | None:
        """The package, or the device."""
        if importlib.util.find_spec("torch") is None:
            return f"PyTorch is not installed: {_INSTALL}"
        if device == "cpu":
            return None
        from levelbench.frameworks.torch.backend import lacking_device

        return lacking_device(device)

    def open(self, device: str = "cpu") -> Backend:
        """Import torch and take the device."""
        if lacking := self.lacks(device):
            remedy = _INSTALL if "not installed" in lacking else "choose a device that is there (--device cpu)"
            raise MissingError(f"framework 'torch' on device {device!r}", lacking, remedy)
        from levelbench.frameworks.torch.backend import TorchBackend

        return TorchBackend(device)

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        """float32, and bfloat16, which NumPy has not."""
        from levelbench.frameworks.torch.backend import gemm

        return [(name, gemm(name)) for name in ("float32", "bfloat16")]

    def communicator(self, kind: str, place: Any, timeout_s: float) -> Any:
        """Over PyTorch's default process group."""
        from levelbench.frameworks.torch.communicator import open_group

        return open_group(kind, place, timeout_s)


framework = TorchFramework()
