"""All probes of one operator, in the order in which they are run, and what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from levelbench.checks.arrays import Host, compare, is_float, tolerance_for
from levelbench.checks.findings import Finding, Report, failed, findings_of, not_tried, noted, passed
from levelbench.errors import LevelbenchError, UnsupportedError, UsageError
from levelbench.operators.contract import Array, Function, OperatorBackend
from levelbench.operators.custom.definition import Spec
from levelbench.operators.probes import memory
from levelbench.operators.probes.forward import Expected, Oracle, judge_outputs, repeatability
from levelbench.operators.probes.gradients import examine_gradient
from levelbench.operators.probes.memory import differs, summed
from levelbench.operators.probes.slopes import AT_A_KINK
from levelbench.operators.probes.subject import (
    Checkable,
    HostOperator,
    Inputs,
    attempt,
    describe,
    long_inputs,
    other_shapes,
    other_values,
    special_values,
    subject_of,
    widened,
)

__all__ = ["CHECKS", "DTYPES", "check_operator"]

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
_CALLS = 5
_NO_REFERENCE = "there is no reference to compare with"


@dataclass(frozen=True)
class _Setting:
    """``compared``: whether ``reference`` is another than the operator itself; ``dtypes`` are those asked for.

    ``runs`` is how often an operator is called to see how well it repeats itself; below 2, that is not tried.
    """

    subject: HostOperator
    reference: Oracle
    compared: bool
    dtypes: tuple[str, ...]
    seed: int
    runs: int

    def other(self, inputs: Inputs, random: np.random.Generator) -> Inputs:
        """The same shapes with other values, a hundred times as large: what is kept of them shows."""
        return dict(other_values(inputs, self.subject.fixed, random))["values times 100"]

    def judged(self, inputs: Inputs, case: str, *, first: bool = False, finite_only: bool = False) -> Finding:
        """One case against the reference: passed, failed, or not tried where the reference does not take it.

        ``first`` is for the example itself, where a reference that knows no float64 is trusted.
        """
        wanted = attempt(self.reference.outputs, inputs, self.subject.fixed)
        if not wanted.worked:
            return not_tried("the reference does not take it", case=case)
        found = attempt(self.subject.forward, inputs)
        if not found.worked:
            if self.subject.ours and not found.refused:
                return failed(f"it raises {found.error}, and the reference does not", case=case)
            return not_tried(f"refused: {found.error}", case=case)
        expected: Expected = wanted.value
        outputs = _alike_where_not_finite(found.value, expected, finite_only or not self.subject.ours)
        fault = judge_outputs(self.subject, inputs, outputs, expected, self.reference)
        if fault and not expected.exact and not first:
            # Which of the two is wrong cannot be told; on the example itself somebody must look.
            return noted(f"the reference knows no float64, and may be the one that is wrong: {fault}", case=case)
        return failed(fault, case=case) if fault else passed(case=case)

    def said(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """Findings that say so where the operator was compared with itself."""
        for each in found:
            own = each.status == "passed" and not self.compared
            yield replace(each, found=f"{each.found}, compared with its own float64 results") if own else each


_Probe = Callable[[_Setting, Inputs, np.random.Generator], Iterable[Finding]]


def check_operator(
    operator: Checkable,
    inputs: Sequence[Sequence[Array]],
    *,
    reference: Checkable = None,
    backend: OperatorBackend | None = None,
    backward: Function | None = None,
    dtypes: Sequence[str] = (),
    seed: int = 0,
    runs: int = 100,
    aliases: bool | None = None,
    name: str = "",
    tell: Callable[[str], None] = lambda _: None,
    hear: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Run every probe on ``inputs``: one or more lists of NumPy arrays, one array an input of the operator.

    ``operator`` is what :func:`check_forward` takes, and so is ``reference``; without one its own float64 results stand
    in, and what only a reference can tell is not tried. ``dtypes`` are those to try, by default all floating ones.
    ``runs`` is how often it is called on equal inputs to see how well it repeats itself (below 2: not tried).
    ``aliases`` allows or forbids outputs that share memory with inputs; ``None`` is what the operator says. ``tell``
    is called before each probe it is run, and ``hear`` with each finding as it comes. What the operator raises is a
    finding.
    """
    subject = subject_of(operator, backend, name=name, backward=backward)
    if aliases is not None:
        subject = replace(subject, aliases=aliases)
    samples = [[None if each is None else np.asarray(each) for each in sample] for sample in inputs]
    if not samples:
        found = "there are no inputs to check it with"
        raise UsageError(f"operator {subject.name}", found, "give inputs, shapes, or write examples in the operator")
    stands_in = Oracle(subject if reference is None else reference)
    setting = _Setting(subject, stands_in, reference is not None, tuple(dtypes), seed, runs)
    findings: list[Finding] = []
    for at, sample in enumerate(samples):
        for finding in _on(setting, sample, first=at == 0, tell=tell):
            hear(finding)
            findings.append(finding)
    return Report(subject.name, tuple(_one_a_probe(findings)))


