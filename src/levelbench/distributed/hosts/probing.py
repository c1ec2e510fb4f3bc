"""Which hosts can be reached: each tries a connection to each other one, and a refusal is an answer."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from levelbench.distributed.hosts.namespaces import FOLDER
from levelbench.measure.clocks import HOST

__all__ = ["unreachable"]

_CLONE_NEWNET = 0x40000000
_DISCARD = 9
"""A port on which nobody listens, so that a host that is there refuses."""
_ANSWERS = {0, errno.ECONNREFUSED}


def unreachable(names: Sequence[str], addresses: Sequence[str], timeout_s: float) -> list[int]:
    """Numbers of the hosts that none of the others reaches within the time; none where there is no other."""
    if len(names) < 2:
        return []
    # A thread's network is its own; none of these is used again, so none has to find back.
    with ThreadPoolExecutor(len(names)) as pool:
        heard = list(pool.map(partial(_reached, addresses=addresses, timeout_s=timeout_s), names, range(len(names))))
    return [host for host in range(len(names)) if not any(host in reached for reached in heard)]


def _reached(name: str, own: int, addresses: Sequence[str], timeout_s: float) -> set[int]:
    """The hosts other than itself that answer a host."""
    with Path(FOLDER, name).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    waiting: dict[int, tuple[int, socket.socket]] = {}
    found = set()
    for host, address in enumerate(addresses):
        if host != own:
            probe = socket.socket()
            probe.setblocking(False)
            if probe.connect_ex((address, _DISCARD)) in _ANSWERS:
                found.add(host)
                probe.close()
            else:
                waiting[probe.fileno()] = host, probe
    return found | _answered(waiting, timeout_s)


def _answered(waiting: dict[int, tuple[int, socket.socket]], timeout_s: float) -> set[int]:
    found = set()
    until_ns = HOST.now_ns() + int(timeout_s * 1e9)
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLOUT)
    while waiting and (left_ns := until_ns - HOST.now_ns()) > 0:
        for descriptor, _ in poll.poll(left_ns * 1e-6):
            host, probe = waiting.pop(descriptor)
            if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ANSWERS:
                found.add(host)
            poll.unregister(descriptor)
            probe.close()
    for _, probe in waiting.values():
        probe.close()
    return found
