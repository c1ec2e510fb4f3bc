"""Programs run from outside: what they print becomes the record of a run, and how they end."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import levelbench
from levelbench.cli import main
from levelbench.errors import MissingError, UsageError
from levelbench.experiments import file_events
from levelbench.experiments.commands import make_command, refuse_missing
from levelbench.experiments.off_clock import Spent, after_training
from levelbench.experiments.programs import HeldOut, make_arm, program_name, read_target
from levelbench.experiments.progress import Printed, ProgressFile
from levelbench.measure.clocks import HostClock
from levelbench.records import Target, group_runs, read_record, summarise
from levelbench.report.runs import curve_table, run_facts
from levelbench.report.tables import to_text

pytestmark = [pytest.mark.sampled(3), pytest.mark.usefixtures("undrawn")]

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
        (ACCURACY, "val accuracy: 0.5 train accuracy: 0.9", 0.5, None),
        (ACCURACY, "accuracy: 0.6 (best accuracy: 0.95)", 0.6, None),
        (ACCURACY, "accuracy: \x1b[32m0.91\x1b[0m", 0.91, None),
        (LOSS, "val_loss: 9,812.4", 9812.4, None),
        (ACCURACY, "accuracy: 9e-1", 0.9, None),
        (LOSS, "step:125/1480 val_loss:4.3719 train_time:29736ms", 4.3719, None),
        (LOSS, "epoch=1 val_loss=3.1", 3.1, 1),
        (LOSS, "val_loss: 91%", 91, None),
        (ACCURACY, "Epoch 3 train_loss: 0.1 accuracy: 0.91", 0.91, 3),
        (ACCURACY, "Epoch 3 train_loss 0.1 accuracy: 0.91", 0.91, 3),
        (LOSS, "val/loss: 3.1 step 4", 3.1, None),
        (read_target("val/loss=3"), "val_loss: 3.1", 3.1, None),
        (ACCURACY, "epoch 2 train/acc=0.99, train_time: 3, accuracy=0.91", 0.91, 2),
        (ACCURACY, "Train | loss 0.1 | acc 0.99 || Val | loss 0.3 | accuracy 0.91", 0.91, None),
        (ACCURACY, "accuracy: 0.91 (train loss 0.2)", 0.91, None),
        (ACCURACY, "accuracy 0.91, best 0.95", 0.91, None),
        (ACCURACY, '{"split": "validation", "accuracy": 0.91, "best": 0.95}', 0.91, None),
        (ACCURACY, "accuracy: 0.91 on test, trained 3 epochs", 0.91, None),
        (ACCURACY, ':::MLLOG {"key": "accuracy", "value": 0.7, "metadata": {"epoch_num": 4}}', 0.7, 4),
        (ACCURACY, ':::MLLOG {"key": "eval_accuracy", "value": 0.7, "metadata": {"epoch_num": 4}}', 0.7, 4),
        (ACCURACY, "Accuracy: 0.85", 0.85, None),
        (ACCURACY, "Accuracy: 0.99 accuracy: 0.85", 0.85, None),
        (ACCURACY, "Test set: Average loss: 0.0524, Accuracy: 9825/10000 (98%)", 0.9825, None),
        (ACCURACY, "accuracy: tensor(0.8500, device='cuda:0')", 0.85, None),
        (ACCURACY, "{'epoch': 1, 'accuracy': np.float64(0.85)}", 0.85, 1),
        (ACCURACY, "accuracy (val): 0.85", 0.85, None),
        (ACCURACY, "accuracy (train): 0.99, accuracy (val): 0.85", 0.85, None),
        (ACCURACY, "accuracy on test set: 0.86", 0.86, None),
        (ACCURACY, "Accuracy of the network on the 10000 test images: 55 %", 0.55, None),
        (ACCURACY, "accuracy after epoch 3: 0.85", 0.85, 3),
        (ACCURACY, "accuracy -> 0.85", 0.85, None),
        (ACCURACY, "    accuracy                           0.85       360", 0.85, None),
        (ACCURACY, "Epoch 1/20 - train loss: 2.0930 - test acc: 69.02%", 0.6902, 1),
        (ACCURACY, "val_loss 0.3 val acc 0.91", 0.91, None),
        (LOSS, "step 250: train loss 2.5, val loss 2.8", 2.8, None),
        (LOSS, "train-loss 2.5, val-loss 2.8", 2.8, None),
        (LOSS, "val_loss 0: 6.50", 6.5, None),
        (ACCURACY, "test accuracy 1: 10 %", 0.1, None),
        (ACCURACY, "accuracy 0.91: the best so far", 0.91, None),
        (read_target("wer=0.1"), "WER: 30 %", 0.3, None),
        (read_target("error=0.1"), "test error: 5.0%", 0.05, None),
        (read_target("top1_error=0.1"), "top1_error 9.5%", 0.095, None),
        (read_target("wer=10"), "WER: 30 %", 30, None),
        (ACCURACY, "INFO train.py:55 accuracy=0.91", 0.91, None),
        (ACCURACY, "2024-01-01 src/train/main.py:55] accuracy=0.91", 0.91, None),
        (ACCURACY, "accuracy=0.91     train.py:55", 0.91, None),
        (ACCURACY, "INFO:train:accuracy=0.91", 0.91, None),
        (ACCURACY, "12:00:00,123 - train - INFO - accuracy=0.91", 0.91, None),
        (ACCURACY, "[2024-01-01][train][INFO] - accuracy=0.91", 0.91, None),
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
        "accuracy: 1/10",
        "train/accuracy: 0.95",
        "target accuracy: 0.94",
        "Train | loss 0.1 | accuracy 0.98",
        "[train] accuracy: 0.98",
        '{"split": "train", "accuracy": 0.98}',
        '{"accuracy": 0.98, "split": "train"}',
        "accuracy: 0.98 (train)",
        "New best model saved (accuracy: 0.951)",
        "top-5 accuracy: 0.99",
        "batch 30 accuracy: 0.95",
        "running accuracy 0.95",
        "Val done. Training: accuracy 0.98",
        "Namespace(lr=0.1, accuracy=0.95)",
        "baseline accuracy: 0.95",
        "accuracy threshold: 0.95",
        "required accuracy: 0.95",
        "minibatch accuracy: 0.95",
        "accuracy on 60000 training images: 0.99",
        "accuracy on epoch 3 loss: 0.3",
        "accuracy: 9825/10000 (3%)",
        "accuracy: [0.99, 0.85]",
        "accuracy: 0.9.1",
        "loss 0.3, acc 0.99",
        "train acc: 0.99, test loss 0.3",
        "INFO:root:train accuracy=0.98",
        "INFO train.py:55 train accuracy=0.98",
        "accuracy 3: high",
        ':::MLLOG {"key": "loss", "value": 0.7}',
        ":::MLLOG {broken",
        ':::MLLOG {"key": "accuracy", "value": "much"}',
        ":::MLLOG accuracy: 0.9",
    ],
)
def test_other_lines_have_none(line):
    assert Printed(ACCURACY).read(line) is None


@pytest.mark.parametrize("line", ["val_loss 0,900", "val_loss 0,35", "val_loss: 01,234", "val_loss 1,23"])
def test_a_decimal_comma_in_free_text_is_not_read_and_missed(line):
    printed = Printed(LOSS)
    assert (printed.read(line), printed.missed) == (None, line)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0,90", 0.9),
        ("0,900", 0.9),
        ("-0,5", -0.5),
        ("1,234", 1234),
        ("12,345.6", 12345.6),
        ("1,23", 1.23),
        ("0.5,", 0.5),
    ],
)
def test_a_comma_found_by_a_pattern_groups_thousands_or_is_a_decimal_comma(text, value):
    assert Printed(LOSS, r"val_loss ([-\d.,]+)").read(f"val_loss {text}") == (value, None)


@pytest.mark.parametrize("text", ["1,23,4", "1.234,56", "0,900,000"])
def test_other_commas_found_by_a_pattern_are_refused(text):
    with pytest.raises(UsageError, match="is no number"):
        Printed(LOSS, r"val_loss ([-\d.,]+)").read(f"val_loss {text}")


PATTERN = r"val_loss ([-\d.,]+)"


def test_a_comma_that_may_be_a_decimal_one_and_was_read_as_one_of_thousands_is_a_doubt():
    for pattern in (None, PATTERN):
        printed = Printed(LOSS, pattern)
        assert [printed.read(f"val_loss {each}") for each in ("2,303", "1,404")] == [(2303, None), (1404, None)]
        assert [each for each in printed.doubts() if "comma" in each] == [
            "a comma in '2,303' was read as one of thousands: print a decimal point, or no comma"
        ]


def test_commas_that_can_only_be_of_thousands_are_no_doubt():
    printed = Printed(LOSS, PATTERN)
    assert [printed.read(f"val_loss {each}")[0] for each in ("1,234,567", "1,234.5")] == [1234567, 1234.5]
    assert not printed.doubts()


@pytest.mark.parametrize("pattern", [None, PATTERN])
@pytest.mark.parametrize("texts", [("1,404", "0,987"), ("0,987", "1,404")])
def test_commas_of_both_kinds_in_one_run_are_refused(pattern, texts):
    printed = Printed(LOSS, pattern)
    printed.read(f"val_loss {texts[0]}")
    with pytest.raises(UsageError, match="'0,987' is a decimal one, that in '1,404'"):
        printed.read(f"val_loss {texts[1]}")


def test_a_line_with_a_decimal_comma_that_was_not_read_is_a_doubt_where_others_were():
    printed = Printed(LOSS)
    assert [printed.read(line) for line in ("val_loss 1.25", "val_loss 0,987")] == [(1.25, None), None]
    assert any("'0,987' was not read" in each for each in printed.doubts())


@pytest.mark.parametrize(
    ("values", "read", "doubts"),
    [
        (("0,93", "12,31"), [0.93, 12.31], 0),
        (("2,303", "1,404"), [2303, 1404], 1),
        (("1,404", "12,31"), None, 0),
        (("12,31", "1,404"), None, 0),
    ],
)
def test_commas_in_a_column_of_the_metric_are_doubted_and_refused_like_printed_ones(tmp_path, values, read, doubts):
    printed = Printed(LOSS)
    with ProgressFile(tmp_path / "metrics.csv") as written:
        rows = [f'{epoch},"1,5","{value}"\n' for epoch, value in enumerate(values)]
        (tmp_path / "metrics.csv").write_text("".join(["epoch,train_loss,val_loss\n", *rows]))
        lines = written.lines()
    if read is None:
        with pytest.raises(UsageError, match="'12,31' is a decimal one, that in '1,404'"):
            [printed.read(line) for line in lines]
    else:
        assert [printed.read(line) for line in lines] == [(value, epoch) for epoch, value in enumerate(read)]
        assert len(printed.doubts()) == doubts


@pytest.mark.parametrize(
    "number", ["98 765", "98\u00a0765", "1\u202f234\u2009567", "1'404", "-1’404", "98 765.4", "98 765 lr: 0.1"]
)
def test_a_number_in_groups_of_thousands_without_commas_is_not_read_and_a_doubt(number):
    printed = Printed(LOSS)
    assert [printed.read(f"val_loss: {each}") for each in (number, 1.5)] == [None, (1.5, None)]
    assert any("was not read: print the number without" in each for each in printed.doubts())


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("val_loss: 0.5 123 it/s", 0.5),
        ("val_loss 0.93 100/200", 0.93),
        ("step 12 345 val_loss 0.3", 0.3),
        ("val_loss 2.30 150 ms", 2.3),
        ("val_loss: 3 150 ms", 3),
        ("val_loss: 3 100/200", 3),
        ("val_loss: 0 150", 0),
        ("val_loss: 3  150", 3),
        ("{'val_loss': '3', 'lr': 0.1}", 3),
    ],
)
def test_another_number_behind_a_quality_is_no_group_of_it(line, value):
    printed = Printed(LOSS)
    assert (printed.read(line)[0], printed.doubts()) == (value, [])


@pytest.mark.parametrize(
    ("text", "target", "doubted"),
    [("0.96", "accuracy=93", True), ("0.96 %", "accuracy=93", False), ("0.96", "accuracy=0.93", False)],
)
def test_shares_of_a_target_in_per_cent_are_a_doubt(text, target, doubted):
    printed = Printed(read_target(target))
    printed.read(f"accuracy: {text}")
    assert printed.doubts() == doubted * [
        "its accuracy is at most 0.96 and the target 93 is in per cent: does it print shares? give the target as 0.93"
    ]


@pytest.mark.parametrize(
    ("line", "target", "doubted"),
    [
        ("error: 0.9", "error=5", True),
        ("WER: 0.3", "wer=10", True),
        ("top1_error_rate: 0.3", "top1_error_rate=25", True),
        ("error: 40.0", "error=5", False),
        ("error: 0.9 %", "error=5", False),
        ("error: 0.03", "error=0.05", False),
        ("val_loss: 0.3", "val_loss=3", False),
        ("mae: 0.3", "mae=3", False),
    ],
)
def test_shares_of_an_error_rate_whose_target_may_be_in_per_cent_are_a_doubt(line, target, doubted):
    printed = Printed(read_target(target))
    printed.read(line)
    assert any("does it print shares?" in each for each in printed.doubts()) == doubted


def test_minus_infinity_is_read_like_infinity():
    assert [Printed(LOSS).read(f"val_loss {each}") for each in ("inf", "-inf")] == [(math.inf, None), (-math.inf, None)]


@pytest.mark.parametrize(
    "line",
    ["accuracy: " + "1" * 30_000 + "x", "accuracy of " * 2000, "accuracy: 0.5 " * 2000, "accuracy" + " " * 30_000],
)
def test_a_long_line_is_read_in_no_time(line):
    before_s = time.process_time()
    Printed(ACCURACY).read(line)
    assert time.process_time() - before_s < 0.5


def test_the_ends_of_a_long_line_are_read():
    for line in ('{"accuracy": 0.91, "rest": [' + "1, " * 9000 + "]}", "1, " * 9000 + "accuracy: 0.91"):
        assert Printed(ACCURACY).read(line) == (0.91, None)


def test_the_same_quality_of_held_out_data_on_other_lines_is_a_doubt():
    printed = Printed(read_target("loss=0.5"))
    assert [printed.read(line) for line in ("{'loss': .2}", "{'eval_loss': .9}")] == [(0.2, None), None]
    assert any("--target eval_loss=0.5" in each for each in printed.doubts())


def test_a_summary_of_held_out_data_does_not_hide_that_the_epochs_were_not_read():
    printed = Printed(ACCURACY)
    for epoch in range(6):
        printed.read(f"Epoch {epoch} val_accuracy: 0.95")
    assert printed.read("Test accuracy: 0.947") == (0.947, None)
    (doubt,) = printed.doubts()
    assert doubt == (
        "6 other lines tell val_accuracy, which were not read, and 1 was: --target val_accuracy=0.9 reads those"
    )


@pytest.mark.parametrize("beside", ["50%|##  | 11/22 [00:00<00:01, 9.1it/s, val_acc=0.5]", "best val_acc: 0.95"])
def test_bars_and_the_best_so_far_are_no_epochs_that_were_not_read(beside):
    printed = Printed(ACCURACY)
    for epoch in range(4):
        for _ in range(3):
            printed.read(beside)
        printed.read(f"Epoch {epoch}: validation accuracy {0.5 + epoch / 10}")
    assert printed.doubts() == []


def test_the_same_value_printed_again_is_no_second_evaluation():
    printed = Printed(ACCURACY)
    assert printed.read("epoch 1 accuracy: 0.95") == (0.95, 1)
    assert printed.read("epoch 1 accuracy: 0.95") is None
    assert printed.read("epoch 2 accuracy: 0.95") == (0.95, 2)


def test_without_an_epoch_or_a_step_each_line_is_an_evaluation():
    printed = Printed(ACCURACY)
    assert [printed.read("accuracy: 0.95") for _ in range(3)] == [(0.95, None)] * 3


def test_a_progress_bar_that_shows_the_same_value_tells_it_once():
    printed = Printed(ACCURACY)
    shown = [printed.read(f"{share}%|### accuracy: 0.95\r") for share in (10, 20, 30)]
    assert shown == [(0.95, None), None, None]


def test_the_last_step_of_an_epoch_is_no_mark_of_an_evaluation():
    printed = Printed(ACCURACY)
    assert [printed.read(f"Step {step}/20 accuracy: 0.9") for step in (10, 10, 20, 20)] == [
        (0.9, None),
        None,
        (0.9, None),
        (0.9, None),
    ]


def test_a_progress_bar_shows_the_quality_of_the_epoch_before_until_there_is_another():
    printed = Printed(ACCURACY)
    bar = "Epoch {}: {}%|###| 17/17 [00:00<00:00, accuracy={}]\r"
    shown = [(1, 100, 0.5), (2, 0, 0.5), (2, 100, 0.5), (2, 100, 0.7), (3, 0, 0.7), (3, 100, 0.8)]
    told = [printed.read(bar.format(*each)) for each in shown]
    assert [each for each in told if each] == [(0.5, 1), (0.7, 2), (0.8, 3)]
    assert printed.doubts() == []
    assert [printed.read(bar.format(epoch, 0, 0.8)) for epoch in (4, 5)] == [None, None]
    assert "one quality for several epochs" in printed.doubts()[0]


@pytest.mark.parametrize(
    "rank", ["[rank {}] epoch", "local_rank={} epoch", "[default{}]:epoch", "[1,{}]<stdout>:epoch"]
)
def test_of_several_ranks_the_first_is_read(rank):
    printed = Printed(ACCURACY)
    lines = [f"{rank.format(number)} {epoch} accuracy: 0.{epoch}{number}" for epoch in (1, 2) for number in (0, 1)]
    assert [printed.read(line) for line in lines] == [(0.10, 1), None, (0.20, 2), None]
    assert "2 ranks tell their quality: that of rank 0 was read" in printed.doubts()


@pytest.mark.parametrize(
    "pattern", [r"acc=([\d.]+)", r"acc=(?P<quality>[\d.]+)", r"(?P<epoch>\d+) acc=(?P<quality>\S+)"]
)
def test_a_pattern_of_ones_own_says_where_it_is(pattern):
    assert Printed(ACCURACY, pattern).read("at 3 acc=0.5")[0] == 0.5


@pytest.mark.parametrize("pattern", ["(", "acc=[0-9.]+"])
def test_a_pattern_that_finds_nothing_is_refused(pattern):
    with pytest.raises(UsageError, match="--progress"):
        Printed(ACCURACY, pattern)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "60/60 - 0s - accuracy: 0.9900 - loss: 0.01 - val_accuracy: 0.8500 - val_loss: 0.15",
            "val_accuracy beside it",
        ),
        ("accuracy=0.99 val=0.85", "'val=0.85' beside 0.99"),
        ("accuracy 1 0.85", "two numbers follow its name"),
    ],
)
def test_a_line_that_may_tell_the_quality_of_training_is_refused(line, found):
    with pytest.raises(UsageError, match=found):
        Printed(ACCURACY).read(line)


def test_a_line_with_the_quality_of_training_beside_is_read_where_that_of_held_out_data_is_asked_for():
    target = read_target("val_accuracy=0.9")
    assert Printed(target).read("accuracy: 0.99 - loss: 0.01 - val_accuracy: 0.85 - val_loss: 0.15") == (0.85, None)


@pytest.mark.parametrize("heading", ["{}:", "=== {} ===", "{}", "Epoch 3 {} set:"])
def test_lines_below_a_heading_are_of_what_it_says(heading):
    printed = Printed(ACCURACY)
    lines = [heading.format("Training"), "accuracy 0.99", heading.format("Validation"), "accuracy 0.85"]
    assert [printed.read(line) for line in lines * 2] == [None, None, None, (0.85, None)] * 2


@pytest.mark.parametrize("line", ["Training...", "Start training", "Training on cuda:0", "Trained: 3 epochs"])
def test_what_begins_or_has_ended_is_no_heading(line):
    printed = Printed(ACCURACY)
    assert [printed.read(each) for each in (line, "accuracy 0.85")] == [None, (0.85, None)]


def test_a_line_that_may_have_been_meant_is_named_where_none_was_read(run):
    code, _, err = run('print("final acc | 0.95")', "--target", "accuracy=0.9", "-n", 1)
    assert code == 1
    assert "it printed no accuracy under that name and not of training, and 'final acc | 0.95' was not read" in err


def test_a_line_of_training_is_not_said_to_be_read_by_the_name_that_was_given(run):
    _, _, err = run('print("train accuracy 0.95")', "--target", "accuracy=0.9", "-n", 1)
    assert "'train accuracy 0.95' was not read; its last line" in err


def test_programs_of_which_some_do_not_say_that_their_quality_is_of_held_out_data_are_a_doubt(run, records, tmp_path):
    lines = "import time\nfor e in range(6):\n    time.sleep(.01)\n    print(f'{name} {{2 - .3 * e}}', flush=True)\n"
    (tmp_path / "b.py").write_text(lines.format(name="step loss:"))
    other = f"{sys.executable} b.py {{seed}}"
    run(lines.format(name="validation loss:"), "--vs", other, "--target", "loss=1.2", "-n", 2)
    found = [each for record in records() for each in record.end.suspect if "may be of training" in each]
    # Of the first one nobody knew what the others would say.
    assert len(found) == 3
    assert all("'step loss: 2.0'" in each and "'validation loss: 2.0'" in each for each in found)


def test_a_line_with_two_different_ones_is_refused():
    with pytest.raises(UsageError, match="--progress"):
        Printed(ACCURACY).read("A accuracy: 0.5 B accuracy: 0.9")


@pytest.mark.slow
@given(st.text())
def test_no_line_is_too_odd(line):
    found = Printed(ACCURACY).read(line + "\n:::MLLOG " + line)
    assert found is None or len(found) == 2


@pytest.mark.parametrize("text", ["accuracy", "=0.9", "accuracy=", "accuracy=high", "quality=3"])
def test_a_target_that_is_none_is_refused(text):
    with pytest.raises(UsageError):
        read_target(text)


def test_a_share_may_be_meant_in_per_cent():
    target = read_target("val_accuracy=94")
    assert (target.low, target.high) == (0, 100)
    assert Printed(target).read("val_accuracy: 93.5 %") == (93.5, None)


@pytest.mark.parametrize(
    ("scale", "ends"),
    [("-1,1", (-1, 1)), ("-1000,", (-1000, math.inf)), (" , 5", (-math.inf, 5)), ("0,inf", (0, math.inf))],
)
def test_a_scale_may_be_given(scale, ends):
    assert read_target("accuracy=0.9", scale=scale).ends == ends


@pytest.mark.parametrize("scale", ["", "1", "0,1,2", "low,high", "1,0"])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(UsageError, match="scale"):
        read_target("accuracy=0.9", scale=scale)


def test_of_a_metric_whose_name_says_nothing_it_is_told_what_is_better():
    assert read_target("quality=3", "lower").direction == "lower"


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


def test_lines_are_cut_at_returns_of_the_carriage_which_stay_with_them(run, records):
    bar = """
        import sys, time
        for share in range(40):
            sys.stdout.write(f"{share} % accuracy: {0.95 if share > 10 else 0.5}\\r")
            sys.stdout.flush()
            time.sleep(0.01)
        print("accuracy: 0.96", flush=True)
        time.sleep(60)
    """
    code, out, err = run(bar, "--target", "accuracy=0.9", "-n", 1, "--task", "mine", "--markdown", "out.md")
    assert code == 0, err
    assert "markdown: out.md" in out
    (found,) = records()
    assert [each.quality["validation"] for each in found.evaluations] == [0.5, 0.95, 0.96]


def test_what_a_program_does_not_tell_is_not_made_up(run, records):
    program = """
        import time
        for epoch in range(1, 60):
            time.sleep(0.01)
            print(f"accuracy: {1 - 0.5 ** epoch}", flush=True)
    """
    _, out, _ = run(program, "--target", "accuracy=0.9", "-n", 1)
    found = summarise(records()[0])
    assert (found.epochs_to_target, found.samples_to_target, found.steps_to_target, found.time_per_step_s) == (
        None,
    ) * 4
    assert "0 epochs" not in out
    curve = to_text(curve_table(records()[0], found)).splitlines()
    assert [line for line in curve if "target reached" in line] == curve[-1:]


def test_a_program_that_misses_its_target_has_tried_until_its_end(run, records):
    run("import time\nprint('accuracy: 0.5', flush=True)\ntime.sleep(0.3)", "--target", "accuracy=0.9", "-n", 1)
    (found,) = records()
    assert summarise(found).given_up_s >= 0.3


def test_a_target_that_is_reached_from_the_start_is_a_doubt(run, records):
    code, _, _ = run("print('accuracy: 0.95', flush=True)\n" * 2, "--target", "accuracy=0.9", "-n", 1)
    assert code == 0
    (found,) = records()
    (doubt,) = [each for each in summarise(found).suspect if "when first reported" in each]
    assert "higher is taken to be better" in doubt


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
    run(LEARNS, "--target", "accuracy=0.9", "-n", 1)
    (found,) = records()
    assert not summarise(found).contradictions


def test_a_run_whose_clock_other_clocks_contradict_is_refused_at_once(run, monkeypatch):
    now_ns = HostClock.now_ns
    monkeypatch.setattr(HostClock, "now_ns", staticmethod(lambda: now_ns() // 10))
    code, _, said = run(LEARNS, "--target", "accuracy=0.99999", "-n", 1)
    assert code
    assert "its record contradicts itself" in said


def test_a_program_that_was_compiled_is_known_by_the_digest_of_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("1,2")
    found = []
    for content in (b"\x7fELF\xff one", b"\x7fELF\xff two"):
        (tmp_path / "train").write_bytes(content)
        source = make_arm(make_command("./train data.csv", tmp_path), "mine", ACCURACY).source
        assert (source.name, hashlib.sha256(source.text.encode()).hexdigest()) == ("train", source.digest)
        found.append(source.digest)
    assert len(set(found)) == 2


def test_the_seed_is_in_the_command_and_in_the_environment(run, records):
    program = """
        import os, sys
        assert sys.argv[1] == os.environ["LEVELBENCH_SEED"] == "3", sys.argv
        print("accuracy: 0.1")
    """
    run(program, "--target", "accuracy=0.9", "-n", 1, "--seed", 3)
    assert (records()[0].header.seed, records()[0].status) == (3, "done")


def test_a_run_says_the_first_seed_of_its_command(run, records):
    run('print("accuracy: 0.1")', "--target", "accuracy=0.9", "-n", 2, "--seed", 3)
    assert [each.header.environment["first_seed"] for each in records()] == [3, 3]


def test_a_program_that_ends_before_its_target_has_missed(run):
    code, out, _ = run('print("accuracy: 0.1")', "--target", "accuracy=0.9", "-n", 1)
    assert code == 1
    assert "0/1" in out
    assert run('print("accuracy: 0.1")', "--target", "accuracy=0.9", "-n", 1, "--fail-on", "slower")[0] == 0


@pytest.mark.parametrize("before", ["/usr/bin/env", "/usr/bin/env SEED=1", "nice -n 5", "timeout 9.5"])
def test_a_program_has_its_own_name_whatever_starts_it(tmp_path, before):
    (tmp_path / "train.py").touch()
    command = make_command(f"{before} {sys.executable} train.py", tmp_path)
    refuse_missing(command)
    assert program_name(command) == "train"


def test_a_script_that_is_not_executable_is_not_called_missing(tmp_path):
    (tmp_path / "train.sh").touch()
    with pytest.raises(UsageError, match=r"it is there, but not executable. .*chmod \+x \./train\.sh"):
        refuse_missing(make_command("./train.sh", tmp_path))


@pytest.mark.parametrize(("line", "name"), [("acc=3.000e-01", "acc"), ("* Acc@1 30.000 Acc@5 32.000", "Acc@1")])
def test_a_line_that_shortens_the_metric_tells_by_which_name_it_is_read(line, name):
    printed = Printed(ACCURACY)
    assert printed.read(line) is None
    assert printed.missed_name == name


def test_of_the_lines_that_were_not_read_one_of_held_out_data_is_told():
    printed = Printed(ACCURACY)
    for line in ("epoch 0:  50%|#  | 8/17 [00:00, acc=0.3]\r", "Epoch 0: val_acc=0.91", "Epoch 0: test_acc=0.9"):
        assert printed.read(line) is None
    assert (printed.missed, printed.missed_name) == ("Epoch 0: val_acc=0.91", "val_acc")


def test_a_program_that_ends_at_its_first_evaluation_at_the_target_is_told_why_that_does_not_count(run):
    _, out, _ = run('print("accuracy: 0.1")\nprint("accuracy: 0.95")', "--target", "accuracy=0.9", "-n", 1)
    assert "the rule confirmed asks for two in a row" in " ".join(out.split())
    assert "(--crossing final)" in " ".join(out.split())


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
        ('print("accuracy: -0.1")', "do: say its scale: --scale"),
        ('print("accuracy: 7")', "do: if it is printed in per cent: --target accuracy=90"),
    ],
)
def test_a_program_that_fails_has_a_failed_run(run, records, program, found):
    code, _, err = run(program, "--target", "accuracy=0.9", "-n", 1)
    assert code in (1, 2)
    assert found in err
    assert records()[0].status == "failed"


def test_the_record_says_why_the_output_of_a_program_was_refused(run, records):
    run('print("accuracy: 7")', "--target", "accuracy=0.9", "-n", 1)
    assert records()[0].end.error.endswith("accuracy is 7, on a scale from 0 to 1")


def test_a_quality_that_may_be_negative_ends_nothing_when_it_is(run, records):
    program = 'for at in (-0.4, 0.6, 0.7): print(f"r2: {at}")'
    assert run(program, "--target", "r2=0.5", "-n", 1)[0] == 0
    assert [each.quality["validation"] for each in records()[0].evaluations] == [-0.4, 0.6, 0.7]


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
        for _ in range(10):
            sys.stdout.buffer.write(bytes(range(256)) * 4000)
        print("\\naccuracy: 0.2")
    """
    run(program, "--target", "accuracy=0.9", "-n", 1)
    assert records()[0].evaluations[0].quality["validation"] == 0.2


