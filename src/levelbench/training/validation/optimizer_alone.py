"""Probes of an optimizer by itself: what must hold for any update rule, whatever it computes.

The one idea: each is a pair of runs that must end alike (with and without a pause, in one order and in another, with
gradients kept and with gradients spoilt), so that no reference and hardly a tolerance is needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.averaging import AveragingRule, AveragingStepper
from levelbench.training.optimizers.base import Optimizer, RuleStepper, Stepper, UpdateRule
from levelbench.training.validation.optimizer_divergence import TOLERANCE, divergence
from levelbench.training.validation.optimizer_runs import Recorded, Run, run
from levelbench.training.validation.optimizer_subject import Subject
from levelbench.training.validation.probes import Finding, failed, not_tried, noted, passed

__all__ = ["ALONE"]

_MODEST = (1e-8, 1e4)
_EXTREME = (1e-30, 1e8, 1e15)


def deterministic(subject: Subject) -> Iterator[Finding]:
    """Two runs, the same bits."""
    first, second = (run(subject.optimizer, subject.backend, subject.quadratic(), subject.steps) for _ in range(2))
    yield _same("determinism", first, second, "two equal runs part", "keep all state in what `init` returns")


def restored(subject: Subject) -> Iterator[Finding]:
    """A pause in the middle, the same bits."""
    problem, half = subject.quadratic(), subject.steps // 2
    through = run(subject.optimizer, subject.backend, problem, subject.steps)
    paused = run(subject.optimizer, subject.backend, problem, subject.steps, pause=half)
    do = "have `state` return all that the next step needs, and `restore` put it back"
    yield _same("state", through, paused, f"a run that goes on from its state after step {half} parts", do)


def gradients_left(subject: Subject) -> Iterator[Finding]:
    """Gradients that are overwritten after their step change nothing."""
    kept = run(subject.optimizer, subject.backend, subject.quadratic(), subject.steps)
    spoilt = run(subject.optimizer, subject.backend, subject.quadratic(), subject.steps, spoil=True)
    do = "copy what is kept of a gradient: its memory belongs to the next step"
    yield _same("gradients", kept, spoilt, "the state holds on to a gradient's own array", do)


def ordered(subject: Subject) -> Iterator[Finding]:
    """Parameters in another order, the same result."""
    names = list(subject.shapes)
    there = run(subject.optimizer, subject.backend, subject.quadratic(), subject.steps)
    back = run(subject.optimizer, subject.backend, subject.quadratic(), subject.steps, names=names[::-1])
    # A norm over all gradients may be added up in another order.
    found = divergence("order", back, there)
    if found.first is None:
        yield passed("order of parameters", f"L∞ {found.linf.max(initial=0):.1e}")
    else:
        yield failed(
            "order of parameters",
            f"in another order {found.where!r} parts at step {found.first} (L∞ {found.linf.max():.1e})",
            "keep the state of each parameter by itself",
        )


def independent(subject: Subject) -> Iterator[Finding]:
    """An update rule takes each parameter for itself."""
    if not subject.is_rule:
        yield not_tried("each parameter for itself", "it is no UpdateRule, and may look at all of them together")
        return
    problem = subject.quadratic()
    together = run(subject.optimizer, subject.backend, problem, subject.steps)
    for name in subject.shapes:
        alone = run(subject.optimizer, subject.backend, problem, subject.steps, names=[name])
        apart = [step for step, (a, b) in enumerate(zip(alone.values, together.values, strict=True)) if _differ(a, b)]
        if apart:
            found = f"{name!r} moves otherwise without the others, from step {apart[0]}"
            yield failed("each parameter for itself", found, "keep the state of each parameter by itself")
            return
    yield passed("each parameter for itself", f"{len(subject.shapes)} shapes")


def elementwise(subject: Subject) -> Iterator[Finding]:
    """A rule that says that it is elementwise may be given its parameters cut in pieces."""
    rule = subject.optimizer
    if not isinstance(rule, UpdateRule) or not rule.elementwise:
        yield not_tried("elementwise", "it does not say that it is")
        return
    random = np.random.default_rng([subject.seed, 7])
    whole = Recorded(
        "whole", {"whole": random.standard_normal(12)}, [{"whole": random.standard_normal(12)} for _ in range(5)]
    )
    halves = Recorded(
        "halves",
        {"left": whole.parameters["whole"][:5], "right": whole.parameters["whole"][5:]},
        [{"left": each["whole"][:5], "right": each["whole"][5:]} for each in whole.gradients],
    )
    one, two = (run(rule, subject.backend, each, 8, start=_loop) for each in (whole, halves))
    for step, (a, b) in enumerate(zip(one.values, two.values, strict=True)):
        if not np.allclose(a["whole"], np.concatenate([b["left"], b["right"]]), rtol=1e-12, atol=1e-14, equal_nan=True):
            found = f"a vector and its two halves part at step {step}, so an element's step depends on others"
            yield failed("elementwise", found, "write `elementwise: ClassVar[bool] = False` in the rule")
            return
    yield passed("elementwise", "a vector moves as its halves do")


def dtypes_kept(subject: Subject) -> Iterator[Finding]:
    """Parameters and state in float32 stay so."""
    found = run(subject.optimizer, subject.backend, subject.quadratic(), 3, dtype=np.float32, start=_loop)
    do = "make numbers of `float(...)`, and arrays from the parameter (`zeros_like`)"
    wrong = [name for name, each in found.last.items() if each.dtype != np.float32]
    if wrong:
        yield failed("dtype and shape", f"{wrong[0]!r} became {found.last[wrong[0]].dtype}", do)
    moved = [name for name, each in found.last.items() if each.shape != subject.shapes[name]]
    if moved:
        became = f"{moved[0]!r} of shape {subject.shapes[moved[0]]} became {found.last[moved[0]].shape}"
        yield failed("dtype and shape", became, "return the parameter in its own shape")
    wide = [name for name, each in found.state.items() if each.ndim and each.size and each.dtype == np.float64]
    if wide:
        yield failed("dtype and shape", f"the state {wide[0]!r} of a float32 parameter is float64", do)
    if not (wrong or moved or wide):
        yield passed("dtype and shape", f"{len(found.last)} parameters and {len(found.state)} states in float32")


def rate_zero(subject: Subject) -> Iterator[Finding]:
    """No rate, no way."""
    still = run(subject.optimizer, subject.backend, subject.quadratic(), 5, factor=lambda step: 0.0)
    begin = [still.values[0]] * len(still.values)
    found = divergence("rate zero", still, Run(begin, {}, None), 1e-12)
    if found.first is None:
        yield passed("rate zero", "a factor of 0 leaves the parameters where they are")
        return
    yield failed(
        "rate zero",
        f"at a factor of 0 {found.where!r} moves at step {found.first} (L∞ {found.linf.max():.1e})",
        "multiply each step, and the decay of weights, by the `lr` that `update` is given",
    )


def rate_scaled(subject: Subject) -> Iterator[Finding]:
    """A schedule's factor is the same as another base rate."""
    rule = subject.optimizer
    if not isinstance(rule, UpdateRule):
        yield not_tried("rate", "it is no UpdateRule, whose rate could be set")
        return
    half = dataclasses.replace(rule, lr=rule.lr / 2)
    a = run(rule, subject.backend, subject.quadratic(), subject.steps, factor=lambda step: 0.5)
    b = run(half, subject.backend, subject.quadratic(), subject.steps)
    found = divergence("rate", a, b)
    if found.first is None:
        yield passed("rate", "a factor of 0.5 is half the rate")
        return
    at = f"{found.where!r} parts at step {found.first}"
    yield failed("rate", f"a factor of 0.5 is not half the rate: {at}", "use the `lr` that `update` is given")


