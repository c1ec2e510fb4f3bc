"""Operators that make tensors of shapes and numbers: constants, ranges, unit matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.frameworks.torch.arrays import from_numpy, torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, device_maker, maker, refuse
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@device_maker("Constant")
def _constant(node: OperatorNode, device: torch.device) -> Function:
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32)):
        if name in node:
            value: NDArray[Any] = np.asarray(node[name], dtype)
            break
    else:
        name = next((each for each in ("value_int", "value_ints", "value") if each in node), "")
        if not name:
            raise refuse(node, "it is neither a dense tensor nor a number")
        value = np.asarray(node[name])
    tensor = from_numpy(value.copy(), device)
    return lambda: tensor


@device_maker("ConstantOfShape")
def _constant_of_shape(node: OperatorNode, device: torch.device) -> Function:
    given = node.get("value")
    value = from_numpy(np.zeros(1, np.float32) if given is None else given.copy(), device).reshape(())

    def constant_of_shape(shape: NDArray[Any]) -> Tensor:
        return value.expand(shape.tolist()).clone()

    return constant_of_shape


@device_maker("Range")
def _range(node: OperatorNode, device: torch.device) -> Function:
    def arange(start: NDArray[Any], limit: NDArray[Any], delta: NDArray[Any]) -> Tensor:
        first, last, step = start.item(), limit.item(), delta.item()
        count = max(0, math.ceil((last - first) / step))
        dtype = from_numpy(np.asarray(start), torch.device("cpu")).dtype
        steps = torch.arange(count, device=device)
        return (steps.to(torch.float64) * step + first if dtype.is_floating_point else steps * step + first).to(dtype)

    return arange


@maker("EyeLike")
def _eye_like(node: OperatorNode) -> Function:
    diagonal, code = node["k"], node.get("dtype")
    dtype = None if code is None else torch_dtype(code)

    def eye_like(x: Tensor) -> Tensor:
        rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
        return (rows.unsqueeze(1) + diagonal == columns).to(x.dtype if dtype is None else dtype)

    return eye_like


@device_maker("MelWeightMatrix")
def _mel_weight_matrix(node: OperatorNode, device: torch.device) -> Function:
    dtype = torch_dtype(node["output_datatype"])

    def mel(bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Tensor:
        """Triangles, evenly spaced in mel = 2595 log10(1 + f / 700), over the bins of a spectrum (ONNX)."""
        count, spectrum = int(bins.item()), int(length.item()) // 2 + 1
        lowest, highest = (2595 * math.log10(1 + float(each.item()) / 700) for each in (low, high))
        steps = torch.arange(count + 2, device=device, dtype=torch.float64)
        mels = lowest + steps * ((highest - lowest) / (count + 2))
        edges = 700 * (torch.pow(10.0, mels / 2595) - 1)
        edges = torch.floor((int(length.item()) + 1) * edges / float(rate.item()))
        left, centre, right = edges[:-2], edges[1:-1], edges[2:]
        at = torch.arange(spectrum, device=device, dtype=torch.float64).unsqueeze(1)
        rising = torch.where(centre > left, (at - left) / (centre - left), 0.0)
        # Where a triangle has no left half, its peak is one.
        rising = torch.where((centre == left) & (at == centre), 1.0, rising)
        falling = (right - at) / (right - centre)
        weights = torch.where((at >= left) & (at <= centre), rising, 0.0)
        weights = torch.where((at > centre) & (at < right), falling, weights)
        return weights.to(dtype)

    return mel
