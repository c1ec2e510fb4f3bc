"""An update rule on all arrays of a network as one compiled program, and optax's optimizers.

Parameters and states are donated, so that the program can update them in place. The step number and the rate are
arguments, so it is compiled once.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, MutableMapping
from functools import lru_cache, partial, reduce
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, MissingError
from levelbench.networks.executor import Backend
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule
from levelbench.training.optimizers.rules import AveragingRule, AveragingStepper
from levelbench.training.optimizers.wrappers import Native

_MOST_PROGRAMS = 32


class OptaxStepper(Stepper):
    """A gradient transformation of optax, which counts its steps itself."""

    def __init__(self, native: Native, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        """Raises ``MissingError`` without optax, ``DefinitionError`` for invalid settings."""
        if importlib.util.find_spec("optax") is None:
            raise MissingError(native.name, "optax is not installed", 'pip install "levelbench[jax]"')
        self._optax: Any = importlib.import_module("optax")
        self._native, self._backend, self._parameters = native, backend, parameters
        try:
            self._state: Any = _transformation(native, native.lr).init(dict(parameters))
        except (TypeError, ValueError, AttributeError) as error:
            raise DefinitionError(
                f"{native.name}({', '.join(f'{key}={value}' for key, value in native.settings)})",
                f"{type(error).__name__}: {error}",
                "give arguments and parameters that optax's documentation allows",
            ) from error
        self._program = _optax_program(native)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """One step of optax, which needs the gradients of all parameters."""
        lr = float(self._native.lr * factor)
        updated, self._state = self._program(dict(self._parameters), dict(gradients), self._state, lr)
        for name, array in updated.items():
            self._parameters[name] = array

    def averaged(self) -> Mapping[str, Array] | None:
        if "schedule_free" not in self._native.name:
            return None
        found: Mapping[str, Any] = self._optax.contrib.schedule_free_eval_params(self._state, dict(self._parameters))
        return found

    def state(self) -> dict[str, NDArray[Any]]:
        """The leaves of optax's state by path: ``[0].mu['fc.weight']``."""
        return {name: self._backend.host(leaf) for name, leaf in self._leaves()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from this state; ``DataError`` if it has other paths or shapes."""
        leaves = self._leaves()
        missing = [name for name, leaf in leaves if name not in state or np.shape(leaf) != state[name].shape]
        if missing or len(leaves) != len(state):
            raise DataError(
                f"the state of {self._native.name}",
                f"it lacks {missing[0]!r}" if missing else "it has parts that this optimizer does not have",
                "continue with the network and optimizer that it was saved with",
            )
        structure = jax.tree_util.tree_structure(self._state)
        self._state = jax.tree_util.tree_unflatten(structure, [self._backend.array(state[name]) for name, _ in leaves])

    def _leaves(self) -> list[tuple[str, Array]]:
        return [
            (jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(self._state)[0]
        ]


def _transformation(native: Native, lr: Array | float) -> Any:
    if native.made is not None:
        return native.made
    make: Any = reduce(getattr, native.name.split(".")[1:], importlib.import_module("optax"))
    return make(learning_rate=lr, **dict(native.settings))


def _step_of_optax(native: Native, parameters: Array, gradients: Array, state: Any, lr: Array) -> tuple[Array, Array]:
    optax: Any = importlib.import_module("optax")
    updates, after = _transformation(native, lr).update(gradients, state, parameters)
    if native.made is not None:
        updates = jax.tree_util.tree_map(lambda each: each * lr, updates)
    return optax.apply_updates(parameters, updates), after


@lru_cache(maxsize=_MOST_PROGRAMS)
def _optax_program(native: Native) -> Any:
    """The compiled step; equal optimizers share it. Nothing is donated: the state may contain the parameters."""
    return jax.jit(partial(_step_of_optax, native))


Arrays = dict[str, Any]
Program = Callable[[Arrays, Arrays, Arrays, int, float], tuple[Arrays, Arrays]]

_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def make_stepper(rule: Any, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper | None:
    """A stepper that applies ``rule`` faster than one array after another; ``None`` if there is none."""
    if isinstance(rule, Native):
        return OptaxStepper(rule, backend, parameters) if rule.framework == "jax" else None
    if not isinstance(rule, UpdateRule):
        return None
    kind = AveragingCompiledStepper if isinstance(rule, AveragingRule) else CompiledStepper
    return kind(rule, backend, parameters)


class CompiledStepper(RuleStepper):
    """A rule on all parameters that have a gradient, compiled for each set of them.

    Arrays of parameters and state are deleted by a step: copy what should be kept. A rule that needs values during
    tracing (``if step == 1``, ``math.sqrt(step)``) cannot be compiled and is applied to one array after another.
    """

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(rule, backend, parameters)
        self._program: Program | None = _program_of(rule)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
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
            # Raised during tracing: nothing has been computed or donated yet.
            self._program = None
            super().step(gradients, step, factor)
            return
        for name, array in updated.items():
            parameters[name] = array
        states.update(after)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().restore(state)
        self._states = {name: _placed(each, self._parameters[name]) for name, each in self._states.items()}


def _program_of(rule: UpdateRule) -> Program:
    try:
        return _program(rule)
    except TypeError:
        # A rule that is not hashable.
        return _made(rule)


@lru_cache(maxsize=_MOST_PROGRAMS)
def _program(rule: UpdateRule) -> Program:
    """The compiled rule; equal rules share it."""
    return _made(rule)


def _made(rule: UpdateRule) -> Program:
    program: Program = jax.jit(partial(_updated, rule), donate_argnums=(0, 2))
    return program


def _updated(rule: UpdateRule, parameters: Arrays, gradients: Arrays, states: Arrays, step: Array, lr: Array) -> Array:
    pairs: dict[str, tuple[Any, State]] = {
        name: rule.update(parameter, gradients[name], states[name], step, lr) for name, parameter in parameters.items()
    }
    # Parameters keep their dtype, as when one array is updated after another.
    return (
        {name: array.astype(parameters[name].dtype) for name, (array, _) in pairs.items()},
        {name: state for name, (_, state) in pairs.items()},
    )


def _placed(state: State, parameter: Array) -> State:
    """A state with its numbers on the parameter's device, where the program puts them; else it would compile twice."""
    if isinstance(state, tuple):
        return tuple(_placed(each, parameter) for each in state)
    return jax.device_put(state, parameter.sharding) if isinstance(state, int | float) else state


class AveragingCompiledStepper(CompiledStepper, AveragingStepper):
    """The same for a rule that averages."""
