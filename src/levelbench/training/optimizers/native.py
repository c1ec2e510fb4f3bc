"""A framework's own optimizers through the contract of ours.

The one idea: a name and its settings are data, so a recipe that uses ``torch.optim.AdamW`` can be made, compared and
recorded without PyTorch; the framework makes the optimizer when it is put to work.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import cast

from levelbench.errors import DefinitionError, UnknownNameError, UnsupportedError
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.base import Optimizer, Stepper

__all__ = ["NATIVE", "Native"]

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
"""The names there are, and the framework of each."""

Setting = bool | int | float | str | None | tuple[float, ...]


@dataclass(frozen=True, init=False)
class Native(Optimizer):
    """``Native("torch.optim.AdamW", lr=1e-3, weight_decay=0.1, fused=True)``, ``Native("optax.lion", lr=1e-4)``.

    ``settings`` are the framework's own keyword arguments other than the rate. Raises ``UnknownNameError`` for a name
    that is not in ``NATIVE``, ``DefinitionError`` for a rate that is not positive.
    """

    name: str
    lr: float
    settings: tuple[tuple[str, Setting], ...] = field(default=())

    def __init__(self, name: str, /, lr: float, **settings: Setting) -> None:
        if name not in NATIVE:
            alike = next((each for each in NATIVE if each.lower() == name.lower()), "")
            raise UnknownNameError("native optimizer", name, NATIVE, f"it is called {alike}" if alike else "")
        if not (math.isfinite(lr) and lr > 0):
            raise DefinitionError(f"{name} with lr={lr}", "it is not positive", "choose lr > 0")
        made = tuple(
            (key, tuple(value) if isinstance(value, list) else value) for key, value in sorted(settings.items())
        )
        for key, value in (("name", name), ("lr", lr), ("settings", made)):
            # The dataclass is frozen, and its settings are keywords of their own.
            object.__setattr__(self, key, value)

    @property
    def framework(self) -> str:
        """The framework that it runs on."""
        return NATIVE[self.name]

    def start(self, backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        """Go to work on these live parameters; ``UnsupportedError`` on another framework than its own."""
        stepper = cast("Stepper | None", backend.stepper(self, parameters))
        if stepper is None:
            raise UnsupportedError(
                f"{self.name} on {type(backend).__name__}", "it is another framework's", f"use {self.framework}"
            )
        return stepper
