"""What an optimizer is: how the parameters of a network follow from their gradients.

An ``Optimizer`` is a description, frozen and cheap; ``start`` applies it to live parameters and returns a ``Stepper``,
which holds the state. So a recipe can be made, compared and recorded without a framework.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError
from levelbench.networks.executor import Array, Backend

State = Any
"""A rule's state for one parameter: an array, a tuple of states, or ``None``."""


class Stepper(ABC):
    """An optimizer running on live parameters."""

    @abstractmethod
    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """Update the parameters in place, at the base learning rate times ``factor``; ``step`` counts from 1.

        Gradients may be overwritten.
        """

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to resume, besides the parameters: arrays on the host by a flat name."""

    @abstractmethod
    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Resume from the result of :meth:`state`; ``DataError`` if it does not fit."""

    def averaged(self) -> Mapping[str, Array] | None:
        """The weights to evaluate with, if they differ from those being trained."""
        return None


class Optimizer(ABC):
    """A way to update all parameters of a network. ``lr`` is its base learning rate, which a schedule multiplies."""

    lr: float

    @abstractmethod
    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Create the stepper for these live parameters."""


@dataclass(frozen=True)
class UpdateRule(Optimizer):
    """How a single parameter follows from its gradient."""

    lr: float
    elementwise: ClassVar[bool] = True
    """Whether each element depends only on its own gradient and state, so that many can be updated at once."""

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise DefinitionError(f"{type(self).__name__} with lr={self.lr}", "it is not positive", "choose lr > 0")

    @abstractmethod
    def init(self, parameter: Array) -> State:
        """The state before the first step."""

    @abstractmethod
    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """The parameter and the state after step number ``step`` (from 1). The gradient may be overwritten."""

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return cast("Stepper | None", backend.stepper(self, parameters)) or self.one_by_one(backend, parameters)

    def one_by_one(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Create a stepper that applies the rule to each parameter in turn, without the framework's faster way."""
        return RuleStepper(self, backend, parameters)


class RuleStepper(Stepper):
    """Applies a rule to one parameter after another."""

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        self._rule, self._backend, self._parameters = rule, backend, parameters
        self._states: dict[str, State] = {}

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        rule, parameters, states = self._rule, self._parameters, self._states
        lr = rule.lr * factor
        for name, gradient in gradients.items():
            parameter = parameters[name]
            state = states[name] if name in states else rule.init(parameter)
            parameters[name], states[name] = rule.update(parameter, gradient, state, step, lr)

    def state(self) -> dict[str, NDArray[Any]]:
        """The arrays of all states: ``NAME`` for a single one, ``NAME/0``, ``NAME/1/0`` for those in tuples."""
        result: dict[str, NDArray[Any]] = {}
        for name, state in self._states.items():
            _flatten(name, state, self._backend, result)
        return result

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Create new states for all parameters and fill them with the saved values."""
        if not state:
            self._states = {}
            return
        taken: set[str] = set()
        self._states = {
            name: _filled(name, self._rule.init(self._parameters[name]), state, self._backend, taken)
            for name in self._parameters
        }
        if left := set(state) - taken:
            raise DataError(
                f"the state of {type(self._rule).__name__}",
                f"it has {', '.join(sorted(left)[:3])}, which belong to no parameter here",
                "use the network and the optimizer that it was saved with",
            )


def _flatten(name: str, state: State, backend: Backend, result: dict[str, NDArray[Any]]) -> None:
    if isinstance(state, tuple):
        for at, each in enumerate(state):
            _flatten(f"{name}/{at}", each, backend, result)
    elif state is not None:
        result[name] = np.array(state if isinstance(state, int | float) else backend.host(state))


def _filled(name: str, like: State, kept: Mapping[str, NDArray[Any]], backend: Backend, taken: set[str]) -> State:
    """A state with the structure of ``like`` and the saved values."""
    if isinstance(like, tuple):
        return tuple(_filled(f"{name}/{at}", each, kept, backend, taken) for at, each in enumerate(like))
    if like is None:
        return None
    if name not in kept:
        raise DataError("the state of an optimizer", f"it lacks {name!r}", "use the optimizer that saved it")
    taken.add(name)
    value = kept[name]
    if isinstance(like, int | float):
        return type(like)(value)
    if tuple(like.shape) != value.shape:
        raise DataError(
            f"the state of {name!r}",
            f"its shape is {value.shape} instead of {tuple(like.shape)}",
            "train from the start",
        )
    return backend.array(np.array(value))
