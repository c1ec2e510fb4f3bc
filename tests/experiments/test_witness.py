"""The parent watches the clock of each run: what both sides note, and which manipulations are detected."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from tests.experiments.campaigns import NUMPY, Quiet, carry_out, plan_of

import levelbench.experiments.training as training
from levelbench.errors import RecordError
from levelbench.experiments.jobs import Message, Parent, Sights, held, no_parent
from levelbench.experiments.request import resolve
from levelbench.measure import clocks
from levelbench.measure.clocks import SECOND, FakeClock, uptime_ns
from levelbench.measure.timeline import Timeline
from levelbench.records import Evaluation
from levelbench.records.schema import Sight, Witness
from levelbench.records.witness import witness_contradictions
from levelbench.training.observers import Progress

SLOW_CLOCK = """
from levelbench.measure import clocks
true = clocks.HOST.now_ns
clocks.HostClock.now_ns = staticmethod(lambda: true() // 10)
"""
SLOW_TIME = """
import time
from dataclasses import replace
true = time.perf_counter_ns
time.perf_counter_ns = lambda: true() // 10
from levelbench.measure import clocks
clocks.HostClock.now_ns = staticmethod(time.perf_counter_ns)
"""
SLOW_TIMELINE = """
from levelbench.measure.timeline import Timeline
true = Timeline.totals_ns
Timeline.totals_ns = lambda self: {name: ns // 10 for name, ns in true(self).items()}
"""


def test_a_record_contains_the_parents_readings_and_they_agree(arm, store):
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    witness = record.end.witness
    assert (witness.absent, witness_contradictions(record)) == ("", [])
    first, *_, last = witness.sights
    assert first.evaluations == 0
    assert last.evaluations == len(record.evaluations)
    assert first.parent_ns == (0, 0)
    assert last.run_ns[0] >= record.end.t_ns


@pytest.mark.slow
@pytest.mark.parametrize("trick", [SLOW_CLOCK, SLOW_TIME, SLOW_TIMELINE], ids=["now_ns", "time", "timeline"])
def test_a_task_that_slows_its_clock_is_refused(task_text, tmp_path, store, trick, monkeypatch):
    # The plan at the end imports the task into this process, whose clocks must be right again after it.
    for place, name in ((clocks.HostClock, "now_ns"), (time, "perf_counter_ns"), (Timeline, "totals_ns")):
        monkeypatch.setattr(place, name, vars(place)[name])
    path = tmp_path / "slow.py"
    path.write_text(task_text.replace("epochs: int = 10", "epochs: int = 60") + trick)
    # Long enough for other clocks to disagree on a busy machine.
    words = [sys.executable, "-m", "levelbench", "run", path, "-n", "1", "--framework", "numpy", "--target", "0.999"]
    done = subprocess.run([*words, "--store", store.path], capture_output=True, text=True, check=False)
    (record,) = store.records()
    assert record.status == "done", done.stderr
    assert witness_contradictions(record)
    assert done.returncode == 2
    assert "its record contradicts itself: " in done.stderr
    assert "reached" not in done.stdout
    again = plan_of([resolve(str(path), {}, replace(NUMPY, target=0.999))], range(1), store)
    assert [(step.why, step.replaces) for step in again.to_go] == [
        ("the previous run contradicts itself", (record.path,))
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
def test_a_library_that_fakes_all_clocks_of_all_processes_is_refused(task_file, store):
    words = [sys.executable, "-m", "levelbench", "run", task_file, "-n", "1", "--store", store.path]
    command = ["faketime", "-f", "+0 x0.1", *words, "--framework", "numpy", "--target", "0.99"]
    subprocess.run(command, capture_output=True, check=False)
    (record,) = store.records()
    assert record.status == "done"
    assert any(each.endswith(" s") and "and the kernel" in each for each in witness_contradictions(record))


@pytest.mark.slow
def test_a_team_is_watched_by_its_launcher(task_file, store):
    pytest.importorskip("torch")
    from levelbench.experiments.request import TeamOptions

    options = type(NUMPY)(framework="numpy", team=TeamOptions(ranks=2))
    arm = resolve(str(task_file), {}, options)
    record = carry_out(plan_of([arm], range(1), store), store, None, Quiet())[0, 0]
    witness = record.end.witness
    assert (witness.absent, witness_contradictions(record)) == ("", [])
    assert witness.sights[-1].parent_ns is not None


def test_a_record_without_the_parents_readings_is_renamed(arm, store, monkeypatch):
    monkeypatch.setattr(training, "held", lambda witness, testimony: False)
    with pytest.raises(RecordError, match="does not contain the clock readings of the process"):
        carry_out(plan_of([arm], range(1), store), store, None, Quiet())
    assert store.records() == []
    assert len(list(store.path.rglob("*.refused"))) == 1


def test_a_resumed_run_is_watched_from_its_checkpoint():
    clock = FakeClock(tick_ns=10)
    sights = Sights(clock, lambda message: None, no_parent)
    sights.begin(evaluations=3)
    timeline = Timeline(clock, before_ns={"forward": 5_000})
    sights.started(timeline)
    clock.advance(1_000)
    sights.on_evaluation(Progress(), Evaluation(0, 1, 1.0, 1, {}, 1.0, {}), [])
    first, second, _ = sights.end().sights
    assert (first.evaluations, second.evaluations) == (3, 4)
    assert first.run_ns[0] < 5_000 < second.run_ns[0]


def test_the_parent_gets_few_evaluations_and_the_end_of_training():
    told = []
    sights = Sights(FakeClock(tick_ns=10), told.append, no_parent)
    sights.begin()
    for _ in range(50):
        sights.on_evaluation(Progress(), Evaluation(0, 1, 1.0, 1, {}, 1.0, {}), [])
    sights.on_end(Progress())
    witness = sights.end()
    assert len(witness.sights) == 53
    moments = [message.moment for message in told]
    assert (moments[0], moments[-2:]) == ("start", ["evaluation", "end"])
    assert len(told) < 53


def test_a_message_was_sent_between_the_empty_look_and_the_one_that_found_it():
    parent = Parent()
    parent.look()
    assert parent.found([Message(moment="start")]) is not None
    parent.look()
    before = SECOND.now_ns()
    assert parent.found([]) is None
    parent.look()
    assert parent.found([Message(moment="evaluation")]) is None
    parent.look()
    start, evaluation, end = parent.found([Message(moment="end")])
    assert start[0] == start[1]
    assert evaluation[0] <= before <= evaluation[1]
    assert end[0] == end[1] >= evaluation[1]
    assert parent.testimony == (start, evaluation, end)


def test_restarted_ranks_begin_a_new_testimony():
    parent = Parent()
    parent.found([Message(moment="start"), Message(moment="evaluation")])
    assert len(parent.found([Message(moment="start")])) == 1


def test_a_record_is_compared_with_the_parents_readings():
    sights = [Sight(0, (0, 0), (0, 0), (0, 0), None), Sight(1, (9, 9), (5, 7), (9, 9), None)]
    assert held(Witness(sights), [(100, 100), (105, 107)])
    assert not held(Witness(sights), [(100, 100), (105, 108)])
    assert not held(Witness(sights[:1]), [(100, 100), (105, 107)])
    assert not held(None, [(100, 100)])


def test_a_missing_answer_is_recorded():
    sights = Sights(FakeClock(tick_ns=10), lambda message: None, lambda: "its parent is gone")
    sights.begin()
    assert sights.end().absent == "its parent is gone"


def test_replacing_the_first_clock_does_not_change_the_second(monkeypatch):
    monkeypatch.setattr("time.clock_gettime_ns", lambda source: 0)
    monkeypatch.setattr("time.monotonic_ns", lambda: 0)
    assert SECOND.now_ns() > 0


def test_the_kernels_uptime_is_between_its_bounds():
    found = uptime_ns()
    if found is not None:
        assert found[1] - found[0] == 10_000_000
        assert uptime_ns()[1] >= found[0]
