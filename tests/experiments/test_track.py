"""Training loops of somebody's own, measured in place: what the record says, and what stops a loop."""

from __future__ import annotations

import json
import linecache
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import levelbench
from levelbench.cli import main
from levelbench.errors import LevelbenchError, UsageError
from levelbench.records import group_runs, read_folder, read_record, summarise
from levelbench.records.comparable import comparable
from levelbench.records.replicates import BEFORE_ENDED_AT

pytestmark = pytest.mark.sampled(3)

TARGET = {"accuracy": 0.9}


@pytest.fixture
def track(tmp_path):
    def start(task="mine", **given):
        given = {"target": TARGET, "store": tmp_path, "quiet": True, **given}
        return levelbench.track(task, **given)

    return start


@pytest.fixture
def record(tmp_path):
    def read():
        (path,) = tmp_path.glob("*/*/*.jsonl")
        return read_record(path)

    return read


def train(run, qualities, batches=((1, 2, 3), (4, 5, 6))):
    for epoch in run.epochs(len(qualities)):
        for _ in run.data(batches):
            with run.phase("forward"):
                pass
        run.evaluate(lambda: qualities[epoch])  # noqa: B023  # it is called at once
    return run


def program(text: str, folder: Path, **environment) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text("import levelbench, os, sys, time\n" + textwrap.dedent(text))
    every = {**os.environ, "LEVELBENCH_STORE": str(folder / "store"), **environment}
    return subprocess.run([sys.executable, file.name], cwd=folder, env=every, capture_output=True, text=True)


def only(folder: Path):
    (path,) = (folder / "store").glob("*/*/*.jsonl")
    return read_record(path)


def test_a_run_that_reaches_its_target_ends_its_loop_and_agrees_with_itself(track, record):
    with track(settings={"lr": 0.1}) as run:
        train(run, [0.5, 0.91, 0.92, 0.99])
    found = summarise(record())
    assert (run.reached, len(record().evaluations), record().end.stopped_by) == (True, 3, "target reached")
    assert (found.contradictions, found.reached, found.steps_to_target, found.samples_to_target) == ([], True, 6, 18)
    assert (found.epochs_to_target, found.settings, found.scored_by) == (3.0, {"lr": 0.1}, "program")
    assert sum(record().end.phases_ns.values()) == record().end.t_ns


def test_a_run_whose_last_quality_is_not_a_number_has_diverged(track, record):
    with track() as run:
        train(run, [0.5, float("nan")])
    found = summarise(record())
    assert (found.reached, found.hopeless, found.stopped_by) == (False, True, "diverged: accuracy is not a number")


def test_a_record_has_the_versions_of_the_installed_packages_that_its_program_imports(tmp_path):
    (tmp_path / "helper.py").write_text("import msgspec\n")
    program(
        """
        import click, helper
        with levelbench.track("mine", target={"accuracy": 0.9}) as run:
            run.evaluate(0.5)
        """,
        tmp_path,
    )
    found = only(tmp_path).header.environment["packages_imported"]
    assert found == {name: version(name) for name in ("click", "msgspec")}


def test_a_run_knows_where_the_one_before_of_its_task_ended_in_the_same_process(track, tmp_path):
    for task, qualities in (("one", [0.5, 0.7]), ("other", [0.2]), ("other", [0.3])):
        with track(task) as run:
            train(run, qualities)
    found = {run.seed: run.environment for run in map(summarise, read_folder(tmp_path)[0]) if run.task == "other"}
    assert [found[seed].get(BEFORE_ENDED_AT) for seed in (0, 1)] == [None, 0.2]


def test_its_record_has_the_programs_text_and_name_and_what_another_process_saw(track, record):
    with track() as run:
        train(run, [0.5])
    header, witness = record().header, record().end.witness
    assert header.source.text == Path(__file__).read_text()
    assert header.specification.recipe == "test_track"
    assert header.environment["started"] == "in place"
    assert witness.absent == ""
    assert witness.sights[-1].parent_ns is not None
    assert len(record().samples["step_time"].values) == 2


def test_a_run_that_misses_goes_through_all_its_epochs(track, record):
    with track() as run:
        train(run, [0.1, 0.95, 0.2])
    assert not run.reached
    assert record().end.stopped_by == "its program ended"
    assert summarise(record()).reached is False


@pytest.mark.parametrize(("crossing", "evaluations"), [("first", 1), ("confirmed", 2), ("final", 3), ("sustained", 3)])
def test_only_rules_that_look_at_what_was_end_a_loop(track, record, crossing, evaluations):
    with track(crossing=crossing) as run:
        train(run, [0.95, 0.96, 0.97])
    assert len(record().evaluations) == evaluations
    assert summarise(record()).reached


