"""Gradients in 16 bits: half precision and bfloat16."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from levelbench.distributed.compression.arrays import typed
from levelbench.distributed.compression.base import Compressor, Part, Payload
from levelbench.distributed.compression.draws import Key
from levelbench.errors import UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["CastCompressor"]

_LARGEST_HALF = 65504.0


@dataclass(frozen=True)
class CastCompressor(Compressor):
    """Each element rounded to the nearest of type ``kind``, ``float16`` or ``bfloat16``, ties to even.

    Half precision ends at 65504: what lies beyond ``most`` is sent as that, and error feedback keeps the rest. NumPy
    has no bfloat16, and there its bits travel (``uint16``); for them the communicator has no sum, so ``summed``, which
    lets it add payloads, raises ``UnsupportedError``.
    """

    kind: str = "float16"
    summed: bool = False
    most: float = _LARGEST_HALF

    def summable(self, ranks: int) -> CastCompressor:
        """With magnitudes of 65504 / (2 ranks) at most: no sum is infinite, whatever its additions round to."""
        return replace(self, most=_LARGEST_HALF / (2 * ranks)) if ranks > 1 else self

    def parts(self, size: int) -> tuple[Part, ...]:
        """The elements."""
        return (Part(size, self.kind),)

    def compress(self, flat: Array, key: Key) -> Payload:
        """Rounds through ``float32`` where the type is bfloat16, as PyTorch does."""
        xp = namespace(flat)
        if self.kind == "float16":
            return (typed(xp.clip(flat, -self.most, self.most), "float16"),)
        if hasattr(xp, "bfloat16"):
            return (typed(flat, "bfloat16"),)
        if self.summed:
            raise UnsupportedError(
                "a sum in bfloat16", "these arrays have no such type", "choose narrow=False, or another framework"
            )
        return (_bfloat16_bits(flat),)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """In the target's type."""
        (small,) = payload
        if small.dtype == np.uint16:
            small = (small.astype(np.uint32) << 16).view(np.float32)
        wide = namespace(target).astype(small, target.dtype)
        target += wide if factor == 1.0 else wide * factor
        return target


def _bfloat16_bits(flat: Array) -> Array:
    """The upper half of a NumPy ``float32``'s bits, rounded to the nearest, ties to even; a NaN stays one."""
    bits = np.asarray(flat, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(flat), (bits >> 16) | 0x40, rounded).astype(np.uint16)
