"""Several hosts on one machine: network namespaces, with links of any rate, delay and loss.

Nothing here touches the machine's own network: all devices and addresses live inside the namespaces, joined by a switch
in its own namespace, and vanish with them. A namespace's name contains the id and start of the process that owns it, so
what a killed owner left behind is recognised, and removed by the next user.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, final

from levelbench.distributed.launching.environment import start_of
from levelbench.distributed.launching.relay import MAC
from levelbench.errors import CommunicationError, MissingError, UsageError

_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"(\d+(?:\.\d+)?)"


@dataclass(frozen=True)
class Link:
    """A host's link to the switch and back; empty strings set no limit.

    ``rate`` is in bits per second, as ``100mbit``, in each direction. ``delay``, as ``5ms``, and ``loss``, as ``1%``,
    apply to what the host sends: a round trip between two hosts takes both delays. ``method`` is how it is implemented
    once set: ``veth``, with ``tbf`` for the rate, ``netem``, or ``relay``, a switch in user space.
    """

    rate: str = ""
    delay: str = ""
    loss: str = ""
    method: str = ""

    def __post_init__(self) -> None:
        _ = self.bits_per_s, self.delay_s, self.loss_share

    @property
    def bits_per_s(self) -> float | None:
        """The rate; ``None`` without a limit."""
        rate = _read("rate", self.rate, _BITS, "100mbit or 1gbit")
        if rate is not None and rate <= 0:
            raise UsageError("a link of rate 0", "nothing would get through", "take the host's link down instead")
        return rate

    @property
    def delay_s(self) -> float:
        """The delay in seconds."""
        return _read("delay", self.delay, _SECONDS, "5ms or 200us") or 0.0

    @property
    def loss_share(self) -> float:
        """The share of lost packets, from 0 to 1."""
        share = (_read("loss", self.loss, {"%": 1.0}, "1%") or 0.0) / 100
        if share > 1:
            raise UsageError(f"a link with loss {self.loss!r}", "at most 100% can be lost", "give at most 100%")
        return share

    @property
    def only_rate(self) -> bool:
        """Whether there is neither delay nor loss."""
        return self.delay_s == 0 and self.loss_share == 0


def _read(what: str, text: str, units: dict[str, float], example: str) -> float | None:
    if not text:
        return None
    found = re.fullmatch(_NUMBER + r"\s*([a-z%]*)", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in units:
        raise UsageError(
            f"a link with {what} {text!r}", f"its unit must be one of {', '.join(units)}", f"write it as {example}"
        )
    return float(found[1]) * units[found[2]]


FOLDER: Final = Path("/run/netns")
"""The folder in which ip(8) keeps namespaces."""
_PREFIX = "levelbench"
_TIMEOUT_S = 20.0


def lacks() -> str | None:
    """What is missing here to create namespaces; ``None`` if nothing is."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no {program}: install iproute2"
    return None


def need() -> None:
    """Raise ``MissingError`` if namespaces cannot be created."""
    if lacking := lacks():
        raise MissingError("network namespaces as hosts", lacking, "run it as root on Linux with iproute2")


def name_of(number: int, what: str) -> str:
    """The name of a namespace of this process, in its set of hosts ``number``."""
    pid = os.getpid()
    return f"{_PREFIX}-{pid}-{start_of(pid)}-{number}-{what}"


def owned_by(name: str) -> tuple[int, int] | None:
    """Id and start of the process that owns a namespace; ``None`` if it is not one of ours."""
    found = re.fullmatch(rf"{_PREFIX}-(\d+)-(\d+)-\d+-\w+", name)
    return (int(found[1]), int(found[2])) if found else None


def remove_stale() -> list[str]:
    """Remove the namespaces whose owner has ended; returns their names."""
    if not FOLDER.is_dir():
        return []
    removed = []
    for path in sorted(FOLDER.iterdir()):
        owner = owned_by(path.name)
        if owner is not None and start_of(owner[0]) != owner[1]:
            delete(path.name)
            removed.append(path.name)
    return removed


def add(name: str) -> None:
    """Create a namespace with its loopback up, without IPv6, whose own messages would be counted as traffic."""
    _run(["ip", "netns", "add", name])
    _run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"], must=False)
    ip(name, "link set lo up")


def delete(name: str) -> None:
    """Remove a namespace and its devices; does nothing if it is gone."""
    _run(["ip", "netns", "delete", name], must=False)


def ip(name: str, *lines: str) -> None:
    """Run commands of ``ip`` inside a namespace."""
    _run(["ip", "-n", name, "-batch", "-"], "\n".join(lines) + "\n")


def tc(name: str, line: str, must: bool = True) -> bool:
    """Run a command of ``tc`` inside a namespace; returns whether it succeeded, if it need not (``must=False``)."""
    return _run(["tc", "-n", name, *line.split()], must=must)


