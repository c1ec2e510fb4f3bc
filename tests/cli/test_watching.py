"""What is shown while runs are made: the phase that the run told, and an estimate over what is finished."""

import io
import re

import pytest

from levelbench.analysis.remaining import RemainingTime
from levelbench.cli import progress_line, watching
from levelbench.cli.progress_line import ProgressLine
from levelbench.cli.watching import LiveWatcher, Trial
from levelbench.experiments.kernel import Plan, Turn
from levelbench.experiments.request import Arm
from levelbench.measure.clocks import FakeClock
from levelbench.records import Evaluation, Specification, read_record
from levelbench.records.schema import Source, Target
from levelbench.report.live import PlainLines

SPECIFICATION = Specification(
    task="digits",
    recipe="mlp",
    framework="numpy",
    device="cpu",
    settings={"lr": 0.05},
    target=Target("top1", 0.96),
    crossing="confirmed",
    clock="wall",
    evaluate_every="1 epoch",
    budget_epochs=60.0,
)
ARM = Arm("digits", SPECIFICATION, Source("task", "0" * 64, ""))


class Closed(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


@pytest.fixture
def watch(monkeypatch):
    def make(stream):
        monkeypatch.setattr(watching, "live_line", lambda _: PlainLines(stream, every_s=0))
        return LiveWatcher(Plan((ARM,), (0, 1), {}, (Turn(0, 0), Turn(0, 1))), on_stderr=False)

    return make


def test_the_phase_that_the_run_tells_is_shown(watch):
    stream = io.StringIO()
    watcher = watch(stream)
    watcher.started(Turn(0, 0), 1, 2)
    watcher.progress(Turn(0, 0), "prepare", 1.0)
    evaluation = Evaluation(1, 10, 1.0, 640, {"validation": 0.9}, 1.0, {"forward": 1})
    watcher.progress(Turn(0, 0), "train", 2.0, [evaluation])
    watcher.progress(Turn(0, 0), "test", 3.0)
    phases = [line.split(" · ")[1] for line in stream.getvalue().splitlines()]
    assert phases == ["start", "prepare", "train", "test"]
    assert "0.900" in stream.getvalue()


def test_before_the_first_evaluation_the_speed_is_that_since_the_first_steps_were_seen(watch):
    stream = io.StringIO()
    watcher = watch(stream)
    watcher.started(Turn(0, 0), 1, 2)
    watcher.progress(Turn(0, 0), "train", 6.0, steps=(5, 600, 64))
    watcher.progress(Turn(0, 0), "train", 8.0, steps=(15, 600, 64))
    _, first, second = stream.getvalue().splitlines()
    assert "samples/s" not in first
    assert "step 15/600 · 320 samples/s" in second


def test_before_the_first_evaluation_the_speed_stays_while_the_run_evaluates(watch):
    stream = io.StringIO()
    watcher = watch(stream)
    watcher.started(Turn(0, 0), 1, 2)
    for stage, elapsed_s, done in (
        ("train", 6.0, 5),
        ("train", 8.0, 15),
        ("evaluate", 9.0, 16),
        ("evaluate", 60.0, 16),
    ):
        watcher.progress(Turn(0, 0), stage, elapsed_s, steps=(done, 600, 64))
    assert "evaluate · 1 min 00 s · step 16/600 · 320 samples/s" in stream.getvalue().splitlines()[-1]


def test_steps_are_shown_before_the_first_evaluation_and_the_loss_from_then_on(watch):
    stream = io.StringIO()
    watcher = watch(stream)
    watcher.started(Turn(0, 0), 1, 2)
    watcher.progress(Turn(0, 0), "train", 1.0, steps=(5, 600, 64))
    evaluation = Evaluation(1, 10, 1.0, 640, {"validation": 0.9}, 0.31, {"forward": 2 * 10**9, "evaluate": 10**9})
    watcher.progress(Turn(0, 0), "train", 3.0, [evaluation], (10, 600, 64))
    _, before, after = stream.getvalue().splitlines()
    assert before.endswith("train · 1.0 s · step 5/600 · top1 – / 0.960")
    assert "step 10/600 · epoch 1 · 320 samples/s · loss 0.310 · top1 0.900 / 0.960" in after


def test_the_speed_is_that_since_the_evaluation_before_and_leaves_out_evaluating(watch):
    stream = io.StringIO()
    watcher = watch(stream)
    watcher.started(Turn(0, 0), 1, 2)
    seconds = {"prepare": 10**10, "forward": 2 * 10**9}
    first = Evaluation(1, 10, 1.0, 640, {"validation": 0.9}, 0.31, seconds)
    second = Evaluation(2, 20, 2.0, 1280, {"validation": 0.9}, 0.21, {**seconds, "backward": 10**9, "evaluate": 10**10})
    watcher.progress(Turn(0, 0), "train", 3.0, [first, second], (20, 600, 64))
    assert "640 samples/s" in stream.getvalue()


def current(watch, monkeypatch, *progress):
    """What the last prediction is made from; each of ``progress`` is the seconds, evaluations and steps of a look."""
    clock, watcher, seen = FakeClock(), None, []
    monkeypatch.setattr(watching, "HOST", clock)
    watcher = watch(io.StringIO())
    monkeypatch.setattr(watcher._remaining, "range_s", seen.append)
    watcher.started(Turn(0, 0), 1, 2)
    # The process imports what others need, which is not a part of the run.
    clock.advance(7 * 10**9)
    at_s = 0
    for elapsed_s, evaluations, steps, *stage in progress:
        clock.advance((elapsed_s - at_s) * 10**9)
        at_s = elapsed_s
        watcher.progress(Turn(0, 0), stage[0] if stage else "train", elapsed_s, evaluations, steps)
    return seen[-1], watcher._remaining


def evaluated(number, t_s, quality=0.92):
    phases = {"prepare": 10**9, "forward": t_s * 10**9}
    return Evaluation(t_s * 10**9, 10 * number, float(number), 640 * number, {"validation": quality}, 0.31, phases)


def test_the_time_remaining_counts_the_steps_since_the_last_evaluation(watch, monkeypatch):
    now, _ = current(watch, monkeypatch, (3, [evaluated(1, 3)], (15, 600, 64)))
    assert (now.epoch, now.most_epochs) == (1.5, 60.0)


def test_the_pace_is_that_since_the_first_evaluation_which_is_slow_for_being_the_first(watch, monkeypatch):
    first, second = (9, [evaluated(1, 9)], (10, 600, 64)), (11, [evaluated(2, 11)], (20, 600, 64))
    now, _ = current(watch, monkeypatch, first)
    assert (now.warm, now.pace_s) == (False, 8.0)
    now, _ = current(watch, monkeypatch, first, second)
    assert (now.warm, now.pace_s) == (True, 2.0)


def test_the_stage_and_the_time_of_the_last_evaluation_are_known(watch, monkeypatch):
    first, second = evaluated(1, 9), evaluated(2, 14)
    first.phases_ns["evaluate"], second.phases_ns["evaluate"] = 2 * 10**9, 5 * 10**9
    looks = (9, [first], (10, 600, 64)), (14, [second], (20, 600, 64), "test"), (17, [], (20, 600, 64), "test")
    now, _ = current(watch, monkeypatch, *looks)
    assert (now.evaluation_s, now.stage, now.stage_s) == (pytest.approx(3.0), "test", 3.0)


def test_a_program_has_no_test_after_its_evaluations(watch, monkeypatch):
    only = evaluated(1, 9)
    only.phases_ns["evaluate"] = 2 * 10**9
    now, _ = current(watch, monkeypatch, (9, [only], (0, 0, 0), "other"))
    assert now.evaluation_s == 0.0


def test_the_test_is_no_part_of_the_pace(watch, monkeypatch):
    looks = (9, [evaluated(1, 9)], (10, 600, 64)), (11, [evaluated(2, 11)], (20, 600, 64), "test")
    now, _ = current(watch, monkeypatch, *looks, (40, [], (20, 600, 64), "test"))
    assert now.pace_s == 2.0


def test_a_trial_has_its_number_and_the_time_that_the_search_takes(monkeypatch):
    stream, remaining = io.StringIO(), RemainingTime([], times_s={1: [60.0, 61.0, 62.0]})
    monkeypatch.setattr(watching, "live_line", lambda _: PlainLines(stream, every_s=0))
    trial = Trial(3, 20, watching.HOST.now_ns(), remaining, [1], [1] * 17)
    watcher = LiveWatcher(Plan((ARM,), (0,), {}, (Turn(0, 0),)), on_stderr=False, trial=trial)
    watcher.started(Turn(0, 0), 1, 1)
    assert stream.getvalue().startswith("trial 3/20 digits")
    assert 500 < watcher.left_s[0] < 1080 < watcher.left_s[1] < 2200
    watcher.finished(Turn(0, 0), None)
    assert remaining.to_go == [1] * 17


def test_turns_have_their_number_and_the_time_remaining_from_the_second_on(monkeypatch, capsys):
    clock = FakeClock()
    monkeypatch.setattr(progress_line, "HOST", clock)
    on_turn = progress_line.say_turns("process")
    for at in (1, 2, 3):
        on_turn(at, 3)
        clock.advance(60 * 10**9)
    first, second, third = capsys.readouterr().err.splitlines()
    assert first == "process 1 of 3"
    assert re.fullmatch(r"process 2 of 3 · \d+ to \d+ min left", second)
    assert third.startswith("process 3 of 3 · ")


def test_errors_are_counted_in_units_of_the_target(watch, monkeypatch):
    now, _ = current(watch, monkeypatch, (9, [evaluated(1, 9, 0.92)], (10, 600, 64)))
    assert now.errors == [(1.0, pytest.approx(2.0))]


def test_imports_for_other_runs_are_not_a_part_of_the_run_but_its_start_is(watch, monkeypatch):
    now, remaining = current(watch, monkeypatch, (3, [], (0, 0, 0)))
    assert (now.elapsed_s, remaining.import_s) == (pytest.approx(3.35), pytest.approx(6.65))


def test_between_predictions_the_time_goes_by(watch, monkeypatch):
    clock = FakeClock()
    monkeypatch.setattr(watching, "HOST", clock)
    watcher = watch(io.StringIO())
    monkeypatch.setattr(watcher._remaining, "range_s", lambda now: (0.25, 9.0))
    watcher.started(Turn(0, 0), 1, 2)
    clock.advance(10**9 // 2)
    watcher.progress(Turn(0, 0), "train", 0.5)
    assert watcher.left_s == (0.0, 8.5)


def test_finished_runs_of_an_earlier_command_say_how_many_epochs_it_takes(store, monkeypatch):
    record = read_record(next(iter(store.rglob("*aaaa0000.jsonl"))))
    arm = Arm("digits", record.header.specification, record.header.source)
    environment = record.header.environment
    plan = Plan((arm,), (7,), {}, (Turn(0, 7),), earlier=((0, record),), environment=environment)
    watcher = LiveWatcher(plan, on_stderr=False)
    assert list(watcher._remaining.epochs) == [0]
    other = Plan((arm,), (7,), {}, (Turn(0, 7),), earlier=((0, record),), environment={})
    assert not LiveWatcher(other, on_stderr=False)._remaining.epochs


def test_the_estimate_is_over_the_finished_runs(watch, store):
    stream = io.StringIO()
    watcher = watch(stream)
    watcher.started(Turn(0, 0), 1, 2)
    path = next(iter(store.rglob("*aaaa0000.jsonl")))
    watcher.finished(Turn(0, 0), read_record(path))
    watcher.started(Turn(0, 1), 2, 2)
    assert "n=1" not in stream.getvalue().splitlines()[0]
    assert "n=1" in stream.getvalue().splitlines()[-1]


def test_a_closed_display_is_left_alone(watch):
    watcher = watch(Closed())
    watcher.started(Turn(0, 0), 1, 2)
    watcher.progress(Turn(0, 0), "train", 1.0)
    watcher.finished(Turn(0, 0), None)
    watcher.close()


def test_with_no_standard_output_at_all_nothing_is_shown(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    watcher = LiveWatcher(Plan((ARM,), (0,), {}, (Turn(0, 0),)), on_stderr=False)
    watcher.started(Turn(0, 0), 1, 2)
    watcher.close()


def test_a_line_of_progress_that_is_too_long_ends_between_words(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    line = ProgressLine()
    line.live = True
    line.say("3/12 matrix product on torch, process 2 · measuring")
    assert capsys.readouterr().err == "\r3/12 matrix product on torch, process …"
