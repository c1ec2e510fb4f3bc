"""JAX on one device: makes operators of nodes, moves arrays, seeds, and waits for what was dispatched.

The one idea: nodes that say the same share one compiled function, so a network with twenty equal layers compiles one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from levelbench.frameworks.jax.arrays import device_of, from_numpy, to_numpy
from levelbench.frameworks.jax.kernel import Kernel
from levelbench.frameworks.jax.operator import JaxOperator
from levelbench.frameworks.jax.operators import find
from levelbench.frameworks.jax.signature import signature
from levelbench.measure.ceilings import GemmMaker
from levelbench.measure.clocks import HOST, Clock, DeviceClock
from levelbench.operators.contract import Operator, OperatorBackend
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["JaxBackend", "gemm"]

# A compiled function takes about a megabyte; one that is forgotten here lives on in the operators that use it.
_MOST_KERNELS = 512


def gemm(dtype: str) -> GemmMaker:
    """Makes the product of two square matrices of ``dtype`` on the CPU: 2 n^3 operations, done when it returns."""

    def make(n: int) -> tuple[Callable[[], object], float]:
        rng = np.random.default_rng(0)
        cpu = device_of("cpu")
        a, b = (jax.device_put(rng.standard_normal((n, n)).astype(dtype), cpu) for _ in range(2))
        product = jax.jit(jnp.matmul).lower(a, b).compile()
        return lambda: product(a, b).block_until_ready(), 2.0 * n**3

    return make


class JaxBackend(OperatorBackend):
    """JAX on one device; opening one switches the process to 64-bit types, which ONNX's operators need."""

    def __init__(self, device: str = "cpu") -> None:
        jax.config.update("jax_enable_x64", True)
        self.device = device_of(device)
        self._name = device
        self._kernels: dict[Any, Kernel] = {}
        self.seed(0)

    def operator(self, node: OperatorNode) -> Operator:
        """The operator, compiled at its first call for each set of shapes."""
        if node.domain == CUSTOM_DOMAIN:
            from levelbench.frameworks.jax.custom import custom_operator

            custom: Operator = custom_operator(node)
            return custom
        key = signature(node)
        # Taken out and put back, so that the first one is the one not asked for the longest.
        kernel = self._kernels.pop(key, None) or Kernel(node, find(node), self)
        self._kernels[key] = kernel
        if len(self._kernels) > _MOST_KERNELS:
            del self._kernels[next(iter(self._kernels))]
        return JaxOperator(node, kernel)

    def array(self, host: NDArray[Any]) -> Any:
        """An array on the device, with memory of its own."""
        return from_numpy(host, self.device)

    def host(self, array: Any) -> NDArray[Any]:
        """A copy on the host."""
        return to_numpy(array)

    def seed(self, seed: int) -> None:
        """Start the sequence of random draws anew."""
        with jax.default_device(self.device):
            self._key = jax.random.PRNGKey(seed)
        self._draws = 0

    def draw(self) -> tuple[Any, Any]:
        """The key of the seed and the number of this draw; an operator folds the one into the other."""
        self._draws += 1
        return self._key, np.uint32(self._draws & 0xFFFFFFFF)

    def describe(self) -> dict[str, Any]:
        """Version, device, threads, and whether equal seeds give equal bits."""
        on_cpu = self.device.platform == "cpu"
        return {
            "name": "jax",
            "version": str(jax.__version__),
            "device": self._name if on_cpu else str(self.device.device_kind),
            # XLA's pool takes as many threads as the process may run on.
            "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "deterministic": on_cpu or "--xla_gpu_deterministic_ops=true" in os.environ.get("XLA_FLAGS", ""),
        }

    def clock(self, host: Clock = HOST) -> Clock:
        """A clock that waits for what was dispatched, on the CPU too: JAX returns before it has computed."""
        return DeviceClock(_Dispatched(self.device), host)

    def finish(self, arrays: Sequence[Any]) -> None:
        """Wait for these arrays."""
        jax.block_until_ready(list(arrays))


class _Dispatched:
    """A device as a clock sees it. JAX has no barrier of a device, but it knows which arrays are alive on it."""

    def __init__(self, device: Any) -> None:
        self.name = str(device)
        self._platform = device.platform

    def synchronise(self) -> None:
        """Wait for all arrays that are alive."""
        jax.block_until_ready(jax.live_arrays(self._platform))
