"""A switch in user space: ``python -m levelbench.distributed.launching.relay PARENT NAMESPACE...``.

It creates a TAP device ``eth0`` in each namespace and forwards frames between them: delayed by the sender's delay,
dropped by its loss, and limited to the receiver's rate. Settings arrive line by line on standard input; when that ends,
so does the relay. Kernels without netem still have TUN/TAP. Frames stay as large as the kernel makes them, 64 KiB with
segmentation offload, so that Python handles few; with packet loss, offload is switched off, so that packets are dropped
individually.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from levelbench.measure.clocks import HOST

MAC = "02:4c:42:00:00:{:02x}"
"""The address of a host's device by its number: tells the relay where a frame goes."""

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_OFFLOAD_CHECKSUM, _OFFLOAD_SEGMENTS = 0x01, 0x02 | 0x04
_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_VNET_HEADER = 10
_FRAME = 1 << 17
_AT_ONCE = 64
_CREDIT_NS = 5_000_000
"""How much delay of this process, as on a busy machine, a receiver's rate may make up for."""
_QUEUE_S = 0.2
_QUEUE_BYTES = 1 << 18
"""A receiver's queue: this time at its rate, and at least this many bytes. A frame that finds it full is lost."""


@dataclass
class Port:
    """A host's current link. ``free_ns`` is when its last frame will have been received."""

    tap: int
    bits_per_s: float | None = None
    delay_ns: int = 0
    loss: float = 0.0
    up: bool = True
    free_ns: int = 0


class Relay:
    """Frames in flight between ports: who gets which, and when."""

    def __init__(self, ports: Sequence[Port], seed: int = 0) -> None:
        self._ports = ports
        self._random = random.Random(seed)
        self._waiting: list[tuple[int, int, int, bytes]] = []
        self._count = 0

    def take(self, source: int, frame: bytes, now_ns: int) -> None:
        """Accept a frame from a host: virtio's header, then Ethernet's."""
        port = self._ports[source]
        if not port.up or (port.loss and self._random.random() < port.loss):
            return
        to = frame[_VNET_HEADER : _VNET_HEADER + 6]
        if to[0] & 1:
            targets = [at for at in range(len(self._ports)) if at != source]
        else:
            targets = [to[5]] if to[5] < len(self._ports) and to[:5] == b"\x02\x4c\x42\x00\x00" else []
        for target in targets:
            due_ns = self._due(self._ports[target], len(frame) - _VNET_HEADER, now_ns + port.delay_ns)
            if due_ns is not None:
                self._count += 1
                heapq.heappush(self._waiting, (due_ns, self._count, target, frame))

    def _due(self, port: Port, nbytes: int, arrives_ns: int) -> int | None:
        """When a port will have received a frame that arrives then; ``None`` if its queue is full."""
        if port.bits_per_s is None:
            return arrives_ns
        starts_ns = max(arrives_ns - _CREDIT_NS, port.free_ns)
        room_ns = max(_QUEUE_S, _QUEUE_BYTES * 8 / port.bits_per_s) * 1e9
        if starts_ns - arrives_ns > room_ns:
            return None
        port.free_ns = starts_ns + int(nbytes * 8e9 / port.bits_per_s)
        return max(arrives_ns, port.free_ns)

    def due(self, now_ns: int) -> list[tuple[int, bytes]]:
        """The frames received by now, with their ports, in order."""
        found = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, _, target, frame = heapq.heappop(self._waiting)
            if self._ports[target].up:
                found.append((target, frame))
        return found

    def next_ns(self) -> int | None:
        """When the next frame is due; ``None`` if there is none in flight."""
        return self._waiting[0][0] if self._waiting else None


def main(arguments: Sequence[str]) -> int:
    """Create the devices, print ``ready``, and forward frames until standard input ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # By default the kernel may wake a sleeper 50 us late to save power.
    libc.prctl(_PR_SET_TIMERSLACK, 1)
    if os.getppid() != int(arguments[0]):
        return 1
    # A switch has its own hardware; here it takes precedence over the ranks whenever a frame is due.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    ports = [Port(_open_tap(libc, name)) for name in arguments[1:]]
    os.set_blocking(0, False)
    os.write(1, b"ready\n")
    _serve(ports, Relay(ports))
    return 0


def _open_tap(libc: ctypes.CDLL, namespace: str) -> int:
    """Create a TAP device ``eth0`` in a namespace. Its descriptor keeps working from any namespace."""
    with Path("/run/netns", namespace).open("rb") as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    _offload(tap, segments=True)
    return tap


def _offload(tap: int, segments: bool) -> None:
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _OFFLOAD_CHECKSUM | (_OFFLOAD_SEGMENTS if segments else 0))


def _serve(ports: Sequence[Port], relay: Relay) -> None:
    hosts = {port.tap: at for at, port in enumerate(ports)}
    pending = b""
    while True:
        next_ns = relay.next_ns()
        wait_s = None if next_ns is None else max(0.0, (next_ns - HOST.now_ns()) * 1e-9)
        # Not epoll, which waits for whole milliseconds.
        ready, _, _ = select.select([0, *hosts], [], [], wait_s)
        for descriptor in ready:
            if descriptor == 0:
                chunk = os.read(0, 65536)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    _set(ports, json.loads(line))
            else:
                _read_all(descriptor, hosts[descriptor], relay)
        for target, frame in relay.due(HOST.now_ns()):
            _write(ports[target].tap, frame)


def _read_all(tap: int, host: int, relay: Relay) -> None:
    for _ in range(_AT_ONCE):
        try:
            frame = os.read(tap, _FRAME)
        except (BlockingIOError, OSError):
            return
        relay.take(host, frame, HOST.now_ns())


def _write(tap: int, frame: bytes) -> None:
    try:
        os.write(tap, frame)
    except (BlockingIOError, OSError):
        # The device is down or its queue is full: the frame is lost, as on any wire.
        return


def _set(ports: Sequence[Port], settings: dict[str, float | bool | None]) -> None:
    """Apply a line of settings, and acknowledge it."""
    port = ports[int(settings["host"] or 0)]
    rate = settings["bits_per_s"]
    port.bits_per_s = None if rate is None else float(rate)
    port.delay_ns = int(float(settings["delay_s"] or 0) * 1e9)
    port.loss = float(settings["loss"] or 0)
    port.up = bool(settings["up"])
    port.free_ns = 0
    _offload(port.tap, segments=port.loss == 0)
    os.write(1, b"set\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
