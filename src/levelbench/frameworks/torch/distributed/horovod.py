"""Horovod at work: its all-reduce of every gradient, then the worker's own optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from torch import Tensor

from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.base import BaseStepper
from levelbench.errors import UsageError
from levelbench.measure.timeline import Phase

__all__ = ["HorovodStepper"]


class HorovodStepper(BaseStepper):
    """All gradients are handed over at once, in the same order on all ranks; Horovod fuses them."""

    kept = True

    def __init__(self, worker: Worker) -> None:
        self._horovod: Any = import_module("horovod.torch")
        self._horovod.init()
        found = self._horovod.rank(), self._horovod.size()
        if found != (worker.communicator.rank, worker.communicator.size):
            raise UsageError(
                f"scheme 'horovod' as rank {worker.communicator.rank} of {worker.communicator.size}",
                f"Horovod calls it rank {found[0]} of {found[1]}",
                "start the ranks by --engine mpi, whose places Horovod reads",
            )
        super().__init__(worker)

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """The sum of all ranks' gradients by their shares, then the update."""
        self.worker.switch(Phase.COMMUNICATE)
        library = self._horovod
        handles = {
            name: library.allreduce_async_(gradient.mul_(self.share), name=name, op=library.Sum)
            for name, gradient in gradients.items()
        }
        self.update({name: library.synchronize(handle) for name, handle in handles.items()}, step, factor)

    def close(self) -> None:
        """Let Horovod's thread end."""
        self._horovod.shutdown()
