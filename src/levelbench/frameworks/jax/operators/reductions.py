"""Determinants, cumulative sums and products, Fourier transforms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.registry import maker, operator, table
from levelbench.frameworks.shared.operators import Host
from levelbench.operators.contract import DType, Function
from levelbench.operators.node import OperatorNode

table(Det=jnp.linalg.det)


@operator("CumSum", "CumProd")
def _cumulative(x: Array, axis: Host, *, node: OperatorNode, exclusive: int, reverse: int) -> Array:
    function, first = (lax.cumsum, 0) if node.op_type == "CumSum" else (lax.cumprod, 1)
    at = int(axis.item()) % x.ndim
    if exclusive:
        # Shift by one; the first element becomes the neutral one.
        edge = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=at), first)
        inner = lax.slice_in_dim(x, 1, None, axis=at) if reverse else lax.slice_in_dim(x, 0, -1, axis=at)
        x = jnp.concatenate([inner, edge] if reverse else [edge, inner], at)
    return function(x, axis=at, reverse=bool(reverse))


# DFT and STFT. ONNX stores complex numbers as pairs of reals along the last axis.


def _complex(x: Array) -> Array:
    wide = x if x.dtype.itemsize >= 4 else x.astype(jnp.float32)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _exact(x: Array) -> Array:
    """ONNX's tests of the forward transform were computed in 64 bits, where absent frequencies are closer to zero."""
    return x.astype(jnp.float64) if x.dtype.itemsize < 8 else x


def _pairs(x: Array, dtype: DType) -> Array:
    return jnp.stack([jnp.real(x), jnp.imag(x)], -1).astype(dtype)


@maker("DFT")
def _dft(node: OperatorNode) -> Function:
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])
    given = int(node.get("axis", -2))

    def dft(x: Array, length: Host | None = None, axis: Host | None = None) -> Array:
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


@operator("STFT")
def _stft(x: Array, step: Host, window: Array | None = None, length: Host | None = None, *, onesided: int) -> Array:
    # Exporters leave out the last axis of real signals.
    signal = x if x.ndim == 2 else _complex(x)
    size = int(length.item()) if length is not None else signal.shape[1] if window is None else window.shape[0]
    hop = int(step.item())
    frames = 1 + (signal.shape[1] - size) // hop
    cut = signal[:, np.arange(frames)[:, None] * hop + np.arange(size)]
    weighted = cut if window is None else cut * window
    if onesided and not jnp.iscomplexobj(weighted):
        return _pairs(jnp.fft.rfft(weighted, size, -1), x.dtype)
    whole = jnp.fft.fft(weighted, size, -1)
    return _pairs(whole[..., : size // 2 + 1] if onesided else whole, x.dtype)
