"""Probes of an optimizer beyond the usual: ranks and sizes, high rates, late steps, gradients that are not finite.

None needs a reference. An optimizer that treats each element by itself on small arrays is expected to do so everywhere;
one that works on arrays as a whole may look at shapes, and is judged only by whether it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.operators.probes.process import changed_by
from levelbench.training.optimizers.base import UpdateRule
from levelbench.training.optimizers.wrappers import Native
from levelbench.training.probes.optimizer_runs import EARLY, Floats, OptimizerTrial, Recorded, Run, parameters_of, run

_STEPS = 4
_PIECE = 4001
_FEW_VALUES = 8
_AGREE = 1e-9
_SMALL = (1e-2, 1e-4, 1e-7, 1e-10)
_WHOLE = "treat each element alike, or write `elementwise: ClassVar[bool] = False` in the rule"


def ranks(subject: OptimizerTrial) -> Iterator[Finding]:
    """Arrays of other ranks move as their elements do in a vector, if matrices do."""
    if not np.isfinite(_apart(subject, (3,))):
        yield not_tried("it refuses vectors")
        return
    apart = {shape: _apart(subject, shape) for shape in subject.shapes.values() if 0 not in shape}
    others = []
    differing = {len(shape): (shape, by) for shape, by in apart.items() if by > _AGREE}
    agreeing = {len(shape) for shape in apart} - differing.keys()
    for rank, (shape, by) in differing.items():
        found = f"an array of shape {shape} moves differently than a vector with its elements ({by:.1e})"
        # Arrays of two axes may be matrices, and of four axes kernels; none of the neighbours of these is.
        lonely = {0: {1}, 3: {2, 4}, 5: {3, 4}}.get(rank, {-1}) <= agreeing
        if _elementwise(subject):
            yield failed(found, _WHOLE)
        elif lonely and rank:
            yield failed(f"{found}, and arrays of its neighbours' ranks do not", "treat every rank alike")
        elif lonely and _by_halves(subject):
            yield failed(found, "treat an array without dimensions as one element")
        else:
            others.append(str(shape))
    if others:
        yield noted(f"arrays of shape {', '.join(others)} do not move as their elements do in vectors")
    if not differing:
        yield passed(f"as vectors, from {min(agreeing)} to {max(agreeing)} axes")


def _elementwise(subject: OptimizerTrial) -> bool:
    return isinstance(subject.optimizer, UpdateRule) and subject.optimizer.elementwise


def _apart(subject: OptimizerTrial, shape: tuple[int, ...], pieces: bool = False, late: int = 0) -> float:
    """How far an array ends from a vector (or from short vectors) of the same elements, relative to its way."""
    random = np.random.default_rng([subject.seed, 13, *shape])
    start, gradients = random.standard_normal(shape), [random.standard_normal(shape) for _ in range(_STEPS)]
    cuts = range(_PIECE, start.size, _PIECE) if pieces else [start.size // 2] if shape == (start.size,) else []
    cut = {f"part {at}": each for at, each in enumerate(np.split(np.arange(start.size), cuts)) if each.size}
    whole = Recorded("whole", {"whole": start}, [{"whole": each} for each in gradients])
    flat = Recorded(
        "parts",
        {name: start.reshape(-1)[at] for name, at in cut.items()},
        [{name: each.reshape(-1)[at] for name, at in cut.items()} for each in gradients],
    )
    try:
        one, other = (run(subject.optimizer, subject.backend, each, _STEPS) for each in (whole, flat))
    except Exception:  # noqa: BLE001  # it refuses vectors, or the probe of shapes has reported what it raises
        return float("inf")
    end, way = one.last["whole"].reshape(-1), float(np.abs(one.last["whole"] - start).max())
    joined = np.concatenate([other.last[name] for name in cut])
    return float(np.abs(end - joined).max()) / (way or 1.0)


def _by_halves(subject: OptimizerTrial) -> bool:
    """Whether a vector moves as its halves do, and a matrix as a vector: no element's step depends on others."""
    vector, matrix = (subject.shapes.get(name) for name in ("vector", "matrix"))
    return vector is not None and matrix is not None and max(_apart(subject, vector), _apart(subject, matrix)) <= _AGREE


