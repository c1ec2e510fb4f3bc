"""A communicator over PyTorch's process groups (gloo on hosts, NCCL between GPUs), and how groups are opened.

Calls go directly to the group's backend, below ``torch.distributed``'s functions, whose checks and bookkeeping cost as
much as a small message. gloo posts messages between two ranks from the calling thread; its collectives run on the
group's own threads in the order of the calls. The group is PyTorch's default one, so a user's own code or DDP works
next to it. The NCCL paths follow PyTorch's documentation; no test has run them on GPUs.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from threading import Thread
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from levelbench.distributed.communicator import (
    Communicator,
    Done,
    Handle,
    Reduction,
    checked_count,
    checked_op,
    checked_rank,
    checked_tag,
)
from levelbench.distributed.launching.environment import accelerator_of
from levelbench.distributed.packing import pieces
from levelbench.distributed.traffic import Algorithms
from levelbench.errors import CommunicationError, MissingError, UnsupportedError, UsageError
from levelbench.frameworks.torch.arrays import from_numpy, to_numpy
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

if TYPE_CHECKING:
    from levelbench.distributed.launching.environment import RankPlace


_LIBRARIES = ("gloo", "nccl", "processgroup", "tcpstore")


def raise_lost(what: str, error: RuntimeError) -> None:
    """Raise ``CommunicationError`` if ``error`` comes from the communication library; otherwise return.

    ``what`` is the operation that failed. Call it in the error's handler, which then re-raises the error.
    """
    said = str(error)
    if isinstance(error, dist.DistError) or any(name in said.lower() for name in _LIBRARIES):
        first = said.splitlines()[0] if said else type(error).__name__
        raise CommunicationError(
            what, f"a rank was lost or timed out: {first}", "read the logs of the other ranks"
        ) from error


# A pending operation of PyTorch as a handle.


@final
class Pending(Handle):
    """A pending ``Work``; ``named`` names it in errors, ``result`` returns its result.

    gloo cannot be polled for whether a message has been sent or received (``polled`` is false), and a wait that times
    out closes the connection. So a thread waits from the first call of :meth:`done` on.
    """

    def __init__(
        self,
        named: Callable[[str], AbstractContextManager[None]],
        what: str,
        work: Any,
        result: Callable[[], Array],
        *,
        polled: bool,
    ) -> None:
        self._named, self._what, self._work, self._result, self._polled = named, what, work, result, polled
        self._watch: Thread | None = None
        self._error: RuntimeError | None = None

    def wait(self) -> Array:
        with self._named(self._what):
            if self._watch is None:
                self._work.wait()
            else:
                self._watch.join()
                if self._error is not None:
                    raise self._error
        return self._result()

    def done(self) -> bool:
        """Whether the library reports completion, or the waiting thread has ended."""
        if self._polled:
            return bool(self._work.is_completed())
        if self._watch is None:
            self._watch = Thread(target=self._wait, name=self._what, daemon=True)
            self._watch.start()
        return not self._watch.is_alive()

    def _wait(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            self._error = error


# Native arrays as the flat tensors that the library sends and receives, and back.
# Memory is shared where possible: a tensor on the library's device and a writable NumPy array are used in place.
# Anything else is copied, and the result is copied back into the given array if it is writable.


_COMMON = frozenset("fdil")
"""NumPy's type codes of float32, float64, int32 and int64."""


@final
class Cargo:
    """A native array as a flat, dense tensor on ``device``; ``reads``: the library reads it, too."""

    def __init__(self, array: Array, device: torch.device, *, reads: bool = True) -> None:
        self._array = array
        if isinstance(array, Tensor):
            tensor = array.detach()
            self._shape: tuple[int, ...] = tensor.shape
            self._shared: bool = tensor.device == device and tensor.is_contiguous()
            if self._shared:
                self.flat = tensor.view(-1)
            elif reads:
                self.flat = tensor.to(device).reshape(-1)
                if self.flat.data_ptr() == tensor.data_ptr():
                    self.flat = self.flat.clone()
            else:
                self.flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device=device)
            return
        self._shared = _lends(array) and device.type == "cpu"
        if self._shared and array.dtype.char in _COMMON:
            # The common case, without a lookup of the type.
            self._shape, self.flat = array.shape, torch.from_numpy(array).view(-1)
            return
        host = array if isinstance(array, np.ndarray) else np.asarray(array)
        self._shape = host.shape
        self.flat = from_numpy(host if self._shared else host.copy(), device).reshape(-1)

    @property
    def shares(self) -> bool:
        """Whether :attr:`flat` and the array share memory."""
        return self._shared

    def result(self) -> Array:
        """The values of :attr:`flat`, in the given array if it is writable, else in a new one like it."""
        array = self._array
        if self._shared:
            return array
        if isinstance(array, Tensor):
            with torch.no_grad():
                array.copy_(self.flat.view(self._shape))
            return array
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = to_numpy(self.flat.view(self._shape))
            return array
        return result_like(array, self.flat, self._shape)


