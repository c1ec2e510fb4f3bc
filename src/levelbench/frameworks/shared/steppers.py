"""An update rule on all arrays of a network as one program, for frameworks that trace it: JAX and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, ClassVar

from levelbench.networks.executor import Backend
from levelbench.operators.contract import Array
from levelbench.training.optimizers.base import RuleStepper, State, UpdateRule

Arrays = dict[str, Any]
Program = Callable[[Arrays, Arrays, Arrays, int, float], tuple[Arrays, Arrays]]
"""(parameters, gradients, states, step, rate) -> parameters and states after a step, by name."""

_MOST_PROGRAMS = 32


def by_rule(make: Callable[[UpdateRule], Program]) -> Callable[[UpdateRule], Program]:
    """``make``, whose programs equal rules share."""
    cached = lru_cache(maxsize=_MOST_PROGRAMS)(make)

    def program_of(rule: UpdateRule) -> Program:
        try:
            return cached(rule)
        except TypeError:
            # A rule that is not hashable.
            return make(rule)

    return program_of


class ProgramStepper(RuleStepper):
    """A rule on all parameters that have a gradient, as one program for each set of them.

    A rule that needs values while it is traced (``if step == 1``, ``math.sqrt(step)``) is applied to one array after
    another.
    """

    program_of: ClassVar[Callable[[UpdateRule], Program]]
    untraceable: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(rule, backend, parameters)
        self._program: Program | None = type(self).program_of(rule)

    def placed(self, state: State, parameter: Array) -> State:
        """A new state as the program takes it."""
        return state

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        if self._program is None:
            super().step(gradients, step, factor)
            return
        parameters, states = self._parameters, self._states
        for name in gradients:
            if name not in states:
                states[name] = self.placed(self._rule.init(parameters[name]), parameters[name])
        taken = {name: parameters[name] for name in gradients}
        before = {name: states[name] for name in gradients}
        try:
            updated, after = self._program(taken, dict(gradients), before, step, float(self._rule.lr * factor))
        except self.untraceable:
            # Raised while it was traced: nothing has been computed or donated yet.
            self._program = None
            super().step(gradients, step, factor)
            return
        for name, array in updated.items():
            parameters[name] = array
        states.update(after)
