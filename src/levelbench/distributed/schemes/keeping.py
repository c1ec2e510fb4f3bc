"""A scheme's state as arrays on the host by flat names, and back: what a checkpoint of a rank holds of it.

The one idea: what a scheme keeps between two steps is a few numbers and lists of arrays, so ``NAME`` and ``NAME/PLACE``
name all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.networks.executor import Array, Backend

__all__ = ["arrays_of", "kept_arrays", "number", "numbers", "those_under", "under"]

State = Mapping[str, NDArray[Any]]


def under(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays under ``name/``."""
    return {f"{name}/{each}": value for each, value in arrays.items()}


def those_under(name: str, state: State) -> dict[str, NDArray[Any]]:
    """What :meth:`under` put there, by its own names."""
    prefix = f"{name}/"
    return {each.removeprefix(prefix): value for each, value in state.items() if each.startswith(prefix)}


def kept_arrays(name: str, backend: Backend, arrays: Mapping[str, Array] | Sequence[Array]) -> dict[str, NDArray[Any]]:
    """Native arrays by name, or in order, as arrays of their own on the host. ``None`` among them is left out."""
    named = arrays if isinstance(arrays, Mapping) else {str(at): each for at, each in enumerate(arrays)}
    return under(name, {each: np.array(backend.host(value)) for each, value in named.items() if value is not None})


def arrays_of(name: str, backend: Backend, state: State) -> dict[str, Array]:
    """What :func:`kept_arrays` kept, native again, by name or place."""
    return {each: backend.array(np.array(value)) for each, value in those_under(name, state).items()}


def numbers(**given: float | Sequence[float]) -> dict[str, NDArray[Any]]:
    """Numbers, or lists of them, by name."""
    return {name: np.array(value) for name, value in given.items()}


def number(name: str, state: State) -> int:
    """A whole number that :func:`numbers` kept; ``DataError`` where it is not there."""
    if name not in state or state[name].shape:
        raise DataError("the state of a scheme", f"{name!r} is not in it", "it was kept by another scheme")
    return int(state[name])
