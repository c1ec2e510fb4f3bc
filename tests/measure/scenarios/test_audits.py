"""Audits: what they are for is found, an honest system passes, and how often by chance is known."""

import numpy as np
import pytest

from levelbench.errors import UsageError
from levelbench.measure.clocks import FakeClock
from levelbench.measure.scenarios import (
    KeepSome,
    Offline,
    Server,
    SingleStream,
    VirtualClock,
    VirtualServers,
    audit_caching,
    audit_kept_answers,
    audit_same_result,
    run_scenario,
)

MS = 10**6


class Noisy:
    """Takes about a millisecond with log-normal noise and rare stalls; a sample in its cache takes ``hit`` of it."""

    def __init__(self, clock, seed=0, hit=1.0, noise=0.05, holds=10**9):
        self.clock, self.hit, self.holds = clock, hit, holds
        self.cache = {}
        draws = np.random.default_rng(seed)
        stalls = np.where(draws.random(4096) < 0.02, 10.0, 1.0)
        self.costs = iter((MS * stalls * np.exp(noise * draws.standard_normal(4096))).astype(int).tolist())

    def answer(self, indices):
        for index in indices:
            known = self.cache.pop(index, False)
            self.clock.advance(int(next(self.costs) * (self.hit if known else 1.0)))
            self.cache[index] = True
            if len(self.cache) > self.holds:
                self.cache.pop(next(iter(self.cache)))


def caching(hit, seed=0, **settings):
    clock = FakeClock()
    return audit_caching(Noisy(clock, seed, hit, **settings), samples=300, seed=seed, clock=clock)


def test_a_system_without_a_cache_passes():
    audit = caching(1.0)
    assert audit.verdict == "passed"
    assert 1.0 in audit.interval


@pytest.mark.parametrize("holds", [1, 16, 10**9])
def test_a_cache_is_found_however_small(holds):
    audit = caching(0.5, holds=holds)
    assert audit.verdict == "failed"
    assert audit.value == pytest.approx(2.0, rel=0.1)


def test_a_cache_that_saves_little_is_within_the_limit():
    assert caching(0.97).verdict == "passed"


def test_a_cache_that_saves_just_the_limit_is_not_decided():
    assert caching(1 / 1.1).verdict == "unclear"


def test_an_honest_system_is_hardly_ever_accused():
    verdicts = [caching(1.0, seed, noise=0.3).verdict for seed in range(100)]
    assert verdicts.count("failed") <= 2


def test_a_system_at_the_very_limit_is_accused_as_often_as_the_level_says():
    # 2.5 % nominal: 6 of 100 or more would happen once in 24.
    verdicts = [caching(1 / 1.1, seed).verdict for seed in range(100, 200)]
    assert verdicts.count("failed") <= 7
    assert verdicts.count("passed") <= 7


def test_a_cache_of_a_third_is_found_in_almost_every_audit():
    verdicts = [caching(1 / 1.33, seed, noise=0.1).verdict for seed in range(200, 250)]
    assert verdicts.count("failed") >= 48


def test_drift_is_not_taken_for_a_cache():
    clock = FakeClock()

    class Warming:
        cost = 4 * MS

        def answer(self, indices):
            self.cost = int(self.cost * 0.995)
            clock.advance(self.cost)

    assert audit_caching(Warming(), samples=300, clock=clock).verdict == "passed"


def test_too_few_samples_cannot_tell():
    clock = FakeClock()
    audit = audit_caching(Noisy(clock), samples=40, clock=clock)
    assert audit.verdict == "unclear"
    assert "60 samples are needed" in audit.found


def test_no_sample_is_in_two_blocks():
    asked = []

    class Listening:
        def answer(self, indices):
            asked.extend(indices)
            clock.advance(MS)

    clock = FakeClock()
    audit_caching(Listening(), samples=220, clock=clock)
    different = [index for index in set(asked) if asked.count(index) == 1]
    same = [index for index in set(asked) if asked.count(index) > 1]
    assert (len(different), len(same)) == (12 * 17, 12)


def test_a_system_that_answers_later_is_audited_as_well():
    clock = VirtualClock()
    seen = set()

    def service(query):
        known = query.indices[0] in seen
        seen.add(query.indices[0])
        return MS // 2 if known else MS

    assert audit_caching(VirtualServers(clock, service), samples=300, clock=clock).verdict == "failed"


class Model:
    """Answers the square of the index; ``lies(number)`` decides about each query."""

    def __init__(self, clock, lies=lambda number: False):
        self.clock, self.lies, self.number = clock, lies, 0

    def answer(self, indices):
        self.number += 1
        self.clock.advance(MS)
        return [-1 if self.lies(self.number) else index**2 for index in indices]


REFERENCE = {index: index**2 for index in range(100)}


def kept_by(lies, share=0.2):
    clock = FakeClock()
    keeping = KeepSome(Model(clock, lies), share, seed=3)
    run_scenario(SingleStream(min_duration_s=1, warmup_queries=0), keeping, samples=100, clock=clock)
    return keeping.kept


