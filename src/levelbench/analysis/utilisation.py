"""Utilisation: the operations that training needed, over its time, as a share of what the hardware could have done.

Operations are counted, never measured: those that the network's definition needs, two for a multiply-add, once for each
example and without recomputation (as in MLPerf's and PaLM's "model FLOPs"). A machine that does other work meanwhile
(input, evaluation, communication, a slow start) is not utilised by it. For runs of ours the peak is one measured on the
machine; for published entries it is the datasheet's for the fastest precision, which few programs reach, and the count
is that of the zoo's network of the same name, times three for a step of training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, estimate, geometric_mean

__all__ = ["PeakShare", "Utilisation", "peak_share", "utilisation"]


@dataclass(frozen=True)
class PeakShare:
    """One entry or group of runs: operations a second that were needed, and the ``peak_flop_s`` of ``machine``.

    Both ``examples_s`` and ``share`` are geometric means over its ``n`` runs, as times to accuracy are, so that one
    follows from the other; without a share, ``reason`` says what is not known. ``network`` is what the operations were
    counted on.
    """

    label: str
    network: str
    machine: str
    examples_s: float | None
    flops_per_example: float | None
    peak_flop_s: float | None
    share: Estimate | None
    n: int
    reason: str = ""

    @property
    def flop_s(self) -> float | None:
        """Operations a second, the geometric mean over the runs."""
        if self.examples_s is None or self.flops_per_example is None:
            return None
        return self.examples_s * self.flops_per_example


@dataclass(frozen=True)
class Utilisation:
    """All of them, in the order given; ``of`` is ``datasheet`` or ``measured``, the kind of peak."""

    of: str
    shares: tuple[PeakShare, ...]


def peak_share(
    label: str,
    rates: Sequence[float],
    flops_per_example: float | None,
    peak_flop_s: float | None,
    *,
    network: str = "",
    machine: str = "",
    level: float = 0.95,
    no_rate: str = "no run reached its target, up to which examples are counted",
) -> PeakShare:
    """From examples a second of each run; what is ``None`` or empty leaves a reason instead of a share.

    ``no_rate`` is the reason if there is no rate.
    """
    known = [rate for rate in rates if math.isfinite(rate) and rate > 0]
    typical = geometric_mean(known) if known else None
    missing = [
        words
        for words, lacks in (
            (no_rate, not known),
            ("the operations of its network are not known", not flops_per_example),
            ("the peak of its machine is not known", not peak_flop_s),
        )
        if lacks
    ]
    share = None
    if not missing and flops_per_example and peak_flop_s:
        share = estimate([rate * flops_per_example / peak_flop_s for rate in known], level)
    of = (typical, flops_per_example, peak_flop_s)
    return PeakShare(label, network, machine, *of, share, len(known), "; ".join(missing))


def utilisation(shares: Sequence[PeakShare], of: str) -> Utilisation:
    """Raises ``UsageError`` for none."""
    if not shares:
        raise UsageError("the utilisation", "there is nothing that trains among what was named", "name runs or a board")
    return Utilisation(of, tuple(shares))