def result_like(array: Array, flat: Tensor, shape: tuple[int, ...]) -> Array:
    """The elements of a flat tensor as a new array of this shape, of the kind and on the device of ``array``."""
    if isinstance(array, Tensor):
        return flat.view(shape).to(array.device)
    host = to_numpy(flat.view(shape))
    if isinstance(array, np.ndarray | np.generic):
        return host
    return namespace(array).asarray(host, device=array.device)


def _lends(array: Array) -> bool:
    """Whether PyTorch can write to the memory of a NumPy array."""
    return isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative


_NEIGHBOURS = (1 << 31) - 1
"""The tag of :meth:`Communicator.exchange`: the largest that gloo allows."""
_NEVER = _NEIGHBOURS - 1
"""The tag of a message that is never sent."""
_REDUCED = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64}
)
_OPS: dict[Reduction, Any] = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.AVG,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}


class TorchCommunicator(Communicator):
    """Rank ``group.rank()`` of a ``torch.distributed`` backend: ``ProcessGroupGloo`` or ``ProcessGroupNCCL``.

    :meth:`close` calls ``leave`` once, after all ranks have reached it.
    """

    algorithms = Algorithms()
    """gloo's all-reduce is a reduce-scatter and an all-gather around a ring, so all ranks get the same bits."""

    def __init__(
        self, group: Any, name: str, device: torch.device, timeout_s: float, leave: Callable[[], None] | None = None
    ) -> None:
        self.name, self.rank, self.size = name, group.rank(), group.size()
        self.device = device
        self._group, self._timeout_s, self._leave = group, timeout_s, leave
        self._gloo = name == "gloo"
        self._options = {op: _reduction(each) for op, each in _OPS.items()}

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """A ring over gloo."""
        cargo = Cargo(array, self.device)
        self._require_reduction("all_reduce", array, cargo.flat, op)
        if self.size == 1 or not cargo.flat.numel():
            return Done(cargo.result())
        return self._start("all_reduce", lambda: self._group.allreduce([cargo.flat], self._options[op]), cargo.result)

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        """A tree over gloo."""
        checked_rank("broadcast", root, self.size)
        cargo = Cargo(array, self.device, reads=self.rank == root)
        if self.size == 1 or not cargo.flat.numel():
            return Done(cargo.result())
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        return self._start("broadcast", lambda: self._group.broadcast([_moved(cargo.flat)], options), cargo.result)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """Posted immediately; not over NCCL."""
        self._require_posted("start_send")
        return self._send(array, to, tag)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """Posted immediately; not over NCCL."""
        self._require_posted("start_receive")
        return self._receive(like, source, tag)

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        """Over NCCL ``to`` must be receiving: of two ranks that both send first, each waits for the other."""
        self._send(array, to, tag).wait()

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        return self._receive(like, source, tag).wait()

    def _send(self, array: Array, to: int, tag: int) -> Handle:
        self._require_other("send", to, tag)
        cargo = Cargo(array, self.device)
        return self._start(
            f"send to {to}", lambda: self._group.send([_moved(cargo.flat)], to, tag), lambda: array, polled=False
        )

    def _receive(self, like: Array, source: int, tag: int) -> Handle:
        self._require_other("receive", source, tag)
        cargo = Cargo(like, self.device, reads=False)
        return self._start(
            f"receive from {source}",
            lambda: self._group.recv([_moved(cargo.flat)], source, tag),
            cargo.result,
            polled=False,
        )

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """Over gloo only: NCCL must know the sender."""
        checked_tag("receive_any", tag, _NEVER)
        self._require_gloo("receive_any")
        cargo = Cargo(like, self.device, reads=False)
        with self._named("receive from any"):
            work = self._group.recv_anysource([_moved(cargo.flat)], tag)
            work.wait()
        return cargo.result(), work._source_rank()

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """Over gloo an all-to-all of pieces and a local reduction: gloo implements reduce-scatter as an all-reduce."""
        cargo = Cargo(array, self.device)
        flat = cargo.flat
        self._require_reduction("reduce_scatter", array, flat, op)
        counts = [stop - start for start, stop in pairwise(pieces(len(flat), self.size))]
        mine = torch.empty(counts[self.rank], dtype=flat.dtype, device=flat.device)
        if self.size == 1 or not len(flat):
            mine.copy_(flat)
        elif self._gloo:
            found = torch.empty(self.size, len(mine), dtype=flat.dtype)
            splits = [len(mine)] * self.size, counts
            self._do("reduce_scatter", lambda: self._group.alltoall_base(found.view(-1), flat, *splits))
            if op in ("max", "min"):
                (torch.amax if op == "max" else torch.amin)(found, 0, out=mine)
            else:
                (torch.prod if op == "product" else torch.sum)(found, 0, dtype=flat.dtype, out=mine)
        else:
            options = dist.ReduceScatterOptions()
            options.reduceOp = dist.ReduceOp.SUM if op == "mean" else _OPS[op]
            parts = list(flat.split(counts))
            self._do("reduce_scatter", lambda: self._group.reduce_scatter([mine], [parts], options))
        if op == "mean":
            mine /= self.size
        return result_like(array, mine, (len(mine),))

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """A ring over gloo."""
        cargo = Cargo(array, self.device)
        found = self._rooms(cargo.flat)
        if cargo.flat.numel():
            self._do("all_gather", lambda: self._group.allgather([_all_moved(found)], [_moved(cargo.flat)]))
        return tuple(result_like(array, each, tuple(array.shape)) for each in found)

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """Every rank sends directly to the root."""
        checked_rank("gather", root, self.size)
        cargo, here = Cargo(array, self.device), self.rank == root
        found = self._rooms(cargo.flat) if here else []
        options = dist.GatherOptions()
        options.rootRank = root
        into = [_all_moved(found)] if here else []
        if cargo.flat.numel():
            self._do("gather", lambda: self._group.gather(into, [_moved(cargo.flat)], options))
        return tuple(result_like(array, each, tuple(array.shape)) for each in found) if here else None

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """The root sends directly to every rank."""
        checked_rank("scatter", root, self.size)
        cargo = Cargo(like, self.device, reads=False)
        given: list[list[Tensor]] = []
        if self.rank == root:
            arrays = checked_count("scatter", arrays, self.size)
            given = [[_moved(Cargo(each, self.device).flat) for each in arrays]]
        options = dist.ScatterOptions()
        options.rootRank = root
        if cargo.flat.numel():
            self._do("scatter", lambda: self._group.scatter([_moved(cargo.flat)], given, options))
        return cargo.result()

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Pairwise over gloo."""
        checked_count("all_to_all", arrays, self.size)
        given = [Cargo(each, self.device).flat for each in arrays]
        found = [torch.empty_like(each) for each in given]
        if given[0].numel():
            self._do("all_to_all", lambda: self._group.alltoall(_all_moved(found), _all_moved(given)))
        return tuple(result_like(array, each, tuple(array.shape)) for array, each in zip(arrays, found, strict=True))

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """All messages are in flight at the same time."""
        sent = Cargo(array, self.device).flat
        found = [torch.empty_like(sent) for _ in neighbours]
        for each in neighbours:
            self._require_other("exchange", each, 0)
        tag = _NEIGHBOURS if self._gloo else 0
        with self._named("exchange"):
            with self._coalesced():
                works = [self._group.send([_moved(sent)], each, tag) for each in neighbours]
                works += [
                    self._group.recv([_moved(room)], each, tag) for room, each in zip(found, neighbours, strict=True)
                ]
            for work in works if self._gloo else ():
                work.wait()
        return tuple(result_like(array, each, tuple(array.shape)) for each in found)

    def barrier(self) -> None:
        options = dist.BarrierOptions()
        if self.device.type == "cuda":
            options.device_ids = [self.device.index or 0]
        self._do("barrier", lambda: self._group.barrier(options))

    def close(self) -> None:
        """Wait for the other ranks, then release the group."""
        leave, self._leave = self._leave, None
        if self._group is None:
            return
        try:
            self.barrier()
        finally:
            self._group = None
            if leave is not None:
                leave()

    def abort(self) -> None:
        """Close the connections, which ends pending operations on both sides."""
        group, self._group = self._group, None
        leave, self._leave = self._leave, None
        if group is None:
            return
        if self._gloo and self.size > 1:
            # gloo's own abort leaves connections open, and its destructor waits for pending operations. But it closes
            # all connections once a wait for a message has timed out.
            room, other = torch.empty(1), (self.rank + 1) % self.size
            with suppress(RuntimeError):
                group.recv([room], other, _NEVER).wait(timedelta(milliseconds=1))
        else:
            group.abort()
        if leave is not None:
            leave()

    def _start(
        self, what: str, start: Callable[[], Any], result: Callable[[], Array], *, polled: bool = True
    ) -> Handle:
        with self._named(what):
            work = start()
        return Pending(self._named, what, work, result, polled=polled or not self._gloo)

    def _do(self, what: str, start: Callable[[], Any]) -> None:
        with self._named(what):
            start().wait()

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Raises errors of the library as errors that name the operation."""
        asked = f"{what} of rank {self.rank} of {self.size} over {self.name}"
        if self._group is None:
            raise UsageError(asked, "the communicator was closed", "open another one")
        try:
            yield
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            late = f"; the timeout is {self._timeout_s:g} s" if "imed out" in said or "timeout" in said else ""
            raise CommunicationError(
                asked, f"a rank was lost or timed out: {said}{late}", "read the logs of the other ranks"
            ) from error

    @contextmanager
    def _coalesced(self) -> Iterator[None]:
        """NCCL must start simultaneous sends and receives as one operation, or two ranks would wait for each other."""
        if self._gloo:
            yield
            return
        self._group._start_coalescing()
        yield
        self._group._end_coalescing().wait()

    def _rooms(self, like: Tensor) -> list[Tensor]:
        return [torch.empty_like(like) for _ in range(self.size)]

    def _require_other(self, what: str, rank: int, tag: int) -> None:
        checked_rank(what, rank, self.size)
        checked_tag(what, tag, _NEVER)
        if rank == self.rank:
            raise UsageError(f"{what} of rank {rank} with itself", "the library cannot do this", "use the array itself")
        if tag and not self._gloo:
            raise UnsupportedError(f"tag {tag} over {self.name}", "its messages have no tags", "use tag 0, or gloo")

    def _require_posted(self, what: str) -> None:
        """Over NCCL messages block the stream in the order in which they are started, unless they are one group."""
        if not self._gloo:
            found = "a message waits there for those started before it, and of two ranks each would wait for the other"
            raise UnsupportedError(f"{what} over {self.name}", found, "use exchange, or gloo or mpi")

    def _require_gloo(self, what: str) -> None:
        if not self._gloo:
            raise UnsupportedError(f"{what} over {self.name}", "the library does not support it", "use gloo or mpi")

    def _require_reduction(self, what: str, array: Array, flat: Tensor, op: Reduction) -> None:
        checked_op(what, op, array)
        if flat.dtype not in _REDUCED:
            raise UnsupportedError(f"{what} of {flat.dtype} over {self.name}", "it cannot reduce this type", "cast it")


