"""Rules whose result is an average of what they step through."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import cast

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule

__all__ = ["AveragingRule", "AveragingStepper"]


@dataclass(frozen=True)
class AveragingRule(UpdateRule):
    """A rule that is evaluated at other weights than those that gradients are taken at."""

    @abstractmethod
    def average(self, parameter: Array, state: State) -> Array:
        """The weights to evaluate with, in an array of their own."""

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """The framework's faster way where it has one, else one parameter after another."""
        faster = cast("Stepper | None", backend.stepper(self, parameters))
        return faster or AveragingStepper(self, backend, parameters)


class AveragingStepper(RuleStepper):
    """A rule that averages, one parameter after another."""

    def __init__(self, rule: AveragingRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(rule, backend, parameters)
        self._average = rule.average

    def averaged(self) -> Mapping[str, Array]:
        """The averages of all parameters that were updated, and the others as they are."""
        states = self._states
        return {
            name: self._average(parameter, states[name]) if name in states else parameter
            for name, parameter in self._parameters.items()
        }
