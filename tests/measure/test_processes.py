"""Across processes: fresh ones, measured alone, as many as the rule wants."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import numpy as np
import pytest

from levelbench.errors import DefinitionError, MissingError, UsageError
from levelbench.measure import processes
from levelbench.measure.clocks import FakeClock
from levelbench.measure.processes import Answer, Launcher, Running, WorkerReplicate, process_median, sample_processes
from levelbench.measure.stopping import Budget, FixedCount, Precision
from levelbench.measure.worker import load, measure

MODULE = """
import os, sys
print("chatter of the import")
def quick():
    return lambda: sum(range(100))
def pid():
    print("chatter of the setup")
    open(os.environ["PIDS"], "a").write(f"{os.getpid()}\\n")
    return lambda: print(end="")
def broken():
    raise RuntimeError("no such kernel")
def no_callable():
    return 3
def fails_when_called():
    def work():
        raise RuntimeError("bad shape")
    return work
def leaves():
    return lambda: os._exit(3)
"""


@pytest.fixture
def workload(tmp_path):
    path = tmp_path / "work.py"
    path.write_text(MODULE)
    return lambda name: f"{path}:{name}"


class FakeReplicate(Launcher):
    """Processes whose medians are scripted, and a log of what happened to them."""

    def __init__(self, values, clock=None, seconds=0.0):
        self.values = iter(values)
        self.log = []
        self.clock = clock
        self.seconds = seconds

    def start(self):
        self.log.append("start")
        return FakeRunning(self)


class FakeRunning(Running):
    def __init__(self, parent):
        self.parent = parent

    def wait_ready(self):
        self.parent.log.append("ready")

    def measure(self):
        self.parent.log.append("measure")
        if self.parent.clock is not None:
            self.parent.clock.advance(round(self.parent.seconds * 1e9))
        return Answer((next(self.parent.values) * 1e9,), inner=4)

    def __exit__(self, kind, error, trace):
        self.parent.log.append("end")


@contextmanager
def faked(monkeypatch, replicate):
    monkeypatch.setattr(processes, "WorkerReplicate", lambda *arguments: replicate)
    yield


def run_faked(monkeypatch, replicate, *arguments, **options):
    with faked(monkeypatch, replicate):
        return sample_processes("module:function", *arguments, **options)


def test_each_process_gives_one_value(monkeypatch):
    found = run_faked(monkeypatch, FakeReplicate(np.linspace(1, 1.01, 6)), Precision(0.02, least_s=0))
    assert found.values.tolist() == pytest.approx(np.linspace(1, 1.01, 6).tolist())
    assert len(found.raw) == len(found.inner) == len(found) == 6
    assert list(found) == found[:]
    interval = found.estimate().interval
    assert 1.0 < interval.low < 1.005 < interval.high < 1.01


def test_processes_are_added_until_the_rule_is_met(monkeypatch):
    values = np.random.default_rng(1).lognormal(0, 0.03, 500)
    found = run_faked(monkeypatch, FakeReplicate(values), Precision(0.02, least_s=0))
    assert 6 < len(found) < 200
    assert found.stopped_by.startswith("interval of the median")


def test_no_more_processes_run_than_are_allowed(monkeypatch):
    found = run_faked(monkeypatch, FakeReplicate(range(1, 100)), Precision(0.001), least=6, most=11)
    assert len(found) == 11
    assert found.stopped_by.startswith("11 processes, the most allowed; unmet: interval")


def test_a_budget_ends_the_sampling_but_not_before_an_interval(monkeypatch):
    clock = FakeClock()
    replicate = FakeReplicate(range(1, 100), clock, seconds=3.0)
    found = run_faked(monkeypatch, replicate, Precision(0.001) | Budget(5), clock=clock)
    assert len(found) == 6
    assert found.stopped_by.startswith("budget of 5 s spent; unmet")


def test_few_processes_have_their_extremes_for_an_interval(monkeypatch):
    found = run_faked(monkeypatch, FakeReplicate([1.0, 1.1, 1.2]), FixedCount(3), least=3).estimate()
    assert (found.n, found.interval.method) == (3, "lowest to highest")
    assert (found.interval.low, found.interval.high) == pytest.approx((1.0, 1.2))


def test_several_start_together_and_are_measured_one_after_the_other_when_all_are_ready(monkeypatch):
    replicate = FakeReplicate([1.0] * 4)
    run_faked(monkeypatch, replicate, FixedCount(4), least=4, together=2)
    one_round = ["start", "start", "ready", "ready", "measure", "measure", "end", "end"]
    assert replicate.log == one_round * 2


def test_processes_end_even_if_one_of_them_fails(monkeypatch):
    replicate = FakeReplicate([1.0])
    with pytest.raises(StopIteration):
        run_faked(monkeypatch, replicate, FixedCount(2), least=2, together=2)
    assert replicate.log.count("end") == 2


def test_the_first_call_of_a_process_never_counts_where_there_are_others():
    assert process_median(Answer((9e9, 1e9, 1.2e9))) == pytest.approx(1.1)
    assert process_median(Answer((9e9,))) == pytest.approx(9.0)


def test_calls_made_while_calibrating_were_the_first_already():
    assert process_median(Answer((1e9, 2e9, 3e9), first_ns=(9e9,))) == pytest.approx(2.0)


def test_every_value_comes_from_a_process_of_its_own(workload, tmp_path, monkeypatch):
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    found = sample_processes(workload("pid"), FixedCount(3), least=3, slice_s=0.001)
    assert len(set((tmp_path / "pids").read_text().split())) == len(found) == 3


def test_what_a_workload_prints_is_not_taken_for_its_answer(workload):
    found = sample_processes(workload("quick"), FixedCount(2), least=2, slice_s=0.001, name="quick")
    assert np.all(found.values > 0)
    assert found.name == "quick"
    assert all(inner > 1 for inner in found.inner)


def test_a_module_is_named_like_a_file(tmp_path, monkeypatch):
    (tmp_path / "measured_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert len(sample_processes("measured_module:quick", FixedCount(1), least=1, slice_s=0.001)) == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("broken", "set up: RuntimeError: no such kernel"),
        ("no_callable", "returned int, but a setup returns a callable"),
        ("missing", "has no attribute 'missing'"),
        ("fails_when_called", "measured: RuntimeError: bad shape"),
        ("leaves", "ended with status 3 and said nothing"),
    ],
)
def test_a_workload_that_fails_says_why(workload, name, found):
    with pytest.raises(DefinitionError, match=found):
        sample_processes(workload(name), FixedCount(1), least=1, slice_s=0.001)


def test_a_workload_that_hangs_is_given_up(tmp_path):
    path = tmp_path / "hang.py"
    path.write_text("import time\ndef setup():\n    time.sleep(600)\n")
    with pytest.raises(DefinitionError, match=r"not ready after 0\.2 s"):
        sample_processes(f"{path}:setup", FixedCount(1), least=1, timeout_s=0.2)


@pytest.mark.parametrize("name", ["", "module", ":function", "module:", "module:not a name"])
def test_a_name_without_a_function_is_refused(name):
    with pytest.raises(UsageError, match=r"(?i)write module:function"):
        WorkerReplicate(name, 0.1, 3, 10.0, sys.executable)


@pytest.mark.parametrize(
    "options",
    [{"least": 0}, {"least": 5, "most": 4}, {"slice_s": 0}, {"slice_s": -1}, {"timeout_s": 0}, {"together": 0}],
)
def test_unusable_numbers_are_refused(options):
    with pytest.raises(UsageError, match=r"sample_processes\("):
        sample_processes("module:function", **options)


def test_a_command_is_timed_from_start_to_exit():
    found = sample_processes([sys.executable, "-S", "-c", "pass"], FixedCount(2), least=2)
    assert np.all(found.values > 0)
    assert found.inner == (1, 1)


def test_a_failing_command_is_an_error_and_never_a_time():
    words = [sys.executable, "-S", "-c", "import sys; sys.exit('out of memory')"]
    with pytest.raises(DefinitionError, match="ended with status 1: out of memory"):
        sample_processes(words, FixedCount(1), least=1)


def test_a_command_that_does_not_exist_is_missing():
    with pytest.raises(MissingError, match="there is no program 'no-such-program-here'"):
        sample_processes(["no-such-program-here"], FixedCount(1), least=1)


def test_a_command_that_may_not_be_run_says_so(tmp_path):
    path = tmp_path / "no-program"
    path.write_text("print(1)")
    with pytest.raises(UsageError, match="may not be executed"):
        sample_processes([str(path)], FixedCount(1), least=1)
    path.chmod(0o755)
    path.write_bytes(b"\x00\x01")
    with pytest.raises(UsageError, match="cannot be run"):
        sample_processes([str(path)], FixedCount(1), least=1)


def test_a_command_that_prints_more_than_a_pipe_holds_is_timed_all_the_same():
    words = [sys.executable, "-S", "-c", "import sys; [print('x' * 10**6, file=f) for f in (sys.stdout, sys.stderr)]"]
    assert len(sample_processes(words, FixedCount(1), least=1)) == 1


def test_what_a_failing_command_wrote_on_its_output_is_discarded():
    with pytest.raises(DefinitionError, match="ended with status 3: it said nothing"):
        sample_processes([sys.executable, "-S", "-c", "print('chatter'); raise SystemExit(3)"], FixedCount(1), least=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo hello; sleep 600", "its process said 'hello' instead"),
        ("exec >&-; exec sleep 600", "ended with status -9 and said nothing"),
        ("echo broken >&2; exit 3", "set up: broken"),
    ],
)
def test_a_worker_that_says_something_else_is_ended_and_not_waited_for(tmp_path, script, found):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    replicate = WorkerReplicate("module:function", 0.1, 3, 1.0, str(python))
    with replicate.start() as running, pytest.raises(DefinitionError, match=found):
        running.wait_ready()


def test_a_command_that_hangs_is_given_up():
    with pytest.raises(UsageError, match="did not finish within"):
        sample_processes([sys.executable, "-c", "import time; time.sleep(600)"], least=1, timeout_s=0.2)


def test_a_command_without_words_is_refused():
    with pytest.raises(UsageError, match="no words"):
        sample_processes([], FixedCount(1), least=1)


def test_the_worker_measures_for_its_slice_and_at_least_so_many_values():
    clock = FakeClock()
    _, slow_ns = measure(lambda: clock.advance(10**9), slice_ns=10**8, least=3, clock=clock)
    assert slow_ns == [1e9] * 3
    _, fast_ns = measure(lambda: clock.advance(10**7), slice_ns=10**8, least=3, clock=clock)
    assert len(fast_ns) == 10


def test_the_worker_loads_from_a_file(workload):
    assert load(workload("quick"))() == 4950
