"""An update rule on all arrays of a network as one compiled program, and optax's optimizers.

Parameters and states are donated, so that the program can update them in place. The step number and the rate are
arguments, so it is compiled once.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, MutableMapping
from functools import lru_cache, partial, reduce
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, MissingError
from levelbench.frameworks.shared.steppers import Arrays, Program, ProgramStepper, by_rule
from levelbench.networks.executor import Backend
from levelbench.training.optimizers.base import State, Stepper, UpdateRule
from levelbench.training.optimizers.rules import AveragingRule, AveragingStepper
from levelbench.training.optimizers.wrappers import Native

_MOST_PROGRAMS = 32


class OptaxStepper(Stepper):
    """A gradient transformation of optax, which counts its steps itself."""

    def __init__(self, native: Native, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        """Raises ``MissingError`` without optax, ``DefinitionError`` for invalid settings."""
        if importlib.util.find_spec("optax") is None:
            raise MissingError(native.name, "optax is not installed", 'pip install "levelbench[jax]"')
        self._native, self._backend, self._parameters = native, backend, parameters
        try:
            state: Any = _transformation(native, native.lr).init(dict(parameters))
        except (TypeError, ValueError, AttributeError) as error:
            raise DefinitionError(
                f"{native.name}({', '.join(f'{key}={value}' for key, value in native.settings)})",
                f"{type(error).__name__}: {error}",
                "give arguments and parameters that optax's documentation allows",
            ) from error
        # Optax's counters are on no particular device, and the first step puts them on one: it would compile again.
        place = next((each.sharding for each in parameters.values()), None)
        self._state: Any = jax.device_put(state, place)
        self._program = _optax_program(native)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """One step of optax, which needs the gradients of all parameters."""
        lr = float(self._native.lr * factor)
        updated, self._state = self._program(dict(self._parameters), dict(gradients), self._state, lr)
        for name, array in updated.items():
            self._parameters[name] = array

    def averaged(self) -> Mapping[str, Array] | None:
        """The average that a schedule-free optimizer is evaluated with, also where it is part of a chain."""
        contrib: Any = importlib.import_module("optax.contrib")
        kind = contrib.ScheduleFreeState
        leaves = jax.tree_util.tree_leaves(self._state, is_leaf=lambda each: isinstance(each, kind))
        for state in leaves:
            if isinstance(state, kind) and isinstance(state.z, dict) and state.z.keys() == self._parameters.keys():
                found: Mapping[str, Any] = contrib.schedule_free_eval_params(state, dict(self._parameters))
                return found
        return None

    def state(self) -> dict[str, NDArray[Any]]:
        """The leaves of optax's state by path: ``[0].mu['fc.weight']``."""
        return {name: self._backend.host(_numbers(leaf)) for name, leaf in self._leaves()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from this state; ``DataError`` if it has other paths or shapes."""
        leaves = self._leaves()
        missing = [name for name, leaf in leaves if name not in state or np.shape(_numbers(leaf)) != state[name].shape]
        if missing or len(leaves) != len(state):
            raise DataError(
                f"the state of {self._native.name}",
                f"it lacks {missing[0]!r}" if missing else "it has parts that this optimizer does not have",
                "continue with the network and optimizer that it was saved with",
            )
        structure = jax.tree_util.tree_structure(self._state)
        arrays = [_as(leaf, self._backend.array(state[name])) for name, leaf in leaves]
        self._state = jax.tree_util.tree_unflatten(structure, arrays)

    def _leaves(self) -> list[tuple[str, Array]]:
        return [
            (jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(self._state)[0]
        ]


def _is_key(leaf: Any) -> bool:
    """Whether it is a typed key of random numbers, such as ``optax.noisy_sgd`` keeps, which no host array holds."""
    return isinstance(leaf, Array) and bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _numbers(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _as(leaf: Any, numbers: Array) -> Any:
    """The numbers as a leaf of the same kind."""
    return jax.random.wrap_key_data(numbers, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else numbers


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


def _made(rule: UpdateRule) -> Program:
    program: Program = jax.jit(partial(_updated, rule), donate_argnums=(0, 2))
    return program


class CompiledStepper(ProgramStepper):
    """Arrays of parameters and state are deleted by a step: copy what should be kept."""

    program_of = by_rule(_made)
    untraceable = _UNTRACEABLE

    def placed(self, state: State, parameter: Array) -> State:
        return _placed(state, parameter)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().restore(state)
        self._states = {name: _placed(each, self._parameters[name]) for name, each in self._states.items()}


class AveragingCompiledStepper(CompiledStepper, AveragingStepper):
    """The same for a rule that averages."""
