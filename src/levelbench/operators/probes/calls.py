"""Probes that call an operator often: whether every call gives the same, keeps memory, or disturbs another one.

Their budgets are calls, not seconds, so that no verdict depends on how busy the machine is.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from levelbench.checks.arrays import Host, is_float
from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.operators.custom.library import is_foreign
from levelbench.operators.probes.forward import repeatability
from levelbench.operators.probes.inputs import describe, large_inputs
from levelbench.operators.probes.judging import Setting
from levelbench.operators.probes.memory import differs, gradients_differ, unit_gradients
from levelbench.operators.probes.subject import HostOperator, Inputs, Values, attempt, quiet

_BACKWARDS = 256
_LARGE_CALLS = 100


def every_call(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """The outputs of ``runs`` equal calls, those of 100 calls on large inputs, and the gradients of 256 calls.

    Another order of summation is worth knowing and no fault; a larger difference is one, in whichever call it is.
    """
    subject = setting.subject
    if not subject.deterministic or setting.runs < 2:
        return
    yield _repeated(subject, inputs, setting.runs)
    if subject.ours:
        for _, large in large_inputs(inputs, subject.fixed, random):
            if attempt(subject.forward, large).worked:
                yield _repeated(subject, large, min(setting.runs, _LARGE_CALLS))
    if subject.pull is not None and subject.ours:
        yield from _repeated_gradients(subject, inputs, min(setting.runs, _BACKWARDS))


def _repeated(subject: HostOperator, inputs: Inputs, runs: int) -> Finding:
    """The worst of ``runs`` calls on the same inputs."""
    case = f"{runs} calls on {describe(inputs)}"
    faults: list[tuple[int, str]] = []

    def watched(call: int, outputs: Values, base: Values) -> None:
        if not faults and (fault := differs(subject, inputs, outputs, base)):
            faults.append((call, fault))

    found = repeatability(subject, inputs, runs=runs, watch=watched)
    if faults:
        call, fault = faults[0]
        return failed(f"{runs - found.identical} of {runs} equal calls differ, first call {call}: {fault}", case=case)
    if found.bitwise:
        return passed("bit for bit", case=case)
    most, where = found.worst()
    says = f"{found.identical} of {found.runs} calls agree bit for bit, the others within {found.ulp:.3g} ULP"
    return noted(f"{says}; the largest variance is {most:.2g}, at {where}", case=case)


def _repeated_gradients(subject: HostOperator, inputs: Inputs, runs: int) -> Iterator[Finding]:
    given = unit_gradients(subject.forward(inputs))
    base = attempt(subject.vjp, given, inputs)
    if not base.worked:
        return
    case = f"{runs} backwards on {describe(inputs)}"
    for call in range(1, runs):
        found = attempt(subject.vjp, given, inputs)
        fault = (
            gradients_differ(subject, inputs, found.value, base.value) if found.worked else f"it raises {found.error}"
        )
        if fault:
            yield failed(f"equal backwards differ, first call {call}: {fault}", case=case)
            return
    yield passed(case=case)


# Calls between a forward and its backward.


def state_of_backward(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """A backward must not depend on calls since its forward, nor change outputs or what earlier backwards returned."""
    subject = setting.subject
    if subject.begin is None or subject.pull is None or not subject.deterministic or not subject.ours:
        return
    other = _mirrored(inputs, subject.fixed)
    given = unit_gradients(subject.forward(inputs))
    base = attempt(subject.vjp, given, inputs)
    if not base.worked:
        yield not_tried(f"the backward raises {base.error}")
        return
    with quiet():
        outputs, back = subject.begin(subject.native(inputs))
        before = [None if each is None else each.copy() for each in subject.hosted(outputs)]
        attempt(subject.forward, other)
        second = attempt(subject.begin, subject.native(other))
        native = [None if each is None else subject.to_native(each.copy()) for each in given]
        gradients = back(native)
        kept = subject.hosted(gradients if isinstance(gradients, tuple | list) else (gradients,))
        kept = tuple(None if each is None else each.copy() for each in kept)
        after = subject.hosted(outputs)
        if second.worked:
            attempt(second.value[1], [None if each is None else subject.to_native(-2 * each) for each in given])
        late = subject.hosted(gradients if isinstance(gradients, tuple | list) else (gradients,))
    if fault := gradients_differ(subject, inputs, kept, base.value):
        yield failed(f"a call between forward and backward changes the gradient: {fault}")
    elif any(_bytes(a) != _bytes(b) for a, b in zip(before, after, strict=True)):
        yield failed("the backward changes an output in place")
    elif any(_bytes(a) != _bytes(b) for a, b in zip(kept, late, strict=True)):
        yield failed("the gradient of one backward is overwritten by the next")
    else:
        yield passed("calls in between change nothing")


def _mirrored(inputs: Inputs, fixed: frozenset[int]) -> Inputs:
    """Other values of the same kind in the same shapes: in the opposite order, and twice as large if floating-point."""
    return [
        value
        if value is None or at in fixed or not is_float(value.dtype)
        else np.ascontiguousarray(2 * np.flip(value)).astype(value.dtype)
        for at, value in enumerate(inputs)
    ]


def _bytes(value: Host | None) -> bytes:
    return b"" if value is None else value.tobytes()


# What calls leave behind.


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *(
                "arena",
                "ordblks",
                "smblks",
                "hblks",
                "hblkhd",
                "usmblks",
                "fsmblks",
                "uordblks",
                "fordblks",
                "keepcost",
            ),
        )
    )


def _malloc_reader() -> Callable[[], int] | None:
    """Reads how many bytes of the C library's memory are in use; ``None`` without glibc."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    function.restype = _Mallinfo

    def read() -> int:
        found = function()
        return int(found.uordblks + found.hblkhd)

    return read


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


