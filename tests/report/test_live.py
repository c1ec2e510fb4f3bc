import io
import re

import pytest

from levelbench.measure.clocks import FakeClock
from levelbench.report.live import LiveLine, PlainLines, TerminalLine, live_line

SECOND = 1_000_000_000


class Terminal(io.StringIO):
    def isatty(self):
        return True


def step(line, position=3, seed=1, **others):
    arguments = {"quality": 0.962, "target": 0.97, "estimate_text": "estimate 0.91 s [0.85, 0.98] n=2", "epoch": 12.0}
    line.update(position, "digits[framework=torch]", seed, "forward", 1.234, **{**arguments, **others})


def last(out):
    """What the terminal shows since it was last cleared."""
    return re.sub(r"(\x1b\[1A)?\r$", "", out.getvalue().split("\r\x1b[J")[-1])


def test_the_line_shows_run_phase_time_quality_against_target_and_estimate():
    out = io.StringIO()
    line = PlainLines(out, clock=FakeClock())
    line.start(10)
    step(line)
    assert out.getvalue() == (
        "3/10 digits[framework=torch] seed 1 · forward · 1.2 s · epoch 12 · accuracy 0.962 / 0.970 · "
        "estimate 0.91 s [0.85, 0.98] n=2\n"
    )


def test_what_is_not_known_yet_is_not_shown():
    out = io.StringIO()
    line = PlainLines(out, clock=FakeClock())
    line.start(1)
    step(line, position=1, quality=None, estimate_text="", epoch=None)
    assert out.getvalue() == "1/1 digits[framework=torch] seed 1 · forward · 1.2 s · accuracy – / 0.970\n"


def test_plain_lines_come_at_most_every_few_seconds_and_for_each_new_run():
    out, clock = io.StringIO(), FakeClock()
    line = PlainLines(out, every_s=5, clock=clock)
    line.start(2)
    for _ in range(10):
        step(line, position=1)
        clock.advance(SECOND)
    assert out.getvalue().count("\n") == 2
    step(line, position=2, seed=2)
    assert out.getvalue().count("\n") == 3


def test_plain_lines_hold_no_control_character():
    out = io.StringIO()
    line = PlainLines(out, clock=FakeClock())
    line.update(1, "a\x1b[2J\r", 1, "data", 0.0)
    line.finish_run("a\x07", 1, "failed\n")
    line.close()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", out.getvalue())


@pytest.mark.parametrize("width", [24, 40, 60, 90, 200])
def test_a_narrow_terminal_drops_parts_and_never_wraps(width):
    out = Terminal()
    line = TerminalLine(out, clock=FakeClock(), width=width)
    line.start(10)
    step(line, left_s=(190.0, 290.0), steps=(300, 600), loss=0.31, samples_per_s=1234.0)
    assert all(len(each) < width for each in last(out).split("\n"))
    assert last(out).count("\n") <= 1
    assert "accuracy 0.962 / 0.970" in last(out)


@pytest.mark.parametrize(
    ("label", "metric", "first", "second"),
    [
        (
            "digits[framework=torch]",
            "top1",
            "3/10 digits[framework=torch] seed 1 · 5.0 s · ████░░░░ · 3 to 5 min left",
            "train · step 300/46,900 · 12,345 samples/s · loss 0.312 · top1 0.961 / 0.960",
        ),
        (
            "charlm[recipe=lstm,framework=torch,lr=0.4]",
            "bits_per_character",
            "3/10 recipe=lstm,framework=torch,lr=0.4 seed 1 · ████░░░░ · 3 to 5 min left",
            "train · step 300 · 12,345/s · loss 0.312 · bits_per_character 0.961 / 0.960",
        ),
    ],
)
def test_two_lines_of_80_columns_have_steps_rate_loss_quality_bar_and_time_remaining(label, metric, first, second):
    out, clock = Terminal(), FakeClock()
    line = TerminalLine(out, clock=clock, width=80)
    line.start(10)
    clock.advance(240 * SECOND)
    known = {"steps": (300, 46_900), "samples_per_s": 12_345.4, "loss": 0.3123, "metric": metric}
    line.update(3, label, 1, "train", 5.0, 0.961, 0.96, left_s=(190.0, 290.0), **known)
    assert last(out) == f"{first}\n{second}"


