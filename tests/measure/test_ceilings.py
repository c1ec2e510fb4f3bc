import itertools
import json

import numpy as np
import pytest

from levelbench.errors import UnknownNameError
from levelbench.measure import ceilings as c
from levelbench.measure.clocks import FakeClock
from levelbench.measure.environment.machine import Roots
from levelbench.measure.statistics import Estimate

MS = 1_000_000


def machine(folder, cache_kib=64, available_kb=10_000_000):
    cache = folder / "devices" / "system" / "cpu" / "cpu0" / "cache" / "index3"
    cache.mkdir(parents=True)
    for name, content in (("level", 3), ("type", "Unified"), ("size", f"{cache_kib}K"), ("shared_cpu_list", "0-1")):
        (cache / name).write_text(str(content))
    (folder / "meminfo").write_text(f"MemAvailable: {available_kb} kB\n")
    return Roots(folder, folder)


@pytest.fixture
def result():
    return c.Ceilings({"float32": Estimate(200e9, None, 1, "median")}, {"triad": Estimate(10e9, None, 1, "median")})


def test_a_share_is_the_part_of_the_limit(result):
    assert result.share(50e9, "float32") == pytest.approx(0.25)


def test_a_precision_that_was_not_measured_is_named(result):
    with pytest.raises(UnknownNameError, match="float32"):
        result.share(1.0, "float33")


def test_the_rate_is_operations_by_time_as_a_median_with_its_interval():
    clock = FakeClock()
    durations = iter([500 * MS] + [10 * MS] * 40 + [1000 * MS] * 5)
    rate = c.measure_gemm(lambda: clock.advance(next(durations)), 2e7, seconds=0.4, clock=clock)
    assert rate.value == pytest.approx(2e9)
    assert rate.n == 40
    assert rate.interval.low == rate.interval.high == pytest.approx(2e9)


def test_the_best_rate_is_that_of_the_call_that_nothing_interrupted():
    clock = FakeClock()
    waits = itertools.cycle([90 * MS, 0, 40 * MS])

    def make(n):
        return lambda: clock.advance(n * MS + next(waits)), 2.0 * n**3

    rate = c.best_gemm(make, 2 * 100**3, seconds=4.0, clock=clock)
    assert rate.value == pytest.approx(2 * 200**3 / 0.2)


def test_the_first_call_is_not_on_the_clock():
    clock = FakeClock()
    durations = iter([10_000 * MS] + [10 * MS] * 10)
    rate = c.measure_gemm(lambda: clock.advance(next(durations)), 1.0, seconds=0.1, clock=clock)
    assert rate.value == pytest.approx(100.0)


def test_even_without_time_there_are_enough_values_for_an_interval():
    clock = FakeClock()
    rate = c.measure_gemm(lambda: clock.advance(MS), 1.0, seconds=0.0, clock=clock)
    assert rate.n == 6
    assert rate.interval is not None


def test_a_clock_that_stands_still_does_not_measure_for_ever():
    assert c.measure_gemm(lambda: None, 1.0, seconds=1.0, clock=FakeClock()).n == 1000


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpys_product_is_right_and_counts_two_operations_a_multiply_add(dtype):
    work, flops = c.numpy_gemm(dtype)(16)
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((16, 16)).astype(dtype) for _ in range(2))
    product = work()
    assert product.dtype == dtype
    np.testing.assert_allclose(product, a @ b, rtol=1e-5, atol=1e-5)
    assert flops == 2 * 16**3


@pytest.mark.parametrize(("seconds", "size"), [(0.001, 256), (0.2, 512), (1.5, 1024), (1000.0, 4096)])
def test_the_largest_size_is_taken_of_which_enough_calls_fit(seconds, size):
    clock = FakeClock()

    def maker(n):
        # A tenth of a second for the product of size 1024.
        return lambda: clock.advance(int(1e8 * (n / 1024) ** 3)), 2.0 * n**3

    found, taken = c.measure_largest_gemm(maker, seconds, clock)
    assert taken == size
    assert found.value == pytest.approx(2.0 * 1024**3 * 10)