_WARM, _WINDOW, _WINDOWS = 50, 100, 3


def leaks(setting: Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    """Memory, Python objects, files and threads after 350 calls: what grows in each hundred is never given back."""
    subject = setting.subject
    if not subject.ours:
        return
    native = subject.native(inputs)
    finish = subject.backend.finish if subject.backend is not None else lambda _: None

    base = subject.forward(inputs)
    faults: list[str] = []

    def forward() -> None:
        outputs = subject.outputs(native)
        finish([each for each in outputs if each is not None])
        if subject.deterministic and not faults and (fault := differs(subject, inputs, subject.hosted(outputs), base)):
            faults.append(fault)

    found = _leak("forward", forward)
    yield found if found.status == "failed" or not faults else failed(f"a rare call differs: {faults[0]}")
    if subject.pull is None:
        return
    given = unit_gradients(base)
    slopes = [None if each is None else subject.to_native(each) for each in given]
    pull = subject.pull
    if not attempt(subject.vjp, given, inputs).worked:
        return

    def backward() -> None:
        with quiet():
            found = pull(slopes, native)
        finish([each for each in (found if isinstance(found, tuple | list) else (found,)) if each is not None])

    yield _leak("backward", backward)


def _leak(name: str, call: Callable[[], None]) -> Finding:
    """Growth in each of three windows of calls, by at least 8 bytes or half an object a call.

    What the calls made is collected at the end of each window. Four looks are taken, each only where the one before saw
    growth: in most windows, since other threads may hide a leak by what they free meanwhile; then in all of them; and
    both again with everything collected, which takes a second where a million objects are alive.
    """
    for _ in range(_WARM):
        call()
    fault = None
    for young, most in itertools.product((True, False), (True, False)):
        fault = _grown(call, young=young, most=most)
        if fault is None:
            return passed(f"{name}: nothing grows in {_WARM + _WINDOWS * _WINDOW} calls")
    return failed(f"the {name} leaks {fault} a call", "free what a call allocates before it returns")


def _grown(call: Callable[[], None], *, young: bool, most: bool) -> str | None:
    """What grows in each window, or in ``most`` of them, and by how much a call."""
    malloc = _malloc_reader()
    measures: dict[str, tuple[Callable[[], int], float]] = {
        "Python objects": (sys.getallocatedblocks, 0.5),
        "open files": (_descriptors, 0.05),
        "threads": (threading.active_count, 0.05),
    }
    if malloc is not None:
        measures = {"bytes": (malloc, 8.0), **measures}
    readings: list[list[int]] = []
    with _collecting_only_here():
        for _ in range(_WINDOWS + 1):
            gc.collect(1 if young else 2)
            readings.append([read() for read, _ in measures.values()])
            if len(readings) <= _WINDOWS:
                for _ in range(_WINDOW):
                    call()
    for at, (what, (_, least)) in enumerate(measures.items()):
        grown = sorted(second[at] - first[at] for first, second in pairwise(readings))
        if (least_grown := grown[1 if most else 0]) >= least * _WINDOW:
            return f"{least_grown / _WINDOW:.3g} {what}"
    return None


@contextmanager
def _collecting_only_here() -> Iterator[None]:
    """No garbage collection by itself, which would move new objects out of reach of a quick one."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


# Calls at the same time.


_SWITCH_S = 1e-5
_THREADS, _ROUNDS = 4, 50
_WAIT_S = 2.0
_MOST_STEPS = 200


def threads(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Calls at the same time: state that calls share, such as a static buffer, and inputs changed and put back.

    On other inputs of the same shapes, and forwards on the same. Once with a call on another thread after steps of the
    operator's own Python code, so that no shared state goes unseen by chance, and once with four threads.
    """
    subject = setting.subject
    if not subject.ours or not subject.deterministic:
        return
    cases = [inputs, _mirrored(inputs, subject.fixed)]
    wanted = [attempt(subject.forward, each) for each in cases]
    if not all(each.worked for each in wanted):
        yield not_tried("it does not accept other values")
        return
    jobs: list[Callable[[int], str | None]] = [
        lambda at: differs(subject, cases[at], subject.forward(cases[at]), wanted[at].value)
    ]
    slopes = [unit_gradients(each.value) for each in wanted]
    slopes[1] = [None if each is None else -2 * each for each in slopes[1]]
    gradients = [attempt(subject.vjp, slope, each) for slope, each in zip(slopes, cases, strict=True)]
    if subject.pull is not None and all(each.worked for each in gradients):
        jobs.append(
            lambda at: gradients_differ(subject, cases[at], subject.vjp(slopes[at], cases[at]), gradients[at].value)
        )
    for name, job in zip(("forward", "backward"), jobs, strict=False):
        if fault := _interleaved(job) or _parallel(job):
            yield failed(f"another {name} at the same time changes its result: {fault}", "keep nothing between calls")
            return
    # What is written into an input and put back shows only to whoever reads it meanwhile.
    shared = subject.native(inputs)
    if fault := _interleaved(
        lambda _: differs(subject, inputs, subject.hosted(subject.outputs(shared)), wanted[0].value)
    ):
        detail = f"another forward at the same time on the same inputs changes its result: {fault}"
        yield failed(detail, "do not write into inputs, not even to put them back")
        return
    yield passed(f"{' and '.join(('forwards', 'backwards')[: len(jobs)])} at the same time")


def _interleaved(job: Callable[[int], str | None]) -> str | None:
    """The job with one of the other kind, on another thread, after each of up to 200 steps of foreign Python code."""
    steps, stride, waiting = 0, 1, []
    blocked = only_counted = False
    faults: list[str] = []

    def other() -> None:
        found = attempt(job, 1)
        faults.extend(each for each in (found.error, found.value) if each)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps, blocked
        if not is_foreign(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if only_counted or blocked or steps % stride:
                return trace
            sys.settrace(None)
            thread = threading.Thread(target=other, daemon=True)
            thread.start()
            thread.join(_WAIT_S)
            # It waits for a lock that this call holds, and goes on after it.
            if blocked := thread.is_alive():
                waiting.append(thread)
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    fault = None
    # Counted once, so that the steps are spread over the whole call.
    for counting in (True, False):
        only_counted = counting
        sys.settrace(trace)
        try:
            found = attempt(job, 0)
        finally:
            sys.settrace(before)
        stride, steps = max(1, -(-steps // _MOST_STEPS)), 0
        fault = f"it raises {found.error}" if not found.worked else found.value
    for thread in waiting:
        thread.join(_WAIT_S)
    return fault or next(iter(faults), None)


@contextmanager
def _switching() -> Iterator[None]:
    """Let Python switch threads more often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _parallel(job: Callable[[int], str | None]) -> str | None:
    """The first fault of any of four threads that do the two jobs in turn."""
    faults: list[str] = []
    start = threading.Barrier(_THREADS)

    def work(at: int) -> None:
        start.wait()
        for _ in range(_ROUNDS):
            found = attempt(job, at % 2)
            fault = found.value if found.worked else f"it raises {found.error}"
            if fault or faults:
                faults.extend([fault] if fault else [])
                return

    workers = [threading.Thread(target=work, args=(at,), daemon=True) for at in range(_THREADS)]
    with _switching():
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    return faults[0] if faults else None
