"""Operators, networks and training steps under measured roofs, and which of the two is wrong if one lies above.

A share is the least time that the roofs allow over the time taken, so it cannot exceed 1 unless something is wrong: the
roof (disturbed while it was measured, or of a slower kernel than the work's own), the count (an algorithm that does
fewer operations or moves fewer bytes than the definition), or the time (too short for the clock). Such a result gets no
share, but the verdict on which it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, Interval, estimate
from levelbench.records.rooflines import Direction, Kind, RooflineProfile, RooflineRow

__all__ = ["Roof", "RoofPlace", "Roofline", "place_under_roofs", "with_recorded"]

_APART = 1.5
"""Steps of now and of the runs whose times differ by a larger factor were not made alike."""
UNSTEADY = 0.1
"""Roofs that vary by more over the rounds of a process were disturbed."""
_SHORTEST_S = 2e-6
"""A call that takes less is mostly the clock's own reading and the call itself."""
_PRODUCTS = frozenset({"Gemm", "MatMul"})
_ALGORITHMS = frozenset({"Conv", "ConvTranspose"})
_NEAR = 1.25
"""The best matrix products reach at least four fifths of a machine's peak; so far above, theirs may not be the roof."""

Wrong = Literal["", "roof", "count", "time", "count or roof"]


@dataclass(frozen=True)
class Roof:
    """A roof: operations a second of a precision (``compute``), or bytes a second of a level (``memory``).

    ``rate`` is over the processes, ``spread`` the largest over the rounds of one process (interquartile range over
    median). ``capacity_bytes`` is what the level holds; ``None`` for main memory and for compute.
    """

    kind: Literal["compute", "memory"]
    name: str
    rate: Estimate
    spread: float
    capacity_bytes: float | None = None


@dataclass(frozen=True)
class RoofPlace:
    """One place under the roofs, over the processes.

    ``count`` nodes take ``time_s`` together; ``flop_s`` and ``bytes_s`` are their rates, ``None`` where operations or
    bytes are unknown. ``share`` is that of the bounding ``roof``. Without one, ``reason`` says why, and ``wrong`` which
    of both is wrong if the result lies above its roof.
    """

    kind: Kind | Literal["recorded step"]
    name: str
    direction: Direction
    count: int
    flops: float | None
    bytes: float | None
    dtype: str
    time_s: Estimate
    flop_s: Estimate | None
    bytes_s: Estimate | None
    share: Estimate | None
    bound: str
    roof: str
    reason: str = ""
    wrong: Wrong = ""

    @property
    def label(self) -> str:
        """The name, with the direction where an operator has two."""
        return f"{self.name}, backward" if self.kind == "operator" and self.direction == "backward" else self.name

    @property
    def intensity(self) -> float | None:
        """Operations a byte."""
        return self.flops / self.bytes if self.flops and self.bytes else None


@dataclass(frozen=True)
class Roofline:
    """All places of one subject, the roofs, and what speaks against them (``lacks``)."""

    title: str
    processes: int
    roofs: tuple[Roof, ...]
    places: tuple[RoofPlace, ...]
    lacks: tuple[str, ...]
    level: float


def place_under_roofs(title: str, profiles: Sequence[RooflineProfile], level: float = 0.95) -> Roofline:
    """The places of the profiles of one subject, one a process. Raises ``UsageError`` for none."""
    if not profiles:
        raise UsageError(f"the roofline of {title}", "no process has measured it", "measure it: -n 6")
    roofs = tuple(_roofs(profiles, level))
    rows: dict[tuple[str, str, str], list[RooflineRow]] = {}
    for profile in profiles:
        for row in profile.rows:
            rows.setdefault((row.kind, row.name, row.direction), []).append(row)
    places = [_place(each, level) for each in rows.values() if len(each) == len(profiles)]
    return Roofline(title, len(profiles), roofs, _settled(places, roofs), tuple(_lacks(profiles, roofs)), level)