def test_what_is_done_belongs_to_the_phase_that_was_named_last(track, record):
    with track() as run:
        for _ in run.data([1]):
            with run.phase("forward"):
                time.sleep(0.02)
                with run.phase("backward"):
                    time.sleep(0.03)
                with run.phase("forward"):
                    time.sleep(0.01)
        run.evaluate(lambda: time.sleep(0.02) or 0.5)
    phases = record().end.phases_ns
    assert phases["forward"] >= 30e6
    assert phases["backward"] >= 30e6
    assert phases["evaluate"] >= 20e6


def test_phases_that_end_in_another_order_than_they_began_are_a_doubt(track, record):
    with track() as run:
        first, second = run.phase("forward"), run.phase("backward")
        for each in (first.__enter__, second.__enter__, first.__exit__, second.__exit__):
            each()
        run.evaluate(0.5)
    assert any("ended in another order than they were begun" in each for each in record().end.suspect)


def test_a_setting_of_any_name_is_listed_and_selected(track, tmp_path, capsys):
    for value in ("x", "y"):
        with track(settings={"a b": value}) as run:
            run.evaluate(0.5)
    for words, said in ((["list", "runs"], '"a b"=x'), (["show", f'{run.path.parent.parent.name}["a b"=y]'], run.id)):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", str(tmp_path)])
        assert ended.value.code == 0
        assert said in capsys.readouterr().out


def test_a_seed_among_the_settings_is_that_of_the_run(track):
    for given in ({"seed": 7}, {"seed": 8}):
        with track(settings={"lr": 0.1, **given}) as run:
            run.evaluate(0.5)
        assert (run.seed, read_record(run.path).header.specification.settings) == (given["seed"], {"lr": 0.1})
    with track(settings={"seed": None}) as run:
        run.evaluate(0.5)
    assert run.seed == 0


def test_the_settings_that_programs_have_are_recorded(track):
    given = {"data": Path("a") / "b", "layers": [64, 32], "betas": (0.9, 0.99), "resume": None, "device": "cuda:0"}
    with track(settings=given) as run:
        run.evaluate(0.99)
    found = read_record(run.path).header.specification
    assert (found.settings, found.device) == ({"data": "a/b", "layers": "64,32", "betas": "0.9,0.99"}, "cuda:0")
    with track(settings={"device": None}) as run:
        run.evaluate(0.99)
    assert read_record(run.path).header.specification.device == "cpu"


def test_settings_with_names_of_other_parts_of_a_label_are_told_apart(track, tmp_path, capsys):
    for value in (1, 2):
        with track(settings={"split": value, "ranks": value}) as run:
            run.evaluate(0.5)
    with pytest.raises(SystemExit):
        main(["list", "runs", "mine[split=2,ranks=2]", "--json", "--store", str(tmp_path)])
    assert run.id in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["list", "runs", "--store", str(tmp_path)])
    assert "split=2" in capsys.readouterr().out


def test_waiting_for_a_batch_is_the_phase_data_and_counts_to_the_step(track, record):
    def slow():
        for each in range(2):
            time.sleep(0.02)
            yield [each]

    with track() as run:
        for _ in run.data(slow()):
            pass
        run.evaluate(0.5)
    assert record().end.phases_ns["data"] >= 40e6
    assert all(each >= 20e6 for each in record().samples["step_time"].values)


def test_an_evaluation_within_an_epoch_has_its_share_and_is_in_no_step(track, record):
    with track() as run:
        for number, _ in enumerate(run.data([[0]] * 4)):
            if number == 1:
                run.evaluate(lambda: time.sleep(0.05) or 0.5)
        run.evaluate(0.6)
    assert [each.epoch for each in record().evaluations] == [0.5, 1.0]
    assert [each.step for each in record().evaluations] == [2, 4]
    assert max(record().samples["step_time"].values) < 45e6
    assert summarise(record()).contradictions == []


def test_without_batches_what_lies_between_two_evaluations_is_a_step(track, record):
    with track() as run:
        for value in (0.1, 0.2):
            time.sleep(0.01)
            run.evaluate(value)
        run.step(examples=7)
        run.evaluate(0.3)
    assert [(each.step, each.samples) for each in record().evaluations] == [(1, 1), (2, 2), (3, 9)]
    assert summarise(record()).contradictions == []


def test_a_second_evaluation_without_a_step_is_at_the_same_step(track, record):
    with track() as run:
        for _ in run.epochs(2):
            for _ in run.data([[1, 2, 3]] * 2):
                pass
            run.evaluate(0.2)
        run.evaluate(0.2)
    found = record()
    assert [(each.step, each.samples) for each in found.evaluations] == [(2, 6), (4, 12), (4, 12)]
    assert summarise(found).contradictions == []


def test_held_out_batches_that_a_quality_goes_through_are_no_steps(track, record):
    with track() as run:
        for _ in run.data([[1, 2, 3]] * 2):
            pass
        run.evaluate(lambda: sum(1 for _ in run.data([[1]] * 50)) / 500)
    (found,) = record().evaluations
    assert (found.step, found.samples, found.quality["validation"]) == (2, 6, 0.1)