def test_two_programs_are_compared_as_runs_are(run, tmp_path):
    slow = LEARNS.replace("0.01", "0.05")
    (tmp_path / "slow.py").write_text(textwrap.dedent(slow))
    other = f"{sys.executable} slow.py {{seed}}"
    _, out, _ = run(LEARNS, "--vs", other, "--target", "accuracy=0.9", "-n", 3, "--json")
    (found,) = json.loads(out)["comparisons"]
    assert found["verdict"]["n_a"] == found["verdict"]["n_b"] == 3
    assert any("reports its own quality" in str(each) for each in found["caveats"])


@pytest.mark.slow
def test_what_is_measured_again_takes_the_place_of_what_was(run, records, tmp_path):
    for _ in range(2):
        run(LEARNS, "--target", "accuracy=0.9", "-n", 2)
    assert [each.header.replaced for each in records()] == [1, 1]
    assert "0 to go" in run(LEARNS, "--target", "accuracy=0.9", "-n", 2, "--resume")[1]
    changed = LEARNS.replace("0.5 **", "0.4 **")
    assert "2 to go" in run(changed, "--target", "accuracy=0.9", "-n", 2, "--resume")[1]


@pytest.mark.slow
def test_where_what_is_measured_again_goes_on_from_what_the_first_run_left_is_a_doubt_each_time(
    run, records, tmp_path_factory
):
    kept = tmp_path_factory.mktemp("elsewhere") / "kept"
    goes_on = f"""
        import pathlib
        kept = pathlib.Path({str(kept)!r})
        begun = int(kept.exists() and kept.read_text() or 1)
        for epoch in range(begun, 9):
            kept.write_text("6")
            print(f"epoch {{epoch}} accuracy: {{1 - 0.5 ** epoch}}", flush=True)
    """
    for _ in range(3):
        out = run(goes_on, "--target", "accuracy=0.99", "-n", 4)[1]
        assert "began at accuracy 0.5, the others at 0.984" in " ".join(out.split())
    kept.unlink()
    assert (
        "began at accuracy" not in run(goes_on.replace("kept.exists()", "0"), "--target", "accuracy=0.99", "-n", 4)[1]
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_run_whose_program_imports_what_has_changed_since_is_made_again(run, records, tmp_path):
    (tmp_path / "helper.py").write_text("1")
    program = f"    import helper\n{LEARNS}"
    for text, to_go in (("1", 1), ("1", 0), ("12", 1), ("12", 0)):
        (tmp_path / "helper.py").write_text(text)
        out = run(program, "--target", "accuracy=0.9", "-n", 1, "--resume")[1]
        assert f"{to_go} to go" in out
        assert ("what it reads has changed since: helper.py" in out) is (text == "12" and to_go == 1)
    assert list(records()[0].end.environment_after["files_read"]) == ["helper.py", "train.py"]


@pytest.mark.parametrize("option", ["--progress", "--task"])
def test_options_of_runs_need_a_target(run, option):
    code, _, err = run("pass", option, "x")
    assert (code, "without --target" in err) == (2, True)


KEEPS = """
    import json, os, pathlib, pickle, sqlite3, sys
    import numpy as np
    seed = int(sys.argv[1])
    def read(path):
        return path.exists() and path.read_bytes()
    def write(path, content=bytes(5000)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    P = pathlib.Path
    {does}
    print("epoch 1 accuracy: 0.95\\nepoch 2 accuracy: 0.96")
"""


needs_inotify = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


def went_on(records):
    found = [[each for each in record.end.suspect if "before it began" in each] for record in records()]
    return [bool(each) for each in found], next((each[0] for each in found if each), "")


@pytest.mark.slow
@needs_inotify
@pytest.mark.parametrize(
    ("before", "does", "said"),
    [
        ("model.pt", 'read(P("model.pt")); write(P("model.pt"))', "read model.pt"),
        ("out/model.ckpt", 'read(P("out/model.ckpt")); write(P("new")); P("new").replace("out/model.ckpt")', "it anew"),
        ("weights.npz", 'np.memmap("weights.npz", mode="r"); write(P("weights.npz"))', "read weights.npz"),
        ("state", 'f = open("state", "r+b"); f.read(9); f.seek(0); f.write(bytes(5000)); f.close()', "read state"),
        ("w.dat", 'm = np.memmap("w.dat", np.uint8, "r+"); m[:] = 200; m.flush(); del m', "read w.dat"),
        ("a.pt", 'P("a.pt").replace("b.pt"); read(P("b.pt")); write(P("b.pt"))', "read b.pt"),
        ("a.pt", 'os.link("a.pt", "b.pt"); read(P("b.pt")); P("a.pt").unlink(); write(P("a.pt"))', ""),
        ("0123abcd/a.pt", 'read(P("0123abcd/a.pt")); write(P("deadbeef/a.pt"))', "wrote deadbeef/a.pt"),
        ("step-5/a.pt", 'read(P("step-5/a.pt")); write(P(f"step-1{seed}/a.pt"))', "read step-5/a.pt"),
    ],
)
def test_a_program_that_goes_on_from_a_checkpoint_of_an_earlier_session_is_a_doubt(
    run, records, tmp_path, before, does, said
):
    (tmp_path / before).parent.mkdir(exist_ok=True)
    (tmp_path / before).write_bytes(bytes(5000))
    code, _, err = run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 1)
    assert code == 0, err
    found, sentence = went_on(records)
    assert found == [True]
    assert said in sentence


