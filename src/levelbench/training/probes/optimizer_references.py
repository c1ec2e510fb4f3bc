"""The reference that an optimizer is compared with: what a name stands for, and which arguments it gets.

A named reference gets the settings of the optimizer under its own names, which its signature tells: ``epsilon`` is
``eps`` in PyTorch, and ``beta1`` and ``beta2`` are its ``betas``. What it has no argument for is reported.
"""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from levelbench.checks.findings import Finding, noted, passed
from levelbench.errors import MissingError, UnknownNameError
from levelbench.training import optimizers
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.layerwise import Muon
from levelbench.training.optimizers.wrappers import NATIVE, Native

RULES: Mapping[str, type[UpdateRule]] = {
    name.lower(): each
    for name in optimizers.__all__
    if isinstance(each := getattr(optimizers, name), type)
    and issubclass(each, UpdateRule)
    and not getattr(each, "__abstractmethods__", None)
}
"""Our rules by the lower-case names that a reference may use."""

_OURS = {
    "adjust_lr_fn": "scale",
    "b1": "beta1",
    "b2": "beta2",
    "beta": "momentum",
    "betas": ("beta1", "beta2"),
    "clipping_threshold": "clip",
    "d": "clip",
    "decay": "alpha",
    "eps": "epsilon",
    "initial_accumulator_value": "initial",
    "ns_steps": "iterations",
    "trust_coefficient": "trust",
    "weight_lr_power": "weight_power",
}
"""Our names of the frameworks' arguments, where they differ."""

USUAL_RATE = 0.01
"""That of an optimizer whose rate has no default."""

_RATES = ("lr", "learning_rate")
_SCALES = {"original": "original", "rms": "match_rms_adamw"}
_FACTORED = "torch.optim.Adafactor"
_MUON = "torch.optim.Muon"
_VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "optax.rmsprop": ({"eps_in_sqrt": False},),
    "optax.lion": ({"weight_decay": 0.0},),
    _MUON: ({"weight_decay": 0.0},),
}
"""Published forms of the same rule, for optimizers that have no setting for what these differ in."""


@dataclass(frozen=True)
class NamedReference:
    """An optimizer to compare with; ``given`` are the settings that it got, ``missing`` those that it has no name for.

    ``own`` are its arguments that are not at 0 and that the optimizer under check has no setting for. ``others`` are
    forms of the same reference: the nearest is compared with.
    """

    optimizer: Optimizer
    given: Mapping[str, object]
    missing: Mapping[str, object]
    own: Mapping[str, object]
    others: tuple[Optimizer, ...] = ()

    @property
    def lags(self) -> bool:
        """Whether its velocity holds the rate, so that a schedule acts on it later than on others."""
        settings = dict(getattr(self.optimizer, "settings", ()))
        return getattr(self.optimizer, "name", "") == "optax.rmsprop" and bool(settings.get("momentum"))

    def findings(self) -> Iterator[Finding]:
        """What it was given, what it has no argument for, and what it has besides."""
        if self.missing or self.own:
            parts = [f"it has no argument for {_said(self.missing)}"] if self.missing else []
            parts += [f"it has {_said(self.own)}, for which yours has no setting"] if self.own else []
            do = "where they differ in these, name an Optimizer with its settings as `reference`"
            yield noted("; ".join(parts), do, probe="reference: settings")
        elif self.given:
            yield passed(_said(self.given), probe="reference: settings")


def _said(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def named_optimizer(name: str, settings: Mapping[str, Any], usual_rate: float | None = None) -> Optimizer:
    """Ours (``Adam``) or a framework's (``torch.optim.AdamW``) with these settings; all others are its defaults.

    Without ``lr`` it gets ``usual_rate``, else its default, else 0.01. Raises ``UnknownNameError`` for an unknown name
    or setting, ``MissingError`` if its framework is not installed.
    """
    kind = RULES.get(name.lower())
    if kind is None and name not in NATIVE:
        raise UnknownNameError("optimizer", name, [*(each.__name__ for each in RULES.values()), *NATIVE])
    takes = {each: field.default for each, field in kind.__dataclass_fields__.items()} if kind else _arguments(name)
    for setting in settings:
        if setting != "lr" and setting not in takes:
            raise UnknownNameError(f"setting of {name}", setting, sorted({"lr", *takes} - {"params", "learning_rate"}))
    default = takes.get("lr", takes.get("learning_rate"))
    rates = (settings.get("lr"), usual_rate, default, USUAL_RATE)
    lr = next(each for each in rates if isinstance(each, int | float) and not isinstance(each, bool))
    given: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in settings.items()}
    given.pop("lr", None)
    return Native(name, lr, **given) if kind is None else kind(lr, **given)


