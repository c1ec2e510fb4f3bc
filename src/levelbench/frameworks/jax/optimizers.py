"""An update rule on all arrays of a network as one compiled program, and optax's optimizers.

The one idea: parameters and states are donated, so the program may write where they lie, as an update in place does.
The number of the step and the rate are its arguments, so it is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache, partial
from typing import Any

import jax
from numpy.typing import NDArray

from levelbench.networks.executor import Backend
from levelbench.training.optimizers.averaging import AveragingRule, AveragingStepper
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule
from levelbench.training.optimizers.wrappers import Native

__all__ = ["CompiledStepper", "make_stepper"]

Arrays = dict[str, Any]
Program = Callable[[Arrays, Arrays, Arrays, int, float], tuple[Arrays, Arrays]]

_MOST_PROGRAMS = 32
_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def make_stepper(rule: Any, backend: Backend, parameters: MutableMapping[str, Any]) -> Stepper | None:
    """What applies ``rule`` to these arrays faster than one after another; ``None`` if there is no such thing."""
    if isinstance(rule, Native):
        from levelbench.frameworks.jax.native_optimizers import NativeStepper

        return NativeStepper(rule, backend, parameters) if rule.framework == "jax" else None
    if not isinstance(rule, UpdateRule):
        return None
    kind = AveragingCompiledStepper if isinstance(rule, AveragingRule) else CompiledStepper
    return kind(rule, backend, parameters)


class CompiledStepper(RuleStepper):
    """A rule on all parameters that have a gradient, compiled for each set of them.

    An array of parameters or state is gone once its step was taken: take a copy of what is to be kept. A rule that asks
    for values while it is traced (``if step == 1``, ``math.sqrt(step)``) cannot be compiled, and is then applied to one
    array after another.
    """

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Any]) -> None:
        super().__init__(rule, backend, parameters)
        self._program: Program | None = _program_of(rule)

    def step(self, gradients: Mapping[str, Any], step: int, factor: float) -> None:
        """One call of the program."""
        if self._program is None:
            super().step(gradients, step, factor)
            return
        parameters, states = self._parameters, self._states
        for name in gradients:
            if name not in states:
                states[name] = _placed(self._rule.init(parameters[name]), parameters[name])
        taken = {name: parameters[name] for name in gradients}
        kept = {name: states[name] for name in gradients}
        try:
            updated, after = self._program(taken, dict(gradients), kept, step, float(self._rule.lr * factor))
        except _UNTRACEABLE:
            # Raised while it is traced: nothing has been computed or donated yet.
            self._program = None
            super().step(gradients, step, factor)
            return
        for name, array in updated.items():
            parameters[name] = array
        states.update(after)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The states of all parameters anew."""
        super().restore(state)
        self._states = {name: _placed(each, self._parameters[name]) for name, each in self._states.items()}


def _program_of(rule: UpdateRule) -> Program:
    try:
        return _program(rule)
    except TypeError:
        # A rule that holds a list or the like cannot be looked up.
        return _made(rule)


@lru_cache(maxsize=_MOST_PROGRAMS)
def _program(rule: UpdateRule) -> Program:
    """The rule on arrays by name; equal rules share one, and what was compiled for it."""
    return _made(rule)


def _made(rule: UpdateRule) -> Program:
    program: Program = jax.jit(partial(_updated, rule), donate_argnums=(0, 2))
    return program


def _updated(rule: UpdateRule, parameters: Arrays, gradients: Arrays, states: Arrays, step: Any, lr: Any) -> Any:
    pairs: dict[str, tuple[Any, State]] = {
        name: rule.update(parameter, gradients[name], states[name], step, lr) for name, parameter in parameters.items()
    }
    # What is put in a place gets its dtype, as when one array is updated after another.
    return (
        {name: array.astype(parameters[name].dtype) for name, (array, _) in pairs.items()},
        {name: state for name, (_, state) in pairs.items()},
    )


def _placed(state: State, parameter: Any) -> State:
    """A state whose numbers are where the program will put them: it would be compiled twice otherwise."""
    if isinstance(state, tuple):
        return tuple(_placed(each, parameter) for each in state)
    return jax.device_put(state, parameter.sharding) if isinstance(state, int | float) else state


class AveragingCompiledStepper(CompiledStepper, AveragingStepper):
    """The same for a rule that averages."""
