"""The time of each operator or module of an executor, the profiler's times, algorithms, and the allocator's peak.

On a GPU, a host clock would time launches, and waiting after each operator would add overhead. So the device is kept
busy while work is launched; it then executes the queue without gaps, and events around each operator give its time. On
the CPU the host's clock is used. The profiler is an independent check: each node runs inside a named range, and only
the time of PyTorch's own operators (on a GPU, their kernels) within the range counts, not the Python around them.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch.executor import TorchExecutor
from levelbench.measure.clocks import HOST
from levelbench.measure.meters.base import Meter, Reading
from levelbench.networks.codegen import Lowered, LoweredStep
from levelbench.networks.executor import Executor, OperatorTime

_PREFIX = "levelbench node: "
_INFERENCE = "levelbench inference"
_MICRO = 1e-6


def profile(executor: Executor, inputs: Sequence[Tensor], repeats: int) -> tuple[str, dict[str, float]]:
    """The profiler's name, and the seconds per operator type in an inference: the median of ``repeats``.

    Raises ``UnsupportedError`` for a compiled executor or a module, whose operators are not those of a network.
    """
    if not isinstance(executor, TorchExecutor) or executor.mode != "eager":
        raise UnsupportedError(
            f"torch.profiler in mode {executor.mode!r}", "its operators are not those of the network", "use mode eager"
        )
    network = executor.network
    # Not the bare functions: one may refuse, and its fallback is not known here.
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
    """The median over the inferences per type, so that an interruption of one inference does not count."""
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
    """The step with its call inside a named profiler range."""
    call: Callable[..., Any] = step.call
    name = _PREFIX + step.node.title

    def ranged(*inputs: Any) -> Any:
        with record_function(name):
            return call(*inputs)

    return replace(step, call=ranged)


def _seconds(event: Any, cuda: bool) -> float:
    """The time of PyTorch's operators within the range; on a GPU, of their kernels."""
    if cuda:
        return float(event.device_time_total) * _MICRO
    return sum(float(each.cpu_time_total) for each in event.cpu_children) * _MICRO


# oneDNN and MKL print what they compute with, and the profiler lists the kernels of a GPU.
_MKL_ROUTINE = re.compile(r"MKL_VERBOSE (\w+)\(")
_BLOCKED = re.compile(r"src:.*?:blocked:(\w+)")
_MOST_KERNELS = 6


def chosen_algorithm(call: Callable[[], object], device: torch.device) -> tuple[str | None, str]:
    """What the libraries below PyTorch say that they compute ``call`` with; else ``None`` and the reason."""
    if device.type == "cuda":
        with torch.profiler.profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            call()
            torch.cuda.synchronize(device)
        kernels = [each.name for each in profiler.events() if each.device_type == torch.autograd.DeviceType.CUDA]
        return _listed(kernels), "" if kernels else "the profiler saw no kernel"
    mkldnn, mkl = torch.backends.mkldnn, torch.backends.mkl
    with ExitStack() as stack:
        lines = stack.enter_context(_printed())
        for library in (mkldnn, mkl):
            if library.is_available():
                stack.enter_context(library.verbose(library.VERBOSE_ON))
        call()
    named = [each for each in map(_named, lines) if each]
    reorders = named.count(_REORDER)
    parts = [each for each in named if each != _REORDER]
    if reorders:
        parts.append(f"{reorders} {_REORDER}{'s' * (reorders > 1)}")
    if parts:
        return _listed(parts), ""
    return None, "PyTorch's own kernels do not tell, and this call used neither oneDNN nor MKL"


_REORDER = "reorder"


def _listed(parts: Sequence[str]) -> str:
    """Each once, with its number if there are several."""
    counts = Counter(parts)
    shown = [name if count == 1 else f"{count} x {name}" for name, count in list(counts.items())[:_MOST_KERNELS]]
    rest = len(counts) - len(shown)
    return "; ".join([*shown, *([f"and {rest} others"] if rest else [])])


