"""What a link between a host and the switch is like, in the words of tc(8)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from levelbench.errors import UsageError

__all__ = ["Link"]

_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NUMBER = r"(\d+(?:\.\d+)?)"


@dataclass(frozen=True)
class Link:
    """A host's way to the switch and back; empty words set no limit.

    ``rate`` is in bits per second as ``100mbit``, in each direction. ``delay`` as ``5ms`` and ``loss`` as ``1%`` apply
    to what the host sends: a round trip between two hosts takes both of their delays. ``method`` says what makes it so
    once it is set: ``veth``, with ``tbf`` for the rate, ``netem``, or ``relay``, a switch in user space.
    """

    rate: str = ""
    delay: str = ""
    loss: str = ""
    method: str = ""

    def __post_init__(self) -> None:
        _ = self.bits_per_s, self.delay_s, self.loss_share

    @property
    def bits_per_s(self) -> float | None:
        """The rate; ``None`` for no limit."""
        rate = _read("rate", self.rate, _BITS, "100mbit or 1gbit")
        if rate is not None and rate <= 0:
            raise UsageError("a link of rate 0", "nothing passes it", "take a host's link down instead")
        return rate

    @property
    def delay_s(self) -> float:
        """The delay in seconds."""
        return _read("delay", self.delay, _SECONDS, "5ms or 200us") or 0.0

    @property
    def loss_share(self) -> float:
        """The share of packets that are lost, from 0 to 1."""
        share = (_read("loss", self.loss, {"%": 1.0}, "1%") or 0.0) / 100
        if share > 1:
            raise UsageError(f"a link with loss {self.loss!r}", "that is more than all", "give at most 100%")
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
            f"a link with {what} {text!r}",
            f"its unit must be one of {', '.join(unit for unit in units)}",
            f"write it as {example}",
        )
    return float(found[1]) * units[found[2]]
