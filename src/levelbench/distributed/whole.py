"""An executor as those see it who may not look at a gradient before it is whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import final

from levelbench.networks.executor import Array, Executor

__all__ = ["Whole"]


@final
class Whole(Executor):
    """The same executor, one of several backward passes of an update: no gradient is final before the last of them."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.network, self.mode = executor.network, executor.mode
        self.parameters, self.buffers = executor.parameters, executor.buffers

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        """The executor's own."""
        return self._executor.infer(*inputs)

    def forward(self, *inputs: Array) -> Array:
        """The executor's own."""
        return self._executor.forward(*inputs)

    def backward(self) -> Mapping[str, Array]:
        """The executor's own."""
        return self._executor.backward()

    def on_gradient(self, callback: Callable[[str, Array], None] | None) -> bool:
        """Not here."""
        return False