def sizes(subject: OptimizerTrial) -> Iterator[Finding]:
    """Large arrays move in all of their elements, and as small ones do if these move element by element."""
    if not subject.large:
        yield not_tried("it refuses matrices")
        return
    alone = _by_halves(subject)
    for name, shape in subject.large.items():
        still = _deaf(subject, {name: shape})
        if still and not _deaf(subject, {name: subject.shapes[name]}):
            found = (
                f"{still[name]:,} elements of a {name} of shape {shape} ignore their gradients, and none of a small one"
            )
            yield failed(found, "update every element of a large array")
        elif lost := _halved(subject, name, shape):
            found = f"the state {lost!r} of a {name} of shape {shape} has half the digits of that of a small one"
            yield failed(found, "keep the state of every array in one precision")
        elif alone and (by := _apart(subject, shape, pieces=True)) > _AGREE:
            found = f"a {name} of shape {shape} moves differently than vectors with its elements ({by:.1e})"
            yield failed(found, _WHOLE) if _elementwise(subject) else noted(f"{found}; small arrays do not")
        else:
            yield passed(f"{np.prod(shape):,} elements, {'as in pieces' if alone else 'all move'}")


def _halved(subject: OptimizerTrial, name: str, shape: tuple[int, ...]) -> str:
    """The state of a large array that holds float16 or bfloat16, where that of a small one holds float32."""
    large, small = (
        subject.run(subject.quadratic(shapes={name: each}), 3, dtype=np.float32).state
        for each in (shape, subject.shapes[name])
    )
    return next((key for key in large if key in small and _half(large[key]) and not _half(small[key])), "")


def _half(state: Floats) -> bool:
    """Whether all values are those of a type of 16 bits; 0 and 1 are of any."""
    if state.dtype.kind != "f" and state.dtype.name != "bfloat16":
        return False
    values = state[(state != 0) & np.isfinite(state)].astype(np.float32)
    if len(np.unique(values[:_PIECE])) < _FEW_VALUES:
        return False
    with np.errstate(over="ignore"):
        in_float16 = values.astype(np.float16).astype(np.float32) == values
    return bool(((values.view(np.uint32) & 0xFFFF) == 0).all() or in_float16.all())


def _deaf(
    subject: OptimizerTrial,
    shapes: Mapping[str, tuple[int, ...]],
    scale: float = 1.0,
    factor: float = 1.0,
    spread: float = 1.0,
) -> dict[str, int]:
    """How many elements move alike if all gradients have the other sign, for each parameter that has any."""
    problems = (subject.quadratic(shapes=shapes, scale=sign, spread=spread) for sign in (scale, -scale))
    return _equal(*(subject.run(each, 3, factor=lambda step: factor) for each in problems))


def smallest_ignored(subject: OptimizerTrial) -> str:
    """The scale of gradients, or the rate, that moves almost no element though greater ones do; empty if all do."""
    count = sum(int(np.prod(shape)) for shape in subject.shapes.values())
    if sum(_deaf(subject, subject.shapes).values()) > count / 2:
        return ""

    def ignored(scale: float, factor: float) -> bool:
        # From 0, so that what moves does not round away in float32, and from 1, as a soft threshold holds what is at 0.
        ends = (_deaf(subject, subject.shapes, scale, factor, spread) for spread in (0.0, 1.0))
        return all(sum(each.values()) > 0.9 * count for each in ends)

    for each in _SMALL:
        if ignored(each, 1.0):
            return f"gradients of about {each:.0e} move nothing, and those of about 1 do"
        if ignored(1.0, each):
            return f"at {each:.0e} times the rate gradients move nothing, and at the rate they do"
    return ""


def _equal(one: Run, other: Run) -> dict[str, int]:
    """How many elements are in the same place at each step of two runs, for each parameter that has any.

    Runs that differ in their gradients alone: weight decay moves parameters, too, but the same in both.
    """
    pairs = list(zip(one.values, other.values, strict=True))
    same = {name: int(np.logical_and.reduce([a[name] == b[name] for a, b in pairs]).sum()) for name in one.last}
    return {name: number for name, number in same.items() if number}