def test_a_share_of_the_answers_is_kept():
    assert 150 < len(kept_by(lambda number: False)) < 250


def test_true_answers_pass_and_the_audit_says_what_it_would_have_found():
    audit = audit_kept_answers(kept_by(lambda number: False), REFERENCE)
    assert audit.verdict == "passed"
    assert f"0 of {audit.n} answers differ; more than 1." in audit.found


def test_a_system_that_lies_now_and_then_is_caught():
    audit = audit_kept_answers(kept_by(lambda number: number % 20 == 0), REFERENCE)
    assert audit.verdict == "failed"
    assert audit.value == pytest.approx(0.05, abs=0.04)


def test_differences_within_the_tolerance_pass():
    kept = kept_by(lambda number: number % 20 == 0)
    assert audit_kept_answers(kept, REFERENCE, tolerance=0.1).verdict == "passed"


def test_nothing_kept_or_nothing_to_compare_with_cannot_tell():
    assert audit_kept_answers([], REFERENCE).verdict == "unclear"
    assert audit_kept_answers(kept_by(lambda number: False), {}).verdict == "unclear"


def test_arrays_agree_to_rounding_and_no_further():
    clock = FakeClock()

    class Floats:
        def answer(self, indices):
            return [np.float32([index, 1.0]) for index in indices]

    keeping = KeepSome(Floats(), 1.0)
    keeping.answer([5])
    near, far = {5: np.array([5.00001, 1.0])}, {5: np.array([5.01, 1.0])}
    assert audit_kept_answers(keeping.kept, near).verdict == "passed"
    assert audit_kept_answers(keeping.kept, far).verdict == "failed"
    assert audit_kept_answers(keeping.kept, {5: np.zeros(3)}).verdict == "failed"
    assert clock.now_ns() == 0


def test_keeping_passes_on_loading_and_unloading():
    calls = []

    class Loading:
        def load(self, indices):
            calls.append("load")

        def unload(self, indices):
            calls.append("unload")

        def answer(self, indices):
            return indices

    run_scenario(SingleStream(min_duration_s=0), KeepSome(Loading()), samples=3)
    assert calls == ["load", "unload"]


def test_a_share_that_is_none_is_refused():
    with pytest.raises(UsageError, match="share"):
        KeepSome(Model(FakeClock()), 0.0)


def run(scenario, factor=1.0, seed=0):
    clock = FakeClock()
    noise = np.random.default_rng(seed)

    class Steady:
        def answer(self, indices):
            clock.advance(int(len(indices) * MS * factor * np.exp(0.02 * noise.standard_normal())))

    return run_scenario(scenario, Steady(), samples=100, seed=seed, clock=clock)


def test_other_seeds_give_the_same_result():
    scenario = SingleStream(min_duration_s=1)
    audit = audit_same_result(run(scenario, seed=1), run(scenario, seed=2))
    assert audit.verdict == "passed"
    assert audit.interval.low < 1 < audit.interval.high


def test_a_system_that_knows_its_seed_is_found():
    scenario = SingleStream(min_duration_s=1)
    assert audit_same_result(run(scenario, 1.0), run(scenario, 1.3, seed=2)).verdict == "failed"


@pytest.mark.parametrize(("factor", "verdict"), [(1.05, "passed"), (1.2, "failed")])
def test_without_an_interval_two_single_runs_are_compared_and_it_is_said(factor, verdict):
    offline = Offline(min_duration_s=0, expected_per_s=1)
    audit = audit_same_result(run(offline), run(offline, factor))
    assert (audit.verdict, audit.interval) == (verdict, None)
    assert "from one run each" in audit.found


def server(bound_s, service_ns=MS, seed=0):
    clock = VirtualClock()
    scenario = Server(qps=400, bound_s=bound_s, min_duration_s=5)
    return run_scenario(scenario, VirtualServers(clock, service_ns, 4), samples=10, seed=seed, clock=clock)


def test_a_server_must_be_valid_at_the_same_rate_with_other_seeds():
    first = server(0.005)
    assert audit_same_result(first, server(0.005, seed=1)).verdict == "passed"
    failed = audit_same_result(first, server(0.005, 6 * MS, seed=1))
    assert failed.verdict == "failed"
    assert "not valid: the 0.99 quantile is" in failed.found
    assert audit_same_result(server(0.0001), first).verdict == "unclear"


def test_too_few_queries_for_an_interval_cannot_tell():
    scenario = SingleStream(min_duration_s=0, min_queries=20)
    assert audit_same_result(run(scenario), run(scenario, seed=1)).verdict == "unclear"


def test_two_scenarios_are_not_compared():
    with pytest.raises(UsageError, match="same scenario"):
        audit_same_result(run(SingleStream(min_duration_s=0)), run(Offline(min_duration_s=0)))
