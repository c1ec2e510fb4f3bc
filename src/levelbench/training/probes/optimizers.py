"""Checks whether an optimizer is right: by itself, against a reference, and on several frameworks.

A network's loss falls with many a wrong optimizer, only more slowly. So the checks examine not training but every step:
they compare it with the same step taken in another way (with and without a pause, in another order, with gradients
overwritten), or with the step of another optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, cast

import numpy as np

from levelbench.checks.arrays import Host
from levelbench.checks.findings import Finding, Probe, Report, failed, not_tried, noted, passed, run_probes
from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.networks import zoo
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import Optimizer, Stepper, UpdateRule
from levelbench.training.optimizers.wrappers import NATIVE, Groups, Native
from levelbench.training.probes.optimizer_ranges import BEYOND, RPROP, adapts_lengths, smallest_ignored
from levelbench.training.probes.optimizer_references import RULES, NamedReference, computes_in_bfloat16, reference_of
from levelbench.training.probes.optimizer_runs import (
    EARLY,
    NATIVE_TOLERANCE,
    SHAPES,
    TOLERANCE,
    Divergence,
    OptimizerTrial,
    Quadratic,
    Recorded,
    Run,
    TestProblem,
    divergence,
    framework_of,
    open_backend,
    run,
)

_PAUSED = 12
_TWO = ("first", "second")
_MODEST = (1e-8, 1e4)
_EXTREME = (1e-30, 1e8, 1e15)


def _deterministic(subject: OptimizerTrial) -> Iterator[Finding]:
    """Two runs give the same bits."""
    first, second = (subject.run() for _ in range(2))
    found = _same(first, second, "two equal runs diverge", "keep all state in the result of `init`")
    if found.status == "passed":
        subject.repeated[tuple(subject.shapes)] = second
    yield found


def _restored(subject: OptimizerTrial) -> Iterator[Finding]:
    """A pause gives the same bits: in the middle, after every step, and in a stepper that was used before."""
    problem, half = subject.quadratic(), subject.steps // 2
    do = "let `state` return everything that the next step needs, and `restore` put it back"
    if isinstance(subject.optimizer, Native):
        do = "keep everything that the next step needs where the framework saves it: PyTorch in `self.state[parameter]`"
    through, short = subject.usual(), subject.run(problem, _PAUSED)
    resumed = {
        f"a run resumed from its state after step {half}": (through, subject.run(problem, pauses=(half,))),
        "a run resumed from its state after every step": (short, subject.run(problem, _PAUSED, pauses=range(_PAUSED))),
    }
    still = subject.run(problem, 1, factor=lambda step: 0.0)
    if not _differ(still.last, still.values[0]):
        used = subject.run(problem, _PAUSED, pauses=(3, 8), used=True)
        if divergence("", used, short, 1e-12).first is not None:
            # Its step at rate 0 may have rounded the parameters, so this is not compared bit by bit.
            yield failed("a run whose state is restored into a stepper that was used before diverges", do)
            return
    for what, (one, two) in resumed.items():
        found = _same(one, two, f"{what} diverges", do)
        if found.status == "passed" and (lost := _other_end(one, two)):
            found = failed(f"{what} ends with other {lost}", do)
        if found.status == "failed":
            yield found
            return
    yield passed(f"bitwise, resumed after step {half} and after each of {_PAUSED}")


def _other_end(one: Run, two: Run) -> str:
    """What differs after the last step although the parameters do not."""
    if one.averaged is not None and _differ(one.averaged, two.averaged or one.values[0]):
        return "averaged weights"
    if one.state.keys() != two.state.keys() or _differ(one.state, two.state):
        return "state"
    return ""


def _gradients_copied(subject: OptimizerTrial) -> Iterator[Finding]:
    """Overwriting gradients after their step changes nothing."""
    kept = subject.usual()
    spoilt = subject.run(spoil=True)
    do = "copy what is kept of a gradient: its memory is reused by the next step"
    yield _same(kept, spoilt, "the state holds on to a gradient's own array", do)


def _ordered(subject: OptimizerTrial) -> Iterator[Finding]:
    """Parameters in another order give the same result, also where their shapes are equal."""
    problem = subject.quadratic()
    # The state of two parameters is shared most easily if their shapes are equal.
    twins = subject.quadratic(
        shapes={f"{which} {name}": each for name, each in subject.shapes.items() for which in _TWO}
    )
    do = "keep the state of each parameter separately"
    for each, steps, there in ((twins, _PAUSED, None), (problem, subject.steps, subject.usual())):
        there = subject.run(each, steps) if there is None else there
        back = subject.run(each, steps, names=list(each.shapes)[::-1])
        # A norm over all gradients may be summed in another order.
        found = divergence("order", back, there)
        if found.first is not None:
            break
    yield _agrees(found, f"L∞ {found.linf.max(initial=0):.1e}", "the order of parameters matters", do)


def _independent(subject: OptimizerTrial) -> Iterator[Finding]:
    """An update rule updates each parameter independently."""
    if not subject.is_rule:
        yield not_tried("it is not an UpdateRule, so parameters may depend on each other")
        return
    problem = subject.quadratic()
    together = subject.usual()
    for name in subject.shapes:
        alone = subject.run(problem, names=[name])
        apart = [step for step, (a, b) in enumerate(zip(alone.values, together.values, strict=True)) if _differ(a, b)]
        if apart:
            found = f"{name!r} moves differently without the others, from step {apart[0]}"
            yield failed(found, "keep the state of each parameter separately")
            return
    yield passed(f"{len(subject.shapes)} shapes")


def _elementwise(subject: OptimizerTrial) -> Iterator[Finding]:
    """A rule that claims to be elementwise may get its parameters in pieces."""
    rule = subject.optimizer
    if not isinstance(rule, UpdateRule) or not rule.elementwise:
        yield not_tried("it does not claim to be")
        return
    random = np.random.default_rng([subject.seed, 7])
    whole = Recorded(
        "whole", {"whole": random.standard_normal(12)}, [{"whole": random.standard_normal(12)} for _ in range(5)]
    )
    halves = Recorded(
        "halves",
        {"left": whole.parameters["whole"][:5], "right": whole.parameters["whole"][5:]},
        [{"left": each["whole"][:5], "right": each["whole"][5:]} for each in whole.recorded],
    )
    one, two = (run(rule, subject.backend, each, 8, start=_loop) for each in (whole, halves))
    for step, (a, b) in enumerate(zip(one.values, two.values, strict=True)):
        if not np.allclose(a["whole"], np.concatenate([b["left"], b["right"]]), rtol=1e-12, atol=1e-14, equal_nan=True):
            found = f"a vector and its two halves differ at step {step}, so an element's step depends on others"
            yield failed(found, "write `elementwise: ClassVar[bool] = False` in the rule")
            return
    yield passed("a vector moves as its halves do")


def _dtypes_kept(subject: OptimizerTrial) -> Iterator[Finding]:
    """Parameters and state in float32 stay in float32."""
    found = subject.run(steps=3, dtype=np.float32, start=_loop)
    do = "make numbers with `float(...)`, and arrays from the parameter (`zeros_like`)"
    wrong = [name for name, each in found.last.items() if each.dtype != np.float32]
    if wrong:
        yield failed(f"{wrong[0]!r} became {found.last[wrong[0]].dtype}", do)
    moved = [name for name, each in found.last.items() if each.shape != subject.shapes[name]]
    if moved:
        became = f"{moved[0]!r} of shape {subject.shapes[moved[0]]} became {found.last[moved[0]].shape}"
        yield failed(became, "return the parameter in its original shape")
    # A name with # is that of a Python number, or of a list of them.
    arrays = {name: each for name, each in found.state.items() if each.ndim and each.size and not name.endswith("#")}
    wide = [name for name, each in arrays.items() if each.dtype == np.float64]
    if wide:
        # Constants that a framework keeps beside the state, such as a polynomial's coefficients, are none.
        before = subject.run(steps=1, dtype=np.float32, start=_loop).state
        wide = [name for name in wide if name not in before or not np.array_equal(arrays[name], before[name])]
    if wide:
        yield failed(f"the state {wide[0]!r} of a float32 parameter is float64", do)
    if not (wrong or moved or wide):
        yield passed(f"{len(found.last)} parameters and {len(found.state)} states in float32")


def _rate_zero(subject: OptimizerTrial) -> Iterator[Finding]:
    still = subject.run(steps=5, factor=lambda step: 0.0)
    begin = [still.values[0]] * len(still.values)
    found = divergence("rate zero", still, Run(begin, {}, None), 1e-12)
    do = "multiply each step, and weight decay, by the `lr` passed to `update`"
    if found.first is not None and adapts_lengths(subject):
        yield noted(f"a factor of 0 moves parameters: {RPROP}")
        return
    yield _agrees(found, "a factor of 0 leaves the parameters unchanged", "a factor of 0 moves parameters", do)


def _rate_scaled(subject: OptimizerTrial) -> Iterator[Finding]:
    """A schedule's factor is equivalent to another base rate."""
    rule = subject.optimizer
    do = "use the `lr` passed to `update`"
    if isinstance(rule, Native) and rule.framework == "torch":
        do = "read the rate from `param_groups` in each step: `group['lr']`"
    elif not isinstance(rule, UpdateRule):
        yield not_tried("only an UpdateRule and PyTorch's optimizers can be made anew with another rate")
        return
    for factor, said in ((0.5, "half"), (3.0, "three times")):
        other = rule.with_rate(rule.lr * factor) if isinstance(rule, Native) else replace(rule, lr=rule.lr * factor)
        a = subject.run(factor=lambda step, factor=factor: factor)
        b = run(other, subject.backend, subject.quadratic(), subject.steps)
        agreement, fault = (
            f"a factor of {factor:g} equals {said} the rate",
            f"a factor of {factor:g} is not {said} the rate",
        )
        apart = divergence("rate", a, b)
        from_usual = divergence("rate", b, subject.usual())
        if apart.first is not None and from_usual.first is not None and _scales_steps(subject, factor):
            yield noted(f"{fault}, but scales each step: something else depends on the base rate", do)
        else:
            yield _agrees(apart, agreement, fault, do)


