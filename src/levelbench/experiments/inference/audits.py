"""Audits of an answering network: nothing is cached, timed answers are the right ones, other seeds change nothing.

What has been asked before may be cached, so the caching audit comes first and leaves out the samples of
the warm-up; the others need a timed run to compare with and come after it. After MLPerf Inference's compliance tests
01, 04 and 05.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from levelbench.measure.clocks import Clock
from levelbench.measure.scenarios import Scenario, ScenarioResult, Server, run_scenario
from levelbench.measure.scenarios import audits as scenario_audits
from levelbench.measure.scenarios.audits import KeepSome, audit_caching, audit_kept_answers, audit_same_result
from levelbench.networks.inference import Answerer
from levelbench.records.inference import Audit

__all__ = ["BELOW_PEAK", "audit_answers", "audit_cache", "audit_seeds", "audited"]

_MOST_KEPT = 2000
_TOLERANCE = 1e-3
"""Of an output, relative to the largest of its answer: sums are formed in another order for another batch."""
_OTHER_SEED = 1_000_003
_SHORTER = 0.2
BELOW_PEAK = 0.8
"""The highest of many rates that were tried is one that was lucky: at it, an honest system fails every third time."""


class _Returning:
    """The same answers, given back one a sample."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

    def answer(self, indices: Sequence[int]) -> list[tuple[Any, ...]]:
        return list(zip(*self._answerer.outputs(indices), strict=True))


class _Shifted:
    """The same answers, given back to nobody, about samples that are ``shift`` further on."""

    def __init__(self, answerer: Answerer, shift: int) -> None:
        self._answerer, self._shift = answerer, shift

    def answer(self, indices: Sequence[int]) -> None:
        self._answerer.answer([each + self._shift for each in indices])


def audit_cache(answerer: Answerer, samples: int, asked: int, seed: int, clock: Clock) -> Audit:
    """Whether the same sample again is answered faster, on samples from number ``asked`` on: none was asked before."""
    fresh = max(samples - asked, 1)
    return _recorded(audit_caching(_Shifted(answerer, asked), samples=fresh, seed=seed, clock=clock))


def audit_answers(
    scenario: Scenario,
    answerer: Answerer,
    samples: int,
    seed: int,
    first: ScenarioResult,
    clock: Clock,
    find_peak: bool = False,
) -> Iterator[Audit]:
    """Timed runs with other seeds: one to see whether it is as fast, a shorter one of which some answers are kept.

    Two runs, for handing answers over takes time, which would be told as a slower network. With ``find_peak`` both are
    at :data:`BELOW_PEAK` of the rate that was found.
    """
    scenario = audited(scenario, first, find_peak)
    same = audit_seeds(first, lambda by: run_scenario(scenario, answerer, samples=samples, seed=by, clock=clock), seed)
    at = f"; at {BELOW_PEAK:g} of the highest rate" if find_peak else ""
    yield structs.replace(same, said=same.said + at)
    keeping = KeepSome(_Returning(answerer), share=0.5, seed=seed, most=_MOST_KEPT)
    shorter = replace(scenario, min_duration_s=_SHORTER * scenario.min_duration_s)
    run_scenario(shorter, keeping, samples=samples, seed=seed + 2 * _OTHER_SEED, clock=clock)
    numbers = sorted({each.index for each in keeping.kept})
    wanted = _Returning(answerer).answer(numbers) if numbers else []
    yield _recorded(audit_kept_answers(keeping.kept, dict(zip(numbers, wanted, strict=True)), _agree))


def audit_seeds(first: ScenarioResult, run: Callable[[int], ScenarioResult], seed: int) -> Audit:
    """Whether a ``run`` with other seeds is as good as the ``first``, which was with ``seed``.

    One that is worse is held against a third with the first seeds again: where that is no better, the machine has
    changed meanwhile, and the seeds are not to blame.
    """
    second = run(seed + _OTHER_SEED)
    found = audit_same_result(first, second)
    if found.verdict == "failed" and (again := audit_same_result(run(seed), second)).verdict != "failed":
        said = f"{found.found}; but with the first seeds once more: {again.found}"
        return structs.replace(_recorded(found), passed=None, said=said)
    return _recorded(found)


def audited(scenario: Scenario, first: ScenarioResult, find_peak: bool) -> Scenario:
    """The scenario of the second run: a server's at the rate of the ``first``, or below it where that was a peak."""
    if isinstance(scenario, Server) and first.target_per_s is not None:
        return replace(scenario, qps=first.target_per_s * (BELOW_PEAK if find_peak else 1.0))
    return scenario


def _agree(a: Any, b: Any) -> bool:
    """Whether two answers, each a tuple of arrays, are the same to rounding."""
    return len(a) == len(b) and all(_close(np.asarray(one), np.asarray(other)) for one, other in zip(a, b, strict=True))


def _close(one: Any, other: Any) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "fc":
        return bool(np.array_equal(one, other))
    size = float(np.abs(other).max(initial=0.0))
    return bool(np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True))


def _recorded(found: scenario_audits.AuditVerdict) -> Audit:
    passed = {"passed": True, "failed": False}.get(found.verdict)
    figures = {} if found.value is None else {"value": found.value, "n": float(found.n)}
    if found.interval is not None:
        figures |= {"low": found.interval.low, "high": found.interval.high}
    return Audit(found.name, passed, found.found, figures)
