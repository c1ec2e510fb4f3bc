"""An optimizer let loose on a small problem, with every step of its way kept.

The one idea: a problem gives gradients on the host, from the parameters as they are, so that two optimizers (and two
frameworks) get the same gradients as long as they agree, and what parts them grows and is seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import Optimizer, Stepper

__all__ = ["SHAPES", "Floats", "Problem", "Quadratic", "Recorded", "Run", "parameters_of", "run"]

Floats = NDArray[Any]
SHAPES: Mapping[str, tuple[int, ...]] = {
    "matrix": (5, 3),
    "kernel": (4, 2, 3, 3),
    "vector": (7,),
    "scalar": (),
    "empty": (0, 4),
}
"""A parameter of each kind that networks have, and of two kinds that are seldom thought of."""


class Problem(ABC):
    """Parameters to start from, and their gradients at each step."""

    name: str

    @abstractmethod
    def start(self) -> dict[str, NDArray[np.float64]]:
        """The parameters before the first step, new each time."""

    @abstractmethod
    def gradient(self, name: str, step: int, parameter: NDArray[np.float64]) -> NDArray[np.float64]:
        """The gradient of a parameter at a step (from 1), where it stands."""


@dataclass(frozen=True)
class Quadratic(Problem):
    """½ Σ a (w - c)², with a from 0.1 to 1 by element, and noise in the gradients; all times ``scale``.

    ``zero_after`` is the last step with a gradient; ``centre`` is the spread of c, 0 puts the minimum at the origin.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: dict(SHAPES))
    seed: int = 0
    scale: float = 1.0
    noise: float = 0.3
    centre: float = 1.0
    zero_after: int | None = None

    def start(self) -> dict[str, NDArray[np.float64]]:
        """Standard normal."""
        return {name: self._drawn(at, 0, shape).copy() for at, (name, shape) in enumerate(self.shapes.items())}

    def gradient(self, name: str, step: int, parameter: NDArray[np.float64]) -> NDArray[np.float64]:
        """That of the function, and noise of this step alone."""
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
    """Standard normal numbers, drawn once: many runs need the same."""
    drawn = np.asarray(np.random.default_rng(seeds).standard_normal(shape))
    drawn.flags.writeable = False
    return drawn


@dataclass(frozen=True)
class Recorded(Problem):
    """Gradients that were recorded before, whatever the parameters are: ``gradients[step - 1][name]``."""

    name: str
    parameters: Mapping[str, NDArray[np.float64]]
    gradients: Sequence[Mapping[str, NDArray[np.float64]]]

    def start(self) -> dict[str, NDArray[np.float64]]:
        """As recorded."""
        return {name: each.astype(np.float64) for name, each in self.parameters.items()}

    def gradient(self, name: str, step: int, parameter: NDArray[np.float64]) -> NDArray[np.float64]:
        """As recorded; from the beginning again after the last."""
        return self.gradients[(step - 1) % len(self.gradients)][name]


@dataclass(frozen=True)
class Run:
    """The way that an optimizer took: the parameters before the first step and after each, on the host."""

    values: list[dict[str, Floats]]
    state: dict[str, Floats]
    averaged: dict[str, Floats] | None

    @property
    def last(self) -> dict[str, Floats]:
        """The parameters after the last step."""
        return self.values[-1]


def parameters_of(backend: Backend, values: Mapping[str, Floats], dtype: Any = np.float64) -> dict[str, Array]:
    """Native arrays of their own with these values."""
    # ascontiguousarray would make a vector of a scalar.
    return {name: backend.array(np.array(each, dtype, order="C")) for name, each in values.items()}


def run(
    optimizer: Optimizer,
    backend: Backend,
    problem: Problem,
    steps: int,
    *,
    dtype: Any = np.float64,
    factor: Callable[[int], float] = lambda step: 1.0,
    names: Sequence[str] | None = None,
    pause: int | None = None,
    spoil: bool = False,
    start: Callable[[Optimizer, Backend, dict[str, Array]], Stepper] | None = None,
) -> Run:
    """Take ``steps`` steps and keep each.

    ``names`` are the parameters taken part, in this order (default: all, in the problem's). After step ``pause`` the
    state is read and another stepper, on copies of the parameters, goes on from it. ``spoil`` overwrites each gradient
    with NaN once its step was taken. ``start`` puts the optimizer to work (default: its own).
    """
    begin = start or (lambda optimizer, backend, parameters: optimizer.start(backend, parameters))
    given = problem.start()
    given = {name: given[name] for name in (names or given)}
    parameters = parameters_of(backend, given, dtype)
    values = [_on_host(backend, parameters)]
    # Overflow and 0/0 are for the checks to judge, by what becomes of the parameters.
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