def _scales_steps(subject: OptimizerTrial, factor: float) -> bool:
    """Whether a factor at one step alone multiplies what that step does, decay and bounds included."""
    for last in (2, 10):
        plain = subject.run(steps=last).values
        scaled = subject.run(steps=last, factor=lambda step, last=last: factor if step == last else 1.0).values
        for name, end in plain[-1].items():
            moved, wanted = scaled[-1][name] - scaled[-2][name], factor * (end - plain[-2][name])
            if not np.allclose(moved, wanted, 1e-9, 1e-12):
                return False
    return True


def _descends(subject: OptimizerTrial) -> Iterator[Finding]:
    """Small steps without noise lead downhill."""
    # Centred at the origin, so that weight decay leads downhill as well.
    problem = subject.quadratic(noise=0.0, centre=0.0)
    found = subject.run(problem, 20, factor=lambda step: 1e-2)

    def height(values: dict[str, Host]) -> float:
        slopes = problem.gradients(1, values)
        return float(sum(np.sum(each * slopes[name]) / 2 for name, each in values.items()))

    before, after = height(found.values[0]), height(found.last)
    still = [name for name, each in found.last.items() if each.size and np.array_equal(each, found.values[0][name])]
    if still and after < before:
        yield failed(f"{still[0]!r} did not move in 20 steps", "update every parameter that has a gradient")
    elif after < before:
        yield passed(f"½ Σ a w² fell from {before:.6g} to {after:.6g} in 20 steps at a hundredth of the rate")
    elif after == before:
        yield failed("nothing moved in 20 steps", "return the updated parameter")
    else:
        yield failed(f"½ Σ a w² rose from {before:.6g} to {after:.6g}", "check the sign of the step")


