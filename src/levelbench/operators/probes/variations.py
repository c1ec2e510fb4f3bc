"""Probes that call an operator with other inputs than its examples, or other attributes, and compare the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import log2
from time import process_time

import numpy as np

from levelbench.checks.arrays import Host, is_float
from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.errors import LevelbenchError
from levelbench.operators.contract import Array, as_tuple
from levelbench.operators.custom.definition import Spec
from levelbench.operators.probes import memory
from levelbench.operators.probes.gradients import examine_gradient
from levelbench.operators.probes.inputs import (
    at_limits,
    describe,
    equal_sizes,
    integer_types,
    large_inputs,
    large_integers,
    long_inputs,
    many_rows,
    more_sizes,
    other_magnitudes,
    other_ranks,
    other_shapes,
    other_values,
    special_values,
    with_integers,
    with_zeros,
)
from levelbench.operators.probes.judging import NO_REFERENCE, Setting, Variant, brief
from levelbench.operators.probes.slopes import AT_A_KINK, GradientReport, make_probe
from levelbench.operators.probes.subject import HostOperator, Inputs, attempt, replaced, widened

_MOST_FINDINGS = 3
_LARGE, _SHOWS_A_SCALE = "values times 100", 8
_NOTICED_S = 0.1
_LONGEST_S = 15.0
_PLACES = 16


def values(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Negative, large, small, shifted and equal values, ties and zeros."""
    subject = setting.subject
    cases = list(other_values(inputs, subject.fixed, random))
    narrow = widened(inputs, np.float32, subject.fixed)
    # Much that float64 forgives shows in float32, such as the logarithm of a share that is rounded to zero.
    if subject.ours and any(each is not None and each.dtype == np.float64 for each in inputs):
        cases += other_values(narrow, subject.fixed, random)
    return setting.marked(brief([setting.judged(each, f"{title}: {describe(each)}") for title, each in cases]))


