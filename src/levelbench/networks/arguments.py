"""Checks what a caller gives an executor: the parameters that it starts from, and how many inputs.

The one idea: a call with the right number of inputs pays nothing for being checked, for the framework fails on a wrong
one by itself and only then is it asked why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnknownNameError, UsageError, nearest
from levelbench.networks.network import Network

__all__ = ["checked_parameters", "explained", "require_inputs"]

_NAMED = 5


def checked_parameters(network: Network, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The parameters and buffers of the network in its own order, the arrays themselves; their dtypes are free.

    Names that the network has not are left out, so that a part of a network takes the parameters of the whole. Raises
    ``UsageError`` where one is missing or has another shape, ``UnknownNameError`` if it may have been misspelt.
    """
    shapes = {each.name: tuple(each.shape) for each in network.parameters}
    asked = f"the parameters of {network.name}"
    missing = [name for name in shapes if name not in parameters]
    if missing:
        for name in parameters:
            if name not in shapes and nearest(name, missing):
                raise UnknownNameError("parameter", name, missing)
        raise UsageError(asked, f"missing: {_listed(missing)}", "give all of them, as network.initialise() does")
    for name, shape in shapes.items():
        given = np.shape(parameters[name])
        if given != shape:
            raise UsageError(asked, f"{name!r} is {shape}, and the array for it {given}", "give an array of its shape")
    return {name: parameters[name] for name in shapes}


def explained(error: Exception | None, expected_names: Sequence[str], given_count: int) -> UsageError | None:
    """Why a call failed if it had too few inputs or too many; ``None`` if it had as many as there are names.

    ``error`` is what the framework said, if anything; it becomes the cause.
    """
    if given_count == len(expected_names):
        return None
    found = f"there are {len(expected_names)} ({_listed(expected_names)}), and {given_count} were given"
    usage = UsageError("the inputs of a call", found, "give one array for each, in this order")
    usage.__cause__ = error
    return usage


def require_inputs(expected_names: Sequence[str], given_count: int, error: Exception | None = None) -> None:
    """Raise what :func:`explained` answers with, if anything."""
    if (wrong := explained(error, expected_names, given_count)) is not None:
        raise wrong


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return (", ".join(names[:_NAMED]) or "none") + (f" and {rest} more" if rest > 0 else "")
