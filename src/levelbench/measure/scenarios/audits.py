"""Audits of a system under test: whether it really answers while it is timed, caches answers, or knows the seed.

An honest system can fail an audit only by chance, and the chance is stated; if the data cannot decide, the verdict is
``unclear`` and never a pass. After MLPerf Inference's compliance tests 01, 04 and 05.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.scenarios.contract import Answering, SystemUnderTest
from levelbench.measure.scenarios.driving import Turns
from levelbench.measure.scenarios.result import ScenarioResult
from levelbench.measure.statistics.compare import paired_log_ratio
from levelbench.measure.statistics.values import Interval

LIMIT: Final = 1.10
"""MLPerf's limit for all three: 10 %."""

_SAME_RESULT: Final = "the same result"
_LEAST_PAIRS: Final = 6
_LEAST_BLOCK: Final = 3
_DRAWS: Final = 65_536

Verdict = Literal["passed", "failed", "unclear"]
Same = Callable[[object, object], bool]


@dataclass(frozen=True)
class AuditVerdict:
    """What an audit found: ``value`` is the ratio or share that was judged, ``n`` the number of observations."""

    name: str
    verdict: Verdict
    found: str
    value: float | None = None
    interval: Interval | None = None
    n: int = 0


class Returning(Protocol):
    """A system that returns its answers, one a sample, in the order of the indices."""

    def answer(self, indices: Sequence[int]) -> Sequence[object]:
        """Answer these samples."""


@dataclass(frozen=True)
class KeptAnswer:
    """One answer that was given while the clock ran."""

    index: int
    answer: object


class KeepSome:
    """A system that keeps a seeded, unpredictable ``share`` of another system's answers while that is measured.

    The other system must return its answers and must not change them afterwards. Whether a query is kept is decided
    after it has been answered, so the system cannot know. ``kept`` holds up to ``most`` answers in order.
    """

    def __init__(self, sut: Returning, share: float = 0.1, seed: int = 0, most: int = 100_000) -> None:
        if not 0.0 < share <= 1.0:
            raise UsageError(f"keep a share {share} of the answers", "it is not in (0, 1]", "give a share such as 0.1")
        self._answer = sut.answer
        # Absent methods stay absent: the driver looks up the calls before and after a run by name.
        for name in ("load", "unload"):
            if hasattr(sut, name):
                setattr(self, name, getattr(sut, name))
        self._keep: list[bool] = (np.random.default_rng(seed).random(_DRAWS) < share).tolist()
        self._number = count()
        self._most = most
        self.kept: list[KeptAnswer] = []

    def answer(self, indices: Sequence[int]) -> None:
        """Have the samples answered, and keep the answers if the draw says so."""
        answers = self._answer(indices)
        if self._keep[next(self._number) % _DRAWS] and len(self.kept) < self._most:
            self.kept.extend(map(KeptAnswer, indices, answers))


def audit_kept_answers(
    kept: Sequence[KeptAnswer], reference: Mapping[int, object], same: Same | None = None, tolerance: float = 0.0
) -> AuditVerdict:
    """Whether answers given while timed are those of the accuracy run, ``reference`` by index (MLPerf TEST01).

    ``same`` compares two answers (default: equal; arrays: within 1e-5 relative and 1e-6 absolute). ``tolerance`` is the
    share that may differ, for systems whose rounding depends on the batch. The text states the share of false answers
    that would have been found with 95 % probability: with n kept answers, 1 - 0.05^(1/n).
    """
    name = "answers under the clock"
    agree = same or _same
    unknown = [each.index for each in kept if each.index not in reference]
    if not kept or unknown:
        found = f"no reference for sample {unknown[0]}" if unknown else "no answer was kept"
        return AuditVerdict(name, "unclear", found)
    wrong = [each.index for each in kept if not agree(each.answer, reference[each.index])]
    share, n = len(wrong) / len(kept), len(kept)
    detectable = 1.0 - 0.05 ** (1.0 / n)
    if share > tolerance:
        found = f"{len(wrong)} of {n} answers differ from the accuracy run, the first for sample {wrong[0]}"
        return AuditVerdict(name, "failed", found, share, n=n)
    found = f"{len(wrong)} of {n} answers differ; more than {detectable:.2%} wrong ones would be found with 95 %"
    return AuditVerdict(name, "passed", found, share, n=n)