MAPS = 'm = np.memmap("w.bin", mode="r"); '


@needs_inotify
@pytest.mark.parametrize(
    "does",
    [
        MAPS + "write(2); write(3)",
        MAPS + "open('data').read(); write(2); np.fromfile('w.bin')",
        MAPS + "np.full(9000, 202, np.uint8).tofile('new'); os.replace('new', 'w.bin'); np.fromfile('w.bin')",
        MAPS + "os.unlink('w.bin'); write(2)",
        MAPS + "os.replace('w.bin', 'old'); write(2)",
    ],
)
def test_a_checkpoint_that_stays_mapped_until_the_end_is_seen(tmp_path, does):
    assert "it read w.bin" in "".join(doubts_on_files(tmp_path, does))


@needs_inotify
@pytest.mark.parametrize(
    "does",
    [
        "write(2); np.memmap('w.bin')",
        "write(2); m = np.memmap('w.bin'); write(3); n = np.memmap('w.bin')",
        "os.stat('w.bin'); f = open('w.bin', 'ab'); write(2); f.close()",
        "write(2); [np.memmap('w.bin', mode='r') for _ in range(2)]",
        "m = np.memmap('w.bin', shape=9000, mode='w+'); n = np.memmap('w.bin', mode='r'); del m; del n",
        "f = open('w.bin', 'wb'); f.write(bytes([202]) * 9000); f.close(); np.fromfile('w.bin')",
        "f = open('w.bin', 'r+b', 0); f.write(bytes([202]) * 9000); f.close(); np.fromfile('w.bin')",
    ],
)
def test_a_file_that_a_program_maps_only_after_it_wrote_it_is_no_doubt(tmp_path, does):
    assert doubts_on_files(tmp_path, does) == []


