"""What is made of the raw times: LoadGen's definitions, with intervals where there can be some."""

import numpy as np
import pytest

from levelbench.measure.scenarios import QUANTILES, Server, SingleStream
from levelbench.measure.scenarios.result import Raw, judge

MS = 10**6


def raw(latencies_ns, gap_ns=MS, late_ns=0):
    n = len(latencies_ns)
    scheduled = np.arange(n, dtype=np.int64) * gap_ns
    done = scheduled + np.asarray(latencies_ns, dtype=np.int64)
    return Raw(scheduled, scheduled + late_ns, done, np.zeros((n, 1), dtype=np.int64), "by hand")


def test_the_quantiles_are_loadgens_with_exact_intervals():
    result = judge(SingleStream(min_duration_s=0), raw(np.arange(1, 1001) * MS))
    assert tuple(result.quantiles) == QUANTILES
    assert result.quantiles[0.9].value == pytest.approx(0.901)
    assert result.quantiles[0.9].value in result.quantiles[0.9].interval
    assert result.quantiles[0.9].interval.low == pytest.approx(0.881)


def test_too_few_values_give_a_quantile_and_no_interval():
    result = judge(SingleStream(min_duration_s=0), raw([MS] * 100))
    assert result.quantiles[0.99].interval is None
    assert result.quantiles[0.99].value == pytest.approx(0.001)


def test_lateness_is_part_of_a_servers_latency_and_told_apart():
    result = judge(Server(qps=1000, bound_s=1, min_duration_s=0), raw([5 * MS] * 500, late_ns=2 * MS))
    assert set(result.latencies_ns.tolist()) == {5 * MS}
    assert set(result.lateness_ns.tolist()) == {2 * MS}
    assert result.lateness_s(0.99) == pytest.approx(0.002)


def test_a_single_query_has_a_latency_and_no_rate_of_its_own():
    result = judge(SingleStream(min_duration_s=0, min_queries=1), raw([3 * MS]))
    assert result.rates == {"without driver": pytest.approx(1000 / 3)}


def test_raw_values_cannot_be_changed():
    result = judge(SingleStream(min_duration_s=0), raw([MS] * 100))
    with pytest.raises(ValueError, match="read-only"):
        result.latencies_ns[0] = 0


def test_the_settings_are_said():
    result = judge(Server(qps=10, bound_s=0.1), raw([MS] * 3), seed=4)
    assert result.settings["qps"] == 10
    assert result.settings["min_duration_s"] == 10.0
    assert (result.scenario, result.seed) == ("server", 4)
