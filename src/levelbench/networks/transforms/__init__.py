"""Transforms of networks, by name and with settings by keyword, so that records can say how a case was made."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.networks.network import Network
from levelbench.networks.transforms.equivalence import check_equivalence, check_transform, random_parameters
from levelbench.networks.transforms.transform import (
    Allowance,
    Arrays,
    EquivalenceReport,
    Transform,
    Transformed,
)

__all__ = [
    "Allowance",
    "EquivalenceReport",
    "Transform",
    "Transformed",
    "apply_all",
    "check_equivalence",
    "check_transform",
    "make",
    "names",
    "parse",
    "random_parameters",
    "settings",
    "summary",
]

_PLACES = {
    "batch": ("batch", "ChangeBatch"),
    "dead-nodes": ("folding", "DeadNodes"),
    "fold-batchnorm": ("folding", "FoldBatchNorm"),
    "fold-constants": ("folding", "FoldConstants"),
    "fuse": ("fusion", "Fuse"),
    "microbatch": ("microbatch", "Microbatch"),
    "precision": ("precision", "ChangePrecision"),
}


def names() -> list[str]:
    """The names of all transforms, in alphabetical order."""
    return sorted(_PLACES)


def _class_of(name: str) -> type[Transform]:
    if name not in _PLACES:
        raise UnknownNameError("transform", name, _PLACES)
    module, kind = _PLACES[name]
    found: type[Transform] = getattr(import_module(f"levelbench.networks.transforms.{module}"), kind)
    return found


def summary(name: str) -> str:
    """What it does, in one line."""
    return _class_of(name).summary


def settings(name: str) -> dict[str, inspect.Parameter]:
    """The settings of a transform by name."""
    return dict(inspect.signature(_class_of(name)).parameters)


def make(name: str, **given: Any) -> Transform:
    """The transform of that name.

    ``UnknownNameError`` for an unknown name or setting, ``UsageError`` for a missing setting.
    """
    known = settings(name)
    for each in given:
        if each not in known:
            raise UnknownNameError(f"setting of {name}", each, known)
    for each, setting in known.items():
        if setting.default is inspect.Parameter.empty and each not in given:
            raise UsageError(f"transform {name}", f"it needs {each!r}", f"give it: {', '.join(known)}")
    return _class_of(name)(**given)


def parse(text: str, **common: Any) -> list[Transform]:
    """The transforms of ``name,name:setting,...``, such as ``fold-constants,precision:bfloat16``.

    A word after a colon is the transform's main setting; others follow as ``;name=value``. Each transform gets those
    settings of ``common`` that it has; a setting that none of them has is an error. ``None`` counts as not given.
    """
    common = {name: value for name, value in common.items() if value is not None}
    words = [each.strip() for each in text.split(",")]
    if not all(words):
        raise UsageError(f"the transforms {text!r}", "one of them has no name", f"as in {','.join(names()[1:3])}")
    found, used = [], set()
    for word in words:
        first, *others = word.split(";")
        name, colon, value = first.partition(":")
        kind, known = _class_of(name), settings(name)
        given = {each: setting for each, setting in common.items() if each in known}
        used |= set(given)
        for each in others:
            key, equals, setting = each.partition("=")
            if not equals:
                raise UsageError(f"transform {word!r}", f"{each!r} is not a setting", "write name:setting;other=value")
            given[key] = setting
        if colon:
            if not kind.main or not value:
                form = f"{name}:{kind.main.upper()}" if kind.main else f"only {name}"
                raise UsageError(f"transform {word!r}", f"{value!r} is not a setting of it", f"write {form}")
            given[kind.main] = value
        found.append(make(name, **given))
    unused = sorted(set(common) - used)
    if unused:
        raise UsageError(f"setting {unused[0]!r}", f"none of {text} has it", "leave it out, or add one that has it")
    return found


def apply_all(transforms: Sequence[Transform], network: Network, parameters: Arrays | None = None) -> list[Transformed]:
    """Apply each transform to the result of the previous one; returns one result per transform."""
    if not transforms:
        raise DefinitionError(f"transforming {network.name}", "no transform is given", f"as in {names()[0]}")
    found: list[Transformed] = []
    values: Mapping[str, Any] | None = parameters
    for each in transforms:
        found.append(each.apply(network, values))
        network, values = found[-1].network, found[-1].parameters
    return found