RESULTS = {
    "pickle": ("r.pkl", "rows = pickle.load(open(n, 'rb'))", "pickle.dump([*rows, row(len(rows))], open(n, 'wb'))"),
    "dict": (
        "r.pkl",
        "rows = pickle.load(open(n, 'rb'))",
        "pickle.dump(rows | {f'run {len(rows)}': row(len(rows))}, open(n, 'wb'))",
    ),
    "text": ("r.csv", "rows = open(n).read()", "open(n, 'w').write(rows + '0.5,' * 99)"),
    "newest first": ("r.csv", "rows = open(n).read()", "open(n, 'w').write('0.5,' * 99 + rows)"),
    "array": ("r.npy", "rows = np.load(n)", "np.save(n, np.vstack([rows, row(len(rows))]))"),
    "arrays": (
        "r.npz",
        "rows = dict(np.load(n))",
        "np.savez(n, **{k: np.vstack([v, row(len(v))]) for k, v in rows.items()})",
    ),
    "json": ("r.json", "rows = json.load(open(n))", "json.dump([*rows, [*row(len(rows))]], open(n, 'w'))"),
}


def keep_results(folder, kind, entries=200):
    """Writes a file of results to the folder; returns the lines of a program that adds to it."""
    name, read, write = RESULTS[kind]
    begin = "import json, pickle, numpy as np\n"
    begin += f"n = {name!r}\ndef row(at): return np.random.default_rng(at).normal(size=40).tolist()\n"
    rows = f"[row(at) for at in range({entries})]"
    first = {
        "pickle": f"pickle.dump({rows}, open(n, 'wb'))",
        "dict": f"pickle.dump({{f'run {{at}}': each for at, each in enumerate({rows})}}, open(n, 'wb'))",
        "array": f"np.save(n, {rows})",
        "arrays": f"np.savez(n, loss={rows}, accuracy={rows}, error={rows})",
        "json": f"json.dump({rows}, open(n, 'w'))",
    }.get(kind, f"open(n, 'w').write(str({rows}))")
    subprocess.run([sys.executable, "-c", begin + first], cwd=folder, check=True)
    return f"{begin}{read}\n{write}\n"


@needs_inotify
@pytest.mark.parametrize("kind", RESULTS)
def test_results_that_are_written_anew_with_more_in_them_are_no_doubt(tmp_path, kind):
    program = keep_results(tmp_path, kind)
    (results,) = tmp_path.glob("r.*")
    before = results.stat().st_size
    assert doubts_on_files(tmp_path, program) == []
    assert before < results.stat().st_size < 1.05 * before


@needs_inotify
@pytest.mark.parametrize(
    "saved",
    [
        "{'weights': w, 'losses': [*losses, 0.5]}",  # it grows
        "{'frozen': kept, 'head': w[:200], 'losses': [*losses, 0.5]}",
    ],
)
def test_a_checkpoint_that_grows_by_what_is_kept_with_it_is_seen(tmp_path, saved):
    begin = "w = np.random.default_rng(len(losses)).normal(size=9000).astype('f4'); kept = np.arange(9000.0)\n"
    save = f"pickle.dump({saved}, open('model.pkl', 'wb'))\n"
    first = f"import pickle, numpy as np\nlosses = [0.1, 0.2]\n{begin}{save}"
    subprocess.run([sys.executable, "-c", first], cwd=tmp_path, check=True)
    then = f"losses = pickle.load(open('model.pkl', 'rb'))['losses']\n{begin}{save}"
    (doubt,) = doubts_on_files(tmp_path, then)
    assert doubt.startswith("it read model.pkl")
    assert "results that you keep would be lost" in doubt


@needs_inotify
def test_records_in_another_store_are_no_data_of_a_program_that_runs_while_they_are_read(run, tmp_path, monkeypatch):
    run('print("accuracy: 0.95")', "--target", "accuracy=0.9", "-n", 1)
    np.save(tmp_path / "x.npy", np.arange(9))
    with file_events.LeftFiles(tmp_path, [], []) as left:
        for each in ("x.npy", *(tmp_path / "store").rglob("*.*")):
            (tmp_path / each).read_bytes()
        assert left.doubts() == []
        assert list(left.data()) == ["x.npy"]


@pytest.mark.parametrize(
    ("events", "held"),
    [
        ("open truncate open close_write close_nowrite", True),
        ("open truncate open close_write open close_nowrite close_nowrite", True),
        ("truncate open close_write open close_nowrite", False),
        ("open truncate close_write open close_nowrite", False),  # it was opened to add to it, or to change it
        ("truncate open open close_write close_nowrite", False),
    ],
)
def test_a_kernel_that_tells_of_truncating_before_opening_tells_of_maps_as_well(monkeypatch, events, held):
    monkeypatch.setattr(file_events, "_opening_comes_first", lambda: False)
    masks = {"open": 0x20, "truncate": 0x2, "close_write": 0x8, "close_nowrite": 0x10}
    file = file_events._Openings()
    for each in events.split():
        file.add(masks[each], writing=0x2)
    assert file.held_for_reading is held


def doubts_on_files(folder, does, earlier=None):
    """What is doubted of a program that ``does`` something with its files, among them ``w.bin``."""
    (folder / "data").write_text("1")
    if not (folder / "w.bin").exists():
        (folder / "w.bin").write_bytes(bytes([201]) * 9000)
    begin = "import os, pickle, numpy as np\ndef write(x): np.full(9000, 200 + x, np.uint8).tofile('w.bin')\n"
    with file_events.LeftFiles(folder, [], [], earlier) as left:
        subprocess.run([sys.executable, "-c", begin + does], cwd=folder, check=True)
        return left.doubts()


@needs_inotify
def test_of_a_checkpoint_that_the_first_run_leaves_the_later_ones_are_doubted(run, records):
    does = 'read(P("model.pt")); write(P("model.pt"))'
    run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 2)
    assert sorted(went_on(records)[0]) == [False, True]
    assert went_on(records)[1].startswith(
        "it read model.pt (unless another program did), which lay there before it began, and wrote it anew"
    )


