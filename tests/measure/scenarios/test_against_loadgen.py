"""Held against MLPerf's LoadGen, live: the same system, the same seeds, both drivers, one run each."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlperf_loadgen")

from levelbench.measure.scenarios import (
    MultiStream,
    Offline,
    SampleOrder,
    Server,
    SingleStream,
    arrivals_ns,
    run_scenario,
)
from levelbench.measure.scenarios.result import judge

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "loadgen.py"
SAMPLES = 200


@pytest.fixture(scope="module")
def peer():
    spec = importlib.util.spec_from_file_location("loadgen_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def exactly(queries):
    return {"min_duration_s": 0.0, "min_queries": queries, "max_queries": queries}


SCENARIOS = [
    SingleStream(**exactly(700)),
    SingleStream(**exactly(63)),
    MultiStream(**exactly(663), samples_per_query=3),
    Server(qps=4000, bound_s=0.0002, **exactly(500)),
    Offline(min_duration_s=0.05, expected_per_s=2000, min_samples=150),
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_loadgens_own_times_give_loadgens_own_figures(peer, scenario, tmp_path):
    theirs = peer.run_theirs(scenario, peer.Compute(32), SAMPLES, peer.SEEDS, tmp_path)
    rows = peer.theirs_and_ours(theirs, scenario)
    assert len(rows) >= 9
    for name, figure, ours in rows:
        # LoadGen writes rates with six digits; all else is whole numbers.
        wanted = pytest.approx(figure, rel=1e-5) if isinstance(ours, float) else figure
        assert ours == wanted, name


@pytest.mark.parametrize("scenario", SCENARIOS[2:], ids=lambda scenario: scenario.name)
def test_equal_seeds_give_the_very_same_queries(peer, scenario, tmp_path):
    theirs = peer.run_theirs(scenario, peer.Nothing(), SAMPLES, peer.SEEDS, tmp_path).raw
    order = SampleOrder(SAMPLES, peer.SEEDS, scenario.stride, scenario.min_queries)
    if isinstance(scenario, Offline):
        assert np.array_equal(order.whole(theirs.indices.size), theirs.indices[0])
    else:
        assert np.array_equal(order.draw(len(theirs.indices)), theirs.indices)
    if isinstance(scenario, Server):
        assert np.array_equal(arrivals_ns(4000, 0, 500, peer.SEEDS.schedule), theirs.scheduled_ns)


def both(peer, scenario, sut, folder, agree):
    """One run of each driver, ours first; again, twice at most, where the two disagree: a busy machine stalls."""
    for _ in range(3):
        ours = run_scenario(scenario, sut, samples=SAMPLES, seed=peer.SEEDS)
        theirs = judge(scenario, peer.run_theirs(scenario, sut, SAMPLES, peer.SEEDS, folder).raw)
        if agree(ours, theirs):
            break
    return ours, theirs


def test_both_drivers_measure_the_same_latencies_and_discard_the_same_number(peer, tmp_path):
    # A fifth of the samples sleeps four times as long, so the median and the 90th percentile are far apart.
    sut = peer.Sleep([0.002, 0.002, 0.002, 0.002, 0.008])
    known_s = {0.5: 0.002, 0.9: 0.008}

    def agree(ours, theirs):
        pairs = [(ours.quantiles[quantile].value, theirs.quantiles[quantile].value) for quantile in known_s]
        return all(one == pytest.approx(other, rel=0.3) for one, other in pairs)

    ours, theirs = both(peer, SingleStream(**exactly(130)), sut, tmp_path, agree)
    assert agree(ours, theirs)
    assert all(ours.quantiles[quantile].value >= least_s for quantile, least_s in known_s.items())
    assert np.array_equal(ours.indices, theirs.indices)
    assert ours.early.discarded == theirs.early.discarded


def test_both_drivers_find_the_same_queries_late(peer, tmp_path):
    # A query is late by its sample alone: only a stall of a third of a second could make another one late.
    sut = peer.Sleep([0.001] * 9 + [0.45])
    server = Server(qps=500, bound_s=0.35, workers=16, **exactly(80))
    ours, theirs = both(peer, server, sut, tmp_path, lambda ours, theirs: ours.early == theirs.early)
    slow = ours.indices.ravel() % 10 == 9
    assert (ours.latencies_ns[slow] > 450_000_000).all()
    assert ours.early == theirs.early
    assert ours.early.late == slow.sum()
    assert ours.lateness_ns.min() >= 0
