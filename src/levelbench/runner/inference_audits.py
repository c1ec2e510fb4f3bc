"""Audits of an answering network: nothing is cached, timed answers are the right ones, other seeds change nothing.

The one idea: what has been asked before may be cached, so the caching audit comes first and leaves out the samples of
the warm-up; the others need a timed run to compare with and come after it. After MLPerf Inference's compliance tests
01, 04 and 05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from levelbench.measure.clocks import Clock
from levelbench.measure.scenarios import Scenario, ScenarioResult, Server, run_scenario
from levelbench.measure.scenarios import audits as scenario_audits
from levelbench.measure.scenarios.audits import KeepSome, audit_caching, audit_kept_answers, audit_same_result
from levelbench.networks.inference import Answerer
from levelbench.records.inference import Audit

__all__ = ["audit_answers", "audit_cache"]

_MOST_KEPT = 2000
_TOLERANCE = 1e-3
"""Of an output, relative to the largest of its answer: sums are formed in another order for another batch."""
_OTHER_SEED = 1_000_003
_SHORTER = 0.2


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
    scenario: Scenario, answerer: Answerer, samples: int, seed: int, first: ScenarioResult, clock: Clock
) -> Iterator[Audit]:
    """Timed runs with other seeds: one to see whether it is as fast, a shorter one of which some answers are kept.

    Two runs, for handing answers over takes time, which would be told as a slower network.
    """
    if isinstance(scenario, Server) and first.target_per_s is not None:
        scenario = replace(scenario, qps=first.target_per_s)
    second = run_scenario(scenario, answerer, samples=samples, seed=seed + _OTHER_SEED, clock=clock)
    yield _recorded(audit_same_result(first, second))
    keeping = KeepSome(_Returning(answerer), share=0.5, seed=seed, most=_MOST_KEPT)
    shorter = replace(scenario, min_duration_s=_SHORTER * scenario.min_duration_s)
    run_scenario(shorter, keeping, samples=samples, seed=seed + 2 * _OTHER_SEED, clock=clock)
    numbers = sorted({each.index for each in keeping.kept})
    wanted = _Returning(answerer).answer(numbers) if numbers else []
    yield _recorded(audit_kept_answers(keeping.kept, dict(zip(numbers, wanted, strict=True)), _agree))


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


def _recorded(found: scenario_audits.Audit) -> Audit:
    passed = {"passed": True, "failed": False}.get(found.verdict)
    figures = {} if found.value is None else {"value": found.value, "n": float(found.n)}
    if found.interval is not None:
        figures |= {"low": found.interval.low, "high": found.interval.high}
    return Audit(found.name, passed, found.found, figures)