def test_an_epoch_of_steps_is_whole_at_its_evaluation(track, record):
    with track() as run:
        for _ in run.epochs(2):
            for _ in range(3):
                run.step(8)
            run.evaluate(0.2)
    assert [each.epoch for each in record().evaluations] == [1, 2]


def test_a_loader_that_raises_leaves_the_phase_of_before(track, record):
    def batches():
        yield [1]
        raise OSError

    with track() as run:
        with suppress(OSError):
            for _ in run.data(batches()):
                pass
        time.sleep(0.05)
        run.evaluate(0.2)
    assert record().end.phases_ns["data"] < 0.04e9


def test_starting_a_loader_is_waiting_for_data(track, record):
    class Loader:
        def __iter__(self):
            time.sleep(0.05)
            return iter([[1]])

    with track() as run:
        for _ in run.data(Loader()):
            pass
        run.evaluate(0.2)
    assert record().end.phases_ns["data"] > 0.045e9


@pytest.mark.parametrize("phase", ["prepare", "compile"])
def test_what_is_marked_as_no_step_is_no_part_of_the_next(track, record, phase):
    with track() as run:
        with run.phase(phase):
            time.sleep(0.1)
        for _ in range(3):
            with run.phase("forward"):
                time.sleep(0.001)
            run.step()
        run.evaluate(0.2)
    assert max(record().samples["step_time"].values) < 0.09e9
    assert record().end.phases_ns[phase] > 0.095e9


def test_blocks_of_no_step_within_one_another_are_left_out_once(track, record):
    with track() as run:
        with run.phase("forward"):
            time.sleep(0.03)
        with run.phase("prepare"):
            time.sleep(0.03)
            with run.phase("compile"):
                time.sleep(0.05)
        run.step()
        run.evaluate(0.2)
    (step_ns,) = record().samples["step_time"].values
    phases = record().end.phases_ns
    assert step_ns == pytest.approx(sum(phases[name] for name in ("forward", "other")), abs=5e6)


def test_a_step_that_ends_in_a_block_of_preparation_begins_no_later_one_in_the_future(track, record):
    with track() as run:
        with run.phase("prepare"):
            time.sleep(0.01)
            run.step()
        run.step()
        run.evaluate(0.2)
    assert min(record().samples["step_time"].values) >= 0


@pytest.mark.parametrize("raised", [TypeError, NotImplementedError, ValueError])
def test_a_loader_whose_length_raises_is_read_like_any_other(track, record, raised):
    class Stream:
        def __len__(self):
            raise raised("object of type 'Stream' has no len()")

        def __iter__(self):
            return iter([[1, 2], [3, 4]])

    with track() as run:
        assert [*run.data(Stream())] == [[1, 2], [3, 4]]
        run.evaluate(0.2)
    assert (record().end.status, record().evaluations[0].step) == ("done", 2)


def test_a_loop_that_is_left_early_counts_the_step_it_was_in(track, record):
    with track() as run:
        for number, _ in enumerate(run.data([[0]] * 9)):
            if number == 2:
                break
        run.evaluate(0.5)
    assert record().evaluations[0].step == 3


def test_a_generator_that_is_left_open_does_no_harm(track, record):
    with track() as run:
        left = iter(run.data([[0]] * 3))
        next(left)
        run.evaluate(0.5)
    assert record().evaluations[0].step == 1
    assert list(left) == [[0]] * 2


def test_time_that_is_spent_ends_the_loop(track, record):
    with track(budget_s=0.05) as run:
        for _ in run.data(iter(lambda: time.sleep(0.01) or [0], None)):
            pass
        run.evaluate(0.5)
    assert record().end.stopped_by == "budget of 0.05 s spent"
    assert record().end.t_ns > 0.05e9
    assert summarise(record()).contradictions == []


def test_other_metrics_and_the_test_quality_are_kept_beside_the_targets(track, record):
    with track() as run:
        assert run.evaluate({"accuracy": 0.5, "top5": 0.8}) == 0.5
        assert run.test(lambda: 0.45) == 0.45
    assert record().evaluations[0].quality == {"validation": 0.5, "validation.top5": 0.8}
    assert record().end.quality["test"] == 0.45


@pytest.mark.parametrize(
    ("metric", "value", "direction", "low", "high"),
    [
        ("accuracy", 0.9, "higher", 0.0, 1.0),
        ("val_loss", -2.0, "lower", None, None),
        ("bleu", 25.0, "higher", 0.0, None),
        ("r2", -0.3, "higher", None, 1.0),
    ],
)
def test_direction_and_scale_follow_from_the_metrics_name(track, record, metric, value, direction, low, high):
    with track(target={metric: value}) as run:
        run.evaluate(value)
    target = record().header.specification.target
    assert (target.metric, target.threshold, target.direction) == (metric, value, direction)
    assert (target.low, target.high) == (low, high)
    assert summarise(record()).contradictions == []


