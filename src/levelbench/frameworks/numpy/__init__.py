"""NumPy, the reference implementation: readable, vectorised, with its own gradients."""

from __future__ import annotations

from levelbench.errors import MissingError
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework


class NumpyFramework(Framework):
    """Runs on the CPU and is always available."""

    name = "numpy"
    imports = ("levelbench.frameworks.numpy.backend", "array_api_compat.numpy")

    def lacks(self, device: str = "cpu") -> str | None:
        return None if device == "cpu" else f"numpy runs on cpu only, not on {device}"

    def open(self, device: str = "cpu") -> Backend:
        if lacking := self.lacks(device):
            raise MissingError(f"framework 'numpy' on device {device!r}", lacking, "use --device cpu")
        from levelbench.frameworks.numpy.backend import NumpyBackend

        return NumpyBackend()


framework = NumpyFramework()
