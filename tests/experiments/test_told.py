"""A program under ``levelbench time`` reports its phases in three lines at most, and its record is split by them."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tests.experiments.test_track import FakeCuda

import levelbench
from levelbench.errors import UnknownNameError, UsageError
from levelbench.experiments import marking
from levelbench.experiments.progress import Printed
from levelbench.experiments.told import Page, TellingTimeline, ToldChannel, ToldTimeline, told_quality
from levelbench.measure.timeline import Phase
from levelbench.records import read_record, summarise
from levelbench.records.schema import Target

pytestmark = pytest.mark.sampled(3)

PROGRAMS = sorted(Path(__file__).parents[2].joinpath("benchmarks", "programs").glob("[a-z]*_*.py"))
MS = 1_000_000
SLEEP = """
    def sleep(seconds):
        time.sleep(seconds)
        return seconds
"""
LOOP = """
    train, score = levelbench.phases(train=sleep, evaluate=sleep)
    for epoch in range(3):
        train(0.03)
        score(0.01)
        print("accuracy: 0.5")
"""


@pytest.mark.slow
def test_the_phases_that_a_program_reports_are_those_of_its_record(time_program):
    _, record = time_program(SLEEP + LOOP)
    phases = record.end.phases_ns
    assert phases["train"] >= 90 * MS
    assert phases["evaluate"] >= 30 * MS
    assert phases["prepare"] > 0
    assert sum(phases.values()) == record.end.t_ns
    assert summarise(record).contradictions == []
    assert record.end.suspect == [] or not any("do not fit" in each for each in record.end.suspect)


def test_each_evaluation_has_the_phases_up_to_it(time_program):
    _, record = time_program(SLEEP + LOOP)
    trained = [each.phases_ns["train"] for each in record.evaluations]
    assert trained == sorted(trained)
    assert trained[0] >= 30 * MS
    assert trained[2] >= 90 * MS


def test_a_program_that_reports_none_is_one_phase(time_program):
    _, record = time_program('print("accuracy: 0.5")')
    assert set(record.end.phases_ns) <= {"prepare", "train", "other"}
    assert "train" in record.end.phases_ns


def test_a_program_that_only_predicts_is_one_phase(time_program):
    text = 'levelbench.predict(lambda inputs: [0] * len(inputs)); print("accuracy: 0.5")'
    words = ("--target", "accuracy=0.9", "--held-out", "digits", "--reveal-inputs", "after")
    _, record = time_program(text, *words)
    assert set(record.evaluations[-1].phases_ns) <= {"prepare", "train", "other", "evaluate"}
    assert "train" in record.evaluations[-1].phases_ns


@pytest.mark.slow
def test_what_a_program_predicts_is_not_in_the_phases_of_its_training(time_program):
    text = f"""
    {SLEEP}
    train = levelbench.phases(train=sleep)
    train(0.05)
    levelbench.predict(lambda inputs: [int(sleep(0.2))] * len(inputs))
    """
    words = ("--target", "accuracy=0.9", "--held-out", "digits", "--reveal-inputs", "after")
    _, record = time_program(textwrap.dedent(text).replace("    def", "def").replace("\n        ", "\n    "), *words)
    (last,) = record.evaluations
    assert last.phases_ns["train"] >= 50 * MS
    assert sum(last.phases_ns.values()) == last.t_ns
    assert record.end.phases_ns["train"] == last.phases_ns["train"]


@pytest.mark.slow
def test_time_before_a_program_reports_is_preparation(time_program):
    _, record = time_program("time.sleep(0.3)\n" + textwrap.dedent(SLEEP + LOOP))
    assert record.end.phases_ns["prepare"] >= 300 * MS


@pytest.mark.slow
def test_what_was_evaluated_before_a_program_reports_its_phases_stays_training(time_program):
    text = 'time.sleep(0.3); print("accuracy: 0.1", flush=True); time.sleep(0.2)\n'
    _, record = time_program(text + textwrap.dedent(SLEEP + LOOP))
    assert record.end.phases_ns["train"] >= 500 * MS
    assert summarise(record).contradictions == []


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise ValueError", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_program_that_fails_fails_as_one_without_phases_does(time_program, ending):
    code, record = time_program(textwrap.dedent(SLEEP + LOOP) + ending)
    assert code != 0
    assert record.end.status == "failed"


def test_a_program_that_reaches_its_target_is_ended_in_the_middle_of_a_phase(time_program):
    text = textwrap.dedent(SLEEP + LOOP).replace("0.5", "0.95") + "train(60)"
    _, record = time_program(text)
    assert record.end.stopped_by == "target reached"
    assert summarise(record).contradictions == []


@pytest.mark.slow
def test_a_forked_child_and_other_threads_report_nothing(time_program):
    text = """
        import threading
        batches = levelbench.phases(data=[1, 2])
        train = levelbench.phases(train=lambda: time.sleep(0.1))
        train()
        child = os.fork()
        if child == 0:
            for _ in range(3): train()
            os._exit(0)
        os.waitpid(child, 0)
        thread = threading.Thread(target=lambda: [train() for _ in batches])
        thread.start()
        thread.join()
        print("accuracy: 0.5")
    """
    _, record = time_program(text)
    assert record.end.phases_ns["train"] >= 100 * MS
    # 0.3 s in the child and 0.2 s in the thread.
    assert record.end.phases_ns["other"] >= 500 * MS


def test_a_forked_child_that_trains_reports_in_place_of_a_parent_that_only_waits(time_program):
    text = """
        train = levelbench.phases(train=lambda: time.sleep(0.1))
        child = os.fork()
        if child == 0:
            train()
            print("accuracy: 0.5", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    """
    _, record = time_program(text)
    assert record.evaluations[0].phases_ns["train"] >= 100 * MS
    assert record.evaluations[0].phases_ns["prepare"] > 0


@pytest.mark.slow
def test_a_tracked_program_reports_to_its_own_record_and_so_does_no_child_of_it(time_program, tmp_path):
    text = f"""
        with levelbench.track("own", target={{"accuracy": 0.9}}, store={str(tmp_path / "own")!r}, quiet=True) as run:
            train = levelbench.phases(train=lambda: time.sleep(0.05))
            train()
            if os.fork() == 0:
                train()
                os._exit(0)
            os.wait()
            run.evaluate(0.5)
            print("accuracy: 0.5")
    """
    _, record = time_program(text)
    (path,) = (tmp_path / "own").glob("*/*/*.jsonl")
    assert read_record(path).end.phases_ns["train"] >= 50 * MS
    assert "prepare" not in record.end.phases_ns or record.end.phases_ns["prepare"] < 50 * MS


@pytest.mark.slow
def test_the_first_process_of_several_reports_and_its_last_phase_ends_with_it(time_program):
    text = """
        import subprocess
        train = levelbench.phases(train=lambda: time.sleep(0.05))
        train()
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, sys.argv[0], "again"])
        print("accuracy: 0.5")
    """
    _, record = time_program(text)
    assert record.end.phases_ns["train"] >= 50 * MS
    assert record.end.phases_ns["other"] >= 50 * MS
    assert summarise(record).contradictions == []


def test_of_several_ranks_the_first_reports(tmp_path):
    Page.create(tmp_path / "phases")
    program = "import levelbench; levelbench.phases(train=print)()"
    for rank in (1, 0):
        told = {"LEVELBENCH_PHASES": str(tmp_path / "phases"), "RANK": str(rank), "WORLD_SIZE": "2"}
        subprocess.run([sys.executable, "-c", program], env={**os.environ, **told}, check=True)
        assert (Page(tmp_path / "phases").read() is not None) == (rank == 0)


def test_phases_that_cannot_be_are_a_doubt(time_program):
    text = """
        import mmap
        file = open(os.environ["LEVELBENCH_PHASES"], "r+b")
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        words[1], words[3], words[4] = 1, 2, 10 ** 15
        print("accuracy: 0.5", flush=True)
    """
    _, record = time_program(text)
    assert any("do not fit into the time" in each for each in record.end.suspect)
    assert sum(record.end.phases_ns.values()) == record.end.t_ns
    assert summarise(record).contradictions == []


@pytest.mark.slow
def test_a_beginning_that_moves_is_a_doubt_and_damages_nothing(time_program):
    text = """
        import mmap
        levelbench.phases(train=time.sleep)(0.02)
        file = open(os.environ["LEVELBENCH_PHASES"], "r+b")
        words = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        print("accuracy: 0.4", flush=True)
        time.sleep(0.3)
        words[1] -= 10 ** 8
        words[4 + levelbench.Phase.TRAIN] += 10 ** 8
        print("accuracy: 0.5", flush=True)
    """
    _, record = time_program(text)
    assert any("do not fit into the time" in each for each in record.end.suspect)
    assert min(record.end.phases_ns.values()) >= 0
    assert sum(record.end.phases_ns.values()) == record.end.t_ns


def test_batches_that_a_function_goes_through_leave_its_phase_as_it_was(time_program):
    text = """
        def epoch(batches):
            for batch in batches:
                time.sleep(0.05)
        batches, epoch = levelbench.phases(data=[1, 2, 3, 4], train=epoch)
        epoch(batches)
        print("accuracy: 0.5")
    """
    _, record = time_program(text)
    assert record.end.phases_ns["train"] >= 190 * MS


KILLED = "import threading; threading.Timer(0.1, lambda: {}).start(); train(60)"


@pytest.mark.parametrize("ending", ["os._exit(3)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)"])
def test_the_phase_within_which_a_program_is_killed_is_in_its_record(time_program, ending):
    _, record = time_program(textwrap.dedent(SLEEP + LOOP) + KILLED.format(ending))
    assert record.end.error.endswith("in its phase 'train'")


@pytest.mark.slow
def test_a_program_that_ends_well_inside_a_phase_is_doubted(time_program):
    _, record = time_program(textwrap.dedent(SLEEP + LOOP) + KILLED.format("os._exit(0)"))
    assert any("ended inside 'train'" in each for each in record.end.suspect)


@pytest.mark.slow
def test_a_phase_ends_with_the_process_that_reported_it_and_not_with_the_command(time_program):
    text = """
        import subprocess
        if len(sys.argv) == 1:
            subprocess.run([sys.executable, sys.argv[0], "again"])
            time.sleep(0.5)
            print("accuracy: 0.5")
        else:
            levelbench.phases(train=lambda: os.kill(os.getpid(), 9))()
    """
    _, record = time_program(text)
    assert record.end.phases_ns["other"] >= 500 * MS
    assert any("ended inside 'train'" in each for each in record.end.suspect)


def test_what_a_generator_does_belongs_to_the_phase_of_its_function(time_program):
    text = """
        def train():
            for _ in range(3):
                time.sleep(0.03)
                value = yield 0.5
            return value
        train = levelbench.phases(train=train)
        steps = train()
        assert next(steps) == steps.send(1) == steps.send(2) == 0.5
        try:
            steps.send(3)
        except StopIteration as end:
            assert end.value == 3
        print("accuracy: 0.5")
    """
    _, record = time_program(text)
    assert record.end.phases_ns["train"] >= 90 * MS


def test_batches_of_an_iterator_are_waited_for_one_by_one_too(time_program):
    text = """
        def forever():
            while True:
                time.sleep(0.03)
                yield 1
        class Loader:
            def __iter__(self):
                yield from [time.sleep(0.03)] * 1
        batches, loader = levelbench.phases(data=forever(), evaluate=lambda: None)[0], levelbench.phases(data=Loader)()
        assert next(batches) == next(batches) == 1
        assert list(loader) == list(loader) == [None]
        print("accuracy: 0.5")
    """
    _, record = time_program(text)
    assert record.end.phases_ns["data"] >= 120 * MS


def test_what_a_program_prints_to_streams_that_it_has_closed_damages_nothing(time_program):
    text = """
        print("accuracy: 0.5", flush=True)
        for each in range(3):
            os.close(each)
        levelbench.phases(train=time.sleep)(0.05)
        try:
            os.write(1, b"x" * 500)
        except OSError:
            pass
    """
    _, record = time_program(text)
    assert record.end.phases_ns["train"] >= 50 * MS
    assert not any("phases" in each for each in record.end.suspect)


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", ["io.StringIO()", "None", "open(os.devnull, 'w')"])
def test_the_end_of_training_is_heard_wherever_a_program_prints(time_program, elsewhere):
    text = f"""
        import io
        sys.stdout = {elsewhere}
        levelbench.predict(lambda inputs: [0] * len(inputs))
    """
    words = ("--target", "accuracy=0.9", "--held-out", "digits", "--reveal-inputs", "after")
    _, record = time_program(text, *words)
    assert record.status == "done"


def test_what_was_printed_before_the_end_of_training_is_read_before_it(time_program):
    text = """
        print("accuracy: 0.25", flush=True)
        print("x" * 200_000, flush=True)
        print("accuracy: 0.5", flush=True)
        levelbench.predict(lambda inputs: [0] * len(inputs))
    """
    words = ("--target", "accuracy=0.9", "--held-out", "digits", "--reveal-inputs", "after")
    _, record = time_program(text, *words)
    assert [each.quality["validation"] for each in record.evaluations][:2] == [0.25, 0.5]


def test_a_program_whose_levelbench_is_gone_does_not_wait_for_inputs(tmp_path, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_PHASES", str(tmp_path / "phases"))
    monkeypatch.setenv("LEVELBENCH_INPUTS", str(tmp_path / "inputs.npy"))
    monkeypatch.setenv("LEVELBENCH_PREDICTIONS", str(tmp_path / "predictions"))
    with ToldChannel(tmp_path / "phases.told", lambda: None):
        pass
    with pytest.raises(UsageError, match="has ended"):
        levelbench.predict(len)


@pytest.fixture
def pair(tmp_path):
    """The timelines of both sides, in one process."""
    told = ToldTimeline()
    told.switch(Phase.TRAIN)
    told.listen(Page.create(tmp_path / "phases"))
    return told, lambda: TellingTimeline(Page(tmp_path / "phases"))


@pytest.mark.parametrize("size", [0, 8, 64])
def test_a_page_that_is_cut_is_read_no_more_and_is_a_doubt(pair, tmp_path, size):
    told, begin = pair
    begin().switch(Phase.FORWARD)
    before = told.totals_ns()
    os.truncate(tmp_path / "phases", size)
    after = told.totals_ns()
    assert after["forward"] == before["forward"]
    assert sum(after.values()) == told._since_ns - told.started_ns
    assert "made shorter" in told.contradicted


def test_no_phase_shrinks_however_often_it_is_read(pair):
    told, begin = pair
    before = told.totals_ns()
    telling = begin()
    for at in range(2000):
        telling.switch(Phase.FORWARD if at % 2 else Phase.BACKWARD)
        now = told.totals_ns()
        assert all(now.get(name, 0) >= ns for name, ns in before.items())
        assert sum(now.values()) == told._since_ns - told.started_ns
        before = now


def test_a_page_that_is_being_written_when_its_program_is_killed_keeps_what_was_read(pair, tmp_path):
    told, begin = pair
    telling = begin()
    telling.switch(Phase.FORWARD)
    before = told.totals_ns()
    telling._words[0] += 1
    after = told.totals_ns()
    assert after["forward"] == before["forward"]
    assert after["train"] > before.get("train", 0)
    assert not told.contradicted


@pytest.mark.parametrize("read_before", [False, True])
def test_no_phase_shrinks_after_a_reading_in_the_middle_of_writing(pair, read_before):
    told, begin = pair
    telling = begin()
    telling.switch(Phase.FORWARD)
    if read_before:
        told.totals_ns()
    telling._words[0] += 1
    before = told.totals_ns()
    telling._words[0] += 1
    for phase in (Phase.BACKWARD, Phase.FORWARD):
        telling.switch(phase)
        after = told.totals_ns()
        assert all(after.get(name, 0) >= ns for name, ns in before.items())
        assert sum(after.values()) == told._since_ns - told.started_ns
        before = after
    assert not told.contradicted


def test_a_program_that_waits_for_a_processor_in_the_middle_of_writing_is_waited_for(pair, tmp_path, monkeypatch):
    _, begin = pair
    telling = begin()
    telling._words[0] += 1

    def go_on(_):
        telling._words[0] += 1

    monkeypatch.setattr(time, "sleep", go_on)
    assert Page(tmp_path / "phases").read() is not None


def test_what_a_device_did_is_known_when_it_was_waited_for(pair):
    class Marks:
        """A device on which each point is passed a second after the one before."""

        made = 0

        def mark(self):
            self.made += 1
            return self.made

        def finish(self):
            pass

        def seconds(self, start, end):
            return (end - start) * 1e-6

    told, begin = pair
    telling = begin()
    telling.follow(Marks())
    for _ in range(3):
        telling.switch(Phase.FORWARD)
        telling.switch(Phase.BACKWARD)
    assert "forward" not in told.totals_ns()
    telling.totals_ns()
    found = told.totals_ns()
    assert found["forward"] == 3000
    assert sum(found.values()) == told._since_ns - told.started_ns
    assert not told.contradicted


def test_phases_on_cuda_are_times_of_the_device_after_each_pass_through_the_loader(tmp_path, monkeypatch):
    device, page = FakeCuda(), Page.create(tmp_path / "phases")
    monkeypatch.setenv("LEVELBENCH_PHASES", str(tmp_path / "phases"))
    monkeypatch.setattr(marking._TimedRun, "looked", False)
    monkeypatch.setattr(marking._TimedRun, "only", None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=device))
    batches, step = levelbench.phases(data=[1, 2, 3], train=lambda: device.launch(0.02))
    for _ in batches:
        step()
    totals_ns = page.read().totals_ns
    assert totals_ns[Phase.TRAIN] >= 59 * MS


def test_functions_are_what_they_were_where_nobody_asks(monkeypatch):
    monkeypatch.delenv("LEVELBENCH_PHASES", raising=False)

    def batches(most):
        """So many."""
        yield from range(most)

    data, add, loader = levelbench.phases(data=batches, train=lambda a, b=1: a + b, evaluate=len)
    assert list(data(3)) == [0, 1, 2]
    assert (data.__doc__, add(1, b=2), loader([1, 2])) == ("So many.", 3, 2)


class Model:
    """With methods that tell their phases, as the guide makes one of scikit-learn's."""

    def __init__(self):
        self.weight = 1
        self.score = levelbench.phases(evaluate=self.score)

    def score(self):
        return self.weight


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_whose_methods_tell_their_phases_calls_its_own(copied):
    model = Model()
    best = copied(model)
    model.weight = 2
    assert (model.score(), best.score()) == (2, 1)


