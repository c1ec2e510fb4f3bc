"""PyTorch's own account of an executor: its profiler's time of each type of operator, and its allocator's peak.

The profiler is a witness beside our clock, so it is asked as a whole: the network runs as it always does, each node
inside a named range, and what counts is the time that PyTorch's own operators (on a GPU its kernels) took within the
range, not that of the Python around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function

from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch.executor import TorchExecutor
from levelbench.measure.meters.base import Meter, Reading
from levelbench.networks.executor import Executor
from levelbench.networks.lowering import LoweredStep

__all__ = ["CudaMemoryMeter", "profile"]

_PREFIX = "levelbench node: "
_INFERENCE = "levelbench inference"
_MICRO = 1e-6


def profile(executor: Executor, inputs: Sequence[Tensor], repeats: int) -> tuple[str, dict[str, float]]:
    """The profiler's name, and the seconds of each type of operator in an inference: the median of ``repeats``.

    Raises ``UnsupportedError`` for a compiled executor and a module, whose operators are not the network's.
    """
    if not isinstance(executor, TorchExecutor) or executor.mode != "eager":
        raise UnsupportedError(
            f"torch.profiler in mode {executor.mode!r}", "its operators are not those of the network", "use mode eager"
        )
    network = executor.network
    # Not the bare functions: those may refuse, and what replaces them is not known here.
    lowered = executor.lower([each.name for each in network.outputs], bare=False)
    run = lowered.composed([_ranged(each) for each in lowered.steps])
    live = {**executor.parameters, **executor.buffers}
    arguments = (*inputs, *(live[name] for name in lowered.arrays))
    cuda = any(each.is_cuda for each in arguments)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with torch.no_grad():
        run(*arguments)
        with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
            for _ in range(repeats):
                with record_function(_INFERENCE):
                    run(*arguments)
            if cuda:
                torch.cuda.synchronize()
    return "torch.profiler", _medians(profiler.events(), cuda)


def _medians(events: Any, cuda: bool) -> dict[str, float]:
    """By type the median over the inferences, so that an interruption of one of them does not count."""
    turns: list[dict[str, float]] = []
    host = (each for each in events if each.device_type == torch.autograd.DeviceType.CPU)
    for event in sorted(host, key=lambda each: float(each.time_range.start)):
        if event.name == _INFERENCE:
            turns.append(defaultdict(float))
        elif event.name.startswith(_PREFIX) and turns:
            turns[-1][event.name.removeprefix(_PREFIX)] += _seconds(event, cuda)
    names = dict.fromkeys(name for turn in turns for name in turn)
    return {name: median(turn.get(name, 0.0) for turn in turns) for name in names}


def _ranged(step: LoweredStep) -> LoweredStep:
    """The step with its call inside a range that the profiler sees."""
    call: Callable[..., Any] = step.call
    name = _PREFIX + step.node.title

    def ranged(*inputs: Any) -> Any:
        with record_function(name):
            return call(*inputs)

    return replace(step, call=ranged)


def _seconds(event: Any, cuda: bool) -> float:
    """What PyTorch's operators within the range took; on a GPU what their kernels did."""
    if cuda:
        return float(event.device_time_total) * _MICRO
    return sum(float(each.cpu_time_total) for each in event.cpu_children) * _MICRO


class CudaMemoryMeter(Meter):
    """The most that PyTorch's allocator handed out on a device between ``start`` and ``stop``, in bytes.

    It counts tensors and workspaces, not what the allocator keeps in reserve, nor CUDA's own context.
    """

    name = "peak_memory"
    unit = "B"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def start(self) -> None:
        """Lower the mark to what is allocated now."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def stop(self) -> Reading:
        """The mark."""
        torch.cuda.synchronize(self._device)
        peak = float(torch.cuda.max_memory_allocated(self._device))
        return Reading(self.name, self.unit, peak, "torch.cuda.max_memory_allocated")
