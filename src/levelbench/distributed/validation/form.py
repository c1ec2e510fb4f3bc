"""Whether a scheme is written as one: a frozen value with settings, a name, a source and its claims."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from levelbench.distributed.scheme import Scheme
from levelbench.training.validation.probes import Finding, failed, passed

__all__ = ["well_formed"]

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CLAIMS = ("consistent", "replicated", "lockstep")


def well_formed(scheme: Scheme) -> Iterator[Finding]:
    """What makes it a value that can be named, compared, and written into a record."""
    wrong = [*_value(scheme), *_words(scheme), *_claims(scheme)]
    for found, do in wrong:
        yield failed("well formed", found, do)
    if not wrong:
        kind: Any = type(scheme)
        settings = ", ".join(each.name for each in fields(kind))
        yield passed("well formed", f"settings: {settings or 'none'}")


def _value(scheme: Scheme) -> Iterator[tuple[str, str]]:
    kind: Any = type(scheme)
    if not is_dataclass(kind):
        yield "it is no dataclass", "write @dataclass(frozen=True) before the class"
        return
    made: Any = getattr(kind, "__dataclass_params__")  # noqa: B009  # the type checker knows nothing of it
    if not made.frozen:
        yield "it can be changed", "write @dataclass(frozen=True)"
    for each in fields(kind):
        if each.default is MISSING and each.default_factory is MISSING:
            yield f"the setting {each.name!r} has no default", "give it one"
        elif not isinstance(getattr(scheme, each.name), int | float | str | bool):
            named = type(getattr(scheme, each.name)).__name__
            yield f"the setting {each.name!r} is a {named}", "let settings be int, float, str or bool"
    if scheme != _again(scheme):
        yield "two of the same settings are not equal", "leave the comparison to the dataclass"


def _again(scheme: Scheme) -> Any:
    kind: Any = type(scheme)
    return kind(**{each.name: getattr(scheme, each.name) for each in fields(kind) if each.init})


def _words(scheme: Scheme) -> Iterator[tuple[str, str]]:
    name, source = getattr(scheme, "name", None), getattr(scheme, "source", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield f"its name is {name!r}", "give the class a name of small letters, digits and dashes"
    if not isinstance(source, str) or not source.strip():
        yield "it has no source", "name the paper that describes it, or say that there is none"


def _claims(scheme: Scheme) -> Iterator[tuple[str, str]]:
    for claim in _CLAIMS:
        value = getattr(scheme, claim, None)
        if not isinstance(value, bool):
            yield f"{claim} is {value!r}", f"say whether it is {claim}: True or False"
    if not isinstance(getattr(scheme, "frameworks", None), tuple):
        yield "frameworks is no tuple", "name the frameworks that it runs on; () stands for all"
