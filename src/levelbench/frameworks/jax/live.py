"""Parameters of an executor on JAX: arrays that cannot change, in places that can.

The one idea: the compiled function is called with one flat list of arrays, and assigning to a name replaces an entry of
that list, so what is assigned counts from the next call on and a call gathers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from levelbench.errors import UnknownNameError
from levelbench.networks.executor import LiveMapping, require_shape

__all__ = ["Live"]


class Live(LiveMapping):
    """Some entries of ``slots``, by name. What is put in a place gets its dtype, as an assignment to an array does.

    JAX's arrays are immutable: ``parameters["w"] -= step`` makes a new one and assigns it here.
    """

    def __init__(self, slots: list[Any], places: Mapping[str, int], native: Callable[[Any], Any]) -> None:
        """``native`` makes an array on the device of what is none of JAX's."""
        self._slots, self._places, self._native = slots, dict(places), native

    def __getitem__(self, name: str) -> Any:
        return self._slots[self._places[name]]

    def __setitem__(self, name: str, value: Any) -> None:
        """Raises ``UnknownNameError`` for a name that is not there, ``UsageError`` for another shape."""
        if name not in self._places:
            raise UnknownNameError("parameter", name, self._places)
        at = self._places[name]
        held = self._slots[at]
        if value is held:
            return
        if not hasattr(value, "weak_type"):
            value = self._native(value)
        require_shape(name, held.shape, value.shape)
        # A weak type would be another type to the compiler, and would take part in promotions otherwise.
        self._slots[at] = value.astype(held.dtype) if value.dtype != held.dtype or value.weak_type else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def list(self, names: Sequence[str]) -> list[Any]:
        """The arrays of these names."""
        return [self[name] for name in names]
