"""The checks by name, in the order in which they are run: a setting and inputs in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.operators.validation import memory, properties
from levelbench.operators.validation.comparing import compare
from levelbench.operators.validation.findings import Finding, failed, not_tried, noted, passed, summed
from levelbench.operators.validation.forward import Reference
from levelbench.operators.validation.gradient import examine_gradient
from levelbench.operators.validation.kinks import AT_A_KINK
from levelbench.operators.validation.repeatability import repeatability
from levelbench.operators.validation.samples import Inputs, describe, other_values
from levelbench.operators.validation.subject import Host, Subject, attempt, widened
from levelbench.operators.validation.tolerances import is_float, tolerance_for

__all__ = ["CHECKS", "Setting"]

_NO_REFERENCE = "there is no reference to compare with"


@dataclass(frozen=True)
class Setting:
    """``compared``: whether ``reference`` is another than the operator itself; ``dtypes`` are those asked for.

    ``runs`` is how often an operator is called to see how well it repeats itself; below 2, that is not tried.
    """

    subject: Subject
    reference: Reference
    compared: bool
    dtypes: tuple[str, ...]
    seed: int
    runs: int = 100

    def other(self, inputs: Inputs, random: np.random.Generator) -> Inputs:
        """The same shapes with other values, a hundred times as large: what is kept of them shows."""
        return dict(other_values(inputs, self.subject.fixed, random))["values times 100"]


Check = Callable[[Setting, Inputs, np.random.Generator], list[Finding]]


def _forward(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    found = attempt(setting.subject.forward, inputs)
    if not found.worked:
        report = not_tried if found.refused else failed
        return [report("forward", f"it raises {found.error}", describe(inputs))]
    if not setting.compared:
        return [not_tried("forward", _NO_REFERENCE)]
    return [properties.judged("forward", setting.subject, inputs, setting.reference, describe(inputs))]


def _inference(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    from levelbench.operators.custom.definition import Spec

    infer, check = setting.subject.infer, "shape inference"
    if infer is None:
        return []
    outputs = setting.subject.forward(inputs)
    specs = infer(*(Spec(each.shape, each.dtype) for each in inputs if each is not None))
    said = (specs,) if isinstance(specs, Spec) else tuple(specs)
    if len(said) != len(outputs):
        return [failed(check, f"infer says {len(said)} outputs, forward gives {len(outputs)}", describe(inputs))]
    for at, (spec, output) in enumerate(zip(said, outputs, strict=True)):
        if output is not None and (tuple(spec.shape), np.dtype(spec.dtype)) != (output.shape, output.dtype):
            says = f"infer says {np.dtype(spec.dtype)}{list(spec.shape)}, forward gives {describe([output])}"
            return [failed(check, f"{setting.subject.output_name(at)}: {says}", describe(inputs))]
    return [passed(check)]


def _gradient_as(check: str, setting: Setting, inputs: Inputs) -> list[Finding]:
    report = examine_gradient(setting.subject, inputs, seed=setting.seed)
    makers = {"right": passed, "wrong": failed, "not tried": not_tried}
    # What is not tried by its nature (a shape, an input that is left out) is still said, with its reason.
    found = [makers[each.status](check, each.detail, each.name) for each in report.inputs]
    notes = [f"{each.name} {each.detail}" for each in report.inputs if each.status == "right" and each.detail]
    count = sum(each.status == "passed" for each in found)
    told = "; ".join([f"{count} judged in {report.dtype}", *notes])
    return summed(check, found, told)


def _gradient(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return _gradient_as("gradient", setting, inputs)


def _gradient_at_ties(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    tied = dict(other_values(inputs, setting.subject.fixed, random))["zeros and ties"]
    found = [_at_ties(each, setting) for each in _gradient_as("gradient at ties", setting, tied)]
    return [each for each in found if each.status != "not tried"] or found[:1]


def _at_ties(finding: Finding, setting: Setting) -> Finding:
    """A gradient that is no mixture of those close by is a fault; one that kinks inside an operator made up is none.

    relu(x) - relu(-x) is x, and by the chain rule of any framework its gradient at 0 is 0 (Kakade & Lee, "Provably
    correct automatic subdifferentiation", 2018). Whether it is right elsewhere, the check of the gradient says.
    """
    if finding.status != "failed" or (AT_A_KINK in finding.detail and setting.subject.ours):
        return finding
    return noted(finding.check, f"at zeros and equal values: {finding.detail}", finding.case)


def _gradient_in_float32(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    subject, check = setting.subject, "gradient in float32"
    if subject.pull is None or not any(_is_free_float(setting, inputs, at) for at in range(len(inputs))):
        return []
    narrow, wide = (widened(inputs, each, subject.fixed) for each in (np.float32, np.float64))
    # In float64 at the very numbers that float32 has.
    wide = widened(narrow, np.float64, subject.fixed)
    answers = [attempt(_pulled, subject, each) for each in (narrow, wide)]
    if bad := next((each for each in answers if not each.worked), None):
        return [not_tried(check, bad.error, describe(inputs))]
    for at, (first, second) in enumerate(zip(answers[0].value, answers[1].value, strict=True)):
        given = narrow[at]
        if first is None or second is None or given is None or not is_float(given.dtype):
            continue
        name = subject.input_name(at)
        if (first.dtype, first.shape) != (given.dtype, given.shape):
            says = f"the gradient of {name} is {describe([first])}, the input {describe([given])}"
            return [failed(check, says, describe(narrow))]
        if fault := _far_apart(f"the gradient of {name}", first, second, narrow):
            return [failed(check, f"unlike float64: {fault}", describe(narrow))]
    return [passed(check, "agrees with float64")]


def _is_free_float(setting: Setting, inputs: Inputs, at: int) -> bool:
    value = inputs[at]
    return value is not None and at not in setting.subject.fixed and is_float(value.dtype)


def _pulled(subject: Subject, inputs: Inputs) -> tuple[Host | None, ...]:
    """The gradients of inputs for gradients of ones; the forward must answer in the dtype of its inputs."""
    outputs = subject.forward(inputs)
    kinds = {each.dtype for each in inputs if each is not None}
    if any(each is not None and is_float(each.dtype) and each.dtype not in kinds for each in outputs):
        raise UnsupportedError("a gradient in one dtype", "the outputs have another", "see the check of dtypes")
    # Slopes of one size and both signs: a gradient of ones alone is the one that a norm or a softmax maps to zero.
    given = [
        None
        if each is None or not is_float(each.dtype)
        else np.where(np.arange(each.size) % 3 == 0, -1.0, 1.0).astype(each.dtype).reshape(each.shape)
        for each in outputs
    ]
    return subject.vjp(given, inputs)


def _far_apart(what: str, first: Host, second: Host, inputs: Sequence[Host | None]) -> str | None:
    """What differs by more than a backward's sums explain; these add up what cancels, so inputs count in the scale."""
    length = max((each.size for each in inputs if each is not None), default=1)
    wide = np.abs(second.astype(np.float64))
    scale = float(np.where(np.isfinite(wide), wide, 0).max(initial=1.0))
    return compare(
        what, first, second, tolerance_for(first.dtype, length=length, scale=4 * scale), dtypes=(first.dtype,)
    )


def _inputs_left_alone(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return memory.inputs_left_alone(setting.subject, inputs)


def _outputs_are_new(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    return memory.aliasing(setting.subject, inputs, setting.other(inputs, random))


def _determinism(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    return properties.repeats(setting.subject, inputs, setting.other(inputs, random))


def _repeatability(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    """Bit for bit or not is no fault, but worth knowing: how many runs, how far apart, where."""
    if not setting.subject.deterministic or setting.runs < 2:
        return []
    found = repeatability(setting.subject, inputs, runs=setting.runs)
    if found.bitwise:
        return [passed("repeatability", f"{found.runs} calls, bit for bit")]
    most, where = found.worst()
    says = f"{found.identical} of {found.runs} calls agree bit for bit, the others within {found.ulp:.3g} ULP"
    return [noted("repeatability", f"{says}; the largest variance is {most:.2g}, at {where}", describe(inputs))]


def _strides(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return memory.strides(setting.subject, inputs) if setting.subject.deterministic else []


def _written(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return memory.written(setting.subject, inputs) if setting.subject.deterministic else []


def _said(setting: Setting, found: list[Finding]) -> list[Finding]:
    """Findings that say so where the operator was compared with itself."""
    if setting.compared:
        return found
    own = "compared with its own float64 results"
    return [replace(each, detail=f"{each.detail}, {own}") if each.status == "passed" else each for each in found]


def _dtypes(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    wanted = setting.dtypes or tuple(properties.DTYPES)
    found = properties.dtypes(setting.subject, inputs, setting.reference, wanted, asked=bool(setting.dtypes))
    return _said(setting, found)


def _values(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    return _said(setting, properties.values(setting.subject, inputs, setting.reference, random))


def _shapes(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    return _said(setting, properties.shapes(setting.subject, inputs, setting.reference, random))


def _specials(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    if not setting.compared:
        return [not_tried("NaN and infinity", _NO_REFERENCE)]
    return properties.specials(setting.subject, inputs, setting.reference, random)


def _long_sums(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    return _said(setting, properties.long_sums(setting.subject, inputs, setting.reference, random))


CHECKS: tuple[tuple[str, Check, bool], ...] = (
    ("forward", _forward, True),
    ("determinism", _determinism, False),
    ("repeatability", _repeatability, False),
    ("shape inference", _inference, True),
    ("gradient", _gradient, True),
    ("gradient at ties", _gradient_at_ties, False),
    ("gradient in float32", _gradient_in_float32, True),
    ("inputs left alone", _inputs_left_alone, False),
    ("outputs are new", _outputs_are_new, False),
    ("strides", _strides, False),
    ("written", _written, True),
    ("dtypes", _dtypes, True),
    ("values", _values, False),
    ("shapes", _shapes, False),
    ("NaN and infinity", _specials, False),
    ("long sums", _long_sums, False),
)
"""Name, check, and whether further inputs are checked too. ``state`` is told with ``determinism``, ``bounds`` with
``written``. Determinism comes before what calls the operator with other inputs, which may leave a state behind."""
