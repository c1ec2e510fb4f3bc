"""Logs of the NanoGPT speed run as submissions: a folder is an entry, a log a run, its last validation the figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.competition.exchange.test_exchange_fuzzing import FEW

from levelbench.competition.exchange import systems_in
from levelbench.competition.exchange.speedrun import ONE_RUN, RULES, read_results
from levelbench.competition.leaderboard import check
from levelbench.competition.rulesets import ruleset
from levelbench.competition.scoring import score
from levelbench.errors import LevelbenchError, RecordError

HEAD = """\
        print0(f"step:{step}/{train_steps} val_loss:{val_loss:.4f} train_time:{time:.0f}ms step_avg:...")
====================================================================================================
Running Python 3.12.7 (main, Jan  4 2025, 08:08:20) [GCC 13.2.0]
Running PyTorch 2.6.0.dev20241203+cu124 compiled for CUDA 12.4
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:6C:00.0 Off |                    0 |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:6D:00.0 Off |                    0 |
|    0   N/A  N/A           40006      C   /usr/local/bin/python                  1508MiB |
====================================================================================================
"""
LINES = """\
step:0/1480 val_loss:10.8258 train_time:0ms step_avg:nanms
step:1/1480 train_time:23455ms step_avg:nanms
step:125/1480 val_loss:4.3719 train_time:29736ms step_avg:258.57ms
step:1480/1480 val_loss:{end} train_time:{ms}ms step_avg:121.50ms
"""


def log(folder, end=3.2789, ms=179_820, at=1, text=None):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{at:08x}-f1f7-4d8a-91be-a67b5dcd13fd.txt"
    path.write_text(HEAD + (text or LINES.format(end=end, ms=ms)))
    return path


def record(root, name="2025-01-16_Sub3Min", ends=(3.2771, 3.2779, 3.2765, 3.2781)):
    for at, end in enumerate(ends):
        log(root / name, end, 179_820 + at, at)


def test_the_lines_of_validation_are_the_curve(tmp_path):
    log(tmp_path / "011625_Sub3Min")
    (entry,), problems = read_results(tmp_path)
    (run,) = entry.runs
    assert problems == []
    assert run.curve.time_s == [0.0, 29.736, 179.82]
    assert (run.curve.quality, run.curve.steps) == ([10.8258, 4.3719, 3.2789], [0, 125, 1480])
    assert run.status == "done"


def test_folder_and_log_say_day_name_machine_and_framework(tmp_path):
    log(tmp_path / "011625_Sub3Min")
    (entry,), _ = read_results(tmp_path)
    assert (entry.submitted, entry.model, entry.framework) == (
        "2025-01-16", "011625_Sub3Min", "PyTorch 2.6.0.dev20241203+cu124",
    )  # fmt: skip
    assert (entry.hardware.accelerators, entry.hardware.accelerator) == (2, "NVIDIA H100 80GB HBM3")


def test_the_mean_of_several_logs_is_tested(tmp_path):
    record(tmp_path)
    (entry,), _ = read_results(tmp_path)
    found = score(entry, ruleset(RULES)).time
    assert entry.ruleset == RULES
    assert found.value == pytest.approx(179.8215)
    assert "mean final val_loss 3.2774, p" in found.how


def test_a_mean_that_is_not_surely_at_the_target_has_no_figure(tmp_path):
    record(tmp_path, ends=(3.2789, 3.2812))
    (entry,), _ = read_results(tmp_path)
    found = score(entry, ruleset(RULES)).time
    assert found.value is None
    assert "p < 0.01" in found.how


def test_one_log_is_judged_by_itself_and_doubted(tmp_path):
    log(tmp_path / "101424_ModernArch", 3.2774)
    (entry,), _ = read_results(tmp_path)
    assert entry.ruleset == ONE_RUN
    assert score(entry, ruleset(ONE_RUN)).time.value == 179.82
    assert "runs: one log, so the mean of the final loss is not tested" in entry.origin.doubts


def test_the_medium_track_has_its_own_target(tmp_path):
    log(tmp_path / "track_2_medium" / "2025-03-06_Sub25")
    (entry,), _ = read_results(tmp_path)
    assert (entry.task, entry.target.threshold) == ("nanogpt-speedrun-medium", 2.92)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (LINES.format(end="nan", ms=9e4), "its loss at step 1480 is not a number"),
        ("\n".join(LINES.split("\n")[:3]), "it ends at step 125 of 1480"),
    ],
)
def test_a_run_that_does_not_end_has_failed(tmp_path, text, error):
    log(tmp_path / "a", text=text)
    (entry,), _ = read_results(tmp_path)
    assert (entry.runs[0].status, entry.runs[0].error) == ("failed", error)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (LINES.format(end=3.27, ms=170_000), "it has more than one run"),
        ("step:1480/1480 val_loss:3.2700 train_time:179820ms\n", "is there twice, with different figures"),
        ("step:1490/1480 val_loss:3.2700 train_time:100ms\n", "train_time goes back at step 1490"),
    ],
)
def test_a_log_that_contradicts_itself_is_refused(tmp_path, more, problem):
    log(tmp_path / "a", text=LINES.format(end=3.2789, ms=179_820) + more)
    entries, problems = read_results(tmp_path)
    assert entries == []
    assert problem in problems[0]


def test_a_warm_up_that_sets_the_clock_back_costs_only_the_first_validation(tmp_path):
    text = LINES.format(end=3.2789, ms=179_820).replace("train_time:0ms", "train_time:40000ms")
    log(tmp_path / "a", text=text)
    (entry,), _ = read_results(tmp_path)
    assert entry.runs[0].curve.steps == [125, 1480]


def test_steps_before_the_clock_begins_again_are_a_doubt(tmp_path):
    steps = "step:10/1480 train_time:246800ms step_avg:nanms\nstep:11/1480 train_time:135ms step_avg:nanms\n"
    log(tmp_path / "a", text=LINES.format(end=3.2789, ms=179_820).replace("step:125", steps + "step:125"))
    (entry,), _ = read_results(tmp_path)
    assert entry.runs[0].curve.steps == [0, 125, 1480]
    assert "clock: train_time begins again at step 11, and the steps before are not in it" in entry.origin.doubts


def test_other_text_is_left_out_and_a_folder_without_logs_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("step 1: read the README")
    with pytest.raises(RecordError, match="no log of a speed run"):
        read_results(tmp_path)
    log(tmp_path / "a")
    entries, problems = read_results(tmp_path)
    assert (len(entries), problems) == (1, [])


def test_the_museum_finds_logs_by_their_names(tmp_path):
    path = log(tmp_path / "records" / "a")
    assert systems_in(tmp_path) == [("speedrun", tmp_path)]
    assert systems_in(path) == [("speedrun", path)]


def test_an_imported_record_has_no_error_on_a_leaderboard(tmp_path):
    record(tmp_path)
    (entry,), _ = read_results(tmp_path)
    assert [each for each in check(entry) if each.severity == "error"] == []


def test_runs_of_different_lengths_are_refused_on_a_leaderboard(tmp_path):
    record(tmp_path)
    log(tmp_path / "2025-01-16_Sub3Min", at=9, text=LINES.format(end=3.2775, ms=180_000).replace("1480", "1500"))
    (entry,), _ = read_results(tmp_path)
    assert [each.code for each in check(entry) if each.severity == "error"] == ["B146"]


@FEW
@given(data=st.text(st.sampled_from("step:/ val_lostrain_time0159.ms\n-e"), max_size=200))
def test_whatever_a_log_contains_it_is_read_or_refused(tmp_path, data):
    log(tmp_path / "a", text=f"step:1/2 val_loss:3 train_time:1ms\n{data}\nstep:2/2 val_loss:3 train_time:{data}")
    try:
        entries, problems = read_results(tmp_path)
    except LevelbenchError:
        return
    assert entries or problems
