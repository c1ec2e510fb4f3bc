"""A communicator over MPI through mpi4py: MPICH, Open MPI, or a cluster's own library.

Every call is MPI's own non-blocking one on the array's memory, so a profiler that intercepts MPI (PMPI) sees it. MPI's
wait has no timeout, so a request is polled in a loop that checks the clock and yields the processor in between: with
more ranks than cores, the rank that is waited for needs it. mpi4py calls the large-count variants if the library has
them, such as ``MPI_Iallreduce_c``.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from levelbench.distributed.communicator import (
    REDUCTIONS,
    Communicator,
    Done,
    FunctionHandle,
    Handle,
    Reduction,
    checked_count,
    checked_op,
    checked_rank,
    checked_tag,
)
from levelbench.distributed.packing import HostArray, Memory, as_bytes, dense, new, pieces, rows
from levelbench.distributed.traffic import Algorithms
from levelbench.errors import CommunicationError, MissingError, UnsupportedError, UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.networks.executor import Array

if TYPE_CHECKING:
    from levelbench.distributed.launching.environment import RankPlace

_AWAKE_S = 1e-3


class Late(Exception):
    """The timeout has expired."""


def until(ask: Callable[[], Any], timeout_s: float, clock: Clock = HOST, *, naps: bool = False) -> Any:
    """The first true answer of ``ask``; raises :class:`Late` if there is none in time.

    ``naps``: after a millisecond, sleep for a hundredth of the time waited so far. Use it only when nothing is in
    progress that needs polling.
    """
    if answer := ask():
        return answer
    began_ns = clock.now_ns()
    while not (answer := ask()):
        waited_s = (clock.now_ns() - began_ns) * 1e-9
        if waited_s > timeout_s:
            raise Late
        if naps and waited_s > _AWAKE_S:
            sleep(waited_s / 100)
        else:
            os.sched_yield()
    return answer


def request_handle(
    named: Callable[[], AbstractContextManager[None]], request: Any, result: Callable[[], Array], timeout_s: float
) -> Handle:
    """The handle of a request; ``result`` makes its result, and ``named()`` turns MPI's errors into ours.

    Polling it advances everything that is in progress in this process.
    """

    def wait() -> Array:
        with named():
            until(request.Test, timeout_s)
        return result()

    def done() -> bool:
        with named():
            return bool(request.Test())

    return FunctionHandle(wait, done)


_MPI_OPS = {"add": "SUM", "maximum": "MAX", "minimum": "MIN", "multiply": "PROD"}


def reduction_of(mpi: Any, dtype: np.dtype[Any], op: Reduction = "sum") -> tuple[Any, Any]:
    """MPI's datatype for a dtype, and the operation that reduces its elements; of a mean the sum.

    MPI has no 16-bit floats, so they travel as integers of that width and NumPy joins them. ``UnsupportedError`` for a
    dtype that cannot be reduced.
    """
    function = REDUCTIONS[op]
    if dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        join = getattr(np, function)

        def reduce(given: Any, into: Any, datatype: Any) -> None:
            total = np.frombuffer(into, dtype)
            join(total, np.frombuffer(given, dtype), out=total)

        return mpi.UINT16_T, mpi.Op.Create(reduce, commute=True)
    if dtype.kind not in "iufc" or dtype.char == "g":
        raise UnsupportedError(
            f"the {op} of {dtype} over mpi", "MPI has no type for it", "cast it to a type that MPI can add"
        )
    return mpi.Datatype.fromcode(dtype.char), getattr(mpi, _MPI_OPS[function])


_INSTALL = 'pip install "levelbench[mpi]"'


def lacks() -> str | None:
    """What is missing, and how to get it; ``None`` if mpi4py and a program that starts MPI ranks are installed."""
    if importlib.util.find_spec("mpi4py") is None:
        return f"mpi4py is not installed: {_INSTALL}"
    here = Path(sys.executable).parent
    if not any(shutil.which(each) or (here / each).exists() for each in ("mpiexec", "mpirun", "srun")):
        return f"there is no MPI library (neither mpiexec nor srun): {_INSTALL}"
    return None


def open_mpi(place: RankPlace, timeout_s: float) -> MpiCommunicator:
    """Rank ``place.rank`` of a duplicate of ``MPI_COMM_WORLD``. Collective.

    ``MissingError`` without mpi4py or an MPI library, ``UsageError`` if ``place`` differs from MPI's own rank and size.
    """
    asked = "a communicator over mpi"
    if importlib.util.find_spec("mpi4py") is None:
        raise MissingError(asked, "mpi4py is not installed", _INSTALL)
    try:
        # The import initialises MPI, with the library's highest level of thread support.
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingError(asked, f"the MPI library does not load: {error}", _INSTALL) from error
    world = MPI.COMM_WORLD
    if (world.Get_rank(), world.Get_size()) != (place.rank, place.size):
        found = f"MPI calls it rank {world.Get_rank()} of {world.Get_size()}"
        raise UsageError(f"rank {place.rank} of {place.size} over mpi", found, "start the ranks by --engine mpi")
    return MpiCommunicator(world, timeout_s)


class MpiCommunicator(Communicator):
    """A rank of ``world`` (an ``mpi4py.MPI.Comm``), which is duplicated to keep its messages separate.

    ``threads`` is the library's thread level: with ``multiple``, any thread may call. Messages progress while MPI is
    called, by :meth:`Handle.wait` and :meth:`Handle.done`, unless the library has a thread for it
    (``MPICH_ASYNC_PROGRESS=1``). Arrays must be in host memory.
    """

    name = "mpi"
    algorithms = Algorithms()
    """What its traffic is counted as. This is nominal: the library chooses by size and topology, and may not tell."""

    def __init__(self, world: Any, timeout_s: float) -> None:
        from mpi4py import MPI

        self._mpi, self._world, self._timeout_s = MPI, world, timeout_s
        self._comm, self._near = world.Dup(), world.Dup()
        for each in (self._comm, self._near):
            each.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()
        levels = ("single", "funneled", "serialized", "multiple")
        self.threads = dict(zip((getattr(MPI, f"THREAD_{each.upper()}") for each in levels), levels, strict=True))[
            MPI.Query_thread()
        ]
        self._tags = int(self._comm.Get_attr(MPI.TAG_UB)) + 1
        self._reductions: dict[tuple[str, Reduction], tuple[Any, Any]] = {}
        self._open = True

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        memory = Memory(array)
        host = memory.host
        checked_op("all_reduce", op, array)
        if not len(host):
            return Done(memory.result())
        bits, operation = self._reduced(host, op)

        def result() -> Array:
            if op == "mean":
                np.divide(host, self.size, out=host)
            return memory.result()

        return self._start("all_reduce", lambda: self._comm.Iallreduce(self._mpi.IN_PLACE, bits, operation), result)

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        checked_rank("broadcast", root, self.size)
        memory = Memory(array, reads=self.rank == root)
        return self._start("broadcast", lambda: self._comm.Ibcast(as_bytes(memory.host), root), memory.result)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        checked_rank("send", to, self.size)
        checked_tag("send", tag, self._tags)
        return self._start(f"send to {to}", lambda: self._comm.Isend(as_bytes(dense(array)), to, tag), lambda: array)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        checked_rank("receive", source, self.size)
        checked_tag("receive", tag, self._tags)
        memory = Memory(like, reads=False)
        return self._start(
            f"receive from {source}", lambda: self._comm.Irecv(as_bytes(memory.host), source, tag), memory.result
        )

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """``MPI_Improbe`` and ``MPI_Imrecv``; a server that waits long leaves its core to the workers."""
        checked_tag("receive_any", tag, self._tags)
        memory, status, source = Memory(like, reads=False), self._mpi.Status(), self._mpi.ANY_SOURCE
        with self._named("receive from any"):
            message = until(lambda: self._comm.Improbe(source, tag, status), self._timeout_s, naps=True)
            until(message.Irecv(as_bytes(memory.host)).Test, self._timeout_s)
        return memory.result(), int(status.Get_source())

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        given = dense(array)
        checked_op("reduce_scatter", op, array)
        counts = [stop - start for start, stop in pairwise(pieces(len(given), self.size))]
        mine = np.empty(counts[self.rank], given.dtype)
        if len(given):
            (source, operation), (into, _) = self._reduced(given, op), self._reduced(mine, op)
            self._do("reduce_scatter", lambda: self._comm.Ireduce_scatter(source, into, counts, operation))
        if op == "mean":
            mine /= self.size
        return new(mine, array)

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        given = dense(array)
        found = np.empty((self.size, len(given)), given.dtype)
        self._do("all_gather", lambda: self._comm.Iallgather(as_bytes(given), as_bytes(found)))
        return rows(found, [array] * self.size)

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        checked_rank("gather", root, self.size)
        given = dense(array)
        found = np.empty((self.size if self.rank == root else 0, len(given)), given.dtype)
        into = as_bytes(found) if self.rank == root else None
        self._do("gather", lambda: self._comm.Igather(as_bytes(given), into, root))
        return None if into is None else rows(found, [array] * self.size)

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        checked_rank("scatter", root, self.size)
        memory = Memory(like, reads=False)
        source = as_bytes(self._stacked("scatter", arrays)) if self.rank == root else None
        self._do("scatter", lambda: self._comm.Iscatter(source, as_bytes(memory.host), root))
        return memory.result()

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        given = self._stacked("all_to_all", arrays)
        found = np.empty_like(given)
        self._do("all_to_all", lambda: self._comm.Ialltoall(as_bytes(given), as_bytes(found)))
        return rows(found, arrays)

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """``MPI_Isend`` and ``MPI_Irecv``, in their own communicator."""
        given = dense(array)
        found = np.empty((len(neighbours), len(given)), given.dtype)
        for each in neighbours:
            checked_rank("exchange", each, self.size)
        with self._named("exchange"):
            requests = [self._near.Irecv(as_bytes(row), each) for row, each in zip(found, neighbours, strict=True)]
            requests += [self._near.Isend(as_bytes(given), each) for each in neighbours]
            until(lambda: self._mpi.Request.Testall(requests), self._timeout_s)
        return rows(found, [array] * len(neighbours))

    def barrier(self) -> None:
        self._do("barrier", self._comm.Ibarrier)

    def close(self) -> None:
        """Wait for the other ranks, then free the duplicates. MPI itself ends with the process."""
        if not self._open:
            return
        self.barrier()
        self._open = False
        self._comm.Free()
        self._near.Free()

    def abort(self) -> None:
        """Abort the job when this process ends; MPI would otherwise wait for the other ranks."""
        if self._open:
            self._open = False
            atexit.register(self._abort)

    def _abort(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(1)

    def _start(self, what: str, start: Callable[[], Any], result: Callable[[], Array]) -> Handle:
        with self._named(what):
            request = start()
        return request_handle(partial(self._named, what), request, result, self._timeout_s)

    def _do(self, what: str, start: Callable[[], Any]) -> None:
        with self._named(what):
            until(start().Test, self._timeout_s)

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Turn MPI's errors and timeouts into errors that name the operation."""
        asked = f"{what} of rank {self.rank} of {self.size} over mpi"
        if not self._open:
            raise UsageError(asked, "the communicator was closed", "open another one")
        do = "read the logs of the other ranks"
        try:
            yield
        except Late:
            found = f"it had not finished after {self._timeout_s:g} s: a rank is lost or too late"
            raise CommunicationError(asked, found, do) from None
        except self._mpi.Exception as error:
            raise CommunicationError(asked, f"MPI reports: {error.Get_error_string()}", do) from error

    def _reduced(self, host: HostArray, op: Reduction) -> tuple[list[Any], Any]:
        """The memory with its MPI datatype, and the operation that reduces it."""
        key = str(host.dtype), op
        if key not in self._reductions:
            self._reductions[key] = reduction_of(self._mpi, host.dtype, op)
        datatype, operation = self._reductions[key]
        return [host.view(np.uint16) if datatype == self._mpi.UINT16_T else host, datatype], operation

    def _stacked(self, what: str, arrays: Sequence[Array] | None) -> HostArray:
        """All arrays stacked, shape (size, n)."""
        return np.stack([dense(each) for each in checked_count(what, arrays, self.size)])
