"""JAX on one device: makes operators and executors, converts arrays, seeds, and waits for dispatched work.

Equal nodes share one compiled function, so a network with twenty equal layers compiles one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, Device
from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.frameworks import Float32Backend, keras_on
from levelbench.frameworks.jax import JaxFramework
from levelbench.frameworks.jax.arrays import DeviceMemoryMeter, JaxPacker, device_of, from_numpy, to_numpy
from levelbench.frameworks.jax.executor import JaxExecutor, JaxFunction
from levelbench.frameworks.jax.operator import CompiledKernel, Draw, JaxOperator, signature
from levelbench.frameworks.jax.operators import find
from levelbench.measure.ceilings import GemmMaker
from levelbench.measure.clocks import HOST, Clock, DeviceClock
from levelbench.measure.meters.base import Meter
from levelbench.networks.executor import Executor
from levelbench.networks.native import NativeModel
from levelbench.networks.network import Network
from levelbench.operators.contract import Operator
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

# A compiled function takes about a megabyte; operators that use one keep it alive after it is evicted here.
_MOST_KERNELS = 512


def lacking_device(name: str) -> str | None:
    """``None`` if JAX can use the device, else the reason."""
    kind, _, index = name.partition(":")
    if kind not in {"cpu", "cuda"} or (index and not index.isdecimal()):
        return f"this adapter runs on cpu, cuda and cuda:N, not on {name!r}"
    try:
        count = len(jax.local_devices(backend=kind))
    except RuntimeError:
        count = 0
    return None if int(index or 0) < count else f"JAX sees {count} {kind} devices here"


def gemm(dtype: str) -> GemmMaker:
    """Makes a product of two n x n matrices of ``dtype`` on the CPU: 2 n^3 operations per synchronous call."""

    def make(n: int) -> tuple[Callable[[], object], float]:
        rng = np.random.default_rng(0)
        cpu = device_of("cpu")
        a, b = (jax.device_put(rng.standard_normal((n, n)).astype(dtype), cpu) for _ in range(2))
        product = jax.jit(jnp.matmul).lower(a, b).compile()
        return lambda: product(a, b).block_until_ready(), 2.0 * n**3

    return make


class JaxBackend(Float32Backend):
    """JAX on one device. Opening a backend enables 64-bit types, which ONNX's operators need, for the whole process.

    Mode ``jit`` compiles a network to one program, ``eager`` dispatches its operators one by one.
    """

    modes = JaxFramework.modes
    slices_are_views = False

    def __init__(self, device: str = "cpu") -> None:
        jax.config.update("jax_enable_x64", True)
        self.device = device_of(device)
        if self.device.platform != "cpu":
            # float32 means float32 in every framework; by default products on a GPU may round to TF32 (10 bits).
            jax.config.update("jax_default_matmul_precision", "highest")
        self._name = device
        self._kernels: dict[Any, CompiledKernel] = {}
        self._traced: tuple[Any, int] | None = None
        self.seed(0)

    def executor_of(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], mode: str, trains: bool
    ) -> Executor:
        return JaxExecutor(self, network, parameters, mode=mode, trains=trains)

    def native(
        self, model: NativeModel, mode: str | None = None, *, precision: str = "float32", channels_last: bool = False
    ) -> Executor:
        """A JAX function as an executor.

        Create its arrays before opening a backend: afterwards arrays are 64-bit by default.
        """
        return JaxFunction(model.on("jax"), self, mode=self.chosen_mode(mode))

    @contextmanager
    def building(self, seed: int) -> Iterator[None]:
        """Uses JAX's default 32-bit types: user code does not expect the 64 bits that ONNX's operators need."""
        with keras_on("jax"), jax.enable_x64(False), jax.default_device(self.device):
            yield

    def memory_meter(self) -> Meter:
        return DeviceMemoryMeter(self.device) if self.device.platform != "cpu" else super().memory_meter()

    def operator(self, node: OperatorNode) -> Operator:
        """The operator, compiled at its first call for each set of shapes."""
        if node.domain == CUSTOM_DOMAIN:
            from levelbench.frameworks.jax.custom import custom_operator

            custom: Operator = custom_operator(node)
            return custom
        key = signature(node)
        # Removed and added again, so that the first one is the least recently used.
        kernel = self._kernels.pop(key, None) or CompiledKernel(node, find(node), self)
        self._kernels[key] = kernel
        if len(self._kernels) > _MOST_KERNELS:
            del self._kernels[next(iter(self._kernels))]
        return JaxOperator(node, kernel)

    def array(self, host: NDArray[Any]) -> Array:
        return from_numpy(host, self.device)

    def host(self, array: Array) -> NDArray[Any]:
        return to_numpy(array)

    def memory(self, array: Array) -> NDArray[Any] | None:
        """XLA's own buffer on the CPU, where a type takes whole bytes."""
        host = np.dtype(array.dtype)
        if self.device.platform != "cpu" or not array.size or "int4" in host.name or "int2" in host.name:
            return None
        pointer = jax.block_until_ready(array).unsafe_buffer_pointer()
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * (array.size * host.itemsize)).from_address(pointer))
        return raw.view(host).reshape(array.shape)

    def seed(self, seed: int) -> None:
        """Restart the sequence of random draws."""
        with jax.default_device(self.device):
            self._key = jax.random.PRNGKey(seed)
        self._draws = 0

    def draws(self) -> NDArray[Any]:
        """The key, and the number of draws made with it."""
        key = np.asarray(self._key, np.uint32)
        return np.append(key, np.uint32(self._draws & 0xFFFFFFFF)).view(np.uint8)

    def restore_draws(self, state: NDArray[Any]) -> None:
        """Continue from this state; ``DataError`` if it is invalid."""
        if state.dtype != np.uint8 or len(state) != 12:
            raise DataError("the state of JAX's draws", f"it has {len(state)} bytes, not 12", "restart the run")
        *key, self._draws = state.view(np.uint32).tolist()
        with jax.default_device(self.device):
            self._key = jnp.asarray(np.array(key, np.uint32))

    def take(self, array: Array, indices: Array) -> Array:
        """Rows at ``indices``, which must be valid: JAX does not check them."""
        return _take(array, indices)

    def rows(self, order: NDArray[np.int64], bounds: Sequence[int]) -> Sequence[Array]:
        """All in one transfer from the host: a slice on the device is a program call, slower than a gather."""
        slices = [order[start:stop] for start, stop in pairwise(bounds)]
        return list(jax.device_put(slices, self.device))

    def normalise(self, array: Array, shift: Array, scale: Array) -> Array:
        return _normalise(array, shift, scale)

    def stepper(self, rule: Any, parameters: MutableMapping[str, Array]) -> Any | None:
        """Updates all arrays in one compiled program that reuses their memory; also runs optax's optimizers."""
        from levelbench.frameworks.jax.optimizers import make_stepper

        return make_stepper(rule, self, parameters)

    def packer(self, arrays: Mapping[str, Array]) -> Any:
        return JaxPacker(arrays)

    def mean(self, scalars: Sequence[Array]) -> float:
        """The mean, accumulated in float64 on the host: joining on the device would compile for each count."""
        return float(np.mean(np.array(jax.device_get(list(scalars)), np.float64)))

    @contextmanager
    def drawing(self, draw: Draw) -> Iterator[None]:
        """Inside, draws derive from ``draw``, which may be traced: a compiled network takes it as an argument.

        Otherwise a draw would be a constant of the program, the same at each call.
        """
        before, self._traced = self._traced, (jax.random.fold_in(*draw), 0)
        try:
            yield
        finally:
            self._traced = before

    def draw(self) -> Draw:
        """The seed's key and the number of this draw, which an operator folds into the key."""
        if self._traced is not None:
            key, count = self._traced
            self._traced = key, count + 1
            return key, np.uint32(count)
        self._draws += 1
        return self._key, np.uint32(self._draws & 0xFFFFFFFF)

    def describe(self) -> dict[str, Any]:
        on_cpu = self.device.platform == "cpu"
        return {
            "name": "jax",
            "version": str(jax.__version__),
            "device": self._name if on_cpu else str(self.device.device_kind),
            # XLA's thread pool has as many threads as the process may use.
            "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "deterministic": on_cpu or "--xla_gpu_deterministic_ops=true" in os.environ.get("XLA_FLAGS", ""),
        }

    def clock(self, host: Clock = HOST) -> Clock:
        """A clock that waits for dispatched work, on the CPU too: JAX is asynchronous."""
        return DeviceClock(_Dispatched(self.device), host)

    def finish(self, arrays: Sequence[Array]) -> None:
        jax.block_until_ready(list(arrays))


@jax.jit
def _take(array: Array, indices: Array) -> Array:
    return array.at[indices].get(mode="promise_in_bounds")


@jax.jit
def _normalise(array: Array, shift: Array, scale: Array) -> Array:
    return (array.astype(jnp.float32) - shift) * scale


class _Dispatched:
    """A device for a :class:`DeviceClock`. JAX has no device barrier, but it lists the live arrays of a device."""

    def __init__(self, device: Device) -> None:
        self.name = str(device)
        self._platform = device.platform

    def synchronise(self) -> None:
        """Wait for all live arrays."""
        jax.block_until_ready(jax.live_arrays(self._platform))
