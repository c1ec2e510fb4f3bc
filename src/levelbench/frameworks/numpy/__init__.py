"""NumPy, the reference: readable, vectorised, with gradients of our own."""

from __future__ import annotations

from levelbench.errors import MissingError
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework


class NumpyFramework(Framework):
    """Runs on the CPU, and is always there."""

    name = "numpy"
    imports = ("levelbench.frameworks.numpy.backend", "array_api_compat.numpy")

    def lacks(self, device: str = "cpu") -> str | None:
        """Only another device than the CPU is lacking."""
        return None if device == "cpu" else f"numpy runs on cpu only, not on {device}"

    def open(self, device: str = "cpu") -> Backend:
        """The backend; its module is imported only now."""
        if lacking := self.lacks(device):
            raise MissingError(f"framework 'numpy' on device {device!r}", lacking, "use --device cpu")
        from levelbench.frameworks.numpy.backend import NumpyBackend

        return NumpyBackend()


framework = NumpyFramework()