def _on(setting: _Setting, inputs: Inputs, *, first: bool, tell: Callable[[str], None]) -> Iterator[Finding]:
    """The probes on one list of inputs; of later lists only those that other shapes can tell something new."""
    case = describe(inputs)
    for name, probe, again in CHECKS:
        if not (first or again):
            continue
        tell(f"{name} on {case}")

        def run(probe: _Probe = probe) -> Iterable[Finding]:
            return probe(setting, inputs, np.random.default_rng(setting.seed))

        found = [*findings_of(name, run, case=case, refusals=(LevelbenchError,))]
        yield from found
        if name == "forward" and any(each.found.startswith("it raise") for each in found):
            return


def _one_a_probe(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings in the order of the probes, one for all the inputs that a probe passed with."""
    for probe in dict.fromkeys(each.probe for each in findings):
        mine = [each for each in findings if each.probe == probe]
        good = [each for each in mine if each.status == "passed"]
        if good:
            yield good[0] if len(good) == 1 else replace(good[0], case=f"{len(good)} inputs")
        yield from dict.fromkeys(each for each in mine if each.status != "passed")


def _alike_where_not_finite(outputs: Sequence[Array], expected: Expected, lenient: bool) -> list[Host | None]:
    """Outputs in which what is not finite, and rightly so, is what the reference has: NaN or infinity, both are right.

    ``lenient``: also where only the reference is not finite.
    """
    found: list[Host | None] = []
    for at, output in enumerate(outputs):
        wide = expected.wide[at] if at < len(expected.wide) else None
        floats = output is not None and wide is not None and is_float(output.dtype) and is_float(wide.dtype)
        if wide is None or not floats or output.shape != wide.shape:
            found.append(output)
            continue
        with np.errstate(all="ignore"):
            known = wide.astype(np.float64)
            replaced = ~np.isfinite(known)
            if not lenient:
                replaced &= ~np.isfinite(output.astype(np.float64))
            found.append(np.where(replaced, known.astype(output.dtype), output))
    return found


def _forward(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    found = attempt(setting.subject.forward, inputs)
    if not found.worked:
        report = not_tried if found.refused else failed
        yield report(f"it raises {found.error}", case=describe(inputs))
    elif setting.compared:
        yield setting.judged(inputs, describe(inputs), first=True)
    else:
        yield not_tried(_NO_REFERENCE)


def _determinism(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """The same inputs give the same outputs, at once and after other inputs; bit for bit, or that is noted."""
    subject = setting.subject
    if not subject.deterministic:
        yield not_tried("it says that it is random")
        return
    other = setting.other(inputs, random)
    runs = [attempt(subject.forward, inputs) for _ in range(_CALLS)]
    if bad := next((each for each in runs if not each.worked), None):
        yield failed(f"of {_CALLS} equal calls one raises {bad.error}")
        return
    base = runs[0].value
    for run in runs[1:]:
        if fault := differs(subject, inputs, run.value, base):
            yield failed(f"equal calls differ: {fault}")
            return
    bits = [[b"" if value is None else value.tobytes() for value in each.value] for each in runs]
    if all(each == bits[0] for each in bits):
        yield passed(f"{_CALLS} calls, bit for bit")
    else:
        yield noted("equal calls differ in the order of their sums: not bit for bit")
    attempt(subject.forward, other)
    after = attempt(subject.forward, inputs)
    fault = differs(subject, inputs, after.value, base) if after.worked else f"it raises {after.error}"
    if fault:
        yield failed(f"a call with other inputs changes the next one's answer: {fault}", probe="state")
    else:
        yield passed("no call changes the next one", probe="state")


def _repeatability(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    """Bit for bit or not is no fault, but worth knowing: how many runs, how far apart, where."""
    if not setting.subject.deterministic or setting.runs < 2:
        return
    found = repeatability(setting.subject, inputs, runs=setting.runs)
    if found.bitwise:
        yield passed(f"{found.runs} calls, bit for bit")
        return
    most, where = found.worst()
    says = f"{found.identical} of {found.runs} calls agree bit for bit, the others within {found.ulp:.3g} ULP"
    yield noted(f"{says}; the largest variance is {most:.2g}, at {where}")


def _inference(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    infer = setting.subject.infer
    if infer is None:
        return
    outputs = setting.subject.forward(inputs)
    specs = infer(*(Spec(each.shape, each.dtype) for each in inputs if each is not None))
    said = (specs,) if isinstance(specs, Spec) else tuple(specs)
    if len(said) != len(outputs):
        yield failed(f"infer says {len(said)} outputs, forward gives {len(outputs)}")
        return
    for at, (spec, output) in enumerate(zip(said, outputs, strict=True)):
        if output is not None and (tuple(spec.shape), np.dtype(spec.dtype)) != (output.shape, output.dtype):
            says = f"infer says {np.dtype(spec.dtype)}{list(spec.shape)}, forward gives {describe([output])}"
            yield failed(f"{setting.subject.output_name(at)}: {says}")
            return
    yield passed()


def _gradient(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    report = examine_gradient(setting.subject, inputs, seed=setting.seed)
    makers: dict[str, Callable[..., Finding]] = {"right": passed, "wrong": failed, "not tried": not_tried}
    # What is not tried by its nature (a shape, an input that is left out) is still said, with its reason.
    found = [makers[each.status](each.detail, case=each.name) for each in report.inputs]
    notes = [f"{each.name} {each.detail}" for each in report.inputs if each.status == "right" and each.detail]
    count = sum(each.status == "passed" for each in found)
    return summed(found, "; ".join([f"{count} judged in {report.dtype}", *notes]))


def _gradient_at_ties(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    """A gradient that is no mixture of those close by is a fault; a kink inside a compound operator is none.

    relu(x) - relu(-x) is x, and by the chain rule of any framework its gradient at 0 is 0 (Kakade & Lee, "Provably
    correct automatic subdifferentiation", 2018). Whether it is right elsewhere, the probe of the gradient says.
    """
    tied = dict(other_values(inputs, setting.subject.fixed, random))["zeros and ties"]
    found = []
    for each in _gradient(setting, tied, random):
        if each.status == "failed" and not (AT_A_KINK in each.found and setting.subject.ours):
            each = noted(f"at zeros and equal values: {each.found}", case=each.case)
        found.append(each)
    return [each for each in found if each.status != "not tried"] or found[:1]


def _gradient_in_float32(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    subject = setting.subject
    free = [each for at, each in enumerate(inputs) if each is not None and at not in subject.fixed]
    if subject.pull is None or not any(is_float(each.dtype) for each in free):
        return
    narrow = widened(inputs, np.float32, subject.fixed)
    # In float64 at the very numbers that float32 has.
    wide = widened(narrow, np.float64, subject.fixed)
    answers = [attempt(_pulled, subject, each) for each in (narrow, wide)]
    if bad := next((each for each in answers if not each.worked), None):
        yield not_tried(bad.error, case=describe(inputs))
        return
    for at, (first, second) in enumerate(zip(answers[0].value, answers[1].value, strict=True)):
        given = narrow[at]
        if first is None or second is None or given is None or not is_float(given.dtype):
            continue
        name = subject.input_name(at)
        if (first.dtype, first.shape) != (given.dtype, given.shape):
            says = f"the gradient of {name} is {describe([first])}, the input {describe([given])}"
            yield failed(says, case=describe(narrow))
            return
        # A backward's sums add up what cancels, so inputs count in the scale.
        length = max((each.size for each in narrow if each is not None), default=1)
        size = np.abs(second.astype(np.float64))
        scale = 4 * float(np.where(np.isfinite(size), size, 0).max(initial=1.0))
        tolerance = tolerance_for(first.dtype, length=length, scale=scale)
        if fault := compare(f"the gradient of {name}", first, second, tolerance, dtypes=(first.dtype,)):
            yield failed(f"unlike float64: {fault}", case=describe(narrow))
            return
    yield passed("agrees with float64")


def _pulled(subject: HostOperator, inputs: Inputs) -> tuple[Host | None, ...]:
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


def _inputs_left_alone(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    yield memory.inputs_left_alone(setting.subject, inputs)


def _outputs_are_new(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    yield memory.aliasing(setting.subject, inputs, setting.other(inputs, random))


def _strides(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return memory.strides(setting.subject, inputs) if setting.subject.deterministic else []


def _written(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return memory.written(setting.subject, inputs) if setting.subject.deterministic else []


def _dtypes(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    """Each dtype that it takes, against the reference in float64; of those asked for, a line for each it refuses."""
    asked = bool(setting.dtypes)
    found: list[Finding] = []
    for name in setting.dtypes or tuple(DTYPES):
        given = widened(inputs, DTYPES[name], setting.subject.fixed)
        outputs = attempt(setting.subject.forward, given)
        if outputs.worked:
            found.append(setting.judged(given, name))
        else:
            found.append(not_tried(f"it does not take {name}: {outputs.error}", case=name))
    taken = [each.case for each in found if each.status == "passed"]
    quiet = [each.case for each in found if each.status == "not tried"]
    rest = [each for each in found if each.status == "failed" or (asked and each.status == "not tried")]
    if taken:
        refused = f"; does not take {','.join(quiet)}" if quiet and not asked else ""
        rest = [passed(f"{', '.join(taken)}{refused}"), *rest]
    return setting.said(rest or [not_tried(found[0].found)])


def _values(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Negative, large, small, shifted and equal values, ties and zeros."""
    cases = other_values(inputs, setting.subject.fixed, random)
    return setting.said(_brief([setting.judged(each, f"{title}: {describe(each)}") for title, each in cases]))


def _shapes(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Sizes of 1, primes and 0."""
    subject = setting.subject
    batch = next((f"size {each.shape[0]} as 0" for each in inputs if each is not None and each.ndim > 1), "")
    found: list[Finding] = []
    # ONNX ties the sizes of weights to attributes; a framework need not notice, so only those of the data are changed.
    for title, changed in other_shapes(inputs, subject.fixed, random, first_only=not subject.ours):
        one = setting.judged(changed, f"{title}: {describe(changed)}")
        # What an axis of no elements gives is often a convention, and refusing it no fault; but a batch may be empty.
        if title.endswith("as 0") and title != batch and one.status == "failed" and one.found.startswith("it raises"):
            one = noted(one.found, case=one.case)
        found.append(one)
    return setting.said(_brief(found) if found else [not_tried("no input has an axis")])


def _specials(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterable[Finding]:
    """NaN and infinity at one place: where the reference is not finite the output must not be, and nowhere else.

    A framework's own operator is noted, not accused: ONNX does not say what becomes of NaN.
    """
    if not setting.compared:
        return [not_tried(_NO_REFERENCE)]
    found: list[Finding] = []
    for title, at, changed in special_values(inputs, setting.subject.fixed, random):
        one = setting.judged(changed, f"{title} in {setting.subject.input_name(at)}")
        if one.status == "failed" and not setting.subject.ours:
            one = noted(one.found, case=one.case)
        found.append(one)
    return _brief(found or [not_tried("no floating-point input")])


def _long_sums(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """In float16, with sums of 4096 terms: an accumulator of float16 stays where it is from 2048 on."""
    subject = setting.subject
    if not subject.ours:
        return iter(())
    narrow = widened(inputs, np.float16, subject.fixed)
    if not attempt(subject.forward, narrow).worked:
        return iter([not_tried("it does not take float16")])
    cases = long_inputs(narrow, subject.fixed, random)
    found = [setting.judged(each, f"{title}: {describe(each)}", finite_only=True) for title, each in cases]
    return setting.said(_brief(found) if found else [not_tried("too large to make long")])


def _brief(found: Sequence[Finding]) -> list[Finding]:
    """One line for all that passed, one for all that were not tried, and the rest."""
    refused = [each for each in found if each.status == "not tried"]
    rest = summed([each for each in found if each.status != "not tried"])
    if refused and len(refused) == len(found):
        return refused[:1]
    if refused:
        detail = f"{len(refused)} of {len(found)} cases: {refused[0].found}"
        rest.append(not_tried(detail, case=refused[0].case))
    return rest


CHECKS: tuple[tuple[str, _Probe, bool], ...] = (
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
"""Name, probe, and whether it is run on further inputs too. ``determinism`` also finds ``state``, ``written`` finds
``bounds``. Determinism comes before what calls the operator with other inputs, which may leave a state behind."""
