"""Makes a device as slow, as late and as lossy as a link is, with queueing disciplines of tc(8)."""

from __future__ import annotations

from levelbench.distributed.hosts import namespaces
from levelbench.distributed.hosts.link import Link

__all__ = ["discipline", "shape"]

_FRAME = 1600
_BURST_S = 0.001
_QUEUE_S = 0.2
_QUEUE_BYTES = 1 << 18
_PACKETS = 100_000


def discipline(link: Link) -> str:
    """The queueing discipline in tc(8)'s words; empty for none.

    A token bucket lets a burst of 1 ms pass at once (two frames at least), and queues 0.2 s (256 KiB at least).
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
    """Set what a device does with what it sends."""
    # netem loses what it is handed as one: packets one by one only where the kernel cut them before.
    namespaces.ip(namespace, f"link set {device} gso_max_segs {1 if link.loss_share else 65535}")
    words = discipline(link)
    if words:
        namespaces.tc(namespace, f"qdisc replace dev {device} root {words}")
    else:
        namespaces.tc(namespace, f"qdisc del dev {device} root", must=False)
