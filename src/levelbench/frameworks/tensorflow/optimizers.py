"""An update rule on all arrays of a network as one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any

import tensorflow as tf

from levelbench.errors import UnsupportedError
from levelbench.frameworks.tensorflow.arrays import TensorArray, WeakNumber
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import RuleStepper, State, Stepper, UpdateRule
from levelbench.training.optimizers.rules import AveragingRule, AveragingStepper

_MOST_PROGRAMS = 32


def make_stepper(rule: Any, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper | None:
    """A stepper that applies ``rule`` faster than one array after another; ``None`` if there is none."""
    if not isinstance(rule, UpdateRule):
        return None
    kind = AveragingGraphStepper if isinstance(rule, AveragingRule) else GraphStepper
    return kind(rule, backend, parameters)


class GraphStepper(RuleStepper):
    """A rule on all parameters that have a gradient, as one graph for each set of them.

    A rule that needs values while it is traced (``if step == 1``, ``math.sqrt(step)``) is applied to one array after
    another.
    """

    def __init__(self, rule: UpdateRule, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(rule, backend, parameters)
        self._program: _Program | None = _program_of(rule)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        if self._program is None:
            super().step(gradients, step, factor)
            return
        parameters, states = self._parameters, self._states
        for name in gradients:
            if name not in states:
                states[name] = self._rule.init(parameters[name])
        given = [(parameters[name], gradients[name], states[name]) for name in gradients]
        try:
            found = self._program(given, step, self._rule.lr * factor)
        except (UnsupportedError, NotImplementedError):
            # Raised while it was traced: nothing has been computed yet.
            self._program = None
            super().step(gradients, step, factor)
            return
        for name, (array, state) in zip(gradients, found, strict=True):
            parameters[name], states[name] = array, state


class AveragingGraphStepper(GraphStepper, AveragingStepper):
    """The same for a rule that averages."""


def _program_of(rule: UpdateRule) -> _Program:
    try:
        return _kept_program(rule)
    except TypeError:
        # A rule that is not hashable.
        return _Program(rule)


@lru_cache(maxsize=_MOST_PROGRAMS)
def _kept_program(rule: UpdateRule) -> _Program:
    """Equal rules share their graphs."""
    return _Program(rule)


class _Program:
    """(parameter, gradient, state) of all parameters to their (parameter, state) after a step, traced by kinds."""

    def __init__(self, rule: UpdateRule) -> None:
        self._rule = rule
        self._graph = tf.function(self._updated, autograph=False)
        self._kinds_after: dict[Any, list[Kind]] = {}

    def __call__(self, given: list[tuple[Array, Array, State]], step: int, lr: float) -> list[tuple[Array, State]]:
        tensors: list[list[Any]] = [[parameter.tensor, gradient.tensor] for parameter, gradient, _ in given]
        kinds = tuple(_taken(state, kept) for (_, _, state), kept in zip(given, tensors, strict=True))
        found = self._graph(tensors, kinds, tf.constant([step, lr], tf.float64))
        after = self._kinds_after[kinds]
        return [
            (TensorArray(parameter), _restored(kind, iter(kept)))
            for (parameter, *kept), kind in zip(found, after, strict=True)
        ]

    def _updated(self, tensors: list[list[Any]], kinds: tuple[Kind, ...], numbers: Any) -> list[list[Any]]:
        step, lr = WeakNumber(numbers[0]), WeakNumber(numbers[1])
        results, after = [], []
        for (parameter, gradient, *kept), kind in zip(tensors, kinds, strict=True):
            state = _restored(kind, iter(kept))
            array, new = self._rule.update(TensorArray(parameter), TensorArray(gradient), state, step, lr)  # type: ignore[arg-type]
            # Parameters keep their dtype, as when one array is updated after another.
            result = [tf.cast(array.tensor, parameter.dtype)]
            after.append(_taken(new, result))
            results.append(result)
        self._kinds_after[kinds] = after
        return results


Kind = Any
"""The structure of a state: tuples of kinds; whether a leaf is a number; ``None`` for none."""


def _taken(state: State, tensors: list[Any]) -> Kind:
    """The kind of a state, whose tensors are appended to a list."""
    if isinstance(state, tuple):
        return tuple(_taken(each, tensors) for each in state)
    if state is None:
        return None
    number = isinstance(state, int | float | WeakNumber)
    tensors.append(tf.constant(state, tf.float64) if isinstance(state, int | float) else state.tensor)
    return number


def _restored(kind: Kind, tensors: Iterator[Any]) -> State:
    if isinstance(kind, tuple):
        return tuple(_restored(each, tensors) for each in kind)
    return None if kind is None else (WeakNumber if kind else TensorArray)(next(tensors))
