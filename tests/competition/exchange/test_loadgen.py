"""LoadGen's logs: a hand-written run, and those of the installed LoadGen."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.entries import encode
from levelbench.competition.exchange import loadgen
from levelbench.competition.exchange.loadgen import parse_accuracy, parse_summary
from levelbench.errors import RecordError

RULE = "=" * 48


def summary(
    scenario="SingleStream",
    mode="PerformanceOnly",
    headline="90.0th percentile latency (ns) : 5029000",
    verdict="VALID",
    early=(
        " * Processed at least 64 queries (120).\n * Would discard 3 highest latency queries.\n"
        " * Early stopping 90.0th percentile estimate: 8937000\n"
    ),
    stats="QPS w/ loadgen overhead         : 133.04\nQPS w/o loadgen overhead        : 209.07\n",
    parameters="samples_per_query : 1\ntarget_qps : 1000\ntarget_latency (ns): 0\n",
):
    early = f"Early Stopping Result:\n{early}" if early else ""
    return f"""{RULE}
MLPerf Results Summary
{RULE}
SUT name : my system
Scenario : {scenario}
Mode     : {mode}
{headline}
Result is : {verdict}
  Min duration satisfied : Yes
  Min queries satisfied : Yes
  Early stopping satisfied: {"Yes" if verdict == "VALID" else "NO"}
{early}
{RULE}
Additional Stats
{RULE}
{stats}
Min latency (ns)                : 3476000
Max latency (ns)                : 38332000
Mean latency (ns)               : 4783000
50.00 percentile latency (ns)   : 4338000
90.00 percentile latency (ns)   : 5029000
99.00 percentile latency (ns)   : 9808000
99.90 percentile latency (ns)   : 38332000