def layouts(subject: OptimizerTrial) -> Iterator[Finding]:
    """Parameters and gradients whose elements lie in another order in memory."""
    usual = subject.run(steps=_STEPS)
    for which in ("parameters", "gradients"):
        turned = subject.run(steps=_STEPS, strided=which)
        for name, each in usual.last.items():
            if not np.allclose(turned.last[name], each, rtol=1e-9, atol=1e-12, equal_nan=True):
                found = f"{name!r} moves differently with {which} that are not contiguous"
                yield failed(found, "`reshape` copies such an array: return the result instead of writing to a view")
                break
        else:
            yield passed(f"{which} need not be contiguous")


def rates(subject: OptimizerTrial) -> Iterator[Finding]:
    """A higher rate leads elsewhere, at the first step and at a late one."""
    base, factors = subject.optimizer.lr, [2.0**power for power in range(-6, 9)]
    # Adafactor's rate is at most 1 / √step.
    for late, usual in ((0, 0.9), (_LATE[0], 0.9 / _LATE[0] ** 0.5)):
        ways = [_way(subject, factor, late) for factor in factors]
        if not any(ways):
            # SOAP only begins its statistics in the first step, and schedules may begin at 0.
            yield noted(f"the gradient of step {late or 1:,} has no effect, whatever the rate")
            continue
        flat = _flat(ways)
        if flat and late:
            # ASGD sets the rate of a step at the end of the one before.
            ways = [_way(subject, factor, late, ahead=True) for factor in factors]
            flat = _flat(ways)
        if flat and np.isfinite(ways).all():
            low, high = base * factors[flat - 1], base * factors[flat]
            said = f"a rate of {high:g} leads as far as {low:g} at step {late or 1:,} (the base rate is {base:g})"
            if late and adapts_lengths(subject):
                yield noted(f"{said}: {RPROP}")
            elif high <= usual or factors[flat] <= 1:
                yield failed(said, "do not limit the rate that `update` gets")
            else:
                yield noted(said)
            return
    yield passed(f"every rate has its own effect, from {base * factors[0]:.2g} to {base * factors[-1]:.2g}")


def _flat(ways: Sequence[float]) -> int:
    """The first rate that leads as far as the one before; 0 if there is none."""
    # Averages pull as well, and may pull back; but no step of another rate is as long.
    return next((at for at in range(1, len(ways)) if abs(ways[at] - ways[at - 1]) <= 1e-9 * ways[at]), 0)


def _way(subject: OptimizerTrial, factor: float, late: int, *, ahead: bool = False) -> float:
    """How far the last gradient of some leads at this factor: the first, or a late one after others at factor 1.

    ``ahead``: the step before has the factor, too.
    It is the distance to a run in which it is 0 (of the other sign, if it is the first), so weight decay has no part.
    """
    steps = EARLY + 1 if late else 1
    without = subject.quadratic(zero_after=EARLY) if late else subject.quadratic(scale=-1.0)
    one, other = (
        subject.run(
            problem,
            steps,
            late=late,
            factor=lambda step: factor if step == (late or 1) or (ahead and step == EARLY) else 1.0,
        )
        for problem in (None, without)
    )
    return float(sum(np.abs(each - other.last[name]).sum() for name, each in one.last.items()))


_LATE = (1_001, 10_001, 1_000_001)


def late(subject: OptimizerTrial) -> Iterator[Finding]:
    """Steps with high numbers move, to finite numbers."""
    for step in _LATE:
        found = subject.run(steps=EARLY + 3, late=step)
        if not all(np.isfinite(each).all() for each in found.last.values()):
            yield failed(f"parameters are not finite after steps {step:,} to {step + 2:,}", "bound powers of the step")
            return
        without = subject.run(subject.quadratic(turned_after=EARLY), EARLY + 3, late=step)
        still = [name for name, number in _equal(found, without).items() if number == found.last[name].size]
        if still:
            said = f"gradients of steps {step:,} to {step + 2:,} do not move {still[0]!r}"
            yield failed(said, "let late steps move") if step < _LATE[-1] else noted(said)
            return
    yield passed(f"it moves at steps {', '.join(f'{each:,}' for each in _LATE)}")