def _zero_gradients(subject: OptimizerTrial) -> Iterator[Finding]:
    """Without any gradient, nothing moves except by weight decay."""
    found = subject.run(subject.quadratic(scale=0.0), 5)
    lost = _not_finite(found)
    moved = [name for name, each in found.last.items() if not np.allclose(each, found.values[0][name], 1e-12, 1e-15)]
    if lost:
        yield failed(lost, "bound denominators from below (epsilon)")
    elif not moved:
        yield passed("nothing moves")
    elif all((np.abs(found.last[name]) <= np.abs(found.values[0][name])).all() for name in moved):
        yield noted("the parameters shrink: weight decay")
    elif (share := _fading(found, subject.run(steps=5))) is not None:
        yield noted(f"{moved[0]!r} moves by {share:.1g} of a step, and less in each: its state does not begin at 0")
    else:
        yield failed(f"{moved[0]!r} moves away from zero", "do not move without a gradient")


_FADED = 0.01


def _fading(still: Run, usual: Run) -> float | None:
    """The share of a usual first step that is made without a gradient, if it is small and each further one smaller."""

    def longest(found: Run) -> list[float]:
        return [max(float(np.abs(b[name] - a[name]).max(initial=0)) for name in b) for a, b in pairwise(found.values)]

    ways = longest(still)
    share = ways[0] / max(longest(usual)[0], 1e-300)
    return share if share < _FADED and all(b < 0.99 * a for a, b in pairwise(ways)) else None