def _reduction(op: Any) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = op
    options.asyncOp = True
    return options


def _moved(flat: Tensor) -> Tensor:
    """The same memory as a type that every backend can send; bytes for types that it cannot."""
    return flat if flat.dtype in _REDUCED else flat.view(torch.uint8)


def _all_moved(flats: Sequence[Tensor]) -> list[Tensor]:
    return [_moved(each) for each in flats]


# Opening PyTorch's default process group: the rendezvous and the network interface.


_INTERFACE = "GLOO_SOCKET_IFNAME"
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_ASK_ADDRESS = 0x8915  # SIOCGIFADDR


def open_group(kind: str, place: RankPlace, timeout_s: float) -> TorchCommunicator:
    """Connect to the other ranks at ``place``'s address. Collective.

    Raises ``MissingError`` if this build of PyTorch lacks the backend, ``CommunicationError`` if not all ranks connect
    in time.
    """
    device = _device(kind, place)
    if place.size > 1 and not place.port:
        found = "the launcher did not choose a port for the rendezvous"
        raise UsageError(f"{place.size} ranks over {kind}", found, "set MASTER_ADDR and MASTER_PORT for all of them")
    timeout = timedelta(seconds=timeout_s)
    try:
        store: dist.Store = dist.TCPStore(place.address, place.port, place.size, _hosts(place), timeout)
        # A prefix per restart: otherwise entries of the ranks before a restart would be taken for current ones.
        store = dist.PrefixStore(f"started-{os.environ.get(_RESTARTS, '0')}", store)
        with _interface(kind, place):
            # With its device, NCCL connects now and not in the first collective, which a clock would measure.
            own = device if device.type == "cuda" else None
            dist.init_process_group(
                kind, store=store, rank=place.rank, world_size=place.size, timeout=timeout, device_id=own
            )
            group = dist.group.WORLD._get_backend(device)
            communicator = TorchCommunicator(group, kind, device, timeout_s, _leave)
            communicator.barrier()
    except RuntimeError as error:
        raise CommunicationError(
            f"{place.size} ranks over {kind} at {place.address} port {place.port}",
            f"rank {place.rank} did not connect to all of them within {timeout_s:g} s: {str(error).splitlines()[0]}",
            "check that all ranks were started and can reach this address",
        ) from error
    return communicator


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _device(kind: str, place: RankPlace) -> torch.device:
    if kind == "gloo":
        if not dist.is_gloo_available():
            raise MissingError("a communicator over gloo", "this build of PyTorch does not have it", "use mpi")
        return torch.device("cpu")
    if kind != "nccl":
        raise UnsupportedError(f"a communicator over {kind!r} of torch", "it supports gloo and nccl", "use one of them")
    if not dist.is_nccl_available() or not torch.cuda.is_available():
        found = "this build of PyTorch does not have it" if not dist.is_nccl_available() else "PyTorch sees no GPU here"
        raise MissingError("a communicator over nccl", found, "use gloo")
    count, own = torch.cuda.device_count(), accelerator_of(place.local_rank, os.environ)
    if own >= count:
        asked = f"rank {place.rank} over nccl, number {place.local_rank} on its machine"
        found = f"PyTorch sees {count} GPU{'s' * (count != 1)}, and each rank needs its own"
        raise UsageError(asked, found, "start as many ranks a machine as it has GPUs, or use gloo")
    device = torch.device("cuda", own)
    torch.cuda.set_device(device)
    return device


def _hosts(place: RankPlace) -> bool:
    """Whether this rank hosts the store: rank 0, unless torchrun's agent does."""
    return place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


@contextmanager
def _interface(kind: str, place: RankPlace) -> Iterator[None]:
    """Make gloo listen on the interface that other ranks can reach; by default it resolves the host's own name."""
    found = interface_towards(place.address, place.port) if kind == "gloo" and _INTERFACE not in os.environ else None
    if found is None:
        yield
        return
    os.environ[_INTERFACE] = found
    try:
        yield
    finally:
        del os.environ[_INTERFACE]


def interface_towards(address: str, port: int) -> str | None:
    """The network interface that sends packets to ``address``; ``None`` if the system does not tell."""
    # Connecting a datagram socket assigns its own address; nothing is sent.
    with suppress(OSError), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        asked.connect((address, port or 1))
        own = asked.getsockname()[0]
        for _, name in socket.if_nameindex():
            if _address_of(asked, name) == own:
                return name
    return None


def _address_of(asked: socket.socket, interface: str) -> str:
    """The interface's IPv4 address; empty if it has none."""
    try:
        answer = fcntl.ioctl(asked.fileno(), _ASK_ADDRESS, struct.pack("256s", interface.encode()[:15]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])
