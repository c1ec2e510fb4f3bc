"""DFT and STFT. Complex numbers are pairs of reals along the last axis, as ONNX has them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _complex(x: Any) -> Any:
    wide = x if x.dtype.itemsize >= 4 else x.astype(jnp.float32)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _exact(x: Any) -> Any:
    """ONNX's tests of the forward transform were computed in 64 bits: a frequency that is absent is nearer to zero."""
    return x.astype(jnp.float64) if x.dtype.itemsize < 8 else x


def _pairs(x: Any, dtype: Any) -> Any:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


@maker("DFT")
def _dft(node: OperatorNode) -> Function:
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])
    given = int(node.get("axis", -2))

    def dft(x: Any, length: Any = None, axis: Any = None) -> Any:
        at = (given if axis is None else int(axis.item())) % x.ndim
        signal = _complex(x if inverse else _exact(x))
        if inverse and onesided:
            count = 2 * (x.shape[at] - 1) if length is None else int(length.item())
            return jnp.fft.irfft(signal, count, at)[..., None].astype(x.dtype)
        count = x.shape[at] if length is None else int(length.item())
        if inverse:
            return _pairs(jnp.fft.ifft(signal, count, at), x.dtype)
        if onesided and not jnp.iscomplexobj(signal):
            return _pairs(jnp.fft.rfft(signal, count, at), x.dtype)
        whole = jnp.fft.fft(signal, count, at)
        return _pairs(jnp.take(whole, np.arange(count // 2 + 1), at) if onesided else whole, x.dtype)

    return dft


@maker("STFT")
def _stft(node: OperatorNode) -> Function:
    onesided = bool(node["onesided"])

    def stft(x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
        signal = _complex(x)
        size = int(length.item()) if length is not None else signal.shape[1] if window is None else window.shape[0]
        hop = int(step.item())
        frames = 1 + (signal.shape[1] - size) // hop
        cut = signal[:, np.arange(frames)[:, None] * hop + np.arange(size)]
        weighted = cut if window is None else cut * window
        if onesided and not jnp.iscomplexobj(weighted):
            return _pairs(jnp.fft.rfft(weighted, size, -1), x.dtype)
        whole = jnp.fft.fft(weighted, size, -1)
        return _pairs(whole[..., : size // 2 + 1] if onesided else whole, x.dtype)

    return stft
