"""Samples a call until a stopping rule is met, alone or interleaved with another, and keeps every raw value.

The loop here only takes values and asks the rule. Where warm-up ends (``warmup``), when to stop (``stopping``), what
the caches hold (``caches``) and how many calls make a value (``clocks``) are decided elsewhere, and the sample records
each decision. The replicate for a comparison is the process or the run, not a value inside one: see ``processes``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import MissingError, UnknownNameError
from levelbench.measure.caches import CacheState, Cold, Flusher, FlushProof, Hot, StreamFlusher, prove_flush
from levelbench.measure.clocks import HOST, Clock, DeviceClock, Timer, Work, time_ns, timed
from levelbench.measure.statistics import Estimate, estimate
from levelbench.measure.stopping import Budget, Plateau, Precision, SampleSoFar, StoppingRule, bounded
from levelbench.measure.warmup import WarmupCut, WarmupRule, warmup_rule

DEFAULT_RULE: StoppingRule = Precision(0.02) | Plateau() | Budget(10.0)


@dataclass(frozen=True, eq=False)
class MeasuredValues(Sequence[float]):
    """A sequence of measured ``values``, shape (n,), in order."""

    values: NDArray[np.float64]

    def estimate(self, level: float = 0.95) -> Estimate:
        """The geometric mean with its interval (n >= 6), or what fewer values allow."""
        return estimate(self.values.tolist(), level)

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        found: float | Sequence[float] = self.values[index].tolist()
        return found


@dataclass(frozen=True, eq=False)
class Sample(MeasuredValues):
    """Values measured inside one process, in order, as seconds a call.

    ``values`` has shape (n,), after warm-up; ``warmup`` holds what came before: calibration attempts, including the
    very first call, then the values that were cut for the reason in ``warmup_reason``. ``inner`` is the number of calls
    in one value, ``timer`` what the clock and an empty call cost (included in the values), ``flush`` the proof of cold
    caches (``None`` for hot ones), ``wall_s`` the total time spent.
    """

    warmup: NDArray[np.float64]
    warmup_reason: str
    stopped_by: str
    inner: int
    cache: str
    timer: Timer
    wall_s: float
    name: str = ""
    unit: str = "s"
    flush: FlushProof | None = field(default=None, repr=False)


class OffClock(Protocol):
    """What happens off the clock around each value."""

    def before(self, inner: int) -> None:
        """Prepare the next value, of ``inner`` calls."""

    def after(self, found: Any, claimed_ns: int, real_ns: int) -> None:
        """Look at what the last call returned, and at the value's time on both clocks (``timed``)."""


def sample(
    work: Work,
    until: StoppingRule = DEFAULT_RULE,
    *,
    clock: Clock = HOST,
    warmup: str | int = "auto",
    cache: Literal["hot", "cold"] = "hot",
    flusher: Flusher | None = None,
    name: str = "",
    between: OffClock | None = None,
) -> Sample:
    """Call ``work`` until ``until`` is met.

    A rule that may never be met also gets a budget of ten seconds. ``warmup`` is ``"auto"`` (found from the values) or
    the number of values to cut. ``cache="cold"`` flushes before each value with ``flusher`` (default: a stream through
    twice the last-level cache). For an accelerator, pass a ``DeviceClock``, and for cold caches a ``flusher`` as well,
    because the default one flushes the host's caches. ``between`` is called around each value.

    Raises ``MissingError`` if cold caches cannot be proved, ``UsageError`` for an unusable argument.

    >>> from levelbench.measure.stopping import FixedCount
    >>> sample(lambda: sum(range(100)), FixedCount(8)).stopped_by
    '8 of 8 values'
    """
    started_ns = clock.now_ns()
    lane = _Lane(name, work, clock, _cache_state(cache, flusher, clock), between)
    return _run([lane], [lane], bounded(until), clock, started_ns, warmup_rule(warmup))[0]


def sample_interleaved(
    a: Work,
    b: Work,
    until: StoppingRule = DEFAULT_RULE,
    *,
    clock: Clock = HOST,
    warmup: str | int = "auto",
    cache: Literal["hot", "cold"] = "hot",
    flusher: Flusher | None = None,
    names: tuple[str, str] = ("a", "b"),
) -> tuple[Sample, Sample]:
    """Sample ``a`` and ``b`` in turns A B B A, so that linear drift affects both alike, until both meet ``until``.

    Values come in pairs, so a count is rounded up to whole turns. Calibration is not interleaved (A A B B), so it does
    not count as values but goes to ``warmup``. The longer of the two warm-ups is cut from both, so that values of equal
    index were measured next to each other. Errors as for :func:`sample`.
    """
    started_ns = clock.now_ns()
    state = _cache_state(cache, flusher, clock)
    first, second = (_Lane(name, work, clock, state) for name, work in zip(names, (a, b), strict=True))
    first.discard_calibration()
    second.discard_calibration()
    turn = [first, second, second, first]
    samples = _run([first, second], turn, bounded(until), clock, started_ns, warmup_rule(warmup))
    return samples[0], samples[1]


