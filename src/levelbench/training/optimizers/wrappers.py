"""What goes around any optimizer: decay of weights, clipped gradients, averaged weights.

The one idea: a wrapper is an optimizer itself, so they nest: ``EMA(Clip(Adam(1e-3), 1.0), 0.999)``. Its rate is that of
the optimizer inside.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import copy, maximum, minimum, mix, norm
from levelbench.training.optimizers.base import Optimizer, Stepper

__all__ = ["EMA", "Clip", "ClipValue", "Decay", "clipped"]


@dataclass(frozen=True)
class _Around(Optimizer):
    """An optimizer around another one."""

    optimizer: Optimizer
    lr: float = field(init=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen, and the rate is not for the caller to choose.
        object.__setattr__(self, "lr", self.optimizer.lr)


class _AroundStepper(Stepper):
    """Steps of the optimizer inside, with something before or after."""

    def __init__(self, inside: Stepper) -> None:
        self._inside = inside

    @abstractmethod
    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """The step inside, and what is around it."""

    def state(self) -> dict[str, NDArray[Any]]:
        """That of the optimizer inside."""
        return self._inside.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """That of the optimizer inside."""
        self._inside.restore(state)

    def averaged(self) -> Mapping[str, Array] | None:
        """Those of the optimizer inside."""
        return self._inside.averaged()


@dataclass(frozen=True)
class Decay(_Around):
    """Decoupled weight decay: w := (1 - lr weight_decay) w before each step (Loshchilov & Hutter 2019)."""

    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "weight_decay")

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work on these live parameters."""
        return _DecayStepper(self.optimizer.start(backend, parameters), parameters, self.lr * self.weight_decay)


class _DecayStepper(_AroundStepper):
    def __init__(self, inside: Stepper, parameters: MutableMapping[str, Array], rate: float) -> None:
        super().__init__(inside)
        self._parameters, self._rate = parameters, rate

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        for name in gradients:
            parameter = self._parameters[name]
            parameter *= 1 - self._rate * factor
            self._parameters[name] = parameter
        self._inside.step(gradients, step, factor)


def clipped(gradients: Mapping[str, Array], limit: float, epsilon: float = 1e-6) -> dict[str, Array]:
    """All gradients times limit / (norm + epsilon) where the norm of all of them together is larger than that.

    As PyTorch's ``clip_grad_norm_`` (Pascanu et al. 2013); nothing is read to the host. They may be overwritten.
    """
    norms = [norm(each) for each in gradients.values()]
    if not norms:
        return {}
    squares = norms[0] * norms[0]
    for each in norms[1:]:
        squares = squares + each * each
    scale = minimum(limit / (squares**0.5 + epsilon), 1.0)
    result = {}
    for name, gradient in gradients.items():
        gradient *= scale
        result[name] = gradient
    return result


@dataclass(frozen=True)
class Clip(_Around):
    """Gradients scaled down together where the norm of all of them is above ``norm`` (Pascanu et al. 2013)."""

    norm: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "norm")

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work on these live parameters."""
        return _ClipStepper(self.optimizer.start(backend, parameters), self.norm)


class _ClipStepper(_AroundStepper):
    def __init__(self, inside: Stepper, limit: float) -> None:
        super().__init__(inside)
        self._limit = limit

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._inside.step(clipped(gradients, self._limit), step, factor)


@dataclass(frozen=True)
class ClipValue(_Around):
    """Each element of each gradient cut off at ``-value`` and ``value``."""

    value: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "value")

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work on these live parameters."""
        return _ClipValueStepper(self.optimizer.start(backend, parameters), self.value)


class _ClipValueStepper(_AroundStepper):
    def __init__(self, inside: Stepper, limit: float) -> None:
        super().__init__(inside)
        self._limit = limit

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        limit = self._limit
        cut = {name: maximum(minimum(each, limit), -limit) for name, each in gradients.items()}
        self._inside.step(cut, step, factor)


@dataclass(frozen=True)
class EMA(_Around):
    """An exponential moving average of the weights, to evaluate with: a := decay a + (1 - decay) w after each step.

    With ``warm_up`` the decay of step t is at most (1 + t) / (10 + t), so that the start is soon forgotten (as
    TensorFlow's ``ExponentialMovingAverage`` with ``num_updates``). Running statistics of normalisations are not
    averaged: they are those of the weights that are trained.
    """

    decay: float = 0.999
    warm_up: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "decay")

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work on these live parameters; the average starts from their values."""
        return _AverageStepper(self, self.optimizer.start(backend, parameters), backend, parameters)


class _AverageStepper(_AroundStepper):
    _OF_INSIDE, _OF_AVERAGE = "inside:", "average:"

    def __init__(self, ema: EMA, inside: Stepper, backend: Backend, parameters: MutableMapping[str, Array]) -> None:
        super().__init__(inside)
        self._ema, self._backend, self._parameters = ema, backend, parameters
        self._average = {name: copy(each) for name, each in parameters.items()}

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._inside.step(gradients, step, factor)
        decay = min(self._ema.decay, (1 + step) / (10 + step)) if self._ema.warm_up else self._ema.decay
        average = self._average
        for name in average:
            average[name] = mix(average[name], self._parameters[name], 1 - decay)

    def averaged(self) -> Mapping[str, Array]:
        return dict(self._average)

    def state(self) -> dict[str, NDArray[Any]]:
        inside = {self._OF_INSIDE + name: each for name, each in super().state().items()}
        return inside | {self._OF_AVERAGE + name: self._backend.host(each) for name, each in self._average.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        inside = {name.removeprefix(self._OF_INSIDE): state[name] for name in state if name.startswith(self._OF_INSIDE)}
        kept = {name.removeprefix(self._OF_AVERAGE): state[name] for name in state if name.startswith(self._OF_AVERAGE)}
        if set(kept) != set(self._average):
            raise DataError(
                "the averaged weights of an optimizer",
                f"{len(kept)} are kept, of {len(self._average)} parameters or of others",
                "go on with the network and the optimizer that they were saved with",
            )
        super().restore(inside)
        self._average = {name: self._backend.array(kept[name].copy()) for name in self._average}