def with_recorded(found: Roofline, times_s: Sequence[float], when: str = "") -> Roofline:
    """``found`` with the steps of recorded runs (medians, one a run) beside the training step that was measured now.

    Their share is that of the roofs of now. ``when`` names the runs, which are of this machine: where their steps and
    those of now take very different times, neither share is said to be right.
    """
    at = next(at for at, each in enumerate(found.places) if each.kind == "training step")
    step, time = found.places[at], estimate(list(times_s), found.level)
    recorded = replace(
        step,
        kind="recorded step",
        name=f"recorded steps{f' ({when})' if when else ''}",
        time_s=time,
        flop_s=_rate(step.flops, time),
        bytes_s=_rate(step.bytes, time),
        reason=f"the {step.wrong} is wrong for the step of now" if step.wrong else step.reason,
        wrong="",
    )
    if step.share is not None:
        factor = step.share.value * step.time_s.value
        share = Estimate(factor / time.value, _inverse(time, factor), time.n, "least time over the recorded time")
        recorded = replace(recorded, share=share, reason="")
    places = _settled([*found.places[: at + 1], recorded, *found.places[at + 1 :]], found.roofs)
    apart = max(step.time_s.value / time.value, time.value / step.time_s.value)
    trusted = ": the shares of now are the ones to trust" if places[at].share is not None else ""
    note = f"the recorded steps were not made beside these roofs{trusted}"
    if apart > _APART:
        times = f"{apart:.0f}" if apart >= 10 else f"{apart:.1f}"
        note = (
            f"doubt: a step takes {step.time_s.value * 1e3:.3g} ms now and {time.value * 1e3:.3g} ms in the recorded "
            f"runs, {times} times apart on one machine: trust neither share, and measure both again on a quiet machine "
            "with as many threads (OMP_NUM_THREADS)"
        )
    return replace(found, places=places, lacks=(*found.lacks, note))


def _roofs(profiles: Sequence[RooflineProfile], level: float) -> list[Roof]:
    def roof(kind: Literal["compute", "memory"], name: str, capacity: float | None = None) -> Roof:
        rates = [(each.flop_s if kind == "compute" else each.bytes_s)[name] for each in profiles]
        spread = max(each.spread.get(name, 0.0) for each in profiles)
        return Roof(kind, name, estimate(rates, level), spread, capacity)

    first = profiles[0]
    return [roof("compute", name) for name in first.flop_s] + [roof("memory", *each) for each in first.levels]


def _place(rows: Sequence[RooflineRow], level: float) -> RoofPlace:
    first = rows[0]
    time = estimate([row.time_s for row in rows], level)
    shares = [row.share for row in rows if row.share is not None]
    share = estimate(shares, level) if len(shares) == len(rows) else None
    binding = max((row for row in rows if row.share is not None), key=lambda row: row.share or 0.0, default=first)
    return RoofPlace(
        first.kind,
        first.name,
        first.direction,
        first.count,
        first.flops,
        first.bytes,
        first.dtype,
        time,
        _rate(first.flops, time),
        _rate(first.bytes, time),
        share,
        binding.bound if share else "",
        binding.roof if share else "",
        "" if share else next((row.reason for row in rows if row.reason), "a process has no share"),
    )


def _rate(amount: float | None, time: Estimate) -> Estimate | None:
    """``amount`` a second."""
    if not amount:
        return None
    return Estimate(amount / time.value, _inverse(time, amount), time.n, f"{time.statistic} of the time")


def _inverse(time: Estimate, amount: float) -> Interval | None:
    inside = time.interval
    if inside is None or inside.low <= 0:
        return None
    return Interval(amount / inside.high, amount / inside.low, inside.level, inside.method)


