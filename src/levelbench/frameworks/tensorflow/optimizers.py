"""An update rule on all arrays of a network as one graph."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import tensorflow as tf

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.steppers import Arrays, ProgramStepper, by_rule
from levelbench.frameworks.tensorflow.arrays import TensorArray, WeakNumber
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import State, Stepper, UpdateRule
from levelbench.training.optimizers.rules import AveragingRule, AveragingStepper


def make_stepper(rule: Any, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper | None:
    """A stepper that applies ``rule`` faster than one array after another; ``None`` if there is none."""
    if not isinstance(rule, UpdateRule):
        return None
    kind = AveragingGraphStepper if isinstance(rule, AveragingRule) else GraphStepper
    return kind(rule, backend, parameters)


class _Program:
    """Parameters and states by name to those after a step, traced for each structure of the states."""

    def __init__(self, rule: UpdateRule) -> None:
        self._rule = rule
        self._graph = tf.function(self._updated, autograph=False)
        self._kinds_after: dict[Any, list[Kind]] = {}

    def __call__(
        self, parameters: Arrays, gradients: Arrays, states: Arrays, step: int, lr: float
    ) -> tuple[Arrays, Arrays]:
        tensors: list[list[Any]] = [[array.tensor, gradients[name].tensor] for name, array in parameters.items()]
        kinds = tuple(_taken(states[name], kept) for name, kept in zip(parameters, tensors, strict=True))
        found = self._graph(tensors, kinds, tf.constant([step, lr], tf.float64))
        updated, after = {}, {}
        for name, (parameter, *kept), kind in zip(parameters, found, self._kinds_after[kinds], strict=True):
            updated[name], after[name] = TensorArray(parameter), _restored(kind, iter(kept))
        return updated, after

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


class GraphStepper(ProgramStepper):
    """A rule as one graph."""

    program_of = by_rule(_Program)
    untraceable = (UnsupportedError, NotImplementedError)


class AveragingGraphStepper(GraphStepper, AveragingStepper):
    """The same for a rule that averages."""