def shapes(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Sizes of 1, primes and 0; batches; sizes beyond those of blocks, vectors and 16-bit indices; all sizes large."""
    subject = setting.subject
    batch = next((f"size {each.shape[0]} as 0" for each in inputs if each is not None and each.ndim > 1), "")
    found: list[Finding] = []
    # ONNX ties the sizes of weights to attributes, and a framework need not check that: only change the data's sizes.
    cases = list(other_shapes(inputs, subject.fixed, random, first_only=not subject.ours))
    if subject.ours:
        cases += more_sizes(inputs, subject.fixed, random)
        cases += equal_sizes(inputs, subject.fixed, random)
        cases += _broadcast(subject, inputs)
        cases += [
            (title, changed)
            for title, changed, first in many_rows(inputs, subject.fixed, random)
            if _independent(subject, inputs, first)
        ]
    for title, changed in cases:
        # So that a buffer of another dtype, if one is kept by shape, shows.
        attempt(subject.forward, widened(changed, np.float32, subject.fixed))
        one = setting.judged(changed, f"{title}: {describe(changed)}")
        # The result for an empty axis is often a convention, so refusing it is no fault. An empty batch must work.
        if title.endswith("as 0") and title != batch and one.status == "failed" and one.found.startswith("it raises"):
            one = noted(one.found, case=one.case)
        found.append(one)
    return setting.marked(brief(found) if found else [not_tried("no input has an axis")])


def _broadcast(subject: HostOperator, inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """Inputs of which one has a single element along an axis, where ``infer`` refuses other new sizes but not that."""
    infer = subject.infer
    if infer is None or sum(each is not None for each in inputs) < 2:
        return

    def accepts(given: Inputs) -> bool:
        return attempt(infer, *(Spec(each.shape, each.dtype) for each in given if each is not None)).worked

    for at, value in enumerate(inputs):
        if value is None or at in subject.fixed or not is_float(value.dtype):
            continue
        for axis, size in enumerate(value.shape):
            first = value.take([0] if size else [], axis)
            single = replaced(inputs, at, first)
            longer = replaced(inputs, at, np.concatenate((value, first), axis))
            if size > 1 and accepts(single) and not accepts(longer):
                yield f"{subject.input_name(at)} broadcast along axis {axis}", single


def _independent(subject: HostOperator, inputs: Inputs, first: Inputs) -> bool:
    """Whether the first row of the outputs is what the first row of the inputs gives alone."""
    every, alone = attempt(subject.forward, inputs), attempt(subject.forward, first)
    if not (every.worked and alone.worked):
        return False
    return all(
        one is not None
        and row is not None
        and one.ndim > 0
        and one[:1].shape == row.shape
        and np.allclose(one[:1].astype(np.float64), row.astype(np.float64), rtol=1e-2, atol=1e-6, equal_nan=True)
        for one, row in zip(every.value, alone.value, strict=False)
    )


def ranks(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterable[Finding]:
    """Other numbers of axes, which an operator may refuse but must not get wrong.

    Where all examples have the same number, three or more, their axes have meanings (channels, height) that others
    lack; then it is only noted.
    """
    if not setting.subject.ours:
        return []
    if not setting.compared:
        return [not_tried(NO_REFERENCE)]
    meant = len(setting.ranks) == 1 and min(setting.ranks) > 2
    found = []
    for title, changed in other_ranks(inputs, setting.subject.fixed, random):
        one = setting.judged(changed, f"{title}: {describe(changed)}", may_raise=True)
        if one.status == "passed":
            left = attempt(memory.inputs_left_alone, setting.subject, changed)
            one = replace(left.value, case=one.case) if left.worked and left.value.status == "failed" else one
        elif one.status == "failed" and meant:
            one = noted(f"{one.found}; refuse such inputs in infer", case=one.case)
        found.append(one)
    return brief(found) if found else [not_tried("integers beside floating-point numbers may be indices")]


def specials(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterable[Finding]:
    """NaN and infinity at one place: the output must be non-finite exactly where the reference is.

    For a framework's own operator this is only noted, because ONNX does not specify what happens to NaN.
    """
    if not setting.compared:
        return [not_tried(NO_REFERENCE)]
    found: list[Finding] = []
    for title, at, place, changed in special_values(inputs, setting.subject.fixed, random):
        case = f"{title} in {setting.subject.input_name(at)}"
        one = setting.judged(changed, case, infinite="infinity" in title)
        if one.status == "passed":
            one = _special(setting, changed, title, at, place, case) or one
        # Frameworks may run with subnormal numbers switched off; NumPy's arithmetic has them.
        flushed = place < 0 and not isinstance(setting.subject.to_native(np.zeros(1)), np.ndarray)
        if one.status == "failed" and (flushed or not setting.subject.ours):
            one = noted(one.found, case=one.case)
        elif one.status == "failed" and place >= 0 and _spreads(setting, changed, at, place):
            one = noted("NaN spreads over the outputs of its row, unlike in the reference", case=case)
        elif one.status == "failed" and "only one of the two is finite" in one.found:
            one = replace(one, do="if a number is multiplied by 0 on purpose, let the reference do so, too")
        found.append(one)
    found += _filled(setting, inputs)
    if len(bad := [each for each in found if each.status == "failed"]) > _MOST_FINDINGS:
        found = [each for each in found if each.status != "failed" or each in bad[:_MOST_FINDINGS]]
    return brief(found or [not_tried("no floating-point input")])


def _spreads(setting: Setting, inputs: Inputs, at: int, place: int) -> bool:
    """Whether outputs differ from the reference by more NaN alone, all in the row of the special value.

    As where a sum is a product with zeros and ones. The reference is not finite there, either; other rows are right.
    """
    wanted = attempt(setting.reference.outputs, inputs, setting.subject.fixed)
    found, given = attempt(setting.subject.forward, inputs), inputs[at]
    if not (wanted.worked and found.worked) or given is None or given.ndim < 2:
        return False
    row = np.unravel_index(place, given.shape)[0]
    for own, known in zip(found.value, wanted.value.wide, strict=False):
        if own is None or known is None or not is_float(own.dtype):
            continue
        if own.shape != known.shape or own.shape[:1] != given.shape[:1] or len(own) < 2:
            return False
        spread = np.isnan(own) & np.isfinite(known)
        rest = np.where(spread, np.nan, known)
        lost = np.delete(spread, row, axis=0).any() or np.isfinite(known[row]).all()
        if lost or not np.allclose(own, rest, rtol=1e-3, atol=1e-5, equal_nan=True):
            return False
    return True


def _special(setting: Setting, inputs: Inputs, title: str, at: int, place: int, case: str) -> Finding | None:
    """What tolerances and the equality of non-finite values hide: infinities, signs of zeros, subnormal results."""
    subject = setting.subject
    wanted = attempt(setting.reference.outputs, inputs, subject.fixed)
    found = attempt(subject.forward, inputs)
    given = inputs[at]
    if not (subject.ours and wanted.worked and found.worked and wanted.value.narrow and given is not None):
        return None
    for number, (own, known) in enumerate(zip(found.value, wanted.value.narrow, strict=True)):
        if own is None or known is None or own.shape != given.shape or not is_float(own.dtype):
            continue
        name = subject.output_name(number)
        first, second = own.ravel(), known.ravel()
        if place < 0:
            # Frameworks may run with subnormal numbers switched off; NumPy's arithmetic has them.
            lost = (first == 0) & (second != 0)
            if lost.all() and lost.size and isinstance(subject.to_native(given), np.ndarray):
                return failed(f"{name} is 0 instead of {second[0]}: subnormal numbers are flushed to zero", case=case)
            continue
        others = np.isfinite(np.delete(second, place)).all()
        if np.isinf(second[place]) and np.isnan(first[place]) and others:
            return failed(f"{name} is NaN instead of {second[place]}, which the reference returns", case=case)
        if (
            title == "-0.0"
            and second[place] == 0 == first[place]
            and np.signbit(second[place]) != np.signbit(first[place])
        ):
            report = failed if _multiple(np.delete(given.ravel(), place), np.delete(second, place)) else noted
            return report(f"{name} is {first[place]}, and the reference returns {second[place]}", case=case)
    return None


def _multiple(given: Host, outputs: Host) -> bool:
    """Whether outputs are inputs of both signs times one number: then the sign of a zero depends on no formula."""
    if not ((given > 0).any() and (given < 0).any() and (given != 0).all()):
        return False
    factors = outputs / given
    return bool(np.isfinite(factors[0]) and factors[0] != 0 and (factors == factors[0]).all())


def _filled(setting: Setting, inputs: Inputs) -> Iterator[Finding]:
    """Minus infinity everywhere, as where all is masked: infinite where the reference is, if one alone is right.

    Where results are weighted sums of the input, a weight of zero makes NaN of infinities, and rightly so.
    """

    def lost(changed: Inputs, finite: bool) -> bool:
        """Whether a number stands where the reference is infinite, or NaN does."""
        wanted = attempt(setting.reference.outputs, changed, setting.subject.fixed)
        found = attempt(setting.subject.forward, changed)
        return (
            wanted.worked
            and found.worked
            and any(
                own is not None
                and known is not None
                and own.shape == known.shape
                and is_float(own.dtype)
                and bool(((np.isfinite(own) if finite else np.isnan(own)) & np.isinf(known)).any())
                for own, known in zip(found.value, wanted.value.wide, strict=False)
            )
        )

    for at, value in enumerate(inputs):
        if value is None or at in setting.subject.fixed or not is_float(value.dtype) or not value.size:
            continue
        one = value.copy(order="C")
        one.reshape(-1)[0] = -np.inf
        single, whole = replaced(inputs, at, one), replaced(inputs, at, np.full_like(value, -np.inf))
        for finite, name in ((True, "finite"), (False, "NaN")):
            if lost(whole, finite) and not lost(single, finite) and (finite or not _affine(setting, inputs, at)):
                case = f"-infinity everywhere in {setting.subject.input_name(at)}"
                report = failed if setting.subject.ours else noted
                yield report(f"an output is {name} instead of infinity, which the reference returns", case=case)


def _affine(setting: Setting, inputs: Inputs, at: int) -> bool:
    """Whether results of the reference change in proportion where the input at this place does."""
    value = inputs[at]
    if value is None:
        return False
    scaled = (
        attempt(setting.reference.outputs, replaced(inputs, at, value * n), setting.subject.fixed) for n in range(3)
    )
    outputs = [each.value.wide if each.worked else () for each in scaled]
    return all(
        np.allclose(two - one, one - none, rtol=1e-3, atol=1e-6, equal_nan=True)
        for none, one, two in zip(*outputs, strict=True)
        if none is not None and one is not None and two is not None
    )


def long_sums(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """Each size in turn 5003, beyond blocks of 4096; also in float16, where an accumulator of that type gets stuck."""
    subject = setting.subject
    if not subject.ours:
        return iter(())
    narrow = widened(inputs, np.float16, subject.fixed)
    cases = [*long_inputs(inputs, subject.fixed, random)]
    if attempt(subject.forward, narrow).worked:
        cases += long_inputs(narrow, subject.fixed, random)
    shorter = [dict(long_inputs(inputs, subject.fixed, random, part=part)) for part in (16, 8)]
    found = []
    for title, each in cases:
        case = f"{title}: {describe(each)}"
        if (predicted_s := _predicted_s(setting, [part[title] for part in shorter])) > _LONGEST_S:
            found.append(not_tried(f"it would take about {predicted_s:.0f} s of a processor", case=case))
        else:
            found.append(setting.judged(each, case, finite_only=True))
    return setting.marked(brief(found) if found else [not_tried("a longer input would be too large")])


def _predicted_s(setting: Setting, shorter: Sequence[Inputs]) -> float:
    """Seconds of the processor for an input 8 times as long as the second of these, which is twice the first.

    A reference may take the square or the cube of a length in Python's loops. What is fast at an eighth counts as 0.
    """
    spent: list[float] = []
    for each in shorter:
        begin = process_time()
        attempt(setting.reference.outputs, each, setting.subject.fixed)
        attempt(setting.subject.forward, each)
        spent.append(process_time() - begin)
    first, second = spent
    return second * 8 ** min(3.0, max(0.0, log2(second / first))) if second > _NOTICED_S and first > 0 else 0.0


def integers(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterable[Finding]:
    """Every integer type that it accepts; for integers that are data and not indices, large ones and long sums, too.

    They are data if there is nothing else, the outputs are no larger, and their shapes do not depend on the values.
    What the reference gets wrong itself, because it overflows, is not judged.
    """
    subject = setting.subject
    free = [each for at, each in enumerate(inputs) if each is not None and at not in subject.fixed]
    if not subject.ours or not any(each.dtype.kind in "iu" for each in free):
        return []
    if not setting.compared:
        return [not_tried(NO_REFERENCE)]
    cases = list(integer_types(inputs, subject.fixed))
    outputs = attempt(subject.forward, inputs)
    data = outputs.worked and not any(is_float(each.dtype) for each in free)
    if data and sum(each.size for each in outputs.value if each is not None) <= sum(each.size for each in free):
        cases += large_integers(inputs, subject.fixed, random)
    for at, each in enumerate(inputs):
        if not data and each is not None and at not in subject.fixed and _no_index(each, inputs):
            cases.append((f"{each.dtype} at its limits", at_limits(inputs, [at], each.dtype, random)))
    found = []
    for title, changed in cases:
        one = setting.judged(changed, f"{title}: {describe(changed)}", may_raise=True)
        if one.status == "failed" and _overflows(setting, changed):
            one = not_tried("the reference itself overflows", case=one.case)
        found.append(one)
        if "in sums of" in title and one.status == "noted":
            break
    return brief(found)


def _no_index(value: Host, inputs: Inputs) -> bool:
    """Whether these are integers of one byte, as of quantised weights, of which some are beyond every size."""
    most = max((size for each in inputs if each is not None for size in each.shape), default=0)
    return value.dtype.kind in "iu" and value.dtype.itemsize == 1 and bool((np.abs(value.astype(int)) > most).any())


def _overflows(setting: Setting, inputs: Inputs) -> bool:
    """Whether the reference says something else if it is given the same integers as float64."""
    wide = [None if each is None else each.astype(np.float64) if each.dtype.kind in "iu" else each for each in inputs]
    answers = [attempt(setting.reference.outputs, each, setting.subject.fixed) for each in (inputs, wide)]
    if not all(each.worked for each in answers):
        return False
    for first, second in zip(answers[0].value.wide, answers[1].value.wide, strict=False):
        if first is None or second is None or first.shape != second.shape:
            return True
        if not np.allclose(first.astype(np.float64), second.astype(np.float64), rtol=1e-9, atol=1.0):
            return True
    return False


def gradients_elsewhere(setting: Setting, inputs: Inputs, random: np.random.Generator) -> list[Finding]:
    """The gradient with other batches, sizes, numbers of axes, and with numbers from 0.0001 to 900."""
    subject = setting.subject
    if not subject.ours or subject.pull is None:
        return []
    floats = [
        at for at, each in enumerate(inputs) if each is not None and at not in subject.fixed and is_float(each.dtype)
    ]
    if not floats:
        return []
    cases: list[tuple[str, Inputs, int | None]] = [
        (title, changed, None) for title, changed in more_sizes(inputs, subject.fixed, random)
    ]
    cases += [(title, changed, None) for title, changed in _broadcast(subject, inputs)]
    cases += [
        (title, changed, None)
        for title, changed in other_shapes(inputs, subject.fixed, random)
        if title.endswith((" 1", " 7"))
    ]
    if setting.compared:
        cases += [(title, changed, None) for title, changed in other_ranks(inputs, subject.fixed, random)]
    cases += [(title, changed, at) for title, at, changed in other_magnitudes(inputs, subject.fixed, random)]
    found = []
    for title, changed, at in cases:
        found.append(_one_gradient(setting, f"{title}: {describe(changed)}", changed, at, "rank" in title))
    found += _joint_gradients(setting, inputs)
    zeros = with_zeros(inputs, subject.fixed, random)
    found += [each for title, changed in zeros if (each := _lost_slope(setting, title, changed, random))][:1]
    bad = [each for each in found if each.status == "failed"][:_MOST_FINDINGS]
    return brief([each for each in found if each.status != "failed" or each in bad])


_NEAR = (1e-3, 1e-6)


def _lost_slope(setting: Setting, title: str, inputs: Inputs, random: np.random.Generator) -> Finding | None:
    """A gradient that is not finite where the outputs move in proportion to the inputs, as a length does at zero."""
    subject = setting.subject
    probe = attempt(make_probe, subject, inputs)
    if not probe.worked or probe.value.dtype != np.float64:
        return None
    wide, base = list(probe.value.inputs), probe.value.flat(probe.value.outputs)
    floats = [
        at for at, each in enumerate(wide) if at not in subject.fixed and each is not None and is_float(each.dtype)
    ]
    moves = {at: random.standard_normal(wide[at].shape) for at in floats}
    for sign in (1, -1):
        quotients = []
        for step in _NEAR:
            moved = [each + sign * step * moves[at] if at in moves else each for at, each in enumerate(wide)]
            found = attempt(subject.forward, moved)
            if not found.worked or probe.value.flat(found.value).shape != base.shape:
                return None
            quotients.append(np.abs(probe.value.flat(found.value) - base) / step)
        far, near = quotients
        if not (np.isfinite(base).all() and np.isfinite(near).all() and (near <= 1.5 * far + 1e-6 * (1 + far)).all()):
            return None
    answer = attempt(subject.vjp, probe.value.split(np.ones(base.size)), wide)
    for at in floats if answer.worked else ():
        gradient = answer.value[at]
        if gradient is not None and not np.isfinite(gradient).all():
            detail = f"the gradient of {subject.input_name(at)} is not finite, but the outputs have slopes there"
            return failed(detail, case=f"{title}: {describe(inputs)}")
    return None


def _joint_gradients(setting: Setting, inputs: Inputs) -> Iterator[Finding]:
    """The sum of the gradients of two inputs that are equal: what is paid to both at a tie is paid twice."""
    subject = setting.subject
    for first, second in combinations(range(len(inputs)), 2):
        one, two = inputs[first], inputs[second]
        if one is None or two is None or {first, second} & subject.fixed or not is_float(one.dtype):
            continue
        if (one.shape, one.dtype) != (two.shape, two.dtype):
            continue
        tied = replace(
            subject,
            call=lambda *native, at=first, to=second: subject.call(*_tied(native, at, to)),
            pull=partial(_summed_gradients, subject, first, second),
            begin=None,
        )
        report = attempt(partial(_examined, tied, inputs, setting.seed, first))
        wrong = [each for each in report.value.inputs if each.status == "wrong"] if report.worked else []
        case = f"{subject.input_name(first)} and {subject.input_name(second)} equal: the sum of their gradients"
        if wrong and AT_A_KINK not in wrong[0].detail:
            yield failed(wrong[0].detail, case=case)
        elif report.worked and not wrong:
            yield passed(case=case)


def _tied(native: Sequence[Array], at: int, to: int) -> list[Array]:
    """The inputs with the one at ``at`` in both places."""
    return [*native[:to], native[at], *native[to + 1 :]]


def _summed_gradients(
    subject: HostOperator, at: int, to: int, gradients: Sequence[Array], native: Sequence[Array]
) -> tuple[Array, ...]:
    assert subject.pull is not None
    found = list(as_tuple(subject.pull(gradients, _tied(native, at, to))))
    parts = [each for each in (found[at], found[to]) if each is not None]
    found[at], found[to] = (parts[0] if len(parts) == 1 else parts[0] + parts[1]) if parts else None, None
    return tuple(found)


def _examined(subject: HostOperator, inputs: Inputs, seed: int, only: int) -> GradientReport:
    skip = [at for at in range(len(inputs)) if at != only]
    return examine_gradient(subject, inputs, directions=1, seed=seed, skip=skip)


def _one_gradient(setting: Setting, case: str, inputs: Inputs, only: int | None, may_raise: bool) -> Finding:
    """The gradients of all inputs (or of one) on other inputs; wrong ones count where the forward is right."""
    subject = setting.subject
    forward = setting.judged(inputs, case, may_raise=True)
    if forward.status != "passed":
        return not_tried(
            "its forward does not accept it" if forward.status != "failed" else "its forward is wrong", case=case
        )
    skip = [] if only is None else [at for at in range(len(inputs)) if at != only]
    try:
        report = examine_gradient(subject, inputs, directions=1, seed=setting.seed, skip=skip)
    except LevelbenchError as error:
        return not_tried(f"{error.asked}: {error.found}", case=case)
    wrong = next((each.detail for each in report.inputs if each.status == "wrong"), None)
    if wrong is None:
        return Finding("", "passed", case=case)
    # A wrong shape is refused by every adapter, so that it is as good as an error.
    refused = may_raise and ("fails:" in wrong or " has shape " in wrong)
    return (noted if refused else failed)(wrong, case=case)


def attributes(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterable[Finding]:
    """Every attribute with other values: outputs and gradients, on the examples and with one axis more."""
    found: list[Finding] = []
    accepted: set[str] = set()
    for variant in setting.variants:
        made = attempt(variant.make)
        if not made.worked:
            found.append(not_tried(f"it refuses them: {made.error}", case=variant.title))
            continue
        changed, oracle = made.value
        other = replace(setting, subject=changed, reference=oracle, variants=())
        one = _one_variant(other, variant, inputs, random, counts=variant.unless not in accepted)
        if one.status != "not tried":
            accepted.add(variant.title)
        found.append(one)
    return brief(found)


def _one_variant(
    setting: Setting, variant: Variant, inputs: Inputs, random: np.random.Generator, *, counts: bool
) -> Finding:
    title = variant.title
    large = [*large_inputs(inputs, setting.subject.fixed, random)]
    cases: list[tuple[str, Inputs]] = [("", inputs), *large]
    # Where an attribute is a threshold or a slope, it may be taken for another size. A reference that cancels is exact
    # to the scale of its outputs, which few numbers do not show.
    if max((each.size for each in inputs if each is not None), default=0) >= _SHOWS_A_SCALE:
        cases += [each for each in other_values(inputs, setting.subject.fixed, random) if each[0] == _LARGE]
    cases += with_integers(inputs, setting.subject.fixed, variant.attributes.values())
    cases += equal_sizes(inputs, setting.subject.fixed, random)
    cases += [each for each in other_ranks(inputs, setting.subject.fixed, random) if each[0] in ("rank 3", "rank 4")]
    best: Finding | None = None
    for name, changed in cases:
        case = ", ".join(part for part in (title, name, describe(changed)) if part)
        # What follows from dividing by an attribute that is 0 is left open.
        finite_only = title.endswith("= 0.0") or name == _LARGE
        one = setting.judged(changed, case, may_raise=True, finite_only=finite_only)
        differentiable = setting.subject.pull is not None and setting.subject.deterministic
        sloped = one.status == "passed" and differentiable and setting.subject.ours
        if sloped and all(name != each for each, _ in large) and _finite(setting.subject.forward(changed)):
            slope = _one_gradient(setting, case, changed, None, True)
            one = one if slope.status == "not tried" else slope
        if one.status == "passed" and not name:
            # A way of its own for some value may return its input.
            one = memory.shared_outputs(setting.subject, [changed]) or one
        if one.status == "failed":
            return replace(one, status="failed" if counts else "noted", case=case)
        if best is None or (one.status == "passed" and best.status != "passed"):
            best = one
    assert best is not None
    return best


def _finite(values: Iterable[Host | None]) -> bool:
    return all(each is None or not is_float(each.dtype) or bool(np.isfinite(each).all()) for each in values)


def gradients_of_nan(setting: Setting, inputs: Inputs, random: np.random.Generator) -> Iterator[Finding]:
    """NaN in a gradient of an output reaches all elements that depend on it: a lost NaN hides a diverged training."""
    subject = setting.subject
    if not subject.ours or subject.pull is None:
        return
    outputs = attempt(subject.forward, inputs)
    floats = [
        at for at, each in enumerate(outputs.value or ()) if each is not None and is_float(each.dtype) and each.size
    ]
    if not floats:
        return
    zeros = [None if each is None or not is_float(each.dtype) else np.zeros_like(each) for each in outputs.value]
    for at in floats:
        zero = np.zeros_like(outputs.value[at])
        for place in dict.fromkeys(int(each) for each in random.integers(zero.size, size=_PLACES)):
            answers = []
            for value in (1.0, np.nan):
                changed = zero.copy(order="C")
                changed.reshape(-1)[place] = value
                answers.append(attempt(subject.vjp, replaced(zeros, at, changed), inputs))
            if not all(each.worked for each in answers):
                continue
            for number, (one, lost) in enumerate(zip(answers[0].value, answers[1].value, strict=True)):
                if one is None or lost is None or not is_float(one.dtype) or one.shape != lost.shape:
                    continue
                swallowed = (one.astype(np.float64) != 0) & np.isfinite(lost.astype(np.float64))
                if swallowed.any():
                    name = subject.input_name(number)
                    yield failed(f"NaN in the gradient of {subject.output_name(at)} does not reach that of {name}")
                    return
    yield passed("NaN in a gradient is passed on")
