"""Logs of the installed LoadGen are read as they were written."""

import array

import pytest

from levelbench.competition.exchange import loadgen


def the_only(folder, **options):
    (submission,), problems = loadgen.read_results(folder, **options)
    assert problems == []
    return submission


def run_loadgen(folder, scenario, mode="PerformanceOnly", queries=70):
    lg = pytest.importorskip("mlperf_loadgen")
    folder.mkdir()
    answer = array.array("B", b"\x01\x00\x00\x00")
    address, _ = answer.buffer_info()

    def issue(samples):
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, address, 4) for sample in samples])

    settings = lg.TestSettings()
    settings.scenario, settings.mode = getattr(lg.TestScenario, scenario), getattr(lg.TestMode, mode)
    settings.min_duration_ms, settings.min_query_count, settings.max_query_count = 1, queries, queries
    settings.server_target_qps, settings.server_target_latency_ns = 2000, 100_000_000
    output = lg.LogOutputSettings()
    output.outdir, output.copy_summary_to_stdout = str(folder), False
    logs = lg.LogSettings()
    logs.log_output, logs.enable_trace = output, False
    system = lg.ConstructSUT(issue, lambda: None)
    library = lg.ConstructQSL(16, 16, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(system, library, settings, logs)
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    return folder


@pytest.mark.parametrize(
    ("scenario", "ours", "quantile"),
    [("SingleStream", "single-stream", 0.9), ("Server", "server", None), ("MultiStream", "multi-stream", 0.99)],
)
def test_a_live_run_is_read_as_it_was_logged(tmp_path, scenario, ours, quantile):
    folder = run_loadgen(tmp_path / scenario, scenario)
    logged = loadgen.parse_detail((folder / "mlperf_log_detail.txt").read_bytes(), "reading a log").figures
    (found,) = the_only(folder, task="digits").inference
    assert (found.scenario, found.queries, found.estimate_quantile) == (ours, 70, quantile)
    assert found.mean_latency_s == pytest.approx(logged["result_mean_latency_ns"] / 1e9)
    assert found.quantiles_s["0.5"] == logged["result_50.00_percentile_latency_ns"] / 1e9
    assert sorted(found.quantiles_s.values()) == list(found.quantiles_s.values())
    if scenario == "SingleStream":
        assert found.estimate_s == logged["early_stopping_latency_ss"] / 1e9


def test_a_live_offline_run(tmp_path):
    (found,) = the_only(run_loadgen(tmp_path / "o", "Offline", queries=1), task="digits").inference
    assert (found.queries, found.scenario) == (1, "offline")
    assert found.throughput_per_s == pytest.approx(found.samples / found.duration_s)


def test_live_answers_are_one_a_sample(tmp_path):
    folder = run_loadgen(tmp_path / "a", "SingleStream", "AccuracyOnly")
    found = loadgen.parse_answers((folder / "mlperf_log_accuracy.json").read_bytes(), "reading a log")
    assert sorted(answer.qsl_idx for answer in found) == list(range(16))
    assert {answer.data for answer in found} == {"01000000"}
