"""Times over revisions, and where they change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from levelbench.analysis.history import (
    LEAST_POINTS,
    History,
    Revision,
    _history,
    change_points,
    histories_of_commands,
    histories_of_runs,
)
from levelbench.measure.statistics import binomial_cdf
from levelbench.records import RunGroup
from levelbench.records.commands import CommandHeader, CommandOutcome, CommandRecord, CommandSpecification
from levelbench.records.processes import ProcessEnd
from levelbench.records.schema import Measurement
from levelbench.report.history import change_lines, history_page, history_table
from levelbench.report.tables import to_text

NOISES = {
    "normal": lambda draw, n: draw.normal(0, 0.02, n),
    "bimodal": lambda draw, n: draw.choice([0, 0.05], n) + draw.normal(0, 0.005, n),
    "heavy tails": lambda draw, n: draw.standard_t(2.5, n) * 0.02,
    "ties": lambda draw, n: np.round(draw.normal(size=n)) * 0.01,
}


@pytest.mark.parametrize("n", [8, 25])
@pytest.mark.parametrize("noise", NOISES)
def test_a_history_without_a_change_has_one_in_at_most_five_per_cent(noise, n):
    draw, trials = np.random.default_rng(7), 120
    found = sum(bool(change_points(np.exp(NOISES[noise](draw, n)))) for _ in range(trials))
    # More than so many would come of a rate of 5 % once in 10,000 times.
    assert 1 - binomial_cdf(found - 1, trials, 0.05) > 1e-4


def test_after_a_change_was_found_a_second_one_is_as_rare():
    draw, trials = np.random.default_rng(8), 120
    step = np.repeat([0.0, 0.5], 12)
    found = [change_points(np.exp(step + draw.normal(0, 0.02, 24))) for _ in range(trials)]
    assert all(12 in each for each in found)
    assert 1 - binomial_cdf(sum(len(each) > 1 for each in found) - 1, trials, 0.05) > 1e-4


def test_a_change_of_four_deviations_is_found_where_it_is():
    draw = np.random.default_rng(9)
    found = [change_points(np.exp(np.repeat([0, 0.04], 10) + draw.normal(0, 0.01, 20))) for _ in range(40)]
    assert sum(10 in each for each in found) >= 36


def test_several_changes_are_found():
    draw = np.random.default_rng(10)
    steps = np.repeat([0.0, 0.3, -0.2], 10)
    assert change_points(np.exp(steps + draw.normal(0, 0.01, 30))) == [10, 20]


def test_equal_times_have_no_change():
    assert change_points([0.25] * 20) == []


def test_one_outlier_is_no_change():
    times = 1 + np.random.default_rng(11).normal(0, 0.01, 15)
    times[7] = 3.0
    assert change_points(times) == []


@pytest.mark.parametrize("count", range(4))
def test_a_series_too_short_to_split_has_no_change(count):
    assert change_points([1.0, 2.0, 8.0][:count]) == []


def process(commit, wall_s, minute, *, machine="m", edit=None, reason="", copy=0, label=""):
    """What one process of ``make bench`` left behind."""
    specification = CommandSpecification("make", "make bench", False, "f", label, commit if label else "", copy)
    environment = {"machine": {"id": machine}, "git": {"commit": commit, "changes": edit}}
    started = f"2026-01-01T00:{minute:02d}:00.000+00:00"
    header = CommandHeader(2, f"i{minute}", "k", 0, started, specification, environment, "0.2")
    times = {"wall": Measurement("wall", "s", wall_s, "clock")}
    return CommandRecord(Path("p"), header, times, CommandOutcome(1 if reason else 0, reason), end=ProcessEnd())


def revisions(*times_s):
    return [process(f"{at:x}" * 40, time_s, at) for at, time_s in enumerate(times_s)]


SLOWER = (1.0, 1.01, 0.99, 1.0, 1.01, 1.2, 1.21, 1.19, 1.2, 1.2)


def in_this_order(commits):
    return {f"{at:x}" * 40: at for at in range(16)}


def test_revisions_are_in_the_order_of_their_commits_whenever_they_were_measured():
    measured = [process(f"{at:x}" * 40, SLOWER[at], minute) for minute, at in enumerate((0, 9, 1, 8, 2, 7, 3, 6, 4, 5))]
    dirty = process("0" * 40, 1.0, 30, edit="e")
    (history,), _ = histories_of_commands([*measured, dirty], order=in_this_order)
    assert [each.name for each in history.points[:3]] == ["0" * 10, "0" * 10 + "+", "1" * 10]
    assert [each.at for each in history.changes] == [6]
    assert not any("order of measurement" in each for each in change_lines(history))


def test_revisions_none_of_which_git_knows_are_in_the_order_of_measurement_and_that_is_said():
    (history,), _ = histories_of_commands(revisions(*SLOWER), order=lambda commits: {})
    assert [each.commit[0] for each in history.points] == list("0123456789")
    assert "revisions are in the order of measurement" in change_lines(history)[-1]


def test_a_revision_that_git_does_not_know_stands_after_the_one_measured_before_it_and_the_others_stay_in_order():
    known = in_this_order(None)
    measured = [process(f"{at:x}" * 40, SLOWER[at], minute) for minute, at in enumerate((0, 9, 1, 8, 2, 7, 3, 6, 4, 5))]
    amended = process("e" * 40, 1.0, 20)
    del known["e" * 40], known["8" * 40]
    (history,), _ = histories_of_commands([*measured, amended], order=lambda commits: known)
    assert "".join(each.commit[0] for each in history.points) == "0182345e679"
    said = change_lines(history)[-1]
    assert "git does not know 8888888888, eeeeeeeeee here: each lies after the one that was measured before it" in said
    assert "git fetch --unshallow" in change_lines(history, shallow=True)[-1]


def test_a_slower_revision_is_named_with_its_ratio_and_the_command_that_tries_it_anew():
    (history,), _ = histories_of_commands(revisions(*SLOWER), order=in_this_order)
    (change,) = history.changes
    assert change.at == 5
    assert change.ratio == pytest.approx(np.mean(SLOWER[5:]) / np.mean(SLOWER[:5]), rel=1e-3)
    assert change.interval.low < 1.2 < change.interval.high
    first, second = change_lines(history)
    assert first.startswith("make bench (wall time): x1.198 [")
    assert second == f"  to be sure: levelbench time 'make bench' --revisions {'4' * 10},{'5' * 10} --until-clear"


def test_the_processes_of_a_revision_are_one_point_however_often_it_was_measured():
    records = [process("a" * 40, 1.0, 1), process("b" * 40, 2.0, 2), process("a" * 40, 4.0, 3, label="main")]
    ((history,), _) = histories_of_commands(records)
    assert [(each.commit[0], each.times_s, each.label) for each in history.points] == [
        ("a", (1.0, 4.0), "main"),
        ("b", (2.0,), ""),
    ]


def test_a_folder_with_uncommitted_changes_is_a_point_of_its_own():
    ((history,), _) = histories_of_commands([process("a" * 40, 1.0, 1), process("a" * 40, 1.0, 2, edit="e")])
    assert [each.name for each in history.points] == ["a" * 10, "a" * 10 + "+"]


def test_each_machine_has_its_own_history():
    found, _ = histories_of_commands([process("a" * 40, 1.0, 1), process("a" * 40, 1.0, 2, machine="other")])
    assert [each.machine for each in found] == ["m", "other"]


def test_failures_and_copies_count_for_nothing():
    records = [process("a" * 40, 1.0, 1), process("a" * 40, 9.0, 2, reason="exit 1"), process("a" * 40, 9.0, 3, copy=1)]
    ((history,), _) = histories_of_commands(records)
    assert history.points[0].times_s == (1.0,)


def test_what_is_of_no_known_commit_is_counted_and_left_out():
    found, unknown = histories_of_commands([process(None, 1.0, 1)])
    assert (found, unknown) == ([], 1)


def test_changes_are_looked_for_from_eight_revisions_on():
    (history,), _ = histories_of_commands(revisions(*SLOWER[: LEAST_POINTS - 1]))
    assert not history.changes
    assert "at least 8 revisions" in change_lines(history)[0]


@pytest.mark.parametrize(
    ("counts", "note"),
    [
        ((1, 1), ""),
        ((4, 4), "geometric mean [lowest to highest where n < 6]."),
        ((4, 8), "geometric mean [95 % interval, lowest to highest where n < 6]."),
        ((8, 8), "geometric mean [95 % interval]."),
    ],
)
def test_a_history_says_what_its_brackets_are(counts, note):
    points = tuple(
        Revision(str(at) * 40, "", "", "2026-01-01T00:00", tuple(1 + each / 100 for each in range(count)))
        for at, count in enumerate(counts)
    )
    table = history_table(History("a", "wall time", "m", points, ()), 0.95)
    assert " ".join(table.notes) == note


def test_where_runs_missed_their_target_no_change_is_looked_for(run, specification):
    def of(at, time_s):
        environment = {"machine": {"id": "m"}, "git": {"commit": f"{at:x}" * 40}}
        return run(time_s, seed=at, started=f"2026-01-01T00:{at:02d}:00.000+00:00", environment=environment)

    runs = [of(at, time_s) for at, time_s in enumerate([*SLOWER[:9], None])]
    (history,), _ = histories_of_runs([RunGroup("digits", "k", specification, tuple(runs))])
    assert "no time" in history.why_none
    assert "1 of them have no time" in to_text(history_table(history, 0.95))


def test_runs_have_a_history_of_their_time_to_accuracy(run, specification):
    environments = [{"machine": {"id": "m"}, "git": {"commit": f"{at:x}" * 40}} for at in range(len(SLOWER))]
    runs = [
        run(time_s, seed=at, started=f"2026-01-01T00:{at:02d}:00.000+00:00", environment=environments[at])
        for at, time_s in enumerate(SLOWER)
    ]
    (history,), _ = histories_of_runs([RunGroup("digits", "k", specification, tuple(runs))])
    assert [each.at for each in history.changes] == [5]
    assert history.measure == "time to accuracy"


def test_the_page_holds_every_revision_and_lets_no_name_become_markup():
    records = [process(f"{at:040x}", time_s, at, label="<b>") for at, time_s in enumerate(SLOWER)]
    histories, _ = histories_of_commands(records)
    page = history_page(histories, 0.95)
    assert "<b>" not in page
    assert page.count("2026-01-01 00:0") >= len(SLOWER)


def revision_of_runs(run, at, evaluations, digests=(), step_s=1.0):
    """A revision whose runs needed so many evaluations each; ``digests`` of what they computed."""
    runs = tuple(
        run(step_s * each * (1 + 0.001 * ((at + seed) % 3)), seed=seed, evaluations=each,
            losses_digest=digests[seed] if digests else "")
        for seed, each in enumerate(evaluations)
    )  # fmt: skip
    times = tuple(each.time_to_accuracy_s for each in runs)
    return Revision(f"{at:x}" * 40, "", "", f"2026-01-01T00:{at:02d}", times, runs=runs)


def history_of(points):
    return _history("digits", "time to accuracy", "m", tuple(points), 0.95)


def test_a_revision_of_runs_has_room_for_late_evaluations(run):
    point = revision_of_runs(run, 0, [5] * 8)
    assert point.estimate(0.95).interval.high > 1.05 * replace(point, runs=()).estimate(0.95).interval.high


def test_a_change_of_runs_has_room_for_late_evaluations(run):
    points = [revision_of_runs(run, at, [5], step_s=1.0 + 0.5 * (at >= 5)) for at in range(10)]
    (change,) = history_of(points).changes
    (bare,) = history_of([replace(each, runs=()) for each in points]).changes
    assert change.interval.low < 0.9 * bare.interval.low < bare.interval.high < 0.9 * change.interval.high
    assert bare.ratio == change.ratio


def test_a_change_of_speed_alone_is_as_sure_as_its_revisions_agree(run):
    digests = ["a", "b"]
    points = [revision_of_runs(run, at, [5, 6], digests, 1.0 + 0.5 * (at >= 5)) for at in range(10)]
    (change,) = history_of(points).changes
    assert change.interval.high / change.interval.low < 1.01


def test_seeds_that_every_revision_repeats_are_no_more_than_these_seeds(run):
    # Another computation of the same seeds, which need other numbers of evaluations by chance.
    sides = [([5, 5, 7], ["a", "b", "c"]), ([5, 6, 8], ["d", "e", "f"])]
    history = history_of([revision_of_runs(run, at, *sides[at >= 5]) for at in range(10)])
    (change,) = history.changes
    assert change.interval.low < 1 < change.ratio < change.interval.high
    assert change.seeds == 3
    assert any(
        "revisions repeat the same 3 seeds, and others may not show it" in line for line in change_lines(history)
    )
