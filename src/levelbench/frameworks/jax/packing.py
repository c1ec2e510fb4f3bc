"""JAX's arrays as a flat one and back, each way one compiled program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from levelbench.distributed.packing import Packer

__all__ = ["JaxPacker"]


class JaxPacker(Packer):
    """One call instead of one for each array."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        super().__init__(arrays)
        self._joined = jax.jit(_joined)
        self._scaled = jax.jit(lambda parts, factor: _joined(parts) * factor)
        self._cut = jax.jit(self.layout.unpack)

    def pack(self, arrays: Mapping[str, Any], factor: float = 1.0) -> Any:
        """Joined, and multiplied."""
        parts = [arrays[name] for name in self.layout.shapes]
        return self._joined(parts) if factor == 1.0 else self._scaled(parts, factor)

    def unpack(self, flat: Any) -> dict[str, Any]:
        """New arrays, as JAX has no views."""
        return dict(self._cut(flat))


def _joined(parts: list[Any]) -> Any:
    return jnp.concatenate([jnp.ravel(each) for each in parts])
