"""NumPy as a backend: operators, whole networks, and arrays that are NumPy's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.packing import Packer
from levelbench.frameworks.numpy.executor import NumpyExecutor, make_operator
from levelbench.frameworks.numpy.operators import random
from levelbench.networks.executor import Backend, Executor, checked_parameters
from levelbench.networks.network import Network
from levelbench.operators.contract import Operator
from levelbench.operators.node import OperatorNode

__all__ = ["NumpyBackend", "NumpyExecutor", "NumpyPacker"]


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


class NumpyBackend(Backend):
    """NumPy on the CPU: every call is done when it returns."""

    any_opset = True

    def executor(
        self,
        network: Network,
        parameters: Mapping[str, NDArray[Any]] | None = None,
        *,
        mode: str | None = None,
        trains: bool = True,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> Executor:
        """A reference executor; one that is not trained differs in nothing."""
        self.refuse_other_numbers(precision, channels_last)
        self.chosen_mode(mode)
        return NumpyExecutor(
            network, network.initialise() if parameters is None else checked_parameters(network, parameters), self
        )

    def operator(self, node: OperatorNode) -> Operator:
        """Ours, ONNX's reference where we have none, or a custom one."""
        return make_operator(node)

    def array(self, host: NDArray[Any]) -> NDArray[Any]:
        """The array itself, of any dtype: ``ml_dtypes`` and strings included."""
        return host

    def host(self, array: NDArray[Any]) -> NDArray[Any]:
        """A copy."""
        return np.array(array)

    def take(self, array: NDArray[Any], indices: NDArray[np.int64]) -> NDArray[Any]:
        """Rows at ``indices``."""
        return array.take(indices, axis=0)

    def packer(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """A buffer with views of it."""
        return NumpyPacker(arrays)

    def mean(self, scalars: Sequence[Any]) -> float:
        """The mean, accumulated in float64."""
        return float(np.mean(np.array(scalars, np.float64)))

    def seed(self, seed: int) -> None:
        """Seed the generator of the random operators; those with a seed of their own keep it."""
        random.seed(seed)

    def draws(self) -> NDArray[Any]:
        """The state of the shared generator."""
        return random.state()

    def restore_draws(self, state: NDArray[Any]) -> None:
        """Go on from it."""
        random.restore(state)

    def describe(self) -> dict[str, Any]:
        """Version; the environment holds the BLAS and its threads."""
        return {"name": "numpy", "version": np.__version__, "device": "cpu", "deterministic": True}
