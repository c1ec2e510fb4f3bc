"""What a right operator has beside right values: it repeats itself, keeps no state, takes what it says it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from levelbench.operators.validation.findings import Finding, failed, not_tried, noted, passed, summed
from levelbench.operators.validation.forward import Expected, Reference, judge_outputs
from levelbench.operators.validation.memory import differs
from levelbench.operators.validation.samples import (
    Inputs,
    describe,
    long_inputs,
    other_shapes,
    other_values,
    special_values,
)
from levelbench.operators.validation.subject import Host, Subject, attempt, widened
from levelbench.operators.validation.tolerances import is_float

__all__ = ["DTYPES", "dtypes", "long_sums", "repeats", "shapes", "specials", "values"]

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
_RUNS = 5


def repeats(subject: Subject, inputs: Inputs, other: Inputs) -> list[Finding]:
    """The same inputs give the same outputs, at once and after other inputs; bit for bit, or that is noted."""
    if not subject.deterministic:
        return [not_tried("determinism", "it says that it is random")]
    runs = [attempt(subject.forward, inputs) for _ in range(_RUNS)]
    if bad := next((each for each in runs if not each.worked), None):
        return [failed("determinism", f"of {_RUNS} equal calls one raises {bad.error}", describe(inputs))]
    base = runs[0].value
    for run in runs[1:]:
        if fault := differs(subject, inputs, run.value, base):
            return [failed("determinism", f"equal calls differ: {fault}", describe(inputs))]
    bitwise = all(_bits(each.value) == _bits(base) for each in runs)
    attempt(subject.forward, other)
    after = attempt(subject.forward, inputs)
    fault = differs(subject, inputs, after.value, base) if after.worked else f"it raises {after.error}"
    kept = (
        failed("state", f"a call with other inputs changes the next one's answer: {fault}", describe(inputs))
        if fault
        else passed("state", "no call changes the next one")
    )
    first = (
        passed("determinism", f"{_RUNS} calls, bit for bit")
        if bitwise
        else noted("determinism", "equal calls differ in the order of their sums: not bit for bit", describe(inputs))
    )
    return [first, kept]


def _bits(values: Sequence[Host | None]) -> list[bytes]:
    return [b"" if each is None else each.tobytes() for each in values]


def judged(
    check: str, subject: Subject, inputs: Inputs, reference: Reference, case: str, finite_only: bool = False
) -> Finding:
    """One case against the reference: passed, failed, or not tried where the reference takes it not."""
    wanted = attempt(reference.outputs, inputs, subject.fixed)
    if not wanted.worked:
        return not_tried(check, "the reference does not take it", case)
    found = attempt(subject.forward, inputs)
    if not found.worked:
        if subject.ours and not found.refused:
            return failed(check, f"it raises {found.error}, and the reference does not", case)
        return not_tried(check, f"refused: {found.error}", case)
    expected: Expected = wanted.value
    outputs = _alike_where_not_finite(found.value, expected, finite_only or not subject.ours)
    fault = judge_outputs(subject, inputs, outputs, expected, reference)
    if fault and not expected.exact and check != "forward":
        # Which of the two is wrong cannot be told; on the example itself somebody must look.
        return noted(check, f"the reference knows no float64, and may be the one that is wrong: {fault}", case)
    return failed(check, fault, case) if fault else passed(check, "", case)


def _alike_where_not_finite(outputs: Sequence[Any], expected: Expected, lenient: bool) -> list[Host | None]:
    """Outputs in which what is not finite, and rightly so, is what the reference has: NaN or infinity, both are right.

    ``lenient``: also where only the reference is not finite.
    """
    found: list[Host | None] = []
    for at, output in enumerate(outputs):
        wide = expected.wide[at] if at < len(expected.wide) else None
        if output is None or wide is None or not is_float(output.dtype) or output.shape != wide.shape:
            found.append(output)
            continue
        if not is_float(wide.dtype):
            found.append(output)
            continue
        with np.errstate(all="ignore"):
            known = wide.astype(np.float64)
            replaced = ~np.isfinite(known)
            if not lenient:
                replaced &= ~np.isfinite(output.astype(np.float64))
            found.append(np.where(replaced, known.astype(output.dtype), output))
    return found


def values(subject: Subject, inputs: Inputs, reference: Reference, random: np.random.Generator) -> list[Finding]:
    """Negative, large, small, shifted and equal values, ties and zeros."""
    cases = other_values(inputs, subject.fixed, random)
    found = [judged("values", subject, each, reference, f"{title}: {describe(each)}") for title, each in cases]
    return _without_refused("values", found)


def shapes(subject: Subject, inputs: Inputs, reference: Reference, random: np.random.Generator) -> list[Finding]:
    """Sizes of 1, primes and 0."""
    batch = next((f"size {each.shape[0]} as 0" for each in inputs if each is not None and each.ndim > 1), "")
    found: list[Finding] = []
    # ONNX ties the sizes of weights to attributes; a framework need not notice, so only those of the data are changed.
    for title, changed in other_shapes(inputs, subject.fixed, random, first_only=not subject.ours):
        one = judged("shapes", subject, changed, reference, f"{title}: {describe(changed)}")
        # What an axis of no elements gives is often a convention, and refusing it no fault; but a batch may be empty.
        if title.endswith("as 0") and title != batch and one.status == "failed" and one.detail.startswith("it raises"):
            one = noted(one.check, one.detail, one.case)
        found.append(one)
    return _without_refused("shapes", found) if found else [not_tried("shapes", "no input has an axis")]


def _without_refused(check: str, found: Sequence[Finding]) -> list[Finding]:
    """One line for all that passed, one for all that were not tried, and the rest."""
    refused = [each for each in found if each.status == "not tried"]
    rest = summed(check, [each for each in found if each.status != "not tried"])
    if refused and len(refused) == len(found):
        return [not_tried(check, refused[0].detail, refused[0].case)]
    if refused:
        detail = f"{len(refused)} of {len(found)} cases: {refused[0].detail}"
        rest.append(not_tried(check, detail, refused[0].case))
    return rest


def specials(subject: Subject, inputs: Inputs, reference: Reference, random: np.random.Generator) -> list[Finding]:
    """NaN and infinity at one place: where the reference is not finite the output must not be, and nowhere else.

    A framework's own operator is noted, not accused: ONNX does not say what becomes of NaN.
    """
    found: list[Finding] = []
    for title, at, changed in special_values(inputs, subject.fixed, random):
        case = f"{title} in {subject.input_name(at)}"
        one = judged("NaN and infinity", subject, changed, reference, case)
        if one.status == "failed" and not subject.ours:
            one = noted(one.check, one.detail, one.case)
        found.append(one)
    return _without_refused("NaN and infinity", found or [not_tried("NaN and infinity", "no floating-point input")])


def dtypes(
    subject: Subject, inputs: Inputs, reference: Reference, wanted: Sequence[str], asked: bool = False
) -> list[Finding]:
    """Each dtype that it takes, against the reference in float64; ``asked``: not to take one is worth a line each."""
    found: list[Finding] = []
    for name in wanted:
        given = widened(inputs, DTYPES[name], subject.fixed)
        outputs = attempt(subject.forward, given)
        if not outputs.worked:
            found.append(not_tried("dtypes", f"it does not take {name}: {outputs.error}", name))
            continue
        one = judged("dtypes", subject, given, reference, name)
        if one.status == "passed":
            one = passed("dtypes", "against the reference in float64", name)
        found.append(one)
    taken = [each.case for each in found if each.status == "passed"]
    rest = [each for each in found if each.status == "failed" or (asked and each.status == "not tried")]
    quiet = [each.case for each in found if each.status == "not tried"]
    told = f"{', '.join(taken)}{f'; does not take {chr(44).join(quiet)}' if quiet and not asked else ''}"
    return [*([passed("dtypes", told)] if taken else []), *rest] or [not_tried("dtypes", found[0].detail)]


def long_sums(subject: Subject, inputs: Inputs, reference: Reference, random: np.random.Generator) -> list[Finding]:
    """In float16, with sums of 4096 terms: an accumulator of float16 stays where it is from 2048 on."""
    if not subject.ours:
        return []
    narrow = widened(inputs, np.float16, subject.fixed)
    if not attempt(subject.forward, narrow).worked:
        return [not_tried("long sums", "it does not take float16")]
    cases = long_inputs(narrow, subject.fixed, random)
    found = [judged("long sums", subject, each, reference, f"{title}: {describe(each)}", True) for title, each in cases]
    return _without_refused("long sums", found) if found else [not_tried("long sums", "too large to make long")]
