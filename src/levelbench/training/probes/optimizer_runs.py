"""Runs an optimizer on small problems, keeping every step, and measures how far two runs diverge.

Two optimizers (or two frameworks) get the same gradients while they agree, and any difference grows until it is
visible. In float64, two ways to write the same update differ by 1e-15 per step, and different updates by far more; in
float32 the reference's own distance from its float64 run says how much is allowed. The divergence is that of the
Deep500 paper's study of Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.checks.arrays import Host, difference
from levelbench.errors import UnknownNameError
from levelbench.networks.executor import Array, Backend
from levelbench.operators.frameworks import open_framework
from levelbench.training import optimizers
from levelbench.training.optimizers.base import Optimizer, Stepper, UpdateRule
from levelbench.training.optimizers.wrappers import NATIVE, Native

Floats = Host
SHAPES: Mapping[str, tuple[int, ...]] = {
    "matrix": (5, 3),
    "kernel": (4, 2, 3, 3),
    "vector": (7,),
    "scalar": (),
    "empty": (0, 4),
}
"""A parameter of each kind in networks, and of two kinds that are easily forgotten."""


@dataclass(frozen=True)
class Quadratic:
    """½ Σ a (w - c)², with a from 0.1 to 1 per element, and noise in the gradients; all times ``scale``.

    ``zero_after`` is the last step with a gradient; ``centre`` is the spread of c, and 0 puts the minimum at the
    origin.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: dict(SHAPES))
    seed: int = 0
    scale: float = 1.0
    noise: float = 0.3
    centre: float = 1.0
    zero_after: int | None = None

    def start(self) -> dict[str, NDArray[np.float64]]:
        """The parameters before the first step, as new arrays."""
        return {name: self._drawn(at, 0, shape).copy() for at, (name, shape) in enumerate(self.shapes.items())}

    def gradient(self, name: str, step: int, parameter: NDArray[np.float64]) -> NDArray[np.float64]:
        """The function's gradient at ``parameter``, plus the noise of this step (from 1)."""
        if self.zero_after is not None and step > self.zero_after:
            return np.zeros_like(parameter)
        at, shape = list(self.shapes).index(name), parameter.shape
        # From 0.1 to 1.
        curvature = 0.1 + 0.9 / (1 + self._drawn(at, 1, shape) ** 2)
        slope = curvature * (parameter - self.centre * self._drawn(at, 2, shape))
        return np.asarray(self.scale * (slope + self.noise * self._drawn(at, 3, shape, step)))

    def _drawn(self, at: int, part: int, shape: tuple[int, ...], step: int = 0) -> NDArray[np.float64]:
        return _normal((self.seed, at, part, step), shape)