@pytest.mark.parametrize("scale", [(1, 0), (0, 0), (0,), "0,1", ("a", "b"), 1, (math.nan, 1)])
def test_a_scale_that_is_none_is_refused(track, scale):
    with pytest.raises(UsageError, match="its scale is"):
        track(scale=scale)


def test_direction_and_scale_can_be_given(track, record):
    with track(target={"return": -200.0}, scale=(-2000.0, None), direction="higher") as run:
        run.evaluate(-500.0)
    assert record().header.specification.target.low == -2000.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": {"accuracy": 94}}, r"did you mean 0\.94\?"),
        ({"target": {}}, "Give one metric with a value"),
        ({"target": 0.94}, "Give one metric with a value"),
        ({"target": {"accuracy": "high"}}, "Give a number"),
        ({"target": {"accuracy": float("nan")}}, "Give a finite number"),
        ({"settings": {"lr": [[1]]}}, r"lr is \[\[1\]\]"),
        (
            {"settings": {"lr": {}, "n": float("nan"), "status": 1}},
            "lr is {}; n is nan; 'status' is among its settings",
        ),
        ({"settings": {"device": "auto"}}, "Give device to track itself"),
        ({"settings": {"device": "cuda"}, "device": "cpu"}, "Give device to track itself"),
        ({"settings": {"seed": 1}, "seed": 2}, "its seed is 2, and its settings say 1"),
        ({"settings": {"framework": "f"}}, "Give framework to track itself"),
        ({"settings": {"recipe": 1}}, "selections of runs mean something else by it"),
        ({"settings": {"status": 1}}, "Call status own_status, say"),
        ({"settings": {"lr": float("inf")}}, "lr is inf"),
        ({"settings": {"n": 1 << 64}}, "n is 18446744073709551616"),
        ({"budget_s": "5"}, "Give seconds"),
        ({"budget_s": -1}, "Give seconds"),
        ({"seed": -3}, "Give a whole number from 0 on"),
        ({"seed": 1.5}, "Give a whole number from 0 on"),
        ({"task": "my model"}, "Choose another name"),
        ({"task": 5}, "Choose another name"),
        ({"settings": [1]}, "its settings are a list"),
        ({"crossing": "second"}, "crossing rule"),
        ({"direction": "up"}, "direction"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_written(track, tmp_path, given, message):
    with pytest.raises(LevelbenchError, match=message):
        track(**{"task": "mine", **given})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("quality", "message"),
    [
        (1.5, "on a scale from 0 to 1"),
        ("good", "no number"),
        (10**400, "no number"),
        ({"f1": 0.5}, "Give 'accuracy'"),
        (None, "no number"),
    ],
)
def test_a_quality_that_cannot_be_one_is_refused(track, quality, message):
    with pytest.raises(UsageError, match=message), track() as run:
        run.evaluate(lambda: quality)


def test_an_unknown_phase_is_named_with_those_there_are(track):
    with pytest.raises(LevelbenchError, match="backward"), track() as run, run.phase("backwards"):
        pass


@pytest.mark.slow
def test_each_run_of_one_program_and_setting_has_the_next_seed(track):
    seeds = []
    for lr in (0.1, 0.1, 0.2, 0.1):
        with track(settings={"lr": lr}) as run:
            run.evaluate(0.5)
        seeds.append(run.seed)
    assert seeds == [0, 1, 0, 2]


@pytest.mark.slow
def test_an_edited_program_begins_with_the_seeds_that_the_other_text_had(tmp_path):
    program, seeds = tmp_path / "train.py", []
    environment = {**os.environ, "LEVELBENCH_STORE": str(tmp_path / "store")}
    for text in ("one", "one", "two", "two", "one"):
        program.write_text(
            f"version = {text!r}\n"
            "import levelbench\n"
            "with levelbench.track('mine', target={'accuracy': 0.9}, quiet=True) as run:\n"
            "    run.evaluate(0.5 + 0.01 * run.seed)\n"
            "print(run.seed)\n"
        )
        made = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, check=True)
        seeds.append(int(made.stdout))
    assert seeds == [0, 1, 0, 1, 2]
    groups = group_runs(read_folder(tmp_path / "store")[0])
    assert sorted(len(each.runs) for each in groups) == [2, 3]
    assert "missing runs" not in {each.subject for each in comparable(*groups).caveats}


