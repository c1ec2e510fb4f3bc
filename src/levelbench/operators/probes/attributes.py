"""Other values for the attributes of a custom operator. The operator and its reference say which are valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from types import CodeType

from levelbench.operators.custom.definition import Attribute, CustomOperator
from levelbench.operators.probes.subject import attempt

_FLAGS = re.compile(
    r"^(is|use|with|has|no|keep|count|ceil|align)_|keepdims?$|reverse|exclusive|trans|causal|largest|sorted|inclusive"
)
_MOST_TEXTS = 6


def other_attributes(operator: CustomOperator) -> Iterator[tuple[str, dict[str, Attribute], str]]:
    """(title, attributes, another title): each attribute in turn, then all of them at once, each with one it accepts.

    An integer for which 0 and 1 are both accepted may be a flag or the number of a mode, so that other numbers are
    invalid without being refused: they come with the title of the one that tells.
    """
    given = dict(operator.attributes)
    first: dict[str, Attribute] = {}
    for name, value in given.items():
        for other in _others(operator, name, value):
            title, tells = f"{name} = {other!r}", ""
            if isinstance(value, int) and value in (0, 1) and isinstance(other, int) and other > 1:
                tells = f"{name} = {1 - value}"
            yield title, {**given, name: other}, tells
            if name not in first and attempt(partial(type(operator), **{**given, name: other})).worked:
                first[name] = other
    if len(first) > 1:
        yield "all attributes changed", {**given, **first}, ""


def _others(operator: CustomOperator, name: str, value: Attribute) -> list[Attribute]:
    if isinstance(value, str):
        texts = sorted(text for text in _texts(type(operator)) if text != value)
        return [*texts[:_MOST_TEXTS]]
    if isinstance(value, float):
        # At 0 and 1 there is often a faster way, such as to leave out what beta is multiplied with.
        return [*_floats(value), *(each for each in (0.0, 1.0) if each not in (value, *_floats(value)))]
    if isinstance(value, int):
        if "axis" in name or name == "dim":
            return [each for each in (-1, 0, 1, -2, 2) if each != value]
        if value in (0, 1):
            return [1 - value, *([] if _FLAGS.search(name) else [2, 3])]
        return [value + 1, value + 2, 1, 2 * value]
    numbers = [each for each in value if isinstance(each, int)]
    if numbers:
        found = [[each + 1 for each in numbers], [each + 1 + at for at, each in enumerate(numbers)], numbers[::-1]]
        # As many axes as there are: one more, in both orders.
        found += [[*numbers, max(numbers) + 1], [max(numbers) + 1, *numbers]]
        return [each for at, each in enumerate(found) if each != [*value] and each not in found[:at]]
    decimals = [each for each in value if isinstance(each, float)]
    return [[_floats(each)[0] + at / 8 for at, each in enumerate(decimals)]] if decimals else []


def _floats(value: float) -> list[float]:
    """Other numbers that are visible in results, on both sides of one and of the given sign."""
    if value == 0:
        return [0.3]
    size = abs(value)
    others = [0.5, 0.05] if size < 0.01 else [(1 + size) / 2, size / 3, 1.5] if size < 1 else [2.5 * size, 0.6 * size]
    return [other if value > 0 else -other for other in others]


def _texts(cls: type) -> set[str]:
    """The short strings without spaces in the class's own code: the names of its modes are among them."""
    found: set[str] = set()
    for owner in cls.__mro__:
        if owner in (CustomOperator, object):
            break
        docs = {owner.__doc__, owner.__qualname__, owner.__module__}
        for member in vars(owner).values():
            code = getattr(member, "__code__", None)
            if isinstance(code, CodeType):
                docs.add(getattr(member, "__doc__", None))
                found |= _constants(code) - docs
    return {text for text in found if text.isprintable() and " " not in text and 0 < len(text) <= 24}


def _constants(code: CodeType) -> set[str]:
    found: set[str] = set()
    for each in code.co_consts:
        if isinstance(each, str):
            found.add(each)
        elif isinstance(each, tuple | frozenset):
            found |= {item for item in each if isinstance(item, str)}
        elif isinstance(each, CodeType):
            found |= _constants(each)
    return found
