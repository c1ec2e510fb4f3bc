"""Records of inference as claims: processes are runs, frameworks are sides."""

import pytest
from tests.claims.run_store import write_runs
from tests.records.inference_records import OFFLINE, specification, write

from levelbench.claims.lint import findings_of
from levelbench.claims.reading import read, read_folder
from levelbench.claims.reading.inference_records import read_inference_files
from levelbench.errors import RecordError, UsageError
from levelbench.records.inference import Generation


def measured(folder, framework="numpy", n=3, **parts):
    return [write(folder, specification(framework), seed, n=200, **parts).path for seed in range(n)]


def test_processes_of_one_framework_are_the_runs_of_a_side(tmp_path):
    (claim,) = read_inference_files(measured(tmp_path))
    side = claim.sides[0]
    assert (side.name, side.time_of, side.reported, side.runs_made) == ("numpy", "call", "mean", 3)
    assert side.interval[0] < side.time_s < side.interval[1]
    assert [run.time_s for run in side.runs] == pytest.approx([side.time_s] * 3, rel=0.1)
    assert (side.quality.value, side.quality.split, side.quality.test_looks) == (0.95, "test", 1)
    assert side.performance == side.accuracy


def test_frameworks_are_held_against_the_first(tmp_path):
    paths = [*measured(tmp_path), *measured(tmp_path, "torch", slow=2.0)]
    (claim,) = read_inference_files(paths)
    assert [each.name for each in claim.sides] == ["numpy", "torch"]
    one = claim.comparisons[0]
    assert (one.new, one.base, one.of) == ("torch", "numpy", "latency")
    assert one.ratio == pytest.approx(0.5, rel=0.1)
    assert one.quality_compared


def test_clean_measurements_have_no_error_and_no_warning(tmp_path):
    (claim,) = read_inference_files([*measured(tmp_path), *measured(tmp_path, "torch", slow=1.5)])
    assert [each for each in findings_of(claim) if each.severity != "not-stated"] == []


def test_another_scenario_is_another_claim(tmp_path):
    paths = [*measured(tmp_path), write(tmp_path, specification(scenario=OFFLINE), 7, n=200).path]
    assert [each.title for each in read_inference_files(paths)] == [
        "digits[mlp]: the 90th percentile of latency of single-stream",
        "digits[mlp]: the time a sample, 1 / throughput of offline",
    ]


def test_generated_tokens_are_another_claim(tmp_path):
    paths = [*measured(tmp_path), write(tmp_path, specification(generation=Generation(4, 8)), 7, n=200).path]
    assert [each.title for each in read_inference_files(paths)] == [
        "digits[mlp]: the 90th percentile of latency of single-stream",
        "digits[mlp]: the 90th percentile of latency of single-stream, 8 tokens",
    ]


def test_one_process_has_no_interval_and_is_told_so(tmp_path):
    (claim,) = read_inference_files(measured(tmp_path, n=1))
    assert ("LB204", "warning") in [(each.code, each.severity) for each in findings_of(claim)]


def test_a_process_that_did_not_end_is_in_no_claim(tmp_path):
    assert read_inference_files([write(tmp_path, specification(), n=200, end=False).path]) == []


def test_a_store_has_its_runs_and_what_was_measured_of_inference(tmp_path):
    write_runs(tmp_path)
    measured(tmp_path)
    assert [each.title for each in read(tmp_path)] == [
        "digits",
        "digits[mlp]: the 90th percentile of latency of single-stream",
    ]


def test_one_file_of_them_is_a_claim_unless_it_did_not_end(tmp_path):
    (claim,) = read(measured(tmp_path, n=1)[0])
    assert claim.sides[0].runs_made == 1
    with pytest.raises(UsageError, match="did not finish"):
        read(write(tmp_path, specification(), 9, n=200, end=False).path)


def test_a_folder_of_them_is_read_and_a_damaged_one_is_said(tmp_path):
    (path, *_) = measured(tmp_path)
    (path.parent / "broken.jsonlines").write_text("{}\n")
    with pytest.raises(RecordError):
        read_folder(tmp_path)
    problems = []
    assert len(read_folder(tmp_path, problems)) == 1
    assert len(problems) == 1