@pytest.mark.slow
def test_programs_that_start_at_once_have_seeds_of_their_own(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(
        "import levelbench\n"
        "with levelbench.track('mine', target={'accuracy': 0.9}, quiet=True) as run:\n"
        "    run.evaluate(0.5)\n"
        "print(run.seed)\n"
    )
    environment = {**os.environ, "LEVELBENCH_STORE": str(tmp_path / "store")}
    words = [sys.executable, str(program)]
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    assert sorted(each.communicate()[0] for each in started) == ["0\n", "1\n", "2\n", "3\n"]


@pytest.mark.slow
def test_runs_are_selected_grouped_and_compared_as_others_are(track, tmp_path):
    for _ in range(3):
        for lr in (0.1, 0.2):
            with track(settings={"lr": lr}) as run:
                train(run, [0.95, 0.96])
    a, b = group_runs(read_folder(tmp_path)[0])
    assert {a.label, b.label} == {"mine[lr=0.1]", "mine[lr=0.2]"}
    gate = comparable(a, b)
    assert gate.refusals == ()
    assert all(each.subject != "quality" for each in gate.caveats)


def test_an_exception_is_a_failed_run_with_its_place_and_passes_through(tmp_path):
    done = program(
        """
        with levelbench.track("mine", target={"accuracy": 0.9}) as run:
            run.evaluate(0.5)
            raise ValueError("secret")
        """,
        tmp_path,
    )
    assert "ValueError: secret" in done.stderr
    assert done.returncode == 1
    end = only(tmp_path).end
    assert (end.status, end.error) == ("failed", "ValueError in program.py, line 5, in <module>")


@pytest.mark.parametrize(("code", "status"), [("0", "done"), ("", "done"), ("3", "failed")])
def test_sys_exit_in_the_block_ends_the_run_by_its_code(tmp_path, code, status):
    text = f"""
        with levelbench.track("mine", target={{"accuracy": 0.9}}) as run:
            run.evaluate(0.5)
            sys.exit({code})
        """
    assert program(text, tmp_path).returncode == int(code or 0)
    assert only(tmp_path).end.status == status


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_interrupted_or_killed_leaves_what_it_had(tmp_path, number):
    text = f"""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with levelbench.track("mine", target={{"accuracy": 0.9}}) as run:
            run.evaluate(0.5)
            os.kill(os.getpid(), {int(number)})
            time.sleep(60)
        """
    assert program(text, tmp_path).returncode != 0
    assert (only(tmp_path).status, len(only(tmp_path).evaluations)) == ("interrupted", 1)


@pytest.mark.slow
def test_a_forked_child_measures_nothing_and_leaves_the_record_to_its_parent(tmp_path):
    done = program(
        """
        with levelbench.track("mine", target={"accuracy": 0.9}) as run:
            child = os.fork()
            if child == 0:
                for _ in run.data([1, 2]):
                    with run.phase("forward"):
                        pass
                try:
                    run.evaluate(0.99)
                except levelbench.LevelbenchError as error:
                    print(error)
                sys.exit(0)
            os.waitpid(child, 0)
            run.evaluate(0.5)
        """,
        tmp_path,
    )
    assert "fork" in done.stdout
    assert [each.quality["validation"] for each in only(tmp_path).evaluations] == [0.5]
    assert only(tmp_path).status == "done"


def test_another_thread_is_refused(track):
    raised = []

    def call(run):
        try:
            run.evaluate(0.5)
        except UsageError as error:
            raised.append(str(error))

    with track() as run:
        other = threading.Thread(target=call, args=(run,))
        other.start()
        other.join()
        run.evaluate(0.5)
    assert "another thread" in raised[0]


def test_one_run_at_a_time_is_tracked_and_each_once(track):
    with track() as run:
        run.evaluate(0.5)
        with pytest.raises(UsageError, match="being tracked already"), track("other"):
            pass
    with pytest.raises(UsageError, match="being tracked already"), run:
        pass
    with pytest.raises(UsageError, match="has ended"):
        run.evaluate(0.5)


def test_nothing_is_measured_before_the_block(track):
    with pytest.raises(UsageError, match="has not begun"):
        track().evaluate(0.5)


def test_a_run_without_an_evaluation_has_failed_and_says_so(track, record, capsys):
    with track(quiet=False):
        pass
    assert (record().end.status, record().end.error) == ("failed", "it made no evaluation")
    assert "made no evaluation" in capsys.readouterr().err


def test_the_end_is_told_in_one_line_with_how_to_look_at_it(track, capsys):
    with track(quiet=False) as run:
        train(run, [0.95, 0.96])
    said = capsys.readouterr().err
    assert "mine, seed 0: accuracy 0.96" in said
    assert f"levelbench show {run.id}" in said


def test_the_examples_of_a_rank_count_once_for_each_of_several(track, record, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with track(seed=0) as run:
        for _ in run.data([[1, 2, 3]]):
            pass
        run.step(examples=4)
        run.evaluate(0.95)
    assert record().evaluations[-1].samples == 14


@pytest.mark.slow
def test_of_several_ranks_the_first_writes_the_record_and_all_need_one_seed(tmp_path):
    text = """
        with levelbench.track("mine", target={"accuracy": 0.9}, seed=4) as run:
            for epoch in run.epochs(5):
                run.evaluate(0.95)
            print(run.seed, run.reached, epoch)
        """
    done = program(text, tmp_path, RANK="1", WORLD_SIZE="2")
    assert done.stdout.split() == ["4", "True", "1"]
    assert not (tmp_path / "store").exists()
    assert program(text, tmp_path, RANK="0", WORLD_SIZE="2").returncode == 0
    assert only(tmp_path).header.specification.distribution.ranks == 2
    assert summarise(only(tmp_path)).contradictions == []
    assert (
        "give all of them one seed" in program(text.replace(", seed=4", ""), tmp_path, RANK="0", WORLD_SIZE="2").stderr
    )


def test_much_work_before_the_clock_is_a_doubt(track, record, monkeypatch):
    from levelbench.experiments import off_clock, tracked

    # The process of these tests has tracked others before.
    monkeypatch.setattr(off_clock, "own_cpu_s", lambda: tracked._tracked.cpu_s + 60.0)
    with track() as run:
        run.evaluate(0.5)
    assert any("before its clock started" in each for each in record().end.suspect)


@pytest.mark.slow
def test_how_long_the_process_ran_before_the_clock_is_known_of_each_run(tmp_path):
    text = """
        time.sleep(0.3)
        for pause in (0.0, 0.2):
            time.sleep(pause)
            with levelbench.track("mine", target={"accuracy": 0.9}, seed=int(pause * 10)) as run:
                time.sleep(0.5)
                run.evaluate(0.5)
        """
    assert program(text, tmp_path).returncode == 0
    found = [read_record(path).header for path in (tmp_path / "store").glob("*/*/*.jsonl")]
    before_s = {each.seed: each.environment["before_clock"]["wall_s"] for each in found}
    assert before_s[0] >= 0.3
    assert 0.2 <= before_s[2] < before_s[0] + 0.5


def test_in_an_interactive_session_waiting_for_the_next_line_is_no_work(track, record, monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with track() as run:
        run.evaluate(0.5)
    assert record().header.environment["before_clock"]["wall_s"] == 0


def test_the_seed_is_known_before_the_block_begins(track):
    for seed in (0, 1):
        run = track()
        assert run.seed == seed
        with run:
            run.evaluate(0.5)
        assert run.seed == seed


@pytest.mark.slow
def test_a_clock_that_is_replaced_disagrees_with_the_process_that_looks_on(tmp_path):
    text = """
        from levelbench.measure.clocks import HOST
        real = HOST.now_ns
        type(HOST).now_ns = staticmethod(lambda: real() // 10)
        with levelbench.track("mine", target={"accuracy": 0.9}) as run:
            time.sleep(0.3)
            run.evaluate(0.95)
            run.evaluate(0.95)
        """
    assert program(text, tmp_path).returncode == 0
    assert any("second clock" in each or "process" in each for each in summarise(only(tmp_path)).contradictions)


@pytest.mark.parametrize(
    ("batch", "examples"),
    [([1, 2, 3], 3), (([1, 2], [3, 4]), 2), ({"x": [[1], [2]]}, 2), (5, 0), ("text", 0), ([], 0)],
)
def test_the_examples_of_a_batch_are_the_length_of_its_first_part(track, record, batch, examples):
    with track() as run:
        for _ in run.data([batch]):
            pass
        run.evaluate(0.5)
    assert record().evaluations[0].samples == max(1, examples)


def test_tracked_runs_are_listed_shown_and_compared_by_the_command_line(tmp_path, capsys):
    def call(*words):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", str(tmp_path)])
        return ended.value.code, capsys.readouterr().out

    for _ in range(3):
        for lr in (0.1, 0.2):
            with levelbench.track("mine", target=TARGET, settings={"lr": lr}, store=tmp_path, quiet=True) as run:
                train(run, [0.95, 0.96])
    assert len(json.loads(call("list", "runs", "--json")[1])) == 6
    assert "as reported by its program" in call("show", "latest")[1]
    code, out = call("compare", "mine[lr=0.1]", "mine[lr=0.2]")
    assert code in (0, 1, 4)
    assert "mine[lr=0.2] takes " in out
    assert "1 claim checked" in call("lint", "mine")[1]


def test_a_quality_that_is_the_target_in_single_precision_reaches_it(track, record):
    with track(target={"accuracy": 0.95}, crossing="first") as run:
        # 38 of 40 right, divided in float32.
        train(run, [0.5, 0.949999988079071])
    assert [each.quality["validation"] for each in record().evaluations] == [0.5, 0.95]
    assert summarise(record()).reached


class FakeCuda:
    """What a run asks of ``torch.cuda``, for a device whose work is queued behind the host."""

    def __init__(self):
        self.free_s, self.capturing, self.events = 0.0, False, 0

    def launch(self, seconds):
        self.free_s = max(self.free_s, time.perf_counter()) + seconds

    def is_initialized(self):
        return True

    def is_current_stream_capturing(self):
        return self.capturing

    def current_stream(self, device=None):
        return self

    def synchronize(self, device=None):
        time.sleep(max(0.0, self.free_s - time.perf_counter()))

    def Event(self, enable_timing):  # noqa: N802  # PyTorch's name
        self.events += 1
        return FakeEvent()


class FakeEvent:
    def record(self, device):
        self.at_s = device.free_s = max(device.free_s, time.perf_counter())

    def elapsed_time(self, end):
        return (end.at_s - self.at_s) * 1e3


def test_phases_and_steps_on_cuda_are_times_of_the_device(track, record, monkeypatch):
    from types import SimpleNamespace

    device = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=device))
    with track(framework="torch") as run:
        for _ in run.data([0, 1, 2]):
            with run.phase("forward"):
                device.launch(0.02)
            with run.phase("backward"):
                device.launch(0.005)
        # No event may be recorded while a graph is captured.
        device.capturing, events = True, device.events
        with run.phase("update"):
            assert device.events == events
        device.capturing = False
        run.evaluate(0.95)
    kept = record()
    (evaluation,) = kept.evaluations
    assert evaluation.phases_ns["forward"] >= 59_000_000
    assert evaluation.phases_ns["backward"] >= 14_000_000
    assert sum(evaluation.phases_ns.values()) == evaluation.t_ns
    assert min(kept.samples["step_time"].values) >= 24_000_000
    assert summarise(kept).contradictions == []


GOES_ON = """
    import pathlib
    kept = pathlib.Path("model.pt")
    {first}
    with levelbench.track("mine", target={{"accuracy": 0.9}}, quiet=True) as run:
        {within}
        run.evaluate(0.95)
        run.evaluate(0.96)
    {after}
"""
READS, WRITES = "found = kept.exists() and kept.read_bytes()", "kept.write_bytes(bytes(5000))"

needs_inotify = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


@pytest.fixture
def readings_are_noted(tmp_path):
    (file := tmp_path / "looked_at").write_bytes(b"x")
    before = file.stat().st_atime_ns
    time.sleep(0.02)
    file.read_bytes()
    if file.stat().st_atime_ns == before:
        pytest.skip("this file system notes no readings (noatime)")


SETTINGS_READ = """
import os, pathlib, sys
import levelbench

for name in ("own.yaml", "results.json", *sys.argv[1:]):
    if pathlib.Path(name).exists():
        pathlib.Path(name).read_text()
os.environ.get("COST"), os.environ.get("RUN_NAME"), os.environ.get("LR"), os.environ.get("OUT")
with levelbench.track("mine", target={"accuracy": 0.9}, settings={"lr": 0.1}, quiet=True) as run:
    pathlib.Path("inside.toml").read_text()
    run.evaluate(0.5)
pathlib.Path("results.json").write_text(str(run.seed))
pathlib.Path("report.yaml").write_text(str(run.seed))
"""


@pytest.fixture
def settings_read(tmp_path, readings_are_noted):
    """What a program that reads settings from several places says that it read, in one run after the other."""
    (tmp_path / "train.py").write_text(SETTINGS_READ)
    for name in ("own.yaml", "inside.toml", "given.json"):
        (tmp_path / name).write_text("size: 1\nseed: 3\n")

    def read(*words, **variables):
        store = tmp_path / "store"
        environment = {**os.environ, "LEVELBENCH_STORE": str(store), **variables}
        known = set(store.glob("*/*/*.jsonl"))
        subprocess.run([sys.executable, "train.py", *words], env=environment, cwd=tmp_path, check=True)
        (path,) = set(store.glob("*/*/*.jsonl")) - known
        return read_record(path).end.environment_after["files_read"]

    return read


@needs_inotify
def test_a_tracked_program_records_the_settings_that_it_reads(settings_read):
    found = settings_read("given.json", COST="2", RUN_NAME="a", LR="0.10", OUT="x/y")
    assert found.keys() == {"$COST", "own.yaml", "inside.toml", "given.json"}


@pytest.mark.slow
@needs_inotify
def test_settings_of_a_tracked_program_that_were_edited_differ_and_its_seed_does_not(settings_read, tmp_path):
    first = settings_read("given.json", COST="2")
    (tmp_path / "own.yaml").write_text("size: 1\nseed: 4\n")
    (tmp_path / "given.json").write_text("size: 2\nseed: 3\n")
    second = settings_read("given.json", COST="3")
    assert {name for name in first if second[name] != first[name]} == {"$COST", "given.json"}


def tracked_doubts(folder: Path, runs: int = 2, **parts: str) -> list[list[str]]:
    text = GOES_ON.format(**{"first": "pass", "within": "pass", "after": "pass", **parts})
    for _ in range(runs):
        ended = program(text, folder)
        assert ended.returncode == 0, ended.stderr
    records = sorted(read_folder(folder / "store")[0], key=lambda each: each.header.seed)
    return [[each for each in record.end.suspect if "it read" in each] for record in records]


@pytest.mark.slow
@needs_inotify
@pytest.mark.parametrize("place", ["before", "within"])
def test_a_tracked_run_that_goes_on_from_a_checkpoint_of_the_run_before_is_a_doubt(tmp_path, request, place):
    if place == "before":
        request.getfixturevalue("readings_are_noted")
    reads = {"first": READS} if place == "before" else {}
    within = WRITES if place == "before" else f"{READS}; {WRITES}"
    first, second = tracked_doubts(tmp_path, within=within, **reads)
    assert first == []
    assert second[0].startswith(
        "it read model.pt (unless another program did), which lay there before it began, and wrote it anew"
    )


@pytest.mark.slow
@needs_inotify
def test_a_tracked_run_that_reads_what_was_written_after_the_block_before_is_a_doubt(tmp_path, readings_are_noted):
    first, second = tracked_doubts(tmp_path, first=READS, after=WRITES)
    assert first == []
    assert second[0].startswith(
        "it read model.pt (unless another program did), which was written after the first run of this began"
    )


@pytest.mark.slow
@needs_inotify
@pytest.mark.parametrize(
    "parts",
    [
        {"after": WRITES},
        {"within": f"{WRITES}; {READS}"},
        {"first": "open('log.txt', 'a').write('accuracy 0.9')", "within": "found = open('program.py').read()"},
        {
            "first": "text = pathlib.Path('r.csv').exists() and open('r.csv').read()",
            "after": "open('r.csv', 'a').write('1')",
        },
    ],
    ids=["saved", "its own", "log", "results"],
)
def test_a_tracked_run_that_only_saves_or_reads_its_own_is_no_doubt(tmp_path, parts):
    assert tracked_doubts(tmp_path, **parts) == [[], []]


@pytest.mark.slow
@needs_inotify
def test_data_that_a_tracked_run_reads_each_time_is_no_doubt(tmp_path):
    (tmp_path / "model.pt").write_bytes(bytes(90_000))
    assert tracked_doubts(tmp_path, first=READS, within=READS) == [[], []]


class Notebook:
    """Runs cells as a notebook's kernel does: in one namespace, each under a file that is not there."""

    def __init__(self, folder):
        self.names = {"levelbench": levelbench, "get_ipython": None, "folder": folder}

    def run(self, cell):
        file = f"/tmp/ipykernel_1/{abs(hash(cell))}.py"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), self.names)
        return self.names


