"""Update rules, written once for every framework's arrays.

The one idea: an augmented assignment (``velocity *= 0.9``) works in place on NumPy and PyTorch arrays and rebinds the
name on immutable ones, and the rule returns what it was given either way, so the same lines serve all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from levelbench.errors import DefinitionError
from levelbench.networks.executor import Array

__all__ = ["SGD", "Adam", "Momentum", "UpdateRule", "apply"]

State = Any


@dataclass(frozen=True)
class UpdateRule(ABC):
    """How one parameter follows from its gradient. ``lr`` is the base learning rate, which a schedule multiplies."""

    lr: float

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise DefinitionError(f"{type(self).__name__} with lr={self.lr}", "it is not positive", "choose lr > 0")

    @abstractmethod
    def init(self, parameter: Array) -> State:
        """The state before the first step."""

    @abstractmethod
    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """The parameter and the state after step number ``step`` (from 1). The gradient may be overwritten."""


@dataclass(frozen=True)
class SGD(UpdateRule):
    """w := w - lr g (Robbins & Monro 1951)."""

    def init(self, parameter: Array) -> State:
        """No state."""
        return None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        gradient *= lr
        parameter -= gradient
        return parameter, state


@dataclass(frozen=True)
class Momentum(UpdateRule):
    """v := momentum v + g; w := w - lr v (Polyak 1964), or with ``nesterov`` w := w - lr (g + momentum v).

    The form of Sutskever et al. 2013 with the learning rate outside of the velocity, as PyTorch has it.
    """

    momentum: float = 0.9
    nesterov: bool = False

    def init(self, parameter: Array) -> State:
        """The velocity, zero."""
        return 0 * parameter

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        velocity = state
        velocity *= self.momentum
        velocity += gradient
        if self.nesterov:
            gradient += self.momentum * velocity
            gradient *= lr
            parameter -= gradient
        else:
            parameter -= lr * velocity
        return parameter, velocity


@dataclass(frozen=True)
class Adam(UpdateRule):
    """Adam with bias correction (Kingma & Ba 2015, algorithm 1)."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero."""
        return 0 * parameter, 0 * parameter

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        first, second = state
        first *= self.beta1
        first += (1 - self.beta1) * gradient
        second *= self.beta2
        gradient *= gradient
        gradient *= 1 - self.beta2
        second += gradient
        denominator = second**0.5
        denominator /= (1 - self.beta2**step) ** 0.5
        denominator += self.epsilon
        parameter -= (lr / (1 - self.beta1**step)) * first / denominator
        return parameter, (first, second)


def apply(
    rule: UpdateRule,
    parameters: MutableMapping[str, Array],
    gradients: Mapping[str, Array],
    states: MutableMapping[str, State],
    step: int,
    factor: float,
) -> None:
    """Update every parameter in place with learning rate ``rule.lr * factor``; missing states are made."""
    lr = rule.lr * factor
    for name, gradient in gradients.items():
        parameter = parameters[name]
        state = states[name] if name in states else rule.init(parameter)
        parameters[name], states[name] = rule.update(parameter, gradient, state, step, lr)
