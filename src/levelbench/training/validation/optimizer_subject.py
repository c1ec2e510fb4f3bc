"""An optimizer that is checked, with what it is checked by, and the reference that a name stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.training import optimizers
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.wrappers import NATIVE, Native
from levelbench.training.validation.optimizer_runs import SHAPES, Quadratic

__all__ = ["RULES", "Subject", "open_backend", "reference_of"]

RULES: Mapping[str, type[UpdateRule]] = {
    name.lower(): each
    for name in optimizers.__all__
    if isinstance(each := getattr(optimizers, name), type)
    and issubclass(each, UpdateRule)
    and not getattr(each, "__abstractmethods__", None)
}
"""Our rules by the name that a reference may have, in small letters."""

_KEYS = {
    "torch": {"epsilon": "eps", "initial": "initial_accumulator_value"},
    "jax": {"epsilon": "eps", "beta1": "b1", "beta2": "b2", "rho": "rho"},
}
_TAKES = {
    **dict.fromkeys(("torch.optim.AdamW", "torch.optim.Adam"), "betas eps weight_decay amsgrad"),
    **dict.fromkeys(("torch.optim.Adamax", "torch.optim.RAdam"), "betas eps weight_decay"),
    "torch.optim.Adadelta": "rho eps weight_decay",
    "torch.optim.Adagrad": "eps weight_decay lr_decay initial_accumulator_value",
    "torch.optim.NAdam": "betas eps weight_decay momentum_decay",
    "torch.optim.RMSprop": "alpha eps momentum centered weight_decay",
    "torch.optim.SGD": "momentum nesterov weight_decay",
    "torch.optim.Adafactor": "beta2_decay weight_decay",
    "torch.optim.Muon": "momentum nesterov weight_decay",
    **dict.fromkeys(("optax.adamw", "optax.lamb", "optax.nadamw"), "b1 b2 eps weight_decay"),
    **dict.fromkeys(("optax.adam", "optax.nadam", "optax.radam", "optax.adamax"), "b1 b2 eps"),
    "optax.amsgrad": "b1 b2 eps",
    "optax.lion": "b1 b2 weight_decay",
    "optax.sgd": "momentum nesterov",
    "optax.lars": "weight_decay momentum nesterov",
    "optax.adadelta": "rho eps weight_decay",
}


@dataclass(frozen=True)
class Subject:
    """An optimizer on its backend; ``shapes`` are those of :data:`SHAPES` that it takes."""

    optimizer: Optimizer
    backend: Backend
    seed: int
    steps: int
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def is_rule(self) -> bool:
        """Whether it promises to take each parameter for itself."""
        return isinstance(self.optimizer, UpdateRule)

    def quadratic(self, name: str = "quadratic", **settings: Any) -> Quadratic:
        """The problem, on the shapes that it takes."""
        return Quadratic(name, dict(self.shapes), self.seed, **settings)


def open_backend(framework: str) -> Backend:
    """A framework on the CPU, where equal work gives equal bits."""
    return cast(Backend, open_framework(framework))


def reference_of(optimizer: Optimizer, reference: str | Optimizer | None) -> Optimizer | None:
    """The optimizer that a name stands for: ours (``adam``) or a framework's (``torch.optim.Adam``).

    It gets the rate of ``optimizer``, and those of its settings that have the same name. Raises ``UnknownNameError``
    for a name of neither kind.
    """
    if not reference:
        return None
    if isinstance(reference, Optimizer):
        return reference
    given = _settings(optimizer)
    if kind := RULES.get(reference.lower()):
        known = {each.name for each in fields(kind)}
        return kind(**{name: value for name, value in given.items() if name in known})
    if reference not in NATIVE:
        raise UnknownNameError("reference optimizer", reference, [*RULES, *NATIVE])
    lr = given.pop("lr")
    keys, takes = _KEYS[NATIVE[reference]], _TAKES.get(reference, "").split()
    if "betas" in takes and {"beta1", "beta2"} <= given.keys():
        given["betas"] = given["beta1"], given["beta2"]
    named = {keys.get(name, name): value for name, value in given.items()}
    return Native(reference, lr, **{name: value for name, value in named.items() if name in takes})


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    found = {"lr": optimizer.lr}
    if hasattr(type(optimizer), "__dataclass_fields__"):
        found |= {each.name: getattr(optimizer, each.name) for each in fields(cast(Any, optimizer))}
    return found


def framework_of(optimizer: Optimizer, otherwise: str) -> str:
    """The framework that an optimizer is bound to."""
    return optimizer.framework if isinstance(optimizer, Native) else otherwise


def check_settings(steps: int, frameworks: Sequence[str]) -> None:
    """Refuse a check that would look at nothing."""
    if steps < 4 or not frameworks:
        raise DefinitionError(
            "a check of an optimizer", f"{steps} steps on {len(frameworks)} frameworks", "take 4 steps or more, on one"
        )


def all_shapes() -> dict[str, tuple[int, ...]]:
    """Those of :data:`SHAPES`."""
    return dict(SHAPES)