@lru_cache(maxsize=4096)
def _normal(seeds: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Standard normal numbers, cached because many runs use the same."""
    drawn = np.asarray(np.random.default_rng(seeds).standard_normal(shape))
    drawn.flags.writeable = False
    return drawn


@dataclass(frozen=True)
class Recorded:
    """Recorded gradients, whatever the parameters are: ``gradients[step - 1][name]``."""

    name: str
    parameters: Mapping[str, NDArray[np.float64]]
    gradients: Sequence[Mapping[str, NDArray[np.float64]]]

    def start(self) -> dict[str, NDArray[np.float64]]:
        """The parameters before the first step, as new arrays."""
        return {name: each.astype(np.float64) for name, each in self.parameters.items()}

    def gradient(self, name: str, step: int, parameter: NDArray[np.float64]) -> NDArray[np.float64]:
        """As recorded; starts again after the last."""
        return self.gradients[(step - 1) % len(self.gradients)][name]


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


def parameters_of(backend: Backend, values: Mapping[str, Floats], dtype: DTypeLike = np.float64) -> dict[str, Array]:
    """New native arrays with these values."""
    # ascontiguousarray would turn a scalar into a vector.
    return {name: backend.array(np.array(each, dtype, order="C")) for name, each in values.items()}


def run(
    optimizer: Optimizer,
    backend: Backend,
    problem: TestProblem,
    steps: int,
    *,
    dtype: DTypeLike = np.float64,
    factor: Callable[[int], float] = lambda step: 1.0,
    names: Sequence[str] | None = None,
    pause: int | None = None,
    spoil: bool = False,
    start: Callable[[Optimizer, Backend, dict[str, Array]], Stepper] | None = None,
) -> Run:
    """Take ``steps`` steps and keep each.

    ``names`` are the parameters to use, in order (default: all, in the problem's order). After step ``pause`` the state
    is read, and another stepper resumes from it on copies of the parameters. ``spoil`` overwrites each gradient with
    NaN after its step. ``start`` creates the stepper (default: the optimizer's own).
    """
    begin = start or (lambda optimizer, backend, parameters: optimizer.start(backend, parameters))
    given = problem.start()
    given = {name: given[name] for name in (names or given)}
    parameters = parameters_of(backend, given, dtype)
    values = [_on_host(backend, parameters)]
    # The checks judge overflow and 0/0 by what becomes of the parameters.
    with np.errstate(all="ignore"):
        stepper = begin(optimizer, backend, parameters)
        for step in range(1, steps + 1):
            here = values[-1]
            host = {name: problem.gradient(name, step, here[name].astype(np.float64)) for name in parameters}
            gradients = parameters_of(backend, host, dtype)
            stepper.step(dict(gradients), step, factor(step))
            if spoil:
                for gradient in gradients.values():
                    gradient *= float("nan")
            values.append(_on_host(backend, parameters))
            if step == pause:
                state = {name: each.copy() for name, each in stepper.state().items()}
                parameters = parameters_of(backend, values[-1], dtype)
                stepper = begin(optimizer, backend, parameters)
                stepper.restore(state)
        averaged = stepper.averaged()
        kept = None if averaged is None else _on_host(backend, averaged)
    return Run(values, stepper.state(), kept)


def _on_host(backend: Backend, arrays: Mapping[str, Array]) -> dict[str, Floats]:
    return {name: np.array(backend.host(each)) for name, each in arrays.items()}


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
    sizes = {name: _largest(theirs, name) for name in names}
    l2, linf, where = [], [], []
    for left, right in zip(ours.values[1:], theirs.values[1:], strict=True):
        apart = {name: difference(left[name], right[name]) for name in names}
        relative = {name: float(apart[name].max()) / sizes[name] for name in names}
        worst = max(relative, key=lambda name: relative[name], default="")
        linf.append(relative.get(worst, 0.0))
        where.append(worst)
        norm = _norm([right[name] for name in names])
        length = _norm(list(apart.values()))
        l2.append(length / norm if norm else length)
    above = np.flatnonzero(np.array(linf) > tolerance)
    first = int(above[0]) if above.size else None
    return Divergence(
        problem,
        np.array(l2),
        np.array(linf),
        tolerance,
        None if first is None else first + 1,
        "" if first is None else where[first],
    )


def _largest(run: Run, name: str) -> float:
    finite = [np.abs(each[name][np.isfinite(each[name])]).max(initial=0) for each in run.values]
    return float(max(finite)) or 1.0


def _norm(arrays: list[Host]) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sqrt(sum(float(np.sum(each.astype(np.float64) ** 2)) for each in arrays)))


RULES: Mapping[str, type[UpdateRule]] = {
    name.lower(): each
    for name in optimizers.__all__
    if isinstance(each := getattr(optimizers, name), type)
    and issubclass(each, UpdateRule)
    and not getattr(each, "__abstractmethods__", None)
}
"""Our rules by the lower-case names that a reference may use."""

_KEYS = {
    "torch": {"epsilon": "eps", "initial": "initial_accumulator_value"},
    "jax": {"epsilon": "eps", "beta1": "b1", "beta2": "b2", "rho": "rho"},
}
_TAKES = {
    **dict.fromkeys(("torch.optim.AdamW", "torch.optim.Adam"), "betas eps weight_decay amsgrad"),
    **dict.fromkeys(("torch.optim.Adamax", "torch.optim.RAdam"), "betas eps weight_decay"),
    "torch.optim.Adadelta": "rho eps weight_decay",
    "torch.optim.Adagrad": "eps weight_decay lr_decay initial_accumulator_value",
    "torch.optim.NAdam": "betas eps weight_decay momentum_decay",
    "torch.optim.RMSprop": "alpha eps momentum centered weight_decay",
    "torch.optim.SGD": "momentum nesterov weight_decay",
    "torch.optim.Adafactor": "beta2_decay weight_decay",
    "torch.optim.Muon": "momentum nesterov weight_decay",
    **dict.fromkeys(("optax.adamw", "optax.lamb", "optax.nadamw"), "b1 b2 eps weight_decay"),
    **dict.fromkeys(("optax.adam", "optax.nadam", "optax.radam", "optax.adamax"), "b1 b2 eps"),
    "optax.amsgrad": "b1 b2 eps",
    "optax.lion": "b1 b2 weight_decay",
    "optax.sgd": "momentum nesterov",
    "optax.lars": "weight_decay momentum nesterov",
    "optax.adadelta": "rho eps weight_decay",
}


@dataclass(frozen=True)
class OptimizerTrial:
    """An optimizer on its backend; ``shapes`` are those of :data:`SHAPES` that it accepts."""

    optimizer: Optimizer
    backend: Backend
    seed: int
    steps: int
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def is_rule(self) -> bool:
        """Whether it promises to update each parameter independently."""
        return isinstance(self.optimizer, UpdateRule)

    def quadratic(self, name: str = "quadratic", **settings: Any) -> Quadratic:
        """The problem, on the shapes that it accepts."""
        return Quadratic(name, dict(self.shapes), self.seed, **settings)

    def run(self, problem: TestProblem | None = None, steps: int = 0, **settings: Any) -> Run:
        """Run the optimizer on ``problem`` (default: the quadratic one) for ``steps`` (default: ``self.steps``)."""
        return run(self.optimizer, self.backend, problem or self.quadratic(), steps or self.steps, **settings)


def open_backend(framework: str) -> Backend:
    """A framework on the CPU, where equal work gives equal bits."""
    return cast(Backend, open_framework(framework))


def reference_of(optimizer: Optimizer, reference: str | Optimizer | None) -> Optimizer | None:
    """The optimizer that a name stands for: ours (``adam``) or a framework's (``torch.optim.Adam``).

    It gets the rate of ``optimizer``, and its settings of the same names. Raises ``UnknownNameError`` for an unknown
    name.
    """
    if not reference:
        return None
    if isinstance(reference, Optimizer):
        return reference
    given = _settings(optimizer)
    if kind := RULES.get(reference.lower()):
        known = {each.name for each in fields(kind)}
        return kind(**{name: value for name, value in given.items() if name in known})
    if reference not in NATIVE:
        raise UnknownNameError("reference optimizer", reference, [*RULES, *NATIVE])
    lr = given.pop("lr")
    keys, takes = _KEYS[NATIVE[reference]], _TAKES.get(reference, "").split()
    if "betas" in takes and {"beta1", "beta2"} <= given.keys():
        given["betas"] = given["beta1"], given["beta2"]
    named = {keys.get(name, name): value for name, value in given.items()}
    return Native(reference, lr, **{name: value for name, value in named.items() if name in takes})


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    found = {"lr": optimizer.lr}
    if hasattr(type(optimizer), "__dataclass_fields__"):
        found |= {each.name: getattr(optimizer, each.name) for each in fields(cast(Any, optimizer))}
    return found


def framework_of(optimizer: Optimizer, otherwise: str) -> str:
    """The framework that an optimizer requires."""
    return optimizer.framework if isinstance(optimizer, Native) else otherwise
