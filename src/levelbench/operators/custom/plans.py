"""Calls of a compiled operator: its C structures for arrays of given specs, in which only addresses change.

The one idea: a call fills in addresses and nothing else. What is in use by one thread is not in the pool, so a second
thread, or a backward run by another one, makes a plan of its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from levelbench.errors import CheckFailedError, UnsupportedError
from levelbench.operators.custom import abi
from levelbench.operators.custom.definition import Spec, differentiable

__all__ = ["CPU", "CUDA", "Device", "Plan", "Pool", "check"]

CPU: Final = 1
CUDA: Final = 2
_MESSAGE_BYTES: Final = 2048
_ALIGNMENT: Final = 64
_MOST_KEYS: Final = 512

Device = tuple[int, int]
"""DLPack's device: its type and its number."""


def check(status: int, call: abi.Call, what: str) -> None:
    """Raise what the operator said.

    ``UnsupportedError`` for a type or a device that it is not written for, ``CheckFailedError`` for what it threw.
    """
    if status == 0:
        return
    said = call.message.decode(errors="replace")
    if status == 2:
        raise UnsupportedError(what, said, "add the type to LEVELBENCH_OPERATOR, or convert the inputs")
    raise CheckFailedError(what, f"it threw: {said}", "correct the operator or its inputs")


class Plan:
    """The structures of a forward and of its backward. Addresses are plain integers; ``None`` where there is no array.

    ``workspace_bytes`` and ``backward_workspace_bytes`` are what the operator asked for. On the CPU the plan has them
    itself; on a GPU the caller allocates them and passes their address.
    """

    def __init__(self, title: str, inputs: Sequence[Spec], outputs: Sequence[Spec], device: Device = (CPU, 0)) -> None:
        self._title, self._device = title, device
        self.outputs = tuple(outputs)
        self.wanted = tuple(differentiable(each) for each in inputs)
        self.graded = tuple(differentiable(each) for each in outputs)
        self.workspace_bytes = self.backward_workspace_bytes = 0
        self._kept: list[Any] = []
        self._message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self.call = abi.Call(input_count=len(inputs), output_count=len(outputs), message_size=_MESSAGE_BYTES)
        self.call.message = ctypes.cast(self._message, ctypes.c_char_p)
        self._inputs = self._tensors("inputs", inputs)
        self._outputs = self._tensors("outputs", outputs)
        self._gradients = self._tensors("gradients", outputs, self.graded)
        self._input_gradients = self._tensors("input_gradients", inputs, self.wanted)
        self._address = ctypes.addressof(self.call)
        self._scratch: tuple[int, int] = (0, 0)

    def _tensors(self, field: str, specs: Sequence[Spec], present: Sequence[bool] | None = None) -> list[abi.Tensor]:
        """The structures, whose addresses of data are to be filled in; absent ones have rank -1."""
        array = (abi.Tensor * max(len(specs), 1))()
        for at, spec in enumerate(specs):
            shape = (ctypes.c_int64 * max(len(spec.shape), 1))(*spec.shape)
            rank = len(spec.shape) if present is None or present[at] else -1
            dtype = abi.data_type(spec.dtype)
            array[at] = abi.Tensor(None, *self._device, rank, dtype, shape, None, 0)
            self._kept.append(shape)
        self._kept.append(array)
        setattr(self.call, field, array)
        return [array[at] for at in range(len(specs))]

    def allocate(self, forward_bytes: int, backward_bytes: int) -> None:
        """Note the sizes of the workspaces and, on the CPU, make one that is large enough for either."""
        self.workspace_bytes, self.backward_workspace_bytes = forward_bytes, backward_bytes
        most = max(forward_bytes, backward_bytes)
        if most and self._device[0] == CPU:
            buffer = np.empty(most + _ALIGNMENT, np.uint8)
            start = buffer.__array_interface__["data"][0]
            self._scratch = (start + -start % _ALIGNMENT, most)
            self._kept.append(buffer)

    def forward(
        self,
        function: Callable[[int, int], int],
        handle: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int | None = None,
        stream: int | None = None,
    ) -> None:
        """Run the operator on arrays at these addresses."""
        for tensor, address in zip(self._inputs, inputs, strict=True):
            tensor.data = address
        for tensor, address in zip(self._outputs, outputs, strict=True):
            tensor.data = address
        self._lend(workspace, self.workspace_bytes, stream)
        if status := function(handle, self._address):
            check(status, self.call, f"forward of {self._title}")

    def backward(
        self,
        function: Callable[[int, int], int],
        handle: int,
        gradients: Sequence[int | None],
        inputs: Sequence[int],
        outputs: Sequence[int],
        input_gradients: Sequence[int | None],
        workspace: int | None = None,
        stream: int | None = None,
    ) -> None:
        """Run its backward on arrays at these addresses; those of gradients of inputs hold zeros."""
        groups = ((self._gradients, gradients), (self._inputs, inputs), (self._outputs, outputs))
        for tensors, addresses in (*groups, (self._input_gradients, input_gradients)):
            for tensor, address in zip(tensors, addresses, strict=True):
                tensor.data = address
        self._lend(workspace, self.backward_workspace_bytes, stream)
        if status := function(handle, self._address):
            check(status, self.call, f"backward of {self._title}")

    def _lend(self, workspace: int | None, size: int, stream: int | None) -> None:
        if size or stream is not None:
            self.call.workspace = self._scratch[0] if workspace is None else workspace
            self.call.workspace_bytes = size
            self.call.stream = stream


class Pool:
    """Plans that are not in use, by specs and device."""

    def __init__(self, make: Callable[[tuple[Spec, ...], Device], Plan]) -> None:
        self._make = make
        self._free: dict[tuple[tuple[Spec, ...], Device], list[Plan]] = {}

    def take(self, specs: tuple[Spec, ...], device: Device = (CPU, 0)) -> Plan:
        """A plan; give it back when the call is done."""
        try:
            # One operation of the interpreter: no two threads pop the same.
            return self._free[specs, device].pop()
        except (KeyError, IndexError):
            return self._make(specs, device)

    def give(self, specs: tuple[Spec, ...], plan: Plan, device: Device = (CPU, 0)) -> None:
        """Let others use it."""
        if len(self._free) > _MOST_KEYS:
            self._free.clear()
        self._free.setdefault((specs, device), []).append(plan)
