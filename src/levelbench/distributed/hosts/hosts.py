"""Several hosts on one machine: a network namespace each, joined by a switch in a namespace of its own.

The one idea: nothing here touches the machine's own network. All devices and addresses live inside the namespaces, and
go with them.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self, final

from levelbench.distributed.hosts import namespaces
from levelbench.distributed.hosts.link import Link
from levelbench.distributed.hosts.probing import unreachable
from levelbench.distributed.hosts.relay import MAC
from levelbench.distributed.hosts.shaping import shape
from levelbench.errors import CommunicationError, UsageError

__all__ = ["Hosts"]

_NUMBERS = itertools.count()
_MOST = 200
_FREE = Link()
_NETWORK = "10.77.0"


@final
class Hosts:
    """``count`` hosts with addresses of one network; a context, at whose end nothing is left.

    ``method`` is ``kernel``, veth pairs on a bridge with tc(8) for the links, ``relay``, TAP devices on a switch in
    user space, or ``auto``: the kernel where it can do what ``link`` asks for. Delay and loss need netem there.

    Make them from a thread that outlives them, as the relay ends with the thread that started it.

    ``MissingError`` where this is not root or iproute2 is missing, ``UsageError`` for fewer than one host or too many.
    """

    def __init__(
        self,
        count: int,
        link: Link = _FREE,
        method: Literal["auto", "kernel", "relay"] = "auto",
    ) -> None:
        if not 1 <= count <= _MOST:
            raise UsageError(f"{count} hosts", f"a network here has from 1 to {_MOST}", "choose a number of those")
        self.count = count
        self._link = link
        self._wanted = method
        self._number = next(_NUMBERS)
        self.names: tuple[str, ...] = tuple(namespaces.name_of(self._number, f"h{at}") for at in range(count))
        """The namespaces, as ip(8) knows them."""
        self.addresses: tuple[str, ...] = tuple(f"{_NETWORK}.{at + 1}" for at in range(count))
        self._switch: _Bridge | _User | None = None
        self._switch_name = namespaces.name_of(self._number, "switch")
        self._links: list[Link] = []
        self._up = [True] * count

    def __enter__(self) -> Self:
        namespaces.need()
        namespaces.remove_stale()
        # Once more at the end of the program, as a second interrupt may come while the first one's is put in order.
        atexit.register(self.close)
        try:
            for name in self.names:
                namespaces.add(name)
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
        """Remove all of it. Processes inside lose their network and run on."""
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        # The switch's too, which may be there without a switch that works.
        for name in (*self.names, self._switch_name):
            namespaces.delete(name)
        atexit.unregister(self.close)

    def _address(self, host: int) -> None:
        """Addresses of its own and, for good, of the others: asking for them would be traffic, and late or lost."""
        lines = [
            f"link set eth0 address {MAC.format(host)}",
            f"addr add {self.addresses[host]}/24 dev eth0",
            "link set eth0 up",
        ]
        for other, address in enumerate(self.addresses):
            if other != host:
                lines.append(f"neigh add {address} lladdr {MAC.format(other)} dev eth0 nud permanent")
        namespaces.ip(self.names[host], *lines)

    def _make_switch(self) -> _Bridge | _User:
        netem = namespaces.tc(self.names[0], "qdisc add dev lo root netem delay 1ms", must=False)
        if netem:
            namespaces.tc(self.names[0], "qdisc del dev lo root")
        relay = self._wanted == "relay" or (self._wanted == "auto" and not netem and not self._link.only_rate)
        if relay:
            return _User(self.names)
        return _Bridge(self.names, self._switch_name, netem)

    def link(self, host: int) -> Link:
        """A host's link as it is, with the method that makes it so."""
        return self._links[self._known(host)]

    def set_link(self, host: int, link: Link) -> None:
        """Change a host's link, also while it is used.

        ``UsageError`` for delay or loss where the kernel has no netem and the hosts were made without the relay.
        """
        switch = self._open()
        switch.set(self._known(host), link, self._up[host])
        self._links[host] = replace(link, method=switch.method(link))

    def down(self, host: int) -> None:
        """Lose a host: nothing comes from it or gets to it, and nobody is told."""
        self._up[self._known(host)] = False
        self._open().set(host, self._links[host], False)

    def up(self, host: int) -> None:
        """Find a lost host again."""
        self._up[self._known(host)] = True
        self._open().set(host, self._links[host], True)

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on a host."""
        return ["ip", "netns", "exec", self.names[self._known(host)], *command]

    def unreachable(self, timeout_s: float = 1.5) -> list[int]:
        """The hosts that no other host reaches within the time."""
        return unreachable(self.names, self.addresses, timeout_s)

    def _known(self, host: int) -> int:
        if not 0 <= host < self.count:
            raise UsageError(f"host {host}", f"there are {self.count}, from 0", "choose one of those")
        return host

    def _open(self) -> _Bridge | _User:
        if self._switch is None:
            raise UsageError(
                "hosts", "they are not there yet, or no more", "use them inside `with Hosts(...) as hosts`"
            )
        return self._switch


@dataclass
class _Bridge:
    """A bridge in a namespace of its own, with one end of each host's veth pair."""

    names: Sequence[str]
    name: str
    netem: bool

    def __post_init__(self) -> None:
        namespaces.add(self.name)
        lines = ["link add br0 type bridge", "link set br0 up"]
        for at, host in enumerate(self.names):
            lines += [f"link add p{at} type veth peer name eth0 netns {host}", f"link set p{at} master br0 up"]
        namespaces.ip(self.name, *lines)

    def method(self, link: Link) -> str:
        if not link.only_rate:
            return "netem"
        return "tbf" if link.bits_per_s else "veth"

    def set(self, host: int, link: Link, up: bool) -> None:
        if not link.only_rate and not self.netem:
            raise UsageError(
                f"a link with delay {link.delay or 0} and loss {link.loss or 0}",
                "this kernel has no netem (CONFIG_NET_SCH_NETEM), and these hosts have no relay",
                "make them with method='relay'",
            )
        shape(self.names[host], "eth0", link)
        # What comes to the host waits at the switch: its delay and loss were the sender's.
        shape(self.name, f"p{host}", Link(link.rate))
        namespaces.ip(self.name, f"link set p{host} {'up' if up else 'down'}")

    def close(self) -> None:
        """Its namespace goes with the hosts' own."""


class _User:
    """The relay, a process beside this one that ends with it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        words = [sys.executable, "-P", "-m", "levelbench.distributed.hosts.relay", str(os.getpid()), *names]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._hear("ready")

    def method(self, link: Link) -> str:
        return "relay+tbf" if link.bits_per_s else "relay"

    def set(self, host: int, link: Link, up: bool) -> None:
        # The sender's rate is the kernel's to keep, whose sockets then wait instead of filling a queue here.
        shape(self.names[host], "eth0", Link(link.rate))
        told = {"host": host, "bits_per_s": link.bits_per_s, "delay_s": link.delay_s, "loss": link.loss_share, "up": up}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()
        self._hear("set")

    def _hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if self._process.stdout.readline().strip() != word.encode():
            said = self._process.stderr.read().decode(errors="replace").strip().splitlines()[-1:] or ["nothing printed"]
            self.close()
            raise CommunicationError(
                "a relay between hosts",
                f"it ended ({said[0]})",
                "see whether this kernel has TUN/TAP (/dev/net/tun)",
            )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