def _run(words: Sequence[str], given: str = "", must: bool = True) -> bool:
    done = subprocess.run(words, check=False, input=given, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode and must:
        printed = (done.stderr.strip() or done.stdout.strip() or "nothing printed").splitlines()[0].rstrip(".")
        raise CommunicationError(
            " ".join([*words, *given.splitlines()]),
            f"it printed: {printed}",
            "check whether this kernel has namespaces, veth, bridges and TUN/TAP, and whether a container forbids them",
        )
    return done.returncode == 0


_FRAME = 1600
_BURST_S = 0.001
_QUEUE_S = 0.2
_QUEUE_BYTES = 1 << 18
_PACKETS = 100_000


def discipline(link: Link) -> str:
    """The queueing discipline as arguments of tc(8); empty for none.

    A token bucket lets a burst of 1 ms pass at once (at least two frames), and queues 0.2 s (at least 256 KiB).
    """
    rate = link.bits_per_s
    if not link.only_rate:
        words = f"netem limit {_PACKETS} delay {round(link.delay_s * 1e6)}us loss {link.loss_share * 100:.4g}%"
        return words if rate is None else f"{words} rate {round(rate)}bit"
    if rate is None:
        return ""
    burst = max(2 * _FRAME, round(rate * _BURST_S / 8))
    queue = max(_QUEUE_BYTES, round(rate * _QUEUE_S / 8))
    return f"tbf rate {round(rate)}bit burst {burst} limit {queue}"


def shape(namespace: str, device: str, link: Link) -> None:
    """Set how a device sends."""
    # netem drops whole segmentation units: for single packets the kernel must segment before.
    ip(namespace, f"link set {device} gso_max_segs {1 if link.loss_share else 65535}")
    words = discipline(link)
    if words:
        tc(namespace, f"qdisc replace dev {device} root {words}")
    else:
        tc(namespace, f"qdisc del dev {device} root", must=False)


_CLONE_NEWNET = 0x40000000
_DISCARD = 9
"""A port without a listener, so that a live host refuses the connection."""


def unreachable(names: Sequence[str], addresses: Sequence[str], timeout_s: float) -> list[int]:
    """The hosts that no other host reaches within the time; empty for a single host."""
    if len(names) < 2:
        return []
    # Each thread has its own network namespace; these are not reused, so they need not change back.
    with ThreadPoolExecutor(len(names)) as pool:
        answers = list(pool.map(partial(_reached, addresses=addresses, timeout_s=timeout_s), names, range(len(names))))
    return [host for host in range(len(names)) if not any(host in reached for reached in answers)]


def _reached(name: str, own: int, addresses: Sequence[str], timeout_s: float) -> set[int]:
    """The other hosts that respond to a host."""
    import asyncio

    with Path(FOLDER, name).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)

    async def answers(address: str) -> bool:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, _DISCARD), timeout_s)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        writer.close()
        return True

    async def all_answers() -> list[bool]:
        return await asyncio.gather(*(answers(address) for address in addresses))

    return {host for host, there in enumerate(asyncio.run(all_answers())) if there and host != own}


_NUMBERS = itertools.count()
_MAX_HOSTS = 200
_UNLIMITED = Link()
_NETWORK = "10.77.0"


