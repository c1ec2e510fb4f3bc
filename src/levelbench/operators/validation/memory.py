"""What an operator does with memory: its inputs, its outputs, what it leaves unwritten, and how it reads strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from levelbench.operators.validation.comparing import compare
from levelbench.operators.validation.findings import Finding, failed, not_tried, noted, passed, summed
from levelbench.operators.validation.poison import fill_heap, guarded_copy, poisoned
from levelbench.operators.validation.reductions import sum_length
from levelbench.operators.validation.samples import Inputs, describe
from levelbench.operators.validation.subject import Host, Subject, attempt
from levelbench.operators.validation.tolerances import is_float, tolerance_for

__all__ = ["aliasing", "differs", "inputs_left_alone", "strides", "written"]


def differs(
    subject: Subject, inputs: Sequence[Host | None], found: Sequence[Host | None], base: Sequence[Host | None]
) -> str | None:
    """What differs between two answers of one operator to the same inputs, by more than another order of sums does."""
    if len(found) != len(base):
        return f"{len(found)} outputs, {len(base)} before"
    length, _ = sum_length(subject.node, [None if each is None else each.shape for each in inputs])
    for at, (first, second) in enumerate(zip(found, base, strict=True)):
        if second is None:
            continue
        scale = 0.0
        if is_float(second.dtype):
            wide = np.abs(second.astype(np.float64))
            scale = float(np.where(np.isfinite(wide), wide, 0).max(initial=0.0))
        tolerance = tolerance_for(second.dtype, length=length, scale=scale, results=second.size)
        if fault := compare(subject.output_name(at), first, second, tolerance):
            return fault
    return None


def _same_bits(first: Host, second: Host) -> bool:
    return first.dtype == second.dtype and first.shape == second.shape and first.tobytes() == second.tobytes()


def inputs_left_alone(subject: Subject, inputs: Inputs) -> list[Finding]:
    """Forward and backward must not change the arrays that they are given."""
    check = "inputs left alone"
    native = subject.native(inputs)
    kept = [None if each is None else each.copy() for each in inputs]
    outputs = subject.outputs(native)
    found = _changed(subject, "forward", native, kept)
    if subject.pull is None or found:
        return [found or passed(check, "by forward; there is no backward")]
    hosts = subject.hosted(outputs)
    gradients = [None if each is None or not is_float(each.dtype) else np.ones_like(each) for each in hosts]
    given = [None if each is None else subject.to_native(each.copy()) for each in gradients]
    with np.errstate(all="ignore"):
        pulled = attempt(subject.pull, given, native)
    if not pulled.worked:
        return [passed(check, "by forward; the backward gives no answer here")]
    found = _changed(subject, "backward", native, kept)
    after = subject.hosted(given)
    for at, (first, second) in enumerate(zip(gradients, after, strict=True)):
        if first is not None and second is not None and not _same_bits(first, second):
            found = found or failed(check, f"the backward changes the gradient of {subject.output_name(at)} in place")
    return [found or passed(check, "by forward and backward")]


def _changed(subject: Subject, who: str, native: Sequence[Any], kept: Sequence[Host | None]) -> Finding | None:
    for at, value in enumerate(kept):
        if value is None or at in subject.fixed:
            continue
        now = np.asarray(subject.to_host(native[at]))
        if not _same_bits(now, value):
            detail = f"the {who} changes {subject.input_name(at)} in place"
            return failed("inputs left alone", detail, describe(kept))
    return None


def _view(native: Any) -> Host | None:
    """The memory of a native array as NumPy sees it, ``None`` where it cannot."""
    if isinstance(native, np.ndarray):
        return native
    if not hasattr(native, "__dlpack__"):
        return None
    found = attempt(np.from_dlpack, native)
    return found.value if found.worked else None


def aliasing(subject: Subject, inputs: Inputs, other: Inputs) -> list[Finding]:
    """Outputs must be new arrays, and stay what they were when the operator is called again."""
    check = "outputs are new"
    native = subject.native(inputs)
    outputs = subject.outputs(native)
    before = subject.hosted(outputs)
    attempt(subject.forward, other)
    attempt(subject.forward, inputs if other is inputs else other)
    for at, (first, second) in enumerate(zip(before, subject.hosted(outputs), strict=True)):
        if first is not None and second is not None and not _same_bits(first, second):
            where = f"{subject.output_name(at)} of one call is overwritten by the next"
            return [failed(check, where, describe(inputs))]
    if subject.aliases:
        return [passed(check, "across calls; views of inputs are allowed")]
    views = [None if each is None else _view(each) for each in native]
    seen = 0
    for at, output in enumerate(outputs):
        mine = None if output is None else _view(output)
        if mine is None or not mine.size:
            continue
        seen += 1
        for position, view in enumerate(views):
            if view is not None and view.size and np.may_share_memory(mine, view):
                shared = f"{subject.output_name(at)} shares memory with {subject.input_name(position)}"
                return [failed(check, f"{shared}: a later step in place would change both", describe(inputs))]
    return [passed(check)] if seen else [not_tried(check, "the memory of native arrays cannot be seen from here")]


def _strided(value: Host) -> Iterator[tuple[str, Callable[[Subject], Any]]]:
    """Native arrays with the values of ``value`` in another layout."""
    if not value.ndim or not value.size:
        return
    gap = np.nan if is_float(value.dtype) else 1
    wide = np.full((*value.shape[:-1], 2 * value.shape[-1]), gap).astype(value.dtype)
    wide[..., ::2] = value
    yield "every second element", lambda subject: subject.to_native(wide)[..., ::2]
    if value.ndim > 1:
        turned = np.ascontiguousarray(value.swapaxes(0, -1))
        yield "axes swapped", lambda subject: subject.to_native(turned).swapaxes(0, -1)
    mirrored = np.ascontiguousarray(value[..., ::-1])
    yield "negative strides", lambda subject: mirrored[..., ::-1] if _is_numpy(subject) else None
    shifted = np.frombuffer(b"\0" + value.tobytes(), np.uint8)[1:].copy()
    space = np.zeros(shifted.size + 1, np.uint8)
    space[1:] = shifted
    unaligned = space[1:].view(value.dtype).reshape(value.shape)
    yield "an odd address", lambda subject: unaligned if _is_numpy(subject) and value.dtype.itemsize > 1 else None


def _is_numpy(subject: Subject) -> bool:
    return isinstance(subject.to_native(np.zeros(1, np.float32)), np.ndarray)


def strides(subject: Subject, inputs: Inputs) -> list[Finding]:
    """The same values in another layout give the same outputs, and gradients."""
    check = "strides"
    base = subject.forward(inputs)
    found: list[Finding] = []
    for at, value in enumerate(inputs):
        if value is None or at in subject.fixed:
            continue
        for title, make in _strided(value):
            made = attempt(make, subject)
            if made.worked and made.value is None:
                continue
            case = f"{subject.input_name(at)} with {title}"
            if made.worked:
                found.append(_one_layout(subject, inputs, base, at, made.value, case))
            else:
                found.append(noted(check, f"cannot be made: {made.error}", case))
    told = f"{sum(each.status == 'passed' for each in found)} layouts"
    return summed(check, found, told) if found else [not_tried(check, "no input has an axis")]


def _one_layout(
    subject: Subject, inputs: Inputs, base: Sequence[Host | None], at: int, made: Any, case: str
) -> Finding:
    native = subject.native(inputs)
    native[at] = made
    before = np.array(subject.to_host(made))
    outputs = attempt(lambda: subject.hosted(subject.outputs(native)))
    if not outputs.worked:
        report = failed if subject.ours and not outputs.refused else noted
        return report("strides", f"it raises {outputs.error}", case)
    if not _same_bits(np.array(subject.to_host(made)), before):
        return failed("strides", "it writes to the memory of its input", case)
    fault = differs(subject, inputs, outputs.value, base)
    return failed("strides", fault, case) if fault else passed("strides", "", case)


def written(subject: Subject, inputs: Inputs) -> list[Finding]:
    """Every element of every output is written, and nothing beyond their ends."""
    base = subject.forward(inputs)
    answers = []
    for pattern in (0xFF, 0x3C):
        copies = [None if each is None else guarded_copy(each) for each in inputs]
        given = [None if each is None else each[0] for each in copies]
        native = [
            value if value is None or at in subject.fixed else subject.to_native(value)
            for at, value in enumerate(given)
        ]
        fill_heap(base, pattern)
        with poisoned(pattern) as blocks:
            outputs = attempt(lambda native=native: subject.hosted(subject.outputs(native)))
        if not outputs.worked:
            return [not_tried("written", f"under the test it raises {outputs.error}")]
        guards = [(block, "an array it allocates") for block in blocks]
        guards += [(each[1], subject.input_name(at)) for at, each in enumerate(copies) if each is not None]
        for block, name in guards:
            if beyond := block.broken():
                return [failed("bounds", f"it writes beside {name}: {beyond}", describe(inputs))]
        answers.append(outputs.value)
    for answer in answers:
        if fault := differs(subject, inputs, answer, base):
            detail = f"an output depends on what was in memory before, so a part of it is never written: {fault}"
            return [failed("written", detail, describe(inputs)), passed("bounds")]
    return [passed("written", "with memory filled beforehand"), passed("bounds", "guards around inputs and arrays")]