def audit_caching(
    sut: Answering | SystemUnderTest,
    *,
    samples: int,
    seed: int = 0,
    clock: Clock = HOST,
    pairs: int = 12,
    block: int = 16,
    limit: float = LIMIT,
    timeout_s: float = 120.0,
) -> AuditVerdict:
    """Whether a repeated sample is answered faster (MLPerf TEST04), on a system that has had no queries before.

    There are ``pairs`` pairs of blocks, one of ``block`` different samples and one of a single sample ``block`` times,
    in turns A B B A, so that drift affects both; an extra query begins each block and is not counted. No sample is in
    two blocks. The ratio of the medians, different over same, has a t interval over the pairs: if it lies entirely
    above ``limit`` the system caches, if entirely below it does not. With fewer samples than needed, blocks are
    shorter; with too few, the verdict is unclear.
    """
    name = "the same sample again"
    block = min(block, samples // pairs - 2)
    if pairs < _LEAST_PAIRS or block < _LEAST_BLOCK:
        needed = max(pairs, _LEAST_PAIRS) * (_LEAST_BLOCK + 2)
        found = f"{samples} samples in {pairs} pairs of blocks; {_LEAST_PAIRS} pairs and {needed} samples are needed"
        return AuditVerdict(name, "unclear", found)
    blocks = _blocks(samples, pairs, block, seed)
    turns = Turns(clock, "caching audit", timeout_s)
    queries = [[index] for indices in blocks for index in indices]
    taken = turns.issue(sut, queries) if isinstance(sut, SystemUnderTest) else turns.answer(sut, queries)
    latencies = (taken.done_ns - taken.issued_ns).reshape(2 * pairs, block + 1)[:, 1:]
    # A clock too coarse for a query would show zeros, but the ratio of logarithms needs positive times.
    medians = np.maximum(np.median(latencies, axis=1), 1.0)
    is_same = _same_first(pairs)
    different, same = medians[~is_same], medians[is_same]
    ratio = paired_log_ratio(same.tolist(), different.tolist(), resolution=1.0)
    verdict = _above(ratio.interval, limit)
    found = (
        f"different samples take {ratio.ratio:.3f} [{ratio.interval.low:.3f}, {ratio.interval.high:.3f}] times as long "
        f"as the same one repeated; the limit is {limit:g}"
    )
    return AuditVerdict(name, verdict, found, ratio.ratio, ratio.interval, pairs)


def audit_same_result(first: ScenarioResult, second: ScenarioResult, limit: float = LIMIT) -> AuditVerdict:
    """Whether ``second`` (other seeds, or with answers kept) is as good as ``first`` (MLPerf TEST05; speed of TEST01).

    The ratio is second over first. Single- and multi-stream: of the scenario's quantile, whose intervals in both runs
    bound the ratio (conservatively). Server: the second run must be valid at the same rate, since its latencies are not
    independent. Offline and DAWNBench's: of the seconds a sample, as in MLPerf, without an interval, so the verdict
    rests on two single runs and says so.
    """
    if first.scenario != second.scenario:
        found = f"a {first.scenario} and a {second.scenario} run"
        raise UsageError("compare two runs of a scenario", found, "give two runs of the same scenario")
    quantile = 0.5 if first.early is None else first.early.quantile
    a, b = first.quantiles[quantile], second.quantiles[quantile]
    ratio = b.value / a.value if a.value else math.inf
    at = f"the {quantile:g} quantile is {ratio:.3f} times the first's"
    if first.scenario == "server":
        valid = "valid" if second.valid else f"not valid: {'; '.join(second.reasons)}"
        verdict: Verdict = "unclear" if not first.valid else "passed" if second.valid else "failed"
        return AuditVerdict(_SAME_RESULT, verdict, f"the second run is {valid}; {at}", ratio, n=2)
    if first.early is not None:
        if a.interval is None or b.interval is None:
            return AuditVerdict(_SAME_RESULT, "unclear", f"{at}, and too few queries for an interval", ratio, n=2)
        interval = Interval(
            b.interval.low / a.interval.high, b.interval.high / a.interval.low, 0.90, "of two order statistics"
        )
        found = f"{at} [{interval.low:.3f}, {interval.high:.3f}]; the limit is {limit:g}"
        return AuditVerdict(
            _SAME_RESULT, _above(interval, limit), found, ratio, interval, first.queries + second.queries
        )
    ratio = first.throughput_per_s / second.throughput_per_s if second.throughput_per_s else math.inf
    found = f"a sample takes {ratio:.3f} times as long, from one run each; the limit is {limit:g}"
    return AuditVerdict(_SAME_RESULT, "failed" if ratio > limit else "passed", found, ratio, n=2)


def _above(interval: Interval, limit: float) -> Verdict:
    if interval.low > limit:
        return "failed"
    return "passed" if interval.high <= limit else "unclear"


def _same_first(pairs: int) -> NDArray[np.bool_]:
    """Which of the 2 ``pairs`` blocks repeat one sample: A B B A, shape (2 pairs,)."""
    turn = np.array([False, True, True, False])
    return np.resize(turn, 2 * pairs)


def _blocks(samples: int, pairs: int, block: int, seed: int) -> list[list[int]]:
    """The samples of each block, including the uncounted first query; no sample is in two blocks."""
    order = iter(np.random.default_rng(seed).permutation(samples).tolist())
    return [
        [next(order)] * (block + 1) if same else [next(order) for _ in range(block + 1)]
        for same in _same_first(pairs).tolist()
    ]


def _same(a: object, b: object) -> bool:
    """Equal; arrays of one shape within 1e-5 relative and 1e-6 absolute."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        one, other = np.asarray(a), np.asarray(b)
        if one.shape != other.shape:
            return False
        if one.dtype.kind in "fc" or other.dtype.kind in "fc":
            return bool(np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True))
        return bool(np.array_equal(one, other))
    return bool(a == b)
