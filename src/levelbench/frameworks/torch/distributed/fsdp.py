"""FSDP2 at work: parameters that live in parts, gathered for the executor's own forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from levelbench.distributed.scheme import SchemeStepper, Worker
from levelbench.distributed.schemes.base import arrays_of, begin_as_rank_zero, kept_arrays, those_under, under
from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch.distributed.losing import raise_lost
from levelbench.frameworks.torch.distributed.wrapped import WrappedExecutor, leaves_of, loss_of
from levelbench.frameworks.torch.executor import TorchExecutor
from levelbench.measure.timeline import Phase
from levelbench.training.optimizers.averaging import AveragingRule
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.wrappers import Native

if TYPE_CHECKING:
    from levelbench.frameworks.torch.distributed.schemes import FullyShardedDataParallel

__all__ = ["FsdpStepper"]

_ELEMENTWISE = frozenset(
    f"torch.optim.{name}"
    for name in ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
)


class _Network(torch.nn.Module):
    """An executor's forward pass over this module's parameters, which FSDP fills before it."""

    def __init__(self, executor: TorchExecutor, leaves: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._executor = executor
        runner: Any = executor._forward
        self._runner, self._given = runner, runner.arrays
        names = list(runner.lowered.arrays)
        self._places = [names.index(name) for name in leaves]
        for at, leaf in enumerate(leaves.values()):
            self.register_parameter(f"p{at}", torch.nn.Parameter(leaf.detach().clone()))

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss."""
        arrays = list(self._given)
        for at, place in enumerate(self._places):
            arrays[place] = getattr(self, f"p{at}")
        self._runner.arrays = tuple(arrays)
        self._executor.forward(*inputs)
        return loss_of(self._executor)


class FsdpStepper(SchemeStepper):
    """The worker's optimizer on this rank's parts."""

    kept = True

    def __init__(self, scheme: FullyShardedDataParallel, worker: Worker) -> None:
        executor, communicator = worker.executor, worker.communicator
        if not isinstance(executor, TorchExecutor):
            found = f"it wraps networks of framework torch, not a {type(executor).__name__}"
            raise UnsupportedError(f"scheme {scheme.name!r}", found, "use ddp")
        _require_elementwise(worker.optimizer)
        begin_as_rank_zero(worker)
        self._worker, self._whole = worker, executor.parameters
        leaves = leaves_of(executor, scheme.name)
        module = _Network(executor, leaves)
        device = next(iter(leaves.values())).device.type
        mesh = init_device_mesh(device, (communicator.size,))
        fully_shard(module, mesh=mesh, reshard_after_forward=scheme.reshard)
        self._sharded: dict[str, Any] = dict(zip(leaves, module.parameters(), strict=True))
        # Views of the parts: an update of them is one of the module's.
        self._parts = {name: _part(each) for name, each in self._sharded.items()}
        self.inner = worker.optimizer.start(worker.backend, self._parts)
        weight = communicator.size
        self.executor = WrappedExecutor(executor, module, self._sharded, lambda: self.share * weight, _part)

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """Update the parts."""
        self._worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)

    def state(self) -> dict[str, NDArray[Any]]:
        """The parts of this rank, and the optimizer's state of them."""
        return kept_arrays("part", self._worker.backend, self._parts) | under("optimizer", self.inner.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """All of that."""
        with torch.no_grad():
            for name, each in arrays_of("part", self._worker.backend, state).items():
                self._parts[name].copy_(each)
        self.inner.restore(those_under("optimizer", state))

    def meet(self) -> None:
        """Gather all parts into the executor's parameters, to be evaluated."""
        self._worker.switch(Phase.COMMUNICATE)
        try:
            with torch.no_grad():
                for name, each in self._sharded.items():
                    self._whole[name].copy_(each.full_tensor())
        except RuntimeError as error:
            raise_lost("gathering the parts of FSDP", error)
            raise


def _part(sharded: Any) -> Tensor:
    """What this rank has of it: a view."""
    part: Tensor = sharded.detach().to_local()
    return part


def _require_elementwise(optimizer: Optimizer) -> None:
    rule = isinstance(optimizer, UpdateRule) and optimizer.elementwise and not isinstance(optimizer, AveragingRule)
    if not rule and not (isinstance(optimizer, Native) and optimizer.name in _ELEMENTWISE):
        raise UnsupportedError(
            f"{type(optimizer).__name__} with the scheme fsdp2",
            "each rank holds a part of every parameter, and it looks across them",
            "use an elementwise optimizer that does not average, or the scheme ddp",
        )
