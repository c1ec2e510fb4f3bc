"""All probes of an operator, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import ml_dtypes
import numpy as np

from levelbench.checks.arrays import Host, compare, is_float, largest, tolerance_for
from levelbench.checks.findings import Finding, Report, failed, findings_of, not_tried, noted, passed
from levelbench.errors import LevelbenchError, UnsupportedError, UsageError
from levelbench.measure.clocks import HOST
from levelbench.measure.sampling import sample
from levelbench.measure.stopping import Budget, FixedCount
from levelbench.operators.benchmark.watching import Contents, OnNumpy, Reader, RefusedError, Watch, WrongError
from levelbench.operators.contract import Array, Function, OperatorBackend, as_tuple
from levelbench.operators.custom.definition import Spec
from levelbench.operators.probes import calls, memory, process, variations
from levelbench.operators.probes.forward import Oracle, judge_outputs
from levelbench.operators.probes.gradients import examine_gradient
from levelbench.operators.probes.inputs import describe, large_inputs, other_shapes, other_values, scaled
from levelbench.operators.probes.judging import NO_REFERENCE, Probe, Setting, Variant, with_expected_nonfinites
from levelbench.operators.probes.memory import differs, summed, unit_gradients
from levelbench.operators.probes.slopes import AT_A_KINK
from levelbench.operators.probes.subject import Checkable, HostOperator, Inputs, attempt, quiet, subject_of, widened

DTYPES = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
Check = tuple[str, Probe, bool]
"""A name, a probe, and whether it also runs on further inputs."""

_CALLS = 5
_LARGE_IN_HALF = 300
"""The squares of numbers of this size overflow in float16, so they must be taken in float32."""
RUNS = 500


def check_operator(
    operator: Checkable,
    inputs: Sequence[Sequence[Array]],
    *,
    reference: Checkable = None,
    backend: OperatorBackend | None = None,
    backward: Function | None = None,
    dtypes: Sequence[str] = (),
    seed: int = 0,
    runs: int = RUNS,
    variants: Sequence[Variant] = (),
    aliases: bool | None = None,
    name: str = "",
    tell: Callable[[str], None] = lambda _: None,
    hear: Callable[[Finding], None] = lambda _: None,
    more: Sequence[Check] = (),
) -> Report:
    """Run every probe on ``inputs``: one or more lists of NumPy arrays, one array per input of the operator.

    ``operator`` and ``reference`` are anything that :func:`check_forward` accepts. Without a reference, the operator's
    own float64 results are used instead, and what only a reference can show is not tried. ``dtypes`` are those to try,
    by default all floating-point ones. ``runs`` is how often the operator is called on equal inputs to measure its
    repeatability (below 2: not tried). ``variants`` are the operator with other attributes. ``aliases`` allows or
    forbids outputs that share memory with inputs; ``None`` leaves that to the operator. ``tell`` is called with the
    name of each probe before it runs, and ``hear`` with each finding as it comes. ``more`` are probes besides those of
    :data:`CHECKS`. If the operator raises, that is a finding.
    """
    subject = subject_of(operator, backend, name=name, backward=backward)
    if aliases is not None:
        subject = replace(subject, aliases=aliases)
    samples = [[None if each is None else np.asarray(each) for each in sample] for sample in inputs]
    if not samples:
        found = "there are no inputs to check it with"
        raise UsageError(f"operator {subject.name}", found, "give inputs or shapes, or define examples in the operator")
    oracle = Oracle(subject if reference is None else reference)
    if not subject.deterministic and all(map(partial(_repeats, subject), samples)):
        # Whoever declares it has no values compared, so it must be so.
        subject = replace(subject, deterministic=True)
    ranks = frozenset(each.ndim for sample in samples for each in sample[:1] if each is not None)
    setting = Setting(subject, oracle, reference is not None, tuple(dtypes), seed, runs, ranks, variants)
    findings: list[Finding] = []
    axes = [sum(each.ndim for each in sample if each is not None) for sample in samples]
    for at, given in enumerate(samples):
        most = at == axes.index(max(axes))
        checks = [(name, probe, again or (most and name in _OF_AXES)) for name, probe, again in (*CHECKS, *more)]
        for finding in _on(setting, given, checks, first=at == 0, tell=tell):
            hear(finding)
            findings.append(finding)
    return Report(subject.name, tuple(_by_probe(findings)))


def _on(
    setting: Setting, inputs: Inputs, checks: Sequence[Check], *, first: bool, tell: Callable[[str], None]
) -> Iterator[Finding]:
    """The findings on one list of inputs; for later lists, only of the probes that other shapes may change."""
    case = describe(inputs)
    for name, probe, again in checks:
        if not (first or again):
            continue
        if name in _OF_VALUES and not setting.subject.deterministic:
            if first:
                yield not_tried("it is declared random", probe=name)
            continue
        tell(f"{name} on {case}")

        def run(probe: Probe = probe) -> Iterable[Finding]:
            return probe(setting, inputs, np.random.default_rng(setting.seed))

        found = [*findings_of(name, run, case=case, refusals=(LevelbenchError,))]
        yield from found
        if name == "forward" and any(each.found.startswith("it raise") for each in found):
            return


def _repeats(subject: HostOperator, inputs: Inputs) -> bool:
    """Whether three calls on the same inputs return the same bits."""
    runs = [attempt(subject.forward, inputs) for _ in range(3)]
    return all(each.worked and differs(subject, inputs, each.value, runs[0].value) is None for each in runs)


def _by_probe(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings in the order of the probes; all passes of a probe become one."""
    for probe in dict.fromkeys(each.probe for each in findings):
        mine = [each for each in findings if each.probe == probe]
        good = [each for each in mine if each.status == "passed"]
        if good:
            yield good[0] if len(good) == 1 else replace(good[0], case=f"{len(good)} inputs")
        yield from dict.fromkeys(each for each in mine if each.status != "passed")