def reference_of(optimizer: Optimizer, reference: str | Optimizer | None) -> NamedReference | None:
    """The optimizer that a name stands for: ours (``adam``) or a framework's (``torch.optim.Adam``).

    It gets the rate of ``optimizer``, and its settings. Raises ``UnknownNameError`` for an unknown name,
    ``MissingError`` for one of a framework that is not installed.
    """
    if not reference:
        return None
    if isinstance(reference, Optimizer):
        return NamedReference(reference, {}, {}, {})
    settings = settings_of(optimizer)
    if kind := RULES.get(reference.lower()):
        known = {each.name: each.default for each in fields(kind)}
        given = {name: value for name, value in settings.items() if name in known}
        if kind is Muon and isinstance(optimizer, Native) and optimizer.name == _MUON:
            given["bfloat16"] = True
        return _reference(kind(**cast(Any, given)), given, settings, set(given), known)
    if reference not in NATIVE:
        raise UnknownNameError("reference optimizer", reference, [*RULES, *NATIVE])
    takes, used, given = _arguments(reference), set(), {}
    for name, default in takes.items():
        names = name if name in settings else _OURS.get(name, name)
        wanted = (names,) if isinstance(names, str) else names
        if name not in _RATES and all(each in settings for each in wanted):
            given[name] = _value(reference, name, tuple(settings[each] for each in wanted), default, settings)
            used |= {*wanted, *(("scale",) if reference == _FACTORED and name == "eps" else ())}
    variants = [each for each in _VARIANTS.get(reference, ()) if not each.keys() & given.keys()]
    made, *others = (Native(reference, optimizer.lr, **cast(Any, {**given, **each})) for each in ({}, *variants))
    forms: list[Optimizer] = list(others)
    if reference == _MUON:
        # PyTorch's steps are in bfloat16; ours is the same rule in the arrays' own type.
        exact = [cast(NamedReference, reference_of(each, "muon")).optimizer for each in (made, *others)]
        forms += [replace(cast(Muon, each), bfloat16=False) for each in exact]
    return replace(_reference(made, given, settings, used, takes), others=tuple(forms))


def _reference(
    made: Optimizer, given: Mapping[str, Any], settings: Mapping[str, Any], used: set[str], takes: Mapping[str, Any]
) -> NamedReference:
    missing = {name: value for name, value in settings.items() if name not in used and name != "lr" and value}
    own = {name: value for name, value in takes.items() if name not in given and name not in _RATES and value}
    own = {name: value for name, value in own.items() if isinstance(value, bool | int | float | str | tuple)}
    return NamedReference(made, {name: value for name, value in given.items() if name != "lr"}, missing, own)


def _value(
    reference: str, name: str, values: tuple[Any, ...], default: object, settings: Mapping[str, Any]
) -> bool | int | float | str | tuple[Any, ...] | None:
    """An argument in the form that the framework takes."""
    if reference == _FACTORED and name == "eps":
        return (values[0] or None, settings.get("scale", 1e-3))
    if name == "adjust_lr_fn":
        return _SCALES.get(values[0], str(values[0]))
    if default is None and not values[0]:
        return None
    if isinstance(_OURS.get(name), tuple) and name not in settings:
        return values
    return cast("bool | int | float | str", values[0])


def computes_in_bfloat16(optimizer: Optimizer) -> bool:
    """Whether its steps are rounded to bfloat16, as those of PyTorch's Muon."""
    return getattr(optimizer, "name", "") == _MUON or bool(getattr(optimizer, "bfloat16", False))


def settings_of(optimizer: Optimizer) -> dict[str, Any]:
    """The settings by our names; those of a framework's optimizer include its defaults."""
    if not isinstance(optimizer, Native):
        found: dict[str, Any] = {"lr": optimizer.lr}
        if hasattr(type(optimizer), "__dataclass_fields__"):
            found |= {each.name: getattr(optimizer, each.name) for each in fields(cast(Any, optimizer)) if each.init}
        return {name: value for name, value in found.items() if isinstance(value, bool | int | float | str | tuple)}
    transformation = optimizer.made is not None and not isinstance(optimizer.made, type)
    defaults = {} if transformation else _arguments(optimizer.made or optimizer.name)
    result: dict[str, Any] = {}
    for name, value in (defaults | dict(optimizer.settings)).items():
        ours = _OURS.get(name, name)
        if isinstance(ours, tuple) and isinstance(value, tuple) and len(ours) == len(value):
            result |= dict(zip(ours, value, strict=True))
        elif name == "adjust_lr_fn":
            result["scale"] = {theirs: each for each, theirs in _SCALES.items()}.get(str(value), "original")
        elif name == "eps" and isinstance(value, tuple):
            result |= {"epsilon": value[0] or 0.0, "scale": value[1]}
        elif name not in _RATES and isinstance(value, bool | int | float | str | tuple):
            result[cast(str, ours)] = value
    return result | {"lr": optimizer.lr}


def _arguments(native: object) -> dict[str, Any]:
    """The arguments of a framework's optimizer and their defaults, from its own signature."""
    # Located by name: the framework is imported because its optimizer is asked for.
    maker = pydoc.locate(native) if isinstance(native, str) else native
    if maker is None:
        raise MissingError(f"the reference {native}", "its framework is not installed here", "name one of ours: adam")
    found = inspect.signature(cast(Any, maker)).parameters.values()
    return {each.name: None if each.default is each.empty else each.default for each in found if each.name != "params"}
