"""All probes of an operator, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from levelbench.checks.arrays import Host, compare, is_float, largest, tolerance_for
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
    """What all probes of an operator share.

    ``compared`` is whether ``reference`` is something other than the operator itself; ``dtypes`` are the requested
    ones. ``runs`` is how often the operator is called to measure its repeatability, which is not tried below 2.
    """

    subject: HostOperator
    reference: Oracle
    compared: bool
    dtypes: tuple[str, ...]
    seed: int
    runs: int

    def other(self, inputs: Inputs, random: np.random.Generator) -> Inputs:
        """The same shapes with values a hundred times as large, so that any state kept from them shows."""
        return dict(other_values(inputs, self.subject.fixed, random))["values times 100"]

    def judged(self, inputs: Inputs, case: str, *, first: bool = False, finite_only: bool = False) -> Finding:
        """Compare one case with the reference: passed, failed, or not tried if the reference refuses the inputs.

        ``first`` is true for the example itself, for which a reference without float64 is trusted.
        """
        wanted = attempt(self.reference.outputs, inputs, self.subject.fixed)
        if not wanted.worked:
            return not_tried("the reference does not accept it", case=case)
        found = attempt(self.subject.forward, inputs)
        if not found.worked:
            if self.subject.ours and not found.refused:
                return failed(f"it raises {found.error}, but the reference does not", case=case)
            return not_tried(f"refused: {found.error}", case=case)
        expected: Expected = wanted.value
        outputs = _with_expected_nonfinites(found.value, expected, finite_only or not self.subject.ours)
        fault = judge_outputs(self.subject, inputs, outputs, expected, self.reference)
        if fault and not expected.exact and not first:
            # It is unclear which of the two is wrong; a failure on the example itself must be looked into.
            return noted(f"the reference has no float64 and may itself be wrong: {fault}", case=case)
        return failed(fault, case=case) if fault else passed(case=case)

    def marked(self, found: Iterable[Finding]) -> Iterator[Finding]:
        """The findings, marked if the operator was compared with itself."""
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
    """Run every probe on ``inputs``: one or more lists of NumPy arrays, one array per input of the operator.

    ``operator`` and ``reference`` are anything that :func:`check_forward` accepts. Without a reference, the operator's
    own float64 results are used instead, and what only a reference can show is not tried. ``dtypes`` are those to try,
    by default all floating-point ones. ``runs`` is how often the operator is called on equal inputs to measure its
    repeatability (below 2: not tried). ``aliases`` allows or forbids outputs that share memory with inputs; ``None``
    leaves that to the operator. ``tell`` is called with the name of each probe before it runs, and ``hear`` with each
    finding as it comes. If the operator raises, that is a finding.
    """
    subject = subject_of(operator, backend, name=name, backward=backward)
    if aliases is not None:
        subject = replace(subject, aliases=aliases)
    samples = [[None if each is None else np.asarray(each) for each in sample] for sample in inputs]
    if not samples:
        found = "there are no inputs to check it with"
        raise UsageError(f"operator {subject.name}", found, "give inputs or shapes, or define examples in the operator")
    oracle = Oracle(subject if reference is None else reference)
    setting = _Setting(subject, oracle, reference is not None, tuple(dtypes), seed, runs)
    findings: list[Finding] = []
    for at, sample in enumerate(samples):
        for finding in _on(setting, sample, first=at == 0, tell=tell):
            hear(finding)
            findings.append(finding)
    return Report(subject.name, tuple(_by_probe(findings)))


def _on(setting: _Setting, inputs: Inputs, *, first: bool, tell: Callable[[str], None]) -> Iterator[Finding]:
    """The findings on one list of inputs; for later lists, only of the probes that other shapes may change."""
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


def _by_probe(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings in the order of the probes; all passes of a probe become one."""
    for probe in dict.fromkeys(each.probe for each in findings):
        mine = [each for each in findings if each.probe == probe]
        good = [each for each in mine if each.status == "passed"]
        if good:
            yield good[0] if len(good) == 1 else replace(good[0], case=f"{len(good)} inputs")
        yield from dict.fromkeys(each for each in mine if each.status != "passed")


