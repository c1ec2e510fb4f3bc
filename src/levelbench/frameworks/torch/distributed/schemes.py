"""PyTorch's own data parallelism as schemes, to measure ours against: DDP and FSDP2.

These are yardsticks, so what talks is the library itself, with its own messages under the library's own names. They
pass by the communicator, which therefore counts none of them; ``traffic`` is what their papers say.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.errors import DefinitionError, UnknownNameError, UnsupportedError

HOOKS = ("none", "fp16", "bf16", "power-sgd")
_LIBRARIES = ("gloo", "nccl")


@final
@dataclass(frozen=True)
class DistributedDataParallel(Scheme):
    """``torch.nn.parallel.DistributedDataParallel`` around the executor's own forward and its own tensors.

    ``hook`` is one of PyTorch's communication hooks: gradients travel as fp16, bf16 (NCCL alone) or as PowerSGD's
    factors of rank ``power_rank`` from step ``power_start`` on; with one of these p ranks are no longer one process.
    ``unused`` says that the loss may depend on other parameters from step to step.

    DDP takes the mean over ranks, so the loss is multiplied by share · ranks before its backward pass: the result is
    the gradient of the whole batch also where parts differ. Buffers are not broadcast at each step. What is hidden
    behind the backward pass counts as phase ``backward``.
    """

    bucket_mb: float = 25.0
    hook: str = "none"
    static_graph: bool = False
    unused: bool = False
    power_rank: int = 1
    power_start: int = 10

    name: ClassVar[str] = "ddp"
    source: ClassVar[str] = "Li et al. 2020, PyTorch Distributed: Experiences on Accelerating Data Parallel Training"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True
    frameworks: ClassVar[tuple[str, ...]] = ("torch",)
    communicators: ClassVar[tuple[str, ...]] = _LIBRARIES
    counted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.hook not in HOOKS:
            raise UnknownNameError("hook of DDP", self.hook, HOOKS)
        if not self.bucket_mb > 0:
            raise DefinitionError(f"ddp with bucket_mb={self.bucket_mb}", "it is not positive", "choose more")
        if self.power_rank < 1 or self.power_start < 2:
            found = f"power_rank={self.power_rank}, power_start={self.power_start}"
            raise DefinitionError("ddp with PowerSGD", found, "choose a rank from 1 and a start from 2")
        object.__setattr__(self, "consistent", self.hook == "none")

    def load(self) -> None:
        """PyTorch's part of it, which takes seconds."""
        importlib.import_module("levelbench.frameworks.torch.distributed.steppers")

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work, with rank 0's parameters and buffers."""
        _require(self.name, worker)
        from levelbench.frameworks.torch.distributed.steppers import DdpStepper

        return DdpStepper(self, worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """The bytes of a ring over all gradients at once, not counted and not exact: DDP cuts them into buckets.

        Messages are those of as many rings as there are full buckets. With PowerSGD the bytes are its factors', with
        what is no matrix as it is; in the first ``power_start`` steps it sends all.
        """
        from levelbench.distributed import traffic

        width = 2 if self.hook in ("fp16", "bf16") else itemsize
        elements = sum(map(self._elements, parameters.values()))
        buckets = max(1, -int(-elements * itemsize // (self.bucket_mb * 2**20)))
        whole = traffic.all_reduce(elements, width, size, rank)
        return Traffic(whole.sent_bytes, whole.messages * buckets)

    def _elements(self, shape: tuple[int, ...]) -> int:
        """What is sent of a gradient: all, or the two factors of what PowerSGD finds worth it."""
        whole = prod(shape)
        if self.hook != "power-sgd" or len(shape) < 2:
            return whole
        factors = self.power_rank * (shape[0] + whole // max(1, shape[0]))
        # PyTorch's default: a matrix that would not shrink to a half is sent whole.
        return factors if 2 * factors < whole else whole


@final
@dataclass(frozen=True)
class FullyShardedDataParallel(Scheme):
    """FSDP2 (``torch.distributed.fsdp.fully_shard``): each rank keeps a part of every parameter and of its state.

    The parts are gathered before the forward pass and, with ``reshard``, again before the backward pass; gradients are
    reduced and scattered. Our optimizer works on this rank's parts, so it must be elementwise: one that looks across a
    parameter (Muon, LARS, clipping by a norm) is refused, and so is one that averages.

    The executor's own parameters stay beside the parts and are filled before an evaluation, where all ranks
    :meth:`~levelbench.distributed.scheme.SchemeStepper.meet`: this measures FSDP's time and traffic, not what it saves
    of memory. Loss and shares are as for DDP.
    """

    reshard: bool = False

    name: ClassVar[str] = "fsdp2"
    aliases: ClassVar[tuple[str, ...]] = ("fsdp",)
    source: ClassVar[str] = "Zhao et al. 2023, PyTorch FSDP; Rajbhandari et al. 2020, ZeRO"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = False
    frameworks: ClassVar[tuple[str, ...]] = ("torch",)
    communicators: ClassVar[tuple[str, ...]] = _LIBRARIES
    counted: ClassVar[bool] = False

    def load(self) -> None:
        """PyTorch's part of it, which takes seconds."""
        importlib.import_module("levelbench.frameworks.torch.distributed.steppers")

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work, with rank 0's parameters and buffers."""
        _require(self.name, worker)
        from levelbench.frameworks.torch.distributed.steppers import FsdpStepper

        return FsdpStepper(self, worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """One all-gather, or two with ``reshard``, and one reduce-scatter of all parameters, cut by first axis.

        Not counted: as the library is asked for it, each rank's part padded to that of rank 0.
        """
        from levelbench.distributed import traffic

        padded = sum(-(-shape[0] // size) * prod(shape[1:]) if shape else 1 for shape in parameters.values())
        gathers = traffic.all_gather(padded, itemsize, size, rank) * (2 if self.reshard else 1)
        return gathers + traffic.reduce_scatter(padded * size, itemsize, size, rank)


def _require(name: str, worker: Worker) -> None:
    if worker.communicator.name not in _LIBRARIES:
        raise UnsupportedError(
            f"scheme {name!r} over {worker.communicator.name}",
            "it talks over PyTorch's process group",
            "use --communicator gloo, or the scheme all-reduce",
        )
