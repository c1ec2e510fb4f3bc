"""DDP at work: a module without parameters of its own, around an executor's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.base import BaseStepper
from levelbench.errors import UnsupportedError
from levelbench.frameworks.torch.distributed.losing import raise_lost
from levelbench.frameworks.torch.distributed.wrapped import WrappedExecutor, leaves_of, loss_of
from levelbench.networks.executor import Executor

if TYPE_CHECKING:
    from levelbench.frameworks.torch.distributed.schemes import DistributedDataParallel

__all__ = ["DdpStepper"]


class _Network(torch.nn.Module):
    """An executor's forward pass, over the executor's own tensors."""

    def __init__(self, executor: Executor, leaves: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._executor = executor
        # Not register_parameter: that takes its own type alone, and the graph hangs on these very tensors.
        for at, leaf in enumerate(leaves.values()):
            self._parameters[f"p{at}"] = leaf  # type: ignore[assignment,unused-ignore]

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss."""
        self._executor.forward(*inputs)
        return loss_of(self._executor)


class DdpStepper(BaseStepper):
    """The worker's optimizer on gradients that DDP has averaged."""

    kept = True

    def __init__(self, scheme: DistributedDataParallel, worker: Worker) -> None:
        super().__init__(worker)
        executor, size = worker.executor, worker.communicator.size
        leaves = leaves_of(executor, scheme.name)
        self._hook = scheme.hook
        self._unread = [name for name in executor.parameters if name not in leaves]
        try:
            module = _around(_Network(executor, leaves), scheme)
        except RuntimeError as error:
            raise_lost("the start of ddp", error)
            raise
        _hook(scheme, module, worker.communicator.name)
        self.executor = WrappedExecutor(executor, module, leaves, lambda: self.share * size)

    @property
    def unkept(self) -> str | None:
        """With PowerSGD the library's hook holds what it left out, and does not give it away."""
        return "PyTorch's PowerSGD hook keeps what it left out to itself" if self._hook == "power-sgd" else None

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """What is left is the update."""
        if self._unread:
            zeros = {name: torch.zeros_like(self.parameters[name]) for name in self._unread}
            gradients = {**gradients, **zeros}
        self.update(gradients, step, factor)


def _around(network: _Network, scheme: DistributedDataParallel) -> torch.nn.parallel.DistributedDataParallel:
    return torch.nn.parallel.DistributedDataParallel(
        network,
        bucket_cap_mb=scheme.bucket_mb,
        # All ranks have rank 0's by now.
        init_sync=False,
        broadcast_buffers=False,
        find_unused_parameters=scheme.unused,
        gradient_as_bucket_view=True,
        static_graph=scheme.static_graph,
    )


def _hook(scheme: DistributedDataParallel, module: Any, library: str) -> None:
    """Register PyTorch's own hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if scheme.hook == "fp16":
        module.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif scheme.hook == "bf16":
        if library != "nccl":
            raise UnsupportedError("ddp with the hook bf16", f"PyTorch has none over {library}", "use fp16, or nccl")
        module.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif scheme.hook == "power-sgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=dist.group.WORLD,
            matrix_approximation_rank=scheme.power_rank,
            start_powerSGD_iter=scheme.power_start,
        )
        module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