def test_functions_that_tell_their_phases_can_be_methods_and_be_pickled():
    class Trainer:
        step = levelbench.phases(train=lambda self, by: (self, by))

    trainer = Trainer()
    assert trainer.step(2) == (trainer, 2)
    assert pickle.loads(pickle.dumps(levelbench.phases(evaluate=len)))([1, 2]) == 2


def test_functions_in_a_tracked_block_tell_its_phases(tmp_path):
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        data, step, score = levelbench.phases(data=[[1, 2]] * 3, train=time.sleep, evaluate=time.sleep)
        for _ in data:
            step(0.01)
        score(0.02)
        run.evaluate(0.5)
    (path,) = tmp_path.glob("*/*/*.jsonl")
    record = read_record(path)
    assert record.end.phases_ns["train"] >= 30 * MS
    assert record.end.phases_ns["evaluate"] >= 20 * MS
    assert (record.evaluations[0].step, record.evaluations[0].samples) == (3, 6)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"trains": len}, UnknownNameError, "train"),
        ({"train": 5}, UsageError, "5 is no function"),
        ({"train": iter([1])}, UsageError, "only data may be what is gone through"),
    ],
)
def test_what_is_no_phase_or_no_function_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        levelbench.phases(**given)


def test_asynchronous_functions_are_refused():
    async def step():
        pass

    async def steps():
        yield

    class Step:
        async def __call__(self):
            pass

    for each in (step, steps, Step()):
        with pytest.raises(UsageError, match="not async"):
            levelbench.phases(train=each)