def not_finite(subject: OptimizerTrial) -> Iterator[Finding]:
    """A gradient that is not finite shows in its parameter, or its step is left out."""
    name = next(each for each in ("matrix", "vector", *subject.shapes) if each in subject.shapes)
    shapes = {name: subject.shapes[name]}
    proportional = _grows(subject, shapes)
    for value in (float("nan"), float("inf"), float("-inf")):
        try:
            before, after = (subject.run(subject.quadratic(shapes=shapes, spoilt=(2, value)), at) for at in (1, 2))
        except Exception as error:  # noqa: BLE001  # user code may raise anything, and an error is not silent
            yield noted(f"{value} in a gradient raises {type(error).__name__}: {error}")
            continue
        was, now = before.last[name], after.last[name]
        if not np.isfinite(now.flat[0]):
            yield passed(f"{value} in a gradient shows in its parameter")
        elif np.isnan(value) and (_takes_signs(subject, shapes) or adapts_lengths(subject)):
            # So it is with the published code of Lion and signSGD on PyTorch.
            yield noted("nan in a gradient does not show in its parameter, since the sign of nan is 0 here")
        elif np.array_equal(was, now):
            kept = all(
                key in before.state and np.array_equal(each, before.state[key]) for key, each in after.state.items()
            )
            yield noted(
                f"{value} in a gradient: the step of this parameter is left out{'' if kept else ', not in its state'}"
            )
        elif was.flat[0] == now.flat[0]:
            found = f"{value} in a gradient: the step of this element alone is left out"
            do = "let it show in the parameter, or leave out the step of all"
            yield failed(found, do) if np.isnan(value) else noted(found)
        elif np.isnan(value) or proportional:
            found = f"{value} in a gradient is swallowed: its element moves by {now.flat[0] - was.flat[0]:.1e}"
            yield failed(found, "let it show in the parameter, or leave out the step")
        else:
            yield passed(f"the steps are bounded, also with {value} in a gradient")


def forgets(subject: OptimizerTrial) -> Iterator[Finding]:
    """Long after gradients have ended, the next one decides where the step goes."""
    name = next(each for each in ("vector", "matrix", *subject.shapes) if each in subject.shapes)
    shape, ends = subject.shapes[name], list[Floats]()
    drawn = np.random.default_rng([subject.seed, 17]).standard_normal((EARLY + 1, *shape))
    for sign in (1.0, -1.0):
        # All to one side, or they would cancel.
        each = [*(drawn[:-1] + 1), *[np.zeros(shape)] * _ENDED, sign * drawn[-1]]
        start = subject.quadratic(shapes={name: shape}).start()
        found = subject.run(Recorded("ended", start, [{name: gradient} for gradient in each]), len(each))
        ends.append(found.values[-1][name] - found.values[-2][name])
    common, own = (float(np.abs(each).sum()) for each in (ends[0] + ends[1], ends[0] - ends[1]))
    if not np.isfinite(common + own) or own == 0:
        yield noted(f"a gradient after {_ENDED:,} of zero has no effect, or none that is finite")
    elif common > _REMEMBERED * own:
        said = (
            f"{EARLY} gradients still move it {common / own:.0f} times as far as the next one, {_ENDED:,} steps later"
        )
        yield failed(said, "let old gradients fade: clear a sum of them, or keep a momentum below 1")
    else:
        yield passed(f"after {_ENDED:,} gradients of zero the next one decides")


_ENDED, _REMEMBERED = 2500, 3.0
"""A momentum of 0.999 has faded by then."""


def process(subject: OptimizerTrial) -> Iterator[Finding]:
    """Steps leave random generators, modes and settings of the process as they were."""
    if changed := changed_by(lambda: subject.run(steps=3), draws=True):
        yield failed(f"its steps change {' and '.join(changed)}", "leave the process as it is, with its generators")
    else:
        yield passed("generators, folder, environment, modes and threads")