def _scales(subject: OptimizerTrial) -> Iterator[Finding]:
    """Small and large gradients in float32 leave finite numbers; small ones move parameters."""
    for scale in (*_MODEST, *_EXTREME):
        problem = subject.quadratic(scale=scale)
        try:
            lost = _not_finite(subject.run(problem, 10, dtype=np.float32))
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            lost = f"it raises {type(error).__name__}: {error}"
        if not lost:
            continue
        found = f"in float32, with gradients of about {scale:.0e}, {lost}"
        if scale in _MODEST and not _is_linear(subject):
            yield failed(found, "bound denominators, and do not square large numbers")
        else:
            yield noted(found)
        break
    else:
        yield passed("finite from 1e-30 to 1e+15, in float32")
    if ignored := smallest_ignored(subject):
        yield failed(ignored, "let every gradient count; a threshold has to grow with the gradients and the rate")


def _averages(subject: OptimizerTrial) -> Iterator[Finding]:
    """The weights to evaluate with have the parameters' names, and are finite."""
    found = subject.run(steps=5)
    if found.averaged is None:
        return
    wrong = [name for name, each in found.last.items() if found.averaged.get(name, np.zeros(0)).shape != each.shape]
    if wrong or found.averaged.keys() != found.last.keys():
        other = f"{wrong[0]!r} is missing or of another shape" if wrong else "some names are not parameters"
        yield failed(other, "give one array for each parameter, of its shape")
    elif not all(np.isfinite(each).all() for each in found.averaged.values()):
        yield failed("they are not finite", "average finite weights only")
    else:
        yield passed(f"{len(found.averaged)} of them")


_ALONE: dict[str, Callable[[OptimizerTrial], Iterator[Finding]]] = {
    "dtype and shape": _dtypes_kept,
    "determinism": _deterministic,
    "state": _restored,
    "gradients": _gradients_copied,
    "order of parameters": _ordered,
    "each parameter for itself": _independent,
    "elementwise": _elementwise,
    "rate zero": _rate_zero,
    "rate": _rate_scaled,
    "descent": _descends,
    "zero gradients": _zero_gradients,
    "scale of gradients": _scales,
    "averaged weights": _averages,
    **BEYOND,
}
"""The probes that need no reference, in the order of the report."""


def _loop(optimizer: Optimizer, backend: Backend, parameters: dict[str, Array]) -> Stepper:
    """Start a rule without the framework's faster implementation."""
    begin = optimizer.one_by_one if isinstance(optimizer, UpdateRule) else optimizer.start
    return begin(backend, parameters)


def _is_linear(subject: OptimizerTrial) -> bool:
    """Whether the step is proportional to the gradient, so that large ones must lead far."""
    one, ten = (subject.run(subject.quadratic(scale=scale), 1, dtype=np.float64) for scale in (1.0, 10.0))
    ways = [max(float(np.abs(r.last[n] - r.values[0][n]).max(initial=0)) for n in r.last) for r in (one, ten)]
    return ways[1] > 5 * ways[0]


def _not_finite(found: Run) -> str:
    for step, values in enumerate(found.values):
        for name, each in values.items():
            if not np.isfinite(each).all():
                return f"{name!r} is not finite after step {step}"
    return ""


