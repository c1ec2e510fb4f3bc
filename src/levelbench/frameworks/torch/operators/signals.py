"""Signals: discrete Fourier transforms, the short-time one, and windows.

The one idea: ONNX writes a complex number as two last elements, which PyTorch views as complex without a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, device_maker, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _signal(x: Tensor) -> Tensor:
    """Real numbers, or complex ones, without the last axis."""
    return x.squeeze(-1) if x.shape[-1] == 1 else torch.view_as_complex(x.contiguous())


def _transform(signal: Tensor, length: int, axis: int, onesided: bool) -> Tensor:
    if not onesided:
        return torch.view_as_real(torch.fft.fft(signal, length, axis))
    if not signal.is_complex():
        return torch.view_as_real(torch.fft.rfft(signal, length, axis))
    return torch.view_as_real(torch.fft.fft(signal, length, axis).narrow(axis, 0, length // 2 + 1))


@maker("DFT")
def _dft(node: OperatorNode) -> Function:
    given, inverse, onesided = node.get("axis"), bool(node["inverse"]), bool(node["onesided"])

    def dft(x: Tensor, length: NDArray[Any] | None = None, axis: NDArray[Any] | None = None) -> Tensor:
        at = (int(np.asarray(axis).item()) if axis is not None else -2 if given is None else given) % x.dim()
        signal = _signal(x)
        size = x.shape[at] if length is None else int(np.asarray(length).item())
        if not inverse:
            return _transform(signal, size, at, onesided)
        if not onesided:
            return torch.view_as_real(torch.fft.ifft(signal, size, at))
        # One side of a spectrum: of an even number of real values, unless it is said.
        size = 2 * (x.shape[at] - 1) if length is None else size
        return torch.fft.irfft(signal, size, at).unsqueeze(-1)

    return dft


@maker("STFT")
def _stft(node: OperatorNode) -> Function:
    onesided = bool(node["onesided"])

    def stft(
        x: Tensor, step: NDArray[Any], window: Tensor | None = None, frame_length: NDArray[Any] | None = None
    ) -> Tensor:
        if frame_length is not None:
            size = int(np.asarray(frame_length).item())
        else:
            size = x.shape[1] if window is None else window.shape[0]
        # (batch, frames, size), as a view.
        frames = _signal(x).unfold(1, size, int(np.asarray(step).item()))
        return _transform(frames if window is None else frames * window, size, 2, onesided)

    return stft


@device_maker("HannWindow")
def _hann_window(node: OperatorNode, device: torch.device) -> Function:
    return _window(node, device, torch.hann_window)


@device_maker("BlackmanWindow")
def _blackman_window(node: OperatorNode, device: torch.device) -> Function:
    return _window(node, device, torch.blackman_window)


@device_maker("HammingWindow")
def _hamming_window(node: OperatorNode, device: torch.device) -> Function:
    # ONNX has Hamming's own 25/46, PyTorch's default is rounded to 0.54.
    return _window(node, device, lambda *size, **options: torch.hamming_window(*size, 25 / 46, 21 / 46, **options))


def _window(node: OperatorNode, device: torch.device, function: Function) -> Function:
    periodic, dtype = bool(node["periodic"]), torch_dtype(node["output_datatype"])

    def window(size: NDArray[Any]) -> Tensor:
        return function(int(np.asarray(size).item()), periodic, dtype=torch.float64, device=device).to(dtype)

    return window
