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
    return re.split(r"\r\x1b\[2K", out.getvalue())[-1]


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
    step(line)
    assert len(last(out)) < width
    assert ("accuracy 0.962 / 0.970" in last(out)) == (width >= 90 or "accuracy" in last(out))


def test_a_terminal_of_80_columns_shows_a_bar_of_the_time_that_has_passed():
    out, clock = Terminal(), FakeClock()
    line = TerminalLine(out, clock=clock, width=80)
    line.start(2)
    clock.advance(240 * 10**9)
    line.update(1, "digits", 0, "train", 5.0, 0.961, 0.96, left_s=(190.0, 290.0), steps=(300, 600), loss=0.31)
    assert last(out) == "1/2 digits seed 0 · 5.0 s · ████░░░░ · accuracy 0.961 / 0.960 · 3 to 5 min left"


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
    assert out.getvalue().endswith("\r\x1b[2Kdigits seed 1: reached in 0.91 s\n\r\x1b[2K")


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
