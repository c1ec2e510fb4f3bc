"""Executes a network on PyTorch's eager mode, with autograd's gradients and tensors that never leave the device.

The one idea: the network is turned once into a list of closures over live leaf tensors, so a step is the same calls
that a hand-written module makes, without the module's bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.errors import DefinitionError
from levelbench.measure.ceilings import GemmMaker
from levelbench.measure.clocks import HOST, Clock, DeviceClock
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.network import Network, Node

__all__ = ["TorchBackend", "TorchExecutor", "gemm", "lacking_device"]


def lacking_device(device: str) -> str | None:
    """``None`` if torch can use ``device``, else the reason."""
    try:
        kind = torch.device(device)
    except RuntimeError:
        return f"PyTorch knows no device {device!r}"
    if kind.type == "cpu":
        return None
    if kind.type != "cuda":
        return f"this adapter runs on cpu and cuda, not on {kind.type}"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return None if (kind.index or 0) < count else f"PyTorch sees {count} CUDA devices here"


def gemm(dtype: str) -> GemmMaker:
    """Makes the product of two square matrices of ``dtype`` on the CPU: 2 n^3 operations, done when it returns."""

    def make(n: int) -> tuple[Callable[[], object], float]:
        a, b = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(2))
        return lambda: a @ b, 2.0 * n**3

    return make


def _symmetric(pads: Sequence[int]) -> tuple[int, int]:
    top, left, bottom, right = pads
    if (top, left) != (bottom, right):
        raise DefinitionError("Conv on torch", f"pads {tuple(pads)} differ at the two ends", "pad symmetrically")
    return top, left


def _closure(node: Node, leaves: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
    """The node as a function of its first input; its parameters are bound."""
    parameters = [leaves[name] for name in node.inputs[1:]]
    attributes = node.attributes
    match node.operator:
        case "Gemm":
            weight, bias = parameters
            return lambda x: functional.linear(x, weight, bias)
        case "Conv":
            weight, bias = parameters
            stride, padding = tuple(attributes["strides"]), _symmetric(attributes["pads"])
            return lambda x: functional.conv2d(x, weight, bias, stride, padding)
        case "MaxPool":
            kernel, stride = tuple(attributes["kernel_shape"]), tuple(attributes["strides"])
            return lambda x: functional.max_pool2d(x, kernel, stride)
        case "Relu":
            return torch.relu
        case "Flatten":
            return lambda x: x.flatten(1)
    raise DefinitionError(f"operator {node.operator!r} on torch", "it is not there yet", "use another framework")


class TorchExecutor(Executor):
    """A chain of nodes over leaf tensors; ``parameters`` are the same storage, detached, to be updated in place."""

    def __init__(self, network: Network, parameters: Mapping[str, NDArray[Any]], device: torch.device) -> None:
        value = network.input
        for node in network.nodes:
            if node.inputs[0] != value:
                raise DefinitionError(f"network {network.name!r} on torch", "it is no chain of nodes", "use numpy")
            value = node.output
        # The copy keeps the caller's array out of reach of in-place updates.
        leaves = {name: torch.tensor(array, device=device).requires_grad_() for name, array in parameters.items()}
        self._names = list(leaves)
        self._leaves = list(leaves.values())
        self._chain = [_closure(node, leaves) for node in network.nodes]
        self._loss: Tensor | None = None
        self.parameters = _Live({name: leaf.detach() for name, leaf in leaves.items()})

    def infer(self, inputs: Tensor) -> Tensor:
        """Logits of shape (batch, classes)."""
        with torch.no_grad():
            return self._run(inputs)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The mean loss, detached; the graph is kept for :meth:`backward`."""
        self._loss = functional.cross_entropy(self._run(inputs), labels)
        return self._loss.detach()

    def backward(self) -> Mapping[str, Tensor]:
        """Autograd's gradients of the last forward."""
        loss, self._loss = self._loss, None
        return dict(zip(self._names, torch.autograd.grad(loss, self._leaves), strict=True))

    def _run(self, x: Tensor) -> Tensor:
        for function in self._chain:
            x = function(x)
        return x


class _Live(dict[str, Any]):
    """Tensors that share the leaves' storage; putting another one in a place copies its values there."""

    def __setitem__(self, name: str, value: Tensor) -> None:
        live = self[name]
        if value is not live:
            live.copy_(value)


class TorchBackend(Backend):
    """PyTorch on one device."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(device)

    def executor(self, network: Network, parameters: Mapping[str, NDArray[np.float32]]) -> Executor:
        """An eager executor."""
        return TorchExecutor(network, parameters, self._device)

    def array(self, host: NDArray[Any]) -> Tensor:
        """A tensor on the device (on the CPU it may share the host's memory)."""
        return torch.from_numpy(np.require(host, requirements=["C", "W"])).to(self._device)

    def host(self, array: Tensor) -> NDArray[Any]:
        """A copy on the host."""
        copy: NDArray[Any] = array.detach().cpu().numpy().copy()
        return copy

    def take(self, array: Tensor, indices: Tensor) -> Tensor:
        """Rows at ``indices``."""
        return array.index_select(0, indices)

    def mean(self, scalars: Sequence[Tensor]) -> float:
        """The mean, accumulated in float64 on the device: one transfer."""
        return float(torch.stack(list(scalars)).double().mean())

    def seed(self, seed: int) -> None:
        """Seed the generators of all devices."""
        torch.manual_seed(seed)

    def describe(self) -> dict[str, Any]:
        """Version, device, threads, and whether equal seeds give equal bits."""
        return {
            "name": "torch",
            "version": str(torch.__version__),
            "device": str(self._device) if self._device.type == "cpu" else torch.cuda.get_device_name(self._device),
            "threads": torch.get_num_threads(),
            "deterministic": self._device.type == "cpu" or torch.are_deterministic_algorithms_enabled(),
        }

    def clock(self, host: Clock = HOST) -> Clock:
        """The host's clock on the CPU, one that waits for the device otherwise."""
        return host if self._device.type == "cpu" else DeviceClock(_Cuda(self._device), host)


class _Cuda:
    """A CUDA device as a clock sees it."""

    def __init__(self, device: torch.device) -> None:
        self.name = str(device)
        self._device = device

    def synchronise(self) -> None:
        """Wait for all streams of the device."""
        torch.cuda.synchronize(self._device)
