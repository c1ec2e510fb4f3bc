"""Optimizers made of others: clipping, decay, moving averages, groups of parameters; and native ones of a framework.

A wrapper is itself an optimizer, so wrappers nest: ``EMA(Clip(Adam(1e-3), 1.0), 0.999)``. Its rate is that of the inner
optimizer. A native optimizer is a name with settings, and is created when training starts.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast, final

from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, UnknownNameError, UnsupportedError, nearest
from levelbench.networks.executor import Array, Backend, LiveMapping
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import copy, maximum, minimum, mix, norm
from levelbench.training.optimizers.base import Optimizer, Stepper


@dataclass(frozen=True)
class _Wrapper(Optimizer):
    """An optimizer around another one."""

    optimizer: Optimizer
    lr: float = field(init=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen, and callers do not set the rate.
        object.__setattr__(self, "lr", self.optimizer.lr)
        checks.by_name(self)


Before = Callable[[Mapping[str, Array], float], Mapping[str, Array]]
"""Transforms the gradients before a step, given the schedule's factor."""


class WrapperStepper(Stepper):
    """The inner optimizer's steps, with something done before each."""

    def __init__(self, inside: Stepper, before: Before = lambda gradients, factor: gradients) -> None:
        self._inside, self._before = inside, before

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._inside.step(self._before(gradients, factor), step, factor)

    def state(self) -> dict[str, NDArray[Any]]:
        return self._inside.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._inside.restore(state)

    def averaged(self) -> Mapping[str, Array] | None:
        return self._inside.averaged()


@dataclass(frozen=True)
class Decay(_Wrapper):
    """Decoupled weight decay: w := (1 - lr weight_decay) w before each step (Loshchilov & Hutter 2019)."""

    weight_decay: float = 0.01

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        rate = self.lr * self.weight_decay

        def decay(gradients: Mapping[str, Array], factor: float) -> Mapping[str, Array]:
            for name in gradients:
                parameter = parameters[name]
                parameter *= 1 - rate * factor
                parameters[name] = parameter
            return gradients

        return WrapperStepper(self.optimizer.start(backend, parameters), decay)


def clipped(gradients: Mapping[str, Array], limit: float) -> dict[str, Array]:
    """All gradients times limit / (norm + 1e-6) if their joint norm is larger than that.

    As PyTorch's ``clip_grad_norm_`` (Pascanu et al. 2013), without a copy to the host. Gradients may be overwritten.
    """
    norms = [norm(each) for each in gradients.values()]
    if not norms:
        return {}
    squares = norms[0] * norms[0]
    for each in norms[1:]:
        squares = squares + each * each
    scale = minimum(limit / (squares**0.5 + 1e-6), 1.0)
    result = {}
    for name, gradient in gradients.items():
        gradient *= scale
        result[name] = gradient
    return result


@dataclass(frozen=True)
class Clip(_Wrapper):
    """Gradients scaled down together if their joint norm exceeds ``norm`` (Pascanu et al. 2013)."""

    norm: float = 1.0

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        inside = self.optimizer.start(backend, parameters)
        return WrapperStepper(inside, lambda gradients, factor: clipped(gradients, self.norm))


@dataclass(frozen=True)
class ClipValue(_Wrapper):
    """Each element of each gradient clipped to between ``-value`` and ``value``."""

    value: float = 1.0

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        limit = self.value

        def cut(gradients: Mapping[str, Array], factor: float) -> Mapping[str, Array]:
            return {name: maximum(minimum(each, limit), -limit) for name, each in gradients.items()}

        return WrapperStepper(self.optimizer.start(backend, parameters), cut)