def test_one_line_is_enough_where_all_fits():
    out = Terminal()
    line = TerminalLine(out, clock=FakeClock(), width=80)
    line.start(2)
    line.update(1, "digits", 0, "train", 5.0, 0.961, 0.96, steps=(300, 600))
    assert last(out) == "1/2 digits seed 0 · train · 5.0 s · step 300/600 · accuracy 0.961 / 0.960"


def test_eighty_columns_hold_the_phase_and_the_time_before_the_first_evaluation():
    out = Terminal()
    line = TerminalLine(out, clock=FakeClock(), width=80)
    line.start(1)
    known = {"steps": (93, 12_900), "samples_per_s": 1_234.0}
    line.update(1, "fashion-mnist[recipe=plain]", 0, "evaluate", 15.0, None, 0.9, **known)
    first, second = last(out).split("\n")
    assert first == "1/1 fashion-mnist[recipe=plain] seed 0 · evaluate · 15.0 s"
    assert second == "step 93/12,900 · 1,234 samples/s · accuracy – / 0.900"


def test_the_line_of_a_search_counts_trials_and_the_bar_what_passed_before():
    out, clock = Terminal(), FakeClock()
    line = TerminalLine(out, clock=clock, width=100)
    line.start(4, "trial ", 30.0)
    line.update(3, "digits", 0, "train", 0.0, left_s=(20.0, 40.0))
    assert last(out).startswith("trial 3/4 digits seed 0 · train · ")
    assert "████░░░░" in last(out)


def test_the_cursor_rests_at_the_start_of_the_first_line():
    out = Terminal()
    line = TerminalLine(out, clock=FakeClock(), width=40)
    line.start(10)
    step(line, left_s=(190.0, 290.0))
    assert out.getvalue().endswith("\x1b[1A\r")


def test_an_outcome_that_is_too_long_for_the_terminal_is_wrapped_between_words():
    out = Terminal()
    line = TerminalLine(out, clock=FakeClock(), width=80)
    line.finish_run("digits[framework=numpy,lr=0.4]", 0, "reached in 0.0672 s, 17 epochs, test 0.9582")
    shown = "digits[framework=numpy,lr=0.4] seed 0: reached in 0.0672 s, 17 epochs, test\n  0.9582"
    assert last(out) == f"{shown}\n"


def test_without_a_prediction_there_is_no_bar():
    out = Terminal()
    line = TerminalLine(out, clock=FakeClock(), width=80)
    line.start(2)
    line.update(1, "digits", 0, "train", 5.0, steps=(300, 600))
    assert not {"█", "░"} & set(out.getvalue())


def test_plain_lines_hold_the_steps_and_no_bar():
    out = io.StringIO()
    line = PlainLines(out, clock=FakeClock())
    line.start(2)
    line.update(1, "digits", 0, "train", 5.0, steps=(3, 1600))
    assert out.getvalue() == "1/2 digits seed 0 · train · 5.0 s · step 3/1,600\n"


def test_the_terminal_line_is_replaced_by_the_outcome_and_cleared_at_the_end():
    out = Terminal()
    with TerminalLine(out, clock=FakeClock(), width=80) as line:
        line.start(1)
        step(line, position=1)
        line.finish_run("digits", 1, "reached in 0.91 s")
    assert out.getvalue().endswith("\r\x1b[Jdigits seed 1: reached in 0.91 s\n\r\x1b[J")


def test_the_twin_follows_from_the_stream(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(live_line(Terminal()), TerminalLine)
    assert isinstance(live_line(io.StringIO()), PlainLines)
    assert type(live_line(Terminal(), quiet=True)) is LiveLine
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(live_line(Terminal()), PlainLines)


def test_the_null_twin_takes_everything_and_says_nothing(capsys):
    with live_line(quiet=True) as line:
        line.start(1)
        step(line)
        line.finish_run("digits", 1, "done")
    assert capsys.readouterr() == ("", "")


def test_the_remaining_time_of_all_runs_is_a_range():
    out = io.StringIO()
    line = PlainLines(out, clock=FakeClock())
    line.start(1)
    step(line, left_s=(190.0, 290.0))
    assert out.getvalue().endswith(" · 3 to 5 min left\n")
