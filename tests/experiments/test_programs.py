"""Programs run from outside: what they print becomes the record of a run, and how they end."""

from __future__ import annotations

import json
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.cli import main
from levelbench.errors import UsageError
from levelbench.experiments.programs import Printed, read_target
from levelbench.records import read_record

ACCURACY, LOSS = read_target("accuracy=0.9"), read_target("val_loss=3.28")


@pytest.mark.parametrize(
    ("target", "line", "value", "epoch"),
    [
        (ACCURACY, "accuracy: 0.91", 0.91, None),
        (ACCURACY, "accuracy=.91", 0.91, None),
        (ACCURACY, "Epoch 3/30 - loss: 0.2 - accuracy: 0.91", 0.91, 3),
        (ACCURACY, "accuracy 91.5 %", 0.915, None),
        (ACCURACY, "test accuracy is 0.9", 0.9, None),
        (ACCURACY, '{"epoch": 2.5, "accuracy": 0.91}', 0.91, 2.5),
        (ACCURACY, "{'accuracy': '0.91', 'epoch': '2'}", 0.91, None),
        (ACCURACY, "accuracy: 0.5 ... accuracy: 0.6", 0.6, None),
        (ACCURACY, "accuracy: 9e-1", 0.9, None),
        (LOSS, "step:125/1480 val_loss:4.3719 train_time:29736ms", 4.3719, None),
        (LOSS, "epoch=1 val_loss=3.1", 3.1, 1),
        (LOSS, "val_loss: 91%", 91, None),
        (ACCURACY, ':::MLLOG {"key": "accuracy", "value": 0.7, "metadata": {"epoch_num": 4}}', 0.7, 4),
    ],
)
def test_the_quality_is_the_number_after_its_name(target, line, value, epoch):
    assert Printed(target).read(line) == (pytest.approx(value), epoch)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "val_accuracy: 0.99",
        "accuracy",
        "accuracy: high",
        "inaccuracy: 0.1",
        "accuracy: 0.9.1",
        ':::MLLOG {"key": "loss", "value": 0.7}',
        ":::MLLOG {broken",
        ':::MLLOG {"key": "accuracy", "value": "much"}',
        ":::MLLOG accuracy: 0.9",
    ],
)
def test_other_lines_have_none(line):
    assert Printed(ACCURACY).read(line) is None


def test_the_same_value_printed_again_is_no_second_evaluation():
    printed = Printed(ACCURACY)
    assert printed.read("epoch 1 accuracy: 0.95") == (0.95, 1)
    assert printed.read("epoch 1 accuracy: 0.95") is None
    assert printed.read("epoch 2 accuracy: 0.95") == (0.95, 2)


@pytest.mark.parametrize(
    "pattern", [r"acc=([\d.]+)", r"acc=(?P<quality>[\d.]+)", r"(?P<epoch>\d+) acc=(?P<quality>\S+)"]
)
def test_a_pattern_of_ones_own_says_where_it_is(pattern):
    assert Printed(ACCURACY, pattern).read("at 3 acc=0.5")[0] == 0.5


@pytest.mark.parametrize("pattern", ["(", "acc=[0-9.]+"])
def test_a_pattern_that_finds_nothing_is_refused(pattern):
    with pytest.raises(UsageError, match="--progress"):
        Printed(ACCURACY, pattern)


@given(st.text())
def test_no_line_is_too_odd(line):
    found = Printed(ACCURACY).read(line + "\n:::MLLOG " + line)
    assert found is None or len(found) == 2


@pytest.mark.parametrize("text", ["accuracy", "=0.9", "accuracy=", "accuracy=high", "accuracy=94"])
def test_a_target_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        read_target(text)


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LEVELBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)

    def call(program, *words, name="train.py"):
        (tmp_path / name).write_text(textwrap.dedent(program))
        with pytest.raises(SystemExit) as ended:
            main(["time", f"{sys.executable} {name} {{seed}}", *map(str, words)])
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call


@pytest.fixture
def records(tmp_path):
    def read():
        return [read_record(path) for path in sorted((tmp_path / "store").glob("*/*/*.jsonl"))]

    return read


LEARNS = """
    import sys, time
    for epoch in range(1, 60):
        time.sleep(0.01)
        print(f"epoch {epoch} accuracy: {1 - 0.5 ** epoch}", flush=False)
    time.sleep(60)
"""


def test_a_program_is_ended_at_its_target_and_its_record_is_that_of_a_run(run, records):
    code, out, _ = run(LEARNS, "--target", "accuracy=0.9", "-n", 2, "--task", "mine")
    assert code == 0
    assert "2/2" in out
    for found in records():
        assert (found.status, found.end.stopped_by) == ("done", "target reached")
        assert [each.epoch for each in found.evaluations] == [1, 2, 3, 4, 5]
        assert found.evaluations[0].t_ns < found.evaluations[-1].t_ns < 60e9
        assert found.header.specification.task == "mine"
        assert found.header.specification.scored_by == "program"
        assert "1 - 0.5 ** epoch" in found.header.source.text
        assert sum(found.end.phases_ns.values()) == found.end.t_ns