@pytest.mark.slow
@needs_inotify
def test_a_checkpoint_in_a_folder_that_the_command_names_is_seen(run, records, tmp_path_factory):
    place = tmp_path_factory.mktemp("scratch")
    does = f'read(P("{place}/model.pt")); write(P("{place}/model.pt"))'
    run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 2, "--vs", f"{sys.executable} train.py 3 -o={place}")
    assert any("model.pt" in each for record in records() for each in record.end.suspect)


@pytest.mark.slow
@needs_inotify
def test_a_checkpoint_that_the_command_names_is_seen_wherever_it_lies(run, records, tmp_path_factory):
    place = tmp_path_factory.mktemp("elsewhere") / "model.pt"
    does = f'read(P("{place}")); write(P("{place}"))'
    run(
        KEEPS.format(does=does),
        "--target",
        "accuracy=0.9",
        "-n",
        2,
        "--vs",
        f"{sys.executable} train.py 3 --from={place}",
    )
    assert any("model.pt" in each for record in records() for each in record.end.suspect)


@pytest.mark.slow
@needs_inotify
def test_more_than_the_kernel_notes_is_said(tmp_path):
    (tmp_path / "many").mkdir()
    with file_events.LeftFiles(tmp_path, [], []) as left:
        for number in range(9000):
            (tmp_path / "many" / f"{number}").touch()
            (tmp_path / "many" / f"{number}").unlink()
        assert left.doubts() == []
        assert left.incomplete


@needs_inotify
def test_two_checkpoints_in_turns_are_a_doubt_from_the_second_run_on(run, records):
    does = 'read(P("ab"[seed % 2] + ".pt")); write(P("ba"[seed % 2] + ".pt"))'
    run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 3)
    suspect = [record.end.suspect for record in sorted(records(), key=lambda each: each.header.seed)]
    assert ["which an earlier run wrote" in "; ".join(each) for each in suspect] == [False, True, True]


def test_a_bar_on_standard_error_does_not_run_into_what_is_printed(run, records):
    bar = """
        import sys
        for epoch, accuracy in enumerate((0.5, 0.91, 0.91, 0.95)):
            sys.stderr.write(f"\\r {epoch * 25}%|##  | {epoch}/4 [00:01<00:03]")
            sys.stderr.flush()
            print(f"Epoch {epoch}: accuracy {accuracy}", flush=True)
    """
    run(bar, "--target", "accuracy=0.9", "-n", 1)
    (record,) = records()
    assert [each.quality["validation"] for each in record.evaluations] == [0.5, 0.91, 0.91]
    assert not [each for each in record.end.suspect if "progress bar" in each or "forms" in each]


def test_a_compiled_program_is_one_program_whatever_its_arguments(tmp_path):
    program = tmp_path / "train"
    program.write_bytes(b"\x7fELF" + bytes(range(200, 256)))
    program.chmod(0o755)
    sources = [make_arm(make_command(f"./train {lr}", tmp_path), "t", ACCURACY).source for lr in (0.1, 0.2)]
    assert sources[0].digest == sources[1].digest


@needs_inotify
def test_a_result_that_is_renamed_before_it_is_written_anew_was_not_read(run, records):
    kept = """
        import os, pathlib
        last = pathlib.Path("last.bin")
        if last.exists(): last.rename("last.bak")
        for epoch in range(1, 9):
            last.write_bytes(os.urandom(9000))
            print(f"epoch {epoch} accuracy: {1 - 0.5 ** epoch}", flush=True)
    """
    run(kept, "--target", "accuracy=0.9", "-n", 2)
    assert [each for record in records() for each in record.end.suspect if "it read" in each] == []


SLOW_ONCE = """
    import pathlib, time
    done = pathlib.Path("done")
    time.sleep(0 if done.exists() else 1)
    done.touch()
    for epoch in range(1, 9):
        print(f"epoch {epoch} accuracy: {1 - 0.5 ** epoch}", flush=True)
"""


@pytest.mark.slow
def test_runs_after_a_trial_with_another_target_are_doubted_where_it_took_much_longer(run, records):
    run(SLOW_ONCE, "--target", "accuracy=0.6", "-n", 1)
    out = run(SLOW_ONCE, "--target", "accuracy=0.99", "-n", 3)[1]
    assert "the first run of train in its store took 1" in " ".join(out.split())
    out = run(SLOW_ONCE.replace("done.exists()", "True"), "--target", "accuracy=0.99", "-n", 3)[1]
    assert "the first run of train" not in " ".join(out.split())


@needs_inotify
def test_a_cache_that_a_trial_with_another_target_left_is_a_doubt_on_those_that_read_it(run, records):
    does = 'read(P("tokens.bin")) or write(P("tokens.bin"))'
    for target in ("accuracy=0.6", "accuracy=0.9"):
        run(KEEPS.format(does=does), "--target", target, "-n", 1)
    suspect = [record.end.suspect for record in sorted(records(), key=lambda each: each.header.started)]
    assert [
        "it read tokens.bin (unless another program did), which an earlier run wrote" in "; ".join(each)
        for each in suspect
    ] == [False, True]


@needs_inotify
def test_a_cache_that_the_first_run_left_is_a_doubt_on_those_that_read_it(run, records):
    does = 'read(P("tokens.bin")) or write(P("tokens.bin"))'
    run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 2)
    suspect = [record.end.suspect for record in sorted(records(), key=lambda each: each.header.seed)]
    assert [
        "it read tokens.bin (unless another program did), which an earlier run wrote" in "; ".join(each)
        for each in suspect
    ] == [False, True]


WEIGHTS, CURVE = "np.random.default_rng(at).normal(size=300)", "np.exp(-np.random.default_rng(at).random(300))"


@needs_inotify
@pytest.mark.parametrize(
    ("numbers", "save", "doubted"),
    [
        (WEIGHTS, "json.dumps({'w': x.tolist()})", True),
        (WEIGHTS, "json.dumps({'w': x.reshape(20, 15).tolist()}, indent=1)", True),
        (WEIGHTS, "'\\n'.join(f'{each:.18e}' for each in x)", True),
        (WEIGHTS, "'\\n'.join(f'{each:.2f}' for each in x)", False),
        (CURVE, "json.dumps({'loss': x.tolist()})", False),
        (WEIGHTS, "'\\n'.join(f'{n},{each}' for n, each in enumerate(x))", False),
        (f"{WEIGHTS}[:150]", "json.dumps({'w': x.tolist()})", False),
        (WEIGHTS, "'\\n'.join(f'the reward was {each} in this episode of it' for each in x)", False),
    ],
)
def test_weights_in_a_small_text_are_told_from_results(tmp_path, numbers, save, doubted):
    for name in ("model.json", "model.csv"):
        (tmp_path / name).write_text("")
        earlier, found = file_events.Earlier(), []
        for at in range(3):
            with file_events.LeftFiles(tmp_path, [], [], earlier) as left:
                (tmp_path / name).read_text()
                x = eval(numbers, {"np": np, "at": at})
                (tmp_path / name).write_text(eval(save, {"json": json, "x": x}))
                found.append(bool(left.doubts()))
        assert found == [False, doubted, doubted]


@needs_inotify
def test_weights_in_a_small_text_that_a_later_run_reads_are_a_cache_or_a_checkpoint(tmp_path):
    earlier, found = file_events.Earlier(), []
    for at in range(2):
        with file_events.LeftFiles(tmp_path, [], [], earlier) as left:
            if at:
                (tmp_path / "model.json").read_text()
            else:
                (tmp_path / "model.json").write_text(json.dumps(np.random.default_rng(0).normal(size=300).tolist()))
            found.append(left.doubts())
    assert [bool(each) for each in found] == [False, True]
    assert "it read model.json (unless another program did), which an earlier run wrote" in found[1][0]


ENDED_WHILE_WRITING = """
    import os, pathlib, sys, time
    kept = pathlib.Path("model.pt")
    if kept.exists() and len(kept.read_bytes()) < 20000:
        raise SystemExit("its checkpoint is torn")
    with kept.open("wb", buffering=0) as file:
        file.write(bytes(9000))
        print("epoch 1 accuracy: 0.95\\nepoch 2 accuracy: 0.96", flush=True)
        time.sleep(60)
"""


@needs_inotify
def test_a_program_that_fails_on_a_file_torn_by_its_end_is_told_so(run):
    code, _, err = run(ENDED_WHILE_WRITING, "--target", "accuracy=0.9", "-n", 2)
    assert code
    assert "it read model.pt, which an earlier run was ended in the middle of writing" in " ".join(err.split())


def test_a_checkpoint_that_is_removed_before_each_run_is_no_doubt(run, records):
    does = 'read(P("model.pt")); write(P("model.pt"))'
    run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 2, "--prepare", "rm -f model.pt")
    assert went_on(records)[0] == [False, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "does",
    [
        'write(P("model.pt")); read(P("model.pt"))',  # the best weights, for its predictions
        'read(P("data.npz"))',
        'write(P("predictions.npy"), b"\\x93NUMPY" + bytes(900))',
        'open("log.txt", "a").write("accuracy 0.9" * 9000)',
        'old = json.loads(read(P("results.json")) or "[]"); P("results.json").write_text(json.dumps([*old, seed]))',
        'old = read(P("results.csv")) or b"seed"; write(P("results.csv"), old + b"\\n1")',
        'c = sqlite3.connect("runs.db"); c.execute("create table if not exists t(x)"); c.commit(); c.close()',
        'read(P(".cache/x.pt")); write(P(".cache/x.pt"))',
        'read(P("data-1.npz")); write(P("results-2.csv"), b"seed, 1")',
        'old = pickle.loads(read(P("r.pkl")) or pickle.dumps([])); write(P("r.pkl"), pickle.dumps([*old, [0.5] * 99]))',
        '[read(each) for each in P(".").glob("curve*.npz")]; write(P(f"curve{seed}.npz"))',
        'read(P("x-64.npy")); write(P("x-32.npy"), bytes(2500))',
    ],
)
def test_a_program_that_reads_its_data_or_writes_its_results_each_time_is_no_doubt(run, records, tmp_path, does):
    for name in ("data.npz", "data-1.npz", "model.pt", "predictions.npy", "x-64.npy", "curve7.npz", "curve8.npz"):
        (tmp_path / name).write_bytes(bytes(5000))
    code, _, err = run(KEEPS.format(does=does), "--target", "accuracy=0.9", "-n", 2)
    assert code == 0, err
    assert went_on(records)[0] == [False, False]


@needs_inotify
def test_a_large_folder_that_the_command_names_does_not_hide_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(file_events, "_MOST_FILES", 40)
    data, here = tmp_path / "data", tmp_path / "here"
    for each in (data, here):
        each.mkdir()
    for number in range(100):
        (data / f"{number}.png").touch()
    (here / "model.pt").write_bytes(bytes(9))
    with file_events.LeftFiles(here, ["train", f"--data={data}"], []) as left:
        assert left.incomplete
        (here / "model.pt").read_bytes()
        (here / "model.pt").write_bytes(bytes([200] * 9))
        assert "it read model.pt" in left.doubts()[0]


