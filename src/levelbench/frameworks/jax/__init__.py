"""JAX, its functions compiled by XLA, on the CPU or an accelerator; imported only when it is opened."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from levelbench.errors import MissingError
from levelbench.measure.ceilings import GemmMaker
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework

__all__ = ["JaxFramework", "framework"]

_INSTALL = 'pip install "levelbench[jax]"'


class JaxFramework(Framework):
    """Devices: ``cpu``, ``cuda``, ``cuda:N``."""

    name = "jax"
    imports = ("levelbench.frameworks.jax.backend", "array_api_compat.numpy")
    modes = ("jit", "eager")

    def lacks(self, device: str = "cpu") -> str | None:
        """The package, or the device."""
        if importlib.util.find_spec("jax") is None:
            return f"JAX is not installed: {_INSTALL}"
        if device == "cpu":
            return None
        from levelbench.frameworks.jax.arrays import lacking_device

        return lacking_device(device)

    def open(self, device: str = "cpu") -> Backend:
        """Import JAX, let it compute in 64 bits, and take the device."""
        if lacking := self.lacks(device):
            remedy = _INSTALL if "not installed" in lacking else "choose a device that is there (--device cpu)"
            raise MissingError(f"framework 'jax' on device {device!r}", lacking, remedy)
        from levelbench.frameworks.jax.backend import JaxBackend

        return JaxBackend(device)

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        """float32."""
        from levelbench.frameworks.jax.backend import gemm

        return [("float32", gemm("float32"))]


framework = JaxFramework()
