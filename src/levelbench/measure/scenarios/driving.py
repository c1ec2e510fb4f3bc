"""Runs a scenario: load, warm up, issue by the scenario's pattern, wait for every answer, judge; and finds peak rates.

Everything that can be done beforehand is (samples drawn, arrivals scheduled, queries made), so between two queries the
driver only reads the clock and appends two numbers. How long a stream lasts is known only while it runs, so its samples
are drawn in blocks between queries, outside of any latency. ``benchmarks/loadgen.py`` compares the driver's cost with
LoadGen's.

A peak is the largest rate of arrivals that a server still answers within its bound. Every trial is a whole server run
with the same seed, so its arrivals are the same on another scale, and more load is harder for the same reasons; the
answer is a bracket with its width, not a point.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, UsageError
from levelbench.measure.clocks import HOST, Clock, FakeClock
from levelbench.measure.scenarios.contract import (
    Answering,
    DawnBench,
    Direct,
    Ledger,
    Offline,
    Query,
    Scenario,
    Server,
    SystemUnderTest,
    Workers,
    blame,
    wait_until,
)
from levelbench.measure.scenarios.draws import SampleOrder, Seeds, arrivals_ns
from levelbench.measure.scenarios.result import EVERY_SAMPLE, Raw, ScenarioResult, judge
from levelbench.measure.statistics.early_stopping import BoundTest, allowed_late, least_queries

MOST_ARRIVALS: Final = 2_000_000
_BLOCK: Final = 4096
_STANDSTILL: Final = 20_000


class SampleStream:
    """The samples of queries, drawn in blocks and kept."""

    def __init__(self, draw: Callable[[int], NDArray[np.int64]], count: int | None = None) -> None:
        self._draw = draw
        self._endless = count is None
        self._blocks = [draw(_BLOCK if count is None else count)]

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._blocks[0].tolist()
        while self._endless:
            self._blocks.append(self._draw(_BLOCK))
            yield from self._blocks[-1].tolist()

    def first(self, count: int) -> NDArray[np.int64]:
        """The samples of the first ``count`` queries, shape (count, samples a query)."""
        return np.concatenate(self._blocks)[:count]


class StreamEnd:
    """When a stream ends: LoadGen's conditions in its order."""

    def __init__(self, scenario: Scenario) -> None:
        self._least_ns, self._least = round(scenario.min_duration_s * 1e9), scenario.min_queries
        self._most_ns = None if scenario.max_duration_s is None else round(scenario.max_duration_s * 1e9)
        self._most = scenario.max_queries
        self._natural = f"{scenario.min_duration_s:g} s and {scenario.min_queries} queries"
        self._once = isinstance(scenario, DawnBench)

    def ended_by(self, queries: int, spent_ns: int) -> str:
        """Why it ends after ``queries`` queries, the last issued after ``spent_ns``; empty if it goes on."""
        if spent_ns == 0 and queries >= _STANDSTILL:
            raise CheckFailedError(
                "run a scenario for a duration",
                f"the clock has not moved in {queries} queries",
                "use a clock that moves, or a system that moves it",
            )
        if queries >= self._least and spent_ns >= self._least_ns and not self._once:
            return self._natural
        if self._most is not None and queries >= self._most:
            return f"the most queries, {self._most}"
        if self._most_ns is not None and spent_ns > self._most_ns:
            return f"the longest duration, {self._most_ns * 1e-9:g} s"
        return ""


class BoundWatch:
    """Whether a server can still keep its bound: not once more queries are late than the whole run allows.

    Queries that are due and not answered are certainly late; nothing is assumed about answered ones. So an overloaded
    system is stopped when its queue is that long, and one that only just fails runs to the end.
    """

    def __init__(self, ledger: Ledger, arrivals_ns: list[int], bound_s: float, most_late: int) -> None:
        self._ledger = ledger
        self._due_ns = [arrival + round(bound_s * 1e9) for arrival in arrivals_ns]
        self._most = most_late
        self._due = 0

    def is_lost(self, now_ns: int) -> bool:
        """Whether the bound cannot be kept any more, ``now_ns`` after the start."""
        due = self._due_ns
        while self._due < len(due) and due[self._due] < now_ns:
            self._due += 1
        return self._due - self._ledger.answered > self._most


def refuse_flood(qps: float, duration_s: float) -> None:
    """``UsageError`` for more arrivals than fit into memory, since they are all created before the run."""
    if qps * duration_s > MOST_ARRIVALS:
        raise UsageError(
            f"{qps:g} queries a second for {duration_s:g} s",
            f"that is {qps * duration_s:,.0f} queries, but {MOST_ARRIVALS:,} at most are possible",
            "give a lower rate or a shorter duration",
        )


