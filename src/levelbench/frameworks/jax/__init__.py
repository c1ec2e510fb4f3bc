"""JAX, compiled by XLA, on the CPU or an accelerator; imported only when it is opened."""

from __future__ import annotations

from levelbench.frameworks import PackagedFramework


class JaxFramework(PackagedFramework):
    """Devices: ``cpu``, ``cuda``, ``cuda:N``."""

    name = "jax"
    title = "JAX"
    backend_class = "JaxBackend"
    imports = ("levelbench.frameworks.jax.backend", "array_api_compat.numpy")
    modes = ("jit", "eager")
    gemm_types = ("float32",)


framework = JaxFramework()