def _forward(setting: Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    found = attempt(setting.subject.forward, inputs)
    if not found.worked:
        report = not_tried if found.refused else failed
        yield report(f"it raises {found.error}", case=describe(inputs))
    elif setting.compared:
        yield setting.judged(inputs, describe(inputs), first=True)
    else:
        yield not_tried(NO_REFERENCE)


def _determinism(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """The same inputs give the same outputs, both directly and after other inputs. Noted if not bit for bit."""
    subject = setting.subject
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


def _inference(setting: Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
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


def _gradient(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    report = examine_gradient(setting.subject, inputs, seed=setting.seed)
    makers: dict[str, Callable[..., Finding]] = {"right": passed, "wrong": failed, "not tried": not_tried}
    # Inputs that cannot have a gradient (a shape, an omitted input) are still reported, with the reason.
    found = [makers[each.status](each.detail, case=each.name) for each in report.inputs]
    notes = [f"{each.name} {each.detail}" for each in report.inputs if each.status == "right" and each.detail]
    count = sum(each.status == "passed" for each in found)
    return summed(found, "; ".join([f"{count} judged in {report.dtype}", *notes]))


def _gradient_at_ties(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
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


def _gradient_in_float32(setting: Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
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
    return subject.vjp(unit_gradients(outputs), inputs)


def _inputs_left_alone(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    found = memory.inputs_left_alone(setting.subject, inputs)
    larger = _larger(setting, inputs, random)
    bad = (each for one in larger if (each := memory.inputs_left_alone(setting.subject, one)).status == "failed")
    yield found if found.status == "failed" else next(bad, found)


def _larger(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Inputs]:
    """Large inputs that it accepts, for which an operator of the user's may have another way."""
    for _, each in large_inputs(inputs, setting.subject.fixed, random) if setting.subject.ours else ():
        if attempt(setting.subject.forward, each).worked:
            yield each


def _outputs_are_new(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    found = memory.aliasing(setting.subject, inputs, setting.other(inputs, random))
    for each in _larger(setting, inputs, random):
        if found.status != "failed":
            one = memory.aliasing(setting.subject, each, setting.other(each, random))
            found = one if one.status == "failed" else found
    if found.status != "failed":
        ties = dict(other_values(inputs, setting.subject.fixed, random))["all equal"]
        shapes = [each for _, each in other_shapes(inputs, setting.subject.fixed, random)]
        found = memory.shared_outputs(setting.subject, [inputs, ties, *shapes]) or found
    yield found


def _strides(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    subject = setting.subject
    if not subject.deterministic:
        return []
    found = memory.strides(subject, inputs)
    if not subject.ours:
        return found
    return [*found, *memory.gradient_strides(subject, inputs), *memory.shared_inputs(subject, inputs)]


def _written(setting: Setting, inputs: Inputs, _: np.random.Generator) -> list[Finding]:
    return memory.written(setting.subject, inputs) if setting.subject.deterministic else []


def _dtypes(setting: Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    """Compare each dtype that it accepts with the reference in float64; report each requested dtype that it refuses."""
    asked = bool(setting.dtypes)
    found: list[Finding] = []
    for name in setting.dtypes or tuple(DTYPES):
        given = widened(inputs, DTYPES[name], setting.subject.fixed)
        outputs = attempt(setting.subject.forward, given)
        if outputs.worked:
            found.append(setting.judged(given, name))
            if name == "float16" and setting.subject.ours:
                large = scaled(given, setting.subject.fixed, _LARGE_IN_HALF)
                one = setting.judged(large, f"{name} times {_LARGE_IN_HALF}", finite_only=True)
                found += [] if one.status == "failed" and _overflows_itself(setting, large) else [one]
        else:
            found.append(not_tried(f"it does not accept {name}: {outputs.error}", case=name))
    taken = [each.case for each in found if each.status == "passed"]
    quiet = [each.case for each in found if each.status == "not tried"]
    rest = [each for each in found if each.status == "failed" or (asked and each.status == "not tried")]
    if taken:
        refused = f"; does not accept {','.join(quiet)}" if quiet and not asked else ""
        rest = [passed(f"{', '.join(taken)}{refused}"), *rest]
    return setting.marked(rest or [not_tried(found[0].found)])


def _overflows_itself(setting: Setting, inputs: Inputs) -> bool:
    """Whether the reference, in the dtype of the inputs, is as wrong as the operator."""
    expected = setting.reference.outputs(inputs, setting.subject.fixed)
    if expected.narrow is None:
        return True
    narrow = with_expected_nonfinites(expected.narrow, expected, True)
    return judge_outputs(setting.subject, inputs, narrow, expected, setting.reference) is not None


_TIMED = FixedCount(12) | Budget(1.0)


def _timed_calls(setting: Setting, inputs: Inputs, _: np.random.Generator) -> Iterator[Finding]:
    """As in ``levelbench operator``: a result must be computed in the call that returns it, for the inputs of that."""
    subject = setting.subject
    reader: Reader = subject.backend or OnNumpy()

    def judge(given: Sequence[Host | None], found: Sequence[Host | None]) -> str:
        wanted = attempt(setting.reference.outputs, given, subject.fixed)
        if setting.compared and subject.ours and not wanted.worked:
            raise RefusedError(f"its reference raises {wanted.error} in a timed call")
        if not (setting.compared and wanted.worked and wanted.value.exact):
            return ""
        outputs = with_expected_nonfinites(found, wanted.value, not subject.ours)
        return judge_outputs(subject, given, outputs, wanted.value, setting.reference) or ""

    contents = Contents(inputs, reader, structural=subject.fixed, only_floats=subject.ours)
    ours = subject.ours and not subject.aliases
    watch = Watch(lambda *native: as_tuple(subject.call(*native)), contents, reader, judge, ours=ours, gaps=True)
    try:
        with quiet():
            watch.rehearse()
            sample(watch.work, _TIMED, between=watch)
            watch.conclude(HOST)
        if not watch.consists_of(contents, judge):
            raise RefusedError("it changed the watch that measures")
    except (RefusedError, WrongError) as error:
        yield failed(str(error))
        return
    if watch.unchanged:
        yield not_tried(watch.unchanged)
        return
    yield passed("inputs changed between them" + ("" if setting.compared else f"; {NO_REFERENCE}"))


_OF_VALUES = frozenset(
    (
        *("determinism", "gradient", "gradient at ties", "gradient in float32", "timed calls", "gradient elsewhere"),
        *("NaN and infinity", "NaN in gradients"),
    )
)
"""Probes of the values of outputs, which those of a random operator do not pass."""

_OF_AXES = frozenset(("gradient elsewhere", "strides"))
"""Probes that run on the inputs with the most axes, too: a vector has no gaps between rows."""

CHECKS: tuple[Check, ...] = (
    ("process", process.process_state, True),
    ("forward", _forward, True),
    ("determinism", _determinism, False),
    ("repeatability", calls.every_call, False),
    ("shape inference", _inference, True),
    ("gradient", _gradient, True),
    ("gradient at ties", _gradient_at_ties, False),
    ("gradient in float32", _gradient_in_float32, True),
    ("inputs left alone", _inputs_left_alone, False),
    ("outputs are new", _outputs_are_new, False),
    ("state of backward", calls.state_of_backward, False),
    ("timed calls", _timed_calls, False),
    ("strides", _strides, False),
    ("written", _written, True),
    ("dtypes", _dtypes, True),
    ("integers", variations.integers, True),
    ("values", variations.values, False),
    ("shapes", variations.shapes, False),
    ("ranks", variations.ranks, False),
    ("gradient elsewhere", variations.gradients_elsewhere, False),
    ("NaN and infinity", variations.specials, False),
    ("NaN in gradients", variations.gradients_of_nan, False),
    ("long sums", variations.long_sums, False),
    ("attributes", variations.attributes, True),
    ("leaks", calls.leaks, False),
    ("threads", calls.threads, False),
)
"""Name, probe, and whether it also runs on further inputs. ``determinism`` also reports ``state``, ``written`` also
``bounds``. Determinism comes before any probe with other inputs, which may leave state behind."""