def _named(line: str) -> str:
    """What a line of oneDNN or MKL names: ``convolution jit:avx2 from aBcd8b``, ``SGEMM of MKL``; empty if nothing."""
    if found := _MKL_ROUTINE.match(line):
        return f"{found[1]} of MKL"
    words = line.strip().split(",")
    if words[0] != "onednn_verbose" or "exec" not in words or len(words) < words.index("exec") + 6:
        return ""
    _, primitive, implementation, direction, memory = words[words.index("exec") + 1 :][:5]
    if primitive == _REORDER:
        return _REORDER
    way = f" {direction}" if direction.startswith("backward") else ""
    blocked = _BLOCKED.search(memory)
    return f"{primitive} {implementation}{way}{f' from {blocked[1]}' if blocked else ''}"


@contextmanager
def _printed() -> Iterator[list[str]]:
    """Afterwards, the lines that C code printed inside, which do not appear on the standard output."""
    lines: list[str] = []
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield lines
        finally:
            flush(None)
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        lines += file.read().decode(errors="replace").splitlines()


class CudaMemoryMeter(Meter):
    """The peak memory that PyTorch's allocator handed out on a device between ``start`` and ``stop``, in bytes.

    It includes tensors and workspaces, but neither the allocator's cache nor the CUDA context.
    """

    name = "peak_memory"
    unit = "B"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)

    def stop(self) -> Reading:
        torch.cuda.synchronize(self._device)
        peak = float(torch.cuda.max_memory_allocated(self._device))
        return Reading(self.name, self.unit, peak, "torch.cuda.max_memory_allocated")


_CYCLES_PER_S = 2e9
"""At least a GPU's clock rate, so that the device is busy for at least the requested time."""

Span = tuple[Any, Any]