@dataclass(frozen=True)
class EMA(_Wrapper):
    """An exponential moving average of the weights to evaluate with: a := decay a + (1 - decay) w after each step.

    With ``warm_up`` the decay of step t is at most (1 + t) / (10 + t), so that the start is soon forgotten (as in
    TensorFlow's ``ExponentialMovingAverage`` with ``num_updates``). Running statistics of normalisation layers are not
    averaged: they are those of the trained weights.
    """

    decay: float = 0.999
    warm_up: bool = False

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Create the stepper for these live parameters; the average starts from their values."""
        return _AverageStepper(self, self.optimizer.start(backend, parameters), backend, parameters)


class _AverageStepper(WrapperStepper):
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
                f"{len(kept)} were saved, and the {len(self._average)} parameters here are not the same",
                "use the network and the optimizer that they were saved with",
            )
        super().restore(inside)
        self._average = {name: self._backend.array(kept[name].copy()) for name in self._average}


@dataclass(frozen=True)
class Groups(Optimizer):
    """``Groups(AdamW(1e-3), {"*.bias": Adam(1e-3)})``: the first pattern that matches a parameter's name takes it.

    Patterns are those of a shell (``*``, ``?``, ``[abc]``); parameters that match none go to ``default``. Each
    optimizer has its own rate, and a schedule multiplies them all. ``lr`` is that of ``default``.
    """

    default: Optimizer
    others: Mapping[str, Optimizer]
    lr: float = field(init=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen, and callers do not set the rate.
        object.__setattr__(self, "lr", self.default.lr)

    def members(self, names: Mapping[str, object]) -> dict[str, list[str]]:
        """The names that each pattern takes, in the order of the patterns; the default's come last under ``""``.

        Raises ``DefinitionError`` for a pattern that takes none.
        """
        result: dict[str, list[str]] = {pattern: [] for pattern in self.others}
        result[""] = []
        for name in names:
            first = next((pattern for pattern in self.others if fnmatchcase(name, pattern)), "")
            result[first].append(name)
        for pattern, taken in result.items():
            if pattern and not taken:
                late = any(fnmatchcase(name, pattern) for name in names)
                close = nearest(pattern.strip("*"), names) or list(names)[:3]
                raise DefinitionError(
                    f"the group {pattern!r} of parameters",
                    "earlier patterns take everything that it matches" if late else "it matches no parameter's name",
                    "put it first" if late else f"parameters are called {', '.join(close)}",
                )
        return result

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Create a stepper for each optimizer's part of these live parameters."""
        chosen = {**self.others, "": self.default}
        steppers = [
            (names, chosen[pattern].start(backend, Shard(parameters, names)))
            for pattern, names in self.members(parameters).items()
            if names
        ]
        return _GroupsStepper(steppers, parameters)


@final
class Shard(LiveMapping):
    """A view of some live parameters."""

    def __init__(self, parameters: MutableMapping[str, Array], names: Sequence[str]) -> None:
        self._parameters, self._names = parameters, dict.fromkeys(names)

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._parameters[name]

    def __setitem__(self, name: str, array: Array) -> None:
        self._parameters[name] = array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _GroupsStepper(Stepper):
    """One stepper per group."""

    def __init__(self, groups: list[tuple[list[str], Stepper]], parameters: Mapping[str, Array]) -> None:
        self._groups, self._parameters = groups, parameters

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        for names, stepper in self._groups:
            stepper.step({name: gradients[name] for name in names if name in gradients}, step, factor)

    def state(self) -> dict[str, NDArray[Any]]:
        return {
            f"{at}:{name}": array for at, (_, each) in enumerate(self._groups) for name, array in each.state().items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        parts: list[dict[str, NDArray[Any]]] = [{} for _ in self._groups]
        for name, array in state.items():
            number, _, rest = name.partition(":")
            if not number.isdigit() or int(number) >= len(parts):
                raise DataError(
                    "the state of groups of parameters",
                    f"{name!r} does not belong to any of {len(parts)} groups",
                    "use the groups that it was saved with",
                )
            parts[int(number)][rest] = array
        for (_, stepper), part in zip(self._groups, parts, strict=True):
            stepper.restore(part)

    def averaged(self) -> Mapping[str, Array] | None:
        found = [stepper.averaged() for _, stepper in self._groups]
        if all(each is None for each in found):
            return None
        result = dict(self._parameters)
        for each in found:
            result.update(each or {})
        return result


_TORCH = (
    *("ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam", "RMSprop"),
    *("Rprop", "SGD"),
)
_OPTAX = (
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "amsgrad", "lamb", "lars", "lion"),
    *("nadam", "nadamw", "novograd", "radam", "rmsprop", "sgd", "yogi"),
    *("contrib.muon", "contrib.schedule_free_adamw", "contrib.schedule_free_sgd"),
)
NATIVE = {
    **{f"torch.optim.{name}": "torch" for name in _TORCH},
    **{f"optax.{name}": "jax" for name in _OPTAX},
}
"""The known names, and the framework of each."""

Setting = bool | int | float | str | None | tuple[float, ...]