def _with_expected_nonfinites(outputs: Sequence[Array], expected: Expected, lenient: bool) -> list[Host | None]:
    """The outputs with the reference's value wherever both are not finite: NaN and infinity are equally right there.

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
    """The same inputs give the same outputs, both directly and after other inputs. Noted if not bit for bit."""
    subject = setting.subject
    if not subject.deterministic:
        yield not_tried("it is declared random")
        return
    other = setting.other(inputs, random)
    runs = [attempt(subject.forward, inputs) for _ in range(_CALLS)]
    if bad := next((each for each in runs if not each.worked), None):
        yield failed(f"one of {_CALLS} equal calls raises {bad.error}")
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
        yield noted("equal calls are not equal bit for bit, but within what another order of summation explains")
    attempt(subject.forward, other)
    after = attempt(subject.forward, inputs)
    fault = differs(subject, inputs, after.value, base) if after.worked else f"it raises {after.error}"
    if fault:
        yield failed(f"a call with other inputs changes the result of the next one: {fault}", probe="state")
    else:
        yield passed("no call changes the next one", probe="state")


def _repeatability(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    """Not repeating bit for bit is no fault but worth knowing: how many runs differ, by how much, and where."""
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
        yield failed(f"infer declares {len(said)} outputs, forward returns {len(outputs)}")
        return
    for at, (spec, output) in enumerate(zip(said, outputs, strict=True)):
        if output is not None and (tuple(spec.shape), np.dtype(spec.dtype)) != (output.shape, output.dtype):
            detail = f"infer says {np.dtype(spec.dtype)}{list(spec.shape)}, forward returns {describe([output])}"
            yield failed(f"{setting.subject.output_name(at)}: {detail}")
            return
    yield passed()


def _gradient(setting: _Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    report = examine_gradient(setting.subject, inputs, seed=setting.seed)
    makers: dict[str, Callable[..., Finding]] = {"right": passed, "wrong": failed, "not tried": not_tried}
    # Inputs that cannot have a gradient (a shape, an omitted input) are still reported, with the reason.
    found = [makers[each.status](each.detail, case=each.name) for each in report.inputs]
    notes = [f"{each.name} {each.detail}" for each in report.inputs if each.status == "right" and each.detail]
    count = sum(each.status == "passed" for each in found)
    return summed(found, "; ".join([f"{count} judged in {report.dtype}", *notes]))


def _gradient_at_ties(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    """A gradient must be a mixture of those nearby. A kink inside a compound operator is not a fault.

    relu(x) - relu(-x) is x, but by the chain rule its gradient at 0 is 0 in any framework (Kakade & Lee, "Provably
    correct automatic subdifferentiation", 2018). The gradient probe checks whether it is right elsewhere.
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
    # In float64 at exactly the float32 values.
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
            detail = f"the gradient of {name} is {describe([first])}, the input {describe([given])}"
            yield failed(detail, case=describe(narrow))
            return
        # Terms cancel in a backward's sums, so the tolerance is relative to the largest gradient, and at least to 1.
        length = max((each.size for each in narrow if each is not None), default=1)
        scale = 4 * max(1.0, largest(second))
        tolerance = tolerance_for(first.dtype, length=length, scale=scale)
        if fault := compare(f"the gradient of {name}", first, second, tolerance, dtypes=(first.dtype,)):
            yield failed(f"differs from float64: {fault}", case=describe(narrow))
            return
    yield passed("agrees with float64")


def _pulled(subject: HostOperator, inputs: Inputs) -> tuple[Host | None, ...]:
    """The gradients of the inputs for output gradients of size 1; outputs must have the dtype of the inputs."""
    outputs = subject.forward(inputs)
    kinds = {each.dtype for each in inputs if each is not None}
    if any(each is not None and is_float(each.dtype) and each.dtype not in kinds for each in outputs):
        raise UnsupportedError("a gradient in one dtype", "the outputs have another dtype", "see the dtypes check")
    # Both signs, because a norm or a softmax maps a gradient of ones to zero.
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
    """Compare each dtype that it accepts with the reference in float64; report each requested dtype that it refuses."""
    asked = bool(setting.dtypes)
    found: list[Finding] = []
    for name in setting.dtypes or tuple(DTYPES):
        given = widened(inputs, DTYPES[name], setting.subject.fixed)
        outputs = attempt(setting.subject.forward, given)
        if outputs.worked:
            found.append(setting.judged(given, name))
        else:
            found.append(not_tried(f"it does not accept {name}: {outputs.error}", case=name))
    taken = [each.case for each in found if each.status == "passed"]
    quiet = [each.case for each in found if each.status == "not tried"]
    rest = [each for each in found if each.status == "failed" or (asked and each.status == "not tried")]
    if taken:
        refused = f"; does not accept {','.join(quiet)}" if quiet and not asked else ""
        rest = [passed(f"{', '.join(taken)}{refused}"), *rest]
    return setting.marked(rest or [not_tried(found[0].found)])


def _values(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Negative, large, small, shifted and equal values, ties and zeros."""
    cases = other_values(inputs, setting.subject.fixed, random)
    return setting.marked(_brief([setting.judged(each, f"{title}: {describe(each)}") for title, each in cases]))


def _shapes(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Sizes of 1, primes and 0."""
    subject = setting.subject
    batch = next((f"size {each.shape[0]} as 0" for each in inputs if each is not None and each.ndim > 1), "")
    found: list[Finding] = []
    # ONNX ties the sizes of weights to attributes, and a framework need not check that: only change the data's sizes.
    for title, changed in other_shapes(inputs, subject.fixed, random, first_only=not subject.ours):
        one = setting.judged(changed, f"{title}: {describe(changed)}")
        # The result for an empty axis is often a convention, so refusing it is no fault. An empty batch must work.
        if title.endswith("as 0") and title != batch and one.status == "failed" and one.found.startswith("it raises"):
            one = noted(one.found, case=one.case)
        found.append(one)
    return setting.marked(_brief(found) if found else [not_tried("no input has an axis")])


def _specials(setting: _Setting, inputs: Inputs, random: np.random.Generator) -> Iterable[Finding]:
    """NaN and infinity at one place: the output must be non-finite exactly where the reference is.

    For a framework's own operator this is only noted, because ONNX does not specify what happens to NaN.
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
    """In float16, with sums of 4096 terms, in which a float16 accumulator gets stuck."""
    subject = setting.subject
    if not subject.ours:
        return iter(())
    narrow = widened(inputs, np.float16, subject.fixed)
    if not attempt(subject.forward, narrow).worked:
        return iter([not_tried("it does not accept float16")])
    cases = long_inputs(narrow, subject.fixed, random)
    found = [setting.judged(each, f"{title}: {describe(each)}", finite_only=True) for title, each in cases]
    return setting.marked(_brief(found) if found else [not_tried("a longer input would be too large")])


def _brief(found: Sequence[Finding]) -> list[Finding]:
    """One finding for all that passed, one for all that were not tried, and the rest."""
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
"""Name, probe, and whether it also runs on further inputs. ``determinism`` also reports ``state``, ``written`` also
``bounds``. Determinism comes before any probe with other inputs, which may leave state behind."""