def cut_off(arrivals: NDArray[np.int64], scenario: Server) -> tuple[NDArray[np.int64], str]:
    """The arrivals within the most queries and the longest duration, and why they end."""
    ended_by = f"{scenario.min_duration_s:g} s and {scenario.min_queries} queries"
    if scenario.max_queries is not None and len(arrivals) > scenario.max_queries:
        arrivals, ended_by = arrivals[: scenario.max_queries], f"the most queries, {scenario.max_queries}"
    if scenario.max_duration_s is not None:
        within = int(np.searchsorted(arrivals, round(scenario.max_duration_s * 1e9), side="right")) + 1
        if within < len(arrivals):
            arrivals, ended_by = arrivals[:within], f"the longest duration, {scenario.max_duration_s:g} s"
    return arrivals, ended_by


RULES_SAMPLES: Final = 24_576
SLACK: Final = 1.1
_CALIBRATION_NS: Final = 100_000_000
_MOST_CALIBRATION: Final = 2**20
_MOST_TRIES: Final = 4


def run_scenario(
    scenario: Scenario,
    sut: Answering | SystemUnderTest,
    *,
    samples: int,
    seed: int | Seeds = 0,
    clock: Clock = HOST,
    progress: ProgressCallback | None = None,
) -> ScenarioResult:
    """Run ``scenario`` on ``sut``, which knows samples 0 to ``samples`` - 1.

    ``sut`` has ``answer(indices)`` (called in this thread, or for a server in ``workers`` threads) or ``issue(query)``;
    ``load(indices)`` and ``unload(indices)``, if it has them, are called before and after, off the clock. ``seed``
    determines samples and arrivals; ``Seeds`` are LoadGen's three and give exactly its queries. On an accelerator an
    answer is complete when it is on the host, or else the clock must be a ``DeviceClock``.

    Raises ``CheckFailedError`` if the system raises, loses an answer or gives one twice, and ``UsageError`` for
    impossible arguments. Ctrl-C ends the run: worker threads are stopped and ``unload`` is called.
    """
    if samples < 1:
        raise UsageError(f"samples={samples}", "a scenario needs at least one sample", "give 1 or more")
    seeds = Seeds.of(seed)
    order = SampleOrder(samples, seeds, scenario.stride, scenario.min_queries)
    _call(sut, "load", order.loaded)
    try:
        with _driven(scenario, sut, clock) as driven:
            session = _Session(scenario, driven, clock, order, seeds, progress)
            warmed, warmup_s = session.warm_up()
            if isinstance(scenario, Offline):
                session = replace(session, scenario=session.sized(scenario))
            raw = session.run(sut)
            if isinstance(scenario, Offline) and scenario.expected_per_s is None:
                session, raw = _long_enough(session, sut, raw)
    finally:
        _call(sut, "unload", order.loaded)
    raw = replace(raw, warmup_queries=warmed, warmup_s=warmup_s)
    return judge(session.scenario, raw, seed if isinstance(seed, int) else None)


def _call(sut: object, name: str, indices: NDArray[np.int64]) -> None:
    """Call ``load`` or ``unload`` if the system has it."""
    method = getattr(sut, name, None)
    if method is not None:
        method(indices.tolist())


def _long_enough(session: _Session, sut: Answering | SystemUnderTest, raw: Raw) -> tuple[_Session, Raw]:
    """Repeat an offline run at the rate that it had, if the rate measured before made it too short."""
    scenario = session.scenario
    assert isinstance(scenario, Offline)
    for tried in range(1, _MOST_TRIES):
        lasted = int(raw.done_ns.max()) * 1e-9
        if lasted >= scenario.min_duration_s:
            break
        rate = raw.indices.size / max(lasted, 1e-9)
        scenario = replace(scenario, expected_per_s=max(rate, SLACK * (scenario.expected_per_s or 0.0)))
        session = replace(session, scenario=scenario)
        raw = session.run(sut)
        raw = replace(raw, ended_by=f"{raw.ended_by}, after {tried} that were too short")
    return session, raw


def _driven(
    scenario: Scenario, sut: Answering | SystemUnderTest, clock: Clock
) -> AbstractContextManager[SystemUnderTest]:
    """``sut`` as a system that takes issued queries."""
    if isinstance(sut, SystemUnderTest):
        return nullcontext(sut)
    if not isinstance(sut, Answering):
        raise UsageError(
            f"run the {scenario.name} scenario",
            f"{type(sut).__name__} has neither answer nor issue",
            "give the system a method answer(indices) or issue(query)",
        )
    if not isinstance(scenario, Server):
        return nullcontext(Direct(sut, scenario.batch if isinstance(scenario, Offline) else None))
    if isinstance(clock, FakeClock):
        raise UsageError(
            "run the server scenario on a fake clock",
            "the answering threads do not know its time",
            "give a system with issue(query), such as VirtualServers on a VirtualClock",
        )
    return Workers(sut, scenario.workers)