@final
class Hosts:
    """``count`` hosts with addresses in one network; a context manager that leaves nothing behind.

    ``method`` is ``kernel`` (veth pairs on a bridge, with tc(8) for the links), ``relay`` (TAP devices on a switch in
    user space), or ``auto``: the kernel if it can do what ``link`` requires. There, delay and loss need netem.

    Create them from a thread that outlives them, as the relay ends with the thread that started it.

    ``MissingError`` without root or iproute2, ``UsageError`` for fewer than one host or too many.
    """

    def __init__(
        self,
        count: int,
        link: Link = _UNLIMITED,
        method: Literal["auto", "kernel", "relay"] = "auto",
    ) -> None:
        if not 1 <= count <= _MAX_HOSTS:
            raise UsageError(
                f"{count} hosts", f"a network here has 1 to {_MAX_HOSTS} hosts", "choose a number in that range"
            )
        self.count = count
        self._link = link
        self._wanted = method
        self._number = next(_NUMBERS)
        self.names: tuple[str, ...] = tuple(name_of(self._number, f"h{at}") for at in range(count))
        """The names of the namespaces for ip(8)."""
        self.addresses: tuple[str, ...] = tuple(f"{_NETWORK}.{at + 1}" for at in range(count))
        self._switch: _Bridge | _Relay | None = None
        self._switch_name = name_of(self._number, "switch")
        self._links: list[Link] = []
        self._up = [True] * count

    def __enter__(self) -> Self:
        need()
        remove_stale()
        # Also at exit, since a second interrupt may arrive while the first one is handled.
        atexit.register(self.close)
        try:
            for name in self.names:
                add(name)
            self._switch = self._make_switch()
            for at in range(self.count):
                self._address(at)
            self._links = [self._link] * self.count
            for at in range(self.count):
                self.set_link(at, self._link)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove everything. Processes inside lose their network and continue."""
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        # The switch's too, which may exist without a working switch.
        for name in (*self.names, self._switch_name):
            delete(name)
        atexit.unregister(self.close)

    def _address(self, host: int) -> None:
        """Set a host's address and those of its neighbours, permanently: resolving them would cause traffic."""
        lines = [
            f"link set eth0 address {MAC.format(host)}",
            f"addr add {self.addresses[host]}/24 dev eth0",
            "link set eth0 up",
        ]
        for other, address in enumerate(self.addresses):
            if other != host:
                lines.append(f"neigh add {address} lladdr {MAC.format(other)} dev eth0 nud permanent")
        ip(self.names[host], *lines)

    def _make_switch(self) -> _Bridge | _Relay:
        netem = tc(self.names[0], "qdisc add dev lo root netem delay 1ms", must=False)
        if netem:
            tc(self.names[0], "qdisc del dev lo root")
        relay = self._wanted == "relay" or (self._wanted == "auto" and not netem and not self._link.only_rate)
        if relay:
            return _Relay(self.names)
        return _Bridge(self.names, self._switch_name, netem)

    def link(self, host: int) -> Link:
        """A host's current link, with its method."""
        return self._links[self._checked(host)]

    def set_link(self, host: int, link: Link) -> None:
        """Change a host's link, also while it is in use.

        ``UsageError`` for delay or loss if the kernel has no netem and the hosts were created without the relay.
        """
        switch = self._open()
        switch.set(self._checked(host), link, self._up[host])
        self._links[host] = replace(link, method=switch.method(link))

    def down(self, host: int) -> None:
        """Disconnect a host: nothing reaches or leaves it, and no other host is notified."""
        self._up[self._checked(host)] = False
        self._open().set(host, self._links[host], False)

    def up(self, host: int) -> None:
        """Reconnect a host."""
        self._up[self._checked(host)] = True
        self._open().set(host, self._links[host], True)

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on a host."""
        return ["ip", "netns", "exec", self.names[self._checked(host)], *command]

    def unreachable(self, timeout_s: float = 1.5) -> list[int]:
        """The hosts that no other host reaches within the time."""
        return unreachable(self.names, self.addresses, timeout_s)

    def _checked(self, host: int) -> int:
        if not 0 <= host < self.count:
            raise UsageError(f"host {host}", f"there are hosts 0 to {self.count - 1}", "choose one of them")
        return host

    def _open(self) -> _Bridge | _Relay:
        if self._switch is None:
            raise UsageError(
                "hosts", "they do not exist yet, or no longer", "use them inside `with Hosts(...) as hosts`"
            )
        return self._switch


@dataclass
class _Bridge:
    """A bridge in its own namespace, with one end of each host's veth pair."""

    names: Sequence[str]
    name: str
    netem: bool

    def __post_init__(self) -> None:
        add(self.name)
        lines = ["link add br0 type bridge", "link set br0 up"]
        for at, host in enumerate(self.names):
            lines += [f"link add p{at} type veth peer name eth0 netns {host}", f"link set p{at} master br0 up"]
        ip(self.name, *lines)

    def method(self, link: Link) -> str:
        if not link.only_rate:
            return "netem"
        return "tbf" if link.bits_per_s else "veth"

    def set(self, host: int, link: Link, up: bool) -> None:
        if not link.only_rate and not self.netem:
            raise UsageError(
                f"a link with delay {link.delay or 0} and loss {link.loss or 0}",
                "this kernel has no netem (CONFIG_NET_SCH_NETEM), and these hosts have no relay",
                "create them with method='relay'",
            )
        shape(self.names[host], "eth0", link)
        # What the host receives only waits at the switch: its delay and loss were applied by the sender.
        shape(self.name, f"p{host}", Link(link.rate))
        ip(self.name, f"link set p{host} {'up' if up else 'down'}")

    def close(self) -> None:
        """Do nothing: its namespace is removed with those of the hosts."""


class _Relay:
    """The relay, a separate process that ends with this one."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        words = [sys.executable, "-P", "-m", "levelbench.distributed.launching.relay", str(os.getpid()), *names]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._expect("ready")

    def method(self, link: Link) -> str:
        return "relay+tbf" if link.bits_per_s else "relay"

    def set(self, host: int, link: Link, up: bool) -> None:
        # The kernel limits the sender's rate: its sockets then wait instead of filling a queue here.
        shape(self.names[host], "eth0", Link(link.rate))
        settings = {"bits_per_s": link.bits_per_s, "delay_s": link.delay_s, "loss": link.loss_share, "up": up}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"host": host, **settings}).encode() + b"\n")
        self._process.stdin.flush()
        self._expect("set")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if self._process.stdout.readline().strip() != word.encode():
            printed = self._process.stderr.read().decode(errors="replace").strip().splitlines()[-1:] or [
                "nothing printed"
            ]
            self.close()
            raise CommunicationError(
                "a relay between hosts", f"it ended ({printed[0]})", "check that the kernel has /dev/net/tun"
            )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
