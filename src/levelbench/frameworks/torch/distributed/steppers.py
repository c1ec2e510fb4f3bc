"""Steppers for DDP and FSDP2, around an executor whose training passes go through a wrapped module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, final

import torch
import torch._dynamo  # Otherwise imported when the first module is wrapped, which is timed.
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from levelbench.distributed.scheme import SchemeStepper, Worker
from levelbench.distributed.schemes.base import (
    BaseStepper,
    arrays_of,
    begin_as_rank_zero,
    kept_arrays,
    those_under,
    under,
)
from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks import no_forward
from levelbench.frameworks.torch.communicator import raise_lost
from levelbench.frameworks.torch.executor import LeafExecutor, TorchExecutor
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Executor, OperatorTime
from levelbench.training.optimizers.base import Optimizer, UpdateRule
from levelbench.training.optimizers.rules import AveragingRule
from levelbench.training.optimizers.wrappers import Native

if TYPE_CHECKING:
    from levelbench.frameworks.torch.distributed.schemes import DistributedDataParallel, FullyShardedDataParallel


_FORWARD, _BACKWARD = (f"a {name} pass through PyTorch's data parallelism" for name in ("forward", "backward"))


def leaf_executor(executor: Executor, scheme: str) -> LeafExecutor:
    """The executor; ``UnsupportedError`` if autograd does not differentiate it."""
    if not isinstance(executor, LeafExecutor):
        asked = f"scheme {scheme!r} on a {type(executor).__name__}"
        raise UnsupportedError(asked, "it has no autograd tensors", "use framework torch")
    return executor


@final
class WholeArrays(MutableMapping[str, Tensor]):
    """An executor's own parameters; those of ``leaves`` have no memory while ranks train on shards of them."""

    def __init__(self, arrays: MutableMapping[str, Tensor], leaves: Mapping[str, Tensor]) -> None:
        self._arrays, self._held = arrays, True
        # An executor has two tensors of each parameter, which share its memory.
        self._pairs = [(leaf, arrays[name], leaf.shape, leaf.stride()) for name, leaf in leaves.items()]

    def release(self) -> None:
        """Give the memory back."""
        if self._held:
            self._held = False
            with torch.no_grad():
                for leaf, live, _, _ in self._pairs:
                    leaf.set_()
                    live.set_()

    def hold(self) -> None:
        """Take the memory again; values are undefined."""
        if not self._held:
            with torch.no_grad():
                for leaf, live, shape, stride in self._pairs:
                    storage = torch.empty_strided(shape, stride, dtype=leaf.dtype, device=leaf.device).untyped_storage()
                    leaf.set_(storage, 0, shape, stride)
                    live.set_(storage, 0, shape, stride)
            self._held = True

    def require(self) -> None:
        """``UsageError`` if they have no memory now."""
        if not self._held:
            raise UsageError(
                "whole parameters under fsdp2", "between evaluations each rank has a part", "read them at an evaluation"
            )

    def __getitem__(self, name: str) -> Tensor:
        self.require()
        return self._arrays[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.require()
        self._arrays[name] = value

    def __delitem__(self, name: str) -> None:
        del self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


class WrappedExecutor(Executor):
    """``executor`` whose training passes go through ``module``, which returns the loss with its graph.

    ``weight()`` is the weight of the loss in the mean over ranks, called at each forward pass. ``local`` maps a leaf or
    its gradient to the tensor that the optimizer works on. ``whole``: parameters that training passes do without.
    """

    collective = True

    def __init__(
        self,
        executor: Executor,
        module: Any,
        leaves: Mapping[str, Any],
        weight: Callable[[], float],
        local: Callable[[Any], Tensor] = Tensor.detach,
        whole: WholeArrays | None = None,
    ) -> None:
        self._executor, self._module, self._leaves = executor, module, leaves
        self._weight, self._local, self._released = weight, local, whole
        self.network, self.mode = executor.network, executor.mode
        self.parameters, self.buffers = executor.parameters if whole is None else whole, executor.buffers
        self._loss: Tensor | None = None

    def infer(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        if self._released is not None:
            self._released.require()
        found: tuple[Tensor, ...] = self._executor.infer(*inputs)
        return found

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss of this rank's part."""
        if self._released is not None:
            self._released.release()
        try:
            loss = self._module(*inputs)
        except RuntimeError as error:
            raise_lost(_FORWARD, error)
            raise
        weight = self._weight()
        self._loss = loss if weight == 1.0 else loss * weight
        detached: Tensor = loss.detach()
        return detached

    def backward(self) -> Mapping[str, Tensor]:
        """The library's gradients, those of the whole batch. They stay valid until the next backward pass."""
        loss, self._loss = self._loss, None
        if loss is None:
            raise no_forward()
        for leaf in self._leaves.values():
            leaf.grad = None
        try:
            loss.backward()
        except RuntimeError as error:
            raise_lost(_BACKWARD, error)
            raise
        local = self._local
        return {
            name: torch.zeros_like(local(leaf)) if leaf.grad is None else local(leaf.grad)
            for name, leaf in self._leaves.items()
        }

    def operator_times(self, *inputs: Tensor, repeats: int = 1) -> list[OperatorTime]:
        if self._released is not None:
            self._released.require()
        return self._executor.operator_times(*inputs, repeats=repeats)


# DDP: a module around an executor's tensors.


class _Network(torch.nn.Module):
    """An executor's forward pass, over the executor's own tensors."""

    def __init__(self, executor: LeafExecutor, leaves: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._executor = executor
        # Not register_parameter: it requires nn.Parameter, and the graph depends on these very tensors.
        for at, leaf in enumerate(leaves.values()):
            self._parameters[f"p{at}"] = leaf  # type: ignore[assignment,unused-ignore]

    def forward(self, *inputs: Tensor) -> Tensor:
        """The loss."""
        self._executor.forward(*inputs)
        return self._executor.take_loss()


class DdpStepper(BaseStepper):
    """The worker's optimizer on gradients averaged by DDP."""

    kept = True

    def __init__(self, scheme: DistributedDataParallel, worker: Worker) -> None:
        super().__init__(worker)
        executor, size = leaf_executor(worker.executor, scheme.name), worker.communicator.size
        leaves = executor.trained
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
        """PyTorch's PowerSGD hook does not expose its error feedback."""
        return "PyTorch's PowerSGD hook does not expose its error feedback" if self._hook == "power-sgd" else None

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        """DDP has already averaged the gradients, so only the update is left."""
        if self._unread:
            zeros = {name: torch.zeros_like(self.parameters[name]) for name in self._unread}
            gradients = {**gradients, **zeros}
        self.update(gradients, step, factor)


def _around(network: _Network, scheme: DistributedDataParallel) -> torch.nn.parallel.DistributedDataParallel:
    return torch.nn.parallel.DistributedDataParallel(
        network,
        bucket_cap_mb=scheme.bucket_mb,
        # All ranks already have rank 0's parameters.
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
            raise UnsupportedError("ddp with the hook bf16", f"it is not available over {library}", "use fp16, or nccl")
        module.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif scheme.hook == "power-sgd":
        state = powerSGD_hook.PowerSGDState(
            process_group=dist.group.WORLD,
            matrix_approximation_rank=scheme.power_rank,
            start_powerSGD_iter=scheme.power_start,
        )
        module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


# FSDP2: sharded parameters, gathered for the executor's own forward pass.


_ELEMENTWISE = frozenset(
    f"torch.optim.{name}"
    for name in ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
)


class _ShardedNetwork(torch.nn.Module):
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
        return self._executor.take_loss()


class FsdpStepper(SchemeStepper):
    """The worker's optimizer on this rank's shards."""

    kept = True

    def __init__(self, scheme: FullyShardedDataParallel, worker: Worker) -> None:
        executor, communicator = worker.executor, worker.communicator
        if not isinstance(executor, TorchExecutor):
            found = f"it wraps networks of framework torch, not a {type(executor).__name__}"
            raise UnsupportedError(f"scheme {scheme.name!r}", found, "use ddp")
        _require_elementwise(worker.optimizer)
        begin_as_rank_zero(worker)
        leaves = executor.trained
        self._worker, self._whole = worker, WholeArrays(executor.parameters, leaves)
        module = _ShardedNetwork(executor, leaves)
        device = next(iter(leaves.values())).device.type
        mesh = init_device_mesh(device, (communicator.size,))
        fully_shard(module, mesh=mesh, reshard_after_forward=scheme.reshard)
        self._sharded: dict[str, Any] = dict(zip(leaves, module.parameters(), strict=True))
        # Views of the shards, so that an update changes the module's parameters.
        self._parts = {name: _part(each) for name, each in self._sharded.items()}
        self.inner = worker.optimizer.start(worker.backend, self._parts)
        weight = communicator.size
        self.executor = WrappedExecutor(
            executor, module, self._sharded, lambda: self.share * weight, _part, self._whole
        )

    def step(self, gradients: Mapping[str, Tensor], step: int, factor: float) -> None:
        self._worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)

    def state(self) -> dict[str, NDArray[Any]]:
        """The rank's shards and the optimizer's state of them; a checkpoint has the whole parameters, too."""
        self._gather()
        return kept_arrays("part", self._worker.backend, self._parts) | under("optimizer", self.inner.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        with torch.no_grad():
            for name, each in arrays_of("part", self._worker.backend, state).items():
                self._parts[name].copy_(each)
        self.inner.restore(those_under("optimizer", state))

    def meet(self) -> None:
        """Gather all shards into the executor's parameters for an evaluation."""
        self._worker.switch(Phase.COMMUNICATE)
        self._gather()

    def _gather(self) -> None:
        self._whole.hold()
        try:
            with torch.no_grad():
                for name, each in self._sharded.items():
                    self._whole[name].copy_(each.full_tensor())
        except RuntimeError as error:
            raise_lost("gathering the parts of FSDP", error)
            raise


def _part(sharded: Any) -> Tensor:
    """A view of this rank's shard."""
    part: Tensor = sharded.detach().to_local()
    return part


def _require_elementwise(optimizer: Optimizer) -> None:
    rule = isinstance(optimizer, UpdateRule) and optimizer.elementwise and not isinstance(optimizer, AveragingRule)
    if not rule and not (isinstance(optimizer, Native) and optimizer.name in _ELEMENTWISE):
        raise UnsupportedError(
            f"{type(optimizer).__name__} with the scheme fsdp2",
            "each rank has only a shard of every parameter, and this optimizer needs whole ones",
            "use an elementwise optimizer that does not average, or the scheme ddp",
        )