def descends(subject: Subject) -> Iterator[Finding]:
    """Small steps without noise lead down."""
    # Around the origin, so that a decay of the weights leads down as well.
    problem = subject.quadratic(noise=0.0, centre=0.0)
    found = run(subject.optimizer, subject.backend, problem, 20, factor=lambda step: 1e-2)

    def height(values: dict[str, Any]) -> float:
        return float(sum(np.sum(each * problem.gradient(name, 1, each)) / 2 for name, each in values.items()))

    before, after = height(found.values[0]), height(found.last)
    if after < before:
        yield passed(
            "descent", f"½ Σ a w² fell from {before:.6g} to {after:.6g} in 20 steps at a hundredth of the rate"
        )
    elif after == before:
        yield failed("descent", "nothing moved in 20 steps", "return the parameter that was updated")
    else:
        yield failed("descent", f"½ Σ a w² rose from {before:.6g} to {after:.6g}", "look at the sign of the step")


def zero_gradients(subject: Subject) -> Iterator[Finding]:
    """Where there was never a gradient, nothing moves but by a decay."""
    found = run(subject.optimizer, subject.backend, subject.quadratic(scale=0.0), 5)
    lost = _not_finite(found)
    moved = [name for name, each in found.last.items() if not np.allclose(each, found.values[0][name], 1e-12, 1e-15)]
    if lost:
        yield failed("zero gradients", lost, "bound what is divided by from below (epsilon)")
    elif not moved:
        yield passed("zero gradients", "nothing moves")
    elif all((np.abs(found.last[name]) <= np.abs(found.values[0][name])).all() for name in moved):
        yield noted("zero gradients", "the parameters shrink: the weights decay")
    else:
        yield failed("zero gradients", f"{moved[0]!r} moves away from zero", "let a step of no gradient be none")


