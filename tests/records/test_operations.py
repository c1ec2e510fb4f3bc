"""Operations of a run: to its target, by precision, and as a share of a measured peak; old records have none."""

import msgspec
import pytest
from tests.cli.conftest import REACHES, specification, write_run
from tests.competition.test_ceilings import head
from tests.competition.test_ceilings import write as write_heads

from levelbench.records import RecordWriter, group_runs, read_record, summarise
from levelbench.records.operations import MeasuredCeiling, measured_peaks, peaks_of, use_of_operations
from levelbench.records.schema import Distribution, Measurement
from levelbench.report.runs import run_facts, work_table

TIME_S, SAMPLES = 0.02 + 3 * 0.011 + 0.011, 4 * 640
"""Of ``REACHES``: preparing, then epochs of ten steps of a millisecond and an evaluation; confirmed at the fourth."""


def run_with(folder, *measurements, seed=0):
    """The summary of a run of 2,560 samples to the target, with these measurements as well."""
    path = write_run(folder, specification(), seed, f"aaaa000{seed}", REACHES)
    record = read_record(path)
    path.unlink()
    with RecordWriter.create(folder, record.header) as writer:
        writer.append(record.samples["step_time"])
        for evaluation in record.evaluations:
            writer.append(evaluation)
        for each in (*record.measurements, *measurements):
            writer.append(each)
        writer.append(record.end)
    return summarise(read_record(writer.path))


def operations(value, precision="float32"):
    return Measurement(f"operations/{precision}", "FLOP", value, "counted")


def peak(flop_s, precision="float32"):
    return MeasuredCeiling(flop_s, precision, "some record")


def test_operations_to_the_target_are_those_of_its_examples_and_their_rate_is_over_the_whole_time(tmp_path):
    use = use_of_operations(run_with(tmp_path, operations(1e6)), {"float32": peak(1e11)})
    assert use.to_target == 1e6 * SAMPLES
    assert use.flop_s == pytest.approx(1e6 * SAMPLES / TIME_S)
    assert use.utilisation == pytest.approx(1e6 * SAMPLES / TIME_S / 1e11)
    assert (use.shares, use.reason) == ({"float32": 1.0}, None)


def test_each_precision_takes_its_time_at_its_own_peak(tmp_path):
    run = run_with(tmp_path, operations(3e6, "bfloat16"), operations(1e6))
    use = use_of_operations(run, {"bfloat16": peak(4e11, "bfloat16"), "float32": peak(1e11)})
    assert use.shares == {"bfloat16": 0.75, "float32": 0.25}
    least_s = SAMPLES * (3e6 / 4e11 + 1e6 / 1e11)
    assert use.utilisation == pytest.approx(least_s / TIME_S)


def test_without_a_peak_of_its_precision_it_says_how_to_measure_one(tmp_path):
    use = use_of_operations(run_with(tmp_path, operations(1e6, "bfloat16")), {"float32": peak(1e11)})
    assert use.utilisation is None
    assert use.reason.startswith("no peak in bfloat16")
    assert "levelbench operator MatMul" in use.reason


def test_a_team_is_not_held_to_the_peak_of_one_process(tmp_path):
    team = Distribution(2, "all-reduce", {}, "process", "gloo")
    run = msgspec.structs.replace(run_with(tmp_path, operations(1e6)), distribution=team)
    assert "not of a team" in use_of_operations(run, {"float32": peak(1e11)}).reason


def test_an_earlier_record_has_no_operations_and_no_reads(tmp_path):
    run = run_with(tmp_path)
    assert (run.operations_per_example, run.operations_reason, run.read_from_disk_bytes) == ({}, None, None)
    assert use_of_operations(run, {"float32": peak(1e11)}) is None
    assert work_table(group_runs([run])) is None
    facts = {row[0].text for row in run_facts(run).rows}
    assert not facts & {"operations", "read"}


def test_operations_that_are_not_known_say_why(tmp_path):
    reason = "its images grow while it trains"
    run = run_with(tmp_path, Measurement("operations/float32", "FLOP", None, None, reason))
    assert (run.operations_per_example, run.operations_reason) == ({}, reason)
    facts = {row[0].text: row[1].text for row in run_facts(run).rows}
    assert facts["operations"] == f"not known: {reason}"


def test_peaks_come_from_the_store_of_the_run_by_machine_and_precision(tmp_path):
    run = run_with(tmp_path, operations(1e6))
    environment = {"machine": {"id": "m1"}}
    write_heads(tmp_path, {**head(1e9), "environment": environment}, {**head(9e9, machine="m2")})
    assert {name: each.flop_s for name, each in peaks_of(run).items()} == {"float32": 1e9, "float64": 5e8}
    assert measured_peaks(tmp_path, {"machine": {"id": "m3"}}, "cpu") == {}


def test_a_report_has_operations_their_share_of_the_peak_and_what_was_read(tmp_path):
    read = [Measurement("read_from_disk", "B", 1e6, "io"), Measurement("read_from_cache", "B", 3e6, "io")]
    runs = [run_with(tmp_path, operations(1e6), *read, seed=seed) for seed in range(3)]
    write_heads(tmp_path, {**head(1e11), "environment": {"machine": {"id": "m1"}}})
    table = work_table(group_runs(runs))
    cells = dict(zip([column.key for column in table.columns], table.rows[0], strict=True))
    assert cells["gflop_to_target"].value == pytest.approx(1e-3 * SAMPLES, rel=1e-6)
    assert cells["utilisation"].value == pytest.approx(1e6 * SAMPLES / TIME_S / 1e11, rel=1e-6)
    assert (cells["read_from_disk_bytes"].value, cells["read_from_cache_bytes"].value) == pytest.approx((1e6, 3e6))
    facts = {row[0].text: row[1].text for row in run_facts(runs[0]).rows}
    assert "of the measured peak" in facts["operations"]
    assert "from disk and" in facts["read"]


def test_the_rule_of_the_highest_operations_is_answered_by_the_records(tmp_path):
    from levelbench.claims.reading.records import claims_of
    from levelbench.claims.rules import all_rules

    read = [Measurement("read_from_disk", "B", 4e6, "io"), Measurement("read_from_cache", "B", 1e6, "io")]
    paths = [run_with(tmp_path, operations(1e6), *read, seed=seed).path for seed in range(3)]
    write_heads(tmp_path, {**head(1e11), "environment": {"machine": {"id": "m1"}}})
    (claim,) = claims_of([read_record(path) for path in paths])
    (side,) = claim.sides
    assert side.operations.to_target == pytest.approx(1e6 * SAMPLES)
    assert side.operations.precisions == {"float32": 1.0}
    assert side.operations.share_of_peak == pytest.approx(1e6 * SAMPLES / TIME_S / 1e11, rel=1e-6)
    assert (side.workload.flops_per_sample, side.data.cold) == (1e6, True)
    lb107 = next(each for each in all_rules() if each.code == "LB107")
    assert list(lb107.check(claim)) == []
