"""Calls of a compiled operator: its C structures for arrays of given specs, in which only addresses change.

The one idea: a call fills in addresses and nothing else. What is in use by one thread is not in the pool, so a second
thread, or a backward run by another one, makes a plan of its own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from levelbench.errors import CheckFailedError, LevelbenchError, UnsupportedError, UsageError
from levelbench.operators.custom import abi
from levelbench.operators.custom.definition import Spec, differentiable

__all__ = ["CPU", "CUDA", "Device", "Plan", "Pool", "check", "expect", "failure_of"]

CPU: Final = 1
CUDA: Final = 2
_MESSAGE_BYTES: Final = 2048
_ALIGNMENT: Final = 64
_MOST_KEYS: Final = 512

Device = tuple[int, int]
"""DLPack's device: its type and its number."""


def check(status: int, call: abi.Call, what: str) -> None:
    """Raise what the operator said, as :func:`failure_of` has it."""
    if status:
        raise failure_of(status, what, call.message.decode(errors="replace"))


def failure_of(status: int, what: str, said: str) -> LevelbenchError:
    """The error of a status of ``levelbench.h``.

    ``UnsupportedError`` for a type or a device that it is not written for, ``UsageError`` for inputs whose dtypes do
    not go together, ``CheckFailedError`` for what it threw.
    """
    if status == 3:
        return UsageError(what, said, "give inputs whose types go together")
    if status == 2:
        return UnsupportedError(what, said, "add the type to LEVELBENCH_OPERATOR, or convert the inputs")
    return CheckFailedError(what, f"it threw: {said}", "correct the operator or its inputs")


def expect(what: str, given: Sequence[Spec | None], wanted: Sequence[Spec]) -> None:
    """``UsageError`` for arrays that are not as wanted: C++ would read or write beyond their end.

    What is ``None`` is another's to fill in.
    """
    if len(given) != len(wanted):
        raise UsageError(what, f"there are {len(given)}, and {len(wanted)} are needed", "give one an output")
    for at, (each, spec) in enumerate(zip(given, wanted, strict=True)):
        if each is not None and each != spec:
            said = f"number {at} is {each.dtype}{list(each.shape)} for {spec.dtype}{list(spec.shape)}"
            raise UsageError(what, said, "give them the outputs' shapes and dtypes")


_SCRATCH = threading.local()


def _scratch(size: int) -> int:
    """The address of this thread's workspace, which grows to the largest that was asked for; aligned."""
    if getattr(_SCRATCH, "size", 0) < size:
        # The old one goes first: there need not be room for both.
        _SCRATCH.size, _SCRATCH.buffer = 0, None
        _SCRATCH.buffer = buffer = np.empty(size + _ALIGNMENT, np.uint8)
        start = buffer.__array_interface__["data"][0]
        _SCRATCH.address, _SCRATCH.size = start + -start % _ALIGNMENT, size
    return int(_SCRATCH.address)


class Plan:
    """The structures of a forward and of its backward. Addresses are plain integers; ``None`` where there is no array.

    ``workspace_bytes`` and ``backward_workspace_bytes`` are what the operator asks for; a caller may set them. On the
    CPU they are one piece of memory a thread; on a GPU the caller allocates them and passes their address.
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

    def expect_gradients(self, given: Sequence[Spec | None]) -> None:
        """``UsageError`` for gradients that C++ could not read as those of the outputs."""
        graded = [each if has else None for each, has in zip(given, self.graded, strict=False)]
        expect(f"the gradients of outputs of {self._title}", [*graded, *given[len(graded) :]], self.outputs)

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
        # Also where there is none: a plan serves forward and backward, and each has a workspace of its own size.
        self.call.workspace = _scratch(size) if size and workspace is None else workspace
        self.call.workspace_bytes = size
        if stream is not None:
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