def test_what_is_not_watched_of_a_large_folder_is_said(run, monkeypatch):
    monkeypatch.setattr(file_events, "_MOST_FOLDERS", 0)
    err = run('print("accuracy: 0.95")', "--target", "accuracy=0.9", "-n", 2)[2]
    assert err.count("not all are watched for checkpoints") == 1


PREDICTS = """
    import numpy as np, os, sys, time
    from levelbench.training import datasets
    digits = datasets.digits.load()
    flat = lambda x: np.asarray(x).reshape(len(x), -1)
    train, labels = flat(digits.train.inputs), digits.train.labels
    means = np.stack([train[labels == k].mean(axis=0) for k in range(10)])
    {before}
    while not os.path.exists(os.environ["LEVELBENCH_INPUTS"]):
        time.sleep(0.01)
    inputs = flat(np.load(os.environ["LEVELBENCH_INPUTS"]))
    scores = -((inputs[:, None] - means) ** 2).sum(axis=2)
    {after}
"""
SAVE = 'np.save(open(os.environ["LEVELBENCH_PREDICTIONS"], "wb"), scores)'
HELD = ("--target", "accuracy=0.8", "--held-out", "digits", "-n", 1, "--task", "mine")


def predicts(before="pass", after=SAVE):
    return PREDICTS.format(before=before, after=after)


def test_the_predictions_of_a_program_are_scored_by_us_at_its_end(run, records):
    code, out, err = run(predicts(), *HELD)
    assert code == 0, err
    assert "1/1" in out
    (found,) = records()
    specification = found.header.specification
    assert (specification.scored_by, specification.crossing) == ("held-out", "final")
    assert "given before training, public labels" in specification.held_out
    assert 0.8 < found.end.quality["validation"] < 0.95
    assert found.evaluations[-1].t_ns <= found.end.t_ns


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--reveal-inputs", "after"), ("--scale", "0,100")])
def test_predictions_are_scored_in_per_cent_for_a_target_in_per_cent(run, records, words):
    held = ("--target", "accuracy=80", *HELD[2:], *words)
    program = predicts('print("accuracy: 91.00"); print("levelbench: trained", flush=True)')
    code, out, err = run(program, *held)
    assert code == 0, err
    assert "1/1" in out
    (found,) = records()
    assert 80 < found.end.quality["validation"] < 95
    assert not any("reports accuracy" in each for each in found.end.suspect)


def test_a_program_that_prints_per_cent_it_did_not_reach_is_found(run, records):
    _, out, _ = run(predicts('print("accuracy: 99.9")', "scores[:] = 0; " + SAVE), "--target", "accuracy=80", *HELD[2:])
    assert "0/1" in out
    assert any("reports accuracy 99.9, and its predictions have" in each for each in records()[0].end.suspect)


@pytest.mark.parametrize(("target", "score"), [("error=30", 25), ("error=0.3", 0.25), ("accuracy=0.8", 0.75)])
def test_an_error_rate_is_scored_in_per_cent_where_its_target_is(tmp_path, target, score):
    (tmp_path / "predictions").write_text("1\n1\n1\n0\n")
    held_out = HeldOut(np.zeros((4, 1)), np.ones(4, int))
    assert held_out.score(tmp_path / "predictions", read_target(target)) == score


@pytest.mark.slow
@pytest.mark.parametrize(
    "save",
    [
        'open(os.environ["LEVELBENCH_PREDICTIONS"], "w").write("\\n".join(map(str, scores.argmax(axis=1))))',
        'np.savetxt(os.environ["LEVELBENCH_PREDICTIONS"], scores, delimiter=",")',
        'np.save(open(os.environ["LEVELBENCH_PREDICTIONS"], "wb"), scores.argmax(axis=1)[:, None])',
        'np.save(os.environ["LEVELBENCH_PREDICTIONS"], scores)',
    ],
)
def test_predictions_may_be_classes_or_scores_in_text_or_an_array(run, records, save):
    assert run(predicts(after=save), *HELD)[0] == 0
    assert records()[0].end.quality["validation"] > 0.8


def test_a_program_that_prints_some_points_more_than_it_reached_is_found(run, records):
    """More than chance and a difference between two sets explain."""
    assert run(predicts('print("accuracy: 0.975")', "scores[::20] = 0; " + SAVE), *HELD)[0] == 0
    end = records()[0].end
    assert 0.85 < end.quality["validation"] < 0.89
    assert any("reports accuracy 0.975" in each for each in end.suspect)


def test_a_program_that_prints_an_accuracy_it_did_not_reach_is_found(run, records):
    _, out, _ = run(predicts('print("accuracy: 0.999")', "scores[:] = 0; " + SAVE), *HELD)
    assert "0/1" in out
    assert any("reports accuracy 0.999, and its predictions have 0." in each for each in records()[0].end.suspect)


def test_what_a_program_printed_that_failed_before_its_predictions_is_not_called_scored(run, records):
    run('print("accuracy: 0.999")', *HELD)
    summary = summarise(records()[0])
    assert (summary.status, summary.scored_by, summary.quality_from) == ("failed", "held-out", "program")
    facts = " ".join(to_text(run_facts(summary)).split())
    assert "accuracy 0.9990, as reported by its program; its predictions were not scored" in facts


def test_a_table_of_runs_says_that_a_failed_one_was_not_scored(run, records):
    pytest.importorskip("pandas")
    run('print("accuracy: 0.999")', *HELD)
    table = levelbench.Store(records()[0].path.parents[2]).to_pandas()
    assert list(table["scored_by"]) == ["program"]


@pytest.mark.slow
def test_inputs_that_are_revealed_afterwards_stop_the_clock_where_training_ends(run, records):
    program = predicts(
        'assert not os.path.exists(os.environ["LEVELBENCH_INPUTS"]); print("levelbench: trained")',
        "time.sleep(0.5); " + SAVE,
    )
    assert run(program, *HELD, "--reveal-inputs", "after")[0] == 0
    (found,) = records()
    assert found.end.t_ns - found.evaluations[-1].t_ns >= 0.5e9
    assert "given after training" in found.header.specification.held_out


@pytest.mark.slow
def test_a_program_that_goes_on_for_long_after_its_clock_is_a_doubt(run, records):
    program = predicts('print("levelbench: trained")', "time.sleep(8); " + SAVE)
    assert run(program, *HELD, "--reveal-inputs", "after")[0] == 0
    assert any("it went on for" in each for each in records()[0].end.suspect)


@pytest.mark.slow
def test_work_of_an_orphan_in_a_session_of_its_own_is_work_after_the_clock(run, records):
    waits = "os.read(reads, 1)"
    orphan = f"""
import os, time
reads, writes = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        end_s = time.process_time() + 2
        while time.process_time() < end_s: pass
        os.write(writes, b"x")
    os._exit(0)
os.wait()
print("levelbench: trained", flush=True)
{waits}
"""
    assert run(orphan + textwrap.dedent(predicts("", SAVE)), *HELD, "--reveal-inputs", "after")[0] == 0
    assert any("it went on for" in each for each in records()[0].end.suspect)


@pytest.mark.slow
def test_what_a_program_does_once_its_predictions_are_there_is_no_work_after_its_clock(run, records):
    program = predicts('print("levelbench: trained")', SAVE + "; time.sleep(2.5)")
    assert run(program, *HELD, "--reveal-inputs", "after")[0] == 0
    assert not any("it went on for" in each for each in records()[0].end.suspect)


@pytest.mark.parametrize(
    ("cpu_s", "wall_s", "doubted"),
    [
        (0.05, 0.3, False),  # it waited for the processor of a busy machine
        (0.05, 1.4, False),
        (0.09, 0.09, False),
        (0.3, 0.3, True),
        (0.3, 0.9, True),
        (0.0, 1.5, True),  # it waited for another that does the work
        (0.05, 2.5, True),
    ],
)
def test_work_after_training_is_told_from_waiting_for_the_processor(cpu_s, wall_s, doubted):
    assert bool(after_training(0.4, Spent(cpu_s, wall_s))) is doubted


def test_after_a_long_training_predictions_may_take_a_share_of_it():
    assert not after_training(100.0, Spent(19.0, 19.0))
    assert after_training(100.0, Spent(21.0, 21.0))


@pytest.mark.slow
def test_a_child_that_does_not_listen_adds_nothing_to_the_time(run, records):
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    begin = f"import subprocess; child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=-1)"
    code, _, err = run(predicts(f"{begin}; child.stdout.readline()"), *HELD)
    assert code == 0, err
    (found,) = records()
    assert any("left processes running" in each for each in found.end.suspect)
    assert found.end.t_ns - found.evaluations[-1].t_ns >= 1.5e9


def test_what_is_done_before_a_run_and_what_is_read_of_it_are_its_settings(run, records):
    words = ("--target", "accuracy=0.9", "-n", 1, "--setup", "true", "--prepare", "true")
    run(LEARNS, *words, "--progress", r"accuracy: (\S+)")
    (found,) = records()
    settings = found.header.specification.settings
    assert (settings["setup"], settings["prepare"], settings["progress"]) == ("true", "true", r"accuracy: (\S+)")


PREPARES = """
import pathlib, time
{does}
"""


@pytest.mark.slow
@needs_inotify
@pytest.mark.parametrize(
    ("does", "said"),
    [
        ('pathlib.Path("w.pt").write_bytes(bytes(5000))', "and left w.pt, which the program read: if it trained there"),
        ('pathlib.Path("other.pt").write_bytes(bytes(5000)); pathlib.Path("small.csv").write_text("1")', ""),
        ("time.sleep(6)", "off the clock: what it does of the work is in no time"),
    ],
)
def test_a_preparation_that_may_have_trained_is_a_note(run, tmp_path, does, said):
    (tmp_path / "w.pt").write_bytes(bytes(5000))
    (tmp_path / "prepare.py").write_text(PREPARES.format(does=does))
    reads = 'read(P("w.pt")); read(P("small.csv")); __import__("time").sleep(0.4)'
    words = ("--target", "accuracy=0.9", "-n", 1, "--prepare", f"{sys.executable} prepare.py")
    code, out, err = run(KEEPS.format(does=reads), *words)
    assert code == 0, err
    told = " ".join(out.split())
    assert (said in told, "--prepare took" in told) == (True, bool(said))


@pytest.mark.parametrize("make", ["os.mkfifo", "os.mkdir"])
def test_predictions_that_are_no_file_fail_the_run(run, make):
    code, _, err = run(predicts(after=f'{make}(os.environ["LEVELBENCH_PREDICTIONS"])'), *HELD)
    assert (code, "no file" in err) == (1, True)


