"""JAX, compiled by XLA, on the CPU or an accelerator; imported only when it is opened."""

from __future__ import annotations

from collections.abc import Sequence

from levelbench.frameworks import PackagedFramework
from levelbench.measure.ceilings import GemmMaker
from levelbench.networks.executor import Backend


class JaxFramework(PackagedFramework):
    """Devices: ``cpu``, ``cuda``, ``cuda:N``."""

    name = "jax"
    title = "JAX"
    imports = ("levelbench.frameworks.jax.backend", "array_api_compat.numpy")
    modes = ("jit", "eager")

    def lacking_device(self, device: str) -> str | None:
        from levelbench.frameworks.jax.arrays import lacking_device

        return lacking_device(device)

    def backend(self, device: str) -> Backend:
        from levelbench.frameworks.jax.backend import JaxBackend

        return JaxBackend(device)

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        from levelbench.frameworks.jax.backend import gemm

        return [("float32", gemm("float32"))]


framework = JaxFramework()
