"""NumPy's arrays in one buffer, with views of it by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.packing import Packer

__all__ = ["NumpyPacker"]


class NumpyPacker(Packer):
    """Writes into its buffer; nothing is allocated after the first time."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(arrays)
        self._flat = np.empty(self.size, self.dtype)
        self._views = self.layout.unpack(self._flat)

    def put(self, name: str, array: NDArray[Any], factor: float = 1.0) -> NDArray[Any]:
        """One pass over the array."""
        view: NDArray[Any] = self._views[name]
        if factor == 1.0:
            view[...] = array
        else:
            np.multiply(array, factor, out=view)
        return view

    def packed(self) -> NDArray[Any]:
        """The buffer."""
        return self._flat

    def unpack(self, flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Views."""
        return dict(self._views) if flat is self._flat else super().unpack(flat)
