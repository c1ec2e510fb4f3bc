"""What ranks train in checks of schemes: a network whose gradients are laid down, one that learns, and an optimizer.

Both networks compute on the host in float64, whatever the framework is that holds their parameters, so what a scheme
has made of the gradients is known to rounding. The optimizer is plain gradient descent that writes down what it is
given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from levelbench.checks.arrays import Host
from levelbench.errors import UsageError
from levelbench.networks.executor import Array, Backend, CheckedArrays, Executor, LiveArrays, require_shape
from levelbench.training.optimizers.base import Stepper
from levelbench.training.optimizers.rules import SGD

Floats = Host

FEATURES, TARGETS, _HIDDEN = 5, 3, 8
SHAPES: Mapping[str, tuple[int, ...]] = {
    "hidden.weight": (_HIDDEN, FEATURES),
    "hidden.bias": (_HIDDEN,),
    "gain": (1, _HIDDEN),
    "output.weight": (TARGETS, _HIDDEN),
    "output.bias": (TARGETS,),
    "scale": (),
    "unused": (4,),
}
"""Parameters of several shapes; the last one has no influence on the loss of :class:`Regression`."""
BUFFERS: Mapping[str, tuple[int, ...]] = {"running_mean": (FEATURES,)}

_RANDOM_GRADIENTS, _PERTURBED = 0x6AD, 0x9E7


def beginning(seed: int, apart: int = 0) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Parameters and buffers to start from, float64; for ``apart`` other than 0 they are others."""
    draws = np.random.default_rng((seed, apart, _PERTURBED))
    parameters = {name: np.asarray(draws.normal(0.0, 0.5, shape)) for name, shape in SHAPES.items()}
    # Near 1: a network that passes nothing on would learn nothing.
    for name in ("gain", "scale"):
        parameters[name] = np.asarray(1.0 + 0.2 * parameters[name])
    return parameters, {name: np.asarray(draws.normal(0.0, 1.0, shape)) for name, shape in BUFFERS.items()}


class _Held(CheckedArrays):
    """Native arrays that stay where they are, as those of an executor do; JAX's are replaced."""

    def __init__(self, arrays: Mapping[str, Array], backend: Backend) -> None:
        super().__init__(arrays)
        self._backend = backend

    def replaced(self, name: str, held: Array, value: Array) -> Array:
        require_shape(name, held.shape, value.shape)
        if isinstance(value, np.ndarray):
            value = self._backend.array(value)
        if not hasattr(held, "copy_"):
            return value if value.dtype == held.dtype else value.astype(held.dtype)
        held.copy_(value)
        return held


class ToyNetwork(Executor):
    """Live parameters, and gradients that are handed over one by one where that is asked for."""

    network = None
    mode = "eager"

    def __init__(self, backend: Backend, seed: int, dtype: DTypeLike, early: bool = False, apart: int = 0) -> None:
        self._backend, self._seed, self._dtype, self._early = backend, seed, dtype, early
        self.parameters, self.buffers = (self._live(each) for each in beginning(seed, apart))
        self._callback: Callable[[str, Array], Array | None] | None = None
        self._gradients: Mapping[str, Floats] | None = None
        self.asked_early = False
        """Whether somebody asked for gradients as they become final."""

    def on_gradient(self, callback: Callable[[str, Array], Array | None] | None) -> bool:
        """Whether ``callback`` is called with each gradient as soon as it is final: the last parameter's first.

        Of ``unused`` it is not called where the loss does not depend on it.
        """
        self.asked_early = self.asked_early or callback is not None
        self._callback = callback if self._early else None
        return self._early

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        raise UsageError("the outputs of a toy network", "nothing is evaluated", "ask for gradients")

    def backward(self) -> Mapping[str, Array]:
        if self._gradients is None:
            raise UsageError("the gradients of a loss", "no forward came before", "call forward first, once for each")
        host, self._gradients = self._gradients, None
        native: dict[str, Array] = {}
        for name in reversed(list(SHAPES)):
            native[name] = self.native(host[name])
            if self._callback is not None and (name != "unused" or host[name].any()):
                placed = self._callback(name, native[name])
                native[name] = native[name] if placed is None else placed
        return {name: native[name] for name in SHAPES}

    def zeros(self) -> dict[str, Array]:
        """What a rank without an example has for gradients."""
        return {name: self.native(np.zeros(shape)) for name, shape in SHAPES.items()}

    def native(self, host: Floats) -> Array:
        """A native array of its own."""
        return self._backend.array(np.array(host, self._dtype, order="C"))

    def held(self) -> dict[str, Floats]:
        """The parameters as they are now, on the host."""
        return _copied(self._backend, self.parameters)

    def held_buffers(self) -> dict[str, Floats]:
        """The buffers as they are now, on the host."""
        return _copied(self._backend, self.buffers)

    def _live(self, host: Mapping[str, Floats]) -> CheckedArrays:
        arrays = {name: self.native(each) for name, each in host.items()}
        if all(isinstance(each, np.ndarray) for each in arrays.values()):
            return LiveArrays(arrays)
        return _Held(arrays, self._backend)


