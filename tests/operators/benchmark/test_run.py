"""One replicate: a record with the case and the raw times of every problem."""

import pytest

from levelbench.operators.benchmark.measuring import backend_gemm, make_record, merged, pace
from levelbench.operators.benchmark.watching import Seal
from levelbench.operators.suites.single import parse_problem
from levelbench.records.benchmarks import BenchmarkRecord, BenchmarkSpecification


def limit(value):
    return {"value": value, "interval": {"low": 0.9 * value, "high": 1.1 * value}, "n": 6, "statistic": "median"}


@pytest.fixture
def specification(gemm):
    problems = (gemm, parse_problem("Relu", ["X=64"]))
    return BenchmarkSpecification("test", "fake", "cpu", "hot", "forward", 0.02, 0.05, problems)


def test_a_record_holds_every_problem_and_its_end(fake, specification, tmp_path):
    seen = []
    ceilings = {"flop_s": {"float32": limit(1e9)}, "bandwidth_b_s": {}}
    path = make_record(specification, 2, "abcd", tmp_path, ceilings, {}, lambda path, case: seen.append(case), fake())
    record = BenchmarkRecord.read(path)
    assert record.status == "done"
    assert [record.cases[at].status for at in (0, 1)] == ["measured", "measured"]
    assert all(len(record.samples[at]) for at in (0, 1))
    assert (record.header.seed, record.header.specification) == (2, specification)
    assert record.header.ceilings == ceilings
    assert record.header.environment["framework"] == {"name": "fake"}
    assert [each if each is None else each.index for each in seen] == [None, 0, 1]


def test_a_problem_too_slow_at_the_frameworks_own_pace_is_skipped(fake, specification, tmp_path):
    own = {"flop_s": {"float32": limit(1e3)}}
    path = make_record(specification, 0, "abcd", tmp_path, {}, own, lambda path, case: None, fake())
    assert [each.status for each in BenchmarkRecord.read(path).cases.values()] == ["skipped", "measured"]


def test_the_highest_of_several_ceilings_counts_and_names_its_framework():
    slow, fast = (
        {"framework": name, "flop_s": {"float32": limit(value)}, "bandwidth_b_s": {"triad": limit(8.0)}}
        for name, value in (("a", 1.0), ("b", 2.0))
    )
    found = merged([slow, fast])
    assert found["flop_s"]["float32"]["value"] == 2.0
    assert found["details"]["measured_by"] == {"float32": "b", "triad": "a"}


def test_the_pace_is_the_best_ceiling_and_unknown_without_one():
    assert pace({"flop_s": {"float16": limit(10.0)}}, "float16") == pytest.approx(11.0)
    assert pace({"flop_s": {}}, "float16") is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_ceiling_can_be_measured_through_any_framework(fake, dtype):
    backend = fake()
    work, flops = backend_gemm(backend, dtype)(8)
    work()
    assert flops == 2 * 8**3
    assert backend.finished == 1


def test_a_problem_that_crashed_a_process_fails_without_being_tried(fake, specification, tmp_path):
    backend = fake()
    path = make_record(
        specification, 0, "abcd", tmp_path, {}, {}, lambda path, case: None, backend, {0: "killed by signal 11"}
    )
    cases = BenchmarkRecord.read(path).cases
    assert (cases[0].status, cases[0].reason) == ("failed", "killed by signal 11")
    assert cases[1].status == "measured"


@pytest.mark.parametrize(("file", "heard"), [("/project/src/ir/op.cc", []), ("/home/me/op.py", ["sys._getframe"])])
def test_frames_that_an_engine_names_after_its_files_in_c_are_not_the_users(file, heard):
    seal = Seal()
    seal._looked = []
    exec(compile("hear('sys._getframe', ())", file, "exec"), {"hear": seal._hear})
    assert seal._looked == heard