{RULE}
Test Parameters Used
{RULE}
{parameters}
No warnings encountered during test.
"""


def detail(**values):
    keys = {
        "loadgen_version": "6.0.17 @ d6147c7eb7",
        "test_datetime": "2026-11-21T20:47:29Z",
        "power_begin": "11-21-2026 20:47:29.318",
        "power_end": "11-21-2026 20:47:30.319",
        "result_validity": "VALID",
        "result_query_count": 120,
        "result_mean_latency_ns": 4783000,
        **values,
    }
    lines = []
    for key, value in keys.items():
        metadata = {"is_error": key == "error_runtime", "is_warning": False, "file": "a.cc", "line_no": 1, "pid": 1}
        event = {"key": key, "value": value, "time_ms": 0.5, "namespace": "mlperf::logging", "metadata": metadata}
        lines.append(f":::MLLOG {json.dumps({**event, 'event_type': 'POINT_IN_TIME'})}\n")
    return "".join(lines)


def write(folder, summary_text=None, detail_text=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mlperf_log_summary.txt").write_text(summary() if summary_text is None else summary_text)
    if detail_text is not None:
        (folder / "mlperf_log_detail.txt").write_text(detail_text)
    return folder


def the_only(folder, **options):
    (submission,), problems = loadgen.read_results(folder, **options)
    assert problems == []
    return submission


def test_a_summary_line_by_line(tmp_path):
    found = loadgen.parse_summary((write(tmp_path) / "mlperf_log_summary.txt").read_bytes(), "reading a log")
    assert (found.scenario, found.mode, found.valid) == ("SingleStream", "PerformanceOnly", True)
    assert (found.queries, found.headline_quantile, found.estimates_s) == (120, 0.9, {"0.9": 0.008937})
    assert found.quantiles_s == {"0.5": 0.004338, "0.9": 0.005029, "0.99": 0.009808, "0.999": 0.038332}
    assert found.checks == {
        "Min duration satisfied": True,
        "Min queries satisfied": True,
        "Early stopping satisfied": True,
    }
    assert found.parameters["target_qps"] == 1000


def test_the_words_of_older_versions(tmp_path):
    text = summary(headline="90th percentile latency (ns) : 5029000", early="")
    found = parse_summary(text.encode(), "reading it")
    assert (found.headline_quantile, found.estimates_s) == (0.9, {})


def test_a_single_stream_run(tmp_path):
    submission = the_only(write(tmp_path, detail_text=detail()), task="digits", author="me")
    (found,) = submission.inference
    assert (found.scenario, found.queries, found.samples, found.valid) == ("single-stream", 120, 120, True)
    assert (found.mean_latency_s, found.estimate_s, found.estimate_quantile) == (0.004783, 0.008937, 0.9)
    assert found.throughput_per_s == 133.04
    assert found.duration_s == pytest.approx(119 / 133.04)
    assert (submission.submitted, submission.mode, submission.author.name) == ("2026-11-21", "inference", "me")
    assert submission.target.metric == "top1"
    assert submission.origin.doubts == ["single-stream: there is no readable accuracy"]
    assert b"single-stream" in encode(submission)


def test_a_multi_stream_run_has_no_rate(tmp_path):
    text = summary("MultiStream", headline="99.0th percentile latency (ns) : 9808000", stats="Per-query latency:  \n")
    text = text.replace("samples_per_query : 1", "samples_per_query : 8")
    (found,) = the_only(write(tmp_path, text, detail()), task="digits").inference
    assert (found.scenario, found.samples, found.batch) == ("multi-stream", 960, 8)
    assert (found.throughput_per_s, found.duration_s) == (None, 1.001)
    # The printed estimate is for a quantile other than the scenario's own.
    assert (found.estimate_s, found.estimate_quantile) == (None, 0.99)


def test_a_server_run_has_a_bound_and_a_wanted_rate(tmp_path):
    text = summary(
        "Server",
        headline="Completed samples per second    : 185.08",
        early=" * Run successful.\n * Processed 500 queries.\n",
        stats="Scheduled samples per second : 185.13\n",
        parameters="samples_per_query : 1\ntarget_qps : 200\ntarget_latency (ns): 10000000\n",
    )
    (found,) = the_only(write(tmp_path, text), task="digits").inference
    assert (found.queries, found.target_per_s, found.latency_bound_s) == (500, 200.0, 0.01)
    assert (found.throughput_per_s, found.includes) == (185.08, ["queueing"])
    assert found.duration_s == pytest.approx(499 / 185.08)


def test_an_offline_run_is_one_query_of_all_samples(tmp_path):
    parameters = "samples_per_query : 24576\ntarget_qps : 1000\n"
    text = summary("Offline", headline="Samples per second: 12288", early="", stats="", parameters=parameters)
    (found,) = the_only(write(tmp_path, text), task="digits").inference
    assert (found.queries, found.samples, found.duration_s) == (1, 24576, 2.0)


@pytest.mark.parametrize(
    ("logs", "doubt"),
    [
        ((summary(verdict="INVALID"), detail(result_validity="INVALID")), "LoadGen calls the run INVALID"),
        ((summary(verdict="INVALID"), detail(result_validity="INVALID")), "not satisfied: Early stopping"),
        ((summary(), None), "there is no detail log: the summary's figures cannot be checked against it"),
        (
            (summary(), detail(result_mean_latency_ns=1)),
            "the summary says a mean latency of 4.783e+06 ns, the detail log 1",
        ),
        (
            (summary(), detail(result_validity="INVALID")),
            "summary and detail log disagree about whether the run is valid",
        ),
        ((summary(), detail(error_runtime="Ending early")), "LoadGen logged an error: Ending early"),
        ((summary("Interactive"), detail()), "the Interactive scenario is read as server"),
    ],
)
def test_doubts_are_reported(tmp_path, logs, doubt):
    doubts = the_only(write(tmp_path, *logs), task="digits").origin.doubts
    assert any(f": {doubt}" in each for each in doubts), doubts


def test_a_task_without_a_target_is_a_doubt(tmp_path):
    submission = the_only(write(tmp_path, detail_text=detail()))
    assert (submission.task, submission.target.threshold) == ("not stated", 0.0)
    assert "levelbench-1.0 has no task 'not stated'" in submission.origin.doubts[-1]


ACCURACY = "accuracy=97.500%, good=39, total=40\n"


def answers(count=40):
    rows = ",\n".join(f'{{ "seq_id" : {i}, "qsl_idx" : {i}, "data" : "01000000" }}' for i in range(count))
    return f"[\n{rows}\n]\n"


@pytest.fixture
def tree(tmp_path):
    """A results tree of one benchmark in two scenarios, with accuracy runs and an audit."""
    bench = tmp_path / "someone" / "results" / "box" / "digits"
    for scenario, text in (
        ("SingleStream", summary()),
        ("Offline", summary("Offline", stats="Samples per second: 9\n")),
    ):
        write(bench / scenario / "performance" / "run_1", text, detail())
        write(bench / scenario / "accuracy", "\nNo warnings encountered during test.\n")
        (bench / scenario / "accuracy" / "accuracy.txt").write_text(ACCURACY)
        (bench / scenario / "accuracy" / "mlperf_log_accuracy.json").write_text(answers())
    write(bench / "SingleStream" / "TEST04" / "performance" / "run_1")
    systems = tmp_path / "someone" / "systems"
    systems.mkdir()
    (systems / "box.json").write_text(
        json.dumps({"system_name": "a box", "framework": "ONNX Runtime", "division": "closed"})
    )
    return tmp_path


def test_the_scenarios_of_a_benchmark_are_one_submission(tree):
    submission = the_only(tree)
    assert [each.scenario for each in submission.inference] == ["offline", "single-stream"]
    said = (submission.task, submission.author.name, submission.hardware.description, submission.framework)
    assert said == ("digits", "someone", "a box", "ONNX Runtime")
    assert submission.division == "closed"


def test_accuracy_is_that_of_the_accuracy_run_and_this_is_reported(tree):
    submission = the_only(tree)
    assert [(each.quality, each.quality_samples) for each in submission.inference] == [(0.975, 40)] * 2
    assert "offline: the accuracy is from a different run than the timing" in submission.origin.doubts


def test_answers_that_are_missing_are_a_doubt(tree):
    (path,) = tree.glob("*/results/*/*/Offline/accuracy/mlperf_log_accuracy.json")
    path.write_text(answers(39))
    assert "offline: 39 answers of 39 samples are logged, and accuracy.txt counts 40" in the_only(tree).origin.doubts


@pytest.mark.parametrize("words", ["", "f1=90.8", "accuracy=50%, good=3, total=2", "accuracy=0%, good=0, total=0"])
def test_other_words_are_not_an_accuracy(words):
    assert parse_accuracy(words.encode()) is None


def test_a_summary_of_an_accuracy_run_is_none(tmp_path):
    with pytest.raises(RecordError, match="neither scenario nor mode"):
        loadgen.parse_summary(
            (write(tmp_path, "\nNo warnings\n") / "mlperf_log_summary.txt").read_bytes(), "reading a log"
        )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (summary("Batch"), "unknown scenario 'Batch'"),
        (summary(mode="AccuracyOnly"), "mode 'AccuracyOnly'"),
        (summary(early=""), "the number of queries"),
        (summary("Offline", parameters=""), "the number of queries"),
    ],
)
def test_a_run_that_cannot_be_used_is_a_problem(tmp_path, text, found):
    submissions, (problem,) = loadgen.read_results(write(tmp_path, text))
    assert submissions == []
    assert found in problem


def test_a_folder_without_a_summary_is_an_error(tmp_path):
    with pytest.raises(RecordError, match=r"no mlperf_log_summary\.txt"):
        loadgen.read_results(tmp_path)


def test_answers_are_read_with_their_samples(tmp_path):
    (tmp_path / "a.json").write_text(answers(2))
    first, second = loadgen.parse_answers((tmp_path / "a.json").read_bytes(), "reading a log")
    assert (first.qsl_idx, second.qsl_idx, second.data) == (0, 1, "01000000")


@pytest.mark.parametrize("text", ["[\n{", '[{"seq_id": -1, "qsl_idx": 0, "data": ""}]', "{}", "[" * 9999])
def test_half_a_list_of_answers_is_an_error(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(RecordError, match="not a list of answers"):
        loadgen.parse_answers((tmp_path / "a.json").read_bytes(), "reading a log")


@given(st.lists(st.one_of(st.sampled_from(summary().splitlines()), st.text(max_size=20)), max_size=30))
@settings(max_examples=30, deadline=None)
def test_no_text_crashes_the_reader_of_summaries(lines):
    try:
        found = parse_summary("\n".join(lines).encode(), "reading it")
        loadgen.inference_of(found, None, "reading it")
    except RecordError:
        return
    assert found.scenario


@pytest.mark.parametrize("added", ["Result is : INVALID\n", "Mode     : AccuracyOnly\n"])
def test_a_summary_that_says_two_things_of_one_name_is_refused(added):
    text = summary().replace("Result is : VALID\n", f"Result is : VALID\n{added}")
    with pytest.raises(RecordError, match="and again"):
        parse_summary(text.encode(), "reading it")


def test_a_summary_to_which_another_one_was_added_is_refused():
    with pytest.raises(RecordError, match="MLPerf Results Summary"):
        parse_summary((summary() + summary(verdict="INVALID")).encode(), "reading it")
    assert parse_summary((summary() + summary()).encode(), "reading it").valid is True


def test_a_detail_log_with_two_values_of_one_result_is_refused():
    def line(value):
        fields = {"key": "result_query_count", "value": value, "time_ms": 1.0, "metadata": {}}
        return f":::MLLOG {json.dumps(fields)}\n"

    with pytest.raises(RecordError, match="'result_query_count' is 100 and again 5000"):
        loadgen.parse_detail((line(100) + line(5000)).encode(), "reading it")