def _settled(places: Sequence[RoofPlace], roofs: Sequence[Roof]) -> tuple[RoofPlace, ...]:
    """The places judged, without the shares of roofs that one of them refutes."""
    spreads = {each.name: each.spread for each in roofs}
    refuted: dict[str, str] = {}
    judged = {}
    # An operator says more about a roof than a whole, of which it is a part.
    for at, each in sorted(enumerate(places), key=lambda item: item[1].kind != "operator"):
        judged[at] = _judged(each, spreads, refuted)
        if judged[at].wrong == "roof":
            refuted.setdefault(each.roof, each.label)
    return tuple(_without_refuted(judged[at], refuted) for at in range(len(places)))


def _without_refuted(place: RoofPlace, refuted: dict[str, str]) -> RoofPlace:
    """A whole's least time is a sum under all roofs, so that any wrong one takes its share."""
    wrong = place.roof if place.kind == "operator" else next(iter(refuted), "")
    if place.share is None or wrong not in refuted:
        return place
    reason = f"no share: the {wrong} roof is wrong (above it: {refuted[wrong]})"
    return replace(place, share=None, reason=reason)


def _judged(place: RoofPlace, spreads: dict[str, float], refuted: dict[str, str]) -> RoofPlace:
    """The place; one above its roof gets a verdict on what is wrong instead of its share."""
    share = place.share
    if share is None or share.value <= 1:
        return place if share is None else replace(place, share=_capped(share))
    if share.interval is not None and share.interval.low <= 1:
        return replace(place, share=_capped(share), reason="it cannot be told from the roof")
    wrong, why = _which(place, spreads, refuted)
    reason = f"above the {place.roof} roof by a factor of {share.value:.3g}: the {wrong} is wrong: {why}"
    return replace(place, share=None, reason=reason, wrong=wrong)


def _capped(share: Estimate) -> Estimate:
    inside = share.interval
    if inside is not None:
        inside = replace(inside, low=min(inside.low, 1.0), high=min(inside.high, 1.0))
    return replace(share, value=min(share.value, 1.0), interval=inside)


def _which(place: RoofPlace, spreads: dict[str, float], refuted: dict[str, str]) -> tuple[Wrong, str]:
    """Which of the result and the roof is wrong, and why."""
    if place.time_s.value / place.count < _SHORTEST_S:
        return "time", "a call is too short for the clock: measure it with larger inputs"
    spread = spreads.get(place.roof, 0.0)
    if spread > UNSTEADY:
        return "roof", f"it varied by {spread:.0%} while it was measured: measure again on a quiet machine"
    if place.kind != "operator" and place.roof in refuted:
        return "roof", f"{refuted[place.roof]} is above it, too"
    if place.kind == "recorded step":
        return "roof", "the step of now lies below it, so the machine was slower now than in those runs"
    if place.bound == "memory":
        return "count", "it moved fewer bytes than its definition needs, as a view or a fused operator does"
    if place.name in _PRODUCTS:
        return "roof", "this product is faster than those that the roof was measured with: it is the better roof"
    fewer = "fewer operations were done than are counted: some were left out, fused or simplified"
    if place.name in _ALGORITHMS:
        fewer = "its operations are those of the direct algorithm, and Winograd's or FFT does fewer"
    if place.share is not None and place.share.value < _NEAR:
        return "count or roof", f"{fewer}; or it comes nearer to the machine's peak than the products of the roof do"
    return "count", fewer


def _lacks(profiles: Sequence[RooflineProfile], roofs: Sequence[Roof]) -> list[str]:
    found = []
    if len(profiles) < 2:
        found.append("one process has no interval: measure more (-n 6)")
    unsteady = [f"{each.name} by {each.spread:.0%}" for each in roofs if each.spread > UNSTEADY]
    if unsteady:
        listed = ", ".join(unsteady)
        found.append(f"doubt: roofs varied while they were measured ({listed}): the machine was busy, measure again")
    if reason := next((each.no_operators for each in profiles if each.no_operators), ""):
        found.append(f"no single operators: {reason}")
    if all(math.isclose(sum(row.flops or 0.0 for row in each.rows), 0.0) for each in profiles):
        found.append("no operation is counted: a model of a framework's own has unknown costs; export it to ONNX")
    return found
