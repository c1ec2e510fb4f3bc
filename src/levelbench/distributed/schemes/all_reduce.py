"""Synchronous data parallelism by all-reduce: every rank sums all gradients and makes the same update.

A gradient of the mean loss over the global batch is the sum of the ranks' gradients, each weighted by its rank's share
of the examples. So p ranks compute the same as one process, to the rounding of a sum in another order. Gradients travel
in buckets that follow from the network alone, so ranks need not agree on anything; each starts its buckets in order, as
early as its gradients are ready (Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel
Training").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, final

from levelbench.distributed import traffic
from levelbench.distributed.communicator import Communicator, Handle
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.packing import packer
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import BaseStepper
from levelbench.errors import DefinitionError, UnknownNameError, UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.optimizers.arrays import zeros_like

FIRST_BYTES = 1 << 20
"""The first bucket is smaller than the others, so that communication begins early."""


def ready_order(executor: Executor) -> list[str]:
    """The trainable parameters in the order in which a backward pass completes their gradients.

    A gradient is final once the backward pass has reached the parameter's first use. Unused parameters come last; those
    of one operator, and all of a native module, whose uses are unknown, come in reverse order of definition.
    """
    names = list(executor.parameters)[::-1]
    if executor.network is None:
        return names
    first: dict[str, int] = {}
    for at, node in enumerate(executor.network.nodes):
        for name in node.inputs:
            first.setdefault(name, at)
    return sorted(names, key=lambda name: -first.get(name, -1))


def assign(
    arrays: Iterable[tuple[str, object, int]], most_bytes: float, first_bytes: float = FIRST_BYTES
) -> list[list[str]]:
    """Assign arrays, given as (name, dtype, bytes) in the order in which they become ready, to buckets of names.

    A bucket holds one dtype and is closed by the array that reaches its limit; the first bucket of each dtype has the
    limit ``first_bytes``. Buckets are returned in the order in which they are complete.
    """
    closed: list[tuple[int, list[str]]] = []
    open_ones: dict[object, tuple[list[str], int]] = {}
    names: list[str]
    limits: dict[object, float] = {}
    last: dict[object, int] = {}
    for at, (name, dtype, nbytes) in enumerate(arrays):
        names, held = open_ones.pop(dtype, ([], 0))
        names.append(name)
        last[dtype] = at
        if held + nbytes >= limits.get(dtype, min(first_bytes, most_bytes)):
            closed.append((at, names))
            limits[dtype] = most_bytes
        else:
            open_ones[dtype] = (names, held + nbytes)
    closed += [(last[dtype], names) for dtype, (names, _) in open_ones.items()]
    return [names for _, names in sorted(closed)]


@final
class Reducer:
    """The weighted sum of gradients over ranks, bucket by bucket; all ranks have arrays like ``parameters``."""

    def __init__(
        self,
        communicator: Communicator,
        backend: Backend,
        parameters: Mapping[str, Array],
        buckets: Sequence[Sequence[str]],
        clock: Clock = HOST,
    ) -> None:
        self._communicator, self._parameters, self._clock = communicator, parameters, clock
        self._buckets = [dict.fromkeys(names) for names in buckets]
        self._packers = [packer(backend, {name: parameters[name] for name in names}) for names in buckets]
        # A list, because iterating over live parameters takes as long as a small message.
        self._names = list(parameters)
        self._bucket_of = {name: at for at, names in enumerate(buckets) for name in names}
        self._started_ns = self._inside_ns = 0
        self._clear()
        self.overlap = 0.0
        """For the last step: 1 − (time inside the communicator's calls) / (time from the start of the first bucket to
        the end of the last), the share of the communication hidden behind computing or copying on this rank."""

    def _clear(self) -> None:
        self._taken: dict[str, Array] = {}
        self._left = [len(names) for names in self._buckets]
        self._handles: list[Handle] = []
        self._over = 0
        self._share: float | None = None

    def ready(self, name: str, gradient: Array, share: float) -> None:
        """Take a final gradient, without changing it, and start the buckets that are complete.

        Raises ``UsageError`` if it was taken already.
        """
        if name in self._taken:
            raise UsageError(
                "overlapping communication with the backward pass",
                f"the gradient of {name!r} came twice in one step",
                "make one step after each backward pass, or use all-reduce[overlap=false]",
            )
        self._share, self._taken[name] = share, gradient
        at = self._bucket_of[name]
        self._packers[at].put(name, gradient, share)
        self._left[at] -= 1
        # In order, as on every other rank.
        while (at := len(self._handles)) < len(self._left) and not self._left[at]:
            self._start(self._packers[at].packed())
        if self._over < len(self._handles):
            self._drive()

    def _drive(self) -> None:
        """Poll the buckets: some libraries only make progress while they are called."""
        began = self._clock.now_ns()
        while self._over < len(self._handles) and self._handles[self._over].done():
            self._over += 1
        self._inside_ns += self._clock.now_ns() - began

    def finish(self, gradients: Mapping[str, Array], share: float) -> dict[str, Array]:
        """Σ share · gradient over ranks, by name, once complete. Missing gradients count as 0.

        The arrays belong to the reducer and change at the next step. Raises ``UsageError`` if ``gradients`` differ from
        those passed to :meth:`ready`.
        """
        # In the order of the parameters, so that an optimizer that sums over them does so as in one process.
        result: dict[str, Array] = dict.fromkeys(self._names)
        if len(self._buckets) == 1 and not self._taken:
            # With a single bucket nothing overlaps.
            (one,), self.overlap = self._packers, 0.0
            result.update(one.unpack(self._communicator.all_reduce(self._filled(0, gradients, share))))
            return result
        if self._taken:
            self._require_same(gradients, share)
        for at in range(len(self._handles), len(self._buckets)):
            self._start(self._filled(at, gradients, share))
        handles = self._handles
        for each, handle in zip(self._packers, handles, strict=True):
            began = self._clock.now_ns()
            flat = handle.wait()
            ended = self._clock.now_ns()
            self._inside_ns += ended - began
            result.update(each.unpack(flat))
        whole = ended - self._started_ns if handles else 0
        self.overlap = 1 - self._inside_ns / whole if whole else 0.0
        self._clear()
        return result

    def _filled(self, at: int, gradients: Mapping[str, Array], share: float) -> Array:
        """A bucket, after adding what is still missing."""
        names, each = self._buckets[at], self._packers[at]
        if self._left[at] == len(names) and names.keys() <= gradients.keys():
            return each.pack(gradients, share)
        for name in names:
            if name not in self._taken:
                gradient = gradients[name] if name in gradients else zeros_like(self._parameters[name])
                each.put(name, gradient, share)
        return each.packed()

    def _start(self, flat: Array) -> None:
        began = self._clock.now_ns()
        if not self._handles:
            self._started_ns, self._inside_ns = began, 0
        self._handles.append(self._communicator.start_all_reduce(flat))
        self._inside_ns += self._clock.now_ns() - began

    def _require_same(self, gradients: Mapping[str, Array], share: float) -> None:
        strange = next((name for name, each in self._taken.items() if gradients.get(name) is not each), None)
        if strange is not None or share != self._share:
            found = f"that of {strange!r} differs" if strange else f"its share was {self._share}, and is now {share}"
            raise UsageError(
                "a step whose gradients are already being reduced",
                found,
                "pass what backward returned, with the share that was set before it; or use all-reduce[overlap=false]",
            )


_MB = 1 << 20


@final
@dataclass(frozen=True)
class AllReduce(Scheme):
    """w := optimizer(w, Σ_r share_r g_r) on every rank, starting from rank 0's parameters (Li et al. 2020).

    ``bucket_mb``: the approximate size of buckets in MiB; the first of each dtype has at most 1 MiB. ``overlap``: start
    buckets during the backward pass, if the framework tells when a gradient is final and there is more than one bucket.
    ``algorithm``: one of our own over messages, from ``traffic.ALGORITHMS``; empty: the library's all-reduce.

    Each rank applies batch normalisation to its own part of the batch, so a network with that differs from one
    process. Notes ``overlap`` per step, except over NCCL: 1 − (time inside the communicator's calls) / (time from the
    start of the first bucket to the end of the last).
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
            raise DefinitionError(
                f"all-reduce with bucket_mb={self.bucket_mb}", "it is not positive", "choose a size above zero"
            )
        if self.algorithm and self.algorithm not in (known := traffic.ALGORITHMS["all_reduce"]):
            raise UnknownNameError("algorithm of all-reduce", self.algorithm, known)
        object.__setattr__(self, "messages", bool(self.algorithm))

    def start(self, worker: Worker) -> SchemeStepper:
        return _AllReduceStepper(self, worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """One all-reduce per bucket, by ``algorithm``, or by a ring if that is empty, as in gloo.

        Exact if the network uses its parameters in their order; otherwise buckets may be cut elsewhere, which changes
        each by up to ``size`` elements.
        """
        sizes = {name: prod(shape) for name, shape in parameters.items()}
        arrays = [(name, "", sizes[name] * itemsize) for name in reversed(sizes)]
        total = Traffic(0, 0)
        for names in assign(arrays, self.bucket_mb * _MB):
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
        order = ready_order(self.executor)
        arrays = [(name, parameters[name].dtype, parameters[name].nbytes) for name in order]
        plan = assign(arrays, scheme.bucket_mb * _MB)
        self._reducer = Reducer(communicator, worker.backend, parameters, plan, worker.clock)
        self._alone = communicator.size == 1
        # Over NCCL a wait returns before the messages have arrived: the host's times say nothing about overlap.
        self._timed = communicator.name != "nccl"
        # A single bucket is complete with the backward pass: a callback for each gradient would only cost time.
        if scheme.overlap and len(plan) > 1 and not self._alone:
            self.executor.on_gradient(self._ready)

    def _ready(self, name: str, gradient: Array) -> None:
        self._reducer.ready(name, gradient, self.share)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        if not self._alone:
            self.worker.switch(Phase.COMMUNICATE)
            gradients = self._reducer.finish(gradients, self.share)
            if self._timed:
                self.worker.ledger.note("overlap", self._reducer.overlap)
        self.update(gradients, step, factor)

    def close(self) -> None:
        self.executor.on_gradient(None)
