"""Roofs: the least time is a bound with capacities, an inner level is never slower, and rounds keep the best."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.test_ceilings import machine

from levelbench.measure import roofs as r
from levelbench.measure.ceilings import numpy_gemm

LEVELS = (r.MemoryLevel("L1", 100.0), r.MemoryLevel("L2", 1000.0), r.MemoryLevel("memory", math.inf))
RATES = r.RoofRates({"float32": 1e9}, {"L1": 100.0, "L2": 10.0, "memory": 1.0}, LEVELS)


def test_the_first_bytes_come_from_the_first_level_and_the_rest_from_further_out():
    assert RATES.memory_s(50) == pytest.approx(0.5)
    assert RATES.memory_s(600) == pytest.approx(1.0 + 50.0)
    assert RATES.memory_s(1500) == pytest.approx(1.0 + 90.0 + 500.0)


@pytest.mark.slow
@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_more_bytes_never_take_less_time(a, b):
    low, high = sorted((a, b))
    assert RATES.memory_s(low) <= RATES.memory_s(high) * (1 + 1e-12)


def test_an_inner_level_counts_at_least_as_fast_as_the_next():
    odd = r.RoofRates({}, {"L1": 5.0, "L2": 10.0, "memory": 1.0}, LEVELS)
    assert odd.memory_s(100) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("flops", "moved", "bound", "roof"),
    [
        (1e12, 50.0, "compute", "float32"),
        (1.0, 50.0, "memory", "L1"),
        (1.0, 2000.0, "memory", "memory"),
        (None, 500.0, "memory", "L2"),
        (1e9, None, "compute", "float32"),
    ],
)
def test_the_slower_of_both_binds_and_an_unknown_part_does_not(flops, moved, bound, roof):
    found = RATES.least(flops, moved, "float32")
    assert (found.bound, found.roof) == (bound, roof)


def test_nothing_known_has_no_bound():
    assert RATES.least(None, None, "float32") is None
    assert RATES.least(1e9, None, "bfloat16") is None
    assert RATES.least(0.0, 0.0, "float32") is None


def test_the_best_round_counts_and_the_spread_is_kept():
    rounds = [r.RoofRates({"float32": x}, {"L1": x, "L2": x, "memory": x}, LEVELS) for x in (1.0, 2.0, 3.0, 4.0, 5.0)]
    assert r.best_of_rounds(rounds).flop_s == {"float32": 5.0}
    assert r.steady(rounds)["float32"] == pytest.approx(2.0 / 3.0)


def test_levels_are_those_of_the_machine_and_end_in_memory(tmp_path):
    found = r.levels_here(2, machine(tmp_path, cache_kib=64))
    assert found == (r.MemoryLevel("L3", 65536.0), r.MemoryLevel("memory", math.inf))


def test_every_kernel_gives_a_rate_in_each_round(tmp_path):
    with r.Roofs([("float32", numpy_gemm(np.float32))], roots=machine(tmp_path), cores=1) as kernels:
        found = kernels.measure()
    assert set(found.flop_s) == {"float32", "float64"}
    assert set(found.bytes_s) == {"L3", "memory"}
    assert all(rate > 0 for rate in (*found.flop_s.values(), *found.bytes_s.values()))