def test_what_jax_computes_belongs_to_the_phase_that_started_it(tmp_path):
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with levelbench.track("mine", target={"accuracy": 0.9}, store=tmp_path, quiet=True) as run:
        double = levelbench.phases(train=jax.jit(lambda x: x * 2))
        assert float(double(2.0)) == 4.0
        # Within another compiled function there is nothing to wait for.
        assert float(jax.jit(lambda x: double(x) + 1)(2.0)) == 5.0
        run.evaluate(0.5)


def test_a_callback_without_a_run_does_nothing(monkeypatch, capsys):
    monkeypatch.setattr(marking, "_noted", [])
    monkeypatch.delenv("LEVELBENCH_PHASES", raising=False)
    monkeypatch.setitem(sys.modules, "keras", ModuleType("keras"))
    module = ModuleType("keras.callbacks")
    module.Callback = type("Callback", (), {})
    monkeypatch.setitem(sys.modules, "keras.callbacks", module)
    callback = levelbench.callback("keras")
    callback.model = None
    callback.on_train_begin()
    callback.on_train_batch_begin(0)
    callback.on_train_batch_end(0)
    callback.on_epoch_end(0, {"val_accuracy": 0.5})
    said = capsys.readouterr()
    assert "callback measures nothing here" in said.err
    assert said.out == ""


