"""Errors of a custom operator on JAX as they are elsewhere: out of a program of XLA's they come as text.

The one idea: what a callback raises is kept until JAX raises its text, and what C++ threw is told by the code and the
title that our handler gives it.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax

from levelbench.operators.custom.definition import CustomOperator
from levelbench.operators.custom.plans import failure_of

__all__ = ["kept", "translated"]

_RAISED: deque[Exception] = deque(maxlen=4)
_STATUS = {"INVALID_ARGUMENT": 1, "UNIMPLEMENTED": 2, "FAILED_PRECONDITION": 3}
_SAID = re.compile(r"(?P<code>[A-Z_]+): (?P<what>(?:forward|backward) of (?P<name>\w+)): (?P<said>.*)", re.DOTALL)


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for JAX to call back; what it raises is kept for :func:`translated`."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            _RAISED.append(error)
            raise

    return call


@contextlib.contextmanager
def translated(operator: CustomOperator) -> Iterator[None]:
    """Inside, JAX's error about this operator is raised as the operator's own.

    What a program raises that JAX runs later, or that somebody else compiled around it, is not raised in here: it stays
    JAX's, with the operator's name in its text.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if (own := _own(str(error), operator)) is None:
            raise
        raise own from error


def _own(text: str, operator: CustomOperator) -> Exception | None:
    for each in list(_RAISED):
        if type(each).__name__ in text and str(each) in text:
            _RAISED.clear()
            return each
    found = _SAID.match(text)
    if found and found["name"] == operator.name and found["code"] in _STATUS:
        return failure_of(_STATUS[found["code"]], found["what"], found["said"])
    return None
