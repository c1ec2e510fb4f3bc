"""PyTorch's own data parallelism as schemes, DDP and FSDP2, as baselines for ours.

The library itself communicates, without the communicator, which therefore does not count its messages; ``traffic`` is
what the papers state.
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

    ``hook`` is one of PyTorch's communication hooks: gradients are sent as fp16, as bf16 (NCCL only) or, from step
    ``power_start`` on, as PowerSGD's factors of rank ``power_rank``; with a hook, p ranks are no longer equivalent to
    one process. ``unused`` says that the loss may depend on different parameters in different steps.

    DDP averages over ranks, so the loss is multiplied by share · ranks before its backward pass: the result is the
    gradient of the whole batch even if the parts differ in size. Buffers are not broadcast at each step. Communication
    that overlaps with the backward pass counts as phase ``backward``.
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
            raise DefinitionError(f"ddp with bucket_mb={self.bucket_mb}", "it is not positive", "choose a positive one")
        if self.power_rank < 1 or self.power_start < 2:
            found = f"power_rank={self.power_rank}, power_start={self.power_start}"
            raise DefinitionError("ddp with PowerSGD", found, "choose a rank of at least 1 and a start of at least 2")
        object.__setattr__(self, "consistent", self.hook == "none")

    def load(self) -> None:
        importlib.import_module("levelbench.frameworks.torch.distributed.steppers")

    def start(self, worker: Worker) -> SchemeStepper:
        _require(self.name, worker)
        from levelbench.frameworks.torch.distributed.steppers import DdpStepper

        return DdpStepper(self, worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """The bytes of one ring all-reduce over all gradients; an estimate, as DDP splits them into buckets.

        Messages are those of one ring per full bucket. With PowerSGD the bytes are those of its factors, plus tensors
        that are not matrices; in the first ``power_start`` steps it sends everything.
        """
        from levelbench.distributed import traffic

        width = 2 if self.hook in ("fp16", "bf16") else itemsize
        elements = sum(map(self._elements, parameters.values()))
        buckets = max(1, -int(-elements * itemsize // (self.bucket_mb * 2**20)))
        whole = traffic.all_reduce(elements, width, size, rank)
        return Traffic(whole.sent_bytes, whole.messages * buckets)

    def _elements(self, shape: tuple[int, ...]) -> int:
        """How many elements of a gradient are sent: all, or the two factors if PowerSGD compresses it."""
        whole = prod(shape)
        if self.hook != "power-sgd" or len(shape) < 2:
            return whole
        factors = self.power_rank * (shape[0] + whole // max(1, shape[0]))
        # PyTorch's default: a matrix that would not shrink to less than half is sent whole.
        return factors if 2 * factors < whole else whole


@final
@dataclass(frozen=True)
class FullyShardedDataParallel(Scheme):
    """FSDP2 (``torch.distributed.fsdp.fully_shard``): each rank keeps a shard of every parameter and its state.

    Shards are gathered before the forward pass and, with ``reshard``, again before the backward pass; gradients are
    reduced and scattered. Our optimizer works on this rank's shards, so it must be elementwise: one that needs a whole
    parameter (Muon, LARS, clipping by a norm) is refused, and so is one that averages.

    The executor's own parameters have no memory while it trains. They are filled for an evaluation and a checkpoint,
    where all ranks :meth:`~levelbench.distributed.scheme.SchemeStepper.meet`. Loss and shares are as in DDP.
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
        importlib.import_module("levelbench.frameworks.torch.distributed.steppers")

    def start(self, worker: Worker) -> SchemeStepper:
        _require(self.name, worker)
        from levelbench.frameworks.torch.distributed.steppers import FsdpStepper

        return FsdpStepper(self, worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """One all-gather, or two with ``reshard``, and one reduce-scatter of all parameters, sharded by first axis.

        Computed, not counted: each rank's shard is padded to the size of rank 0's.
        """
        return self.traffic_over("nccl", parameters, itemsize, size, rank)

    def traffic_over(
        self, communicator: str, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int
    ) -> Traffic:
        """:meth:`traffic`; PyTorch's reduce-scatter over gloo is an all-reduce of which each rank keeps its part."""
        from levelbench.distributed import traffic

        padded = sum(-(-shape[0] // size) * prod(shape[1:]) if shape else 1 for shape in parameters.values())
        gathers = traffic.all_gather(padded, itemsize, size, rank) * (2 if self.reshard else 1)
        reduce = traffic.all_reduce if communicator == "gloo" else traffic.reduce_scatter
        return gathers + reduce(padded * size, itemsize, size, rank)


def _require(name: str, worker: Worker) -> None:
    if worker.communicator.name not in _LIBRARIES:
        raise UnsupportedError(
            f"scheme {name!r} over {worker.communicator.name}",
            "it communicates over PyTorch's process group",
            "use --communicator gloo, or the scheme all-reduce",
        )