def _differ(some: dict[str, Host], all_of_them: dict[str, Host]) -> bool:
    return any(not np.array_equal(each, all_of_them[name], equal_nan=True) for name, each in some.items())


def _agrees(found: Divergence, agreement: str, fault: str, do: str) -> Finding:
    """Passed if two runs agree to rounding."""
    if found.first is None:
        return passed(agreement)
    return failed(f"{fault}: {found.where!r} differs from step {found.first} (L∞ {found.linf.max():.1e})", do)


def _same(one: Run, two: Run, what: str, do: str) -> Finding:
    """Passed if two runs have the same bits throughout."""
    for step, (a, b) in enumerate(zip(one.values, two.values, strict=True)):
        if _differ(a, b):
            found = divergence("", two, one)
            return failed(f"{what}, first at step {step} (L∞ {cast(float, found.linf.max()):.1e})", do)
    return passed(f"bitwise, {len(one.values) - 1} steps")


_FEATURES, _HIDDEN, _CLASSES, _BATCH, _RECORDED = 6, 5, 3, 16, 20
_LONG, _OF_LONG = 10, ("matrix", "vector")
_FEW, _FACTORS, _LATE = 10, (1.0, 7.0, 0.3, 60.0), (1_001, 5_001, 20_001, 1_000_001)
_BFLOAT16_TOLERANCE = 0.05
_ROUNDING = 10.0
"""In float32, an optimizer may be this many times further from its float64 run than the reference."""


def recorded_network(optimizer: Optimizer, backend: Backend, seed: int, matrices: bool) -> Recorded:
    """The gradients of a small network trained by this optimizer on clustered points; ``matrices``: no biases."""
    network = zoo.mlp(_FEATURES, _HIDDEN, _CLASSES).with_loss().training()
    executor = backend.executor(network, network.initialise(seed))
    random = np.random.default_rng([seed, 11])
    centres = random.standard_normal((_CLASSES, _FEATURES)) * 2
    taken = [name for name, each in executor.parameters.items() if len(each.shape) > 1 or not matrices]
    parameters = {name: executor.parameters[name] for name in taken}
    start = {name: np.array(backend.host(each), np.float64) for name, each in parameters.items()}
    stepper = optimizer.start(backend, parameters)
    gradients = []
    for step in range(1, _RECORDED + 1):
        labels = random.integers(0, _CLASSES, _BATCH)
        points = (centres[labels] + random.standard_normal((_BATCH, _FEATURES))).astype(np.float32)
        _, found = executor.infer_and_backprop(backend.array(points), backend.array(labels.astype(np.int64)))
        kept = {name: found[name] for name in taken}
        gradients.append({name: np.array(backend.host(each), np.float64) for name, each in kept.items()})
        stepper.step(kept, step, 1.0)
        for name, each in parameters.items():
            executor.parameters[name] = each
    return Recorded("network", start, gradients)


