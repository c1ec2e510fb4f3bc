"""The time of each operator or module: by the host's clock on the CPU, between CUDA events on a GPU.

On a GPU a clock on the host would time launches, and a wait after each operator its overhead. So the device is kept
busy for as long as launching takes; it then works through what has piled up without a gap, and the events around each
operator say how long that one took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from levelbench.measure.clocks import HOST
from levelbench.networks.executor import OperatorTime
from levelbench.networks.lowering import Lowered, LoweredStep

__all__ = ["Marks", "module_times", "operator_times"]

_CYCLES_PER_S = 2e9
"""As many as a GPU's clock makes, or more, so that the device is busy for as long as it is asked to, or longer."""

Span = tuple[Any, Any]


class Marks:
    """Points in the work of a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None

    def mark(self) -> Any:
        """The point between what was launched and what will be."""
        if self._device is None:
            return HOST.now_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def finish(self) -> None:
        """Wait until all points have been passed."""
        if self._device is not None:
            torch.cuda.synchronize(self._device)

    @staticmethod
    def seconds(span: Span) -> float:
        """From the first point to the second; both must have been passed."""
        start, end = span
        return (end - start) * 1e-9 if isinstance(start, int) else float(start.elapsed_time(end)) * 1e-3

    def repeated(self, run: Callable[[], list[Span]], repeats: int) -> list[list[float]]:
        """The seconds of all spans that ``run`` answers with, ``repeats`` times, each on a device that lags behind."""
        before = HOST.now_ns()
        run()
        launching_s = (HOST.now_ns() - before) * 1e-9
        self.finish()
        found = []
        for _ in range(repeats):
            if self._device is not None:
                with torch.cuda.device(self._device):
                    torch.cuda._sleep(int(2 * launching_s * _CYCLES_PER_S))
            spans = run()
            self.finish()
            found.append([self.seconds(each) for each in spans])
        return found


def operator_times(
    lowered: Lowered, inputs: Sequence[Tensor], arrays: Sequence[Tensor], device: torch.device, repeats: int
) -> list[OperatorTime]:
    """One entry a step, those that are computed on the host among them; ``repeats`` times in seconds in each."""
    marks = Marks(device)
    spans: list[Span] = []

    def between(step: LoweredStep) -> LoweredStep:
        def call(*inputs: Any) -> Any:
            start = marks.mark()
            found = step.call(*inputs)
            spans.append((start, marks.mark()))
            return found

        return replace(step, call=call)

    function = lowered.composed([between(each) for each in lowered.steps])

    def run() -> list[Span]:
        spans.clear()
        function(*inputs, *arrays)
        return list(spans)

    runs = marks.repeated(run, repeats)
    return [
        OperatorTime(step.index, step.node.title, next(filter(None, step.outputs), ""), tuple(each))
        for step, each in zip(lowered.steps, zip(*runs, strict=True), strict=True)
    ]


def module_times(
    module: torch.nn.Module, call: Callable[[], object], device: torch.device, repeats: int
) -> list[OperatorTime]:
    """One entry for each innermost module that ``call`` runs, by its path; one that runs often has the sum of it.

    What a module does between its parts, as with functions of ``torch.nn.functional``, is in none of them.
    """
    marks = Marks(device)
    spans: list[tuple[str, Span]] = []
    started: list[Any] = []
    titles = {path: type(each).__name__ for path, each in module.named_modules() if next(each.children(), None) is None}
    handles = []
    for path in titles:

        def end(*_: object, path: str = path) -> None:
            spans.append((path, (started.pop(), marks.mark())))

        each = module.get_submodule(path)
        handles.append(each.register_forward_pre_hook(lambda *_: started.append(marks.mark())))
        handles.append(each.register_forward_hook(end))

    def run() -> list[Span]:
        spans.clear()
        call()
        return [span for _, span in spans]

    try:
        runs = marks.repeated(run, repeats)
    finally:
        for handle in handles:
            handle.remove()
    paths = [path for path, _ in spans]
    return [
        OperatorTime(-1, titles[path], path, tuple(_sum_at(each, paths, path) for each in runs))
        for path in dict.fromkeys(paths)
    ]


def _sum_at(times: Sequence[float], paths: Sequence[str], path: str) -> float:
    return sum(time for time, here in zip(times, paths, strict=True) if here == path)
