"""Optimizers for checks of schemes: plain gradient descent that writes down what it is told."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import Stepper
from levelbench.training.optimizers.rules import SGD

__all__ = ["RATE", "SHORT", "Told"]

RATE = 0.1
"""The learning rate of runs with scripted gradients."""

SHORT = 12
"""Steps of a run with scripted gradients: enough for what happens every seventh step."""

Note = tuple[int, float, tuple[str, ...]]


@dataclass(frozen=True)
class Told(SGD):
    """w := w - lr g; ``notes`` gets step, factor and the names of the gradients of each call."""

    notes: list[Note] = field(default_factory=list, compare=False)

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work, watched."""
        return _Noting(super().start(backend, parameters), self.notes)


class _Noting(Stepper):
    def __init__(self, inside: Stepper, notes: list[Note]) -> None:
        self._inside, self._notes = inside, notes

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._notes.append((step, factor, tuple(gradients)))
        self._inside.step(gradients, step, factor)

    def state(self) -> dict[str, NDArray[Any]]:
        return self._inside.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._inside.restore(state)