@dataclass
class _Comparison:
    """A subject and its reference on the same problems; ``seen`` collects the divergences."""

    subject: OptimizerTrial
    reference: Optimizer
    backend: Backend
    seen: list[Divergence]
    lags: bool = False

    @property
    def tolerance(self) -> float:
        if computes_in_bfloat16(self.reference):
            return _BFLOAT16_TOLERANCE
        return NATIVE_TOLERANCE if isinstance(self.reference, Native) else TOLERANCE

    def problems(self) -> Iterator[tuple[TestProblem, dict[str, Any]]]:
        """The problems for both, with the settings of their runs."""
        subject, steps = self.subject, self.subject.steps
        yield subject.quadratic("quadratic"), {}
        yield subject.quadratic("small gradients", scale=1e-8), {}
        yield subject.quadratic("large gradients", scale=1e3), {}
        yield subject.quadratic("large weights", spread=1e2), {"steps": _FEW}
        yield subject.quadratic("gradients that end", zero_after=max(1, steps // 4)), {}
        # From zero up and down again.
        yield subject.quadratic("schedule"), {"factor": lambda step: min(step - 1, steps - step) * 2 / steps}
        yield subject.quadratic("high rates"), {"steps": 5, "factor": lambda step: _FACTORS[step % len(_FACTORS)]}
        yield subject.quadratic("large arrays", shapes=subject.large), {"steps": 3}
        for step in _LATE:
            yield subject.quadratic(f"step {step:,}"), {"steps": EARLY + 3, "late": step}
        matrices = "vector" not in subject.shapes
        yield recorded_network(self.reference, self.backend, subject.seed, matrices), {}

    def runs(self, problem: TestProblem, steps: int = 0, **settings: Any) -> tuple[Run, Run]:
        subject, steps = self.subject, steps or self.subject.steps
        ours = subject.run(problem, steps, **settings)
        return ours, run(self.reference, self.backend, problem, steps, **settings)

    def first_step(self) -> Iterator[Finding]:
        """Before errors can accumulate."""
        subject = self.subject
        problem = subject.quadratic("first step")
        ours = subject.run(problem, 1)
        found = divergence("first step", ours, run(self.reference, self.backend, problem, 1), self.tolerance)
        yield _comparison_finding(found, "the very first step differs")

    @cached_property
    def usual(self) -> tuple[Run, Run]:
        """The runs on the quadratic problem."""
        subject = self.subject
        return subject.usual(), run(self.reference, self.backend, subject.quadratic(), subject.steps)

    def trajectories(self) -> Iterator[Finding]:
        for problem, settings in self.problems():
            ours, theirs = self.usual if problem == self.subject.quadratic() else self.runs(problem, **settings)
            found = divergence(problem.name, ours, theirs, self.tolerance)
            self.seen.append(found)
            probe = f"reference: {problem.name}"
            if found.first is not None and self.lags and "factor" in settings:
                said = "its reference keeps the rate in its velocity, so that a schedule acts on it later"
                yield noted(said, probe=probe)
            else:
                yield _comparison_finding(found, "it diverges from its reference", probe)

    def not_finite(self) -> Iterator[Finding]:
        """Gradients that are not finite spoil what they spoil in the reference, or their step is left out."""
        for value in (float("nan"), float("inf")):
            try:
                ours, theirs = self.runs(self.subject.quadratic(spoilt=(2, value)), 2)
            except Exception as error:  # noqa: BLE001  # user code may raise anything, and an error is not silent
                yield noted(f"with {value} in a gradient, one of them raises {type(error).__name__}: {error}")
                continue
            for name, each in theirs.last.items():
                mine, before = np.isfinite(ours.last[name]), ours.values[1][name]
                if np.any(mine & ~np.isfinite(each) & (ours.last[name] != before)):
                    yield failed(
                        f"with {value} in a gradient, {name!r} moves to finite numbers, and the reference's does not",
                        "let it show in the parameter, or leave out the step",
                    )
                    return
        yield passed("what is not finite in the reference is not here, or its step is left out")

    def long(self) -> Iterator[Finding]:
        """Ten times as many steps on two parameters, for errors that show late."""
        subject = self.subject
        shapes = {name: shape for name, shape in subject.shapes.items() if name in _OF_LONG} or subject.shapes
        problem, steps = Quadratic("long", dict(shapes), subject.seed), _LONG * subject.steps
        ours = subject.run(problem, steps)
        theirs = run(self.reference, self.backend, problem, steps)
        found = divergence(problem.name, ours, theirs, self.tolerance)
        self.seen.append(found)
        yield _comparison_finding(found, "it diverges from its reference")

    def rounding(self) -> Iterator[Finding]:
        """In float32, as close to float64 as the reference is, within a factor."""
        _, exact = self.usual
        ours, theirs = self.runs(self.subject.quadratic("float32"), dtype=np.float32)
        lost = float(divergence("float32", theirs, exact).linf.max(initial=0))
        allowed = max(_ROUNDING * lost + 1e-5, self.tolerance)
        found = divergence("float32", ours, exact, allowed)
        self.seen.append(found)
        yield _comparison_finding(found, f"it loses more than {_ROUNDING:g} times as much precision as its reference")

    def averages(self) -> Iterator[Finding]:
        """The weights to evaluate with are the reference's."""
        ours, theirs = self.usual
        if ours.averaged is None or theirs.averaged is None:
            if (ours.averaged is None) != (theirs.averaged is None):
                which = "it" if ours.averaged is not None else "its reference"
                do = "let `averaged` return the weights that the reference evaluates with"
                yield failed(f"only {which} is evaluated with other weights than it trains", do)
            return
        left, right = Run([ours.values[0], ours.averaged], {}, None), Run([theirs.values[0], theirs.averaged], {}, None)
        found = divergence("averaged", left, right, self.tolerance)
        yield _comparison_finding(found, "it is evaluated with other weights")


def _across(subject: OptimizerTrial, frameworks: Sequence[str]) -> Iterator[Finding]:
    """The same trajectory on every framework, with its faster stepper if it has one."""
    problem, steps = subject.quadratic(), min(subject.steps, 20)
    base = subject.run(problem, steps)
    for name in frameworks:
        try:
            other = run(subject.optimizer, open_backend(name), problem, steps)
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            found = f"on {name} it raised {type(error).__name__}: {error}"
            do = "write it with operators and the functions of levelbench.training.optimizers.arrays"
            yield failed(found, do, probe=f"framework {name}")
            continue
        yield _comparison_finding(divergence(name, other, base), "it diverges there", f"framework {name}")


def _comparison_finding(found: Divergence, wrong: str, probe: str = "") -> Finding:
    size = f"L∞ {found.linf.max(initial=0):.1e}, L2 {found.l2.max(initial=0):.1e} in {len(found.linf)} steps"
    if found.first is None:
        return passed(size, probe=probe)
    where = f"first at step {found.first} in {found.where!r}"
    do = "compare that step's formula with the reference's"
    return failed(f"{wrong}: {where} ({size}; {found.tolerance:.0e} is allowed)", do, probe=probe)


@dataclass(frozen=True)
class Checked:
    """A report, and the divergence from the reference on each problem, step by step."""

    report: Report
    divergences: tuple[Divergence, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {**self.report.to_dict(), "divergences": [each.to_dict() for each in self.divergences]}


def check_optimizer(
    optimizer: Optimizer,
    reference: str | Optimizer | None = None,
    *,
    frameworks: Sequence[str] = ("numpy",),
    seed: int = 0,
    steps: int = 100,
    name: str = "",
    tell: Callable[[str], None] = lambda _: None,
    hear: Callable[[Finding], None] = lambda _: None,
) -> Checked:
    """Check an optimizer on the CPU, in a few seconds.

    ``reference`` is another optimizer, or the name of one of ours (``adam``) or of a framework's
    (``torch.optim.Adam``), which then gets the same rate and settings. All checks run on the
    first of ``frameworks``, and the others must give the same trajectory. A run has ``steps`` steps, and one comparison
    with the reference ten times as many. ``tell`` is called with the name of each probe as it begins, and ``hear`` with
    each finding as it is made. Code that hangs also hangs the caller; ``optimizer_files.check_isolated`` has a time
    limit. Raises ``UnknownNameError`` for an unknown reference, ``DefinitionError`` for ``Groups``.
    """
    if steps < 4 or not frameworks:
        found = f"{steps} steps on {len(frameworks)} frameworks"
        raise DefinitionError("a check of an optimizer", found, "use 4 or more steps and at least one framework")
    if isinstance(optimizer, Groups):
        found = "its patterns are for a network's parameters, and these are others"
        raise DefinitionError("a check of Groups", found, "check each of its optimizers separately")
    title = name or type(optimizer).__name__
    first = framework_of(optimizer, frameworks[0])
    backend = open_backend(first)
    other = reference_of(optimizer, reference)
    tell("shapes")
    shapes, findings = _shapes(optimizer, backend, seed)
    given_reference = None if other is None else (other.optimizer, open_backend(framework_of(other.optimizer, first)))
    common = shapes
    if given_reference is not None:
        taken, _ = _shapes(*given_reference, seed)
        common = {each: shapes[each] for each in shapes if each in taken}
    if not shapes:
        if not any(each.status == "failed" for each in findings):
            findings.append(failed("it accepts no shape", "accept parameters of two axes at least", probe="shapes"))
        return Checked(Report(title, tuple(findings)), ())
    subject = OptimizerTrial(optimizer, backend, seed, steps, shapes)
    seen: list[Divergence] = []
    rest = [] if isinstance(optimizer, Native) else [each for each in dict.fromkeys(frameworks) if each != first]
    both = None
    if other is not None and common:
        findings += other.findings()
        both = _nearest(other, replace(subject, shapes=common), first, seen)
    none = "no reference was given" if other is None else "the reference accepts none of its shapes"
    report = run_probes(title, _probes(subject, both, rest, none), tell, hear=hear)
    return Checked(replace(report, findings=(*findings, *report.findings)), tuple(seen))


def _probes(subject: OptimizerTrial, both: _Comparison | None, frameworks: Sequence[str], none: str) -> Iterator[Probe]:
    for name, probe in _ALONE.items():
        yield name, partial(probe, subject)
    if both is None:
        found = f"{none}, so the formula was not checked"
        name = _namesake(subject.optimizer)
        do = f'give one: reference = "{name}", or --reference {name}'
        yield "reference", lambda: [not_tried(found, do)]
    else:
        yield "first step", both.first_step
        yield "reference", both.trajectories
        yield "reference: long", both.long
        yield "reference: float32", both.rounding
        yield "reference: averaged", both.averages
        yield "reference: not finite", both.not_finite
    if frameworks:
        yield "frameworks", partial(_across, subject, frameworks)
    else:
        yield "frameworks", lambda: [not_tried("only one was requested", "--framework numpy,torch,jax")]


def _nearest(other: NamedReference, subject: OptimizerTrial, framework: str, seen: list[Divergence]) -> _Comparison:
    """The comparison with the form of the reference whose first small step is nearest."""
    forms = [
        _Comparison(subject, each, open_backend(framework_of(each, framework)), seen, other.lags)
        for each in (other.optimizer, *other.others)
    ]
    if computes_in_bfloat16(subject.optimizer):
        forms = [each for each in forms if computes_in_bfloat16(each.reference)] or forms
    if len(forms) == 1:
        return forms[0]
    problem = subject.quadratic(scale=1e-4)
    ways = [divergence("", *form.runs(problem, 1)).linf.max() for form in forms]
    # The exact form judges more strictly, so the rounded one must be clearly nearer.
    ways = [way * (3 if computes_in_bfloat16(form.reference) else 1) for way, form in zip(ways, forms, strict=True)]
    return forms[int(np.argmin(ways))]


def _namesake(optimizer: Optimizer) -> str:
    """The reference that is called as the optimizer's class is; one as an example if there is none."""
    kind = optimizer.made if isinstance(optimizer, Native) else type(optimizer)
    name = getattr(kind, "__name__", "").lower()
    theirs = {each.lower(): each for each in NATIVE}
    return name if name in RULES else theirs.get(f"torch.optim.{name}", "adam")


def _shapes(optimizer: Optimizer, backend: Backend, seed: int) -> tuple[dict[str, tuple[int, ...]], list[Finding]]:
    """The shapes that it accepts, and the findings on the others."""
    taken: dict[str, tuple[int, ...]] = {}
    findings, raised = [], []
    do = "accept parameters of any shape, or raise a DefinitionError"
    for name, shape in SHAPES.items():
        try:
            run(optimizer, backend, Quadratic(name, {name: shape}, seed), 2)
        except LevelbenchError as error:
            findings.append(noted(f"it refuses a {name} of shape {shape}: {error.found}", probe="shapes"))
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            raised.append(f"{type(error).__name__}: {error}")
            found = f"a {name} of shape {shape} raised {raised[-1]}"
            # Frameworks' own optimizers are as they are: PyTorch's Adafactor divides by the number of elements.
            theirs = isinstance(optimizer, Native) and (0 in shape or optimizer.made is None)
            findings.append(noted(found, probe="shapes") if theirs else failed(found, do, probe="shapes"))
        else:
            taken[name] = shape
    if len(raised) == len(SHAPES) and len(set(raised)) == 1:
        if "closure" in raised[0]:
            do = "write a step without a closure: gradients are given, and the loss cannot be evaluated again"
        findings = [failed(f"a parameter of any shape raised {raised[0]}", do, probe="shapes")]
    if not findings:
        findings.append(passed(", ".join(SHAPES), probe="shapes"))
    return taken, findings
