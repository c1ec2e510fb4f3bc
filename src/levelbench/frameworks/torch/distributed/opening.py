"""Opens PyTorch's process groups: the rendezvous, the network interface, and the way out.

The one idea: the group is PyTorch's default one, so what a user's own code or DDP does without a word about groups
works beside the communicator.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from levelbench.errors import CommunicationError, MissingError, UnsupportedError, UsageError
from levelbench.frameworks.torch.communicator import TorchCommunicator

__all__ = ["interface_towards", "open_group"]

_INTERFACE = "GLOO_SOCKET_IFNAME"
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_ASK_ADDRESS = 0x8915  # SIOCGIFADDR


def open_group(kind: str, place: Any, timeout_s: float) -> TorchCommunicator:
    """Meet the other ranks at ``place``'s address (``levelbench.distributed.launching.environment.Place``). Collective.

    ``MissingError`` where this build of PyTorch lacks the backend, ``CommunicationError`` where not all ranks come in
    time.
    """
    device = _device(kind, place)
    if place.size > 1 and not place.port:
        found = "the launcher agreed on no port where they meet"
        raise UsageError(f"{place.size} ranks over {kind}", found, "set MASTER_ADDR and MASTER_PORT for all of them")
    timeout = timedelta(seconds=timeout_s)
    try:
        store: dist.Store = dist.TCPStore(place.address, place.port, place.size, _hosts(place), timeout)
        # What ranks said there before they were started again would be taken for what these say.
        store = dist.PrefixStore(f"started-{os.environ.get(_RESTARTS, '0')}", store)
        with _interface(kind, place):
            dist.init_process_group(kind, store=store, rank=place.rank, world_size=place.size, timeout=timeout)
            group = dist.group.WORLD._get_backend(device)
            communicator = TorchCommunicator(group, kind, device, timeout_s, _leave)
            communicator.barrier()
    except RuntimeError as error:
        raise CommunicationError(
            f"{place.size} ranks over {kind} that meet at {place.address} port {place.port}",
            f"rank {place.rank} did not meet them all within {timeout_s:g} s: {str(error).splitlines()[0]}",
            "see that all ranks were started, and that they can reach that address",
        ) from error
    return communicator


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _device(kind: str, place: Any) -> torch.device:
    if kind == "gloo":
        if not dist.is_gloo_available():
            raise MissingError("a communicator over gloo", "this build of PyTorch has none", "use mpi")
        return torch.device("cpu")
    if kind != "nccl":
        raise UnsupportedError(f"a communicator over {kind!r} of torch", "it opens gloo and nccl", "use one of them")
    if not dist.is_nccl_available() or not torch.cuda.is_available():
        found = "this build of PyTorch has none" if not dist.is_nccl_available() else "PyTorch sees no GPU here"
        raise MissingError("a communicator over nccl", found, "use gloo")
    device = torch.device("cuda", place.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def _hosts(place: Any) -> bool:
    """Whether this rank keeps the store: rank 0, unless torchrun's agent does."""
    return place.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


@contextmanager
def _interface(kind: str, place: Any) -> Iterator[None]:
    """Let gloo listen where the others find this rank: it would ask what the host is called, and trust the answer."""
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
    """The network interface from which packets to ``address`` leave; ``None`` where the system does not say."""
    # A datagram socket is given its own address when it is told its peer's; nothing is sent.
    with suppress(OSError), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        asked.connect((address, port or 1))
        own = asked.getsockname()[0]
        for _, name in socket.if_nameindex():
            if _address_of(asked, name) == own:
                return name
    return None


def _address_of(asked: socket.socket, interface: str) -> str:
    """Its IPv4 address; empty where it has none."""
    try:
        answer = fcntl.ioctl(asked.fileno(), _ASK_ADDRESS, struct.pack("256s", interface.encode()[:15]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])
