"""Runs an optimizer on small problems, keeping every step, and measures how far two runs diverge.

Two optimizers (or two frameworks) get the same gradients while they agree, and any difference grows until it is
visible. In float64, two ways to write the same update differ by 1e-15 per step, and different updates by far more; in
float32 the reference's own distance from its float64 run says how much is allowed. The divergence is that of the
Deep500 paper's study of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.checks.arrays import Host, difference
from levelbench.networks.executor import Array, Backend, host_copies
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.arrays import namespace
from levelbench.training.optimizers.base import Optimizer, Stepper, UpdateRule
from levelbench.training.optimizers.wrappers import Native

Floats = Host
SHAPES: Mapping[str, tuple[int, ...]] = {
    "matrix": (5, 3),
    "kernel": (4, 2, 3, 3),
    "vector": (7,),
    "scalar": (),
    "empty": (0, 4),
    "stack": (2, 3, 2),
    "volume": (2, 1, 2, 3, 2),
}
"""A parameter of each rank up to 5, and an empty one."""

LARGE: Mapping[str, tuple[int, ...]] = {"matrix": (307, 293), "kernel": (67, 61, 8, 8)}
"""No multiples of a block, one with over 2^18 elements; sides are short, as some rules keep a matrix for each."""


@dataclass(frozen=True)
class Quadratic:
    """½ Σ a (w - c)², with a from 0.1 to 1 per element, and noise in the gradients; all times ``scale``.

    ``zero_after`` is the last step with a gradient, and ``turned_after`` the last before gradients of the other sign,
    100 times as large; ``centre`` is the spread of c, and 0 puts the minimum at the origin; ``spread`` is that of the
    first parameters. ``spoilt`` is a step, and what the first element of the first parameter has for a gradient in it.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: dict(SHAPES))
    seed: int = 0
    scale: float = 1.0
    noise: float = 0.3
    centre: float = 1.0
    spread: float = 1.0
    zero_after: int | None = None
    turned_after: int | None = None
    spoilt: tuple[int, float] | None = None

    def start(self) -> dict[str, NDArray[np.float64]]:
        """The parameters before the first step, as new arrays."""
        drawn = {name: self._drawn(at, 0, shape) for at, (name, shape) in enumerate(self.shapes.items())}
        return {name: self.spread * each for name, each in drawn.items()}

    def gradients(self, step: int, parameters: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """The function's gradient at ``parameters``, some or all of them, plus the noise of this step (from 1)."""
        if self.zero_after is not None and step > self.zero_after:
            return {name: np.zeros_like(each) for name, each in parameters.items()}
        order = {name: at for at, name in enumerate(self.shapes)}
        places = tuple((order[name], each.shape) for name, each in parameters.items())
        # All at once, since most arrays are small.
        here = np.concatenate([each.reshape(-1) for each in parameters.values()])
        slope = _slopes(self.seed, places) * (here - _joined_draws(self.seed, places, 2, 0, self.centre))
        whole = self.scale * (slope + _joined_draws(self.seed, places, 3, step, self.noise))
        if self.turned_after is not None and step > self.turned_after:
            whole *= -100.0
        result, begin = {}, 0
        for name, each in parameters.items():
            result[name] = whole[begin : begin + each.size].reshape(each.shape)
            begin += each.size
        first = next(iter(self.shapes))
        if self.spoilt is not None and self.spoilt[0] == step and first in result:
            result[first].flat[0] = self.spoilt[1]
        return result

    def _drawn(self, at: int, part: int, shape: tuple[int, ...], step: int = 0) -> NDArray[np.float64]:
        return _normal((self.seed, at, part, step), shape)


_Places = tuple[tuple[int, tuple[int, ...]], ...]
"""The numbers and shapes of some parameters."""


@lru_cache(maxsize=4096)
def _joined_draws(seed: int, places: _Places, part: int, step: int, times: float) -> NDArray[np.float64]:
    """``times`` standard normal numbers for all these parameters, flat."""
    return _fixed(np.concatenate([times * _normal((seed, at, part, step), shape).reshape(-1) for at, shape in places]))


@lru_cache(maxsize=256)
def _slopes(seed: int, places: _Places) -> NDArray[np.float64]:
    """Numbers from 0.1 to 1 for all these parameters, flat."""
    draws = (_normal((seed, at, 1, 0), shape).reshape(-1) for at, shape in places)
    return _fixed(np.concatenate([0.1 + 0.9 / (1 + each**2) for each in draws]))


@lru_cache(maxsize=4096)
def _normal(seeds: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers, cached because many runs use the same."""
    return _fixed(np.asarray(np.random.default_rng(seeds).standard_normal(shape)))


def _fixed(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Recorded:
    """Recorded gradients, whatever the parameters are: ``recorded[step - 1][name]``."""

    name: str
    parameters: Mapping[str, NDArray[np.float64]]
    recorded: Sequence[Mapping[str, NDArray[np.float64]]]

    def start(self) -> dict[str, NDArray[np.float64]]:
        """The parameters before the first step, as new arrays."""
        return {name: each.astype(np.float64) for name, each in self.parameters.items()}

    def gradients(self, step: int, parameters: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """As recorded; starts again after the last."""
        now = self.recorded[(step - 1) % len(self.recorded)]
        return {name: now[name] for name in parameters}


TestProblem = Quadratic | Recorded
"""Initial parameters, and their gradients at each step."""


@dataclass(frozen=True)
class Run:
    """An optimizer's trajectory: the parameters before the first step and after each, on the host."""

    values: list[dict[str, Floats]]
    state: dict[str, Floats]
    averaged: dict[str, Floats] | None

    @property
    def last(self) -> dict[str, Floats]:
        """The parameters after the last step."""
        return self.values[-1]


def parameters_of(
    backend: Backend, values: Mapping[str, Floats], dtype: DTypeLike = np.float64, strided: bool = False
) -> dict[str, Array]:
    """New native arrays with these values; ``strided``: their axes lie in memory in reverse order."""
    # ascontiguousarray would turn a scalar into a vector.
    if not strided:
        return {name: backend.array(np.array(each, dtype, order="C")) for name, each in values.items()}
    turned = {name: backend.array(np.array(each.T, dtype, order="C")) for name, each in values.items()}
    return {name: namespace(each).permute_dims(each, tuple(range(each.ndim)[::-1])) for name, each in turned.items()}


def run(
    optimizer: Optimizer,
    backend: Backend,
    problem: TestProblem,
    steps: int,
    *,
    dtype: DTypeLike = np.float64,
    factor: Callable[[int], float] = lambda step: 1.0,
    names: Sequence[str] | None = None,
    pauses: Container[int] = (),
    used: bool = False,
    late: int = 0,
    strided: str = "",
    spoil: bool = False,
    start: Callable[[Optimizer, Backend, dict[str, Array]], Stepper] | None = None,
) -> Run:
    """Take ``steps`` steps and keep each.

    ``names`` are the parameters to use, in order (default: all, in the problem's order). After each of the steps
    ``pauses`` the state is read, and another stepper resumes from it on copies of the parameters; ``used``: one that
    has taken a step at rate 0. With ``late``, the count of steps goes on from there after :data:`EARLY` of them.
    ``strided`` names what is not contiguous: ``parameters`` or ``gradients``. ``spoil`` overwrites each gradient with
    NaN after its step. ``start`` creates the stepper (default: the optimizer's own).
    """
    begin = start or (lambda optimizer, backend, parameters: optimizer.start(backend, parameters))
    given = problem.start()
    given = {name: given[name] for name in (names or given)}
    parameters = parameters_of(backend, given, dtype, strided == "parameters")
    values = [host_copies(backend, parameters)]
    states: list[dict[str, Floats]] = []
    # The checks judge overflow and 0/0 by what becomes of the parameters.
    with np.errstate(all="ignore"):
        stepper = begin(optimizer, backend, parameters)
        for taken in range(1, steps + 1):
            step = taken + late - EARLY - 1 if late and taken > EARLY else taken
            here = values[-1]
            host = problem.gradients(step, {name: here[name].astype(np.float64) for name in parameters})
            gradients = parameters_of(backend, host, dtype, strided == "gradients")
            stepper.step(dict(gradients), step, factor(step))
            if spoil:
                for gradient in gradients.values():
                    gradient *= float("nan")
            values.append(host_copies(backend, parameters))
            if late and EARLY - 2 <= taken <= EARLY:
                states.append(_copied(stepper))
                counted = advanced(states, late - EARLY - 1) if taken == EARLY else {}
                if counted:
                    stepper.restore(states[-1] | counted)
            if step in pauses:
                state = _copied(stepper)
                parameters = parameters_of(backend, values[-1], dtype)
                stepper = begin(optimizer, backend, parameters)
                if used:
                    stepper.step(parameters_of(backend, host, dtype), step, 0.0)
                stepper.restore(state)
        averaged = stepper.averaged()
        kept = None if averaged is None else host_copies(backend, averaged)
        return Run(values, _copied(stepper), kept)


EARLY = 8
"""The steps before a late one."""


def advanced(states: Sequence[Mapping[str, Floats]], by: int) -> dict[str, Floats]:
    """What counts steps in the last of three successive states, ``by`` further.

    These are numbers that rose by 1 twice, and those that fell twice by one factor: the power of a decay.
    """
    result = {}
    for name, last in states[-1].items():
        seen = [float(np.asarray(each[name]).item()) for each in states if name in each and np.size(each[name]) == 1]
        if len(seen) < 3:
            continue
        ratios = [b / a if a else math.nan for a, b in pairwise(seen)]
        if all(b - a == 1 for a, b in pairwise(seen)):
            result[name] = np.asarray(last + by, last.dtype)
        elif all(0 < each < 1 for each in ratios) and math.isclose(*ratios, rel_tol=_SAME_FACTOR):
            result[name] = np.asarray(last * ratios[-1] ** by, last.dtype)
    return result


_SAME_FACTOR = 1e-6
"""Relative, of two ratios of numbers in float32."""


def _copied(stepper: Stepper) -> dict[str, Floats]:
    return {name: each.copy() for name, each in stepper.state().items()}


TOLERANCE = 1e-9
"""For float64, relative to the largest magnitude of the parameter along the way."""

NATIVE_TOLERANCE = 1e-7
"""For comparisons with native optimizers, which may keep numbers in float32 (as ``torch.optim.NAdam`` its momentum)."""


@dataclass(frozen=True, eq=False)
class Divergence:
    """L2 and L∞ of the difference after each step, from the first.

    L2 is relative to the norm of all of the reference's parameters at that step; L∞ to the largest magnitude of the
    parameter in question anywhere along the reference's trajectory. ``first`` is the first step with L∞ above
    ``tolerance``, and ``where`` the parameter.
    """

    problem: str
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    tolerance: float
    first: int | None
    where: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "problem": self.problem,
            "tolerance": self.tolerance,
            "first": self.first,
            "where": self.where,
            "l2": self.l2.tolist(),
            "linf": self.linf.tolist(),
        }


def divergence(problem: str, ours: Run, theirs: Run, tolerance: float = TOLERANCE) -> Divergence:
    """The difference of two runs of the same steps; NaN in both is agreement, in one an infinite difference."""
    names = [name for name, each in theirs.values[0].items() if each.size]
    pairs = list(zip(ours.values[1:], theirs.values[1:], strict=True))
    relative, lengths, norms = np.zeros((len(names), len(pairs))), np.zeros(len(pairs)), np.zeros(len(pairs))
    for at, name in enumerate(names if pairs else ()):
        _require_alike(pairs, name)
        # All steps at once, since most arrays are small.
        right = _joined([each for _, each in pairs], name)
        apart = difference(_joined([each for each, _ in pairs], name), right)
        begins = np.cumsum([0, *(each[name].size for _, each in pairs[:-1])])
        relative[at] = np.maximum.reduceat(apart, begins) / _largest(theirs.values[0][name], right)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths += np.add.reduceat(apart**2, begins)
            norms += np.add.reduceat(right.astype(np.float64) ** 2, begins)
    with np.errstate(all="ignore"):
        l2 = np.sqrt(lengths) / np.where(norms == 0, 1.0, np.sqrt(norms))
    linf = relative.max(0, initial=0.0)
    above = np.flatnonzero(linf > tolerance)
    first = int(above[0]) if above.size else None
    where = "" if first is None else names[int(relative[:, first].argmax())]
    return Divergence(problem, l2, linf, tolerance, None if first is None else first + 1, where)


def _require_alike(pairs: Sequence[tuple[dict[str, Floats], dict[str, Floats]]], name: str) -> None:
    """Arrays of two runs have the same shape at each step; it may change from step to step."""
    for left, right in pairs:
        if left[name].shape != right[name].shape:
            difference(left[name], right[name])


def _joined(values: Sequence[dict[str, Floats]], name: str) -> Floats:
    return np.concatenate([each[name].reshape(-1) for each in values])


def _largest(*arrays: Floats) -> float:
    return float(max(np.abs(each[np.isfinite(each)]).max(initial=0) for each in arrays)) or 1.0


@dataclass(frozen=True)
class OptimizerTrial:
    """An optimizer on its backend; ``shapes`` are those of :data:`SHAPES` that it accepts."""

    optimizer: Optimizer
    backend: Backend
    seed: int
    steps: int
    shapes: Mapping[str, tuple[int, ...]]
    repeated: dict[tuple[str, ...], Run] = field(default_factory=dict, compare=False)
    """Usual runs that gave the same bits twice, by the names of their parameters."""

    @property
    def is_rule(self) -> bool:
        """Whether it promises to update each parameter independently."""
        return isinstance(self.optimizer, UpdateRule)

    def quadratic(self, name: str = "quadratic", shapes: Mapping[str, Any] | None = None, **settings: Any) -> Quadratic:
        """The problem, on the shapes that it accepts or on others."""
        return Quadratic(name, dict(self.shapes if shapes is None else shapes), self.seed, **settings)

    @property
    def large(self) -> dict[str, tuple[int, ...]]:
        """Large arrays of the kinds that it accepts."""
        return {name: shape for name, shape in LARGE.items() if name in self.shapes}

    def run(self, problem: TestProblem | None = None, steps: int = 0, **settings: Any) -> Run:
        """Run the optimizer on ``problem`` (default: the quadratic one) for ``steps`` (default: ``self.steps``)."""
        return run(self.optimizer, self.backend, problem or self.quadratic(), steps or self.steps, **settings)

    def usual(self) -> Run:
        """A run on the quadratic problem: an earlier one if repeating it changes nothing."""
        return self.repeated.get(tuple(self.shapes)) or self.run()


def open_backend(framework: str) -> Backend:
    """A framework on the CPU, where equal work gives equal bits."""
    return cast(Backend, open_framework(framework))


def framework_of(optimizer: Optimizer, otherwise: str) -> str:
    """The framework that an optimizer requires."""
    return optimizer.framework if isinstance(optimizer, Native) else otherwise
