"""Audits after the queries: an honest server and a changed machine pass, a system that knows the seeds fails."""

import numpy as np
import pytest

from levelbench.experiments.inference.measuring import audit_seeds, audited
from levelbench.measure.clocks import FakeClock
from levelbench.measure.scenarios import (
    Server,
    SingleStream,
    VirtualClock,
    VirtualServers,
    audit_same_result,
    find_peak,
    run_scenario,
)

MS = 10**6


def test_an_honest_server_rarely_fails_the_audit_after_a_peak_search():
    accused = 0
    for seed in range(12):
        service_ns = np.random.default_rng(seed).exponential(1e6, 3000).astype(int).tolist()
        server = Server(qps=500, bound_s=0.02, min_duration_s=1, min_queries=662, warmup_queries=0, max_duration_s=50)
        clock = VirtualClock()
        peak = find_peak(server, VirtualServers(clock, service_ns), samples=9, seed=seed, clock=clock, tolerance=0.1)
        clock = VirtualClock()
        lower = audited(server, peak.result, True)
        second = run_scenario(lower, VirtualServers(clock, service_ns), samples=9, seed=seed + 1_000_003, clock=clock)
        accused += audit_same_result(peak.result, second).verdict == "failed"
    # At the highest rate itself, four would fail.
    assert accused <= 1


@pytest.mark.parametrize(
    ("known_ms", "other_ms", "later_ms", "passed"),
    [
        (1.0, 1.0, 1.0, True),
        (1.0, 1.5, 1.0, False),
        (1.0, 1.5, 1.5, None),
        (1.0, 1.5, 2.0, None),
    ],
)
def test_a_system_that_knows_its_seed_fails_and_a_changed_machine_does_not(known_ms, other_ms, later_ms, passed):
    takes_ms = iter([known_ms, other_ms, later_ms])

    def run(seed):
        clock, cost, noise = FakeClock(), next(takes_ms), np.random.default_rng(seed)

        class Steady:
            def answer(self, indices):
                clock.advance(int(MS * cost * np.exp(0.02 * noise.standard_normal())))

        return run_scenario(SingleStream(min_duration_s=0.2), Steady(), samples=9, seed=seed, clock=clock)

    audit = audit_seeds(run(0), run, 0)
    assert audit.passed is passed
    assert ("with the first seeds again" in audit.said) == (passed is None)