def groups(subject: OptimizerTrial) -> Iterator[Finding]:
    """A PyTorch optimizer of one's own updates each group of its parameters, at the group's rate."""
    optimizer = subject.optimizer
    if not isinstance(optimizer, Native) or not isinstance(optimizer.made, type):
        return
    try:
        ends = [_grouped(subject, optimizer, rate) for rate in (optimizer.lr, 0.0, 2 * optimizer.lr)]
    except Exception as error:  # noqa: BLE001  # user code may raise anything
        yield noted(f"with two groups of parameters it raises {type(error).__name__}: {error}")
        return
    do = "go through all of self.param_groups, and take the settings of each from it"
    if np.array_equal(*ends[0]):
        yield failed("the parameters of a second group do not move", do)
    elif any(np.array_equal(ends[0][1], each) for _, each in ends[1:]):
        yield failed("a second group moves at the rate of the first", do)
    else:
        yield passed("the second moves, at its own rate")


def _grouped(subject: OptimizerTrial, optimizer: Native, rate: float) -> tuple[Floats, Floats]:
    """Where the second of two parameters begins and ends, in a group of its own with this rate."""
    backend, name = (
        subject.backend,
        next(each for each in ("matrix", "vector", *subject.shapes) if each in subject.shapes),
    )
    problem = subject.quadratic(shapes=dict.fromkeys(("first", "second"), subject.shapes[name]))
    held = parameters_of(backend, problem.start())
    given = [{"params": [each], "lr": lr} for each, lr in zip(held.values(), (optimizer.lr, rate), strict=True)]
    made = optimizer.made(given, lr=optimizer.lr, **dict(optimizer.settings))
    for step in range(1, _STEPS + 1):
        now = {each: np.array(backend.host(value)) for each, value in held.items()}
        for each, gradient in parameters_of(backend, problem.gradients(step, now)).items():
            held[each].grad = gradient
        made.step()
    return problem.start()["second"], np.array(backend.host(held["second"]))


RPROP = "the rate is that of its first step, whose length it then adapts, as Rprop does"


def adapts_lengths(subject: OptimizerTrial) -> bool:
    """Whether each element's step, whatever the size of its gradient, grows by one factor while the sign stays."""
    name = next(each for each in ("vector", "matrix", *subject.shapes) if each in subject.shapes)
    shape, ends = subject.shapes[name], list[list[Floats]]()
    for scale in (1.0, 10.0):
        ones = Recorded("ones", {name: np.zeros(shape)}, [{name: np.full(shape, scale)}])
        ends.append([each[name] for each in subject.run(ones, _STEPS).values])
    lengths = np.abs(np.diff(ends[0], axis=0))
    if not np.allclose(ends[0], ends[1], rtol=1e-6) or not lengths.size or not lengths.all():
        return False
    grows = lengths[1:] / lengths[:-1]
    return bool(grows.min() > _GROWS and np.allclose(grows, grows.flat[0], rtol=1e-6))


_GROWS = 1.05


def _takes_signs(subject: OptimizerTrial, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether each step has one length in all elements, and gradients choose only its sign."""
    for steps in (1, 2):
        problems = (subject.quadratic(shapes=shapes, scale=scale, noise=noise) for scale, noise in ((1, 0.3), (-1, 3)))
        one, other = (subject.run(each, steps).last for each in problems)
        apart = np.concatenate([np.abs(each - other[name]).reshape(-1) for name, each in one.items()])
        # Weight decay leaves a little of steps there and back.
        lengths = apart[apart > 1e-2 * apart.max()]
        if not lengths.size or not np.isfinite(apart).all():
            return False
        whole = np.rint(lengths / lengths.min())
        if not np.allclose(lengths, whole * lengths.min(), rtol=1e-2) or whole.max() > steps:
            return False
    return True


def _grows(subject: OptimizerTrial, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether ten times the gradient leads ten times as far."""
    one, ten = (subject.run(subject.quadratic(shapes=shapes, scale=scale), 1) for scale in (1.0, 10.0))
    small, large = (
        float(sum(np.abs(each - r.values[0][name]).sum() for name, each in r.last.items())) for r in (one, ten)
    )
    return large > 9 * small


BEYOND: dict[str, Callable[[OptimizerTrial], Iterator[Finding]]] = {
    "ranks": ranks,
    "large arrays": sizes,
    "memory layout": layouts,
    "high rates": rates,
    "late steps": late,
    "not finite": not_finite,
    "old gradients": forgets,
    "groups": groups,
    "process": process,
}
"""The probes of this module, in the order of the report."""