class Marks:
    """Time marks in the work queue of a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None

    def mark(self) -> Any:
        """A mark after everything that has been launched so far."""
        if self._device is None:
            return HOST.now_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def finish(self) -> None:
        """Wait until the device has passed all marks."""
        if self._device is not None:
            torch.cuda.synchronize(self._device)

    @staticmethod
    def seconds(span: Span) -> float:
        """The time between two marks; the device must have passed both."""
        start, end = span
        return (end - start) * 1e-9 if isinstance(start, int) else float(start.elapsed_time(end)) * 1e-3

    def repeated(self, run: Callable[[], list[Span]], repeats: int) -> list[list[float]]:
        """The seconds of all spans that ``run`` returns, ``repeats`` times, with the device kept busy meanwhile."""
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
    """One entry per step, including those computed on the host, each with ``repeats`` times in seconds."""
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


class BackwardMarks:
    """Marks around autograd's nodes, by the operator whose call made them.

    The nodes of a call are those that its results lead to and that no earlier call has made. Hooks run right before and
    right after a node, which the engine executes one at a time.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._seen: set[Any] = set()
        self._started: list[Any] = []
        self.spans: list[tuple[int, Span]] = []

    def claim(self, owner: int, found: Any) -> None:
        """Mark the nodes behind ``found``, a tensor or a tuple of them, as those of ``owner``."""
        made = found if isinstance(found, tuple | list) else (found,)
        waiting = [each.grad_fn for each in made if isinstance(each, Tensor) and each.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            # A leaf's node does not run: its gradient is returned.
            if node is None or node in self._seen or node.name().endswith("AccumulateGrad"):
                continue
            self._seen.add(node)
            node.register_prehook(lambda _: self._started.append(self._marks.mark()))
            node.register_hook(lambda *_, owner=owner: self._end(owner))
            waiting.extend(each for each, _ in node.next_functions)

    def _end(self, owner: int) -> None:
        self.spans.append((owner, (self._started.pop(), self._marks.mark())))


Collected = tuple[list[OperatorTime], list[OperatorTime]]


def network_step_times(
    lowered: Lowered,
    inputs: Sequence[Tensor],
    arrays: Sequence[Tensor],
    leaves: Sequence[Tensor],
    device: torch.device,
    repeats: int,
) -> Collected:
    """The times of the forward and backward passes by step of ``lowered``, whose first output is the loss."""
    marks = Marks(device)

    def run() -> tuple[list[tuple[int, Span]], list[tuple[int, Span]]]:
        forward: list[tuple[int, Span]] = []
        backward = BackwardMarks(marks)

        def between(at: int, step: LoweredStep) -> LoweredStep:
            def call(*given: Any) -> Any:
                start = marks.mark()
                found = step.call(*given)
                forward.append((at, (start, marks.mark())))
                backward.claim(at, found)
                return found

            return replace(step, call=call)

        function = lowered.composed([between(at, each) for at, each in enumerate(lowered.steps)])
        loss = function(*inputs, *arrays)[0]
        torch.autograd.grad(loss, leaves, allow_unused=True)
        return forward, backward.spans

    named = [(step.index, step.node.title, next(filter(None, step.outputs), "")) for step in lowered.steps]
    return _collected(marks, run, named, repeats)


def module_step_times(
    module: torch.nn.Module,
    loss: Callable[[], Tensor],
    leaves: Sequence[Tensor],
    device: torch.device,
    repeats: int,
) -> Collected:
    """The times of the forward and backward passes by innermost module, by path; ``loss`` runs the forward pass."""
    marks = Marks(device)
    leaf_modules = [(path, each) for path, each in module.named_modules() if next(each.children(), None) is None]

    def run() -> tuple[list[tuple[int, Span]], list[tuple[int, Span]]]:
        forward: list[tuple[int, Span]] = []
        started: list[Any] = []
        backward, handles = BackwardMarks(marks), []
        for at, (_, each) in enumerate(leaf_modules):

            def end(_module: object, _inputs: object, found: Any, at: int = at) -> None:
                forward.append((at, (started.pop(), marks.mark())))
                backward.claim(at, found)

            handles.append(each.register_forward_pre_hook(lambda *_: started.append(marks.mark())))
            handles.append(each.register_forward_hook(end))
        try:
            torch.autograd.grad(loss(), leaves, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
        return forward, backward.spans

    return _collected(marks, run, [(-1, type(each).__name__, path) for path, each in leaf_modules], repeats)


def _collected(
    marks: Marks,
    run: Callable[[], tuple[list[tuple[int, Span]], list[tuple[int, Span]]]],
    named: Sequence[tuple[int, str, str]],
    repeats: int,
) -> Collected:
    """The sums by owner over each of ``repeats`` runs, after one to warm up; ``named`` describes the owners."""
    owners: list[tuple[int, int]] = []

    def spans() -> list[Span]:
        forward, backward = run()
        owners[:] = [(0, at) for at, _ in forward] + [(1, at) for at, _ in backward]
        return [span for _, span in (*forward, *backward)]

    runs = marks.repeated(spans, repeats)
    found: Collected = [], []
    for which, times in enumerate(found):
        sums = {at: [0.0] * repeats for pass_, at in dict.fromkeys(owners) if pass_ == which}
        for repeat, seconds in enumerate(runs):
            for (pass_, at), value in zip(owners, seconds, strict=True):
                if pass_ == which:
                    sums[at][repeat] += value
        times.extend(OperatorTime(*named[at], tuple(each)) for at, each in sorted(sums.items()))
    return found


def module_times(
    module: torch.nn.Module, call: Callable[[], object], device: torch.device, repeats: int
) -> list[OperatorTime]:
    """One entry for each innermost module that ``call`` runs, by path; one that runs several times has the sum.

    What a module does outside its submodules, such as calls of ``torch.nn.functional``, is not included.
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


class _Dtypes(TorchDispatchMode):
    """Counts the calls of operators that PyTorch's counter knows, by the dtype of their first tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._overloadpacket in flop_registry:
            first = next((each for each in args if isinstance(each, Tensor)), None)
            self.counts[str(first.dtype).removeprefix("torch.") if first is not None else ""] += 1
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> tuple[float, str] | None:
    """The floating-point operations of ``work`` by PyTorch's counter, and the dtype of most counted operators."""
    with _Dtypes() as seen, FlopCounterMode(display=False) as counter:
        work()
    count = float(counter.get_total_flops())
    return (count, seen.counts.most_common(1)[0][0]) if count > 0 and seen.counts else None