def test_a_callback_prints_the_quality_that_it_is_asked_for(time_program):
    text = """
        from types import ModuleType
        keras, module = ModuleType("keras"), ModuleType("keras.callbacks")
        module.Callback = type("Callback", (), {})
        sys.modules |= {"keras": keras, "keras.callbacks": module}
        callback = levelbench.callback("keras", metric="val_accuracy")
        callback.model = None
        callback.on_train_begin()
        for epoch in range(2):
            callback.on_train_batch_begin(0)
            time.sleep(0.02)
            callback.on_train_batch_end(0)
            sys.stdout.write("accuracy: 1.0 of a progress bar")
            callback.on_epoch_end(epoch, {"accuracy": 1.0, "val_accuracy": 0.5 + epoch / 10})
    """
    _, record = time_program(text, "--target", "val_accuracy=0.9")
    assert [each.quality["validation"] for each in record.evaluations] == [0.5, 0.6]
    assert [each.epoch for each in record.evaluations] == [1.0, 2.0]
    assert record.end.phases_ns["train"] >= 40 * MS


@pytest.mark.parametrize("first", ["trainer", "callback"])
def test_a_quality_that_the_trainer_prints_and_the_callback_too_is_one_evaluation(first):
    printed = Printed(Target("val_accuracy", 0.9))
    assert printed.read(told_quality({"prints": "val_accuracy"})) is None
    found = []
    for epoch, value in ((1, 0.85712), (2, 0.9)):
        lines = [f"- val_accuracy: {value:.4f}", told_quality({"val_accuracy": value, "epoch": epoch})]
        found += [printed.read(line) for line in (lines if first == "trainer" else reversed(lines))]
    assert [each for each in found if each is not None] == [(0.85712, 1), (0.9, 2)]
    assert printed.doubts() == []


def test_a_callback_that_prints_another_metric_leaves_the_targets_to_the_program():
    printed = Printed(Target("val_accuracy", 0.9))
    printed.read(told_quality({"prints": "val_loss"}))
    assert printed.read("- val_accuracy: 0.8571") == (0.8571, None)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_programs_of_the_table_need_three_lines_at_most(path):
    lines = [each for each in path.read_text().splitlines() if re.search(r"levelbench", each)]
    assert 1 <= len(lines) <= 3
