"""Plans of operator benchmarks: finished processes count, interrupted ones are repeated, frameworks take turns."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from msgspec.structs import replace

from levelbench import __version__
from levelbench.errors import LevelbenchError, MissingError, UsageError
from levelbench.experiments import operators as benchmarks
from levelbench.experiments.kernel import make_plan
from levelbench.experiments.operators import BenchmarkJob, Note, OperatorBenchmarks
from levelbench.experiments.processes import CrashError, ceilings_of, listen, patience
from levelbench.operators import frameworks
from levelbench.operators.suites.single import parse_problem
from levelbench.records import key_of
from levelbench.records.benchmark_summary import summarise_benchmark
from levelbench.records.benchmarks import (
    BenchmarkHeader,
    BenchmarkRecord,
    BenchmarkSpecification,
    BenchmarkWriter,
    Case,
)
from levelbench.records.processes import ProcessEnd
from levelbench.records.schema import Samples

NOW = {"machine": {"id": "m1"}, "libraries": {"numpy": "2.4"}}


def specification(framework="numpy", **parts):
    problems = (parse_problem("Relu", ["X=4"]),)
    base = BenchmarkSpecification("Relu", framework, "cpu", "hot", "forward", 1.0, 0.05, problems)
    return replace(base, **parts)


def begin(store, spec, seed=0, environment=NOW, version=__version__):
    started = "2026-01-02T03:04:05.000+00:00"
    key = key_of(spec)
    header = BenchmarkHeader(1, f"id{seed}", key, seed, started, spec, environment, version)
    return BenchmarkWriter.begin(store, header)


LOW = {"flop_s": {"float32": {"value": 1e3, "interval": None, "n": 6, "statistic": "median"}}, "bandwidth_b_s": {}}


def measured_again(store, time_s, rate, monkeypatch):
    """The record of a product in ``time_s`` over a ceiling of 1 kFLOP/s, and how often the ceiling, now ``rate``, was
    measured again.
    """
    jobs = []

    def process(job, starter):
        jobs.append(job)
        limits = {"float32": {"value": rate, "interval": None, "n": 9, "statistic": "maximum"}}
        return [Note(ceilings={"flop_s": limits, "bandwidth_b_s": {}})]

    monkeypatch.setattr(benchmarks, "_process", process)
    spec = specification(problems=(parse_problem("MatMul", ["A=8x8", "B=8x8"]),))
    started = "2026-01-02T03:04:05.000+00:00"
    header = BenchmarkHeader(1, "id", key_of(spec), 0, started, spec, NOW, __version__, LOW)
    with BenchmarkWriter.begin(store, header) as writer:
        writer.add(Samples("0", "s", [time_s]))
        writer.add(Case(0, "measured", "", 1024.0, 0.0))
        writer.add(ProcessEnd())
    record = OperatorBenchmarks(store, "float32")._under_the_ceiling(BenchmarkRecord.read(writer.path), None, Counter())
    assert {(job.flops, job.seed, job.file) for job in jobs} <= {(1024.0, None, "")}
    return summarise_benchmark([[record]]).rows[0][1][0], len(jobs)


def write(store, spec, seed=0, end=True, **more):
    with begin(store, spec, seed, **more) as writer:
        writer.add(Case(0, "measured"))
        if end:
            writer.add(ProcessEnd())


def plan_of(arms, count, store, **options):
    return make_plan(OperatorBenchmarks(store, "float32"), arms, range(count), NOW, **options)


def test_without_records_everything_is_to_go_and_frameworks_take_turns(tmp_path, monkeypatch):
    here = type("Here", (), {"lacks": lambda self, device: None})
    monkeypatch.setattr(frameworks, "load_framework", lambda name: here())
    plan = plan_of([specification("a"), specification("b")], 3, tmp_path)
    assert [turn.seed for turn in plan.to_go] == [0, 0, 1, 1, 2, 2]
    first = [turn.arm for turn in plan.to_go[::2]]
    assert {*first} == {0, 1}
    assert [turn.arm for turn in plan.to_go[1::2]] == [1 - arm for arm in first]


def test_a_finished_process_is_not_repeated(tmp_path):
    write(tmp_path, specification(), 1)
    plan = plan_of([specification()], 3, tmp_path)
    assert list(plan.done) == [(0, 1)]
    assert [step.seed for step in plan.to_go] == [0, 2]
    assert plan.lines() == ["3 processes wanted · 1 done · 2 to go"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"end": False}, "interrupted"),
        ({"environment": {**NOW, "machine": {"id": "m2"}}}, "another machine"),
        ({"environment": {**NOW, "libraries": {"numpy": "1.0"}}}, "numpy 1.0"),
        ({"version": "0.0.0"}, "levelbench 0.0.0"),
    ],
)
def test_a_process_that_does_not_count_is_repeated_and_the_plan_says_why(tmp_path, record, why):
    write(tmp_path, specification(), **record)
    plan = plan_of([specification()], 1, tmp_path)
    assert not plan.done
    assert why in plan.lines()[1]


def test_records_of_another_specification_do_not_count(tmp_path):
    write(tmp_path, specification(cache="cold"))
    assert not plan_of([specification()], 1, tmp_path).done


def test_with_fresh_nothing_counts_as_done(tmp_path):
    write(tmp_path, specification())
    assert len(plan_of([specification()], 1, tmp_path, fresh=True).to_go) == 1


def test_a_process_in_progress_is_refused(tmp_path):
    with begin(tmp_path, specification()), pytest.raises(UsageError, match="another process is already running it"):
        plan_of([specification()], 1, tmp_path)


def test_a_missing_device_is_reported_before_anything_is_measured(tmp_path):
    with pytest.raises(MissingError, match="numpy runs on cpu only"):
        plan_of([specification(device="cuda")], 1, tmp_path)


def test_a_result_above_a_ceiling_that_others_lowered_is_kept_when_it_is_measured_again(tmp_path, monkeypatch):
    entry, rounds = measured_again(tmp_path, 1e-6, 2e9, monkeypatch)
    assert (entry.status, rounds) == ("measured", 1)
    assert entry.share.value == pytest.approx(0.512)


def test_a_result_above_the_ceiling_each_time_it_is_measured_is_refused(tmp_path, monkeypatch):
    entry, rounds = measured_again(tmp_path, 1e-9, 2e9, monkeypatch)
    assert (entry.status, rounds) == ("refused", 3)
    assert "above the measured ceiling, by 512 times" in entry.reason


def test_a_ceiling_above_all_results_is_not_measured_again(tmp_path, monkeypatch):
    assert measured_again(tmp_path, 2.0, 2e9, monkeypatch)[1] == 0


def test_the_error_that_a_process_reported_is_raised():
    notes = [Note(error=("this", "that", "do it"), exit_code=3, trace="the trace")]
    with pytest.raises(LevelbenchError, match=r"this: that\. Do it\.") as raised:
        benchmarks._raise_failure(BenchmarkJob(specification(), "."), notes, 3, "")
    assert (raised.value.exit_code, raised.value.trace) == (3, "the trace")


def test_the_error_of_a_killed_process_names_its_problem():
    job = BenchmarkJob(specification(), ".", seed=0)
    with pytest.raises(LevelbenchError, match=r"killed by signal 11 at Relu X=4 \(last words\)"):
        benchmarks._raise_failure(job, [Note(path="x")], -11, "first\nlast words\n")


def test_a_crash_loses_only_its_own_problem(monkeypatch):
    problems = tuple(parse_problem("Relu", [f"X={size}"]) for size in (4, 5, 6))
    job = BenchmarkJob(specification(problems=problems), ".", seed=0)
    tried = []

    def process(job, starter, on_note):
        tried.append(job.crashed)
        before = [Note(path="x"), Note(path="x", case=Case(0, "measured"))]
        if 1 not in job.crashed:
            benchmarks._raise_failure(job, before, -11, "Segmentation fault")
        return before

    monkeypatch.setattr(benchmarks, "_process", process)
    begun = []
    benchmarks._survived(job, None, lambda: begun.append(1), lambda note: None)
    assert tried == [{}, {1: "its process was killed by signal 11 at Relu X=5 (Segmentation fault)"}]
    assert len(begun) == 2


def test_a_process_that_says_nothing_for_its_time_is_killed_as_one_that_hangs():
    made = []

    def begin(arguments, output, inherited):
        # Its one note is there before it starts, however long that takes on a busy machine.
        os.write(inherited[0], b"{}\n")
        hang = [sys.executable, "-c", "import time; time.sleep(1000)"]
        made.append(subprocess.Popen(hang, stdin=subprocess.PIPE, stdout=output, pass_fds=tuple(inherited)))
        return made[0]

    notes, code, _ = listen("unused", BenchmarkJob(specification(), ".", seed=0), Note, begin=begin, silent_s=0.2)
    assert (len(notes), code, made[0].poll()) == (1, -signal.SIGALRM, -signal.SIGKILL)
    with pytest.raises(CrashError, match="said nothing for 600 s and was killed at Relu X=4"):
        benchmarks._raise_failure(BenchmarkJob(specification(), ".", seed=0), [Note(path="x")], code, "")


def test_only_frameworks_that_only_execute_are_waited_for_no_longer_than_ten_minutes():
    assert [patience(name) for name in ("openvino", "numpy")] == [600.0, None]


def test_a_framework_that_crashes_while_its_ceilings_are_measured_has_none():
    def process():
        benchmarks._raise_failure(BenchmarkJob(specification(), "."), [], -11, "Segmentation fault")

    assert ceilings_of(process) == {}
    assert ceilings_of(lambda: [Note(ceilings={"flop_s": {}}), Note(done=True)]) == {"flop_s": {}}


def test_a_killed_process_is_not_a_crash(monkeypatch):
    job = BenchmarkJob(specification(), ".", seed=0)

    def process(job, starter, on_note):
        benchmarks._raise_failure(job, [Note(path="x")], -9, "")

    monkeypatch.setattr(benchmarks, "_process", process)
    with pytest.raises(LevelbenchError, match="Run the same command again"):
        benchmarks._survived(job, None, lambda: None, lambda note: None)