def _copied(backend: Backend, arrays: Mapping[str, Array]) -> dict[str, Floats]:
    return {name: np.array(backend.host(each)) for name, each in arrays.items()}


@lru_cache(maxsize=256)
def scripted_gradient(seed: int, rank: int, step: int) -> Mapping[str, Floats]:
    """That of a rank at a step, float64, standard normal; not to be written to."""
    draws = np.random.default_rng((seed, rank, step, _RANDOM_GRADIENTS))
    return {name: np.asarray(draws.standard_normal(shape)) for name, shape in SHAPES.items()}


class Scripted(ToyNetwork):
    """Gradients that depend on seed, rank and step alone: whatever a scheme makes of them is a sum of known terms."""

    def __init__(
        self, backend: Backend, seed: int, rank: int, dtype: DTypeLike, early: bool = False, apart: int = 0
    ) -> None:
        super().__init__(backend, seed, dtype, early, apart)
        self._rank = rank
        self.step = 0
        """The step that the next forward belongs to, from 1; to be set before it."""

    def forward(self, *inputs: Array) -> Array:
        """A loss of 0; the gradients are those of this step."""
        self._gradients = scripted_gradient(self._seed, self._rank, self.step)
        return self.native(np.zeros(()))


class Regression(ToyNetwork):
    """scale · (V (gain · tanh(W x + b)) + c) towards a target, by half the mean squared distance."""

    def forward(self, *inputs: Array) -> Array:
        """The loss of examples (n, FEATURES) and targets (n, TARGETS), n > 0, given on the host."""
        examples, targets = (np.asarray(each, np.float64) for each in inputs)
        held = {name: each.astype(np.float64) for name, each in self.held().items()}
        loss, self._gradients = loss_and_gradients(held, examples, targets)
        mean = self.held_buffers()["running_mean"]
        self.buffers["running_mean"] = self.native(0.9 * mean + 0.1 * examples.mean(0))
        return self.native(np.asarray(loss))


def loss_and_gradients(
    held: Mapping[str, Floats], examples: Floats, targets: Floats
) -> tuple[float, dict[str, Floats]]:
    """The loss of :class:`Regression` and its gradients by name, float64."""
    active = np.tanh(examples @ held["hidden.weight"].T + held["hidden.bias"])
    plain = (held["gain"] * active) @ held["output.weight"].T + held["output.bias"]
    away = held["scale"] * plain - targets
    loss = 0.5 * float((away**2).sum(1).mean())
    away = away / len(examples)
    back = held["scale"] * away
    behind = back @ held["output.weight"]
    before = behind * held["gain"] * (1 - active**2)
    return loss, {
        "hidden.weight": before.T @ examples,
        "hidden.bias": before.sum(0),
        "gain": (behind * active).sum(0, keepdims=True),
        "output.weight": back.T @ (held["gain"] * active),
        "output.bias": back.sum(0),
        "scale": np.asarray((away * plain).sum()),
        "unused": np.zeros(SHAPES["unused"]),
    }


RATE = 0.1
"""The learning rate of runs with scripted gradients."""

SHORT = 12
"""Steps of a run with scripted gradients: enough for what happens every seventh step."""

Note = tuple[int, float, tuple[str, ...]]


@dataclass(frozen=True)
class NotingSGD(SGD):
    """w := w - lr g; ``notes`` gets step, factor and the names of the gradients of each call."""

    notes: list[Note] = field(default_factory=list, compare=False)

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return _Noting(super().start(backend, parameters), self.notes)


class _Noting(Stepper):
    def __init__(self, inside: Stepper, notes: list[Note]) -> None:
        self._inside, self._notes = inside, notes

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._notes.append((step, factor, tuple(gradients)))
        self._inside.step(gradients, step, factor)

    def state(self) -> dict[str, Host]:
        return self._inside.state()

    def restore(self, state: Mapping[str, Host]) -> None:
        self._inside.restore(state)
