"""Conversion between NumPy and JAX arrays, packed arrays, and JAX's devices.

JAX supports the types of ``ml_dtypes``, so an array keeps its type. 64-bit types are kept once JAX is configured for
them, which opening a backend does for the whole process.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array, Device
from numpy.typing import NDArray
from onnx import TensorProto, helper

from levelbench.distributed.packing import Packer
from levelbench.errors import UnsupportedError
from levelbench.measure.meters.base import Meter, Reading
from levelbench.operators.contract import DType

_SMALL = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn", "bfloat16")
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_NUMPY = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_DTYPES = frozenset(
    [np.dtype(name) for name in _NUMPY] + [np.dtype(getattr(ml_dtypes, name)) for name in (*_SMALL, *_FLOAT8)]
)


def device_of(name: str) -> Device:
    """JAX's device for ``cpu``, ``cuda`` or ``cuda:N``, which must be available."""
    kind, _, index = name.partition(":")
    return jax.local_devices(backend=kind)[int(index or 0)]


def numpy_dtype(code: int) -> DType:
    """The dtype for a ``TensorProto.DataType``; ``UnsupportedError`` if JAX does not have it."""
    found: np.dtype[Any] = np.dtype(helper.tensor_dtype_to_np_dtype(code))
    if found not in _DTYPES:
        name = TensorProto.DataType.Name(code)
        raise UnsupportedError(f"type {name} on jax", "JAX has no such type", "use another framework")
    return found


def from_numpy(host: NDArray[Any], device: Device) -> Array:
    """An array with the same type and values on ``device``; ``UnsupportedError`` for strings."""
    if host.dtype not in _DTYPES:
        raise UnsupportedError(f"an array of {host.dtype} on jax", "JAX has no such type", "use another framework")
    # On the CPU JAX may share the host array's memory; a copy keeps the JAX array from changing with it.
    return jax.device_put(host.copy(), device)


def to_numpy(array: Array) -> NDArray[Any]:
    """A copy on the host with the same type; waits until it is computed."""
    return np.array(array)


@cache
def is_differentiable(dtype: DType) -> bool:
    """Whether JAX differentiates with respect to this type: floating-point and complex types."""
    return bool(jax.numpy.issubdtype(dtype, np.inexact))


class JaxPacker(Packer):
    """Joins and splits arrays with one compiled program each."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        super().__init__(arrays)
        self._joined = jax.jit(_joined)
        self._scaled = jax.jit(lambda parts, factor: _joined(parts) * factor)
        self._cut = jax.jit(self.layout.unpack)

    def pack(self, arrays: Mapping[str, Array], factor: float = 1.0) -> Array:
        parts = [arrays[name] for name in self.layout.shapes]
        return self._joined(parts) if factor == 1.0 else self._scaled(parts, factor)

    def unpack(self, flat: Array) -> dict[str, Array]:
        """New arrays, because JAX has no views."""
        return dict(self._cut(flat))


def _joined(parts: list[Array]) -> Array:
    return jnp.concatenate([jnp.ravel(each) for each in parts])


class DeviceMemoryMeter(Meter):
    """``device.memory_stats()``: the peak since the process began, because JAX cannot reset it.

    It includes autotuning during compilation. A CPU does not count its memory.
    """

    name = "peak_memory"
    unit = "B"

    def __init__(self, device: Device) -> None:
        self._device = device

    def start(self) -> None:
        """Nothing to reset."""

    def stop(self) -> Reading:
        found = self._device.memory_stats() or {}
        if "peak_bytes_in_use" not in found:
            return Reading(self.name, self.unit, None, None, f"JAX does not count {self._device.platform} memory")
        return Reading(self.name, self.unit, float(found["peak_bytes_in_use"]), "memory_stats, never reset")