def test_its_record_agrees_with_itself(run, records):
    from levelbench.records import summarise

    run(LEARNS, "--target", "accuracy=0.9", "-n", 1)
    (found,) = records()
    assert not summarise(found).contradictions


def test_the_seed_is_in_the_command_and_in_the_environment(run, records):
    program = """
        import os, sys
        assert sys.argv[1] == os.environ["LEVELBENCH_SEED"] == "3", sys.argv
        print("accuracy: 0.1")
    """
    assert run(program, "--target", "accuracy=0.9", "-n", 1, "--seed", 3)[0] == 0
    assert records()[0].header.seed == 3


def test_a_program_that_ends_before_its_target_has_missed(run):
    code, out, _ = run('print("accuracy: 0.1")', "--target", "accuracy=0.9", "-n", 1, "--fail-on", "missed")
    assert code == 1
    assert "0/1" in out


def test_what_takes_too_long_has_spent_its_budget(run, records):
    program = 'import time; print("accuracy: 0.1"); time.sleep(60)'
    run(program, "--target", "accuracy=0.9", "-n", 1, "--timeout", "500ms")
    assert records()[0].end.stopped_by == "budget of 0.5 s spent"


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ('print("loss: 0.1")', "printed no accuracy"),
        ('print("accuracy: 0.1"); raise SystemExit(3)', "exit code 3"),
        ('print("accuracy: 0.1"); import os; os.kill(os.getpid(), 9)', "SIGKILL"),
        ('print("accuracy: 7")', "on a scale from 0 to 1"),
    ],
)
def test_a_program_that_fails_has_a_failed_run(run, records, program, found):
    code, _, err = run(program, "--target", "accuracy=0.9", "-n", 1)
    assert code in (1, 2)
    assert found in err
    assert records()[0].status == "failed"


def test_a_program_that_keeps_back_what_it_prints_is_doubted(run, records):
    program = """
        import sys
        text = "".join(f"epoch {at} accuracy: 0.{at}\\n" for at in range(1, 6))
        sys.stdout.write(text)
    """
    run(program, "--target", "accuracy=0.9", "-n", 1)
    assert any("keeps back what it prints" in each for each in records()[0].end.suspect)


def test_the_last_line_needs_no_end(run, records):
    run('import sys; sys.stdout.write("accuracy: 0.2")', "--target", "accuracy=0.9", "-n", 1)
    assert records()[0].evaluations[0].quality["validation"] == 0.2


def test_what_is_printed_as_an_error_and_over_itself_is_read_too(run, records):
    program = 'import sys; sys.stderr.write("\\raccuracy: 0.2\\raccuracy: 0.3\\r")'
    run(program, "--target", "accuracy=0.9", "-n", 1)
    assert [each.quality["validation"] for each in records()[0].evaluations] == [0.2, 0.3]


def test_much_else_is_passed_over(run, records):
    program = """
        import sys
        for _ in range(100):
            sys.stdout.buffer.write(bytes(range(256)) * 4000)
        print("\\naccuracy: 0.2")
    """
    run(program, "--target", "accuracy=0.9", "-n", 1)
    assert records()[0].evaluations[0].quality["validation"] == 0.2


def test_two_programs_are_compared_as_runs_are(run, tmp_path):
    slow = LEARNS.replace("0.01", "0.05")
    (tmp_path / "slow.py").write_text(textwrap.dedent(slow))
    other = f"{sys.executable} slow.py {{seed}}"
    code, out, _ = run(LEARNS, "--vs", other, "--target", "accuracy=0.9", "-n", 3, "--json")
    assert code == 1
    (found,) = json.loads(out)["comparisons"]
    assert found["verdict"]["kind"] == "SLOWER"
    assert any("reports its quality itself" in str(each) for each in found["caveats"])


def test_what_is_measured_again_takes_the_place_of_what_was(run, records, tmp_path):
    for _ in range(2):
        run(LEARNS, "--target", "accuracy=0.9", "-n", 2)
    assert [each.header.replaced for each in records()] == [1, 1]
    assert "0 to go" in run(LEARNS, "--target", "accuracy=0.9", "-n", 2, "--resume")[1]
    changed = LEARNS.replace("0.5 **", "0.4 **")
    assert "2 to go" in run(changed, "--target", "accuracy=0.9", "-n", 2, "--resume")[1]


@pytest.mark.parametrize("option", ["--progress", "--task"])
def test_options_of_runs_need_a_target(run, option):
    code, _, err = run("pass", option, "x")
    assert (code, "without --target" in err) == (2, True)