def scales(subject: Subject) -> Iterator[Finding]:
    """Small and large gradients in float32 leave numbers."""
    for scale in (*_MODEST, *_EXTREME):
        problem = subject.quadratic(scale=scale)
        try:
            lost = _not_finite(run(subject.optimizer, subject.backend, problem, 10, dtype=np.float32))
        except Exception as error:  # noqa: BLE001  # the boundary to a user's rule, which may raise anything
            lost = f"it raises {type(error).__name__}: {error}"
        if not lost:
            continue
        found = f"in float32, with gradients of about {scale:.0e}, {lost}"
        if scale in _MODEST and not _grows(subject):
            yield failed("scale of gradients", found, "bound what is divided by, and do not square what is large")
        else:
            yield noted("scale of gradients", found)
        return
    yield passed("scale of gradients", "finite from 1e-30 to 1e+15, in float32")


def averages(subject: Subject) -> Iterator[Finding]:
    """The weights to evaluate with are there by the same names, and finite."""
    found = run(subject.optimizer, subject.backend, subject.quadratic(), 5)
    if found.averaged is None:
        return
    wrong = [name for name, each in found.last.items() if found.averaged.get(name, np.zeros(0)).shape != each.shape]
    if wrong or found.averaged.keys() != found.last.keys():
        other = f"{wrong[0]!r} is missing or of another shape" if wrong else "there are names that are no parameter's"
        yield failed("averaged weights", other, "give one array for each parameter, of its shape")
    elif not all(np.isfinite(each).all() for each in found.averaged.values()):
        yield failed("averaged weights", "they are not finite", "average what is finite")
    else:
        yield passed("averaged weights", f"{len(found.averaged)} of them")


ALONE = (
    dtypes_kept,
    deterministic,
    restored,
    gradients_left,
    ordered,
    independent,
    elementwise,
    rate_zero,
    rate_scaled,
    descends,
    zero_gradients,
    scales,
    averages,
)
"""The probes that need no reference, in the order of a report."""


def _loop(optimizer: Optimizer, backend: Backend, parameters: dict[str, Array]) -> Stepper:
    """A rule as it is written, one array after another, without the framework's faster way."""
    if isinstance(optimizer, AveragingRule):
        return AveragingStepper(optimizer, backend, parameters)
    if isinstance(optimizer, UpdateRule):
        return RuleStepper(optimizer, backend, parameters)
    return optimizer.start(backend, parameters)


def _grows(subject: Subject) -> bool:
    """Whether the step is in proportion to the gradient, so that large ones must lead far."""
    one, ten = (
        run(subject.optimizer, subject.backend, subject.quadratic(scale=scale), 1, dtype=np.float64)
        for scale in (1.0, 10.0)
    )
    ways = [max(float(np.abs(r.last[n] - r.values[0][n]).max(initial=0)) for n in r.last) for r in (one, ten)]
    return ways[1] > 5 * ways[0]


def _not_finite(found: Run) -> str:
    for step, values in enumerate(found.values):
        for name, each in values.items():
            if not np.isfinite(each).all():
                return f"{name!r} is not finite after step {step}"
    return ""


def _differ(some: dict[str, Any], all_of_them: dict[str, Any]) -> bool:
    return any(not np.array_equal(each, all_of_them[name], equal_nan=True) for name, each in some.items())


def _same(probe: str, one: Run, two: Run, what: str, do: str) -> Finding:
    """Passed if two runs have the same bits all the way."""
    for step, (a, b) in enumerate(zip(one.values, two.values, strict=True)):
        if _differ(a, b):
            found = divergence(probe, two, one, TOLERANCE)
            return failed(probe, f"{what}, first at step {step} (L∞ {cast(float, found.linf.max()):.1e})", do)
    return passed(probe, f"bitwise, {len(one.values) - 1} steps")