@dataclass(frozen=True, init=False)
class Native(Optimizer):
    """``Native("torch.optim.AdamW", lr=1e-3, weight_decay=0.1, fused=True)``, ``Native("optax.lion", lr=1e-4)``.

    ``settings`` are the framework's own keyword arguments other than the rate. Raises ``UnknownNameError`` for a name
    that is not in ``NATIVE``, ``DefinitionError`` for a rate that is not positive. :meth:`of` takes the framework's own
    object instead of a name and keeps it in ``made``: a PyTorch class, or an optax transformation, which sets its rate
    itself, so that ``lr`` is 1 and a schedule multiplies its updates.
    """

    name: str
    lr: float
    settings: tuple[tuple[str, Setting], ...] = field(default=())
    made: Any = None

    def __init__(self, name: str, /, lr: float, **settings: Setting) -> None:
        if name not in NATIVE:
            alike = next((each for each in NATIVE if each.lower() == name.lower()), "")
            raise UnknownNameError("native optimizer", name, NATIVE, f"it is called {alike}" if alike else "")
        made = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        self._hold(name, lr, made, None)

    @classmethod
    def of(cls, given: object) -> Native:
        """``functools.partial(torch.optim.AdamW, lr=1e-3)``, such a class itself, or an optax chain.

        ``DefinitionError`` for anything else, and for an optimizer that evaluates the loss itself, as LBFGS does.
        """
        if callable(getattr(given, "init", None)) and callable(getattr(given, "update", None)):
            return object.__new__(cls)._hold("an optax transformation", 1.0, {}, given)
        maker, words = getattr(given, "func", given), dict(getattr(given, "keywords", None) or {})
        asked = f"the optimizer {getattr(given, '__name__', type(given).__name__)}"
        if not (isinstance(maker, type) and is_torch_optimizer(maker)):
            found = "it is not an optimizer class"
            if is_torch_optimizer(type(given)):
                found = "it already holds a module's parameters"
            do = (
                "give its class and settings: functools.partial(torch.optim.AdamW, lr=1e-3), optax.adamw(1e-3), or ours"
            )
            raise DefinitionError(asked, found, do)
        asked, takes = f"the optimizer {maker.__name__}", inspect.signature(maker).parameters
        if getattr(given, "args", ()):
            raise DefinitionError(asked, "it has positional arguments", "name them: lr=1e-3")
        closure = inspect.signature(cast(Any, maker).step).parameters.get("closure")
        if closure is not None and closure.default is closure.empty:
            found = "its step evaluates the loss itself, and a step here has one forward and one backward pass"
            raise DefinitionError(asked, found, "measure your own loop with levelbench.track")
        lr = words.pop("lr", takes["lr"].default if "lr" in takes else inspect.Parameter.empty)
        if not isinstance(lr, int | float):
            raise DefinitionError(asked, "it has no learning rate", "give a number: functools.partial(..., lr=1e-3)")
        return object.__new__(cls)._hold(f"{maker.__module__.partition('.')[0]}'s {maker.__name__}", lr, words, maker)

    def with_rate(self, lr: float) -> Native:
        """The same optimizer with another base rate."""
        return object.__new__(type(self))._hold(self.name, lr, dict(self.settings), self.made)

    def _hold(self, name: str, lr: float, settings: Mapping[str, Any], made: object) -> Native:
        if not (math.isfinite(lr) and lr > 0):
            raise DefinitionError(f"{name} with lr={lr}", "it is not positive", "choose lr > 0")
        for key, value in (("name", name), ("lr", lr), ("settings", tuple(sorted(settings.items()))), ("made", made)):
            # The dataclass is frozen, and its settings are keyword arguments.
            object.__setattr__(self, key, value)
        return self

    @property
    def framework(self) -> str:
        """The framework that it runs on."""
        if self.made is None:
            return NATIVE[self.name]
        return "torch" if isinstance(self.made, type) else "jax"

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Create the stepper for these live parameters; ``UnsupportedError`` on another framework."""
        stepper = cast("Stepper | None", backend.stepper(self, parameters))
        if stepper is None:
            raise UnsupportedError(
                f"{self.name} on {type(backend).__name__}", "it belongs to another framework", f"use {self.framework}"
            )
        return stepper


def is_torch_optimizer(kind: type) -> bool:
    """Whether it is a class of ``torch.optim``'s kind; torch is not imported for that."""
    return any(each.__name__ == "Optimizer" and each.__module__ == "torch.optim.optimizer" for each in kind.__mro__)
