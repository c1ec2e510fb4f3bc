"""The arrays of an executor by name: their values may change, which ones there are may not.

The one idea: every way to write to a mapping (``update``, ``|=``, ``setdefault``) goes through one assignment, and that
checks name and shape, so no framework takes silently what another refuses.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Self

import numpy as np

from levelbench.errors import UnknownNameError, UsageError

__all__ = ["Live", "LiveArrays", "LiveMapping", "require_shape"]


def require_shape(name: str, held: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Raise ``UsageError`` unless an array of shape ``given`` fits in the place of one of shape ``held``."""
    if tuple(given) != tuple(held):
        found = f"it is {tuple(held)}, and the new array {tuple(given)}"
        raise UsageError(f"assigning to parameter {name!r}", found, "give an array of its shape")


class LiveMapping(MutableMapping[str, Any]):
    """A mapping from which nothing can be removed."""

    def __delitem__(self, name: str) -> None:
        raise UsageError(f"removing parameter {name!r}", "the network needs it", "assign zeros to it")

    def __ior__(self, other: Mapping[str, Any]) -> Self:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


class Live(LiveMapping):
    """Arrays by name; :meth:`replaced` says what becomes of an assignment."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = dict(arrays)

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays themselves, for the executor alone: nothing is checked here."""
        return self._arrays

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Raises ``UnknownNameError`` for a name that is not there, ``UsageError`` for another shape."""
        if name not in self._arrays:
            raise UnknownNameError("parameter", name, self._arrays)
        held = self._arrays[name]
        # A training step assigns what it has updated in place.
        if value is not held:
            self._arrays[name] = self.replaced(name, held, value)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @abstractmethod
    def replaced(self, name: str, held: Any, value: Any) -> Any:
        """The array that is there after ``value`` was assigned where ``held`` was."""


class LiveArrays(Live):
    """NumPy's arrays. What is put in a place gets its dtype, as an assignment to an array does."""

    def replaced(self, name: str, held: Any, value: Any) -> Any:
        """A copy: an update in place must reach no other place that was given the same array."""
        array = np.array(value, held.dtype)
        require_shape(name, held.shape, array.shape)
        return array