def test_precisions_of_a_framework_are_measured_beside_numpys_or_in_their_place(tmp_path):
    clock = FakeClock(tick_ns=MS)

    def maker(n):
        return lambda: None, 5e6

    gemms = [("bfloat16", maker), ("float32", maker)]
    found = c.measure_ceilings(0.01, clock, gemms, roots=machine(tmp_path), cores=1)
    assert set(found.flop_s) == {"float32", "float64", "bfloat16"}
    assert found.flop_s["float32"].value == found.flop_s["bfloat16"].value == pytest.approx(5e9)


@pytest.mark.parametrize(("threads", "elements"), [(1, 10), (2, 40_001), (3, 100_000)])
def test_triad_is_b_plus_three_c_in_every_element(threads, elements):
    random = np.random.default_rng(0)
    b, cc = random.random(elements), random.random(elements)
    a = np.full(elements, np.nan)
    edges = np.linspace(0, elements, threads + 1).astype(int)
    for start, stop in itertools.pairwise(edges):
        c._triad(a, b, cc, start, stop)
    np.testing.assert_allclose(a, b + 3 * cc)


def test_bandwidth_counts_two_words_for_copy_and_three_for_triad():
    # Each reading of the clock is a millisecond after the one before.
    found = c.measure_bandwidth(1000, 2, seconds=0.1, clock=FakeClock(tick_ns=MS))
    assert found["copy"].value == pytest.approx(2 * 8 * 1000 / 1e-3)
    assert found["triad"].value == pytest.approx(3 * 8 * 1000 / 1e-3)


def test_arrays_are_four_times_the_last_level_cache(tmp_path):
    found = c.measure_ceilings(0.01, FakeClock(tick_ns=MS), roots=machine(tmp_path), cores=2)
    assert found.details["array_bytes"] == 4 * 64 * 1024
    assert found.details["beyond_caches"] is True


def test_arrays_that_do_not_fit_into_memory_are_smaller_and_say_so(tmp_path):
    roots = machine(tmp_path, cache_kib=1024, available_kb=12 * 1024)
    found = c.measure_ceilings(0.01, FakeClock(tick_ns=MS), roots=roots, cores=2)
    assert found.details["array_bytes"] == 2**20
    assert found.details["beyond_caches"] is False


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": 16 << 20, "memory.current": 5 << 20, "memory.stat": f"anon 1\ninactive_file {1 << 20}"},
        {"memory/memory.limit_in_bytes": 16 << 20, "memory/memory.usage_in_bytes": 4 << 20},
    ],
    ids=["version 2", "version 1"],
)
def test_arrays_that_do_not_fit_into_what_a_container_has_left_are_smaller_and_say_so(tmp_path, files):
    roots = machine(tmp_path, cache_kib=1024)
    for name, content in files.items():
        path = tmp_path / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    found = c.measure_ceilings(0.01, FakeClock(tick_ns=MS), roots=roots, cores=2)
    assert found.details["array_bytes"] == 2**20
    assert found.details["beyond_caches"] is False


def test_a_container_without_a_limit_leaves_the_arrays_as_they_are(tmp_path):
    roots = machine(tmp_path)
    (tmp_path / "fs" / "cgroup").mkdir(parents=True)
    (tmp_path / "fs" / "cgroup" / "memory.max").write_text("max\n")
    assert c.measure_ceilings(0.01, FakeClock(tick_ns=MS), roots=roots, cores=2).details["beyond_caches"] is True


def test_ceilings_are_json(tmp_path):
    found = c.measure_ceilings(0.01, FakeClock(tick_ns=MS), roots=machine(tmp_path), cores=1)
    read = json.loads(json.dumps(found.to_dict()))
    assert set(read["flop_s"]) == {"float32", "float64"}
    assert set(read["bandwidth_b_s"]) == {"copy", "triad"}
    assert read["flop_s"]["float32"]["interval"]["level"] == 0.95


def test_this_machine_has_limits_above_zero(tmp_path):
    found = c.measure_ceilings(0.2, roots=machine(tmp_path), cores=2)
    assert all(each.value > 0 for each in (*found.flop_s.values(), *found.bandwidth_b_s.values()))