CELL = """
with levelbench.track("mine", target={"accuracy": 0.9}, store=folder, quiet=True) as run:
    run.evaluate(accuracy())
"""


@pytest.mark.parametrize(("session", "recipe"), [("/home/me/train.ipynb", "train"), (None, "notebook")])
def test_a_notebook_is_the_recipe_of_its_runs_whatever_the_text_of_the_cell(tmp_path, monkeypatch, session, recipe):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session is not None:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    notebook = Notebook(tmp_path)
    notebook.run("def accuracy(): return 0.5")
    for cell in (CELL, f"{CELL}# edited"):
        found = read_record(notebook.run(cell)["run"].path)
        assert found.header.specification.recipe == recipe


def test_what_other_cells_define_for_the_cell_of_a_run_is_part_of_its_program(tmp_path):
    notebook = Notebook(tmp_path)
    notebook.run("def accuracy(): return Model().score()")
    sources = []
    for score in ("0.5", "0.6", "0.5"):
        notebook.run(f"class Model:\n    def score(self): return {score}")
        notebook.run(f"def other(): return {len(sources)}")
        sources.append(read_record(notebook.run(CELL)["run"].path).header.source)
    assert sources[0].modules.keys() >= {"accuracy", "Model"}
    assert "other" not in sources[0].modules
    assert sources[0].whole == sources[2].whole != sources[1].whole


def test_modules_of_ones_own_that_a_notebook_holds_are_part_of_its_program(tmp_path, monkeypatch):
    (tmp_path / "my_model_of_cells.py").write_text("def accuracy(): return 0.5")
    monkeypatch.syspath_prepend(tmp_path)
    main = ModuleType("main_of_cells")
    monkeypatch.setitem(sys.modules, main.__name__, main)
    notebook = Notebook(tmp_path)
    vars(main).update(notebook.names, __name__=main.__name__)
    notebook.names = vars(main)
    notebook.run("from my_model_of_cells import accuracy")
    assert "my_model_of_cells" in read_record(notebook.run(CELL)["run"].path).header.source.modules