@dataclass(frozen=True)
class _Session:
    """One run: what is driven, on which clock, with which draws."""

    scenario: Scenario
    driven: SystemUnderTest
    clock: Clock
    order: SampleOrder
    seeds: Seeds
    progress: ProgressCallback | None

    def run(self, sut: Answering | SystemUnderTest) -> Raw:
        """Drive the scenario by its pattern."""
        if isinstance(self.scenario, Server):
            return self._on_schedule(self.scenario)
        if isinstance(self.scenario, Offline):
            return self._at_once(self.scenario)
        if isinstance(self.scenario, DawnBench):
            whole = len(self.order.loaded)
            return self._in_turn(SampleStream(lambda count: np.arange(count)[:, None], whole), sut)
        return self._in_turn(SampleStream(self.order.draw), sut)

    def warm_up(self) -> tuple[int, float]:
        """Queries off the clock, all at once for a server, so that each thread gets one; how many, and how long."""
        scenario, count = self.scenario, self.scenario.warmup_queries
        whole = len(self.order.loaded)
        size = (scenario.batch or min(whole, 64)) if isinstance(scenario, Offline) else scenario.stride
        # Separate draws: the warm-up must not change which queries are measured.
        drawn = np.random.default_rng(self.seeds.samples).integers(whole, size=(count, size)).tolist()
        begin = self.clock.now_ns()
        ledger = self._ledger()
        for number, indices in enumerate(drawn):
            ledger.issue(self.driven, ledger.opened(number, indices))
            if not isinstance(scenario, Server):
                ledger.settle()
        ledger.settle()
        return count, (self.clock.now_ns() - begin) * 1e-9

    def sized(self, scenario: Offline) -> Offline:
        """``scenario`` with its number of samples and its rate, which is measured off the clock if it is not given."""
        rate = scenario.expected_per_s or self._rate()
        least = min(RULES_SAMPLES, len(self.order.loaded)) if scenario.min_samples is None else scenario.min_samples
        return replace(scenario, expected_per_s=rate, min_samples=least)

    def _rate(self) -> float:
        """Samples a second of increasingly many samples at once, until they take a tenth of a second.

        In whole batches: a system that pads a batch takes as long for one sample as for a full one.
        """
        batch = self.scenario.batch if isinstance(self.scenario, Offline) else None
        count = -(-16 // batch) * batch if batch else min(len(self.order.loaded), 16)
        while True:
            begin = self.clock.now_ns()
            ledger = self._ledger()
            ledger.issue(self.driven, ledger.opened(0, self.order.whole(count).tolist()))
            ledger.settle()
            spent = self.clock.now_ns() - begin
            if spent >= _CALIBRATION_NS or count >= _MOST_CALIBRATION:
                return count / max(spent, 1) * 1e9
            count *= 2

    def _in_turn(self, samples: SampleStream, sut: Answering | SystemUnderTest) -> Raw:
        """One query after the other."""
        turns = Turns(self.clock, self.scenario.name, self.scenario.timeout_s, self.progress)
        limits = StreamEnd(self.scenario)
        if isinstance(sut, SystemUnderTest):
            taken = turns.issue(sut, samples, limits)
        else:
            taken = turns.answer(sut, samples, limits)
        issued, done = taken.issued_ns, taken.done_ns
        return Raw(issued, issued, done, samples.first(len(done)), taken.ended_by or EVERY_SAMPLE)

    def _on_schedule(self, scenario: Server) -> Raw:
        """Issue at the scheduled arrivals, whatever is still open, then wait for the rest."""
        least_ns = round(scenario.min_duration_s * 1e9)
        refuse_flood(scenario.qps, scenario.min_duration_s)
        arrivals = arrivals_ns(scenario.qps, least_ns, scenario.min_queries, self.seeds.schedule)
        arrivals, ended_by = cut_off(arrivals, scenario)
        most_late = allowed_late(len(arrivals), scenario.quantile)
        drawn = self.order.draw(len(arrivals))
        ledger = self._ledger()
        queries = [ledger.made(number, indices) for number, indices in enumerate(drawn.tolist())]
        with _uncollected():
            # If there are too few queries to prove the bound anyway, run to the end: then only the latencies matter.
            watch = None if most_late is None else BoundWatch(ledger, arrivals.tolist(), scenario.bound_s, most_late)
            start, issued = self._issue_on_time(ledger, queries, arrivals.tolist(), watch)
            ledger.settle()
        count = len(issued)
        if count < len(queries):
            ended_by = f"the bound, which could no longer be kept after {count} of {len(queries)} queries"
        times = np.asarray(issued, dtype=np.int64) - start
        return Raw(arrivals[:count], times, ledger.done_ns(count) - start, drawn[:count], ended_by)

    def _issue_on_time(
        self, ledger: Ledger, queries: list[Query], arrivals: list[int], watch: BoundWatch | None
    ) -> tuple[int, list[int]]:
        """Issue each query at its arrival, until the bound is lost; when the run began, and when each was issued."""
        issued: list[int] = []
        start = self.clock.now_ns()
        report = Reporter(self.progress, start) if self.progress is not None else None
        for query, arrival in zip(queries, arrivals, strict=True):
            wait_until(self.clock, start + arrival, lambda: ledger.failure is not None)
            ledger.open(query)
            issued.append(ledger.issue(self.driven, query))
            if watch is not None and watch.is_lost(issued[-1] - start):
                break
            if report is not None:
                report(len(issued), issued[-1])
        return start, issued

    def _at_once(self, scenario: Offline) -> Raw:
        """One query of all samples."""
        promised = SLACK * scenario.min_duration_s * (scenario.expected_per_s or 0.0)
        count = max(scenario.min_samples or 1, int(promised))
        if scenario.batch:
            # A last batch that is not full may take as long as a full one.
            count = -(-count // scenario.batch) * scenario.batch
        indices = self.order.whole(count)
        ledger = Ledger(self.clock, scenario.timeout_s, scenario.name, by_sample=True)
        query = ledger.opened(0, indices.tolist())
        start = ledger.issue(self.driven, query)
        ledger.settle()
        zero, done = np.zeros(1, dtype=np.int64), ledger.done_ns(1) - start
        return Raw(zero, zero, done, indices[None, :], f"{count} samples", answered_ns=ledger.samples_ns() - start)

    def _ledger(self) -> Ledger:
        return Ledger(self.clock, self.scenario.timeout_s, self.scenario.name)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Hide existing objects from the garbage collector, which would otherwise visit every query during the run."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


ProgressCallback = Callable[[int, float], None]
"""Receives the queries so far and the seconds since the start, about five times a second."""

_REPORT_NS: Final = 200_000_000


@dataclass(frozen=True, eq=False)
class Taken:
    """Issue and answer of each query in nanoseconds from the start, and why it ended (empty: no queries left)."""

    issued_ns: NDArray[np.int64]
    done_ns: NDArray[np.int64]
    ended_by: str


class Reporter:
    """Calls a progress callback at most five times a second."""

    def __init__(self, progress: ProgressCallback, start_ns: int) -> None:
        self._progress = progress
        self._start_ns = start_ns
        self._next_ns = start_ns

    def __call__(self, queries: int, now_ns: int) -> None:
        """Report if it is time to."""
        if now_ns >= self._next_ns:
            self._progress(queries, (now_ns - self._start_ns) * 1e-9)
            self._next_ns = now_ns + _REPORT_NS


@dataclass(frozen=True)
class Turns:
    """Issues queries one after the other on ``clock``; ``name`` is the scenario's, for messages."""

    clock: Clock
    name: str
    timeout_s: float
    progress: ProgressCallback | None = None

    def answer(self, sut: Answering, queries: Iterable[list[int]], ending: StreamEnd | None = None) -> Taken:
        """The tight loop for a system that answers at once."""
        now_ns, answer = self.clock.now_ns, sut.answer
        issued: list[int] = []
        done: list[int] = []
        ended_by = ""
        start = now_ns()
        report = Reporter(self.progress, start) if self.progress is not None else None
        for indices in queries:
            begin = now_ns()
            try:
                answer(indices)
            except Exception as error:
                raise blame(self.name, len(issued), indices, error) from error
            end = now_ns()
            issued.append(begin)
            done.append(end)
            if report is not None:
                report(len(done), end)
            if ending is not None and (ended_by := ending.ended_by(len(done), begin - start)):
                break
        return Taken(_from(issued, start), _from(done, start), ended_by)

    def issue(self, sut: SystemUnderTest, queries: Iterable[list[int]], ending: StreamEnd | None = None) -> Taken:
        """The same for a system that completes queries later: the next is issued once the last is complete."""
        ledger = Ledger(self.clock, self.timeout_s, self.name)
        issued: list[int] = []
        ended_by = ""
        start = self.clock.now_ns()
        report = Reporter(self.progress, start) if self.progress is not None else None
        for indices in queries:
            begin = ledger.issue(sut, ledger.opened(len(issued), indices))
            ledger.settle()
            issued.append(begin)
            if report is not None:
                report(len(issued), self.clock.now_ns())
            if ending is not None and (ended_by := ending.ended_by(len(issued), begin - start)):
                break
        return Taken(_from(issued, start), ledger.done_ns(len(issued)) - start, ended_by)


def _from(times_ns: list[int], start_ns: int) -> NDArray[np.int64]:
    return np.asarray(times_ns, dtype=np.int64) - start_ns


_MOST_STEPS: Final = 10


@dataclass(frozen=True)
class RateTrial:
    """One rate that was tried, and whether its run was valid."""

    qps: float
    valid: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Peak:
    """The largest rate that passed, the run that showed it, and the smallest rate above it that failed."""

    qps: float
    failed_qps: float
    result: ScenarioResult
    trials: tuple[RateTrial, ...]
    tolerance: float


def find_peak(
    server: Server,
    sut: Answering | SystemUnderTest,
    *,
    samples: int,
    seed: int | Seeds = 0,
    clock: Clock = HOST,
    tolerance: float = 0.05,
    progress: Callable[[RateTrial], None] | None = None,
) -> Peak:
    """Bisect the rate of ``server``, from ``server.qps``, until pass and fail are within ``1 + tolerance``.

    The rate is doubled while runs are valid and halved while they are not, then bisected on the logarithm. Each run has
    at least the queries that early stopping needs, so that none fails for lack of them. No rate is tried twice, so on a
    noisy machine the bracket is only as good as the runs at its two ends.

    Raises ``CheckFailedError`` if no rate passes or none fails within ten halvings or doublings (a factor of 1024), or
    if a limit of the scenario ends a run before it has enough queries, since a lower rate would take even longer.
    """
    if not tolerance > 0:
        raise UsageError(
            f"find the peak within {tolerance}", "a bracket needs a width", "give a tolerance such as 0.05"
        )
    trials: list[RateTrial] = []
    server = replace(server, min_queries=max(server.min_queries, least_queries(server.quantile)))

    def runs(qps: float) -> ScenarioResult:
        result = run_scenario(replace(server, qps=qps), sut, samples=samples, seed=seed, clock=clock)
        trials.append(RateTrial(qps, result.valid, result.reasons))
        if progress is not None:
            progress(trials[-1])
        return result

    best, high = _bracket(server.qps, runs, trials)
    while high > (1.0 + tolerance) * _rate_of(best):
        middle = math.sqrt(high * _rate_of(best))
        result = runs(middle)
        if result.valid:
            best = result
        else:
            high = middle
    return Peak(_rate_of(best), high, best, tuple(trials), tolerance)


def _rate_of(result: ScenarioResult) -> float:
    """The rate that a server run was made at."""
    return result.target_per_s or 0.0


def _refuse_limited(result: ScenarioResult) -> None:
    """Refuse a run within its bound that a limit cut short: a lower rate would give even fewer queries."""
    early = result.early
    if result.valid or not isinstance(early, BoundTest) or not result.ended_by.startswith(("the most", "the longest")):
        return
    if early.late <= (1.0 - early.quantile) * early.queries:
        raise CheckFailedError(
            "find the peak rate of a server",
            f"at {_rate_of(result):g} a second {result.ended_by}, ended it with {early.queries} queries in bound, "
            f"but {early.queries + early.more} are needed",
            "allow a longer run or more queries: max_duration_s, max_queries",
        )


def _bracket(
    qps: float, runs: Callable[[float], ScenarioResult], trials: list[RateTrial]
) -> tuple[ScenarioResult, float]:
    """A run that is valid, and a rate above it that is not."""
    first = runs(qps)
    _refuse_limited(first)
    last, factor = first, 2.0 if first.valid else 0.5
    for _ in range(_MOST_STEPS):
        qps *= factor
        result = runs(qps)
        if result.valid != first.valid:
            return (last, qps) if first.valid else (result, qps / factor)
        last = result
        _refuse_limited(result)
    raise CheckFailedError(
        "find the peak rate of a server",
        f"every rate from {trials[0].qps:g} to {trials[-1].qps:g} a second {'passed' if first.valid else 'failed'}"
        + (f": {'; '.join(last.reasons)}" if last.reasons else ""),
        "look at the reasons: the bound may be below the latency of a single query, or a minimum unreachable",
    )
