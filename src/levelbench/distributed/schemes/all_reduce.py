"""Synchronous data parallelism by all-reduce: every rank adds up all gradients and makes the same update.

The one idea: a gradient of the mean loss over the global batch is the sum of the ranks' gradients, each weighted by its
rank's share of the examples. So p ranks compute what one process does, to the rounding of a sum in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

from levelbench.distributed import traffic
from levelbench.distributed.algorithms import Algorithmic
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes import buckets
from levelbench.distributed.schemes.base_stepper import BaseStepper
from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array

__all__ = ["AllReduce"]

_MB = 1 << 20


@final
@dataclass(frozen=True)
class AllReduce(Scheme):
    """w := optimizer(w, Σ_r share_r g_r) on every rank, after rank 0's start (Li et al. 2020).

    ``bucket_mb``: gradients travel in buckets of about so many MiB, the first one of each dtype of 1 MiB at most.
    ``overlap``: a bucket starts during the backward pass where the framework says when a gradient is final and there is
    more than one bucket, else after it. ``algorithm``: our own over messages, one of ``traffic.ALGORITHMS``; empty: the
    library's all-reduce.

    Each rank normalises (batch normalisation) over its own part of the batch, so a network with that differs from one
    process. Notes ``overlap`` a step: 1 − (time inside the communicator's calls) / (time from the start of the first
    bucket to the end of the last).
    """

    bucket_mb: float = 25.0
    overlap: bool = True
    algorithm: str = ""

    name: ClassVar[str] = "all-reduce"
    aliases: ClassVar[tuple[str, ...]] = ("allreduce", "dsgd")
    source: ClassVar[str] = "Li et al. 2020, PyTorch Distributed: Experiences on Accelerating Data Parallel Training"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.bucket_mb > 0:
            raise DefinitionError(f"all-reduce with bucket_mb={self.bucket_mb}", "it is not positive", "choose more")
        if self.algorithm and self.algorithm not in (known := traffic.ALGORITHMS["all_reduce"]):
            raise UnknownNameError("algorithm of all-reduce", self.algorithm, known)

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work, with rank 0's parameters and buffers."""
        return _AllReduceStepper(self, worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """One all-reduce a bucket, by ``algorithm``; where it is empty by a ring, as in gloo.

        Exact where the network uses its parameters in the order in which it has them; else buckets may be cut
        elsewhere, which is up to ``size`` elements more or less for each.
        """
        sizes = {name: prod(shape) for name, shape in parameters.items()}
        arrays = [(name, "", sizes[name] * itemsize) for name in reversed(sizes)]
        total = Traffic(0, 0)
        for names in buckets.assign(arrays, self.bucket_mb * _MB):
            elements = sum(sizes[name] for name in names)
            total += traffic.all_reduce(elements, itemsize, size, rank, self.algorithm or "ring")
        return total


class _AllReduceStepper(BaseStepper):
    kept = True

    def __init__(self, scheme: AllReduce, worker: Worker) -> None:
        super().__init__(worker)
        communicator = worker.communicator
        if scheme.algorithm:
            communicator = Algorithmic(communicator, traffic.Algorithms(all_reduce=scheme.algorithm))
        parameters = self.parameters
        order = buckets.ready_order(self.executor)
        arrays = [(name, parameters[name].dtype, parameters[name].nbytes) for name in order]
        plan = buckets.assign(arrays, scheme.bucket_mb * _MB)
        self._reducer = buckets.Reducer(communicator, worker.backend, parameters, plan, worker.clock)
        self._alone = communicator.size == 1
        # A single bucket is complete when the backward pass is: to be told of each gradient would only cost.
        if scheme.overlap and len(plan) > 1 and not self._alone:
            self.executor.on_gradient(self._ready)

    def _ready(self, name: str, gradient: Array) -> None:
        self._reducer.ready(name, gradient, self.share)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """Start what the backward pass has not, wait for all, update."""
        if not self._alone:
            self.worker.switch(Phase.COMMUNICATE)
            gradients = self._reducer.finish(gradients, self.share)
            self.worker.ledger.note("overlap", self._reducer.overlap)
        self.update(gradients, step, factor)

    def close(self) -> None:
        """Ask for no more gradients."""
        self.executor.on_gradient(None)