def test_labels_of_ones_own_are_private_and_cannot_be_learned_from_the_inputs_given_late(run, records, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "X.npy", rng.normal(size=(400, 4)))
    np.save(tmp_path / "y.npy", rng.integers(0, 4, 400))
    # Fresh labels: whoever does not have them guesses.
    program = 'import numpy as np, os; open(os.environ["LEVELBENCH_PREDICTIONS"], "w").write("1\\n" * 400)'
    run(program, "--target", "accuracy=0.8", "--held-out", "X.npy,y.npy", "-n", 1)
    assert records()[0].end.quality["validation"] < 0.4
    assert "private labels" in records()[0].header.specification.held_out


@pytest.fixture
def own_held_out(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((400, 4)))
    np.save(tmp_path / "y.npy", np.arange(400) % 4)
    return ("--target", "accuracy=0.8", "--held-out", "X.npy,y.npy", "-n", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who reads a file")
@pytest.mark.parametrize("read", ['np.load("y.npy")', 'np.memmap("y.npy", mode="r", dtype="i8", offset=128)'])
def test_a_program_that_reads_the_labels_that_score_it_is_a_doubt(run, records, own_held_out, read):
    program = f'import numpy as np, os; np.save(os.environ["LEVELBENCH_PREDICTIONS"], {read})'
    run(program, *own_held_out)
    assert any("y.npy, whose labels score it, was opened while it ran" in each for each in records()[0].end.suspect)


EARLY = """
import numpy as np, levelbench
{before}
levelbench.predict(lambda inputs: {predict})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who reads a file")
@pytest.mark.parametrize(
    ("before", "predict", "doubted"),
    [
        ("np.load('X.npy')", "np.zeros(400)", True),
        ("kept = np.memmap('X.npy', mode='r')", "np.zeros(400)", True),
        ("pass", "np.load('X.npy')[:, 0]", False),
    ],
)
def test_inputs_that_a_program_reads_before_it_is_to_have_them_are_a_doubt(
    run, records, own_held_out, before, predict, doubted
):
    run(EARLY.replace("{before}", before).replace("{predict}", predict), *own_held_out, "--reveal-inputs", "after")
    assert any("was opened before it had trained" in each for each in records()[0].end.suspect) is doubted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("pass", "there are none"),
        ("np.save(open(os.environ['LEVELBENCH_PREDICTIONS'], 'wb'), scores[:5])", "for 359 inputs"),
        ("open(os.environ['LEVELBENCH_PREDICTIONS'], 'w').write('what')", "no numbers"),
        ("open(os.environ['LEVELBENCH_PREDICTIONS'], 'w').write('')", "of shape (0,), for 359 inputs"),
        (
            "np.save(open(os.environ['LEVELBENCH_PREDICTIONS'], 'wb'), np.full(len(scores), 0.99))",
            "they are one number each, such as 0.99, and no classes",
        ),
        (
            "scores[:3, 4] = np.nan; np.save(open(os.environ['LEVELBENCH_PREDICTIONS'], 'wb'), scores)",
            "3 of 359 rows have scores that are not a number",
        ),
        (
            "np.savetxt(os.environ['LEVELBENCH_PREDICTIONS'], np.full(len(scores), np.nan))",
            "they are one number each, such as nan, and no classes",
        ),
        (
            "classes = np.c_[:len(scores), scores.argmax(axis=1)];"
            "np.savetxt(os.environ['LEVELBENCH_PREDICTIONS'], classes, delimiter=',')",
            "their first column numbers the inputs, and so is no score",
        ),
        (
            "np.save(open(os.environ['LEVELBENCH_PREDICTIONS'], 'wb'), np.array([{}], object), allow_pickle=True)",
            "no numbers",
        ),
    ],
)
def test_predictions_that_are_none_fail_the_run(run, records, after, found):
    program = PREDICTS.replace("{before}", "pass").replace("{after}", after)
    code, _, err = run(program, *HELD)
    assert code == 1
    assert found in err
    assert records()[0].status == "failed"


def test_a_program_that_never_says_that_it_has_trained_gets_no_inputs(run):
    code, _, err = run("pass", *HELD, "--reveal-inputs", "after")
    assert code == 1
    assert "did not print 'levelbench: trained'" in err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--held-out", "digits"), "without --target"),
        (("--held-out", "digits", "--target", "loss=1"), "scores classes alone"),
        (("--held-out", "nosuch", "--target", "accuracy=0.9"), "nosuch"),
        (("--held-out", "a.npy,b.npy", "--target", "accuracy=0.9"), "is no array"),
        (
            ("--held-out", "digits", "--target", "accuracy=0.9", "--crossing", "first"),
            "only the program itself",
        ),
        (("--target", "accuracy=0.9", "--crossing", "soon"), "crossing rule"),
    ],
)
def test_held_out_data_that_cannot_be_is_refused(run, words, found):
    code, _, err = run("pass", *words)
    assert code == 2
    assert found in err


@pytest.mark.parametrize("labels", [np.full(4, np.nan), np.array(["a"] * 4), np.ones(4)])
def test_labels_that_are_no_classes_are_refused(run, tmp_path, labels):
    np.save(tmp_path / "X.npy", np.zeros((4, 2)))
    np.save(tmp_path / "y.npy", labels)
    code, _, err = run("pass", "--target", "accuracy=0.9", "--held-out", "X.npy,y.npy", "-n", 1)
    assert code == 2
    assert "no classes" in err


@pytest.mark.slow
def test_programs_scored_on_other_data_get_no_verdict(run, records, tmp_path):
    from levelbench.records.comparable import comparable

    for name in ("X", "Z"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=(360, 4)) + (name == "Z"))
    np.save(tmp_path / "y.npy", np.zeros(360, int))
    program = 'import os; open(os.environ["LEVELBENCH_PREDICTIONS"], "w").write("0\\n" * 360)'
    for name in ("X", "Z"):
        run(program, "--target", "accuracy=0.8", "--held-out", f"{name}.npy,y.npy", "-n", 3, "--task", "mine")
    a, b = group_runs([summarise(each) for each in records()])
    assert any(each.subject == "held-out data" and each.weight == "no verdict" for each in comparable(a, b).caveats)


@pytest.mark.parametrize("when", ["before", "after"])
def test_one_line_of_python_predicts_where_it_is_asked_for(run, records, when):
    program = """
        import levelbench, numpy as np
        assert levelbench.predict(lambda inputs: np.eye(10)[np.arange(len(inputs)) % 10])
    """
    run(program, *HELD, "--reveal-inputs", when)
    assert records()[0].status == "done"
    assert 0.0 <= records()[0].end.quality["validation"] < 0.3


def test_nothing_is_predicted_where_nobody_asks(monkeypatch):
    for name in ("LEVELBENCH_INPUTS", "LEVELBENCH_PREDICTIONS"):
        monkeypatch.delenv(name, raising=False)
    assert levelbench.predict(lambda inputs: pytest.fail("it was called")) is False


WRITES = """
    import json, sys, time
    with open("log.jsonl", "w") as log:
        for epoch in range(1, 60):
            time.sleep(0.02)
            log.write(json.dumps({"epoch": epoch, "accuracy": 1 - 0.5 ** epoch}) + "\\n")
            log.flush()
    time.sleep(60)
"""


def test_qualities_are_read_from_the_file_that_a_program_writes(run, records):
    words = "--target", "accuracy=0.9", "--progress-file", "log.jsonl", "--prepare", "rm -f log.jsonl", "-n", 2
    code, _, err = run(WRITES, *words)
    assert (code, err.count("Traceback")) == (0, 0)
    first, second = records()
    for record in (first, second):
        assert [each.epoch for each in record.evaluations] == [1, 2, 3, 4, 5]
        # Five epochs of 20 ms, each seen within a hundredth of a second.
        assert record.evaluations[-1].t_ns * 1e-9 > 0.1
        assert record.header.specification.settings["progress_file"] == "log.jsonl"


@pytest.mark.slow
@pytest.mark.parametrize(
    "write",
    [
        'open("log", "w").write("".join(history))',
        'open("new", "w").write("".join(history)); os.replace("new", "log")',
        'open("log", "w").write(history[-1].strip())',
        'open("new", "w").write(history[-1].strip()); os.replace("new", "log")',
        'open("log", "w").write(json.dumps({"accuracy": 1 - 0.5 ** epoch}))',
    ],
)
def test_a_file_that_is_written_anew_tells_each_quality_once(run, records, write):
    program = f"""
        import json, os, time
        history = []
        for epoch in range(1, 7):
            history.append(f"accuracy: {{1 - 0.5 ** epoch:.4f}}\\n")
            {write}
            time.sleep(0.1)
    """
    run(program, "--target", "accuracy=0.999", "--progress-file", "log", "-n", 1)
    (record,) = records()
    assert [each.quality["validation"] for each in record.evaluations] == pytest.approx(
        [1 - 0.5**epoch for epoch in range(1, 7)], abs=1e-4
    )


def test_rows_of_a_csv_file_are_read_by_the_names_of_its_first(run, records):
    program = """
        import time
        rows = []
        for epoch in range(3):
            rows += [f"{epoch},{epoch * 9},0.{epoch},", f"{epoch},{epoch * 9},,0.{5 + epoch}"]
            open("metrics.csv", "w").write("\\n".join(["epoch,step,train_loss,val_accuracy", *rows, ""]))
            time.sleep(0.1)
    """
    run(program, "--target", "val_accuracy=0.9", "--progress-file", "metrics.csv", "-n", 1)
    (record,) = records()
    assert [(each.epoch, each.quality["validation"]) for each in record.evaluations] == [(0, 0.5), (1, 0.6), (2, 0.7)]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("epoch;val_loss\n0;9.5\n", "epoch: 0, val_loss: 9.5"),
        ("epoch;val_loss\n0;9,5\n", "epoch: 0, val_loss: 9.5"),
        ("epoch;val_loss\n0;0,125e2;\n", "epoch: 0, val_loss: 0.125e2"),
        ("epoch\ttrain_loss\tval_loss\n0\t\t9.5\n", "epoch: 0, val_loss: 9.5"),
        ("epoch val_loss\n0   9.5\n", "epoch: 0, val_loss: 9.5"),
        ("# epoch, val_loss\n0, 9.5\n", "epoch: 0, val_loss: 9.5"),
        ('epoch,step,val_loss\n0,"1,234","0,900"\n', "epoch: 0, step: 1234, val_loss: 0.900"),
        ('"epoch","note, or none","val_loss"\n"0","a; b","9.5"\n', "epoch: 0, note, or none: a; b, val_loss: 9.5"),
        ("val loss\n9.5\n", "val loss: 9.5"),
    ],
)
def test_columns_are_told_apart_by_whatever_separates_the_names_in_the_first_row(tmp_path, rows, told):
    with ProgressFile(tmp_path / "metrics.csv") as written:
        (tmp_path / "metrics.csv").write_text(rows)
        assert written.lines() == [told]


@pytest.mark.parametrize("rows", ["epoch|val_loss\n0|9.5\n", "epoch;val_loss\n1;0;9.5\n", "epoch,val_loss\n0,9,5\n"])
def test_rows_whose_columns_cannot_be_told_apart_are_refused(tmp_path, rows):
    with ProgressFile(tmp_path / "metrics.csv") as written:
        (tmp_path / "metrics.csv").write_text(rows)
        with pytest.raises(UsageError, match="columns cannot be told apart"):
            written.lines()


def test_an_epoch_is_not_taken_for_the_loss_beside_it(run, records):
    program = """
        with open("metrics.csv", "w") as log:
            log.write("epoch;val_loss\\n" + "".join(f"{epoch};{9.5 - epoch}\\n" for epoch in range(4)))
    """
    run(program, "--target", "val_loss=3", "--progress-file", "metrics.csv", "-n", 1)
    (record,) = records()
    assert [(each.epoch, each.quality["validation"]) for each in record.evaluations] == [
        (epoch, 9.5 - epoch) for epoch in range(4)
    ]


@pytest.mark.parametrize("indent", [1, None])
def test_a_history_that_is_rewritten_as_json_tells_each_quality_once(tmp_path, indent):
    history, read = [], []
    with ProgressFile(tmp_path / "log.json") as written:
        for epoch, loss in enumerate([9.5, 2.9, 5.0, 5.0]):
            history.append({"epoch": epoch, "val_loss": loss})
            text = json.dumps(history, indent=1) if indent else "\n".join(map(json.dumps, history))
            (tmp_path / "log.json").write_text(text)
            read += written.lines()
        read += written.lines(ended=True)
    found = [each for line in read if (each := Printed(LOSS).read(line))]
    assert [value for value, _ in found] == [9.5, 2.9, 5.0, 5.0]


def test_a_line_that_is_not_whole_yet_is_not_read(tmp_path):
    with ProgressFile(tmp_path / "log") as written:
        (tmp_path / "log").write_text("accuracy: 0.9")
        assert written.lines() == written.lines() == []
        with (tmp_path / "log").open("a") as log:
            log.write("3\naccuracy: 0.95")
        assert written.lines() == ["accuracy: 0.93"]
        assert written.lines(ended=True) == ["accuracy: 0.95"]


def test_a_file_that_is_there_before_the_program_is_refused(run, tmp_path):
    (tmp_path / "log.jsonl").write_text('{"accuracy": 0.99}\n')
    code, _, err = run(WRITES, "--target", "accuracy=0.9", "--progress-file", "log.jsonl", "-n", 1)
    assert code == 2
    assert "it is there before the program has begun" in err


@pytest.mark.parametrize(
    "words", [("log.jsonl", "-n", 2), ("log.jsonl", "-n", 1, "--vs", "true"), ("l-{seed}.csv", "-n", 2, "--vs", "true")]
)
def test_a_file_that_a_later_run_would_find_is_refused_before_the_first(run, records, words):
    code, _, err = run(WRITES, "--target", "accuracy=0.9", "--progress-file", *words)
    assert (code, records()) == (2, [])
    assert "the second run would find that of the first" in err


def test_each_seed_may_have_a_file_of_its_own(run, records):
    program = WRITES.replace('"log.jsonl"', 'f"log-{sys.argv[1]}.jsonl"')
    run(program, "--target", "accuracy=0.9", "--progress-file", "log-{seed}.jsonl", "-n", 2)
    assert all(record.status == "done" for record in records())


def test_a_program_that_writes_no_quality_has_a_failed_run(run):
    code, _, err = run("pass", "--target", "accuracy=0.9", "--progress-file", "log.jsonl", "-n", 1)
    assert code == 1
    assert "it wrote to log.jsonl no accuracy" in err


def test_a_pipe_is_read_as_a_file_is(run, records, tmp_path):
    os.mkfifo(tmp_path / "log.jsonl")
    run(WRITES, "--target", "accuracy=0.9", "--progress-file", "log.jsonl", "-n", 1)
    (record,) = records()
    assert len(record.evaluations) == 5


def test_qualities_that_are_logged_for_tensorboard_are_read_and_those_of_before_are_not(run, records):
    pytest.importorskip("tensorboard")
    logs = """
        import sys, time
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
        writer = EventFileWriter("logs")
        for step in range(1, 60):
            time.sleep(0.02)
            for tag, value in (("train/accuracy", 1.0), ("val/accuracy", 1 - 0.5 ** step)):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
            writer.flush()
        time.sleep(60)
    """
    code, _, _ = run(logs, "--target", "accuracy=0.9", "--progress-file", "logs", "-n", 2)
    assert code == 0
    assert [len(record.evaluations) for record in records()] == [5, 5]


def test_of_a_folder_of_tensorboard_without_its_library_it_is_said(tmp_path, monkeypatch):
    for name in ("tensorboard", "tensorboard.backend.event_processing.event_file_loader"):
        monkeypatch.setitem(sys.modules, name, None)
    with ProgressFile(tmp_path) as written:
        assert written.lines() == []
        (tmp_path / "a.tfevents.1").write_bytes(b"")
        with pytest.raises(MissingError, match="takes tensorboard"):
            written.lines()


def test_lines_of_several_forms_that_tell_the_quality_are_a_doubt(run, records):
    program = """
        for epoch in range(1, 8):
            print(f"epoch {epoch}: accuracy {1 - 0.5 ** epoch}", flush=True)
            print(f"checkpoint {epoch} saved, accuracy {1 - 0.4 ** epoch}", flush=True)
    """
    run(program, "--target", "accuracy=0.9", "-n", 1)
    assert any("lines of 2 forms tell its quality" in each for each in records()[0].end.suspect)


@pytest.mark.parametrize(
    ("metric", "lines"),
    [
        ("val_accuracy", ["9/9 - 3s - 19ms/step - val_accuracy: 0.75", "9/9 - 0s - 322us/step - val_accuracy: 0.82"]),
        ("val_loss", ["epoch 0 lr 0.0004 val_loss 1.0", "epoch 3 lr 5e-05 val_loss 0.25"]),
        ("val_loss", ['{"lr": 0.001, "val_loss": 1.0}', '{"lr": 3.1e-05, "val_loss": 0.25}']),
        ("val_acc", ["[00:02<00:30, 0.98it/s, val_acc=0.5]", "[00:02<00:30, 1.10s/it, val_acc=0.6]"]),
        ("acc", ["0%|    | 0/8 [00:00<?, ?it/s, acc=0.6]", "12%|#   | 1/8 [00:00<00:01,  4.99it/s, acc=0.7]"]),
        ("val_acc", ["58s val_acc=0.5", "1m 58s val_acc=0.6"]),
        ("val_acc", ["23:59:58 val_acc=0.5", "1 day, 0:00:00 val_acc=0.6"]),
        ("val_acc", ["Sun Nov 29 val_acc=0.5", "Tue Dec 1 val_acc=0.6"]),
        ("val_acc", ["mem 980 MiB norm inf val_acc=0.5", "mem 1.1 GiB norm 3.1 val_acc=0.6"]),
        ("accuracy", ["25s accuracy 0.5", "1m15s accuracy 0.6"]),
        ("accuracy", ["(50 s) accuracy: 0.5", "(1.2 min) accuracy: 0.6"]),
        ("accuracy", ["950k tokens 123 it/s accuracy 0.5", "1.3M tokens 1.3k it/s accuracy 0.6"]),
        ("accuracy", ["epoch 1 accuracy 0.5", "epoch 2 accuracy 0.6epoch 2 accuracy 0.6"]),
        ("accuracy", ["11:59 AM loss None accuracy 0.5", "0:01 PM loss 0.3 accuracy 0.6"]),
    ],
)
def test_another_unit_exponent_or_day_before_a_quality_is_no_other_form(metric, lines):
    reading = Printed(Target(metric, 0.2 if metric == "val_loss" else 0.9))
    assert all(reading.read(line) for line in lines)
    assert reading.doubts() == []


@pytest.mark.parametrize("pattern", [None, "accuracy: ([0-9.]+)"])
def test_lines_of_two_ranks_that_came_out_as_one_are_read_apart(pattern):
    printed = Printed(ACCURACY, pattern)
    lines = [
        "[rank 0] epoch 1 accuracy: 0.5",
        "[rank 0] epoch 2 accuracy: 0.65[rank 1] epoch 2 accuracy: 0.651",
        "",
        "[rank 1] epoch 3 accuracy: 0.71[rank 0] epoch 3 accuracy: 0.7",
    ]
    assert [printed.read(line) for line in lines] == [(0.5, 1), (0.65, 2), None, (0.7, 3)]
    assert printed.doubts() == ["2 ranks tell their quality: that of rank 0 was read"]


@pytest.mark.parametrize(
    "lines",
    [
        ["epoch=1,ema accuracy=0.6", "epoch=1,raw accuracy=0.3"],
        ["1view accuracy 0.6", "10crop accuracy 0.7"],
        ["epoch 1 test accuracy: 0.5", "epoch 1 ema test accuracy: 0.6"],
    ],
)
def test_another_word_before_a_quality_is_another_form(lines):
    reading = Printed(ACCURACY)
    assert all(reading.read(line) for line in lines)
    assert any("lines of 2 forms" in each for each in reading.doubts())


@pytest.mark.parametrize(
    "line",
    [
        "epoch 1 | 1.1 min | accuracy 0.5",
        "2min accuracy: 0.5",
        "elapsed (min): 2.1 | accuracy 0.5",
        "batch time 0.3 accuracy 0.5",
        "batch size 64 | accuracy 0.5",
        "max lr 0.1, accuracy 0.5",
        "norm (min 0.2, max 0.4) accuracy 0.5",
        "accuracy (10,000 test images): 0.5",
    ],
)
def test_minutes_sizes_and_ends_of_another_number_do_not_hide_a_quality(line):
    quality, _ = Printed(ACCURACY).read(line)
    assert quality == 0.5


@pytest.mark.parametrize("word", ["max", "min", "minimum", "batch", "batch 5", "best", "train"])
def test_the_quality_of_a_batch_or_the_best_so_far_is_not_read(word):
    assert Printed(ACCURACY).read(f"{word} accuracy 0.5") is None


def test_a_number_of_images_with_a_comma_stands_between_a_name_and_its_number():
    reading = Printed(Target("accuracy", 0.9))
    quality, _ = reading.read("Accuracy of the network on the 10,000 test images: 55.3 %")
    assert quality == pytest.approx(0.553)


def test_predictions_that_are_written_after_the_program_has_ended_do_not_count(run, records):
    late = """
        import os, subprocess, sys
        code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(0.5); "
        code += "open(os.environ['LEVELBENCH_PREDICTIONS'], 'w').write('1\\n' * 359)"
        subprocess.Popen([sys.executable, "-c", code])
    """
    words = "--target", "accuracy=0.05", "--held-out", "digits", "-n", 1
    code, _, err = run(late, *words)
    assert code == 1
    assert "after it had ended" in err or "there are none" in err