class _Lane:
    """One workload with its calibration and the values taken so far."""

    def __init__(self, name: str, work: Work, clock: Clock, cache: CacheState, between: OffClock | None = None) -> None:
        self.name, self._between = name, between
        self._held: object = None
        self._work = work
        self._clock = clock
        self.cache = cache
        self.calibration = cache.calibrate(work, clock)
        self.values_ns = list(self.calibration.values_ns)

    def discard_calibration(self) -> None:
        """Count the calls of the calibration as first attempts and not as values."""
        self.calibration, self.values_ns = self.calibration.without_values(), []

    def take(self) -> None:
        """Take one value."""
        inner, between = self.calibration.inner, self._between
        if between is None:
            self.cache.prepare()
            self.values_ns.append(time_ns(self._work, self._clock, inner) / inner)
            return
        between.before(inner)
        # Held until now, so that nothing small is allocated in its place and the next output fits there again.
        self._held = None
        self.cache.prepare()
        taken, real, self._held = timed(self._work, self._clock, inner)
        between.after(self._held, taken, real)
        self.values_ns.append(taken / inner)

    def values_s(self) -> NDArray[np.float64]:
        """The values so far, shape (n,), seconds a call."""
        return np.asarray(self.values_ns, dtype=np.float64) * 1e-9

    def finish(self, found: WarmupCut, stopped_by: str, wall_s: float) -> Sample:
        """The sample: what was cut, what is left, and why it ended."""
        values = self.values_s()
        first = np.asarray(self.calibration.first_ns, dtype=np.float64) * 1e-9
        return Sample(
            values=_read_only(values[found.cut :]),
            warmup=_read_only(np.concatenate([first, values[: found.cut]])),
            warmup_reason=found.reason,
            stopped_by=stopped_by,
            inner=self.calibration.inner,
            cache=self.cache.name,
            timer=self.calibration.timer,
            wall_s=wall_s,
            name=self.name,
            flush=self.cache.proof,
        )


def _run(
    lanes: list[_Lane], turn: list[_Lane], until: StoppingRule, clock: Clock, started_ns: int, warmup: WarmupRule
) -> list[Sample]:
    """Take turns until every lane meets ``until``.

    The rule is asked after a third more values at the latest, and no more often than it says is worthwhile: asking
    after each value would cost time and would stop too early, at the first lucky look.
    """
    shares = len(turn) // len(lanes)
    _take(turn, math.ceil((warmup.least - len(lanes[0].values_ns)) / shares))
    while True:
        raw = [lane.values_s() for lane in lanes]
        found = max((warmup.find(values) for values in raw), key=lambda each: each.cut)
        elapsed_s = (clock.now_ns() - started_ns) * 1e-9
        looks = [SampleSoFar(values[found.cut :], elapsed_s) for values in raw]
        checks = [until.check(look) for look in looks]
        if all(check.met for check in checks):
            stopped_by = max((check.text for check in checks), key=len)
            return [lane.finish(found, stopped_by, elapsed_s) for lane in lanes]
        wanted = max(until.more(look) for look, check in zip(looks, checks, strict=True) if not check.met)
        block = min(wanted, max(2, len(raw[0]) // 3))
        _take(turn, math.ceil(block / shares))


def _take(turn: list[_Lane], turns: int) -> None:
    for _ in range(turns):
        for lane in turn:
            lane.take()


def _cache_state(cache: str, flusher: Flusher | None, clock: Clock) -> CacheState:
    if cache == "hot":
        return Hot()
    if cache == "cold":
        if flusher is None and isinstance(clock, DeviceClock):
            raise MissingError(
                "a sample with cold caches on a device",
                "the built-in flusher flushes the host's caches, not the device's",
                "give a flusher that works on the device, or measure hot",
            )
        used = StreamFlusher() if flusher is None else flusher
        return Cold(used, prove_flush(used, clock))
    raise UnknownNameError("cache state", cache, ("hot", "cold"))


def _read_only(values: NDArray[np.float64]) -> NDArray[np.float64]:
    copy = values.copy()
    copy.flags.writeable = False
    return copy
